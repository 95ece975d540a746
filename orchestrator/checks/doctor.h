/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_DOCTOR_H
#define DR_ORCHESTRATOR_CHECKS_DOCTOR_H

#include "orchestrator/checks/finding.h"
#include "orchestrator/options/options.h"

/*
 * Folder checks/: the commands beside server, client and sweep: doctor, preflight, topo, compare,
 * report and plugin. Each has a header of its name. They may use sessions; a run uses none of them.
 *
 * `dualrail doctor [HOST]`: its checks are in doctor_priv.h and peer.h, findings in finding.h.
 *
 * Checks this machine for problems that stop a run or distort its results. Changes nothing, except
 * that faults of killed runs are undone (--dry-run: only listed). Prints a table and, with --json,
 * writes a document. Returns the exit status: 0, 1 (invalid --rails or --gpus), 2 (a failure was
 * found), 3 (no server answers on HOST). o is as parsed; its GPUs are resolved here.
 */
int dr_doctor_main(struct dr_options *o);
struct dr_output;
/* The checks alone, without output: into found (dr_findings_fini). Before it asks the server, the
 * process gives up its rights but those for a run with these options and out. The exit status.
 * *stops: a run cannot begin; else it may, whatever was found. */
int dr_doctor_check(struct dr_options *o, struct dr_output *out, struct dr_findings *found,
	bool *stops) DR_MUST_CHECK;

#endif
