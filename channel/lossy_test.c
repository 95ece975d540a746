/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/grey_testkit.h"

/*
 * Rails that lose much and work: connections with losses, and rails that carry connections but no datagrams.
 */
/* A connection with losses has long silences of its own. It is left when its kernel has repeated
 * five times without an answer. */
static void test_losses_explain_a_silence(void **state)
{
	static const struct {
		unsigned lost, repeated;
		bool left;
	} c[] = { { 2, 4, false }, { 2, 5, true }, { 1, 0, true } };
	static struct flow f;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(c); i++) {
		struct dr_path_stats st = no_answer;

		st.recent_segments = 1000;
		st.recent_retransmits = c[i].lost;
		st.unanswered = c[i].repeated;
		grey_open(&f, &st, 200);
		silent = &f;
		silent_ns = dr_sim_world_clock(f.p.w, 0);
		flow_for(&f, 90 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, 0);
		flow_for(&f, (c[i].left ? 60 : 14000) * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).switches, c[i].left ? 1 : 0);
		flow_close(&f);
	}
}

/* A peer whose process waits for a processor sends nothing; its kernel acknowledges, and another thread of it sends heartbeats
 * on the other rail. */
static void test_what_the_peers_kernel_acknowledges_clears_a_rail(void **state)
{
	static struct flow f;

	(void)state;
	for (unsigned acked = 0; acked < 2; acked++) {
		struct dr_path_stats st = { .peer_ack_age_ns = -1 };
		struct dr_hb *h;

		grey_open(&f, &st, UINT32_MAX);
		h = f.p.m[0]->hb;
		wire_step = acked;
		dr_sim_cut(f.p.w, 0, DR_SIM_NODE1, true);
		for (int i = 0; i < 300; i++) {
			flow_for(&f, DR_NS_PER_MS);
			h->d.rail[0].peer_miss = 0; /* it hears this end */
		}
		assert_int_equal(h->d.rail[0].down, !acked);
		assert_int_equal(sender_stats(&f).active, !acked);
		wire_step = 0;
		flow_for(&f, 200 * DR_NS_PER_MS);
		assert_int_equal(sender_stats(&f).active, 1);
		flow_close(&f);
	}
}

/* What was acknowledged before the rail was suspected says nothing. */
static void test_earlier_acknowledgements_clear_no_rail(void **state)
{
	struct dr_path_stats st = { .peer_ack_age_ns = -1, .acked_wire = 1000 };
	static struct flow f;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, 100 * DR_NS_PER_MS);
	assert_int_equal(sender_stats(&f).active, 1);
	assert_true(f.stall_ns > 0 && f.stall_ns <= 15 * DR_NS_PER_MS);
	flow_close(&f);
}

/* The kernel of a stopped peer acknowledges as well: the silence on all rails goes on. */
static void test_acknowledgements_end_no_silence(void **state)
{
	struct dr_path_stats st = { .peer_ack_age_ns = -1 };
	static struct flow f;

	(void)state;
	grey_open(&f, &st, UINT32_MAX);
	for (unsigned r = 0; r < RAILS; r++)
		dr_sim_cut(f.p.w, r, DR_SIM_NODE1, true);
	wire_step = 1;
	for (int i = 0; i < 500; i++) {
		f.p.m[0]->hb->d.rail[0].peer_miss = 1; /* so the kernel is asked */
		flow_for(&f, DR_NS_PER_MS);
	}
	assert_true(f.p.m[0]->hb->d.silent_ns >= 300 * DR_NS_PER_MS);
	flow_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_losses_explain_a_silence),
		cmocka_unit_test(test_earlier_acknowledgements_clear_no_rail),
		cmocka_unit_test(test_acknowledgements_end_no_silence),
		cmocka_unit_test(test_what_the_peers_kernel_acknowledges_clears_a_rail),
	};

	return cmocka_run_group_tests_name("lossy", tests, NULL, NULL);
}
