/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections on their way in: accept, send the challenge, read what the admission wants, do what it decides (tcp_hs.c). Each
 * slot of the admission that is used has a socket here, and no other has. Log lines about rejected connections
 * are rate-limited. Once the peer is known, connections from other addresses get no slot: the peer's sockets are bound to
 * the address of its handle. When descriptors run out, accepting pauses; epoll would report the listener at once.
 */
#include "transport/tcp/tcp.h"

#include "base/failure.h"
#include "base/log.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
	ACCEPT_BATCH = 16,
	WARNS_PER_S = 10,
	SCARCE_MAX =
		4, /* pending connections, parked ones not counted, while few descriptors are free */
};
static const int64_t PAUSE_NS = 100 * DR_NS_PER_MS;

static void pending_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct tcp_pending *c = dr_container_of(po, struct tcp_pending, po);
	struct tcp_rail *r = c->rail;

	(void)revents;
	r->polled = c->fired = true;
	if (r->par.ready)
		r->par.ready(r->par.arg, now_ns);
}

void dr_tcp_admit_init(struct tcp_rail *r)
{
	for (int i = 0; i < TCP_PENDING_MAX; i++)
		r->pending[i] = (struct tcp_pending){ .rail = r,
			.po = { .fd = -1, .ready = pending_ready } };
}

/* The connection of a slot that the admission has freed; it is the caller's. */
static int take(struct tcp_rail *r, struct tcp_pending *c)
{
	int fd = c->po.fd;

	if (r->par.poller)
		dr_poller_del(r->par.poller, &c->po);
	c->po.fd = -1;
	return fd;
}

/* At most WARNS_PER_S lines a second about rejected connections; the others are counted. */
static bool may_warn(struct tcp_rail *r, int64_t now_ns)
{
	if (now_ns - r->warn_window_ns >= DR_NS_PER_S) {
		if (r->suppressed)
			dr_warn("tcp", "rail %u: %u similar messages suppressed", r->base.index,
				r->suppressed);
		r->warn_window_ns = now_ns;
		r->warned = r->suppressed = 0;
	}
	if (r->warned < WARNS_PER_S) {
		r->warned++;
		return true;
	}
	r->suppressed++;
	return false;
}

static void warn_rejected(
	struct tcp_rail *r, const struct tcp_pending *c, int64_t now_ns, const char *why)
{
	if (may_warn(r, now_ns))
		dr_warn("tcp", "rail %u: rejected a connection from %s: %s", r->base.index, c->from,
			why);
}

void dr_tcp_admit_close(struct tcp_rail *r)
{
	for (unsigned i = 0; i < TCP_PENDING_MAX; i++) {
		if (!r->pending[i].rail || r->pending[i].po.fd < 0)
			continue;
		dr_tcp_admission_free(&r->admission, i);
		close(take(r, &r->pending[i]));
	}
}

static void report_incoming(struct tcp_rail *r, const struct tcp_hello *h)
{
	struct dr_event ev = { .kind = DR_EV_INCOMING,
		.rail = &r->base,
		.channel = h->channel,
		.index = h->index,
		.gen = h->gen };

	r->n_events++;
	r->sink->event(r->sink, &ev);
}

static void obey(struct tcp_rail *r, const struct tcp_verdict *v, int64_t now_ns)
{
	struct tcp_pending *c = v->slot < 0 ? NULL : &r->pending[v->slot];

	if (v->replaced >= 0)
		close(take(r, &r->pending[v->replaced]));
	switch (v->what) {
	case TCP_KEEP:
		return;
	case TCP_PARKED:
		c->parked = true;
		report_incoming(r, &v->who);
		return;
	case TCP_ADMIT:
		dr_tcp_known_add(r, c->po.fd);
		dr_tcp_adopt(dr_container_of(v->to, struct tcp_path, hs), take(r, c));
		return;
	case TCP_REJECT:
		warn_rejected(r, c, now_ns, v->why);
		break;
	case TCP_DROP:
		if (v->why)
			dr_debug("tcp",
				"rail %u: dropped an %s connection for channel %u path %u gen %u",
				r->base.index, v->why, v->who.channel, v->who.index, v->who.gen);
		break;
	}
	close(take(r, c));
}

static void read_hello(struct tcp_rail *r, struct tcp_pending *c, int64_t now_ns)
{
	unsigned slot = (unsigned)(c - r->pending);
	uint8_t buf[TCP_HELLO_LEN];

	c->fired = false;
	/* The kernel is asked for no more: bytes behind HELLO are the path's. */
	ssize_t n = recv(c->po.fd, buf, dr_tcp_admission_want(&r->admission, slot), 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	struct tcp_verdict v =
		dr_tcp_admission_bytes(&r->admission, slot, buf, n > 0 ? (size_t)n : 0, now_ns);
	obey(r, &v, now_ns);
}

/* The oldest that is not parked goes. */
static bool drop_oldest(struct tcp_rail *r, int64_t now_ns)
{
	const struct tcp_slot *s = r->admission.slot;
	int oldest = -1;

	for (int i = 0; i < TCP_PENDING_MAX; i++)
		if (s[i].used && !s[i].parked && (oldest < 0 || s[i].order < s[oldest].order))
			oldest = i;
	if (oldest < 0)
		return false;
	warn_rejected(r, &r->pending[oldest], now_ns,
		"few descriptors are free; raise the limit of open files (ulimit -n)");
	dr_tcp_admission_free(&r->admission, (unsigned)oldest);
	close(take(r, &r->pending[oldest]));
	return true;
}

static unsigned count_unparked(const struct tcp_rail *r)
{
	unsigned n = 0;

	for (int i = 0; i < TCP_PENDING_MAX; i++)
		n += r->admission.slot[i].used && !r->admission.slot[i].parked;
	return n;
}

/* False: its source is not the peer. */
static bool may_enter(
	struct tcp_rail *r, int fd, const struct sockaddr_storage *from, int64_t now_ns)
{
	if (r->has_peer && !dr_same_host(from, &r->peer)) {
		struct tcp_pending c = { .rail = r };

		dr_tcp_addr_format(from, c.from);
		warn_rejected(r, &c, now_ns, "not the address of the peer's rail");
		return false;
	}
	if (!r->has_peer && dr_files_scarce(fd))
		for (unsigned n = count_unparked(r); n >= SCARCE_MAX; n--)
			drop_oldest(r, now_ns);
	return true;
}

static void accept_one(
	struct tcp_rail *r, int fd, const struct sockaddr_storage *from, int64_t now_ns)
{
	bool evicted;
	unsigned slot = dr_tcp_admission_open(
		&r->admission, dr_same_host(from, &r->peer), now_ns, &evicted);
	struct tcp_pending *c = &r->pending[slot];
	uint8_t challenge[TCP_CHALLENGE_LEN];

	if (evicted && !c->parked) /* else a peer that dials before its channels exist here */
		warn_rejected(r, c, now_ns, "too many connections wait for admission");
	if (evicted)
		close(take(r, c));
	*c = (struct tcp_pending){ .po = { .fd = fd, .ready = pending_ready }, .rail = r };
	dr_tcp_addr_format(from, c->from);
	if (r->par.poller && dr_poller_add(r->par.poller, &c->po, EPOLLIN)) {
		warn_rejected(r, c, now_ns, "it cannot be polled (out of memory or watches)");
		dr_tcp_admission_free(&r->admission, slot);
		close(take(r, c));
		return;
	}
	dr_tcp_admission_challenge(&r->admission, slot, challenge);
	/* The first bytes of a connection always fit. One that has ended is read to its end, and dropped. */
	(void)!send(fd, challenge, sizeof(challenge), MSG_NOSIGNAL);
}

static void watch_listener(struct tcp_rail *r, uint32_t events)
{
	if (r->par.poller)
		dr_poller_mod(r->par.poller, &r->listener, events);
}

/* Descriptors or memory ran out. Connections wait in the kernel. */
static void pause_accepting(struct tcp_rail *r, int err, int64_t now_ns)
{
	if (may_warn(r, now_ns))
		dr_warn("tcp",
			"rail %u: cannot accept a connection: %s; raise the limit of open files "
			"(ulimit -n)",
			r->base.index, strerror(err));
	r->paused_until_ns = now_ns + PAUSE_NS;
	watch_listener(r, 0);
}

static void accept_all(struct tcp_rail *r, int64_t now_ns)
{
	struct sockaddr_storage from;

	for (int i = 0; i < ACCEPT_BATCH && !r->closed; i++) {
		socklen_t len = sizeof(from);
		int fd = accept4(r->listener.fd, (struct sockaddr *)&from, &len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		int err = errno;
		if (fd >= 0 && may_enter(r, fd, &from, now_ns)) {
			accept_one(r, fd, &from, now_ns);
		} else if (fd >= 0) {
			close(fd);
		} else if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS) {
			if (!r->has_peer && drop_oldest(r, now_ns))
				continue;
			pause_accepting(r, err, now_ns);
			if (r->has_peer)
				dr_failure_keep(&r->par.local, &r->peer, -err);
			return;
		} else if (err != ECONNABORTED && err != EINTR) {
			return;
		}
	}
}

void dr_tcp_admit_progress(struct tcp_rail *r, bool all, int64_t now_ns)
{
	for (unsigned i = 0; i < TCP_PENDING_MAX && r->admission.n; i++) {
		struct tcp_pending *c = &r->pending[i];

		if (c->po.fd >= 0 && (all || c->fired))
			read_hello(r, c, now_ns);
		if (c->po.fd < 0)
			continue;
		struct tcp_verdict v = dr_tcp_admission_expire(&r->admission, i, now_ns);
		obey(r, &v, now_ns);
	}
	if (r->closed || now_ns < r->paused_until_ns)
		return;
	bool paused = r->paused_until_ns != 0;
	if (paused) {
		r->paused_until_ns = 0;
		watch_listener(r, EPOLLIN);
	}
	if (all || paused || r->listener_fired)
		accept_all(r, now_ns);
}

void dr_tcp_admit_claim(struct tcp_path *p)
{
	struct tcp_rail *r = tcp_path_rail(p);
	struct tcp_verdict v = dr_tcp_admission_claim(&r->admission, &p->hs);

	obey(r, &v, p->base.now_ns);
}
