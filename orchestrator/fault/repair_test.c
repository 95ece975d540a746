/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/guard_testkit.h"

#include "orchestrator/fault/state.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a killed guard left, under conditions that make the repair hard. */
static const struct dr_guard_options here = { .state_dir = dir };

enum { DEADLINE_MS = 20000 };

/* A guard that has set the device down. */
static struct dr_guard *guard_that_cuts(const char *nic)
{
	static const struct dr_fault_control control = { .ifname = "ctl0" };
	struct dr_fault_report r;
	struct dr_fault_spec s;
	struct dr_guard *g;
	struct dr_err e;
	uint32_t id;

	assert_int_equal(dr_fault_spec_parse("link-down:for=0", &s, NULL), 0);
	if (dr_guard_start(&here, &g, &e) || dr_guard_inject(g, &s, nic, &control, &id, &e))
		fail_msg("%s", e.text);
	assert_int_equal(
		poll(&(struct pollfd){ .fd = dr_guard_fd(g), .events = POLLIN }, 1, DEADLINE_MS),
		1);
	assert_int_equal(dr_guard_poll(g, &r), 1);
	assert_int_equal(r.err, 0);
	return g;
}

/* Its record is left: guard and keeper are killed, and so is who would notice it. */
static void leave(const char *nic)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct dr_guard *g = guard_that_cuts(nic);

		kill(g->pid, SIGKILL);
		waitpid(g->pid, NULL, 0);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void the_device_has_another_name(void **state)
{
	(void)state;
	need_lab();
	leave("rail1");
	assert_int_equal(system("ip link set rail1 name other1"), 0);
	assert_int_equal(dr_fault_repair(&here, 0, NULL), 1);
	assert_true(is_up("other1"));
	assert_int_equal(system("ip link set other1 down && ip link set other1 name rail1 up"), 0);
}

/* From now on the kernel takes no netlink message of this process. */
static int busy_netlink(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBUSY),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { DR_ARRAY_LEN(code), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* Neither is the device taken to be gone, nor the record to be that of a living guard. */
static void the_kernel_is_busy(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	need_lab();
	leave("rail0");
	pid = fork();
	if (pid == 0) {
		struct dr_err e = { 0 };

		if (busy_netlink())
			_exit(77);
		_exit(dr_fault_repair(&here, 0, &e) == 0 && e.code == -EIO ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(dr_fault_repair(&here, 0, NULL), 1);
	assert_true(is_up("rail0"));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A record of another run, whose command is unknown here: a start tells it, but this guard's own
 * faults are undone. */
static void others_left_a_record(void **state)
{
	struct dr_fault_execs t = { 0 };
	struct dr_guard_options with = { .state_dir = dir, .execs = &t };
	struct dr_state_file *f;
	struct dr_fault_report r;
	struct dr_fault_spec s;
	struct dr_err e;

	(void)state;
	need_lab();
	struct dr_guard *g = guard_that_cuts("rail0");
	assert_int_equal(dr_fault_spec_parse("exec=foreign", &s, NULL), 0);
	struct dr_state foreign = { .kind = s.kind, .undo = s.value };
	assert_int_equal(dr_state_create(dir, "exec-foreign", &foreign, &f, &e), 0);
	dr_state_leave(f);
	assert_int_equal(kill(g->pid, SIGKILL), 0);
	while (dr_guard_poll(g, &r) != -EPIPE)
		;
	assert_true(is_up("rail0"));
	assert_int_equal(dr_fault_repair(&here, 0, &e), 0);
	assert_int_equal(e.code, -ENOENT);
	assert_int_equal(dr_fault_execs_add(&t, "foreign=true,true", NULL), 0);
	assert_int_equal(dr_fault_repair(&with, 0, NULL), 1);
	dr_fault_execs_fini(&t);
	assert_int_equal(dr_guard_gone(g, &e), -EPIPE);
	dr_guard_stop(g);
}

static bool there(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s.%s", dir, name);
	return access(path, F_OK) == 0;
}

/* The guard is killed while a command runs: no process of it acts after UNDO. */
static void a_command_runs(void **state)
{
	static const struct dr_fault_control none = { .ifname = NULL };
	struct dr_fault_execs t = { 0 };
	struct dr_guard_options with = { .state_dir = dir, .execs = &t };
	struct dr_fault_report r;
	struct dr_fault_spec s;
	struct dr_guard *g;
	char text[512];
	uint32_t id;

	(void)state;
	need_lab();
	snprintf(text, sizeof(text),
		"slow=touch %s.on; (sleep 0.3; touch %s.late); true,rm -f %s.on %s.late", dir, dir,
		dir, dir);
	assert_int_equal(dr_fault_execs_add(&t, text, NULL), 0);
	assert_int_equal(dr_fault_spec_parse("exec=slow", &s, NULL), 0);
	assert_int_equal(dr_guard_start(&with, &g, NULL), 0);
	assert_int_equal(dr_guard_inject(g, &s, "", &none, &id, NULL), 0);
	for (int ms = 0; ms < DEADLINE_MS && !there("on"); ms++)
		poll(NULL, 0, 1);
	assert_true(there("on"));
	assert_int_equal(kill(g->pid, SIGKILL), 0);
	while (dr_guard_poll(g, &r) != -EPIPE)
		;
	assert_int_equal(dr_guard_gone(g, NULL), -EPIPE);
	assert_false(there("on"));
	poll(NULL, 0, 800);
	assert_false(there("late"));
	dr_guard_stop(g);
	dr_fault_execs_fini(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_device_has_another_name),
		cmocka_unit_test(the_kernel_is_busy),
		cmocka_unit_test(others_left_a_record),
		cmocka_unit_test(a_command_runs),
	};

	dr_log_set_level(DR_LOG_ERROR + 1);
	return cmocka_run_group_tests_name("repair of faults", tests, set_up_lab, tear_down_lab);
}
