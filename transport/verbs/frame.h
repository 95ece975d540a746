/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_FRAME_H
#define DR_TRANSPORT_VERBS_FRAME_H

#include "base/defs.h"
#include "base/wire.h"
#include "transport/path.h"

/*
 * What travels on a path's control queue pair, and the immediate value of its data (sans-IO). Big endian.
 *
 *	message		u32 granted | frames
 *	CTRL frame	u8 1 | u8 len | len bytes
 *	CREDIT frame	u8 2 | u8 n | u8 skip | u8 0 | u32 epoch | u64 seq |
 *			n x { u64 addr | u32 rkey | u32 cap | u32 tag }
 *
 * granted: how many control receives the sender of the message has posted so far; its peer may have
 * sent so many messages in all. A message without frames only carries that number.
 */
enum {
	DR_VERBS_FRAME_CTRL = 1,
	DR_VERBS_FRAME_CREDIT = 2,
	DR_VERBS_MSG_HDR = 4,
	DR_VERBS_FRAME_MAX = 16 + 20 * DR_PARTS_MAX,
};

struct dr_verbs_credit {
	uint8_t n, skip;
	uint32_t epoch;
	uint64_t seq;
	struct dr_verbs_target {
		uint64_t addr;
		uint32_t rkey, cap, tag;
	} part[DR_PARTS_MAX];
};

struct dr_verbs_frame {
	uint8_t type;
	const void *data; /* CTRL */
	uint8_t len;
	struct dr_verbs_credit credit; /* CREDIT */
};

/* Bytes written to buf, which holds DR_VERBS_FRAME_MAX. */
size_t dr_verbs_ctrl_encode(const void *data, size_t len, uint8_t *buf);
size_t dr_verbs_credit_encode(const struct dr_verbs_credit *c, uint8_t *buf);
/* Length of a frame that was encoded here. */
size_t dr_verbs_frame_len(const uint8_t *frame);
/* The next frame of a message: 1; 0: it is at its end; -EPROTO. */
int dr_verbs_frame_next(struct dr_rbuf *r, struct dr_verbs_frame *out);

/* epoch:8 | seq:16 | part:3 | more:1 | 4 spare bits, which are 0. */
struct dr_verbs_imm {
	uint8_t epoch;
	uint16_t seq;
	uint8_t part;
	bool more;
};
uint32_t dr_verbs_imm_encode(uint32_t epoch, uint64_t seq, unsigned part, bool more);
/* -EPROTO: spare bits are set. */
int dr_verbs_imm_parse(uint32_t imm, struct dr_verbs_imm *out);

#endif
