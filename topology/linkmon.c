/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link monitor. Invariants:
 * 1. links[] and addrs[] are the last state told to the user; every event is a difference to them,
 *    but for the loss of an address that was never announced.
 * 2. Notifications and dumps go through the same apply functions, so a resync cannot disagree.
 * 3. After ENOBUFS nothing of the queue is trusted: drain, mark all as unseen, dump, drop unseen.
 *    The order matters: what changes after the drain is in the queue and is applied after the dump.
 */
#include "topology/linkmon.h"

#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <net/if.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

struct link {
	int ifindex;
	char name[IFNAMSIZ];
	bool up, seen;
	uint32_t downs; /* IFLA_CARRIER_DOWN_COUNT */
};
struct addr {
	int ifindex;
	uint8_t family, bytes[16];
	bool seen;
};

struct dr_linkmon {
	struct dr_nl nl;
	struct link *links;
	size_t n_links, cap_links;
	struct addr *addrs;
	size_t n_addrs, cap_addrs;
	unsigned resyncs;
	dr_link_event_fn fn; /* NULL while the base line is read */
	void *arg;
	int events, err;
};

static void tell(struct dr_linkmon *m, enum dr_link_change change, const struct link *l,
	const struct sockaddr *sa)
{
	struct dr_link_event ev = { .change = change,
		.ifindex = l->ifindex,
		.name = l->name,
		.up = change != DR_LINK_GONE && l->up,
		.addr = sa };

	if (!m->fn)
		return;
	m->events++;
	m->fn(&ev, m->arg);
}

static struct link *link_of(const struct dr_linkmon *m, int ifindex)
{
	for (size_t i = 0; i < m->n_links; i++) {
		if (m->links[i].ifindex == ifindex)
			return &m->links[i];
	}
	return NULL;
}

/* Room for one more in an array; keeps it when there is no memory and remembers -ENOMEM. */
static void *grow(struct dr_linkmon *m, void *v, size_t n, size_t *cap, size_t size)
{
	size_t want = *cap ? 2 * *cap : 8;
	void *p;

	if (n < *cap)
		return v;
	p = dr_realloc(v, want * size);
	if (!p) {
		m->err = -ENOMEM;
		return v;
	}
	*cap = want;
	return p;
}

static void tell_lost(struct dr_linkmon *m, const struct addr *a)
{
	struct sockaddr_storage ss = { .ss_family = a->family };
	const struct link *l = link_of(m, a->ifindex);
	struct link unknown = { .ifindex = a->ifindex };

	if (a->family == AF_INET)
		memcpy(&((struct sockaddr_in *)&ss)->sin_addr, a->bytes, 4);
	else
		memcpy(&((struct sockaddr_in6 *)&ss)->sin6_addr, a->bytes, 16);
	tell(m, DR_LINK_ADDR_REMOVED, l ? l : &unknown, (const struct sockaddr *)&ss);
}

static void drop_addr(struct dr_linkmon *m, size_t i)
{
	struct addr a = m->addrs[i];

	m->addrs[i] = m->addrs[--m->n_addrs];
	tell_lost(m, &a);
}

static void drop_link(struct dr_linkmon *m, struct link *l)
{
	struct link gone = *l;

	for (size_t i = m->n_addrs; i-- > 0;) {
		if (m->addrs[i].ifindex == gone.ifindex)
			drop_addr(m, i);
	}
	*l = m->links[--m->n_links];
	gone.up = false;
	tell(m, DR_LINK_GONE, &gone, NULL);
}

static void apply_newlink(struct dr_linkmon *m, const struct link *now)
{
	struct link *l = link_of(m, now->ifindex);

	if (l && strcmp(l->name, now->name) != 0) {
		drop_link(m, l);
		l = NULL;
	}
	if (!l) {
		m->links = grow(m, m->links, m->n_links, &m->cap_links, sizeof(*m->links));
		if (m->n_links == m->cap_links)
			return;
		l = &m->links[m->n_links++];
		*l = *now;
		if (now->up)
			tell(m, DR_LINK_UP, l, NULL);
		return;
	}
	/* Up then and now, but the carrier was lost in between. */
	if (l->up && now->up && l->downs != now->downs) {
		l->up = false;
		tell(m, DR_LINK_DOWN, l, NULL);
	}
	l->downs = now->downs;
	l->seen = true;
	if (l->up != now->up) {
		l->up = now->up;
		tell(m, l->up ? DR_LINK_UP : DR_LINK_DOWN, l, NULL);
	}
}

static void apply_link(struct dr_linkmon *m, const struct nlmsghdr *nlh)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	const unsigned both = IFF_UP | IFF_LOWER_UP;
	struct link now = { .seen = true }, *l;
	const struct nlattr *a;

	/* Bridges speak AF_BRIDGE about their ports on the same group. */
	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifi) || ifi->ifi_family != AF_UNSPEC)
		return;
	now.ifindex = ifi->ifi_index;
	now.up = (ifi->ifi_flags & both) == both;
	l = link_of(m, now.ifindex);
	if (nlh->nlmsg_type == RTM_DELLINK) {
		if (l)
			drop_link(m, l);
		return;
	}
	now.downs = l ? l->downs : 0;
	mnl_attr_for_each(a, nlh, sizeof(*ifi))
	{
		uint16_t type = mnl_attr_get_type(a), len = mnl_attr_get_payload_len(a);

		if (type == IFLA_IFNAME)
			snprintf(now.name, sizeof(now.name), "%.*s", (int)len, mnl_attr_get_str(a));
		else if (type == IFLA_CARRIER_DOWN_COUNT && len >= sizeof(uint32_t))
			now.downs = mnl_attr_get_u32(a);
	}
	apply_newlink(m, &now);
}

static void apply_addr(struct dr_linkmon *m, const struct nlmsghdr *nlh)
{
	const struct ifaddrmsg *ifa = mnl_nlmsg_get_payload(nlh);
	const struct nlattr *a, *local = NULL;
	struct addr now = { .seen = true };
	size_t len, i;

	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(*ifa))
		return;
	if (ifa->ifa_family != AF_INET && ifa->ifa_family != AF_INET6)
		return;
	len = ifa->ifa_family == AF_INET ? 4 : 16;
	mnl_attr_for_each(a, nlh, sizeof(*ifa))
	{
		int type = mnl_attr_get_type(a);

		if (type == IFA_LOCAL || (type == IFA_ADDRESS && !local))
			local = a;
	}
	if (!local || mnl_attr_get_payload_len(local) != len)
		return;
	now.ifindex = (int)ifa->ifa_index;
	now.family = ifa->ifa_family;
	memcpy(now.bytes, mnl_attr_get_payload(local), len);
	for (i = 0; i < m->n_addrs; i++) {
		struct addr *old = &m->addrs[i];

		if (old->ifindex == now.ifindex && old->family == now.family &&
			memcmp(old->bytes, now.bytes, len) == 0)
			break;
	}
	if (nlh->nlmsg_type == RTM_DELADDR) {
		/* A new IPv6 address works before the kernel's worker announces it, so one that
		 * goes soon was never announced: its loss is told nevertheless. */
		if (i < m->n_addrs)
			drop_addr(m, i);
		else
			tell_lost(m, &now);
	} else if (i < m->n_addrs) {
		m->addrs[i].seen = true;
	} else {
		m->addrs = grow(m, m->addrs, m->n_addrs, &m->cap_addrs, sizeof(*m->addrs));
		if (m->n_addrs < m->cap_addrs)
			m->addrs[m->n_addrs++] = now;
	}
}

static int on_message(const struct nlmsghdr *nlh, void *arg)
{
	struct dr_linkmon *m = arg;

	if (nlh->nlmsg_type == RTM_NEWLINK || nlh->nlmsg_type == RTM_DELLINK)
		apply_link(m, nlh);
	else if (nlh->nlmsg_type == RTM_NEWADDR || nlh->nlmsg_type == RTM_DELADDR)
		apply_addr(m, nlh);
	return MNL_CB_OK;
}

static void unsee(void *arg)
{
	struct dr_linkmon *m = arg;

	for (size_t i = 0; i < m->n_links; i++)
		m->links[i].seen = false;
}

static void unsee_addrs(void *arg)
{
	struct dr_linkmon *m = arg;

	for (size_t i = 0; i < m->n_addrs; i++)
		m->addrs[i].seen = false;
}

static int resync(struct dr_linkmon *m)
{
	char buf[256];
	struct nlmsghdr *nlh;
	struct dr_nl nl;
	void *body;
	int rc = dr_nl_open(&nl, NETLINK_ROUTE, 0, NULL);

	if (rc < 0)
		return rc;
	nlh = dr_nl_msg(buf, RTM_GETLINK, 0, sizeof(struct ifinfomsg), &body);
	mnl_attr_put_u32(nlh, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	rc = dr_nl_dump(&nl, nlh, on_message, unsee, m);
	if (rc == 0) {
		nlh = dr_nl_msg(buf, RTM_GETADDR, 0, sizeof(struct ifaddrmsg), &body);
		rc = dr_nl_dump(&nl, nlh, on_message, unsee_addrs, m);
	}
	dr_nl_close(&nl);
	if (rc < 0)
		return rc;
	for (size_t i = m->n_addrs; i-- > 0;) {
		if (!m->addrs[i].seen)
			drop_addr(m, i);
	}
	for (size_t i = m->n_links; i-- > 0;) {
		if (!m->links[i].seen)
			drop_link(m, &m->links[i]);
	}
	return 0;
}

int dr_linkmon_open(struct dr_linkmon **out, struct dr_err *e)
{
	struct dr_linkmon *m = dr_calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return dr_err_set(e, -ENOMEM, "open the link monitor: out of memory");
	rc = dr_nl_open(
		&m->nl, NETLINK_ROUTE, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR, e);
	if (rc == 0) {
		/* Subscribed first, dumped second: a change in between is applied twice, not lost. */
		rc = resync(m);
		if (rc == 0)
			rc = m->err;
		if (rc < 0)
			dr_nl_err(e, rc, "open the link monitor");
	}
	if (rc < 0) {
		dr_linkmon_close(m);
		return rc;
	}
	*out = m;
	return 0;
}

int dr_linkmon_fd(const struct dr_linkmon *m)
{
	return mnl_socket_get_fd(m->nl.sock);
}

int dr_linkmon_progress(struct dr_linkmon *m, dr_link_event_fn fn, void *arg)
{
	int fd = dr_linkmon_fd(m), rc = 0;
	bool lost = false;
	char buf[DR_NL_BUF];

	m->fn = fn;
	m->arg = arg;
	m->events = 0;
	m->err = 0;
	/* Bounded: an endless storm of changes ends in ENOBUFS, hence in one dump. */
	for (int i = 0; i < 256; i++) {
		struct sockaddr_nl from = { 0 };
		socklen_t from_len = sizeof(from);
		ssize_t n = recvfrom(
			fd, buf, sizeof(buf), MSG_DONTWAIT, (struct sockaddr *)&from, &from_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			lost = true;
			continue;
		}
		if (n < 0) {
			rc = errno == EAGAIN ? 0 : -errno;
			break;
		}
		if (from.nl_pid != 0 ||
			lost) /* not from the kernel, or older than the dump to come */
			continue;
		mnl_cb_run(buf, (size_t)n, 0, 0, on_message, m);
	}
	if (rc == 0 && lost) {
		m->resyncs++;
		rc = resync(m);
	}
	m->fn = NULL;
	if (rc == 0)
		rc = m->err;
	return rc < 0 ? rc : m->events;
}

int dr_linkmon_state(const struct dr_linkmon *m, int ifindex)
{
	const struct link *l = link_of(m, ifindex);

	return l ? l->up : -ENODEV;
}

unsigned dr_linkmon_resyncs(const struct dr_linkmon *m)
{
	return m->resyncs;
}

void dr_linkmon_close(struct dr_linkmon *m)
{
	if (!m)
		return;
	dr_nl_close(&m->nl);
	dr_free(m->links);
	dr_free(m->addrs);
	dr_free(m);
}
