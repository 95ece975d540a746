/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/nic_list.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

void dr_nic_set(struct dr_nic *out, const struct sockaddr_storage *addr, unsigned prefix,
	unsigned nic, unsigned rank)
{
	*out = (struct dr_nic){ .nic = (uint8_t)nic, .rank = (uint8_t)rank };
	if (dr_prefix_of((const struct sockaddr *)addr, prefix, &out->addr))
		out->rank = DR_NIC_NONE;
}

json_t *dr_nics_to_json(const struct dr_nic *nic, unsigned n)
{
	json_t *list = json_array();
	char text[64];

	for (unsigned i = 0; list && i < n; i++) {
		dr_prefix_format(&nic[i].addr, text, sizeof(text));
		if (json_array_append_new(
			    list, json_pack("[s,i,i]", text, nic[i].nic, nic[i].rank)) == 0)
			continue;
		json_decref(list);
		list = NULL;
	}
	return list;
}

int dr_nics_from_json(const json_t *j, struct dr_nic *out, struct dr_err *e)
{
	size_t n = json_array_size(j);

	for (size_t i = 0; i < n && n <= DR_NICS_MAX; i++) {
		const char *text;
		int nic, rank;

		if (json_unpack(json_array_get(j, i), "[s,i,i!]", &text, &nic, &rank) || nic < 0 ||
			nic >= DR_NICS_MAX || rank < 0 || rank > DR_NIC_NONE ||
			dr_prefix_parse(text, &out[i].addr))
			return dr_err_set(
				e, -EPROTO, "the peer's offer: address %zu is malformed", i);
		out[i] = (struct dr_nic){ out[i].addr, (uint8_t)nic, (uint8_t)rank, false, NULL };
	}
	return n && n <= DR_NICS_MAX
		       ? (int)n
		       : dr_err_set(e, -EPROTO, "the peer's offer has %zu addresses", n);
}

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

/* One end. */
struct side {
	const struct dr_nic *entry;
	unsigned n, n_nics;
	bool named;
	uint8_t nic[DR_NICS_MAX];	 /* of each entry: 0, 1... in their order */
	uint8_t rank[DR_NICS_MAX];	 /* of each entry, beside the other end */
	unsigned first[DR_NICS_MAX + 1]; /* entry of each NIC; then the number of entries */
	int with[DR_NICS_MAX];		 /* of each NIC: the other end's, -1: none */
};

static void open_side(struct side *s, const struct dr_nic *entry, unsigned n)
{
	dr_assert(n <= DR_NICS_MAX);
	*s = (struct side){ .entry = entry, .n = n };
	memset(s->with, -1, sizeof(s->with));
	for (unsigned i = 0; i < n; i++) {
		if (i == 0 || entry[i].nic != entry[i - 1].nic)
			s->first[s->n_nics++] = i;
		s->nic[i] = (uint8_t)(s->n_nics - 1);
		s->rank[i] = entry[i].rank;
		s->named |= entry[i].named;
	}
	s->first[s->n_nics] = n;
}

/* Does the end have this very address? */
static bool has(const struct side *s, const struct dr_prefix *addr)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->entry[i].addr.family == addr->family &&
			memcmp(s->entry[i].addr.addr, addr->addr, sizeof(addr->addr)) == 0)
			return true;
	return false;
}

static bool is_part_of(const struct side *s, const struct side *of)
{
	for (unsigned i = 0; i < s->n; i++)
		if (!has(of, &s->entry[i].addr))
			return false;
	return true;
}

static void leave_out_shared(struct side *s, const struct side *of)
{
	for (unsigned i = 0; i < s->n; i++)
		if (has(of, &s->entry[i].addr))
			s->rank[i] = DR_NIC_NONE;
}

/* State of the search. */
struct pairing {
	struct side a, b;
	unsigned n;
};

enum sort { DIRECT = 1, ROUTED = 2 };

static unsigned sort_of(const struct pairing *p, unsigned i, unsigned j)
{
	if (dr_nic_same_subnet(&p->a.entry[i], &p->b.entry[j]))
		return DIRECT;
	return reach_each_other(&p->a.entry[i], &p->b.entry[j]) ? ROUTED : 0;
}

/* The first addresses by which NIC x of a and NIC y of b make a pair, direct ones before routed
 * ones. */
static bool joins(const struct pairing *p, unsigned x, unsigned y, unsigned sorts, unsigned rank,
	struct dr_nic_pair *out)
{
	bool found = false;

	for (unsigned i = p->a.first[x]; i < p->a.first[x + 1]; i++)
		for (unsigned j = p->b.first[y]; j < p->b.first[y + 1]; j++) {
			unsigned sort = DR_MAX(p->a.rank[i], p->b.rank[j]) > rank
						? 0
						: sort_of(p, i, j) & sorts;

			if (!sort || (found && sort == ROUTED))
				continue;
			*out = (struct dr_nic_pair){ i, j, sort == ROUTED };
			found = true;
			if (sort == DIRECT)
				return true;
		}
	return found;
}

/*
 * Maximum bipartite matching by augmenting paths (Kuhn's algorithm): a NIC that finds its only
 * partner taken makes the earlier one look for another. Free partners come first, so that a pair is
 * only re-paired where it has to be.
 */
struct matching {
	unsigned n_b;
	bool fits[DR_NICS_MAX][DR_NICS_MAX];
	int partner_of_b[DR_NICS_MAX]; /* -1: none */
	bool tried[DR_NICS_MAX];       /* of b's, in this search */
};

static bool augment(struct matching *m, unsigned i)
{
	for (unsigned j = 0; j < m->n_b; j++)
		if (m->fits[i][j] && m->partner_of_b[j] < 0) {
			m->partner_of_b[j] = (int)i;
			return true;
		}
	for (unsigned j = 0; j < m->n_b; j++) {
		if (!m->fits[i][j] || m->tried[j])
			continue;
		m->tried[j] = true;
		if (augment(m, (unsigned)m->partner_of_b[j])) {
			m->partner_of_b[j] = (int)i;
			return true;
		}
	}
	return false;
}

static void take(struct pairing *p, unsigned x, unsigned y)
{
	p->a.with[x] = (int)y;
	p->b.with[y] = (int)x;
	p->n++;
}

/* Add the largest number of further pairs of these sorts. */
static void match(struct pairing *p, unsigned sorts, unsigned rank)
{
	struct matching m = { .n_b = p->b.n_nics };
	struct dr_nic_pair ignored;

	memset(m.partner_of_b, -1, sizeof(m.partner_of_b));
	for (unsigned x = 0; x < p->a.n_nics; x++)
		for (unsigned y = 0; y < p->b.n_nics && p->a.with[x] < 0; y++)
			m.fits[x][y] = p->b.with[y] < 0 && joins(p, x, y, sorts, rank, &ignored);
	for (unsigned x = 0; x < p->a.n_nics; x++) {
		memset(m.tried, 0, sizeof(m.tried));
		(void)augment(&m, x);
	}
	for (unsigned y = 0; y < p->b.n_nics; y++)
		if (m.partner_of_b[y] >= 0)
			take(p, (unsigned)m.partner_of_b[y], y);
}

/* The best sort and rank first. all: until each NIC of a has a partner, else until there is a
 * pair. */
static void match_in_steps(struct pairing *p, bool all)
{
	for (unsigned step = 0; step < 4 && (all || p->n == 0); step++)
		match(p, step < 2 ? DIRECT : ROUTED, step % 2 ? DR_NIC_SLOW : DR_NIC_RAIL);
}

static void match_all(struct pairing *p)
{
	match_in_steps(p, true);
	if (p->n == p->a.n_nics)
		return;
	p->n = 0;
	memset(p->a.with, -1, sizeof(p->a.with));
	memset(p->b.with, -1, sizeof(p->b.with));
	match(p, DIRECT | ROUTED, DR_NIC_SLOW);
}

static int compare(const struct dr_nic *x, const struct dr_nic *y)
{
	return memcmp(x->addr.addr, y->addr.addr, sizeof(x->addr.addr));
}

/* The routed pair with the lowest addresses, so that it does not depend on how devices are numbered. */
static void add_one_routed(struct pairing *p)
{
	const struct dr_nic *a = p->a.entry, *b = p->b.entry;
	struct dr_nic_pair best = { 0 }, pair;
	bool found = false;

	for (unsigned x = 0; x < p->a.n_nics; x++)
		for (unsigned y = 0; y < p->b.n_nics; y++) {
			if (p->a.with[x] >= 0 || p->b.with[y] >= 0 ||
				!joins(p, x, y, ROUTED, DR_NIC_RAIL, &pair))
				continue;
			int c = found ? compare(&a[pair.a], &a[best.a]) : -1;
			if (c < 0 || (c == 0 && compare(&b[pair.b], &b[best.b]) < 0))
				best = pair;
			found = true;
		}
	if (found)
		take(p, p->a.nic[best.a], p->b.nic[best.b]);
}

static bool has_partner(const struct side *s, const struct dr_nic *nic)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->rank[i] == DR_NIC_RAIL && dr_nic_same_subnet(&s->entry[i], nic))
			return true;
	return false;
}

/* A management NIC of s is a rail if a rail of the other end would have no direct partner
 * otherwise. */
static void follow(struct side *s, const struct side *o)
{
	bool alone[DR_NICS_MAX] = { false };

	for (unsigned e = 0; e < o->n; e++)
		alone[o->nic[e]] |= o->rank[e] == DR_NIC_RAIL;
	for (unsigned e = 0; e < o->n; e++)
		if (has_partner(s, &o->entry[e]))
			alone[o->nic[e]] = false;
	for (unsigned i = 0; i < s->n; i++)
		for (unsigned e = 0; s->rank[i] == DR_NIC_MANAGEMENT && e < o->n; e++)
			if (alone[o->nic[e]] && o->rank[e] == DR_NIC_RAIL &&
				dr_nic_same_subnet(&s->entry[i], &o->entry[e]))
				s->rank[i] = DR_NIC_RAIL;
}

unsigned dr_nic_pair_up(const struct dr_nic *a, unsigned n_a, const struct dr_nic *b, unsigned n_b,
	struct dr_nic_pair *out)
{
	struct pairing p = { .n = 0 };
	unsigned n = 0;

	open_side(&p.a, a, n_a);
	open_side(&p.b, b, n_b);
	if (!p.a.named && !p.b.named && !is_part_of(&p.a, &p.b) && !is_part_of(&p.b, &p.a)) {
		leave_out_shared(&p.a, &p.b);
		leave_out_shared(&p.b, &p.a);
	}
	follow(&p.b, &p.a);
	if (p.b.named)
		follow(&p.a, &p.b);
	if (p.a.named)
		match_all(&p);
	else
		match_in_steps(&p, false);
	if (!p.a.named && p.n == 1)
		add_one_routed(&p);
	for (unsigned x = 0; x < p.a.n_nics; x++)
		if (p.a.with[x] >= 0 &&
			joins(&p, x, (unsigned)p.a.with[x], DIRECT | ROUTED, DR_NIC_SLOW, &out[n]))
			n++;
	return n;
}
