/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_COMPARE_H
#define DR_ORCHESTRATOR_CHECKS_COMPARE_H

#include "base/fields.h"
#include "orchestrator/options/options.h"

/*
 * `dualrail compare OLD... -- NEW...`: which figures of repeated runs became worse or better beyond the noise. The table goes
 * to standard output, or to standard error if --json writes there. Returns the exit status: 0, 1 (usage), 2 (a file is not
 * readable, options or environments differ, too few runs) or 7 (at least one figure became worse).
 */
int dr_compare_main(const struct dr_options *o);
/* The document "dualrail-compare/1"; its schema is made from this table. */
extern const struct dr_fields dr_compare_fields;

#endif
