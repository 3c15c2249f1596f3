// SPDX-License-Identifier: GPL-2.0
/* include/trace/events/smc.h: Rust has looked at the keys before. */
void smc_helper_trace_tx_sendmsg(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len)
{
	trace_smc_tx_sendmsg(smc, net_cookie, len, name, name_len);
}

void smc_helper_trace_rx_recvmsg(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len)
{
	trace_smc_rx_recvmsg(smc, net_cookie, len, name, name_len);
}

void smc_helper_trace_fallback(const void *sk, const void *clcsk, u64 net_cookie, int reason)
{
	trace_smc_switch_to_fallback(sk, clcsk, net_cookie, reason);
}

void smc_helper_trace_link_down(const void *lnk, const void *lgr, u64 net_cookie, int state, const char *name,
				size_t name_len)
{
	trace_smcr_link_down(lnk, lgr, net_cookie, state, name, name_len, __builtin_return_address(0));
}
