/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_H
#define DR_ORCHESTRATOR_FAULT_H

#include "base/defs.h"
#include "base/err.h"

#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

/*
 * Folder fault/: everything about injected faults.
 *
 * Faults: their specification, the rules of what may be broken, and the guard process that injects
 * and undoes them. A kind of fault is one descriptor (kind_priv.h) and one line in kinds.c; kinds
 * that break a path of one transport are in the descriptor of that transport.
 */

/* ---- specification: KIND[=VALUE]:path=0[,nic=NAME][,side=..][,at=..][,for=..]... ---- */

struct dr_fault_kind;
struct dr_kind_fault; /* transport/kind.h */

enum dr_fault_dir { DR_FAULT_BOTH, DR_FAULT_IN, DR_FAULT_OUT };
enum dr_fault_side { DR_FAULT_CLIENT, DR_FAULT_SERVER };
enum dr_fault_by {
	DR_FAULT_BY_GUARD,   /* the guard process */
	DR_FAULT_BY_CHANNEL, /* the workers that own the path: acts on a path, not on a NIC */
	DR_FAULT_BY_USER, /* the user, who is asked; the program waits until it detects the fault */
};

enum { DR_FAULT_NAME_MAX = 32, DR_FAULT_NIC_MAX = 64, DR_FAULT_SPEC_MAX = 320 };

struct dr_fault_spec {
	const struct dr_fault_kind *kind;
	/* By channel: how a path is broken; make NULL: its connection is closed. Otherwise NULL. */
	const struct dr_kind_fault *on_path;
	char value[DR_FAULT_NAME_MAX]; /* of KIND=VALUE; "": none */
	double number;		       /* the value, if it is a number */
	unsigned path;		       /* 0 or 1 (0) */
	char nic[DR_FAULT_NIC_MAX];    /* "": the NIC that carries the path */
	enum dr_fault_side side;       /* the end it acts on (client) */
	int64_t at_ns;		       /* first injection, after measuring began (2 s) */
	int64_t for_ns;		       /* duration (1 s); 0: until the end of the run */
	unsigned repeat;	       /* number of injections (1) */
	int64_t every_ns;      /* from one injection to the next (for + 3 s); 0 when repeat is 1 */
	enum dr_fault_dir dir; /* as seen from the NIC's host (both); of kinds that have it */
	int gpu, channel;      /* whose path; -1: any (faults of a NIC affect all paths on it) */
};

/* -EINVAL: the text names the bad key or value and what is accepted. */
int dr_fault_spec_parse(const char *s, struct dr_fault_spec *out, struct dr_err *e) DR_MUST_CHECK;
/* The canonical form, which parses back to the same; buf of DR_FAULT_SPEC_MAX bytes is enough. */
void dr_fault_spec_format(const struct dr_fault_spec *s, char *buf, size_t len);
const char *dr_fault_name(const struct dr_fault_spec *s);
enum dr_fault_by dr_fault_by(const struct dr_fault_spec *s);
/* Is it of a kind that takes dir=? */
bool dr_fault_takes_dir(const struct dr_fault_spec *s);
/* Is it known when it takes effect? Not of a command, nor of what the user does. */
bool dr_fault_timed(const struct dr_fault_spec *s);
/* Does it stop all traffic of the paths it acts on? */
bool dr_fault_cuts(const struct dr_fault_spec *s);
/* The kinds, a clause each, for --help. */
void dr_fault_kinds_help(char *buf, size_t len);
/* For completion: "link-down|blackhole". */
void dr_fault_kinds_words(char *buf, size_t len);

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

/* What must not be cut: the control connection's device and addresses (each may be NULL). What is cut only where nic=
 * names it: the device of the default route, and that of the ssh session. */
struct dr_fault_control {
	const char *ifname;
	const struct sockaddr *local, *peer;
	const char *ssh; /* SSH_CONNECTION of the environment; NULL: none */
	const struct dr_guard
		*guard; /* its rights to change devices count; NULL: those of this process */
	const char *
		rails; /* for the error text: "eth1 and eth2", rails if HOST were a management address */
};
/*
 * A NIC may be given as "NAME@ADDRESS": addr-del removes that address, without one the first global
 * address.
 *
 * May this end inject the fault on nic (the spec's, or the path's; NULL without one)? Changes
 * nothing, and the text does not name the fault. -EACCES without allow (--allow-faults); -EPERM for the control NIC,
 * a device that the control connection depends on (bond member, device below a VLAN), without nic= that of
 * the default route and of the ssh session, whatever the guard does there; for faults of a NIC also for lo and
 * without CAP_NET_ADMIN;
 * -ENODEV; -ENOENT for an unknown exec name; -EOPNOTSUPP when nf_tables is missing; -EADDRNOTAVAIL and
 * -EBUSY for addresses; what dr_fault_scope_check refuses (opt NULL: nothing).
 */
struct dr_guard_options;
int dr_fault_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_guard_options *opt, bool allow,
	struct dr_err *e) DR_MUST_CHECK;
/* One line: what will be done and undone; by user: what the user is asked to do. */
void dr_fault_describe(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_execs *execs, char *buf, size_t len);

/* --------------------------------- guard --------------------------------- */

/*
 * The guard is a child process that injects and undoes. It has its own session, ignores the signals
 * of the terminal, and undoes everything when this process ends for whatever reason: it watches
 * this process's pidfd, so descriptors that other children inherited do not delay it. Start it before
 * threads; it stays in the network namespace that the caller is in at that time, and keeps CAP_NET_ADMIN, so that the caller can
 * give up its rights (base/privileges.h). A second child, the keeper, kills, undoes and starts again what the caller then may not.
 * If the guard itself is killed, the kernel removes its packet filters, and the call here that
 * notices it has the keeper undo the other faults: dr_guard_fd() is readable at once. If the keeper
 * is killed, the guard undoes everything and ends. If both are, dr_fault_repair() of the next start
 * undoes.
 * Calls belong to one thread at a time. The guard serves one request after another.
 */
struct dr_guard;

struct dr_guard_options {
	const struct dr_fault_execs *execs; /* NULL: none */
	const char *state_dir;		    /* NULL: /run/dualrail (root), $XDG_RUNTIME_DIR, /tmp */
	const char *nics;		    /* --fault-nics, "eth1,eth2"; NULL: all rails */
	const char *rails; /* --rails, names of net devices and addresses; NULL: automatic */
	struct dr_fault_control control; /* of --control, and of HOST if it is an address */
	const struct dr_fault_spec *own; /* --fault of this end; their nic= is named here */
	unsigned n_own;
	int64_t for_max_ns;	 /* the guard undoes every fault after it; 0: no bound */
	int64_t exec_timeout_ns; /* deadline of one CMD or UNDO; 0: 10 s */
};

/* The longest fault of the program; one with for=0 is undone after it. */
#define DR_FAULT_FOR_MAX_NS (3600 * DR_NS_PER_S)

/*
 * The rules of the guard, for every kind that it performs: -EPERM for a nic ("NAME[@ADDRESS]") that
 * is not in opt->nics or not in opt->rails; without opt->rails for one that is never a rail by
 * itself; for a device that opt->control or control needs (dr_fault_check); for that of the default
 * route or the ssh session unless opt->nics or opt->own name it; and for a duration above
 * opt->for_max_ns. A fault without a NIC, exec alone, acts on none.
 */
int dr_fault_scope_check(const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, const struct dr_guard_options *opt,
	struct dr_err *e) DR_MUST_CHECK;

/* opt may be NULL; what it points to outlives the guard. */
int dr_guard_start(const struct dr_guard_options *opt, struct dr_guard **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Another guard in the place of a dead one; state, options and namespace are those of dr_guard_start, whatever rights this process
 * has given up since. */
int dr_guard_renew(struct dr_guard *g, struct dr_err *e) DR_MUST_CHECK;
/* What this process, which may have given up its rights, cannot find out: -EPERM: the guard may not change devices; the error of
 * dr_nft_probe. */
int dr_guard_rights(const struct dr_guard *g);
int dr_guard_filters(const struct dr_guard *g, struct dr_err *e);
/* Undo what is left, end the guard, wait at most 15 s, free. Failures are logged. NULL is allowed. */
void dr_guard_stop(struct dr_guard *g);

/* Outcome of one injection or undo. */
struct dr_fault_report {
	uint32_t id;	   /* of the fault */
	bool undo;	   /* false: of its injection */
	int err;	   /* 0 or -errno */
	int64_t before_ns; /* CLOCK_MONOTONIC immediately before and after the kernel call (exec: the */
	int64_t after_ns; /* command) that took effect; 0 if there was none */
	char text[256];	  /* what was done, or why not */
};

/*
 * Start an injection; *out_id is set at once, the report comes through dr_guard_poll.
 * Errors: -EOPNOTSUPP when the guard does not perform this kind; -EAGAIN; -EPIPE: the guard is dead.
 * Errors of the report: those of dr_fault_scope_check and of the kind (dr_fault_check); -EBUSY when
 * another fault, of this or another process, is on that NIC; -ENETDOWN when the NIC is down; -EIO
 * when the fault has no effect, or a command failed; -ETIMEDOUT.
 */
int dr_guard_inject(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, uint32_t *out_id, struct dr_err *e) DR_MUST_CHECK;
/* Start undoing fault id. Repeating it, or undoing what the guard undid by itself, is no error. */
int dr_guard_undo(struct dr_guard *g, uint32_t id, struct dr_err *e) DR_MUST_CHECK;
/* Readable when a report came or the guard died. */
int dr_guard_fd(const struct dr_guard *g);
/* 1 and *out; 0 none; -EPIPE the guard is dead, and what it held was undone, see dr_guard_gone.
 * Reports of undoing that the guard started by itself come too. */
int dr_guard_poll(struct dr_guard *g, struct dr_fault_report *out);
/* Of a dead guard: -EPIPE, or -EIO if a fault could not be undone; the text says what to do. */
int dr_guard_gone(const struct dr_guard *g, struct dr_err *e);

/* ------------------------------- after a crash ------------------------------- */

/* A fault in this network namespace: of a guard that was killed, or of a living one. */
struct dr_fault_leftover {
	const char *kind, *nic;
	const char *path; /* of its state file */
	/* 0: undone now; -ECANCELED: undoing was not asked for; -EBUSY: a living guard holds it; else why
	 * undoing failed */
	int err;
	const char *text; /* what was done, or why not */
	pid_t guard;	  /* that injected it, in its own PID namespace */
	int64_t since_ns; /* wall clock */
};
typedef void (*dr_fault_leftover_fn)(const struct dr_fault_leftover *l, void *arg);
/* Undo (or, without undo, list) what killed guards left. Of opt count state_dir, execs; a command
 * is recorded by its name (-ENOENT: not defined here). fn is called for each, and for each fault of
 * a living guard, which is left alone. Returns the number of faults undone. */
int dr_fault_leftovers(
	const struct dr_guard_options *opt, bool undo, dr_fault_leftover_fn fn, void *arg);
/* The same, logging each. Returns the number undone; e: the last failure, code 0 without.
 * dead: a guard that has ended (0: none); -EBUSY: another process looks at its record just now. */
int dr_fault_repair(const struct dr_guard_options *opt, pid_t dead, struct dr_err *e);

#endif
