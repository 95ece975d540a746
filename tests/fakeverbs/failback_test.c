/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

#include "base/log.h"

/*
 * Two ChannelManagers over two rails of fake NICs while data goes over: the primary's device is taken away at
 * either end. The channel goes on over the other rail, and back when the device is there again.
 */
static const char *const nic[2][2] = { { "a0", "a1" }, { "b0", "b1" } }; /* by end and rail */

static void device_of_the_primary_goes_and_comes(unsigned end, bool waits)
{
	const struct duo_opts o = { .rails = 2, .peer = true };
	struct dr_channel_stats st;
	static struct duo r;
	uint64_t before;

	duo_open(&r, duo_nics("a0:lo:127.0.0.1,b0:lo:127.0.0.2,a1:lo:127.0.0.3,b1:lo:127.0.0.4"),
		&o);
	duo_until(&r, duo_on_path(&r, 0) && duo_whole(&r) && r.taken > 50);
	for (unsigned k = 0; k < 2; k++) {
		r.fake->unplug(nic[end][0], waits);
		duo_until(&r, duo_on_path(&r, 1));
		before = r.taken;
		duo_until(&r, r.taken > before + 50);
		duo_until(&r, r.fake->plug(nic[end][0], 5 + 2 * k) == 0);
		duo_until(&r, duo_on_path(&r, 0) && duo_whole(&r));
		before = r.taken;
		duo_until(&r, r.taken > before + 50);
	}
	dr_channel_stats(r.ch[SENDER], &st);
	assert_int_equal(st.failbacks, 2);
	assert_true(st.path_bytes[0] > 0 && st.path_bytes[1] > 0);
	duo_shut(&r);
	duo_clean(r.fake);
}

static void gone_at_the_sender(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(SENDER, false);
}

static void gone_at_the_receiver(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(RECEIVER, false);
}

static void gone_without_an_event(void **state)
{
	(void)state;
	device_of_the_primary_goes_and_comes(SENDER, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(gone_at_the_sender),
		cmocka_unit_test(gone_at_the_receiver), cmocka_unit_test(gone_without_an_event) };

	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
