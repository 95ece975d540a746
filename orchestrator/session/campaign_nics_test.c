/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/session/campaign_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Four channels; the fault acts on the first ones. */
enum { CHANNELS = 4, MB = 1000000 };

static bool unused(unsigned affected, uint64_t payload, uint64_t nic, uint64_t all)
{
	static struct dr_local_channel channel[CHANNELS];
	const struct dr_trial_nics before = { true, 5, 6, 7 };
	const struct dr_trial_nics after = { true, 5 + nic * MB, 6 + all * MB, 7 + payload * MB };
	static struct dr_local l;

	l = (struct dr_local){ .channel = channel, .end = channel + CHANNELS };
	for (unsigned i = 0; i < CHANNELS; i++)
		channel[i] =
			(struct dr_local_channel){ .bulk = true, .trial.affected = i < affected };
	assert_false(dr_trial_nic_unused(&l, &before, &(struct dr_trial_nics){ 0 }));
	return dr_trial_nic_unused(&l, &before, &after);
}

static void a_nic_without_its_share_is_not_used(void **state)
{
	(void)state;
	assert_true(unused(4, 100, 1, 107));
	assert_false(unused(4, 100, 106, 107));
	assert_false(unused(4, 100, 50, 107));
	/* A quarter of the channels: its share is 25. */
	assert_true(unused(1, 100, 2, 107));
	assert_false(unused(1, 100, 20, 105));
}

/* RDMA bypasses the counters; a driver may update them rarely; a bond counts again; no channel is affected. */
static void counters_that_do_not_tell_are_left_alone(void **state)
{
	(void)state;
	assert_false(unused(4, 100, 0, 0));
	assert_false(unused(4, 100, 1, 80));
	assert_false(unused(4, 100, 0, 210));
	assert_false(unused(4, 0, 0, 0));
	assert_false(unused(0, 100, 1, 107));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_nic_without_its_share_is_not_used),
		cmocka_unit_test(counters_that_do_not_tell_are_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
