/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_CONV_PRIV_H
#define DR_BOOTSTRAP_CONV_PRIV_H

#include "bootstrap/conv.h"

/* Shared by conv.c (bytes to frames and back) and conv_hello.c (hello and handshake). */
enum { DR_CONV_PREFIX_BYTES = 12, DR_CONV_HELLO_REST_MIN = 1 + 60, DR_CONV_OTHER_REST_MAX = 512 };
extern const uint8_t dr_conv_magic[DR_CONV_MAGIC_BYTES];

/* conv.c: n bytes more of output, or -ENOBUFS, -ENOMEM. */
int dr_conv_out_reserve(struct dr_conv *c, size_t n) DR_MUST_CHECK;
/* A frame with this header; sealed if the conversation is. No rule of the protocol is checked. */
int dr_conv_out_raw(struct dr_conv *c, const uint8_t header[DR_CONV_HEADER_BYTES], const void *data,
	size_t len) DR_MUST_CHECK;
/* The same, and -EMSGSIZE. */
int dr_conv_out_frame(struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const void *data,
	size_t len) DR_MUST_CHECK;

/* conv_hello.c. What these bytes are, of somebody who is no dualrail: "speaks HTTP". */
void dr_conv_describe_bytes(const uint8_t *b, size_t n, char *text, size_t cap);
int dr_conv_out_hello(struct dr_conv *c) DR_MUST_CHECK;
/* c->in holds the hello's first DR_CONV_PREFIX_BYTES; the whole of it. */
void dr_conv_hello_prefix(struct dr_conv *c);
void dr_conv_hello_done(struct dr_conv *c, int64_t now_ns);
/* data: DR_CONV_PROOF_BYTES of the peer. */
void dr_conv_proof_frame(
	struct dr_conv *c, int64_t now_ns, const uint8_t *data, struct dr_conv_event *ev);
/* data: DR_CONV_DENY_BYTES. */
void dr_conv_deny_frame(struct dr_conv *c, const uint8_t *data);

#endif
