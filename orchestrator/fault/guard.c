/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <stdio.h>
#include <unistd.h>

enum { QUEUE_MAX = 64 };

struct dr_guard {
	int fd;
	pid_t pid;
	bool dead;
	uint32_t last_id;
	char *state_dir;
	/* Reports that came while a call waited for another; the oldest is dropped when full. */
	struct dr_fault_report queue[QUEUE_MAX];
	unsigned head, count;
};

static void enqueue(struct dr_guard *g, const struct dr_fault_report *r)
{
	if (g->count == QUEUE_MAX) {
		g->head = (g->head + 1) % QUEUE_MAX;
		g->count--;
	}
	g->queue[(g->head + g->count++) % QUEUE_MAX] = *r;
}

/* 1 and a report, 0 when none is there, -EPIPE. */
static int receive(struct dr_guard *g, struct dr_fault_report *out)
{
	ssize_t n;

	if (g->dead)
		return -EPIPE;
	do {
		n = recv(g->fd, out, sizeof(*out), MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n == (ssize_t)sizeof(*out))
		return 1;
	g->dead = true;
	return -EPIPE;
}

/* Wait for the next report until deadline_ns: 1, -ETIMEDOUT, -EPIPE. */
static int wait_report(struct dr_guard *g, int64_t deadline_ns, struct dr_fault_report *out)
{
	for (;;) {
		struct pollfd p = { .fd = g->fd, .events = POLLIN };
		int rc = receive(g, out);
		int64_t left;

		if (rc != 0)
			return rc;
		left = deadline_ns - dr_now_ns();
		if (left <= 0)
			return -ETIMEDOUT;
		poll(&p, 1, (int)DR_MIN(left / DR_NS_PER_MS + 1, 60000));
	}
}

static int guard_gone(struct dr_guard *g, struct dr_err *e)
{
	return dr_err_set(e, -EPIPE,
		"the fault guard (pid %ld) is dead; packet filters ended with it, `dualrail doctor` repairs "
		"links",
		(long)g->pid);
}

static int request(struct dr_guard *g, const struct dr_guard_request *q, struct dr_err *e)
{
	ssize_t n;

	if (g->dead)
		return guard_gone(g, e);
	do {
		n = send(g->fd, q, sizeof(*q), MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*q))
		return 0;
	if (errno == EAGAIN)
		return dr_err_set(e, -EAGAIN, "the fault guard has too many requests waiting");
	g->dead = true;
	return guard_gone(g, e);
}

static void free_guard(struct dr_guard *g)
{
	close(g->fd);
	dr_free(g->state_dir);
	dr_free(g);
}

int dr_guard_start(const struct dr_guard_options *opt, struct dr_guard **out, struct dr_err *e)
{
	static const struct dr_guard_options none;
	struct dr_guard *g = dr_calloc(1, sizeof(*g));
	struct dr_fault_report ready;
	pid_t parent = getpid();
	int fds[2], rc;

	opt = opt ? opt : &none;
	if (!g || (opt->state_dir && !(g->state_dir = dr_strdup(opt->state_dir)))) {
		dr_free(g);
		return dr_err_set(e, -ENOMEM, "start the fault guard: out of memory");
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		rc = -errno;
		dr_free(g->state_dir);
		dr_free(g);
		return dr_err_set(e, rc, "start the fault guard: %s", strerror(-rc));
	}
	g->fd = fds[0];
	g->pid = fork();
	if (g->pid == 0) {
		close(fds[0]);
		dr_guard_main(fds[1], parent, opt);
	}
	rc = g->pid < 0 ? -errno : 0;
	close(fds[1]);
	if (rc == 0)
		rc = wait_report(g, dr_now_ns() + 10 * DR_NS_PER_S, &ready);
	if (rc < 0) {
		if (g->pid > 0) {
			kill(g->pid, SIGKILL);
			waitpid(g->pid, NULL, 0);
		}
		free_guard(g);
		return dr_err_set(e, rc, "start the fault guard: %s", strerror(-rc));
	}
	*out = g;
	return 0;
}

/* Log what ended badly, until the guard closes its end or the deadline. */
static void drain(struct dr_guard *g, int64_t deadline_ns)
{
	struct dr_fault_report r;

	while (wait_report(g, deadline_ns, &r) == 1) {
		if (r.undo && r.err)
			dr_error("fault", "could not undo: %s", r.text);
	}
}

void dr_guard_stop(struct dr_guard *g)
{
	struct dr_guard_request q = { .op = DR_GUARD_STOP };
	bool killed = false;
	struct dr_err e;

	if (!g)
		return;
	if (request(g, &q, NULL) == 0)
		drain(g, dr_now_ns() + 15 * DR_NS_PER_S);
	if (!g->dead) {
		dr_error("fault", "the guard (pid %ld) does not end; killing it", (long)g->pid);
		kill(g->pid, SIGKILL);
		killed = true;
	}
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (killed && dr_fault_repair(g->state_dir, &e) == 0 && e.code)
		dr_error("fault", "%s", e.text);
	free_guard(g);
}

pid_t dr_guard_pid(const struct dr_guard *g)
{
	return g->pid;
}

int dr_guard_fd(const struct dr_guard *g)
{
	return g->fd;
}

int dr_guard_poll(struct dr_guard *g, struct dr_fault_report *out)
{
	if (g->count > 0) {
		*out = g->queue[g->head];
		g->head = (g->head + 1) % QUEUE_MAX;
		g->count--;
		return 1;
	}
	return receive(g, out);
}

static int start_inject(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	int64_t hold_max_ns, int64_t deadline_ns, uint32_t *out_id, struct dr_err *e)
{
	struct dr_guard_request q = { .op = DR_GUARD_INJECT,
		.id = g->last_id + 1,
		.spec = *s,
		.hold_max_ns = hold_max_ns,
		.deadline_ns = deadline_ns };
	int rc;

	if (!dr_fault_by_guard(s->kind))
		return dr_err_set(e, -EOPNOTSUPP, "fault %s is done by the %s, not by the guard",
			dr_fault_kind_name(s->kind),
			dr_fault_by_channel(s->kind) ? "channel" : "operator");
	snprintf(q.nic, sizeof(q.nic), "%s", nic ? nic : "");
	rc = request(g, &q, e);
	if (rc == 0)
		*out_id = ++g->last_id;
	return rc;
}

static int start_undo(struct dr_guard *g, uint32_t id, struct dr_err *e)
{
	struct dr_guard_request q = { .op = DR_GUARD_UNDO, .id = id };

	return request(g, &q, e);
}

/* The report of this one deed; others that come first are kept for dr_guard_poll. */
static int await(struct dr_guard *g, uint32_t id, bool undo, int64_t deadline_ns,
	struct dr_fault_report *out, struct dr_err *e)
{
	struct dr_fault_report r;
	int rc;

	while ((rc = wait_report(g, deadline_ns, &r)) == 1) {
		if (r.id == id && r.undo == undo) {
			if (out)
				*out = r;
			return r.err ? dr_err_set(e, r.err, "%s", r.text) : 0;
		}
		enqueue(g, &r);
	}
	if (out)
		*out = (struct dr_fault_report){ .id = id, .undo = undo, .err = rc };
	if (rc == -EPIPE)
		return guard_gone(g, e);
	return dr_err_set(e, rc, "the fault guard did not %s in time", undo ? "undo" : "inject");
}

int dr_fault_inject(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	int64_t hold_max_ns, int64_t deadline_ns, struct dr_fault_report *report, struct dr_err *e)
{
	struct dr_fault_report r = { 0 };
	int rc = start_inject(g, s, nic, hold_max_ns, deadline_ns, &r.id, e);

	if (rc < 0)
		r.err = rc;
	else
		rc = await(g, r.id, false, deadline_ns, &r, e);
	if (rc == -ETIMEDOUT && !r.text[0]) /* no report: it may be being done right now */
		start_undo(g, r.id, NULL);
	if (report)
		*report = r;
	return rc;
}

int dr_fault_undo(struct dr_guard *g, uint32_t id, int64_t deadline_ns,
	struct dr_fault_report *report, struct dr_err *e)
{
	int rc = start_undo(g, id, e);

	return rc < 0 ? rc : await(g, id, true, deadline_ns, report, e);
}

int dr_fault_inject_start(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	int64_t hold_max_ns, uint32_t *out_id, struct dr_err *e)
{
	return start_inject(g, s, nic, hold_max_ns, DR_NEVER, out_id, e);
}

int dr_fault_undo_start(struct dr_guard *g, uint32_t id, struct dr_err *e)
{
	return start_undo(g, id, e);
}
