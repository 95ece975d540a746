/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

#include <sodium.h>

static void peace_fells_nothing(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 1000; i++) {
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
	assert_int_equal(p->h[0].d.silent_ns, 0);
}

static void cut_both_ways_is_seen_by_both(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[0] = p->cut[1] = 1u << 0;
	assert_in_range(rounds_until(p, 0, 0, true), 2, DR_BOUND_BEATS);
	assert_true(p->h[1].d.rail[0].down || rounds_until(p, 1, 0, true) > 0);
	assert_false(p->h[0].d.rail[1].down);
	half_rounds(p, 40);
	assert_true(p->h[0].d.rail[0].down && p->h[1].d.rail[0].down);
	p->cut[0] = p->cut[1] = 0;
	assert_in_range(rounds_until(p, 0, 0, false), DR_REVIVE, DR_REVIVE + 3);
}

static void one_way_cut_is_learnt_from_the_peer(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[0] = 1u << 1; /* end 0 hears all, end 1 does not hear rail 1 */
	assert_in_range(rounds_until(p, 0, 1, true), 2, DR_BOUND_BEATS + 1);
	assert_string_equal(
		p->out[0].v.rule[1] ? p->out[0].v.rule[1]->name : "peer-says", "peer-says");
	half_rounds(p, 40);
	assert_true(p->h[0].d.rail[1].down); /* it hears it, and the peer does not */
}

static void peer_that_stands_still_is_no_failure(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->stopped[1] = true;
	for (int i = 0; i < 600; i++) {
		half_round(p);
		assert_int_equal(p->out[0].v.fell, 0);
	}
	assert_true(p->h[0].d.silent_ns >= 290 * T);
	p->stopped[1] = false;
	for (int i = 0; i < 20; i++) {
		p->cut[0] =
			i < 3 ? 1u << 0 : 0; /* of all that it missed, only some was this rail's */
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
	assert_int_equal(p->h[0].d.silent_ns, 0);
}

static void single_losses_decide_nothing(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 2000; i++) {
		p->cut[0] = p->cut[1] = i % 7 == 0 ? 1u << 0 : i % 5 == 0 ? 1u << 1 : 0;
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
}

/* Half an hour at the envelope's 2 %, in each direction. */
static void losses_are_no_silence(void **state)
{
	struct pair *p = *state;

	p->loss_percent = 2;
	for (int i = 0; i < 360000; i++) {
		half_round(p);
		if ((p->out[0].v.fell | p->out[1].v.fell) != 0)
			fail_msg("a rail fell in half interval %d", i);
	}
}

static void other_signs_of_life_count(void **state)
{
	struct pair *p = *state;

	p->cut[0] = p->cut[1] = 1u << 0; /* datagrams only: data still flows on rail 0 */
	for (int i = 0; i < 100; i++) {
		hear_bytes(p, 0, 0);
		hear_bytes(p, 1, 0);
		half_round(p);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
}

static void busy_rail_is_spared_unless_suspect(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;

	dr_hb_tick(&p->h[0], 1u << 0, T, &out);
	assert_int_equal(out.send, 1u << 1);
	p->h[0].d.rail[0].peer_miss = 2;
	dr_hb_tick(&p->h[0], 1u << 0, 2 * T, &out);
	assert_int_equal(out.send, 3);
	assert_int_equal(p->h[0].next_ns, 2 * T + T / DR_HB_QUARTER);
}

static void forged_stale_and_reflected_are_refused(void **state)
{
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX], bad[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[0], 0, 0, buf);

	for (size_t i = 0; i < n; i++) {
		memcpy(bad, buf, n);
		bad[i] ^= 1;
		assert_int_equal(dr_hb_receive(&p->h[1], 0, bad, n, n, 0), -EPROTO);
		assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, i, i, 0), -EPROTO);
	}
	assert_int_equal(dr_hb_receive(&p->h[0], 0, buf, n, n, 0), -EPROTO); /* to its sender */
	assert_int_equal(dr_hb_receive(&p->h[1], 1, buf, n, n, 0), -EPROTO); /* another rail */
	assert_false(p->h[1].d.heard);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, n, 0), 0);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, n, 0), -EPROTO); /* twice */
	assert_true(p->h[1].d.heard);
}

/* Authentic, but of another protocol, version, role, pair of workers, rail, number of rails or size: each alone. */
static void what_is_foreign_is_refused_although_authentic(void **state)
{
	enum { FLAGS = 10, HEAD = 13, MAC = 16 };
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];

	for (size_t at = 0; at <= HEAD; at++) {
		size_t n = dr_hb_make(&p->h[0], 0, 0, buf) - MAC;

		buf[at] ^= at == FLAGS || at == HEAD ? 0 : 1;
		crypto_shorthash_siphashx24(buf + n, buf, n, p->h[0].tx_key);
		assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n + MAC, n + MAC, 0),
			at == FLAGS || at == HEAD ? 0 : -EPROTO);
	}
}

/* With all rails that there may be the datagram fits. */
static void the_largest_datagram_fits(void **state)
{
	static struct dr_hb h[2];
	uint8_t buf[DR_DGRAM_MAX];
	size_t n;

	(void)state;
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_init(&h[e], DR_HB_RAILS_MAX, T, 7, e == 0, key);
		dr_hb_start(&h[e], 0);
	}
	n = dr_hb_make(&h[0], DR_HB_RAILS_MAX - 1, 0, buf);
	assert_int_equal(dr_hb_receive(&h[1], DR_HB_RAILS_MAX - 1, buf, n, n, 0), 0);
}

/* After a stall the sockets are read one after the other: what the peer said last counts, on any rail. */
static void an_older_report_changes_nothing(void **state)
{
	struct pair *p = *state;
	uint8_t then[DR_DGRAM_MAX], now[DR_DGRAM_MAX];
	size_t n, m;

	dr_detect_force_down(&p->h[1].d, 0, false);
	n = dr_hb_make(&p->h[1], 1, 0, then);
	p->h[1].d.rail[0].down = false;
	p->h[1].d.rail[0].heard_at = 0;
	m = dr_hb_make(&p->h[1], 0, 0, now);
	assert_int_equal(dr_hb_receive(&p->h[0], 0, now, m, m, 0), 0);
	assert_int_equal(dr_hb_receive(&p->h[0], 1, then, n, n, 0), 0);
	assert_int_equal(p->h[0].d.rail[0].peer_miss, 0);
}

static void flow(struct pair *p, unsigned hundredths)
{
	for (unsigned i = 0; i < hundredths; i++) {
		step(p, T / 100);
		for (unsigned e = 0; e < 2; e++) {
			hear_bytes(p, e, 0);
			dr_detect_gap(&p->h[e].d, 0, T / 100);
		}
	}
}

/* Rail 0 is cut, and suspected at once. */
static void cut_is_found_fast(struct pair *p)
{
	int64_t cut_ns = p->now;

	p->cut[0] = p->cut[1] = 1u << 0;
	dr_hb_suspect(&p->h[0], 0, p->now);
	while (!p->h[0].d.rail[0].down && p->now < cut_ns + 2 * T)
		step(p, T / 100);
	assert_true(p->now - cut_ns <= (DR_FAST_MISSES + 3) * T / DR_FAST);
}

/* Data waits for an answer: the verdict comes within a fast phase, at both ends. */
static void a_fast_phase_finds_a_cut(void **state)
{
	struct pair *p = *state;

	flow(p, 1000);
	cut_is_found_fast(p);
	step(p, T / DR_FAST);
	assert_true(p->h[1].d.rail[0].down);
	assert_false(p->h[0].d.rail[1].down || p->h[1].d.rail[1].down);
}

/* Packets to the peer alone are lost, at any time between two ticks. Its datagrams clear the
 * rail at the end that suspected it first; the phase goes on. */
static void a_fast_phase_finds_a_cut_of_one_direction(void **state)
{
	struct pair *p = *state;

	for (int phase = 0; phase < 100; phase += 7) {
		int64_t cut_ns;

		setup(state);
		p->busy[0] = p->busy[1] = 1u << 0;
		flow(p, 1000 + (unsigned)phase);
		p->cut[0] = 1u << 0;
		cut_ns = p->now;
		for (int i = 0; i < 20; i++) /* the owner waits for 2 ms */
			step(p, T / 100);
		dr_hb_suspect(&p->h[0], 0, p->now);
		while (!(p->h[0].d.rail[0].down && p->h[1].d.rail[0].down) &&
			p->now < cut_ns + 4 * T)
			step(p, T / 100);
		assert_true(p->now - cut_ns <= 12 * DR_NS_PER_MS);
		assert_false(p->h[0].d.rail[1].down || p->h[1].d.rail[1].down);
	}
}

/* A suspicion that was cleared, and a new one after the cut: the phase goes on. */
static void a_fast_phase_serves_a_second_suspicion(void **state)
{
	struct pair *p = *state;

	flow(p, 1000);
	dr_hb_suspect(&p->h[0], 0, p->now);
	flow(p, 200);
	assert_false(dr_detect_misses(&p->h[0].d, 0, 2));
	cut_is_found_fast(p);
}

/* A phase that could not last until a verdict does not begin, and nothing is suspect then. */
static void a_fast_phase_needs_half_the_budget(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->h[0].budget = DR_HB_BUDGET / 2 - 1;
	dr_hb_suspect(&p->h[0], 0, p->now);
	assert_false(dr_detect_misses(&p->h[0].d, 0, 2));
	p->h[0].budget = DR_HB_BUDGET / 2;
	dr_hb_suspect(&p->h[0], 0, p->now);
	assert_true(dr_detect_misses(&p->h[0].d, 0, 2));
}

/* ... and costs little where an owner suspects a rail all the time. */
static void fast_phases_are_rationed(void **state)
{
	struct pair *p = *state;
	unsigned ordinary;

	for (int i = 0; i < 100000; i++)
		step(p, T / 100);
	ordinary = p->sent;
	p->sent = 0;
	for (int i = 0; i < 100000; i++) {
		step(p, T / 100);
		dr_hb_suspect(&p->h[0], 0, p->now);
		assert_int_equal(p->out[0].v.fell | p->out[1].v.fell, 0);
	}
	assert_true(p->sent <= 3 * ordinary);
}

/* So many missing heartbeats of a fast phase come in too short a time for a verdict. */
static void a_short_silence_of_a_fast_phase_decides_nothing(void **state)
{
	struct pair *p = *state;

	flow(p, 1000);
	p->cut[0] = p->cut[1] = 1u << 0;
	dr_hb_suspect(&p->h[0], 0, p->now);
	for (int i = 0; i < DR_FAST_MISSES - 1; i++) {
		step(p, T / DR_FAST);
		assert_false(p->h[0].d.rail[0].down || p->h[1].d.rail[0].down);
	}
	assert_true(dr_detect_missed(&p->h[0].d, 0) >= DR_MISSES);
}

/* Silence on all rails is counted in time, whatever the ticks. */
static void silence_of_a_fast_phase_is_time(void **state)
{
	struct pair *p = *state;
	int64_t from;

	half_rounds(p, 10);
	p->stopped[1] = true;
	from = p->now;
	dr_hb_suspect(&p->h[0], 0, p->now);
	for (int i = 0; i < 20; i++)
		step(p, T / DR_FAST);
	assert_in_range(p->h[0].d.silent_ns, T, p->now - from);
}

/* A rail is down at this end alone, and both ends' bytes make datagrams unnecessary: the peer reports all the same
 * that it hears the rail. */
static void a_rail_that_is_down_here_is_reported_on(void **state)
{
	struct pair *p = *state;
	unsigned rounds = 0;

	half_rounds(p, 10);
	dr_detect_force_down(&p->h[0].d, 0, false);
	p->busy[0] = p->busy[1] = 3;
	while (p->h[0].d.rail[0].down && rounds++ < 20)
		half_round(p);
	assert_in_range(rounds, 2, 2 * (DR_REVIVE + 3));
	assert_false(p->h[1].d.rail[0].down);
}

/* Both ends tick at the same rate. A datagram may arrive just before the tick, or just after it: then one tick in three
 * finds nothing, which is no reason to keep a rail down at this end, or to take it down again at the other one. */
static void datagrams_about_the_time_of_the_tick_revive_a_rail(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;
	uint8_t buf[DR_DGRAM_MAX];
	unsigned fell = 0;

	for (unsigned e = 0; e < 2; e++)
		dr_detect_force_down(&p->h[e].d, 0, false);
	for (int i = 1; i <= 30; i++) {
		for (unsigned e = 0; e < 2; e++) {
			dr_hb_tick(&p->h[e], 0, i * T, &out);
			fell += out.v.fell & 1u;
			for (unsigned r = 0; r < 2; r++) {
				size_t n = dr_hb_make(&p->h[e], r, 0, buf);

				if (r == 1 || e == 1 || i % 3 != 0)
					assert_int_equal(
						dr_hb_receive(&p->h[!e], r, buf, n, n, i * T), 0);
			}
		}
	}
	assert_false(p->h[0].d.rail[0].down || p->h[1].d.rail[0].down);
	assert_int_equal(fell, 0);
}

/* Twice the usual time between two signs of life, but 200 ms at most. */
static void patience_has_a_limit(void **state)
{
	struct pair *p = *state;
	int64_t cut_ns;

	half_rounds(p, 10);
	p->cut[0] = p->cut[1] = 1u << 0;
	cut_ns = p->now;
	while (!p->h[0].d.rail[0].down && p->now < cut_ns + DR_NS_PER_S) {
		for (unsigned e = 0; e < 2; e++)
			p->h[e].d.rail[0].gap_ns[0] = 150 * DR_NS_PER_MS;
		step(p, T / 10);
	}
	assert_in_range(p->now - cut_ns, 190 * DR_NS_PER_MS, 200 * DR_NS_PER_MS + 3 * T);
}

static void datagrams_replace_seldom_bytes(void **state)
{
	struct pair *p = *state;

	for (int i = 1; i <= 100; i++) {
		half_round(p);
		if (i % 2 == 0)
			dr_detect_gap(&p->h[0].d, 0, 20 * T);
	}
	assert_int_equal(dr_detect_usual_gap(&p->h[0].d, 0), T);
	assert_int_equal(dr_detect_usual_gap(&p->h[0].d, 1), T); /* unknown */
}

/* Rail 0 is silent, since the peer stands; on rail 1 arrives what it sent before, behind data. */
static void old_datagrams_of_another_rail_are_no_evidence(void **state)
{
	static uint8_t old[50][DR_DGRAM_MAX];
	struct pair *p = *state;
	struct dr_hb_out out;
	size_t len[50];

	half_rounds(p, 10);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++)
		len[i] = dr_hb_make(&p->h[1], 1, 0, old[i]);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++) {
		p->now += T;
		assert_int_equal(dr_hb_receive(&p->h[0], 1, old[i], len[i], len[i], p->now), 0);
		dr_hb_tick(&p->h[0], 0, p->now, &out);
		assert_int_equal(out.v.fell, 0);
	}
	assert_true(dr_detect_missed(&p->h[0].d, 0) < DR_MISSES); /* it is suspect */
}

static void keys_are_of_this_use_and_direction(void **state)
{
	struct pair *p = *state;

	assert_memory_equal(p->h[0].tx_key, p->h[1].rx_key, DR_KEY_LEN);
	assert_memory_equal(p->h[0].rx_key, p->h[1].tx_key, DR_KEY_LEN);
	assert_memory_not_equal(p->h[0].tx_key, p->h[0].rx_key, DR_KEY_LEN);
	assert_memory_not_equal(p->h[0].tx_key, key, DR_KEY_LEN);
	assert_memory_not_equal(p->h[0].rx_key, key, DR_KEY_LEN);
}

/* Of what was sent before, all of it and in any order, nothing is taken. */
static void what_was_recorded_proves_nothing(void **state)
{
	enum { RECORDED = 600 };
	static uint8_t old[RECORDED][DR_DGRAM_MAX];
	struct pair *p = *state;
	size_t len[RECORDED];

	for (unsigned i = 0; i < RECORDED; i++) {
		len[i] = dr_hb_make(&p->h[1], i & 1, 0, old[i]);
		if (!dr_rng_chance(&p->rng, 1, 3))
			(void)dr_hb_receive(&p->h[0], i & 1, old[i], len[i], len[i], p->now);
	}
	half_rounds(p, 20);
	for (unsigned i = 0; i < 20 * RECORDED; i++) {
		unsigned k = (unsigned)dr_rng_below(&p->rng, RECORDED);

		assert_int_equal(
			dr_hb_receive(&p->h[0], k & 1, old[k], len[k], len[k], p->now), -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(peace_fells_nothing, setup),
		cmocka_unit_test_setup(cut_both_ways_is_seen_by_both, setup),
		cmocka_unit_test_setup(one_way_cut_is_learnt_from_the_peer, setup),
		cmocka_unit_test_setup(peer_that_stands_still_is_no_failure, setup),
		cmocka_unit_test_setup(single_losses_decide_nothing, setup),
		cmocka_unit_test_setup(losses_are_no_silence, setup),
		cmocka_unit_test_setup(other_signs_of_life_count, setup),
		cmocka_unit_test_setup(busy_rail_is_spared_unless_suspect, setup),
		cmocka_unit_test_setup(forged_stale_and_reflected_are_refused, setup),
		cmocka_unit_test_setup(what_is_foreign_is_refused_although_authentic, setup),
		cmocka_unit_test_setup(the_largest_datagram_fits, setup),
		cmocka_unit_test_setup(an_older_report_changes_nothing, setup),
		cmocka_unit_test_setup(a_fast_phase_finds_a_cut, setup),
		cmocka_unit_test_setup(a_fast_phase_finds_a_cut_of_one_direction, setup),
		cmocka_unit_test_setup(a_fast_phase_serves_a_second_suspicion, setup),
		cmocka_unit_test_setup(a_fast_phase_needs_half_the_budget, setup),
		cmocka_unit_test_setup(fast_phases_are_rationed, setup),
		cmocka_unit_test_setup(a_short_silence_of_a_fast_phase_decides_nothing, setup),
		cmocka_unit_test_setup(silence_of_a_fast_phase_is_time, setup),
		cmocka_unit_test_setup(a_rail_that_is_down_here_is_reported_on, setup),
		cmocka_unit_test_setup(datagrams_about_the_time_of_the_tick_revive_a_rail, setup),
		cmocka_unit_test_setup(patience_has_a_limit, setup),
		cmocka_unit_test_setup(datagrams_replace_seldom_bytes, setup),
		cmocka_unit_test_setup(old_datagrams_of_another_rail_are_no_evidence, setup),
		cmocka_unit_test_setup(keys_are_of_this_use_and_direction, setup),
		cmocka_unit_test_setup(what_was_recorded_proves_nothing, setup),
	};

	return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}
