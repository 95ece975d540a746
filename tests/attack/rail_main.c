/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/frame.h"
#include "channel/heartbeat.h"
#include "transport/tcp/tcp_hs.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/*
 * rail_main handshake|heartbeats|control [all]
 *
 * What crosses a rail before and beside data, both ends in memory, and what a man in the middle or a stranger makes of it:
 *
 *   handshake    CHALLENGE, HELLO and HELLO_OK of a TCP data connection. Each byte of either direction is altered (its lowest
 *                and its highest bit; all: to every other value), dropped, doubled, swapped with the next. A HELLO or
 *                HELLO_OK is replayed, sent back, or made with another token. Unnoticed: an end comes up
 *   heartbeats   the datagrams of both ends, altered, cut, repeated, late, sent back, of another rail, with another token
 *   control      control datagrams, in the same way; a repeated one is allowed, since all of them are idempotent
 *
 * Prints "RUNS changes, UNNOTICED unnoticed". Status 0, whatever the counts are.
 */
enum { STREAM_MAX = 256, CHANNEL = 7, WAYS = 2 };
static const int64_t T0 = DR_NS_PER_S, T = 10 * DR_NS_PER_MS;
static const uint8_t token[DR_TOKEN_LEN] = "0123456789abcde",
		     other[DR_TOKEN_LEN] = "0123456789abcdf";
static const struct tcp_rail_handle place[WAYS] = {
	{ .family = AF_INET, .addr = { 10, 0, 0, 1 }, .tcp_port = 1000, .udp_port = 1001 },
	{ .family = AF_INET, .addr = { 10, 0, 0, 2 }, .tcp_port = 1000, .udp_port = 1001 },
};

struct count {
	unsigned runs, unnoticed;
};

static void judge(struct count *n, bool bad)
{
	n->runs++;
	n->unnoticed += bad;
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "rail_main: %s\n", what);
	exit(3);
}

/* ---- changes of a stream ----------------------------------------------------------------------------- */

enum op { OP_NONE, OP_ALTER, OP_DROP, OP_REPEAT, OP_SWAP, OPS };
struct change {
	enum op op;
	unsigned way; /* 0: of the acceptor */
	size_t at;
	uint8_t bits;
};

struct stream {
	uint8_t bytes[STREAM_MAX];
	size_t len;
};

static void append(struct stream *s, const uint8_t *p, size_t n)
{
	must(s->len + n < STREAM_MAX, "a long handshake");
	memcpy(s->bytes + s->len, p, n);
	s->len += n;
}

/* What becomes of the bytes p at offset `start` of their direction. */
static void pass(const struct change *c, unsigned way, size_t start, const uint8_t *p, size_t n,
	struct stream *out)
{
	size_t at = c->at - start;

	if (c->op == OP_NONE || way != c->way || c->at < start || at >= n) {
		append(out, p, n);
		return;
	}
	append(out, p, at);
	if (c->op == OP_ALTER)
		append(out, &(uint8_t){ p[at] ^ c->bits }, 1);
	if (c->op == OP_REPEAT)
		append(out, (uint8_t[]){ p[at], p[at] }, 2);
	if (c->op == OP_SWAP && at + 1 < n)
		append(out, (uint8_t[]){ p[at + 1], p[at] }, 2);
	at += c->op == OP_SWAP ? 2 : 1;
	if (at < n)
		append(out, p + at, n - at);
}

/* ---- the handshake of a data connection ---------------------------------------------------------------- */

struct pair {
	struct tcp_admission rail[WAYS]; /* 0: of the acceptor */
	struct tcp_hs con, acc;
	uint8_t challenge[TCP_CHALLENGE_LEN], hello[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN];
	bool admitted;
};

static struct dr_path_ident ident(bool connector)
{
	return (struct dr_path_ident){
		.channel = CHANNEL, .gen = 3, .sender = connector, .connector = connector
	};
}

static void introduce(struct pair *p, const uint8_t *own, const uint8_t *peers, uint8_t nonces)
{
	const uint8_t secret[WAYS][DR_KEY_LEN] = { { nonces, 1 }, { nonces, 2 } };
	struct dr_path_ident id[WAYS] = { ident(false), ident(true) };

	memset(p, 0, sizeof(*p));
	for (unsigned i = 0; i < WAYS; i++) {
		dr_tcp_admission_init(&p->rail[i], i ? peers : own, secret[i]);
		dr_tcp_place_set(&p->rail[i].self, &place[i]);
		dr_tcp_place_set(&p->rail[i].peer, &place[!i]);
	}
	dr_tcp_hs_init(&p->acc, &p->rail[0], &id[0]);
	dr_tcp_hs_init(&p->con, &p->rail[1], &id[1]);
	dr_tcp_hs_start(&p->acc);
	dr_tcp_hs_start(&p->con);
}

static unsigned accepts(struct pair *p)
{
	bool evicted;
	unsigned slot = dr_tcp_admission_open(&p->rail[0], true, T0, &evicted);

	dr_tcp_admission_challenge(&p->rail[0], slot, p->challenge);
	return slot;
}

/* The connector reads until its state no longer is `state`. Bytes that it does not take stay in s. */
static void hears(struct tcp_hs *h, enum tcp_hs_state state, struct stream *s)
{
	size_t used = 0;

	if (h->state != state || dr_tcp_hs_bytes(h, s->bytes, s->len, &used, NULL) < 0) {
		dr_tcp_hs_end(h);
		return;
	}
	memmove(s->bytes, s->bytes + used, s->len - used);
	s->len -= used;
}

static void says(struct pair *p, unsigned slot, const struct stream *s)
{
	size_t n = DR_MIN((size_t)TCP_HELLO_LEN, s->len);
	struct tcp_verdict v = dr_tcp_admission_bytes(&p->rail[0], slot, s->bytes, n, T0);

	p->admitted = v.what == TCP_ADMIT;
	if (v.what == TCP_KEEP)
		(void)dr_tcp_admission_expire(&p->rail[0], slot, T0 + 2 * TCP_ADMIT_NS);
}

/* Bit 0: the acceptor has admitted the connection; bit 1: the connector is up. */
static unsigned connect_with(struct pair *p, const struct change *c)
{
	struct stream to_con = { .len = 0 }, to_acc = { .len = 0 };
	unsigned slot = accepts(p);

	pass(c, 0, 0, p->challenge, sizeof(p->challenge), &to_con);
	hears(&p->con, TCP_HS_DIALLING, &to_con);
	if (p->con.state != TCP_HS_CHALLENGED)
		return 0;
	dr_tcp_hs_hello(&p->con, p->hello);
	dr_tcp_hs_greeted(&p->con);
	pass(c, 1, 0, p->hello, sizeof(p->hello), &to_acc);
	says(p, slot, &to_acc);
	if (!p->admitted)
		return 0;
	dr_tcp_hs_welcome(&p->acc, p->ok);
	pass(c, 0, sizeof(p->challenge), p->ok, sizeof(p->ok), &to_con);
	hears(&p->con, TCP_HS_GREETING, &to_con);
	return 1u | (p->con.state == TCP_HS_UP ? 2u : 0);
}

/* HELLO changed: the acceptor must not admit it; the others: the connector must not come up. Behind the last byte of
 * HELLO and of HELLO_OK the path's own bytes begin. */
static void one_change(struct count *n, const struct change *c)
{
	struct pair p;
	size_t ends = c->way ? TCP_HELLO_LEN : TCP_CHALLENGE_LEN + TCP_HELLO_OK_LEN;
	const uint8_t *at;

	introduce(&p, token, token, 1);
	unsigned up = connect_with(&p, c);
	bool last = c->at + 1 == ends || (!c->way && c->at + 1 == TCP_CHALLENGE_LEN);

	if ((c->op == OP_REPEAT && c->at + 1 == ends) || (c->op == OP_SWAP && last))
		return;
	at = c->way			 ? p.hello + c->at
	     : c->at < TCP_CHALLENGE_LEN ? p.challenge + c->at
					 : p.ok + c->at - TCP_CHALLENGE_LEN;
	if (c->op == OP_SWAP && at[0] == at[1])
		return;
	judge(n, c->way ? up != 0 : (up & 2u) != 0);
}

static void handshake_bytes(struct count *n, bool all)
{
	for (struct change c = { .op = OP_ALTER }; c.op < OPS; c.op++)
		for (c.way = 0; c.way < WAYS; c.way++)
			for (c.at = 0; c.at < (c.way ? (size_t)TCP_HELLO_LEN
						     : TCP_CHALLENGE_LEN + TCP_HELLO_OK_LEN);
				c.at++)
				for (unsigned bits = 1; bits < (c.op == OP_ALTER ? 256 : 2);
					bits++) {
					c.bits = (uint8_t)bits;
					if (all || bits == 1 || bits == 0x80)
						one_change(n, &c);
				}
}

static void handshake_replays(struct count *n)
{
	static const struct change none = { .op = OP_NONE };
	struct pair old, p;
	struct stream s;

	introduce(&old, token, token, 1);
	must(connect_with(&old, &none) == 3, "the handshake fails without an attack");
	/* HELLO of that connection on another one of the same rail, and of another rail. */
	for (unsigned again = 0; again < 2; again++) {
		introduce(&p, token, token, again ? 1 : 9);
		for (unsigned i = 0; i <= again; i++) /* a first nonce is spent */
			(void)accepts(&p);
		s = (struct stream){ .len = 0 };
		append(&s, old.hello, sizeof(old.hello));
		says(&p, again, &s);
		judge(n, p.admitted);
	}
	/* HELLO_OK of that connection for a connector with another challenge. */
	introduce(&p, token, token, 9);
	s = (struct stream){ .len = 0 };
	(void)accepts(&p);
	append(&s, p.challenge, sizeof(p.challenge));
	hears(&p.con, TCP_HS_DIALLING, &s);
	dr_tcp_hs_hello(&p.con, p.hello);
	dr_tcp_hs_greeted(&p.con);
	append(&s, old.ok, sizeof(old.ok));
	hears(&p.con, TCP_HS_GREETING, &s);
	judge(n, p.con.state == TCP_HS_UP);
	/* The acceptor's own challenge, answered with what another connector made of it for another place. */
	introduce(&p, token, token, 1);
	unsigned slot = accepts(&p);
	s = (struct stream){ .len = 0 };
	append(&s, p.challenge, sizeof(p.challenge));
	dr_tcp_place_set(&p.rail[1].self, &place[0]);
	dr_tcp_place_set(&p.rail[1].peer, &place[1]);
	hears(&p.con, TCP_HS_DIALLING, &s);
	dr_tcp_hs_hello(&p.con, p.hello);
	s = (struct stream){ .len = 0 };
	append(&s, p.hello, sizeof(p.hello));
	says(&p, slot, &s);
	judge(n, p.admitted);
}

/* A connector, or an acceptor, that does not know the token. */
static void handshake_strangers(struct count *n)
{
	static const struct change none = { .op = OP_NONE };
	struct pair p;

	introduce(&p, token, other, 1);
	judge(n, connect_with(&p, &none) != 0);
	introduce(&p, other, token, 1);
	judge(n, connect_with(&p, &none) != 0);
}

/* ---- heartbeats ------------------------------------------------------------------------------------------ */

struct beats {
	struct dr_hb h[WAYS];
	uint8_t buf[WAYS][DR_DGRAM_MAX];
	size_t len[WAYS];
};

static void beats_init(struct beats *b, const uint8_t *second)
{
	for (unsigned i = 0; i < WAYS; i++) {
		dr_hb_init(&b->h[i], WAYS, T, 7, i == 0, i ? second : token);
		dr_hb_start(&b->h[i], T0);
	}
	for (unsigned i = 0; i < WAYS; i++) {
		struct dr_hb_out out;

		dr_hb_tick(&b->h[i], 0, T0, &out);
		b->len[i] = dr_hb_make(&b->h[i], 0, 0, b->buf[i]);
	}
}

static bool beat(struct dr_hb *to, unsigned rail, const uint8_t *p, size_t len)
{
	return dr_hb_receive(to, rail, p, len, len, T0) == 0;
}

static void heartbeats(struct count *n, bool all)
{
	static struct beats b;
	uint8_t bad[DR_DGRAM_MAX + 1] = { 0 };

	for (unsigned from = 0; from < WAYS; from++) {
		beats_init(&b, token);
		const uint8_t *good = b.buf[from];
		size_t len = b.len[from];

		for (size_t at = 0; at < len; at++)
			for (unsigned bits = 1; bits < 256; bits++) {
				if (!all && bits != 1 && bits != 0x80)
					continue;
				memcpy(bad, good, len);
				bad[at] ^= (uint8_t)bits;
				judge(n, beat(&b.h[!from], 0, bad, len));
			}
		for (size_t cut = 0; cut < len; cut++)
			judge(n, beat(&b.h[!from], 0, good, cut));
		memcpy(bad, good, len);
		judge(n, beat(&b.h[!from], 0, bad, len + 1));
		judge(n, beat(&b.h[!from], 1, good, len)); /* of another rail */
		judge(n, beat(&b.h[from], 0, good, len));  /* sent back */
		must(beat(&b.h[!from], 0, good, len), "a heartbeat is refused");
		judge(n, beat(&b.h[!from], 0, good, len)); /* again */
		struct dr_hb_out out;
		dr_hb_tick(&b.h[from], 0, T0 + T, &out);
		size_t later = dr_hb_make(&b.h[from], 0, 0, bad);
		must(beat(&b.h[!from], 0, bad, later), "a later heartbeat is refused");
		judge(n, beat(&b.h[!from], 0, good, len)); /* late */
		beats_init(&b, other);
		judge(n, beat(&b.h[!from], 0, b.buf[from], b.len[from]));
	}
}

/* ---- control datagrams ------------------------------------------------------------------------------------ */

static bool told(const uint8_t *key, bool connector, const uint8_t *p, size_t len)
{
	struct dr_dgram_end end;
	struct dr_frame f;
	uint32_t channel;

	dr_dgram_end_init(&end, 7, connector, key);
	return dr_dgram_decode(&end, p, len, &channel, &f) == 0;
}

static void control(struct count *n, bool all)
{
	static const struct dr_frame frame = {
		.type = DR_FRAME_ABORT, .epoch = 5, .gen = 2, .seq = 9
	};
	uint8_t good[DR_DGRAM_CTRL_LEN], bad[DR_DGRAM_CTRL_LEN + 1] = { 0 };

	for (unsigned from = 0; from < WAYS; from++) {
		struct dr_dgram_end end;

		dr_dgram_end_init(&end, 7, from == 0, token);
		dr_dgram_encode(&end, CHANNEL, &frame, good);
		must(told(token, from != 0, good, sizeof(good)), "a control datagram is refused");
		for (size_t at = 0; at < sizeof(good); at++)
			for (unsigned bits = 1; bits < 256; bits++) {
				if (!all && bits != 1 && bits != 0x80)
					continue;
				memcpy(bad, good, sizeof(good));
				bad[at] ^= (uint8_t)bits;
				judge(n, told(token, from != 0, bad, sizeof(good)));
			}
		for (size_t cut = 0; cut < sizeof(good); cut++)
			judge(n, told(token, from != 0, good, cut));
		judge(n, told(token, from != 0, bad, sizeof(bad)));
		judge(n, told(token, from == 0, good, sizeof(good))); /* sent back */
		judge(n, told(other, from != 0, good, sizeof(good)));
	}
}

int main(int argc, char *argv[])
{
	const char *what = argc > 1 ? argv[1] : "";
	bool all = argc > 2 && strcmp(argv[2], "all") == 0;
	struct count n = { 0 };

	must(sodium_init() >= 0, "libsodium");
	if (strcmp(what, "handshake") == 0) {
		handshake_bytes(&n, all);
		handshake_replays(&n);
		handshake_strangers(&n);
	} else if (strcmp(what, "heartbeats") == 0) {
		heartbeats(&n, all);
	} else if (strcmp(what, "control") == 0) {
		control(&n, all);
	} else {
		fputs("usage: rail_main handshake|heartbeats|control [all]\n", stderr);
		return 1;
	}
	printf("%u changes, %u unnoticed\n", n.runs, n.unnoticed);
	return 0;
}
