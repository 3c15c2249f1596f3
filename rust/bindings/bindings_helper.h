/* SPDX-License-Identifier: GPL-2.0 */
/* The only list of C headers that the module binds, alphabetical. */
#ifndef SMC_BINDINGS_HELPER_H
#define SMC_BINDINGS_HELPER_H

#include <asm/ioctls.h>
#include <linux/bottom_half.h>
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/irq_poll.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <uapi/linux/netfilter_ipv4/ip_tables.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/ratelimit.h>
#include <linux/reboot.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/security.h>
#include <linux/shrinker.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/spinlock.h>
#include <linux/sysctl.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/genetlink.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/netns/generic.h>
#include <net/proto_memory.h>
#include <net/protocol.h>
#include <net/request_sock.h>
#include <net/route.h>
#include <net/smc.h>
#include <net/sock.h>
#include <net/sock_reuseport.h>
#include <net/tcp.h>
#include <net/transp_v6.h>
#include <net/vxlan.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <trace/events/smc.h>
#include <uapi/linux/smc.h>
#include <uapi/linux/smc_rs.h>

#if !IS_ENABLED(CONFIG_SMC) && !IS_ENABLED(CONFIG_NETFILTER)
#error "this kernel has neither CONFIG_SMC nor CONFIG_NETFILTER: there is no way to the SMC option of TCP"
#endif

const unsigned long RUST_CONST_HELPER_SMC_HZ = CONFIG_HZ;
const u32 RUST_CONST_HELPER_SOCK_DIAG_ALLOC = SKB_WITH_OVERHEAD(32768);
const gfp_t RUST_CONST_HELPER_GFP_KERNEL = GFP_KERNEL;
const gfp_t RUST_CONST_HELPER_GFP_ATOMIC = GFP_ATOMIC;

/* What the C compiler says of the layouts that Rust relies on; see rust/kernel/net/layout.rs. */
enum smc_layout {
	SMC_SIZEOF_SOCK = sizeof(struct sock),
	SMC_SIZEOF_INET_SOCK = sizeof(struct inet_sock),
	SMC_SIZEOF_TCP_SOCK = sizeof(struct tcp_sock),
	SMC_SIZEOF_IPV6_PINFO = sizeof(struct ipv6_pinfo),
	SMC_SIZEOF_PROTO = sizeof(struct proto),
	SMC_SIZEOF_PROTO_OPS = sizeof(struct proto_ops),
	SMC_SIZEOF_MSGHDR = sizeof(struct msghdr),
	SMC_OFFSETOF_MSG_COUNT = offsetof(struct msghdr, msg_iter.count),
	SMC_OFFSETOF_SK_INCOMING_CPU = offsetof(struct sock, sk_incoming_cpu),
	SMC_OFFSETOF_SK_TXREHASH = offsetof(struct sock, sk_txrehash),
	SMC_OFFSETOF_ICSK_ULP_DATA = offsetof(struct inet_connection_sock, icsk_ulp_data),
	SMC_OFFSETOF_KEEPALIVE_TIME = offsetof(struct tcp_sock, keepalive_time),
	SMC_OFFSETOF_NOTSENT_LOWAT = offsetof(struct tcp_sock, notsent_lowat),
	SMC_OFFSETOF_SOCKET_WQ = offsetof(struct socket, wq),
	SMC_OFFSETOF_SK_DATA_READY = offsetof(struct sock, sk_data_ready),
	SMC_OFFSETOF_SK_PROT_CREATOR = offsetof(struct sock, sk_prot_creator),
	SMC_OFFSETOF_SK_USER_DATA = offsetof(struct sock, sk_user_data),
	SMC_OFFSETOF_SK_WQ = offsetof(struct sock, sk_wq),
	SMC_OFFSETOF_NET_TCP_RMEM = offsetof(struct net, ipv4.sysctl_tcp_rmem),
	SMC_OFFSETOF_NET_TCP_WMEM = offsetof(struct net, ipv4.sysctl_tcp_wmem),
#if IS_ENABLED(CONFIG_SMC_HS_CTRL_BPF)
	SMC_SIZEOF_HS_CTRL = sizeof(struct smc_hs_ctrl),
	SMC_SIZEOF_BPF_STRUCT_OPS = sizeof(struct bpf_struct_ops),
	SMC_SIZEOF_BPF_VERIFIER_OPS = sizeof(struct bpf_verifier_ops),
	SMC_OFFSETOF_BPF_STRUCT_OPS_NAME = offsetof(struct bpf_struct_ops, name),
#endif
};

#endif
