/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same 32 bytes. */
#define HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define BASE64 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

static int key_of(const char *text, mode_t mode, struct dr_boot_key *key, struct dr_err *e)
{
	char path[] = "/tmp/dr-key-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, mode);
	close(fd);
	int rc = dr_boot_key_read(path, key, e);
	unlink(path);
	return rc;
}

static void same_key(const char *one, const char *other, bool same)
{
	struct dr_boot_key a, b;
	struct dr_err e;
	assert_int_equal(key_of(one, 0600, &a, &e), 0);
	assert_int_equal(key_of(other, 0600, &b, &e), 0);
	assert_int_equal(memcmp(&a, &b, sizeof(a)) == 0, same);
}

/* Which text stands for random bytes, and which is a passphrase. */
static void key_files(void **state)
{
	(void)state;
	struct dr_boot_key key, want;
	struct dr_err e;
	uint8_t raw[32];
	for (unsigned i = 0; i < sizeof(raw); i++)
		raw[i] = (uint8_t)i;
	crypto_generichash(want.bytes, sizeof(want.bytes), raw, sizeof(raw), NULL, 0);
	assert_int_equal(key_of(HEX, 0600, &key, &e), 0);
	assert_memory_equal(&key, &want, sizeof(key));
	struct rlimit core;
	assert_int_equal(getrlimit(RLIMIT_CORE, &core), 0);
	assert_in_range(core.rlim_max, 0, 1);
	same_key(HEX, "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F\r\n", true);
	same_key(HEX, BASE64 "\n", true);
	same_key(HEX, "000102030405060708090a0b0c0d0e0f", false);
	/* Argon2id: known answer for the passphrase, the label and the cost. */
	assert_int_equal(
		crypto_pwhash(want.bytes, sizeof(want.bytes), "correct horse battery staple", 28,
			(const uint8_t *)"dualrail key v1", 3, 64 << 20,
			crypto_pwhash_ALG_ARGON2ID13),
		0);
	assert_int_equal(key_of("correct horse battery staple \r\n", 0600, &key, &e), 0);
	assert_memory_equal(&key, &want, sizeof(key));
	same_key("correct horse battery staple", "correct horse battery stapler", false);
	/* So is base64 of few bytes, whatever these are. */
	same_key("Correcthorse1234", "Correcthorse1235", false);
	/* 44 letters are base64, but words. */
	static const char words[] = "correcthorsebatterystaplecorrecthorsebattery";
	assert_int_equal(crypto_pwhash(want.bytes, sizeof(want.bytes), words, sizeof(words) - 1,
				 (const uint8_t *)"dualrail key v1", 3, 64 << 20,
				 crypto_pwhash_ALG_ARGON2ID13),
		0);
	assert_int_equal(key_of(words, 0600, &key, &e), 0);
	assert_memory_equal(&key, &want, sizeof(key));
}

static void key_files_that_are_refused(void **state)
{
	(void)state;
	struct dr_boot_key a;
	struct dr_err e;
	static const mode_t open_modes[] = { 0640, 0604, 0644, 0444, 0666 };
	for (size_t i = 0; i < DR_ARRAY_LEN(open_modes); i++) {
		assert_int_equal(key_of(HEX, open_modes[i], &a, &e), -EPERM);
		assert_non_null(strstr(e.text, "can be read by other users (mode 0"));
		assert_non_null(strstr(e.text, "run: chmod 600 /tmp/dr-key-"));
	}
	assert_int_equal(key_of(HEX, 0400, &a, &e), 0);
	assert_int_equal(key_of("0001020304050\n", 0600, &a, &e), -EINVAL);
	assert_non_null(strstr(e.text, "13 bytes, at least 16"));
	assert_int_equal(dr_boot_key_read("/nonexistent/key", &a, &e), -ENOENT);
	assert_int_equal(dr_boot_key_read("/dev/zero", &a, &e), -EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(key_files),
		cmocka_unit_test(key_files_that_are_refused),
	};
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
