// SPDX-License-Identifier: GPL-2.0
/*
 * A control of net.smc.hs_ctrl, for hs_ctrl.sh: TCP asks syn() whether a SYN has the SMC option, and synack() whether a
 * SYN-ACK has it. What it is called and what it refuses is given to the compiler.
 *
 * Needs no headers: libbpf finds where the kernel has the members that are named here.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))

/* The name and the flags. */
#ifndef NAME
#define NAME "control"
#endif
#ifndef FLAGS
#define FLAGS 0
#endif
/* That of the struct_ops. */
#ifndef SECTION
#define SECTION ".struct_ops"
#endif
/* Ports of the server, that a client and a server refuse; addresses of the peer. None is 0. */
#ifndef SYN_PORT
#define SYN_PORT 0
#endif
#ifndef SYNACK_PORT
#define SYNACK_PORT 0
#endif
#ifndef SYN_ADDRESS
#define SYN_ADDRESS 0
#endif
#ifndef SYNACK_ADDRESS
#define SYNACK_ADDRESS 0
#endif

struct sock_common {
	u32 skc_daddr;
	u16 skc_dport;
	u16 skc_num;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
} RELOCATED;

struct inet_sock {
	struct sock sk;
} RELOCATED;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} RELOCATED;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
} RELOCATED;

struct request_sock {
	struct sock_common __req_common;
} RELOCATED;

struct inet_request_sock {
	struct request_sock req;
} RELOCATED;

struct smc_hs_ctrl {
	char name[16];
	int flags;
	int (*syn_option)(struct tcp_sock *tp);
	int (*synack_option)(const struct tcp_sock *tp, struct inet_request_sock *ireq);
};

SEC("struct_ops")
int syn(u64 *args)
{
	const struct tcp_sock *tp = (void *)args[0];
	u32 address = tp->inet_conn.icsk_inet.sk.__sk_common.skc_daddr;
	u16 port = tp->inet_conn.icsk_inet.sk.__sk_common.skc_dport;

	return !(SYN_PORT && port == __builtin_bswap16(SYN_PORT)) &&
	       !(SYN_ADDRESS && address == __builtin_bswap32(SYN_ADDRESS));
}

SEC("struct_ops")
int synack(u64 *args)
{
	const struct inet_request_sock *ireq = (void *)args[1];
	u32 address = ireq->req.__req_common.skc_daddr;
	u16 port = ireq->req.__req_common.skc_num;

	return !(SYNACK_PORT && port == SYNACK_PORT) &&
	       !(SYNACK_ADDRESS && address == __builtin_bswap32(SYNACK_ADDRESS));
}

SEC(SECTION)
struct smc_hs_ctrl control = {
	.name = NAME,
	.flags = FLAGS,
	.syn_option = (void *)syn,
	.synack_option = (void *)synack,
};

char gpl[] SEC("license") = "GPL";
