/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/noise.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/*
 * Names in comments are those of the Noise specification, sections 4 and 5.
 * 1. Each key encrypts with each counter once: a cipher's counter only grows, and a new key starts at 0.
 * 2. A failed read leaves nothing to continue with; the owner ends the conversation.
 */
enum { BLOCK_BYTES = 128, HASH = DR_NOISE_HASH_BYTES, KEY = DR_NOISE_KEY_BYTES };
_Static_assert(KEY == crypto_scalarmult_BYTES, "X25519");
_Static_assert(KEY == crypto_aead_chacha20poly1305_ietf_KEYBYTES &&
		       (int)DR_NOISE_TAG_BYTES == crypto_aead_chacha20poly1305_ietf_ABYTES,
	"ChaChaPoly");
_Static_assert(HASH == crypto_generichash_BYTES_MAX, "BLAKE2b-512");

static const char protocol_name[] = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2b";
_Static_assert(sizeof(protocol_name) - 1 <= HASH, "the name is padded, not hashed");

struct part {
	const void *data;
	size_t len;
};

static void hash_parts(crypto_generichash_state *st, const struct part *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (p[i].len)
			crypto_generichash_update(st, p[i].data, p[i].len);
}

/* HMAC-HASH of RFC 2104. The key is never longer than a block. */
static void hmac(const uint8_t key[HASH], const struct part *p, unsigned n, uint8_t out[HASH])
{
	uint8_t pad[BLOCK_BYTES];
	crypto_generichash_state st;
	for (size_t i = 0; i < BLOCK_BYTES; i++)
		pad[i] = (uint8_t)((i < HASH ? key[i] : 0) ^ 0x36);
	crypto_generichash_init(&st, NULL, 0, HASH);
	crypto_generichash_update(&st, pad, sizeof(pad));
	hash_parts(&st, p, n);
	crypto_generichash_final(&st, out, HASH);
	for (size_t i = 0; i < BLOCK_BYTES; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	crypto_generichash_init(&st, NULL, 0, HASH);
	crypto_generichash_update(&st, pad, sizeof(pad));
	crypto_generichash_update(&st, out, HASH);
	crypto_generichash_final(&st, out, HASH);
	sodium_memzero(pad, sizeof(pad));
	sodium_memzero(&st, sizeof(st));
}

/* HKDF with n outputs. */
static void hkdf(const uint8_t chain[HASH], const void *material, size_t len, unsigned n,
	uint8_t (*out)[HASH])
{
	uint8_t temp[HASH], number;
	hmac(chain, &(struct part){ material, len }, 1, temp);
	for (unsigned i = 0; i < n; i++) {
		number = (uint8_t)(i + 1);
		hmac(temp, (struct part[]){ { out[i ? i - 1 : 0], i ? HASH : 0 }, { &number, 1 } },
			2, out[i]);
	}
	sodium_memzero(temp, sizeof(temp));
}

/* ---- CipherState -------------------------------------------------------------------------- */

static void set_key(struct dr_noise_cipher *c, const uint8_t *key)
{
	memcpy(c->key, key, KEY);
	c->n = 0;
}

/* 32 zero bits, then the counter in little endian. */
static void nonce_of(const struct dr_noise_cipher *c, uint8_t nonce[12])
{
	dr_assert(c->n < UINT64_MAX);
	memset(nonce, 0, 4);
	for (unsigned i = 0; i < 8; i++)
		nonce[4 + i] = (uint8_t)(c->n >> 8 * i);
}

void dr_noise_seal(struct dr_noise_cipher *c, const void *ad, size_t ad_len, void *data, size_t len,
	uint8_t tag[DR_NOISE_TAG_BYTES])
{
	uint8_t nonce[12];
	nonce_of(c, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt_detached(
		data, tag, NULL, data, len, ad, ad_len, NULL, nonce, c->key);
	c->n++;
}

int dr_noise_open(struct dr_noise_cipher *c, const void *ad, size_t ad_len, void *data, size_t len,
	const uint8_t tag[DR_NOISE_TAG_BYTES])
{
	uint8_t nonce[12];
	nonce_of(c, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt_detached(
		    data, NULL, data, len, tag, ad, ad_len, nonce, c->key))
		return -EBADMSG;
	c->n++;
	return 0;
}

/* ---- SymmetricState ----------------------------------------------------------------------- */

static void mix_hash(struct dr_noise *s, const void *data, size_t len)
{
	crypto_generichash_state st;
	crypto_generichash_init(&st, NULL, 0, HASH);
	crypto_generichash_update(&st, s->hash, HASH);
	hash_parts(&st, &(struct part){ data, len }, 1);
	crypto_generichash_final(&st, s->hash, HASH);
}

static void mix_key(struct dr_noise *s, const uint8_t material[KEY])
{
	uint8_t out[2][HASH];
	hkdf(s->chain, material, KEY, 2, out);
	memcpy(s->chain, out[0], HASH);
	set_key(&s->cipher, out[1]);
	sodium_memzero(out, sizeof(out));
}

static void mix_key_and_hash(struct dr_noise *s, const uint8_t psk[KEY])
{
	uint8_t out[3][HASH];
	hkdf(s->chain, psk, KEY, 3, out);
	memcpy(s->chain, out[0], HASH);
	mix_hash(s, out[1], HASH);
	set_key(&s->cipher, out[2]);
	sodium_memzero(out, sizeof(out));
}

/* ---- HandshakeState ----------------------------------------------------------------------- */

void dr_noise_init(struct dr_noise *s, bool initiator, const uint8_t *psk, const uint8_t *ephemeral,
	const void *prologue, size_t prologue_len)
{
	memset(s, 0, sizeof(*s));
	s->initiator = initiator;
	memcpy(s->secret, ephemeral, KEY);
	crypto_scalarmult_base(s->own, s->secret);
	memcpy(s->hash, protocol_name, sizeof(protocol_name) - 1);
	memcpy(s->chain, s->hash, HASH);
	mix_hash(s, prologue, prologue_len);
	mix_key_and_hash(s, psk); /* both ends begin with the token psk */
}

/* Token e: with a psk the key is mixed in too. */
static void mix_ephemeral(struct dr_noise *s, const uint8_t key[KEY])
{
	mix_hash(s, key, KEY);
	mix_key(s, key);
}

/* Token ee. libsodium refuses a peer's key of small order. */
static int mix_shared(struct dr_noise *s)
{
	uint8_t shared[KEY];
	int rc = crypto_scalarmult(shared, s->secret, s->peer) ? -EPROTO : 0;
	if (rc == 0)
		mix_key(s, shared);
	sodium_memzero(shared, sizeof(shared));
	return rc;
}

int dr_noise_write(struct dr_noise *s, const void *payload, size_t len, uint8_t *out)
{
	memcpy(out, s->own, KEY);
	mix_ephemeral(s, s->own);
	int rc = s->initiator ? 0 : mix_shared(s);
	if (rc)
		return rc;
	if (len)
		memcpy(out + KEY, payload, len);
	dr_noise_seal(&s->cipher, s->hash, HASH, out + KEY, len, out + KEY + len);
	mix_hash(s, out + KEY, len + DR_NOISE_TAG_BYTES);
	return 0;
}

int dr_noise_read(struct dr_noise *s, const uint8_t *in, size_t len, void *out)
{
	uint8_t none[1], hash[HASH];
	if (len < DR_NOISE_MESSAGE_BYTES)
		return -EBADMSG;
	size_t payload = len - DR_NOISE_MESSAGE_BYTES;
	dr_assert(out || payload == 0);
	memcpy(s->peer, in, KEY);
	mix_ephemeral(s, s->peer);
	if (s->initiator && mix_shared(s))
		return -EBADMSG;
	memcpy(hash, s->hash, HASH);
	mix_hash(s, in + KEY, payload + DR_NOISE_TAG_BYTES);
	if (payload)
		memcpy(out, in + KEY, payload);
	return dr_noise_open(&s->cipher, hash, HASH, out ? out : none, payload, in + KEY + payload);
}

void dr_noise_split(struct dr_noise *s, struct dr_noise_keys *out)
{
	static const char label[] = "dualrail exporter";
	uint8_t key[2][HASH];
	hkdf(s->chain, NULL, 0, 2, key);
	set_key(s->initiator ? &out->send : &out->receive, key[0]);
	set_key(s->initiator ? &out->receive : &out->send, key[1]);
	hmac(s->chain, (struct part[]){ { label, sizeof(label) }, { s->hash, HASH } }, 2,
		out->exporter);
	sodium_memzero(key, sizeof(key));
	sodium_memzero(s, sizeof(*s));
}

void dr_noise_export(
	const uint8_t exporter[DR_NOISE_HASH_BYTES], const char *label, uint8_t *out, size_t len)
{
	uint8_t mac[HASH];
	dr_assert(len <= HASH);
	hmac(exporter, &(struct part){ label, strlen(label) }, 1, mac);
	memcpy(out, mac, len);
	sodium_memzero(mac, sizeof(mac));
}
