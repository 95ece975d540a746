/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/plugin_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * 1. The child leads a process group of its own: what the plugin forked ends with it. The kernel ends the child when the
 *    parent ends.
 * 2. A child that has ended by itself has set `ended`; any other end is the plugin's.
 */
enum { TICK_MS = 50 };

static void child(
	const struct plugin_case *c, const struct dr_options *o, int dev, struct plugin_shared *sh)
{
	struct probe p = { .opt = o, .sh = sh, .dev = dev };

	p.delay_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	if (plugin_start(&p)) {
		c->run(&p);
		plugin_end(&p);
	}
	atomic_store(&sh->ended, true);
	_exit(0);
}

/* The child's own thread before that of accept, which may wait there for long. */
static enum plugin_call call_of(const struct plugin_shared *sh)
{
	int own = atomic_load(&sh->in[0].call);

	return (enum plugin_call)(own != CALL_NONE ? own : atomic_load(&sh->in[1].call));
}

static void name_end(struct plugin_shared *sh, int status)
{
	enum plugin_call c = call_of(sh);
	const char *in =
		c == CALL_NONE ? "outside of its calls, e.g. in a thread" : plugin_call_name(c);

	if (WIFSIGNALED(status))
		plugin_found(sh, RULE_CRASH, "the process ended with signal %d (%s) in %s",
			WTERMSIG(status), strsignal(WTERMSIG(status)), in);
	else
		plugin_found(sh, RULE_EXIT, "the process ended with status %d in %s",
			WEXITSTATUS(status), in);
}

/* The call in progress that has taken too long, or began at a time that is still to come. */
static enum plugin_call hangs(const struct plugin_shared *sh, int64_t limit_ns)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(sh->in); i++) {
		uint64_t since = (uint64_t)atomic_load(&sh->in[i].since_ns);
		int call = atomic_load(&sh->in[i].call);

		if (call != CALL_NONE && (uint64_t)dr_now_ns() - since > (uint64_t)limit_ns)
			return (enum plugin_call)call;
	}
	return CALL_NONE;
}

/* fd: of the child. It is reaped at the end, so that its number stays its own. */
static void watch(pid_t pid, int fd, int64_t limit_ns, struct plugin_shared *sh)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	enum plugin_call hung = CALL_NONE;
	int status = 0;

	while (poll(&pfd, 1, TICK_MS) <= 0) {
		enum plugin_call c = hangs(sh, limit_ns);

		if (hung != CALL_NONE || c == CALL_NONE)
			continue;
		hung = c;
		plugin_found(sh, RULE_HANG, "%s did not return within %lld ms",
			plugin_call_name(hung), (long long)(limit_ns / DR_NS_PER_MS));
		kill(pid, SIGKILL);
	}
	kill(-pid, SIGKILL); /* what it forked, too */
	waitpid(pid, &status, 0);
	if (hung == CALL_NONE && !atomic_load(&sh->ended))
		name_end(sh, status);
}

int plugin_run(
	const struct plugin_case *c, const struct dr_options *o, int dev, struct plugin_shared *sh)
{
	pid_t parent = getpid(), pid = fork();
	int fd, rc;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(0);
		child(c, o, dev, sh);
	}
	setpgid(pid, pid);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd >= 0) {
		watch(pid, fd, o->call_limit_ns, sh);
		close(fd);
		return 0;
	}
	rc = -errno;
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return rc;
}
