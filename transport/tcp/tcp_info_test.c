/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp.h"

#include <linux/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* What is concluded from the kernel's counts of a connection. */

static void old_losses_are_forgotten(void **state)
{
	static const struct {
		uint32_t ms, segments, retransmits, recent_segments, recent_retransmits;
	} c[] = {
		{ 50000, 10, 4, 10, 4 },
		{ 50999, 9000, 8, 9000, 8 },
		{ 51000, 9010, 8, 9000, 4 },
		{ 51999, 20000, 9, 19990, 5 },
		{ 52000, 20010, 9, 11000, 1 },
		{ 53000, 30000, 9, 9990, 0 },
		{ 82001, 30010, 11, 10000, 2 },
		{ 83000, 30020, 11, 20, 2 },
	};
	struct tcp_path p = { .state = TCP_UP };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		dr_tcp_count_recent(&p, c[i].segments, c[i].retransmits, c[i].ms * DR_NS_PER_MS);
		assert_int_equal(p.base.st.recent_segments, c[i].recent_segments);
		assert_int_equal(p.base.st.recent_retransmits, c[i].recent_retransmits);
	}
}

/* A connection that sends little for seconds, since its kernel waits between repetitions, has losses still. */
static void few_segments_forget_no_losses(void **state)
{
	struct tcp_path p = { .state = TCP_UP };
	uint32_t segments = 0, lost = 0, ms = 50000;

	(void)state;
	for (unsigned i = 0; i < 100; i++, ms += 10) {
		segments += 100;
		lost += 5;
		dr_tcp_count_recent(&p, segments, lost, ms * DR_NS_PER_MS);
	}
	for (unsigned i = 0; i < 20; i++, ms += 1000) {
		segments += 20;
		dr_tcp_count_recent(&p, segments, lost, ms * DR_NS_PER_MS);
		assert_true(dr_path_loses(&p.base.st, 10));
	}
	for (unsigned i = 0; i < 50; i++, ms += 1000) { /* but not for life */
		segments += 20;
		dr_tcp_count_recent(&p, segments, lost, ms * DR_NS_PER_MS);
	}
	assert_int_equal(p.base.st.recent_retransmits, 0);
}

/* The kernel's count of segments wraps: that is no loss, and no new connection. */
static void a_count_that_wraps_shows_no_losses(void **state)
{
	struct tcp_path p = { .state = TCP_UP };
	uint32_t segments = UINT32_MAX - 25000, ms = 50000;

	(void)state;
	for (unsigned i = 0; i < 50; i++, ms += 500, segments += 1000) {
		dr_tcp_count_recent(&p, segments, 3000, ms * DR_NS_PER_MS);
		if (i > 4) /* the first two windows begin before the counts are known */
			assert_false(dr_path_loses(&p.base.st, 10));
		if (i > 4)
			assert_in_range(p.base.st.recent_segments, 1000, 5000);
	}
}

static void an_answer_may_be_under_way(void **state)
{
	static const struct {
		unsigned repeated, rtt_us, sent_ms, want;
	} c[] = { { 3, 1000, 5, 2 }, { 3, 1000, 6, 3 }, { 3, 100000, 153, 2 },
		{ 3, 100000, 154, 3 }, { 0, 1000, 0, 0 }, { 1, 1000, 0, 0 } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct tcp_info ti = { .tcpi_unacked = 5,
			.tcpi_retransmits = (uint8_t)c[i].repeated,
			.tcpi_rtt = c[i].rtt_us,
			.tcpi_last_data_sent = c[i].sent_ms };

		assert_int_equal(dr_tcp_unanswered(&ti, false), c[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(old_losses_are_forgotten),
		cmocka_unit_test(few_segments_forget_no_losses),
		cmocka_unit_test(a_count_that_wraps_shows_no_losses),
		cmocka_unit_test(an_answer_may_be_under_way),
	};

	return cmocka_run_group_tests_name("tcp_info", tests, NULL, NULL);
}
