// SPDX-License-Identifier: GPL-2.0
/*
 * BPF programs that lead what is sent on TCP connections within a machine from socket to socket, past TCP: what service
 * meshes do to be faster without RDMA or SMC, to be compared with.
 *
 * Needs no headers: the few numbers and layouts are those of include/uapi/linux/bpf.h.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
/* What libbpf reads of a map: numbers as lengths of arrays, types as what a pointer points to. */
#define UINT(name, number) int (*name)[number]
#define TYPE(name, type) type *name

enum { AF_INET = 2 };
enum { BPF_MAP_TYPE_SOCKHASH = 18 };
enum { BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB = 4, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5 };
enum { BPF_ANY = 0, BPF_F_INGRESS = 1 };
enum { SK_PASS = 1 };

/* The beginning of struct bpf_sock_ops. Addresses are in network order, and so is the remote port, the other is not. */
struct sock_ops {
	u32 op;
	u32 args[4];
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
};

/* The beginning of struct sk_msg_md, with ports as above. */
struct sk_msg {
	u64 data;
	u64 data_end;
	u32 family;
	u32 remote_ip4;
	u32 local_ip4;
	u32 remote_ip6[4];
	u32 local_ip6[4];
	u32 remote_port;
	u32 local_port;
};

/* A socket by its addresses, all in network order. */
struct key {
	u32 local_ip4;
	u32 remote_ip4;
	u32 local_port;
	u32 remote_port;
};

static long (*const sock_hash_update)(struct sock_ops *ops, void *map, void *key, u64 flags) = (void *)70;
static long (*const msg_redirect_hash)(struct sk_msg *msg, void *map, void *key, u64 flags) = (void *)71;

struct {
	UINT(type, BPF_MAP_TYPE_SOCKHASH);
	TYPE(key, struct key);
	TYPE(value, u32);
	UINT(max_entries, 65536);
} connections SEC(".maps");

SEC("sockops")
int established(struct sock_ops *ops)
{
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
int redirect(struct sk_msg *msg)
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
