/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

/* A rail that carries bytes and loses all datagrams. */

/* For ns, both ends read bytes on rail 0 (or none), and rail 1 carries datagrams. */
static void flow_for(struct pair *p, int64_t ns, bool bytes)
{
	for (int64_t t = 0; t < ns; t += T / 100) {
		for (unsigned e = 0; e < 2; e++) {
			if (!bytes)
				dr_hb_suspect(&p->h[e], 0, p->now);
			else
				hear_bytes(p, e, 0);
		}
		step(p, T / 100);
	}
}

/* Datagrams on rail 0 are lost from now on, and a silence of some ms ends by bytes. */
static void make_mute(struct pair *p)
{
	flow_for(p, 100 * T, true);
	p->cut[0] = p->cut[1] = 1u << 0;
	flow_for(p, 5 * T / 10, false);
	assert_true(dr_detect_missed(&p->h[0].d, 0) >= 2 && dr_detect_missed(&p->h[1].d, 0) >= 2);
	assert_false(p->h[0].d.rail[0].mute || p->h[0].d.rail[0].down);
	flow_for(p, 2 * T, true);
	assert_true(p->h[0].d.rail[0].mute && p->h[1].d.rail[0].mute);
}

/* A process without a processor sends no bytes, and another thread of it the heartbeats of the other rail. */
static void a_mute_rail_has_time(void **state)
{
	static const int64_t silent_ms[] = { 20, 60, 100, 140 };
	struct pair *p = *state;

	make_mute(p);
	for (size_t i = 0; i < DR_ARRAY_LEN(silent_ms); i++) {
		flow_for(p, silent_ms[i] * DR_NS_PER_MS, false);
		assert_false(p->h[0].d.rail[0].down || p->h[1].d.rail[0].down);
		flow_for(p, 10 * DR_NS_PER_S, true); /* it is forgotten */
		assert_true(p->h[0].d.rail[0].mute && p->h[1].d.rail[0].mute);
	}
	flow_for(p, DR_MUTE_NS + 3 * T, false);
	assert_true(p->h[0].d.rail[0].down && p->h[1].d.rail[0].down);
	assert_false(p->h[0].d.rail[1].down || p->h[1].d.rail[1].down);
}

/* Else a rail that was silent for a moment would be judged slowly later. */
static void a_datagram_ends_it(void **state)
{
	struct pair *p = *state;

	make_mute(p);
	p->cut[0] = p->cut[1] = 0;
	flow_for(p, 2 * T, true);
	assert_false(p->h[0].d.rail[0].mute || p->h[1].d.rail[0].mute);
	flow_for(p, 10 * DR_NS_PER_S, true);
	p->cut[0] = p->cut[1] = 1u << 0;
	flow_for(p, 3 * T, false);
	assert_true(p->h[0].d.rail[0].down && p->h[1].d.rail[0].down);
}

/* An end that carries bytes need not send datagrams, and is asked to. */
static void datagrams_are_asked_for(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;
	uint8_t buf[DR_DGRAM_MAX];
	size_t n;

	make_mute(p);
	for (unsigned r = 0; r < 2; r++)
		hear_bytes(p, 0, r);
	dr_hb_tick(&p->h[0], 1u << 0, p->h[0].next_ns, &out);
	assert_int_equal(out.send, 3);
	p->h[1].d.rail[0].mute = false; /* it hears this end's datagrams */
	for (unsigned told = 0; told < 2; told++) {
		if (told) {
			n = dr_hb_make(&p->h[0], 1, 0, buf);
			assert_true(dr_detect_missed(&p->h[0].d, 0) <= 1);
			assert_int_equal(dr_hb_receive(&p->h[1], 1, buf, n, n, p->now), 0);
		}
		for (unsigned r = 0; r < 2; r++)
			hear_bytes(p, 1, r);
		p->h[1].asked &= told;
		dr_hb_tick(&p->h[1], 1u << 0, p->h[1].next_ns, &out);
		assert_int_equal(out.send, told ? 3 : 1u << 1);
	}
}

/* Heartbeats that use the paths are bytes as well. */
static void heartbeats_on_paths_do_not_count(void **state)
{
	struct pair *p = *state;

	p->h[0].d.on_paths = p->h[1].d.on_paths = true;
	flow_for(p, 100 * T, true);
	p->cut[0] = p->cut[1] = 1u << 0;
	flow_for(p, 5 * T / 10, false);
	flow_for(p, 2 * T, true);
	assert_false(p->h[0].d.rail[0].mute || p->h[1].d.rail[0].mute);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_mute_rail_has_time, setup),
		cmocka_unit_test_setup(a_datagram_ends_it, setup),
		cmocka_unit_test_setup(datagrams_are_asked_for, setup),
		cmocka_unit_test_setup(heartbeats_on_paths_do_not_count, setup),
	};

	return cmocka_run_group_tests_name("heartbeat_mute", tests, NULL, NULL);
}
