/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_AFFINITY_H
#define DR_ORCHESTRATOR_AFFINITY_H

#include "orchestrator/options/options.h"
#include "orchestrator/output/record.h"
#include "orchestrator/plan/plan.h"

/*
 * This end's machine and what follows from it for the workers: a worker, its buffers and the NIC of
 * its GPUs' primary path belong on one NUMA node. Main thread.
 */

/* The machine of a file (NULL: this one), its GPUs numbered as CUDA does when `cuda` is set and CUDA
 * shows some, else by bus id. Errors of dr_topo_create. */
int dr_affinity_look(const char *xml, bool cuda, struct dr_topo **out, struct dr_err *e)
	DR_MUST_CHECK;
/* The machine of --topology, or this one. A file that cannot be read is an error (-ENOENT, -EACCES,
 * -EBADMSG); a live machine that cannot is not: *out is NULL then, and a warning says so. */
int dr_affinity_load(const struct dr_options *o, struct dr_topo **out, struct dr_err *e)
	DR_MUST_CHECK;

/*
 * Where a worker that serves the GPUs with `mine` set is to run; each may be -1.
 * cpu: --pin, in turn. node: its memory's, and without --pin its CPUs' too; -1 where binding changes
 * nothing or would be wrong: one node alone, unknown, GPUs of several nodes, or a machine from a file
 * with another number of nodes. nodes: of the machine that runs this (dr_numa_nodes).
 */
struct dr_affinity_place {
	int cpu, node;
};
struct dr_affinity_place dr_affinity_worker(const struct dr_options *o, const struct dr_plan *p,
	enum dr_plan_end end, unsigned nodes, unsigned worker, const bool *mine);
/* "NUMA: one node, nothing is bound" for people and the result document. */
void dr_affinity_describe(const struct dr_options *o, const struct dr_plan *p, enum dr_plan_end end,
	unsigned nodes, char *buf, size_t len);

/* What the machine says of a rail's NIC and of a GPU, into their rows of the result document; fields
 * that are known already, and those that it does not know, stay. */
void dr_affinity_rail_row(
	const struct dr_plan *p, enum dr_plan_end end, unsigned rail, struct dr_rail_row *row);
void dr_affinity_gpu_row(
	const struct dr_plan *p, enum dr_plan_end end, unsigned position, struct dr_gpu_row *row);

#endif
