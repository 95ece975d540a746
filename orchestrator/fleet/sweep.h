/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_SWEEP_H
#define DR_ORCHESTRATOR_FLEET_SWEEP_H

#include "base/fields.h"
#include "orchestrator/options/options.h"

/*
 * Folder fleet/: above session/, of which it uses the command line and the loop.
 * `dualrail sweep` runs on every node of a job: rank 0 coordinates (hub.h, coord.h), all nodes
 * measure in pairs (agent.h, child.h). Rank 0 prints tables and verdict, whose last line answers
 * the question, and writes the document. results.h is what is measured, verdict.h what follows.
 */
/* The exit status: rank 0 has that of the verdict, others 0 if the coordinator ended the sweep. */
int dr_sweep_main(struct dr_options *o, const char *run_id);
/* The document "dualrail-sweep/1"; its schema is made from this table. */
extern const struct dr_fields dr_sweep_fields;

#endif
