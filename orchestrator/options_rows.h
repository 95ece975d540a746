/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_ROWS_H
#define DR_ORCHESTRATOR_OPTIONS_ROWS_H

#include "orchestrator/options_priv.h"

/* Short words of the files of rows, options_measure.c and those beside it: where an option's value goes,
 * and which commands take it. Nobody else includes this. */
#define AT(field) offsetof(struct dr_options, field)
#define ALL DR_CMDBIT_ALL
#define RUN DR_CMDBIT_RUN
#define NODE (DR_CMDBIT_SERVER | DR_CMDBIT_CLIENT)
#define TOPO DR_CMDBIT_TOPO
#define DOCTOR DR_CMDBIT_DOCTOR

#endif
