/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/names.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct ha_names list(const char *text)
{
	struct ha_names l;
	struct dr_err e = { 0 };

	if (ha_names_parse(text, &l, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	return l;
}

static bool matches(const char *text, const char *name, int port)
{
	struct ha_names l = list(text);

	return ha_names_match(&l, name, port);
}

static void names_are_prefixes(void **state)
{
	(void)state;
	assert_true(matches("eth,ib", "eth0", -1));
	assert_true(matches("eth,ib", "ib1", -1));
	assert_false(matches("eth,ib", "enp1s0", -1));
	assert_false(matches("eth10", "eth1", -1));
	assert_true(matches("", "anything", -1));
}

static void equals_means_whole_names(void **state)
{
	(void)state;
	assert_true(matches("=eth1", "eth1", -1));
	assert_false(matches("=eth1", "eth10", -1));
	assert_false(matches("=eth", "eth1", -1));
}

static void caret_excludes(void **state)
{
	(void)state;
	assert_false(matches("^docker,lo", "docker0", -1));
	assert_false(matches("^docker,lo", "lo", -1));
	assert_true(matches("^docker,lo", "eth0", -1));
	assert_false(matches("^=eth1", "eth1", -1));
	assert_true(matches("^=eth1", "eth10", -1));
}

static void a_port_restricts_the_name(void **state)
{
	(void)state;
	assert_true(matches("mlx5_0:0", "mlx5_0", 0));
	assert_true(matches("mlx5_0:1,mlx5_2", "mlx5_0", 1));
	assert_false(matches("mlx5_0:1,mlx5_2", "mlx5_0", 2));
	assert_true(matches("mlx5_0:1,mlx5_2", "mlx5_2", 2));
	assert_true(matches("mlx5_0:1", "mlx5_0", -1));
	assert_false(matches("^mlx5_0:1", "mlx5_0", 1));
	assert_true(matches("^mlx5_0:1", "mlx5_0", 2));
}

static void empty_names_are_skipped(void **state)
{
	struct ha_names l = list("=eth0,,eth1,");

	(void)state;
	assert_int_equal(l.n, 2);
	assert_string_equal(l.v[1].text, "eth1");
}

static void what_is_wrong_is_named(void **state)
{
	struct ha_names l;
	struct dr_err e;
	char many[200] = "";

	(void)state;
	assert_int_equal(ha_names_parse(",", &l, &e), -EINVAL);
	assert_non_null(strstr(e.text, "\",\" names no device"));
	assert_int_equal(ha_names_parse("^", &l, &e), -EINVAL);
	assert_int_equal(ha_names_parse("=", &l, &e), -EINVAL);
	assert_int_equal(ha_names_parse("mlx5_0:x", &l, &e), -EINVAL);
	assert_non_null(strstr(e.text, "\"x\" is not a port"));
	for (unsigned i = 0; i <= HA_NAMES_MAX; i++)
		strncat(many, i ? ",e" : "e", sizeof(many) - strlen(many) - 1);
	assert_int_equal(ha_names_parse(many, &l, &e), -EINVAL);
	assert_non_null(strstr(e.text, "more than 32"));
	memset(many, 'x', HA_NAME_BYTES);
	many[HA_NAME_BYTES] = '\0';
	assert_int_equal(ha_names_parse(many, &l, &e), -EINVAL);
}

static void the_text_parses_to_the_same(void **state)
{
	static const char *const texts[] = { "", "eth0", "=eth0,eth1", "^docker,lo",
		"^=mlx5_0:1,mlx5_1" };
	char buf[200];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(texts); i++) {
		struct ha_names l = list(texts[i]);

		ha_names_format(&l, buf, sizeof(buf));
		assert_string_equal(buf, texts[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_prefixes),
		cmocka_unit_test(equals_means_whole_names),
		cmocka_unit_test(caret_excludes),
		cmocka_unit_test(a_port_restricts_the_name),
		cmocka_unit_test(empty_names_are_skipped),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(the_text_parses_to_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
