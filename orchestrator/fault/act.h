/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_ACT_H
#define DR_ORCHESTRATOR_FAULT_ACT_H

#include "base/defs.h"
#include "orchestrator/fault/fault.h"
#include "orchestrator/fault/nft.h"
#include "orchestrator/fault/state.h"

/* The deeds themselves, done by the guard, and by repair with what a state file says. */
struct dr_act {
	uint32_t id;
	struct dr_state what;
	struct dr_state_file *file;
	struct dr_nft *nft;
	int64_t hold_until_ns; /* DR_NEVER: no bound */
};

struct dr_act_ctx {
	const char *state_dir;
	const struct dr_fault_execs *execs;
	int64_t exec_timeout_ns;
};

/* Record, then do; 0 or -errno, as in report, whose id and undo the caller set. If it fails nothing
 * is broken and a is empty. May take as long as a command may (exec_timeout_ns, twice if it fails). */
int dr_act_inject(struct dr_act *a, const struct dr_fault_spec *s, const char *nic,
	const struct dr_act_ctx *ctx, struct dr_fault_report *report);
/* Undo what s says, apart from packet filters, which end with their socket. May be repeated. */
int dr_act_reverse(const struct dr_state *s, int64_t exec_timeout_ns, struct dr_fault_report *r);
/* On success a is empty and its file removed; else it may be repeated. */
int dr_act_undo(struct dr_act *a, const struct dr_act_ctx *ctx, struct dr_fault_report *report);
/* Forget a without undoing it, leaving its file for a repair. */
void dr_act_abandon(struct dr_act *a);

/* Run `sh -c cmd` with signals and descriptors as from a shell, standard output to standard error;
 * kill its process group after timeout_ns. 0, -ETIMEDOUT, -EIO with a text for another status. */
int dr_act_command(const char *cmd, const char *nic, int64_t timeout_ns, struct dr_err *e);

#endif
