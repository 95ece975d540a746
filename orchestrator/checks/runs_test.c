/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#include "orchestrator/fault/state.h"

static char mark[128];

/* As a guard holds it. */
static struct dr_state_file *record(const char *undo)
{
	struct dr_state s = { .nic = "rail0", .undo = (char *)undo };
	struct dr_fault_spec spec;
	struct dr_state_file *f;
	struct dr_err e;

	assert_int_equal(dr_fault_spec_parse("exec=cut", &spec, &e), 0);
	s.kind = spec.kind;
	assert_int_equal(dr_state_create(root, "exec-cut", &s, &f, &e), 0);
	return f;
}

/* As a run that was killed leaves it: the file is there, nobody holds its lock. */
static void leave(const char *undo)
{
	dr_state_leave(record(undo));
}

static struct dr_fault_execs execs;

static void check(bool dry_run)
{
	doctor.faults = (struct dr_guard_options){ .state_dir = root, .execs = &execs };
	doctor.dry_run = dry_run;
	dr_check_leftovers(&doctor);
}

static void define(const char *text)
{
	dr_fault_execs_fini(&execs);
	assert_int_equal(dr_fault_execs_add(&execs, text, NULL), 0);
}

static void nothing_left(void **state)
{
	(void)state;
	check(false);
	expect(DR_SEVERITY_OK, "leftover", NULL, "no fault");
}

static void named_then_repaired(void **state)
{
	char text[160];

	(void)state;
	snprintf(mark, sizeof(mark), "%s/undone", root);
	snprintf(text, sizeof(text), "cut=true,touch %s", mark);
	define(text);
	leave("cut");
	check(true);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "without --dry-run");
	assert_int_equal(access(mark, F_OK), -1);
	check(false);
	expect(DR_SEVERITY_NOTE, "leftover", "rail0", "undid the fault exec of a killed run");
	assert_int_equal(access(mark, F_OK), 0);
	check(false);
	expect(DR_SEVERITY_OK, "leftover", NULL, "no fault");
}

/* Whoever can write a state file chooses no command: the options of who repairs do. */
static void planted_commands_do_not_run(void **state)
{
	char planted[160];

	(void)state;
	snprintf(mark, sizeof(mark), "%s/planted", root);
	snprintf(planted, sizeof(planted), "touch %s", mark);
	leave(planted);
	check(false);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "letters, digits");
	assert_int_equal(access(mark, F_OK), -1);
	check(true);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "still active");
}

/* It is not defined here, or it fails; then it is still there. */
static void not_to_be_repaired(void **state)
{
	(void)state;
	define("other=true,true");
	leave("cut");
	check(false);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "add --fault-exec cut=CMD,UNDO");
	define("cut=true,exit 3");
	check(false);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "cannot be undone");
	check(true);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "exec");
	define("cut=true,true");
	check(false);
	expect(DR_SEVERITY_NOTE, "leftover", "rail0", "undid");
}

/* A fault of a living run is no leftover, and is left alone. */
static void held_by_a_run(void **state)
{
	struct dr_state_file *f = record("cut");
	char path[64];

	(void)state;
	define("cut=true,true");
	check(false);
	expect(DR_SEVERITY_NOTE, "fault", "rail0", "held by a dualrail of another PID namespace");
	check(false);
	expect(DR_SEVERITY_OK, "leftover", NULL, "no fault");
	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)getpid());
	put(path, "17 (dualrail-guard) S 1234 1 1 0");
	put("/proc/1234/comm", "dualrail\n");
	check(false);
	expect(DR_SEVERITY_NOTE, "fault", "rail0", "exec is active since 20");
	check(false);
	expect(DR_SEVERITY_NOTE, "fault", "rail0", "held by dualrail (1234)");
	dr_state_leave(f);
	check(false);
	expect(DR_SEVERITY_NOTE, "leftover", "rail0", "undid the fault exec");
	check(false);
	expect_none("fault");
}

#define HEAD                                                                                       \
	"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "      \
	"timeout inode\n"
#define REST "00000000:00000000 00:00000000 00000000     0        0"

static void ports(void **state)
{
	(void)state;
	doctor.run = (struct dr_doctor_run){ .port = 20000, .gpu_top = 7 };
	dr_check_ports(&doctor);
	expect_none("ports"); /* this end is no server */
	doctor.run.server = true;
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_NOTE, "ports", NULL, "cannot read");
	/* 20008 is behind the last, 20001 is connected and not listened on. */
	put("/proc/net/tcp", HEAD "   0: 00000000:4E28 00000000:0000 0A " REST " 11 1 0\n"
				  "   1: 0100007F:4E21 0100007F:C350 01 " REST " 12 1 0\n");
	put("/proc/net/tcp6", HEAD);
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_OK, "ports", NULL, "20000 to 20007");
	put("/proc/net/tcp6", HEAD "   0: 00000000000000000000000000000000:4E27 "
				   "00000000000000000000000000000000:0000 0A " REST " 4711 1 0\n");
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "may not inspect");
	point("/proc/77/fd/5", "socket:[4711]");
	point("/proc/77/fd/6", "/dev/null");
	put("/proc/77/comm", "nginx\n");
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "nginx (77)");
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_FAIL, "ports", NULL, "sport = :20007");
	put("/proc/77/comm", "dualrail\n");
	dr_check_ports(&doctor);
	expect(DR_SEVERITY_NOTE, "ports", NULL, "already running");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_left),
		cmocka_unit_test(named_then_repaired),
		cmocka_unit_test(held_by_a_run),
		cmocka_unit_test(not_to_be_repaired),
		cmocka_unit_test(planted_commands_do_not_run),
		cmocka_unit_test(ports),
	};

	return cmocka_run_group_tests_name("doctor runs", tests, tree_make, tree_remove);
}
