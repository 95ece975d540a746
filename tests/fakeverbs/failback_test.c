/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/duo.h"

/*
 * Two ChannelManagers over two rails of fake NICs while data goes over: the primary's device is taken away at
 * either end. The channel goes on over the other rail, and back when the device is there again. Or the primary has
 * a long delay after a failure.
 */
static const char *const nic[2][2] = { { "a0", "a1" }, { "b0", "b1" } }; /* by end and rail */

static void goes_on(struct duo *r)
{
	uint64_t before = r->taken;

	duo_until(r, r->taken > before + 50);
}

struct gone {
	unsigned end;
	bool waits; /* no event says so */
};

static void device_of_the_primary_goes_and_comes(void **state)
{
	const struct gone *how = *state;
	struct dr_channel_stats st;
	static struct duo r;

	duo_up(&r);
	for (unsigned k = 0; k < 2; k++) {
		r.fake->unplug(nic[how->end][0], how->waits);
		duo_until(&r, duo_on_path(&r, 1));
		goes_on(&r);
		duo_until(&r, r.fake->plug(nic[how->end][0], 5 + 2 * k) == 0);
		duo_until(&r, duo_on_path(&r, 0) && duo_whole(&r));
		goes_on(&r);
	}
	dr_channel_stats(r.ch[SENDER], &st);
	assert_true(st.epoch > 2 * 2);
	assert_true(st.path_bytes[0] > 0 && st.path_bytes[1] > 0);
	duo_end(&r);
}

/* The primary's queue pairs of this end are those of the channel: the heartbeats have none of this type. */
static void completion_queue_fails(const struct duo *r, unsigned end)
{
	uint32_t qpn[16];

	assert_true(r->fake->qp_list(nic[end][0], IBV_QPT_RC, qpn, 16) > 0);
	r->fake->event(nic[end][0], qpn[0], IBV_EVENT_CQ_ERR);
}

/* This end opens the device again, for itself. The rail is not declared down, so other GPUs use it on. */
static void completion_queue_of_the_primary_fails(void **state)
{
	static struct duo r;
	unsigned opened;

	(void)state;
	for (unsigned end = 0; end < 2; end++) {
		duo_up(&r);
		for (unsigned k = 0; k < 2; k++) {
			opened = r.fake->count("open_device");
			completion_queue_fails(&r, end);
			duo_until(&r, duo_on_path(&r, 1));
			goes_on(&r);
			duo_until(&r, duo_on_path(&r, 0) && duo_whole(&r));
			goes_on(&r);
			assert_true(r.fake->count("open_device") > opened);
		}
		assert_int_equal(r.downs, 0);
		duo_end(&r);
	}
}

static void a_rail_with_a_long_delay_is_returned_to(void **state)
{
	struct dr_channel_stats st;
	static struct duo r;

	(void)state;
	duo_up(&r);
	r.fake->port("a0", false);
	duo_until(&r, duo_on_path(&r, 1));
	r.fake->latency("a0", 80 * DR_NS_PER_MS);
	r.fake->port("a0", true);
	duo_until(&r, duo_on_path(&r, 0));
	dr_channel_stats(r.ch[SENDER], &st);
	assert_int_equal(st.switches, 1);
	duo_end(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { { "gone_at_the_sender",
						    device_of_the_primary_goes_and_comes, NULL,
						    NULL, &(struct gone){ SENDER, false } },
		{ "gone_at_the_receiver", device_of_the_primary_goes_and_comes, NULL, NULL,
			&(struct gone){ RECEIVER, false } },
		{ "gone_without_an_event", device_of_the_primary_goes_and_comes, NULL, NULL,
			&(struct gone){ SENDER, true } },
		cmocka_unit_test(completion_queue_of_the_primary_fails),
		cmocka_unit_test(a_rail_with_a_long_delay_is_returned_to) };

	return kit_main(argc, argv, tests, DR_ARRAY_LEN(tests), NULL, NULL);
}
