// SPDX-License-Identifier: GPL-2.0
/* include/linux/workqueue.h */
void smc_helper_init_delayed_work(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}
