/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "channel/peer.h"
#include "plugin/news.h"
#include "topology/reach.h"
#include "transport/kind.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/*
 * Life of a session, and its inline manager. lane.c has the bulk lanes.
 *  1. A bulk manager is created, started and destroyed on its I/O thread; the control thread waits for that.
 *  2. The threads that call comms poll only their comm's connection. The whole manager (other connections, rails,
 *     datagrams, timers) is driven every INLINE_NS by whoever calls, and by the control thread when nobody did for half a
 *     heartbeat, or at once if the manager is due.
 */
static const int64_t INLINE_NS = DR_NS_PER_MS;

/* Handles: the peer's, the inline manager's, then for each thread its manager's and those of its lanes. */

/* ---- callbacks of the inline manager ---- */

static void inline_completed(
	void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now)
{
	struct ha_session *s = arg;

	(void)bytes, (void)now;
	s->completed = true;
	ha_comm_completed(s->comm[dr_channel_id(ch) % HA_COMMS_MAX], seq);
}

static void inline_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now)
{
	struct ha_session *s = arg;

	(void)now;
	ha_comm_ended(s->comm[dr_channel_id(ch) % HA_COMMS_MAX], err, text);
}

/* -1: nothing was in flight. With data in flight the path's failure is detected soon after the
 * last delivery. */
static int64_t gap_ns(const struct ha_session *s, const struct dr_switch_record *rec)
{
	int64_t silent = rec->detect_ns - rec->last_delivery_ns;

	return silent > 4 * dr_manager_detect_bound(&s->prm.manager) ? -1 : dr_switch_gap(rec);
}

/* Path 0 is on rail 0, the other one on the last rail. */
static const char *ifname_of(const struct ha_session *s, unsigned path)
{
	const char *name = s->prm.manager.rail[path == 0 ? 0 : s->prm.manager.n_rails - 1].ifname;

	return name ? name : "?";
}

/* Once for each switch: at the receiver, which knows the gap. */
static void switched(struct ha_session *s, const char *what, struct dr_channel *ch,
	const struct dr_switch_record *rec)
{
	int64_t gap = gap_ns(s, rec);
	const struct ha_news news = { .device = s->prm.device[rec->from != 0],
		.ifname = ifname_of(s, rec->from),
		.peer = s->prm.peer,
		.to = ifname_of(s, rec->to),
		.gap_ns = gap,
		.why = rec->cause };

	if (dr_channel_is_sender(ch))
		return;
	if (rec->planned) {
		dr_debug("session", "%s %u from %s: back on path %u", what, dr_channel_id(ch),
			s->prm.peer, rec->to);
		return;
	}
	if (gap < 0) /* from the detection on; what came later waited for its user */
		dr_debug("session", "%s %u from %s: path %u -> %u, idle, usable after %.3f ms: %s",
			what, dr_channel_id(ch), s->prm.peer, rec->from, rec->to,
			(double)(rec->answer_ns - rec->detect_ns) / 1e6, rec->cause);
	else
		dr_debug("session", "%s %u from %s: path %u -> %u, gap %.3f ms: %s", what,
			dr_channel_id(ch), s->prm.peer, rec->from, rec->to, (double)gap / 1e6,
			rec->cause);
	atomic_fetch_add(&s->gap_ns, DR_MAX(gap, (int64_t)0));
	if (rec->from < DR_PATHS) /* else it is the first path that the connection has */
		ha_news_add(&news, dr_now_ns());
}

static void inline_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	switched(arg, "comm", ch, rec);
}

static void bulk_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	switched(((struct ha_bulk *)arg)->s, "lane", ch, rec);
}

/* A rail went down. Why a device never had an answer is told once for each device of this
 * process. */
static void rail_changed(
	void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now)
{
	static atomic_uint_least64_t told;
	const struct ha_session *s = arg;
	const struct dr_manager_rail *own = &s->prm.manager.rail[rail];
	const struct dr_reach reach = { .ifname = own->ifname,
		.local = &own->local,
		.peer = &s->rail_peer[rail],
		.ports = "HA_NCCL_PORTS" };
	uint64_t bit = 1ull << (s->prm.device[rail] % 64);
	char cause[300];

	if (st != DR_RAIL_DOWN)
		return;
	if (dr_manager_heard(s->m, rail) || s->rail_peer[rail].ss_family == AF_UNSPEC) {
		const struct ha_news news = { .device = s->prm.device[rail],
			.ifname = ifname_of(s, rail),
			.peer = s->prm.peer,
			.why = why };

		ha_news_add(&news, now);
		return;
	}
	if (atomic_fetch_or(&told, bit) & bit)
		return;
	dr_reach_describe(&reach, cause, sizeof(cause));
	dr_warn("session", "%s to %s never came up: %s", own->ifname, s->prm.peer, cause);
}

static const struct dr_manager_ops inline_ops = {
	.rail = rail_changed,
	.channel = { .completed = inline_completed,
		.failed = inline_failed,
		.switched = inline_switched },
};
static const struct dr_manager_ops bulk_ops = {
	.channel = { .completed = ha_lane_completed,
		.credited = ha_lane_credited,
		.failed = ha_lane_failed,
		.switched = bulk_switched },
};

/* ---- create ---- */

static struct dr_manager_params manager_params(const struct ha_session *s, unsigned position)
{
	struct dr_manager_params p = s->prm.manager;

	p.gpu = position;
	p.connector = s->prm.connector;
	p.window = position == 0 ? HA_SLOTS : HA_WINDOW;
	p.peer = s->peer;
	memcpy(p.token, s->prm.token, DR_TOKEN_LEN);
	return p;
}

/* Rail 0 is the device's, the other one stands by: NCCL spreads its channels over devices. */
int ha_session_open_channel(struct ha_session *s, struct dr_manager *m, uint32_t id,
	struct dr_channel **out, struct dr_err *e)
{
	const struct dr_manager_channel spec = {
		.primary = 0, .shadow = s->prm.manager.n_rails - 1, .sender = s->prm.connector
	};

	return dr_manager_open_channel(m, id, &spec, out, e);
}

struct on_thread {
	ha_bulk_fn fn;
	struct ha_bulk *b;
	void *arg;
	int rc;
};

static void run(void *arg, int64_t now)
{
	struct on_thread *c = arg;

	c->rc = c->fn(c->b, c->arg, now);
}

int ha_session_each(struct ha_session *s, ha_bulk_fn fn, void *arg)
{
	struct on_thread c = { .fn = fn, .arg = arg };

	for (unsigned t = 0; t < s->prm.n_threads && c.rc == 0; t++) {
		c.b = &s->bulk[t];
		ha_thread_call(c.b->thread, run, &c);
	}
	return c.rc;
}

static int open_lane(struct ha_bulk *b, unsigned i, struct dr_err *e)
{
	struct ha_lane *l = &b->lane[i];
	static uint8_t nothing[8];
	const struct dr_memory m = { .base = nothing, .len = sizeof(nothing) };
	int rc = ha_session_open_channel(b->s, b->m, i, &l->ch, e);

	return rc ? rc : dr_channel_mem_reg(l->ch, &m, &l->nothing, e);
}

static int create_bulk(struct ha_bulk *b, void *e, int64_t now)
{
	struct dr_manager_params p = manager_params(b->s, 1 + (unsigned)(b - b->s->bulk));
	int rc;

	(void)now;
	p.poller = ha_thread_poller(b->thread);
	p.ops = &bulk_ops;
	p.arg = b;
	rc = dr_manager_create(&p, &b->m, e);
	for (unsigned i = 0; i < b->s->prm.lanes && rc == 0; i++)
		rc = open_lane(b, i, e);
	return rc;
}

static int create_inline(struct ha_session *s, struct dr_err *e)
{
	struct dr_manager_params p;
	int rc = dr_poller_create(&s->poller, e);

	if (rc == 0)
		rc = dr_poller_create(&s->apart, e);
	if (rc != 0)
		return rc;
	p = manager_params(s, 0);
	p.poller = s->poller;
	p.ops = &inline_ops;
	p.arg = s;
	if (p.transport->caps & DR_CAP_DGRAM) {
		rc = dr_peer_create(&p, s->apart, &s->peer, e);
		p.peer = s->peer;
	}
	return rc ? rc : dr_manager_create(&p, &s->m, e);
}

static void init_lanes(struct ha_session *s)
{
	for (unsigned i = 0; i < s->n_lanes; i++) {
		struct ha_lane *l = &s->lanes[i];

		l->index = i;
		l->bulk = &s->bulk[i / s->prm.lanes];
		STAILQ_INIT(&l->waiting);
	}
	for (unsigned t = 0; t < s->prm.n_threads; t++) {
		s->bulk[t].s = s;
		s->bulk[t].thread = s->prm.threads[t];
		s->bulk[t].lane = &s->lanes[t * s->prm.lanes];
		s->bulk[t].member.tick = ha_bulk_tick;
		s->bulk[t].member.deadline = ha_bulk_deadline;
	}
}

int ha_session_create(const struct ha_session_params *p, struct ha_session **out, struct dr_err *e)
{
	struct ha_session *s = dr_calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return dr_err_set(e, -ENOMEM, "session with %s: out of memory", p->peer);
	s->prm = *p;
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->names, NULL);
	s->n_lanes = p->n_threads * p->lanes;
	s->lanes = dr_calloc(s->n_lanes, sizeof(*s->lanes));
	s->comm = dr_calloc(HA_COMMS_MAX, sizeof(struct ha_comm *));
	if (!s->lanes || !s->comm) {
		rc = dr_err_set(e, -ENOMEM, "session with %s: out of memory", p->peer);
	} else {
		init_lanes(s);
		rc = create_inline(s, e);
		rc = rc ? rc : ha_session_each(s, create_bulk, e);
	}
	if (rc != 0) {
		(void)ha_session_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* ---- handles and start ---- */

static unsigned handles_each(const struct ha_session *s)
{
	return s->prm.manager.n_rails + s->prm.lanes;
}

unsigned ha_session_handle_count(const struct ha_session *s)
{
	unsigned r = s->prm.manager.n_rails;

	return (s->peer ? r : 0) + r + s->prm.n_threads * handles_each(s);
}

static int bulk_handles(struct ha_bulk *b, void *arg, int64_t now)
{
	struct dr_handle *out = (struct dr_handle *)arg + (b - b->s->bulk) * handles_each(b->s);
	int rc = 0;

	(void)now;
	for (unsigned i = 0; i < b->s->prm.manager.n_rails && rc == 0; i++)
		rc = dr_manager_handle(b->m, i, out++);
	for (unsigned i = 0; i < b->s->prm.lanes && rc == 0; i++)
		rc = dr_channel_handle(b->lane[i].ch, out++);
	return rc;
}

int ha_session_handles(struct ha_session *s, struct dr_handle *out)
{
	unsigned r = s->prm.manager.n_rails;
	int rc = 0;

	for (unsigned i = 0; s->peer && i < r && rc == 0; i++)
		rc = dr_peer_handle(s->peer, i, out++);
	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < r && rc == 0; i++)
		rc = dr_manager_handle(s->m, i, out++);
	pthread_mutex_unlock(&s->lock);
	return rc ? rc : ha_session_each(s, bulk_handles, out);
}

struct start {
	const struct dr_handle *peer;
	struct dr_err *e;
};

static int start_bulk(struct ha_bulk *b, void *arg, int64_t now)
{
	const struct start *c = arg;
	const struct dr_handle *peer = c->peer + (b - b->s->bulk) * handles_each(b->s);
	unsigned r = b->s->prm.manager.n_rails;
	int rc = dr_manager_start(b->m, peer, r, now, c->e);

	for (unsigned i = 0; i < b->s->prm.lanes && rc == 0; i++)
		rc = dr_channel_start(b->lane[i].ch, &peer[r + i], now, c->e);
	if (rc == 0) {
		ha_thread_add(b->thread, &b->member);
		b->added = true;
	}
	return rc;
}

/* The hosts that the handles of the rails name. */
static void find_peers(struct ha_session *s, const struct dr_handle *h)
{
	const struct dr_transport_kind *k = dr_transport_kind(s->prm.manager.transport->name);

	for (unsigned r = 0; k && k->handle_host && r < s->prm.manager.n_rails; r++)
		if (k->handle_host(
			    s->prm.manager.kind_params, h[r].bytes, h[r].len, &s->rail_peer[r]))
			s->rail_peer[r].ss_family = AF_UNSPEC;
}

int ha_session_start(struct ha_session *s, const struct dr_handle *peer, struct dr_err *e)
{
	unsigned r = s->prm.manager.n_rails;
	struct start c = { peer + r + (s->peer ? r : 0), e };
	int64_t now = dr_now_ns();

	find_peers(s, c.peer - r);
	int rc = s->peer ? dr_peer_start(s->peer, peer, r, now, e) : 0;

	pthread_mutex_lock(&s->lock);
	if (rc == 0)
		rc = dr_manager_start(s->m, c.peer - r, r, now, e);
	pthread_mutex_unlock(&s->lock);
	return rc ? rc : ha_session_each(s, start_bulk, &c);
}

/* ---- drive ---- */

static void drive_all(struct ha_session *s, int64_t now)
{
	s->polled_ns = now;
	(void)dr_poller_wait(s->poller, 0);
	dr_manager_tick(s->m, dr_now_ns());
}

/* Not again after a message came: the caller takes it first. The next read takes the bytes out of the socket, and there the
 * kernel sends its acknowledgement. */
static void poll_comm(struct ha_session *s, struct dr_channel *ch, int64_t now)
{
	s->completed = false;
	for (unsigned i = 0; i < s->prm.test_max_poll && !s->completed; i++)
		if (dr_channel_poll(ch, now) == 0)
			return;
}

void ha_session_drive(struct ha_session *s, struct dr_channel *ch, int64_t now)
{
	atomic_store_explicit(&s->driven_ns, now, memory_order_relaxed);
	if (dr_channel_ready(ch) != 1)
		s->polled_ns = 0;
	else
		poll_comm(s, ch, now);
	if (now - s->polled_ns >= INLINE_NS || now >= dr_manager_deadline(s->m))
		drive_all(s, now);
}

static int64_t undriven_ns(const struct ha_session *s)
{
	return atomic_load_explicit(&s->driven_ns, memory_order_relaxed) +
	       s->prm.manager.heartbeat_ns / 2;
}

void ha_session_tick(struct ha_session *s, int64_t now)
{
	if (now < undriven_ns(s) || pthread_mutex_trylock(&s->lock) != 0)
		return;
	atomic_store_explicit(&s->driven_ns, now, memory_order_relaxed);
	drive_all(s, now);
	for (struct ha_comm *c = s->comms; c; c = c->next)
		ha_comm_progress(c, now);
	pthread_mutex_unlock(&s->lock);
}

int64_t ha_session_deadline(const struct ha_session *s)
{
	return undriven_ns(s);
}

struct link {
	int ifindex;
	bool up;
};

static int bulk_link(struct ha_bulk *b, void *arg, int64_t now)
{
	const struct link *l = arg;

	dr_manager_link(b->m, l->ifindex, l->up, now);
	return 0;
}

void ha_session_link(struct ha_session *s, int ifindex, bool up)
{
	pthread_mutex_lock(&s->lock);
	dr_manager_link(s->m, ifindex, up, dr_now_ns());
	pthread_mutex_unlock(&s->lock);
	(void)ha_session_each(s, bulk_link, &(struct link){ ifindex, up });
}

/* ---- counters ---- */

static int count_bulk(struct ha_bulk *b, void *to, int64_t now)
{
	(void)now;
	for (unsigned i = 0; i < b->s->prm.lanes; i++)
		ha_session_count(b->s, b->lane[i].ch, to);
	return 0;
}

void ha_session_count(struct ha_session *s, struct dr_channel *ch, struct ha_counters *to)
{
	struct dr_channel_stats st;

	dr_channel_stats(ch, &st);
	ha_counters_add(to, &st, s->prm.connector, s->prm.device);
}

void ha_session_counters(struct ha_session *s, struct ha_counters *to)
{
	pthread_mutex_lock(&s->lock);
	ha_counters_sum(to, &s->past);
	for (struct ha_comm *c = s->comms; c; c = c->next)
		if (c->ch)
			ha_session_count(s, c->ch, to);
	pthread_mutex_unlock(&s->lock);
	(void)ha_session_each(s, count_bulk, to);
	to->gap_seconds += (double)atomic_load(&s->gap_ns) / 1e9;
}

/* ---- end ---- */

void ha_session_fail(struct ha_session *s, int err, const char *why)
{
	int none = 0;

	pthread_mutex_lock(&s->names);
	if (atomic_compare_exchange_strong(&s->err, &none, err))
		for (struct ha_comm *c = s->comms; c; c = c->next)
			ha_comm_fail(c, err, why);
	pthread_mutex_unlock(&s->names);
}

static int close_bulk(struct ha_bulk *b, void *arg, int64_t now)
{
	(void)arg;
	dr_manager_close(b->m, now);
	return 0;
}

void ha_session_close(struct ha_session *s)
{
	pthread_mutex_lock(&s->lock);
	dr_manager_close(s->m, dr_now_ns());
	pthread_mutex_unlock(&s->lock);
	(void)ha_session_each(s, close_bulk, NULL);
}

static int bulk_open(struct ha_bulk *b, void *arg, int64_t now)
{
	(void)arg, (void)now;
	return !dr_manager_closed(b->m);
}

bool ha_session_closed(struct ha_session *s)
{
	bool closed;

	pthread_mutex_lock(&s->lock);
	closed = dr_manager_closed(s->m);
	pthread_mutex_unlock(&s->lock);
	return closed && ha_session_each(s, bulk_open, NULL) == 0;
}

static int dereg_if_any(struct ha_lane *l, struct dr_mem *mem, int64_t now)
{
	return mem->base ? dr_channel_mem_dereg(l->ch, mem, now, NULL) : 0;
}

/* *rc: the first error. */
static int destroy_bulk(struct ha_bulk *b, void *arg, int64_t now)
{
	int *rc = arg, err;

	if (!b->m)
		return 0;
	if (b->added)
		ha_thread_remove(b->thread, &b->member);
	for (unsigned i = 0; i < b->s->prm.lanes; i++) {
		struct ha_lane *l = &b->lane[i];

		err = dereg_if_any(l, &l->nothing, now);
		*rc = *rc ? *rc : err;
		for (struct ha_mr *mr = b->s->replaced; mr; mr = mr->next) {
			err = dereg_if_any(l, &mr->mem[l->index], now);
			*rc = *rc ? *rc : err;
		}
	}
	err = dr_manager_destroy(b->m);
	*rc = *rc ? *rc : err;
	for (unsigned i = 0; i < b->s->prm.lanes; i++)
		ha_lane_drop(&b->lane[i]);
	return 0;
}

int ha_session_destroy(struct ha_session *s)
{
	int rc = 0;

	if (s->lanes && s->comm)
		(void)ha_session_each(s, destroy_bulk, &rc);
	int err = dr_manager_destroy(s->m);
	rc = rc ? rc : err;
	for (struct ha_mr *mr; rc == 0 && (mr = s->replaced);) {
		s->replaced = mr->next;
		if (mr->base)
			dr_pages_free(mr->base, mr->len);
		ha_mr_free(mr);
	}
	dr_peer_destroy(s->peer);
	dr_poller_destroy(s->apart);
	dr_poller_destroy(s->poller);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->names);
	dr_free(s->comm);
	dr_free(s->lanes);
	dr_free(s);
	return rc;
}
