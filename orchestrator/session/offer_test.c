/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/offer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* No library of that name: what needs one says so, everything else works without. */
static int set_up(void **state)
{
	(void)state;
	return setenv("DR_IBVERBS", "libnone-of-this-name.so.1", 1);
}

static struct dr_err err;

static int find(const char *line, struct dr_rails *out)
{
	char copy[128], *argv[8], *save = NULL;
	int argc = 0;
	struct dr_route route = { .local = { .ss_family = AF_INET } };
	struct dr_options opt = { 0 };
	struct dr_plan p = { .n_gpus = 0 };
	int rc;

	snprintf(copy, sizeof(copy), "x h --transport %s", line);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	assert_int_equal(dr_options_parse(&opt, DR_CMDBIT_CLIENT, argc, argv, &err), 0);
	dr_plan_set_transport(&p, &opt);
	rc = dr_rails_find(&opt, &p, &route, out, &err);
	dr_options_fini(&opt);
	return rc;
}

static void rails_without_the_library(void **state)
{
	struct dr_rails r;

	(void)state;
	assert_int_equal(find("verbs --rails lo@127.0.0.1", &r), -ENOENT);
	assert_non_null(strstr(err.text, "apt-get install libibverbs1"));
	/* tcp does not need it; a name of no device is an error as before. */
	assert_int_equal(find("tcp --rails lo@127.0.0.1,127.0.0.2", &r), 0);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.v[1].ifname, "lo");
	assert_int_equal(find("tcp --rails nosuch0", &r), -ENODEV);
	assert_non_null(strstr(err.text, "'nosuch0' is neither a device"));
}

static void unknown_names_stay(void **state)
{
	static const char *const kinds[] = { "tcp", "verbs" };
	char text[64];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(kinds); i++) {
		const struct dr_transport_kind *k = dr_transport_kind(kinds[i]);

		assert_true(dr_rails_rename(k, "0=rxe0,1;1=lo", text, sizeof(text), NULL));
		assert_string_equal(text, "0=rxe0,1;1=lo");
		assert_false(dr_rails_rename(k, "0=rxe0,1;1=lo", text, 5, NULL));
	}
}

static int upper(const char *name, char *ifname, size_t len, struct dr_err *e)
{
	if (strncmp(name, "nic-", 4) != 0)
		return dr_err_set(e, -ENODEV, "%s", name);
	snprintf(ifname, len, "eth%s", name + 4);
	return 0;
}

static void names_of_the_kind_are_replaced(void **state)
{
	static const struct dr_transport_kind k = { .name = "fake", .netdev_of = upper };
	char text[64];

	(void)state;
	assert_true(dr_rails_rename(&k, "0=nic-1,lo;3=nic-2@10.0.0.1", text, sizeof(text), NULL));
	assert_string_equal(text, "0=eth1,lo;3=eth2@10.0.0.1");
	assert_false(dr_rails_rename(&k, "nic-1,nic-2", text, 8, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rails_without_the_library),
		cmocka_unit_test(unknown_names_stay),
		cmocka_unit_test(names_of_the_kind_are_replaced),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
