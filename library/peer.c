/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/clock.h"
#include "base/failure.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "topology/reach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Life of a peer.
 *  1. Callbacks of the manager write down what happened; the next pump or tick acts, since a callback must not close.
 *  2. ENDED: its puts have failed, its chunks are forgotten, and the manager is driven until the other end knows.
 *  3. The memory of what was in flight is safe when dr_lib_peer_free has returned 0.
 */
static const int64_t CLOSE_NS = 3 * DR_NS_PER_S;

/* ---- chunks ---- */

static void drop(struct dr_lib_chunk *k)
{
	if (k && k->target)
		dr_lib_unuse(k->target);
	dr_free(k);
}

static void drop_lane(struct dr_lib_lane *l)
{
	struct dr_lib_chunk *k;

	for (unsigned i = 0; i < DR_LIB_WINDOW; i++) {
		drop(l->flying[i]);
		l->flying[i] = NULL;
	}
	while ((k = STAILQ_FIRST(&l->waiting))) {
		STAILQ_REMOVE_HEAD(&l->waiting, next);
		drop(k);
	}
	l->head = l->tail;
	l->bytes = 0;
}

static void drop_chunks(struct dualrail_peer *p)
{
	for (unsigned i = 0; i < DUALRAIL_LANES_MAX; i++) {
		drop_lane(&p->tx[i]);
		drop_lane(&p->rx[i]);
	}
	p->announced = p->asked = 0;
}

unsigned dr_lib_rail(const struct dualrail_peer *p, unsigned channel, unsigned path)
{
	return ((channel < 2 ? 0 : channel / 2 - 1) + path) % p->n_rails;
}

static const char *ifname(const struct dualrail_peer *p, struct dr_channel *ch, unsigned path)
{
	return p->rail[dr_lib_rail(p, dr_channel_id(ch), path)].ifname;
}

/* ---- callbacks of the manager ---- */

static void switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	struct dualrail_peer *p = arg;
	struct dr_lib_event *v = dr_lib_event(p, DUALRAIL_SWITCHED, 0);

	if (!v)
		return;
	v->e.code = rec->planned;
	v->e.lane = dr_channel_id(ch);
	if (!dr_channel_is_sender(ch))
		v->e.gap_ns = dr_switch_gap(rec);
	snprintf(v->text, sizeof(v->text), "%s -> %s%s%.200s", ifname(p, ch, rec->from),
		ifname(p, ch, rec->to), rec->cause[0] ? ": " : "", rec->cause);
	dr_lib_event_put(p->d, v);
}

static void protection(void *arg, struct dr_channel *ch, bool prot, unsigned path, int64_t now)
{
	struct dualrail_peer *p = arg;
	bool *exposed = &p->exposed[dr_channel_id(ch)];
	struct dr_lib_event *v;

	(void)now;
	/* Until it has connected it is not protected yet, and nobody is told. */
	if (p->state != DR_LIB_UP || *exposed == !prot)
		return;
	*exposed = !prot;
	v = dr_lib_event(p, prot ? DUALRAIL_HEALED : DUALRAIL_UNPROTECTED, 0);
	if (!v)
		return;
	v->e.lane = dr_channel_id(ch);
	snprintf(v->text, sizeof(v->text), "%s", ifname(p, ch, path));
	dr_lib_event_put(p->d, v);
}

static void failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now)
{
	struct dualrail_peer *p = arg;

	(void)ch, (void)now;
	if (p->code != 0)
		return;
	p->code = err;
	snprintf(p->why, sizeof(p->why), "%s", text);
}

static bool is_silent(const struct dualrail_peer *p, unsigned rail)
{
	return !dr_manager_heard(p->m, rail) ||
	       dr_failure_last(&p->rail[rail].local, &p->rail_peer[rail], NULL);
}

/* Why no connection of the rail came up. */
static void explain(const struct dualrail_peer *p, unsigned rail, char *buf, size_t len)
{
	const struct dr_reach reach = { .ifname = p->rail[rail].ifname,
		.local = &p->rail[rail].local,
		.peer = &p->rail_peer[rail],
		.ports = "net.ipv4.ip_local_port_range" };
	int n = snprintf(buf, len, "%s never came up: ", reach.ifname);

	dr_reach_describe(&reach, buf + n, len - (size_t)n);
}

static void rail_changed(
	void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now)
{
	const struct dualrail_peer *p = arg;
	char text[300];

	(void)why, (void)now;
	if (st != DR_RAIL_DOWN || dr_manager_heard(p->m, rail))
		return;
	explain(p, rail, text, sizeof(text));
	dr_warn("library", "%s", text);
}

const struct dr_manager_ops dr_lib_manager_ops = {
	.rail = rail_changed,
	.channel = { .switched = switched, .protection = protection, .failed = failed },
};

/* ---- life ---- */

static void event_init(struct dualrail_peer *p, struct dr_lib_event *v, int kind)
{
	v->e.kind = kind;
	v->e.peer = p;
	v->e.gap_ns = -1;
}

struct dualrail_peer *dr_lib_peer(struct dualrail *d, bool connector)
{
	struct dualrail_peer *p = dr_calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->d = d;
	p->connector = connector;
	STAILQ_INIT(&p->puts);
	STAILQ_INIT(&p->noted);
	for (unsigned i = 0; i < DUALRAIL_LANES_MAX; i++) {
		STAILQ_INIT(&p->tx[i].waiting);
		STAILQ_INIT(&p->rx[i].waiting);
	}
	event_init(p, &p->up, DUALRAIL_CONNECTED);
	event_init(p, &p->down, DUALRAIL_CLOSED);
	p->next = d->peers;
	d->peers = p;
	return p;
}

void dr_lib_end(struct dualrail_peer *p, int code, const char *text)
{
	if (p->state == DR_LIB_ENDED)
		return;
	p->state = DR_LIB_ENDED;
	p->code = code;
	dr_lib_puts_end(p, code);
	drop_chunks(p);
	p->down.e.code = code;
	snprintf(p->down.text, sizeof(p->down.text), "%s", text);
	dr_lib_event_put(p->d, &p->down);
	p->closed = !p->m;
}

/* The end of one channel is the end of all. True: it has ended. */
static bool look(struct dualrail_peer *p)
{
	for (unsigned i = 0; i < 2 + 2 * p->lanes; i++) {
		int rc = dr_channel_ready(p->ch[i]);

		if (rc >= 0)
			continue;
		dr_lib_end(p, p->code ? p->code : rc,
			p->why[0]	   ? p->why
			: rc == -ESHUTDOWN ? "the peer disconnected"
					   : dr_errno_name(rc));
		return true;
	}
	return false;
}

void dr_lib_pump(struct dualrail_peer *p, int64_t now)
{
	if (p->state != DR_LIB_UP || look(p))
		return;
	dr_lib_take(p, now);
	dr_lib_send(p, now);
	for (unsigned i = 0; i < 2 + 2 * p->lanes; i++)
		dr_channel_flush(p->ch[i], now);
	(void)dr_manager_idle(p->m, now);
}

static void come_up(struct dualrail_peer *p, int64_t now)
{
	unsigned rail = 0;
	char why[300];

	if (look(p))
		return;
	if (dr_manager_ready(p->m) == 1) {
		p->state = DR_LIB_UP;
		p->up.e.code = !p->connector;
		dr_lib_event_put(p->d, &p->up);
	} else if (now >= p->until_ns) {
		while (rail + 1 < p->n_rails && !is_silent(p, rail))
			rail++;
		explain(p, rail, why, sizeof(why));
		dr_lib_end(p, -ETIMEDOUT, why);
	}
}

void dr_lib_tick(struct dualrail_peer *p, int64_t now)
{
	if (!p->m)
		return;
	if (now >= dr_manager_deadline(p->m))
		dr_manager_tick(p->m, now);
	if (p->state == DR_LIB_STARTING)
		come_up(p, now);
	dr_lib_pump(p, now);
	if (p->state == DR_LIB_ENDED && !p->closing) {
		p->closing = true;
		dr_manager_close(p->m, now);
	}
	if (p->closing && !p->closed && dr_manager_closed(p->m)) {
		p->closed = true;
		pthread_cond_broadcast(&p->d->changed);
	}
}

/* ---- end ---- */

static void unlink_peer(struct dualrail_peer *p)
{
	DR_UNLINK(&p->d->peers, p, next);
	for (struct dualrail_put *put = p->d->puts; put; put = put->all)
		if (put->peer == p)
			put->peer = NULL;
}

static int dereg(struct dr_channel *ch, struct dr_mem *mem, struct dr_err *e)
{
	return mem->base ? dr_channel_mem_dereg(ch, mem, dr_now_ns(), e) : 0;
}

static int close_requests(struct dualrail_peer *p, struct dr_lib_requests *q, struct dr_err *e)
{
	int rc = dereg(p->ch[q->channel], &q->mem, e);

	/* After an error a NIC may still write there. */
	if (q->slot && rc == 0)
		dr_pages_free(q->slot, (size_t)DR_LIB_WINDOW * DR_REQUEST_BYTES);
	return rc;
}

static int close_rails(struct dualrail_peer *p, struct dr_err *e)
{
	int rc = dr_lib_regs_remove(p, e), err;

	for (unsigned i = 0; i < 2 + 2 * p->lanes; i++)
		(void)dereg(p->ch[i], &p->nothing[i], NULL); /* no bytes of it are accessed */
	err = close_requests(p, &p->to, NULL);
	rc = rc ? rc : err;
	err = close_requests(p, &p->from, NULL);
	rc = rc ? rc : err;
	err = dr_manager_destroy(p->m);
	return rc ? rc : err;
}

int dr_lib_peer_free(struct dualrail_peer *p, struct dr_err *e)
{
	struct dr_err why = { 0 };
	int rc = 0;

	drop_chunks(p);
	if (p->m)
		rc = close_rails(p, &why);
	dr_lib_events_drop(p);
	unlink_peer(p);
	dr_free(p);
	if (rc == 0)
		return 0;
	return dr_err_set(e, rc,
		"disconnect: a connection could not be destroyed (%s); memory of its transfers must stay "
		"allocated until the process ends",
		why.text[0] ? why.text : dr_errno_name(rc));
}

int dualrail_disconnect(struct dualrail_peer *p, struct dualrail_error *error)
{
	struct dualrail *d = p->d;
	struct dr_err e = { 0 };
	int64_t until = dr_now_ns() + CLOSE_NS;
	bool started;
	int rc;

	dr_lib_lock(d);
	started = p->state != DR_LIB_EXCHANGE;
	if (p->exchange)
		dr_rdv_cancel(p->exchange);
	p->exchange = NULL;
	dr_lib_end(p, -ECANCELED, "disconnected");
	if (started)
		dr_poller_wake(d->poller);
	while (started && !p->closed && dr_now_ns() < until)
		(void)dr_cond_wait(&d->changed, &d->lock, until);
	rc = dr_lib_peer_free(p, &e);
	dr_lib_unlock(d);
	return rc ? dr_lib_error(error, &e) : 0;
}

/* ---- what the user asks for ---- */

static void add_stats(struct dualrail_stats *s, struct dr_channel *ch, bool data)
{
	struct dr_channel_stats st;

	dr_channel_stats(ch, &st);
	if (data && dr_channel_is_sender(ch)) {
		s->sent_bytes += st.bytes;
		s->sent_blocks += st.messages;
	} else if (data) {
		s->received_bytes += st.bytes;
		s->received_blocks += st.messages;
	}
	s->replayed_bytes += st.replayed_bytes;
	s->duplicates_dropped += st.duplicates_dropped;
	s->switches += st.switches;
	s->failbacks += st.failbacks;
	s->heals += st.heals;
	s->unprotected += !st.path_up[0] || !st.path_up[1];
}

int dualrail_get_stats(struct dualrail_peer *p, struct dualrail_stats *out)
{
	struct dualrail_stats s = { .size = DR_MIN(out->size, sizeof(s)) };

	if (out->size < sizeof(out->size))
		return -EINVAL;
	dr_lib_lock(p->d);
	for (unsigned i = 0; i < 2 + 2 * p->lanes && p->ch[i]; i++)
		add_stats(&s, p->ch[i], i >= 2);
	s.lanes = p->lanes;
	s.nics = p->n_rails;
	s.in_flight = p->announced;
	pthread_mutex_unlock(&p->d->lock); /* nothing has changed */
	memcpy(out, &s, s.size);
	return 0;
}

int dualrail_cut(struct dualrail_peer *p, uint32_t nic)
{
	int rc = -ENOTCONN;

	dr_lib_lock(p->d);
	if (p->state == DR_LIB_UP)
		rc = nic < p->n_rails ? 0 : -EINVAL;
	for (unsigned i = 0; i < 2 + 2 * p->lanes && rc == 0; i++)
		for (unsigned path = 0; path < DR_PATHS; path++)
			if (dr_lib_rail(p, i, path) == nic)
				dr_channel_path_dead(p->ch[i], path, -ECONNABORTED,
					"connection closed by fault injection", dr_now_ns());
	dr_lib_unlock(p->d);
	return rc;
}
