/* SPDX-License-Identifier: Apache-2.0 */
#include "library/library_priv.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

/*
 * The sending end of puts.
 *  1. Blocks are announced in chunks, in requests. Each chunk waits on its lane for the credit of the receive that the
 *     peer posts for it: with tag 0 the chunk is sent, else an empty message, and the tag is the errno of the put.
 *  2. Entries of a lane are announced, credited, sent and acknowledged in one order.
 *  3. A note is sent when all chunks of its put are acknowledged, which means that they are in the peer's memory.
 *  4. A put is in the peer's list `puts` while blocks are not announced, then in none until its chunks are done, then in
 *     `noted` if it has a note.
 */

/* ---- end of a put ---- */

void dr_lib_put_free(struct dualrail_put *put)
{
	DR_UNLINK(&put->d->puts, put, all);
	dr_free(put);
}

void dr_lib_put_unref(struct dualrail_put *put)
{
	if (put->released && atomic_load(&put->state) != 0 && !put->done.queued)
		dr_lib_put_free(put);
}

static void finish(struct dualrail_put *put, int code)
{
	for (size_t i = 0; i < put->n; i++)
		dr_lib_unuse((struct dualrail_memory *)put->block[i].memory);
	put->done.e.code = code;
	put->done.e.peer = put->peer;
	dr_lib_event_put(put->d, &put->done);
	atomic_store(&put->state, code == 0 ? 1 : code);
}

/* All of its chunks are done. */
static void blocks_done(struct dualrail_put *put)
{
	struct dualrail_peer *p = put->peer;

	if (put->code != 0 || put->note_len == 0) {
		finish(put, put->code);
		return;
	}
	STAILQ_INSERT_TAIL(&p->noted, put, next);
}

void dr_lib_puts_end(struct dualrail_peer *p, int code)
{
	for (struct dualrail_put *put = p->d->puts; put; put = put->all)
		if (put->peer == p && atomic_load(&put->state) == 0)
			finish(put, code);
	STAILQ_INIT(&p->puts);
	STAILQ_INIT(&p->noted);
	memset(p->to.note_of, 0, sizeof(p->to.note_of));
}

/* ---- lanes ---- */

static void chunk_done(struct dualrail_peer *p, struct dr_lib_lane *l, struct dr_lib_chunk *k)
{
	struct dualrail_put *put = k->put;

	l->bytes -= k->len;
	p->announced--;
	if (k->refusal && put->code == 0)
		put->code = -(int)k->refusal;
	put->left--;
	/* Of one that is still in `puts`, announce() takes care. */
	if (put->left == 0 && put->at == put->n)
		blocks_done(put);
	dr_free(k);
}

static void retire(struct dualrail_peer *p, struct dr_lib_lane *l)
{
	struct dr_channel *ch = p->ch[l->channel];

	while (l->head < l->tail && dr_channel_test(ch, l->head) == 1) {
		struct dr_lib_chunk **k = &l->flying[l->head++ % DR_LIB_WINDOW], *done = *k;

		*k = NULL;
		chunk_done(p, l, done);
	}
}

/* The receiver's credit decides what is sent. */
static int answer(
	struct dualrail_peer *p, struct dr_lib_lane *l, const struct dr_credit *c, int64_t now)
{
	struct dr_lib_chunk *k = STAILQ_FIRST(&l->waiting);
	struct dr_span span = { .mem = &p->nothing[l->channel] };
	uint64_t seq;
	int rc;

	STAILQ_REMOVE_HEAD(&l->waiting, next);
	k->refusal = c->tag[0];
	if (c->tag[0] == 0 && c->cap[0] != k->len)
		k->refusal = EPROTO;
	if (k->refusal == 0)
		span = (struct dr_span){
			.mem = dr_lib_mem(p, k->source, l->channel), .off = k->off, .len = k->len
		};
	rc = dr_channel_send(p->ch[l->channel], &span, 1, &seq, now);
	l->flying[l->tail++ % DR_LIB_WINDOW] = k; /* after an error it is dropped with the others */
	dr_assert(rc != 0 || seq == l->tail - 1);
	return rc;
}

static void send_lane(struct dualrail_peer *p, struct dr_lib_lane *l, int64_t now)
{
	struct dr_credit c;

	retire(p, l);
	while (!STAILQ_EMPTY(&l->waiting) && l->tail - l->head < DR_LIB_WINDOW &&
		dr_channel_credit(p->ch[l->channel], &c) == 0)
		if (answer(p, l, &c, now) != 0)
			return;
}

/* ---- requests ---- */

static unsigned lightest(const struct dualrail_peer *p)
{
	unsigned best = 0;

	for (unsigned i = 1; i < p->lanes; i++)
		if (p->tx[i].bytes < p->tx[best].bytes)
			best = i;
	return best;
}

/* The next chunk of the put, on a lane. False: no memory. */
static bool add_chunk(
	struct dualrail_peer *p, struct dualrail_put *put, struct dr_request_entry *en)
{
	const struct dualrail_block *b = &put->block[put->at];
	struct dr_lib_chunk *k = dr_calloc(1, sizeof(*k));

	if (!k)
		return false;
	en->lane = lightest(p);
	en->key = b->key;
	en->off = b->remote_offset + put->at_off;
	en->len = (uint32_t)DR_MIN(b->len - put->at_off, (uint64_t)DR_REQUEST_CHUNK_MAX);
	k->put = put;
	k->source = b->memory;
	k->off = b->offset + put->at_off;
	k->len = en->len;
	STAILQ_INSERT_TAIL(&p->tx[en->lane].waiting, k, next);
	p->tx[en->lane].bytes += k->len;
	p->announced++;
	put->left++;
	put->at_off += k->len;
	if (put->at_off == b->len) {
		put->at++;
		put->at_off = 0;
	}
	return true;
}

static void pop_put(struct dualrail_peer *p)
{
	struct dualrail_put *put = STAILQ_FIRST(&p->puts);

	STAILQ_REMOVE_HEAD(&p->puts, next);
	put->at = put->n;
	if (put->left == 0)
		blocks_done(put);
}

/* Fills a request; returns its length, 0: there is nothing to announce now. */
static size_t fill(struct dualrail_peer *p, uint8_t *slot)
{
	size_t len = dr_request_put(slot);
	struct dr_request_entry en;

	while (!STAILQ_EMPTY(&p->puts) && p->announced < DR_LIB_ANNOUNCED_MAX &&
		len + DR_REQUEST_ENTRY <= DR_REQUEST_BYTES) {
		struct dualrail_put *put = STAILQ_FIRST(&p->puts);

		/* After a refusal the rest is not announced any more. */
		if (put->code != 0 || put->at == put->n) {
			pop_put(p);
			continue;
		}
		if (!add_chunk(p, put, &en))
			break;
		len = dr_request_add(slot, len, &en);
		if (put->at == put->n)
			pop_put(p);
	}
	return len > DR_REQUEST_HEAD ? len : 0;
}

static size_t fill_note(struct dualrail_peer *p, struct dualrail_put **note, uint8_t *slot)
{
	struct dualrail_put *put = STAILQ_FIRST(&p->noted);

	STAILQ_REMOVE_HEAD(&p->noted, next);
	*note = put;
	return dr_request_note(slot, put->note, put->note_len);
}

static void retire_requests(struct dualrail_peer *p)
{
	struct dr_lib_requests *q = &p->to;

	while (q->head < q->tail && dr_channel_test(p->ch[q->channel], q->head) == 1) {
		struct dualrail_put **put = &q->note_of[q->head++ % DR_LIB_WINDOW];

		if (*put)
			finish(*put, 0);
		*put = NULL;
	}
}

static void announce(struct dualrail_peer *p, int64_t now)
{
	struct dr_lib_requests *q = &p->to;

	while (q->tail - q->head < DR_LIB_WINDOW &&
		!(STAILQ_EMPTY(&p->noted) && STAILQ_EMPTY(&p->puts))) {
		unsigned i = (unsigned)(q->tail % DR_LIB_WINDOW);
		uint8_t *slot = q->slot + (size_t)i * DR_REQUEST_BYTES;
		struct dr_span span = { .mem = &q->mem, .off = (uint64_t)i * DR_REQUEST_BYTES };
		uint64_t seq;

		span.len = (uint32_t)(STAILQ_EMPTY(&p->noted) ? fill(p, slot)
							      : fill_note(p, &q->note_of[i], slot));
		if (span.len == 0 && !STAILQ_EMPTY(&p->noted))
			continue; /* of a put without blocks */
		if (span.len == 0)
			return;
		if (dr_channel_send(p->ch[q->channel], &span, 1, &seq, now) != 0)
			return; /* the channel has ended: the next pump ends the rest */
		dr_assert(seq == q->tail);
		q->tail++;
	}
}

void dr_lib_send(struct dualrail_peer *p, int64_t now)
{
	retire_requests(p);
	for (unsigned i = 0; i < p->lanes; i++)
		send_lane(p, &p->tx[i], now);
	announce(p, now);
}

/* ---- calls of the user ---- */

static bool in_memory(const struct dualrail *d, const struct dualrail_block *b)
{
	const struct dualrail_memory *m = b->memory;

	return m && m->d == d && !m->gone && b->len > 0 && b->len <= m->m.len &&
	       b->offset <= m->m.len - b->len && b->remote_offset <= UINT64_MAX - b->len;
}

static int check(const struct dualrail_peer *p, const struct dualrail_block *blocks, size_t n)
{
	if (p->state == DR_LIB_ENDED)
		return p->code;
	if (p->state != DR_LIB_UP)
		return -ENOTCONN;
	for (size_t i = 0; i < n; i++)
		if (!in_memory(p->d, &blocks[i]))
			return -EINVAL;
	return 0;
}

static struct dualrail_put *new_put(
	const struct dualrail_block *blocks, size_t n, const void *note, size_t note_len)
{
	struct dualrail_put *put = NULL;

	if (n < SIZE_MAX / 2 / sizeof(*blocks))
		put = dr_calloc(1, sizeof(*put) + n * sizeof(*blocks) + note_len);
	if (!put)
		return NULL;
	put->note = (uint8_t *)&put->block[n];
	if (n > 0)
		memcpy(put->block, blocks, n * sizeof(*blocks));
	if (note_len > 0)
		memcpy(put->note, note, note_len);
	put->n = n;
	put->note_len = note_len;
	put->done.e.kind = DUALRAIL_PUT_DONE;
	put->done.e.gap_ns = -1;
	put->done.put = put;
	return put;
}

static void enter(struct dualrail_peer *p, struct dualrail_put *put)
{
	put->d = p->d;
	put->peer = p;
	put->all = p->d->puts;
	p->d->puts = put;
	for (size_t i = 0; i < put->n; i++)
		((struct dualrail_memory *)put->block[i].memory)->users++;
	STAILQ_INSERT_TAIL(&p->puts, put, next);
}

int dualrail_put(struct dualrail_peer *p, const struct dualrail_block *blocks, size_t n,
	const void *note, size_t note_len, uint64_t cookie,
	struct dualrail_put **out) /* lint-ok: public */
{
	struct dualrail_put *put;
	int rc;

	if (n == 0 && note_len == 0)
		return -EINVAL;
	if (note_len > DUALRAIL_NOTE_MAX)
		return -EMSGSIZE;
	put = new_put(blocks, n, note, note_len);
	if (!put)
		return -ENOMEM;
	put->done.e.cookie = cookie;
	dr_lib_lock(p->d);
	rc = check(p, blocks, n);
	if (rc == 0) {
		enter(p, put);
		dr_lib_pump(p, dr_now_ns());
	}
	dr_lib_unlock(p->d);
	if (rc != 0) {
		dr_free(put);
		return rc;
	}
	if (out)
		*out = put;
	else
		dualrail_release(put);
	return 0;
}

int dualrail_test(const struct dualrail_put *put)
{
	return atomic_load(&put->state);
}

void dualrail_release(struct dualrail_put *put)
{
	struct dualrail *d;

	if (!put)
		return;
	d = put->d;
	dr_lib_lock(d);
	put->released = true;
	dr_lib_put_unref(put);
	dr_lib_unlock(d);
}
