/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard. Invariants:
 * 1. Everything that is broken is in actions[] and in a state file.
 * 2. Before a request is served, the guard checks whether parent or keeper are dead (by pidfd,
 *    which other holders of a socket cannot delay). After that nothing is injected any more.
 * 3. When the loop ends, undo_all follows.
 * 4. It acts only within the options that it was started with, whatever the program asks for.
 */
#include "orchestrator/fault/guard_priv.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/fault/kind_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ACTIONS_MAX = 32, UNDO_TRIES = 5 };
/* A fault lasts `for` and at most that much more, whatever the program forgets. */
static const int64_t HOLD_EXTRA_NS = 10 * DR_NS_PER_S;
/* An undo that failed is repeated after the first time, then after twice as long each time, up to the second one. */
static const int64_t RETRY_NS = DR_NS_PER_S, RETRY_MAX_NS = 60 * DR_NS_PER_S;

struct guard {
	int parent_fd, keeper_fd; /* pidfds; -1: already gone */
	bool orphan;
	const struct dr_guard_options *opt;
	struct dr_fault_action actions[ACTIONS_MAX]; /* id 0: free */
};

static void reply(const struct guard *g, const struct dr_fault_report *r)
{
	/* If the parent does not read its reports, further ones are dropped. */
	if (g->orphan || (send(DR_CHILD_FD, r, sizeof(*r), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
				 errno != EAGAIN))
		dr_log(r->err ? DR_LOG_ERROR : DR_LOG_WARN, "guard", "the program died; %s: %s",
			r->undo ? "undone" : "fault", r->text);
}

static struct dr_fault_action *action_of(struct guard *g, uint32_t id)
{
	for (size_t i = 0; i < ACTIONS_MAX; i++) {
		if (g->actions[i].id == id)
			return &g->actions[i];
	}
	return NULL;
}

/* When it is undone at the latest. */
static int64_t held_until(const struct guard *g, int64_t for_ns)
{
	int64_t max = g->opt->for_max_ns, hold_ns = for_ns ? for_ns + HOLD_EXTRA_NS : 0;

	if (max && (!hold_ns || hold_ns > max))
		hold_ns = max;
	return hold_ns ? dr_now_ns() + hold_ns : DR_NEVER;
}

/* Everything in the request is doubted. */
static int check(const struct guard *g, const struct dr_guard_request *q, struct dr_fault_spec *s,
	struct dr_err *e)
{
	struct dr_fault_control control = { .ifname = q->control,
		.ssh = getenv("SSH_CONNECTION"),
		.local = q->local.ss_family ? (const struct sockaddr *)&q->local : NULL,
		.peer = q->peer.ss_family ? (const struct sockaddr *)&q->peer : NULL };

	if (!memchr(q->spec, 0, sizeof(q->spec)) || !memchr(q->nic, 0, sizeof(q->nic)) ||
		!memchr(q->control, 0, sizeof(q->control)))
		return dr_err_set(e, -EPROTO, "refused: a text of the request has no end");
	int rc = dr_fault_spec_parse(q->spec, s, e);
	if (rc == 0 && dr_fault_by(s) != DR_FAULT_BY_GUARD)
		rc = dr_err_set(e, -EOPNOTSUPP, "refused: %s is no fault of the guard", q->spec);
	return rc ? rc : dr_fault_scope_check(s, q->nic, &control, g->opt, e);
}

static void inject(struct guard *g, const struct dr_guard_request *q)
{
	struct dr_fault_report r = { .id = q->id };
	struct dr_fault_action *a = action_of(g, 0);
	struct dr_fault_spec s;
	struct dr_err e;

	r.err = check(g, q, &s, &e);
	if (r.err == 0 && (!a || action_of(g, q->id)))
		r.err = dr_err_set(&e, -ENOSPC, "too many faults at once, or id %u is in use",
			(unsigned)q->id);
	if (r.err)
		snprintf(r.text, sizeof(r.text), "%s", e.text);
	else if (dr_fault_action_inject(a, &s, q->nic, g->opt, &r) == 0) {
		a->id = q->id;
		a->hold_until_ns = held_until(g, s.for_ns);
	}
	reply(g, &r);
}

/* asked: the parent waits for an answer. Of what is repeated it is told the first failure and the success. */
static int undo(struct guard *g, struct dr_fault_action *a, bool asked)
{
	struct dr_fault_report r = { .id = a->id, .undo = true };
	bool again = a->retry_ns != 0;
	int rc = dr_fault_action_undo(a, &r);

	if (rc < 0) {
		a->retry_ns = again ? DR_MIN(2 * a->retry_ns, RETRY_MAX_NS) : RETRY_NS;
		a->hold_until_ns = dr_now_ns() + a->retry_ns;
	}
	if (asked || !again || rc == 0)
		reply(g, &r);
	return rc;
}

static void undo_id(struct guard *g, uint32_t id)
{
	struct dr_fault_action *a = id ? action_of(g, id) : NULL;
	struct dr_fault_report r = { .id = id, .undo = true, .text = "undone already" };

	if (a)
		undo(g, a, true);
	else
		reply(g, &r);
}

/* Undo what has been held too long. The time until the next is due in ms; -1: none. */
static int undo_due(struct guard *g)
{
	int64_t now = dr_now_ns(), next = DR_NEVER;

	for (size_t i = 0; i < ACTIONS_MAX; i++) {
		struct dr_fault_action *a = &g->actions[i];

		if (a->id && a->hold_until_ns <= now)
			undo(g, a, false);
		if (a->id)
			next = DR_MIN(next, a->hold_until_ns);
	}
	return next == DR_NEVER ? -1 : (int)DR_MIN((next - now) / DR_NS_PER_MS + 1, 60000);
}

static _Noreturn void undo_all(struct guard *g)
{
	for (size_t i = 0; i < ACTIONS_MAX; i++) {
		struct dr_fault_action *a = &g->actions[i];

		for (int tries = 0; a->id && tries < UNDO_TRIES; tries++) {
			if (undo(g, a, false) < 0)
				poll(NULL, 0, 50 << tries);
		}
		if (a->id)
			dr_fault_action_abandon(a); /* its file stays for `dualrail doctor` */
	}
	_exit(0);
}

/* Returns when the guard has to end. */
static void serve(struct guard *g)
{
	for (;;) {
		struct pollfd p[3] = { { .fd = DR_CHILD_FD, .events = POLLIN },
			{ .fd = g->parent_fd, .events = POLLIN },
			{ .fd = g->keeper_fd, .events = POLLIN } };
		struct dr_guard_request q;

		if (poll(p, 3, undo_due(g)) < 0 && errno != EINTR)
			return;
		g->orphan |= p[1].revents != 0;
		/* Without a keeper nobody could undo what this process holds, if it were killed. */
		if (g->orphan || p[2].revents)
			return;
		if (!p[0].revents)
			continue;
		ssize_t n = recv(DR_CHILD_FD, &q, sizeof(q), MSG_DONTWAIT);
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

_Noreturn void dr_guard_main(int fd, pid_t parent, pid_t keeper, const struct dr_guard_options *opt)
{
	static struct guard g;
	struct dr_fault_report ready = { .id = 0 };

	dr_child_settle(fd, "dualrail-guard");
	dr_guard_restrict(opt);
	g.opt = opt;
	g.parent_fd = (int)syscall(SYS_pidfd_open, parent, 0);
	g.keeper_fd = (int)syscall(SYS_pidfd_open, keeper, 0);
	/* The pid may have been reused; then getppid() is another. */
	g.orphan = g.parent_fd < 0 || getppid() != parent;
	if (!g.orphan && g.keeper_fd >= 0) {
		reply(&g, &ready);
		serve(&g);
	}
	undo_all(&g);
}
