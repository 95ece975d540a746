/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two lists of NICs are paired up: every NIC once, direct pairs share a subnet and routed ones do
 * not, and either end finds as many direct pairs, or partners for all.
 */
#include "tests/fuzz/lib/fuzz.h"
#include "topology/nic_list.h"

#include <netinet/in.h>

struct list {
	struct dr_nic nic[DR_NICS_MAX];
	struct dr_routes routes[DR_NICS_MAX];
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
	l->n = fz_u8(z) % (DR_NICS_MAX + 1);
	for (unsigned i = 0; i < l->n; i++) {
		uint8_t v = fz_u8(z);

		l->nic[i] = (struct dr_nic){ .number = (uint16_t)i, .spare = v & 1 };
		prefix(z, &l->nic[i].addr);
		l->routes[i] = (struct dr_routes){ .known = v & 2 };
		while (l->routes[i].n < (v >> 2 & 3))
			prefix(z, &l->routes[i].to[l->routes[i].n++]);
		l->nic[i].routes = v & 0x80 ? NULL : &l->routes[i];
	}
}

/* Returns the pairs, or the direct ones alone. */
static unsigned pair_up(
	const struct list *a, const struct list *b, enum dr_nic_want want, bool direct_only)
{
	struct dr_nic_pair p[DR_NICS_MAX];
	unsigned n = dr_nic_pair_up(a->nic, a->n, b->nic, b->n, want, p), direct = 0;
	uint32_t seen = 0;

	dr_assert(n <= DR_MIN(a->n, b->n));
	for (unsigned i = 0; i < n; i++) {
		dr_assert(p[i].a < a->n && p[i].b < b->n && (i == 0 || p[i].a > p[i - 1].a));
		dr_assert(!(seen & 1u << p[i].b));
		seen |= 1u << p[i].b;
		dr_assert(dr_nic_same_subnet(&a->nic[p[i].a], &b->nic[p[i].b]) == !p[i].routed);
		direct += !p[i].routed;
	}
	dr_assert(want == DR_NIC_WANT_ALL || direct == 0 || n - direct <= 1);
	return direct_only ? direct : n;
}

FUZZ(z)
{
	struct list a, b;

	make(z, &a);
	make(z, &b);
	dr_assert(
		pair_up(&a, &b, DR_NIC_WANT_AUTO, true) == pair_up(&b, &a, DR_NIC_WANT_AUTO, true));
	if (pair_up(&a, &b, DR_NIC_WANT_ALL, false) == a.n)
		dr_assert(pair_up(&b, &a, DR_NIC_WANT_ALL, false) >= a.n);
}
