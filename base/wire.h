/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_WIRE_H
#define DR_BASE_WIRE_H

#include "base/defs.h"

/*
 * Checked reader and writer of network bytes (big endian). A call that does not fit moves nothing,
 * sets `failed` and returns -EMSGSIZE; after a failure every later call fails too, so that a parser
 * may read a whole message and test once at the end with dr_rbuf_done().
 */
struct dr_rbuf {
	const uint8_t *data;
	size_t len, pos;
	int failed;
};
struct dr_wbuf {
	uint8_t *data;
	size_t cap, len;
	int failed;
};

void dr_rbuf_init(struct dr_rbuf *r, const void *data, size_t len);
int dr_rbuf_u8(struct dr_rbuf *r, uint8_t *out);
int dr_rbuf_u16(struct dr_rbuf *r, uint16_t *out);
int dr_rbuf_u32(struct dr_rbuf *r, uint32_t *out);
int dr_rbuf_u64(struct dr_rbuf *r, uint64_t *out);
int dr_rbuf_bytes(struct dr_rbuf *r, void *out, size_t len);
/* Points into the data itself; valid as long as the data is. */
int dr_rbuf_view(struct dr_rbuf *r, const void **out, size_t len);
size_t dr_rbuf_left(const struct dr_rbuf *r);
/* 0 when every read fitted and nothing is left over; else -EPROTO. */
int dr_rbuf_done(const struct dr_rbuf *r);

void dr_wbuf_init(struct dr_wbuf *w, void *data, size_t cap);
int dr_wbuf_u8(struct dr_wbuf *w, uint8_t v);
int dr_wbuf_u16(struct dr_wbuf *w, uint16_t v);
int dr_wbuf_u32(struct dr_wbuf *w, uint32_t v);
int dr_wbuf_u64(struct dr_wbuf *w, uint64_t v);
int dr_wbuf_bytes(struct dr_wbuf *w, const void *data, size_t len);

/* What the peer needs to reach a rail, a path or a channel; opaque. len 0: there is none. */
enum { DR_HANDLE_MAX = 128 };
struct dr_handle {
	uint8_t len;
	uint8_t bytes[DR_HANDLE_MAX];
};

#endif
