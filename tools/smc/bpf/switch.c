// SPDX-License-Identifier: GPL-2.0
/*
 * Turns TCP sockets of chosen cgroups and programs into SMC sockets while they are made.
 *
 * update_socket_protocol() (net/socket.c) exists to be changed by programs like this one: what it returns,
 * if that is not 0, is the protocol of the new socket. It is called for socket(2) alone, so neither the
 * kernel's own sockets nor those of socketpair(2) or accept(2) come here.
 *
 * Needs no headers: the few numbers are those of include/uapi.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
/* What libbpf reads of a map: numbers as lengths of arrays, types as what a pointer points to. */
#define UINT(name, number) int (*name)[number]
#define TYPE(name, type) type *name

enum { AF_INET = 2, AF_INET6 = 10, AF_SMC = 43 };
enum { SOCK_STREAM = 1, SOCK_TYPE_MASK = 0xf };
enum { IPPROTO_TCP = 6, IPPROTO_SMC = 256, IPPROTO_MPTCP = 262 };
enum { BPF_MAP_TYPE_HASH = 1 };
enum { COMM_LEN = 16 };

/* Levels of cgroups that are looked at, from the root down; the same in switch/choice.rs. */
enum { LEVELS = 64 };

static void *(*const map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const probe_read_kernel)(void *to, u32 len, const void *from) = (void *)113;
static long (*const probe_read_kernel_str)(void *to, u32 len, const void *from) = (void *)115;
static u64 (*const get_current_ancestor_cgroup_id)(int level) = (void *)123;
static struct task_struct *(*const get_current_task_btf)(void) = (void *)158;

/* What is read of it; where that is, libbpf finds in the type information of the kernel that runs. */
struct task_struct {
	struct task_struct *group_leader;
	char comm[COMM_LEN];
} __attribute__((preserve_access_index));

/* Ids of the chosen cgroups; those below count as well. */
struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	TYPE(key, u64);
	TYPE(value, u8);
	UINT(max_entries, 1024);
} cgroups SEC(".maps");

struct comm {
	char name[COMM_LEN];
};

/* Names of the chosen programs, as in /proc/PID/comm, filled up with zeroes. */
struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct comm);
	TYPE(value, u8);
	UINT(max_entries, 1024);
} programs SEC(".maps");

/*
 * The socket families, each null without a module for it. The address is that of /proc/kallsyms, 0 if the kernel does
 * not tell.
 */
extern const void net_families __attribute__((section(".ksyms"), weak));

/* MPTCP as well: listeners of Go ask for it without their programs knowing. */
static inline int is_tcp(u64 family, u64 type, u64 protocol)
{
	return ((u32)family == AF_INET || (u32)family == AF_INET6) &&
	       ((u32)type & SOCK_TYPE_MASK) == SOCK_STREAM &&
	       ((u32)protocol == 0 || (u32)protocol == IPPROTO_TCP || (u32)protocol == IPPROTO_MPTCP);
}

/* Without the module a program would get no socket at all. */
static inline int is_smc_there(void)
{
	u64 family = 0;

	if (!&net_families)
		return 1;
	return !probe_read_kernel(&family, sizeof(family), (const u64 *)&net_families + AF_SMC) && family;
}

/* The name of a program is that of its first thread; others may have names of their own. */
static inline int is_program_chosen(void)
{
	struct task_struct *leader = get_current_task_btf()->group_leader;
	struct comm comm = {};

	probe_read_kernel_str(comm.name, sizeof(comm.name), leader->comm);
	return map_lookup_elem(&programs, &comm) != 0;
}

static inline int is_cgroup_chosen(void)
{
	for (int level = 0; level < LEVELS; level++) {
		u64 id = get_current_ancestor_cgroup_id(level);

		if (!id)
			return 0;
		if (map_lookup_elem(&cgroups, &id))
			return 1;
	}
	return 0;
}

/* ctx: the three arguments, and what a program before this one returned. */
SEC("fmod_ret/update_socket_protocol")
int smc_switch(u64 *ctx)
{
	if (!is_tcp(ctx[0], ctx[1], ctx[2]))
		return 0;
	if (!is_program_chosen() && !is_cgroup_chosen())
		return 0;
	return is_smc_there() ? IPPROTO_SMC : 0;
}

/* Some helpers are for programs under this license only. */
char license_of_this[] SEC("license") = "GPL";
