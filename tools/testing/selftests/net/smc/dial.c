// SPDX-License-Identifier: GPL-2.0
/*
 * A TCP program that no preloaded library reaches: built with -static it calls its own copy of the C library,
 * built with -nostdlib -DRAW it makes the system calls itself, as programs in Go do.
 *
 *   dial serve ADDRESS PORT BYTES       takes one connection and sends back what comes, that many bytes
 *   dial call ADDRESS PORT BYTES        connects, sends that many bytes and looks whether they come back
 *   dial call-smc ..., serve-smc ...    the same with a socket of IPPROTO_SMC
 *   dial call-mptcp ..., serve-mptcp ...    the same with one of IPPROTO_MPTCP
 *
 * Exit code: 0, or the number of the step that failed.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

enum { READ = 0, WRITE = 1, SOCKET = 41, CONNECT = 42, ACCEPT = 43, BIND = 49, LISTEN = 50, SETSOCKOPT = 54 };
enum { AF_INET = 2, SOCK_STREAM = 1, IPPROTO_SMC = 256, IPPROTO_MPTCP = 262, SOL_SOCKET = 1, SO_REUSEADDR = 2 };

#ifdef RAW
static long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}
#else
long syscall(long number, ...);
int socket(int family, int type, int protocol);

/* The one call that a preloaded library would replace goes by its function. */
static long call(long number, long a, long b, long c, long d, long e)
{
	if (number == SOCKET)
		return socket(a, b, c);
	return syscall(number, a, b, c, d, e);
}
#endif

struct address {
	u16 family, port;
	u8 host[4];
	u8 zero[8];
};

static u8 buffer[65536];

static int is_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* Numbers with dots between them. */
static const char *number(const char *text, u32 *value)
{
	for (*value = 0; *text >= '0' && *text <= '9'; text++)
		*value = *value * 10 + *text - '0';
	return *text ? text + 1 : text;
}

static struct address parse(const char *host, const char *port)
{
	struct address address = { .family = AF_INET };
	u32 value;

	for (int i = 0; i < 4; i++) {
		host = number(host, &value);
		address.host[i] = value;
	}
	number(port, &value);
	address.port = (u16)(value << 8 | value >> 8);
	return address;
}

static u8 pattern(u32 at)
{
	return at * 7 + (at >> 8);
}

static int echo(int fd, u32 bytes)
{
	for (u32 done = 0; done < bytes;) {
		long len = call(READ, fd, (long)buffer, sizeof(buffer), 0, 0);

		if (len <= 0)
			return 5;
		for (long sent = 0; sent < len;) {
			long n = call(WRITE, fd, (long)buffer + sent, len - sent, 0, 0);

			if (n <= 0)
				return 6;
			sent += n;
		}
		done += len;
	}
	return 0;
}

/* One piece at a time, so that neither end waits for the other to read. */
static int send_and_compare(int fd, u32 bytes)
{
	const u32 piece = 8192;

	for (u32 done = 0; done < bytes; done += piece) {
		for (u32 i = 0; i < piece; i++)
			buffer[i] = pattern(done + i);
		if (call(WRITE, fd, (long)buffer, piece, 0, 0) != piece)
			return 7;
		for (u32 got = 0; got < piece;) {
			long n = call(READ, fd, (long)buffer, piece - got, 0, 0);

			if (n <= 0)
				return 8;
			for (long i = 0; i < n; i++)
				if (buffer[i] != pattern(done + got + i))
					return 9;
			got += n;
		}
	}
	return 0;
}

static int work(int argc, char **argv)
{
	struct address address;
	int fd, one = 1, is_server, protocol = 0;
	u32 bytes;

	if (argc != 5)
		return 1;
	is_server = argv[1][0] == 's';
	if (is_same(argv[1], "serve-smc") || is_same(argv[1], "call-smc"))
		protocol = IPPROTO_SMC;
	if (is_same(argv[1], "serve-mptcp") || is_same(argv[1], "call-mptcp"))
		protocol = IPPROTO_MPTCP;
	address = parse(argv[2], argv[3]);
	number(argv[4], &bytes);
	fd = call(SOCKET, AF_INET, SOCK_STREAM, protocol, 0, 0);
	if (fd < 0)
		return 2;
	if (!is_server)
		return call(CONNECT, fd, (long)&address, sizeof(address), 0, 0) ? 3 :
									 send_and_compare(fd, bytes);
	call(SETSOCKOPT, fd, SOL_SOCKET, SO_REUSEADDR, (long)&one, sizeof(one));
	if (call(BIND, fd, (long)&address, sizeof(address), 0, 0) || call(LISTEN, fd, 1, 0, 0, 0))
		return 3;
	fd = call(ACCEPT, fd, 0, 0, 0, 0);
	return fd < 0 ? 4 : echo(fd, bytes);
}

#ifdef RAW
/* What the kernel leaves on the stack: the count of arguments, then the arguments. */
__attribute__((used, noreturn)) static void begin(long *stack)
{
	call(231, work(*stack, (char **)(stack + 1)), 0, 0, 0, 0);
	__builtin_unreachable();
}

__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n");
#else
int main(int argc, char **argv)
{
	return work(argc, argv);
}
#endif
