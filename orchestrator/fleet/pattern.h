/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_PATTERN_H
#define DR_ORCHESTRATOR_FLEET_PATTERN_H

#include "base/defs.h"

/* Which pairs of nodes a sweep measures, in rounds. No node is in two pairs of a round. Pure. */
struct dr_sweep_pair {
	uint32_t client, server; /* ranks */
};

struct dr_pattern_ops {
	const char *name;
	/* The pairs of a round, counted from 0, at most nodes / 2, into out; their number. 0: the
	 * rounds before it were all. nodes: 2 or more. */
	uint32_t (*round)(uint32_t nodes, uint32_t round, struct dr_sweep_pair *out);
	/* Pairs of all rounds. */
	uint64_t (*total)(uint32_t nodes);
};

/*
 * all-pairs   round robin by the circle method: nodes - 1 rounds for an even number of nodes, in each of which every node is
 *             in a pair; as many rounds as nodes for an odd number, and one node rests
 * ring        each node with the next one: 2 rounds, or 3 for an odd number of nodes
 * bisection   each node of the lower half with one of the upper half, all at once: 1 round
 * one-to-all  rank 0 with each other node: nodes - 1 rounds of one pair
 * random      each node with four others, drawn at random and the same in every sweep of so many nodes: 4 rounds
 * The order is that of --pattern.
 */
extern const struct dr_pattern_ops dr_pattern_all_pairs, dr_pattern_ring, dr_pattern_bisection,
	dr_pattern_one_to_all, dr_pattern_random;

#endif
