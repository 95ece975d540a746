/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_INJECT_H
#define DR_ORCHESTRATOR_SESSION_INJECT_H

#include "orchestrator/session_node.h"
#include "orchestrator/session_route.h"

/*
 * Faults at this end: those of NICs through the guard, closed connections through the workers,
 * manual ones by asking. Results come as reports from inside the loop. Without --allow-faults there
 * is no guard and every request is refused. Start it before threads.
 */
struct dr_injector {
	const struct dr_options *opt;
	struct dr_poller *poller;
	struct dr_guard *guard;
	struct dr_pollable po;
	uint32_t next_own; /* ids of close and manual: the guard's do not come so high */
	unsigned active;   /* injected and not undone, as far as known */
	void (*report)(void *arg, const struct dr_fault_report *rep);
	void *arg;
};

int dr_injector_init(struct dr_injector *inj, const struct dr_options *opt,
	struct dr_poller *poller, struct dr_err *e) DR_MUST_CHECK;
/* Undoes what is left. */
void dr_injector_fini(struct dr_injector *inj);
/* The NIC of this end that a fault acts on: the spec's, or that of the path; "" for close, qp-error. */
const char *dr_inject_nic(
	const struct dr_fault_spec *s, const struct dr_plan *plan, enum dr_plan_end side);
/* The rail that a NIC fault cuts; -1 for close, qp-error and a NIC that is none of the rails'. */
int dr_inject_rail(
	const struct dr_fault_spec *s, const struct dr_plan *plan, enum dr_plan_end side);
/* The rules of this end. */
int dr_injector_check(const struct dr_injector *inj, const struct dr_fault_spec *s,
	const struct dr_plan *plan, enum dr_plan_end side, const struct dr_route *route,
	struct dr_err *e) DR_MUST_CHECK;
/* Begin; a report with this id and undo == false follows, perhaps from inside this call. */
int dr_injector_inject(struct dr_injector *inj, struct dr_node *node, const struct dr_fault_spec *s,
	const struct dr_route *route, uint32_t *id, struct dr_err *e) DR_MUST_CHECK;
/* Undo; a report with undo == true follows. */
int dr_injector_undo(struct dr_injector *inj, uint32_t id, struct dr_err *e) DR_MUST_CHECK;

#endif
