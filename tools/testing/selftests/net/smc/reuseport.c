// SPDX-License-Identifier: GPL-2.0

/*
 * reuseport FAMILY PROTOCOL: a listener in a group of SO_REUSEPORT gets an eBPF program of the type that chooses
 * among listeners (BPF_PROG_TYPE_SK_REUSEPORT), which leaves the choice to the kernel. Takes a connection of TCP
 * then, and has the program taken off. Prints "attached, accepted, detached", or the call that failed.
 *
 * reuseport FAMILY PROTOCOL map: puts such a listener into a map (BPF_MAP_TYPE_REUSEPORT_SOCKARRAY).
 */

#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ok(const char *call, int result)
{
	if (result < 0) {
		printf("%s: %d\n", call, errno);
		exit(1);
	}
	return result;
}

static void put_into_map(int listener)
{
	const uint32_t key = 0;
	const uint64_t value = listener;
	union bpf_attr create = {
		.map_type = BPF_MAP_TYPE_REUSEPORT_SOCKARRAY,
		.key_size = sizeof(key),
		.value_size = sizeof(value),
		.max_entries = 1,
	};
	union bpf_attr update = {
		.map_fd = ok("map", syscall(SYS_bpf, BPF_MAP_CREATE, &create, sizeof(create))),
		.key = (uintptr_t)&key,
		.value = (uintptr_t)&value,
	};

	ok("update", syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &update, sizeof(update)));
	puts("in the map");
}

int main(int argc, char **argv)
{
	/* return SK_PASS; */
	const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = SK_PASS },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_SK_REUSEPORT,
		.insn_cnt = sizeof(program) / sizeof(*program),
		.insns = (uintptr_t)program,
		.license = (uintptr_t)"GPL",
	};
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(at);
	int chooser, client, listener, on = 1;

	if (argc < 3)
		return 2;
	chooser = ok("load", syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof(load)));
	listener = ok("socket", socket(atoi(argv[1]), SOCK_STREAM, atoi(argv[2])));
	ok("reuseport", setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)));
	ok("bind", bind(listener, (struct sockaddr *)&at, sizeof(at)));
	ok("attach", setsockopt(listener, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &chooser, sizeof(chooser)));
	ok("listen", listen(listener, 1));
	if (argc > 3) {
		put_into_map(listener);
		return 0;
	}
	ok("name", getsockname(listener, (struct sockaddr *)&at, &len));
	client = ok("socket", socket(AF_INET, SOCK_STREAM, 0));
	ok("connect", connect(client, (struct sockaddr *)&at, sizeof(at)));
	ok("accept", accept(listener, NULL, NULL));
	ok("detach", setsockopt(listener, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &on, sizeof(on)));
	puts("attached, accepted, detached");
	return 0;
}
