/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard. Invariants:
 * 1. Nothing is broken that acts[] and a state file do not know.
 * 2. It looks for its parent's death (pidfd, which other holders of our socket cannot delay) before
 *    it serves a request; after that death nothing is injected any more.
 * 3. Every way out of the loop goes through undo_all.
 */
#include "orchestrator/fault/guard_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/fault/act.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ACTS_MAX = 32, UNDO_TRIES = 5, SOCK_FD = 3 };

struct guard {
	int parent_fd; /* pidfd; -1: already gone */
	bool orphan;
	struct dr_act_ctx ctx;
	struct dr_act acts[ACTS_MAX]; /* id 0: free */
};

/* Nothing of the parent's stays but standard error and the socket, which moves to SOCK_FD: a GPU or
 * a NIC that a dead program's guard still held open would not be free. closefrom() goes through
 * /proc/self/fd where the kernel has no close_range (before Linux 5.9). */
static void drop_descriptors(int fd)
{
	int null;

	if (fd != SOCK_FD)
		dup2(fd, SOCK_FD);
	closefrom(SOCK_FD + 1);
	if (fd < SOCK_FD)
		close(fd);
	null = open("/dev/null", O_RDWR);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (null > SOCK_FD)
		close(null);
	fcntl(SOCK_FD, F_SETFD, FD_CLOEXEC);
}

static void settle(int fd)
{
	static const int ignored[] = { SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN,
		SIGTTOU, SIGUSR1, SIGUSR2, SIGALRM };
	sigset_t none;

	drop_descriptors(fd);
	setsid();
	prctl(PR_SET_NAME, "dualrail-guard");
	for (size_t i = 0; i < DR_ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void reply(const struct guard *g, const struct dr_fault_report *r)
{
	if (g->orphan) {
		dr_log(r->err ? DR_LOG_ERROR : DR_LOG_WARN, "guard", "the program died; %s: %s",
			r->undo ? "undone" : "fault", r->text);
		return;
	}
	/* A parent that does not read its reports gets no more of them; the deeds are done anyway. */
	send(SOCK_FD, r, sizeof(*r), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static struct dr_act *act_of(struct guard *g, uint32_t id)
{
	for (size_t i = 0; i < ACTS_MAX; i++) {
		if (g->acts[i].id == id)
			return &g->acts[i];
	}
	return NULL;
}

static void inject(struct guard *g, const struct dr_guard_request *q)
{
	struct dr_fault_report r = { .id = q->id };
	struct dr_act *a = act_of(g, 0);

	if (dr_now_ns() > q->deadline_ns) {
		r.err = -ETIMEDOUT;
		snprintf(r.text, sizeof(r.text), "not begun before the deadline");
	} else if (!a) {
		r.err = -ENOSPC;
		snprintf(r.text, sizeof(r.text), "too many faults at once");
	} else if (dr_act_inject(a, &q->spec, q->nic, &g->ctx, &r) == 0) {
		a->id = q->id;
		a->hold_until_ns = q->hold_max_ns ? dr_now_ns() + q->hold_max_ns : DR_NEVER;
	}
	reply(g, &r);
}

static int undo(struct guard *g, struct dr_act *a)
{
	struct dr_fault_report r = { .id = a->id, .undo = true };
	int rc = dr_act_undo(a, &g->ctx, &r);

	reply(g, &r);
	return rc;
}

static void undo_id(struct guard *g, uint32_t id)
{
	struct dr_act *a = id ? act_of(g, id) : NULL;
	struct dr_fault_report r = { .id = id, .undo = true, .text = "undone already" };

	if (a)
		undo(g, a);
	else
		reply(g, &r);
}

static void undo_held_too_long(struct guard *g)
{
	int64_t now = dr_now_ns();

	for (size_t i = 0; i < ACTS_MAX; i++) {
		struct dr_act *a = &g->acts[i];

		/* If that fails it is tried again at the end, not in a tight loop. */
		if (a->id && a->hold_until_ns <= now) {
			a->hold_until_ns = DR_NEVER;
			undo(g, a);
		}
	}
}

static _Noreturn void undo_all(struct guard *g)
{
	for (size_t i = 0; i < ACTS_MAX; i++) {
		struct dr_act *a = &g->acts[i];

		for (int tries = 0; a->id && tries < UNDO_TRIES; tries++) {
			if (undo(g, a) < 0)
				poll(NULL, 0, 50 << tries);
		}
		if (a->id)
			dr_act_abandon(a); /* its file stays for `dualrail doctor` */
	}
	_exit(0);
}

static int timeout_ms(const struct guard *g)
{
	int64_t first = DR_NEVER, left;

	for (size_t i = 0; i < ACTS_MAX; i++) {
		if (g->acts[i].id)
			first = DR_MIN(first, g->acts[i].hold_until_ns);
	}
	if (first == DR_NEVER)
		return -1;
	left = DR_MAX(first - dr_now_ns(), 0);
	return (int)DR_MIN(left / DR_NS_PER_MS + 1, 60000);
}

/* Returns when the guard has to end. */
static void serve(struct guard *g)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = SOCK_FD, .events = POLLIN },
			{ .fd = g->parent_fd, .events = POLLIN } };
		struct dr_guard_request q;
		ssize_t n;

		if (poll(p, 2, timeout_ms(g)) < 0 && errno != EINTR)
			return;
		g->orphan |= p[1].revents != 0;
		if (g->orphan)
			return;
		undo_held_too_long(g);
		if (!p[0].revents)
			continue;
		n = recv(SOCK_FD, &q, sizeof(q), MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		g->orphan |= n != sizeof(q);
		if (g->orphan || q.op == DR_GUARD_STOP)
			return;
		if (q.op == DR_GUARD_INJECT)
			inject(g, &q);
		else
			undo_id(g, q.id);
	}
}

_Noreturn void dr_guard_main(int fd, pid_t parent, const struct dr_guard_options *opt)
{
	static struct guard g;
	struct dr_fault_report ready = { .id = 0 };

	settle(fd);
	g.ctx.state_dir = opt->state_dir;
	g.ctx.execs = opt->execs;
	g.ctx.exec_timeout_ns =
		opt->exec_timeout_ns ? opt->exec_timeout_ns : DR_GUARD_EXEC_TIMEOUT_NS;
	g.parent_fd = (int)syscall(SYS_pidfd_open, parent, 0);
	/* The number may be another process's by now; then ours is not our parent any more. */
	g.orphan = g.parent_fd < 0 || getppid() != parent;
	if (!g.orphan) {
		reply(&g, &ready);
		serve(&g);
	}
	undo_all(&g);
}
