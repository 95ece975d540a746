/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

#include "base/log.h"

/* InfiniBand: ports are found by their net device and reached by LID, with a GRH only where one is wanted. */

static char sysfs[PATH_MAX];

static int make_sysfs(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX + 16];
	FILE *f;

	(void)state;
	(void)snprintf(sysfs, sizeof(sysfs), "%s/dualrail-lid-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(sysfs))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/parent", sysfs);
	f = fopen(path, "we");
	if (!f)
		return -1;
	(void)fputs("lo\n", f);
	return fclose(f);
}

static int remove_sysfs(void **state)
{
	char path[PATH_MAX + 16];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/parent", sysfs);
	(void)unlink(path);
	return rmdir(sysfs);
}

static void port(struct pair *p, unsigned node, struct dr_fake_ib how)
{
	how.ibdev_path = sysfs;
	p->fake->infiniband(node ? "fake1" : "fake0", &how);
}

/* A net device has one port, so one end is given its device after the other has opened its own. */
static int listen_ib(struct pair *p, const struct dr_fake_ib how[2])
{
	struct dr_fake_ib unnamed[2] = { how[0], how[1] };

	for (unsigned i = 0; i < 2; i++) {
		unnamed[i].ibdev_path = "/nonexistent";
		p->fake->infiniband(i ? "fake1" : "fake0", &unnamed[i]);
	}
	port(p, S, how[S]);
	if (pair_listen_one(p, S))
		return -1;
	p->fake->infiniband("fake0", &unnamed[S]);
	port(p, R, how[R]);
	if (pair_listen_one(p, R))
		return -1;
	return pair_introduce(p);
}

static void bring_up(struct pair *p, const struct dr_fake_ib how[2])
{
	if (listen_ib(p, how) || pair_register(p) || pair_create(p) || pair_connect(p))
		fail_msg("%s: %s", p->doing, p->error);
	pair_until(p,
		(p->e[S].count[DR_EV_READY] && p->e[R].count[DR_EV_READY]) || pair_any_failed(p));
	if (pair_any_failed(p))
		fail_msg("%s%s%s%s", p->e[S].text, p->e[R].text, p->e[S].rail_text,
			p->e[R].rail_text);
}

static void by_lid(void **state)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7 }, { .lid = 0xbfff } };
	struct pair p;

	(void)state;
	for (unsigned poller = 0; poller < 2; poller++) {
		pair_init(&p, poller);
		bring_up(&p, how);
		pair_transfer(&p);
		pair_chatter(&p);
		assert_false(pair_any_failed(&p));
		assert_int_equal(p.fake->routes(true), 0);
		assert_true(
			p.fake->routes(false) >= 8); /* two address handles, 2 x 3 queue pairs */
		pair_end(&p);
	}
}

static void with_grh_where_wanted(void **state)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7, .grh_required = true },
		{ .lid = 8, .grh_required = true } };
	struct pair p;

	(void)state;
	pair_init(&p, false);
	bring_up(&p, how);
	pair_transfer(&p);
	assert_false(pair_any_failed(&p));
	assert_int_equal(p.fake->routes(false), 0);
	pair_end(&p);
}

/* The subnet manager gives a port another LID: its paths break, and the peer learns where it is now. */
static void lid_changes(void **state)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7 }, { .lid = 8 } };
	struct pair p;

	(void)state;
	for (unsigned node = 0; node < 2; node++) {
		pair_init(&p, true);
		bring_up(&p, how);
		p.doing = "LID changes";
		port(&p, node, (struct dr_fake_ib){ .lid = 99 });
		pair_until(&p, p.e[node].failed);
		assert_int_equal(p.e[node].scope, DR_SCOPE_PATH);
		pair_fence_both(&p);
		pair_again(&p);
		pair_end(&p);
	}
}

static void another_subnet(void **state)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7 },
		{ .lid = 8, .prefix = 0xfec0000000000001 } };
	struct pair p;

	(void)state;
	pair_init(&p, false);
	assert_true(listen_ib(&p, how) < 0);
	assert_non_null(strstr(p.error, "another InfiniBand subnet"));
	pair_shut(&p);
	pair_clean(&p, false);
}

static void no_lid(void **state)
{
	static const struct dr_fake_ib how[2] = { { .lid = 0 }, { .lid = 8 } };
	struct pair p;

	(void)state;
	pair_init(&p, false);
	assert_true(listen_ib(&p, how) < 0);
	assert_non_null(strstr(p.error, "no LID"));
	pair_shut(&p);
	pair_clean(&p, false);
}

static void other_link_layer(void **state)
{
	struct pair p;

	(void)state;
	pair_init(&p, false);
	assert_int_equal(pair_listen_one(&p, S), 0);
	p.fake->addr_del("fake0", "127.0.0.1");
	port(&p, R, (struct dr_fake_ib){ .lid = 8 });
	assert_int_equal(pair_listen_one(&p, R), 0);
	assert_true(pair_introduce(&p) < 0);
	assert_non_null(strstr(p.error, "InfiniBand"));
	pair_shut(&p);
	pair_clean(&p, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(by_lid),
		cmocka_unit_test(with_grh_where_wanted), cmocka_unit_test(lid_changes),
		cmocka_unit_test(another_subnet), cmocka_unit_test(no_lid),
		cmocka_unit_test(other_link_layer) };

	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, make_sysfs, remove_sysfs);
}
