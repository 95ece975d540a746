/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

/*
 * The sending end of a comm. A small message is copied into a slot with its header. The slot of frame n is n modulo the
 * window: the channel takes a frame only when the one a window before it was acknowledged. Its request is done when the
 * transport has taken all of it, which is at once as a rule: NCCL stops calling when its requests are done, and what is left
 * then waits for the control thread.
 */

static uint8_t *slot_at(const struct ha_comm *c, unsigned slot)
{
	return c->slots + slot * c->slot_bytes;
}

/* With lock and names held. 0, -EAGAIN, or the comm's error. */
static int post_frame(struct ha_comm *c, const struct ha_header *h, int64_t now)
{
	uint64_t len = HA_HEADER_LEN + (h->type == HA_EAGER ? h->size : 0), seq;
	unsigned slot;

	slot = (unsigned)(h->ordinal % HA_SLOTS); /* each message is one frame */
	const struct dr_span span = {
		.mem = &c->mem, .off = slot * c->slot_bytes, .len = (uint32_t)len
	};
	int rc = dr_channel_send(c->ch, &span, 1, &seq, now);

	dr_assert(rc != 0 || seq == h->ordinal);
	return rc;
}

/* Before anybody drives the channel. */
static void fill_slot(struct ha_comm *c, const struct ha_header *h, const struct ha_buffer *b)
{
	uint8_t *slot = slot_at(c, (unsigned)(h->ordinal % HA_SLOTS));

	ha_header_encode(h, slot);
	if (h->type == HA_EAGER && h->size > 0)
		memcpy(slot + HA_HEADER_LEN, b->data, h->size);
}

/* With lock held. */
static int send_message(
	struct ha_comm *c, const struct ha_buffer *b, struct ha_request *r, int64_t now)
{
	struct ha_header h;
	int rc;

	pthread_mutex_lock(&c->s->names);
	rc = ha_outbox_next(c->box, b->size, b->tag, &h);
	if (rc == 0)
		rc = post_frame(c, &h, now);
	if (rc == 0) {
		ha_outbox_sent(c->box, &h);
		r->buf[0] = *b;
		r->ordinal = h.ordinal;
		r->copied = h.type == HA_EAGER;
		if (r->copied)
			r->buf[0].mr = NULL;
		else
			c->large[h.ordinal % HA_LARGE_MAX] = r;
	}
	pthread_mutex_unlock(&c->s->names);
	if (rc != 0)
		return rc;
	fill_slot(c, &h, b);
	dr_channel_flush(c->ch, now);
	if (r->copied && dr_channel_sent(c->ch, r->ordinal))
		atomic_store_explicit(&r->done, true, memory_order_relaxed);
	return 0;
}

int ha_comm_send(struct ha_comm *c, const struct ha_buffer *b, struct ha_request **out)
{
	int rc = atomic_load_explicit(&c->err, memory_order_relaxed);
	struct ha_request *r;
	int64_t now;

	*out = NULL;
	if (pthread_mutex_trylock(&c->s->lock) != 0)
		return 0;
	now = dr_now_ns();
	r = ha_request_get(c);
	if (rc == 0)
		rc = r ? send_message(c, b, r, now) : -EAGAIN;
	if (rc == 0) {
		c->messages++;
		c->bytes += b->size;
	} else if (rc == -EAGAIN) { /* acknowledgements make room */
		ha_session_drive(c->s, c->ch, now);
		rc = ha_comm_over(c);
		if (rc == 0 && r) {
			ha_request_put(r);
			r = NULL;
		}
	}
	pthread_mutex_unlock(&c->s->lock);
	*out = r;
	return r ? 0 : rc;
}

int ha_comm_test_send(struct ha_request *r, bool *done, int *sizes)
{
	struct ha_comm *c = r->comm;
	int rc = 0;

	if (!atomic_load_explicit(&r->done, memory_order_acquire) &&
		pthread_mutex_trylock(&c->s->lock) == 0) {
		ha_session_drive(c->s, c->ch, dr_now_ns());
		if (r->copied && dr_channel_sent(c->ch, r->ordinal))
			atomic_store_explicit(&r->done, true, memory_order_relaxed);
		if (!atomic_load_explicit(&r->done, memory_order_acquire))
			rc = ha_comm_over(c);
		pthread_mutex_unlock(&c->s->lock);
	}
	*done = rc == 0 && atomic_load_explicit(&r->done, memory_order_acquire);
	if (*done && sizes)
		sizes[0] = (int)r->buf[0].size;
	return rc;
}

int ha_comm_answer(struct ha_comm *c, const struct ha_chunk_name *name, uint64_t cap, unsigned lane,
	struct ha_chunk *k)
{
	uint64_t off, len;
	struct ha_request *r;
	int rc;

	if (c->closing || atomic_load_explicit(&c->err, memory_order_relaxed) != 0)
		return 0;
	rc = ha_outbox_chunk(c->box, name, cap, &k->ordinal, &off, &len);
	if (rc != 0)
		return rc;
	r = c->large[name->message];
	k->comm = c;
	k->mr = r->buf[0].mr;
	k->span = (struct dr_span){ .mem = &k->mr->mem[lane],
		.off = (uint64_t)(r->buf[0].data - k->mr->base) + off,
		.len = (uint32_t)len };
	atomic_fetch_add(&c->chunks, 1);
	atomic_fetch_add(&k->mr->chunks, 1);
	return 0;
}

void ha_comm_sent(struct ha_comm *c, uint64_t ordinal)
{
	pthread_mutex_lock(&c->s->names);
	if (ha_outbox_acked(c->box, ordinal))
		atomic_store_explicit(
			&c->large[ordinal % HA_LARGE_MAX]->done, true, memory_order_release);
	pthread_mutex_unlock(&c->s->names);
}
