// SPDX-License-Identifier: GPL-2.0
/* include/linux/nsproxy.h */
struct nsproxy *smc_helper_current_nsproxy(void)
{
	return current->nsproxy;
}

/* The rule of the header: a task changes its own pointer only, under its lock. */
void smc_helper_set_current_nsproxy(struct nsproxy *ns)
{
	task_lock(current);
	current->nsproxy = ns;
	task_unlock(current);
}

void smc_helper_nsproxy_init_refs(struct nsproxy *ns)
{
	refcount_set(&ns->count, 1);
}

bool smc_helper_nsproxy_is_shared(const struct nsproxy *ns)
{
	return refcount_read(&ns->count) > 1;
}
