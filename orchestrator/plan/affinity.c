/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/plan/affinity.h"

#include "base/log.h"
#include "base/units.h"
#include "gpu/gpu.h"
#include "topology/numa.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int dr_affinity_look(const char *xml, bool cuda, struct dr_topo **out, struct dr_err *e)
{
	struct dr_gpu_info info[DR_GPUS_MAX];
	const char *ids[DR_GPUS_MAX];
	struct dr_topo_params p = { .xml = xml };
	int n = cuda ? dr_gpu_list(info, DR_GPUS_MAX, NULL) : 0;

	for (int i = 0; i < DR_MIN(n, DR_GPUS_MAX); i++)
		ids[i] = info[i].bus_id;
	if (n > 0) {
		p.bus_ids = ids;
		p.n_bus_ids = (unsigned)DR_MIN(n, DR_GPUS_MAX);
	}
	return dr_topo_create(&p, out, e);
}

int dr_affinity_load(const struct dr_options *o, struct dr_topo **out, struct dr_err *e)
{
	struct dr_err why = { 0 };

	*out = NULL;
	int rc = dr_affinity_look(o->topology, o->cuda, out, &why);
	if (rc && o->topology) {
		if (e)
			*e = why;
		return rc;
	}
	if (rc)
		dr_warn("topology", "%s", why.text);
	return 0;
}

/* That of the GPU's primary rail, else of the GPU itself; -1 unknown. */
static int numa_node(const struct dr_plan *p, enum dr_plan_end end, unsigned position)
{
	const struct dr_topo *t = p->topo;
	unsigned gpu = p->gpu[position][end];
	int node = -1;

	if (!t)
		return -1;
	const struct dr_topo_nic *nic =
		dr_topo_find_nic(t, p->rail[dr_plan_paths(p, position, 0).primary][end].name);
	if (nic)
		node = dr_topo_nic_numa(nic);
	return node < 0 && gpu < t->n_gpus ? t->gpu[gpu].place.numa : node;
}

/* Are the topology's nodes those of the machine that runs this, and more than one? */
static bool bindable(const struct dr_plan *p, unsigned nodes)
{
	return p->topo && nodes > 1 && (p->topo->live || p->topo->n_nodes == nodes);
}

struct dr_affinity_place dr_affinity_worker(const struct dr_options *o, const struct dr_plan *p,
	enum dr_plan_end end, unsigned nodes, unsigned worker, const bool *mine)
{
	struct dr_affinity_place out = { -1, -1 };
	bool first = true;

	if (o->pin.n) {
		out.cpu = (int)o->pin.v[worker % o->pin.n];
		out.node = nodes > 1 ? dr_numa_node_of_cpu(out.cpu) : -1;
		return out;
	}
	for (unsigned k = 0; k < p->n_gpus && bindable(p, nodes); k++) {
		int node = mine[k] ? numa_node(p, end, k) : -1;

		if (!mine[k])
			continue;
		if (!first && node != out.node)
			return (struct dr_affinity_place){ -1, -1 };
		out.node = node;
		first = false;
	}
	return out;
}

/* "; GPU 0,1 on node 0" for each node in turn. */
static void list_nodes(const struct dr_plan *p, enum dr_plan_end end, char *buf, size_t len)
{
	for (int node = -1; node < 64; node++) {
		bool any = false;

		for (unsigned k = 0; k < p->n_gpus; k++) {
			if (numa_node(p, end, k) != node)
				continue;
			dr_append(buf, len, "%s%u", any ? "," : "; GPU ", p->gpu[k][end]);
			any = true;
		}
		if (any && node < 0)
			dr_append(buf, len, " anywhere");
		else if (any)
			dr_append(buf, len, " on node %d", node);
	}
}

void dr_affinity_describe(const struct dr_options *o, const struct dr_plan *p, enum dr_plan_end end,
	unsigned nodes, char *buf, size_t len)
{
	if (nodes == 1) {
		snprintf(buf, len, "NUMA: one node, nothing is bound");
	} else if (o->pin.n) {
		snprintf(buf, len,
			"NUMA: %u nodes; workers are pinned by --pin, memory to their nodes",
			nodes);
	} else if (!bindable(p, nodes)) {
		snprintf(buf, len, "NUMA: %u nodes; nothing is bound: %s", nodes,
			p->topo ? "the file's machine has another number of them"
				: "this machine could not be probed");
	} else {
		snprintf(buf, len, "NUMA: %u nodes", nodes);
		list_nodes(p, end, buf, len);
	}
}

void dr_affinity_rail_row(
	const struct dr_plan *p, enum dr_plan_end end, unsigned rail, struct dr_rail_row *row)
{
	const struct dr_topo_nic *nic =
		p->topo ? dr_topo_find_nic(p->topo, p->rail[rail][end].name) : NULL;

	if (nic && dr_topo_nic_numa(nic) >= 0)
		row->numa = dr_topo_nic_numa(nic);
	if (nic && nic->mtu)
		row->mtu = nic->mtu;
}

void dr_affinity_gpu_row(
	const struct dr_plan *p, enum dr_plan_end end, unsigned position, struct dr_gpu_row *row)
{
	unsigned gpu = p->gpu[position][end];

	if (numa_node(p, end, position) >= 0)
		row->numa = numa_node(p, end, position);
	if (p->topo && gpu < p->topo->n_gpus && !row->bus_id[0])
		snprintf(row->bus_id, sizeof(row->bus_id), "%s", p->topo->gpu[gpu].bus_id);
	dr_plan_reason(p, position, row->reason, sizeof(row->reason));
}
