/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_REPORT_H
#define DR_ORCHESTRATOR_CHECKS_REPORT_H

#include "orchestrator/options/options.h"

/*
 * `dualrail report RESULT... -o PAGE.html`: one HTML page that needs nothing but itself. It embeds
 * the documents (of runs or sweeps), and its script draws tables and charts from them. Without
 * script it shows the verdict of each. Documents may be hostile: every text is escaped, an embedded
 * document cannot end its element, and the policy in the page's head lets only its own script and
 * style run. Returns the exit status: 0, 1 (usage) or 2 (a file cannot be read or written).
 */
int dr_report_main(const struct dr_options *o);

#endif
