/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SWEEP_PATTERN_H
#define DR_ORCHESTRATOR_SWEEP_PATTERN_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Which pairs of nodes a sweep measures, in rounds. No node is in two pairs of a round. Sans-IO: a pattern sees the
 * outcomes of its last round and names the pairs of the next one.
 */
struct dr_sweep_pair {
	uint32_t client, server; /* ranks */
};

enum dr_sweep_outcome {
	DR_SWEEP_GOOD,
	DR_SWEEP_BAD,	 /* failed */
	DR_SWEEP_UNKNOWN /* a node was not there */
};

struct dr_pattern;
struct dr_pattern_ops {
	const char *name;
	/* The pairs of the next round, at most nodes / 2, into out; their number. 0: there is no further round.
	 * last: what became of the pairs of the previous round, in their order; NULL: there is none. */
	uint32_t (*next_round)(
		struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out);
	/* Pairs of all rounds. NULL: their number depends on the results. */
	uint64_t (*total)(uint32_t nodes);
	/* NULL: no state. -ENOMEM. */
	int (*init)(struct dr_pattern *p);
	void (*fini)(struct dr_pattern *p);
};

struct dr_pattern {
	const struct dr_pattern_ops *ops;
	uint32_t nodes; /* 2 or more */
	uint32_t round; /* rounds begun */
	void *state;	/* of ops */
};

int dr_pattern_init(struct dr_pattern *p, const struct dr_pattern_ops *ops, uint32_t nodes)
	DR_MUST_CHECK;
void dr_pattern_fini(struct dr_pattern *p);
/* As ops->next_round. */
uint32_t dr_pattern_next(
	struct dr_pattern *p, const enum dr_sweep_outcome *last, struct dr_sweep_pair *out);

/*
 * all-pairs   round robin by the circle method: nodes - 1 rounds for an even number of nodes, in each of which every node is
 *             in a pair; as many rounds as nodes for an odd number, and one node rests
 * ring        each node with the next one: 2 rounds, or 3 for an odd number of nodes
 * bisection   each node of the lower half with one of the upper half, all at once: 1 round
 * one-to-all  rank 0 with each other node: nodes - 1 rounds of one pair
 * The order is that of --pattern.
 */
extern const struct dr_pattern_ops dr_pattern_all_pairs, dr_pattern_ring, dr_pattern_bisection,
	dr_pattern_one_to_all;

#endif
