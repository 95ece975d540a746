/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_EXHAUSTIVE_SEARCH_H
#define DR_TESTS_EXHAUSTIVE_SEARCH_H

#include "tests/exhaustive/model.h"

#include <stdio.h>

/*
 * Breadth-first search over the model, hence shortest counterexamples. A state is kept as 64 bits of
 * hash with the transition that led to it; only the states of the current level are kept whole. Two
 * states with one hash are taken for one, and what follows from the second is missed: among n states
 * n^2 / 2^65 such pairs are expected (struct ex_result: misses).
 *
 * Looked for, beside broken rules (check.c, the core's own assertions):
 *  - a state that is not final and where nothing can happen;
 *  - a state with both ends alive and a rail that is whole, from which, without a fault or a repair,
 *    the transfer cannot be finished any more;
 *  - a state from which, without a fault, neither the end of the transfer nor the end of the channel
 *    at both ends can be reached.
 */
struct ex_limits {
	uint64_t bytes;	 /* memory */
	uint64_t states; /* 0: no bound */
};

/* What the rules of time lead to. */
enum ex_rare {
	EX_R_FAILBACK,
	EX_R_FLAPS,    /* the hold-down is doubled as often as it may be */
	EX_R_CALM,     /* and not any more */
	EX_R_BACKOFF,  /* the longest delay of a dial */
	EX_R_GIVEN_UP, /* a fence that is never done, of an empty path */
	EX_R_NO_PATH,  /* ends of the channel */
	EX_R_FENCE,
	EX_R_SWITCH,
	EX_R_ROUNDS,
	EX_RARES
};

struct ex_result {
	uint64_t states, transitions, done, dead;
	unsigned depth;
	bool complete; /* false: stopped at a limit */
	bool broken;
	uint64_t bytes;
	double seconds;
	uint64_t seen[EX_TR_KINDS]; /* transitions by kind */
	uint64_t rare[EX_RARES];
	uint64_t elsewhere; /* answers on a path that the sender did not propose */
	double misses;	    /* expected number of states taken for others: states^2 / 2^65 */
};

/* Returns false, with the trace written to out, when something is broken. */
bool ex_search(
	const struct ex_scope *sc, const struct ex_limits *lim, FILE *out, struct ex_result *res);
/* One step with broken rules caught (t NULL: the first state is made): NULL, or what is wrong; s is
 * what it was at that moment. */
const char *ex_try(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t,
	uint8_t *key, unsigned *len);

#endif
