/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * The shadow-stamp checker. Two sets of byte ranges: `returned`, what DELIVERED or FENCED gave back and
 * nobody posted again, and `users`, what the harness said its user has back. A write must hit neither,
 * a read not `users`. A buffer posted on two paths is returned by the first that delivers it: a late
 * write of the other one is the very bug that the second fence is there to prevent.
 */

void sim_violation(struct dr_sim_world *w, const char *fmt, ...)
{
	va_list ap;

	if (w->violations++)
		return;
	int n = snprintf(w->violation, sizeof(w->violation), "at %lld ns: ", (long long)w->now);
	va_start(ap, fmt);
	(void)vsnprintf(w->violation + n, sizeof(w->violation) - (size_t)n, fmt, ap);
	va_end(ap);
}

uint64_t dr_sim_world_violations(const struct dr_sim_world *w)
{
	return w->violations;
}

const char *dr_sim_world_violation(const struct dr_sim_world *w)
{
	return w->violation;
}

/* The ranges are disjoint, do not touch, and are sorted. Returns the first that ends at a or later. */
static size_t first_from(const struct sim_ranges *l, uintptr_t a)
{
	size_t low = 0, high = l->n;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (l->r[mid].b < a)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* n ranges from i on become those of `with`. */
static void replace(
	struct sim_ranges *l, size_t i, size_t n, const struct sim_range *with, size_t n_with)
{
	if (l->n + n_with > l->cap) {
		l->cap = l->cap ? 2 * l->cap : 32;
		l->r = dr_realloc(l->r, l->cap * sizeof(*l->r));
		dr_assert(l->r != NULL);
	}
	memmove(&l->r[i + n_with], &l->r[i + n], (l->n - i - n) * sizeof(*l->r));
	memcpy(&l->r[i], with, n_with * sizeof(*with));
	l->n += n_with - n;
}

void sim_ranges_add(struct sim_ranges *l, uintptr_t a, uintptr_t b)
{
	size_t i = first_from(l, a), n = 0;
	struct sim_range all = { a, b };

	if (a == b)
		return;
	for (; i + n < l->n && l->r[i + n].a <= b; n++) {
		all.a = DR_MIN(all.a, l->r[i + n].a);
		all.b = DR_MAX(all.b, l->r[i + n].b);
	}
	replace(l, i, n, &all, 1);
}

void sim_ranges_del(struct sim_ranges *l, uintptr_t a, uintptr_t b)
{
	size_t i = first_from(l, a + 1), n = 0, kept = 0;
	struct sim_range rest[2];

	for (; i + n < l->n && l->r[i + n].a < b; n++) {
		const struct sim_range *r = &l->r[i + n];

		if (r->a < a)
			rest[kept++] = (struct sim_range){ r->a, a };
		if (r->b > b)
			rest[kept++] = (struct sim_range){ b, r->b };
	}
	if (n > 0)
		replace(l, i, n, rest, kept);
}

bool sim_ranges_hit(const struct sim_ranges *l, uintptr_t a, uintptr_t b)
{
	size_t i = first_from(l, a + 1);

	return i < l->n && l->r[i].a < b;
}

void dr_sim_world_give_back(struct dr_sim_world *w, const void *base, size_t len)
{
	sim_ranges_add(&w->users, (uintptr_t)base, (uintptr_t)base + len);
}

void dr_sim_world_take(struct dr_sim_world *w, const void *base, size_t len)
{
	sim_ranges_del(&w->users, (uintptr_t)base, (uintptr_t)base + len);
}

static uintptr_t part_at(const struct dr_part *part)
{
	return (uintptr_t)part->mr->base + part->off;
}

void sim_check_post(struct sim_path *p, const struct dr_part *part, const char *what)
{
	uintptr_t a = part_at(part);

	if (&part->mr->rail->base != p->base.rail)
		sim_violation(
			p->w, "node %u posts a %s with memory of another rail", p->node, what);
	if (part->off > part->mr->len || part->len > part->mr->len - part->off)
		sim_violation(p->w, "node %u posts a %s outside its memory region", p->node, what);
	if (sim_ranges_hit(&p->w->users, a, a + part->len))
		sim_violation(
			p->w, "node %u posts a %s in memory that its user has back", p->node, what);
	if (!p->par.sender)
		sim_ranges_del(&p->w->returned, a, a + part->len);
}

void sim_check_write(struct sim_path *p, const void *to, size_t len, uint64_t seq, unsigned part)
{
	uintptr_t a = (uintptr_t)to;

	if (sim_ranges_hit(&p->w->returned, a, a + len) || sim_ranges_hit(&p->w->users, a, a + len))
		sim_violation(p->w,
			"rail %u channel %u path %u gen %u: seq %llu part %u is written into memory that "
			"was given back",
			p->base.rail->index, p->par.channel, p->par.index, p->par.gen,
			(unsigned long long)seq, part);
}

void sim_check_read(struct dr_sim_world *w, const void *from, size_t len, uint64_t seq)
{
	uintptr_t a = (uintptr_t)from;

	if (sim_ranges_hit(&w->users, a, a + len))
		sim_violation(w, "seq %llu is read from memory that its user has back",
			(unsigned long long)seq);
}

void sim_check_again(struct dr_sim_world *w, const struct sim_seg *s)
{
	if (s->kind != SIM_SEG_DATA || s->copy || s->len == 0 || !s->src)
		return;
	w->counts.read_again++;
	sim_check_read(w, s->src, s->len, s->credit.seq);
}

static bool posting_has(const struct sim_posting *x, uintptr_t a, uintptr_t b)
{
	for (unsigned m = 0; m < x->n; m++)
		if (!(x->reported & (1u << m)) && part_at(&x->part[m]) < b &&
			a < part_at(&x->part[m]) + x->part[m].len)
			return true;
	return false;
}

static bool path_has(const struct sim_path *p, uintptr_t a, uintptr_t b)
{
	if (p->fence == SIM_FENCE_DONE || p->stopped)
		return false;
	for (const struct sim_wr *wr = TAILQ_FIRST(&p->wrs); wr; wr = TAILQ_NEXT(wr, next))
		if ((uintptr_t)wr->src < b && a < (uintptr_t)wr->src + wr->len)
			return true;
	for (unsigned k = 0; k < p->post_n; k++)
		if (posting_has(&p->posted[(p->post_head + k) % p->w->o.recv_depth], a, b))
			return true;
	return false;
}

void dr_sim_world_check_idle(struct dr_sim_world *w, unsigned node, const void *base, size_t len)
{
	for (const struct sim_rail *r = w->rails[node]; r; r = r->next)
		for (const struct sim_path *p = r->paths; p; p = p->next)
			if (path_has(p, (uintptr_t)base, (uintptr_t)base + len))
				sim_violation(w,
					"node %u: a buffer goes back to its user while channel %u path %u "
					"gen %u has it posted",
					node, p->par.channel, p->par.index, p->par.gen);
}

static bool posted_elsewhere(const struct sim_path *p, uintptr_t a, uintptr_t b)
{
	for (const struct sim_rail *r = p->w->rails[p->node]; r; r = r->next)
		for (const struct sim_path *q = r->paths; q; q = q->next)
			for (unsigned k = 0; q != p && !q->down && k < q->post_n; k++)
				if (posting_has(&q->posted[(q->post_head + k) % p->w->o.recv_depth],
					    a, b))
					return true;
	return false;
}

void sim_return_part(struct sim_path *p, const struct dr_part *part, bool delivered)
{
	uintptr_t a = part_at(part), b = a + part->len;

	if (delivered || !posted_elsewhere(p, a, b))
		sim_ranges_add(&p->w->returned, a, b);
}

void sim_return_postings(struct sim_path *p)
{
	unsigned depth = p->w->o.recv_depth;

	for (unsigned k = 0; k < p->post_n; k++) {
		struct sim_posting *x = &p->posted[(p->post_head + k) % depth];

		for (unsigned m = 0; m < x->n; m++)
			if (!(x->reported & (1u << m)))
				sim_return_part(p, &x->part[m], false);
	}
	p->post_n = 0;
}

static bool are_peers(const struct dr_path_ident *me, const struct dr_path_ident *peer)
{
	return me->channel == peer->channel && me->index == peer->index && me->gen == peer->gen &&
	       me->sender != peer->sender && me->connector != peer->connector;
}

/* A path that comes up is joined to the path of the same channel, index and generation at the other end. */
void sim_check_peers(struct sim_path *p)
{
	const struct sim_conn *c = p->conn;
	const struct dr_path_ident *me = &c->id[p->node], *peer = &c->id[!p->node];

	if (!c->known[!p->node])
		sim_violation(p->w,
			"path %u of channel %u gen %u of node %u is up, and its peer is no path",
			me->index, me->channel, me->gen, p->node);
	else if (!are_peers(me, peer))
		sim_violation(p->w,
			"path %u of channel %u gen %u of node %u is up with path %u of channel %u gen %u",
			me->index, me->channel, me->gen, p->node, peer->index, peer->channel,
			peer->gen);
}

void sim_check_target(struct sim_path *p, uint32_t qpn)
{
	const struct dr_path_ident *me = &p->verbs.id;

	if (qpn < 1 || qpn > p->w->n_qps || !are_peers(me, &p->w->qp[qpn - 1].owner) ||
		p->w->qp[qpn - 1].port != sim_rail_of(p->base.rail)->port)
		sim_violation(p->w,
			"path %u of channel %u gen %u of node %u is led to queue pairs of another path",
			me->index, me->channel, me->gen, p->node);
}

static bool comes_up(const struct sim_path *p, int64_t since_ns)
{
	return p->connect_at > 0 && p->connect_at >= since_ns && !p->broken && !p->closed &&
	       p->fence == SIM_FENCE_NO;
}

static bool same_path(const struct sim_path *a, const struct sim_path *b)
{
	return a->par.channel == b->par.channel && a->par.index == b->par.index &&
	       a->par.gen == b->par.gen;
}

struct dr_path *dr_sim_hanging(struct dr_sim_world *w, int64_t since_ns, int64_t for_ns)
{
	for (const struct sim_rail *r = w->rails[0]; r; r = r->next) {
		const struct sim_rail *peer = w->rail[1][r->port][r->base.index];

		for (struct sim_path *a = r->paths; peer && a; a = a->next)
			for (struct sim_path *b = peer->paths; b; b = b->next)
				if (same_path(a, b) && !(a->ready && b->ready) &&
					comes_up(a, since_ns) && comes_up(b, since_ns) &&
					DR_MAX(a->connect_at, b->connect_at) + for_ns <= w->now)
					return &b->base;
	}
	return NULL;
}
