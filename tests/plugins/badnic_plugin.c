/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * A NIC that corrupts data without an error, for LD_PRELOAD: of what a TCP path receives straight into a message
 * (recvmsg with two places, transport/tcp/tcp_rx.c), the first byte is inverted on each connection whose own address is
 * DR_BAD_NIC. Frame headers stay as they are.
 */
static bool is_bad(int fd)
{
	const char *bad = getenv("DR_BAD_NIC");
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);
	char text[INET_ADDRSTRLEN];

	return bad && getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
	       sa.sin_family == AF_INET && inet_ntop(AF_INET, &sa.sin_addr, text, sizeof(text)) &&
	       strcmp(text, bad) == 0;
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	static ssize_t (*next)(int, struct msghdr *, int);

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "recvmsg");
	ssize_t n = next(fd, msg, flags);

	if (n > 0 && msg->msg_iovlen == 2 && is_bad(fd))
		*(unsigned char *)msg->msg_iov[0].iov_base ^= 0xff;
	return n;
}
