/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_OPTIONS_PRIV_H
#define DR_ORCHESTRATOR_OPTIONS_PRIV_H

#include "orchestrator/options/options.h"

/* about.c */
extern const struct dr_opt_manual dr_options_manual;
extern const struct dr_opt_group dr_options_measure, dr_options_paths; /* measure.c, paths.c */
/* general.c */
extern const struct dr_opt_group dr_options_results, dr_options_connection, dr_options_plugin,
	dr_options_general;
extern const struct dr_opt_group dr_options_sweep; /* sweep.c */

/* transports.c */
/* -ENOTSUP: not in this build; -EINVAL: options of another kind, values that the kind refuses. */
int dr_options_check_transport(const struct dr_options *o, struct dr_err *e) DR_MUST_CHECK;
/* dr_opt.help_more of --transport and --rails. */
void dr_options_help_transports(char *buf, size_t len);
void dr_options_help_nics(char *buf, size_t len);
/* dr_opt.words of --transport. */
void dr_options_words_transports(char *buf, size_t len);

/* Abbreviations for the rows: where a value is stored, and which commands have the option. */
#define AT(field) offsetof(struct dr_options, field)
#define ALL DR_CMDBIT_ALL
#define RUN DR_CMDBIT_RUN
#define PREFLIGHT DR_CMDBIT_PREFLIGHT
#define SWEEP DR_CMDBIT_SWEEP
/* Those that have documents and judge pairs themselves, with a run inside. */
#define OUTER (PREFLIGHT | SWEEP)
#define NODE (DR_CMDBIT_SERVER | DR_CMDBIT_CLIENT | OUTER)
#define TOPO DR_CMDBIT_TOPO
#define DOCTOR DR_CMDBIT_DOCTOR
#define COMPARE DR_CMDBIT_COMPARE
#define PLUGIN DR_CMDBIT_PLUGIN
#define REPORT DR_CMDBIT_REPORT
/* The commands that have the general options. */
#define ANY (ALL | TOPO | DOCTOR | COMPARE | PLUGIN | REPORT)

#endif
