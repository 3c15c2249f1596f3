// SPDX-License-Identifier: GPL-2.0
/*
 * Two processes of one machine that exchange messages, the same over whatever carries them: how fast connections
 * within a machine are, and could be.
 *
 *   peer serve OVER MODE BYTES CONNECTIONS            one end; returns when all connections have ended
 *   peer load OVER MODE BYTES CONNECTIONS SECONDS     the other end, once that has begun; prints how many messages it
 *                                                     sent a second
 *
 * The caller removes UNIX_PATH and SHARED_PATH before; that they exist, the latter with its size, shows that the server
 * has begun.
 *
 * OVER is an IPv4 address (TCP, or what `smc run` makes of it), `unix` (a stream socket), or `shared`: two rings in
 * memory of both processes and futexes, which is the bound for whatever copies data in and out.
 *
 * MODE is `pingpong` (a message there and one back), `stream` (messages one way, as many as go) or `connect` (a
 * connection, a byte each way, and the end of it, one after another; sockets only). Each connection of the first two
 * has a thread at either end.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Of a ring; a power of two. */
#define RING_BYTES (256u << 10)
/* What a reader of a stream asks for. */
#define READ_BYTES (128u << 10)
#define PORT 11112
/* A name in the file system is the same in all network namespaces. */
#define UNIX_PATH "/tmp/smc-bench-peer"
#define SHARED_PATH "/dev/shm/smc-bench-peer"
#define LINE 64

/* Rings in shared memory -------------------------------------------------------------------- */

struct ring {
	/* Positions in the stream, each written by one side alone. */
	_Alignas(LINE) _Atomic uint64_t produced;
	_Alignas(LINE) _Atomic uint64_t consumed;
	/* Futexes: 1 while the side sleeps. */
	_Alignas(LINE) _Atomic uint32_t reader_sleeps;
	_Alignas(LINE) _Atomic uint32_t writer_sleeps;
	_Atomic uint32_t is_over;
	_Alignas(LINE) unsigned char bytes[RING_BYTES];
};

static void sleep_on(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
	if (!atomic_load(word))
		return;
	atomic_store(word, 0);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static size_t in_one_piece(uint64_t position, size_t bytes)
{
	size_t to_end = RING_BYTES - position % RING_BYTES;

	return bytes < to_end ? bytes : to_end;
}

static size_t ring_read(struct ring *ring, unsigned char *to, size_t most)
{
	uint64_t consumed = atomic_load_explicit(&ring->consumed, memory_order_relaxed);
	uint64_t ready;
	size_t first;

	for (;;) {
		ready = atomic_load_explicit(&ring->produced, memory_order_acquire) - consumed;
		if (ready)
			break;
		atomic_store(&ring->reader_sleeps, 1);
		if (atomic_load(&ring->produced) != consumed) {
			atomic_store(&ring->reader_sleeps, 0);
			continue;
		}
		if (atomic_load(&ring->is_over))
			return 0;
		sleep_on(&ring->reader_sleeps);
	}
	if (ready < most)
		most = ready;
	first = in_one_piece(consumed, most);
	memcpy(to, ring->bytes + consumed % RING_BYTES, first);
	memcpy(to + first, ring->bytes, most - first);
	atomic_store(&ring->consumed, consumed + most);
	/* As TCP: a writer goes on when a third is free. */
	if (ready - most <= RING_BYTES / 3 * 2)
		wake(&ring->writer_sleeps);
	return most;
}

static void ring_write(struct ring *ring, const unsigned char *from, size_t bytes)
{
	uint64_t produced = atomic_load_explicit(&ring->produced, memory_order_relaxed);

	while (bytes) {
		uint64_t used = produced - atomic_load_explicit(&ring->consumed, memory_order_acquire);
		size_t len = RING_BYTES - used, first;

		if (!len) {
			atomic_store(&ring->writer_sleeps, 1);
			if (produced - atomic_load(&ring->consumed) == RING_BYTES)
				sleep_on(&ring->writer_sleeps);
			continue;
		}
		if (len > bytes)
			len = bytes;
		first = in_one_piece(produced, len);
		memcpy(ring->bytes + produced % RING_BYTES, from, first);
		memcpy(ring->bytes, from + first, len - first);
		produced += len;
		from += len;
		bytes -= len;
		atomic_store(&ring->produced, produced);
		wake(&ring->reader_sleeps);
	}
}

static void ring_end(struct ring *ring)
{
	atomic_store(&ring->is_over, 1);
	wake(&ring->reader_sleeps);
}

static bool is_shared(const char *over)
{
	return !strcmp(over, "shared");
}

/* Returns two rings for each connection, one each way; a new file is zeroes, and so are empty rings. */
static struct ring (*map_rings(int connections, bool is_server))[2]
{
	size_t bytes = connections * sizeof(struct ring[2]);
	int fd = open(SHARED_PATH, is_server ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
	void *rings;

	if (fd < 0 || (is_server && ftruncate(fd, bytes)))
		err(1, SHARED_PATH);
	rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (rings == MAP_FAILED)
		err(1, "mmap");
	close(fd);
	return rings;
}

/* Connections ------------------------------------------------------------------------------- */

/* One end of a connection: a socket, or the ring for each way. */
struct end {
	int fd;
	struct ring *in, *out;
};

static size_t receive(struct end *end, unsigned char *to, size_t most)
{
	ssize_t len;

	if (end->in)
		return ring_read(end->in, to, most);
	len = read(end->fd, to, most);
	if (len < 0)
		err(1, "read");
	return len;
}

/* Returns false at the end of the stream. */
static bool receive_all(struct end *end, unsigned char *to, size_t bytes)
{
	while (bytes) {
		size_t len = receive(end, to, bytes);

		if (!len)
			return false;
		to += len;
		bytes -= len;
	}
	return true;
}

static void send_all(struct end *end, const unsigned char *from, size_t bytes)
{
	if (end->out) {
		ring_write(end->out, from, bytes);
		return;
	}
	while (bytes) {
		ssize_t len = write(end->fd, from, bytes);

		if (len < 0)
			err(1, "write");
		from += len;
		bytes -= len;
	}
}

static void end_connection(struct end *end)
{
	if (end->out)
		ring_end(end->out);
	else
		close(end->fd);
}

/* Returns a new socket for that address, with TCP_NODELAY if it has that option. */
static int new_socket(const char *over, struct sockaddr_storage *addr, socklen_t *len)
{
	struct sockaddr_un *local = (struct sockaddr_un *)addr;
	struct sockaddr_in *inet = (struct sockaddr_in *)addr;
	int on = 1, fd;

	memset(addr, 0, sizeof(*addr));
	if (!strcmp(over, "unix")) {
		local->sun_family = AF_UNIX;
		strcpy(local->sun_path, UNIX_PATH);
		*len = sizeof(*local);
	} else {
		inet->sin_family = AF_INET;
		inet->sin_port = htons(PORT);
		if (inet_pton(AF_INET, over, &inet->sin_addr) != 1)
			errx(1, "%s: no IPv4 address", over);
		*len = sizeof(*inet);
	}
	fd = socket(addr->ss_family, SOCK_STREAM, 0);
	if (fd < 0)
		err(1, "socket");
	if (addr->ss_family == AF_INET) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	}
	return fd;
}

static int listen_on(const char *over)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int fd = new_socket(over, &addr, &len);

	if (bind(fd, (struct sockaddr *)&addr, len) || listen(fd, 1024))
		err(1, "%s", over);
	return fd;
}

static int connect_to(const char *over)
{
	struct sockaddr_storage addr;
	socklen_t len;
	int fd = new_socket(over, &addr, &len);

	if (connect(fd, (struct sockaddr *)&addr, len))
		err(1, "connect to %s", over);
	return fd;
}

static int accept_from(int listener)
{
	int fd = accept(listener, NULL, NULL);

	if (fd < 0)
		err(1, "accept");
	return fd;
}

/* What the processes do --------------------------------------------------------------------- */

enum mode { PINGPONG, STREAM, CONNECT };

static enum mode mode_of(const char *name)
{
	static const char *const names[] = { "pingpong", "stream", "connect" };

	for (unsigned int i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return i;
	errx(1, "%s: no such mode", name);
}

static unsigned char *new_buffer(size_t bytes)
{
	unsigned char *buffer = malloc(bytes);

	if (!buffer)
		err(1, "malloc");
	memset(buffer, 0x5a, bytes);
	return buffer;
}

/* One connection, and what is done with it. */
struct work {
	struct end end;
	enum mode mode;
	size_t bytes;
	double seconds;
	/* How many messages were sent. */
	uint64_t count;
};

static void *serve_one(void *data)
{
	struct work *work = data;
	size_t bytes = work->bytes;
	unsigned char *buffer = new_buffer(bytes > READ_BYTES ? bytes : READ_BYTES);

	if (work->mode == PINGPONG) {
		while (receive_all(&work->end, buffer, bytes))
			send_all(&work->end, buffer, bytes);
	} else {
		while (receive(&work->end, buffer, READ_BYTES))
			;
	}
	end_connection(&work->end);
	return NULL;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void *load_one(void *data)
{
	struct work *work = data;
	size_t bytes = work->bytes;
	/* Short messages are many between two looks at the clock. */
	unsigned int batch = bytes < 4096 ? 64 : 1;
	unsigned char *buffer = new_buffer(bytes);
	double until = now() + work->seconds;

	while (now() < until) {
		for (unsigned int i = 0; i < batch; i++, work->count++) {
			send_all(&work->end, buffer, bytes);
			if (work->mode == PINGPONG && !receive_all(&work->end, buffer, bytes))
				errx(1, "the other end is gone");
		}
	}
	end_connection(&work->end);
	return NULL;
}

/* Runs for each connection, the last one in this thread. */
static void run_all(void *(*run)(void *), struct work *all, int connections)
{
	pthread_t threads[connections];

	for (int i = 0; i < connections - 1; i++)
		if (pthread_create(&threads[i], NULL, run, &all[i]))
			errx(1, "no thread");
	run(&all[connections - 1]);
	for (int i = 0; i < connections - 1; i++)
		pthread_join(threads[i], NULL);
}

static struct work *new_work(int connections)
{
	struct work *all = connections > 0 ? calloc(connections, sizeof(*all)) : NULL;

	if (!all)
		errx(1, "%d connections", connections);
	return all;
}

static void serve_connects(const char *over)
{
	int listener = listen_on(over);
	char byte;

	for (;;) {
		int fd = accept_from(listener);

		if (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) != 1)
			err(1, "answer");
		close(fd);
	}
}

static void print_rate(uint64_t messages, double start)
{
	printf("%.1f messages/s\n", messages / (now() - start));
}

static void load_connects(const char *over, double seconds)
{
	double start = now();
	uint64_t count = 0;
	char byte = 1;

	for (; now() < start + seconds; count++) {
		int fd = connect_to(over);

		if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
			err(1, "question");
		close(fd);
	}
	print_rate(count, start);
}

static void serve(const char *over, enum mode mode, size_t bytes, int connections)
{
	struct ring (*rings)[2] = is_shared(over) ? map_rings(connections, true) : NULL;
	int listener = rings ? -1 : listen_on(over);
	struct work *all = new_work(connections);

	for (int i = 0; i < connections; i++) {
		all[i] = (struct work){ .mode = mode, .bytes = bytes };
		if (rings)
			all[i].end = (struct end){ -1, &rings[i][0], &rings[i][1] };
		else
			all[i].end.fd = accept_from(listener);
	}
	run_all(serve_one, all, connections);
}

static void load(const char *over, enum mode mode, size_t bytes, int connections, double seconds)
{
	struct ring (*rings)[2] = is_shared(over) ? map_rings(connections, false) : NULL;
	struct work *all = new_work(connections);
	double start = now();
	uint64_t count = 0;

	for (int i = 0; i < connections; i++) {
		all[i] = (struct work){ .mode = mode, .bytes = bytes, .seconds = seconds };
		if (rings)
			all[i].end = (struct end){ -1, &rings[i][1], &rings[i][0] };
		else
			all[i].end.fd = connect_to(over);
	}
	run_all(load_one, all, connections);
	for (int i = 0; i < connections; i++)
		count += all[i].count;
	print_rate(count, start);
}

int main(int argc, char **argv)
{
	bool is_serve = argc == 6 && !strcmp(argv[1], "serve");
	bool is_load = argc == 7 && !strcmp(argv[1], "load");
	enum mode mode = is_serve || is_load ? mode_of(argv[3]) : CONNECT;

	if (is_serve && mode == CONNECT) {
		serve_connects(argv[2]);
	} else if (is_serve) {
		serve(argv[2], mode, atol(argv[4]), atoi(argv[5]));
	} else if (is_load && mode == CONNECT) {
		load_connects(argv[2], atof(argv[6]));
	} else if (is_load) {
		load(argv[2], mode, atol(argv[4]), atoi(argv[5]), atof(argv[6]));
	} else {
		errx(1, "see the head of peer.c");
	}
	return 0;
}
