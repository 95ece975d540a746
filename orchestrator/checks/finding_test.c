/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/doctor_testkit.h"

#include "base/mem.h"

static void rows(void)
{
	dr_findings_add(&doctor.f, DR_SEVERITY_OK, "clock", NULL, "clock source %s", "tsc");
	dr_findings_add(&doctor.f, DR_SEVERITY_FAIL, "mtu", "eth1",
		"too small\033[2J\n%d\n%d\nip link set eth1 mtu 9000", 1500, 9000);
}

static void for_people(void **state)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	(void)state;
	rows();
	dr_findings_print(&doctor.f, 2, false, f);
	fflush(f);
	assert_non_null(strstr(text, "ok    clock"));
	assert_non_null(strstr(text, "fail  mtu"));
	assert_non_null(strstr(text, "found 1500, needed 9000"));
	assert_non_null(strstr(text, "-> ip link set eth1 mtu 9000"));
	assert_non_null(strstr(text, "1 fail, 0 warn, 0 note, 1 ok (exit status 2)"));
	assert_null(strchr(text, '\033'));
	rewind(f);
	dr_findings_print(&doctor.f, 2, true, f); /* quiet: nothing that is well */
	fflush(f);
	assert_int_equal(strncmp(text, "  fail", 6), 0);
	fclose(f);
	free(text);
	forget();
}

static void for_machines(void **state)
{
	json_t *doc, *row;

	(void)state;
	rows();
	doc = dr_findings_json(&doctor.f, "node2", 2);
	assert_string_equal(json_string_value(json_object_get(doc, "schema")), "dualrail-doctor/1");
	assert_string_equal(json_string_value(json_object_get(doc, "status")), "fail");
	assert_string_equal(json_string_value(json_object_get(doc, "target")), "node2");
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(doc, "counts"), "fail")), 1);
	row = json_array_get(json_object_get(doc, "findings"), 1);
	assert_string_equal(json_string_value(json_object_get(row, "found")), "1500");
	assert_string_equal(
		json_string_value(json_object_get(row, "remedy")), "ip link set eth1 mtu 9000");
	row = json_array_get(json_object_get(doc, "findings"), 0);
	assert_true(json_is_null(json_object_get(row, "remedy")));
	assert_true(json_is_null(json_object_get(row, "where")));
	json_decref(doc);
	forget();
}

static void an_error(void **state)
{
	struct dr_err e;

	(void)state;
	dr_err_set(&e, -ENODEV, "open eth9: no such device; use one of eth1, eth2");
	dr_findings_error(&doctor.f, DR_SEVERITY_FAIL, "rails", NULL, &e);
	assert_string_equal(doctor.f.v[0].text, "open eth9: no such device");
	assert_string_equal(doctor.f.v[0].remedy, "use one of eth1, eth2");
	forget();
}

/* Rows that do not fit into memory are lost, and that is told. */
static void no_memory(void **state)
{
	(void)state;
	dr_mem_fail_after(1);
	rows();
	dr_mem_fail_after(-1);
	assert_true(doctor.f.no_memory);
	assert_int_equal(doctor.f.n, 1); /* the second attempt got memory */
	forget();
	for (int i = 0; i < 100; i++)
		rows();
	assert_int_equal(doctor.f.n, 200);
	forget();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_people),
		cmocka_unit_test(for_machines),
		cmocka_unit_test(an_error),
		cmocka_unit_test(no_memory),
	};

	return cmocka_run_group_tests_name("doctor findings", tests, tree_make, tree_remove);
}
