/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two lists of NICs are paired up: every NIC once, direct pairs share a subnet and routed ones do
 * not, and either end finds as many direct pairs, or partners for all.
 */
#include "tests/fuzz/lib/fuzz.h"
#include "topology/nic_list.h"

#include <netinet/in.h>

enum { LIST_MAX = 16 };
struct list {
	struct dr_nic nic[LIST_MAX];
	struct dr_routes routes[LIST_MAX];
	unsigned n;
};

/* Few different addresses, so that there is much to choose from. */
static void prefix(struct fz *z, struct dr_prefix *out)
{
	uint8_t v = fz_u8(z);

	*out = (struct dr_prefix){ .family = v & 1 ? AF_INET6 : AF_INET };
	out->bits = (uint8_t)(8 + (v >> 1 & 3) * 6);
	out->addr[0] = 10;
	out->addr[1] = v >> 3 & 3;
	out->addr[2] = v >> 5;
}

static void make(struct fz *z, struct list *l)
{
	l->n = fz_u8(z) % (LIST_MAX + 1);
	for (unsigned i = 0; i < l->n; i++) {
		uint8_t v = fz_u8(z);

		l->nic[i] = (struct dr_nic){ .nic = (uint8_t)i,
			.rank = v & 1 ? DR_NIC_SLOW + (v >> 4 & 1) : DR_NIC_RAIL };
		/* A further address of the NIC before, which has one rank. */
		if (i && (v & 0x60) == 0x60) {
			l->nic[i].nic = l->nic[i - 1].nic;
			l->nic[i].rank = l->nic[i - 1].rank;
		}
		prefix(z, &l->nic[i].addr);
		l->routes[i] = (struct dr_routes){ .known = v & 2 };
		while (l->routes[i].n < (v >> 2 & 3))
			prefix(z, &l->routes[i].to[l->routes[i].n++]);
		l->nic[i].routes = v & 0x80 ? NULL : &l->routes[i];
	}
}

/* Returns the pairs, or the direct ones alone. */
static unsigned pair_up(struct list *a, const struct list *b, bool all, bool direct_only)
{
	struct dr_nic_pair p[DR_NICS_MAX];
	unsigned direct = 0;
	bool seen[LIST_MAX] = { false };

	for (unsigned i = 0; i < a->n; i++)
		a->nic[i].named = all;
	unsigned n = dr_nic_pair_up(a->nic, a->n, b->nic, b->n, p);

	dr_assert(n <= DR_MIN(a->n, b->n));
	for (unsigned i = 0; i < n; i++) {
		const struct dr_nic *x = &a->nic[p[i].a], *y = &b->nic[p[i].b];

		dr_assert(p[i].a < a->n && p[i].b < b->n && (i == 0 || p[i].a > p[i - 1].a));
		dr_assert(!seen[y->nic] && (i == 0 || x->nic != a->nic[p[i - 1].a].nic));
		dr_assert(x->rank != DR_NIC_NONE && y->rank != DR_NIC_NONE);
		seen[y->nic] = true;
		dr_assert(dr_nic_same_subnet(x, y) == !p[i].routed);
		direct += !p[i].routed;
	}
	dr_assert(all || direct == 0 || n - direct <= 1);
	return direct_only ? direct : n;
}

static unsigned nics(const struct list *l)
{
	unsigned n = 0;

	for (unsigned i = 0; i < l->n; i++)
		n += i == 0 || l->nic[i].nic != l->nic[i - 1].nic;
	return n;
}

FUZZ(z)
{
	struct list a, b;

	make(z, &a);
	make(z, &b);
	dr_assert(pair_up(&a, &b, false, true) == pair_up(&b, &a, false, true));
	unsigned n = pair_up(&a, &b, true, false);
	for (unsigned i = 0; i < a.n; i++)
		a.nic[i].named = false;
	if (n == nics(&a))
		dr_assert(pair_up(&b, &a, true, false) >= n);
}
