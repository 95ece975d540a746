/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CAMPAIGN_PRIV_H
#define DR_ORCHESTRATOR_CAMPAIGN_PRIV_H

#include "orchestrator/campaign.h"

/* One trial: one injection of one fault. Channels by position * n_channels + channel. */
struct trial {
	unsigned number; /* from 0, over all faults of the campaign */
	const struct dr_fault_spec *spec;
	struct dr_fault_row row;
	bool idle; /* the fault hits no path that carries data */
	bool expects_switch;
	unsigned n_affected;
	bool *affected; /* of every channel: bulk data on the path that is hit */
	bool *hit;	/* the same, and channels of the latency test, which carry nothing now */
	unsigned *unplanned, *planned;	  /* switches before */
	size_t first_switch, first_event; /* rows of the record that may belong to it */
	int64_t inject_ns;		  /* own clock: when it was asked for */
	int64_t fault_ns;		  /* clock of the end where it acted: when it took effect */
	int64_t undone_ns;		  /* own clock; 0: not undone */
	uint64_t in_flight; /* of the affected channels that send here, at the injection */
	bool hang, error;
	bool nobody; /* manual: nobody broke the path in time */
};

/* campaign_row.c: the figures of a trial from both ends' switch records; the verdict. */
/* Do the records of the receivers of all affected channels stand in the client's record? */
bool dr_trial_records_complete(const struct dr_client *c, const struct trial *t);
void dr_trial_judge(struct dr_client *c, struct trial *t);
/* Unplanned switches that belong to no trial. */
int64_t dr_campaign_false_failovers(const struct dr_client *c);

#endif
