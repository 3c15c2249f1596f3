/* SPDX-License-Identifier: GPL-2.0 */
void smc_helper_trace_tx_sendmsg(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len);
void smc_helper_trace_rx_recvmsg(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len);
void smc_helper_trace_fallback(const void *sk, const void *clcsk, u64 net_cookie, int reason);
void smc_helper_trace_link_down(const void *lnk, const void *lgr, u64 net_cookie, int state, const char *name,
				size_t name_len);
