/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_CHANNEL_TESTKIT_H
#define DR_CHANNEL_CHANNEL_TESTKIT_H

/* One end of a channel over paths that count what they are told to put on the wire. */
#include "base/clock.h"
#include "base/mem.h"
#include "channel/channel.h"
#include "channel/frame.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EVENTS = 16 };

struct fake {
	struct dr_path base;
	bool sender;
	struct dr_event queue[EVENTS];
	uint8_t frame[DR_FRAME_LEN];
	unsigned n_events, looks;
	uint64_t granted;	/* credits: of the messages below */
	bool full;		/* takes no control frame */
	int refuses;		/* what post_recv returns */
	unsigned sends;		/* of post_send, before -EAGAIN */
	size_t handle_len;	/* of connect */
	unsigned probes;	/* posted */
	bool fences;		/* else a fence is never done */
	int stuck;		/* what stop returns */
	unsigned aborts;	/* posted */
	unsigned acks, credits; /* posted since the last flush */
	unsigned flushes, acks_out, credits_out;
	uint64_t acked; /* what the last ACK said */
	struct dr_path_stats stats;
};

static struct fake *made[DR_PATHS];

static inline void push(struct fake *f, struct dr_event ev)
{
	ev.path = &f->base;
	ev.rail = f->base.rail;
	assert_true(f->n_events < EVENTS);
	f->queue[f->n_events++] = ev;
}

static inline int fake_create(
	struct dr_rail *r, const struct dr_path_params *p, struct dr_path **out, struct dr_err *e)
{
	struct fake *f = dr_calloc(1, sizeof(*f));

	(void)e;
	assert_non_null(f);
	f->base.ops = r->ops;
	f->base.rail = r;
	f->sender = p->sender;
	f->stats.peer_ack_age_ns = -1;
	f->sends = UINT_MAX;
	made[p->index] = f;
	*out = &f->base;
	return 0;
}

static inline int fake_handle(struct dr_path *p, void *buf, size_t cap)
{
	(void)p;
	(void)buf;
	return cap > 0 ? 0 : -EMSGSIZE;
}

static inline int fake_connect(
	struct dr_path *p, const void *handle, size_t len, int64_t now, struct dr_err *e)
{
	(void)handle, (void)now, (void)e;
	((struct fake *)p)->handle_len = len;
	push((struct fake *)p, (struct dr_event){ .kind = DR_EV_READY });
	return 0;
}

static inline int fake_post_recv(struct dr_path *p, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	struct fake *f = (struct fake *)p;

	(void)epoch, (void)seq, (void)parts, (void)n, (void)skip;
	f->credits += f->refuses == 0;
	return f->refuses;
}

static inline int fake_post_ctrl(struct dr_path *p, const void *frame, size_t len)
{
	struct fake *f = (struct fake *)p;
	struct dr_frame fr;

	if (f->full)
		return -EAGAIN;
	assert_int_equal(dr_frame_decode(frame, len, &fr), 0);
	f->aborts += fr.type == DR_FRAME_ABORT;
	f->probes += fr.type == DR_FRAME_PROBE;
	if (fr.type != DR_FRAME_ACK)
		return 0;
	f->acks++;
	f->acked = fr.seq;
	return 0;
}

static inline int fake_post_send(
	struct dr_path *p, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct fake *f = (struct fake *)p;

	(void)epoch, (void)seq, (void)part, (void)what;
	if (f->sends == 0)
		return -EAGAIN;
	f->sends--;
	return 0;
}

static inline int fake_credit(
	struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out)
{
	(void)epoch;
	if (seq >= ((struct fake *)p)->granted)
		return -EAGAIN;
	*out = (struct dr_credit){ .n = 1, .todo = 1, .cap = { 100 }, .tag = { (uint32_t)seq } };
	return 0;
}

static inline void fake_flush(struct dr_path *p, int64_t now)
{
	struct fake *f = (struct fake *)p;

	dr_path_sent(p, now);
	f->flushes++;
	f->acks_out += f->acks;
	f->credits_out += f->credits;
	f->acks = f->credits = 0;
}

static inline int fake_progress(struct dr_path *p, int64_t now, struct dr_sink *sink)
{
	struct fake *f = (struct fake *)p;
	unsigned n = f->n_events;

	(void)now;
	f->looks++;
	f->n_events = 0;
	for (unsigned i = 0; i < n; i++) {
		struct dr_event ev = f->queue[i];

		sink->event(sink, &ev);
	}
	return (int)n;
}

static inline void fake_stats(struct dr_path *p, struct dr_path_stats *out)
{
	*out = ((struct fake *)p)->stats;
}

static inline void fake_nothing(struct dr_path *p)
{
	(void)p;
}

static inline void fake_fence(struct dr_path *p, int64_t deadline_ns)
{
	(void)deadline_ns;
	if (((struct fake *)p)->fences)
		push((struct fake *)p, (struct dr_event){ .kind = DR_EV_FENCED });
}

static inline int fake_stop(struct dr_path *p)
{
	return ((struct fake *)p)->stuck;
}

static int dereg_err[DR_PATHS];
static unsigned deregs;

static inline int fake_mr_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	(void)r, (void)e;
	*out = m->base;
	return 0;
}

static inline int fake_mr_dereg(struct dr_rail *r, struct dr_mr *mr)
{
	assert_non_null(mr);
	deregs++;
	return dereg_err[r->index];
}

static inline void fake_fini(struct dr_path *p)
{
	dr_free(p);
}

static const struct dr_transport_ops fake_ops = {
	.size = sizeof(fake_ops),
	.name = "fake",
	.caps = DR_CAP_RESET,
	.mr_reg = fake_mr_reg,
	.mr_dereg = fake_mr_dereg,
	.create = fake_create,
	.handle = fake_handle,
	.connect = fake_connect,
	.post_recv = fake_post_recv,
	.post_send = fake_post_send,
	.post_ctrl = fake_post_ctrl,
	.credit = fake_credit,
	.flush = fake_flush,
	.progress = fake_progress,
	.stats = fake_stats,
	.fence = fake_fence,
	.close = fake_nothing,
	.stop = fake_stop,
	.fini = fake_fini,
};

/* What the rails are; before setup. */
static const struct dr_transport_ops *kind = &fake_ops;
static bool connector; /* before setup, too */
static uint8_t memory[4096];
static int64_t due_ns;

/* An end that runs on path 0 of two, at time 1 ms. */
struct kit {
	struct dr_rail rail[DR_PATHS];
	struct dr_channel *ch;
	struct dr_mem mem;
	struct fake *path; /* the active one */
	int64_t now;
};

static inline void repost(struct kit *k, unsigned n)
{
	struct dr_span span = { .mem = &k->mem, .len = 8 };
	uint64_t seq;

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_channel_recv(k->ch, &span, 1, &seq, k->now), 0);
	dr_channel_flush(k->ch, k->now);
}

static unsigned reported; /* messages, to ops->completed */

static inline void completed(
	void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now)
{
	(void)arg, (void)ch, (void)bytes, (void)now;
	assert_int_equal(seq, reported++);
}

static unsigned credits_told; /* calls of ops->credited */

static inline void credited(void *arg, struct dr_channel *ch, int64_t now)
{
	(void)arg, (void)ch, (void)now;
	credits_told++;
}

static inline void setup_end(struct kit *k, unsigned window, bool sender)
{
	static const struct dr_channel_ops ops = { .completed = completed, .credited = credited };
	struct dr_channel_params p = { .id = 3,
		.sender = sender,
		.connector = connector,
		.ops = &ops,
		.window = window,
		.hold_down_ns = DR_NS_PER_S,
		.lost_after_ns = DR_NS_PER_S,
		.stuck_after_ns = DR_NS_PER_S,
		.due_ns = &due_ns };
	/* id, sender, two handles */
	const struct dr_handle peer = { 10, { 0, 0, 0, 3, !sender, 1, 7, 2, 7, 7 } };
	struct dr_frame fr = {
		.type = sender ? DR_FRAME_ANSWER : DR_FRAME_SWITCH, .path = 0, .gen = 1, .epoch = 1
	};
	struct dr_err e;

	memset(k, 0, sizeof(*k));
	reported = credits_told = 0;
	due_ns = DR_NEVER;
	k->now = DR_NS_PER_MS;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		k->rail[i] = (struct dr_rail){ .ops = kind, .index = i };
		p.rail[i] = &k->rail[i];
	}
	assert_int_equal(dr_channel_create(&p, &k->ch, &e), 0);
	assert_int_equal(
		dr_channel_mem_reg(k->ch,
			&(struct dr_memory){ .base = memory, .len = sizeof(memory) }, &k->mem, &e),
		0);
	deregs = 0;
	assert_int_equal(dr_channel_start(k->ch, &peer, k->now, &e), 0);
	k->path = made[0];
	dr_channel_progress(k->ch, k->now);
	dr_frame_encode(&fr, k->path->frame);
	push(k->path, (struct dr_event){
			      .kind = DR_EV_CTRL, .data = k->path->frame, .len = DR_FRAME_LEN });
	dr_channel_progress(k->ch, k->now);
	assert_int_equal(dr_channel_ready(k->ch), 1);
}

/* A receiver with its window of receives posted. */
static inline void setup(struct kit *k, unsigned window)
{
	setup_end(k, window, false);
	repost(k, window);
	dr_channel_flush(k->ch, k->now);
	k->path->flushes = k->path->acks_out = k->path->credits_out = 0;
}

static inline void teardown(struct kit *k)
{
	dr_channel_close(k->ch, k->now);
	assert_int_equal(dr_channel_stop(k->ch, NULL), 0);
	dr_channel_fini(k->ch);
}

/* Messages [from, from + n) arrive, as the poller tells it. */
static inline void arrive(struct kit *k, uint64_t from, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		push(k->path,
			(struct dr_event){
				.kind = DR_EV_DELIVERED, .epoch = 1, .seq = from + i, .len = 8 });
	assert_int_equal(dr_channel_poll(k->ch, k->now), n);
	assert_int_equal(dr_channel_test(k->ch, from + n - 1), 1);
}

#endif
