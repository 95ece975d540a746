/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/locality.h"

#include <string.h>

/*
 * Invariants of a map:
 *  1. a primary is at its GPU's minimum distance;
 *  2. GPUs with the same nearest NICs load each of them alike, to within one GPU (or NIC);
 *  3. primary and shadow share no port, at either end;
 *  4. the map does not depend on the order in which GPUs and NICs were found: everything is done in
 *     ascending `order`, and what is compared is never an index of the input.
 */

struct map {
	const struct dr_locality *end[2];
	unsigned n_ends, n_gpus, n_nics;
	unsigned gpus[DR_LOCALITY_GPUS_MAX]; /* ascending order */
	unsigned nics[DR_LOCALITY_NICS_MAX];
	unsigned rank[DR_LOCALITY_NICS_MAX]; /* place in nics */
	uint8_t distance[DR_LOCALITY_GPUS_MAX][DR_LOCALITY_NICS_MAX];
	uint8_t nearest[DR_LOCALITY_GPUS_MAX];
	uint32_t set[DR_LOCALITY_GPUS_MAX]; /* of the nearest NICs, as bits */
	/* So far: how often each NIC is a shadow, and of which primaries. */
	unsigned load[DR_LOCALITY_NICS_MAX];
	uint32_t shadow_of[DR_LOCALITY_NICS_MAX];
};

static bool same(uint16_t a, uint16_t b)
{
	return a != 0 && a == b;
}

static bool share_port(const struct map *m, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < m->n_ends; i++)
		if (same(m->end[i]->nic[a].port, m->end[i]->nic[b].port))
			return true;
	return false;
}

static bool share_card(const struct map *m, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < m->n_ends; i++)
		if (same(m->end[i]->nic[a].card, m->end[i]->nic[b].card))
			return true;
	return false;
}

static bool share_switch(const struct map *m, unsigned a, unsigned b)
{
	for (unsigned i = 0; i < m->n_ends; i++)
		if (same(m->end[i]->nic[a].branch, m->end[i]->nic[b].branch))
			return true;
	return false;
}

static uint8_t distance(const struct map *m, unsigned gpu, unsigned nic)
{
	bool known = false;
	uint8_t far = 0;

	for (unsigned i = 0; i < m->n_ends; i++) {
		uint8_t d = m->end[i]->gpu[gpu].distance[nic];

		if (d >= DR_DISTANCE_UNKNOWN)
			continue;
		known = true;
		far = DR_MAX(far, d);
	}
	return known ? far : DR_DISTANCE_UNKNOWN;
}

static void open_ends(struct map *m, const struct dr_locality *a, const struct dr_locality *b)
{
	memset(m, 0, sizeof(*m));
	if (a)
		m->end[m->n_ends++] = a;
	if (b)
		m->end[m->n_ends++] = b;
}

/* Stable insertion: equal orders keep the input's. */
static void sort_gpus(struct map *m)
{
	for (unsigned i = 0; i < m->n_gpus; i++) {
		unsigned at = i;

		for (; at > 0 && m->end[0]->gpu[m->gpus[at - 1]].order > m->end[0]->gpu[i].order;
			at--)
			m->gpus[at] = m->gpus[at - 1];
		m->gpus[at] = i;
	}
}

static void sort_nics(struct map *m)
{
	for (unsigned i = 0; i < m->n_nics; i++) {
		unsigned at = i;

		for (; at > 0 && m->end[0]->nic[m->nics[at - 1]].order > m->end[0]->nic[i].order;
			at--)
			m->nics[at] = m->nics[at - 1];
		m->nics[at] = i;
	}
	for (unsigned i = 0; i < m->n_nics; i++)
		m->rank[m->nics[i]] = i;
}

static bool is_spare(const struct map *m, unsigned nic)
{
	for (unsigned i = 0; i < m->n_ends; i++)
		if (m->end[i]->nic[nic].spare)
			return true;
	return false;
}

/* Those that may be a primary. */
static uint32_t candidates(const struct map *m)
{
	uint32_t set = 0;

	for (unsigned r = 0; r < m->n_nics; r++)
		if (!is_spare(m, r))
			set |= 1u << r;
	return set ? set : UINT32_MAX;
}

/* True when any distance is known. */
static bool measure(struct map *m)
{
	uint32_t set = candidates(m);
	bool known = false;

	for (unsigned g = 0; g < m->n_gpus; g++) {
		m->nearest[g] = DR_DISTANCE_UNKNOWN;
		for (unsigned r = 0; r < m->n_nics; r++) {
			m->distance[g][r] = distance(m, g, r);
			if (set >> r & 1)
				m->nearest[g] = DR_MIN(m->nearest[g], m->distance[g][r]);
		}
		known = known || m->nearest[g] < DR_DISTANCE_UNKNOWN;
		for (unsigned r = 0; r < m->n_nics; r++)
			if ((set >> r & 1) && m->distance[g][r] == m->nearest[g])
				m->set[g] |= 1u << r;
	}
	return known;
}

/* How much worse `r` is as the shadow of `primary`; smaller is better, no two NICs are equal. */
static uint64_t cost(const struct map *m, unsigned gpu, unsigned primary, unsigned r, bool balance)
{
	unsigned a = m->rank[primary], b = m->rank[r];
	uint64_t c = is_spare(m, r);

	c = c << 1 | share_switch(m, primary, r);
	c = c << 8 | m->distance[gpu][r];
	c = c << 1 | share_card(m, primary, r);
	c = c << 16 | (balance ? m->load[r] : 0);
	c = c << 1 | !(balance && m->shadow_of[primary] >> r & 1);
	c = c << 8 | (a < b ? b - a : a - b);
	return c << 1 | (b > a);
}

static unsigned pick_shadow(const struct map *m, unsigned gpu, unsigned primary, bool balance)
{
	uint64_t best = UINT64_MAX;
	unsigned shadow = primary;

	for (unsigned r = 0; r < m->n_nics; r++) {
		uint64_t c;

		if (r == primary || share_port(m, primary, r))
			continue;
		c = cost(m, gpu, primary, r, balance);
		if (c < best) {
			best = c;
			shadow = r;
		}
	}
	return shadow;
}

/* The primaries of one GPU: its part of the NICs that its group shares. */
static void place(struct map *m, unsigned gpu, struct dr_locality_choice *out)
{
	unsigned nics[DR_LOCALITY_NICS_MAX] = { 0 }, n_nics = 0, mine = 0, others = 0, from, to;

	for (unsigned i = 0; i < m->n_nics; i++)
		if (m->set[gpu] >> m->nics[i] & 1)
			nics[n_nics++] = m->nics[i];
	for (unsigned i = 0; i < m->n_gpus; i++) {
		if (m->gpus[i] == gpu)
			mine = others;
		else
			others += m->set[m->gpus[i]] == m->set[gpu];
	}
	from = mine * n_nics / (others + 1);
	to = DR_MAX((mine + 1) * n_nics / (others + 1), from + 1);
	memset(out, 0, sizeof(*out));
	out->distance = m->nearest[gpu];
	out->n_near = (uint8_t)n_nics;
	for (unsigned i = from; i < to; i++)
		out->pair[out->n++].primary = (uint8_t)nics[i];
}

static void place_shadows(struct map *m, unsigned gpu, struct dr_locality_choice *out)
{
	for (unsigned i = 0; i < out->n; i++) {
		unsigned p = out->pair[i].primary, s = pick_shadow(m, gpu, p, true);

		out->pair[i].shadow = (uint8_t)s;
		if (s == p)
			continue;
		m->load[s]++;
		m->shadow_of[s] |= 1u << p;
	}
	for (unsigned r = 0; r < m->n_nics; r++)
		out->shadow[r] = (uint8_t)pick_shadow(m, gpu, r, false);
}

bool dr_locality_choose(const struct dr_locality *a, const struct dr_locality *b, unsigned n_gpus,
	unsigned n_nics, struct dr_locality_choice *out)
{
	struct map m;

	open_ends(&m, a, b);
	m.n_gpus = n_gpus;
	m.n_nics = n_nics;
	for (unsigned i = 0; i < m.n_ends; i++)
		dr_assert(m.end[i]->n_nics == n_nics && n_gpus <= m.end[i]->n_gpus);
	if (!m.n_ends || !measure(&m))
		return false;
	sort_gpus(&m);
	sort_nics(&m);
	for (unsigned i = 0; i < n_gpus; i++)
		place(&m, m.gpus[i], &out[m.gpus[i]]);
	for (unsigned i = 0; i < n_gpus; i++)
		place_shadows(&m, m.gpus[i], &out[m.gpus[i]]);
	return true;
}

uint8_t dr_locality_distance(
	const struct dr_locality *a, const struct dr_locality *b, unsigned gpu, unsigned nic)
{
	struct map m;

	open_ends(&m, a, b);
	return distance(&m, gpu, nic);
}

bool dr_locality_one_port(
	const struct dr_locality *a, const struct dr_locality *b, unsigned nic, unsigned n_nics)
{
	struct map m;

	open_ends(&m, a, b);
	for (unsigned r = 0; r < n_nics; r++)
		if (r != nic && !share_port(&m, nic, r))
			return false;
	return true;
}

void dr_locality_select(
	const struct dr_locality *l, const uint8_t *nic, unsigned n, struct dr_locality *out)
{
	dr_assert(n <= DR_LOCALITY_NICS_MAX);
	memset(out, 0, sizeof(*out));
	out->n_gpus = l->n_gpus;
	out->n_nics = n;
	for (unsigned g = 0; g < l->n_gpus; g++)
		out->gpu[g].order = l->gpu[g].order;
	for (unsigned i = 0; i < n; i++) {
		dr_assert(nic[i] < l->n_nics);
		out->nic[i] = l->nic[nic[i]];
		for (unsigned g = 0; g < l->n_gpus; g++)
			out->gpu[g].distance[i] = l->gpu[g].distance[nic[i]];
	}
}

bool dr_locality_valid(const struct dr_locality *l)
{
	if (l->n_gpus > DR_LOCALITY_GPUS_MAX || l->n_nics > DR_LOCALITY_NICS_MAX)
		return false;
	for (unsigned g = 0; g < l->n_gpus; g++)
		for (unsigned r = 0; r < l->n_nics; r++)
			if (l->gpu[g].distance[r] > DR_DISTANCE_UNKNOWN)
				return false;
	return true;
}

const char *dr_near_text(uint8_t distance_)
{
	static const char *const text[] = { "same PCI switch", "same root", "same NUMA node",
		"other NUMA node", "unknown" };

	return text[DR_MIN((unsigned)distance_ >> 4, (unsigned)DR_NEAR_UNKNOWN)];
}
