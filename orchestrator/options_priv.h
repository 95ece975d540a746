/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_PRIV_H
#define DR_ORCHESTRATOR_OPTIONS_PRIV_H

#include "orchestrator/options.h"

/* options_table.c; the target is a struct dr_options. */
extern const struct dr_opts_spec dr_options_spec;

#endif
