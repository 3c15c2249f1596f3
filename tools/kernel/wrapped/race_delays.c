// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: random delays around the locks and the atomics of smc.ko, so that what another processor does between
 * two of them is met in thousands of calls, not in millions.
 *
 * One in `one_in` such calls waits for up to `most_us` microseconds, busily; one in eight of these sleeps instead
 * where the task may, so that others run on its processor. `delays` and `sleeps` count both.
 *
 * smc.ko is linked so that it calls these functions in place of the kernel's: see `build`.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/random.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

static unsigned int one_in = 128;
module_param(one_in, uint, 0644);
MODULE_PARM_DESC(one_in, "One in so many calls waits; 0: none");
static unsigned int most_us = 100;
module_param(most_us, uint, 0644);
MODULE_PARM_DESC(most_us, "The longest wait, microseconds");
static unsigned long delays, sleeps;
module_param(delays, ulong, 0444);
MODULE_PARM_DESC(delays, "Calls that waited");
module_param(sleeps, ulong, 0444);
MODULE_PARM_DESC(sleeps, "Those of them that slept");

static DEFINE_PER_CPU(u32, seeds);

/* xorshift32. Interrupts may come in between: the numbers need not be good. */
static u32 next_random(void)
{
	u32 x = raw_cpu_read(seeds);

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	raw_cpu_write(seeds, x);
	return x;
}

static void maybe_wait(void)
{
	unsigned int n = READ_ONCE(one_in), us = READ_ONCE(most_us);
	u32 x;

	if (!n || !us)
		return;
	x = next_random();
	if ((x >> 8) % n)
		return;
	data_race(delays++);
	us = 1 + (next_random() >> 8) % us;
	/* A task that is about to wait has its state set, which sleeping here would change. */
	if (!(x & 7) && preemptible() && task_is_running(current)) {
		data_race(sleeps++);
		usleep_range(us, us + 10);
	} else {
		udelay(us);
	}
}

/* The call FUNCTION(ARGS), of the type TYPE or void, with the parameters PARAMS: a wait before and one after. */
#define WRAP(type, function, params, args)			\
	type function params;					\
	type __wrap_##function params;				\
	type __wrap_##function params				\
	{							\
		type result;					\
								\
		maybe_wait();					\
		result = function args;				\
		maybe_wait();					\
		return result;					\
	}							\
	EXPORT_SYMBOL_GPL(__wrap_##function);

#define WRAP_VOID(function, params, args)			\
	void function params;					\
	void __wrap_##function params;				\
	void __wrap_##function params				\
	{							\
		maybe_wait();					\
		function args;					\
		maybe_wait();					\
	}							\
	EXPORT_SYMBOL_GPL(__wrap_##function);

WRAP_VOID(rust_helper_spin_lock, (spinlock_t *lock), (lock))
WRAP_VOID(rust_helper_spin_unlock, (spinlock_t *lock), (lock))
WRAP(int, rust_helper_spin_trylock, (spinlock_t *lock), (lock))
WRAP_VOID(rust_helper_mutex_lock, (struct mutex *lock), (lock))

WRAP(int, rust_helper_atomic_read, (const atomic_t *v), (v))
WRAP(int, rust_helper_atomic_read_acquire, (const atomic_t *v), (v))
WRAP_VOID(rust_helper_atomic_set, (atomic_t *v, int i), (v, i))
WRAP_VOID(rust_helper_atomic_set_release, (atomic_t *v, int i), (v, i))
WRAP(int, rust_helper_atomic_fetch_add, (int i, atomic_t *v), (i, v))
WRAP(int, rust_helper_atomic_fetch_add_relaxed, (int i, atomic_t *v), (i, v))
WRAP(int, rust_helper_atomic_fetch_sub, (int i, atomic_t *v), (i, v))
WRAP(int, rust_helper_atomic_fetch_sub_relaxed, (int i, atomic_t *v), (i, v))
WRAP(int, rust_helper_atomic_xchg_relaxed, (atomic_t *v, int i), (v, i))
WRAP(bool, rust_helper_atomic_try_cmpxchg, (atomic_t *v, int *old, int new), (v, old, new))
WRAP(bool, rust_helper_atomic_try_cmpxchg_relaxed, (atomic_t *v, int *old, int new), (v, old, new))

WRAP(s64, rust_helper_atomic64_read, (const atomic64_t *v), (v))
WRAP(s64, rust_helper_atomic64_read_acquire, (const atomic64_t *v), (v))
WRAP_VOID(rust_helper_atomic64_set, (atomic64_t *v, s64 i), (v, i))
WRAP_VOID(rust_helper_atomic64_set_release, (atomic64_t *v, s64 i), (v, i))
WRAP(s64, rust_helper_atomic64_fetch_add_relaxed, (s64 i, atomic64_t *v), (i, v))
WRAP(s64, rust_helper_atomic64_fetch_sub_relaxed, (s64 i, atomic64_t *v), (i, v))
WRAP(s64, rust_helper_atomic64_xchg, (atomic64_t *v, s64 i), (v, i))
WRAP(s64, rust_helper_atomic64_xchg_relaxed, (atomic64_t *v, s64 i), (v, i))
WRAP(bool, rust_helper_atomic64_try_cmpxchg, (atomic64_t *v, s64 *old, s64 new), (v, old, new))
WRAP(bool, rust_helper_atomic64_try_cmpxchg_relaxed, (atomic64_t *v, s64 *old, s64 new), (v, old, new))

WRAP(s8, rust_helper_atomic_i8_read, (s8 *v), (v))
WRAP(s8, rust_helper_atomic_i8_read_acquire, (s8 *v), (v))
WRAP_VOID(rust_helper_atomic_i8_set, (s8 *v, s8 i), (v, i))
WRAP_VOID(rust_helper_atomic_i8_set_release, (s8 *v, s8 i), (v, i))
WRAP(s8, rust_helper_atomic_i8_xchg, (s8 *v, s8 i), (v, i))

WRAP_VOID(rust_helper_refcount_inc, (refcount_t *r), (r))
WRAP(bool, rust_helper_refcount_dec_and_test, (refcount_t *r), (r))

/* These are declared in the kernel's headers, some as macros. */
#define WRAP_LOCK(lock_type, function)				\
	void __wrap_##function(lock_type *lock);		\
	void __wrap_##function(lock_type *lock)			\
	{							\
		maybe_wait();					\
		function(lock);					\
		maybe_wait();					\
	}							\
	EXPORT_SYMBOL_GPL(__wrap_##function);

WRAP_LOCK(raw_spinlock_t, _raw_spin_lock)
WRAP_LOCK(raw_spinlock_t, _raw_spin_unlock)
WRAP_LOCK(raw_spinlock_t, _raw_spin_lock_bh)
WRAP_LOCK(raw_spinlock_t, _raw_spin_unlock_bh)
WRAP_LOCK(rwlock_t, _raw_read_lock_bh)
WRAP_LOCK(rwlock_t, _raw_read_unlock_bh)
WRAP_LOCK(rwlock_t, _raw_write_lock_bh)
WRAP_LOCK(rwlock_t, _raw_write_unlock_bh)
WRAP_LOCK(struct mutex, mutex_unlock)

static int __init race_delays_init(void)
{
	int cpu;

	/* 0 would stay 0. */
	for_each_possible_cpu(cpu)
		per_cpu(seeds, cpu) = get_random_u32() | 1;
	return 0;
}

static void __exit race_delays_exit(void)
{
}

module_init(race_delays_init);
module_exit(race_delays_exit);
MODULE_DESCRIPTION("SMC tests: random delays around locks and atomics");
MODULE_LICENSE("GPL");
