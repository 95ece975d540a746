/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings of pinned memory, kept from path to path. Invariants:
 *  1. Spans [first, end) are disjoint; they lie in the ring in the order given out, wrapping round at
 *     most once. A ring without spans begins at its start again.
 *  2. A ring is in one place: with one path, in the store, or stuck.
 */
#include "transport/staged/staged_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>

/* ---- spans ---- */

int dr_stage_span(struct stage_ring *r, size_t len, uint64_t *out)
{
	size_t need = (len + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
	const struct stage_span *oldest = &r->span[r->first % STAGE_PARTS];
	const struct stage_span *newest = &r->span[(r->end - 1) % STAGE_PARTS];
	size_t at = 0;

	if (r->end - r->first == STAGE_PARTS)
		return -EAGAIN;
	if (r->first != r->end) {
		size_t head = newest->off + newest->len, tail = oldest->off;
		/* Equal: the ring is full. */
		size_t room = head > tail ? r->size - head : tail - head;

		if (room >= need)
			at = head;
		else if (head <= tail || tail < need)
			return -EAGAIN;
	} else if (need > r->size) {
		return -EAGAIN;
	}
	r->span[r->end % STAGE_PARTS] = (struct stage_span){ .off = at, .len = need };
	*out = r->end++;
	return 0;
}

void dr_stage_span_free(struct stage_ring *r, uint64_t span)
{
	dr_dassert(span >= r->first && span < r->end);
	r->span[span % STAGE_PARTS].is_free = true;
	while (r->first < r->end && r->span[r->first % STAGE_PARTS].is_free)
		r->first++;
}

/* ---- the store ---- */

static int enrol(struct dr_staged *f, struct stage_ring *r, unsigned slot, struct dr_err *e)
{
	struct dr_memory m = { .base = r->mem, .len = r->size, .kind = DR_MEMORY_HOST };

	if (r->mr[slot])
		return 0;
	return f->prm.inner->mr_reg(f->rail[slot]->inner, &m, &r->mr[slot], e);
}

static void leave(struct dr_staged *f, struct stage_ring *r, unsigned slot)
{
	if (r->mr[slot] && f->prm.inner->mr_dereg(f->rail[slot]->inner, r->mr[slot]))
		r->kept = true;
	r->mr[slot] = NULL;
}

static void destroy(struct dr_staged *f, struct stage_ring *r)
{
	for (unsigned i = 0; i < DR_STAGED_RAILS_MAX; i++)
		leave(f, r, i);
	if (r->kept) {
		f->kept++;
		dr_error("staged",
			"%zu bytes of pinned memory stay allocated until the process ends: a NIC or a "
			"copy may still access them, since a fence, the destruction of a connection or "
			"a deregistration failed",
			r->size);
	} else {
		f->prm.copy->release(f->prm.arg, r->mem, r->size);
	}
	dr_free(r);
}

/* On all open rails, so that no path has to wait for that. */
static int make(struct dr_staged *f, struct stage_ring **out, struct dr_err *e)
{
	struct stage_ring *r = dr_calloc(1, sizeof(*r));
	void *mem;

	if (!r)
		return dr_err_set(e, -ENOMEM, "staging ring: out of memory");
	r->size = f->prm.ring_bytes;
	int rc = f->prm.copy->alloc(f->prm.arg, r->size, &mem, e);
	if (rc) {
		dr_free(r);
		return rc;
	}
	r->mem = mem;
	for (unsigned i = 0; i < DR_STAGED_RAILS_MAX && rc == 0; i++)
		if (f->rail[i])
			rc = enrol(f, r, i, e);
	if (rc) {
		destroy(f, r);
		dr_err_prefix(e, "staging ring of %zu bytes", f->prm.ring_bytes);
		return rc;
	}
	*out = r;
	return 0;
}

int dr_stage_ring_take(
	struct dr_staged *f, unsigned slot, struct stage_ring **out, struct dr_err *e)
{
	struct stage_ring *r = f->idle;
	int rc = r ? 0 : make(f, &r, e);

	if (rc == 0 && !f->idle)
		f->idle = r;
	if (rc == 0)
		rc = enrol(
			f, r, slot, e); /* the rail may have been opened after the ring was made */
	if (rc)
		return rc;
	f->idle = r->next;
	r->next = NULL;
	*out = r;
	return 0;
}

void dr_stage_ring_put(struct dr_staged *f, struct stage_ring *r, bool stuck)
{
	struct stage_ring **list = stuck ? &f->stuck : &f->idle;

	r->first = r->end = 0;
	r->kept |= stuck;
	r->next = *list;
	*list = r;
}

void dr_stage_rings_drop(struct dr_staged *f, unsigned slot, bool last)
{
	struct stage_ring *r;

	for (r = f->idle; r; r = r->next)
		leave(f, r, slot);
	for (r = f->stuck; r; r = r->next)
		leave(f, r, slot);
	while (last && (r = f->idle)) {
		f->idle = r->next;
		destroy(f, r);
	}
	while (last && (r = f->stuck)) {
		f->stuck = r->next;
		destroy(f, r);
	}
}

int dr_staged_reserve(struct dr_staged *f, unsigned n, struct dr_err *e)
{
	struct stage_ring *r = f->idle;

	for (; r && n > 0; r = r->next)
		n--;
	for (; n > 0; n--) {
		int rc = make(f, &r, e);
		if (rc)
			return rc;
		dr_stage_ring_put(f, r, false);
	}
	return 0;
}
