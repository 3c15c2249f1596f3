// SPDX-License-Identifier: GPL-2.0
/* include/linux/spinlock.h */
int smc_helper_spin_trylock(spinlock_t *lock)
{
	return spin_trylock(lock);
}

void smc_helper_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}

void smc_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void smc_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int smc_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}
