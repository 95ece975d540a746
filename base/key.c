/* SPDX-License-Identifier: Apache-2.0 */
#include "base/key.h"

#include <sodium.h>
#include <string.h>

_Static_assert(
	DR_KEY_LEN >= crypto_generichash_blake2b_KEYBYTES_MIN, "the token is a key of BLAKE2b");
_Static_assert((int)DR_MAC_LEN == (int)crypto_shorthash_siphashx24_BYTES &&
		       (int)DR_KEY_LEN == (int)crypto_shorthash_siphashx24_KEYBYTES,
	"the key of a datagram");

static const char *const labels[DR_KEY_USES] = {
	[DR_KEY_TCP_HELLO] = "tcp hello",
	[DR_KEY_TCP_HELLO_OK] = "tcp hello-ok",
	[DR_KEY_BEAT_CONNECTOR] = "heartbeat connector",
	[DR_KEY_BEAT_ACCEPTOR] = "heartbeat acceptor",
	[DR_KEY_DGRAM_CONNECTOR] = "datagram connector",
	[DR_KEY_DGRAM_ACCEPTOR] = "datagram acceptor",
	[DR_KEY_MTU] = "path mtu",
	[DR_KEY_VERBS_HELLO] = "verbs hello",
	[DR_KEY_VERBS_WELCOME] = "verbs welcome",
	[DR_KEY_VERBS_NEWS] = "verbs news",
	[DR_KEY_NCCL_HELLO] = "nccl hello",
};

void dr_key_derive(const uint8_t token[DR_KEY_LEN], enum dr_key_use use, uint8_t out[DR_KEY_LEN])
{
	static const uint8_t salt[crypto_generichash_blake2b_SALTBYTES];
	/* Separates these keys from other uses of BLAKE2b with the token. */
	static const uint8_t personal[crypto_generichash_blake2b_PERSONALBYTES] = "dualrail key 1";
	const char *label = labels[use];

	int rc = crypto_generichash_blake2b_salt_personal(out, DR_KEY_LEN, (const uint8_t *)label,
		strlen(label), token, DR_KEY_LEN, salt, personal);
	dr_assert(rc == 0);
}

void dr_key_tag(
	const uint8_t key[DR_KEY_LEN], const void *data, size_t len, uint8_t out[DR_MAC_LEN])
{
	int rc = crypto_shorthash_siphashx24(out, data, len, key);

	dr_assert(rc == 0);
}

bool dr_key_tag_ok(
	const uint8_t key[DR_KEY_LEN], const void *data, size_t len, const uint8_t tag[DR_MAC_LEN])
{
	uint8_t want[DR_MAC_LEN];

	dr_key_tag(key, data, len, want);
	return sodium_memcmp(want, tag, DR_MAC_LEN) == 0;
}
