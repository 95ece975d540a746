/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat.h"
#include "base/rng.h"

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
	uint32_t cut[2];       /* rails that lose what end e sends */
	uint32_t hole[2];      /* rails that lose what end e pads */
	unsigned loss_percent; /* of rail 0 */
	bool stopped[2];
	struct dr_rng rng;
	unsigned sent;
};

static int setup(void **state)
{
	static struct pair p;

	memset(&p, 0, sizeof(p));
	dr_rng_seed(&p.rng, 1);
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_init(&p.h[e], 2, T, 7, e == 0, key);
		dr_hb_start(&p.h[e], 0);
	}
	*state = &p;
	return 0;
}

static void deliver(struct pair *p, unsigned e, unsigned r, uint32_t size)
{
	uint8_t buf[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[e], r, size, buf);
	bool lost = (p->cut[e] & (1u << r)) || p->stopped[!e] ||
		    (size != 0 && (p->hole[e] & (1u << r))) ||
		    (r == 0 && dr_rng_chance(&p->rng, p->loss_percent, 100));

	p->sent++;
	if (!lost)
		assert_int_equal(
			dr_hb_receive(&p->h[!e], r, buf, n, size != 0 ? size : n, p->now), 0);
}

static void step(struct pair *p, int64_t ns)
{
	p->now += ns;
	for (unsigned e = 0; e < 2; e++) {
		p->out[e] = (struct dr_hb_out){ 0 };
		if (p->stopped[e])
			continue;
		dr_hb_tick(&p->h[e], 0, p->now, &p->out[e]);
		for (unsigned r = 0; r < 2; r++) {
			if (p->out[e].padded & p->out[e].send & (1u << r))
				deliver(p, e, r, p->h[e].rail[r].padded_size);
			for (unsigned n = 0; n < 1 + (p->out[e].twice >> r & 1); n++)
				if (p->out[e].send & (1u << r))
					deliver(p, e, r, 0);
		}
	}
}

static void half_round(struct pair *p)
{
	struct dr_hb_out first[2];

	step(p, T / 4);
	memcpy(first, p->out, sizeof(first));
	step(p, T / 4);
	for (unsigned e = 0; e < 2; e++) {
		p->out[e].fell |= first[e].fell;
		p->out[e].rose |= first[e].rose;
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

/*
 * Two ends that are starved: each goes through its loop (ask which sockets have something, read these in
 * some order, send bytes, tick, send the datagrams), and after each step of it may lose its processor for
 * long. Bytes and datagrams arrive at once and in order, so no rail may ever fall; one that is cut has to.
 */
enum { ASK, READ, SEND = READ + 4, TICK, BEAT, STEPS = BEAT + 2 };

struct end {
	int step;
	int64_t wake_ns, tx_ns[2];
	uint32_t ready, order,
		sends; /* sources to read, rotated by `order`; rails that carry bytes */
	unsigned dgrams[2], bytes[2]; /* that wait to be read, by rail */
	uint8_t dgram[2][256][DR_DGRAM_MAX];
	size_t len[2];
	uint32_t beat;
};

struct starved {
	struct dr_hb h[2];
	struct end end[2];
	struct dr_rng rng;
	unsigned odds[2]; /* of losing the processor after a step, in 100 */
	int64_t away_ns;  /* and for how long at most */
	uint32_t cut, fell;
	unsigned ticks[2]; /* that found a beat of the peer's */
};

static void read_source(struct starved *s, unsigned e, unsigned source)
{
	struct end *o = &s->end[e];
	unsigned r = source & 1;

	if (!(o->ready & (1u << source)))
		return;
	if (source >= 2) {
		dr_hb_life(&s->h[e], r);
		o->bytes[r] = 0;
		return;
	}
	for (unsigned i = 0; i < o->dgrams[r]; i++)
		assert_int_equal(dr_hb_receive(&s->h[e], r, o->dgram[r][i], o->len[r], o->len[r],
					 o->wake_ns),
			0);
	o->dgrams[r] = 0;
}

static void ask(struct starved *s, struct end *o)
{
	o->ready = 0;
	for (unsigned r = 0; r < 2; r++)
		o->ready |= (uint32_t)(o->dgrams[r] > 0) << r | (uint32_t)(o->bytes[r] > 0)
									<< (2 + r);
	o->order = (uint32_t)dr_rng_below(&s->rng, 4);
}

static void send_bytes(struct starved *s, unsigned e, int64_t now)
{
	for (unsigned r = 0; r < 2; r++) {
		if (!(s->end[e].sends & (1u << r)))
			continue;
		s->end[e].tx_ns[r] = now;
		s->end[!e].bytes[r] += !(s->cut & (1u << r));
	}
}

static void send_beat(struct starved *s, unsigned e, unsigned r)
{
	struct end *to = &s->end[!e];
	uint8_t buf[DR_DGRAM_MAX];

	if (!(s->end[e].beat & (1u << r)))
		return;
	to->len[r] = dr_hb_make(&s->h[e], r, 0, buf);
	if ((s->cut & (1u << r)) || to->dgrams[r] == DR_ARRAY_LEN(to->dgram[r]))
		return;
	memcpy(to->dgram[r][to->dgrams[r]++], buf, to->len[r]);
}

static void tick_starved(struct starved *s, unsigned e, int64_t now)
{
	struct end *o = &s->end[e];
	struct dr_hb_out out;
	uint32_t busy = 0;

	for (unsigned r = 0; r < 2; r++)
		busy |= (uint32_t)(o->tx_ns[r] > now - T) << r;
	bool beat = s->h[e].rail[0].beat || s->h[e].rail[1].beat;

	dr_hb_tick(&s->h[e], busy, now, &out);
	s->ticks[e] += out.full && beat;
	o->beat = out.send;
	s->fell |= out.fell;
}

static void one_step(struct starved *s, unsigned e)
{
	struct end *o = &s->end[e];
	int64_t now = o->wake_ns;

	if (o->step == ASK)
		ask(s, o);
	else if (o->step < SEND)
		read_source(s, e, ((unsigned)(o->step - READ) + o->order) % 4);
	else if (o->step == SEND)
		send_bytes(s, e, now);
	else if (o->step == TICK)
		tick_starved(s, e, now);
	else
		send_beat(s, e, (unsigned)(o->step - BEAT));
	o->step = (o->step + 1) % STEPS;
	o->wake_ns += DR_NS_PER_MS / 10;
	if (dr_rng_below(&s->rng, 100) < s->odds[e])
		o->wake_ns += (int64_t)dr_rng_below(&s->rng, (uint64_t)s->away_ns);
}

static void starve(struct starved *s, uint64_t seed)
{
	static const unsigned odds[] = { 0, 1, 5, 20, 50 };
	static const int64_t away_ms[] = { 5, 30, 200, 2000 };

	memset(s, 0, sizeof(*s));
	dr_rng_seed(&s->rng, seed);
	s->away_ns = away_ms[dr_rng_below(&s->rng, DR_ARRAY_LEN(away_ms))] * DR_NS_PER_MS;
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_init(&s->h[e], 2, T, 7, e == 0, key);
		dr_hb_start(&s->h[e], 0);
		s->odds[e] = odds[dr_rng_below(&s->rng, DR_ARRAY_LEN(odds))];
		s->end[e].wake_ns = (int64_t)dr_rng_below(&s->rng, (uint64_t)T);
		s->end[e].sends = (uint32_t)dr_rng_below(&s->rng, 4);
	}
}

static void run_starved(struct starved *s, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++)
		one_step(s, s->end[1].wake_ns < s->end[0].wake_ns);
}

static void starved_ends_fell_nothing(void **state)
{
	static struct starved s;

	(void)state;
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		starve(&s, seed);
		run_starved(&s, 4000);
		if (s.fell != 0)
			fail_msg("seed %llu: rails %x fell", (unsigned long long)seed, s.fell);
	}
}

/* Starvation looks like losses: the rail's longest silence. */
static unsigned longest(const struct starved *s)
{
	unsigned most = 0;

	for (unsigned i = 0; i < 4; i++)
		most = DR_MAX(most, (unsigned)s->h[i / 2].rail[i % 2].longest);
	return most;
}

/* ... and one that is cut falls, by no more ticks with a beat in them than the unstarved need. */
static void starved_ends_find_a_cut(void **state)
{
	static struct starved s;

	(void)state;
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		uint32_t cut = 1u << (seed & 1);
		unsigned limit;

		starve(&s, seed);
		run_starved(&s, 1000);
		s.cut = cut;
		s.ticks[0] = s.ticks[1] = 0;
		limit = 2 * DR_HB_MISSES + 2 + 3 * longest(&s);
		for (int i = 0;
			i < 2000000 && s.fell == 0 && DR_MAX(s.ticks[0], s.ticks[1]) <= limit;
			i++) {
			run_starved(&s, 1); /* what is under way may still end a silence */
			limit = DR_MAX(limit, 2 * DR_HB_MISSES + 2 + 3 * longest(&s));
		}
		if (s.fell != cut)
			fail_msg("seed %llu: rails %x fell, %x was cut", (unsigned long long)seed,
				s.fell, cut);
	}
}

/* Whatever the rails carry and however the ends' ticks lie, ends that run find a cut within the bound that
 * is printed with every result (dr_manager_detect_bound), both of them. */
static void ends_that_run_keep_the_bound(void **state)
{
	static const int64_t bound_ns = (DR_HB_MISSES + 2) * 10 * DR_NS_PER_MS;
	static struct starved s;

	(void)state;
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		uint32_t cut = 1u << (seed & 1);
		int64_t from_ns;

		starve(&s, seed);
		s.odds[0] = s.odds[1] = 0;
		run_starved(&s, 2000 + (unsigned)dr_rng_below(&s.rng, 500));
		s.cut = cut;
		from_ns = s.end[0].wake_ns;
		while (s.end[0].wake_ns < from_ns + bound_ns)
			run_starved(&s, 1);
		if (!s.h[0].rail[seed & 1].down || !s.h[1].rail[seed & 1].down || s.fell != cut)
			fail_msg("seed %llu: rails %x fell, %x was cut", (unsigned long long)seed,
				s.fell, cut);
	}
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

	for (int i = 0; i < 10; i++)
		half_round(p);
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

	for (int i = 0; i < 10; i++)
		half_round(p);
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

	for (int i = 0; i < 10; i++)
		half_round(p);
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

/* Small datagrams pass and padded ones do not: known after DR_HB_PADDED_LOST of them. */
static void packets_of_full_size_are_lost(void **state)
{
	struct pair *p = *state;
	int n = 0;

	for (int i = 0; i < 10; i++)
		half_round(p);
	p->hole[0] = 1u << 0;
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	while (!dr_hb_padded_lost(&p->h[0], 0) && n < 100) {
		half_round(p);
		n++;
	}
	assert_in_range(n, DR_HB_PADDED_LOST / 2, DR_HB_PADDED_LOST / 2 + 2);
	assert_int_equal(p->h[0].rail[0].down || p->h[1].rail[0].down, false);
	/* The rail is down at this end until a padded one arrives. */
	dr_hb_padded_only(&p->h[0], 0);
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_true(p->h[0].rail[0].down && !p->h[1].rail[0].down);
	}
	p->hole[0] = 0;
	assert_in_range(rounds_until(p, 0, 0, false), 1, DR_HB_REVIVE + 3);
}

/* Neither an answer nor losses of an earlier question belong to a later one. */
static void each_question_begins_anew(void **state)
{
	struct pair *p = *state;

	dr_hb_question(&p->h[0], 0, 9000, p->now);
	for (int i = 0; i < 10; i++)
		half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0));
	dr_hb_question(&p->h[0], 0, 0, p->now);
	p->hole[0] = 1u << 0;
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	for (int i = 0; i < 10; i++)
		half_round(p);
	assert_false(dr_hb_padded_passed(&p->h[0], 0));
	assert_true(dr_hb_padded_lost(&p->h[0], 0));
	dr_hb_question(&p->h[0], 0, 0, p->now);
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	assert_false(dr_hb_padded_lost(&p->h[0], 0));
	half_round(p);
	assert_false(dr_hb_padded_lost(&p->h[0], 0));
}

/* A few padded datagrams are sent quickly, then one per interval; the bandwidth is the data's. */
static void a_long_question_costs_one_datagram_per_interval(void **state)
{
	struct pair *p = *state;
	unsigned n;

	p->hole[0] = 1u << 0;
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	for (int i = 0; i < 10; i++)
		half_round(p);
	n = p->h[0].rail[0].n_padded;
	for (int i = 0; i < 100; i++)
		half_round(p);
	assert_in_range(p->h[0].rail[0].n_padded - n, 49, 51);
}

/* A peer whose own bytes make heartbeats unnecessary reports padded datagrams all the same. */
static void a_padded_datagram_is_answered(void **state)
{
	struct pair *p = *state;
	struct dr_hb_out out;
	uint8_t buf[DR_DGRAM_MAX];
	size_t n = dr_hb_make(&p->h[0], 0, 9000, buf);

	assert_int_equal(dr_hb_receive(&p->h[1], 0, buf, n, 9000, 0), 0);
	dr_hb_life(&p->h[1], 1);
	dr_hb_tick(&p->h[1], 3, T, &out);
	assert_int_equal(out.send, 3);
	dr_hb_life(&p->h[1], 0);
	dr_hb_life(&p->h[1], 1);
	dr_hb_tick(&p->h[1], 3, 2 * T, &out);
	assert_int_equal(out.send, 0);
}

/* Numbers are reported by their low bits: an old report must not look new after they have gone round. */
static void an_old_padded_datagram_answers_nothing(void **state)
{
	struct pair *p = *state;

	dr_hb_question(&p->h[0], 0, 9000, p->now);
	half_round(p);
	half_round(p);
	assert_true(dr_hb_padded_passed(&p->h[0], 0));
	p->hole[0] = 1u << 0;
	dr_hb_question(&p->h[0], 0, 0, p->now);
	dr_hb_question(&p->h[0], 0, 9000, p->now);
	for (int i = 0; i < 100000; i++) {
		half_round(p);
		assert_false(dr_hb_padded_passed(&p->h[0], 0));
	}
	assert_true(p->h[0].tick > 2 * UINT16_MAX);
}

/* Neither a rail that loses one datagram in twenty, nor one whose peer is stopped, nor one that is cut
 * looks like one that loses large packets. */
static void padded_datagrams_are_not_lost_alone(void **state)
{
	static const unsigned percent[] = { 5, 20, 40, 60 };
	struct pair *p = *state;

	for (unsigned k = 0; k < DR_ARRAY_LEN(percent); k++) {
		p->loss_percent = percent[k];
		for (int i = 0; i < 20000; i++) {
			if (i % 20 == 0) /* data made progress */
				dr_hb_question(&p->h[0], 0, 0, p->now);
			dr_hb_question(&p->h[0], 0, 9000, p->now);
			half_round(p);
			if (dr_hb_padded_lost(&p->h[0], 0))
				fail_msg("%u %% loss: half interval %d", percent[k], i);
		}
	}
	p->loss_percent = 0;
	p->stopped[1] = true;
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_false(dr_hb_padded_lost(&p->h[0], 0));
	}
	p->stopped[1] = false;
	p->cut[0] = 1u << 0;
	for (int i = 0; i < 200; i++) {
		half_round(p);
		assert_false(dr_hb_padded_lost(&p->h[0], 0));
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
		cmocka_unit_test_setup(other_signs_of_life_count, setup),
		cmocka_unit_test_setup(busy_rail_is_spared_unless_suspect, setup),
		cmocka_unit_test_setup(forged_stale_and_reflected_are_refused, setup),
		cmocka_unit_test_setup(bytes_alone_declare_no_rail_down, setup),
		cmocka_unit_test_setup(other_workers_clear_a_rail_but_never_declare_it_down, setup),
		cmocka_unit_test_setup(an_older_report_changes_nothing, setup),
		cmocka_unit_test_setup(a_fast_phase_finds_a_cut, setup),
		cmocka_unit_test_setup(fast_phases_are_rationed, setup),
		cmocka_unit_test_setup(long_fast_phases_are_rationed, setup),
		cmocka_unit_test_setup(a_short_silence_of_a_fast_phase_decides_nothing, setup),
		cmocka_unit_test_setup(a_suspicion_begins_without_evidence, setup),
		cmocka_unit_test_setup(silence_of_a_fast_phase_is_time, setup),
		cmocka_unit_test_setup(losses_are_no_silence, setup),
		cmocka_unit_test_setup(a_slow_rail_is_heard_seldom, setup),
		cmocka_unit_test_setup(datagrams_replace_seldom_bytes, setup),
		cmocka_unit_test_setup(patience_has_a_limit, setup),
		cmocka_unit_test_setup(packets_of_full_size_are_lost, setup),
		cmocka_unit_test_setup(each_question_begins_anew, setup),
		cmocka_unit_test_setup(a_long_question_costs_one_datagram_per_interval, setup),
		cmocka_unit_test_setup(padded_datagrams_are_not_lost_alone, setup),
		cmocka_unit_test_setup(a_padded_datagram_is_answered, setup),
		cmocka_unit_test_setup(an_old_padded_datagram_answers_nothing, setup),
		cmocka_unit_test(starved_ends_fell_nothing),
		cmocka_unit_test(starved_ends_find_a_cut),
		cmocka_unit_test(ends_that_run_keep_the_bound),
	};

	return cmocka_run_group_tests_name("heartbeat", tests, NULL, NULL);
}
