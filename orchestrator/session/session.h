/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_H
#define DR_ORCHESTRATOR_SESSION_H

#include "base/poller.h"
#include "orchestrator/options/options.h"
#include "orchestrator/output/output.h"
#include "orchestrator/output/record.h"
#include "orchestrator/plan/plan.h"

/*
 * Folder session/: client and server, the messages between them, and the end that both share (session_priv.h).
 *
 * A session is one client's run against one server. The main thread of either end runs everything
 * here: bootstrap, reports of the workers, signals and timers, on one poller; it never sleeps
 * elsewhere. The client leads in a straight line and waits between steps; the server follows.
 */
struct dr_loop {
	struct dr_poller *poller;
	struct dr_pollable sig;
	int signo; /* SIGINT or SIGTERM came; 0 */
};
/* Blocks the two signals in this thread and those it makes later, ignores SIGPIPE. */
int dr_loop_init(struct dr_loop *l, struct dr_err *e) DR_MUST_CHECK;
void dr_loop_fini(struct dr_loop *l);
/* One turn: sleeps until `deadline_ns` (dr_now_ns clock) at the latest. */
void dr_loop_turn(struct dr_loop *l, int64_t deadline_ns);
/* "interrupted (SIGINT)", once a signal came. */
const char *dr_loop_interrupted(const struct dr_loop *l);

/* What a process may still do once it reads bytes of others: rights.c has the two steps. */
struct dr_rights {
	const struct dr_options *opt;
	struct dr_output *out; /* of a run; NULL: --json alone is written */
	uint64_t kept; /* capabilities that are needed to the end, set by dr_rights_restrict */
};
void dr_rights_restrict(struct dr_rights *r);
/* Once, when control is bound and the key was read, before the loop runs. Errors, of --user and the
 * files of results: the process has to end. */
int dr_rights_become(const struct dr_rights *r, struct dr_err *e) DR_MUST_CHECK;

/* Runs a client or a server to its end; the exit status. The record and the outputs are written. */
int dr_client_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out);
int dr_server_main(const struct dr_options *o, struct dr_record *rec, struct dr_output *out);
/* The same for the command in the options, with dr_options_resolve before. */
int dr_session_main(struct dr_options *o, struct dr_record *rec, struct dr_output *out);

#endif
