/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The automatic map by distance: what each end measures, what travels, what both make of it. */

_Static_assert((int)DR_LOCALITY_NICS_MAX >= (int)DR_RAILS_MAX, "a distance for every rail");
_Static_assert((int)DR_LOCALITY_GPUS_MAX >= (int)DR_PLAN_GPUS_MAX, "a row for every GPU");

void dr_plan_measure(struct dr_plan *p, enum dr_plan_end end)
{
	const struct dr_topo_nic *nic[DR_RAILS_MAX];
	unsigned gpu[DR_PLAN_GPUS_MAX];

	memset(&p->near[end], 0, sizeof(p->near[end]));
	if (!p->topo)
		return;
	for (unsigned i = 0; i < p->n_rails; i++) {
		nic[i] = dr_topo_find_nic(p->topo, p->rail[i][end].name);
		p->rail[i][end].column = (uint8_t)i;
	}
	for (unsigned k = 0; k < p->n_gpus; k++)
		gpu[k] = p->gpu[k][end];
	dr_topo_locality(p->topo, gpu, p->n_gpus, nic, p->n_rails, &p->near[end]);
}

/* The end's `near` with a column for each rail of the plan; false when it says nothing about it. */
static bool columns(const struct dr_plan *p, enum dr_plan_end end, struct dr_locality *out)
{
	unsigned list[DR_RAILS_MAX], n_direct = dr_plan_direct(p, list);
	const struct dr_locality *l = &p->near[end];
	uint8_t nic[DR_RAILS_MAX];

	if (l->n_gpus < p->n_gpus)
		return false;
	for (unsigned i = 0; i < p->n_rails; i++) {
		nic[i] = end == DR_PLAN_CLIENT ? p->rail[i][end].column : (uint8_t)i;
		if (nic[i] >= l->n_nics)
			return false;
	}
	dr_locality_select(l, nic, p->n_rails, out);
	for (unsigned i = 0; i < p->n_rails; i++)
		out->nic[i].spare = p->rail[i][end].routed && n_direct < p->n_rails;
	return true;
}

int dr_plan_settle(struct dr_plan *p, struct dr_err *e)
{
	struct dr_locality a, b;
	bool client, server;
	int rc = dr_plan_check(p, e);

	p->n_auto = 0;
	if (rc || !p->near_told)
		return rc;
	client = columns(p, DR_PLAN_CLIENT, &a);
	server = columns(p, DR_PLAN_SERVER, &b);
	if (dr_locality_choose(
		    client ? &a : NULL, server ? &b : NULL, p->n_gpus, p->n_rails, p->auto_map))
		p->n_auto = p->n_gpus;
	return 0;
}

struct dr_plan_map dr_plan_near(const struct dr_plan *p, unsigned position, unsigned c, bool all)
{
	const struct dr_locality_choice *m = &p->auto_map[position];
	const struct dr_locality_pair *pair = &m->pair[c % m->n];
	unsigned list[DR_RAILS_MAX], n, at = 0;

	if (!all)
		return (struct dr_plan_map){ pair->primary, pair->shadow };
	n = dr_plan_direct(p, list);
	while (at < n && list[at] != m->pair[0].primary)
		at++;
	at = list[(at + c) % n];
	return (struct dr_plan_map){ at, m->shadow[at] };
}

struct dr_plan_map dr_plan_near_each(const struct dr_plan *p, unsigned position, unsigned c)
{
	unsigned primary = c % p->n_rails;

	return (struct dr_plan_map){ primary, p->auto_map[position].shadow[primary] };
}

static const char *how_near(const struct dr_plan *p, const struct dr_locality_choice *m)
{
	if (m->distance >= DR_DISTANCE_UNKNOWN)
		return "by number, place ";
	return m->n_near == p->n_rails ? "all equally near: " : "nearest: ";
}

void dr_plan_reason(const struct dr_plan *p, unsigned position, char *buf, size_t len)
{
	const struct dr_locality_choice *m = &p->auto_map[position];

	if (position < p->n_map && p->map[position].primary != DR_PLAN_AUTO)
		snprintf(buf, len, "--map");
	else if (p->spread == DR_SPREAD_EACH)
		snprintf(buf, len, "--matrix");
	else if (p->spread != DR_SPREAD_NEAREST)
		snprintf(buf, len, "--spread");
	else if (p->n_rails == 1)
		snprintf(buf, len, "the only rail");
	else if (position >= p->n_auto)
		snprintf(buf, len, "by number: distances unknown");
	else
		snprintf(buf, len, "%s%s%s", how_near(p, m), dr_near_text(m->distance),
			m->pair[0].primary == m->pair[0].shadow ? "; all rails share its port"
								: "");
}

/* ---- JSON ---- */

json_t *dr_plan_near_json(const struct dr_locality *l)
{
	json_t *gpus = json_array(), *nics = json_array();

	for (unsigned g = 0; gpus && g < l->n_gpus; g++) {
		json_t *row = json_array();

		json_array_append_new(row, json_integer(l->gpu[g].order));
		for (unsigned r = 0; r < l->n_nics; r++)
			json_array_append_new(row, json_integer(l->gpu[g].distance[r]));
		json_array_append_new(gpus, row);
	}
	for (unsigned r = 0; nics && r < l->n_nics; r++) {
		const struct dr_locality_nic *n = &l->nic[r];

		json_array_append_new(nics, json_pack("[i, i, i, i]", (int)n->order, (int)n->port,
						    (int)n->card, (int)n->branch));
	}
	return json_pack("{s:o, s:o}", "gpus", gpus, "nics", nics);
}

static int read_gpu(struct dr_locality_gpu *g, const json_t *row, unsigned n_nics)
{
	json_int_t order = json_integer_value(json_array_get(row, 0));

	if (json_array_size(row) != n_nics + 1 || order < 0 || order > UINT16_MAX)
		return -EPROTO;
	g->order = (uint16_t)order;
	for (unsigned r = 0; r < n_nics; r++) {
		json_int_t d = json_integer_value(json_array_get(row, r + 1));

		if (d < 0 || d > DR_DISTANCE_UNKNOWN)
			return -EPROTO;
		g->distance[r] = (uint8_t)d;
	}
	return 0;
}

static int read_nic(struct dr_locality_nic *n, const json_t *row)
{
	int v[4];

	if (json_unpack((json_t *)row, "[i, i, i, i]", &v[0], &v[1], &v[2], &v[3]))
		return -EPROTO;
	for (unsigned i = 0; i < 4; i++)
		if (v[i] < 0 || v[i] > UINT16_MAX)
			return -EPROTO;
	*n = (struct dr_locality_nic){ .order = (uint16_t)v[0],
		.port = (uint16_t)v[1],
		.card = (uint16_t)v[2],
		.branch = (uint16_t)v[3] };
	return 0;
}

int dr_plan_read_near(struct dr_locality *l, const json_t *j, struct dr_err *e)
{
	const json_t *gpus = json_object_get(j, "gpus"), *nics = json_object_get(j, "nics");
	size_t n_gpus = json_array_size(gpus), n_nics = json_array_size(nics);
	int rc = 0;

	memset(l, 0, sizeof(*l));
	if (!json_is_array(gpus) || !json_is_array(nics) || n_gpus > DR_LOCALITY_GPUS_MAX ||
		n_nics > DR_LOCALITY_NICS_MAX)
		rc = -EPROTO;
	for (unsigned i = 0; rc == 0 && i < n_nics; i++)
		rc = read_nic(&l->nic[i], json_array_get(nics, i));
	for (unsigned i = 0; rc == 0 && i < n_gpus; i++)
		rc = read_gpu(&l->gpu[i], json_array_get(gpus, i), (unsigned)n_nics);
	if (rc)
		return dr_err_set(e, rc, "peer: distances that make no sense");
	l->n_gpus = (unsigned)n_gpus;
	l->n_nics = (unsigned)n_nics;
	return 0;
}
