/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

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
	uint64_t received;
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
	if (source >= 2 && o->bytes[r] > 0)
		dr_detect_life(&s->h[e].d, r, o->wake_ns);
	if (source >= 2) {
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
	/* As the manager does: what has arrived on a suspect is read after all that speaks
	 * against it. */
	for (unsigned n = 1; n > 0;) {
		o->ready = dr_detect_suspects(&s->h[e].d) * 5;
		n = (o->ready & 1) * o->dgrams[0] + (o->ready >> 1 & 1) * o->dgrams[1];
		for (unsigned source = 0; source < 4; source++)
			read_source(s, e, source);
	}
	bool beat = s->h[e].received > o->received;

	o->received = s->h[e].received;
	dr_hb_tick(&s->h[e], busy, now, &out);
	s->ticks[e] += out.full && beat;
	o->beat = out.send;
	s->fell |= out.v.fell;
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

/* ... and one that is cut falls, by no more ticks with a beat in them than the unstarved need. */
static void starved_ends_find_a_cut(void **state)
{
	static struct starved s;

	(void)state;
	for (uint64_t seed = 1; seed <= 2000; seed++) {
		uint32_t cut = 1u << (seed & 1);

		starve(&s, seed);
		run_starved(&s, 1000);
		s.cut = cut;
		s.ticks[0] = s.ticks[1] = 0;
		for (int i = 0; i < 2000000 && s.fell == 0 &&
				DR_MAX(s.ticks[0], s.ticks[1]) <= 3 * DR_MISSES;
			i++)
			run_starved(&s, 1);
		if (s.fell != cut)
			fail_msg("seed %llu: rails %x fell, %x was cut", (unsigned long long)seed,
				s.fell, cut);
	}
}

/* Whatever the rails carry and however the ends' ticks lie, ends that run find a cut within the bound that
 * is printed with every result (dr_manager_detect_bound), both of them. */
static void ends_that_run_keep_the_bound(void **state)
{
	static const int64_t bound_ns = DR_BOUND_BEATS * 10 * DR_NS_PER_MS;
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
		if (!s.h[0].d.rail[seed & 1].down || !s.h[1].d.rail[seed & 1].down || s.fell != cut)
			fail_msg("seed %llu: rails %x fell, %x was cut", (unsigned long long)seed,
				s.fell, cut);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(starved_ends_fell_nothing),
		cmocka_unit_test(starved_ends_find_a_cut),
		cmocka_unit_test(ends_that_run_keep_the_bound),
	};

	return cmocka_run_group_tests_name("heartbeat, starved ends", tests, NULL, NULL);
}
