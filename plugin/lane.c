/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "channel/heartbeat.h"

#include <errno.h>
#include <stdio.h>

/*
 * Bulk lanes, on their I/O threads.
 *  1. A receive is posted only for a message whose data waits at the sender, so none waits for long, whichever comm it
 *     is of.
 *  2. A sender answers each receive in the order of its lane: with the chunk that it names, or with no bytes if its comm is
 *     closed.
 *  3. Lanes on which something happened are dirty; the tick posts what they wait for, and flushes once.
 */

static struct ha_lane *lane_of(struct ha_bulk *b, const struct dr_channel *ch)
{
	return &b->lane[dr_channel_id(ch)];
}

static void put_flying(struct ha_lane *l, uint64_t seq, struct ha_chunk *k, int64_t now)
{
	dr_assert(!l->flying[seq % HA_WINDOW]);
	l->flying[seq % HA_WINDOW] = k;
	l->n_flying++;
	l->posted_ns = now;
}

/* ---- receiver ---- */

static void post_waiting(struct ha_lane *l, int64_t now)
{
	struct ha_chunk *k;
	uint64_t seq;

	while ((k = STAILQ_FIRST(&l->waiting)) && l->n_flying < HA_WINDOW) {
		if (dr_channel_recv(l->ch, &k->span, 1, &seq, now) != 0)
			return; /* the lane is lost: its failure ends the session */
		STAILQ_REMOVE_HEAD(&l->waiting, next);
		put_flying(l, seq, k, now);
	}
}

static void asked(struct ha_work *w, int64_t now)
{
	struct ha_chunk *k = dr_container_of(w, struct ha_chunk, work);

	(void)now;
	STAILQ_INSERT_TAIL(&k->lane->waiting, k, next);
	k->lane->dirty = true;
}

/* Of the thread with the least to move, whichever session and direction that is of. */
static struct ha_bulk *least_busy_thread(struct ha_session *s)
{
	struct ha_bulk *best = &s->bulk[0];
	int64_t least = INT64_MAX;

	for (unsigned t = 0; t < s->prm.n_threads; t++) {
		int64_t load = ha_thread_load(s->bulk[t].thread);

		if (load < least) {
			least = load;
			best = &s->bulk[t];
		}
	}
	return best;
}

static struct ha_lane *least_busy(struct ha_session *s)
{
	struct ha_bulk *b = least_busy_thread(s);
	struct ha_lane *best = &b->lane[0];
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < s->prm.lanes; i++) {
		uint64_t bytes = atomic_load_explicit(&b->lane[i].bytes, memory_order_relaxed);

		if (bytes < least) {
			least = bytes;
			best = &b->lane[i];
		}
	}
	return best;
}

/* The chunk counts as work of its lane's thread until it is freed. */
static void add_load(const struct ha_chunk *k)
{
	ha_thread_add_load(k->lane->bulk->thread, k->span.len);
}

int ha_session_ask(struct ha_comm *comm, struct ha_mr *mr, struct dr_span want, atomic_uint *left)
{
	struct ha_lane *l = least_busy(comm->s);
	struct ha_chunk *k = dr_calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->work.run = asked;
	k->lane = l;
	k->comm = comm;
	k->mr = mr;
	k->left = left;
	k->span = want;
	k->span.mem = &mr->mem[l->index];
	atomic_fetch_add_explicit(&l->bytes, want.len, memory_order_relaxed);
	add_load(k);
	atomic_fetch_add(&comm->chunks, 1);
	atomic_fetch_add(&mr->chunks, 1);
	ha_thread_post(l->bulk->thread, &k->work);
	return 0;
}

/* ---- sender ---- */

/* What the receiver waits for on this lane; NULL: nothing, or no memory. */
static struct ha_chunk *next_answer(struct ha_lane *l)
{
	struct ha_session *s = l->bulk->s;
	struct ha_chunk_name name;
	struct ha_chunk *k;
	struct dr_credit c;
	struct ha_comm *comm;
	int rc = 0;

	if (l->n_flying == HA_WINDOW || dr_channel_credit(l->ch, &c) != 0)
		return NULL;
	k = dr_calloc(1, sizeof(*k));
	if (!k)
		return NULL; /* the next tick tries again */
	k->lane = l;
	k->span.mem = &l->nothing;
	name = ha_chunk_decode(c.tag[0]);
	pthread_mutex_lock(&s->names);
	comm = s->comm[name.comm];
	if (comm && comm->sender)
		rc = ha_comm_answer(comm, &name, c.cap[0], l->index, k);
	if (rc != 0)
		ha_comm_fail(comm, rc, "the peer asks for data that was not announced");
	pthread_mutex_unlock(&s->names);
	add_load(k);
	return k;
}

static void answer(struct ha_lane *l, int64_t now)
{
	struct ha_chunk *k;
	uint64_t seq;

	while ((k = next_answer(l))) {
		int rc = dr_channel_send(l->ch, &k->span, 1, &seq, now);

		dr_assert(rc != -EAGAIN);
		if (rc != 0) {
			ha_chunk_free(k);
			return;
		}
		put_flying(l, seq, k, now);
	}
}

/* ---- both ---- */

void ha_lane_completed(void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now)
{
	struct ha_lane *l = lane_of(arg, ch);
	struct ha_chunk *k = l->flying[seq % HA_WINDOW];

	(void)now;
	if (!k) {
		dr_assert(l->lost);
		return;
	}
	l->flying[seq % HA_WINDOW] = NULL;
	l->n_flying--;
	l->dirty = true;
	atomic_fetch_sub_explicit(&l->bytes, k->left ? k->span.len : 0, memory_order_relaxed);
	if (k->comm)
		ha_comm_chunk_done(k, bytes);
	ha_chunk_free(k);
}

void ha_lane_credited(void *arg, struct dr_channel *ch, int64_t now)
{
	(void)now;
	lane_of(arg, ch)->dirty = true;
}

void ha_lane_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now)
{
	struct ha_bulk *b = arg;

	(void)now;
	lane_of(b, ch)->lost = lane_of(b, ch)->dirty = true;
	ha_session_fail(b->s, err, text);
}

/* Nothing of this chunk is touched any more. */
void ha_chunk_free(struct ha_chunk *k)
{
	ha_thread_add_load(k->lane->bulk->thread, -(int64_t)k->span.len);
	if (k->mr)
		atomic_fetch_sub(&k->mr->chunks, 1);
	if (k->comm)
		atomic_fetch_sub(&k->comm->chunks, 1);
	dr_free(k);
}

/* Of a lane that is lost: its chunks are not counted as in flight any more. */
void ha_lane_drop(struct ha_lane *l)
{
	struct ha_chunk *k;

	for (unsigned i = 0; i < HA_WINDOW; i++) {
		if (l->flying[i])
			ha_chunk_free(l->flying[i]);
		l->flying[i] = NULL;
	}
	l->n_flying = 0;
	while ((k = STAILQ_FIRST(&l->waiting))) {
		STAILQ_REMOVE_HEAD(&l->waiting, next);
		ha_chunk_free(k);
	}
}

bool ha_lane_flies(const struct ha_lane *l, const struct ha_mr *mr)
{
	for (unsigned i = 0; i < HA_WINDOW; i++)
		if (l->flying[i] && l->flying[i]->mr == mr)
			return true;
	return false;
}

/* The peer's I/O thread answers a chunk whatever its comms do. Without another rail nobody declares a silent one down, so
 * that as many intervals without a byte as would do it count here. */
static bool silent(const struct ha_lane *l, int64_t now)
{
	const struct dr_manager_params *p = &l->bulk->s->prm.manager;
	const struct dr_path *only = dr_channel_path(l->ch, 0);

	return p->n_rails == 1 && l->n_flying > 0 &&
	       now - DR_MAX(l->posted_ns, only->rx_last_ns) >= DR_BOUND_BEATS * p->heartbeat_ns;
}

/* During a switch the other path is up. Without any path nothing is done until one is built again, if ever. */
bool ha_lane_coming(const struct ha_lane *l, const struct ha_mr *mr, int64_t now)
{
	if (!dr_channel_path_up(l->ch, 0) && !dr_channel_path_up(l->ch, 1))
		return false;
	if (silent(l, now))
		return false;
	return ha_lane_flies(l, mr);
}

void ha_lane_forget(struct ha_lane *l, const struct ha_mr *mr)
{
	struct ha_chunk *next;

	for (struct ha_chunk *k = STAILQ_FIRST(&l->waiting); k; k = next) {
		next = STAILQ_NEXT(k, next);
		if (k->mr != mr)
			continue;
		STAILQ_REMOVE(&l->waiting, k, ha_chunk, next);
		atomic_fetch_sub_explicit(&l->bytes, k->span.len, memory_order_relaxed);
		ha_chunk_free(k);
	}
}

void ha_bulk_tick(struct ha_member *member, int64_t now)
{
	struct ha_bulk *b = dr_container_of(member, struct ha_bulk, member);
	unsigned n = b->s->prm.lanes;

	if (now >= dr_manager_deadline(b->m))
		dr_manager_tick(b->m, now);
	for (unsigned i = 0; i < n; i++) {
		struct ha_lane *l = &b->lane[i];

		if (!l->dirty)
			continue;
		l->dirty = false;
		if (l->lost)
			ha_lane_drop(l);
		else if (b->s->prm.connector)
			answer(l, now);
		else
			post_waiting(l, now);
		/* Nothing more comes for now: the sender's request, and NCCL's next collective, wait for this one. */
		if (l->n_flying > 0 || !dr_channel_idle(l->ch, now))
			dr_channel_flush(l->ch, now);
	}
}

int64_t ha_bulk_deadline(const struct ha_member *member)
{
	return dr_manager_deadline(dr_container_of(member, struct ha_bulk, member)->m);
}
