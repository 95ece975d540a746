/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/plugins/net/bugs.h"

/*
 * The bounce buffer: pages in no order, partly filled, and the fragments in them described in no order.
 *
 * In GPU memory a fragment is received into a page of its connection's staging memory, and copied when it is complete.
 * The copies are waited for before the receive is described, and before staging pages are used again.
 *
 * Pages can run out. The oldest receive that is not complete may take every page, the others leave as many as one
 * receive can need. So it is only receives that are complete and not consumed that can keep the oldest one waiting.
 */

static size_t bounce_bytes(void)
{
	return (size_t)fn_settings.pages * FN_PAGE;
}

static uint64_t draw(struct fn_comm *c, uint64_t below)
{
	c->random ^= c->random << 13;
	c->random ^= c->random >> 7;
	c->random ^= c->random << 17;
	return c->random % below;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static enum fn_result allocate(struct fn_comm *c)
{
	enum fn_result result;

	if (!fn_settings.cuda) {
		c->bounce = map(bounce_bytes());
		c->device->meta = map(sizeof(*c->device->meta));
		return c->bounce && c->device->meta ? FN_OK : fn_failed(ENOMEM, "a bounce buffer");
	}
	result = fn_gpu_bounce(&c->gpu, c->n_socks, fn_settings.pages, &c->bounce);
	c->device->meta = c->gpu.meta;
	return result;
}

enum fn_result fn_bounce_init(struct fn_comm *c)
{
	enum fn_result result;

	c->random = fn_settings.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	c->device = calloc(1, sizeof(*c->device));
	c->free_page = calloc(fn_settings.pages, sizeof(*c->free_page));
	for (unsigned i = 0; i < fn_kind->requests; i++) {
		c->request[i].page = calloc(FN_FRAGMENTS_MAX, sizeof(uint32_t));
		c->request[i].fragment = calloc(FN_FRAGMENTS_MAX, sizeof(struct fn_fragment));
	}
	if (!c->device || !c->free_page)
		return fn_failed(ENOMEM, "a bounce buffer");
	result = allocate(c);
	if (result != FN_OK)
		return result;
	c->device->bounce_buf = c->bounce;
	c->device->head = UINT64_MAX;
	if (fn_settings.cuda) {
		result = fn_gpu_write(&c->gpu, c->gpu.handle, c->device, sizeof(*c->device));
		if (result == FN_OK)
			result = fn_gpu_wait(&c->gpu);
		if (result != FN_OK)
			return result;
	}
	for (c->free_pages = 0; c->free_pages < fn_settings.pages; c->free_pages++) {
		unsigned other = (unsigned)draw(c, c->free_pages + 1);

		c->free_page[c->free_pages] = c->free_page[other];
		c->free_page[other] = c->free_pages;
	}
	return FN_OK;
}

void fn_bounce_fini(struct fn_comm *c)
{
	if (!fn_settings.cuda && c->device && c->device->meta)
		(void)munmap(c->device->meta, sizeof(*c->device->meta));
	if (!fn_settings.cuda && c->bounce)
		(void)munmap(c->bounce, bounce_bytes());
	for (unsigned i = 0; i < fn_kind->requests; i++) {
		free(c->request[i].page);
		free(c->request[i].fragment);
	}
	free(c->device);
	free(c->free_page);
}

/* Begins a page, at any offset. So short fragments are rare enough that 4 MiB fit into 2,048 of them. */
static bool begin(struct fn_comm *c, struct fn_task *t)
{
	struct fn_request *r = t->r;
	uint32_t left = t->size - t->moved, len = FN_PAGE, page;

	if (r->n_pieces == FN_FRAGMENTS_MAX)
		fn_misuse("a receive of %u bytes has more than %d fragments", t->p->size,
			FN_FRAGMENTS_MAX);
	if (c->free_pages <= (r->no == c->complete ? 0 : FN_FRAGMENTS_MAX))
		return false;
	if (draw(c, 4) == 0)
		len = 1 + (uint32_t)draw(c, FN_PAGE);
	if (len > left)
		len = left;
	page = c->free_page[--c->free_pages];
	t->fragment = len;
	t->filled = 0;
	t->at = page * FN_PAGE + (uint32_t)draw(c, FN_PAGE - len + 1);
	r->page[r->n_pieces] = page;
	r->fragment[r->n_pieces++] = (struct fn_fragment){
		.src_off = t->at, .len = len, .dst_off = (uint64_t)t->offset + t->moved
	};
	return true;
}

static uint8_t *stage_page(const struct fn_comm *c, const struct fn_sock *s)
{
	return fn_stage(c, s) + (size_t)s->staged * FN_PAGE;
}

uint8_t *fn_bounce_place(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t *len)
{
	if (t->filled == t->fragment && !begin(c, t))
		return NULL;
	*len = t->fragment - t->filled;
	return (fn_settings.cuda ? stage_page(c, s) : c->bounce + t->at) + t->filled;
}

enum fn_result fn_bounce_filled(struct fn_comm *c, struct fn_sock *s, struct fn_task *t, size_t len)
{
	enum fn_result result;

	t->filled += (uint32_t)len;
	if (!fn_settings.cuda || t->filled < t->fragment)
		return FN_OK;
	result = fn_gpu_write(&c->gpu, c->bounce + t->at, stage_page(c, s), t->fragment);
	if (result != FN_OK || ++s->staged < FN_STAGE_PAGES)
		return result;
	s->staged = 0;
	return fn_gpu_wait(&c->gpu);
}

enum fn_result fn_bounce_complete(struct fn_comm *c, struct fn_request *r)
{
	struct fn_fragment *mem = c->device->meta->mem[r->no % FN_SLOTS];
	enum fn_result result = fn_gpu_wait(&c->gpu);

	if (result != FN_OK)
		return result;
	for (unsigned i = 0; i < r->n_pieces; i++) {
		unsigned other = (unsigned)draw(c, i + 1);

		mem[i] = mem[other];
		mem[other] = r->fragment[i];
	}
	c->device->meta->cnt[r->no % FN_SLOTS] = r->n_pieces;
	atomic_thread_fence(memory_order_release);
	return FN_OK;
}

static enum fn_result poison(struct fn_comm *c, const struct fn_request *r)
{
	if (fn_settings.cuda)
		return fn_gpu_fill(&c->gpu, c->bounce, r->page, r->n_pieces, FN_POISON);
	for (unsigned i = 0; i < r->n_pieces; i++)
		memset(c->bounce + (size_t)r->page[i] * FN_PAGE, FN_POISON, FN_PAGE);
	return FN_OK;
}

static enum fn_result recycle(struct fn_comm *c, struct fn_request *r)
{
	struct fn_meta *meta = c->device->meta;

	memset(meta->mem[r->no % FN_SLOTS], 0xff, r->n_pieces * sizeof(meta->mem[0][0]));
	meta->cnt[r->no % FN_SLOTS] = UINT64_MAX;
	for (unsigned i = 0; i < r->n_pieces; i++)
		c->free_page[c->free_pages++] = r->page[i];
	return poison(c, r);
}

enum fn_result fn_consumed(void *rcomm, int n, void *request)
{
	struct fn_request *r = request;
	struct fn_comm *c = rcomm;
	enum fn_result result;

	FN_ENTER("irecvConsumed");
	if (n != 1 || !c || c->is_send || !r || r->head.comm != c)
		fn_misuse("irecvConsumed of %d requests, or of none of this comm", n);
	(void)pthread_mutex_lock(&c->lock);
	if (r->no < c->freed)
		fn_misuse("irecvConsumed twice for receive %llu", (unsigned long long)r->no);
	if (r->no >= c->complete)
		fn_misuse("irecvConsumed of receive %llu, which is not complete",
			(unsigned long long)r->no);
	if (r->no != c->freed)
		fn_misuse("irecvConsumed of receive %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->freed);
	result = recycle(c, r);
	if (result != FN_OK)
		c->error = result;
	c->freed++;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}
