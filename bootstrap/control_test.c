/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "bootstrap/control.h"
#include "bootstrap/handles.h"

#include <errno.h>
#include <sodium.h>

#define MS DR_NS_PER_MS

/* ---- messages across connections ---------------------------------------------------------- */

/* One end of a session: control, and the conversation of the connection of the moment. */
struct side {
	struct dr_control control;
	struct dr_conv conv;
	bool has_conv;
	unsigned wakes;
	int64_t now; /* this end's clock */
	unsigned got, want_next;
	bool broken;
};

static void count_wake(void *arg)
{
	((struct side *)arg)->wakes++;
}

static void side_init(struct side *s)
{
	struct dr_boot_timing t = { 0 };
	memset(s, 0, sizeof(*s));
	dr_boot_timing_complete(&t);
	dr_control_init(&s->control, &t, count_wake, s);
	s->control.has_ids = true;
	s->control.state = DR_BOOT_READY;
	s->now = DR_NS_PER_S;
	s->want_next = 1;
}

static void side_disconnect(struct side *s)
{
	if (!s->has_conv)
		return;
	dr_control_detach(&s->control);
	dr_conv_fini(&s->conv);
	s->has_conv = false;
}

static void side_fini(struct side *s)
{
	side_disconnect(s);
	dr_control_reset(&s->control);
}

static void on_event(struct side *s, const struct dr_conv_event *ev)
{
	switch (ev->kind) {
	case DR_CONV_IDENTIFIED:
		s->broken |= dr_control_attach(
				     &s->control, &s->conv, s->conv.peer.last_seq, s->now) != 0;
		assert_int_equal(dr_conv_welcome(&s->conv, s->control.mail.received, s->now), 0);
		dr_control_flush(&s->control);
		break;
	case DR_CONV_OPENED:
		s->broken |= dr_control_attach(&s->control, &s->conv, ev->seq, s->now) != 0;
		break;
	case DR_CONV_FRAME:
		switch (dr_control_frame(&s->control, ev, s->now)) {
		case DR_CONTROL_MESSAGE: {
			json_int_t i = json_integer_value(json_object_get(ev->json, "i"));
			assert_int_equal(i, s->want_next);
			s->want_next++;
			s->got++;
			break;
		}
		case DR_CONTROL_BROKEN:
			s->broken = true;
			break;
		default:
			break;
		}
		break;
	case DR_CONV_NOTHING:
		break;
	default:
		s->broken = true;
	}
	dr_mailbox_validate(&s->control.mail);
}

static void side_feed(struct side *s, const uint8_t *data, size_t len)
{
	struct dr_conv_event ev;
	do {
		size_t n = dr_conv_feed(&s->conv, data, len, s->now, &ev);
		on_event(s, &ev);
		data += n;
		len -= n;
	} while (len > 0 || ev.kind != DR_CONV_NOTHING);
	dr_control_flush(&s->control);
}

/* At most max bytes from a to b; what a connection holds in flight is lost with it. */
static size_t transfer(struct side *a, struct side *b, size_t max)
{
	const uint8_t *data;
	uint8_t copy[256];
	size_t n = dr_conv_output(&a->conv, &data);
	n = DR_MIN(DR_MIN(n, max), sizeof(copy));
	if (n == 0)
		return 0;
	memcpy(copy, data, n);
	dr_conv_sent(&a->conv, n, a->now);
	side_feed(b, copy, n);
	return n;
}

static void connect_sides(struct side *c, struct side *s, struct dr_rng *r)
{
	struct dr_conv_opts o = { .role = DR_CONV_CLIENT, .stage_ns = DR_NS_PER_S };
	side_disconnect(c);
	side_disconnect(s);
	o.hello.purpose = DR_CONV_RESUME;
	o.hello.last_seq = c->control.mail.received;
	o.hello.nonce[0] = (uint8_t)dr_rng_u64(r);
	o.ephemeral[0] = 1;
	assert_int_equal(dr_conv_init(&c->conv, &o, c->now), 0);
	o.role = DR_CONV_SERVER;
	o.hello.purpose = 0;
	o.hello.last_seq = 0;
	assert_int_equal(dr_conv_init(&s->conv, &o, s->now), 0);
	c->has_conv = s->has_conv = true;
}

static void say(struct side *s, unsigned i)
{
	json_t *j = json_pack("{s:i}", "i", (int)i);
	assert_int_equal(dr_control_send(&s->control, j), 0);
	json_decref(j);
}

static void random_cuts(uint64_t seed)
{
	enum { MESSAGES = 60 };
	struct side c, s;
	struct dr_rng r;
	dr_rng_seed(&r, seed);
	side_init(&c);
	side_init(&s);
	connect_sides(&c, &s, &r);
	unsigned said_c = 0, said_s = 0, cuts = 0;
	for (unsigned step = 0; step < 100000; step++) {
		if (said_c == MESSAGES && said_s == MESSAGES && c.got == MESSAGES &&
			s.got == MESSAGES && c.control.mail.count == 0 && s.control.mail.count == 0)
			break;
		if (said_c < MESSAGES && dr_rng_chance(&r, 1, 8))
			say(&c, ++said_c);
		if (said_s < MESSAGES && dr_rng_chance(&r, 1, 8))
			say(&s, ++said_s);
		if (cuts < 300 && dr_rng_chance(&r, 1, 25)) {
			cuts++;
			connect_sides(&c, &s, &r);
		}
		if (dr_rng_chance(&r, 1, 2))
			transfer(&c, &s, 1 + dr_rng_below(&r, 90));
		else
			transfer(&s, &c, 1 + dr_rng_below(&r, 90));
		if (c.broken || s.broken)
			break;
	}
	if (c.broken || s.broken || c.got != MESSAGES || s.got != MESSAGES ||
		c.control.mail.count || s.control.mail.count)
		fail_msg("DR_SEED=%llu: client got %u, server got %u of %d; broken: %s%s",
			(unsigned long long)seed, c.got, s.got, MESSAGES,
			c.broken ? c.conv.err.text : "", s.broken ? s.conv.err.text : "");
	side_fini(&c);
	side_fini(&s);
}

static void neither_lost_nor_doubled(void **state)
{
	(void)state;
	const char *one = getenv("DR_SEED");
	if (one) {
		random_cuts(strtoull(one, NULL, 0));
		return;
	}
	uint64_t start;
	assert_int_equal(dr_random_bytes(&start, sizeof(start)), 0);
	for (uint64_t i = 0; i < 300; i++)
		random_cuts(i < 100 ? i : start + i);
}

static void numbers_that_do_not_fit(void **state)
{
	(void)state;
	struct dr_mailbox m;
	dr_mailbox_init(&m);
	for (int i = 0; i < 3; i++)
		assert_int_equal(dr_mailbox_post(&m, DR_CONV_FRAME_MESSAGE, "{}", 2, false), 0);
	assert_int_equal(dr_mailbox_ack(&m, 1), -EPROTO); /* nothing was sent yet */
	dr_mailbox_sent(&m);
	dr_mailbox_sent(&m);
	assert_int_equal(dr_mailbox_ack(&m, 3), -EPROTO);
	assert_int_equal(dr_mailbox_ack(&m, 2), 0);
	assert_int_equal(dr_mailbox_ack(&m, 1), -EPROTO);
	assert_int_equal(dr_mailbox_ack(&m, 2), 0);
	assert_int_equal(m.count, 1);
	assert_int_equal(dr_mailbox_resume(&m, 1), -EPROTO);
	assert_int_equal(dr_mailbox_resume(&m, 3), -EPROTO);
	assert_int_equal(dr_mailbox_resume(&m, 2), 0);
	assert_int_equal(dr_mailbox_unsent(&m)->seq, 3);
	assert_int_equal(dr_mailbox_receive(&m, 2), -EPROTO);
	assert_int_equal(dr_mailbox_receive(&m, 1), 0);
	assert_int_equal(dr_mailbox_receive(&m, 1), -EPROTO);
	assert_int_equal(dr_mailbox_receive(&m, 3), -EPROTO);
	dr_mailbox_validate(&m);
	dr_mailbox_fini(&m);
}

static void sending_is_bounded(void **state)
{
	(void)state;
	struct side s;
	side_init(&s);
	json_t *list = json_array(), *obj = json_object(), *big;
	unsigned n = 0;
	int rc;
	assert_int_equal(dr_control_send(&s.control, list), -EINVAL);
	s.control.state = DR_BOOT_OFFERED;
	assert_int_equal(dr_control_send(&s.control, obj), -ENOTCONN);
	s.control.state = DR_BOOT_LOST;
	while ((rc = dr_control_send(&s.control, obj)) == 0)
		n++;
	assert_int_equal(rc, -ENOBUFS);
	assert_int_equal(n, DR_MAILBOX_MESSAGES_MAX);
	assert_int_equal(dr_control_unacked(&s.control), n);
	dr_mailbox_fini(&s.control.mail);
	char *text = malloc(DR_BOOT_MESSAGE_BYTES_MAX + 1);
	memset(text, 'x', DR_BOOT_MESSAGE_BYTES_MAX);
	text[DR_BOOT_MESSAGE_BYTES_MAX] = 0;
	big = json_pack("{s:s}", "t", text);
	assert_int_equal(dr_control_send(&s.control, big), -EMSGSIZE);
	json_decref(big);
	text[DR_BOOT_MESSAGE_BYTES_MAX - 8] = 0; /* {"t":""} */
	big = json_pack("{s:s}", "t", text);
	for (n = 0; (rc = dr_control_send(&s.control, big)) == 0;)
		n++;
	assert_int_equal(rc, -ENOBUFS);
	assert_int_equal(n, DR_MAILBOX_BYTES_MAX / DR_BOOT_MESSAGE_BYTES_MAX);
	json_decref(big);
	json_decref(list);
	json_decref(obj);
	free(text);
	dr_control_goodbye(&s.control); /* has room even so */
	assert_int_equal(dr_control_unacked(&s.control), n + 1);
	side_fini(&s);
}

/* ---- liveness and clocks ------------------------------------------------------------------ */

static void pump_both(struct side *a, struct side *b)
{
	while (transfer(a, b, 256) + transfer(b, a, 256) > 0)
		;
}

static void silence(void **state)
{
	(void)state;
	struct side c, s;
	struct dr_rng r;
	dr_rng_seed(&r, 1);
	side_init(&c);
	side_init(&s);
	connect_sides(&c, &s, &r);
	pump_both(&c, &s);
	dr_control_heard(&c.control, c.now);
	int64_t heard = c.now;
	unsigned pings = 0;
	for (; c.now < heard + 2000 * MS; c.now += 10 * MS) {
		unsigned before = c.wakes;
		assert_false(dr_control_tick(&c.control, c.now));
		pings += c.wakes > before;
	}
	assert_int_equal(pings, 8); /* each 250 ms */
	assert_true(dr_control_deadline(&c.control) <= heard + 2000 * MS);
	assert_true(dr_control_tick(&c.control, heard + 2000 * MS));
	assert_int_equal(dr_control_quiet_since(&c.control), heard);
	/* One byte is a sign of life. */
	dr_control_heard(&c.control, c.now);
	assert_false(dr_control_tick(&c.control, c.now + 100 * MS));
	/* An end that slept itself does not blame the peer. */
	assert_int_equal(dr_control_quiet_since(&c.control), c.now);
	assert_false(dr_control_tick(&c.control, c.now + 60000 * MS));
	assert_int_equal(dr_control_quiet_since(&c.control), c.now + 60000 * MS);
	assert_false(dr_control_tick(&c.control, c.now + 60100 * MS));
	for (int64_t t = 60100; t < 62000; t += 100)
		assert_false(dr_control_tick(&c.control, c.now + t * MS));
	assert_true(dr_control_tick(&c.control, c.now + 62000 * MS));
	side_fini(&c);
	side_fini(&s);
}

static void ping_flood_is_bounded(void **state)
{
	(void)state;
	struct side c, s;
	struct dr_rng r;
	dr_rng_seed(&r, 1);
	side_init(&c);
	side_init(&s);
	connect_sides(&c, &s, &r);
	pump_both(&c, &s);
	const uint8_t *out;
	for (int i = 0; i < 100000; i++) { /* the peer never reads */
		assert_int_equal(dr_conv_send(&c.conv, DR_CONV_FRAME_PING, 0, "12345678", 8), 0);
		transfer(&c, &s, 256);
	}
	assert_true(dr_conv_output(&s.conv, &out) < 70000);
	side_fini(&c);
	side_fini(&s);
}

/* Random delays each way, an offset and a drift: the true offset is always inside the bound. */
static void clock_bound_holds(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct dr_control cs = { 0 };
		struct dr_rng r;
		dr_rng_seed(&r, seed);
		int64_t base = (int64_t)dr_rng_below(&r, 2000000000000) - 1000000000000;
		double drift = ((double)dr_rng_below(&r, 180) - 90) * 1e-6;
		int64_t own = 5000 * DR_NS_PER_S, start = own, off, err, best = INT64_MAX;
		assert_false(dr_control_clock(&cs, own, &off, &err));
		for (int i = 0; i < 200; i++) {
			own += (int64_t)dr_rng_below(&r, 250 * MS);
			int64_t d1 = 20000 + (int64_t)dr_rng_below(&r, i % 7 ? 3 * MS : 1000);
			int64_t d2 = 20000 + (int64_t)dr_rng_below(&r, i % 5 ? 3 * MS : 1000);
			int64_t at2 = own + d1, at4 = at2 + d2;
			int64_t true2 = base + (int64_t)(drift * (double)(at2 - start));
			if (base + at2 > 0)
				dr_clocksync_sample(&cs.clock, own, at2 + true2, at2 + true2, at4);
			own = at4;
			if (!dr_control_clock(&cs, own + 100 * MS, &off, &err))
				continue;
			int64_t now_true =
				base + (int64_t)(drift * (double)(own + 100 * MS - start));
			if (llabs(off - now_true) > err)
				fail_msg("DR_SEED=%llu step %d: offset %lld +- %lld, true %lld",
					(unsigned long long)seed, i, (long long)off, (long long)err,
					(long long)now_true);
			best = DR_MIN(best, err);
		}
		assert_true(
			best < 100000); /* min RTT/2 is 20 us, plus drift of 100 ms and the steps */
	}
}

static void clock_steps_and_lies(void **state)
{
	(void)state;
	struct dr_control cs = { 0 }, before;
	int64_t off, err;
	dr_clocksync_sample(&cs.clock, 1000, 5050, 5050, 1100);
	assert_true(dr_control_clock(&cs, 1100, &off, &err));
	assert_int_equal(off, 4000);
	assert_int_equal(err, 51); /* RTT/2 and one for rounding */
	/* The peer's host slept: a new start. */
	dr_clocksync_sample(&cs.clock, 2000, 905050, 905050, 2100);
	assert_true(dr_control_clock(&cs, 2100, &off, &err));
	assert_int_equal(off, 903000);
	assert_int_equal(err, 51);
	/* Impossible values change nothing. */
	before = cs;
	dr_clocksync_sample(&cs.clock, 3000, INT64_MAX, INT64_MAX, 3100);
	dr_clocksync_sample(&cs.clock, 3000, 5000, 4000, 3100);
	dr_clocksync_sample(&cs.clock, 3000, -1, 5, 3100);
	dr_clocksync_sample(
		&cs.clock, 3000, 1000, 900000, 3100); /* kept longer than the round trip */
	dr_clocksync_sample(&cs.clock, 3100, 5000, 5000, 3000);
	assert_memory_equal(&cs, &before, sizeof(cs));
}

/* ---- handles ------------------------------------------------------------------------------ */

static void handles_round_trip(void **state)
{
	(void)state;
	enum { N = 5 };
	struct dr_handle in[N], *out;
	struct dr_err e;
	memset(in, 0, sizeof(in));
	const uint8_t lens[N] = { 128, 0, 1, 64, 127 };
	for (int i = 0; i < N; i++) {
		in[i].len = lens[i];
		memset(in[i].bytes, 'a' + i, lens[i]);
	}
	uint8_t buf[1024];
	size_t len = dr_handles_encoded_len(in, N);
	assert_int_equal(dr_handles_encode(buf, len, 3, in, N), 0);
	unsigned k = 0;
	assert_int_equal(dr_handles_pair(buf, len, &k), 0);
	assert_int_equal(k, 3);
	assert_int_equal(dr_handles_decode(buf, len, 3, N, &out, &e), 0);
	assert_memory_equal(in, out, sizeof(in));
	dr_free(out);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(dr_handles_decode(buf, cut, 3, N, &out, &e), -EPROTO);
	assert_int_equal(dr_handles_decode(buf, len + 1, 3, N, &out, &e), -EPROTO);
	assert_int_equal(dr_handles_decode(buf, len, 2, N, &out, &e), -EPROTO);
	assert_int_equal(dr_handles_decode(buf, len, 3, N + 1, &out, &e), -EPROTO);
	assert_non_null(strstr(e.text, "received 5 handles of pair 3, expected 6 of pair 3"));
	buf[4] = DR_HANDLE_MAX + 1;
	assert_int_equal(dr_handles_decode(buf, len, 3, N, &out, &e), -EPROTO);
	in[0].len = DR_HANDLE_MAX + 1;
	assert_int_equal(dr_handles_encode(buf, sizeof(buf), 3, in, N), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(neither_lost_nor_doubled),
		cmocka_unit_test(numbers_that_do_not_fit),
		cmocka_unit_test(sending_is_bounded),
		cmocka_unit_test(silence),
		cmocka_unit_test(ping_flood_is_bounded),
		cmocka_unit_test(clock_bound_holds),
		cmocka_unit_test(clock_steps_and_lies),
		cmocka_unit_test(handles_round_trip),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
