/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/heartbeat_testkit.h"

/* Numbers of heartbeats: what a false one can do, and that a true one is never refused. */

enum { END, PEER };

static int hear(struct pair *p, unsigned r, const uint8_t *buf, size_t n)
{
	return dr_hb_receive(&p->h[END], r, buf, n, n, p->now);
}

/* A datagram to end e with the right MAC, as its peer would send it ahead_ns from now; echo: it reports our newest. */
static size_t forge(
	struct pair *p, unsigned e, unsigned r, int64_t ahead_ns, bool echo, uint8_t *buf)
{
	struct dr_hb f = p->h[!e];

	f.sent_ns = p->now + ahead_ns;
	if (echo)
		f.rail[r].rx_tick = p->h[e].tick;
	else
		for (unsigned i = 0; i < 2; i++)
			f.rail[i].rx_tick = 0;
	return dr_hb_make(&f, r, 0, buf);
}

static bool all_up(const struct pair *p)
{
	for (unsigned e = 0; e < 2; e++)
		for (unsigned r = 0; r < 2; r++)
			if (p->h[e].d.rail[r].down || dr_detect_missed(&p->h[e].d, r) > 0)
				return false;
	return true;
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

static void a_number_too_far_ahead_is_refused(void **state)
{
	static const int64_t ahead[] = { DR_HB_AHEAD_NS + DR_NS_PER_S, 60 * DR_NS_PER_S,
		1000000 * DR_NS_PER_S, (int64_t)UINT32_MAX << 24 };
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];

	for (unsigned i = 0; i < 20; i++)
		half_round(p);
	for (unsigned echo = 0; echo < 2; echo++)
		for (unsigned i = 0; i < DR_ARRAY_LEN(ahead); i++)
			for (unsigned r = 0; r < 2; r++) {
				size_t n = forge(p, END, r, ahead[i], echo, buf);

				assert_int_equal(hear(p, r, buf, n), -EPROTO);
			}
	for (unsigned i = 0; i < 100; i++) {
		half_round(p); /* deliver() finds that nothing true is refused */
		assert_true(all_up(p));
	}
}

/* Without delivery's check: what is refused is refused. */
static void send_all(struct pair *p, int64_t ns)
{
	p->now += ns;
	for (unsigned e = 0; e < 2; e++) {
		dr_hb_tick(&p->h[e], 0, p->now, &p->out[e]);
		for (unsigned r = 0; r < 2; r++) {
			uint8_t buf[DR_DGRAM_MAX];

			if (!(p->out[e].send & (1u << r)))
				continue;
			size_t n = dr_hb_make(&p->h[e], r, 0, buf);
			(void)dr_hb_receive(&p->h[!e], r, buf, n, n, p->now);
		}
	}
}

/* The furthest that is taken, to one end or both, on both rails, with a report or without, for a while. The true numbers
 * are heard again when that is over and as much time, and DR_HB_AHEAD_NS, has passed. */
static void false_numbers_end_with_time(void **state)
{
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];
	unsigned taken = 0;
	int64_t until;

	for (unsigned ends = 1; ends <= 3; ends++)
		for (unsigned times = 1; times <= 64; times *= 8) {
			int64_t begin = p->now;

			for (unsigned i = 0; i < 20; i++)
				half_round(p);
			for (unsigned i = 0; i < times; i++) {
				for (unsigned k = 0; k < 4; k++) {
					int64_t ahead = DR_HB_AHEAD_NS *
							(i + 2); /* the furthest that is taken */
					unsigned e = k & 1, r = k >> 1;

					for (int rc = -1; rc && ahead > 0 && (ends >> e & 1);
						ahead -= DR_NS_PER_S / 10) {
						size_t n = forge(p, e, r, ahead, i & 1, buf);

						rc = dr_hb_receive(&p->h[e], r, buf, n, n, p->now);
						taken += rc == 0;
					}
				}
				send_all(p, T / 4);
			}
			until = p->now + (p->now - begin) + DR_HB_AHEAD_NS + 2 * DR_HB_REFRESH_NS;
			while (p->now < until)
				send_all(p, T / 2);
			for (unsigned i = 0; i < 200; i++) {
				half_round(p);
				assert_true(all_up(p));
			}
		}
	assert_true(taken >= 12);
}

/* Bytes replace datagrams for days: the bound is as tight as ever, since a datagram is sent each second. */
static void a_busy_rail_refreshes_the_bound(void **state)
{
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];
	unsigned sent = p->sent;

	for (unsigned i = 0; i < 100 * 3600; i++) {
		p->now += T;
		for (unsigned e = 0; e < 2; e++) {
			dr_hb_tick(&p->h[e], 3, p->now, &p->out[e]);
			for (unsigned r = 0; r < 2; r++) {
				hear_bytes(p, e, r);
				if (p->out[e].send & (1u << r))
					deliver(p, e, r, 0);
			}
		}
	}
	assert_in_range(p->sent - sent, 4 * 3500, 4 * 3700);
	size_t n = forge(p, END, 0, DR_HB_AHEAD_NS + 3 * DR_HB_REFRESH_NS, true, buf);
	assert_int_equal(hear(p, 0, buf, n), -EPROTO);
}

/* deliver() finds that nothing is refused. */
static void true_numbers_are_never_refused(void **state)
{
	static const int64_t silence[] = { 10 * DR_NS_PER_MS, DR_NS_PER_S, 60 * DR_NS_PER_S,
		3600 * DR_NS_PER_S, 100 * 3600 * DR_NS_PER_S };
	struct pair *p = *state;

	for (unsigned k = 0; k < 5 * DR_ARRAY_LEN(silence); k++) {
		int64_t ns = silence[k % DR_ARRAY_LEN(silence)], end;

		for (unsigned i = 0; i < 30; i++)
			half_round(p);
		switch (k / DR_ARRAY_LEN(silence)) {
		case 0: /* the peer is stopped, or this end: it hears nothing, and ticks later */
		case 1:
			p->stopped[k / DR_ARRAY_LEN(silence)] = true;
			end = p->now + DR_MIN(ns, 60 * DR_NS_PER_S);
			while (p->now < end)
				half_round(p);
			p->now = DR_MAX(p->now, end - 60 * DR_NS_PER_S + ns);
			p->stopped[0] = p->stopped[1] = false;
			break;
		case 2: /* both rails are cut */
			p->cut[0] = p->cut[1] = 3;
			end = p->now + DR_MIN(ns, 60 * DR_NS_PER_S);
			while (p->now < end)
				half_round(p);
			p->cut[0] = p->cut[1] = 0;
			break;
		case 3: /* bytes replace datagrams for a long time */
			p->now += ns;
			break;
		default: /* the host of this end stands, and its clock with it: the peer's seems to jump */
			if (k % DR_ARRAY_LEN(silence) == 2)
				p->h[PEER].start_ns -= DR_HB_AHEAD_NS - DR_NS_PER_S / 2;
			break;
		}
	}
	assert_int_equal(p->h[0].refused + p->h[1].refused, 0);
}

/* However long the clock of this host stood: the peer is heard again soon. */
static void a_clock_that_stood_makes_nobody_deaf(void **state)
{
	static const int64_t stood[] = { DR_NS_PER_S, 10 * DR_NS_PER_S, 3600 * DR_NS_PER_S,
		30 * 24 * 3600 * DR_NS_PER_S };
	struct pair *p = *state;

	for (unsigned k = 0; k < DR_ARRAY_LEN(stood); k++) {
		p->h[PEER].start_ns -= stood[k]; /* the peer's clock seems to jump */
		for (int64_t end = p->now + DR_HB_FAR_NS + 4 * T; p->now < end;)
			send_all(p, T / 2);
		for (unsigned i = 0; i < 100; i++) {
			half_round(p);
			assert_true(all_up(p));
		}
	}
}

/* Meanwhile no rail rises here, whatever bytes come on it: the peer must not use one that is
 * down. */
static void a_rail_that_cannot_rise_is_reported_down(void **state)
{
	struct pair *p = *state;

	for (unsigned i = 0; i < 20; i++)
		half_round(p);
	dr_detect_force_down(&p->h[END].d, 1, false);
	p->h[END].d.rail[1].peer_miss = DR_DETECT_DOWN; /* the last that it took */
	p->h[PEER].start_ns -= 10 * DR_NS_PER_S;
	for (unsigned i = 0; i < 20; i++) {
		hear_bytes(p, END, 1);
		send_all(p, T / 2);
		assert_true(i < 4 || p->h[PEER].d.rail[1].peer_miss == DR_DETECT_DOWN);
	}
	assert_true(p->h[END].far_ns != 0);
	for (unsigned i = 0; i < 100; i++)
		send_all(p, T / 2);
	assert_true(all_up(p));
}

/* Numbers beyond the bound for a long time, with right reports. Bytes replace the true ones but when this end asks. */
static void true_numbers_keep_false_ones_out(void **state)
{
	struct pair *p = *state;
	uint8_t buf[DR_DGRAM_MAX];

	for (unsigned i = 0; i < 600; i++) {
		size_t n = forge(p, END, 0, 3600 * DR_NS_PER_S, true, buf);

		assert_int_equal(hear(p, 0, buf, n), -EPROTO);
		p->now += T;
		for (unsigned e = 0; e < 2; e++) {
			dr_hb_tick(&p->h[e], 3, p->now, &p->out[e]);
			for (unsigned r = 0; r < 2; r++) {
				hear_bytes(p, e, r);
				if (p->out[e].send & (1u << r))
					deliver(p, e, r, 0);
			}
		}
	}
	assert_true(all_up(p));
}

/* Of what was sent before, all of it and in any order, nothing is taken and nothing is disproved. */
static void what_was_recorded_proves_nothing(void **state)
{
	enum { RECORDED = 600 };
	static uint8_t old[RECORDED][DR_DGRAM_MAX];
	struct pair *p = *state;
	size_t len[RECORDED];

	for (unsigned i = 0; i < RECORDED; i++) {
		bool lost = dr_rng_chance(&p->rng, 1, 3);

		if (i % 8 == 0)
			send_all(p, T / 2);
		len[i] = dr_hb_make(&p->h[PEER], i & 1, 0, old[i]);
		if (!lost)
			(void)hear(p, i & 1, old[i], len[i]);
	}
	for (unsigned i = 0; i < 20; i++)
		half_round(p);
	for (unsigned i = 0; i < 20 * RECORDED; i++) {
		unsigned k = (unsigned)dr_rng_below(&p->rng, RECORDED);

		assert_int_equal(hear(p, k & 1, old[k], len[k]), -EPROTO);
		if (i % 100 == 0)
			half_round(p);
	}
	assert_true(all_up(p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(keys_are_of_this_use_and_direction, setup),
		cmocka_unit_test_setup(a_number_too_far_ahead_is_refused, setup),
		cmocka_unit_test_setup(false_numbers_end_with_time, setup),
		cmocka_unit_test_setup(a_busy_rail_refreshes_the_bound, setup),
		cmocka_unit_test_setup(true_numbers_are_never_refused, setup),
		cmocka_unit_test_setup(a_clock_that_stood_makes_nobody_deaf, setup),
		cmocka_unit_test_setup(a_rail_that_cannot_rise_is_reported_down, setup),
		cmocka_unit_test_setup(true_numbers_keep_false_ones_out, setup),
		cmocka_unit_test_setup(what_was_recorded_proves_nothing, setup),
	};

	return cmocka_run_group_tests_name("heartbeat_number", tests, NULL, NULL);
}
