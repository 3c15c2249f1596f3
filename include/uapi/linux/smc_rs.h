/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What this module has for user space beside the interfaces of the C module, which are those of
 * <linux/smc.h> and <linux/smc_diag.h>. A kernel with the C module answers none of it.
 */

#ifndef _UAPI_LINUX_SMC_RS_H_
#define _UAPI_LINUX_SMC_RS_H_

#include <linux/types.h>

/*
 * Option of level SOL_SMC, for getsockopt(2) only: struct smc_info of the socket. The C module
 * answers EOPNOTSUPP.
 */
#define SMC_INFO	0x5201

/* smc_info.mode */
enum {
	SMC_INFO_MODE_SMCR	= 0,	/* connected over RDMA */
	SMC_INFO_MODE_TCP	= 1,	/* fell back to TCP */
	SMC_INFO_MODE_SMCD	= 2,	/* connected by shared memory */
	SMC_INFO_MODE_NONE	= 3,	/* not connected */
};

/* smc_info.role, smc_diag_cause.role */
enum {
	SMC_ROLE_CLIENT		= 1,	/* any socket that was not accepted */
	SMC_ROLE_SERVER		= 2,	/* one that was */
};

struct smc_info {
	__u32	mode;			/* SMC_INFO_MODE_* */
	__u32	reason;			/* for TCP, as in struct smc_diag_fallback */
	__u32	peer_diagnosis;		/* reason the peer gave, likewise; 0 if it did not decline */
	__u32	lgr_id;			/* link group, as SMC_NLA_LGR_R_ID; 0 without one */
	__u32	cause;			/* SMC_CAUSE_*; 0 if there is none */
	__u32	role;			/* SMC_ROLE_* */
};

/*
 * Attribute of sock_diag(7) for a socket that fell back to TCP: struct smc_diag_cause. Asked for by
 * the bit (SMC_DIAG_CAUSE - 1) of smc_diag_req.diag_ext.
 */
enum {
	SMC_DIAG_CAUSE = 8,
};

struct smc_diag_cause {
	__u32	cause;			/* SMC_CAUSE_*; 0 if there is none */
	__u32	role;			/* SMC_ROLE_* */
};

/*
 * Attribute of SMC_GEN_SYS_INFO, u8: who adds the SMC option to TCP's SYN, SMC_SYN_OPTION_*. The C
 * module, which needs TCP for it, does not answer it.
 */
enum {
	SMC_NLA_SYS_SYN_OPTION = 0x52,
};

enum {
	SMC_SYN_OPTION_TCP		= 1,	/* TCP: the kernel has CONFIG_SMC */
	SMC_SYN_OPTION_NETFILTER	= 2,	/* a netfilter hook */
};

/*
 * Attribute of a port in SMC_GEN_DEV_SMCR (SMC_NLA_DEV_PORT, SMC_NLA_DEV_PORT2), u32: the active MTU of
 * the port, the largest payload of an RDMA packet, bytes. The C module does not answer it.
 */
enum {
	SMC_NLA_DEV_PORT_MTU = 0x52,
};

/*
 * Attribute of SMC_GEN_LINK_SMCR, u8: the traffic class of what this host sends by the link.
 */
enum {
	SMC_NLA_LINK_TRAFFIC_CLASS = 0x52,
};

/*
 * Attribute of SMC_GEN_LGR_SMCR, u16: the VLAN id of the link group, 0 for none. SMC_NLA_LGR_R_VLAN_ID has the
 * low eight bits of it.
 */
enum {
	SMC_NLA_LGR_R_VLAN = 0x52,
};

/*
 * Attribute of SMC_GEN_FBACK_STATS, u64: connections that went over TCP for that reason.
 * SMC_NLA_FBACK_STATS_RSN_CNT has it up to 65,535.
 */
enum {
	SMC_NLA_FBACK_STATS_RSN_TOTAL = 0x52,
};

/*
 * What exactly was missing on this host when it gave up SMC for a connection: finer than the reason,
 * which is what the peer is told. `smc why` explains each.
 */
enum smc_cause {
	SMC_CAUSE_NO_COMMON_EID		= 1,	/* no enterprise ID in common */
	SMC_CAUSE_NO_OWN_EID		= 2,	/* no enterprise ID here */
	SMC_CAUSE_NO_INTERFACE		= 3,	/* no network device of the route */
	SMC_CAUSE_NO_DEVICE		= 4,	/* no RDMA device */
	SMC_CAUSE_OTHER_NAMESPACE	= 5,	/* RDMA devices in other namespaces only */
	SMC_CAUSE_OTHER_INTERFACE	= 6,	/* no RDMA device of the network device */
	SMC_CAUSE_EMPTY_NETWORK		= 7,	/* no RDMA port on the physical network */
	SMC_CAUSE_PORT_DOWN		= 8,	/* RDMA port not active */
	SMC_CAUSE_NO_ADDRESS		= 9,	/* no IPv4 RoCE v2 address at the port */
	SMC_CAUSE_WRONG_SUBNET		= 10,	/* none in the subnet of the connection */
	SMC_CAUSE_NO_PATH_TO_PEER	= 11,	/* no route to the peer's RDMA address */
	SMC_CAUSE_PATH_SILENT		= 12,	/* RDMA packets did not get through */
	SMC_CAUSE_PATH_FAILED		= 13,	/* nor did they a moment ago */
	SMC_CAUSE_PEER_BUSY		= 14,	/* another first contact took too long */
	SMC_CAUSE_TCP_KEYS		= 15,	/* TCP_MD5SIG or TCP_AO in use */
	SMC_CAUSE_DENIED_BY_RULE	= 16,	/* a rule (SMC_RS_CMD_SET_RULES) */
	SMC_CAUSE_NO_ROCE_V1		= 17,	/* the peer offers version 1 only */
	SMC_CAUSE_SMCD_OFF		= 18,	/* SMC-D within this kernel switched off */
	SMC_CAUSE_OTHER_KERNEL		= 19,	/* the peer offers that of another kernel only */
	SMC_CAUSE_CGROUP_LIMIT		= 20,	/* memory of the cgroup */
	SMC_CAUSE_ALL_SOCKETS_LIMIT	= 21,	/* memory of all SMC sockets */
	SMC_CAUSE_PEER_GROUPS_LIMIT	= 22,	/* link groups with the peer */
	SMC_CAUSE_ALL_GROUPS_LIMIT	= 23,	/* link groups of the host */
	SMC_CAUSE_DEVICE_SGE		= 24,	/* RDMA device: SGEs of a work request */
	SMC_CAUSE_DEVICE_QUEUE		= 25,	/* its queues are too small */
	SMC_CAUSE_DEVICE_FAST_REG	= 26,	/* registration by work requests */
	SMC_CAUSE_DEVICE_RC		= 27,	/* no reliable connected queue pairs */
	SMC_CAUSE_DEVICE_QPS		= 28,	/* none left */
	SMC_CAUSE_DEVICE_CQS		= 29,	/* none left */
	SMC_CAUSE_DEVICE_MRS		= 30,	/* none left, or no protection domain */
	SMC_CAUSE_NO_ANSWER		= 31,	/* to the PROPOSAL, in time */
	SMC_CAUSE_BOTH_CLIENTS		= 32,	/* both ends, or a socket to itself */
	SMC_CAUSE_HANDSHAKES_LIMIT	= 33,	/* of clients, in the namespace */
	SMC_CAUSE_SYN_UNANSWERED	= 34,	/* a SYN that offered SMC */
};

/*
 * Generic netlink family for rules that say which connections of the caller's network namespace may
 * use SMC. The first rule that matches a connection decides; one that none matches may.
 */
#define SMC_RS_GENL_NAME	"SMC_RS"
#define SMC_RS_GENL_VERSION	1

enum {
	/* No privilege; the answer has SMC_RS_A_GENERATION and SMC_RS_A_RULES. */
	SMC_RS_CMD_GET_RULES	= 1,
	/*
	 * CAP_NET_ADMIN in the user namespace of the network namespace; SMC_RS_A_RULES replace all rules
	 * at once. With SMC_RS_A_GENERATION only if it is still that, else ESTALE. E2BIG: more than
	 * SMC_RULES_MAX. EINVAL: one of them is no rule.
	 */
	SMC_RS_CMD_SET_RULES	= 2,
};

enum {
	SMC_RS_A_RULES		= 1,	/* array of struct smc_rule, in their order */
	SMC_RS_A_GENERATION	= 2,	/* __u32: changes with the rules */
};

#define SMC_RULES_MAX	1024

/* smc_rule.action */
enum {
	SMC_RULE_ALLOW	= 1,		/* SMC if both ends can */
	SMC_RULE_DENY	= 2,		/* TCP */
};

/* One end of a connection: its address begins with prefix_len bits of addr. */
struct smc_rule_end {
	__u16	family;			/* AF_INET, AF_INET6; 0: any address, and prefix_len is 0 */
	__u8	prefix_len;
	__u8	reserved;		/* 0 */
	__u16	port_first;		/* 0 to 65535 for any port */
	__u16	port_last;
	__u8	addr[16];		/* IPv4 in the first four bytes; other bits are 0 */
};

struct smc_rule {
	__u8	action;			/* SMC_RULE_* */
	__u8	role;			/* SMC_ROLE_* of this host; 0: both */
	__u16	reserved;		/* 0 */
	struct smc_rule_end local;
	struct smc_rule_end peer;
};

#endif /* _UAPI_LINUX_SMC_RS_H_ */
