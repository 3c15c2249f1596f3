/* SPDX-License-Identifier: GPL-2.0 */
const char *smc_helper_param_ueid(void);
