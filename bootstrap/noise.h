/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_NOISE_H
#define DR_BOOTSTRAP_NOISE_H

#include "base/defs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b of the Noise Protocol Framework, revision 34 (noiseprotocol.org), on the
 * primitives of libsodium. No system call and no randomness: the ephemeral secret is an argument.
 *
 *   -> psk, e      initiator's write, responder's read
 *   <- e, ee       responder's write, initiator's read; both then have one cipher per direction
 *
 * A message is DR_NOISE_MESSAGE_BYTES longer than its payload. Each end proves the pre-shared key (psk) with its
 * message. Keys do not follow from the psk alone: who learns it later cannot decrypt what was recorded.
 */
enum {
	DR_NOISE_KEY_BYTES = 32,
	DR_NOISE_HASH_BYTES = 64,
	DR_NOISE_TAG_BYTES = 16,
	DR_NOISE_MESSAGE_BYTES = DR_NOISE_KEY_BYTES + DR_NOISE_TAG_BYTES,
};

/* CipherState. One direction; the counter is the nonce. */
struct dr_noise_cipher {
	uint8_t key[DR_NOISE_KEY_BYTES];
	uint64_t n;
};

struct dr_noise {
	bool initiator;
	uint8_t secret[DR_NOISE_KEY_BYTES], own[DR_NOISE_KEY_BYTES]; /* ephemeral key pair */
	uint8_t peer[DR_NOISE_KEY_BYTES];
	uint8_t chain[DR_NOISE_HASH_BYTES], hash[DR_NOISE_HASH_BYTES];
	struct dr_noise_cipher cipher;
};

/* What a completed handshake leaves behind. */
struct dr_noise_keys {
	struct dr_noise_cipher send, receive;
	uint8_t exporter[DR_NOISE_HASH_BYTES];
};

/* psk and ephemeral: DR_NOISE_KEY_BYTES. An ephemeral secret must be random and used once. */
void dr_noise_init(struct dr_noise *s, bool initiator, const uint8_t *psk, const uint8_t *ephemeral,
	const void *prologue, size_t prologue_len);
/* Write this end's message, len + DR_NOISE_MESSAGE_BYTES, to out. -EPROTO: the peer's key is unusable. */
int dr_noise_write(struct dr_noise *s, const void *payload, size_t len, uint8_t *out) DR_MUST_CHECK;
/* Read the peer's message; its payload, len - DR_NOISE_MESSAGE_BYTES, is written to out (NULL: it has none). -EBADMSG: another psk or
 * prologue, or altered. */
int dr_noise_read(struct dr_noise *s, const uint8_t *in, size_t len, void *out) DR_MUST_CHECK;
/* After both messages; s is erased. */
void dr_noise_split(struct dr_noise *s, struct dr_noise_keys *out);

/* Encrypt data in place; the tag also covers ad. */
void dr_noise_seal(struct dr_noise_cipher *c, const void *ad, size_t ad_len, void *data, size_t len,
	uint8_t tag[DR_NOISE_TAG_BYTES]);
/* Decrypt in place. -EBADMSG: altered, or not the next message; data is as it was and the counter has not advanced. */
int dr_noise_open(struct dr_noise_cipher *c, const void *ad, size_t ad_len, void *data, size_t len,
	const uint8_t tag[DR_NOISE_TAG_BYTES]) DR_MUST_CHECK;

/* len <= DR_NOISE_HASH_BYTES bytes for this label: HMAC-BLAKE2b, keyed with the exporter, cut to len. */
void dr_noise_export(
	const uint8_t exporter[DR_NOISE_HASH_BYTES], const char *label, uint8_t *out, size_t len);

#endif
