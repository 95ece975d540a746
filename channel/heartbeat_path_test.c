/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

/* Heartbeats that use the paths, and rails that have none. Rail 0 is silent, rail 1 is heard. */

/* An end without a path sends nothing on the rail either. */
static void no_path(struct pair *p, bool at_0, bool at_1)
{
	dr_detect_no_path(&p->h[0].d, 0, at_0);
	dr_detect_no_path(&p->h[1].d, 0, at_1);
	p->unsent[0] = at_0;
	p->unsent[1] = at_1;
	p->cut[0] = p->cut[1] = 1u << 0;
}

static void a_rail_whose_paths_are_being_rebuilt_is_not_silent(void **state)
{
	struct pair *p = *state;

	no_path(p, true, true);
	dr_hb_suspect(&p->h[0], 0, 0);
	for (int i = 0; i < 110; i++) {
		if (i == 100)
			no_path(p, false, false), p->cut[0] = p->cut[1] = 0;
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
}

/* One end has its path before the other one, or longer: nothing is missing at either. */
static void a_peer_without_a_path_is_waited_for(void **state)
{
	struct pair *p = *state;

	no_path(p, true, true);
	half_rounds(p, 100);
	no_path(p, false, true);
	for (int i = 0; i < 100; i++) {
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
}

/* What was missed before does not count. */
static void silence_begins_with_a_path(void **state)
{
	struct pair *p = *state;

	no_path(p, false, false);
	half_rounds(p, 2);
	assert_true(dr_detect_missed(&p->h[0].d, 0) > 0);
	no_path(p, true, true);
	half_rounds(p, 20);
	no_path(p, false, false);
	assert_in_range(rounds_until(p, 0, 0, true), 2, DR_BOUND_BEATS);
}

/* Its paths are left for that reason. The peer follows at once. */
static void a_rail_that_is_down_is_reported_without_a_path(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	dr_detect_force_down(&p->h[0].d, 0, false);
	no_path(p, true, false);
	assert_in_range(rounds_until(p, 1, 0, true), 1, 2);
	half_rounds(p, 20);
	assert_true(p->h[0].d.rail[0].down && p->h[1].d.rail[0].down);
	no_path(p, false, false);
	p->cut[0] = p->cut[1] = 0;
	assert_true(rounds_until(p, 0, 0, false) > 0);
}

/* Both links were down here, and nobody could be told. Now that is over. */
static void a_rail_is_not_left_for_what_was_before_its_path(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	dr_detect_force_down(&p->h[0].d, 0, false);
	dr_detect_force_down(&p->h[0].d, 1, false);
	no_path(p, true, true);
	p->cut[0] = p->cut[1] = 3;
	half_rounds(p, 20);
	no_path(p, false, false);
	p->cut[0] = p->cut[1] = 0;
	for (int i = 0; i < 20; i++) {
		half_round(p);
		assert_int_equal(p->out[1].v.fell & 1u, 0);
	}
	assert_false(p->h[0].d.rail[0].down || p->h[1].d.rail[0].down);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_rail_whose_paths_are_being_rebuilt_is_not_silent, setup),
		cmocka_unit_test_setup(a_peer_without_a_path_is_waited_for, setup),
		cmocka_unit_test_setup(silence_begins_with_a_path, setup),
		cmocka_unit_test_setup(a_rail_that_is_down_is_reported_without_a_path, setup),
		cmocka_unit_test_setup(a_rail_is_not_left_for_what_was_before_its_path, setup),
	};

	return cmocka_run_group_tests_name("heartbeat_path", tests, NULL, NULL);
}
