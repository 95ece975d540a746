/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_H
#define DR_ORCHESTRATOR_FAULT_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/socket.h>

/* --------- specification: KIND:path=0[,nic=NAME][,side=..][,at=..][,for=..]... --------- */

enum dr_fault_kind {
	DR_FAULT_LINK_DOWN, /* the NIC's link set down and up again */
	DR_FAULT_BLACKHOLE, /* packets of the NIC vanish, ARP and ND included; the link stays up */
	DR_FAULT_LOSS,	    /* packets of the NIC vanish with a probability */
	DR_FAULT_CLOSE, /* the path's connection is closed: done by the channel, not by the guard */
	DR_FAULT_MANUAL,   /* the operator acts; the tool waits until it detects */
	DR_FAULT_EXEC,	   /* a command of --fault-exec, its UNDO afterwards */
	DR_FAULT_QP_ERROR, /* verbs: the path's queue pairs are put into the error state, as close */
	DR_FAULT_ADDR_DEL, /* the NIC's IP address is taken away, routes with it */
	DR_FAULT_KINDS
};
enum dr_fault_dir { DR_FAULT_BOTH, DR_FAULT_IN, DR_FAULT_OUT };
enum dr_fault_side { DR_FAULT_CLIENT, DR_FAULT_SERVER };

enum { DR_FAULT_NAME_MAX = 32, DR_FAULT_NIC_MAX = 64, DR_FAULT_SPEC_MAX = 320 };

struct dr_fault_spec {
	enum dr_fault_kind kind;
	unsigned path;		    /* 0 or 1 (0) */
	char nic[DR_FAULT_NIC_MAX]; /* "": the NIC that carries the path */
	enum dr_fault_side side;    /* the end it acts on (client) */
	int64_t at_ns;		    /* first injection, after measuring began (2 s) */
	int64_t for_ns;		    /* how long it lasts (1 s); 0: until the end of the run */
	unsigned repeat;	    /* injections in all (1) */
	int64_t every_ns;      /* from one injection to the next (for + 3 s); 0 when repeat is 1 */
	enum dr_fault_dir dir; /* blackhole, loss (both); as seen from the NIC's host */
	double loss_percent;   /* loss: > 0, <= 100 */
	char exec_name[DR_FAULT_NAME_MAX];
	int gpu,
		channel; /* which channel's path is meant; -1: any (NIC faults hit all on the NIC) */
};

/* -EINVAL: the text names the bad key or value and what is accepted. */
int dr_fault_spec_parse(const char *s, struct dr_fault_spec *out, struct dr_err *e) DR_MUST_CHECK;
/* The canonical form, which parses back to the same; buf of DR_FAULT_SPEC_MAX bytes is enough. */
void dr_fault_spec_format(const struct dr_fault_spec *s, char *buf, size_t len);
const char *dr_fault_kind_name(enum dr_fault_kind k);
/* True for the kinds that the guard does: link-down, blackhole, loss, addr-del, exec. */
bool dr_fault_by_guard(enum dr_fault_kind k);
/* True for the kinds that act on one channel's path and not on a NIC: close, qp-error. */
bool dr_fault_by_channel(enum dr_fault_kind k);

/* ------------------------- --fault-exec NAME=CMD,UNDO ------------------------- */

struct dr_fault_exec {
	char name[DR_FAULT_NAME_MAX];
	char *cmd, *undo; /* run with sh -c */
};
struct dr_fault_execs {
	struct dr_fault_exec *v;
	size_t n;
};
/* Add "NAME=CMD,UNDO"; a comma inside a command is written "\,". -EINVAL, -EEXIST, -ENOMEM. */
int dr_fault_execs_add(struct dr_fault_execs *t, const char *s, struct dr_err *e) DR_MUST_CHECK;
const struct dr_fault_exec *dr_fault_execs_find(const struct dr_fault_execs *t, const char *name);
void dr_fault_execs_fini(struct dr_fault_execs *t);

/* --------------------------------- rules --------------------------------- */

/* What must not be cut: the control connection's device and addresses (each may be NULL). */
struct dr_fault_control {
	const char *ifname;
	const struct sockaddr *local, *peer;
};
/*
 * Wherever nic is asked for, "NAME@ADDRESS" says which of its addresses addr-del means; without, it is
 * the first global one.
 *
 * May this end do that to nic (the spec's, or the path's; NULL for close, manual, exec)? Touches
 * nothing. -EACCES without allow (--allow-faults); -EPERM for the control NIC, lo, a device that the
 * control connection depends on (bond member, device below a VLAN), and without CAP_NET_ADMIN;
 * -ENODEV; -ENOENT for an unknown exec name; -EOPNOTSUPP when nf_tables is missing.
 */
int dr_fault_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_fault_execs *execs, bool allow,
	struct dr_err *e) DR_MUST_CHECK;
/* --dry-run: one line of what would be done and undone. */
void dr_fault_describe(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_execs *execs, char *buf, size_t len);
/* manual: the line that asks the operator to act. */
void dr_fault_prompt(const struct dr_fault_spec *s, const char *nic, char *buf, size_t len);

/* --------------------------------- guard --------------------------------- */

/*
 * The guard is a child process that injects and undoes. It lives in a session of its own, ignores
 * the terminal's signals, and undoes everything when this process ends in whatever way: it watches
 * this process's pidfd, so descriptors inherited by other children do not hold it back. Start it
 * before threads; it stays in the network namespace that the caller is in at that time.
 * When the guard itself is killed the kernel removes its packet filters, and dr_fault_repair() of
 * the next start brings links up again and runs the UNDO of exec faults.
 * Calls belong to one thread at a time. The guard does one request after another.
 */
struct dr_guard;

struct dr_guard_options {
	const struct dr_fault_execs *execs; /* NULL: none; copied by the fork */
	const char *state_dir;		    /* NULL: /run/dualrail (root), $XDG_RUNTIME_DIR, /tmp */
	int64_t exec_timeout_ns;	    /* deadline of one CMD or UNDO; 0: 10 s */
};
/* opt may be NULL. */
int dr_guard_start(const struct dr_guard_options *opt, struct dr_guard **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Undo what is left, end the guard, wait at most 15 s, free. The last word on what went wrong is
 * logged. NULL is allowed. */
void dr_guard_stop(struct dr_guard *g);
pid_t dr_guard_pid(const struct dr_guard *g);

/* Outcome of one injection or undo. */
struct dr_fault_report {
	uint32_t id;	   /* of the fault */
	bool undo;	   /* this is about its undoing */
	int err;	   /* 0 or -errno */
	int64_t before_ns; /* CLOCK_MONOTONIC right before and right after the kernel call (exec: */
	int64_t after_ns;  /* around the command) that took effect; 0 when it never came to that */
	char text[256];	   /* what was done, or why not */
};

/*
 * Inject, and wait for the report at most until deadline_ns (dr_now_ns clock; -ETIMEDOUT: the guard
 * undoes it as soon as it gets there). hold_max_ns: the guard undoes it by itself after that time
 * even if this process hangs (0: no bound). Returns report->err. Errors: -EBUSY when another fault,
 * of this or another process, is on that NIC; -EOPNOTSUPP for close and manual; -EPIPE: the guard is
 * dead; those of dr_fault_check apart from its rules, which the caller has asked before.
 */
int dr_fault_inject(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	int64_t hold_max_ns, int64_t deadline_ns, struct dr_fault_report *report, struct dr_err *e);
/* Undo fault id. Repeating it, or undoing what the guard undid by itself, is no error. */
int dr_fault_undo(struct dr_guard *g, uint32_t id, int64_t deadline_ns,
	struct dr_fault_report *report, struct dr_err *e);

/* The same without waiting: start returns the fault's id at once, the report comes through poll. */
int dr_fault_inject_start(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	int64_t hold_max_ns, uint32_t *out_id, struct dr_err *e) DR_MUST_CHECK;
int dr_fault_undo_start(struct dr_guard *g, uint32_t id, struct dr_err *e) DR_MUST_CHECK;
/* Readable when a report came or the guard died; reports that came while inject or undo waited for
 * another are ready without it, so poll after those too, until 0. */
int dr_guard_fd(const struct dr_guard *g);
/* 1 and *out; 0 none; -EPIPE the guard is dead. Undoings that the guard did by itself come too. */
int dr_guard_poll(struct dr_guard *g, struct dr_fault_report *out);

/* Undo what killed guards left in this network namespace (state_dir as in the options). Returns the
 * number of faults undone; failures are in e, their state files stay. Never touches what a living
 * guard holds. */
int dr_fault_repair(const char *state_dir, struct dr_err *e);

#endif
