/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may become a path. Anybody can connect to the listener; a connection becomes a path when its
 * first TCP_HELLO_LEN bytes are a HELLO with this session's token for an acceptor that waits.
 *
 *  1. An unidentified connection costs a slot for at most TCP_ADMIT_NS and one log line (rate-limited).
 *  2. When all slots are taken the oldest connection without a right HELLO goes first.
 *  3. For one (channel, index) one HELLO is parked at most: that of the highest gen.
 *  4. The kernel is asked for HELLO's length only: bytes behind it are the path's.
 */
#include "transport/tcp/tcp.h"

#include "base/log.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

enum {
	ACCEPT_BATCH = 16,
	WARNS_PER_S = 10,
};

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

/* Empty the slot; the connection is the caller's. */
static int release(struct tcp_rail *r, struct tcp_pending *c)
{
	int fd = c->po.fd;

	if (r->par.poller)
		dr_poller_del(r->par.poller, &c->po);
	c->po.fd = -1;
	r->n_pending--;
	return fd;
}

static void drop(struct tcp_rail *r, struct tcp_pending *c)
{
	close(release(r, c));
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

static void turn_away(struct tcp_rail *r, struct tcp_pending *c, int64_t now_ns, const char *why)
{
	if (may_warn(r, now_ns))
		dr_warn("tcp", "rail %u: rejected a connection from %s: %s", r->base.index, c->from,
			why);
	drop(r, c);
}

void dr_tcp_admit_close(struct tcp_rail *r)
{
	for (int i = 0; i < TCP_PENDING_MAX; i++)
		if (r->pending[i].rail && r->pending[i].po.fd >= 0)
			drop(r, &r->pending[i]);
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->ss_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
		       &((const struct sockaddr_in6 *)b)->sin6_addr);
}

static bool fits(const struct tcp_path *p, const struct tcp_hello *h)
{
	return !p->base.par.connector && p->base.par.channel == h->channel &&
	       p->base.par.index == h->index && p->base.par.sender != h->sender;
}

/* The acceptor that waits for exactly this HELLO. *stale: one of its gen or newer has been here. */
static struct tcp_path *find_path(struct tcp_rail *r, const struct tcp_hello *h, bool *stale)
{
	*stale = false;
	for (struct tcp_path *p = r->paths; p; p = p->next) {
		if (!fits(p, h))
			continue;
		if (p->state == TCP_WAITING && p->base.par.gen == h->gen)
			return p;
		if (p->state == TCP_NEW ? p->base.par.gen > h->gen : p->base.par.gen >= h->gen)
			*stale = true;
	}
	return NULL;
}

static struct tcp_pending *find_parked(struct tcp_rail *r, const struct tcp_hello *h)
{
	for (struct tcp_pending *c = r->pending; c < r->pending + TCP_PENDING_MAX; c++)
		if (c->po.fd >= 0 && c->parked && c->hello.channel == h->channel &&
			c->hello.index == h->index)
			return c;
	return NULL;
}

static void park(struct tcp_rail *r, struct tcp_pending *c, int64_t now_ns)
{
	struct tcp_pending *other = find_parked(r, &c->hello);
	struct dr_event ev = { .kind = DR_EV_INCOMING,
		.rail = &r->base,
		.channel = c->hello.channel,
		.index = c->hello.index,
		.gen = c->hello.gen };

	if (other && other->hello.gen > c->hello.gen) {
		drop(r, c); /* replaced by its own successor: not an error */
		return;
	}
	if (other)
		drop(r, other);
	c->parked = true;
	c->deadline_ns = now_ns + TCP_ADMIT_NS;
	r->n_events++;
	r->sink->event(r->sink, &ev);
}

static void judge(struct tcp_rail *r, struct tcp_pending *c, int64_t now_ns)
{
	const char *why = "?";
	bool stale;

	if (dr_tcp_hello_parse(c->buf, sizeof(c->buf), &c->hello, &why)) {
		turn_away(r, c, now_ns, why);
		return;
	}
	if (sodium_memcmp(c->hello.token, r->par.token, DR_TOKEN_LEN) != 0) {
		turn_away(r, c, now_ns, "wrong token (it belongs to another session)");
		return;
	}
	struct tcp_path *p = find_path(r, &c->hello, &stale);
	if (p) {
		dr_tcp_adopt(p, release(r, c));
	} else if (stale) {
		dr_debug("tcp",
			"rail %u: dropped an outdated connection for channel %u path %u gen %u",
			r->base.index, c->hello.channel, c->hello.index, c->hello.gen);
		drop(r, c);
	} else {
		park(r, c, now_ns);
	}
}

static void read_hello(struct tcp_rail *r, struct tcp_pending *c, int64_t now_ns)
{
	uint8_t extra;
	ssize_t n;

	c->fired = false;
	/* A parked connection waits for our answer: the only thing it may do is go away. */
	if (c->parked)
		n = recv(c->po.fd, &extra, 1, 0);
	else
		n = recv(c->po.fd, c->buf + c->have, sizeof(c->buf) - c->have, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (c->parked) {
		drop(r, c);
	} else if (n <= 0 && c->of_peer && c->have == 0) {
		drop(r, c); /* the peer gave up dialling, as it does while a link is down */
	} else if (n <= 0) {
		turn_away(r, c, now_ns, "it closed before it said who it is");
	} else {
		c->have += (unsigned)n;
		if (c->have == sizeof(c->buf))
			judge(r, c, now_ns);
	}
}

static struct tcp_pending *find_slot(struct tcp_rail *r, int64_t now_ns)
{
	struct tcp_pending *oldest = NULL;

	for (struct tcp_pending *c = r->pending; c < r->pending + TCP_PENDING_MAX; c++) {
		if (c->po.fd < 0)
			return c;
		if (!oldest || (oldest->parked && !c->parked) ||
			(oldest->parked == c->parked && c->order < oldest->order))
			oldest = c;
	}
	turn_away(r, oldest, now_ns, "too many connections wait for admission");
	return oldest;
}

static void accept_one(
	struct tcp_rail *r, int fd, const struct sockaddr_storage *from, int64_t now_ns)
{
	struct tcp_pending *c = find_slot(r, now_ns);

	*c = (struct tcp_pending){
		.po = { .fd = fd, .ready = pending_ready },
		.rail = r,
		.deadline_ns = now_ns + TCP_ADMIT_NS,
		.order = r->arrivals++,
	};
	r->n_pending++;
	dr_tcp_addr_format(from, c->from);
	c->of_peer = same_host(from, &r->peer);
	if (r->par.poller && dr_poller_add(r->par.poller, &c->po, EPOLLIN)) {
		turn_away(r, c, now_ns, "it cannot be polled (out of memory or watches)");
		return;
	}
	read_hello(r, c, now_ns);
}

static void accept_all(struct tcp_rail *r, int64_t now_ns)
{
	struct sockaddr_storage from;

	for (int i = 0; i < ACCEPT_BATCH && !r->closed; i++) {
		socklen_t len = sizeof(from);
		int fd = accept4(r->listener.fd, (struct sockaddr *)&from, &len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			accept_one(r, fd, &from, now_ns);
			continue;
		}
		if (errno == ECONNABORTED || errno == EINTR)
			continue;
		if ((errno == EMFILE || errno == ENFILE) && may_warn(r, now_ns))
			dr_warn("tcp",
				"rail %u: cannot accept a connection: too many open files; "
				"raise `ulimit -n`",
				r->base.index);
		return;
	}
}

void dr_tcp_admit_progress(struct tcp_rail *r, bool all, int64_t now_ns)
{
	for (struct tcp_pending *c = r->pending; c < r->pending + TCP_PENDING_MAX && r->n_pending;
		c++) {
		if (c->po.fd >= 0 && (all || c->fired))
			read_hello(r, c, now_ns);
		if (c->po.fd < 0 || now_ns < c->deadline_ns)
			continue;
		if (c->parked)
			drop(r, c);
		else
			turn_away(r, c, now_ns, "it did not say who it is in time");
	}
	if (!r->closed && (all || r->listener_fired))
		accept_all(r, now_ns);
}

void dr_tcp_admit_claim(struct tcp_path *p)
{
	struct tcp_rail *r = tcp_path_rail(p);

	for (struct tcp_pending *c = r->pending; c < r->pending + TCP_PENDING_MAX; c++) {
		if (c->po.fd < 0 || !c->parked || !fits(p, &c->hello))
			continue;
		if (c->hello.gen == p->base.par.gen)
			dr_tcp_adopt(p, release(r, c));
		else if (c->hello.gen < p->base.par.gen)
			drop(r, c);
		return;
	}
}
