/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
	return (size_t)tcpx_settings.pages * TCPX_PAGE;
}

static uint64_t draw(struct tcpx_comm *c, uint64_t below)
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

static enum min_result allocate(struct tcpx_comm *c)
{
	enum min_result result;

	if (!tcpx_settings.cuda) {
		c->bounce = map(bounce_bytes());
		c->device->meta = map(sizeof(*c->device->meta));
		return c->bounce && c->device->meta ? MIN_OK
						    : min_failed(ENOMEM, "a bounce buffer");
	}
	result = tcpx_gpu_bounce(&c->gpu, c->n_socks, tcpx_settings.pages, &c->bounce);
	c->device->meta = c->gpu.meta;
	return result;
}

enum min_result tcpx_bounce_init(struct tcpx_comm *c)
{
	enum min_result result;

	c->random = tcpx_settings.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	c->device = calloc(1, sizeof(*c->device));
	c->free_page = calloc(tcpx_settings.pages, sizeof(*c->free_page));
	if (!c->device || !c->free_page)
		return min_failed(ENOMEM, "a bounce buffer");
	result = allocate(c);
	if (result != MIN_OK)
		return result;
	c->device->bounce_buf = c->bounce;
	c->device->head = UINT64_MAX;
	if (tcpx_settings.cuda) {
		result = tcpx_gpu_write(&c->gpu, c->gpu.handle, c->device, sizeof(*c->device));
		if (result == MIN_OK)
			result = tcpx_gpu_wait(&c->gpu);
		if (result != MIN_OK)
			return result;
	}
	for (c->free_pages = 0; c->free_pages < tcpx_settings.pages; c->free_pages++) {
		unsigned other = (unsigned)draw(c, c->free_pages + 1);

		c->free_page[c->free_pages] = c->free_page[other];
		c->free_page[other] = c->free_pages;
	}
	return MIN_OK;
}

void tcpx_bounce_fini(struct tcpx_comm *c)
{
	if (!tcpx_settings.cuda && c->device && c->device->meta)
		(void)munmap(c->device->meta, sizeof(*c->device->meta));
	if (!tcpx_settings.cuda && c->bounce)
		(void)munmap(c->bounce, bounce_bytes());
	free(c->device);
	free(c->free_page);
}

/* Begins a page, at any offset. So short fragments are rare enough that 4 MiB fit into 2,048 of them. */
static bool begin(struct tcpx_comm *c, struct tcpx_task *t)
{
	struct tcpx_request *r = t->r;
	uint32_t left = t->size - t->moved, len = TCPX_PAGE, page;

	if (r->fragments == TCPX_FRAGMENTS_MAX)
		tcpx_misuse("a receive of %u bytes has more than %d fragments", r->size,
			TCPX_FRAGMENTS_MAX);
	if (c->free_pages <= (r->no == c->complete ? 0 : TCPX_FRAGMENTS_MAX))
		return false;
	if (draw(c, 4) == 0)
		len = 1 + (uint32_t)draw(c, TCPX_PAGE);
	if (len > left)
		len = left;
	page = c->free_page[--c->free_pages];
	t->fragment = len;
	t->filled = 0;
	t->at = page * TCPX_PAGE + (uint32_t)draw(c, TCPX_PAGE - len + 1);
	r->page[r->pages++] = page;
	r->fragment[r->fragments++] = (struct tcpx_fragment){
		.src_off = t->at, .len = len, .dst_off = (uint64_t)t->offset + t->moved
	};
	return true;
}

static uint8_t *stage_page(const struct tcpx_comm *c, const struct tcpx_sock *s)
{
	return tcpx_stage(c, s) + (size_t)s->staged * TCPX_PAGE;
}

uint8_t *tcpx_bounce_place(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t *len)
{
	if (t->filled == t->fragment && !begin(c, t))
		return NULL;
	*len = t->fragment - t->filled;
	return (tcpx_settings.cuda ? stage_page(c, s) : c->bounce + t->at) + t->filled;
}

enum min_result tcpx_bounce_filled(
	struct tcpx_comm *c, struct tcpx_sock *s, struct tcpx_task *t, size_t len)
{
	enum min_result result;

	t->filled += (uint32_t)len;
	if (!tcpx_settings.cuda || t->filled < t->fragment)
		return MIN_OK;
	result = tcpx_gpu_write(&c->gpu, c->bounce + t->at, stage_page(c, s), t->fragment);
	if (result != MIN_OK || ++s->staged < TCPX_STAGE_PAGES)
		return result;
	s->staged = 0;
	return tcpx_gpu_wait(&c->gpu);
}

enum min_result tcpx_bounce_publish(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct tcpx_fragment *mem = c->device->meta->mem[r->no % TCPX_SLOTS];
	enum min_result result = tcpx_gpu_wait(&c->gpu);

	if (result != MIN_OK)
		return result;
	for (unsigned i = 0; i < r->fragments; i++) {
		unsigned other = (unsigned)draw(c, i + 1);

		mem[i] = mem[other];
		mem[other] = r->fragment[i];
	}
	c->device->meta->cnt[r->no % TCPX_SLOTS] = r->fragments;
	atomic_thread_fence(memory_order_release);
	return MIN_OK;
}

static enum min_result poison(struct tcpx_comm *c, const struct tcpx_request *r)
{
	if (tcpx_settings.cuda)
		return tcpx_gpu_fill(&c->gpu, c->bounce, r->page, r->pages, TCPX_POISON);
	for (unsigned i = 0; i < r->pages; i++)
		memset(c->bounce + (size_t)r->page[i] * TCPX_PAGE, TCPX_POISON, TCPX_PAGE);
	return MIN_OK;
}

static enum min_result recycle(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct tcpx_meta *meta = c->device->meta;

	memset(meta->mem[r->no % TCPX_SLOTS], 0xff, r->fragments * sizeof(meta->mem[0][0]));
	meta->cnt[r->no % TCPX_SLOTS] = UINT64_MAX;
	for (unsigned i = 0; i < r->pages; i++)
		c->free_page[c->free_pages++] = r->page[i];
	return poison(c, r);
}

enum min_result tcpx_consumed(void *rcomm, int n, void *request)
{
	struct tcpx_request *r = request;
	struct tcpx_comm *c = rcomm;
	enum min_result result;

	if (n != 1 || !c || c->is_send || !r || r->head.comm != c)
		tcpx_misuse("irecvConsumed of %d requests, or of none of this comm", n);
	(void)pthread_mutex_lock(&c->lock);
	if (r->no < c->freed)
		tcpx_misuse("irecvConsumed twice for receive %llu", (unsigned long long)r->no);
	if (r->no >= c->complete)
		tcpx_misuse("irecvConsumed of receive %llu, which is not complete",
			(unsigned long long)r->no);
	if (r->no != c->freed)
		tcpx_misuse("irecvConsumed of receive %llu out of order: the oldest one is %llu",
			(unsigned long long)r->no, (unsigned long long)c->freed);
	result = recycle(c, r);
	if (result != MIN_OK)
		c->error = result;
	c->freed++;
	(void)pthread_mutex_unlock(&c->lock);
	return result;
}
