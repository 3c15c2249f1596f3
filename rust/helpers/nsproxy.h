/* SPDX-License-Identifier: GPL-2.0 */
struct nsproxy *smc_helper_current_nsproxy(void);
void smc_helper_set_current_nsproxy(struct nsproxy *ns);
void smc_helper_nsproxy_init_refs(struct nsproxy *ns);
bool smc_helper_nsproxy_is_shared(const struct nsproxy *ns);
