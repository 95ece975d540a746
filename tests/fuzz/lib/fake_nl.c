/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/lib/fake_nl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Stands in for the sockets of libmnl. */
struct mnl_socket {
	int fd;
};

struct fake_nl fake_nl = { .fd = -1 };
static bool asked; /* a request has no answer yet */

/* Bytes up to the first message that is none: the kernel sends whole ones, and libmnl takes lengths of
 * 2^31 and more for negative. They are of any request. */
static size_t whole_messages(uint8_t *p, size_t len)
{
	size_t at = 0;

	while (len - at >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr nlh;

		memcpy(&nlh, p + at, sizeof(nlh));
		if (nlh.nlmsg_len < sizeof(nlh) || nlh.nlmsg_len > len - at)
			return at;
		nlh.nlmsg_seq = 0;
		memcpy(p + at, &nlh, sizeof(nlh));
		at += DR_MIN(MNL_ALIGN((size_t)nlh.nlmsg_len), len - at);
	}
	return at;
}

void *fake_nl_part(size_t *len)
{
	struct fake_nl *f = &fake_nl;
	size_t want = f->len >= 2 ? (size_t)(f->answers[0] << 8 | f->answers[1]) : 0;
	size_t skip = DR_MIN(f->len, (size_t)2);
	void *p;

	if (skip)
		f->answers += skip;
	f->len -= skip;
	*len = DR_MIN(want, f->len);
	p = malloc(*len ? *len : 1);
	dr_assert(p);
	if (*len) {
		memcpy(p, f->answers, *len);
		f->answers += *len;
	}
	f->len -= *len;
	*len = whole_messages(p, *len);
	return p;
}

struct mnl_socket *mnl_socket_open2(int bus, int flags)
{
	struct mnl_socket *s = calloc(1, sizeof(*s));

	(void)bus, (void)flags;
	dr_assert(s);
	asked = false;
	s->fd = fake_nl.fd < 0 ? -1 : fcntl(fake_nl.fd, F_DUPFD_CLOEXEC, 0);
	return s;
}

int mnl_socket_bind(struct mnl_socket *s, unsigned groups, pid_t pid)
{
	(void)s, (void)groups, (void)pid;
	return 0;
}

int mnl_socket_setsockopt(const struct mnl_socket *s, int type, void *value, socklen_t len)
{
	(void)s, (void)type, (void)value, (void)len;
	return 0;
}

unsigned mnl_socket_get_portid(const struct mnl_socket *s)
{
	(void)s;
	return 0;
}

int mnl_socket_get_fd(const struct mnl_socket *s)
{
	return s->fd;
}

int mnl_socket_close(struct mnl_socket *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s);
	return 0;
}

ssize_t mnl_socket_sendto(const struct mnl_socket *s, const void *request, size_t len)
{
	(void)s;
	if (fake_nl.seen)
		fake_nl.seen(request, fake_nl.arg);
	asked = true;
	return (ssize_t)len;
}

/* The next part, and then the end of the answer. */
ssize_t mnl_socket_recvfrom(const struct mnl_socket *s, void *buf, size_t cap)
{
	struct nlmsghdr end = { .nlmsg_len = sizeof(end), .nlmsg_type = NLMSG_DONE };
	size_t len = 0;
	void *p;

	(void)s;
	if (asked) {
		asked = false;
		p = fake_nl_part(&len);
		len = len > cap ? 0 : len;
		memcpy(buf, p, len);
		free(p);
	}
	if (len == 0)
		memcpy(buf, &end, len = sizeof(end));
	return (ssize_t)len;
}
