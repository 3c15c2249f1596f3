// SPDX-License-Identifier: GPL-2.0
/* include/linux/bottom_half.h */
void smc_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void smc_helper_local_bh_enable(void)
{
	local_bh_enable();
}

bool smc_helper_in_serving_softirq(void)
{
	return in_serving_softirq();
}
