/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_DGRAM_H
#define DR_CHANNEL_DGRAM_H

#include "base/key.h"
#include "transport/path.h"

/*
 * A control frame as a datagram of a rail, for the time in which its channel has no path to send it on.
 * Datagrams are lost, repeated and replayed, so only idempotent frames are sent in them. Sans-IO.
 */
enum { DR_DGRAM_CTRL_LEN = 52 };

struct dr_frame;

/* This end of a pair of workers. */
struct dr_dgram_end {
	uint8_t tx_key[DR_KEY_LEN], rx_key[DR_KEY_LEN];
	uint16_t gpu;
	bool connector;
};

/* token: the session's. */
void dr_dgram_end_init(
	struct dr_dgram_end *e, uint16_t gpu, bool connector, const uint8_t token[DR_TOKEN_LEN]);

/* Writes the datagram of this end. */
void dr_dgram_encode(const struct dr_dgram_end *self, uint32_t channel, const struct dr_frame *f,
	uint8_t out[DR_DGRAM_CTRL_LEN]);
/* Takes a datagram of the peer. -EPROTO: not a control datagram, not the peer's, or forged; *channel and
 * *f are undefined then. */
int dr_dgram_decode(const struct dr_dgram_end *self, const void *data, size_t len,
	uint32_t *channel, struct dr_frame *f) DR_MUST_CHECK;

#endif
