/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_AGENT_H
#define DR_ORCHESTRATOR_FLEET_AGENT_H

#include "orchestrator/fleet/child.h"
#include "bootstrap/ports.h"
#include "orchestrator/options/options.h"

/*
 * A node's part of a sweep: runs the parts of pairs that the coordinator orders, one at a time, and reports them. It is the
 * same on rank 0, whose orders do not travel. Messages are JSON objects, see message.h.
 */
struct dr_sweep_agent {
	const struct dr_options *opt;
	/* A report for the coordinator; the agent keeps its reference. */
	void (*report)(void *arg, const json_t *msg);
	void *arg;
	/* private */
	struct dr_ports ports;
	struct dr_sweep_child child; /* its configurations by enum dr_sweep_way */
	struct {
		json_int_t id, attempt;
		bool client;
		int way;
		int64_t until_ns;
		char host[80];
		uint16_t port;
	} now, next; /* what the child does; what is ordered behind it */
	bool has_next;
	json_t *first_nics; /* counters at the begin */
	char where[96];	    /* boot and network namespace of the host; "": not known */
};

/* Looks at the NICs and forks the starter of runs: while the process has its rights. opt and arg
 * are set, report before the first order; fini in any case. */
int dr_sweep_agent_init(struct dr_sweep_agent *a, struct dr_err *e) DR_MUST_CHECK;
/* The ports of runs, behind --port. Before the first order. */
int dr_sweep_agent_claim(struct dr_sweep_agent *a, struct dr_poller *p, struct dr_err *e)
	DR_MUST_CHECK;
/* Ends what runs. */
void dr_sweep_agent_fini(struct dr_sweep_agent *a);
/* What a node tells when it joins. A new reference; NULL: no memory. */
json_t *dr_sweep_agent_offer(struct dr_sweep_agent *a, uint32_t rank, uint32_t nodes);
/* An order: "run" or "stop". Others, and malformed ones, are ignored. */
void dr_sweep_agent_order(struct dr_sweep_agent *a, const json_t *msg, int64_t now_ns);

#endif
