/* SPDX-License-Identifier: GPL-2.0 */
struct task_struct *smc_helper_kthread_create(int (*fn)(void *data),
					      void *data);
void smc_helper_allow_kill(void);
void smc_helper_kill(struct task_struct *task);
void smc_helper_get_task(struct task_struct *task);
