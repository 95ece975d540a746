/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_SWEEP_H
#define DR_ORCHESTRATOR_FLEET_SWEEP_H

#include "base/fields.h"
#include "orchestrator/options/options.h"

/*
 * `dualrail sweep`, on every node of a job: rank 0 coordinates (hub.h, coord.h), all nodes measure in pairs (agent.h,
 * child.h). Rank 0 prints the tables and the verdict, the last line of which answers the question, and writes the document.
 * Folder fleet/: above session/, of which it uses the command line and the loop. results.h is what is measured, verdict.h what follows.
 */
/* Returns the exit status: of rank 0 that of the verdict; of the others 0 when the coordinator has ended the sweep. */
int dr_sweep_main(struct dr_options *o, const char *run_id);
/* The document "dualrail-sweep/1"; its schema is made from this table. */
extern const struct dr_fields dr_sweep_fields;

#endif
