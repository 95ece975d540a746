/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm_priv.h"
#include "plugin/session_priv.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/*
 * Life of a comm, its memory and requests. comm_tx.c has the sender, comm_rx.c the receiver.
 *  1. A comm is freed when its channel is closed and no chunk of it is on a lane.
 *  2. Requests are the caller's thread's: only it takes and returns them. What other threads write in them is atomic.
 */

static const int64_t DEREG_NS = 100 * DR_NS_PER_MS;

/* ---- memory ---- */

struct reg {
	const struct dr_memory *m;
	struct ha_mr *mr;
	struct dr_memory with; /* for chunks in flight */
	bool replaced;
	struct dr_err *e;
	int rc; /* the first error */
};

static int any_coming(struct ha_bulk *b, void *mr, int64_t now)
{
	bool any = false;

	for (unsigned i = 0; i < b->s->prm.lanes; i++) {
		ha_lane_forget(&b->lane[i], mr);
		any |= ha_lane_coming(&b->lane[i], mr, now);
	}
	return any;
}

static int dereg_lane(struct ha_lane *l, struct reg *r, int64_t now)
{
	struct dr_mem *mem = &r->mr->mem[l->index];

	if (!mem->base)
		return 0;
	ha_lane_forget(l, r->mr);
	if (!r->with.base || !ha_lane_flies(l, r->mr))
		return dr_channel_mem_dereg(l->ch, mem, now, r->e);
	r->replaced = true;
	return dr_channel_mem_replace(l->ch, mem, &r->with, now, r->e);
}

static int dereg_lanes(struct ha_bulk *b, void *arg, int64_t now)
{
	struct reg *r = arg;

	for (unsigned i = 0; i < b->s->prm.lanes; i++) {
		int rc = dereg_lane(&b->lane[i], r, now);

		r->rc = r->rc ? r->rc : rc;
	}
	return 0;
}

static int reg_lanes(struct ha_bulk *b, void *arg, int64_t now)
{
	const struct reg *r = arg;
	int rc = 0;

	(void)now;
	for (unsigned i = 0; i < b->s->prm.lanes && rc == 0; i++)
		rc = dr_channel_mem_reg(b->lane[i].ch, r->m, &r->mr->mem[b->lane[i].index], r->e);
	return rc;
}

void ha_mr_free(struct ha_mr *mr)
{
	dr_free(mr->mem);
	dr_free(mr);
}

/* Chunks of mr are in flight in `with`, which stays allocated until the session is destroyed. base
 * NULL: there was no memory, and the lanes that carried them have ended. */
static void keep(struct ha_mr *mr, const struct dr_memory *with)
{
	mr->base = with->base;
	pthread_mutex_lock(&mr->s->names);
	mr->next = mr->s->replaced;
	mr->s->replaced = mr;
	pthread_mutex_unlock(&mr->s->names);
}

int ha_mr_reg(struct ha_comm *c, const struct dr_memory *m, struct ha_mr **out, struct dr_err *e)
{
	struct ha_session *s = c->s;
	struct ha_mr *mr = dr_calloc(1, sizeof(*mr));
	int rc;

	if (mr)
		mr->mem = dr_calloc(s->n_lanes, sizeof(*mr->mem));
	if (!mr || !mr->mem) {
		dr_free(mr);
		return dr_err_set(e, -ENOMEM, "registration of %zu bytes: out of memory", m->len);
	}
	mr->s = s;
	mr->base = m->base;
	mr->len = m->len;
	rc = ha_session_each(s, reg_lanes, &(struct reg){ .m = m, .mr = mr, .e = e });
	if (rc != 0) {
		/* Nothing was posted. */
		(void)ha_session_each(s, dereg_lanes, &(struct reg){ .mr = mr });
		ha_mr_free(mr);
		return rc;
	}
	pthread_mutex_lock(&s->names);
	mr->next = c->mrs;
	c->mrs = mr;
	pthread_mutex_unlock(&s->names);
	*out = mr;
	return 0;
}

int ha_mr_dereg(struct ha_comm *c, struct ha_mr *mr, struct dr_err *e)
{
	int64_t until = dr_now_ns() + DEREG_NS;
	struct reg r = { .mr = mr, .with = { .len = mr->len }, .e = e };

	pthread_mutex_lock(&c->s->names);
	DR_UNLINK(&c->mrs, mr, next);
	pthread_mutex_unlock(&c->s->names);
	while (atomic_load(&mr->chunks) > 0 && ha_session_each(mr->s, any_coming, mr) != 0 &&
		dr_now_ns() < until)
		sched_yield();
	if (atomic_load(&mr->chunks) > 0)
		r.with.base = dr_pages_alloc(mr->len);
	if (r.with.base && c->sender)
		memcpy(r.with.base, mr->base, mr->len);
	(void)ha_session_each(mr->s, dereg_lanes, &r);
	if (r.rc != 0)
		return r.rc; /* not freed: chunks in flight point to it */
	if (r.replaced || atomic_load(&mr->chunks) > 0) {
		keep(mr, &r.with);
		return 0;
	}
	if (r.with.base)
		dr_pages_free(r.with.base, mr->len);
	ha_mr_free(mr);
	return 0;
}

/* ---- requests ---- */

struct ha_request *ha_request_get(struct ha_comm *c)
{
	struct ha_request *r = c->free;

	if (!r)
		return NULL;
	c->free = r->next;
	atomic_store_explicit(&r->used, true, memory_order_relaxed);
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
	r->receive = r->copied = false;
	r->buf[0].mr = NULL;
	return r;
}

void ha_request_put(struct ha_request *r)
{
	dr_assert(atomic_load_explicit(&r->used, memory_order_relaxed));
	atomic_store_explicit(&r->used, false, memory_order_release);
	r->next = r->comm->free;
	r->comm->free = r;
}

int ha_comm_test(struct ha_request *r, bool *done, int *sizes)
{
	struct ha_comm *c = r->comm;
	int rc;

	*done = false;
	dr_assert(atomic_load_explicit(&r->used, memory_order_relaxed));
	rc = r->receive ? ha_comm_test_recv(r, done, sizes) : ha_comm_test_send(r, done, sizes);
	if (*done)
		ha_request_put(r);
	return rc || *done ? rc : atomic_load_explicit(&c->err, memory_order_relaxed);
}

/* ---- life ---- */

static int alloc(struct ha_comm *c)
{
	c->slot_bytes = HA_HEADER_LEN + (size_t)c->s->prm.eager;
	c->slots = dr_pages_alloc(c->slot_bytes * HA_SLOTS);
	if (c->sender)
		c->box = dr_calloc(1, sizeof(*c->box));
	else
		c->match = dr_calloc(1, sizeof(*c->match));
	for (unsigned i = 0; i < HA_REQUESTS_MAX; i++) {
		c->request[i].comm = c;
		c->request[i].next = c->free;
		c->free = &c->request[i];
	}
	if (!c->slots || (c->sender ? !c->box : !c->match))
		return -ENOMEM;
	if (c->sender)
		ha_outbox_init(c->box, c->s->prm.chunk, c->s->prm.eager);
	else
		ha_match_init(c->match);
	return 0;
}

static void release(struct ha_comm *c)
{
	if (c->slots)
		dr_pages_free(c->slots, c->slot_bytes * HA_SLOTS);
	dr_free(c->box);
	dr_free(c->match);
	dr_free(c);
}

/* With lock held. */
static int open_channel(struct ha_comm *c, struct dr_err *e)
{
	struct ha_session *s = c->s;
	const struct dr_memory m = { .base = c->slots, .len = c->slot_bytes * HA_SLOTS };
	int rc = ha_session_open_channel(s, s->m, c->id, &c->ch, e);

	if (rc == 0)
		rc = dr_channel_mem_reg(c->ch, &m, &c->mem, e);
	return rc;
}

static void link_comm(struct ha_comm *c)
{
	struct ha_session *s = c->s;

	pthread_mutex_lock(&s->names);
	s->comm[c->number] = c;
	c->next = s->comms;
	s->comms = c;
	pthread_mutex_unlock(&s->names);
}

int ha_comm_open(struct ha_session *s, uint32_t id, struct ha_comm **out, struct dr_err *e)
{
	struct ha_comm *c = dr_calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return dr_err_set(e, -ENOMEM, "comm with %s: out of memory", s->prm.peer);
	c->s = s;
	c->id = id;
	c->number = id % HA_COMMS_MAX;
	c->sender = s->prm.connector;
	rc = alloc(c);
	if (rc != 0) {
		release(c);
		return dr_err_set(e, rc, "comm with %s: out of memory", s->prm.peer);
	}
	pthread_mutex_lock(&s->lock);
	if (s->comm[c->number])
		rc = dr_err_set(e, -EEXIST, "comm %u with %s is open already", id, s->prm.peer);
	if (rc == 0)
		link_comm(c);
	if (rc == 0)
		rc = open_channel(c, e);
	s->past.comms += rc == 0;
	pthread_mutex_unlock(&s->lock);
	if (rc == -EEXIST)
		release(c);
	else if (rc != 0)
		(void)ha_comm_free(c);
	else
		*out = c;
	return rc;
}

int ha_comm_handle(struct ha_comm *c, struct dr_handle *out)
{
	int rc;

	pthread_mutex_lock(&c->s->lock);
	rc = dr_channel_handle(c->ch, out);
	pthread_mutex_unlock(&c->s->lock);
	return rc;
}

int ha_comm_start(struct ha_comm *c, const struct dr_handle *peer, struct dr_err *e)
{
	int64_t now = dr_now_ns();
	int rc;

	pthread_mutex_lock(&c->s->lock);
	rc = dr_channel_start(c->ch, peer, now, e);
	if (rc == 0 && !c->sender) {
		dr_channel_set_ack_batch(c->ch, true);
		for (unsigned i = 0; i < HA_SLOTS && rc == 0; i++)
			rc = ha_comm_post_slot(c, i, now);
	}
	pthread_mutex_unlock(&c->s->lock);
	return rc;
}

int ha_comm_ready(struct ha_comm *c)
{
	int rc = atomic_load(&c->err) ? atomic_load(&c->err) : atomic_load(&c->ended);

	if (rc != 0 || pthread_mutex_trylock(&c->s->lock) != 0)
		return rc;
	ha_session_drive(c->s, c->ch, dr_now_ns());
	rc = dr_channel_ready(c->ch);
	pthread_mutex_unlock(&c->s->lock);
	return rc;
}

/* The first cause is kept, and logged. */
static void set_cause(struct ha_comm *c, atomic_int *to, int err, const char *why)
{
	int none = 0;
	bool told = atomic_load(&c->err) != 0 || atomic_load(&c->ended) != 0;

	if (!atomic_compare_exchange_strong(to, &none, err) || told || c->closing)
		return;
	dr_warn("comm", "comm %u with %s: %s", c->id, c->s->prm.peer, why);
}

void ha_comm_fail(struct ha_comm *c, int err, const char *why)
{
	set_cause(c, &c->err, err, why);
}

void ha_comm_ended(struct ha_comm *c, int err, const char *why)
{
	if (c->sender && err == -EMSGSIZE)
		why = "a message is longer than the peer's buffer; the peer's log names it";
	set_cause(c, &c->ended, err, why);
}

/* With lock held, after what arrived was delivered: 0, or why a request that is not done never will be. */
int ha_comm_over(struct ha_comm *c)
{
	int rc = dr_channel_ready(c->ch);

	if (atomic_load(&c->chunks) > 0)
		return 0;
	if (rc < 0)
		ha_comm_ended(c, rc, "the peer closed it");
	return atomic_load(&c->ended);
}

static bool uses(const struct ha_request *r, const struct ha_mr *mr)
{
	unsigned n = r->receive ? r->n : 1;

	for (unsigned i = 0; i < n; i++)
		if (r->buf[i].mr == mr)
			return true;
	return false;
}

void ha_comm_forget(struct ha_comm *c, const struct ha_mr *mr)
{
	bool any = false;

	pthread_mutex_lock(&c->s->lock);
	for (unsigned i = 0; i < HA_REQUESTS_MAX && !any; i++) {
		const struct ha_request *r = &c->request[i];

		any = atomic_load(&r->used) && !atomic_load(&r->done) && uses(r, mr);
	}
	if (any) {
		pthread_mutex_lock(&c->s->names); /* no chunk of it is begun from here on */
		ha_comm_fail(c, -ECANCELED, "memory was deregistered while a request used it");
		pthread_mutex_unlock(&c->s->names);
		dr_channel_fail(c->ch, -ECANCELED,
			"memory was deregistered while a request used it", dr_now_ns());
	}
	pthread_mutex_unlock(&c->s->lock);
}

void ha_comm_close(struct ha_comm *c)
{
	pthread_mutex_lock(&c->s->lock);
	c->closing = true;
	dr_channel_close(c->ch, dr_now_ns());
	pthread_mutex_unlock(&c->s->lock);
}

bool ha_comm_closed(struct ha_comm *c)
{
	bool closed;

	pthread_mutex_lock(&c->s->lock);
	closed = dr_channel_closed(c->ch) && atomic_load(&c->chunks) == 0;
	pthread_mutex_unlock(&c->s->lock);
	return closed;
}

int ha_comm_free(struct ha_comm *c)
{
	struct ha_session *s = c->s;
	int rc = 0;

	while (c->mrs && rc == 0)
		rc = ha_mr_dereg(c, c->mrs, NULL);

	pthread_mutex_lock(&s->lock);
	if (c->ch) {
		ha_session_count(s, c->ch, &s->past);
		int err = c->mem.base ? dr_channel_mem_dereg(c->ch, &c->mem, dr_now_ns(), NULL) : 0;

		rc = dr_manager_remove_channel(s->m, c->ch, NULL);
		rc = rc ? rc : err;
	}
	pthread_mutex_lock(&s->names);
	s->comm[c->number] = NULL;
	DR_UNLINK(&s->comms, c, next);
	pthread_mutex_unlock(&s->names);
	pthread_mutex_unlock(&s->lock);
	if (rc == 0)
		release(c);
	return rc;
}
