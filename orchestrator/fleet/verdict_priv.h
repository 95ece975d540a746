/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_VERDICT_PRIV_H
#define DR_ORCHESTRATOR_FLEET_VERDICT_PRIV_H

#include "orchestrator/fleet/verdict.h"

/* verdict.c collects the figures and puts them down to nodes and NICs, verdict_pairs.c what is left to groups and pairs. */

/* A port is a NIC of a node: rank * DR_SWEEP_NICS_MAX + NIC. */
static inline uint32_t rank_of(uint32_t port)
{
	return port / DR_SWEEP_NICS_MAX;
}

/* A figure: data from one NIC to another. */
struct figure {
	uint32_t port[2]; /* that sends, that receives */
	bool low, explained;
	uint8_t runs;	   /* that measured it */
	bool has_alone;	   /* it was measured without data the other way: alone */
	float gbps, alone; /* 0: no data */
	uint32_t wrong;
};

struct verdict_search {
	const struct dr_sweep_judge *j;
	struct dr_sweep_verdict *out;
	struct figure *f;
	size_t n;
	double median, bound; /* Gb/s */
	bool failed;	      /* no memory */
};

/* Never joined, or lost. */
static inline bool is_lost(const struct verdict_search *s, uint32_t rank)
{
	return s->j->node[rank].presence != DR_SWEEP_PRESENT;
}

static inline bool is_of_lost(const struct verdict_search *s, const struct dr_sweep_result *r)
{
	return is_lost(s, r->pair.client) || is_lost(s, r->pair.server);
}

struct dr_sweep_finding *verdict_add(
	struct verdict_search *s, enum dr_sweep_kind kind, int64_t rank, int64_t peer_rank);
/* Of the NICs of a figure, the first one sending. */
struct dr_sweep_finding *verdict_add_pair(
	struct verdict_search *s, enum dr_sweep_kind kind, const struct figure *f);
/* The lowest of the figures behind a finding. */
void verdict_figure(const struct verdict_search *s, struct dr_sweep_finding *x, float gbps);
/* "rank 3 (host3)" */
struct node_name {
	char s[80];
} verdict_node(const struct verdict_search *s, int64_t rank);
const char *verdict_nic(const struct verdict_search *s, uint32_t port);
void verdict_fabric(struct verdict_search *s);
void verdict_pairs(struct verdict_search *s);

#endif
