/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_FAULT_STATE_H
#define DR_ORCHESTRATOR_FAULT_STATE_H

#include "base/defs.h"
#include "base/err.h"
#include "orchestrator/fault/fault.h"
#include "topology/netdev.h"

/*
 * State files: what a guard has to undo, on disk before it is done. One file per network namespace,
 * boot and thing that is broken ("rail0", "exec-NAME"); its flock is held by the guard from before
 * the injection until after the undo, so it is also the mutual exclusion between guards. A file
 * whose lock can be taken belongs to a dead guard.
 */
struct dr_state {
	enum dr_fault_kind kind;
	char nic[DR_FAULT_NIC_MAX]; /* of a NIC: the device; exec: for its environment */
	int ifindex;
	uint8_t mac[6];
	/* exec: the command; addr-del: "ADDRESS/PREFIX"; else NULL. Owned */
	char *undo;
	struct dr_netdev_snapshot snap; /* link-down, addr-del; owned */
};
void dr_state_fini(struct dr_state *s);

/* An open, locked file. */
struct dr_state_file;

/* Make and lock the file for key, in dir (NULL: the first usable standard place) and write s to it,
 * flushed. -EBUSY: another guard has it, or a dead one left it (the text says which). */
int dr_state_create(const char *dir, const char *key, const struct dr_state *s,
	struct dr_state_file **out, struct dr_err *e) DR_MUST_CHECK;
/* Remove the file and free; NULL is allowed. */
void dr_state_remove(struct dr_state_file *f);
/* Free, leaving the file for a later repair; NULL is allowed. */
void dr_state_leave(struct dr_state_file *f);

/* Visit every file of dead guards of this boot and namespace, locked (dir NULL: all standard places);
 * removes the ones that are void: of another boot or a namespace that is gone, or torn while being
 * written, hence before anything was broken. fn returns 0 when it undid what s says, and the file is
 * removed; else the file stays. Returns the number of files for which fn returned 0. */
int dr_state_each(const char *dir, int (*fn)(const struct dr_state *s, const char *path, void *arg),
	void *arg);

#endif
