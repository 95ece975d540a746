/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FLEET_CHILD_H
#define DR_ORCHESTRATOR_FLEET_CHILD_H

#include "base/poller.h"
#include "bootstrap/net.h"

#include <jansson.h>
#include <sys/types.h>

/*
 * Parts of runs, one at a time, each as a process of this program: whatever happens to it, the
 * sweep goes on. Options reach it as a configuration file, its document comes back, both in memory
 * files. Variables DUALRAIL_* are not passed on, for they are in the options already.
 * A starter makes them: a process that is forked before the sweep gives up its rights, which runs
 * need. It reads nothing but orders of a fixed size and starts this program alone, with the options
 * of the sweep: who takes over the sweep chooses client or server, an address and a port.
 */
enum { DR_SWEEP_CONFIGS = 3 };
struct dr_sweep_child {
	struct dr_poller *poller;	/* set before the first start */
	char *config[DR_SWEEP_CONFIGS]; /* JSON, options of runs; the owner's */
	bool loud;			/* the standard error of a run is that of this process */
	/* A run has ended, and another one may be started. status: exit status, 128 + n for signal
	 * n. doc: what the client wrote, borrowed; NULL: nothing. text: the last line of its
	 * standard error. */
	void (*ended)(void *arg, int status, const json_t *doc, const char *text);
	void *arg;
	bool runs;
	/* private */
	struct dr_pollable po; /* of the socket to the starter */
	pid_t starter;
	int doc_fd, err_fd;
	int64_t until_ns; /* DR_NEVER: nothing runs */
	bool asked;	  /* to end */
};

struct dr_sweep_order {
	int signo; /* not 0: only this signal for what runs; in child.c */
	bool client;
	unsigned config;
	uint16_t port;
	struct dr_addr host; /* client: of the server */
};

/* Forks the starter, which has the rights of this process. -errno. */
int dr_sweep_child_init(struct dr_sweep_child *c, struct dr_err *e) DR_MUST_CHECK;
/* Nothing runs; until_ns: it is ended then. -errno. */
int dr_sweep_child_start(struct dr_sweep_child *c, const struct dr_sweep_order *o, int64_t until_ns,
	struct dr_err *e) DR_MUST_CHECK;
/* Ask it to end; it is killed when it has not after 3 s. `ended` is still called. */
void dr_sweep_child_stop(struct dr_sweep_child *c, int64_t now_ns);
void dr_sweep_child_tick(struct dr_sweep_child *c, int64_t now_ns);
/* Kills what runs, without a call of `ended`, and ends the starter. After a failed init, too. */
void dr_sweep_child_fini(struct dr_sweep_child *c);

#endif
