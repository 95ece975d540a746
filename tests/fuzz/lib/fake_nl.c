/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/lib/fake_nl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_nl fake_nl = { .fd = -1 };

/* Bytes up to the first message that is none: the kernel sends whole ones, and libmnl takes lengths of
 * 2^31 and more for negative. */
static size_t whole_messages(const uint8_t *p, size_t len)
{
	size_t at = 0;

	while (len - at >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr nlh;

		memcpy(&nlh, p + at, sizeof(nlh));
		if (nlh.nlmsg_len < sizeof(nlh) || nlh.nlmsg_len > len - at)
			return at;
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

int dr_nl_open(struct dr_nl *nl, int bus, unsigned groups, struct dr_err *e)
{
	(void)bus;
	(void)groups;
	(void)e;
	nl->seq = 0;
	nl->sock = fake_nl.fd < 0 ? NULL : mnl_socket_fdopen(fcntl(fake_nl.fd, F_DUPFD_CLOEXEC, 0));
	return 0;
}

void dr_nl_close(struct dr_nl *nl)
{
	if (nl->sock)
		mnl_socket_close(nl->sock);
	nl->sock = NULL;
}

struct nlmsghdr *dr_nl_msg(void *buf, uint16_t type, uint16_t flags, size_t body_len, void **body)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	*body = mnl_nlmsg_put_extra_header(nlh, body_len);
	return nlh;
}

int dr_nl_request(struct dr_nl *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	size_t len;
	void *p;
	int rc;

	(void)nl;
	if (fake_nl.seen)
		fake_nl.seen(nlh, fake_nl.arg);
	p = fake_nl_part(&len);
	rc = mnl_cb_run(p, len, 0, 0, cb, arg) < 0 ? -EPROTO : 0;
	if (rc && errno == EINTR) /* a dump that a change interrupted */
		rc = -EINTR;
	free(p);
	return rc;
}

int dr_nl_dump(const struct dr_nl_dump *d)
{
	int rc = -EINTR;

	for (int tries = 0; tries < 16 && rc == -EINTR; tries++) {
		struct dr_nl nl = { 0 };
		struct nlmsghdr *nlh;
		char buf[256];
		void *body;

		if (d->restart)
			d->restart(d->arg);
		nlh = dr_nl_msg(buf, d->type, NLM_F_DUMP, d->body, &body);
		*(uint8_t *)body = d->family;
		rc = dr_nl_request(&nl, nlh, d->cb, d->arg);
	}
	return rc;
}

int dr_nl_once(struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	struct dr_nl nl = { 0 };

	return dr_nl_request(&nl, nlh, cb, arg);
}

int dr_nl_err(struct dr_err *e, int rc, const char *fmt, ...)
{
	return rc ? dr_err_set(e, rc, "%s: %s", fmt, strerror(-rc)) : 0;
}
