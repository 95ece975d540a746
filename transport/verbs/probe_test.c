/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "transport/verbs/path_priv.h"

/* What silence proves: dr_verbs_silent(). Everything below is sent at 1 s or later, nothing is answered since. */
static const int64_t MS = DR_NS_PER_MS, T = DR_NS_PER_S, RETRY = 67 * DR_NS_PER_MS;

static struct vb_probes probes[VB_PROBED];

static struct vb_silence silence(unsigned on_each)
{
	for (unsigned i = 0; i < VB_PROBED; i++) {
		probes[i] = (struct vb_probes){ .sent = 100 + on_each, .done = 100 };
		for (unsigned k = 100; k < 100 + on_each; k++)
			probes[i].at_ns[k % VB_PROBES] = T + (k - 100) * 10 * MS;
	}
	return (struct vb_silence){
		.probes = probes, .ack_ns = T - MS, .rtt_ns = MS, .retry_ns = RETRY
	};
}

/* Behind the first two on one connection an answer is hardly more likely. All together are worth the eight lost
 * segments that a verdict takes. */
static void more_probes_prove_more_up_to_a_limit(void **state)
{
	static const unsigned want[VB_PROBES + 1] = { 0, 3, 6, 8 };

	(void)state;
	for (unsigned n = 0; n <= VB_PROBES; n++) {
		struct vb_silence s = silence(n);

		assert_int_equal(dr_verbs_silent(&s, T + 50 * MS), want[n]);
	}
}

static void what_was_sent_before_the_last_answer_proves_nothing(void **state)
{
	struct vb_silence s = silence(VB_PROBES);

	(void)state;
	s.ack_ns = T + 5 * MS;
	assert_int_equal(dr_verbs_silent(&s, T + 50 * MS), 6);
	s.ack_ns = T + 25 * MS;
	assert_int_equal(dr_verbs_silent(&s, T + 50 * MS), 0);
}

static void an_answer_has_the_time_of_a_round_trip(void **state)
{
	struct vb_silence s = silence(VB_PROBES);

	(void)state;
	s.rtt_ns = 100 * MS;
	assert_int_equal(dr_verbs_silent(&s, T + 149 * MS), 0);
	assert_int_equal(dr_verbs_silent(&s, T + 155 * MS), 3);
	assert_int_equal(dr_verbs_silent(&s, T + 171 * MS), 8);
}

/* A NIC may take four times its timeout to repeat what it sent; with timeout 0 it repeats nothing. */
static void a_repetition_counts_when_the_slowest_nic_has_made_it(void **state)
{
	struct vb_silence s = silence(VB_PROBES);

	(void)state;
	assert_int_equal(dr_verbs_silent(&s, T + 4 * RETRY), 8);
	assert_int_equal(dr_verbs_silent(&s, T + 4 * RETRY + 2 * MS), 15);
	assert_int_equal(dr_verbs_silent(&s, T + 8 * RETRY + 2 * MS), 23);
	s.retry_ns = DR_NEVER;
	assert_int_equal(dr_verbs_silent(&s, T + 8 * RETRY + 2 * MS), 8);
}

static void a_round_trip_with_a_repetition_is_forgotten_quickly(void **state)
{
	static struct vb_path p;

	(void)state;
	dr_verbs_rtt(&p, 800 * MS); /* the first message of a connection */
	assert_int_equal(p.rtt_ns, 800 * MS);
	for (unsigned i = 0; i < 8; i++)
		dr_verbs_rtt(&p, MS);
	assert_true(p.rtt_ns < 5 * MS);
	dr_verbs_rtt(&p, p.rtt_ns + 80 * MS);
	assert_true(p.rtt_ns < 15 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(more_probes_prove_more_up_to_a_limit),
		cmocka_unit_test(what_was_sent_before_the_last_answer_proves_nothing),
		cmocka_unit_test(an_answer_has_the_time_of_a_round_trip),
		cmocka_unit_test(a_repetition_counts_when_the_slowest_nic_has_made_it),
		cmocka_unit_test(a_round_trip_with_a_repetition_is_forgotten_quickly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
