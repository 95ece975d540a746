/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/packet.h"
#include "orchestrator/fault/nft.h"
#include "topology/netdev.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <stdio.h>
#include <unistd.h>

enum { LOOPBACK_INDEX = 1, KEEPER_MS = 20000 };

/* Ask the keeper; -EPIPE: it is dead, or does not answer. It is not asked again then: a late answer
 * would be taken for that to the next request. */
static int ask_keeper(
	struct dr_guard *g, enum dr_keeper_op op, int fd, struct dr_keeper_answer *out)
{
	struct pollfd p = { .fd = g->keeper_fd, .events = POLLIN };

	if (g->keeper_fd < 0)
		return -EPIPE;
	if (dr_packet_send(g->keeper_fd, &op, sizeof(op), &fd, fd >= 0 ? 1 : 0) == 0) {
		while (poll(&p, 1, KEEPER_MS) < 0 && errno == EINTR)
			;
		if (recv(g->keeper_fd, out, sizeof(*out), MSG_DONTWAIT) == (ssize_t)sizeof(*out))
			return 0;
	}
	close(g->keeper_fd);
	g->keeper_fd = -1;
	return -EPIPE;
}

static void reap(pid_t pid)
{
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Reap the guard, whose locks are free then, and undo what it left. */
static void bury(struct dr_guard *g)
{
	struct dr_keeper_answer a;

	g->dead = true;
	if (ask_keeper(g, DR_KEEPER_BURY, -1, &a) == 0) {
		reap(g->pid);
		g->left = a.left;
	} else {
		/* With the rights that this process has left. */
		kill(g->pid, SIGKILL); /* it ends already, or does not answer */
		reap(g->pid);
		dr_fault_repair(&g->opt, g->pid, &g->left);
	}
	if (g->left.code)
		dr_error("fault", "%s", g->left.text);
}

int dr_guard_poll(struct dr_guard *g, struct dr_fault_report *out)
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
	bury(g);
	return -EPIPE;
}

/* Wait for the next report until deadline_ns: 1, -ETIMEDOUT, -EPIPE. */
static int wait_report(struct dr_guard *g, int64_t deadline_ns, struct dr_fault_report *out)
{
	for (;;) {
		struct pollfd p = { .fd = g->fd, .events = POLLIN };
		int rc = dr_guard_poll(g, out);

		if (rc != 0)
			return rc;
		int64_t left = deadline_ns - dr_now_ns();
		if (left <= 0)
			return -ETIMEDOUT;
		poll(&p, 1, (int)DR_MIN(left / DR_NS_PER_MS + 1, 60000));
	}
}

int dr_guard_gone(const struct dr_guard *g, struct dr_err *e)
{
	if (g->left.code)
		return dr_err_set(e, -EIO,
			"the fault guard (pid %ld) died, and a fault could not be undone; run "
			"`dualrail doctor` as root: %s",
			(long)g->pid, g->left.text);
	return dr_err_set(
		e, -EPIPE, "the fault guard (pid %ld) died; its faults were undone", (long)g->pid);
}

static int request(struct dr_guard *g, const struct dr_guard_request *q, struct dr_err *e)
{
	ssize_t n;

	if (g->dead)
		return dr_guard_gone(g, e);
	do {
		n = send(g->fd, q, sizeof(*q), MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*q))
		return 0;
	if (errno == EAGAIN)
		return dr_err_set(e, -EAGAIN, "the fault guard has too many requests waiting");
	bury(g);
	return dr_guard_gone(g, e);
}

static void free_guard(struct dr_guard *g)
{
	if (g->fd >= 0)
		close(g->fd);
	if (g->keeper_fd >= 0)
		close(g->keeper_fd);
	if (g->keeper > 0)
		reap(g->keeper);
	dr_free(g);
}

/* The keeper, a child of this process. */
static int start_keeper(struct dr_guard *g)
{
	pid_t parent = getpid();
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	g->keeper = fork();
	if (g->keeper == 0) {
		close(fds[0]);
		dr_keeper_main(fds[1], parent, &g->opt);
	}
	int rc = g->keeper < 0 ? -errno : 0;
	close(fds[1]);
	if (rc)
		close(fds[0]);
	else
		g->keeper_fd = fds[0];
	return rc;
}

/* Start the guard and wait until it is ready. */
static int start(struct dr_guard *g)
{
	struct dr_keeper_answer a = { .pid = 0 };
	struct dr_fault_report ready;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	if (g->fd >= 0)
		close(g->fd);
	g->fd = fds[0];
	int rc = ask_keeper(g, DR_KEEPER_START, fds[1], &a);
	close(fds[1]);
	if (rc == 0 && a.pid <= 0)
		rc = a.pid;
	if (rc)
		return rc;
	g->pid = a.pid;
	g->dead = false;
	g->left.code = 0;
	return DR_MIN(wait_report(g, dr_now_ns() + 10 * DR_NS_PER_S, &ready), 0);
}

int dr_guard_start(const struct dr_guard_options *opt, struct dr_guard **out, struct dr_err *e)
{
	struct dr_guard *g = dr_calloc(1, sizeof(*g));

	if (!g)
		return dr_err_set(e, -ENOMEM, "start the fault guard: %s", strerror(ENOMEM));
	if (opt)
		g->opt = *opt;
	g->fd = g->keeper_fd = -1;
	/* Of any device: lo is the first of every namespace. */
	g->rights = dr_netdev_may_change(LOOPBACK_INDEX, NULL) == -EPERM ? -EPERM : 0;
	if (dr_nft_probe(&g->filters) == 0)
		g->filters.code = 0;
	int rc = start_keeper(g);
	if (rc == 0)
		rc = start(g);
	if (rc < 0) {
		if (g->pid > 0 && !g->dead)
			bury(g);
		free_guard(g);
		return dr_err_set(e, rc, "start the fault guard: %s", strerror(-rc));
	}
	*out = g;
	return 0;
}

int dr_guard_renew(struct dr_guard *g, struct dr_err *e)
{
	dr_assert(g->dead);
	int rc = start(g);

	if (rc == 0)
		return 0;
	if (!g->dead)
		bury(g);
	return dr_err_set(e, rc, "start another fault guard: %s", strerror(-rc));
}

int dr_guard_rights(const struct dr_guard *g)
{
	return g->rights;
}

int dr_guard_filters(const struct dr_guard *g, struct dr_err *e)
{
	return g->filters.code ? dr_err_set(e, g->filters.code, "%s", g->filters.text) : 0;
}

void dr_guard_stop(struct dr_guard *g)
{
	struct dr_guard_request q = { .op = DR_GUARD_STOP };
	int64_t deadline_ns = dr_now_ns() + 15 * DR_NS_PER_S;
	struct dr_fault_report r;

	if (!g)
		return;
	if (request(g, &q, NULL) == 0)
		while (wait_report(g, deadline_ns, &r) == 1)
			if (r.undo && r.err)
				dr_error("fault", "could not undo: %s", r.text);
	if (!g->dead) {
		dr_error("fault", "the guard (pid %ld) did not end within 15 s; it is killed now",
			(long)g->pid);
		bury(g);
	}
	free_guard(g);
}

int dr_guard_fd(const struct dr_guard *g)
{
	return g->fd;
}

int dr_guard_inject(struct dr_guard *g, const struct dr_fault_spec *s, const char *nic,
	const struct dr_fault_control *control, uint32_t *out_id, struct dr_err *e)
{
	struct dr_guard_request q = { .op = DR_GUARD_INJECT, .id = g->last_id + 1 };

	if (dr_fault_by(s) != DR_FAULT_BY_GUARD)
		return dr_err_set(e, -EOPNOTSUPP,
			"fault %s is performed by the %s, not by the guard", dr_fault_name(s),
			dr_fault_by(s) == DR_FAULT_BY_CHANNEL ? "channel" : "user");
	dr_fault_spec_format(s, q.spec, sizeof(q.spec));
	snprintf(q.nic, sizeof(q.nic), "%s", nic ? nic : "");
	snprintf(q.control, sizeof(q.control), "%s", control->ifname ? control->ifname : "");
	if (control->local)
		memcpy(&q.local, control->local, sizeof(q.local));
	if (control->peer)
		memcpy(&q.peer, control->peer, sizeof(q.peer));
	int rc = request(g, &q, e);
	if (rc == 0)
		*out_id = ++g->last_id;
	return rc;
}

int dr_guard_undo(struct dr_guard *g, uint32_t id, struct dr_err *e)
{
	struct dr_guard_request q = { .op = DR_GUARD_UNDO, .id = id };

	return request(g, &q, e);
}
