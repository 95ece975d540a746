/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_VERDICT_H
#define DR_ORCHESTRATOR_FLEET_VERDICT_H

#include "orchestrator/fleet/results.h"

#include <stdio.h>

/*
 * What is bad, from the figures of all pairs. Pure; verdict.c has the rules.
 *
 * Low figures are put down to as few parts as explain them, and each figure to one part. One end of
 * a NIC cannot be told from its cable and the port of the switch by measuring: the text says which
 * they are.
 */
enum dr_sweep_kind {
	DR_SWEEP_CORRUPTS,
	DR_SWEEP_BAD_NODE,
	DR_SWEEP_BAD_CABLE,
	DR_SWEEP_BAD_NIC,
	DR_SWEEP_ASYMMETRIC,
	DR_SWEEP_FABRIC_LINK,
	DR_SWEEP_SLOW_PAIR,
	DR_SWEEP_FAILED_PAIR,
	DR_SWEEP_NODE_MISSING
};
extern const char *const dr_sweep_kind_names[];

struct dr_sweep_finding {
	int kind;
	int64_t rank, peer_rank; /* DR_UNSET: none */
	char nic[32], peer_nic[32];
	double gbps, median_gbps, percent; /* lowest figure behind it; NAN: none */
	int64_t low, of;		   /* figures (pairs, of failures) behind it; of how many */
	int64_t wrong_chunks;
	char text[480];
	char reason[280]; /* of failed runs, or of a lost node; "": none */
};

struct dr_sweep_judge {
	const struct dr_sweep_node *node;
	uint32_t nodes;
	const struct dr_sweep_result *result;
	size_t n_results;
	double least; /* share of the median, 0.8 */
};

struct dr_sweep_verdict {
	struct dr_sweep_finding *v;
	size_t n, cap;
	double median_gbps, lowest_percent;  /* NAN: none */
	uint64_t pairs, ok, failed, missing; /* pairs that the pattern has */
	uint64_t figures, low;		     /* directions of pairs of NICs */
	uint64_t low_pairs;		     /* with a low figure */
	uint64_t cleared;		     /* pairs that were low in a run, and are not */
	uint64_t partial;	/* pairs that lack a NIC that others of its node used; */
	char first_partial[96]; /* the first of them */
	bool in_doubt;		/* most pairs are low: the median may be, too */
	/* Round trips, of the pairs with one: median of the pairs' medians, and the slowest pair. NAN: not measured. */
	uint64_t rtt_pairs;
	double rtt_us, rtt_max_us, rtt_max_p99_us;
	struct dr_sweep_pair rtt_max_pair;
	uint32_t missing_nodes;
	int exit_code; /* enum dr_exit: 0, 3 (missing), 6 (wrong data), 7 (bad) */
	char line[640];
};

/* -ENOMEM. */
int dr_sweep_judge(const struct dr_sweep_judge *j, struct dr_sweep_verdict *out) DR_MUST_CHECK;
void dr_sweep_verdict_fini(struct dr_sweep_verdict *v);
/* The median of all figures, each of its first run; NAN: none. Later runs, of low pairs alone, do not raise it: a pair that
 * is low in the end was so whenever it was looked at. -ENOMEM. */
int dr_sweep_median(const struct dr_sweep_result *r, size_t n, double *out) DR_MUST_CHECK;

/* table.c. The node x node table (up to 11 nodes; of more nodes the worst ones) and the findings,
 * at most 100 columns. */
int dr_sweep_print(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f);

#endif
