/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_CAMPAIGN_PRIV_H
#define DR_ORCHESTRATOR_SESSION_CAMPAIGN_PRIV_H

#include "orchestrator/session/client_priv.h"

/* Shared by campaign.c (the steps of a trial), campaign_rows.c (the switches in the record that belong to it) and
 * campaign_gaps.c (the delivery gaps, where channels do not switch); campaign_nics.c: whether the NIC was in use. */

/* One trial: one injection of one fault. What it is for each channel is in struct dr_local_channel. */
struct dr_trial {
	unsigned number; /* from 0, over all faults of the campaign */
	const struct dr_fault_spec *spec;
	struct dr_fault_row row;
	bool idle;     /* the fault hits no path that carries data, */
	bool hit_idle; /* but idle ones, as path=1 asks */
	bool expects_switch;
	bool watched;	   /* the receivers note the time between deliveries now */
	bool by_transport; /* the transport has to move to another NIC, the channels to none; */
	bool unused;	   /* it did not use the NIC, by the NICs' counters */
	unsigned n_affected;
	size_t first_switch, first_event, first_gap; /* rows of the record that may belong to it */
	int64_t inject_ns;			     /* own clock: when it was asked for */
	int64_t fault_ns;  /* clock of the end where it acted: when it took effect */
	int64_t undone_ns; /* own clock; 0: not undone */
	/* Of the affected channels that send here, at the injection; DR_UNSET: none does, and no switch will tell. */
	int64_t in_flight;
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

/* campaign_gaps.c. Before the injection, and before the COLLECT that precedes it. Sets watched. */
void dr_trial_gaps_begin(struct dr_client *c, struct dr_trial *t);
/* The gaps are over: the receivers report. Nothing if the trial is not watched, or not any more. */
void dr_trial_gaps_end(struct dr_client *c, struct dr_trial *t);
/* Does the record have the delivery gaps of all affected channels? */
bool dr_trial_gaps_complete(const struct dr_client *c, const struct dr_trial *t);
/* The trial's gap from them, in place of what the switches gave. */
void dr_trial_gaps_figures(const struct dr_client *c, struct dr_trial *t);

/* campaign_nics.c. What this end's NICs have counted so far: that of a rail, and all; and the payload of both directions. */
struct dr_trial_nics {
	bool known;
	uint64_t nic, all, payload;
};
/* rail -1: none, not known. */
void dr_trial_nics_read(const struct dr_local *l, int rail, struct dr_trial_nics *out);
/* Between the two readings the affected channels' data did not go over that NIC. False: they did, or the counters do not
 * tell. */
bool dr_trial_nic_unused(const struct dr_local *l, const struct dr_trial_nics *before,
	const struct dr_trial_nics *after);

#endif
