/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_TABLE_H
#define DR_ORCHESTRATOR_FLEET_TABLE_H

#include "orchestrator/fleet/verdict.h"

#include <stdio.h>

/* The node x node table (up to 11 nodes; of more nodes the worst ones) and the findings, at most 100 columns. */
int dr_sweep_print(const struct dr_sweep_judge *j, const struct dr_sweep_verdict *v, FILE *f);

#endif
