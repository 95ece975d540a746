/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_PRIVILEGES_H
#define DR_BASE_PRIVILEGES_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/*
 * Giving up rights of the process: capabilities, the user, system calls. Nothing here can be taken back. The kernel keeps
 * these per thread; every function changes all threads of the process. The caller starts no thread meanwhile.
 */

/* A set of capabilities: bit CAP_X of linux/capability.h. */
#define DR_CAP(x) (UINT64_C(1) << (x))

/* The permitted ones of the calling thread. */
uint64_t dr_privileges_held(void);
/* Has this process some from its file (setcap), which its caller may not have? SELinux also sets
 * AT_SECURE for root, and for processes without any. */
bool dr_privileges_lent(void);
/* Makes these ineffective in the calling thread (true), or effective again as far as they are permitted: to find out what
 * works without them. */
void dr_privileges_suspend(uint64_t caps, bool suspend);

/*
 * Every thread keeps of its capabilities those of `keep` only: effective and permitted; inheritable, ambient and the
 * bounding set lose them. -errno: text says why, and of which thread; the calling thread has lost them all the same unless
 * capset itself failed.
 */
int dr_privileges_limit(uint64_t keep, struct dr_err *e) DR_MUST_CHECK;

/*
 * no_new_privs, and a seccomp filter: what the program never needs fails with EPERM (system calls that start programs, trace
 * or read other processes, mount, load code into the kernel, change clocks, keys, namespaces; the list and its reasons are in
 * privileges.c). Children inherit both. -EOPNOTSUPP: this kernel or processor has no filter; no_new_privs is set.
 */
int dr_privileges_filter(struct dr_err *e) DR_MUST_CHECK;

/* ---- another user ---- */

enum { DR_USER_MAX = 64 };
struct dr_user {
	char name[DR_USER_MAX];
	uid_t uid;
	gid_t gid;
};
/* The user of this name or number. -ENOENT: there is none. */
int dr_user_find(const char *name, struct dr_user *out, struct dr_err *e) DR_MUST_CHECK;
/*
 * All threads become this user: groups, real, effective and saved ids. The calling thread keeps the capabilities of
 * `keep`, the others have none. Needs CAP_SETUID and CAP_SETGID unless the process is of that user already: -EPERM.
 * On failure the process may be half changed: it has to end.
 */
int dr_privileges_become(const struct dr_user *u, uint64_t keep, struct dr_err *e) DR_MUST_CHECK;

/* "user 65534, capabilities ipc_lock, no_new_privs, system call filter", of the calling thread. */
void dr_privileges_describe(char *buf, size_t len);
/* "ipc_lock, net_raw"; "none". */
void dr_privileges_names(uint64_t caps, char *buf, size_t len);

#endif
