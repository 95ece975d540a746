/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_MATCH_H
#define DR_PLUGIN_MATCH_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Messages of one comm: which frame belongs to which posted buffer, and which chunks a large message consists of.
 * Sans-IO; no memory is touched.
 *
 * A comm has a channel of its own for frames, which arrive in the order of the sends, and shares lanes for chunks
 * with other comms. A small message is one frame, data included. A large one is announced by a frame without
 * data. When it has a buffer, the receiver posts a receive for each chunk on a lane of its choice; the tag of that
 * receive names the chunk, and the sender answers with it. So a receive on a lane never waits for a send.
 *
 * Receives come in groups (irecv with n buffers). Only the oldest group with a free buffer, the head, takes messages: a
 * message takes the head's first free buffer with its tag. Without one it waits, and later messages may overtake it.
 * So messages of one tag are taken in the order of the sends. Rules: NCCL's interface, "grouped receives".
 */
enum {
	HA_BUFFERS_MAX = 8,   /* of a group */
	HA_GROUPS_MAX = 64,   /* that are not released; NCCL has at most 32 requests in flight */
	HA_FRAMES_MAX = 128,  /* that wait for a buffer */
	HA_LARGE_MAX = 64,    /* large messages of a sender that are not done */
	HA_CHUNKS_MAX = 4096, /* of a message */
	HA_COMMS_MAX = 16384, /* of a session, closed ones included whose numbers may still occur */
	HA_HEADER_LEN = 24,
};

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Head of a frame: u8 type, 3 x 0, u32 tag, u64 ordinal, u64 size; big endian. */
enum ha_frame_type { HA_EAGER = 1, HA_ANNOUNCE = 2 };
struct ha_header {
	enum ha_frame_type type;
	uint32_t tag;
	uint64_t ordinal; /* of the send, from 0 */
	uint64_t size;	  /* bytes of the message; EAGER: they follow */
};
void ha_header_encode(const struct ha_header *h, uint8_t out[HA_HEADER_LEN]);
/* data: the whole frame of len bytes. -EPROTO: malformed. */
int ha_header_decode(const void *data, size_t len, struct ha_header *out) DR_MUST_CHECK;

/* The tag of a receive on a lane: 14 bits comm, 6 bits message (ordinal modulo HA_LARGE_MAX), 12 bits chunk. */
struct ha_chunk_name {
	unsigned comm, message, chunk;
};
uint32_t ha_chunk_encode(const struct ha_chunk_name *n);
struct ha_chunk_name ha_chunk_decode(uint32_t tag);

/* How a message of `size` bytes (1 or more) is divided: into chunks of so many bytes, the last one may be shorter.
 * chunk: what both ends agreed on, 1 or more; larger messages than HA_CHUNKS_MAX of them have larger chunks. */
struct ha_division {
	uint64_t chunk_bytes;
	unsigned n;
};
struct ha_division ha_divide(uint64_t size, uint64_t chunk);

/* ---- receiver ------------------------------------------------------------------------------- */

struct ha_match_buffer {
	uint64_t cap; /* bytes */
	uint32_t tag;
	/* Of the matcher: */
	bool taken, done;
	uint64_t bytes; /* received, when done */
};
struct ha_match_group {
	unsigned n, n_free, n_left; /* buffers; not taken; not done */
	struct ha_match_buffer buf[HA_BUFFERS_MAX];
};
struct ha_match_frame {
	struct ha_header h;
	unsigned slot; /* the owner's: where the frame is */
};

struct ha_match {
	uint64_t used; /* bit g: group[g] is posted and not released */
	struct ha_match_group group[HA_GROUPS_MAX];
	/* Groups with a free buffer, in the order of their posts: a ring of order_n from order_at. */
	uint8_t order[HA_GROUPS_MAX];
	unsigned order_at, order_n;
	uint64_t next_ordinal;
	struct ha_match_frame frame[HA_FRAMES_MAX]; /* waiting, in the order of the sends */
	unsigned n_frames;
	unsigned tried; /* frames that the head cannot take: need no other look before it changes */
};

void ha_match_init(struct ha_match *m);
/* Posts a group of n buffers (cap and tag of each). 0: *group is its number. -EAGAIN: HA_GROUPS_MAX are posted;
 * -EINVAL: n is not in 1..HA_BUFFERS_MAX. */
int ha_match_post(struct ha_match *m, const struct ha_match_buffer *buf, unsigned n,
	unsigned *group) DR_MUST_CHECK;
/* A frame arrived. -EPROTO: it is not the next one; -ENOBUFS: HA_FRAMES_MAX wait. */
int ha_match_frame(struct ha_match *m, const struct ha_header *h, unsigned slot) DR_MUST_CHECK;
/* 1: *f belongs to that buffer, which is taken now; to be called until it returns 0. -EMSGSIZE: the message is longer
 * than its buffer, and *f, *group and *buffer name both. */
int ha_match_next(struct ha_match *m, struct ha_match_frame *f, unsigned *group, unsigned *buffer)
	DR_MUST_CHECK;
/* A buffer that was taken has all its bytes. */
void ha_match_done(struct ha_match *m, unsigned group, unsigned buffer, uint64_t bytes);
/* All buffers of the group are done. */
bool ha_match_complete(const struct ha_match *m, unsigned group);
/* After that: forgets the group. */
void ha_match_release(struct ha_match *m, unsigned group);

/* ---- sender --------------------------------------------------------------------------------- */

struct ha_large {
	bool used;
	uint64_t ordinal, size;
	struct ha_division div;
	unsigned n_sent, n_left;	   /* chunks: sent; not acknowledged */
	uint64_t sent[HA_CHUNKS_MAX / 64]; /* bit: this chunk was sent */
};
struct ha_outbox {
	uint64_t next_ordinal, chunk, eager_max;
	struct ha_large large[HA_LARGE_MAX]; /* ordinal modulo HA_LARGE_MAX */
};

/* chunk and eager_max in bytes, as both ends agreed. */
void ha_outbox_init(struct ha_outbox *o, uint64_t chunk, uint64_t eager_max);
/* The header of the next message. -EAGAIN: too many large messages are under way. */
int ha_outbox_next(struct ha_outbox *o, uint64_t size, uint32_t tag, struct ha_header *h)
	DR_MUST_CHECK;
/* The frame with that header was sent: counts the message. */
void ha_outbox_sent(struct ha_outbox *o, const struct ha_header *h);
/* The receiver asks for a chunk: its place in the message. Each is given once. -EPROTO: there is no such message
 * or chunk, it was given before, or cap is not its length. */
int ha_outbox_chunk(struct ha_outbox *o, const struct ha_chunk_name *name, uint64_t cap,
	uint64_t *ordinal, uint64_t *off, uint64_t *len) DR_MUST_CHECK;
/* A chunk of that message was acknowledged. True: it was the last one, and the message is done. */
bool ha_outbox_acked(struct ha_outbox *o, uint64_t ordinal);

#endif
