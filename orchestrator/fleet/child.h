/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_CHILD_H
#define DR_ORCHESTRATOR_FLEET_CHILD_H

#include "base/err.h"
#include "base/poller.h"
#include "bootstrap/net.h"

#include <jansson.h>
#include <sys/types.h>

/*
 * One part of a run, as a process of this program: whatever happens to it, the sweep goes on. Options reach it as a
 * configuration file, its document comes back, both in memory files. Variables DUALRAIL_* are not passed on, for they
 * are in the options already. It is ended with the process that started it.
 */
struct dr_sweep_child;
struct dr_sweep_child_opts {
	struct dr_poller *poller;
	bool client;
	struct dr_addr host; /* client: of the server */
	uint16_t port;
	const char *config; /* JSON */
	bool loud;	    /* its standard error is that of this process */
	int64_t until_ns;   /* it is ended then */
	/* It has ended and is freed behind this call. status: exit status, 128 + n for signal n. doc: what the client wrote,
	 * borrowed; NULL: nothing. text: the last line of its standard error. */
	void (*ended)(void *arg, int status, const json_t *doc, const char *text);
	void *arg;
};

/* -errno. */
int dr_sweep_child_start(struct dr_sweep_child **out, const struct dr_sweep_child_opts *o,
	struct dr_err *e) DR_MUST_CHECK;
/* Ask it to end; it is killed when it has not after 3 s. `ended` is still called. */
void dr_sweep_child_stop(struct dr_sweep_child *c, int64_t now_ns);
void dr_sweep_child_tick(struct dr_sweep_child *c, int64_t now_ns);
int64_t dr_sweep_child_deadline(const struct dr_sweep_child *c);
/* Kill it, wait, free; no callback. */
void dr_sweep_child_destroy(struct dr_sweep_child *c);

#endif
