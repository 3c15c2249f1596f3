/* SPDX-License-Identifier: GPL-2.0 */
void smc_helper_init_delayed_work(struct delayed_work *work, work_func_t func);
