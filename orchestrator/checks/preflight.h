/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_CHECKS_PREFLIGHT_H
#define DR_ORCHESTRATOR_CHECKS_PREFLIGHT_H

#include "base/fields.h"
#include "orchestrator/options/options.h"
#include "orchestrator/output/output.h"

/*
 * `dualrail preflight HOST`, for a job's prolog: checks of this machine and of the server, a run of a client (by default a
 * short --matrix), and one line with the verdict, which names the GPUs and NICs that are bad. The line goes to standard
 * output, or to standard error if --json writes there. Errors that end the run and, with -v, the tables of doctor and of the
 * run go to standard error.
 */

/* What the checks of the machine found; main passes them in, since they are of another folder. */
struct dr_preflight_checks {
	int status;		 /* exit status; not 0: a run cannot begin */
	char failure[512];	 /* the first finding that is a failure; "": none */
	struct json_t *document; /* a reference for the caller; NULL: no memory */
};
typedef void (*dr_preflight_checks_fn)(
	struct dr_options *o, struct dr_output *out, struct dr_preflight_checks *found);

/* oo: outputs without those of --json, which belongs to preflight's own document. Returns the exit status: that of the
 * checks, or that of a client's run with these options. */
int dr_preflight_main(struct dr_options *o, struct dr_record *rec,
	const struct dr_output_options *oo, dr_preflight_checks_fn checks);
/* After an error in the options: writes the document of --json, if it is known where to, and prints nothing. Returns
 * status. */
int dr_preflight_refuse(const struct dr_options *o, int status, const struct dr_err *e);
/* The document "dualrail-preflight/1"; its schema is made from this table. */
extern const struct dr_fields dr_preflight_fields;

#endif
