/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_LIBRARY_REQUEST_H
#define DR_LIBRARY_REQUEST_H

#include "base/defs.h"

/*
 * Messages of a connection's request channel, as bytes; big endian. Pure functions.
 *
 *   PUT   u8 1, u8 0, u16 n, n x {u64 key, u64 offset, u32 len, u32 lane}
 *   NOTE  u8 2, u8 0, u16 len, len bytes
 *
 * Each entry of a PUT is one message on a lane, in the order of the entries. The receiver posts a receive of len bytes
 * with tag 0 there, or one of no bytes whose tag is the errno for which it refuses the entry.
 */
enum {
	DR_REQUEST_BYTES = 4096,
	DR_REQUEST_HEAD = 4,
	DR_REQUEST_ENTRY = 24,
	DR_REQUEST_ENTRIES_MAX = (DR_REQUEST_BYTES - DR_REQUEST_HEAD) / DR_REQUEST_ENTRY,
	DR_REQUEST_NOTE_MAX = 4000,
	DR_REQUEST_CHUNK_MAX = 1 << 20, /* bytes of an entry */
};
enum dr_request_type { DR_REQUEST_PUT = 1, DR_REQUEST_NOTE = 2 };

struct dr_request_entry {
	uint64_t key, off;
	uint32_t len, lane;
};
/* A PUT without entries; the next ones are added while it has room. Both return its length so far. */
size_t dr_request_put(uint8_t out[DR_REQUEST_BYTES]);
/* The message has fewer than DR_REQUEST_ENTRIES_MAX. */
size_t dr_request_add(uint8_t out[DR_REQUEST_BYTES], size_t len, const struct dr_request_entry *en);
/* len <= DR_REQUEST_NOTE_MAX. Returns the message's length. */
size_t dr_request_note(uint8_t out[DR_REQUEST_BYTES], const void *data, size_t len);

struct dr_request {
	enum dr_request_type type;
	unsigned n;	     /* PUT: entries; NOTE: bytes */
	const uint8_t *note; /* points into the message */
};
/* Any bytes are safe. Every entry is checked: its lane is below `lanes`, its len in 1..DR_REQUEST_CHUNK_MAX, and its end below
 * 2^64. -EPROTO. */
int dr_request_read(const void *data, size_t len, unsigned lanes, struct dr_request *out)
	DR_MUST_CHECK;
/* Entry i of a message that dr_request_read accepted. */
struct dr_request_entry dr_request_entry_at(const void *data, unsigned i);

#endif
