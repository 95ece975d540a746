/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_NODE_PRIV_H
#define DR_ORCHESTRATOR_SESSION_NODE_PRIV_H

#include "orchestrator/affinity.h"
#include "orchestrator/session_node.h"

/*
 * The node's files among themselves. session_node.c makes it and owns its workers,
 * session_node_reports.c is the way from them, session_node_phase.c the way to them, session_rows.c
 * the record.
 */
struct dr_node_worker {
	struct dr_pollable po;
	struct dr_node *node;
	struct dr_worker *w;
};

/* session_node.c */
struct dr_worker *dr_node_worker_of(const struct dr_node *node, unsigned position);
/* Where the i-th worker runs. */
struct dr_affinity_place dr_node_place(const struct dr_node *node, unsigned worker);

/* session_node_reports.c: the worker's report queue is readable. */
void dr_node_on_reports(struct dr_pollable *po, uint32_t revents, int64_t now_ns);

/* session_rows.c: what was planned; where the NICs' own counters stand before the first byte. */
void dr_node_record_plan(struct dr_node *node);
void dr_node_count_nics(struct dr_node *node);

#endif
