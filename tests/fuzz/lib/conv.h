/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FUZZ_LIB_CONV_H
#define DR_TESTS_FUZZ_LIB_CONV_H

#include "bootstrap/conv_priv.h"

/* Two conversations joined by memory, for targets whose peer has the keys of the session. */

/* Everything that `from` has to say; the server welcomes. */
static inline bool fz_conv_move(struct dr_conv *from, struct dr_conv *to, int64_t now)
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

static inline void fz_conv_open(struct dr_conv *client, struct dr_conv *server, int64_t now)
{
	while (fz_conv_move(client, server, now) || fz_conv_move(server, client, now))
		;
	dr_assert(client->state == DR_CONV_OPEN && server->state == DR_CONV_OPEN);
}

/* The sealed bytes of a frame with any header, as `peer` sends it; borrowed from peer. */
static inline size_t fz_conv_seal(struct dr_conv *peer, const uint8_t *header, const void *data,
	size_t len, const uint8_t **out)
{
	dr_assert(dr_conv_out_raw(peer, header, data, len) == 0);
	return dr_conv_output(peer, out);
}

#endif
