/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_STATE_H
#define DR_ORCHESTRATOR_FAULT_STATE_H

#include "base/defs.h"
#include "base/err.h"
#include "orchestrator/fault/fault.h"
#include "topology/netdev.h"

#include <sys/types.h>

/*
 * State files: what a guard has to undo, on disk before it is injected. One file per network namespace,
 * boot and key ("rail0", "exec-NAME"); its flock is held by the guard from before
 * the injection until after the undo, so it is also the mutual exclusion between guards. A file
 * whose lock can be taken belongs to a dead guard.
 */
struct dr_state {
	const struct dr_fault_kind *kind;
	char nic[DR_FAULT_NIC_MAX]; /* the device; of a kind that acts on none: for information */
	int ifindex;		    /* with mac: of a kind that acts on a NIC */
	uint8_t mac[6];
	/* What the kind needs for undoing, no command; both owned, NULL and empty without. */
	char *undo;
	struct dr_netdev_snapshot snap;
};
void dr_state_fini(struct dr_state *s);

/* Which boot and network namespace a fault belongs to. */
struct dr_state_where {
	char boot[40];	 /* filled up with 0 */
	uint64_t netns;	 /* inode */
	uint64_t cookie; /* 0: the kernel has none */
};
int dr_state_where(struct dr_state_where *w, struct dr_err *e) DR_MUST_CHECK;

/* The bytes of a file; *out is freed with dr_free. -EFBIG, -ENOMEM. */
int dr_state_encode(const struct dr_state *s, const struct dr_state_where *w, uint8_t **out,
	size_t *out_len) DR_MUST_CHECK;
/* Any bytes are safe: -EPROTO. On success s is the caller's to fini. pid: of the guard. */
int dr_state_decode(const uint8_t *p, size_t len, struct dr_state *s, struct dr_state_where *w,
	pid_t *pid) DR_MUST_CHECK;

/* An open, locked file. */
struct dr_state_file;

/* Make and lock the file for key, in dir (NULL: the first usable standard place) and write s to it.
 * -EBUSY: another guard has it, or a dead one left it (the text says which). */
int dr_state_create(const char *dir, const char *key, const struct dr_state *s,
	struct dr_state_file **out, struct dr_err *e) DR_MUST_CHECK;
/* Remove the file and free; NULL is allowed. */
void dr_state_remove(struct dr_state_file *f);
/* Free, leaving the file for a later repair; NULL is allowed. */
void dr_state_leave(struct dr_state_file *f);

/* Who recorded a fault, and when. */
struct dr_state_owner {
	pid_t guard;	  /* in its own PID namespace */
	int64_t since_ns; /* wall clock */
	bool alive;	  /* it holds the lock */
};
typedef int (*dr_state_fn)(
	const struct dr_state *s, const char *path, const struct dr_state_owner *o, void *arg);
/* Call fn for every file of this boot and namespace (dir NULL: all standard places). Files of dead guards are
 * locked meanwhile: fn returns 0 when it undid what s says, and the file is removed; else it stays. Those of living
 * guards are left alone, whatever fn returns. Removes invalid files: of another boot, of a namespace that is gone, or
 * incomplete, hence written before anything was broken. Returns the number of files of dead guards for which fn
 * returned 0. */
int dr_state_each(const char *dir, dr_state_fn fn, void *arg);

#endif
