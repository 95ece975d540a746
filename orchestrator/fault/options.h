/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_OPTIONS_H
#define DR_ORCHESTRATOR_FAULT_OPTIONS_H

#include "orchestrator/fault/fault.h"
#include "orchestrator/options/options.h"

enum { DR_FAULTS_MAX = 32 };

struct dr_fault_list {
	unsigned n;
	struct dr_fault_spec v[DR_FAULTS_MAX];
};

/* The options of the group "Faults"; const after dr_options_parse. */
struct dr_fault_options {
	struct dr_fault_list list; /* --fault */
	bool allow;		   /* --allow-faults */
	struct dr_fault_execs execs;
	const char *nics; /* --fault-nics; NULL: those of the run */
};

/* Before dr_options_parse: adds the group to o, which uses f from then on. f is zeroed memory. */
void dr_fault_options_attach(struct dr_fault_options *f, struct dr_options *o);
/* What the guard is started with, apart from rails and control. */
struct dr_guard_options dr_fault_options_guard(const struct dr_fault_options *f);
void dr_fault_options_fini(struct dr_fault_options *f);

#endif
