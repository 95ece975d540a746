/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/flow_testkit.h"

/* Both rails carry 100 Mb/s, the least of the envelope. Datagrams wait behind data, and large
 * ones take long. */
static void test_slow_rails_are_not_dead(void **state)
{
	struct dr_sim_opts o = small_packets();
	static struct flow f;

	(void)state;
	o.segment_bytes = 9000;
	o.link.bits_per_s = 100e6;
	o.link.dgrams_wait = true;
	flow_open(&f, &o, WARM_NS);
	flow_for(&f, 10 * DR_NS_PER_S);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned r = 0; r < RAILS; r++)
			assert_int_equal(f.p.downs[end][r], 0);
	assert_int_equal(sender_stats(&f).switches, 0);
	dr_sim_cut(f.p.w, 0, DR_SIM_BOTH, true);
	flow_for(&f, DR_NS_PER_S);
	assert_int_equal(sender_stats(&f).active, 1);
	flow_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_rails_are_not_dead),
	};

	return cmocka_run_group_tests_name("slow rails", tests, NULL, NULL);
}
