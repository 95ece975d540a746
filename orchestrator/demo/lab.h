/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_LAB_H
#define DR_ORCHESTRATOR_LAB_H

#include "base/defs.h"
#include "base/err.h"

#include <sys/types.h>

/*
 * Two nodes on this machine: two network namespaces without names, kept alive by file descriptors only. They
 * vanish with the last process that uses them, even after SIGKILL. Between them:
 *   ctl0   10.77.255.1/30 (node 0)  10.77.255.2/30 (node 1)   control, MTU 1500
 *   rail<i> 10.77.<i>.1/24          10.77.<i>.2/24            i = 0 .. n_links-1
 *           fd77:<i>::1/64          fd77:<i>::2/64            (i in decimal digits)
 * Device names are the same on both nodes; lo is up. The default MTU of the rails is the maximum of
 * a veth: one TCP stream was about 1.5 times as fast as with 9000 or 1500. These two are equally fast because
 * segmentation offload moves 64 KiB at a time. To lose or shape packets as on a real rail, use 9000.
 */
enum { DR_LAB_NODES = 2, DR_LAB_LINKS_MAX = 64, DR_LAB_MTU = 65535 };

struct dr_lab {
	int netns_fd[DR_LAB_NODES]; /* close-on-exec */
	unsigned n_links;
};

/* 0, or -EPERM with the missing privileges in e. Changes nothing. */
int dr_lab_supported(struct dr_err *e);
/* Needs CAP_SYS_ADMIN and CAP_NET_ADMIN. n_links 1..DR_LAB_LINKS_MAX; mtu 0: DR_LAB_MTU. The caller's
 * own namespace does not change. On failure nothing is left. */
int dr_lab_create(unsigned n_links, unsigned mtu, struct dr_lab *out, struct dr_err *e)
	DR_MUST_CHECK;
/* Close the descriptors. Processes in the namespaces keep them alive until they end. */
void dr_lab_destroy(struct dr_lab *lab);

/* Fork; the child enters the namespace of node 0 or 1 (lab NULL: it stays in this one) and exits with the status
 * that fn returns, or with 126. Returns the child's pid, which the caller waits for. The child dies (SIGKILL) with
 * the calling thread. */
pid_t dr_lab_run(
	const struct dr_lab *lab, unsigned node, int (*fn)(void *arg), void *arg, struct dr_err *e);
/* Move the calling thread into the node's namespace permanently. */
int dr_lab_enter(const struct dr_lab *lab, unsigned node, struct dr_err *e) DR_MUST_CHECK;

/* "10.77.<link>.<node+1>"; link n_links: the control address. buf holds at least 32 bytes. */
void dr_lab_address(const struct dr_lab *lab, unsigned node, unsigned link, char *buf, size_t len);

#endif
