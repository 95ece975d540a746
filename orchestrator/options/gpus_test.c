/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/options/options.h"

/* The last --gpus counts; a configuration file may list numbers and addresses. */
static void as_an_option(void **state)
{
	static char text[][16] = { "client", "-g", "0-1", "-g", "3,1b:00.0", "127.0.0.1" };
	char *argv[] = { text[0], text[1], text[2], text[3], text[4], text[5], NULL };
	struct dr_options o = { 0 };
	struct dr_err e = { 0 };
	json_t *j = json_pack("{s:[i,s]}", "gpus", 5, "2b:00.0"), *echo;

	(void)state;
	assert_int_equal(dr_options_parse(&o, DR_CMDBIT_CLIENT, 6, argv, &e), 0);
	assert_int_equal(o.gpu_names.n, 2);
	assert_string_equal(o.gpu_names.v[1], "1b:00.0");
	dr_options_fini(&o);
	memset(&o, 0, sizeof(o));
	argv[1] = text[5];
	assert_int_equal(dr_options_parse(&o, DR_CMDBIT_CLIENT, 2, argv, &e), 0);
	assert_int_equal(dr_opts_from_json(o.table, DR_CMDBIT_CLIENT, j, &e), 0);
	assert_int_equal(o.gpu_names.n, 2);
	assert_string_equal(o.gpu_names.v[0], "5");
	echo = dr_opts_to_json(o.table, DR_CMDBIT_CLIENT);
	assert_string_equal(json_string_value(json_object_get(echo, "gpus")), "5,2b:00.0");
	json_decref(echo);
	json_decref(j);
	dr_options_fini(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_an_option) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
