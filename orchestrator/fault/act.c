/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each deed: 1. look, 2. record (state file, flushed), 3. do, between two time stamps. Undoing takes
 * the steps backwards and removes the record last, so that a process killed at any point leaves a
 * record of everything that is broken; undoing something that is whole already does nothing.
 */
#include "orchestrator/fault/act.h"

#include "base/clock.h"
#include "base/mem.h"
#include "orchestrator/fault/act_nic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void command_child(const char *cmd, const char *nic)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	setpgid(0, 0);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL); /* the guard ignores some, and that is inherited */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	setenv("DUALRAIL_FAULT_NIC", nic, 1);
	execl("/bin/sh", "sh", "-c", cmd, (char *)NULL);
	_exit(127);
}

/* Wait until the child ends or the deadline; false when it still runs. */
static bool child_ends(pid_t pid, int64_t deadline_ns)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	bool ended = false;

	while (fd >= 0 && !ended) {
		int64_t left = deadline_ns - dr_now_ns();

		if (left <= 0)
			break;
		ended = poll(&p, 1, (int)(left / DR_NS_PER_MS) + 1) > 0;
	}
	if (fd >= 0)
		close(fd);
	return ended;
}

int dr_act_command(const char *cmd, const char *nic, int64_t timeout_ns, struct dr_err *e)
{
	pid_t pid = fork();
	int status = 0;
	bool ended;

	if (pid < 0)
		return dr_err_set(e, -errno, "start '%.80s': %s", cmd, strerror(errno));
	if (pid == 0)
		command_child(cmd, nic);
	setpgid(pid, pid); /* here too, so that the group is there whoever comes first */
	ended = child_ends(pid, dr_now_ns() + timeout_ns);
	if (!ended)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended)
		return dr_err_set(e, -ETIMEDOUT, "'%.80s' killed: still running after %lld ms", cmd,
			(long long)(timeout_ns / DR_NS_PER_MS));
	if (WIFSIGNALED(status))
		return dr_err_set(e, -EIO, "'%.80s' died of signal %d", cmd, WTERMSIG(status));
	if (WEXITSTATUS(status))
		return dr_err_set(
			e, -EIO, "'%.80s' ended with status %d", cmd, WEXITSTATUS(status));
	return 0;
}

static int look_at_nic(struct dr_act *a, const char *address, struct dr_err *e)
{
	const char *nic = a->what.nic;
	struct dr_netdev d;
	int rc = dr_netdev_by_name(nic, &d, e);

	if (rc < 0)
		return rc;
	if (d.loopback)
		return dr_err_set(e, -EPERM, "no fault on the loopback device");
	if (!d.up)
		return dr_err_set(e, -ENETDOWN, "%s is down already: no fault to inject", nic);
	a->what.ifindex = d.ifindex;
	memcpy(a->what.mac, d.mac, sizeof(d.mac));
	switch (a->what.kind) {
	case DR_FAULT_LINK_DOWN:
		return dr_netdev_save(d.ifindex, &a->what.snap, e);
	case DR_FAULT_ADDR_DEL:
		return dr_act_addr_look(&a->what, &d, address, e);
	default:
		return 0;
	}
}

/* Step 1, and the key of the record. */
static int look(struct dr_act *a, const struct dr_fault_spec *s, const char *nic,
	const struct dr_act_ctx *ctx, char *key, size_t key_len, struct dr_err *e)
{
	const struct dr_fault_exec *x;
	const char *address = dr_act_nic_split(nic, a->what.nic, sizeof(a->what.nic));

	a->what.kind = s->kind;
	if (!dr_fault_by_guard(s->kind))
		return dr_err_set(e, -EOPNOTSUPP, "fault %s is done by the %s, not by the guard",
			dr_fault_kind_name(s->kind),
			dr_fault_by_channel(s->kind) ? "channel" : "operator");
	if (s->kind != DR_FAULT_EXEC) {
		snprintf(key, key_len, "%s", a->what.nic);
		return look_at_nic(a, address, e);
	}
	x = dr_fault_execs_find(ctx->execs, s->exec_name);
	if (!x)
		return dr_err_set(
			e, -ENOENT, "exec=%s is not defined here (--fault-exec)", s->exec_name);
	snprintf(key, key_len, "exec-%s", x->name);
	a->what.undo = dr_strdup(x->undo);
	return a->what.undo ? 0 : dr_err_set(e, -ENOMEM, "exec=%s: out of memory", x->name);
}

static int do_exec(struct dr_act *a, const struct dr_fault_spec *s, const struct dr_act_ctx *ctx,
	struct dr_fault_report *r, struct dr_err *e)
{
	const struct dr_fault_exec *x = dr_fault_execs_find(ctx->execs, s->exec_name);
	int rc;

	r->before_ns = dr_now_ns();
	rc = dr_act_command(x->cmd, a->what.nic, ctx->exec_timeout_ns, e);
	r->after_ns = dr_now_ns();
	if (rc < 0) /* it may have got half way */
		dr_act_command(x->undo, a->what.nic, ctx->exec_timeout_ns, NULL);
	else
		snprintf(r->text, sizeof(r->text), "ran '%.200s'", x->cmd);
	return rc;
}

static int take_address(struct dr_act *a, struct dr_fault_report *r, struct dr_err *e)
{
	int rc;

	r->before_ns = dr_now_ns();
	rc = dr_act_addr_del(&a->what, e);
	r->after_ns = dr_now_ns();
	snprintf(r->text, sizeof(r->text), "removed %.80s of %s", a->what.undo, a->what.nic);
	return rc;
}

static int perform(struct dr_act *a, const struct dr_fault_spec *s, const struct dr_act_ctx *ctx,
	struct dr_fault_report *r, struct dr_err *e)
{
	const char *nic = a->what.nic;
	int rc;

	if (s->kind == DR_FAULT_EXEC)
		return do_exec(a, s, ctx, r, e);
	if (s->kind == DR_FAULT_LINK_DOWN) {
		r->before_ns = dr_now_ns();
		rc = dr_netdev_set_up(a->what.ifindex, false, e);
		r->after_ns = dr_now_ns();
		snprintf(r->text, sizeof(r->text),
			"set %s down; saved %u addresses, %u routes, %u neighbours", nic,
			a->what.snap.addresses, a->what.snap.routes, a->what.snap.neighbours);
		return rc;
	}
	if (s->kind == DR_FAULT_ADDR_DEL)
		return take_address(a, r, e);
	rc = dr_nft_open(nic, s->dir, s->kind == DR_FAULT_LOSS ? s->loss_percent : 100, &a->nft,
		&r->before_ns, &r->after_ns, e);
	if (rc == 0)
		snprintf(r->text, sizeof(r->text), "%s on %s (%s)", dr_fault_kind_name(s->kind),
			nic, dr_nft_how(a->nft));
	return rc;
}

static int finish(struct dr_fault_report *r, int rc, const struct dr_err *e)
{
	r->err = rc;
	if (rc < 0)
		snprintf(r->text, sizeof(r->text), "%s", e->text);
	return rc;
}

static void forget(struct dr_act *a)
{
	dr_state_fini(&a->what);
	memset(a, 0, sizeof(*a));
}

int dr_act_inject(struct dr_act *a, const struct dr_fault_spec *s, const char *nic,
	const struct dr_act_ctx *ctx, struct dr_fault_report *report)
{
	char key[DR_FAULT_NIC_MAX + 8] = "";
	struct dr_err e = { 0 };
	int rc = look(a, s, nic ? nic : "", ctx, key, sizeof(key), &e);

	if (rc == 0)
		rc = dr_state_create(ctx->state_dir, key, &a->what, &a->file, &e);
	if (rc == 0)
		rc = perform(a, s, ctx, report, &e);
	if (rc < 0) {
		report->before_ns = report->after_ns = 0;
		dr_state_remove(a->file);
		forget(a);
	}
	return finish(report, rc, &e);
}

/* A device of another making under that name is none of ours. */
static bool nic_is_there(const struct dr_state *s, struct dr_fault_report *r)
{
	struct dr_netdev d;

	if (dr_netdev_by_name(s->nic, &d, NULL) == 0 && d.ifindex == s->ifindex &&
		memcmp(d.mac, s->mac, sizeof(d.mac)) == 0)
		return true;
	snprintf(r->text, sizeof(r->text), "%s is gone: nothing to undo", s->nic);
	return false;
}

static int address_back(const struct dr_state *s, struct dr_fault_report *r, struct dr_err *e)
{
	int rc;

	if (!nic_is_there(s, r))
		return 0;
	r->before_ns = dr_now_ns();
	rc = dr_act_addr_back(s, e);
	r->after_ns = dr_now_ns();
	snprintf(r->text, sizeof(r->text), "put %.80s of %s back", s->undo ? s->undo : "?", s->nic);
	return rc;
}

static int link_up_again(const struct dr_state *s, struct dr_fault_report *r, struct dr_err *e)
{
	int rc;

	if (!nic_is_there(s, r))
		return 0;
	r->before_ns = dr_now_ns();
	rc = dr_netdev_set_up(s->ifindex, true, e);
	r->after_ns = dr_now_ns();
	if (rc == 0)
		rc = dr_netdev_restore(s->ifindex, &s->snap, e);
	snprintf(r->text, sizeof(r->text), "set %s up, addresses and routes are back", s->nic);
	return rc;
}

int dr_act_reverse(const struct dr_state *s, int64_t exec_timeout_ns, struct dr_fault_report *r)
{
	struct dr_err e = { 0 };
	int rc = 0;

	if (s->kind == DR_FAULT_LINK_DOWN) {
		rc = link_up_again(s, r, &e);
	} else if (s->kind == DR_FAULT_ADDR_DEL) {
		rc = address_back(s, r, &e);
	} else if (s->kind == DR_FAULT_EXEC && s->undo) {
		r->before_ns = dr_now_ns();
		rc = dr_act_command(s->undo, s->nic, exec_timeout_ns, &e);
		r->after_ns = dr_now_ns();
		snprintf(r->text, sizeof(r->text), "ran '%.200s'", s->undo);
	} else {
		snprintf(r->text, sizeof(r->text), "%s passes packets again", s->nic);
	}
	return finish(r, rc, &e);
}

int dr_act_undo(struct dr_act *a, const struct dr_act_ctx *ctx, struct dr_fault_report *report)
{
	int rc;

	/* Whatever the answer is: the socket is closed, so the kernel cleans up. */
	if (a->nft)
		dr_nft_close(a->nft, &report->before_ns, &report->after_ns, NULL);
	a->nft = NULL;
	rc = dr_act_reverse(&a->what, ctx->exec_timeout_ns, report);
	if (rc == 0) {
		dr_state_remove(a->file);
		forget(a);
	}
	return rc;
}

void dr_act_abandon(struct dr_act *a)
{
	dr_state_leave(a->file);
	forget(a);
}
