/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_EXHAUSTIVE_CLOCK_H
#define DR_TESTS_EXHAUSTIVE_CLOCK_H

#include "channel/failover.h"

/*
 * The clock of the scopes with ex_scope.clock. `now` is EX_NOW in every state; when time passes, the times in both
 * cores and the ages below are moved instead. So a state is the same whenever it is reached. A time further away
 * than any rule compares with is cut off there, as in the regions of timed automata; 2 ms is the unit.
 *
 * Time passes when nothing else can happen, to the next deadline that a core reports (dr_fo_deadline); at any other
 * moment that costs a fault. An end whose deadline has come is ticked before time passes again. Each end's
 * clock runs at the same rate. An end may be stopped; then the driver corrects its core as channel/manager.c does
 * (dr_fo_own_stall), before or after it reads what has arrived.
 *
 * The rules of time are held against ages that the model keeps itself (struct ex_watch). It learns of them from
 * the states of core and paths only, never from a time in a core.
 */
struct ex_state;
struct ex_scope;
struct ex_tr;

/* Ages, ns of the end's own running time; hold, failback, READY or DOWN path: of real time. */
struct ex_watch {
	bool stopped;
	int64_t debt_ns;   /* it was stopped for so long, and its core does not know */
	int64_t nopath_ns; /* -1: a path is usable */
	int64_t state_ns; /* state and epoch are as they are; not while the peer is known to be stopped */
	int64_t proposed_ns; /* SWITCH: the path was proposed; the same */
	int64_t owed_ns;     /* data is owed and nothing was acknowledged; the same */
	int64_t hold_ns;     /* the primary is READY and its rail works, and no failback failed */
	int64_t failback_ns; /* last failback; -1: none */
	int64_t path_ns[DR_PATHS];  /* state of the path */
	int64_t ready_ns[DR_PATHS]; /* the connection works */
	int64_t due_ns[DR_PATHS];   /* age of DOWN at which the path is dialled */
	uint8_t tries[DR_PATHS];    /* dials that failed in a row */
	uint8_t flaps;		    /* how often the hold-down is doubled */
	uint8_t rounds;		    /* epochs without progress */
};

/* What ex_watch is made from: a core before an event. */
struct ex_seen {
	enum dr_fo_state state;
	uint32_t epoch, gen[DR_PATHS];
	unsigned target, active;
	bool planned, answered, stalled, ever_up, rec_open, owed;
	uint64_t acked, high;
	struct {
		enum dr_fo_pstate state;
		bool stuck, rail_down;
	} path[DR_PATHS];
};

/* clock.c */
/* Time until something is due; 0 now, -1 never. */
int64_t ex_clock_next(const struct ex_scope *sc, const struct ex_state *s);
bool ex_clock_due(const struct ex_state *s, unsigned e);
void ex_clock_event(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t);
/* Cuts off what no rule reads. */
void ex_clock_canon(const struct ex_scope *sc, struct ex_state *s);
uint8_t *ex_clock_put(const struct ex_state *s, uint8_t *b);
const uint8_t *ex_clock_get(const uint8_t *b, struct ex_state *s);

/* rules.c */
void ex_watch_start(struct ex_state *s);
void ex_see(const struct dr_fo *f, struct ex_seen *was);
/* After an event at end e; tick: the event was a tick. Checks the rules that the event shows. */
void ex_watch_event(const struct ex_scope *sc, struct ex_state *s, unsigned e,
	const struct ex_seen *was, const struct ex_tr *t, bool tick);
/* Time has passed. Checks that nothing is overdue. */
void ex_watch_time(const struct ex_scope *sc, struct ex_state *s, int64_t ns);
void ex_watch_canon(const struct ex_scope *sc, struct ex_state *s, unsigned e);

#endif
