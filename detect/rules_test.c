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
		{ { .silent_ns = 99, .stands = true }, "worker-stands", DR_PEER_STANDS, 0 },
		{ { .silent_ns = 100, .stands = true }, "undecided", DR_PEER_UNKNOWN, 0 },
		{ { .silent_ns = 100 }, "undecided", DR_PEER_UNKNOWN, 0 },
		{ { .silent_ns = 100, .refused = true }, "process-ended", DR_PEER_GONE,
			-ECONNRESET },
		{ { .silent_ns = 100, .refused = true, .answered = true }, "process-ended",
			DR_PEER_GONE, -ECONNRESET },
		{ { .silent_ns = 100, .refused = true, .path_up = true }, "undecided",
			DR_PEER_UNKNOWN, 0 },
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rules_of_the_peer),
	};

	return cmocka_run_group_tests_name("rules", tests, NULL, NULL);
}
