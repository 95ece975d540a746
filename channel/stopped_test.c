/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_testkit.h"

#include <errno.h>

/* Rows of the envelope (docs/PROTOCOL.md, 6): a peer that stands, whose process has ended, or
 * whose host is gone. */

static const int64_t MS = DR_NS_PER_MS;

/* End 1 executes nothing; its kernel does. */
static void stand_for(struct pair *p, int64_t ns)
{
	int64_t until = dr_sim_world_now(p->w) + ns;

	while (dr_sim_world_now(p->w) < until) {
		int64_t next = DR_MIN(dr_sim_world_next(p->w), until);

		next = DR_MIN(next, dr_manager_deadline(p->m[0]));
		dr_sim_world_step(p->w, DR_MAX(next, dr_sim_world_now(p->w)));
		do
			dr_manager_tick(p->m[0], dr_sim_world_clock(p->w, 0));
		while (dr_sim_world_busy(p->w, 0));
	}
}

/* Both links of this end, one after the other. */
static void blink(struct pair *p, int64_t ns)
{
	for (unsigned r = 0; r < RAILS; r++) {
		dr_sim_link_down(p->w, r, DR_SIM_NODE0, 0, true);
		stand_for(p, ns);
		dr_sim_link_up(p->w, r);
	}
}

static void nothing_ended(struct pair *p)
{
	for (unsigned end = 0; end < 2; end++)
		for (unsigned c = 0; c < CHANNELS; c++)
			assert_int_equal(p->failed[end][c], 0);
	assert_int_equal(p->losses[0] + p->losses[1], 0);
}

static void runs_again_within(struct pair *p, int64_t ns)
{
	nothing_ended(p);
	run_for(p, ns);
	assert_int_equal(dr_manager_ready(p->m[0]), 1);
	assert_int_equal(dr_manager_ready(p->m[1]), 1);
	nothing_ended(p);
}

/* With paths, and with none: both links blink in the first second, and again and again. */
static void test_a_peer_may_stand_for_any_time(void **state)
{
	static const unsigned seconds[] = { 1, 10, 100, 300 };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(seconds); i++)
		for (unsigned blinks = 0; blinks < 2; blinks++) {
			struct pair p;

			pair_up(&p, DR_SIM_STREAM);
			stand_for(&p, 300 * MS);
			for (unsigned s = 0; s < seconds[i]; s++) {
				if (blinks && s % 20 == 0)
					blink(&p, 100 * MS);
				stand_for(&p, DR_NS_PER_S);
			}
			runs_again_within(&p, 100 * MS);
			pair_close(&p);
		}
}

/* The same with 2 % loss, after each blink. */
static void test_losses_hide_no_answer(void **state)
{
	struct dr_sim_opts o = world_of(DR_SIM_STREAM);
	struct pair p;

	(void)state;
	o.link.loss_ppm = o.link.dgram_loss_ppm = 20000;
	pair_open_with(&p, &o, DR_DETECT_FAST);
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	stand_for(&p, 300 * MS);
	for (unsigned s = 0; s < 20; s++) {
		blink(&p, 100 * MS);
		stand_for(&p, 15 * DR_NS_PER_S);
	}
	nothing_ended(&p);
	run_for(&p, DR_NS_PER_S);
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	pair_close(&p);
}

/* Before the first path is up: it was started, and stands. */
static void test_a_peer_may_stand_before_the_first_path(void **state)
{
	struct dr_sim_opts o = world_of(DR_SIM_STREAM);
	struct pair p;

	(void)state;
	pair_open_with(&p, &o, DR_DETECT_FAST);
	stand_for(&p, 60 * DR_NS_PER_S);
	runs_again_within(&p, 100 * MS);
	pair_close(&p);
}

/* While it stands without a path, its host goes: 1.5 s after its last sign of life. */
static void test_the_host_of_a_peer_that_stands_goes(void **state)
{
	for (unsigned blinks = 0; blinks < 2; blinks++) {
		struct pair p;

		(void)state;
		pair_up(&p, DR_SIM_STREAM);
		stand_for(&p, 300 * MS);
		if (blinks)
			blink(&p, 100 * MS);
		stand_for(&p, 5 * DR_NS_PER_S);
		nothing_ended(&p);
		cut_all(&p, true);
		stand_for(&p, 800 * MS); /* the last answer is up to 500 ms old */
		assert_int_equal(p.failed[0][0], 0);
		stand_for(&p, 900 * MS);
		assert_int_equal(p.failed[0][0], -ENETDOWN);
		pair_close(&p);
	}
}

/* A process that ends: within 500 ms, if its host lives. */
static void test_a_process_that_ends_is_noticed_at_once(void **state)
{
	for (unsigned stood = 0; stood < 2; stood++) {
		struct pair p;

		(void)state;
		pair_up(&p, DR_SIM_STREAM);
		if (stood) {
			stand_for(&p, 5 * DR_NS_PER_S);
			blink(&p, 100 * MS);
			stand_for(&p, 1500 * MS);
			nothing_ended(&p);
		}
		dr_sim_kill(p.w, 1);
		stand_for(&p, 500 * MS);
		for (unsigned c = 0; c < CHANNELS; c++)
			assert_int_equal(p.failed[0][c], -ECONNRESET);
		pair_close(&p);
	}
}

/* Little is sent to a peer that stands, and little is dialled: what it does not read, and
 * accept, stays in its kernel. */
static void test_little_is_sent_to_a_peer_that_stands(void **state)
{
	struct dr_channel_stats before, after;
	struct dr_path *path;
	uint64_t wire[DR_PATHS];
	struct dr_path_stats st;
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	stand_for(&p, DR_NS_PER_S);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &before);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		path = dr_channel_path(dr_manager_channel_at(p.m[0], 0), i);
		path->ops->stats(path, &st);
		wire[i] = st.tx_wire + st.rx_wire;
	}
	stand_for(&p, 100 * DR_NS_PER_S);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &after);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		path = dr_channel_path(dr_manager_channel_at(p.m[0], 0), i);
		path->ops->stats(path, &st);
		assert_true(st.tx_wire + st.rx_wire - wire[i] < 100 * 2 * 64);
		assert_int_equal(after.path_connections[i], before.path_connections[i]);
	}
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest t[] = {
		cmocka_unit_test(test_a_peer_may_stand_for_any_time),
		cmocka_unit_test(test_losses_hide_no_answer),
		cmocka_unit_test(test_a_peer_may_stand_before_the_first_path),
		cmocka_unit_test(test_the_host_of_a_peer_that_stands_goes),
		cmocka_unit_test(test_a_process_that_ends_is_noticed_at_once),
		cmocka_unit_test(test_little_is_sent_to_a_peer_that_stands),
	};

	return cmocka_run_group_tests_name("stopped", t, NULL, NULL);
}
