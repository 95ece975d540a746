/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/fleet/verdict_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups of nodes ---- */

/* Union-find over nodes. */
static uint32_t root(uint32_t *up, uint32_t i)
{
	while (up[i] != i)
		i = up[i] = up[up[i]];
	return i;
}

/* Nodes that good figures of this NIC name join. Names are alike on the nodes of a fabric. */
static void join_good(const struct verdict_search *s, const char *nic, uint32_t *up)
{
	for (uint32_t r = 0; r < s->j->nodes; r++)
		up[r] = r;
	for (size_t i = 0; i < s->n; i++) {
		const struct figure *f = &s->f[i];

		if (!f->low && !f->explained && strcmp(verdict_nic(s, f->port[0]), nic) == 0)
			up[root(up, rank_of(f->port[0]))] = root(up, rank_of(f->port[1]));
	}
}

struct cut {
	uint32_t a, b; /* roots */
	uint64_t low;
	float lowest;
};

/* Low figures between two groups. */
static bool is_cut(const struct verdict_search *s, const struct figure *f, const char *nic,
	uint32_t *up, const struct cut *c)
{
	uint32_t x = root(up, rank_of(f->port[0])), y = root(up, rank_of(f->port[1]));

	return f->low && ((x == c->a && y == c->b) || (x == c->b && y == c->a)) &&
	       strcmp(verdict_nic(s, f->port[0]), nic) == 0;
}

static struct cut cut_of(
	const struct verdict_search *s, const char *nic, uint32_t *up, uint32_t a, uint32_t b)
{
	struct cut c = { a, b, 0, INFINITY };

	for (size_t i = 0; i < s->n; i++) {
		const struct figure *f = &s->f[i];

		if (f->explained || !is_cut(s, f, nic, up, &c))
			continue;
		c.low++;
		c.lowest = DR_MIN(c.lowest, f->gbps);
	}
	return c;
}

static void list_group(
	const struct verdict_search *s, uint32_t *up, uint32_t group, char *buf, size_t len)
{
	unsigned shown = 0;

	buf[0] = '\0';
	for (uint32_t r = 0; r < s->j->nodes; r++) {
		if (root(up, r) != group)
			continue;
		if (shown++ < 12)
			dr_append(buf, len, "%s%u", *buf ? "," : "", r);
	}
	if (shown > 12)
		dr_append(buf, len, " and %u more", shown - 12);
}

static void add_cut(struct verdict_search *s, const char *nic, uint32_t *up, const struct cut *c)
{
	struct dr_sweep_finding *x = verdict_add(s, DR_SWEEP_FABRIC_LINK, c->a, c->b);
	char a[64], b[64];

	list_group(s, up, c->a, a, sizeof(a));
	list_group(s, up, c->b, b, sizeof(b));
	snprintf(x->nic, sizeof(x->nic), "%s", nic);
	x->low = x->of = (int64_t)c->low;
	verdict_figure(s, x, c->lowest);
	snprintf(x->text, sizeof(x->text),
		"the fabric between ranks {%s} and {%s} over NIC %s: all %lld figures are low, the lowest %.3g "
		"Gb/s is %.0f %% of the median %.3g; within each group they are good",
		a, b, nic, (long long)c->low, x->gbps, floor(x->percent), s->median);
	for (size_t i = 0; i < s->n; i++)
		if (is_cut(s, &s->f[i], nic, up, c))
			s->f[i].explained = true;
}

/* Nodes of each group, by its root. */
static void count_groups(const struct verdict_search *s, uint32_t *up, uint32_t *size)
{
	memset(size, 0, s->j->nodes * sizeof(*size));
	for (uint32_t r = 0; r < s->j->nodes; r++)
		size[root(up, r)]++;
}

/* Two groups of two nodes or more, all of whose pairs were measured, and which no good figure joins. Before single NICs are
 * judged: those of the smaller group are low towards most nodes as well. */
static void cuts_of(struct verdict_search *s, const char *nic, uint32_t *up, uint32_t *size)
{
	join_good(s, nic, up);
	count_groups(s, up, size);
	for (uint32_t a = 0; a < s->j->nodes; a++)
		for (uint32_t b = a + 1; size[a] >= 2 && b < s->j->nodes; b++) {
			struct cut c;

			if (size[b] < 2)
				continue;
			c = cut_of(s, nic, up, a, b);
			/* Of each pair of nodes at least one way: with fewer, single pairs may do it. */
			if (c.low >= (uint64_t)size[a] * size[b])
				add_cut(s, nic, up, &c);
		}
}

void verdict_fabric(struct verdict_search *s)
{
	uint32_t *up = dr_calloc(s->j->nodes, sizeof(*up)),
		 *size = dr_calloc(s->j->nodes, sizeof(*size));
	char done[32] = "";

	s->failed = s->failed || !up || !size;
	for (size_t i = 0; i < s->n && !s->failed; i++) {
		const char *nic = verdict_nic(s, s->f[i].port[0]);

		if (!s->f[i].low || s->f[i].explained || strcmp(done, nic) == 0)
			continue;
		snprintf(done, sizeof(done), "%s", nic);
		cuts_of(s, done, up, size);
	}
	dr_free(up);
	dr_free(size);
}

/* ---- pairs ---- */

/* The same NICs the other way. */
static struct figure *reverse(struct verdict_search *s, const struct figure *of)
{
	for (size_t i = 0; i < s->n; i++) {
		struct figure *f = &s->f[i];

		if (f->port[0] == of->port[1] && f->port[1] == of->port[0])
			return f;
	}
	return NULL;
}

static void add_pair(struct verdict_search *s, struct figure *f)
{
	struct figure *back = reverse(s, f);
	bool both = back && back->low, alone = both && f->has_alone && back->has_alone;
	bool one_way = alone ? dr_sweep_is_low(f->alone, s->bound) !=
				       dr_sweep_is_low(back->alone, s->bound)
			     : back && !both;

	/* The slow direction comes first. */
	if (alone && one_way && dr_sweep_is_low(back->alone, s->bound)) {
		struct figure *swap = f;

		f = back;
		back = swap;
	}
	struct dr_sweep_finding *x =
		verdict_add_pair(s, one_way ? DR_SWEEP_ASYMMETRIC : DR_SWEEP_SLOW_PAIR, f);

	x->low = both ? 2 : 1;
	x->of = back ? 2 : 1;
	verdict_figure(s, x, f->gbps);
	if (both)
		verdict_figure(s, x, back->gbps);
	snprintf(x->text, sizeof(x->text),
		"%s NIC %s to %s NIC %s: %.3g Gb/s is %.0f %% of the median %.3g",
		verdict_node(s, x->rank).s, x->nic, verdict_node(s, x->peer_rank).s, x->peer_nic,
		(double)f->gbps, floor(100 * (double)f->gbps / s->median), s->median);
	if (back)
		dr_append(x->text, sizeof(x->text), "; the other way %.3g", (double)back->gbps);
	if (alone)
		dr_append(x->text, sizeof(x->text), "; each direction alone %.3g and %.3g",
			(double)f->alone, (double)back->alone);
	if (f->runs > 1)
		dr_append(x->text, sizeof(x->text), "; low in each of %u runs", f->runs);
	f->explained = true;
	if (both)
		back->explained = true;
}

void verdict_pairs(struct verdict_search *s)
{
	for (size_t i = 0; i < s->n && !s->failed; i++)
		if (s->f[i].low && !s->f[i].explained)
			add_pair(s, &s->f[i]);
}
