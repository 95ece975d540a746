/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/kind.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct dr_kind_probe found;

static const struct dr_kind_finding *finding(const char *check)
{
	for (unsigned i = 0; i < found.n; i++)
		if (strcmp(found.v[i].check, check) == 0)
			return &found.v[i];
	return NULL;
}

/* A RoCE device of that MTU behind a net device of that one. */
static void probe(bool roce, bool v2, unsigned mtu, unsigned netdev_mtu)
{
	struct dr_verbs_dev d = { .name = "mlx5_0",
		.ifname = "eth1",
		.port = 1,
		.roce = roce,
		.gid_type = v2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1,
		.mtu = mtu };

	found = (struct dr_kind_probe){ .netdev_mtu = netdev_mtu };
	dr_verbs_findings(&d, &found);
}

static void gid(void **state)
{
	(void)state;
	probe(true, true, 4096, 9000);
	assert_int_equal(found.n, 1);
	assert_int_equal(finding("rdma")->level, DR_KIND_OK);
	assert_non_null(strstr(finding("rdma")->text, "RoCE v2"));
	probe(true, false, 4096, 9000);
	assert_int_equal(found.n, 1);
	assert_int_equal(finding("rdma-gid")->level, DR_KIND_WARN);
	assert_non_null(strstr(finding("rdma-gid")->text, "RoCE v1"));
	/* InfiniBand has its own MTU. */
	probe(false, false, 2048, 9000);
	assert_int_equal(found.n, 1);
	assert_non_null(strstr(finding("rdma")->text, "MTU 2048"));
}

static void mtu(void **state)
{
	static const struct {
		unsigned netdev, active;
		int level; /* -1: no finding */
		const char *needed, *remedy;
	} cases[] = {
		{ 9000, 4096, -1, NULL, NULL },
		{ 9000, 1024, DR_KIND_WARN, "4096", "mtu 1500; ip link set eth1 mtu 9000" },
		{ 4192, 2048, DR_KIND_WARN, "4096", "mtu 4192" },
		{ 4191, 2048, DR_KIND_NOTE, "4096", "mtu 9000" },
		{ 1500, 1024, DR_KIND_NOTE, "4096", "mtu 9000" },
		{ 1500, 512, DR_KIND_WARN, "1024", "mtu 1500" },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		const struct dr_kind_finding *x;

		probe(true, true, cases[i].active, cases[i].netdev);
		x = finding("rdma-mtu");
		assert_int_equal(x ? (int)x->level : -1, cases[i].level);
		if (!x)
			continue;
		assert_string_equal(x->needed, cases[i].needed);
		assert_non_null(strstr(x->remedy, cases[i].remedy));
	}
}

static int read_peers(const char *name, json_int_t v, struct dr_err *e)
{
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "qps", 4, "mtu", 4096, "sl", 15,
		"tc", 255, "timeout", 31, "retry", 7);
	struct dr_verbs_params p;
	int rc;

	json_object_set_new(o, name, json_integer(v));
	rc = dr_fields_from_json(dr_verbs_kind.shared, &p, o, e);
	json_decref(o);
	return rc;
}

/* Values of a peer: each at its limit, and one step out of its range. */
static void ranges(void **state)
{
	static const struct {
		const char *name;
		int min, max;
	} of[] = { { "qps", 1, 4 }, { "mtu", 0, 4096 }, { "sl", 0, 15 }, { "tc", 0, 255 },
		{ "timeout", 0, 31 }, { "retry", 0, 7 } };
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(of); i++) {
		assert_int_equal(read_peers(of[i].name, of[i].min, &e), 0);
		assert_int_equal(read_peers(of[i].name, of[i].max, &e), 0);
		assert_int_equal(read_peers(of[i].name, of[i].min - 1, &e), -EPROTO);
		assert_int_equal(read_peers(of[i].name, of[i].max + 1, &e), -EPROTO);
		assert_non_null(strstr(e.text, of[i].name));
	}
}

static void infinite_timeout(void **state)
{
	struct dr_verbs_params p;
	struct dr_err e;

	(void)state;
	dr_verbs_params_init(&p);
	assert_int_equal(dr_verbs_kind.check(&p, true, &e), 0);
	p.timeout = 0;
	assert_int_equal(dr_verbs_kind.check(&p, false, &e), 0);
	assert_int_equal(dr_verbs_kind.check(&p, true, &e), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gid),
		cmocka_unit_test(mtu),
		cmocka_unit_test(ranges),
		cmocka_unit_test(infinite_timeout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
