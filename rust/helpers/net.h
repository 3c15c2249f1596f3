/* SPDX-License-Identifier: GPL-2.0 */
void smc_helper_tcp_have_smc_enable(void);
void smc_helper_tcp_have_smc_disable(void);
