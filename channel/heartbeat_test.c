/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Two judges joined by hand: rails 0 and 1, one call of round() per interval. */
static const uint8_t key[DR_TOKEN_LEN] = "0123456789abcde";
static const int64_t T = 10 * DR_NS_PER_MS;

struct pair {
	struct dr_hb h[2];
	struct dr_hb_out out[2];
	int64_t now;
	uint32_t cut[2]; /* rails that lose what end e sends */
	bool stopped[2];
};

static int setup(void **state)
{
	static struct pair p;

	memset(&p, 0, sizeof(p));
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_init(&p.h[e], 2, T, 7, e == 0, key);
		dr_hb_start(&p.h[e], 0);
	}
	*state = &p;
	return 0;
}

static void half_round(struct pair *p)
{
	uint8_t buf[DR_DGRAM_MAX];

	p->now += T / 2;
	for (unsigned e = 0; e < 2; e++) {
		p->out[e] = (struct dr_hb_out){ 0 };
		if (p->stopped[e])
			continue;
		dr_hb_tick(&p->h[e], 0, p->now, &p->out[e]);
		for (unsigned r = 0; r < 2; r++) {
			size_t n;

			if (!(p->out[e].send & (1u << r)))
				continue;
			n = dr_hb_make(&p->h[e], r, buf);
			if (!(p->cut[e] & (1u << r)) && !p->stopped[!e])
				assert_int_equal(dr_hb_receive(&p->h[!e], r, buf, n), 0);
		}
	}
}

/* Runs until `e` reports that rail r fell (or rose); returns the intervals it took, -1: never. */
static int rounds_until(struct pair *p, unsigned e, unsigned r, bool fell)
{
	for (int i = 1; i <= 100; i++) {
		half_round(p);
		if ((fell ? p->out[e].fell : p->out[e].rose) & (1u << r))
			return (i + 1) / 2;
	}
	return -1;
}

static void peace_fells_nothing(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 1000; i++) {
		half_round(p);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
	assert_int_equal(dr_hb_silent_ns(&p->h[0]), 0);
}

static void cut_both_ways_is_seen_by_both(void **state)
{
	struct pair *p = *state;
	int n;

	for (int i = 0; i < 10; i++)
		half_round(p);
	p->cut[0] = p->cut[1] = 1u << 0;
	n = rounds_until(p, 0, 0, true);
	assert_in_range(n, DR_HB_MISSES, DR_HB_MISSES + 2);
	assert_true(p->h[1].rail[0].down || rounds_until(p, 1, 0, true) > 0);
	assert_false(p->h[0].rail[1].down);
	p->cut[0] = p->cut[1] = 0;
	assert_in_range(rounds_until(p, 0, 0, false), DR_HB_REVIVE, DR_HB_REVIVE + 3);
}

static void one_way_cut_is_learnt_from_the_peer(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 10; i++)
		half_round(p);
	p->cut[0] = 1u << 1; /* end 0 hears all, end 1 does not hear rail 1 */
	assert_in_range(rounds_until(p, 0, 1, true), DR_HB_MISSES, DR_HB_MISSES + 3);
}

static void peer_that_stands_still_is_no_failure(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 10; i++)
		half_round(p);
	p->stopped[1] = true;
	for (int i = 0; i < 600; i++) {
		half_round(p);
		assert_int_equal(p->out[0].fell, 0);
	}
	assert_true(dr_hb_silent_ns(&p->h[0]) >= 290 * T);
	p->stopped[1] = false;
	for (int i = 0; i < 20; i++) {
		half_round(p);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
	assert_int_equal(dr_hb_silent_ns(&p->h[0]), 0);
}

static void single_losses_decide_nothing(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 2000; i++) {
		p->cut[0] = p->cut[1] = i % 7 == 0 ? 1u << 0 : i % 5 == 0 ? 1u << 1 : 0;
		half_round(p);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
}

static void other_signs_of_life_count(void **state)
{
	struct pair *p = *state;

	p->cut[0] = p->cut[1] = 1u << 0; /* datagrams only: data still flows on rail 0 */
	for (int i = 0; i < 100; i++) {
		dr_hb_life(&p->h[0], 0);
		dr_hb_life(&p->h[1], 0);
		half_round(p);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
}

static void busy_rail_is_spared_unless_suspect(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;

	dr_hb_tick(&p->h[0], 1u << 0, T, &out);
	assert_int_equal(out.send, 1u << 1);
	p->h[0].rail[0].peer_miss = 1;
	dr_hb_tick(&p->h[0], 1u << 0, 2 * T, &out);
	assert_int_equal(out.send, 3);
	assert_int_equal(p->h[0].next_ns, 2 * T + T / 2);
}

static void forged_stale_and_reflected_are_refused(void **state)
{
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX], bad[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[0], 0, buf);

	for (size_t i = 0; i < n; i++) {
		memcpy(bad, buf, n);
		bad[i] ^= 1;
		assert_int_equal(dr_hb_receive(&p->h[1], 0, bad, n), -EPROTO);
		assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, i), -EPROTO);
	}
	assert_int_equal(dr_hb_receive(&p->h[0], 0, buf, n), -EPROTO); /* to its sender */
	assert_int_equal(dr_hb_receive(&p->h[1], 1, buf, n), -EPROTO); /* another rail */
	assert_false(p->h[1].rail[0].heard);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n), 0);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n), -EPROTO); /* twice */
	assert_true(p->h[1].rail[0].heard);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(peace_fells_nothing, setup),
		cmocka_unit_test_setup(cut_both_ways_is_seen_by_both, setup),
		cmocka_unit_test_setup(one_way_cut_is_learnt_from_the_peer, setup),
		cmocka_unit_test_setup(peer_that_stands_still_is_no_failure, setup),
		cmocka_unit_test_setup(single_losses_decide_nothing, setup),
		cmocka_unit_test_setup(other_signs_of_life_count, setup),
		cmocka_unit_test_setup(busy_rail_is_spared_unless_suspect, setup),
		cmocka_unit_test_setup(forged_stale_and_reflected_are_refused, setup),
	};

	return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}
