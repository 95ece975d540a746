/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_TOOLS_REPORT_H
#define DR_ORCHESTRATOR_TOOLS_REPORT_H

#include "orchestrator/options/options.h"

#include <jansson.h>
#include <stdio.h>

/*
 * `dualrail report RESULT... -o PAGE.html`: one HTML page that needs nothing but itself. It has the tables of each document (of a
 * run or a sweep), charts of them, and the documents. Returns the exit status: 0, 1 (usage) or 2 (a file cannot be read or written).
 */
int dr_report_main(const struct dr_options *o);

/*
 * The page. Documents may be hostile: every text is escaped, the embedded documents cannot end their element, and the policy
 * in the page's head lets only its own script and style run. names: of the files, for several documents. 0 or -ENOMEM.
 */
int dr_report_write(const json_t *const *docs, const char *const *names, size_t n, FILE *f)
	DR_MUST_CHECK;

#endif
