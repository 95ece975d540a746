/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "transport/tcp/tcp_hs.h"

enum { CHANNEL = 7, INDEX = 1 };
static const uint8_t token[DR_TOKEN_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16 };
static const int64_t T0 = 1000;

/* The admission of one rail, and bytes for it. */
struct fix {
	struct tcp_admission a;
	uint8_t hello[TCP_HELLO_LEN];
};

static struct dr_path_ident ident(uint32_t gen, bool connector)
{
	return (struct dr_path_ident){ .channel = CHANNEL,
		.gen = gen,
		.index = INDEX,
		.sender = connector,
		.connector = connector };
}

static void begin(struct fix *f)
{
	dr_tcp_admission_init(&f->a, token);
}

static void acceptor(struct fix *f, struct tcp_hs *h, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, false);

	dr_tcp_hs_init(h, &f->a, &id);
}

/* The HELLO of a connector of this generation. */
static const uint8_t *hello(struct fix *f, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, true);
	struct tcp_hs h;

	dr_tcp_hs_init(&h, &f->a, &id);
	dr_tcp_hs_hello(&h, f->hello);
	return f->hello;
}

static unsigned connection(struct fix *f)
{
	bool evicted;
	unsigned slot = dr_tcp_admission_open(&f->a, true, T0, &evicted);

	assert_false(evicted);
	return slot;
}

static struct tcp_verdict says(struct fix *f, unsigned slot, const uint8_t *data, size_t len)
{
	struct tcp_verdict v = dr_tcp_admission_bytes(&f->a, slot, data, len, T0);

	assert_true(dr_tcp_admission_validate(&f->a));
	assert_int_equal(v.slot, slot);
	return v;
}

/* A connection that comes and says the HELLO of gen at once. */
static struct tcp_verdict comes(struct fix *f, uint32_t gen)
{
	return says(f, connection(f), hello(f, gen), TCP_HELLO_LEN);
}

static void both_ends_come_up_with_any_fragments(void **state)
{
	(void)state;
	for (unsigned step = 1; step <= TCP_HELLO_LEN; step++) {
		struct dr_path_ident id = ident(3, true);
		uint8_t bytes[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN + 1] = { 0 };
		struct tcp_verdict v = { .what = TCP_KEEP };
		struct tcp_hs con, acc;
		struct fix f;
		size_t used;
		unsigned slot, at;

		begin(&f);
		dr_tcp_hs_init(&con, &f.a, &id);
		acceptor(&f, &acc, 3);
		dr_tcp_hs_start(&con);
		dr_tcp_hs_start(&acc);
		assert_int_equal(con.state, TCP_HS_DIALLING);
		assert_int_equal(acc.state, TCP_HS_WAITING);
		dr_tcp_hs_hello(&con, bytes);
		dr_tcp_hs_greeted(&con);
		slot = connection(&f);
		for (at = 0; at < sizeof(bytes); at += step) {
			assert_int_equal(v.what, TCP_KEEP);
			assert_int_equal(dr_tcp_admission_want(&f.a, slot), sizeof(bytes) - at);
			v = says(&f, slot, bytes + at, DR_MIN(step, (unsigned)sizeof(bytes) - at));
		}
		assert_int_equal(v.what, TCP_ADMIT);
		assert_ptr_equal(v.to, &acc);
		assert_int_equal(acc.state, TCP_HS_ADMITTED);
		assert_int_equal(f.a.n, 0);
		dr_tcp_hs_welcome(&acc, ok);
		dr_tcp_hs_admitted(&acc);
		for (at = 0; at + step < TCP_HELLO_OK_LEN; at += step) {
			assert_int_equal(dr_tcp_hs_bytes(&con, ok + at, step, &used, NULL), 0);
			assert_int_equal(used, step);
		}
		/* the byte behind it is not the handshake's */
		assert_int_equal(dr_tcp_hs_bytes(&con, ok + at, sizeof(ok) - at, &used, NULL), 1);
		assert_int_equal(used, TCP_HELLO_OK_LEN - at);
		assert_int_equal(con.state, TCP_HS_UP);
		assert_int_equal(acc.state, TCP_HS_UP);
		dr_tcp_hs_fini(&acc);
		dr_tcp_hs_fini(&con);
		assert_null(f.a.acceptors);
	}
}

static void who_has_no_right_hello_is_rejected(void **state)
{
	struct tcp_hs acc;
	struct fix f;
	uint8_t b[TCP_HELLO_LEN];

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	for (unsigned i = 0; i < DR_TOKEN_LEN; i++) { /* each byte of the token counts */
		memcpy(b, hello(&f, 3), sizeof(b));
		b[sizeof(b) - 8 - DR_TOKEN_LEN + i] ^= 1;
		assert_int_equal(says(&f, connection(&f), b, sizeof(b)).what, TCP_REJECT);
	}
	memset(b, 'G', sizeof(b));
	assert_int_equal(says(&f, connection(&f), b, sizeof(b)).what, TCP_REJECT);
	assert_int_equal(f.a.n, 0);
	assert_int_equal(acc.state, TCP_HS_WAITING);
}

static void a_connection_goes_to_its_own_path_alone(void **state)
{
	static const struct dr_path_ident others[] = {
		{ .channel = CHANNEL + 1, .gen = 3, .index = INDEX },
		{ .channel = CHANNEL, .gen = 3, .index = !INDEX },
		{ .channel = CHANNEL, .gen = 2, .index = INDEX },
		{ .channel = CHANNEL, .gen = 3, .index = INDEX, .sender = true },
	};
	struct tcp_hs other[DR_ARRAY_LEN(others)], acc;
	struct tcp_verdict v;
	struct fix f;

	(void)state;
	begin(&f);
	for (unsigned i = 0; i < DR_ARRAY_LEN(others); i++) {
		dr_tcp_hs_init(&other[i], &f.a, &others[i]);
		dr_tcp_hs_start(&other[i]);
	}
	v = comes(&f, 3);
	assert_int_equal(v.what, TCP_PARKED);
	assert_int_equal(v.who.channel, CHANNEL);
	assert_int_equal(v.who.index, INDEX);
	assert_int_equal(v.who.gen, 3);
	for (unsigned i = 0; i < DR_ARRAY_LEN(others); i++) {
		assert_int_equal(other[i].state, TCP_HS_WAITING);
		assert_int_equal(dr_tcp_admission_claim(&f.a, &other[i]).what, TCP_KEEP);
	}
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	v = dr_tcp_admission_claim(&f.a, &acc);
	assert_int_equal(v.what, TCP_ADMIT);
	assert_ptr_equal(v.to, &acc);
	assert_int_equal(f.a.n, 0);
}

static void an_outdated_hello_is_dropped_in_every_state(void **state)
{
	struct tcp_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 5);
	assert_int_equal(comes(&f, 4).what, TCP_DROP); /* NEW */
	dr_tcp_hs_start(&acc);
	assert_int_equal(comes(&f, 4).what, TCP_DROP); /* WAITING */
	assert_int_equal(comes(&f, 5).what, TCP_ADMIT);
	assert_int_equal(comes(&f, 5).what, TCP_DROP); /* ADMITTED: the same again */
	dr_tcp_hs_admitted(&acc);
	assert_int_equal(comes(&f, 5).what, TCP_DROP); /* UP */
	dr_tcp_hs_end(&acc);
	assert_int_equal(comes(&f, 5).what, TCP_DROP); /* ENDED */
	assert_int_equal(f.a.n, 0);
	dr_tcp_hs_fini(&acc);
	assert_int_equal(comes(&f, 5).what, TCP_PARKED); /* nothing is known any more */
}

static void a_path_that_failed_adopts_nothing(void **state)
{
	struct tcp_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 5);
	dr_tcp_hs_start(&acc);
	dr_tcp_hs_end(&acc);
	assert_int_equal(comes(&f, 6).what, TCP_PARKED);
	assert_int_equal(comes(&f, 5).what, TCP_DROP);
	assert_int_equal(dr_tcp_admission_claim(&f.a, &acc).what, TCP_KEEP);
	assert_int_equal(f.a.n, 1);
}

static void one_hello_is_parked_for_a_path_that_of_the_highest_generation(void **state)
{
	struct tcp_verdict v;
	struct tcp_hs acc;
	struct fix f;
	int first, second;

	(void)state;
	begin(&f);
	v = comes(&f, 5);
	assert_int_equal(v.what, TCP_PARKED);
	first = v.slot;
	v = comes(&f, 4); /* overtaken by its successor */
	assert_int_equal(v.what, TCP_DROP);
	v = comes(&f, 6);
	assert_int_equal(v.what, TCP_PARKED);
	assert_int_equal(v.replaced, first);
	second = v.slot;
	v = comes(&f, 6); /* dialled again: the older connection is dead */
	assert_int_equal(v.what, TCP_PARKED);
	assert_int_equal(v.replaced, second);
	assert_int_equal(f.a.n, 1);

	acceptor(&f, &acc, 7); /* what is parked can never be adopted any more */
	dr_tcp_hs_start(&acc);
	v = dr_tcp_admission_claim(&f.a, &acc);
	assert_int_equal(v.what, TCP_DROP);
	assert_int_equal(f.a.n, 0);
	assert_int_equal(comes(&f, 8).what, TCP_PARKED); /* it belongs to a later path */
	assert_int_equal(dr_tcp_admission_claim(&f.a, &acc).what, TCP_KEEP);
	assert_int_equal(f.a.n, 1);
}

static void a_parked_connection_may_only_go_away(void **state)
{
	struct fix f;
	struct tcp_verdict v;

	(void)state;
	begin(&f);
	v = comes(&f, 5);
	assert_int_equal(dr_tcp_admission_want(&f.a, (unsigned)v.slot), 1);
	assert_int_equal(says(&f, (unsigned)v.slot, (const uint8_t *)"x", 1).what, TCP_DROP);
	v = comes(&f, 5);
	assert_int_equal(says(&f, (unsigned)v.slot, NULL, 0).what, TCP_DROP);
	assert_int_equal(f.a.n, 0);
}

static void slots_are_free_at_their_deadline(void **state)
{
	struct tcp_verdict v;
	struct fix f;
	unsigned slot;

	(void)state;
	begin(&f);
	assert_true(dr_tcp_admission_deadline(&f.a) == DR_NEVER);
	slot = connection(&f);
	assert_true(dr_tcp_admission_deadline(&f.a) == T0 + TCP_ADMIT_NS);
	v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS - 1);
	assert_int_equal(v.what, TCP_KEEP);
	/* a HELLO that is parked gets as much time again, and its end is no error */
	v = dr_tcp_admission_bytes(&f.a, slot, hello(&f, 2), TCP_HELLO_LEN, T0 + 9);
	assert_int_equal(v.what, TCP_PARKED);
	v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS + 8);
	assert_int_equal(v.what, TCP_KEEP);
	v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS + 9);
	assert_int_equal(v.what, TCP_DROP);
	for (unsigned said = 0; said < TCP_HELLO_LEN; said++) {
		slot = connection(&f);
		if (said > 0)
			says(&f, slot, hello(&f, 2), said);
		v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS);
		assert_int_equal(v.what, TCP_REJECT);
	}
	assert_int_equal(f.a.n, 0);
}

static void half_open_strangers_go_first_when_all_slots_are_taken(void **state)
{
	struct tcp_verdict v;
	struct fix f;
	bool evicted;
	unsigned first, second;

	(void)state;
	begin(&f);
	first = connection(&f);
	v = comes(&f, 2); /* the oldest but one, but with a right HELLO */
	assert_int_equal(v.what, TCP_PARKED);
	dr_tcp_admission_free(&f.a, first);
	first = connection(&f);
	second = connection(&f);
	while (f.a.n < TCP_PENDING_MAX)
		(void)connection(&f);
	assert_int_equal(dr_tcp_admission_open(&f.a, false, T0, &evicted), first);
	assert_true(evicted);
	assert_int_equal(dr_tcp_admission_open(&f.a, false, T0, &evicted), second);
	assert_true(evicted);
	assert_int_equal(f.a.n, TCP_PENDING_MAX);
	assert_true(f.a.slot[v.slot].used && f.a.slot[v.slot].parked);
	assert_true(dr_tcp_admission_validate(&f.a));
	dr_tcp_admission_free(&f.a, first);
	assert_int_equal(connection(&f), first);
}

static void a_dial_that_the_peer_gave_up_is_no_news(void **state)
{
	struct fix f;
	bool evicted;
	unsigned slot;

	(void)state;
	begin(&f);
	assert_int_equal(says(&f, connection(&f), NULL, 0).what, TCP_DROP);
	slot = connection(&f);
	says(&f, slot, (const uint8_t *)"D", 1);
	assert_int_equal(says(&f, slot, NULL, 0).what, TCP_REJECT);
	slot = dr_tcp_admission_open(&f.a, false, T0, &evicted);
	assert_int_equal(says(&f, slot, NULL, 0).what, TCP_REJECT);
}

static void the_connector_refuses_every_other_answer(void **state)
{
	(void)state;
	for (unsigned byte = 0; byte < TCP_HELLO_OK_LEN; byte++) {
		struct dr_path_ident id = ident(5, true);
		uint8_t ok[TCP_HELLO_OK_LEN];
		struct tcp_hs con;
		struct dr_err e;
		struct fix f;
		size_t used;

		begin(&f);
		dr_tcp_hs_init(&con, &f.a, &id);
		dr_tcp_hs_start(&con);
		dr_tcp_hs_greeted(&con);
		dr_tcp_hs_welcome(&con, ok);
		ok[byte] ^= 1;
		assert_int_equal(dr_tcp_hs_bytes(&con, ok, sizeof(ok), &used, &e), -EPROTO);
		assert_true(e.text[0] != '\0');
		assert_int_equal(con.state, TCP_HS_GREETING);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_come_up_with_any_fragments),
		cmocka_unit_test(who_has_no_right_hello_is_rejected),
		cmocka_unit_test(a_connection_goes_to_its_own_path_alone),
		cmocka_unit_test(an_outdated_hello_is_dropped_in_every_state),
		cmocka_unit_test(a_path_that_failed_adopts_nothing),
		cmocka_unit_test(one_hello_is_parked_for_a_path_that_of_the_highest_generation),
		cmocka_unit_test(a_parked_connection_may_only_go_away),
		cmocka_unit_test(slots_are_free_at_their_deadline),
		cmocka_unit_test(half_open_strangers_go_first_when_all_slots_are_taken),
		cmocka_unit_test(a_dial_that_the_peer_gave_up_is_no_news),
		cmocka_unit_test(the_connector_refuses_every_other_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
