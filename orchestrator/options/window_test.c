/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "orchestrator/options/options.h"

/* Without --window 16 MiB are in flight per GPU and direction, within 1 and 16 chunks. */
static void bytes_in_flight(void **state)
{
	static const struct {
		char args[4][12];
		uint64_t window;
	} c[] = {
		{ { "-N8", "-s64M" }, 16 }, /* chunks of 128 KiB */
		{ { "-N16", "-s64M" }, 8 },
		{ { "-N64", "-s64M" }, 2 },
		{ { "-N64", "-s64K" }, 4 },
		{ { "-N4", "-s64M", "--chunk=64M" }, 1 },
		{ { "-N64", "-s8" }, 16 },
		{ { "-N64", "-s64M", "--window=3" }, 3 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		char text[6][12] = { "client", "127.0.0.1" };
		char *argv[7] = { text[0], text[1] };
		struct dr_options o = { 0 };
		struct dr_err e = { 0 };
		int n = 2;

		for (size_t k = 0; k < DR_ARRAY_LEN(c[i].args); k++)
			if (c[i].args[k][0]) {
				memcpy(text[n], c[i].args[k], sizeof(text[n]));
				argv[n] = text[n];
				n++;
			}
		assert_int_equal(dr_options_parse(&o, DR_CMDBIT_CLIENT, n, argv, &e), 0);
		assert_int_equal(o.window, c[i].window);
		dr_options_fini(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(bytes_in_flight) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
