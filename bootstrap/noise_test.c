/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bootstrap/noise.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/*
 * The published vector of this name in the set of the library cacophony (Haskell), which the library snow (Rust) tests
 * against too. Messages 2 to 5 are transport messages, of initiator and responder in turn.
 */
#define PROLOGUE "4a6f686e2047616c74"
#define PSK "54686973206973206d7920417573747269616e20706572737065637469766521"
static const char *const ephemeral[2] = {
	"893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
	"bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
};
#define HASH                                                                                       \
	"ed5e9692d0ab507b6c2beec3f584fd5b127817a9d20b26cd50aa72c507260fa31aa7d88dd3723316338af37c" \
	"e0b4cfb2923aeb848bbf2b934911306f01ffc963"
static const struct {
	const char *payload, *message;
} vector[6] = {
	{ "4c756477696720766f6e204d69736573",
		"ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944ed63df2f5a12aee1185ee9c50"
		"305f2ecf12421dcb53c047a63b784cf7c54a105" },
	{ "4d757272617920526f746862617264",
		"95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f1448088430e0fe7d5c0c9b92f7478716c8"
		"852f1b4f389edb75e3ebe546fafafd5b6f0f7" },
	{ "462e20412e20486179656b", "0fe04b26dcfbb69f8a6a94c61f1a26ef88769218d32f5d17c068a6" },
	{ "4361726c204d656e676572", "2239e0c540c01f09eb1f4cc5258fd5acfefff18a5a3773f21b7bfe" },
	{ "4a65616e2d426170746973746520536179",
		"f216cb03d30fb8af1e561fe02a07552d09b416e27a75e62c77d193718b0bdaae9f" },
	{ "457567656e2042f6686d20766f6e2042617765726b",
		"6e8baf98b944184dd7dc5ef14d8108cbeca626de118a5460f3308e294d61e17238bce29bd9" },
};
enum { BYTES_MAX = 128 };

static size_t bytes_of(const char *hex, uint8_t out[BYTES_MAX])
{
	size_t n = 0;
	assert_int_equal(sodium_hex2bin(out, BYTES_MAX, hex, strlen(hex), NULL, &n, NULL), 0);
	return n;
}

/* Both ends: 0 initiator, 1 responder. psk and prologue of the responder may differ. */
static void begin(
	struct dr_noise s[2], const uint8_t psk[2][DR_NOISE_KEY_BYTES], const char *prologue[2])
{
	uint8_t own[BYTES_MAX];
	for (int i = 0; i < 2; i++) {
		assert_int_equal(bytes_of(ephemeral[i], own), DR_NOISE_KEY_BYTES);
		dr_noise_init(&s[i], i == 0, psk[i], own, prologue[i], strlen(prologue[i]));
	}
}

static void begin_vector(struct dr_noise s[2])
{
	uint8_t psk[BYTES_MAX], prologue[BYTES_MAX], own[BYTES_MAX];
	size_t len = bytes_of(PROLOGUE, prologue);
	assert_int_equal(bytes_of(PSK, psk), DR_NOISE_KEY_BYTES);
	for (int i = 0; i < 2; i++) {
		bytes_of(ephemeral[i], own);
		dr_noise_init(&s[i], i == 0, psk, own, prologue, len);
	}
}

/* Message i of the vector, from s[i % 2] to the other. */
static void handshake_message(struct dr_noise s[2], int i)
{
	uint8_t payload[BYTES_MAX], want[BYTES_MAX], got[2 * BYTES_MAX], back[BYTES_MAX];
	size_t len = bytes_of(vector[i].payload, payload), n = bytes_of(vector[i].message, want);
	assert_int_equal(n, len + DR_NOISE_MESSAGE_BYTES);
	assert_int_equal(dr_noise_write(&s[i % 2], payload, len, got), 0);
	assert_memory_equal(got, want, n);
	assert_int_equal(dr_noise_read(&s[1 - i % 2], got, n, back), 0);
	assert_memory_equal(back, payload, len);
}

static void published_vector(void **state)
{
	(void)state;
	struct dr_noise s[2];
	struct dr_noise_keys k[2];
	uint8_t want[BYTES_MAX];
	begin_vector(s);
	handshake_message(s, 0);
	handshake_message(s, 1);
	bytes_of(HASH, want);
	for (int i = 0; i < 2; i++) {
		assert_memory_equal(s[i].hash, want, DR_NOISE_HASH_BYTES);
		dr_noise_split(&s[i], &k[i]);
		assert_true(sodium_is_zero((const uint8_t *)&s[i], sizeof(s[i])));
	}
	assert_memory_equal(k[0].exporter, k[1].exporter, DR_NOISE_HASH_BYTES);
	for (int i = 2; i < 6; i++) {
		uint8_t data[BYTES_MAX], tag[DR_NOISE_TAG_BYTES], plain[BYTES_MAX];
		size_t len = bytes_of(vector[i].payload, plain);
		memcpy(data, plain, len);
		assert_int_equal(bytes_of(vector[i].message, want), len + sizeof(tag));
		dr_noise_seal(&k[i % 2].send, NULL, 0, data, len, tag);
		assert_memory_equal(data, want, len);
		assert_memory_equal(tag, want + len, sizeof(tag));
		assert_int_equal(dr_noise_open(&k[1 - i % 2].receive, NULL, 0, data, len, tag), 0);
		assert_memory_equal(data, plain, len);
	}
}

/* What each end's message proves: the psk, the prologue, and every bit of the messages. */
static void wrong_in_some_way(void **state)
{
	(void)state;
	static const uint8_t psk[2][DR_NOISE_KEY_BYTES] = { { 1 }, { 1 } };
	static const uint8_t other[2][DR_NOISE_KEY_BYTES] = { { 1 }, { 2 } };
	const char *same[2] = { "a", "a" }, *differ[2] = { "a", "b" };
	uint8_t m[DR_NOISE_MESSAGE_BYTES];
	struct dr_noise s[2], t;
	begin(s, other, same);
	assert_int_equal(dr_noise_write(&s[0], NULL, 0, m), 0);
	assert_int_equal(dr_noise_read(&s[1], m, sizeof(m), NULL), -EBADMSG);
	begin(s, psk, differ);
	assert_int_equal(dr_noise_write(&s[0], NULL, 0, m), 0);
	assert_int_equal(dr_noise_read(&s[1], m, sizeof(m), NULL), -EBADMSG);
	begin(s, psk, same);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dr_noise_write(&s[i], NULL, 0, m), 0);
		for (size_t bit = 0; bit < sizeof(m) * 8; bit++) {
			t = s[1 - i];
			m[bit / 8] ^= (uint8_t)(1u << bit % 8);
			/* X25519 ignores the highest bit of a key; the hash does not. */
			assert_int_equal(dr_noise_read(&t, m, sizeof(m), NULL), -EBADMSG);
			m[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		for (size_t len = 0; len < sizeof(m); len++) {
			t = s[1 - i];
			assert_int_equal(dr_noise_read(&t, m, len, NULL), -EBADMSG);
		}
		assert_int_equal(dr_noise_read(&s[1 - i], m, sizeof(m), NULL), 0);
	}
}

/* Keys of small order would make the shared secret known to all. */
static void unusable_keys(void **state)
{
	(void)state;
	static const uint8_t psk[2][DR_NOISE_KEY_BYTES] = { { 1 }, { 1 } };
	static const uint8_t small[2][DR_NOISE_KEY_BYTES] = { { 0 }, { 1 } };
	const char *same[2] = { "", "" };
	uint8_t m[DR_NOISE_MESSAGE_BYTES];
	for (int i = 0; i < 2; i++) {
		struct dr_noise s[2];
		begin(s, psk, same);
		memcpy(s[0].own, small[i], sizeof(small[i])); /* who has the psk may try it */
		assert_int_equal(dr_noise_write(&s[0], NULL, 0, m), 0);
		assert_int_equal(dr_noise_read(&s[1], m, sizeof(m), NULL), 0);
		assert_int_equal(dr_noise_write(&s[1], NULL, 0, m), -EPROTO);
	}
}

static void transport_order(void **state)
{
	(void)state;
	struct dr_noise_cipher tx = { .key = { 3 } }, rx = tx, before;
	uint8_t a[8] = "first", b[8] = "second", ta[DR_NOISE_TAG_BYTES], tb[DR_NOISE_TAG_BYTES];
	uint8_t copy[8];
	dr_noise_seal(&tx, "x", 1, a, sizeof(a), ta);
	dr_noise_seal(&tx, "x", 1, b, sizeof(b), tb);
	assert_int_equal(tx.n, 2);
	/* The second before the first, other associated data, altered, cut. */
	memcpy(copy, b, sizeof(b));
	assert_int_equal(dr_noise_open(&rx, "x", 1, copy, sizeof(copy), tb), -EBADMSG);
	memcpy(copy, a, sizeof(a));
	assert_int_equal(dr_noise_open(&rx, "y", 1, copy, sizeof(copy), ta), -EBADMSG);
	assert_int_equal(dr_noise_open(&rx, "x", 1, copy, sizeof(copy) - 1, ta), -EBADMSG);
	assert_int_equal(rx.n, 0);
	before = rx;
	assert_int_equal(dr_noise_open(&rx, "x", 1, a, sizeof(a), ta), 0);
	assert_string_equal((char *)a, "first");
	memcpy(a, copy, sizeof(a)); /* again */
	assert_int_equal(dr_noise_open(&rx, "x", 1, copy, sizeof(copy), ta), -EBADMSG);
	assert_int_equal(dr_noise_open(&rx, "x", 1, b, sizeof(b), tb), 0);
	assert_string_equal((char *)b, "second");
	/* No two messages share a key stream, and no text is sent as it is. */
	dr_noise_seal(&before, NULL, 0, copy, sizeof(copy), ta);
	assert_memory_not_equal(copy, a, sizeof(a));
}

static void exports(void **state)
{
	(void)state;
	struct dr_noise s[2];
	struct dr_noise_keys k;
	uint8_t a[DR_NOISE_HASH_BYTES], b[DR_NOISE_HASH_BYTES];
	begin_vector(s);
	handshake_message(s, 0);
	handshake_message(s, 1);
	/* The exporter depends on the secret part of the handshake and on the public one. */
	for (int i = 0; i < 2; i++) {
		struct dr_noise copy = s[1];
		struct dr_noise_keys other;
		(i ? copy.hash : copy.chain)[0] ^= 1;
		dr_noise_split(&copy, &other);
		copy = s[1];
		dr_noise_split(&copy, &k);
		assert_memory_not_equal(k.exporter, other.exporter, 16);
	}
	dr_noise_split(&s[0], &k);
	dr_noise_export(k.exporter, "one", a, sizeof(a));
	dr_noise_export(k.exporter, "two", b, sizeof(b));
	assert_memory_not_equal(a, b, 16);
	dr_noise_export(k.exporter, "one", b, 16);
	assert_memory_equal(a, b, 16);
	assert_memory_not_equal(a, k.send.key, DR_NOISE_KEY_BYTES);
	assert_memory_not_equal(k.send.key, k.receive.key, DR_NOISE_KEY_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_vector),
		cmocka_unit_test(wrong_in_some_way),
		cmocka_unit_test(unusable_keys),
		cmocka_unit_test(transport_order),
		cmocka_unit_test(exports),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
