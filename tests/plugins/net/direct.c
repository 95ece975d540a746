/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plugins/net/bugs.h"

/*
 * Receives into the posted buffer, and flushes.
 *
 * 1. Bytes for GPU memory are received into the staging memory of their connection and copied from there. The copies are waited
 *    for before a receive is complete, and before staging memory is used again.
 * 2. The bytes that a flush has to bring never go to the buffer before: they are received into the entry of their receive.
 * 3. The latest RECEIVES receives of a comm have an entry, by their number. A flush is looked up by its address; the latest
 *    receive at that address is meant.
 */
enum { RECEIVES = 256 };

/* R_CUT: its registration went while it was FLUSHING. */
enum state { R_NONE, R_RECEIVING, R_COMPLETE, R_FLUSHING, R_CUT, R_FLUSHED };

struct fn_receive {
	struct fn_head head; /* the request of its flush */
	enum state state;
	uint64_t no;
	const struct fn_mr *mr;
	uint8_t *data;
	bool in_gpu;
	uint32_t size; /* of the buffer, and once it is complete of the message */
	uint32_t held; /* bytes of the message that are in `bytes` */
	unsigned tests;
	uint8_t bytes[FN_HELD_MAX];
};

enum fn_result fn_direct_init(struct fn_comm *c)
{
	c->receive = calloc(RECEIVES, sizeof(*c->receive));
	if (!c->receive)
		return fn_failed(ENOMEM, "the receives");
	if (fn_settings.cuda)
		(void)fn_gpu_take(&c->gpu, false);
	return FN_OK;
}

static struct fn_receive *entry(const struct fn_comm *c, uint64_t no)
{
	return &c->receive[no % RECEIVES];
}

void fn_direct_posted(struct fn_comm *c, struct fn_request *r)
{
	struct fn_receive *g = entry(c, r->no);

	if (g->state == R_FLUSHING)
		fn_misuse("%d receives after receive %llu, whose flush is not complete", RECEIVES,
			(unsigned long long)g->no);
	g->head = (struct fn_head){ .comm = c, .is_flush = true };
	g->state = R_RECEIVING;
	g->no = r->no;
	g->mr = r->part[0].mr;
	g->data = r->part[0].data;
	g->in_gpu = r->part[0].in_gpu;
	g->size = r->part[0].room;
	g->held = 0;
	g->tests = 0;
}

/* Bytes at the end of the message that need a flush. */
static uint32_t held(const struct fn_part *p)
{
	if (fn_settings.ordered || p->mr->type != FN_PTR_CUDA)
		return 0;
	return p->size < FN_HELD_MAX ? p->size : FN_HELD_MAX;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

uint8_t *fn_direct_place(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t *len)
{
	static _Thread_local uint8_t
		excess[FN_STAGE]; /* of a message that is too long: FN_BUG_TAGS */
	uint32_t at = t->offset + t->moved, end = t->p->size - held(t->p);

	*len = t->size - t->moved;
	if (at >= end)
		return entry(c, t->r->no)->bytes + (at - end);
	*len = least(*len, end - at);
	if (at >= t->p->room) {
		*len = least(*len, sizeof(excess));
		return excess;
	}
	*len = least(*len, t->p->room - at);
	if (!t->p->in_gpu)
		return t->p->data + at;
	*len = least(*len, FN_STAGE - s->staged);
	return fn_stage(c, s) + s->staged;
}

enum fn_result fn_direct_filled(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t len)
{
	uint32_t at = t->offset + t->moved;
	enum fn_result result;

	if (!t->p->in_gpu || at >= t->p->size - held(t->p))
		return FN_OK;
	result = fn_gpu_write(&c->gpu, t->p->data + at, fn_stage(c, s) + s->staged, len);
	s->staged += (unsigned)len;
	if (result != FN_OK || s->staged < FN_STAGE)
		return result;
	s->staged = 0;
	return fn_gpu_wait(&c->gpu);
}

/* In host memory. */
static void spoil(const struct fn_part *p)
{
	if (p->in_gpu)
		return;
	if (fn_bug(FN_BUG_CORRUPT) && p->size > 100)
		p->data[p->size / 2] ^= 1;
	if (fn_bug(FN_BUG_BOUNDS))
		p->data[p->room + 3] = 0;
}

/* The last bytes of a receive, with all that was written before; they are there on return. */
static enum fn_result write_end(struct fn_comm *c, const struct fn_receive *g, const uint8_t *bytes)
{
	enum fn_result result = FN_OK;
	uint8_t *to = g->data + (g->size - g->held);

	if (g->held > 0 && g->in_gpu)
		result = fn_gpu_write(&c->gpu, to, bytes, g->held);
	else if (g->held > 0)
		memcpy(to, bytes, g->held);
	return result == FN_OK ? fn_gpu_wait(&c->gpu) : result;
}

enum fn_result fn_direct_complete(struct fn_comm *c, struct fn_request *r)
{
	struct fn_receive *g = entry(c, r->no);
	uint8_t poison[FN_HELD_MAX];

	memset(poison, FN_POISON, sizeof(poison));
	g->state = R_COMPLETE;
	g->size = r->part[0].size;
	g->held = held(&r->part[0]);
	for (unsigned i = 0; i < r->n; i++)
		spoil(&r->part[i]);
	return write_end(c, g, poison);
}

/* ---- flushes ---- */

static struct fn_receive *find(const struct fn_comm *c, const void *data)
{
	for (uint64_t i = 1; i <= RECEIVES && i <= c->posted; i++) {
		struct fn_receive *g = entry(c, c->posted - i);

		if (g->state != R_NONE && g->state != R_CUT && g->data == data)
			return g;
	}
	return NULL;
}

static void check_flush(const struct fn_receive *g, const void *data, int size, const void *mh)
{
	unsigned long long no;

	if (!g)
		fn_misuse("iflush at %p, where no receive was posted", data);
	no = g->no;
	if (g->state == R_RECEIVING)
		fn_misuse("iflush of receive %llu, which is not complete", no);
	if (g->state != R_COMPLETE)
		fn_misuse("iflush twice of receive %llu", no);
	if (size < 0 || (uint32_t)size != g->size)
		fn_misuse("iflush of %d bytes of receive %llu, whose message has %u", size, no,
			g->size);
	if (mh != g->mr)
		fn_misuse("iflush of receive %llu with another registration than its own", no);
}

enum fn_result fn_iflush(void *rcomm, int n, void **data, int *sizes, void **mhs, void **request)
{
	struct fn_comm *c = rcomm;
	enum fn_result result;
	struct fn_receive *g;

	FN_ENTER("iflush");
	if (fn_kind->pieces)
		fn_misuse("iflush of %d buffers; it has no use and follows *request", n);
	*request = NULL;
	if (n < 1 || n > (int)fn_kind->group || !c || c->is_send)
		fn_misuse("iflush of %d buffers, or on what does not receive", n);
	(void)pthread_mutex_lock(&c->lock);
	g = find(c, data[0]);
	check_flush(g, data[0], sizes[0], mhs[0]);
	g->state = g->held > 0 ? R_FLUSHING : R_FLUSHED;
	result = c->error;
	if (result == FN_OK && g->held > 0)
		*request = g;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

enum fn_result fn_test_flush(struct fn_receive *g, int *done)
{
	struct fn_comm *c = g->head.comm;
	enum fn_result result;

	(void)pthread_mutex_lock(&c->lock);
	if (g->state == R_CUT)
		fn_misuse("test of the flush of receive %llu, whose registration is gone",
			(unsigned long long)g->no);
	if (g->state != R_FLUSHING)
		fn_misuse("test of the flush of receive %llu, which is complete",
			(unsigned long long)g->no);
	result = c->error;
	if (result == FN_OK && ++g->tests == FN_FLUSH_TESTS) {
		result = c->error = write_end(c, g, g->bytes);
		*done = result == FN_OK;
		if (*done)
			g->state = R_FLUSHED;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

/* Its receives are known no more. In a flush of one nothing moves from then on: the comm can be closed. */
void fn_direct_forget(struct fn_comm *c, const struct fn_mr *mr)
{
	for (unsigned i = 0; i < RECEIVES; i++) {
		struct fn_receive *g = &c->receive[i];

		if (g->mr != mr)
			continue;
		c->ended = c->ended || g->state == R_FLUSHING;
		g->state = g->state == R_FLUSHING ? R_CUT : R_NONE;
	}
}
