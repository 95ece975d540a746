/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options_priv.h"

/* The table of options, from which parser, help, man page, environment names and JSON come; the rows stand
 * in the files of their groups. */

static const struct dr_opt_group *const groups[] = {
	&dr_options_measure,
	&dr_options_paths,
	&dr_options_faults,
	&dr_options_results,
	&dr_options_connection,
	&dr_options_general,
	NULL,
};

static const struct dr_opt_command commands[] = {
	{ "server", DR_CMDBIT_SERVER, "[options]", "Wait for clients and measure with each." },
	{ "client", DR_CMDBIT_CLIENT, "HOST [options]", "Measure against the server on HOST." },
	{ "demo", DR_CMDBIT_DEMO, "[options]", "Both ends on this machine." },
	{ "topo", DR_CMDBIT_TOPO, "[options]",
		"Show GPUs and NICs, how near they are, and which rails each GPU would use." },
	{ "doctor", DR_CMDBIT_DOCTOR, "[HOST] [options]",
		"Find what would stop or falsify a run here, with its remedy; with HOST also between "
		"the two ends." },
	{ NULL, 0, NULL, NULL },
};

const struct dr_opts_spec dr_options_spec = { "dualrail", groups, commands };
