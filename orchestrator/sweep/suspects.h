/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SWEEP_SUSPECTS_H
#define DR_ORCHESTRATOR_SWEEP_SUSPECTS_H

#include "base/defs.h"
#include "base/rng.h"

#include <stdbool.h>

/*
 * Finds the few bad nodes among many from measurements of pairs, of which some results are wrong, and after that the
 * one bad link between two groups of nodes (leaf switches) that shows in no node alone. Sans-IO.
 *
 * Nodes: group testing in pools of two (Dorfman, Ann. Math. Stat. 14, 1943: the first pools), with noise, in adaptive
 * stages. Beliefs by belief propagation on the graph of tests (Sejdinovic and Johnson, Allerton 2010, for noisy group
 * testing); each stage pairs the most suspicious node with the least suspicious one, so that its result is about it alone.
 *
 * Links: one hypothesis per pair of groups. A result counts for the hypothesis of its two groups, as log likelihood ratio,
 * if both nodes are cleared; each round measures first the most likely hypotheses, with many pairs at once.
 *
 * Nodes have numbers from 0. Not thread-safe.
 */
struct dr_suspects_pair {
	uint32_t a, b;
};

struct dr_suspects_setup {
	uint32_t nodes; /* 2 or more */
	uint32_t
		groups; /* of consecutive nodes, sizes equal but for the last; up to 64; 0 or 1: no search for links */
	uint32_t rounds; /* of the search for nodes, 1 to DR_SUSPECTS_ROUNDS_MAX */
	double noise;	 /* probability of a wrong result, above 0, below 0.5 */
	double prior;	 /* probability that a node is bad, above 0, below 0.5 */
	uint64_t seed;
	bool blind; /* random pairs in all rounds, for comparison */
};

enum { DR_SUSPECTS_ROUNDS_MAX = 8, DR_SUSPECTS_GROUPS_MAX = 64 };

struct dr_suspects;
/* 0, -ENOMEM, -EINVAL: a value is out of its range. */
int dr_suspects_create(struct dr_suspects **out, const struct dr_suspects_setup *setup)
	DR_MUST_CHECK;
void dr_suspects_destroy(struct dr_suspects *s);

/* The pairs of the next round, into out (nodes / 2 elements); no node is in two of them. 0: the search is over. */
uint32_t dr_suspects_next(struct dr_suspects *s, struct dr_suspects_pair *out);
/* Result of pair i of the last round. A pair without a result, whose node was not there, is not reported. */
void dr_suspects_result(struct dr_suspects *s, uint32_t i, bool bad);

/* Probability that the node is bad, after the results so far. */
double dr_suspects_node(const struct dr_suspects *s, uint32_t node);
/* True: the link between groups *a < *b is bad, with more than 0.999 after the results so far. */
bool dr_suspects_link(const struct dr_suspects *s, uint32_t *a, uint32_t *b);
/* Rounds begun. */
uint32_t dr_suspects_rounds(const struct dr_suspects *s);

#endif
