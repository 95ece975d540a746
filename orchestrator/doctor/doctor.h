/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_DOCTOR_H
#define DR_ORCHESTRATOR_DOCTOR_DOCTOR_H

#include "orchestrator/options.h"

/*
 * `dualrail doctor [HOST]`: looks for what stops a run on this node, or falsifies its figures, before
 * somebody measures. Changes nothing but what a killed run left broken, which is repaired (--dry-run:
 * named only). Prints a table, or with --json a document; returns the exit status: 0, 1 (--rails or
 * --gpus makes no sense), 2 (a failure was found), 3 (no server answers on HOST). o is as parsed; its
 * GPUs are resolved here.
 */
int dr_doctor_main(struct dr_options *o);

#endif
