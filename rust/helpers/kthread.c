// SPDX-License-Identifier: GPL-2.0
/* include/linux/kthread.h */
struct task_struct *smc_helper_kthread_create(int (*fn)(void *data), void *data)
{
	return kthread_create(fn, data, "smc_iwarp");
}

void smc_helper_allow_kill(void)
{
	allow_signal(SIGKILL);
}

void smc_helper_kill(struct task_struct *task)
{
	send_sig(SIGKILL, task, 1);
}

void smc_helper_get_task(struct task_struct *task)
{
	get_task_struct(task);
}
