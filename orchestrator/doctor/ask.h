/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_DOCTOR_ASK_H
#define DR_ORCHESTRATOR_DOCTOR_ASK_H

#include "orchestrator/doctor/look.h"
#include "orchestrator/options.h"
#include "orchestrator/session_route.h"

/*
 * Ask the server on o->host what it has (--port, --control, --key-file, --connect-timeout), within that
 * time. peer_version: the server's build version, at least 64 bytes. *status on failure: the exit
 * status, 3 for all that concerns the peer, 1 or 2 for this end. Blocks; SIGINT and SIGTERM end it.
 */
int dr_doctor_ask(const struct dr_options *o, const struct dr_route *route, struct dr_look *out,
	char *peer_version, int *status, struct dr_err *e) DR_MUST_CHECK;

#endif
