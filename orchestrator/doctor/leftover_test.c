/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/doctor_testkit.h"

#include "orchestrator/fault/state.h"

static char mark[128];

/* As a run that was killed leaves it: the file is there, nobody holds its lock. */
static void leave(const char *undo)
{
	struct dr_state s = { .kind = DR_FAULT_EXEC, .nic = "rail0", .undo = (char *)undo };
	struct dr_state_file *f;
	struct dr_err e;

	assert_int_equal(dr_state_create(root, "exec-cut", &s, &f, &e), 0);
	dr_state_leave(f);
}

static void nothing_left(void **state)
{
	(void)state;
	dr_check_leftovers(root, false, &found);
	expect(DR_SEVERITY_OK, "leftover", NULL, "no fault");
}

static void named_then_repaired(void **state)
{
	char undo[160];

	(void)state;
	snprintf(mark, sizeof(mark), "%s/undone", root);
	snprintf(undo, sizeof(undo), "touch %s", mark);
	leave(undo);
	dr_check_leftovers(root, true, &found);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "without --dry-run");
	assert_int_equal(access(mark, F_OK), -1);
	dr_check_leftovers(root, false, &found);
	expect(DR_SEVERITY_NOTE, "leftover", "rail0", "undid the fault exec");
	assert_int_equal(access(mark, F_OK), 0);
	dr_check_leftovers(root, false, &found);
	expect(DR_SEVERITY_OK, "leftover", NULL, "no fault");
}

static void not_to_be_repaired(void **state)
{
	(void)state;
	leave("exit 3");
	dr_check_leftovers(root, false, &found);
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "cannot be undone");
	dr_check_leftovers(root, true, &found); /* it is still there */
	expect(DR_SEVERITY_FAIL, "leftover", "rail0", "exec");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_left),
		cmocka_unit_test(named_then_repaired),
		cmocka_unit_test(not_to_be_repaired),
	};

	return cmocka_run_group_tests_name("doctor leftover", tests, tree_make, tree_remove);
}
