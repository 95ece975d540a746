/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes in: the inner path delivers into a span of the ring, the part is copied into the user's
 * memory, then reported. Invariants:
 *  1. DELIVERED goes up in the order in which the inner path delivered, parts that need no copy
 *     included, each when its copy is done.
 *  2. A span belongs to its part from post_recv until the part was reported, or a fence.
 */
#include "transport/staged/staged_priv.h"

#include <errno.h>

static struct stage_arrival *at(struct stage_rx *x, uint64_t count)
{
	return &x->arrived[count % STAGE_PARTS];
}

/* ---- posting ---- */

/* Spans for the parts that will be copied. */
static int take_spans(struct staged_path *p, struct stage_recv *v, unsigned n)
{
	int rc = 0;

	for (unsigned i = 0; i < n && rc == 0; i++) {
		const struct dr_part *what = &v->part[i].what;

		v->part[i].span = STAGE_NO_SPAN;
		if (what->mr->inner)
			continue;
		if (what->len > p->f->prm.ring_bytes)
			return -EMSGSIZE;
		if (!dr_stage_need_ring(p))
			return -EAGAIN;
		if (what->len > 0 && v->todo & 1u << i)
			rc = dr_stage_span(p->ring, what->len, &v->part[i].span);
	}
	return rc;
}

static void free_spans(struct staged_path *p, struct stage_recv *v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (v->part[i].span != STAGE_NO_SPAN)
			dr_stage_span_free(p->ring, v->part[i].span);
	v->todo = 0;
}

static bool in_bounds(const struct dr_part *parts, unsigned n, uint32_t skip)
{
	for (unsigned i = 0; i < n; i++)
		if (!(skip & 1u << i) && (parts[i].off > parts[i].mr->len ||
						 parts[i].len > parts[i].mr->len - parts[i].off))
			return false;
	return true;
}

int dr_stage_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	struct staged_path *p = staged_path(bp);
	struct dr_part inner[DR_PARTS_MAX];
	int rc = dr_stage_may_post(p);

	if (!p->rx || n < 1 || n > DR_PARTS_MAX || skip >> n || !in_bounds(parts, n, skip))
		return -EINVAL;
	struct stage_recv *v = &p->rx->posted[seq % STAGE_RECVS];
	if (rc || v->todo)
		return rc ? rc : -EAGAIN;
	*v = (struct stage_recv){ .epoch = epoch, .seq = seq, .todo = ((1u << n) - 1) & ~skip };
	for (unsigned i = 0; i < DR_PARTS_MAX; i++)
		v->part[i].span = STAGE_NO_SPAN;
	for (unsigned i = 0; i < n; i++)
		v->part[i].what = parts[i];
	rc = take_spans(p, v, n);
	for (unsigned i = 0; i < n && rc == 0; i++)
		inner[i] = dr_stage_inner_part(p, &parts[i], v->part[i].span);
	if (rc == 0)
		rc = p->f->prm.inner->post_recv(p->inner, epoch, seq, inner, n, skip);
	if (rc)
		free_spans(p, v, n);
	return rc;
}

/* ---- arrivals ---- */

static struct stage_recv *find(struct stage_rx *x, uint32_t epoch, uint64_t seq, unsigned part)
{
	struct stage_recv *v = &x->posted[seq % STAGE_RECVS];

	return v->todo & 1u << part && v->epoch == epoch && v->seq == seq ? v : NULL;
}

static void start_copies(struct staged_path *p)
{
	struct stage_rx *x = p->rx;

	for (; x->started < x->came; x->started++) {
		struct stage_arrival *a = at(x, x->started);
		struct stage_recv *v = find(x, a->epoch, a->seq, a->part);

		if (!a->known || a->len == 0 || v->part[a->part].span == STAGE_NO_SPAN)
			continue;
		if (!dr_stage_copy(p, DR_STAGE_IN, &v->part[a->part].what, a->len,
			    v->part[a->part].span, &a->ticket))
			return;
	}
}

void dr_stage_rx_came(struct staged_path *p, const struct dr_event *ev)
{
	struct stage_rx *x = p->rx;
	struct stage_recv *v = find(x, ev->epoch, ev->seq, ev->part);
	bool known = v && !(v->here & 1u << ev->part);

	dr_assert(x->came - x->told < STAGE_PARTS);
	if (known)
		v->here |= 1u << ev->part;
	*at(x, x->came++) = (struct stage_arrival){
		.epoch = ev->epoch, .seq = ev->seq, .part = ev->part, .len = ev->len, .known = known
	};
	dr_stage_rx_push(p);
}

static void done_with(struct staged_path *p, const struct stage_arrival *a)
{
	struct stage_recv *v = a->known ? find(p->rx, a->epoch, a->seq, a->part) : NULL;

	if (!v)
		return;
	v->todo &= ~(1u << a->part);
	if (v->part[a->part].span != STAGE_NO_SPAN)
		dr_stage_span_free(p->ring, v->part[a->part].span);
	v->part[a->part].span = STAGE_NO_SPAN;
}

void dr_stage_rx_push(struct staged_path *p)
{
	struct stage_rx *x = p->rx;

	if (p->failed || p->fail_due)
		return;
	start_copies(p);
	while (!p->failed && !p->closed && x->told < x->started &&
		dr_stage_done(p->f, DR_STAGE_IN, at(x, x->told)->ticket)) {
		const struct stage_arrival a = *at(x, x->told++);
		struct dr_event ev = { .kind = DR_EV_DELIVERED,
			.epoch = a.epoch,
			.seq = a.seq,
			.part = a.part,
			.len = a.len };

		done_with(p, &a);
		dr_path_emit(&p->base, &ev);
	}
}

bool dr_stage_rx_due(const struct staged_path *p)
{
	struct stage_rx *x = p->rx;

	if (x->started < x->came && p->seen[DR_STAGE_IN] != p->f->done[DR_STAGE_IN])
		return true;
	return x->told < x->started && dr_stage_done(p->f, DR_STAGE_IN, at(x, x->told)->ticket);
}
