/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * sink_main close|backlog ADDRESS
 *
 * What a flood costs a program that does the least: close accepts each connection and closes it; backlog accepts none. Prints
 * the port, then works until it is killed. IPv4 only. Status: 1 cannot listen, 2 usage.
 */
int main(int argc, char *argv[])
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);

	if (argc != 3 || inet_pton(AF_INET, argv[2], &a.sin_addr) != 1 ||
		(strcmp(argv[1], "close") != 0 && strcmp(argv[1], "backlog") != 0))
		return 2;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, SOMAXCONN) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return 1;
	printf("%u\n", ntohs(a.sin_port));
	fflush(stdout);
	while (strcmp(argv[1], "close") == 0) {
		int c = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (c >= 0)
			close(c);
	}
	pause();
	return 0;
}
