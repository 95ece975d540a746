/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/locality.h"

#include "base/fields.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

/*
 * Invariants of a map:
 *  1. a primary is at its GPU's minimum distance;
 *  2. GPUs with the same nearest NICs load each of them alike, to within one GPU (or NIC);
 *  3. primary and shadow share no port, at either end;
 *  4. the map does not depend on the order of the input: GPUs and NICs are processed in ascending `order`, and no
 *     input index is compared.
 */

struct map {
	const struct dr_locality *end[2];
	unsigned n_ends, n_gpus, n_nics;
	unsigned gpus[DR_LOCALITY_GPUS_MAX]; /* ascending order */
	unsigned nics[DR_LOCALITY_NICS_MAX];
	unsigned rank[DR_LOCALITY_NICS_MAX]; /* place in nics */
	uint8_t distance[DR_LOCALITY_GPUS_MAX][DR_LOCALITY_NICS_MAX];
	uint8_t nearest[DR_LOCALITY_GPUS_MAX];
	uint64_t set[DR_LOCALITY_GPUS_MAX]; /* of the nearest NICs, as bits */
	/* So far: how often each NIC is a shadow, and of which primaries. */
	unsigned load[DR_LOCALITY_NICS_MAX];
	uint64_t shadow_of[DR_LOCALITY_NICS_MAX];
};

/* Do two NICs have the same number there, at either end? field: offset in struct dr_locality_nic. */
static bool share(const struct map *m, unsigned a, unsigned b, size_t field)
{
	for (unsigned i = 0; i < m->n_ends; i++) {
		const struct dr_locality_nic *nic = m->end[i]->nic;
		uint16_t x = *(const uint16_t *)((const char *)&nic[a] + field);
		uint16_t y = *(const uint16_t *)((const char *)&nic[b] + field);

		if (x != 0 && x == y)
			return true;
	}
	return false;
}

static bool share_port(const struct map *m, unsigned a, unsigned b)
{
	return share(m, a, b, offsetof(struct dr_locality_nic, port));
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

/* Insert i into list[0..i), in ascending order; equal ones keep the order of the input. */
static void insert(unsigned *list, unsigned i, const uint16_t *order)
{
	unsigned at = i;

	for (; at > 0 && order[list[at - 1]] > order[i]; at--)
		list[at] = list[at - 1];
	list[at] = i;
}

static void sort(struct map *m)
{
	uint16_t order[DR_LOCALITY_GPUS_MAX];

	for (unsigned i = 0; i < m->n_gpus; i++) {
		order[i] = m->end[0]->gpu[i].order;
		insert(m->gpus, i, order);
	}
	for (unsigned i = 0; i < m->n_nics; i++) {
		order[i] = m->end[0]->nic[i].order;
		insert(m->nics, i, order);
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

/* NICs that may be a primary, as bits. */
static uint64_t candidates(const struct map *m)
{
	uint64_t set = 0;

	for (unsigned r = 0; r < m->n_nics; r++)
		if (!is_spare(m, r))
			set |= UINT64_C(1) << r;
	return set ? set : UINT64_MAX;
}

/* True when any distance is known. */
static bool measure(struct map *m)
{
	uint64_t set = candidates(m);
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
				m->set[g] |= UINT64_C(1) << r;
	}
	return known;
}

/* Cost of `r` as the shadow of `primary`; the lowest wins, no two NICs have the same. */
static uint64_t cost(const struct map *m, unsigned gpu, unsigned primary, unsigned r, bool balance)
{
	unsigned a = m->rank[primary], b = m->rank[r];
	uint64_t c = is_spare(m, r);

	c = c << 1 | share(m, primary, r, offsetof(struct dr_locality_nic, branch));
	c = c << 8 | m->distance[gpu][r];
	c = c << 1 | share(m, primary, r, offsetof(struct dr_locality_nic, card));
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
		if (r == primary || share_port(m, primary, r))
			continue;
		uint64_t c = cost(m, gpu, primary, r, balance);
		if (c < best) {
			best = c;
			shadow = r;
		}
	}
	return shadow;
}

/* The primaries of one GPU: its part of the NICs that GPUs with the same nearest NICs share. */
static void place(struct map *m, unsigned gpu, struct dr_locality_choice *out)
{
	unsigned nics[DR_LOCALITY_NICS_MAX] = { 0 }, n_nics = 0, mine = 0, others = 0;

	for (unsigned i = 0; i < m->n_nics; i++)
		if (m->set[gpu] >> m->nics[i] & 1)
			nics[n_nics++] = m->nics[i];
	for (unsigned i = 0; i < m->n_gpus; i++) {
		if (m->gpus[i] == gpu)
			mine = others;
		else
			others += m->set[m->gpus[i]] == m->set[gpu];
	}
	unsigned from = mine * n_nics / (others + 1);
	unsigned to = DR_MAX((mine + 1) * n_nics / (others + 1), from + 1);
	memset(out, 0, sizeof(*out));
	out->distance = m->nearest[gpu];
	out->n_nearest = (uint8_t)n_nics;
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
		m->shadow_of[s] |= UINT64_C(1) << p;
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
	sort(&m);
	for (unsigned i = 0; i < n_gpus; i++)
		place(&m, m.gpus[i], &out[m.gpus[i]]);
	for (unsigned i = 0; i < n_gpus; i++)
		place_shadows(&m, m.gpus[i], &out[m.gpus[i]]);
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

const char *dr_locality_text(uint8_t value)
{
	static const char *const text[] = { "same PCI switch", "same root", "same NUMA node",
		"other NUMA node", "unknown" };

	return text[DR_MIN((unsigned)value >> 4, (unsigned)DR_LOCALITY_UNKNOWN)];
}

/* ---- JSON ---- */

#define NIC(member)                                                                                \
	DR_FIELD(#member, DR_F_UINT, struct dr_locality_nic, member, .flags = DR_F_REQUIRED)
static const struct dr_field nic_fields[] = { NIC(order), NIC(port), NIC(card), NIC(branch) };
static DR_FIELDS(nic_table, "nics", nic_fields, struct dr_locality_nic, .tuple = true);
static const struct dr_field end_fields[] = { DR_FIELD_ROWS(
	"nics", struct dr_locality, nic, n_nics, nic_table, .flags = DR_F_REQUIRED) };
static DR_FIELDS(end_table, "near", end_fields, struct dr_locality);

json_t *dr_locality_to_json(const struct dr_locality *l)
{
	json_t *o = dr_fields_to_json(&end_table, l), *gpus = json_array();
	int failed = 0;

	for (unsigned g = 0; g < l->n_gpus; g++) {
		json_t *row = json_pack("[i]", l->gpu[g].order);

		for (unsigned i = 0; i < l->n_nics; i++)
			failed |= json_array_append_new(row, json_integer(l->gpu[g].distance[i]));
		failed |= json_array_append_new(gpus, row);
	}
	failed |= json_object_set_new(o, "gpus", gpus);
	if (failed) {
		json_decref(o);
		return NULL;
	}
	return o;
}

static bool read_gpu(struct dr_locality_gpu *g, const json_t *row, unsigned n_nics)
{
	if (json_array_size(row) != n_nics + 1)
		return false;
	for (unsigned i = 0; i <= n_nics; i++) {
		const json_t *j = json_array_get(row, i);
		json_int_t v = json_integer_value(j);

		if (!json_is_integer(j) || v < 0 || v > (i ? DR_DISTANCE_UNKNOWN : UINT16_MAX))
			return false;
		if (i)
			g->distance[i - 1] = (uint8_t)v;
		else
			g->order = (uint16_t)v;
	}
	return true;
}

int dr_locality_from_json(struct dr_locality *l, const json_t *j, struct dr_err *e)
{
	const json_t *gpus = json_object_get(j, "gpus");
	int rc = dr_fields_from_json(&end_table, l, j, e);

	if (rc)
		return rc;
	if (!json_is_array(gpus) || json_array_size(gpus) > DR_LOCALITY_GPUS_MAX)
		return dr_err_set(e, -EPROTO, "near.gpus: not an array of at most %d GPUs",
			DR_LOCALITY_GPUS_MAX);
	for (; l->n_gpus < json_array_size(gpus); l->n_gpus++)
		if (!read_gpu(&l->gpu[l->n_gpus], json_array_get(gpus, l->n_gpus), l->n_nics))
			return dr_err_set(e, -EPROTO,
				"near.gpus: row %u is not an order and %u distances of 0 to %d",
				l->n_gpus, l->n_nics, DR_DISTANCE_UNKNOWN);
	return 0;
}
