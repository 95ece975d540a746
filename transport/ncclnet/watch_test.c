/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/watch.h"

#include "base/defs.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

/* How a process ends whose plugin ends it, or does not return. */

static int plugin_exits(void)
{
	exit(0); /* lint-ok: the bug */
}

static int plugin_aborts(void)
{
	struct rlimit none = { 0, 0 };

	(void)setrlimit(RLIMIT_CORE, &none);
	abort(); /* lint-ok: the bug */
}

static int plugin_hangs(void)
{
	while (poll(NULL, 0, -1) <= 0)
		;
	return 0;
}

static int plugin_works(void)
{
	return 7;
}

static void *plugin_exits_in_a_thread(void *arg)
{
	(void)NN_CALL("bad", arg, plugin_exits());
	return NULL;
}

static void run(const char *what, const char *call)
{
	pthread_t t;

	dr_nn_watch_start();
	if (NN_CALL("bad", call, plugin_works()) != 7)
		_exit(99);
	if (strcmp(what, "exit") == 0)
		(void)NN_CALL("bad", call, plugin_exits());
	if (strcmp(what, "abort") == 0)
		(void)NN_CALL("bad", call, plugin_aborts());
	if (strcmp(what, "hang") == 0)
		(void)NN_CALL("bad", call, plugin_hangs());
	if (strcmp(what, "thread") == 0 &&
		pthread_create(&t, NULL, plugin_exits_in_a_thread, (void *)(uintptr_t)call) == 0)
		(void)pthread_join(t, NULL);
	dr_nn_watch_stop();
	if (strcmp(what, "outside") == 0)
		abort(); /* lint-ok: what is tested */
	exit(5);	 /* lint-ok: what is tested */
}

/* Its wait status, and what it said. */
static int end_of(const char *what, const char *call, char *said, size_t len)
{
	int fd[2], status = 0;
	size_t at = 0;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		(void)dup2(fd[1], STDERR_FILENO);
		close(fd[0]);
		close(fd[1]);
		run(what, call);
	}
	close(fd[1]);
	while (at + 1 < len && (n = read(fd[0], said + at, len - 1 - at)) > 0)
		at += (size_t)n;
	said[at] = '\0';
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void ends_with_one_message(void **state)
{
	static const struct {
		const char *what, *call;
		int status; /* below 0: signal */
		const char *said;
	} cases[] = {
		{ "exit", "test", 4, "plugin bad called exit in test" },
		{ "exit", "init", 2, "plugin bad called exit in init" },
		{ "thread", "listen", 2, "plugin bad called exit in listen" },
		{ "abort", "isend", -SIGABRT, "plugin bad crashed in isend" },
		{ "hang", "connect", 4, "plugin bad has not returned from connect for 10 s" },
		/* No call of the plugin. */
		{ "none", "test", 5, "" },
		{ "outside", "test", -SIGABRT, "" },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		char said[512];
		int status = end_of(cases[i].what, cases[i].call, said, sizeof(said));

		if (cases[i].status >= 0)
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == cases[i].status);
		else if (WIFSIGNALED(status)) /* sanitizers may exit in place of it */
			assert_int_equal(WTERMSIG(status), -cases[i].status);
		if (!strstr(said, cases[i].said) || (!*cases[i].said && strstr(said, "plugin")))
			fail_msg("%s in %s: it said \"%s\"", cases[i].what, cases[i].call, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(ends_with_one_message) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
