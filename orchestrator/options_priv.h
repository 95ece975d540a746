/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_PRIV_H
#define DR_ORCHESTRATOR_OPTIONS_PRIV_H

#include "orchestrator/options.h"

/* options_table.c; the target is a struct dr_options. */
extern const struct dr_opts_spec dr_options_spec;

extern const struct dr_opt_group dr_options_measure; /* options_measure.c */
extern const struct dr_opt_group dr_options_paths;   /* options_paths.c */
extern const struct dr_opt_group dr_options_faults;  /* options_faults.c */
/* options_general.c */
extern const struct dr_opt_group dr_options_results, dr_options_connection, dr_options_general;

#endif
