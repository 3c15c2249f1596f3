// SPDX-License-Identifier: GPL-2.0
/* include/linux/moduleparam.h: module! has numbers only. */
static char *ueid;
module_param(ueid, charp, 0444);
MODULE_PARM_DESC(ueid, "user enterprise ID to begin with; empty for none");

const char *smc_helper_param_ueid(void)
{
	return ueid;
}
