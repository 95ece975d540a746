/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/nic_list.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

bool dr_nic_same_subnet(const struct dr_nic *a, const struct dr_nic *b)
{
	return dr_prefix_holds(a->addr.bits >= b->addr.bits ? &a->addr : &b->addr,
		a->addr.bits >= b->addr.bits ? &b->addr : &a->addr);
}

static bool leads_to(const struct dr_routes *routes, const struct dr_nic *to)
{
	if (!routes || !routes->known)
		return true;
	for (unsigned i = 0; i < routes->n; i++)
		if (dr_prefix_holds(&routes->to[i], &to->addr))
			return true;
	return false;
}

static bool reach_each_other(const struct dr_nic *a, const struct dr_nic *b)
{
	return a->addr.family == b->addr.family && leads_to(a->routes, b) && leads_to(b->routes, a);
}

/*
 * Maximum bipartite matching by augmenting paths (Kuhn's algorithm; 16 x 16 at most): a NIC that finds
 * its only partner taken makes the earlier one look for another. fits[i] is the set of partners of
 * a's NIC i. Free partners come first, so that a pair is only re-paired where it has to be.
 */
struct matching {
	unsigned n_b;
	uint32_t fits[DR_NICS_MAX];
	int partner_of_b[DR_NICS_MAX]; /* -1: none */
	uint32_t tried;		       /* of b's, in this search */
};

static bool augment(struct matching *m, unsigned i)
{
	for (unsigned j = 0; j < m->n_b; j++)
		if ((m->fits[i] & 1u << j) && m->partner_of_b[j] < 0) {
			m->partner_of_b[j] = (int)i;
			return true;
		}
	for (unsigned j = 0; j < m->n_b; j++) {
		if (!(m->fits[i] & 1u << j) || (m->tried & 1u << j))
			continue;
		m->tried |= 1u << j;
		if (augment(m, (unsigned)m->partner_of_b[j])) {
			m->partner_of_b[j] = (int)i;
			return true;
		}
	}
	return false;
}

/* State of the search: the pairs found so far and their NICs. */
struct pairing {
	const struct dr_nic *a, *b;
	unsigned n_a, n_b;
	int with[DR_NICS_MAX]; /* by a: position in b, or -1 */
	uint32_t used_b;
	unsigned n;
};

static void begin(struct pairing *p)
{
	p->n = p->used_b = 0;
	for (unsigned i = 0; i < p->n_a; i++)
		p->with[i] = -1;
}

static void take(struct pairing *p, unsigned i, unsigned j)
{
	p->with[i] = (int)j;
	p->used_b |= 1u << j;
	p->n++;
}

enum sort { DIRECT = 1, ROUTED = 2 };

static bool fits(const struct pairing *p, unsigned i, unsigned j, unsigned sorts, bool spares)
{
	if (p->with[i] >= 0 || (p->used_b & 1u << j))
		return false;
	if (!spares && (p->a[i].spare || p->b[j].spare))
		return false;
	if (dr_nic_same_subnet(&p->a[i], &p->b[j]))
		return sorts & DIRECT;
	return (sorts & ROUTED) && reach_each_other(&p->a[i], &p->b[j]);
}

/* Add the largest number of further pairs of these kinds. */
static void match(struct pairing *p, unsigned sorts, bool spares)
{
	struct matching m = { .n_b = p->n_b };

	for (unsigned j = 0; j < p->n_b; j++)
		m.partner_of_b[j] = -1;
	for (unsigned i = 0; i < p->n_a; i++)
		for (unsigned j = 0; j < p->n_b; j++)
			m.fits[i] |= fits(p, i, j, sorts, spares) ? 1u << j : 0;
	for (unsigned i = 0; i < p->n_a; i++) {
		m.tried = 0;
		(void)augment(&m, i);
	}
	for (unsigned j = 0; j < p->n_b; j++)
		if (m.partner_of_b[j] >= 0)
			take(p, (unsigned)m.partner_of_b[j], j);
}

static int compare(const struct dr_nic *x, const struct dr_nic *y)
{
	return memcmp(x->addr.addr, y->addr.addr, sizeof(x->addr.addr));
}

/* The routed pair with the lowest addresses, so that it does not depend on how devices are numbered. */
static void add_one_routed(struct pairing *p)
{
	int best_a = -1, best_b = -1;

	for (unsigned i = 0; i < p->n_a; i++)
		for (unsigned j = 0; j < p->n_b; j++) {
			if (!fits(p, i, j, ROUTED, false))
				continue;
			int c = best_a < 0 ? -1 : compare(&p->a[i], &p->a[best_a]);
			if (c < 0 || (c == 0 && compare(&p->b[j], &p->b[best_b]) < 0)) {
				best_a = (int)i;
				best_b = (int)j;
			}
		}
	if (best_a >= 0)
		take(p, (unsigned)best_a, (unsigned)best_b);
}

/* A partner for each NIC of a: better kinds first; if one remains without a partner, of any kind. */
static void match_all(struct pairing *p)
{
	for (unsigned step = 0; step < 4; step++)
		match(p, step < 2 ? DIRECT : ROUTED, step % 2);
	if (p->n == p->n_a)
		return;
	begin(p);
	match(p, DIRECT | ROUTED, true);
}

/* The best kind available; a single direct rail gets a routed one as its shadow. */
static void match_best(struct pairing *p)
{
	for (unsigned step = 0; step < 4 && p->n == 0; step++)
		match(p, step < 2 ? DIRECT : ROUTED, step % 2);
	if (p->n == 1)
		add_one_routed(p);
}

unsigned dr_nic_pair_up(const struct dr_nic *a, unsigned n_a, const struct dr_nic *b, unsigned n_b,
	enum dr_nic_want want, struct dr_nic_pair *out)
{
	struct pairing p = { .a = a, .b = b, .n_a = n_a, .n_b = n_b };
	unsigned n = 0;

	dr_assert(n_a <= DR_NICS_MAX && n_b <= DR_NICS_MAX);
	begin(&p);
	if (want == DR_NIC_WANT_ALL)
		match_all(&p);
	else
		match_best(&p);
	for (unsigned i = 0; i < n_a; i++) {
		unsigned j = (unsigned)p.with[i];

		if (p.with[i] >= 0)
			out[n++] = (struct dr_nic_pair){ i, j, !dr_nic_same_subnet(&a[i], &b[j]) };
	}
	return n;
}
