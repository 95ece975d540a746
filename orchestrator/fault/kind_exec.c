/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* exec: a command of --fault-exec. The state holds its name alone: who repairs says what it means,
 * since whoever can write a state file must not choose what root runs. */

static const int64_t TIMEOUT_NS = 10 * DR_NS_PER_S;

/* Copy of s up to an unescaped comma, "\," made ","; *end is that comma or the end. */
static char *unescape(const char *s, const char **end)
{
	char *out = dr_calloc(1, strlen(s) + 1);
	size_t n = 0;

	for (; *s && *s != ','; s++) {
		if (s[0] == '\\' && s[1] == ',')
			s++;
		if (out)
			out[n++] = *s;
	}
	*end = s;
	return out;
}

int dr_fault_execs_add(struct dr_fault_execs *t, const char *s, struct dr_err *e)
{
	static const char form[] = "write NAME=CMD,UNDO with a comma inside a command as '\\,'";
	struct dr_fault_exec x = { 0 }, *v;
	const char *eq = strchr(s, '='), *end, *last;

	if (!eq || (size_t)(eq - s) >= sizeof(x.name))
		return dr_err_set(e, -EINVAL, "%.60s: %s", s, form);
	memcpy(x.name, s, (size_t)(eq - s));
	if (!dr_fault_name_valid(x.name, sizeof(x.name)))
		return dr_err_set(
			e, -EINVAL, "'%s' is not a name; use letters, digits, _ - .", x.name);
	if (dr_fault_execs_find(t, x.name))
		return dr_err_set(e, -EEXIST, "'%s' is defined twice", x.name);
	x.cmd = unescape(eq + 1, &end);
	x.undo = unescape(*end ? end + 1 : end, &last);
	v = x.cmd && x.undo ? dr_realloc(t->v, (t->n + 1) * sizeof(*v)) : NULL;
	if (v)
		t->v = v;
	if (v && *end && !*last && x.cmd[0] && x.undo[0]) {
		t->v[t->n++] = x;
		return 0;
	}
	dr_free(x.cmd);
	dr_free(x.undo);
	if (!v)
		return dr_err_set(e, -ENOMEM, "out of memory");
	return dr_err_set(e, -EINVAL, "%s: %s; UNDO may be 'true'", x.name, form);
}

const struct dr_fault_exec *dr_fault_execs_find(const struct dr_fault_execs *t, const char *name)
{
	for (size_t i = 0; t && i < t->n; i++) {
		if (!strcmp(t->v[i].name, name))
			return &t->v[i];
	}
	return NULL;
}

void dr_fault_execs_fini(struct dr_fault_execs *t)
{
	for (size_t i = 0; i < t->n; i++) {
		dr_free(t->v[i].cmd);
		dr_free(t->v[i].undo);
	}
	dr_free(t->v);
	memset(t, 0, sizeof(*t));
}

static void end_group(int signo)
{
	(void)signo;
	kill(0, SIGKILL);
}

/* The leader of the command's process group, which it ends with a killed guard: nothing of CMD must
 * go on while UNDO runs. */
static _Noreturn void command_child(const char *cmd, const char *nic, pid_t guard)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), status = 127 << 8;
	sigset_t none;

	setpgid(0, 0);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL); /* the guard ignores some, and that is inherited */
	signal(SIGTERM, end_group);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	setenv("DUALRAIL_FAULT_NIC", nic, 1);
	pid_t pid = getppid() == guard ? fork() : -1;
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", cmd, (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
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

/* Run `sh -c cmd` with signals and descriptors as from a shell, standard output to standard error;
 * kill its process group after the timeout. 0, -ETIMEDOUT, -EIO with a text for another status. */
static int run(const char *cmd, const struct dr_fault_action *a, struct dr_err *e)
{
	int64_t timeout_ns =
		a->opt && a->opt->exec_timeout_ns ? a->opt->exec_timeout_ns : TIMEOUT_NS;
	pid_t guard = getpid(), pid = fork();
	int status = 0;

	if (pid < 0)
		return dr_err_set(e, -errno, "start '%.80s': %s", cmd, strerror(errno));
	if (pid == 0)
		command_child(cmd, a->state.nic, guard);
	setpgid(pid, pid); /* here too, so that the group is there whoever comes first */
	bool ended = child_ends(pid, dr_now_ns() + timeout_ns);
	if (!ended)
		kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!ended)
		return dr_err_set(e, -ETIMEDOUT, "'%.80s' killed: still running after %lld ms", cmd,
			(long long)(timeout_ns / DR_NS_PER_MS));
	if (status)
		return dr_err_set(e, -EIO, "'%.80s' ended with status %d", cmd,
			WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
	return 0;
}

static int parse(struct dr_fault_spec *s, struct dr_err *e)
{
	return dr_fault_name_valid(s->value, sizeof(s->value))
		       ? 0
		       : dr_err_set(e, -EINVAL, "'%s' is not a name given with --fault-exec",
				 s->value);
}

/* Nobody knows what the command does. */
static bool cuts(const struct dr_fault_spec *s)
{
	(void)s;
	return false;
}

static void describe(const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	const struct dr_fault_exec *x =
		dr_fault_execs_find(a->opt ? a->opt->execs : NULL, a->spec->value);

	snprintf(buf, len, "run '%s'%s, then '%s'", x ? x->cmd : "(not defined)", duration,
		x ? x->undo : "(not defined)");
}

/* What the options of this end say of the recorded name. NULL: -ENOENT in e. */
static const struct dr_fault_exec *defined(const struct dr_fault_action *a, struct dr_err *e)
{
	const char *name = a->state.undo ? a->state.undo : "", *nic = a->state.nic;
	const struct dr_fault_exec *x = dr_fault_execs_find(a->opt ? a->opt->execs : NULL, name);

	if (!dr_fault_name_valid(name, DR_FAULT_NAME_MAX) ||
		(nic[0] && !dr_fault_name_valid(nic, DR_FAULT_NIC_MAX)))
		dr_err_set(e, -ENOENT, "exec: name or NIC is not of letters, digits, _ - .");
	else if (x)
		return x;
	else
		dr_err_set(e, -ENOENT,
			"'%s' is not defined on this end; add --fault-exec %s=CMD,UNDO", name,
			name);
	return NULL;
}

static int prepare(struct dr_fault_action *a, const struct dr_fault_nic *nic, struct dr_err *e)
{
	(void)nic;
	a->state.undo = dr_strdup(a->spec->value);
	if (!a->state.undo)
		return dr_err_set(e, -ENOMEM, "out of memory");
	return defined(a, e) ? 0 : -ENOENT;
}

static int inject(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	const struct dr_fault_exec *x = defined(a, e);
	int rc = x ? run(x->cmd, a, e) : -ENOENT;

	if (x && rc < 0) /* a part of it may be done */
		run(x->undo, a, NULL);
	snprintf(r->text, sizeof(r->text), "ran '%.200s'", x ? x->cmd : "");
	return rc;
}

static int undo(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	const struct dr_fault_exec *x = defined(a, e);

	snprintf(r->text, sizeof(r->text), "ran '%.200s'", x ? x->undo : "");
	return x ? run(x->undo, a, e) : -ENOENT;
}

const struct dr_fault_kind dr_fault_kind_exec = {
	.name = "exec",
	.value = "NAME",
	.help = "a command of --fault-exec",
	.by = DR_FAULT_BY_GUARD,
	.untimed = true,
	.parse = parse,
	.cuts = cuts,
	.describe = describe,
	.prepare = prepare,
	.inject = inject,
	.undo = undo,
};
