/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/flow_testkit.h"

/* Both rails carry 1 Mb/s. Datagrams wait behind data, and large ones take long; in a queue of the host, or elsewhere. */
static void test_slow_rails_are_not_dead(void **state)
{
	struct dr_sim_opts o = small_packets();
	static struct flow f;

	(void)state;
	o.segment_bytes = 9000;
	o.link.bits_per_s = 1e6;
	o.link.dgrams_wait = true;
	for (unsigned elsewhere = 0; elsewhere < 2; elsewhere++) {
		flow_open(&f, &o, WARM_NS);
		for (unsigned end = 0; elsewhere && end < 2; end++)
			f.p.m[end]->hb->looks = false;
		flow_for(&f, 10 * DR_NS_PER_S);
		for (unsigned end = 0; end < 2; end++)
			for (unsigned r = 0; r < RAILS; r++)
				assert_int_equal(f.p.downs[end][r], 0);
		/* A path may be left: nothing tells that its answers wait elsewhere. */
		assert_true(elsewhere || sender_stats(&f).switches == 0);
		/* A message takes 66 ms. */
		assert_true(elsewhere || f.stall_ns < 150 * DR_NS_PER_MS);
		dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
		flow_for(&f, DR_NS_PER_S);
		assert_int_equal(sender_stats(&f).active, 1);
		flow_close(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_rails_are_not_dead),
	};

	return cmocka_run_group_tests_name("slow rails", tests, NULL, NULL);
}
