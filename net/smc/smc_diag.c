// SPDX-License-Identifier: GPL-2.0
/*
 * smc_diag.ko, for scripts that load it: in the C implementation sock_diag is a module of its own, here smc.ko has it.
 * It also takes the place of the C module of this name, which needs symbols of the C smc.ko.
 */
#include <linux/module.h>

MODULE_DESCRIPTION("SMC-R: loads smc, which has the sock_diag interface");
MODULE_LICENSE("GPL");
MODULE_VERSION(SMC_VERSION);
MODULE_SOFTDEP("pre: smc");
