/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/rate_testkit.h"

/* When a rail is left, and how long it is not returned to. */

static enum dr_rate_move move(bool blind)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .blind = blind };

	return dr_rate_move(&r, &q, now);
}

static void leave_below(double ratio, double other_bps)
{
	dr_rate_init(&r, 2, ratio);
	now = DR_NS_PER_S;
	if (other_bps > 0)
		carry(1, other_bps, false, 2 * DR_NS_PER_S);
}

static void left(bool blind)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .blind = blind };

	dr_rate_left(&r, &q, now);
}

static void test_the_ratio_says_when_a_rail_is_left(void **state)
{
	static const struct {
		double leave, bps;
		enum dr_rate_move move;
		bool named;
	} c[] = {
		{ 0, 1e6, DR_RATE_STAY, true },
		{ 0.1, 90e6, DR_RATE_LEAVE, true },
		{ 0.1, 110e6, DR_RATE_STAY, false },
		{ 0.5, 450e6, DR_RATE_LEAVE, true },
		{ 0.5, 550e6, DR_RATE_STAY, false },
		{ 0.95, 900e6, DR_RATE_LEAVE, true },
		{ 0.02, 15e6, DR_RATE_LEAVE, true },
		{ 0.02, 50e6, DR_RATE_STAY, true },
	};

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		leave_below(c[i].leave, 1e9);
		carry(0, c[i].bps, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), c[i].move);
		assert_int_equal(state_of(0).degraded, c[i].named);
	}
}

static void test_one_slow_window_leaves_nothing(void **state)
{
	(void)state;
	leave_below(0.1, 1e9);
	for (unsigned i = 0; i < 5; i++) {
		carry(0, 1e6, true, DR_RATE_WINDOW_NS + 2 * DR_RATE_SAMPLE_NS);
		assert_int_equal(move(false), DR_RATE_STAY);
		carry(0, 900e6, i % 2, 2 * DR_RATE_WINDOW_NS + 2 * DR_RATE_SAMPLE_NS);
	}
}

/* It was slow when there was data for it. Now there is little. */
static void test_slow_windows_get_old(void **state)
{
	(void)state;
	leave_below(0.1, 1e9);
	carry(0, 1e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_LEAVE);
	carry(0, 0.5e6, false, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_STAY);
}

static void test_a_rail_that_nothing_is_known_of_is_probed_first(void **state)
{
	(void)state;
	leave_below(0.1, 0);
	carry(0, 30e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_STAY); /* 200 Mb/s at most would be shown */
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(true), DR_RATE_STAY);
	assert_int_equal(move(false), DR_RATE_PROBE_OTHER);
	assert_int_equal(move(false), DR_RATE_STAY); /* it goes on */
	struct dr_rate_probe p = probe_of(1e9, 0);
	dr_rate_probed(&r, 1, &p, now);
	assert_int_equal(move(false), DR_RATE_STAY); /* not named yet */
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_LEAVE);
}

/* The other rail carried much 30 s ago. */
static void test_an_old_rate_is_confirmed_by_a_probe(void **state)
{
	static const double bps[] = { 1e9, 1e6, 0 }; /* 0: the probe is lost */

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(bps); i++) {
		leave_below(0.1, 10e9);
		now += 30 * DR_NS_PER_S;
		carry(0, 5e6, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), DR_RATE_PROBE_OTHER);
		struct dr_rate_probe p = { .done = true };
		if (bps[i] > 0)
			p = probe_of(bps[i], 0);
		dr_rate_probed(&r, 1, &p, now);
		carry(0, 5e6, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), i == 0 ? DR_RATE_LEAVE : DR_RATE_STAY);
	}
}

static void test_a_lost_probe_is_repeated_after_a_while(void **state)
{
	struct dr_rate_probe lost = { .done = true };

	(void)state;
	leave_below(0.1, 0);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_PROBE_OTHER);
	dr_rate_probed(&r, 1, &lost, now);
	carry(0, 5e6, true, 4 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_STAY);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(false), DR_RATE_PROBE_OTHER);
}

static void test_a_rail_is_left_for_a_sound_one_only(void **state)
{
	(void)state;
	leave_below(0.1, 1e9);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	r.rail[1].by_loss = true;
	assert_int_equal(move(false), DR_RATE_STAY);
	r.rail[1].by_loss = false;
	r.rail[1].by_rate = true;
	assert_int_equal(move(false), DR_RATE_STAY);
	r.rail[1].by_rate = false;
	assert_int_equal(move(false), DR_RATE_LEAVE);
}

/* Losses are known without data, and keep channels away until they end. */
static void test_lost_heartbeats_leave_a_rail(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .asked_ns = now };
	char why[96];
	unsigned which;

	(void)state;
	leave_below(0.1, 0);
	beats(40, 200);
	assert_int_equal(move(false), DR_RATE_LEAVE);
	dr_rate_why_left(&r, &q, why, sizeof(why));
	assert_string_equal(why, "rail 0 is degraded: 40 % of heartbeats lost");
	left(false);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	r.rail[1].by_loss = true; /* one is as good as the other */
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	r.rail[1].by_loss = false;
	beats(0, 400);
	assert_false(state_of(0).degraded);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
	r.leave = 0; /* as without the option */
	r.rail[0].probing_ns = 0;
	beats(40, 200);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_PROBE);
}

static void test_both_rates_are_named(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1 };
	char why[96];

	(void)state;
	leave_below(0.1, 9.4e9);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	dr_rate_why_left(&r, &q, why, sizeof(why));
	assert_string_equal(why, "rail 0 is degraded: 5.0 Mb/s measured, rail 1 carries 9.4 Gb/s");
}

/* What is left at half of the other rate is not returned to at a little more. */
static void test_a_return_takes_more_than_leaving(void **state)
{
	(void)state;
	leave_below(0.5, 0);
	carry(1, 100e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(45e6, true), DR_RATE_SHUT);
	assert_int_equal(gate_after(65e6, true), DR_RATE_SHUT);
	assert_int_equal(gate_after(80e6, true), DR_RATE_OPEN);
	leave_below(0.01, 0);
	carry(1, 100e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_after(7e6, true), DR_RATE_SHUT); /* as without the option */
}

/* The prober is kept from running, and its probes prove nothing. */
static void test_a_rail_that_was_left_is_returned_to_for_a_reason_only(void **state)
{
	struct slow sl = { .bps = 5e6, .held_ns = 6 * DR_NS_PER_MS };
	unsigned probes;

	(void)state;
	leave_below(0.1, 1e9);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_LOST);
	left(false);
	now += DR_NS_PER_S;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(gate_with(&sl, true, &probes), DR_RATE_SHUT);
}

/* Each return after a good probe ends soon: the next one comes later, also beside a rail of 1 Gb/s, of which a probe
 * shows a fifth. */
static void test_a_good_probe_does_not_forget_that_the_rail_was_left(void **state)
{
	int64_t waits[3];

	(void)state;
	leave_below(0.1, 0);
	for (unsigned i = 0; i < 3; i++) {
		int64_t from;

		carry(1, 0.9e9, false, DR_NS_PER_S);
		carry(0, 5e6, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), DR_RATE_LEAVE);
		left(false);
		from = now;
		while (gate_after(1e9, true) != DR_RATE_OPEN)
			carry(1, 0.9e9, false, DR_RATE_WINDOW_NS);
		waits[i] = now - from;
		dr_rate_returned(&r, 0, now);
	}
	assert_true(waits[1] > 2 * waits[0] && waits[2] > 3 * waits[1] / 2);
}

/* The same where a probe tells the rate exactly. */
static void test_an_exact_probe_does_not_forget_that_the_rail_was_left(void **state)
{
	int64_t waits[4];

	(void)state;
	leave_below(0.1, 0);
	for (unsigned i = 0; i < DR_ARRAY_LEN(waits); i++) {
		int64_t from;

		carry(1, 100e6, true, DR_NS_PER_S);
		carry(0, 1e6, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), DR_RATE_LEAVE);
		left(false);
		from = now;
		while (gate_after(100e6, true) != DR_RATE_OPEN)
			carry(1, 100e6, true, DR_RATE_WINDOW_NS);
		waits[i] = now - from;
		dr_rate_returned(&r, 0, now);
		carry(0, 100e6, true, DR_NS_PER_S);
	}
	assert_true(waits[0] < DR_RATE_AGAIN_NS && waits[1] >= DR_RATE_AGAIN_NS);
	assert_true(waits[2] >= 2 * DR_RATE_AGAIN_NS && waits[3] >= 4 * DR_RATE_AGAIN_NS);
}

/* The other rail is left for it, or a channel that is on the rail all the time. */
static void test_any_traffic_on_a_rail_that_was_left_is_a_return(void **state)
{
	struct dr_rate_question there = { .rail = 0, .other = 1 }, back = { .rail = 1, .other = 0 };
	unsigned which;

	(void)state;
	for (unsigned by_traffic = 0; by_traffic < 2; by_traffic++) {
		leave_below(0.1, 0);
		for (unsigned i = 0; i < 3; i++) {
			carry(1, 100e6, true, DR_NS_PER_S);
			carry(0, 1e6, true, 2 * DR_NS_PER_S);
			dr_rate_left(&r, &there, now);
			carry(0, 100e6, true, by_traffic ? 2 * DR_NS_PER_S : DR_RATE_WINDOW_NS);
			if (!by_traffic)
				dr_rate_left(&r, &back, now);
			assert_false(r.rail[0].left);
		}
		dr_rate_left(&r, &there, now);
		r.rail[1].by_rate = false;
		now += 2 * DR_RATE_AGAIN_NS;
		assert_int_equal(dr_rate_gate(&r, &there, now, &which), DR_RATE_SHUT);
		now += 2 * DR_RATE_AGAIN_NS;
		assert_int_not_equal(dr_rate_gate(&r, &there, now, &which), DR_RATE_SHUT);
	}
}

/* From a degraded rail it is returned to sooner, but not at once: neither by failback nor by leaving the other one. */
static void test_a_rail_that_was_left_is_kept_from_a_degraded_one_too(void **state)
{
	struct dr_rate_question back = { .rail = 1, .other = 0 }, q = { .rail = 0, .other = 1 };
	int64_t wait = (DR_RATE_AGAIN_NS << 3) / DR_RATE_AGAIN_BAD, from;
	unsigned which;

	(void)state;
	leave_below(0.1, 1e9);
	carry(0, 100e6, true, 2 * DR_NS_PER_S);
	r.rail[0].again = 3;
	r.rail[0].returned_ns = now;
	left(false);
	from = now;
	now += DR_RATE_AGAIN_NS / 4;
	r.rail[1].by_rate = r.rail[1].by_loss = true;
	r.rail[1].loss_percent = 50;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	assert_int_equal(dr_rate_move(&r, &back, now), DR_RATE_STAY);
	now = from + wait - 1;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	assert_int_equal(dr_rate_move(&r, &back, now), DR_RATE_STAY);
	r.rail[0].by_rate = false;
	r.rail[0].loss_percent = 0;
	now = from + wait;
	assert_int_not_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	assert_int_equal(dr_rate_move(&r, &back, now), DR_RATE_LEAVE);
}

/* Two rails that lose about as much: whichever is in use is kept. */
static void test_a_lossy_rail_is_left_for_a_better_one_only(void **state)
{
	static const struct {
		int loss;
		double bps;
		enum dr_rate_move move;
	} c[] = {
		{ -1, 0, DR_RATE_LEAVE },
		{ DR_RATE_CLEAN - 1, 0, DR_RATE_LEAVE },
		{ DR_RATE_CLEAN, 0, DR_RATE_STAY },
		{ 0, 2e6, DR_RATE_STAY },
		{ 0, 6e6, DR_RATE_LEAVE },
	};

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		leave_below(0.1, 0);
		beats(25, 200);
		if (c[i].bps > 0)
			carry(1, c[i].bps, true, 2 * DR_NS_PER_S);
		carry(0, 5e6, true, 2 * DR_NS_PER_S);
		r.rail[1].by_rate = r.rail[0].by_rate = false;
		r.rail[1].loss_percent = c[i].loss;
		assert_true(state_of(0).by_loss);
		assert_int_equal(move(true), c[i].move);
	}
}

/* It may be the better one of the two by now. */
static void test_a_rail_is_not_kept_away_from_a_degraded_one(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .blind = true, .asked_ns = now };
	unsigned which;

	(void)state;
	leave_below(0.1, 1e9);
	left(true);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	dr_rate_datagrams(&r, 1, 1000, 500, now);
	dr_rate_datagrams(&r, 1, 1000, 500, now += 2 * DR_NS_PER_S);
	assert_true(state_of(1).degraded);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_OPEN);
}

/* A probe cannot tell 300 Mb/s from the 10 Gb/s of the other rail. Each return that ends soon makes the next one later. */
static void test_returns_that_end_soon_become_rarer(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .asked_ns = now };
	int64_t wait = DR_RATE_AGAIN_NS;
	unsigned which;

	(void)state;
	leave_below(0.1, 10e9);
	for (unsigned i = 0; i < 8; i++) {
		int64_t at;

		carry(1, 10e9, false, DR_NS_PER_S);
		carry(0, 300e6, true, 2 * DR_NS_PER_S);
		assert_int_equal(move(false), DR_RATE_LEAVE);
		left(false);
		at = now;
		now = at + wait - 1;
		left(false); /* another channel */
		assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
		now = at + wait;
		assert_int_not_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
		assert_true(dr_rate_returned(&r, 0, now));
		wait = DR_MIN(2 * wait, DR_RATE_AGAIN_NS << (DR_RATE_AGAIN_MAX - 1));
	}
	/* A return that lasted begins anew; a probe can tell 5 Mb/s. */
	now += DR_RATE_RECENT_NS;
	carry(1, 10e9, false, DR_NS_PER_S);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	left(false);
	assert_int_not_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
}

static void test_a_kind_without_probes_waits_ten_seconds(void **state)
{
	struct dr_rate_question q = { .rail = 0, .other = 1, .blind = true };
	unsigned which;

	(void)state;
	leave_below(0.1, 1e9);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_OPEN);
	carry(0, 5e6, true, 2 * DR_NS_PER_S);
	assert_int_equal(move(true), DR_RATE_LEAVE);
	left(true);
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_SHUT);
	now += DR_RATE_AGAIN_NS;
	assert_int_equal(dr_rate_gate(&r, &q, now, &which), DR_RATE_OPEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_the_ratio_says_when_a_rail_is_left, setup),
		cmocka_unit_test_setup(test_one_slow_window_leaves_nothing, setup),
		cmocka_unit_test_setup(test_slow_windows_get_old, setup),
		cmocka_unit_test_setup(test_a_rail_that_nothing_is_known_of_is_probed_first, setup),
		cmocka_unit_test_setup(test_an_old_rate_is_confirmed_by_a_probe, setup),
		cmocka_unit_test_setup(test_a_lost_probe_is_repeated_after_a_while, setup),
		cmocka_unit_test_setup(test_a_rail_is_left_for_a_sound_one_only, setup),
		cmocka_unit_test_setup(test_lost_heartbeats_leave_a_rail, setup),
		cmocka_unit_test_setup(test_both_rates_are_named, setup),
		cmocka_unit_test_setup(test_a_return_takes_more_than_leaving, setup),
		cmocka_unit_test_setup(
			test_a_rail_that_was_left_is_returned_to_for_a_reason_only, setup),
		cmocka_unit_test_setup(
			test_a_good_probe_does_not_forget_that_the_rail_was_left, setup),
		cmocka_unit_test_setup(
			test_an_exact_probe_does_not_forget_that_the_rail_was_left, setup),
		cmocka_unit_test_setup(test_any_traffic_on_a_rail_that_was_left_is_a_return, setup),
		cmocka_unit_test_setup(
			test_a_rail_that_was_left_is_kept_from_a_degraded_one_too, setup),
		cmocka_unit_test_setup(test_a_lossy_rail_is_left_for_a_better_one_only, setup),
		cmocka_unit_test_setup(test_a_rail_is_not_kept_away_from_a_degraded_one, setup),
		cmocka_unit_test_setup(test_returns_that_end_soon_become_rarer, setup),
		cmocka_unit_test_setup(test_a_kind_without_probes_waits_ten_seconds, setup),
	};

	return cmocka_run_group_tests_name("rate_leave", tests, NULL, NULL);
}
