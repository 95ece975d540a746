/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_GUARD_PRIV_H
#define DR_ORCHESTRATOR_FAULT_GUARD_PRIV_H

#include "orchestrator/fault/fault.h"

#include <sys/types.h>

/*
 * Between the program and its guard: a SOCK_SEQPACKET pair. Both sides are
 * one program after a fork, so structs and pointers to constants are sent unchanged. Requests go one
 * way, struct dr_fault_report the other, the first with id 0 when the guard is ready.
 */
enum dr_guard_op { DR_GUARD_INJECT, DR_GUARD_UNDO, DR_GUARD_STOP };
struct dr_guard_request {
	enum dr_guard_op op;
	uint32_t id;
	struct dr_fault_spec spec;
	char nic[DR_FAULT_NIC_MAX];
	struct dr_fault_scope scope;
};

struct dr_guard {
	int fd;
	pid_t pid;
	bool dead; /* and reaped */
	struct dr_err
		left; /* the last fault of a dead guard that could not be undone; code 0: none */
	uint32_t last_id;
	char *state_dir;
};

/* The child: serve fd until STOP or until the parent is gone, undo everything, end. */
_Noreturn void dr_guard_main(int fd, pid_t parent, const struct dr_guard_options *opt);

#endif
