/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/nl.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

int dr_nl_open(struct dr_nl *nl, int bus, unsigned groups, struct dr_err *e)
{
	struct timeval tv = { .tv_sec = 5 };
	int on = 1;

	nl->seq = 0;
	nl->sock = mnl_socket_open2(bus, SOCK_CLOEXEC);
	if (!nl->sock || mnl_socket_bind(nl->sock, groups, MNL_SOCKET_AUTOPID) < 0) {
		int rc = -errno;

		dr_nl_close(nl);
		return dr_nl_err(e, rc, "open a netlink socket (bus %d)", bus);
	}
	/* Optional: shorter acknowledgements, and a timeout for lost answers. */
	mnl_socket_setsockopt(nl->sock, NETLINK_CAP_ACK, &on, sizeof(on));
	setsockopt(mnl_socket_get_fd(nl->sock), SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
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

/* Read answers until the one that ends the request. */
static int receive(struct dr_nl *nl, mnl_cb_t cb, void *arg)
{
	unsigned portid = mnl_socket_get_portid(nl->sock);
	char buf[DR_NL_BUF];

	for (;;) {
		ssize_t n = mnl_socket_recvfrom(nl->sock, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		int rc = mnl_cb_run(buf, (size_t)n, nl->seq, portid, cb, arg);
		/* The late answer of an abandoned request has another sequence number. */
		if (rc < 0 && errno == EPROTO)
			continue;
		if (rc < 0)
			return errno > 0 ? -errno
					 : -EPROTO; /* that of the message, which may be any */
		if (rc == MNL_CB_STOP)
			return 0;
	}
}

int dr_nl_request(struct dr_nl *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	nlh->nlmsg_flags |= NLM_F_ACK;
	nlh->nlmsg_seq = ++nl->seq;
	if (mnl_socket_sendto(nl->sock, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	return receive(nl, cb, arg);
}

int dr_nl_dump(const struct dr_nl_dump *d)
{
	int rc = -EINTR;

	for (int tries = 0; tries < 16 && rc == -EINTR; tries++) {
		struct dr_nl nl;
		char buf[256];
		void *body;

		/* A new socket: the rest of an interrupted dump is still in the old one. */
		rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, NULL);
		if (rc < 0)
			return rc;
		if (d->restart)
			d->restart(d->arg);
		struct nlmsghdr *nlh = dr_nl_msg(buf, d->type, NLM_F_DUMP, d->body, &body);
		*(uint8_t *)body = d->family;
		if (d->type == RTM_GETLINK)
			mnl_attr_put_u32(nlh, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
		nlh->nlmsg_seq = ++nl.seq;
		rc = mnl_socket_sendto(nl.sock, nlh, nlh->nlmsg_len) < 0
			     ? -errno
			     : receive(&nl, d->cb, d->arg);
		dr_nl_close(&nl);
	}
	return rc;
}

int dr_nl_once(struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	struct dr_nl nl;
	int rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, NULL);

	if (rc == 0) {
		rc = dr_nl_request(&nl, nlh, cb, arg);
		dr_nl_close(&nl);
	}
	return rc;
}

int dr_nl_err(struct dr_err *e, int rc, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	if (rc == 0)
		return 0;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return dr_err_set(e, rc, "%s: %s%s", what, strerror(-rc),
		rc == -EPERM || rc == -EACCES
			? "; needs CAP_NET_ADMIN over this network namespace (run as root)"
			: "");
}
