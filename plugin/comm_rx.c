/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * The receiving end of a comm. Slots are posted for frames, and again when a frame was taken: a small message is copied
 * into its buffer, a large one asked for in chunks. A frame that waits for its buffer keeps its slot.
 */

int ha_comm_post_slot(struct ha_comm *c, unsigned slot, int64_t now)
{
	const struct dr_span span = {
		.mem = &c->mem, .off = slot * c->slot_bytes, .len = (uint32_t)c->slot_bytes
	};
	uint64_t seq;
	int rc = dr_channel_recv(c->ch, &span, 1, &seq, now);

	if (rc == 0)
		c->slot_of[seq % HA_SLOTS] = (uint8_t)slot;
	return rc;
}

void ha_comm_completed(struct ha_comm *c, uint64_t seq)
{
	if (!c->sender)
		c->arrived = seq + 1;
}

/* Frames that arrived are known to the matcher. */
static int take_arrived(struct ha_comm *c)
{
	while (c->taken < c->arrived) {
		unsigned slot = c->slot_of[c->taken % HA_SLOTS];
		uint32_t len = dr_channel_received_len(c->ch, c->taken, 0);
		struct ha_header h;
		int rc = ha_header_decode(c->slots + slot * c->slot_bytes, len, &h);

		if (rc == 0)
			rc = ha_match_frame(c->match, &h, slot);
		if (rc != 0) {
			ha_comm_fail(c, rc, "a frame of the peer is malformed");
			return rc;
		}
		c->taken++;
	}
	return 0;
}

/* Asks for all chunks of a message that was announced. */
static int ask(struct ha_comm *c, struct ha_request *r, unsigned b, const struct ha_header *h)
{
	struct ha_division d = ha_divide(h->size, c->s->prm.chunk);
	uint64_t at = (uint64_t)(r->buf[b].data - r->buf[b].mr->base);

	r->part[b].asked = true;
	r->part[b].size = h->size;
	atomic_store(&r->part[b].left, d.n);
	for (unsigned i = 0; i < d.n; i++) {
		const struct ha_chunk_name name = { c->number,
			(unsigned)(h->ordinal % HA_LARGE_MAX), i };
		uint64_t off = i * d.chunk_bytes;
		const struct dr_span want = { .off = at + off,
			.len = (uint32_t)DR_MIN(d.chunk_bytes, h->size - off),
			.tag = ha_chunk_encode(&name) };
		int rc = ha_session_ask(c, r->buf[b].mr, want, &r->part[b].left);

		if (rc != 0)
			return rc;
	}
	return 0;
}

/* One matched message. Returns 0 or the comm's error. */
static int deliver(
	struct ha_comm *c, const struct ha_match_frame *f, unsigned group, unsigned b, int64_t now)
{
	struct ha_request *r = c->by_group[group];
	int rc = 0;

	if (f->h.type == HA_ANNOUNCE) {
		rc = ask(c, r, b, &f->h);
	} else {
		if (f->h.size > 0)
			memcpy(r->buf[b].data, c->slots + f->slot * c->slot_bytes + HA_HEADER_LEN,
				f->h.size);
		ha_match_done(c->match, group, b, f->h.size);
	}
	if (rc == 0 && dr_channel_ready(c->ch) >= 0) /* else no frame will come */
		rc = ha_comm_post_slot(c, f->slot, now);
	if (rc != 0)
		ha_comm_fail(c, rc, "a message cannot be received: out of memory or slots");
	return rc;
}

static void too_long(struct ha_comm *c, const struct ha_match_frame *f, unsigned group, unsigned b)
{
	char why[128];

	snprintf(why, sizeof(why), "a message of %llu bytes came for a buffer of %llu (tag %u)",
		(unsigned long long)f->h.size,
		(unsigned long long)c->match->group[group].buf[b].cap, f->h.tag);
	ha_comm_fail(c, -EMSGSIZE, why);
	dr_channel_fail(c->ch, -EMSGSIZE, why, dr_now_ns());
}

void ha_comm_progress(struct ha_comm *c, int64_t now)
{
	struct ha_match_frame f;
	unsigned group, b;
	bool any = false;
	int rc;

	if (c->sender || c->closing || atomic_load_explicit(&c->err, memory_order_relaxed) != 0 ||
		take_arrived(c) != 0)
		return;
	while ((rc = ha_match_next(c->match, &f, &group, &b)) == 1) {
		if (deliver(c, &f, group, b, now) != 0)
			return;
		any = true;
	}
	if (rc == -EMSGSIZE)
		too_long(c, &f, group, b);
	if (any)
		dr_channel_flush(c->ch, now);
}

/* With lock held: parts whose chunks have all arrived are done. */
static void settle(struct ha_request *r)
{
	for (unsigned b = 0; b < r->n; b++)
		if (r->part[b].asked &&
			atomic_load_explicit(&r->part[b].left, memory_order_acquire) == 0) {
			r->part[b].asked = false;
			ha_match_done(r->comm->match, r->group, b, r->part[b].size);
		}
}

int ha_comm_recv(
	struct ha_comm *c, const struct ha_buffer *buf, unsigned n, struct ha_request **out)
{
	struct ha_match_buffer want[HA_BUFFERS_MAX] = { 0 };
	int rc = atomic_load_explicit(&c->err, memory_order_relaxed);
	struct ha_request *r;
	int64_t now;

	*out = NULL;
	if (n < 1 || n > HA_BUFFERS_MAX)
		return -EINVAL;
	if (pthread_mutex_trylock(&c->s->lock) != 0)
		return 0;
	now = dr_now_ns();
	r = ha_request_get(c);
	for (unsigned b = 0; b < n; b++)
		want[b] = (struct ha_match_buffer){ .cap = buf[b].size, .tag = buf[b].tag };
	if (r && ha_match_post(c->match, want, n, &r->group) == 0) {
		r->receive = true;
		r->n = n;
		memcpy(r->buf, buf, n * sizeof(*buf));
		for (unsigned b = 0; b < n; b++)
			r->part[b].asked = false;
		c->by_group[r->group] = r;
		*out = r;
	} else {
		rc = rc ? rc : ha_comm_over(c);
		if (r)
			ha_request_put(r);
	}
	ha_comm_progress(c, now);
	pthread_mutex_unlock(&c->s->lock);
	return *out ? 0 : rc;
}

static void finish(struct ha_request *r, int *sizes)
{
	struct ha_comm *c = r->comm;
	const struct ha_match_group *g = &c->match->group[r->group];

	for (unsigned b = 0; b < r->n; b++) {
		c->bytes += g->buf[b].bytes;
		c->messages++;
		if (sizes)
			sizes[b] = (int)g->buf[b].bytes;
	}
	c->by_group[r->group] = NULL;
	ha_match_release(c->match, r->group);
}

int ha_comm_test_recv(struct ha_request *r, bool *done, int *sizes)
{
	struct ha_comm *c = r->comm;
	int64_t now = dr_now_ns();
	int rc = 0;

	if (pthread_mutex_trylock(&c->s->lock) != 0)
		return 0;
	ha_session_drive(c->s, c->ch, now);
	ha_comm_progress(c, now);
	settle(r);
	*done = ha_match_complete(c->match, r->group);
	if (*done)
		finish(r, sizes);
	else
		rc = ha_comm_over(c);
	pthread_mutex_unlock(&c->s->lock);
	return rc;
}

void ha_comm_chunk_done(struct ha_chunk *k, uint64_t bytes)
{
	if (!k->left) {
		ha_comm_sent(k->comm, k->ordinal);
		return;
	}
	if (bytes != k->span.len)
		ha_comm_ended(
			k->comm, -ECANCELED, "the peer closed the comm before its data was sent");
	else
		atomic_fetch_sub_explicit(k->left, 1, memory_order_release);
}
