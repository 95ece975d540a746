/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Link monitor. Invariants:
 * 1. links[] is the last state reported to the user. Every event is a difference to it.
 * 2. Notifications and dumps use the same apply functions, so a resync gives the same result.
 * 3. After ENOBUFS the queue is discarded: drain, mark all as unseen, dump, drop unseen. The order matters:
 *    changes after the drain are in the queue and are applied after the dump.
 */
#include "topology/linkmon.h"

#include "base/log.h"
#include "base/mem.h"
#include "topology/nl.h"

#include <errno.h>
#include <net/if.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

struct link {
	int ifindex;
	bool up, seen;
};
struct dr_linkmon {
	struct dr_nl nl;
	struct link *links;
	size_t n_links, cap_links;
	dr_link_changed_fn fn; /* NULL while the base line is read */
	void *arg;
	int changes, err;
};

static void tell(struct dr_linkmon *m, int ifindex)
{
	if (!m->fn)
		return;
	m->changes++;
	m->fn(ifindex, m->arg);
}

static struct link *link_of(const struct dr_linkmon *m, int ifindex)
{
	for (size_t i = 0; i < m->n_links; i++) {
		if (m->links[i].ifindex == ifindex)
			return &m->links[i];
	}
	return NULL;
}

static void drop_link(struct dr_linkmon *m, struct link *l)
{
	int gone = l->ifindex;

	*l = m->links[--m->n_links];
	tell(m, gone);
}

static void apply_newlink(struct dr_linkmon *m, int ifindex, bool up)
{
	struct link *l = link_of(m, ifindex);
	bool was = l && l->up;

	if (!l) {
		l = dr_grow(m->links, &m->cap_links, m->n_links + 1, sizeof(*l));
		if (!l) {
			m->err = -ENOMEM;
			return;
		}
		m->links = l;
		l += m->n_links++;
	}
	*l = (struct link){ .ifindex = ifindex, .up = up, .seen = true };
	if (was != up)
		tell(m, ifindex);
}

static int on_message(const struct nlmsghdr *nlh, void *arg)
{
	const unsigned both = IFF_UP | IFF_LOWER_UP;
	struct dr_linkmon *m = arg;
	struct dr_nl_attrs t;
	const struct ifinfomsg *ifi = dr_nl_body(nlh, nlh->nlmsg_type, sizeof(*ifi), &t);

	/* Bridges send AF_BRIDGE messages about their ports to the same group. */
	if (!ifi || ifi->ifi_family != AF_UNSPEC)
		return MNL_CB_OK;
	struct link *l = link_of(m, ifi->ifi_index);
	if (nlh->nlmsg_type == RTM_NEWLINK)
		apply_newlink(m, ifi->ifi_index, (ifi->ifi_flags & both) == both);
	else if (nlh->nlmsg_type == RTM_DELLINK && l)
		drop_link(m, l);
	return MNL_CB_OK;
}

static void unsee(void *arg)
{
	struct dr_linkmon *m = arg;

	for (size_t i = 0; i < m->n_links; i++)
		m->links[i].seen = false;
}

static int resync(struct dr_linkmon *m)
{
	const struct dr_nl_dump links = { .type = RTM_GETLINK,
		.body = sizeof(struct ifinfomsg),
		.cb = on_message,
		.restart = unsee,
		.arg = m };
	int rc = dr_nl_dump(&links);

	if (rc < 0)
		return rc;
	for (size_t i = m->n_links; i-- > 0;) {
		if (!m->links[i].seen)
			drop_link(m, &m->links[i]);
	}
	return 0;
}

int dr_linkmon_open(struct dr_linkmon **out, struct dr_err *e)
{
	struct dr_linkmon *m = dr_calloc(1, sizeof(*m));

	if (!m)
		return dr_err_set(e, -ENOMEM, "open the link monitor: out of memory");
	int rc = dr_nl_open(&m->nl, NETLINK_ROUTE, RTMGRP_LINK, e);
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

int dr_linkmon_progress(struct dr_linkmon *m, dr_link_changed_fn fn, void *arg)
{
	int fd = dr_linkmon_fd(m), rc = 0;
	bool lost = false;
	char buf[DR_NL_BUF];

	m->fn = fn;
	m->arg = arg;
	m->changes = 0;
	m->err = 0;
	/* Bounded: more changes than this end in ENOBUFS, hence in one dump. */
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
	if (rc == 0 && lost)
		rc = resync(m);
	m->fn = NULL;
	if (rc == 0)
		rc = m->err;
	return rc < 0 ? rc : m->changes;
}

int dr_linkmon_state(const struct dr_linkmon *m, int ifindex)
{
	const struct link *l = link_of(m, ifindex);

	return l ? l->up : -ENODEV;
}

void dr_linkmon_close(struct dr_linkmon *m)
{
	if (!m)
		return;
	dr_nl_close(&m->nl);
	dr_free(m->links);
	dr_free(m);
}

/* ---- on a poller ---- */

static void apply(struct dr_link_watch *w)
{
	for (unsigned i = 0; i < w->n_changed; i++)
		w->on_link(w->arg, w->changed[i], dr_linkmon_state(w->m, w->changed[i]) == 1);
	w->n_changed = 0;
}

static void note(int ifindex, void *arg)
{
	struct dr_link_watch *w = arg;

	for (unsigned i = 0; i < w->n_changed; i++)
		if (w->changed[i] == ifindex)
			return;
	if (w->n_changed == DR_ARRAY_LEN(w->changed))
		apply(w);
	w->changed[w->n_changed++] = ifindex;
}

static void watch_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct dr_link_watch *w = dr_container_of(po, struct dr_link_watch, po);
	int rc = dr_linkmon_progress(w->m, note, w);
	struct dr_err e;

	(void)revents;
	(void)now_ns;
	apply(w);
	if (rc >= 0)
		return;
	dr_warn("link", "link monitor failed: %s; reopening it", dr_errno_name(rc));
	dr_link_watch_close(w);
	if (dr_link_watch_open(w, &e))
		dr_warn("link", "no link events (%s); failures are detected by heartbeats only",
			e.text);
}

int dr_link_watch_open(struct dr_link_watch *w, struct dr_err *e)
{
	int rc = dr_linkmon_open(&w->m, e);

	if (rc)
		return rc;
	w->po = (struct dr_pollable){ .fd = dr_linkmon_fd(w->m), .ready = watch_ready };
	rc = dr_poller_add(w->poller, &w->po, EPOLLIN);
	if (rc == 0)
		return 0;
	dr_link_watch_close(w);
	return dr_err_set(e, rc, "epoll: %s", dr_errno_name(rc));
}

void dr_link_watch_close(struct dr_link_watch *w)
{
	if (!w->m)
		return;
	dr_poller_del(w->poller, &w->po);
	dr_linkmon_close(w->m);
	w->m = NULL;
}
