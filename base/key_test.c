/* SPDX-License-Identifier: Apache-2.0 */
#include "base/key.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t token[DR_KEY_LEN] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };

static void each_use_has_a_key_of_its_own(void **state)
{
	uint8_t key[DR_KEY_USES][DR_KEY_LEN];

	(void)state;
	for (unsigned i = 0; i < DR_KEY_USES; i++) {
		dr_key_derive(token, (enum dr_key_use)i, key[i]);
		assert_memory_not_equal(key[i], token, DR_KEY_LEN);
		for (unsigned k = 0; k < i; k++)
			assert_memory_not_equal(key[i], key[k], DR_KEY_LEN);
	}
}

static void each_byte_of_the_token_counts(void **state)
{
	uint8_t other[DR_KEY_LEN], key[DR_KEY_LEN], again[DR_KEY_LEN];

	(void)state;
	dr_key_derive(token, DR_KEY_TCP_HELLO, key);
	for (unsigned i = 0; i < DR_KEY_LEN; i++) {
		memcpy(other, token, sizeof(other));
		other[i] ^= 0x80;
		dr_key_derive(other, DR_KEY_TCP_HELLO, again);
		assert_memory_not_equal(key, again, DR_KEY_LEN);
	}
}

/* Computed with Python: hashlib.blake2b(label, digest_size=16, key=token, person=b"dualrail key 1"). A change of it
 * needs another version of each format. */
static void keys_are_those_of_earlier_releases(void **state)
{
	static const uint8_t hello[DR_KEY_LEN] = { 0x0f, 0x0c, 0xaa, 0xaf, 0x24, 0x27, 0x59, 0xac,
		0x1d, 0x83, 0x15, 0x15, 0xbc, 0xe7, 0xcc, 0xfc };
	static const uint8_t news[DR_KEY_LEN] = { 0x29, 0x52, 0x8c, 0x6f, 0x9c, 0xeb, 0x41, 0x3f,
		0x80, 0x57, 0xf5, 0xe8, 0xb1, 0x5e, 0x4e, 0x02 };
	uint8_t key[DR_KEY_LEN];

	(void)state;
	dr_key_derive(token, DR_KEY_TCP_HELLO, key);
	assert_memory_equal(key, hello, sizeof(key));
	dr_key_derive(token, DR_KEY_VERBS_NEWS, key);
	assert_memory_equal(key, news, sizeof(key));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_use_has_a_key_of_its_own),
		cmocka_unit_test(each_byte_of_the_token_counts),
		cmocka_unit_test(keys_are_those_of_earlier_releases),
	};

	return cmocka_run_group_tests_name("key", tests, NULL, NULL);
}
