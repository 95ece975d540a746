/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_KEY_H
#define DR_BASE_KEY_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * The keys of a session. Both ends have the same secret token; each use of it has a key of its own, so that a message
 * of one use is never valid as one of another. Where a message that is sent back to its sender could do harm, each
 * direction has a key of its own, too. key.c has the label of each use, docs/PROTOCOL.md explains them.
 */
enum {
	DR_KEY_LEN = 16, /* bytes of the token and of each key */
	DR_MAC_LEN = 16,
};
enum dr_key_use {
	DR_KEY_TCP_HELLO,      /* HELLO of a TCP connection */
	DR_KEY_TCP_HELLO_OK,   /* and the acceptor's answer */
	DR_KEY_BEAT_CONNECTOR, /* heartbeats of the end that dials */
	DR_KEY_BEAT_ACCEPTOR,
	DR_KEY_DGRAM_CONNECTOR, /* control datagrams */
	DR_KEY_DGRAM_ACCEPTOR,
	DR_KEY_MTU, /* the test of the path MTU */
	DR_KEY_VERBS_HELLO,
	DR_KEY_VERBS_WELCOME,
	DR_KEY_VERBS_NEWS,
	DR_KEY_NCCL_HELLO,
	DR_KEY_USES,
};

/* BLAKE2b of 128 bits over the use's label, keyed with the token. */
void dr_key_derive(const uint8_t token[DR_KEY_LEN], enum dr_key_use use, uint8_t out[DR_KEY_LEN]);

/* The MAC of a datagram of `len` bytes: SipHash-2-4 with 128 bits, made for short messages. */
void dr_key_tag(
	const uint8_t key[DR_KEY_LEN], const void *data, size_t len, uint8_t out[DR_MAC_LEN]);
/* Whether `tag` is that. Takes the same time for any tag. */
bool dr_key_tag_ok(
	const uint8_t key[DR_KEY_LEN], const void *data, size_t len, const uint8_t tag[DR_MAC_LEN]);

#endif
