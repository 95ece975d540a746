/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CAMPAIGN_H
#define DR_ORCHESTRATOR_CAMPAIGN_H

#include "orchestrator/session_client.h"

/*
 * The failover test: traffic runs on while faults are injected and undone, trial after trial. Every
 * trial becomes a dr_fault_row; what the receivers saw counts.
 */

/* The faults of this run: those of the options, or without any the default: link-down and blackhole
 * on path 0 of the client, close where that is not permitted. -EACCES, -EPERM, -ENODEV.. (exit 2). */
int dr_campaign_faults(const struct dr_options *o, const struct dr_injector *inj,
	const struct dr_plan *plan, const struct dr_route *route, struct dr_fault_list *out,
	struct dr_err *e) DR_MUST_CHECK;
/* 0, or what dr_client_wait returned when the run ended early. */
int dr_campaign_run(struct dr_client *c, const struct dr_phase *phase) DR_MUST_CHECK;

#endif
