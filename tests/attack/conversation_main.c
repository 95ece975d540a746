/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/conv.h"
#include "bootstrap/handles.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * conversation_main keyed|unkeyed OPERATION [all]
 *
 * Both ends of the bootstrap conversation in memory, from HELLO to GOODBYE with every type of message, and between them a
 * man in the middle who does one thing in each run. OPERATION:
 *
 *   alter      each byte of either direction: its lowest and its highest bit; all: to every other value
 *   drop       each byte         repeat   each byte twice       swap     each byte with the next
 *   truncate   the connection is closed before each byte
 *   drop-message, repeat-message, swap-messages, reflect-message: each whole message
 *   insert     a well-formed message without a seal, of each type, before each message
 *   replay     all that the client of an earlier run sent, to a server of another one, and the other way round
 *
 * A change is unnoticed if an end takes a message that it does not take without the change, or if both ends take all
 * messages and neither ends the connection.
 *
 * Prints "RUNS changes, UNNOTICED unnoticed", behind it where the first of these is. Status 0, whatever the counts are.
 */
enum {
	EVENTS_MAX = 64,
	MESSAGES_MAX = 64,
	STREAM_MAX = 8192,
	VALUES = 256,
};
static const int64_t T0 = DR_NS_PER_S, STAGE = 5 * DR_NS_PER_S;
static const struct dr_boot_key key = { { 1, 2, 3 } };

enum op {
	OP_NONE,
	OP_ALTER,
	OP_DROP,
	OP_REPEAT,
	OP_SWAP,
	OP_TRUNCATE,
	OP_DROP_MESSAGE,
	OP_REPEAT_MESSAGE,
	OP_SWAP_MESSAGES,
	OP_REFLECT_MESSAGE,
	OP_INSERT,
	OP_REPLAY,
	OPS,
};
static const char *const op_names[OPS] = { "none", "alter", "drop", "repeat", "swap", "truncate",
	"drop-message", "repeat-message", "swap-messages", "reflect-message", "insert", "replay" };

struct attack {
	enum op op;
	enum dr_conv_role from; /* the end that sent what is changed */
	size_t at;		/* byte of its stream, or number of the message */
	uint8_t arg;		/* ALTER: bits; INSERT: type */
};

/* One direction as it left its end. */
struct stream {
	uint8_t bytes[STREAM_MAX];
	size_t len;
	size_t begin[MESSAGES_MAX + 1]; /* of each message, and the end */
	unsigned n, marked;		/* messages: sent, and in the output too */
};

struct end {
	struct dr_conv conv;
	uint64_t taken[EVENTS_MAX]; /* hashes of the events */
	unsigned n;
	bool ended;
	struct stream sent;
	uint8_t held[STREAM_MAX]; /* a message or byte that waits for the next one */
	size_t held_len;
	bool cut;
};

/* ---- what the ends say ------------------------------------------------------------------------- */

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "conversation_main: %s\n", what);
	exit(3);
}

/* What is in the output up to here is whole messages. */
static void mark(struct end *e)
{
	const uint8_t *out;
	struct stream *s = &e->sent;
	size_t all = s->len + dr_conv_output(&e->conv, &out);

	must(all <= STREAM_MAX && s->marked < MESSAGES_MAX, "a long conversation");
	if (all > s->begin[s->marked])
		s->begin[++s->marked] = all;
}

static void say(struct end *e, enum dr_conv_frame type, uint64_t seq, const void *data, size_t len)
{
	if (e->conv.state != DR_CONV_OPEN)
		return;
	mark(e);
	must(dr_conv_send(&e->conv, type, seq, data, len) == 0, "a message is not sent");
	mark(e);
}

static void say_text(struct end *e, enum dr_conv_frame type, uint64_t seq, const char *text)
{
	say(e, type, seq, text, strlen(text));
}

static void say_handles(struct end *e, const char *text)
{
	struct dr_handle h[2] = { { .len = 20 }, { .len = 3 } };

	memcpy(h[0].bytes, text, 6);
	if (e->conv.state == DR_CONV_OPEN)
		must(dr_handles_send(&e->conv, 0, h, 2) == 0, "handles are not sent");
}

static void client_says(struct end *e, const struct dr_conv_event *ev)
{
	static const uint8_t time[8] = { 0, 0, 0, 1, 2, 3, 4, 5 };

	if (ev->kind == DR_CONV_OPENED) {
		say_text(e, DR_CONV_FRAME_OFFER, 0, "{\"plan\":{\"size\":65536},\"gpus\":[0,1]}");
	} else if (ev->type == DR_CONV_FRAME_ACCEPT) {
		say_handles(e, "client");
	} else if (ev->type == DR_CONV_FRAME_HANDLES) {
		say(e, DR_CONV_FRAME_READY, 1, NULL, 0);
		say_text(e, DR_CONV_FRAME_MESSAGE, 2, "{\"op\":\"phase\",\"n\":1}");
		say(e, DR_CONV_FRAME_PING, 0, time, sizeof(time));
	} else if (ev->type == DR_CONV_FRAME_PONG) {
		say_text(e, DR_CONV_FRAME_MESSAGE, 3, "{\"op\":\"done\",\"gbps\":1.5}");
	} else if (ev->type == DR_CONV_FRAME_MESSAGE) {
		say(e, DR_CONV_FRAME_ACK, 0, time, sizeof(time));
	} else if (ev->type == DR_CONV_FRAME_GOODBYE) {
		say(e, DR_CONV_FRAME_GOODBYE, 4, NULL, 0);
	}
}

static void server_says(struct end *e, const struct dr_conv_event *ev)
{
	uint8_t times[24];

	memset(times, 9, sizeof(times));
	if (ev->kind == DR_CONV_IDENTIFIED) {
		mark(e);
		must(dr_conv_welcome(&e->conv, 0, T0) == 0, "no WELCOME");
	} else if (ev->type == DR_CONV_FRAME_OFFER) {
		say_text(e, DR_CONV_FRAME_ACCEPT, 0, "{\"reply\":{\"rails\":2},\"pairs\":1}");
	} else if (ev->type == DR_CONV_FRAME_HANDLES) {
		say_handles(e, "server");
	} else if (ev->type == DR_CONV_FRAME_READY) {
		say_text(e, DR_CONV_FRAME_MESSAGE, 1, "{\"op\":\"ready\"}");
	} else if (ev->type == DR_CONV_FRAME_PING) {
		if (ev->len == 8)
			memcpy(times, ev->data, 8); /* it comes back, as in control.c */
		say(e, DR_CONV_FRAME_PONG, 0, times, sizeof(times));
	} else if (ev->type == DR_CONV_FRAME_MESSAGE && ev->seq == 3) {
		say(e, DR_CONV_FRAME_ACK, 0, times, 8);
		say(e, DR_CONV_FRAME_GOODBYE, 2, NULL, 0);
	}
}

static uint64_t hash_of(const struct dr_conv_event *ev)
{
	uint64_t out;
	uint8_t head[16] = { (uint8_t)ev->kind, (uint8_t)ev->type };
	crypto_generichash_state state;
	char *text = ev->json ? json_dumps(ev->json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	memcpy(head + 8, &ev->seq, 8);
	crypto_generichash_init(&state, NULL, 0, 16);
	crypto_generichash_update(&state, head, sizeof(head));
	if (text)
		crypto_generichash_update(&state, (const uint8_t *)text, strlen(text));
	else if (ev->len)
		crypto_generichash_update(&state, ev->data, ev->len);
	free(text); /* lint-ok: of jansson */
	uint8_t sum[16];
	crypto_generichash_final(&state, sum, sizeof(sum));
	memcpy(&out, sum, sizeof(out));
	return out;
}

static void take(struct end *e, const struct dr_conv_event *ev)
{
	if (ev->kind == DR_CONV_NOTHING)
		return;
	if (ev->kind == DR_CONV_FAILED || ev->kind == DR_CONV_REFUSED) {
		e->ended = true;
		return;
	}
	must(e->n < EVENTS_MAX, "too many events");
	e->taken[e->n++] = hash_of(ev);
	if (e->conv.o.role == DR_CONV_CLIENT)
		client_says(e, ev);
	else
		server_says(e, ev);
}

static void feed(struct end *e, const uint8_t *p, size_t n)
{
	struct dr_conv_event ev;

	do {
		size_t used = dr_conv_feed(&e->conv, p, n, T0, &ev);

		dr_conv_validate(&e->conv);
		p += used;
		n -= used;
		take(e, &ev);
	} while (n > 0 || ev.kind != DR_CONV_NOTHING);
}

/* ---- the man in the middle ---------------------------------------------------------------------- */

static void pass(struct end *to, const uint8_t *p, size_t n)
{
	if (n)
		feed(to, p, n);
}

static void release(struct end *from, struct end *to)
{
	size_t n = from->held_len;

	from->held_len = 0;
	pass(to, from->held, n);
}

static void hold(struct end *from, const uint8_t *p, size_t n)
{
	memcpy(from->held, p, n);
	from->held_len = n;
}

static void insert(const struct attack *a, struct end *to)
{
	static const uint8_t payload[32] = "{\"plan\":{\"server_faults\":true}}";
	static const size_t len[DR_CONV_FRAME_TYPES] = {
		[DR_CONV_FRAME_PROOF] = 32,
		[DR_CONV_FRAME_WELCOME] = 8,
		[DR_CONV_FRAME_REFUSE] = 31,
		[DR_CONV_FRAME_OFFER] = 31,
		[DR_CONV_FRAME_ACCEPT] = 31,
		[DR_CONV_FRAME_HANDLES] = 4,
		[DR_CONV_FRAME_MESSAGE] = 31,
		[DR_CONV_FRAME_ACK] = 8,
		[DR_CONV_FRAME_PING] = 8,
		[DR_CONV_FRAME_PONG] = 24,
	};
	uint8_t frame[DR_CONV_HEADER_BYTES + sizeof(payload)] = { 0 };

	frame[3] = (uint8_t)len[a->arg];
	frame[4] = a->arg;
	frame[15] = a->arg == DR_CONV_FRAME_MESSAGE || a->arg == DR_CONV_FRAME_READY ||
		    a->arg == DR_CONV_FRAME_GOODBYE;
	memcpy(frame + DR_CONV_HEADER_BYTES, payload, sizeof(payload));
	pass(to, frame, DR_CONV_HEADER_BYTES + len[a->arg]);
}

/* Message k of `from`, n bytes, which begins at byte `start` of its stream. */
static void message(const struct attack *a, struct end *from, struct end *to, size_t k,
	size_t start, const uint8_t *p, size_t n)
{
	uint8_t changed[STREAM_MAX];
	size_t at = a->at - start;
	bool whole = a->op >= OP_DROP_MESSAGE;

	if (from->cut)
		return;
	if (from->held_len) {
		pass(to, p, whole ? n : 1);
		release(from, to);
		pass(to, p + 1, whole ? 0 : n - 1);
		return;
	}
	if (a->from != from->conv.o.role || a->op == OP_NONE || a->op == OP_REPLAY ||
		(whole ? a->at != k : a->at < start || at >= n)) {
		pass(to, p, n);
		return;
	}
	memcpy(changed, p, n);
	switch (a->op) {
	case OP_ALTER:
		changed[at] ^= a->arg;
		pass(to, changed, n);
		break;
	case OP_DROP:
		pass(to, p, at);
		pass(to, p + at + 1, n - at - 1);
		break;
	case OP_REPEAT:
		pass(to, p, at + 1);
		pass(to, p + at, n - at);
		break;
	case OP_SWAP:
		pass(to, p, at);
		if (at + 1 == n) {
			hold(from, p + at, 1);
			break;
		}
		changed[at] = p[at + 1];
		changed[at + 1] = p[at];
		pass(to, changed + at, n - at);
		break;
	case OP_TRUNCATE:
		pass(to, p, at);
		from->cut = true;
		break;
	case OP_REPEAT_MESSAGE:
		pass(to, p, n);
		pass(to, p, n);
		break;
	case OP_SWAP_MESSAGES:
		hold(from, p, n);
		break;
	case OP_REFLECT_MESSAGE:
		pass(from, p, n);
		pass(to, p, n);
		break;
	case OP_INSERT:
		insert(a, to);
		pass(to, p, n);
		break;
	default: /* DROP_MESSAGE */
		break;
	}
}

/* Everything that `from` has to say now. */
static bool move(const struct attack *a, struct end *from, struct end *to)
{
	const uint8_t *out;
	struct stream *s = &from->sent;
	size_t n = dr_conv_output(&from->conv, &out), start = s->len;

	if (n == 0)
		return false;
	mark(from);
	memcpy(s->bytes + start, out, n);
	dr_conv_sent(&from->conv, n, T0);
	s->len += n;
	while (s->begin[s->n] < start + n) {
		unsigned k = s->n++;

		message(a, from, to, k, s->begin[k], s->bytes + s->begin[k],
			s->begin[k + 1] - s->begin[k]);
	}
	return true;
}

/* ---- runs ---------------------------------------------------------------------------------------- */

struct run {
	struct end client, server;
};

static void init(struct end *e, enum dr_conv_role role, bool keyed, uint8_t nonce)
{
	struct dr_conv_opts o = { .role = role, .key = keyed ? &key : NULL, .stage_ns = STAGE };

	memset(e, 0, offsetof(struct end, sent.bytes));
	e->sent.len = e->sent.n = e->sent.marked = 0;
	e->held_len = 0;
	e->cut = false;
	snprintf(o.hello.build, sizeof(o.hello.build), "1.0");
	memset(o.hello.nonce, nonce + (int)role, sizeof(o.hello.nonce));
	memset(o.ephemeral, 2 * nonce + (int)role, sizeof(o.ephemeral));
	o.hello.purpose = role == DR_CONV_CLIENT ? DR_CONV_NEW : 0;
	must(dr_conv_init(&e->conv, &o, T0) == 0, "out of memory");
}

/* The connection is over for both when one has ended it or it is cut; one that waits on is ended by its deadline. */
static void settle(struct end *e, const struct end *other)
{
	struct dr_conv_event ev;

	if (other->ended || other->cut)
		dr_conv_fail(&e->conv, DR_BOOT_EOF, "closed");
	if (dr_conv_deadline(&e->conv) != DR_NEVER) {
		dr_conv_tick(&e->conv, T0 + 2 * STAGE, &ev);
		take(e, &ev);
	}
	e->ended = e->ended || e->conv.state == DR_CONV_ENDED;
}

static void talk(struct run *r, bool keyed, uint8_t nonce, const struct attack *a)
{
	init(&r->client, DR_CONV_CLIENT, keyed, nonce);
	init(&r->server, DR_CONV_SERVER, keyed, nonce);
	while (move(a, &r->client, &r->server) || move(a, &r->server, &r->client))
		;
	settle(&r->client, &r->server);
	settle(&r->server, &r->client);
}

static void fini(struct run *r)
{
	dr_conv_fini(&r->client.conv);
	dr_conv_fini(&r->server.conv);
}

static bool took_other(const struct end *e, const struct end *honest)
{
	for (unsigned i = 0; i < e->n; i++)
		if (i >= honest->n || e->taken[i] != honest->taken[i])
			return true;
	return false;
}

static bool unnoticed(const struct run *r, const struct run *honest)
{
	if (took_other(&r->client, &honest->client) || took_other(&r->server, &honest->server))
		return true;
	return r->client.n == honest->client.n && r->server.n == honest->server.n &&
	       !r->client.ended && !r->server.ended;
}

struct count {
	unsigned runs, unnoticed;
	char first[128];
};

static void judge(struct count *n, bool bad, const struct attack *a, const struct stream *s)
{
	n->runs++;
	if (bad && n->unnoticed++ == 0)
		snprintf(n->first, sizeof(n->first), "; first: %s %zu of %zu of the %s's, %u",
			a->op >= OP_DROP_MESSAGE ? "message" : "byte", a->at,
			a->op >= OP_DROP_MESSAGE ? (size_t)s->n : s->len,
			a->from == DR_CONV_CLIENT ? "client" : "server", a->arg);
}

static void one(struct count *n, bool keyed, const struct run *honest, const struct attack *a)
{
	static struct run r;

	talk(&r, keyed, 7, a);
	judge(n, unnoticed(&r, honest), a,
		a->from == DR_CONV_CLIENT ? &honest->client.sent : &honest->server.sent);
	fini(&r);
}

/* Each byte that the operation changes: two equal ones swapped are as they were. */
static void bytes(struct count *n, bool keyed, const struct run *honest, struct attack a, bool all)
{
	const struct stream *s =
		a.from == DR_CONV_CLIENT ? &honest->client.sent : &honest->server.sent;

	for (a.at = 0; a.at < s->len; a.at++) {
		if (a.op == OP_SWAP && (a.at + 1 == s->len || s->bytes[a.at] == s->bytes[a.at + 1]))
			continue;
		for (unsigned bits = 1; bits < (a.op == OP_ALTER ? VALUES : 2); bits++) {
			a.arg = (uint8_t)bits;
			if (all || a.op != OP_ALTER || bits == 1 || bits == 0x80)
				one(n, keyed, honest, &a);
		}
	}
}

static void messages(struct count *n, bool keyed, const struct run *honest, struct attack a)
{
	const struct stream *s =
		a.from == DR_CONV_CLIENT ? &honest->client.sent : &honest->server.sent;

	for (a.at = 0; a.at < s->n; a.at++) {
		unsigned last = a.op == OP_INSERT ? DR_CONV_FRAME_TYPES - 1 : 1;

		for (unsigned type = 1; type <= last; type++) {
			a.arg = (uint8_t)type;
			one(n, keyed, honest, &a);
		}
	}
}

/* What an end of an earlier run sent, with other nonces, is all that a new end of the other role hears. */
static void replay(struct count *n, bool keyed, const struct run *honest, enum dr_conv_role from)
{
	static struct end fresh;
	static struct run earlier;
	struct attack none = { .op = OP_REPLAY, .from = from };
	const struct end *old = from == DR_CONV_CLIENT ? &earlier.client : &earlier.server;
	const struct end *as = from == DR_CONV_CLIENT ? &honest->server : &honest->client;

	talk(&earlier, keyed, 21, &none);
	init(&fresh, from == DR_CONV_CLIENT ? DR_CONV_SERVER : DR_CONV_CLIENT, keyed, 7);
	feed(&fresh, old->sent.bytes, old->sent.len);
	settle(&fresh, old);
	/* Taking as much as from a true peer is the harm. */
	judge(n, fresh.n > 0 && (fresh.n == as->n || !fresh.ended), &none, &old->sent);
	dr_conv_fini(&fresh.conv);
	fini(&earlier);
}

int main(int argc, char *argv[])
{
	static struct run honest;
	struct attack a = { .op = OP_NONE };
	struct count n = { 0 };
	bool keyed = argc > 1 && strcmp(argv[1], "keyed") == 0;
	enum op op = OP_NONE;

	for (unsigned i = 1; argc > 2 && i < OPS; i++)
		if (strcmp(argv[2], op_names[i]) == 0)
			op = (enum op)i;
	if (argc < 3 || (!keyed && strcmp(argv[1], "unkeyed") != 0) || op == OP_NONE) {
		fputs("usage: conversation_main keyed|unkeyed OPERATION [all]\n", stderr);
		return 1;
	}
	must(sodium_init() >= 0, "libsodium");
	talk(&honest, keyed, 7, &a);
	must(!honest.client.ended && !honest.server.ended && honest.client.n > 6 &&
			honest.server.n > 6,
		"the conversation fails without an attack");
	a.op = op;
	for (unsigned from = 0; from < 2; from++) {
		a.from = from ? DR_CONV_SERVER : DR_CONV_CLIENT;
		if (op == OP_REPLAY)
			replay(&n, keyed, &honest, a.from);
		else if (op >= OP_DROP_MESSAGE)
			messages(&n, keyed, &honest, a);
		else
			bytes(&n, keyed, &honest, a, argc > 3 && strcmp(argv[3], "all") == 0);
	}
	fini(&honest);
	printf("%u changes, %u unnoticed%s\n", n.runs, n.unnoticed, n.first);
	return 0;
}
