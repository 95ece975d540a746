/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FUZZ_LIB_CONV_H
#define DR_TESTS_FUZZ_LIB_CONV_H

#include "base/wire.h"
#include "bootstrap/conv_priv.h"
#include "tests/fuzz/lib/fuzz.h"

/* A conversation of this end with a peer that has the keys of the session and seals what the input chooses. */
struct fz_link {
	struct dr_conv own, peer;
	bool server, open; /* server: this end's role */
};

/* Everything that `from` has to say; the server welcomes. */
static inline bool fz_link_move(struct dr_conv *from, struct dr_conv *to, int64_t now)
{
	struct dr_conv_event ev;
	const uint8_t *b;
	size_t n = dr_conv_output(from, &b), at = 0;

	while (at < n) {
		at += dr_conv_feed(to, b + at, n - at, now, &ev);
		if (ev.kind == DR_CONV_IDENTIFIED)
			dr_assert(dr_conv_welcome(to, 0, now) == 0);
	}
	dr_conv_sent(from, n, now);
	return n > 0;
}

static inline void fz_link_close(struct fz_link *l)
{
	if (l->open) {
		dr_conv_fini(&l->own);
		dr_conv_fini(&l->peer);
	}
	l->open = false;
}

/* Both ends are open afterwards. */
static inline void fz_link_open(struct fz_link *l, int64_t now)
{
	struct dr_conv_opts client = { .role = DR_CONV_CLIENT,
		.stage_ns = 5 * DR_NS_PER_S,
		.ephemeral = { 1 },
		.hello.purpose = DR_CONV_NEW };
	struct dr_conv_opts server = {
		.role = DR_CONV_SERVER, .stage_ns = 5 * DR_NS_PER_S, .ephemeral = { 2 }
	};

	dr_assert(dr_conv_init(&l->own, l->server ? &server : &client, now) == 0);
	dr_assert(dr_conv_init(&l->peer, l->server ? &client : &server, now) == 0);
	l->open = true;
	while (fz_link_move(&l->own, &l->peer, now) || fz_link_move(&l->peer, &l->own, now))
		;
	dr_assert(l->own.state == DR_CONV_OPEN && l->peer.state == DR_CONV_OPEN);
}

/* A sealed frame of the peer's; each event that it makes is told. */
static inline void fz_link_frame(struct fz_link *l, enum dr_conv_frame type, uint64_t seq,
	const void *body, size_t len, int64_t now,
	void (*told)(void *arg, const struct dr_conv_event *ev), void *arg)
{
	uint8_t head[DR_CONV_HEADER_BYTES];
	struct dr_conv_event ev;
	const uint8_t *b;
	struct dr_wbuf m;
	size_t at = 0, n;

	dr_wbuf_init(&m, head, sizeof(head));
	dr_wbuf_u32(&m, (uint32_t)len);
	dr_wbuf_u32(&m, (uint32_t)type << 24);
	dr_wbuf_u64(&m, seq);
	dr_assert(!m.failed && dr_conv_out_raw(&l->peer, head, body, len) == 0);
	n = dr_conv_output(&l->peer, &b);
	while (at < n) {
		at += dr_conv_feed(&l->own, b + at, n - at, now, &ev);
		told(arg, &ev);
	}
	dr_conv_sent(&l->peer, n, now);
}

#endif
