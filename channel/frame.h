/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FRAME_H
#define DR_CHANNEL_FRAME_H

#include "base/key.h"
#include "transport/path.h"

/*
 * Control frames of a channel: one layout of DR_FRAME_LEN bytes for all types, unused fields zero.
 * docs/PROTOCOL.md states which end sends which frame, when, and the meaning of the fields.
 *
 *	u8 type | u8 path | u8 flags | u8 mask | u32 epoch | u32 gen | i32 err | u64 seq
 */
enum { DR_FRAME_LEN = 24 };

enum dr_frame_type {
	DR_FRAME_ACK = 1, /* receiver: everything below seq is delivered, in this epoch */
	DR_FRAME_SWITCH,  /* sender: move to epoch; path, gen: the proposed path */
	DR_FRAME_ANSWER, /* receiver: epoch adopted, old path fenced; path, gen: the one that is ready;
			     seq, mask: the cut (next message, its received parts) */
	DR_FRAME_NOTIFY, /* receiver: its end of path (gen) of this epoch failed */
	DR_FRAME_GONE,	 /* accepting end: its end of path (gen) is gone, dial again */
	DR_FRAME_ABORT,	 /* either: the channel has ended with err */
	DR_FRAME_CLOSE, /* either: closes the channel; seq: receiver, everything below is delivered; sender,
			     the messages end there */
	DR_FRAME_PROBE, /* either: no content; the peer's kernel acknowledges its bytes */
	DR_FRAME_TYPES
};

/* flags. SWITCH: planned, the sender has drained; idle, it has nothing to send. ABORT, CLOSE:
 * the peer's was received. */
enum { DR_FRAME_PLANNED = 1, DR_FRAME_CONFIRM = 2, DR_FRAME_IDLE = 4, DR_FRAME_FLAGS = 7 };

struct dr_frame {
	enum dr_frame_type type;
	unsigned path, flags, mask;
	uint32_t epoch, gen;
	int err;
	uint64_t seq;
};

const char *dr_frame_type_name(enum dr_frame_type t);
/* out holds DR_FRAME_LEN bytes. */
void dr_frame_encode(const struct dr_frame *f, void *out);
/* -EPROTO: wrong length, or a field out of range; *f is undefined then. */
int dr_frame_decode(const void *data, size_t len, struct dr_frame *f) DR_MUST_CHECK;

/* A control frame as a datagram of a rail, for the time in which its channel has no path to send it
 * on. Datagrams are lost, repeated and replayed, so only idempotent frames are sent in them. */
enum { DR_DGRAM_CTRL_LEN = 52 };

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
/* Takes a datagram of the peer. -EPROTO: not a control datagram, not the peer's, or forged; the
 * other two are undefined then. */
int dr_dgram_decode(const struct dr_dgram_end *self, const void *data, size_t len,
	uint32_t *channel, struct dr_frame *f) DR_MUST_CHECK;

#endif
