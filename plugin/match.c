/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/match.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

/*
 * Invariants, checked by match_testkit.h:
 *  1. The ring `order` has exactly the groups with a free buffer, oldest first.
 *  2. Frames that wait have ascending ordinals below next_ordinal.
 *  3. The first `tried` of them have a tag for which the head has no free buffer.
 */
enum { COMM_BITS = 14, MESSAGE_BITS = 6, CHUNK_BITS = 12 };
_Static_assert(HA_COMMS_MAX == 1 << COMM_BITS && HA_LARGE_MAX == 1 << MESSAGE_BITS &&
		       HA_CHUNKS_MAX == 1 << CHUNK_BITS,
	"a chunk's name");
_Static_assert(HA_GROUPS_MAX == 64, "a mask of 64 bits");

/* ---- bytes ---- */

void ha_header_encode(const struct ha_header *h, uint8_t out[HA_HEADER_LEN])
{
	static const uint8_t zeros[3];
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, HA_HEADER_LEN);
	dr_wbuf_u8(&w, (uint8_t)h->type);
	dr_wbuf_bytes(&w, zeros, sizeof(zeros));
	dr_wbuf_u32(&w, h->tag);
	dr_wbuf_u64(&w, h->ordinal);
	dr_wbuf_u64(&w, h->size);
	dr_assert(!w.failed && w.len == HA_HEADER_LEN);
}

int ha_header_decode(const void *data, size_t len, struct ha_header *out)
{
	uint8_t type = 0, zero[3] = { 0 };
	struct ha_header h = { 0 };
	struct dr_rbuf r;

	dr_rbuf_init(&r, data, len);
	dr_rbuf_u8(&r, &type);
	dr_rbuf_bytes(&r, zero, sizeof(zero));
	dr_rbuf_u32(&r, &h.tag);
	dr_rbuf_u64(&r, &h.ordinal);
	dr_rbuf_u64(&r, &h.size);
	if (r.failed || (type != HA_EAGER && type != HA_ANNOUNCE) || zero[0] || zero[1] || zero[2])
		return -EPROTO;
	h.type = (enum ha_frame_type)type;
	if (dr_rbuf_left(&r) != (h.type == HA_EAGER ? h.size : 0))
		return -EPROTO;
	if (h.type == HA_ANNOUNCE && h.size == 0)
		return -EPROTO;
	*out = h;
	return 0;
}

uint32_t ha_chunk_encode(const struct ha_chunk_name *n)
{
	dr_dassert(n->comm < HA_COMMS_MAX && n->message < HA_LARGE_MAX && n->chunk < HA_CHUNKS_MAX);
	return (uint32_t)n->comm << (MESSAGE_BITS + CHUNK_BITS) |
	       (uint32_t)n->message << CHUNK_BITS | (uint32_t)n->chunk;
}

struct ha_chunk_name ha_chunk_decode(uint32_t tag)
{
	return (struct ha_chunk_name){
		.comm = tag >> (MESSAGE_BITS + CHUNK_BITS),
		.message = tag >> CHUNK_BITS & (HA_LARGE_MAX - 1),
		.chunk = tag & (HA_CHUNKS_MAX - 1),
	};
}

struct ha_division ha_divide(uint64_t size, uint64_t chunk)
{
	uint64_t least = size / HA_CHUNKS_MAX + (size % HA_CHUNKS_MAX != 0);
	uint64_t bytes = DR_MAX(chunk, least);

	dr_dassert(size > 0 && chunk > 0);
	return (struct ha_division){ bytes, (unsigned)(size / bytes + (size % bytes != 0)) };
}

/* ---- receiver ---- */

void ha_match_init(struct ha_match *m)
{
	memset(m, 0, sizeof(*m));
}

int ha_match_post(
	struct ha_match *m, const struct ha_match_buffer *buf, unsigned n, unsigned *group)
{
	struct ha_match_group *g;
	unsigned i;

	if (n < 1 || n > HA_BUFFERS_MAX)
		return -EINVAL;
	if (m->used == UINT64_MAX)
		return -EAGAIN;
	i = (unsigned)__builtin_ctzll(~m->used);
	g = &m->group[i];
	*g = (struct ha_match_group){ .n = n, .n_free = n, .n_left = n };
	for (unsigned b = 0; b < n; b++)
		g->buf[b] = (struct ha_match_buffer){ .cap = buf[b].cap, .tag = buf[b].tag };
	m->used |= 1ull << i;
	m->order[(m->order_at + m->order_n) % HA_GROUPS_MAX] = (uint8_t)i;
	m->order_n++;
	*group = i;
	return 0;
}

int ha_match_frame(struct ha_match *m, const struct ha_header *h, unsigned slot)
{
	if (h->ordinal != m->next_ordinal)
		return -EPROTO;
	if (m->n_frames == HA_FRAMES_MAX)
		return -ENOBUFS;
	m->next_ordinal++;
	m->frame[m->n_frames++] = (struct ha_match_frame){ *h, slot };
	return 0;
}

static struct ha_match_buffer *free_buffer(struct ha_match_group *g, uint32_t tag)
{
	for (unsigned b = 0; b < g->n; b++)
		if (!g->buf[b].taken && g->buf[b].tag == tag)
			return &g->buf[b];
	return NULL;
}

static void take(
	struct ha_match *m, unsigned frame, struct ha_match_group *g, struct ha_match_buffer *b)
{
	b->taken = true;
	m->n_frames--;
	memmove(&m->frame[frame], &m->frame[frame + 1],
		(m->n_frames - frame) * sizeof(m->frame[0]));
	if (--g->n_free > 0)
		return;
	m->order_at = (m->order_at + 1) % HA_GROUPS_MAX;
	m->order_n--;
	m->tried = 0;
}

int ha_match_next(struct ha_match *m, struct ha_match_frame *f, unsigned *group, unsigned *buffer)
{
	struct ha_match_group *g;

	if (m->order_n == 0)
		return 0;
	g = &m->group[m->order[m->order_at]];
	for (; m->tried < m->n_frames; m->tried++) {
		struct ha_match_buffer *b = free_buffer(g, m->frame[m->tried].h.tag);

		if (!b)
			continue;
		*f = m->frame[m->tried];
		*group = (unsigned)(g - m->group);
		*buffer = (unsigned)(b - g->buf);
		if (f->h.size > b->cap)
			return -EMSGSIZE;
		take(m, m->tried, g, b);
		return 1;
	}
	return 0;
}

void ha_match_done(struct ha_match *m, unsigned group, unsigned buffer, uint64_t bytes)
{
	struct ha_match_group *g = &m->group[group];
	struct ha_match_buffer *b = &g->buf[buffer];

	dr_assert(m->used >> group & 1 && buffer < g->n && b->taken && !b->done && bytes <= b->cap);
	b->done = true;
	b->bytes = bytes;
	g->n_left--;
}

bool ha_match_complete(const struct ha_match *m, unsigned group)
{
	return m->group[group].n_left == 0;
}

void ha_match_release(struct ha_match *m, unsigned group)
{
	dr_assert(m->used >> group & 1 && m->group[group].n_left == 0);
	m->used &= ~(1ull << group);
}

/* ---- sender ---- */

void ha_outbox_init(struct ha_outbox *o, uint64_t chunk, uint64_t eager_max)
{
	memset(o, 0, sizeof(*o));
	o->chunk = chunk;
	o->eager_max = eager_max;
}

int ha_outbox_next(struct ha_outbox *o, uint64_t size, uint32_t tag, struct ha_header *h)
{
	enum ha_frame_type type = size > o->eager_max ? HA_ANNOUNCE : HA_EAGER;

	if (type == HA_ANNOUNCE && o->large[o->next_ordinal % HA_LARGE_MAX].used)
		return -EAGAIN;
	*h = (struct ha_header){ type, tag, o->next_ordinal, size };
	return 0;
}

void ha_outbox_sent(struct ha_outbox *o, const struct ha_header *h)
{
	struct ha_large *l = &o->large[h->ordinal % HA_LARGE_MAX];

	dr_assert(h->ordinal == o->next_ordinal);
	o->next_ordinal++;
	if (h->type == HA_EAGER)
		return;
	memset(l, 0, sizeof(*l));
	l->used = true;
	l->ordinal = h->ordinal;
	l->size = h->size;
	l->div = ha_divide(h->size, o->chunk);
	l->n_left = l->div.n;
}

int ha_outbox_chunk(struct ha_outbox *o, const struct ha_chunk_name *name, uint64_t cap,
	uint64_t *ordinal, uint64_t *off, uint64_t *len)
{
	struct ha_large *l = &o->large[name->message];
	uint64_t at = name->chunk * l->div.chunk_bytes, bit = 1ull << name->chunk % 64;

	if (!l->used || name->chunk >= l->div.n || l->sent[name->chunk / 64] & bit)
		return -EPROTO;
	if (cap != DR_MIN(l->div.chunk_bytes, l->size - at))
		return -EPROTO;
	l->sent[name->chunk / 64] |= bit;
	l->n_sent++;
	*ordinal = l->ordinal;
	*off = at;
	*len = cap;
	return 0;
}

bool ha_outbox_acked(struct ha_outbox *o, uint64_t ordinal)
{
	struct ha_large *l = &o->large[ordinal % HA_LARGE_MAX];

	dr_assert(l->used && l->ordinal == ordinal && l->n_left > l->div.n - l->n_sent);
	if (--l->n_left > 0)
		return false;
	l->used = false;
	return true;
}
