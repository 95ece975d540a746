/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The bounce buffer: pages in no order, partly filled, and the fragments in them described in no order. */

enum { POISON = 0xdd };

#define BOUNCE_BYTES ((size_t)TCPX_PAGES * TCPX_PAGE)

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

bool tcpx_bounce_init(struct tcpx_comm *c)
{
	c->random = tcpx_settings.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	c->device = calloc(1, sizeof(*c->device));
	c->free_page = calloc(TCPX_PAGES, sizeof(*c->free_page));
	c->bounce = map(BOUNCE_BYTES);
	if (!c->device || !c->free_page || !c->bounce)
		return false;
	c->device->meta = map(sizeof(*c->device->meta));
	c->device->bounce_buf = c->bounce;
	c->device->head = UINT64_MAX;
	for (c->free_pages = 0; c->free_pages < TCPX_PAGES; c->free_pages++) {
		unsigned other = (unsigned)draw(c, c->free_pages + 1);

		c->free_page[c->free_pages] = c->free_page[other];
		c->free_page[other] = c->free_pages;
	}
	return c->device->meta != NULL;
}

void tcpx_bounce_fini(struct tcpx_comm *c)
{
	if (c->device && c->device->meta)
		(void)munmap(c->device->meta, sizeof(*c->device->meta));
	if (c->bounce)
		(void)munmap(c->bounce, BOUNCE_BYTES);
	free(c->device);
	free(c->free_page);
}

/* Begins a page, at any offset. So short fragments are rare enough that 4 MiB fit into 2,048 of them. */
static void begin(struct tcpx_comm *c, struct tcpx_task *t)
{
	struct tcpx_request *r = t->r;
	uint32_t left = t->size - t->moved, len = TCPX_PAGE, page;

	if (r->fragments == TCPX_FRAGMENTS_MAX)
		tcpx_misuse("a receive of %u bytes has more than %d fragments", r->size,
			TCPX_FRAGMENTS_MAX);
	if (c->free_pages == 0)
		tcpx_misuse("the bounce buffer has no page left");
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
}

uint8_t *tcpx_bounce_place(struct tcpx_comm *c, struct tcpx_task *t, size_t *len)
{
	if (t->filled == t->fragment)
		begin(c, t);
	*len = t->fragment - t->filled;
	return c->bounce + t->at + t->filled;
}

void tcpx_bounce_filled(struct tcpx_comm *c, struct tcpx_task *t, size_t len)
{
	(void)c;
	t->filled += (uint32_t)len;
}

void tcpx_bounce_publish(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct tcpx_fragment *mem = c->device->meta->mem[r->no % TCPX_SLOTS];

	for (unsigned i = 0; i < r->fragments; i++) {
		unsigned other = (unsigned)draw(c, i + 1);

		mem[i] = mem[other];
		mem[other] = r->fragment[i];
	}
	c->device->meta->cnt[r->no % TCPX_SLOTS] = r->fragments;
	atomic_thread_fence(memory_order_release);
}

void tcpx_bounce_recycle(struct tcpx_comm *c, struct tcpx_request *r)
{
	struct tcpx_meta *meta = c->device->meta;

	memset(meta->mem[r->no % TCPX_SLOTS], 0xff, r->fragments * sizeof(meta->mem[0][0]));
	meta->cnt[r->no % TCPX_SLOTS] = UINT64_MAX;
	for (unsigned i = 0; i < r->pages; i++) {
		memset(c->bounce + (size_t)r->page[i] * TCPX_PAGE, POISON, TCPX_PAGE);
		c->free_page[c->free_pages++] = r->page[i];
	}
}
