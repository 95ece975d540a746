/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include "base/defs.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Every test settles a child of this process, which looks at itself and reports what failed by its status. */

#define EXPECT(x)                                                                                  \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %s)\n", __FILE__, __LINE__, #x,          \
				strerror(errno));                                                  \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* The child's socket is at `at`; the parent sends a byte and expects it back. */
static void in_child(void (*fn)(int fd), int at)
{
	int fds[2], status;
	char c = 'x';
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (at >= 0) {
			EXPECT(dup2(fds[1], at) == at);
			close(fds[1]);
		}
		fn(at >= 0 ? at : fds[1]);
		EXPECT(recv(DR_CHILD_FD, &c, 1, 0) == 1 && send(DR_CHILD_FD, &c, 1, 0) == 1);
		_exit(0);
	}
	close(fds[1]);
	assert_int_equal(send(fds[0], &c, 1, MSG_NOSIGNAL), 1);
	c = 0;
	if (recv(fds[0], &c, 1, 0) != 1 || c != 'x')
		fail_msg("the child's socket does not serve");
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- descriptors ---- */

static void path_of(int fd, char *buf, size_t len)
{
	char path[32];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, buf, len - 1);
	EXPECT(n > 0);
	buf[n] = '\0';
}

/* Nothing but 0 to 3 is open, and this is what they are. */
static void expect_descriptors(const char *error)
{
	char what[256];

	for (int fd = 0; fd < 1024; fd++)
		EXPECT((fcntl(fd, F_GETFD) >= 0) == (fd <= DR_CHILD_FD));
	for (int fd = 0; fd < 2; fd++) {
		path_of(fd, what, sizeof(what));
		EXPECT(strcmp(what, "/dev/null") == 0);
		EXPECT((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
		EXPECT(fcntl(fd, F_GETFD) == 0);
	}
	path_of(STDERR_FILENO, what, sizeof(what));
	EXPECT(strcmp(what, error) == 0);
	path_of(DR_CHILD_FD, what, sizeof(what));
	EXPECT(strncmp(what, "socket:", 7) == 0);
	EXPECT(fcntl(DR_CHILD_FD, F_GETFD) == FD_CLOEXEC);
}

/* Of the parent: with and without close-on-exec, one of them far up. */
static void open_files(void)
{
	EXPECT(open("/dev/zero", O_RDONLY) >= 0);
	EXPECT(open("/dev/zero", O_RDONLY | O_CLOEXEC) >= 0);
	EXPECT(fcntl(STDERR_FILENO, F_DUPFD, 700) >= 700);
}

static void settle_and_look(int fd)
{
	char error[256];

	open_files();
	path_of(STDERR_FILENO, error, sizeof(error));
	dr_child_settle(fd, "child-test");
	expect_descriptors(error);
}

static void keeps_its_socket_and_standard_error(void **state)
{
	(void)state;
	in_child(settle_and_look, -1);
	in_child(settle_and_look, DR_CHILD_FD);
	in_child(settle_and_look, 500);
}

/* A parent without standard input or output has the socket there. */
static void socket_in_the_place_of_a_standard_one(void **state)
{
	(void)state;
	in_child(settle_and_look, STDIN_FILENO);
	in_child(settle_and_look, STDOUT_FILENO);
}

static void settle_at_2(int fd)
{
	open_files();
	dr_child_settle(fd, "child-test");
	expect_descriptors("/dev/null");
}

static void socket_in_the_place_of_standard_error(void **state)
{
	(void)state;
	in_child(settle_at_2, STDERR_FILENO);
}

static void settle_without_standard_ones(int fd)
{
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	settle_and_look(fd);
}

static void parent_without_standard_ones(void **state)
{
	(void)state;
	in_child(settle_without_standard_ones, -1);
}

/* ---- signals, session, name ---- */

static const int ignored[] = { SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU,
	SIGUSR1, SIGUSR2, SIGALRM };

static void on_signal(int sig)
{
	(void)sig;
	_exit(2);
}

static bool is_ignored(int sig)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(ignored); i++)
		if (ignored[i] == sig)
			return true;
	return false;
}

static void settle_signals(int fd)
{
	struct sigaction act;
	sigset_t set;

	sigfillset(&set);
	EXPECT(sigprocmask(SIG_SETMASK, &set, NULL) == 0);
	for (int sig = 1; sig < SIGSYS; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			(void)signal(sig, sig == SIGCHLD ? SIG_IGN : on_signal);
	EXPECT(raise(SIGTERM) == 0); /* waits, and is forgotten */
	dr_child_settle(fd, "child-test");
	EXPECT(sigprocmask(SIG_SETMASK, NULL, &set) == 0 && sigisemptyset(&set));
	for (int sig = 1; sig < SIGSYS; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP)
			continue;
		EXPECT(sigaction(sig, NULL, &act) == 0);
		if (sig == SIGCHLD)
			EXPECT(act.sa_handler == SIG_DFL);
		else if (is_ignored(sig))
			EXPECT(act.sa_handler == SIG_IGN && raise(sig) == 0);
		else
			EXPECT(act.sa_handler == on_signal);
	}
}

static void ignores_the_terminal(void **state)
{
	(void)state;
	in_child(settle_signals, -1);
}

static void settle_session(int fd)
{
	char name[16];

	EXPECT(getsid(0) != getpid());
	dr_child_settle(fd, "child-test");
	EXPECT(getsid(0) == getpid() && getpgrp() == getpid());
	EXPECT(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "child-test") == 0);
}

static void has_a_session_and_a_name(void **state)
{
	(void)state;
	in_child(settle_session, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_its_socket_and_standard_error),
		cmocka_unit_test(socket_in_the_place_of_a_standard_one),
		cmocka_unit_test(socket_in_the_place_of_standard_error),
		cmocka_unit_test(parent_without_standard_ones),
		cmocka_unit_test(ignores_the_terminal),
		cmocka_unit_test(has_a_session_and_a_name),
	};

	return cmocka_run_group_tests_name("a settled child", tests, NULL, NULL);
}
