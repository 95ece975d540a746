/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "transport/tcp/tcp_hs_testkit.h"

enum { CHANNEL = 7, INDEX = 1 };
static const uint8_t token[DR_TOKEN_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
	16 };
static const uint8_t secret[2][DR_KEY_LEN] = { { 1 }, { 2 } };
static const struct tcp_rail_handle place[2] = {
	{ .family = AF_INET, .addr = { 10, 0, 0, 1 }, .tcp_port = 1000, .udp_port = 1001 },
	{ .family = AF_INET, .addr = { 10, 0, 0, 2 }, .tcp_port = 1000, .udp_port = 1001 },
};
static const int64_t T0 = 1000;

/* The admission of an acceptor's rail, that of the connector's, and bytes for the former. */
struct fix {
	struct tcp_admission a, peer;
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

static void introduce(struct tcp_admission *a, const uint8_t key[DR_TOKEN_LEN], unsigned self)
{
	dr_tcp_admission_init(a, key, secret[self]);
	dr_tcp_place_set(&a->self, &place[self]);
	dr_tcp_place_set(&a->peer, &place[!self]);
}

static void begin(struct fix *f)
{
	introduce(&f->a, token, 0);
	introduce(&f->peer, token, 1);
}

static void acceptor(struct fix *f, struct tcp_hs *h, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, false);

	dr_tcp_hs_init(h, &f->a, &id);
}

/* A connector that the connection in this slot challenges. */
static void challenge(const struct fix *f, struct tcp_hs *h, unsigned slot)
{
	uint8_t bytes[TCP_CHALLENGE_LEN];
	size_t used;

	dr_tcp_hs_start(h);
	dr_tcp_admission_challenge(&f->a, slot, bytes);
	assert_int_equal(dr_tcp_hs_bytes(h, bytes, sizeof(bytes), &used, NULL), 1);
	assert_int_equal(used, sizeof(bytes));
	assert_int_equal(h->state, TCP_HS_CHALLENGED);
}

/* The HELLO of a connector of this generation to the connection in this slot. */
static const uint8_t *hello(struct fix *f, unsigned slot, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, true);
	struct tcp_hs h;

	dr_tcp_hs_init(&h, &f->peer, &id);
	challenge(f, &h, slot);
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
	unsigned slot = connection(f);

	return says(f, slot, hello(f, slot, gen), TCP_HELLO_LEN);
}

/* Both ends of a connection: HELLO said and admitted, HELLO_OK not sent. */
struct pair {
	struct fix f;
	struct tcp_hs con, acc;
	uint8_t hello[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN];
};

static void greet(struct pair *p, uint32_t gen)
{
	struct dr_path_ident id = ident(gen, true);
	unsigned slot;

	begin(&p->f);
	dr_tcp_hs_init(&p->con, &p->f.peer, &id);
	acceptor(&p->f, &p->acc, gen);
	dr_tcp_hs_start(&p->acc);
	slot = connection(&p->f);
	challenge(&p->f, &p->con, slot);
	dr_tcp_hs_hello(&p->con, p->hello);
	dr_tcp_hs_greeted(&p->con);
	assert_int_equal(says(&p->f, slot, p->hello, sizeof(p->hello)).what, TCP_ADMIT);
	dr_tcp_hs_welcome(&p->acc, p->ok);
}

/* These bytes in pieces of step; more: the last piece has one byte that is not the handshake's. */
static void hears(struct tcp_hs *con, const uint8_t *bytes, size_t len, size_t step, bool more)
{
	size_t at = 0, used;

	for (; at + step < len; at += step) {
		assert_int_equal(dr_tcp_hs_bytes(con, bytes + at, step, &used, NULL), 0);
		assert_int_equal(used, step);
	}
	assert_int_equal(dr_tcp_hs_bytes(con, bytes + at, len + more - at, &used, NULL), 1);
	assert_int_equal(used, len - at);
}

static void both_ends_come_up_with_any_fragments(void **state)
{
	(void)state;
	for (unsigned step = 1; step <= TCP_HELLO_LEN; step++) {
		struct dr_path_ident id = ident(3, true);
		uint8_t first[TCP_CHALLENGE_LEN + 1] = { 0 }, bytes[TCP_HELLO_LEN],
						  ok[TCP_HELLO_OK_LEN + 1] = { 0 };
		struct tcp_verdict v = { .what = TCP_KEEP };
		struct tcp_hs con, acc;
		struct fix f;
		unsigned slot, at;

		begin(&f);
		dr_tcp_hs_init(&con, &f.peer, &id);
		acceptor(&f, &acc, 3);
		dr_tcp_hs_start(&con);
		dr_tcp_hs_start(&acc);
		assert_int_equal(con.state, TCP_HS_DIALLING);
		assert_int_equal(acc.state, TCP_HS_WAITING);
		slot = connection(&f);
		dr_tcp_admission_challenge(&f.a, slot, first);
		hears(&con, first, TCP_CHALLENGE_LEN, step, true);
		assert_int_equal(con.state, TCP_HS_CHALLENGED);
		dr_tcp_hs_hello(&con, bytes);
		dr_tcp_hs_greeted(&con);
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
		hears(&con, ok, TCP_HELLO_OK_LEN, step, true);
		assert_int_equal(con.state, TCP_HS_UP);
		assert_int_equal(acc.state, TCP_HS_UP);
		dr_tcp_hs_fini(&acc);
		dr_tcp_hs_fini(&con);
		assert_null(f.a.acceptors);
	}
}

/* A connection says these bytes: it is rejected, and the acceptor waits on. */
static void is_rejected(
	struct fix *f, const struct tcp_hs *acc, unsigned slot, const uint8_t *bytes)
{
	struct tcp_verdict v = { .what = TCP_KEEP };

	for (unsigned at = 0; at < TCP_HELLO_LEN && v.what == TCP_KEEP; at++)
		v = says(f, slot, bytes + at, 1);
	assert_int_equal(v.what, TCP_REJECT);
	assert_true(v.why[0] != '\0');
	assert_int_equal(f->a.n, 0);
	assert_int_equal(acc->state, TCP_HS_WAITING);
}

static void who_has_no_right_hello_is_rejected(void **state)
{
	uint8_t b[TCP_HELLO_LEN], wrong[DR_TOKEN_LEN];
	struct tcp_hs acc;
	struct fix f;
	unsigned slot;

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	for (unsigned i = 0; i < DR_TOKEN_LEN; i++) { /* each byte of the token counts */
		memcpy(wrong, token, sizeof(wrong));
		wrong[i] ^= 1;
		introduce(&f.peer, wrong, 1);
		slot = connection(&f);
		is_rejected(&f, &acc, slot, hello(&f, slot, 3));
	}
	introduce(&f.peer, token, 1);
	for (unsigned i = 0; i < 8 * TCP_HELLO_LEN; i++) { /* and each bit of HELLO */
		slot = connection(&f);
		memcpy(b, hello(&f, slot, 3), sizeof(b));
		b[i / 8] ^= (uint8_t)(1u << i % 8);
		is_rejected(&f, &acc, slot, b);
	}
	memset(b, 'G', sizeof(b));
	is_rejected(&f, &acc, connection(&f), b);
	assert_int_equal(comes(&f, 3).what, TCP_ADMIT);
}

/* Each bit of the challenge that arrives counts: the connector either refuses it, or is refused. */
static void an_altered_challenge_admits_nobody(void **state)
{
	struct tcp_hs acc, con;
	struct fix f;

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	for (unsigned i = 0; i < 8 * TCP_CHALLENGE_LEN; i++) {
		struct dr_path_ident id = ident(3, true);
		uint8_t bytes[TCP_CHALLENGE_LEN], b[TCP_HELLO_LEN];
		unsigned slot = connection(&f);
		struct dr_err e;
		size_t used;

		dr_tcp_hs_init(&con, &f.peer, &id);
		dr_tcp_hs_start(&con);
		dr_tcp_admission_challenge(&f.a, slot, bytes);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		int rc = dr_tcp_hs_bytes(&con, bytes, sizeof(bytes), &used, &e);
		if (rc < 0) {
			assert_int_equal(rc, -EPROTO);
			assert_true(e.text[0] != '\0');
			dr_tcp_admission_free(&f.a, slot);
			continue;
		}
		dr_tcp_hs_hello(&con, b);
		is_rejected(&f, &acc, slot, b);
	}
}

/* What was recorded, on the same connection or another, of the same generation or another. */
static void a_recorded_hello_admits_nobody(void **state)
{
	uint8_t old[TCP_HELLO_LEN];
	struct tcp_hs acc;
	struct fix f;
	unsigned slot;

	(void)state;
	begin(&f);
	slot = connection(&f); /* one that did not arrive: its path waits for it still */
	memcpy(old, hello(&f, slot, 3), sizeof(old));
	dr_tcp_admission_free(&f.a, slot);
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	for (unsigned i = 0; i < 2 * TCP_PENDING_MAX; i++)
		is_rejected(&f, &acc, connection(&f), old);
	assert_int_equal(comes(&f, 3).what, TCP_ADMIT);
}

/* No two connections of a rail have the same nonce, nor those of another rail end, and HELLOs of one path differ. */
static void nonces_are_new(void **state)
{
	uint8_t c[3][TCP_CHALLENGE_LEN], h[2][TCP_HELLO_LEN];
	struct fix f, g;
	unsigned slot;

	(void)state;
	begin(&f);
	begin(&g);
	introduce(&g.a, token, 1);
	slot = connection(&f);
	dr_tcp_admission_challenge(&f.a, slot, c[0]);
	dr_tcp_admission_challenge(&g.a, connection(&g), c[2]);
	memcpy(h[0], hello(&f, slot, 3), TCP_HELLO_LEN);
	memcpy(h[1], hello(&f, slot, 3), TCP_HELLO_LEN);
	dr_tcp_admission_free(&f.a, slot);
	assert_int_equal(connection(&f), slot); /* the same slot */
	dr_tcp_admission_challenge(&f.a, slot, c[1]);
	for (unsigned i = 0; i < 3; i++)
		assert_memory_not_equal(c[i] + 8, c[(i + 1) % 3] + 8, TCP_NONCE_LEN);
	assert_memory_not_equal(h[0] + 16, h[1] + 16, TCP_NONCE_LEN);
}

/* The one who is dialled dials back, and sends what it gets: it is told nothing that it could use. */
static void nobody_is_admitted_by_its_own_words(void **state)
{
	struct dr_path_ident id = ident(3, true), back = {
		.channel = CHANNEL, .gen = 3, .index = INDEX, .sender = false
	};
	struct tcp_hs con, acc;
	uint8_t b[TCP_HELLO_LEN];
	struct fix f;
	unsigned slot;

	(void)state;
	begin(&f);
	/* An acceptor at the end that dials, for the same numbers and the other direction. */
	dr_tcp_hs_init(&acc, &f.peer, &back);
	dr_tcp_hs_start(&acc);
	dr_tcp_hs_init(&con, &f.peer, &id);
	struct fix own = { .a = f.peer };
	bool evicted;
	slot = dr_tcp_admission_open(&f.peer, true, T0, &evicted);
	own.a = f.peer;
	challenge(&own, &con, slot); /* its own challenge comes back to it */
	dr_tcp_hs_hello(&con, b);
	struct tcp_verdict v = dr_tcp_admission_bytes(&f.peer, slot, b, sizeof(b), T0);
	assert_int_equal(v.what, TCP_REJECT);
	assert_int_equal(acc.state, TCP_HS_WAITING);
}

/* A HELLO for the listener of another rail end of the same session. */
static void a_hello_is_for_one_listener(void **state)
{
	static const struct tcp_rail_handle elsewhere[] = {
		{ .family = AF_INET, .addr = { 10, 0, 0, 3 }, .tcp_port = 1000, .udp_port = 1001 },
		{ .family = AF_INET, .addr = { 10, 0, 0, 1 }, .tcp_port = 1002, .udp_port = 1001 },
	};
	struct tcp_hs acc;
	struct fix f;

	(void)state;
	begin(&f);
	acceptor(&f, &acc, 3);
	dr_tcp_hs_start(&acc);
	for (unsigned i = 0; i < DR_ARRAY_LEN(elsewhere); i++) {
		unsigned slot = connection(&f);

		dr_tcp_place_set(&f.peer.peer, &elsewhere[i]);
		is_rejected(&f, &acc, slot, hello(&f, slot, 3));
	}
}

static void another_version_is_named_at_once(void **state)
{
	uint8_t v2[8] = { 'D', 'R', 'T', 'H', 0, 2, 0, 0 };
	struct tcp_verdict v;
	struct dr_err e;
	struct fix f;
	size_t used;
	struct dr_path_ident id = ident(3, true);
	struct tcp_hs con;
	uint8_t bytes[TCP_CHALLENGE_LEN];
	unsigned slot;

	(void)state;
	begin(&f);
	slot = connection(&f);
	assert_int_equal(says(&f, slot, v2, 5).what, TCP_KEEP);
	v = says(&f, slot, v2 + 5, 1);
	assert_int_equal(v.what, TCP_REJECT);
	assert_non_null(strstr(v.why, "another version of the connection format (this end: 3)"));

	dr_tcp_hs_init(&con, &f.peer, &id);
	dr_tcp_hs_start(&con);
	dr_tcp_admission_challenge(&f.a, connection(&f), bytes);
	bytes[5]++;
	assert_int_equal(dr_tcp_hs_bytes(&con, bytes, sizeof(bytes), &used, &e), -EPROTO);
	assert_non_null(strstr(e.text, "another version of the connection format (this end: 3)"));
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
	v = dr_tcp_admission_bytes(&f.a, slot, hello(&f, slot, 2), TCP_HELLO_LEN, T0 + 9);
	assert_int_equal(v.what, TCP_PARKED);
	v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS + 8);
	assert_int_equal(v.what, TCP_KEEP);
	v = dr_tcp_admission_expire(&f.a, slot, T0 + TCP_ADMIT_NS + 9);
	assert_int_equal(v.what, TCP_DROP);
	for (unsigned said = 0; said < TCP_HELLO_LEN; said++) {
		slot = connection(&f);
		if (said > 0)
			says(&f, slot, hello(&f, slot, 2), said);
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

static void refuses(const struct tcp_hs *con, const uint8_t ok[TCP_HELLO_OK_LEN])
{
	struct tcp_hs h = *con;
	struct dr_err e;
	size_t used;

	assert_int_equal(dr_tcp_hs_bytes(&h, ok, TCP_HELLO_OK_LEN, &used, &e), -EPROTO);
	assert_true(e.text[0] != '\0');
	assert_int_equal(h.state, TCP_HS_GREETING);
}

static void the_connector_refuses_every_other_answer(void **state)
{
	uint8_t wrong[DR_TOKEN_LEN];
	struct pair p, other;
	size_t used;

	(void)state;
	greet(&p, 5);
	for (unsigned i = 0; i < 8 * TCP_HELLO_OK_LEN; i++) {
		p.ok[i / 8] ^= (uint8_t)(1u << i % 8);
		refuses(&p.con, p.ok);
		p.ok[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	for (unsigned i = 1; i <= 3;
		i++) { /* recorded: all is as here but for one nonce, or both */
		greet(&other, 5);
		other.f.a.nonces = i & 1 ? 7 : 0;
		other.f.peer.nonces = i & 2 ? 7 : 0;
		dr_tcp_hs_fini(&other.acc);
		acceptor(&other.f, &other.acc, 5);
		dr_tcp_hs_start(&other.acc);
		assert_int_equal(comes(&other.f, 5).what, TCP_ADMIT);
		dr_tcp_hs_welcome(&other.acc, other.ok);
		refuses(&p.con, other.ok);
	}
	memcpy(wrong, token, sizeof(wrong)); /* of one without the token */
	wrong[15] ^= 1;
	introduce(&p.f.peer, wrong, 1);
	refuses(&p.con, p.ok);
	introduce(&p.f.peer, token, 1);
	p.con.id.gen++; /* of a peer that proves the token and names another generation */
	refuses(&p.con, p.ok);
	p.con.id.gen--;
	assert_int_equal(dr_tcp_hs_bytes(&p.con, p.ok, sizeof(p.ok), &used, NULL), 1);
	assert_int_equal(p.con.state, TCP_HS_UP);
}

/* The acceptor answers with the connector's own proof, which covers the same. */
static void the_connectors_proof_is_not_the_acceptors(void **state)
{
	struct tcp_hello_ok ok = { .gen = 5 };
	uint8_t b[TCP_HELLO_OK_LEN];
	struct tcp_hello h;
	const char *why;
	struct pair p;

	(void)state;
	greet(&p, 5);
	assert_int_equal(dr_tcp_hello_parse(p.hello, sizeof(p.hello), &h, &why), 0);
	memcpy(ok.mac, h.mac, sizeof(ok.mac));
	dr_tcp_hello_ok_encode(&ok, b);
	refuses(&p.con, b);
	assert_memory_not_equal(p.f.a.hello_key, p.f.a.ok_key, DR_KEY_LEN);
	assert_memory_not_equal(p.f.a.hello_key, token, DR_KEY_LEN);
	assert_memory_not_equal(p.f.a.ok_key, token, DR_KEY_LEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_come_up_with_any_fragments),
		cmocka_unit_test(who_has_no_right_hello_is_rejected),
		cmocka_unit_test(an_altered_challenge_admits_nobody),
		cmocka_unit_test(a_recorded_hello_admits_nobody),
		cmocka_unit_test(nonces_are_new),
		cmocka_unit_test(nobody_is_admitted_by_its_own_words),
		cmocka_unit_test(a_hello_is_for_one_listener),
		cmocka_unit_test(another_version_is_named_at_once),
		cmocka_unit_test(a_connection_goes_to_its_own_path_alone),
		cmocka_unit_test(an_outdated_hello_is_dropped_in_every_state),
		cmocka_unit_test(a_path_that_failed_adopts_nothing),
		cmocka_unit_test(one_hello_is_parked_for_a_path_that_of_the_highest_generation),
		cmocka_unit_test(a_parked_connection_may_only_go_away),
		cmocka_unit_test(slots_are_free_at_their_deadline),
		cmocka_unit_test(half_open_strangers_go_first_when_all_slots_are_taken),
		cmocka_unit_test(a_dial_that_the_peer_gave_up_is_no_news),
		cmocka_unit_test(the_connector_refuses_every_other_answer),
		cmocka_unit_test(the_connectors_proof_is_not_the_acceptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
