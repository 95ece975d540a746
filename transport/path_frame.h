/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_PATH_FRAME_H
#define DR_TRANSPORT_PATH_FRAME_H

#include "transport/path.h"

/*
 * Frames of the kinds that carry bytes (tcp, nccl), big endian; sans-IO. A header of
 * DR_PATH_FRAME_HDR bytes:
 *
 *	u8 type | u8 part | u8 n | u8 skip | u32 len | u32 epoch | u64 seq
 *
 * and len bytes of payload. And the queue of control frames and credits on their way, of all kinds.
 */
enum {
	DR_PATH_FRAME_HDR = 20,
	DR_PATH_CREDIT_PART = 8,	  /* u32 capacity | u32 tag */
	DR_PATH_SMALL_MAX = DR_DGRAM_MAX, /* longest payload but that of DATA */
	DR_PATH_DATA_MAX = 1 << 30, /* bytes of one part: a length above is a lost frame boundary */
	DR_PATH_QUEUE = 64 << 10,   /* bytes of queued control frames and credits */
};

enum dr_path_frame_type {
	DR_PATH_DATA = 1,   /* sender -> receiver: part, epoch, seq; payload: the part */
	DR_PATH_CREDIT = 2, /* receiver -> sender: n, skip, epoch, seq; payload: n x {cap, tag} */
	DR_PATH_CTRL = 3,   /* both ways; payload: 1..DR_CTRL_MAX bytes of the user's */
	DR_PATH_DGRAM = 4,  /* both ways, nccl only; payload: 1..DR_DGRAM_MAX bytes of the rail's */
};
struct dr_path_frame {
	uint8_t type, part, n, skip;
	uint32_t len; /* of the payload */
	uint32_t epoch;
	uint64_t seq;
};
void dr_path_frame_encode(const struct dr_path_frame *f, uint8_t out[DR_PATH_FRAME_HDR]);
/* Any bytes: 0, or -EPROTO and the reason in *why, which may be NULL. The header only; len is
 * checked against the type, so that a payload other than DATA's is small, and that of a credit has
 * n parts. */
int dr_path_frame_parse(const void *buf, size_t len, struct dr_path_frame *out, const char **why);
/* What the credit f grants, with this payload of f->len bytes. */
struct dr_credit dr_path_credit_read(const struct dr_path_frame *f, const uint8_t *payload);

/* [at, end) is queued, [at, flushed) may go. */
struct dr_path_queue {
	uint8_t *buf; /* DR_PATH_QUEUE bytes */
	size_t at, flushed, end;
};
/* Room for len more bytes behind the end, or NULL. */
uint8_t *dr_path_queue_room(struct dr_path_queue *q, size_t len);
/* A frame of type DR_PATH_CTRL or DR_PATH_DGRAM. -EINVAL: its length; -EAGAIN: no room. */
int dr_path_queue_bytes(struct dr_path_queue *q, enum dr_path_frame_type type, const void *bytes,
	size_t len) DR_MUST_CHECK;
/* A credit for what is posted. -EAGAIN: no room. */
int dr_path_queue_credit(struct dr_path_queue *q, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip) DR_MUST_CHECK;
/* n of the bytes that may go went. */
static inline void dr_path_queue_took(struct dr_path_queue *q, size_t n)
{
	q->at += n;
	if (q->at == q->end)
		q->at = q->flushed = q->end = 0;
}

#endif
