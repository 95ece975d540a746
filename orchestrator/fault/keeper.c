/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of a guard: a process without work until the guard dies. The program gives up its rights, so it can neither kill
 * the guard, nor undo what a dead guard left, nor start another one. Invariants:
 * 1. It does nothing by itself: it answers the program, and ends when the program does. If it is
 *    killed, the guard undoes everything and ends.
 * 2. The guard is a child of the program (CLONE_PARENT), which reaps it, and is its own process in all else.
 * 3. Keeper and guard keep CAP_NET_ADMIN alone, with no_new_privs and the filter of system calls; with --fault-exec they keep
 *    everything, since the commands are the administrator's.
 */
#include "orchestrator/fault/guard_priv.h"

#include "base/child.h"
#include "base/log.h"
#include "base/packet.h"
#include "base/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEATH_MS = 10000, TRIES_MAX = 100, TRY_MS = 20 };

struct keeper {
	pid_t parent;
	pid_t guard;  /* 0: none */
	int guard_fd; /* its pidfd: the program reaps it, and its number may be another's then */
	const struct dr_guard_options *opt;
};

void dr_guard_restrict(const struct dr_guard_options *opt)
{
	struct dr_err e;

	if (opt->execs && opt->execs->n)
		return;
	if (dr_privileges_limit(DR_CAP(CAP_NET_ADMIN), &e) || dr_privileges_filter(&e))
		dr_info("guard", "%s", e.text);
}

/* The guard serves the descriptor that came with the request. */
static pid_t start_guard(struct keeper *k, int fd)
{
	/* As fork(), but the child's parent is the program. */
	pid_t keeper = getpid(),
	      pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | SIGCHLD, NULL,
		      &k->guard_fd, NULL, NULL);

	if (pid == 0)
		dr_guard_main(fd, k->parent, keeper, k->opt);
	if (pid < 0)
		return -errno;
	return k->guard = pid;
}

/* The guard's locks are free once it has ended. */
static void bury(struct keeper *k, struct dr_err *left)
{
	struct pollfd p = { .fd = k->guard_fd, .events = POLLIN };

	if (k->guard) {
		syscall(SYS_pidfd_send_signal, p.fd, SIGKILL, NULL, 0);
		while (poll(&p, 1, DEATH_MS) < 0 && errno == EINTR)
			;
		close(p.fd);
	}
	for (int i = 0; i < TRIES_MAX && (!i || left->code == -EBUSY); i++) {
		poll(NULL, 0, i ? TRY_MS : 0);
		dr_fault_repair(k->opt, k->guard, left);
	}
	k->guard = 0;
}

_Noreturn void dr_keeper_main(int fd, pid_t parent, const struct dr_guard_options *opt)
{
	struct keeper k = { .parent = parent, .opt = opt };
	enum dr_keeper_op op;
	int passed;

	dr_child_settle(fd, "dualrail-keeper");
	dr_guard_restrict(opt);
	/* Until the program closes its end, or ends. */
	while (dr_packet_receive(DR_CHILD_FD, &op, sizeof(op), &passed, 1, 0) ==
		(ssize_t)sizeof(op)) {
		struct dr_keeper_answer a = { .pid = 0 };

		if (op == DR_KEEPER_START)
			a.pid = k.guard ? -EBUSY : passed < 0 ? -EBADF : start_guard(&k, passed);
		else
			bury(&k, &a.left);
		if (passed >= 0)
			close(passed);
		send(DR_CHILD_FD, &a, sizeof(a), MSG_NOSIGNAL);
	}
	_exit(0);
}
