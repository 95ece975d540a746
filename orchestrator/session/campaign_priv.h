/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CAMPAIGN_PRIV_H
#define DR_ORCHESTRATOR_SESSION_CAMPAIGN_PRIV_H

#include "orchestrator/session/client_priv.h"

/* Shared by campaign.c (the steps of a trial) and campaign_rows.c (the switches in the record that belong to it). */

/* One trial: one injection of one fault. What it is for each channel is in struct dr_local_channel. */
struct dr_trial {
	unsigned number; /* from 0, over all faults of the campaign */
	const struct dr_fault_spec *spec;
	struct dr_fault_row row;
	bool idle;     /* the fault hits no path that carries data, */
	bool hit_idle; /* but idle ones, as path=1 asks */
	bool expects_switch;
	bool by_transport; /* the transport has to move to another NIC, the channels to none */
	unsigned n_affected;
	size_t first_switch, first_event; /* rows of the record that may belong to it */
	int64_t inject_ns;		  /* own clock: when it was asked for */
	int64_t fault_ns;		  /* clock of the end where it acted: when it took effect */
	int64_t undone_ns;		  /* own clock; 0: not undone */
	uint64_t in_flight; /* of the affected channels that send here, at the injection */
	bool hang, error;
	bool cut;    /* the run ended before the trial did */
	bool nobody; /* manual: nobody broke the path in time */
};

/* campaign_rows.c. Does the record have the rows of the receivers of all affected channels? */
bool dr_trial_complete(struct dr_client *c, const struct dr_trial *t);
/* The rows that belong to the trial get its number. */
void dr_trial_claim(struct dr_client *c, const struct dr_trial *t);
/* The deadline has passed: affected channels that have not switched are late. */
void dr_trial_late(struct dr_client *c, const struct dr_trial *t);
/* The switches of late channels that have come since. Before the next trial begins and before false failovers are
 * counted. */
void dr_trial_claim_late(struct dr_client *c);
/* From the rows of affected channels that the trial claimed. */
void dr_trial_figures(struct dr_client *c, struct dr_trial *t);
/* Unplanned switches that belong to no trial. */
int64_t dr_trial_false_failovers(const struct dr_client *c);

#endif
