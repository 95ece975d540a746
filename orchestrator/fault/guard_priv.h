/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_GUARD_PRIV_H
#define DR_ORCHESTRATOR_FAULT_GUARD_PRIV_H

#include "orchestrator/fault/fault.h"

#include <sys/types.h>

/*
 * Between the program and its guard: a SOCK_SEQPACKET pair. Who takes the program over must not
 * rule the guard: a request has values alone, no pointer, and the guard checks each. struct
 * dr_fault_report goes the other way, the first with id 0 when the guard is ready.
 */
enum dr_guard_op { DR_GUARD_INJECT, DR_GUARD_UNDO, DR_GUARD_STOP };
struct dr_guard_request {
	enum dr_guard_op op;
	uint32_t id;		      /* not 0 */
	char spec[DR_FAULT_SPEC_MAX]; /* text of dr_fault_spec_format */
	char nic[DR_FAULT_NIC_MAX];
	char control[IFNAMSIZ];		     /* of the control connection; "": unknown */
	struct sockaddr_storage local, peer; /* AF_UNSPEC: unknown */
};

/*
 * Between the program and the keeper, another such pair: a request and its answer. START comes with the guard's
 * descriptor, and is refused while there is a guard; BURY kills the guard, waits for its end and
 * undoes what it left.
 */
enum dr_keeper_op { DR_KEEPER_START, DR_KEEPER_BURY };
struct dr_keeper_answer {
	pid_t pid;	    /* START: of the guard, or -errno */
	struct dr_err left; /* BURY: the last fault that could not be undone; code 0: none */
};

struct dr_guard {
	struct dr_guard_options opt;
	int fd;
	pid_t pid;
	int keeper_fd; /* -1: no keeper */
	pid_t keeper;
	/* When the guard started: may devices of this namespace be changed (0 or -EPERM), can packet filters be made? */
	int rights;
	struct dr_err filters; /* code 0: yes */
	bool dead;	       /* and reaped */
	struct dr_err
		left; /* the last fault of a dead guard that could not be undone; code 0: none */
	uint32_t last_id;
};

/* The child: serve fd until STOP or until parent or keeper are gone, undo everything, end. */
_Noreturn void dr_guard_main(
	int fd, pid_t parent, pid_t keeper, const struct dr_guard_options *opt);
/* The child that starts, kills and replaces guards; see keeper.c. */
_Noreturn void dr_keeper_main(int fd, pid_t parent, const struct dr_guard_options *opt);

/* Both children keep what faults need. */
void dr_guard_restrict(const struct dr_guard_options *opt);

#endif
