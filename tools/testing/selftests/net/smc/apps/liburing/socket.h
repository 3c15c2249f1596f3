/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included before each test of liburing: sockets that io_uring itself makes, where neither `smc run` nor a BPF program
 * is asked, are SMC's if IO_URING_SMC is set and they would be TCP's.
 */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <liburing.h>

static inline int protocol_of(int domain, int type, int protocol)
{
	int is_tcp = (domain == AF_INET || domain == AF_INET6) &&
		     (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
		     (protocol == 0 || protocol == IPPROTO_TCP);

	return is_tcp && getenv("IO_URING_SMC") ? 256 /* IPPROTO_SMC */ : protocol;
}

#define io_uring_prep_socket_direct(sqe, domain, type, protocol, ...) \
	(io_uring_prep_socket_direct)(sqe, domain, type, protocol_of(domain, type, protocol), __VA_ARGS__)
