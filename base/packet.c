/* SPDX-License-Identifier: Apache-2.0 */
#include "base/packet.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int) * DR_PACKET_FDS)];
};

int dr_packet_send(int sock, const void *bytes, size_t len, const int *fds, unsigned n)
{
	union control c = { .buf = { 0 } };
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t rc;

	dr_assert(len > 0 && n <= DR_PACKET_FDS);
	if (n > 0) {
		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		c.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int) * n),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&c.align), fds, sizeof(int) * n);
	}
	do
		rc = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

/* The number of descriptors that came, which are this process's now. */
static unsigned take(struct msghdr *m, int fds[DR_PACKET_FDS])
{
	struct cmsghdr *h = CMSG_FIRSTHDR(m);
	size_t len;

	if (!h || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
		return 0;
	len = h->cmsg_len - CMSG_LEN(0);
	dr_assert(len <= sizeof(int) * DR_PACKET_FDS);
	memcpy(fds, CMSG_DATA(h), len);
	return (unsigned)(len / sizeof(int));
}

ssize_t dr_packet_receive(int sock, void *bytes, size_t cap, int *fds, unsigned n, int flags)
{
	union control c;
	struct iovec iov = { bytes, cap };
	struct msghdr m = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = c.buf,
		.msg_controllen = sizeof(c.buf) };
	int came[DR_PACKET_FDS];
	unsigned n_came;
	ssize_t rc;

	dr_assert(n <= DR_PACKET_FDS);
	for (unsigned i = 0; i < n; i++)
		fds[i] = -1;
	do
		rc = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (rc < 0 && errno == EINTR);
	if (rc < 0)
		return -errno;
	n_came = take(&m, came);
	bool kept = n_came <= n && !(m.msg_flags & MSG_CTRUNC);
	for (unsigned i = 0; i < n_came; i++) {
		if (kept)
			fds[i] = came[i];
		else
			close(came[i]);
	}
	return rc;
}
