// SPDX-License-Identifier: GPL-2.0
/* include/net/sock.h, include/net/tcp.h, include/linux/net.h */
void smc_helper_tcp_have_smc_enable(void)
{
	static_branch_enable(&tcp_have_smc);
}

void smc_helper_tcp_have_smc_disable(void)
{
	static_branch_disable(&tcp_have_smc);
}
