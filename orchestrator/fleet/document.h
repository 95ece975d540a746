/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_DOCUMENT_H
#define DR_ORCHESTRATOR_FLEET_DOCUMENT_H

#include "orchestrator/fleet/hub.h"
#include "orchestrator/fleet/verdict.h"

/* The document of a sweep, and what --resume reads of an earlier one. */
struct dr_sweep_summary {
	const struct dr_hub *hub;
	const struct dr_sweep_verdict *verdict;
	const char *pattern, *run_id, *source;
	double least, seconds;
	int64_t start_wall_ns;
	json_t *options; /* borrowed */
	int exit_code;
	const char *line;
};

/* A new reference; NULL: no memory. */
json_t *dr_sweep_document(const struct dr_sweep_summary *s);
/* Reads the file and adds its pairs as known. -EINVAL: not such a document, another number of nodes or pattern. */
int dr_sweep_resume(struct dr_hub *h, const char *pattern, const char *path, struct dr_err *e)
	DR_MUST_CHECK;

#endif
