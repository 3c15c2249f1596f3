// SPDX-License-Identifier: GPL-2.0
/*
 * BPF programs that lead what is sent on TCP connections within a machine from socket to socket, past TCP: what service
 * meshes do to be faster without RDMA or SMC, to be compared with.
 */
#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
/* What libbpf reads of a map: numbers as lengths of arrays, types as what a pointer points to. */
#define UINT(name, number) int (*name)[number]
#define TYPE(name, type) type *name

enum { AF_INET = 2 };

/* A socket by its addresses, all in network order. */
struct key {
	__u32 local_ip4;
	__u32 remote_ip4;
	__u32 local_port;
	__u32 remote_port;
};

static long (*const sock_hash_update)(struct bpf_sock_ops *ops, void *map, void *key,
				      __u64 flags) = (void *)BPF_FUNC_sock_hash_update;
static long (*const msg_redirect_hash)(struct sk_msg_md *msg, void *map, void *key,
				       __u64 flags) = (void *)BPF_FUNC_msg_redirect_hash;

struct {
	UINT(type, BPF_MAP_TYPE_SOCKHASH);
	TYPE(key, struct key);
	TYPE(value, __u32);
	UINT(max_entries, 65536);
} connections SEC(".maps");

SEC("sockops")
int established(struct bpf_sock_ops *ops)
{
	/* The local port alone is in the order of the host. */
	struct key key = {
		.local_ip4 = ops->local_ip4,
		.remote_ip4 = ops->remote_ip4,
		.local_port = __builtin_bswap32(ops->local_port),
		.remote_port = ops->remote_port,
	};

	if (ops->family != AF_INET)
		return 1;
	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		sock_hash_update(ops, &connections, &key, BPF_ANY);
	return 1;
}

/* Where the other end is not here, the message goes by TCP. */
SEC("sk_msg")
int redirect(struct sk_msg_md *msg)
{
	struct key peer = {
		.local_ip4 = msg->remote_ip4,
		.remote_ip4 = msg->local_ip4,
		.local_port = msg->remote_port,
		.remote_port = __builtin_bswap32(msg->local_port),
	};

	msg_redirect_hash(msg, &connections, &peer, BPF_F_INGRESS);
	return SK_PASS;
}

char terms[] SEC("license") = "GPL";
