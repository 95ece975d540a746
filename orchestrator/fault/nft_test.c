/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/nft.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { CANNOT = 77 };
static int ready[2]; /* the first has its filter; the second process waits */

static int run(int (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fn());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* fn in the first process of a PID namespace. */
static int run_as_1(int (*fn)(void))
{
	return unshare(CLONE_NEWPID) ? CANNOT : run(fn);
}

static int open_one(void)
{
	struct dr_fault_report r;
	struct dr_nft *n;
	struct dr_err e;

	if (getpid() != 1)
		return CANNOT;
	if (dr_nft_probe(&e) || dr_nft_open("lo", DR_FAULT_IN, 100, &n, &r, &e)) {
		fprintf(stderr, "%s\n", e.text);
		return 1;
	}
	return 0;
}

/* Keeps its filter until the other end of the pipe is closed. */
static int open_and_hold(void)
{
	int rc = open_one();
	char c;

	if (rc == 0 && write(ready[0], "", 1) == 1)
		(void)!read(ready[0], &c, 1);
	return rc;
}

static int hold(void)
{
	close(ready[1]);
	return run_as_1(open_and_hold);
}

static int open_second(void)
{
	return run_as_1(open_one);
}

static int in_a_network(void)
{
	char c;

	if (unshare(CLONE_NEWNET) || socketpair(AF_UNIX, SOCK_STREAM, 0, ready))
		return CANNOT;
	pid_t pid = fork();
	if (pid == 0)
		_exit(hold());
	close(ready[0]);
	int rc = read(ready[1], &c, 1) == 1 ? run(open_second) : CANNOT;
	close(ready[1]);
	waitpid(pid, NULL, 0);
	return rc;
}

/* Containers with the host's network have guards of equal numbers. */
static void equal_pids(void **state)
{
	(void)state;
	int status = run(in_a_network);

	if (status == CANNOT) {
		print_message("SKIP: needs root and nf_tables\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(equal_pids) };

	return cmocka_run_group_tests_name("packet filters", tests, NULL, NULL);
}
