/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/plan.h"

#include <stdio.h>
#include <string.h>

/* The rails of a GPU's channels: what each end measures, and the map that both make of it. */

_Static_assert((int)DR_LOCALITY_NICS_MAX >= (int)DR_RAILS_MAX, "a distance for every rail");
_Static_assert((int)DR_LOCALITY_GPUS_MAX >= (int)DR_PLAN_GPUS_MAX, "a row for every GPU");

void dr_plan_measure(struct dr_plan *p, enum dr_plan_end end)
{
	const struct dr_topo_nic *nic[DR_LOCALITY_NICS_MAX];
	unsigned gpu[DR_PLAN_GPUS_MAX], n = 0;

	memset(&p->locality[end], 0, sizeof(p->locality[end]));
	if (!p->topo)
		return;
	for (unsigned i = 0; end == DR_PLAN_CLIENT && i < p->n_offered; i++)
		if (p->offered[i].nic == n && n < DR_LOCALITY_NICS_MAX)
			nic[n++] = dr_topo_find_nic(p->topo, p->offered[i].name);
	for (unsigned i = 0; end == DR_PLAN_SERVER && i < p->n_rails; i++)
		nic[n++] = dr_topo_find_nic(p->topo, p->rail[i][end].name);
	for (unsigned k = 0; k < p->n_gpus; k++)
		gpu[k] = p->gpu[k][end];
	dr_topo_locality(p->topo, gpu, p->n_gpus, nic, n, &p->locality[end]);
}

/* The end's `locality` with a column for each rail of the plan; false when it says nothing about it. */
static bool columns(const struct dr_plan *p, enum dr_plan_end end, struct dr_locality *out)
{
	unsigned list[DR_RAILS_MAX], n_direct = dr_plan_direct(p, list);
	const struct dr_locality *l = &p->locality[end];
	uint8_t nic[DR_RAILS_MAX];

	if (l->n_gpus < p->n_gpus)
		return false;
	for (unsigned i = 0; i < p->n_rails; i++) {
		nic[i] = end == DR_PLAN_CLIENT ? p->rail[i][end].nic : (uint8_t)i;
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
	int rc = dr_plan_check(p, e);

	p->n_auto = 0;
	if (rc)
		return rc;
	bool client = columns(p, DR_PLAN_CLIENT, &a);
	bool server = columns(p, DR_PLAN_SERVER, &b);
	if (dr_locality_choose(
		    client ? &a : NULL, server ? &b : NULL, p->n_gpus, p->n_rails, p->auto_map))
		p->n_auto = p->n_gpus;
	return 0;
}

/* The shadow of a primary that is the only direct rail. */
static unsigned other_rail(const struct dr_plan *p, unsigned primary)
{
	return p->n_rails > 1 ? (primary + 1) % p->n_rails : primary;
}

/* Of N GPUs and R rails the k-th GPU's nearest is k * R / N: 0,0,1,1,2,2,3,3 for eight and four, as
 * the PCI trees of such hosts are. Its shadow is the other one of the pair of rails. */
static struct dr_plan_map automatic(const struct dr_plan *p, unsigned position)
{
	unsigned list[DR_RAILS_MAX], n = dr_plan_direct(p, list);
	unsigned primary = position * n / p->n_gpus;
	unsigned shadow = primary ^ 1;

	if (n == 1)
		return (struct dr_plan_map){ list[0], other_rail(p, list[0]) };
	if (shadow >= n)
		shadow = (primary + 1) % n;
	return (struct dr_plan_map){ list[primary], list[shadow] };
}

/* Channel c of a GPU whose channels take turns over all rails, beginning with the primary of m. by_distance:
 * the map of its distances; NULL: none. */
static struct dr_plan_map in_turn(const struct dr_plan *p, struct dr_plan_map m, unsigned c,
	const struct dr_locality_choice *by_distance)
{
	unsigned list[DR_RAILS_MAX], n = dr_plan_direct(p, list), at = 0;

	while (at < n && list[at] != m.primary)
		at++;
	m.primary = list[(at + c) % n];
	if (by_distance)
		m.shadow = by_distance->shadow[m.primary];
	else if (n == p->n_rails)
		m.shadow = (m.shadow + c) % n;
	else
		m.shadow = n > 1 ? list[(at + c + 1) % n] : other_rail(p, m.primary);
	return m;
}

struct dr_plan_map dr_plan_paths(const struct dr_plan *p, unsigned position, unsigned channel)
{
	bool bulk = channel < dr_plan_n_bulk(p);
	unsigned c = bulk ? channel % dr_plan_per_direction(p) : 0;
	bool mapped = position < p->n_map && p->map[position].primary != DR_PLAN_AUTO;
	const struct dr_locality_choice *near =
		position < p->n_auto && !mapped ? &p->auto_map[position] : NULL;
	struct dr_plan_map m = mapped ? p->map[position] : automatic(p, position);

	if (near) {
		const struct dr_locality_pair *pair =
			&near->pair[p->spread == DR_SPREAD_ALL && bulk ? 0 : c % near->n];

		m = (struct dr_plan_map){ pair->primary, pair->shadow };
	}
	if (!bulk || p->spread == DR_SPREAD_NEAREST)
		return m;
	if (p->spread == DR_SPREAD_ALL)
		return in_turn(p, m, c, near);
	if (p->spread == DR_SPREAD_EACH) {
		m.primary = c % p->n_rails;
		m.shadow = near ? near->shadow[m.primary] : (c + 1) % p->n_rails;
		return m;
	}
	m.primary = p->spread_list[c % p->n_spread];
	if (p->n_spread > 1)
		m.shadow = p->spread_list[(c + 1) % p->n_spread];
	else if (m.shadow == m.primary)
		m.shadow = (m.primary + 1) % p->n_rails;
	return m;
}

static const char *how_near(const struct dr_plan *p, const struct dr_locality_choice *m)
{
	if (m->distance >= DR_DISTANCE_UNKNOWN)
		return "by number, place ";
	return m->n_nearest == p->n_rails ? "all equally near: " : "nearest: ";
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
		snprintf(buf, len, "NICs by number: PCI distances unknown");
	else
		snprintf(buf, len, "%s%s%s", how_near(p, m), dr_locality_text(m->distance),
			m->pair[0].primary == m->pair[0].shadow ? "; all rails share its port"
								: "");
}
