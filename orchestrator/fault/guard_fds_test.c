/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_priv.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What a guard holds of the program that started it, as /proc/PID/fd shows it. */

enum { SEEN_MAX = 64 };
struct seen {
	int fd;
	char what[256];
};

static size_t look(pid_t pid, struct seen *out)
{
	char dir[64];
	struct dirent *d;
	size_t n = 0;
	DIR *fds;

	snprintf(dir, sizeof(dir), "/proc/%ld/fd", (long)pid);
	fds = opendir(dir);
	assert_non_null(fds);
	while ((d = readdir(fds)) && n < SEEN_MAX) {
		ssize_t len;

		if (d->d_name[0] == '.')
			continue;
		len = readlinkat(dirfd(fds), d->d_name, out[n].what, sizeof(out[n].what) - 1);
		assert_true(len > 0);
		out[n].what[len] = 0;
		out[n++].fd = (int)strtol(d->d_name, NULL, 10);
	}
	closedir(fds);
	return n;
}

/* Standard input and output lead nowhere, error is the program's; the socket, and the process that it
 * watches. */
static bool allowed(const struct seen *s)
{
	if (s->fd == STDIN_FILENO || s->fd == STDOUT_FILENO)
		return strcmp(s->what, "/dev/null") == 0;
	return s->fd == STDERR_FILENO || strncmp(s->what, "socket:", 7) == 0 ||
	       strstr(s->what, "pidfd");
}

/* Devices opened with and without close-on-exec, one of them far up, as a driver leaves them. */
static void open_devices(int fds[3])
{
	fds[0] = open("/dev/zero", O_RDONLY);
	fds[1] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	fds[2] = fcntl(fds[0], F_DUPFD, 700);
	for (int i = 0; i < 3; i++)
		assert_true(fds[i] >= 0);
}

static void start_and_look(void)
{
	struct seen seen[SEEN_MAX];
	unsigned sockets = 0;
	struct dr_guard *g;
	struct dr_err e = { 0 };
	int fds[3];
	size_t n;

	open_devices(fds);
	if (dr_guard_start(NULL, &g, &e))
		fail_msg("%s", e.text);
	n = look(g->pid, seen);
	for (size_t i = 0; i < n; i++) {
		if (!allowed(&seen[i]))
			fail_msg("the guard holds %d: %s", seen[i].fd, seen[i].what);
		sockets += strncmp(seen[i].what, "socket:", 7) == 0;
	}
	assert_int_equal(sockets, 1); /* not the program's end of the pair as well */
	assert_true(n >= 4);
	dr_guard_stop(g);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

static void holds_no_device(void **state)
{
	(void)state;
	start_and_look();
}

/* As on Linux before 5.9: the call is there in no form. */
static int forbid_close_range(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { DR_ARRAY_LEN(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return -errno;
	return syscall(SYS_close_range, 1000, 1001, 0) == -1 && errno == ENOSYS ? 0 : -EOPNOTSUPP;
}

/* A filter cannot be taken back, so this has a process of its own. */
static void holds_no_device_on_an_old_kernel(void **state)
{
	enum { GOOD, BAD, NO_FILTER };
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct seen seen[SEEN_MAX];
		struct dr_guard *g;
		int fds[3];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (forbid_close_range())
			_exit(NO_FILTER);
		open_devices(fds);
		if (dr_guard_start(NULL, &g, NULL))
			_exit(BAD);
		for (size_t n = look(g->pid, seen); n > 0; n--)
			if (!allowed(&seen[n - 1]))
				_exit(BAD);
		dr_guard_stop(g);
		_exit(GOOD);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_FILTER) {
		printf("SKIP: seccomp filters are not allowed here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), GOOD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holds_no_device),
		cmocka_unit_test(holds_no_device_on_an_old_kernel),
	};

	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests_name("what a guard holds", tests, NULL, NULL);
}
