// SPDX-License-Identifier: GPL-2.0
/*
 * The protocol of a TCP socket that a thread with another name than its program makes: `renamed NAME`.
 */
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static void *make(void *name)
{
	int protocol = 0, fd;
	socklen_t len = sizeof(protocol);

	if (prctl(PR_SET_NAME, name))
		return NULL;
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len))
		return NULL;
	printf("%d\n", protocol);
	return name;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	void *done;

	if (argc != 2 || pthread_create(&thread, NULL, make, argv[1]) || pthread_join(thread, &done))
		return 2;
	return done ? 0 : 1;
}
