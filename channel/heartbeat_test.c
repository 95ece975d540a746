/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

#include <sodium.h>

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

	half_rounds(p, 10);
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

	half_rounds(p, 10);
	p->cut[0] = 1u << 1; /* end 0 hears all, end 1 does not hear rail 1 */
	assert_in_range(rounds_until(p, 0, 1, true), DR_HB_MISSES, DR_HB_MISSES + 3);
}

static void peer_that_stands_still_is_no_failure(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
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
	p->h[0].rail[0].peer_miss = 2;
	dr_hb_tick(&p->h[0], 1u << 0, 3 * T, &out);
	assert_int_equal(p->h[0].next_ns, 3 * T + T / DR_HB_QUARTER);
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
	assert_false(p->h[1].rail[0].heard);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, n, 0), 0);
	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, n, 0), -EPROTO); /* twice */
	assert_true(p->h[1].rail[0].heard);
}

/* Authentic, but of another protocol, version, role, pair of workers, rail, number of rails or size: each alone. */
static void what_is_foreign_is_refused_although_authentic(void **state)
{
	enum { FLAGS = 10, HEAD = 13, MAC = 16 };
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];

	for (size_t at = 0; at <= HEAD; at++) {
		size_t n = dr_hb_make(&p->h[0], 0, 0, buf) - MAC;

		buf[at] ^= at == FLAGS ? 0 : 1;
		crypto_shorthash_siphashx24(buf + n, buf, n, p->h[0].tx_key);
		assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n + MAC, n + MAC, 0),
			at == FLAGS || at == HEAD ? 0 : -EPROTO);
	}
}

/* The peer came to no tick of its own: bytes that pass on one rail say nothing of the other. */
static void bytes_alone_declare_no_rail_down(void **state)
{
	struct pair *p = *state;
	struct dr_hb *h = &p->h[0];
	struct dr_hb_out out;

	for (int i = 1; i <= 50; i++) {
		dr_hb_life(h, 1);
		dr_hb_tick(h, 0, i * T, &out);
		assert_int_equal(out.fell, 0);
	}
	assert_int_equal(h->rail[0].miss, 1); /* suspect: both ends beat on every rail then */
	assert_int_equal(out.send, 3);
}

/* Its peer is another thread, and may be the only one that runs. */
static void other_workers_clear_a_rail_but_never_declare_it_down(void **state)
{
	struct pair *p = *state;
	struct dr_hb *h = &p->h[0];
	struct dr_hb_out out;

	for (int i = 1; i <= 50; i++) {
		dr_hb_heard_elsewhere(h, 1);
		dr_hb_tick(h, 0, i * T, &out);
		assert_int_equal(out.fell, 0);
		assert_int_equal(h->rail[0].miss, 0);
	}
	assert_int_equal(dr_hb_silent_ns(h), 0);
	h->rail[0].miss = DR_HB_MISSES - 1;
	assert_int_equal(dr_hb_suspects(h), 1u << 0);
	dr_hb_heard_elsewhere(h, 0);
	assert_int_equal(dr_hb_suspects(h), 0);
	dr_hb_tick(h, 0, 51 * T, &out);
	assert_int_equal(h->rail[0].miss, 0);
}

/* Bytes that may have waited: they clear a rail, say nothing of others, and no process is heard. */
static void late_bytes_clear_a_rail_and_end_no_silence(void **state)
{
	struct pair *p = *state;
	struct dr_hb *h = &p->h[0];
	struct dr_hb_out out;

	for (int i = 1; i <= 50; i++) {
		dr_hb_late_life(h, 1);
		dr_hb_tick(h, 0, i * T, &out);
		assert_int_equal(out.fell, 0);
		assert_int_equal(h->rail[0].miss, 0);
		assert_int_equal(dr_hb_silent_ns(h), i * T);
		assert_int_equal(h->alive_ns, 0);
	}
	h->rail[0].miss = DR_HB_MISSES - 1;
	dr_hb_late_life(h, 0);
	assert_int_equal(dr_hb_suspects(h), 0);
	dr_hb_tick(h, 0, 51 * T, &out);
	assert_int_equal(h->rail[0].miss, 0);
	dr_hb_life(h, 0);
	dr_hb_tick(h, 0, 52 * T, &out);
	assert_int_equal(dr_hb_silent_ns(h), 0);
	assert_int_equal(h->alive_ns, 52 * T);
}

/* After a stall the sockets are read one after the other: what the peer said last counts, on any rail. */
static void an_older_report_changes_nothing(void **state)
{
	struct pair *p = *state;
	uint8_t then[DR_DGRAM_MAX], now[DR_DGRAM_MAX];
	size_t n, m;

	p->h[1].rail[0].miss = DR_HB_MISSES;
	n = dr_hb_make(&p->h[1], 1, 0, then);
	p->h[1].rail[0].miss = 0;
	m = dr_hb_make(&p->h[1], 0, 0, now);
	assert_int_equal(dr_hb_receive(&p->h[0], 0, now, m, m, 0), 0);
	assert_int_equal(dr_hb_receive(&p->h[0], 1, then, n, n, 0), 0);
	assert_int_equal(p->h[0].rail[0].peer_miss, 0);
	assert_true(p->h[0].rail[1].heard);
}

/* Data waits for an answer: the verdict comes within a fast phase, at both ends. */
static void a_fast_phase_finds_a_cut(void **state)
{
	struct pair *p = *state;
	int64_t cut_ns;

	for (int i = 0; i < 1000; i++) {
		step(p, T / 100);
		for (unsigned e = 0; e < 2; e++) { /* data flows */
			dr_hb_life(&p->h[e], 0);
			dr_hb_gap(&p->h[e], 0, T / 100);
		}
	}
	p->cut[0] = p->cut[1] = 1u << 0;
	cut_ns = p->now;
	dr_hb_suspect(&p->h[0], 0, p->now);
	while (!p->h[0].rail[0].down && p->now < cut_ns + 2 * T)
		step(p, T / 100);
	assert_true(p->now - cut_ns <= (DR_HB_FAST_MISSES + 3) * T / DR_HB_FAST);
	step(p, T / DR_HB_FAST);
	assert_true(p->h[1].rail[0].down);
	assert_false(p->h[0].rail[1].down || p->h[1].rail[1].down);
}

/* Packets to the peer alone are lost, at any time between two ticks. Its datagrams clear the rail at the end that suspected it
 * first; the phase goes on. */
static void a_fast_phase_finds_a_cut_of_one_direction(void **state)
{
	struct pair *p = *state;

	for (int phase = 0; phase < 100; phase += 7) {
		int64_t cut_ns;

		setup(state);
		p->busy[0] = p->busy[1] = 1u << 0;
		for (int i = 0; i < 1000 + phase; i++) {
			step(p, T / 100);
			for (unsigned e = 0; e < 2; e++) {
				dr_hb_life(&p->h[e], 0);
				dr_hb_gap(&p->h[e], 0, T / 100);
			}
		}
		p->cut[0] = 1u << 0;
		cut_ns = p->now;
		for (int i = 0; i < 20; i++) /* the owner waits for 2 ms */
			step(p, T / 100);
		dr_hb_suspect(&p->h[0], 0, p->now);
		while (!(p->h[0].rail[0].down && p->h[1].rail[0].down) && p->now < cut_ns + 4 * T)
			step(p, T / 100);
		assert_true(p->now - cut_ns <= 11 * DR_NS_PER_MS);
		assert_false(p->h[0].rail[1].down || p->h[1].rail[1].down);
	}
}

/* A phase that could not last until a verdict does not begin, and nothing is suspect then. */
static void a_fast_phase_needs_half_the_budget(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->h[0].budget = DR_HB_BUDGET / 2 - 1;
	dr_hb_suspect(&p->h[0], 0, p->now);
	assert_false(dr_hb_suspected(&p->h[0], 0));
	p->h[0].budget = DR_HB_BUDGET / 2;
	dr_hb_suspect(&p->h[0], 0, p->now);
	assert_true(dr_hb_suspected(&p->h[0], 0));
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
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
	assert_true(p->sent <= 3 * ordinary);
}

/* Where each phase lasts, because a rail is silent now and then, phases are rare, too; after a time without
 * suspicions one finds a cut. */
static void long_fast_phases_are_rationed(void **state)
{
	struct pair *p = *state;
	int64_t cut_ns;

	p->cut[0] = p->cut[1] = 1u << 0;
	for (int i = 0; i < 10000; i++) {
		if (i % 5 == 0)
			dr_hb_life(&p->h[0], 0), dr_hb_life(&p->h[1], 0);
		step(p, T / DR_HB_FAST);
		dr_hb_suspect(&p->h[0], 0, p->now);
		assert_false(p->h[0].rail[0].down || p->h[1].rail[0].down);
	}
	assert_true(p->sent <= 1000 * 2 * 2 * DR_HB_QUARTER);
	p->cut[0] = p->cut[1] = 0;
	for (int i = 0; i < 10000; i++) {
		step(p, T / 100);
		dr_hb_life(&p->h[0], 0), dr_hb_life(&p->h[1], 0);
		dr_hb_gap(&p->h[0], 0, T / 100), dr_hb_gap(&p->h[1], 0, T / 100);
	}
	p->h[0].rail[0].longest = p->h[1].rail[0].longest = 0;
	p->h[0].rail[0].longest_full = p->h[1].rail[0].longest_full = 0;
	p->cut[0] = p->cut[1] = 1u << 0;
	cut_ns = p->now;
	dr_hb_suspect(&p->h[0], 0, p->now);
	while (!p->h[0].rail[0].down && p->now < cut_ns + 2 * T)
		step(p, T / 100);
	assert_true(p->now - cut_ns <= (DR_HB_FAST_MISSES + 3) * T / DR_HB_FAST);
}

/* Three ticks of a fast phase are too short a time for a verdict. */
static void a_short_silence_of_a_fast_phase_decides_nothing(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 1000; i++) {
		step(p, T / 100);
		dr_hb_life(&p->h[0], 0), dr_hb_life(&p->h[1], 0);
		dr_hb_gap(&p->h[0], 0, T / 100), dr_hb_gap(&p->h[1], 0, T / 100);
	}
	p->cut[0] = p->cut[1] = 1u << 0;
	dr_hb_suspect(&p->h[0], 0, p->now);
	for (int i = 0; i < DR_HB_FAST_MISSES - 2; i++) {
		step(p, T / DR_HB_FAST);
		assert_false(p->h[0].rail[0].down || p->h[1].rail[0].down);
	}
	assert_true(p->h[0].rail[0].miss >= DR_HB_MISSES);
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
		step(p, T / DR_HB_FAST);
	assert_in_range(dr_hb_silent_ns(&p->h[0]), T, p->now - from);
}

/* What arrived before a suspicion says nothing about the time after it. */
static void a_suspicion_begins_without_evidence(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[1] = 1u << 0;
	step(p, T / 2); /* a datagram of rail 1 arrives after the tick of end 0 */
	step(p, T / 2);
	deliver(p, 1, 1, 0);
	assert_true(p->h[0].rail[1].beat);
	dr_hb_suspect(&p->h[0], 0, p->now);
	p->stopped[1] = true;
	step(p, T / DR_HB_FAST);
	assert_true(p->out[0].full);
	assert_int_equal(p->h[0].rail[0].miss, 1);
	assert_int_equal(p->h[0].rail[0].proved, 0);
}

/* The longest silences of a lossy rail are known soon, and the verdict waits for longer ones. */
static void losses_are_no_silence(void **state)
{
	static const unsigned percent[] = { 1, 5, 20, 40 };
	struct pair *p = *state;

	for (unsigned k = 0; k < DR_ARRAY_LEN(percent); k++) {
		setup(state);
		p->loss_percent = 1; /* its short silences are known */
		for (int i = 0; i < 2000; i++) {
			p->loss_percent = DR_MIN(percent[k], (unsigned)i / 50 + 1);
			half_round(p);
		}
		for (int i = 0; i < 360000; i++) { /* half an hour */
			half_round(p);
			if ((p->out[0].fell | p->out[1].fell) != 0)
				fail_msg("%u %% loss: a rail fell in half interval %d", percent[k],
					i);
		}
	}
}

/* A silence of a fast phase lasts as many milliseconds as another one lasts intervals. */
static void a_fast_silence_is_no_measure_of_slow_ones(void **state)
{
	struct pair *p = *state;
	unsigned missed;

	half_rounds(p, 10);
	p->cut[0] = p->cut[1] = 1u << 0;
	dr_hb_suspect(&p->h[0], 0, p->now);
	for (int i = 0; i < 6; i++)
		step(p, T / DR_HB_FAST);
	p->cut[0] = p->cut[1] = 0;
	step(p, T / DR_HB_FAST);
	step(p, T / DR_HB_FAST);
	assert_in_range(p->h[0].rail[0].longest, 4, 6);
	assert_int_equal(p->h[0].rail[0].longest_full, 0);
	p->h[0].budget = p->h[1].budget = 0;
	half_rounds(p, 20);
	p->cut[0] = p->cut[1] = 1u << 0;
	missed = (unsigned)rounds_until(p, 0, 0, true);
	assert_in_range(missed, DR_HB_MISSES, DR_HB_MISSES + 2);
}

/* Heartbeats that were missed in a row are counted when the silence ends, not the owner's suspicion, and not where
 * the rail was declared down. */
static void a_silence_is_counted_when_it_ends(void **state)
{
	struct pair *p = *state;
	unsigned ended[DR_HB_HISTOGRAM] = { 0 };

	half_rounds(p, 10);
	for (int i = 0; i < 200; i++) {
		p->cut[1] = i / 20 < 6 && i % 20 < 5 ? 1u << 0 : 0;
		half_round(p);
		ended[p->out[0].ended[0]]++;
		assert_int_equal(p->out[0].ended[1], 0);
		assert_int_equal(p->h[0].rail[0].down, false);
	}
	assert_int_equal(ended[1] + ended[2], 6);
	assert_true(ended[2] > 0);
	for (int i = 0; i < 20; i++) {
		dr_hb_suspect(&p->h[0], 1, p->now);
		half_round(p);
		assert_int_equal(p->out[0].ended[1], 0);
	}
	p->cut[1] = 1u << 0;
	assert_true(rounds_until(p, 0, 0, true) > 0);
	p->cut[1] = 0;
	for (int i = 0; i < 20; i++) {
		half_round(p);
		assert_int_equal(p->out[0].ended[0], 0);
	}
}

/* A rail is down at this end alone, and both ends' bytes make datagrams unnecessary: the peer reports all the same
 * that it hears the rail. */
static unsigned reports_in_20_ticks(struct pair *p)
{
	struct dr_hb_out out;
	uint8_t buf[DR_DGRAM_MAX];
	unsigned reports = 0;

	dr_hb_force_down(&p->h[0], 0);
	p->h[0].rail[0].peer_miss = 1; /* the last report that arrived */
	for (int i = 1; i <= 20; i++) {
		for (unsigned e = 0; e < 2; e++) {
			for (unsigned r = 0; r < 2; r++)
				dr_hb_life(&p->h[e], r);
			dr_hb_tick(&p->h[e], 3, i * T, &out);
			reports += e == 1 && out.send != 0;
			for (unsigned r = 0; r < 2; r++) {
				size_t n;

				if (!(out.send & (1u << r)))
					continue;
				n = dr_hb_make(&p->h[e], r, 0, buf);
				assert_int_equal(dr_hb_receive(&p->h[!e], r, buf, n, n, i * T), 0);
			}
		}
	}
	return reports;
}

static void a_rail_that_is_down_here_is_reported_on(void **state)
{
	struct pair *p = *state;

	assert_in_range(reports_in_20_ticks(p), 1, 3); /* and not any longer */
	assert_false(p->h[0].rail[0].down);
}

/* Heartbeats on the paths are evidence against a rail whose paths are being rebuilt: fewer than a verdict needs. */
static void reports_on_paths_are_rare(void **state)
{
	struct pair *p = *state;

	p->h[0].on_paths = p->h[1].on_paths = true;
	p->h[0].rail[0].padded_only = true; /* stays down */
	assert_in_range(reports_in_20_ticks(p), 2, 3);
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
		dr_hb_force_down(&p->h[e], 0);
	for (int i = 1; i <= 30; i++) {
		for (unsigned e = 0; e < 2; e++) {
			dr_hb_tick(&p->h[e], 0, i * T, &out);
			fell += out.fell & 1u;
			for (unsigned r = 0; r < 2; r++) {
				size_t n = dr_hb_make(&p->h[e], r, 0, buf);

				if (r == 1 || e == 1 || i % 3 != 0)
					assert_int_equal(
						dr_hb_receive(&p->h[!e], r, buf, n, n, i * T), 0);
			}
		}
	}
	assert_false(p->h[0].rail[0].down || p->h[1].rail[0].down);
	assert_int_equal(fell, 0);
}

/* The peer holds the rail down still, and has missed one datagram since it hears the rail again. */
static void one_miss_of_a_rail_that_is_down_takes_it_down_nowhere_else(void **state)
{
	struct pair *p = *state;

	for (unsigned misses = 1; misses <= DR_HB_MISSES; misses++) {
		struct dr_hb_out out;
		uint8_t buf[DR_DGRAM_MAX];
		size_t n;

		p->h[1].rail[0].down = true;
		p->h[1].rail[0].miss = (uint8_t)misses;
		n = dr_hb_make(&p->h[1], 1, 0, buf);
		assert_int_equal(dr_hb_receive(&p->h[0], 1, buf, n, n, misses * T), 0);
		dr_hb_life(&p->h[0], 0);
		dr_hb_tick(&p->h[0], 0, misses * T, &out);
		assert_int_equal(out.fell, misses == DR_HB_MISSES);
	}
}

/* A rail of little bandwidth: bytes arrive seldom, datagrams wait behind them. */
static void a_slow_rail_is_heard_seldom(void **state)
{
	struct pair *p = *state;

	p->cut[0] = p->cut[1] = 1u << 0; /* datagrams arrive far too late */
	dr_hb_gap(&p->h[0], 0, 72 * T / 10), dr_hb_gap(&p->h[1], 0, 72 * T / 10);
	for (int i = 1; i <= 4000; i++) {
		step(p, T / 10);
		if (i % 72 == 0)
			dr_hb_life(&p->h[0], 0), dr_hb_life(&p->h[1], 0);
		if (i % 10 == 0)
			dr_hb_gap(&p->h[0], 0, 72 * T / 10), dr_hb_gap(&p->h[1], 0, 72 * T / 10);
		dr_hb_suspect(&p->h[0], 0, p->now);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
	}
	/* It is not waited for longer than that. */
	for (int i = 1; i <= 400 && !p->h[0].rail[0].down; i++)
		step(p, T / 10);
	assert_true(p->h[0].rail[0].down);
}

/* Twice the usual time between two signs of life, but 200 ms at most. */
static void patience_has_a_limit(void **state)
{
	struct pair *p = *state;
	int64_t cut_ns;

	half_rounds(p, 10);
	p->cut[0] = p->cut[1] = 1u << 0;
	cut_ns = p->now;
	while (!p->h[0].rail[0].down && p->now < cut_ns + DR_NS_PER_S) {
		dr_hb_gap(&p->h[0], 0, 150 * DR_NS_PER_MS),
			dr_hb_gap(&p->h[1], 0, 150 * DR_NS_PER_MS);
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
			dr_hb_gap(&p->h[0], 0, 20 * T);
	}
	assert_int_equal(dr_hb_usual_gap(&p->h[0], 0), T);
	assert_int_equal(dr_hb_usual_gap(&p->h[0], 1), T); /* unknown */
}

/* ---- rails with little bandwidth ---- */

/* Rail 0 is silent; on rail 1 arrives what the peer sent before, behind data. */
static void datagrams_older_than_the_silence_are_no_evidence(void **state)
{
	static uint8_t old[50][DR_DGRAM_MAX];
	struct pair *p = *state;
	struct dr_hb_out out;
	size_t len[50];

	half_rounds(p, 10);
	p->cut[1] = 1u << 0; /* nor are those that are younger than an earlier one */
	half_rounds(p, 4);
	p->cut[1] = 0;
	half_rounds(p, 10);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++)
		len[i] = dr_hb_make(&p->h[1], 1, 0, old[i]);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++) {
		uint8_t sent[DR_DGRAM_MAX];

		p->now += T;
		assert_int_equal(dr_hb_receive(&p->h[0], 1, old[i], len[i], len[i], p->now), 0);
		dr_hb_tick(&p->h[0], 0, p->now, &out);
		assert_int_equal(out.fell, 0);
		for (unsigned r = 0; r < 2; r++)
			if (out.send & (1u << r))
				(void)dr_hb_make(&p->h[0], r, 0, sent);
	}
	assert_true(p->h[0].rail[0].miss >= 40);
	p->cut[0] = p->cut[1] = 1u << 0;
	assert_in_range(rounds_until(p, 0, 0, true), 1, 3); /* the first answer decides */
}

static void datagrams_held_back_by_the_peers_host_are_waited_for(void **state)
{
	struct pair *p = *state;
	int n;

	half_rounds(p, 10);
	p->cut[1] = 1u << 0;
	dr_hb_held(&p->h[1], 0, true);
	n = rounds_until(p, 0, 0, true);
	assert_in_range(n, DR_HB_HELD_NS / T, DR_HB_HELD_NS / T + 2);
}

/* Rail 0 is silent for long, and only old datagrams arrive on rail 1. The peer then reports at once, before it has looked
 * whether its own datagram for rail 0 leaves its host. */
static void long_silence(struct pair *p)
{
	static uint8_t old[20][DR_DGRAM_MAX];
	size_t len[DR_ARRAY_LEN(old)];
	struct dr_hb_out out;

	p->h[0].looks = p->h[1].looks = true;
	half_rounds(p, 10);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++)
		len[i] = dr_hb_make(&p->h[1], 1, 0, old[i]);
	for (size_t i = 0; i < DR_ARRAY_LEN(old); i++) {
		p->now += T;
		assert_int_equal(dr_hb_receive(&p->h[0], 1, old[i], len[i], len[i], p->now), 0);
		dr_hb_tick(&p->h[0], 0, p->now, &out);
	}
	assert_true(p->h[0].rail[0].miss >= 15);
	p->cut[1] = 1u << 0;
}

static void a_peer_that_has_not_looked_yet_does_not_know(void **state)
{
	struct pair *p = *state;

	long_silence(p);
	for (int i = 0; i < 10; i++) {
		half_round(p);
		assert_int_equal(p->out[0].fell | p->out[1].fell, 0);
		if (i >= 6)
			dr_hb_held(&p->h[1], 0, true);
	}
	dr_hb_held(&p->h[1], 0, false); /* it was lost after it had left */
	assert_in_range(rounds_until(p, 0, 0, true), 1, 2);
}

static void a_datagram_that_left_and_is_not_heard_is_evidence_at_once(void **state)
{
	struct pair *p = *state;
	int n = 0;

	long_silence(p);
	do {
		step(p, T / 10);
		for (unsigned e = 0; e < 2; e++)
			for (unsigned r = 0; r < 2; r++)
				dr_hb_held(&p->h[e], r, false);
		n++;
	} while (!(p->out[0].fell & 1) && n < 100);
	assert_in_range(n, 2, 25);
	/* A suspicion that ended is forgotten: the next one needs a look of its own. */
	assert_int_equal(p->h[1].rail[1].tried | p->h[1].rail[1].looked, false);
}

/* Datagrams that wait in the own host's queue are not added to by more than one per interval. */
static void a_queue_is_not_filled(void **state)
{
	struct pair *p = *state;

	for (unsigned held = 0; held < 2; held++) {
		unsigned n = 0;

		half_rounds(p, 20);
		p->cut[1] = 1u << 0;
		dr_hb_suspect(&p->h[0], 0, p->now);
		for (int i = 0; i < 5; i++) {
			dr_hb_held(&p->h[0], 0, held);
			step(p, T / 10);
			n += (p->out[0].send & 1) + (p->out[0].twice & 1);
			assert_int_equal(p->out[0].send & 2, 2); /* the other rail's do not wait */
		}
		if (held)
			assert_in_range(n, 0, 1);
		else
			assert_in_range(n, 8, 10);
		p->cut[1] = 0;
		dr_hb_held(&p->h[0], 0, false);
		(void)rounds_until(p, 0, 0, false);
	}
}

/* The other rail's datagrams, and those of the own host, do not matter. */
static void datagrams_held_back_elsewhere_change_nothing(void **state)
{
	struct pair *p = *state;

	half_rounds(p, 10);
	p->cut[1] = 1u << 0;
	dr_hb_held(&p->h[1], 1, true);
	dr_hb_held(&p->h[0], 0, true);
	assert_in_range(rounds_until(p, 0, 0, true), DR_HB_MISSES, DR_HB_MISSES + 2);
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
		cmocka_unit_test_setup(what_is_foreign_is_refused_although_authentic, setup),
		cmocka_unit_test_setup(bytes_alone_declare_no_rail_down, setup),
		cmocka_unit_test_setup(other_workers_clear_a_rail_but_never_declare_it_down, setup),
		cmocka_unit_test_setup(late_bytes_clear_a_rail_and_end_no_silence, setup),
		cmocka_unit_test_setup(an_older_report_changes_nothing, setup),
		cmocka_unit_test_setup(a_fast_phase_finds_a_cut, setup),
		cmocka_unit_test_setup(a_fast_phase_finds_a_cut_of_one_direction, setup),
		cmocka_unit_test_setup(a_fast_phase_needs_half_the_budget, setup),
		cmocka_unit_test_setup(fast_phases_are_rationed, setup),
		cmocka_unit_test_setup(long_fast_phases_are_rationed, setup),
		cmocka_unit_test_setup(a_short_silence_of_a_fast_phase_decides_nothing, setup),
		cmocka_unit_test_setup(silence_of_a_fast_phase_is_time, setup),
		cmocka_unit_test_setup(a_suspicion_begins_without_evidence, setup),
		cmocka_unit_test_setup(losses_are_no_silence, setup),
		cmocka_unit_test_setup(a_fast_silence_is_no_measure_of_slow_ones, setup),
		cmocka_unit_test_setup(a_silence_is_counted_when_it_ends, setup),
		cmocka_unit_test_setup(a_rail_that_is_down_here_is_reported_on, setup),
		cmocka_unit_test_setup(reports_on_paths_are_rare, setup),
		cmocka_unit_test_setup(
			one_miss_of_a_rail_that_is_down_takes_it_down_nowhere_else, setup),
		cmocka_unit_test_setup(datagrams_about_the_time_of_the_tick_revive_a_rail, setup),
		cmocka_unit_test_setup(a_slow_rail_is_heard_seldom, setup),
		cmocka_unit_test_setup(patience_has_a_limit, setup),
		cmocka_unit_test_setup(datagrams_replace_seldom_bytes, setup),
		cmocka_unit_test_setup(datagrams_older_than_the_silence_are_no_evidence, setup),
		cmocka_unit_test_setup(datagrams_held_back_by_the_peers_host_are_waited_for, setup),
		cmocka_unit_test_setup(datagrams_held_back_elsewhere_change_nothing, setup),
		cmocka_unit_test_setup(a_peer_that_has_not_looked_yet_does_not_know, setup),
		cmocka_unit_test_setup(
			a_datagram_that_left_and_is_not_heard_is_evidence_at_once, setup),
		cmocka_unit_test_setup(a_queue_is_not_filled, setup),
	};

	return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}
