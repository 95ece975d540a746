/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "base/mem.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/*
 * The clock and the event queue: a binary heap ordered by (time, serial), so that events of one time
 * happen in the order in which they were put in and a run depends on nothing but the seed.
 */

enum { SIM_DRIVE_MAX = 64 };

const char *dr_sim_personality_name(enum dr_sim_personality p)
{
	static const char *const name[] = { "stream", "remote-write", "plugin" };

	return name[p];
}

void dr_sim_opts_init(struct dr_sim_opts *o)
{
	*o = (struct dr_sim_opts){
		.personality = DR_SIM_STREAM,
		.link = { .delay_min_ns = 10 * DR_NS_PER_US,
			.delay_exp_ns = 5 * DR_NS_PER_US,
			.bits_per_s = 10e9 },
		.segment_bytes = 64 << 10,
		.window_bytes = 256 << 10,
		.ctrl_room_bytes = 4096,
		.rcvbuf_bytes = 512 << 10,
		.recv_depth = 64,
		.send_depth = 64,
		.ctrl_depth = 32,
		.qps = 2,
		.progress_max = 32,
		.rto_ns = 200 * DR_NS_PER_MS,
		.rto_max_ns = DR_NS_PER_S,
		.retry_ns = 20 * DR_NS_PER_MS,
		.retry_count = 7,
		.fence_min_ns = 50 * DR_NS_PER_US,
		.fence_exp_ns = 50 * DR_NS_PER_US,
		.zombie_exp_ns = 200 * DR_NS_PER_US,
		.park_ns = 5 * DR_NS_PER_S,
	};
}

void *sim_alloc(size_t size)
{
	void *p = dr_calloc(1, size);

	dr_assert(p != NULL);
	return p;
}

int dr_sim_world_create(uint64_t seed, const struct dr_sim_opts *opts, struct dr_sim_world **out)
{
	struct dr_sim_world *w = dr_calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	if (opts)
		w->o = *opts;
	else
		dr_sim_opts_init(&w->o);
	dr_assert(w->o.segment_bytes > 0 && w->o.recv_depth > 0 && w->o.send_depth > 0);
	dr_assert(w->o.qps >= 1 && w->o.qps < SIM_LANES && w->o.progress_max > 0);
	dr_assert(w->o.rcvbuf_bytes > w->o.segment_bytes + DR_CTRL_MAX);
	STAILQ_INIT(&w->spare_items);
	STAILQ_INIT(&w->spare_segs);
	dr_rng_seed(&w->rng, seed);
	for (unsigned i = 0; i < DR_SIM_RAILS_MAX; i++)
		for (unsigned n = 0; n < 2; n++) {
			w->link[i][n].o = w->o.link;
			w->link[i][n].passes = UINT32_MAX;
			w->fence_ns[i][n] = -1;
		}
	*out = w;
	return 0;
}

void dr_sim_world_destroy(struct dr_sim_world *w)
{
	if (!w)
		return;
	dr_assert(!w->rails[0] && !w->rails[1]);
	for (size_t i = 0; i < w->n_events; i++)
		if (w->heap[i].a == UINT64_MAX) /* the event owns its object */
			dr_free(w->heap[i].obj);
	while (w->conns) {
		struct sim_conn *c = w->conns;

		w->conns = c->next;
		sim_lanes_free(c);
		dr_free(c);
	}
	for (struct sim_item *it; (it = sim_item_pop(&w->spare_items));)
		dr_free(it);
	for (struct sim_seg *s; (s = sim_seg_pop(&w->spare_segs));)
		dr_free(s);
	dr_free(w->heap);
	dr_free(w->qp);
	dr_free(w->returned.r);
	dr_free(w->users.r);
	dr_free(w);
}

static bool before(const struct sim_event *x, const struct sim_event *y)
{
	return x->at < y->at || (x->at == y->at && x->serial < y->serial);
}

void sim_at(struct dr_sim_world *w, int64_t at, struct sim_event ev)
{
	size_t i = w->n_events++;

	if (w->n_events > w->cap_events) {
		w->cap_events = w->cap_events ? 2 * w->cap_events : 64;
		w->heap = dr_realloc(w->heap, w->cap_events * sizeof(*w->heap));
		dr_assert(w->heap != NULL);
	}
	ev.at = DR_MAX(at, w->now);
	ev.serial = w->serial++;
	for (; i > 0 && before(&ev, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = ev;
}

void sim_conn_at(struct sim_conn *c, int64_t ns,
	void (*fn)(struct dr_sim_world *w, const struct sim_event *ev), unsigned from,
	unsigned lane, uint64_t a)
{
	sim_at(c->w, c->w->now + ns,
		(struct sim_event){ .fn = fn, .obj = c, .from = from, .lane = lane, .a = a });
}

static struct sim_event pop_event(struct dr_sim_world *w)
{
	struct sim_event first = w->heap[0], *last = &w->heap[--w->n_events];
	size_t i = 0, k;

	while ((k = 2 * i + 1) < w->n_events) {
		if (k + 1 < w->n_events && before(&w->heap[k + 1], &w->heap[k]))
			k++;
		if (!before(&w->heap[k], last))
			break;
		w->heap[i] = w->heap[k];
		i = k;
	}
	w->heap[i] = *last;
	return first;
}

int64_t dr_sim_world_clock(const struct dr_sim_world *w, unsigned node)
{
	return sim_now(w, node);
}

const struct dr_sim_counts *dr_sim_world_counts(const struct dr_sim_world *w)
{
	return &w->counts;
}

int64_t dr_sim_world_now(const struct dr_sim_world *w)
{
	return w->now;
}

int64_t dr_sim_world_next(const struct dr_sim_world *w)
{
	return w->n_events ? DR_MAX(w->heap[0].at, w->now) : DR_NEVER;
}

size_t dr_sim_world_step(struct dr_sim_world *w, int64_t until)
{
	size_t done = 0;

	dr_assert(until >= w->now);
	while (w->n_events && w->heap[0].at <= until) {
		struct sim_event ev = pop_event(w);

		w->now = DR_MAX(w->now, ev.at);
		w->hash = dr_mix64(w->hash ^ (uint64_t)ev.at);
		ev.fn(w, &ev);
		done++;
	}
	if (until != DR_NEVER)
		w->now = until;
	return done;
}

static bool rail_busy(const struct sim_rail *r)
{
	return !r->closed && (!STAILQ_EMPTY(&r->items) || sim_tcp_due(r));
}

unsigned dr_sim_port_drive(struct dr_sim_world *w, unsigned node, unsigned port, uint64_t first)
{
	struct {
		void (*ready)(void *arg, int64_t now_ns);
		void *arg;
	} due[SIM_DRIVE_MAX];
	unsigned n = 0;

	/* First who, then call: a call may make and free paths. Whoever is gone by then finds that out. */
	for (const struct sim_rail *r = w->dead[node] ? NULL : w->rails[node]; r; r = r->next) {
		if (r->port != port || !r->stirred)
			continue;
		if (r->ready && rail_busy(r) && n < SIM_DRIVE_MAX) {
			due[n].ready = r->ready;
			due[n++].arg = r->arg;
		}
		for (const struct sim_path *p = r->paths; p; p = p->next)
			if (p->par.ready && sim_path_busy(p) && n < SIM_DRIVE_MAX) {
				due[n].ready = p->par.ready;
				due[n++].arg = p->par.arg;
			}
	}
	for (unsigned i = 0; i < n; i++) {
		unsigned k = (unsigned)((first + i) % n);

		due[k].ready(due[k].arg, sim_now(w, node));
	}
	return n;
}

static bool any_busy(const struct sim_rail *r)
{
	if (r->closed)
		return false;
	if (rail_busy(r))
		return true;
	for (const struct sim_path *p = r->paths; p; p = p->next)
		if (sim_path_busy(p))
			return true;
	return false;
}

bool dr_sim_port_busy(struct dr_sim_world *w, unsigned node, unsigned port)
{
	for (struct sim_rail *r = w->dead[node] ? NULL : w->rails[node]; r; r = r->next) {
		if (r->port != port || !r->stirred)
			continue;
		r->stirred = any_busy(r);
		if (r->stirred)
			return true;
	}
	return false;
}

void dr_sim_port_stir(struct dr_sim_world *w, unsigned node, unsigned port)
{
	for (struct sim_rail *r = w->rails[node]; r; r = r->next)
		if (r->port == port)
			r->stirred = w->stirred = true;
}

bool dr_sim_world_stirred(struct dr_sim_world *w)
{
	bool stirred = w->stirred;

	w->stirred = false;
	return stirred;
}

void sim_stir_all(struct dr_sim_world *w, const struct sim_event *ev)
{
	(void)ev;
	for (unsigned node = 0; node < 2; node++)
		for (struct sim_rail *r = w->rails[node]; r; r = r->next)
			r->stirred = w->stirred = true;
}

bool dr_sim_world_busy(const struct dr_sim_world *w, unsigned node)
{
	for (const struct sim_rail *r = w->dead[node] ? NULL : w->rails[node]; r; r = r->next)
		if (any_busy(r))
			return true;
	return false;
}

uint64_t dr_sim_world_hash(const struct dr_sim_world *w)
{
	return w->hash;
}

int64_t sim_exp(struct dr_sim_world *w, int64_t mean)
{
	double u = (double)((dr_rng_u64(&w->rng) >> 11) + 1) / 9007199254740993.0;

	return mean > 0 ? (int64_t)(-log(u) * (double)mean) : 0;
}

int64_t sim_link_delay(struct dr_sim_world *w, unsigned rail, unsigned from)
{
	const struct dr_sim_link *l = &w->link[rail][from].o;

	return l->delay_min_ns + sim_exp(w, l->delay_exp_ns);
}

bool sim_link_dead(const struct dr_sim_world *w, unsigned rail, unsigned from)
{
	return w->link[rail][from].cut || w->down[rail];
}

struct sim_item *sim_item_add(struct dr_sim_world *w, struct sim_items *l, enum sim_item_kind kind)
{
	struct sim_item *it = sim_item_pop(&w->spare_items);

	if (it) {
		memset(it, 0, offsetof(struct sim_item, data));
		it->seg = NULL;
		it->conn = NULL;
	} else {
		it = sim_alloc(sizeof(*it));
	}
	it->kind = kind;
	if (l->stirs)
		*l->stirs = w->stirred = true;
	STAILQ_INSERT_TAIL(l, it, next);
	w->hash = dr_mix64(w->hash + kind);
	return it;
}

struct sim_item *sim_item_pop(struct sim_items *l)
{
	struct sim_item *it = STAILQ_FIRST(l);

	if (it)
		STAILQ_REMOVE_HEAD(l, next);
	return it;
}

void sim_item_free(struct dr_sim_world *w, struct sim_item *it)
{
	sim_seg_free(w, it->seg);
	STAILQ_INSERT_HEAD(&w->spare_items, it, next);
}

struct sim_seg *sim_seg_new(struct dr_sim_world *w, enum sim_seg_kind kind)
{
	struct sim_seg *s = sim_seg_pop(&w->spare_segs);

	if (s)
		memset(s, 0, sizeof(*s));
	else
		s = sim_alloc(sizeof(*s));
	s->kind = kind;
	return s;
}

struct sim_seg *sim_seg_pop(struct sim_segs *l)
{
	struct sim_seg *s = STAILQ_FIRST(l);

	if (s)
		STAILQ_REMOVE_HEAD(l, next);
	return s;
}

void sim_seg_free(struct dr_sim_world *w, struct sim_seg *s)
{
	if (!s)
		return;
	dr_free(s->copy);
	STAILQ_INSERT_HEAD(&w->spare_segs, s, next);
}

void sim_items_clear(struct dr_sim_world *w, struct sim_items *l)
{
	for (struct sim_item *it; (it = sim_item_pop(l));)
		sim_item_free(w, it);
}
