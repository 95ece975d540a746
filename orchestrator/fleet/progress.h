/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_PROGRESS_H
#define DR_ORCHESTRATOR_FLEET_PROGRESS_H

#include "orchestrator/fleet/coord.h"

#include <stddef.h>

/*
 * Lines about a sweep that runs: one when its stage changes (measuring, each repetition), and one
 * every `every_ns`. Lines are at least as far apart as 20 times what the last one took, since low
 * figures are counted anew. Time is an argument.
 */
struct dr_sweep_progress {
	int64_t every_ns;
	/* private */
	int64_t begin_ns, due_ns;
	uint32_t stage;
};

void dr_sweep_progress_init(struct dr_sweep_progress *p, int64_t every_ns, int64_t now_ns);
/* Is a line due? */
bool dr_sweep_progress_due(
	const struct dr_sweep_progress *p, const struct dr_coord *c, int64_t now_ns);
/* The line; least: bound of low figures, as of the judge. */
void dr_sweep_progress_line(struct dr_sweep_progress *p, const struct dr_coord *c, double least,
	int64_t now_ns, char *buf, size_t len);
/* It was written at now_ns, and took took_ns. */
void dr_sweep_progress_done(struct dr_sweep_progress *p, int64_t took_ns, int64_t now_ns);
int64_t dr_sweep_progress_deadline(const struct dr_sweep_progress *p);

#endif
