/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bootstrap's conversation against any bytes. Fed in fragments, with ticks before the deadline in
 * between, it says and sends exactly what it does when everything comes at once.
 *
 *	u8: 1 client, 2 has a key, 4 the owner refuses, 8, 16 purpose, 32 COMM, 64 the bytes are frames, which a peer with
 *	the keys of the session seals, 128 this peer is a server without WELCOME | u8 seed of the fragments | bytes
 */
#include "base/rng.h"
#include "bootstrap/conv.h"
#include "tests/fuzz/lib/conv.h"

enum {
	EVENTS_MAX = 64,
	SAID_MAX = 1 << 16,
	VERSION = 2
}; /* VERSION: of the hellos in the corpus */
static const int64_t STAGE = 5 * DR_NS_PER_S;

struct end {
	struct dr_conv c;
	struct dr_conv_event ev[EVENTS_MAX];
	unsigned n;
	uint8_t said[SAID_MAX];
	size_t said_len;
	int64_t now;
};

static const struct dr_boot_key key = { .bytes = { 1, 2, 3 } };

static bool key_of(void *arg, const struct dr_conv_hello *peer, struct dr_boot_key *out)
{
	(void)arg;
	*out = key;
	return peer->last_seq % 2 == 0;
}

static void init(struct dr_conv *c, uint8_t flags, int64_t now)
{
	struct dr_conv_opts o = {
		.role = flags & 1 ? DR_CONV_CLIENT : DR_CONV_SERVER,
		.key = flags & 2 ? &key : NULL,
		.ephemeral = { (uint8_t)(1 + (flags & 1)) },
		.stage_ns = STAGE,
	};

	o.hello.version = VERSION;
	memset(o.hello.nonce, 7, sizeof(o.hello.nonce));
	memcpy(o.hello.build, "fuzz", 5);
	if (flags & 1)
		o.hello.purpose =
			(uint8_t)(flags & 32 ? DR_CONV_COMM : DR_CONV_NEW + (flags >> 3) % 3);
	else if (flags & 32)
		o.key_of = key_of, o.key = NULL;
	dr_assert(dr_conv_init(c, &o, now) == 0);
}

static void start(struct end *x, uint8_t flags)
{
	memset(x, 0, sizeof(*x));
	x->now = DR_NS_PER_S;
	init(&x->c, flags, x->now);
}

/* The frames of the input, each as long as its header says if there is so much. */
static void seal_frames(struct dr_conv *peer, const uint8_t *p, size_t len)
{
	while (len >= DR_CONV_HEADER_BYTES) {
		uint32_t says =
			(uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
		size_t n = DR_MIN(len - DR_CONV_HEADER_BYTES, (size_t)says);

		dr_assert(dr_conv_out_raw(peer, p, p + DR_CONV_HEADER_BYTES, n) == 0);
		p += DR_CONV_HEADER_BYTES + n;
		len -= DR_CONV_HEADER_BYTES + n;
	}
}

struct tape {
	uint8_t *bytes;
	size_t len;
};

/* All output of `from`, to the other end and to the tape. */
static void carry(struct dr_conv *from, struct dr_conv *to, struct tape *t)
{
	struct dr_conv_event ev;
	const uint8_t *b;
	size_t n = dr_conv_output(from, &b), at = 0;

	if (t) {
		t->bytes = realloc(t->bytes, t->len + n + 1);
		dr_assert(t->bytes);
		if (n)
			memcpy(t->bytes + t->len, b, n);
		t->len += n;
	}
	while (to && at < n)
		at += dr_conv_feed(to, b + at, n - at, 0, &ev);
	dr_conv_sent(from, n, 0);
}

/* What a peer says to this end that has its keys: handshake, WELCOME, and these frames, sealed. */
static struct tape peer_says(uint8_t flags, const uint8_t *frames, size_t len)
{
	struct tape t = { NULL, 0 };
	struct dr_conv own, peer;
	bool server = flags & 1; /* the peer */

	init(&own, flags, 0);
	/* A server of COMM knows the key by the hello. */
	init(&peer, (uint8_t)((flags ^ 1) | (flags & 32 ? 2 : 0)), 0);
	for (unsigned turn = 0; turn < 3; turn++)
		if ((turn == 1) == server)
			carry(&peer, &own, &t);
		else
			carry(&own, &peer, NULL);
	if (peer.sealed) {
		if (server && !(flags & 128))
			dr_assert(dr_conv_welcome(&peer, 0, 0) == 0);
		seal_frames(&peer, frames, len);
	}
	carry(&peer, NULL, &t);
	dr_conv_fini(&own);
	dr_conv_fini(&peer);
	return t;
}

static void flush(struct end *x)
{
	const uint8_t *p;
	size_t n = dr_conv_output(&x->c, &p), keep = DR_MIN(n, SAID_MAX - x->said_len);

	if (keep)
		memcpy(x->said + x->said_len, p, keep);
	x->said_len += keep;
	dr_conv_sent(&x->c, n, x->now);
}

static void note(struct end *x, const struct dr_conv_event *ev)
{
	if (ev->kind == DR_CONV_NOTHING)
		return;
	dr_assert(x->n == 0 || x->ev[x->n - 1].kind < DR_CONV_REFUSED ||
		  x->ev[x->n - 1].kind == DR_CONV_FRAME);
	dr_assert((ev->kind == DR_CONV_REFUSED || ev->kind == DR_CONV_FAILED) ==
		  (x->c.state == DR_CONV_ENDED));
	dr_assert(ev->kind != DR_CONV_FRAME || !ev->json || json_is_object(ev->json));
	fz_shows_json(ev->json);
	fz_shows(x->c.peer.build);
	fz_shows(x->c.err.text);
	if (x->n == EVENTS_MAX) { /* enough to compare: forget the older ones, at both ends alike */
		memmove(x->ev, x->ev + 1, sizeof(x->ev[0]) * --x->n);
	}
	x->ev[x->n] = *ev;
	x->ev[x->n].json = NULL;
	x->ev[x->n++].data = NULL;
}

static void feed(struct end *x, const uint8_t *p, size_t n, bool refuses)
{
	struct dr_conv_event ev;

	do {
		size_t used = dr_conv_feed(&x->c, p, n, x->now, &ev);

		dr_assert(used <= n);
		p += used;
		n -= used;
		dr_conv_validate(&x->c);
		note(x, &ev);
		if (ev.kind == DR_CONV_IDENTIFIED && refuses)
			dr_conv_refuse(&x->c, DR_BOOT_BUSY, 3, "busy\n");
		else if (ev.kind == DR_CONV_IDENTIFIED)
			dr_assert(dr_conv_welcome(&x->c, 0, x->now) == 0);
		flush(x);
	} while (n > 0 || ev.kind != DR_CONV_NOTHING);
}

static void compare(const struct end *a, const struct end *b)
{
	dr_assert(a->c.state == b->c.state && a->c.cause == b->c.cause);
	/* The first bytes of another protocol are quoted as far as they were received. */
	dr_assert(strncmp(a->c.err.text, "the peer speaks ", 16) == 0 ||
		  strcmp(a->c.err.text, b->c.err.text) == 0);
	dr_assert(a->n == b->n && a->said_len == b->said_len);
	dr_assert(memcmp(a->said, b->said, a->said_len) == 0);
	for (unsigned i = 0; i < a->n; i++)
		dr_assert(a->ev[i].kind == b->ev[i].kind && a->ev[i].type == b->ev[i].type &&
			  a->ev[i].seq == b->ev[i].seq && a->ev[i].cause == b->ev[i].cause &&
			  a->ev[i].code == b->ev[i].code && a->ev[i].len == b->ev[i].len);
}

FUZZ(z)
{
	static struct end whole, parts;
	uint8_t flags = fz_u8(z);
	struct dr_conv_event ev;
	struct tape t = { NULL, 0 };
	struct dr_rng rng;
	size_t len, at = 0;
	uint8_t *p;

	dr_rng_seed(&rng, fz_u8(z));
	p = fz_bytes(z, 1 << 17, &len);
	if (flags & 64) {
		t = peer_says(flags, p, len);
		p = t.bytes;
		len = t.len;
	}
	start(&whole, flags);
	start(&parts, flags);
	feed(&whole, p, len, flags & 4);
	flush(&parts);
	while (at < len) {
		size_t n = 1 + dr_rng_below(&rng, DR_MIN(len - at, (size_t)40));

		feed(&parts, p + at, n, flags & 4);
		at += n;
		/* Once open, only a message that stands still counts. */
		parts.now += (int64_t)dr_rng_below(
			&rng, parts.c.state == DR_CONV_OPEN ? (uint64_t)STAGE : 1000);
		dr_conv_tick(&parts.c, parts.now, &ev);
		dr_assert(ev.kind == DR_CONV_NOTHING);
	}
	flush(&whole);
	compare(&whole, &parts);
	/* Where something is due, time alone ends it. */
	if (dr_conv_deadline(&parts.c) != DR_NEVER) {
		dr_conv_tick(&parts.c, parts.now + STAGE, &ev);
		dr_assert(ev.kind == DR_CONV_FAILED && ev.cause == DR_BOOT_TIMEOUT);
	}
	dr_conv_validate(&parts.c);
	dr_conv_fini(&whole.c);
	dr_conv_fini(&parts.c);
	free(t.bytes);
}
