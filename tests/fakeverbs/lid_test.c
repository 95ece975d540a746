/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/pair.h"

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
	pair_expect_ready(p);
}

static void by_lid(struct pair *p)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7 }, { .lid = 0xbfff } };

	bring_up(p, how);
	pair_transfer(p);
	pair_chatter(p);
	assert_false(pair_any_failed(p));
	assert_int_equal(p->fake->routes(true), 0);
	assert_true(p->fake->routes(false) >= 8); /* two address handles, 2 x 3 queue pairs */
}

static void with_grh_where_wanted(struct pair *p)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7, .grh_required = true },
		{ .lid = 8, .grh_required = true } };

	bring_up(p, how);
	pair_transfer(p);
	assert_false(pair_any_failed(p));
	assert_int_equal(p->fake->routes(false), 0);
}

/* The subnet manager gives a port another LID: its paths break, and the peer learns where it is now. */
static void lid_changes(struct pair *p)
{
	static const struct dr_fake_ib how[2] = { { .lid = 7 }, { .lid = 8 } };

	bring_up(p, how);
	p->doing = "LID changes";
	port(p, p->nth, (struct dr_fake_ib){ .lid = 99 });
	pair_until(p, p->e[p->nth].failed);
	assert_int_equal(p->e[p->nth].scope, DR_SCOPE_PATH);
	pair_fence_both(p);
	pair_again(p);
}

static void refused(struct pair *p)
{
	static const struct dr_fake_ib how[][2] = { { { .lid = 0 }, { .lid = 8 } },
		{ { .lid = 7 }, { .lid = 8, .prefix = 0xfec0000000000001 } } };

	assert_true(listen_ib(p, how[p->nth]) < 0);
	assert_non_null(strstr(p->error, p->nth ? "another InfiniBand subnet" : "no LID"));
	pair_clean(p, false);
}

static void other_link_layer(struct pair *p)
{
	assert_int_equal(pair_listen_one(p, S), 0);
	p->fake->addr_del("fake0", "127.0.0.1");
	port(p, R, (struct dr_fake_ib){ .lid = 8 });
	assert_int_equal(pair_listen_one(p, R), 0);
	assert_true(pair_introduce(p) < 0);
	assert_non_null(strstr(p->error, "InfiniBand"));
	pair_clean(p, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { PAIR(by_lid, PAIR_BOTH | PAIR_BARE, 2),
		PAIR(with_grh_where_wanted, PAIR_BARE, 1),
		PAIR(lid_changes, PAIR_POLLED | PAIR_BARE, 2), PAIR(refused, PAIR_BARE, 2),
		PAIR(other_link_layer, PAIR_BARE, 1) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), make_sysfs, remove_sysfs);
}
