/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CONV_TESTKIT_H
#define DR_BOOTSTRAP_CONV_TESTKIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <sodium.h>

#include "bootstrap/conv_priv.h"

/* Two conversations joined by memory; the time is a number. */
enum { T0 = 1000 };
#define STAGE (5 * DR_NS_PER_S)
static const struct dr_boot_key key_a = { { 1, 2, 3 } }, key_b = { { 1, 2, 4 } };

struct end {
	struct dr_conv conv;
	struct dr_conv_event last; /* last event that was not NOTHING */
	unsigned identified, opened, refused, frames, failed;
	uint8_t sent[8192]; /* everything that left this end */
	size_t sent_len;
	bool welcomes;
};

static inline void end_init(struct end *e, enum dr_conv_role role, const struct dr_boot_key *key,
	unsigned purpose, uint8_t nonce)
{
	struct dr_conv_opts o = { .role = role, .key = key, .stage_ns = STAGE };
	memset(e, 0, sizeof(*e));
	snprintf(o.hello.build, sizeof(o.hello.build), "%s",
		role == DR_CONV_CLIENT ? "1.0-client" : "1.0-server");
	memset(o.hello.nonce, nonce, sizeof(o.hello.nonce));
	memset(o.ephemeral, nonce, sizeof(o.ephemeral));
	o.hello.purpose = (uint8_t)purpose;
	assert_int_equal(dr_conv_init(&e->conv, &o, T0), 0);
	e->welcomes = true;
}

/* Whose key is asked for? Number 5 is unknown. */
static inline bool key_of_number(
	void *arg, const struct dr_conv_hello *peer, struct dr_boot_key *out)
{
	unsigned *asked = arg;
	++*asked;
	*out = key_a;
	return peer->last_seq != 5;
}

static inline void comm_server_init(struct end *e, unsigned *asked)
{
	struct dr_conv_opts o = { .role = DR_CONV_SERVER, .stage_ns = STAGE };
	memset(e, 0, sizeof(*e));
	o.key_of = key_of_number;
	o.of_arg = asked;
	o.ephemeral[0] = 22;
	memset(o.hello.nonce, 22, sizeof(o.hello.nonce));
	assert_int_equal(dr_conv_init(&e->conv, &o, T0), 0);
	e->welcomes = true;
}

static inline void comm_client_init(struct end *e, const struct dr_boot_key *key, uint64_t number)
{
	struct dr_conv_opts o = { .role = DR_CONV_CLIENT, .key = key, .stage_ns = STAGE };
	memset(e, 0, sizeof(*e));
	o.hello.purpose = DR_CONV_COMM;
	o.hello.last_seq = number;
	o.ephemeral[0] = 11;
	memset(o.hello.nonce, 11, sizeof(o.hello.nonce));
	assert_int_equal(dr_conv_init(&e->conv, &o, T0), 0);
}

static inline void on_event(struct end *e, const struct dr_conv_event *ev)
{
	if (ev->kind == DR_CONV_NOTHING)
		return;
	e->last = *ev;
	e->identified += ev->kind == DR_CONV_IDENTIFIED;
	e->opened += ev->kind == DR_CONV_OPENED;
	e->refused += ev->kind == DR_CONV_REFUSED;
	e->frames += ev->kind == DR_CONV_FRAME;
	e->failed += ev->kind == DR_CONV_FAILED;
	if (ev->kind == DR_CONV_IDENTIFIED && e->welcomes)
		assert_int_equal(dr_conv_welcome(&e->conv, 7, T0), 0);
}

static inline void feed(struct end *e, const uint8_t *data, size_t len)
{
	struct dr_conv_event ev;
	do {
		size_t n = dr_conv_feed(&e->conv, data, len, T0, &ev);
		assert_true(n <= len);
		dr_conv_validate(&e->conv);
		on_event(e, &ev);
		data += n;
		len -= n;
	} while (len > 0 || ev.kind != DR_CONV_NOTHING);
}

/* Move at most `max` bytes, `chunk` at a time. Returns how many. */
static inline size_t move(struct end *from, struct end *to, size_t max, size_t chunk)
{
	const uint8_t *data;
	size_t total = 0, n;
	while (total < max && (n = dr_conv_output(&from->conv, &data)) > 0) {
		uint8_t copy[4096];
		n = DR_MIN(DR_MIN(n, chunk), DR_MIN(max - total, sizeof(copy)));
		if (from->sent_len + n <= sizeof(from->sent)) {
			memcpy(from->sent + from->sent_len, data, n);
			from->sent_len += n;
		}
		memcpy(copy, data, n);
		dr_conv_sent(&from->conv, n, T0);
		feed(to, copy, n);
		total += n;
	}
	return total;
}

static inline void settle(struct end *a, struct end *b, size_t chunk)
{
	while (move(a, b, SIZE_MAX, chunk) + move(b, a, SIZE_MAX, chunk) > 0)
		;
}

static inline void open_pair(
	struct end *c, struct end *s, const struct dr_boot_key *key, unsigned purpose)
{
	unsigned asked;
	if (purpose == DR_CONV_COMM) {
		comm_client_init(c, &key_a, 1);
		comm_server_init(s, &asked);
	} else {
		end_init(c, DR_CONV_CLIENT, key, purpose, 11);
		end_init(s, DR_CONV_SERVER, key, 0, 22);
	}
	settle(c, s, SIZE_MAX);
	assert_int_equal(c->conv.state, DR_CONV_OPEN);
	assert_int_equal(s->conv.state, DR_CONV_OPEN);
}

static inline void fini(struct end *a, struct end *b)
{
	dr_conv_fini(&a->conv);
	if (b)
		dr_conv_fini(&b->conv);
}

static inline void send_text(struct end *e, enum dr_conv_frame type, uint64_t seq, const char *text)
{
	assert_int_equal(dr_conv_send(&e->conv, type, seq, text, strlen(text)), 0);
}

/* What a client and a server say in one whole conversation, for the tests that spoil it. */
struct tape {
	uint8_t client[1024], server[1024];
	size_t client_len, server_len;
};

static inline void talk(struct end *c, struct end *s)
{
	settle(c, s, SIZE_MAX);
	send_text(c, DR_CONV_FRAME_OFFER, 0, "{\"gpus\":[0]}");
	settle(c, s, SIZE_MAX);
	send_text(s, DR_CONV_FRAME_ACCEPT, 0, "{\"pairs\":1}");
	settle(c, s, SIZE_MAX);
	send_text(c, DR_CONV_FRAME_HANDLES, 0, "abcdefgh");
	settle(c, s, SIZE_MAX);
	send_text(s, DR_CONV_FRAME_HANDLES, 0, "abcdefgh");
	settle(c, s, SIZE_MAX);
	send_text(c, DR_CONV_FRAME_READY, 1, "");
	send_text(c, DR_CONV_FRAME_MESSAGE, 2, "{\"x\":[1,{\"y\":2}]}");
	send_text(s, DR_CONV_FRAME_PONG, 0, "123456781234567812345678");
	settle(c, s, SIZE_MAX);
}

static inline void record(struct tape *t, const struct dr_boot_key *key)
{
	struct end c, s;
	memset(t, 0, sizeof(*t));
	end_init(&c, DR_CONV_CLIENT, key, DR_CONV_NEW, 11);
	end_init(&s, DR_CONV_SERVER, key, 0, 22);
	talk(&c, &s);
	assert_int_equal(c.failed + s.failed, 0);
	assert_int_equal(s.frames, 4);
	assert_int_equal(c.frames, 3);
	memcpy(t->client, c.sent, t->client_len = c.sent_len);
	memcpy(t->server, s.sent, t->server_len = s.sent_len);
	fini(&c, &s);
}

static inline size_t sealed_bytes(size_t payload)
{
	return DR_CONV_SEALED_HEADER_BYTES + (payload ? payload + DR_CONV_TAG_BYTES : 0);
}

static inline size_t hello_bytes(const uint8_t *tape)
{
	return 12 + (size_t)(tape[10] << 8 | tape[11]);
}

/* Hello and PROOF. */
static inline size_t handshake_bytes(const uint8_t *tape)
{
	return hello_bytes(tape) + DR_CONV_HEADER_BYTES + DR_CONV_PROOF_BYTES;
}

/* Where the sealed frames of talk() begin and end. Returns their number. */
static inline unsigned frames_of(const uint8_t *tape, bool client, size_t ends[8])
{
	static const size_t payload[2][4] = { { 8, 11, 8, 24 }, { 12, 8, 0, 17 } };
	ends[0] = handshake_bytes(tape);
	for (unsigned i = 0; i < 4; i++)
		ends[i + 1] = ends[i] + sealed_bytes(payload[client][i]);
	return 4;
}

static inline bool is_boundary(const uint8_t *tape, bool client, size_t at)
{
	size_t ends[8];
	unsigned n = frames_of(tape, client, ends);
	for (unsigned i = 0; i <= n; i++)
		if (ends[i] == at)
			return true;
	return false;
}

/* A header and payload of any kind from an end that has the session's keys. */
static inline void say_raw(struct end *from, struct end *to, const uint8_t *frame, size_t n)
{
	assert_int_equal(dr_conv_out_raw(&from->conv, frame, frame + DR_CONV_HEADER_BYTES,
				 n - DR_CONV_HEADER_BYTES),
		0);
	move(from, to, SIZE_MAX, SIZE_MAX);
}

#endif
