/* SPDX-License-Identifier: Apache-2.0 */
#include "detect/rules.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Each rule of the table, at its bound and beside it. */

static const int64_t MS = DR_NS_PER_MS;

static void rules_of_the_peer(void **state)
{
	static const struct {
		struct dr_peer_evidence e; /* in ms */
		const char *rule;
		enum dr_peer_verdict verdict;
		int err;
	} c[] = {
		{ { .silent_ns = 0 }, "peer-heard", DR_PEER_RUNS, 0 },
		{ { .silent_ns = 99 }, "peer-heard", DR_PEER_RUNS, 0 },
		{ { .silent_ns = 99, .unanswered_ns = 9999, .refused = true }, "peer-heard",
			DR_PEER_RUNS, 0 },
		{ { .silent_ns = 100 }, "undecided", DR_PEER_UNKNOWN, 0 },
		{ { .silent_ns = 100, .refused = true }, "process-ended", DR_PEER_GONE,
			-ECONNRESET },
		{ { .silent_ns = 100, .refused = true, .answered = true }, "process-ended",
			DR_PEER_GONE, -ECONNRESET },
		{ { .silent_ns = 100, .refused = true, .path_up = true }, "process-ended",
			DR_PEER_GONE, -ECONNRESET },
		{ { .silent_ns = 100, .answered = true }, "process-stands", DR_PEER_STANDS, 0 },
		{ { .silent_ns = 300000, .unanswered_ns = 5000, .answered = true },
			"process-stands", DR_PEER_STANDS, 0 },
		{ { .silent_ns = 59999, .unanswered_ns = 59999, .blind = true, .path_up = true },
			"blind", DR_PEER_STANDS, 0 },
		{ { .silent_ns = 60000, .unanswered_ns = 60000, .blind = true, .path_up = true },
			"host-gone", DR_PEER_LOST, -ENETDOWN },
		{ { .silent_ns = 60000, .unanswered_ns = 60000, .blind = true }, "no-path",
			DR_PEER_RUNS, 0 },
		{ { .silent_ns = 9000, .unanswered_ns = 1499 }, "undecided", DR_PEER_UNKNOWN, 0 },
		{ { .silent_ns = 9000, .unanswered_ns = 1500 }, "host-gone", DR_PEER_LOST,
			-ENETDOWN },
		{ { .silent_ns = 9000, .unanswered_ns = 1500, .path_up = true }, "host-gone",
			DR_PEER_LOST, -ENETDOWN },
		{ { .silent_ns = 9000, .unanswered_ns = 1500, .pending = true }, "undecided",
			DR_PEER_UNKNOWN, 0 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_peer_evidence e = c[i].e;
		const struct dr_peer_rule *r;

		e.silent_ns *= MS;
		e.unanswered_ns *= MS;
		e.lost_after_ns = 1500 * MS;
		r = dr_peer_rule(&e);
		assert_string_equal(r->name, c[i].rule);
		assert_int_equal(r->verdict, c[i].verdict);
		assert_int_equal(r->err, c[i].err);
		assert_true(r->err == 0 || r->says);
	}
}

/* Times in ms; the interval is 10 ms. */
static void rules_of_a_rail(void **state)
{
	static const struct {
		struct dr_rail_evidence e;
		const char *rule;
		enum dr_rail_verdict verdict;
	} c[] = {
		{ { .missed = 0, .silent_ns = 9999, .usual_ns = 10 }, "unchanged",
			DR_RAIL_AS_IT_WAS },
		{ { .missed = 4, .silent_ns = 9999, .usual_ns = 10 }, "unchanged",
			DR_RAIL_AS_IT_WAS },
		{ { .missed = 5, .silent_ns = 19, .usual_ns = 10 }, "unchanged",
			DR_RAIL_AS_IT_WAS },
		{ { .missed = 5, .silent_ns = 20, .usual_ns = 10 }, "silent", DR_RAIL_FELL },
		/* seven fast ticks at least, 200 ms at most */
		{ { .missed = 5, .silent_ns = 6, .usual_ns = 1 }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .missed = 5, .silent_ns = 7, .usual_ns = 1 }, "silent", DR_RAIL_FELL },
		{ { .missed = 5, .silent_ns = 199, .usual_ns = 150 }, "unchanged",
			DR_RAIL_AS_IT_WAS },
		{ { .missed = 5, .silent_ns = 200, .usual_ns = 150 }, "silent", DR_RAIL_FELL },
		{ { .peer_down = true }, "peer-says", DR_RAIL_FELL },
		{ { .peer_down = true, .down = true }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .never = true, .peer_down = true }, "never-up", DR_RAIL_FELL },
		{ { .never = true, .missed = 5, .silent_ns = 20 }, "never-up", DR_RAIL_FELL },
		{ { .never = true, .missed = 4, .silent_ns = 20 }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .down = true, .missed = 9, .silent_ns = 999 }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .down = true, .good = 2, .peer_hears = true }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .down = true, .good = 3, .peer_hears = true }, "heard-again", DR_RAIL_ROSE },
		{ { .down = true, .good = 3 }, "unchanged", DR_RAIL_AS_IT_WAS },
		{ { .down = true, .good = 3, .peer_hears = true, .padded_only = true }, "unchanged",
			DR_RAIL_AS_IT_WAS },
		{ { .good = 3, .peer_hears = true }, "unchanged", DR_RAIL_AS_IT_WAS },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_rail_evidence e = c[i].e;
		const struct dr_rail_rule *r;

		e.silent_ns *= MS;
		e.usual_ns *= MS;
		e.interval_ns = 10 * MS;
		r = dr_rail_rule(&e);
		if (strcmp(r->name, c[i].rule) != 0)
			fail_msg("case %zu: %s instead of %s", i, r->name, c[i].rule);
		assert_int_equal(r->verdict, c[i].verdict);
		assert_true(r->verdict == DR_RAIL_AS_IT_WAS || r->says);
	}
}

/* Times in ms. */
static const struct {
	struct dr_path_evidence e;
	const char *rule;
} path_cases[] = {
	{ { .stalled_ns = 39, .answer_ns = 999, .silent_segments = 99 }, "too-early" },
	{ { .stalled_ns = 59, .rtt_ns = 40, .answer_ns = 999, .silent_segments = 99 },
		"too-early" },
	{ { .stalled_ns = 40, .rail_down = true }, "too-early" },
	{ { .stalled_ns = 40, .rail_down = true, .other_rail_up = true }, "rail-down" },
	{ { .stalled_ns = 40, .padded = true, .padded_lost = true, .rail_idle_ns = 80 },
		"large-lost" },
	{ { .stalled_ns = 40, .padded = true, .padded_lost = true, .rail_idle_ns = 79 },
		"unchanged" },
	{ { .stalled_ns = 99,
		  .rtt_ns = 60,
		  .padded = true,
		  .padded_lost = true,
		  .rail_idle_ns = 89 },
		"unchanged" },
	{ { .stalled_ns = 99,
		  .rtt_ns = 60,
		  .padded = true,
		  .padded_lost = true,
		  .rail_idle_ns = 90 },
		"large-lost" },
	{ { .stalled_ns = 40, .padded_lost = true, .silent_segments = 8 }, "unchanged" },
	{ { .stalled_ns = 100, .answer_ns = 100, .silent_segments = 8 }, "no-answer" },
	{ { .stalled_ns = 99, .answer_ns = 100, .silent_segments = 8 }, "unchanged" },
	{ { .stalled_ns = 100, .answer_ns = 99, .silent_segments = 8 }, "unchanged" },
	{ { .stalled_ns = 139, .rtt_ns = 33, .answer_ns = 139, .silent_segments = 8 },
		"no-answer" },
	{ { .stalled_ns = 138, .rtt_ns = 33, .answer_ns = 139, .silent_segments = 8 },
		"unchanged" },
	{ { .stalled_ns = 100, .answer_ns = 40, .silent_segments = 7 }, "sends-little" },
	{ { .stalled_ns = 100, .answer_ns = 39, .silent_segments = 7 }, "unchanged" },
	{ { .stalled_ns = 100, .answer_ns = 100, .silent_segments = 8, .lossy = true },
		"unchanged" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .rail_idle_ns = 79,
		  .rail_lossy = true,
		  .repeated = 4 },
		"unchanged" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .rail_idle_ns = 79,
		  .repeated = 1 },
		"unchanged" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .rail_idle_ns = 79,
		  .repeated = 2 },
		"no-answer" },
	{ { .stalled_ns = 140,
		  .answer_ns = 140,
		  .silent_segments = 8,
		  .rail_lossy = true,
		  .rail_idle_ns = 100 },
		"unchanged" },
	{ { .stalled_ns = 139,
		  .answer_ns = 140,
		  .silent_segments = 8,
		  .rail_lossy = true,
		  .rail_idle_ns = 100 },
		"no-answer" },
	{ { .stalled_ns = 190,
		  .rtt_ns = 40,
		  .rail_lossy = true,
		  .answer_ns = 190,
		  .silent_segments = 8,
		  .rail_idle_ns = 130 },
		"unchanged" },
	{ { .stalled_ns = 189,
		  .rtt_ns = 40,
		  .rail_lossy = true,
		  .answer_ns = 189,
		  .silent_segments = 8,
		  .rail_idle_ns = 130 },
		"no-answer" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .rail_idle_ns = 79,
		  .rail_lossy = true,
		  .repeated = 5 },
		"no-answer" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .lossy = true,
		  .repeated = 5 },
		"no-answer" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .rail_idle_ns = 79,
		  .lossy = true,
		  .repeated = 9 },
		"unchanged" },
	{ { .stalled_ns = 100, .answer_ns = 100, .silent_segments = 8, .padded = true },
		"unchanged" },
	{ { .stalled_ns = 100,
		  .answer_ns = 100,
		  .silent_segments = 8,
		  .padded = true,
		  .padded_passed = true },
		"no-answer" },
};

static void rules_of_a_path(void **state)
{
	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(path_cases); i++) {
		struct dr_path_evidence e = path_cases[i].e;
		const struct dr_path_rule *r;

		e.stalled_ns *= MS;
		e.answer_ns *= MS;
		e.rtt_ns *= MS;
		e.rail_idle_ns = e.rail_idle_ns ? e.rail_idle_ns * MS : 999 * MS;
		r = dr_path_rule(&e);
		if (strcmp(r->name, path_cases[i].rule) != 0)
			fail_msg("case %zu: %s instead of %s", i, r->name, path_cases[i].rule);
		assert_true(r->err == 0 || r->says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_of_a_rail),
		cmocka_unit_test(rules_of_a_path),
		cmocka_unit_test(rules_of_the_peer),
	};

	return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
