/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/detect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Rail 0 is heard in each interval; of rail 1 heartbeats are missing. */
static const int64_t T = 10 * DR_NS_PER_MS;
static struct dr_detector d;
static struct dr_detect_out out;
static int64_t now;
static uint16_t sent[2];

static int setup(void **state)
{
	(void)state;
	dr_detect_init(&d, 2, T);
	now = DR_NS_PER_S;
	dr_detect_start(&d, now);
	sent[0] = sent[1] = 0;
	return 0;
}

static void tick(int64_t ns, unsigned rails)
{
	now += ns;
	for (unsigned r = 0; r < 2; r++)
		dr_detect_report(&d, r, ++sent[r], 0, now);
	for (unsigned r = 0; r < 2; r++)
		if (rails & (1u << r))
			dr_detect_beat(&d, r, now);
	dr_detect_tick(&d, now, &out);
}

/* It is read before the heartbeat that would bring it down. */
static void a_rail_is_suspect_before_its_last_miss(void **state)
{
	(void)state;
	tick(T, 3);
	for (unsigned i = 1; i < DR_MISSES; i++) {
		tick(T / 4, 1);
		assert_int_equal(dr_detect_suspects(&d), i + 1 < DR_MISSES ? 0 : 1u << 1);
		assert_int_equal(out.fell, 0);
	}
	tick(T, 1); /* 20 ms of silence: twice the usual time */
	assert_int_equal(out.fell, 1u << 1);
	assert_string_equal(out.rule[1]->name, "silent");
}

/* The peer sent a heartbeat after these bytes. */
static void bytes_before_a_report_clear_nothing_that_it_tells(void **state)
{
	(void)state;
	tick(T, 3);
	now += T / 2;
	for (unsigned i = 0; i < 2; i++)
		dr_detect_report(&d, i, ++sent[i], 0, now);
	dr_detect_life(&d, 1, now - 1);
	assert_int_equal(dr_detect_missed(&d, 1), 1);
	dr_detect_report(&d, 1, ++sent[1], 0, now);
	dr_detect_life(&d, 1, now - 1);
	assert_int_equal(dr_detect_missed(&d, 1), 1);
	dr_detect_life(&d, 1, now);
	assert_int_equal(dr_detect_missed(&d, 1), 0);
}

/* Nothing is missing that was sent before this end began to listen. */
static void the_time_before_the_start_is_no_silence(void **state)
{
	(void)state;
	for (unsigned r = 0; r < 2; r++) {
		setup(state);
		tick(DR_NS_PER_MS, 1u << !r);
		assert_false(d.rail[r].suspected);
		assert_int_equal(d.silent_ns, 0);
	}
	tick(T / 2, 0);
	assert_int_equal(d.silent_ns, T / 2);
}

/* A rail on which 40 ms between two heartbeats are usual is not left for a silence of 45 ms. */
static void a_usual_gap_is_learnt_and_forgotten(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		tick(T, i % 4 == 0 ? 3 : 1);
		dr_detect_gap(&d, 1, 0);
	}
	assert_int_equal(dr_detect_usual_gap(&d, 1), 4 * T);
	assert_int_equal(dr_detect_usual_gap(&d, 0), T);
	for (unsigned i = 0; i < 100; i++) {
		tick(T, 3);
		dr_detect_gap(&d, 1, 0);
	}
	assert_int_equal(dr_detect_usual_gap(&d, 1), T);
}

/* ... and none that it was heard after, whatever is read late. */
static void an_old_byte_makes_nothing_missing(void **state)
{
	(void)state;
	tick(T, 3);
	dr_detect_life(&d, 1, now - 1);
	assert_int_equal(dr_detect_missed(&d, 1), 0);
}

/* What each end misses, by rail: here by lost heartbeats, there by its report. */
static void who_misses_what(void **state)
{
	static const struct {
		unsigned here, peer;
		bool misses, suspected;
	} c[] = { { 0, 0, false, false }, { 1, 0, true, false }, { 0, 1, true, false },
		{ 2, 0, true, true }, { 0, 2, true, true } };

	(void)state;
	for (unsigned r = 0; r < 2; r++)
		for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
			setup(state);
			tick(T, 3);
			for (unsigned k = 0; k < c[i].here; k++)
				dr_detect_report(&d, r, ++sent[r], 0, now);
			dr_detect_report(&d, r, sent[r], (uint8_t)c[i].peer, now);
			assert_int_equal(dr_detect_misses(&d, r, 1), c[i].misses);
			assert_int_equal(dr_detect_misses(&d, r, 2), c[i].suspected);
			assert_false(dr_detect_misses(&d, !r, 1) || dr_detect_misses(&d, !r, 2));
			dr_detect_force_down(&d, r, false);
			assert_false(dr_detect_misses(&d, r, 1) || dr_detect_misses(&d, r, 2));
		}
}

/* Bytes on a rail that is down say nothing of the heartbeats that are missing there. */
static void bytes_clear_no_rail_that_is_down(void **state)
{
	(void)state;
	tick(T, 3);
	while (!d.rail[1].down)
		tick(T, 1);
	for (unsigned i = 0; i < 10; i++) {
		dr_detect_life(&d, 1, now);
		assert_int_equal(dr_detect_missed(&d, 1), DR_DETECT_DOWN);
		tick(T, 1);
		assert_true(d.rail[1].down);
	}
	for (unsigned i = 0; i < DR_REVIVE; i++)
		tick(T, 3);
	assert_false(d.rail[1].down);
}

/* A report on each of several rails says the same: it is the first one that tells it. */
static void a_repeated_report_tells_nothing_new(void **state)
{
	(void)state;
	tick(T, 3);
	dr_detect_report(&d, 1, ++sent[1], 0, now + 1);
	dr_detect_report(&d, 1, sent[1], 0, now + 3);
	dr_detect_life(&d, 1, now + 2);
	assert_int_equal(dr_detect_missed(&d, 1), 0);
}

/* A rail that is down is no suspect, whatever the other one is. */
static void a_rail_that_is_down_is_no_suspect(void **state)
{
	(void)state;
	for (unsigned r = 0; r < 2; r++) {
		setup(state);
		tick(T, 3);
		dr_detect_force_down(&d, r, false);
		for (unsigned k = 1; k < DR_MISSES; k++)
			for (unsigned i = 0; i < 2; i++)
				dr_detect_report(&d, i, ++sent[i], 0, now);
		assert_int_equal(dr_detect_suspects(&d), 1u << !r);
	}
}

/* A suspicion is told as two; more than can be told as the most that can. */
static void what_is_told_of_missing_heartbeats(void **state)
{
	(void)state;
	tick(T, 3);
	dr_detect_suspect(&d, 1, now);
	assert_int_equal(dr_detect_missed(&d, 1), 2);
	for (unsigned i = 1; i <= 300; i++) {
		dr_detect_report(&d, 1, ++sent[1], 0, now);
		assert_int_equal(
			dr_detect_missed(&d, 1), i < 2 ? 2 : DR_MIN(i, DR_DETECT_DOWN - 1u));
	}
}

/* After one and a half times the usual time, and not before. */
static void a_silence_is_suspect_after_its_time(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		setup(state);
		tick(T, 3);
		tick(3 * T / 2 - k, 1);
		assert_int_equal(d.rail[1].suspected, !k);
	}
}

/* One heartbeat that the peer misses may be on its way. */
static void a_rail_rises_when_the_peer_misses_one(void **state)
{
	(void)state;
	for (uint8_t miss = 1; miss <= 2; miss++) {
		setup(state);
		tick(T, 3);
		dr_detect_force_down(&d, 1, false);
		for (unsigned i = 0; i < DR_REVIVE + 2; i++) {
			now += T;
			for (unsigned r = 0; r < 2; r++) {
				dr_detect_report(&d, r, ++sent[r], r == 1 ? miss : 0, now);
				dr_detect_beat(&d, r, now);
			}
			dr_detect_tick(&d, now, &out);
		}
		assert_int_equal(d.rail[1].down, miss == 2);
	}
}

/* The gap of one rail says nothing of another one, in the next tenth of a second either. */
static void usual_gaps_are_of_one_rail(void **state)
{
	(void)state;
	tick(T, 1);
	dr_detect_gap(&d, 1, 5 * T);
	tick(10 * T, 3);
	assert_int_equal(dr_detect_usual_gap(&d, 0), T);
	assert_int_equal(dr_detect_usual_gap(&d, 1), 5 * T);
	tick(10 * T, 3);
	assert_int_equal(dr_detect_usual_gap(&d, 1), T);
}

/* What comes within half an interval counts once: a rail rises by heartbeats of its own time. */
static void heartbeats_in_a_burst_count_once(void **state)
{
	(void)state;
	dr_detect_beat(&d, 1, now);
	assert_int_equal(d.rail[1].good, 1);
	dr_detect_beat(&d, 1, now + T / 2 - 1);
	assert_int_equal(d.rail[1].good, 1);
	dr_detect_beat(&d, 1, now + T / 2);
	assert_int_equal(d.rail[1].good, 2);
	/* Two intervals and a half later they are in a row, a nanosecond after that no more. */
	dr_detect_beat(&d, 1, now + T / 2 + 5 * T / 2);
	assert_int_equal(d.rail[1].good, 3);
	dr_detect_beat(&d, 1, now + T / 2 + 5 * T + 1);
	assert_int_equal(d.rail[1].good, 1);
}

/* The same for the last one when the rail is judged. */
static void a_rail_rises_by_recent_heartbeats(void **state)
{
	for (int64_t late = 0; late <= 1; late++) {
		setup(state);
		tick(T, 3);
		dr_detect_force_down(&d, 1, false);
		for (unsigned i = 0; i < DR_REVIVE; i++) {
			now += T;
			for (unsigned r = 0; r < 2; r++) {
				dr_detect_report(&d, r, ++sent[r], 0, now);
				dr_detect_beat(&d, r, now);
			}
		}
		now += 5 * T / 2 + late;
		dr_detect_beat(&d, 0, now);
		dr_detect_tick(&d, now, &out);
		assert_int_equal(d.rail[1].down, late);
		assert_int_equal(d.rail[1].good, late ? DR_REVIVE : 0);
	}
}

/* What was read before the suspicion began says nothing of it. */
static void a_suspicion_is_cleared_by_what_came_later(void **state)
{
	(void)state;
	tick(T, 3);
	dr_detect_suspect(&d, 1, now);
	dr_detect_life(&d, 1, now);
	assert_true(d.rail[1].suspected);
	dr_detect_life(&d, 1, now + 1);
	assert_false(d.rail[1].suspected);
}

/* 200 ms without bytes: nothing was sent. */
static void a_long_gap_is_a_pause(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		setup(state);
		dr_detect_gap(&d, 1, 200 * DR_NS_PER_MS - (int64_t)k);
		assert_int_equal(dr_detect_usual_gap(&d, 1), k ? 200 * DR_NS_PER_MS - 1 : T);
	}
}

/* So are 200 ms between two heartbeats. */
static void a_long_gap_of_heartbeats_is_a_pause(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		setup(state);
		tick(T, 3);
		tick(200 * DR_NS_PER_MS - (int64_t)k, 3);
		dr_detect_gap(&d, 1, 0);
		assert_int_equal(dr_detect_usual_gap(&d, 1), k ? 200 * DR_NS_PER_MS - 1 : T);
	}
}

/* Bytes after a pause in which heartbeats came: the rail was not silent. */
static void a_pause_with_heartbeats_is_no_gap(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		tick(T, k == 0 ? 3 : 1);
		dr_detect_gap(&d, 1, 0);
		tick(T, 1);
		dr_detect_gap(&d, 1, 5 * T);
		assert_int_equal(dr_detect_usual_gap(&d, 1), T);
	}
	for (unsigned k = 0; k < 5; k++)
		tick(T, 1);
	dr_detect_gap(&d, 1, 4 * T);
	assert_int_equal(dr_detect_usual_gap(&d, 1), 4 * T);
}

/* Bytes replace heartbeats, then heartbeats bytes: what lies between two of one sort is no gap. */
static void signs_of_life_replace_each_other(void **state)
{
	(void)state;
	tick(T, 3);
	for (unsigned k = 0; k < 9; k++) {
		dr_detect_life(&d, 1, now + T);
		tick(T, 1);
		dr_detect_gap(&d, 1, T);
	}
	tick(T, 3);
	dr_detect_gap(&d, 1, 0);
	assert_int_equal(dr_detect_usual_gap(&d, 1), T);
	dr_detect_life(&d, 1, now + 3 * T);
	tick(3 * T, 1);
	dr_detect_gap(&d, 1, 4 * T);
	assert_int_equal(dr_detect_usual_gap(&d, 1), 3 * T);
}

/* Whatever a rail beyond n_rails holds. */
static void rails_beyond_the_count_are_not_touched(void **state)
{
	const struct dr_detect_rail beyond = { .sent = 9, .gap_ns = { 1, 2 }, .good = 1 };

	d.rail[2] = beyond;
	dr_detect_start(&d, now);
	for (unsigned k = 0; k < 30; k++) {
		tick(T, k < 9 ? 3 : 1);
		assert_int_equal((out.fell | out.rose) >> 2, 0);
		assert_int_equal(dr_detect_suspects(&d) >> 2, 0);
	}
	assert_memory_equal(&d.rail[2], &beyond, sizeof(beyond));
	(void)state;
}

/* Without a path nothing can be heard: no silence of this rail, and it says nothing of others. */
static void a_rail_without_path_is_not_silent(void **state)
{
	for (unsigned without = 0; without < 2; without++) {
		setup(state);
		tick(T, 3);
		dr_detect_no_path(&d, without, true);
		for (unsigned k = 0; k < 9; k++) {
			tick(T, 0);
			dr_detect_life(&d, without, now - T / 2);
			assert_false(d.rail[without].suspected);
			assert_int_equal(out.fell & 1u << without, 0);
		}
		assert_true(d.rail[1 - without].suspected);
	}
}

/* Small heartbeats arrive: none of them is missing because large packets were lost. */
static void a_rail_that_lost_large_packets_has_no_suspicion(void **state)
{
	(void)state;
	tick(T, 3);
	dr_detect_suspect(&d, 1, now);
	dr_detect_force_down(&d, 1, true);
	assert_int_equal(dr_detect_missed(&d, 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_rail_is_suspect_before_its_last_miss, setup),
		cmocka_unit_test_setup(bytes_before_a_report_clear_nothing_that_it_tells, setup),
		cmocka_unit_test_setup(an_old_byte_makes_nothing_missing, setup),
		cmocka_unit_test_setup(who_misses_what, setup),
		cmocka_unit_test_setup(bytes_clear_no_rail_that_is_down, setup),
		cmocka_unit_test_setup(a_repeated_report_tells_nothing_new, setup),
		cmocka_unit_test_setup(a_rail_that_is_down_is_no_suspect, setup),
		cmocka_unit_test_setup(what_is_told_of_missing_heartbeats, setup),
		cmocka_unit_test_setup(a_silence_is_suspect_after_its_time, setup),
		cmocka_unit_test_setup(a_rail_rises_when_the_peer_misses_one, setup),
		cmocka_unit_test_setup(usual_gaps_are_of_one_rail, setup),
		cmocka_unit_test_setup(heartbeats_in_a_burst_count_once, setup),
		cmocka_unit_test_setup(a_rail_rises_by_recent_heartbeats, setup),
		cmocka_unit_test_setup(a_suspicion_is_cleared_by_what_came_later, setup),
		cmocka_unit_test_setup(a_long_gap_is_a_pause, setup),
		cmocka_unit_test_setup(a_long_gap_of_heartbeats_is_a_pause, setup),
		cmocka_unit_test_setup(a_pause_with_heartbeats_is_no_gap, setup),
		cmocka_unit_test_setup(signs_of_life_replace_each_other, setup),
		cmocka_unit_test_setup(the_time_before_the_start_is_no_silence, setup),
		cmocka_unit_test_setup(a_rail_that_lost_large_packets_has_no_suspicion, setup),
		cmocka_unit_test_setup(rails_beyond_the_count_are_not_touched, setup),
		cmocka_unit_test_setup(a_rail_without_path_is_not_silent, setup),
		cmocka_unit_test_setup(a_usual_gap_is_learnt_and_forgotten, setup),
	};

	return cmocka_run_group_tests_name("detect", tests, NULL, NULL);
}
