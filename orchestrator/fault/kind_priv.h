/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_KIND_PRIV_H
#define DR_ORCHESTRATOR_FAULT_KIND_PRIV_H

#include "orchestrator/fault/state.h"
#include "topology/netdev.h"

/* One fault while it is injected and undone: by the guard, or after a crash from a state file. */
struct dr_fault_action {
	uint32_t id;			    /* 0: free */
	const struct dr_fault_spec *spec;   /* NULL while undoing */
	const struct dr_guard_options *opt; /* NULL: all defaults */
	const struct dr_guard
		*guard; /* of a check: its rights count; NULL: this process is the guard */
	struct dr_state state;
	struct dr_state_file *file;
	void *held;	       /* by the kind, in this process alone: NULL after a crash */
	int64_t hold_until_ns; /* DR_NEVER: no bound */
	int64_t retry_ns;      /* until undoing is repeated after it failed; 0: it did not */
};

/* Record, then inject; 0 or -errno, as in r, whose id and undo the caller set. On failure nothing is
 * broken and a is empty. May take as long as a command may (exec_timeout_ns, twice if it fails). */
int dr_fault_action_inject(struct dr_fault_action *a, const struct dr_fault_spec *s,
	const char *nic, const struct dr_guard_options *opt, struct dr_fault_report *r);
/* Undo what a->state says; may be repeated. On success a is empty and its file removed. */
int dr_fault_action_undo(struct dr_fault_action *a, struct dr_fault_report *r);
/* Forget a without undoing it, leaving its file for a repair. */
void dr_fault_action_abandon(struct dr_fault_action *a);

/* The NIC that a fault acts on, before it is injected. */
struct dr_fault_nic {
	struct dr_netdev dev;
	char address[DR_FAULT_NIC_MAX]; /* of "NAME@ADDRESS"; "": none */
};

/*
 * A kind of fault: one const descriptor in a file kind_*.c and one line in kinds.c. An injection is
 * prepare -> the state file is written -> inject -> prove; undo may follow in another process, which
 * has only action->state, read from the file. The guard performs these steps. Functions that are
 * NULL do nothing and succeed.
 */
struct dr_fault_kind {
	const char *name;  /* as in --fault and in the state file; below DR_FAULT_NAME_MAX bytes */
	const char *value; /* KIND=VALUE: its placeholder in help, "PERCENT"; NULL: takes none */
	const char *help;  /* what it does, a clause for --help */
	enum dr_fault_by by;
	/* Acts on a NIC. Then the rules are: it must not carry the control connection, this process needs
	 * CAP_NET_ADMIN over it, it is up, and it has one fault at a time. Other kinds need no privilege
	 * besides --allow-faults. */
	bool nic;
	bool dir;     /* takes dir= */
	bool untimed; /* somebody else breaks the path: when it takes effect is not known */

	/* Check s->value and set s->number. The name of the kind is put in front of the error. */
	int (*parse)(struct dr_fault_spec *s, struct dr_err *e);
	/* See dr_fault_cuts; NULL: true. */
	bool (*cuts)(const struct dr_fault_spec *s);
	/* What will be done to a->state.nic, and undone; duration: " for 1 s". */
	void (*describe)(
		const struct dr_fault_action *a, const char *duration, char *buf, size_t len);

	/* Can it be done here? Sets in a->state what undoing needs; changes nothing. nic: NULL for kinds
	 * that act on none. */
	int (*prepare)(struct dr_fault_action *a, const struct dr_fault_nic *nic, struct dr_err *e);
	/* Do it; set r->text. Nothing may be left broken on failure. r->before_ns and after_ns are set by
	 * the caller around this call unless it sets them. */
	int (*inject)(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e);
	/* Is the effect there? NULL: inject succeeds only if it is, because the kernel acknowledged a
	 * change that nobody else may undo, or the command says so. */
	int (*prove)(const struct dr_fault_action *a, struct dr_err *e);
	/* Undo; set r->text. May be repeated, and may find that nothing is broken. a->spec is NULL. */
	int (*undo)(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e);
};

/* NULL when there is none. on_path is set for the faults of one transport kind, else NULL. */
const struct dr_fault_kind *dr_fault_kind_find(
	const char *name, const struct dr_kind_fault **on_path);
/* "link-down, blackhole, loss=PERCENT, ...", or only those that take dir=. */
void dr_fault_kinds_names(bool with_dir, char *buf, size_t len);

/* Find "NAME[@ADDRESS]" and note it in s. -ENODEV; -EPERM for the loopback device. */
int dr_fault_nic_find(const char *name, struct dr_fault_nic *nic, struct dr_state *s,
	struct dr_err *e) DR_MUST_CHECK;
/* Letters, digits, '_', '-', '.': 1 to size - 1 of them. */
bool dr_fault_name_valid(const char *s, size_t size);

#endif
