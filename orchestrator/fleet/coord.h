/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_COORD_H
#define DR_ORCHESTRATOR_FLEET_COORD_H

#include "orchestrator/fleet/results.h"

/*
 * Which pair is measured when: the coordinator of a sweep, without input and output. Events come in as calls with the
 * time, actions are taken out with dr_coord_next. No system call, no clock.
 *
 *   JOINING  until all nodes have joined, or join_ns are over
 *   ROUND    the pairs of a round run; it ends when each has ended or pair_ns are over
 *   REVIEW   the pattern has no further round; the owner marks the pairs to measure again (dr_coord_reviewed)
 *   AGAIN    rounds of marked pairs, and of those whose node was not there and is now
 *   OVER     nothing runs
 *
 * The first `reviews` times REVIEW is for pairs to repeat. With `alone`, two more follow, each for runs in one direction.
 */
enum dr_coord_phase {
	DR_COORD_JOINING,
	DR_COORD_ROUND,
	DR_COORD_REVIEW,
	DR_COORD_AGAIN,
	DR_COORD_OVER
};
enum dr_coord_act {
	DR_COORD_RUN,  /* the server's part of result, or the client's (client) */
	DR_COORD_STOP, /* end that part */
	DR_COORD_LOOK, /* REVIEW has begun */
	DR_COORD_END   /* OVER has begun */
};
struct dr_coord_action {
	enum dr_coord_act act;
	uint32_t rank, result;
	bool client;
};

struct dr_coord_opts {
	uint32_t nodes;
	const struct dr_pattern_ops *pattern;
	int64_t join_ns, pair_ns;
	unsigned reviews; /* how often pairs may be measured again */
	bool alone;	  /* then runs in one direction may follow, of each direction once */
};

struct dr_coord {
	struct dr_coord_opts o;
	enum dr_coord_phase phase;
	struct dr_sweep_result *result; /* in the order in which they were begun */
	size_t n_results, results_cap;
	uint32_t rounds; /* begun, those of AGAIN included */
	uint32_t present;
	/* private */
	uint8_t *here; /* of each rank: is it present? */
	struct dr_sweep_pair *pairs;
	uint32_t *round; /* results of this round */
	uint32_t n_round, running;
	size_t n_known; /* results of an earlier sweep; sorted by pair once the sweep begins */
	unsigned reviewed;
	int64_t until_ns;
	struct dr_coord_action *action;
	size_t action_head, action_n, action_cap;
	bool failed; /* without memory */
};

/* -ENOMEM. */
int dr_coord_init(struct dr_coord *c, const struct dr_coord_opts *o, int64_t now_ns) DR_MUST_CHECK;
void dr_coord_fini(struct dr_coord *c);
/* A result of an earlier sweep, before any other event: the pair is not measured unless it is MISSING. The caller fills in
 * the figures. NULL: no memory. */
struct dr_sweep_result *dr_coord_known(struct dr_coord *c, struct dr_sweep_pair pair);
void dr_coord_joined(struct dr_coord *c, uint32_t rank, int64_t now_ns);
void dr_coord_lost(struct dr_coord *c, uint32_t rank, int64_t now_ns);
/* Does this part of the result run? A report of another one is late. */
bool dr_coord_expects(const struct dr_coord *c, uint32_t result, bool client);
/* It has ended; ignored if it is not expected. Before that the caller has set the state of the result, if it is the
 * client's part. */
void dr_coord_done(struct dr_coord *c, uint32_t result, bool client, int64_t now_ns);
/* `again` of the results is set. Nothing happens but in REVIEW: it may have been stopped since. */
void dr_coord_reviewed(struct dr_coord *c, int64_t now_ns);
/* End now; what runs is stopped and MISSING. */
void dr_coord_stop(struct dr_coord *c);
void dr_coord_tick(struct dr_coord *c, int64_t now_ns);
int64_t dr_coord_deadline(const struct dr_coord *c);
/* The next action; false: none. */
bool dr_coord_next(struct dr_coord *c, struct dr_coord_action *out);
/* In REVIEW: the directions of the runs to mark. */
enum dr_sweep_way dr_coord_way(const struct dr_coord *c);
bool dr_coord_is_here(const struct dr_coord *c, uint32_t rank);

#endif
