/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakegdr/net/gdr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* GDR_CUT: its registration went while it was FLUSHING. */
enum gdr_state { GDR_NONE, GDR_RECEIVING, GDR_COMPLETE, GDR_FLUSHING, GDR_CUT, GDR_FLUSHED };

struct gdr_receive {
	struct tcpx_head head; /* the request of its flush */
	enum gdr_state state;
	uint64_t no;
	const struct tcpx_mr *mr;
	uint8_t *data;
	bool in_gpu;
	uint32_t size; /* of the buffer, and once it is complete of the message */
	uint32_t held; /* bytes of the message that are in `bytes` */
	unsigned tests;
	uint8_t bytes[GDR_HELD_MAX];
};

enum min_result gdr_direct_init(struct tcpx_comm *c)
{
	c->receive = calloc(RECEIVES, sizeof(*c->receive));
	if (!c->receive)
		return min_failed(ENOMEM, "the receives");
	if (tcpx_settings.cuda)
		(void)tcpx_gpu_take(&c->gpu);
	return MIN_OK;
}

void gdr_direct_fini(struct tcpx_comm *c)
{
	free(c->receive);
}

static struct gdr_receive *entry(const struct tcpx_comm *c, uint64_t no)
{
	return &c->receive[no % RECEIVES];
}

void gdr_direct_posted(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct gdr_receive *g = entry(c, r->no);

	if (g->state == GDR_FLUSHING)
		tcpx_misuse("%d receives after receive %llu, whose flush is not complete", RECEIVES,
			(unsigned long long)g->no);
	g->head = (struct tcpx_head){ .comm = c, .is_flush = true };
	g->state = GDR_RECEIVING;
	g->no = r->no;
	g->mr = r->mr;
	g->data = r->data;
	g->in_gpu = r->in_gpu;
	g->size = r->room;
	g->held = 0;
	g->tests = 0;
}

/* Bytes at the end of the message that need a flush. */
static uint32_t held(const struct tcpx_request *r)
{
	if (gdr_settings.ordered || r->mr->type != TCPX_PTR_CUDA)
		return 0;
	return r->size < GDR_HELD_MAX ? r->size : GDR_HELD_MAX;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

uint8_t *gdr_direct_place(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len)
{
	uint32_t at = t->offset + t->moved, end = t->r->size - held(t->r);

	*len = t->size - t->moved;
	if (at >= end)
		return entry(c, t->r->no)->bytes + (at - end);
	*len = least(*len, end - at);
	if (!t->r->in_gpu)
		return t->r->data + at;
	*len = least(*len, TCPX_STAGE - s->staged);
	return tcpx_stage(c, s) + s->staged;
}

enum min_result gdr_direct_filled(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len)
{
	uint32_t at = t->offset + t->moved;
	enum min_result result;

	if (!t->r->in_gpu || at >= t->r->size - held(t->r))
		return MIN_OK;
	result = tcpx_gpu_write(&c->gpu, t->r->data + at, tcpx_stage(c, s) + s->staged, len);
	s->staged += (unsigned)len;
	if (result != MIN_OK || s->staged < TCPX_STAGE)
		return result;
	s->staged = 0;
	return tcpx_gpu_wait(&c->gpu);
}

/* The last bytes of a receive, with all that was written before; they are there on return. */
static enum min_result write_end(
	struct tcpx_comm *c, const struct gdr_receive *g, const uint8_t *bytes)
{
	enum min_result result = MIN_OK;
	uint8_t *to = g->data + (g->size - g->held);

	if (g->held > 0 && g->in_gpu)
		result = tcpx_gpu_write(&c->gpu, to, bytes, g->held);
	else if (g->held > 0)
		memcpy(to, bytes, g->held);
	return result == MIN_OK ? tcpx_gpu_wait(&c->gpu) : result;
}

enum min_result gdr_direct_complete(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct gdr_receive *g = entry(c, r->no);
	uint8_t poison[GDR_HELD_MAX];

	memset(poison, GDR_POISON, sizeof(poison));
	g->state = GDR_COMPLETE;
	g->size = r->size;
	g->held = held(r);
	return write_end(c, g, poison);
}

/* ---- flushes ---- */

static struct gdr_receive *find(const struct tcpx_comm *c, const void *data)
{
	for (uint64_t i = 1; i <= RECEIVES && i <= c->posted; i++) {
		struct gdr_receive *g = entry(c, c->posted - i);

		if (g->state != GDR_NONE && g->state != GDR_CUT && g->data == data)
			return g;
	}
	return NULL;
}

static void check_flush(const struct gdr_receive *g, const void *data, int size, const void *mh)
{
	unsigned long long no;

	if (!g)
		tcpx_misuse("iflush at %p, where no receive was posted", data);
	no = g->no;
	if (g->state == GDR_RECEIVING)
		tcpx_misuse("iflush of receive %llu, which is not complete", no);
	if (g->state != GDR_COMPLETE)
		tcpx_misuse("iflush twice of receive %llu", no);
	if (size < 0 || (uint32_t)size != g->size)
		tcpx_misuse("iflush of %d bytes of receive %llu, whose message has %u", size, no,
			g->size);
	if (mh != g->mr)
		tcpx_misuse("iflush of receive %llu with another registration than its own", no);
}

enum min_result gdr_iflush(void *rcomm, int n, void **data, int *sizes, void **mhs, void **request)
{
	struct tcpx_comm *c = rcomm;
	enum min_result result;
	struct gdr_receive *g;

	*request = NULL;
	if (n != 1 || !c || c->is_send)
		tcpx_misuse("iflush of %d buffers, or on what does not receive", n);
	(void)pthread_mutex_lock(&c->lock);
	g = find(c, data[0]);
	check_flush(g, data[0], sizes[0], mhs[0]);
	g->state = g->held > 0 ? GDR_FLUSHING : GDR_FLUSHED;
	result = c->error;
	if (result == MIN_OK && g->held > 0)
		*request = g;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

static enum min_result test_flush(struct gdr_receive *g, int *done)
{
	struct tcpx_comm *c = g->head.comm;
	enum min_result result;

	(void)pthread_mutex_lock(&c->lock);
	if (g->state == GDR_CUT)
		tcpx_misuse("test of the flush of receive %llu, whose registration is gone",
			(unsigned long long)g->no);
	if (g->state != GDR_FLUSHING)
		tcpx_misuse("test of the flush of receive %llu, which is complete",
			(unsigned long long)g->no);
	result = c->error;
	if (result == MIN_OK && ++g->tests == GDR_FLUSH_TESTS) {
		result = c->error = write_end(c, g, g->bytes);
		*done = result == MIN_OK;
		if (*done)
			g->state = GDR_FLUSHED;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}

enum min_result gdr_test(void *request, int *done, int *size)
{
	const struct tcpx_head *head = request;

	*done = 0;
	if (head && head->is_flush)
		return test_flush(request, done);
	return tcpx_test(request, done, size);
}

/* Its receives are known no more. In a flush of one nothing moves from then on, as in tcpx_dereg: the comm can be closed. */
enum min_result gdr_dereg(void *comm, void *mh)
{
	struct tcpx_comm *c = comm;

	if (c && !c->is_send && mh) {
		(void)pthread_mutex_lock(&c->lock);
		for (unsigned i = 0; i < RECEIVES; i++) {
			struct gdr_receive *g = &c->receive[i];

			if (g->mr != mh)
				continue;
			c->ended = c->ended || g->state == GDR_FLUSHING;
			g->state = g->state == GDR_FLUSHING ? GDR_CUT : GDR_NONE;
		}
		(void)pthread_mutex_unlock(&c->lock);
	}
	return tcpx_dereg(comm, mh);
}
