/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints of the C module (net/smc/smc_tracepoint.h), with its names and fields. They take what they
 * show as it is, so that nothing outside Rust has to know a Rust object.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM smc

#if !defined(_TRACE_SMC_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_SMC_H

#include <linux/tracepoint.h>

TRACE_EVENT(smc_switch_to_fallback,
	TP_PROTO(const void *sk, const void *clcsk, u64 net_cookie, int fallback_rsn),
	TP_ARGS(sk, clcsk, net_cookie, fallback_rsn),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(const void *, clcsk)
		__field(u64, net_cookie)
		__field(int, fallback_rsn)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->clcsk = clcsk;
		__entry->net_cookie = net_cookie;
		__entry->fallback_rsn = fallback_rsn;
	),
	TP_printk("sk=%p clcsk=%p net=%llu fallback_rsn=%d",
		__entry->sk, __entry->clcsk, __entry->net_cookie, __entry->fallback_rsn)
);

DECLARE_EVENT_CLASS(smc_msg_event,
	TP_PROTO(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len),
	TP_ARGS(smc, net_cookie, len, name, name_len),
	TP_STRUCT__entry(
		__field(const void *, smc)
		__field(u64, net_cookie)
		__field(size_t, len)
		__string_len(name, name, name_len)
	),
	TP_fast_assign(
		__entry->smc = smc;
		__entry->net_cookie = net_cookie;
		__entry->len = len;
		__assign_str(name);
	),
	TP_printk("smc=%p net=%llu len=%zu dev=%s",
		__entry->smc, __entry->net_cookie, __entry->len, __get_str(name))
);

DEFINE_EVENT(smc_msg_event, smc_tx_sendmsg,
	TP_PROTO(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len),
	TP_ARGS(smc, net_cookie, len, name, name_len)
);

DEFINE_EVENT(smc_msg_event, smc_rx_recvmsg,
	TP_PROTO(const void *smc, u64 net_cookie, size_t len, const char *name, size_t name_len),
	TP_ARGS(smc, net_cookie, len, name, name_len)
);

TRACE_EVENT(smcr_link_down,
	TP_PROTO(const void *lnk, const void *lgr, u64 net_cookie, int state, const char *name,
		 size_t name_len, void *location),
	TP_ARGS(lnk, lgr, net_cookie, state, name, name_len, location),
	TP_STRUCT__entry(
		__field(const void *, lnk)
		__field(const void *, lgr)
		__field(u64, net_cookie)
		__field(int, state)
		__string_len(name, name, name_len)
		__field(void *, location)
	),
	TP_fast_assign(
		__entry->lnk = lnk;
		__entry->lgr = lgr;
		__entry->net_cookie = net_cookie;
		__entry->state = state;
		__assign_str(name);
		__entry->location = location;
	),
	TP_printk("lnk=%p lgr=%p net=%llu state=%d dev=%s location=%pS",
		__entry->lnk, __entry->lgr, __entry->net_cookie, __entry->state, __get_str(name),
		__entry->location)
);

#endif /* _TRACE_SMC_H */

/* This part must be outside protection */
#include <trace/define_trace.h>
