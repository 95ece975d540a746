/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_DIAL_H
#define DR_ORCHESTRATOR_SESSION_DIAL_H

#include "bootstrap/bootstrap.h"
#include "orchestrator/options.h"

/*
 * How whoever talks to a server dials it: the client for a run, doctor for its question. Host, GPUs,
 * port, local address, key and timeout of the control conversation are those of the options.
 */
struct dr_dial {
	const struct dr_options *opt;
	bool pair;	     /* unequal numbers of GPUs are no reason to refuse */
	int64_t patience_ns; /* for a server that is still to be started */
	const struct dr_boot_client_ops *ops;
	void *arg;
	struct dr_poller *poller;
};
/* Takes the reference of the offer; NULL: there was no memory for it. Errors of dr_boot_key_read and
 * dr_boot_client_create; on failure *out is as it was. */
int dr_dial(const struct dr_dial *d, json_t *offer, struct dr_boot_client **out, struct dr_err *e)
	DR_MUST_CHECK;

#endif
