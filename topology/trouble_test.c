/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "topology/trouble.h"

static char root[64];

static void put(unsigned port, const char *name, unsigned value)
{
	char command[512];

	snprintf(command, sizeof(command),
		"d=%s/sys/class/infiniband/mlx5_0/ports/%u/counters; mkdir -p $d && echo %u >$d/%s",
		root, port, value, name);
	assert_int_equal(system(command), 0);
}

static void what_grew_is_named(void **state)
{
	struct dr_trouble_counts before, now;
	int64_t sum[DR_TROUBLES];
	char text[160], command[128];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/dr-trouble-test-XXXXXX");
	assert_non_null(mkdtemp(root));
	put(1, "symbol_error", 7);
	put(1, "port_xmit_discards", 5);
	put(2, "symbol_error", 1);
	dr_trouble_read(root, 0, "mlx5_0", &before);
	dr_trouble_growth(&before, &before, sum, text, sizeof(text));
	assert_string_equal(text, "");
	put(1, "symbol_error", 9);
	put(2, "symbol_error", 2);
	put(1, "port_xmit_discards", 1); /* it was reset */
	put(1, "link_downed", 4);
	dr_trouble_read(root, 0, "mlx5_0", &now);
	dr_trouble_growth(&before, &now, sum, text, sizeof(text));
	assert_string_equal(text, "symbol_error +3, link_downed +4");
	assert_int_equal(sum[DR_TROUBLE_ERRORS], 3);
	assert_int_equal(sum[DR_TROUBLE_DROPS], 0);
	assert_int_equal(sum[DR_TROUBLE_LINK], 4);
	/* No device. */
	dr_trouble_read(root, 0, "", &now);
	dr_trouble_growth(&before, &now, sum, text, sizeof(text));
	assert_string_equal(text, "");
	snprintf(command, sizeof(command), "rm -rf %s", root);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(what_grew_is_named) };

	return cmocka_run_group_tests_name("trouble", tests, NULL, NULL);
}
