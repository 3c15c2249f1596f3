// SPDX-License-Identifier: GPL-2.0
/*
 * Socket calls of a 32-bit program, whose structures the kernel translates: prints what each of
 * them returned, so that two runs, over TCP and over SMC, can be compared.
 *
 *	compat tcp|smc|ipproto server|client ADDRESS PORT
 *
 * Built with the kernel's nolibc, for which no 32-bit C library has to be there:
 *	clang -m32 -static -nostdlib -include nolibc.h
 */
#include <linux/in.h>
#include <linux/net.h>
#include <linux/sockios.h>
#include <linux/socket.h>
#include <linux/tcp.h>
#include <linux/uio.h>

#define AF_INET		2
#define AF_SMC		43
#define SOCK_STREAM	1
#define IPPROTO_SMC	256
#define SHUT_WR		1
#define MSG_DONTWAIT	0x40
#define SOL_SOCKET	1
#define SO_LINGER	13
#define SO_RCVTIMEO_OLD	20
#define SO_RCVTIMEO_NEW	66

#define PIECE		(64 * 1024)
#define TOTAL		(1024 * 1024)

struct msghdr32 {
	void *name;
	int name_len;
	struct iovec *iov;
	unsigned int iov_len;
	void *control;
	unsigned int control_len;
	unsigned int flags;
};

struct mmsghdr32 {
	struct msghdr32 hdr;
	unsigned int len;
};

static char buffer[2][PIECE];

/* call: a system call; what it returned, or the negative number of its error. */
#define call(number, ...) ({					\
	long _ret = syscall(number, __VA_ARGS__);		\
								\
	_ret == -1 ? -(long)errno : _ret;			\
})

/* tell: prints what a call returned, and passes it on. */
static long tell(const char *name, long value)
{
	printf("%s %ld\n", name, value);
	return value;
}

/* The calls by the one system call that i386 had for all of them. */
static long socketcall(int call, long a, long b, long c, long d, long e)
{
	long args[] = { a, b, c, d, e };

	return call(__NR_socketcall, call, args);
}

static long set(int fd, int level, int name, const void *value, int len)
{
	return call(__NR_setsockopt, fd, level, name, value, len);
}

static long get(int fd, int level, int name, void *value, int *len)
{
	return call(__NR_getsockopt, fd, level, name, value, len);
}

static void options(int fd)
{
	int tv32[2] = { 0, 200000 }, linger[2] = { 1, 5 }, got[4] = { 0 };
	long long tv64[2] = { 3, 500000 }, got64[2] = { 0 };
	struct tcp_info info;
	int len;

	tell("set SO_RCVTIMEO_NEW", set(fd, SOL_SOCKET, SO_RCVTIMEO_NEW, tv64, sizeof(tv64)));
	len = sizeof(got64);
	tell("get SO_RCVTIMEO_NEW", get(fd, SOL_SOCKET, SO_RCVTIMEO_NEW, got64, &len));
	tell("its length", len);
	tell("its seconds", (long)got64[0]);
	tell("set SO_RCVTIMEO_OLD", set(fd, SOL_SOCKET, SO_RCVTIMEO_OLD, tv32, sizeof(tv32)));
	len = sizeof(got);
	tell("get SO_RCVTIMEO_OLD", get(fd, SOL_SOCKET, SO_RCVTIMEO_OLD, got, &len));
	tell("its length", len);
	tell("its microseconds", got[1]);
	tell("a short one", set(fd, SOL_SOCKET, SO_RCVTIMEO_OLD, tv32, 4));
	tell("set SO_LINGER", set(fd, SOL_SOCKET, SO_LINGER, linger, sizeof(linger)));
	len = sizeof(got);
	tell("get SO_LINGER", socketcall(SYS_GETSOCKOPT, fd, SOL_SOCKET, SO_LINGER, (long)got, (long)&len));
	tell("its length", len);
	tell("its seconds", got[1]);
	len = sizeof(info);
	tell("get TCP_INFO", get(fd, IPPROTO_TCP, TCP_INFO, &info, &len));
	tell("its length", len);
}

static void ioctls(int fd)
{
	int on = 1, value = -1;

	tell("SIOCOUTQ", call(__NR_ioctl, fd, SIOCOUTQ, &value));
	value = -1;
	tell("FIONREAD", call(__NR_ioctl, fd, FIONREAD, &value));
	tell("its value", value);
	tell("SIOCATMARK", call(__NR_ioctl, fd, SIOCATMARK, &value));
	tell("FIONBIO", call(__NR_ioctl, fd, FIONBIO, &on));
	tell("recv of nothing", call(__NR_recvfrom, fd, buffer[0], PIECE, 0, 0, 0));
	on = 0;
	tell("FIONBIO", call(__NR_ioctl, fd, FIONBIO, &on));
	tell("recv that times out", call(__NR_recvfrom, fd, buffer[0], PIECE, 0, 0, 0));
}

static unsigned char byte_at(long offset)
{
	return (offset * 7 + offset / PIECE) % 251;
}

/* send_all: TOTAL bytes by sendmsg and sendmmsg, in two parts each. */
static long send_all(int fd)
{
	long sent = 0;

	while (sent < TOTAL) {
		struct iovec iov[2] = { { buffer[0], 1000 }, { buffer[1], PIECE - 1000 } };
		struct mmsghdr32 msg = { .hdr = { .iov = iov, .iov_len = 2 } };
		int i;

		for (i = 0; i < PIECE; i++)
			buffer[i >= 1000][i >= 1000 ? i - 1000 : i] = byte_at(sent + i);
		if (sent / PIECE % 2)
			msg.len = call(__NR_sendmsg, fd, &msg.hdr, 0);
		else if (call(__NR_sendmmsg, fd, &msg, 1, 0) != 1)
			return -1;
		if ((int)msg.len != PIECE)
			return (int)msg.len;
		sent += PIECE;
	}
	return sent;
}

/* read_all: compares what arrives; returns the number of right bytes before the end. */
static long read_all(int fd)
{
	long got = 0;

	for (;;) {
		struct iovec iov[2] = { { buffer[0], 3 }, { buffer[1], PIECE } };
		struct msghdr32 msg = { .iov = iov, .iov_len = 2 };
		long n = call(__NR_recvmsg, fd, &msg, 0), i;

		if (n <= 0)
			return n < 0 ? n : got;
		for (i = 0; i < n; i++)
			if ((unsigned char)buffer[i >= 3][i >= 3 ? i - 3 : i] != byte_at(got + i))
				return got + i;
		got += n;
	}
}

static int server(int fd, struct sockaddr_in *addr)
{
	int accepted;
	long got;

	tell("bind", call(__NR_bind, fd, addr, sizeof(*addr)));
	tell("listen", socketcall(SYS_LISTEN, fd, 5, 0, 0, 0));
	accepted = call(__NR_accept4, fd, 0, 0, 0);
	tell("accept4", accepted < 0 ? accepted : 0);
	got = tell("bytes", read_all(accepted));
	tell("answer", call(__NR_sendto, accepted, &got, sizeof(got), 0, 0, 0));
	return got == TOTAL ? 0 : 1;
}

static int client(int fd, struct sockaddr_in *addr)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	long answer = 0;

	options(fd);
	tell("connect", socketcall(SYS_CONNECT, fd, (long)addr, sizeof(*addr), 0, 0));
	options(fd);
	ioctls(fd);
	tell("bytes", send_all(fd));
	tell("shutdown", call(__NR_shutdown, fd, SHUT_WR));
	tell("poll", poll(&pfd, 1, 30000));
	tell("recv", socketcall(SYS_RECV, fd, (long)&answer, sizeof(answer), 0, 0));
	return tell("answer", answer) == TOTAL ? 0 : 1;
}

static unsigned int parse_address(const char *text)
{
	unsigned int address = 0, part;

	for (part = 0; part < 4; part++) {
		address |= (unsigned int)atoi(text) << (8 * part);
		text = strchr(text, '.');
		if (!text)
			break;
		text++;
	}
	return address;
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	int family = AF_INET, protocol = 0, port, fd;

	if (argc != 5)
		return 2;
	if (!strcmp(argv[1], "smc"))
		family = AF_SMC;
	else if (!strcmp(argv[1], "ipproto"))
		protocol = IPPROTO_SMC;
	port = atoi(argv[4]);
	addr.sin_addr.s_addr = parse_address(argv[3]);
	addr.sin_port = (port & 0xff) << 8 | port >> 8;
	fd = socketcall(SYS_SOCKET, family, SOCK_STREAM, protocol, 0, 0);
	if (tell("socket", fd < 0 ? fd : 0))
		return 1;
	return strcmp(argv[2], "server") ? client(fd, &addr) : server(fd, &addr);
}
