/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Key files: random bytes give the same key as hex digits of both cases and as base64, with or without white space at the
 * end. Base64 whose characters are all hex digits (zeros and little else) is read as hex, so it gives another key.
 * Passphrases take 0.1 s each, so only inputs that end before that are read as they are.
 */
#include "bootstrap/bootstrap.h"
#include "tests/fuzz/lib/fuzz.h"

#include <ctype.h>
#include <sodium.h>
#include <sys/stat.h>

enum { SHORTEST = 16, RANDOM_MIN = 32, FILE_MAX = 4096 };

static int read_key(struct fz *z, const void *b, size_t len, mode_t mode, struct dr_boot_key *out)
{
	struct dr_err e = { 0 };
	char *path = fz_file(z, b, len);
	int rc;

	dr_assert(fchmod(z->fd, mode) == 0);
	rc = dr_boot_key_read(path, out, &e);
	(void)fz_failed(rc, &e);
	return rc;
}

static void random_bytes(struct fz *z, const uint8_t *p, size_t len)
{
	size_t cap = 2 * len + 8, n;
	char *text = fz_alloc(z, cap);
	struct dr_boot_key a, b;
	bool kinds[3] = { false, false, false }, hex = true;

	sodium_bin2hex(text, cap, p, len);
	n = 2 * len;
	dr_assert(read_key(z, text, n, 0600, &a) == 0);
	dr_assert(read_key(z, text, n, 0640, &b) && read_key(z, text, n, 0604, &b));
	for (size_t i = 0; i < n; i++)
		text[i] = (char)toupper((unsigned char)text[i]);
	memcpy(text + n, " \r\n\t", 4);
	dr_assert(read_key(z, text, n + 4, 0600, &b) == 0);
	dr_assert(memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0);
	sodium_bin2base64(text, cap, p, len, sodium_base64_VARIANT_ORIGINAL);
	n = strlen(text);
	for (size_t i = 0; i < n; i++) {
		kinds[0] |= isdigit((unsigned char)text[i]) != 0;
		kinds[1] |= isupper((unsigned char)text[i]) != 0;
		kinds[2] |= islower((unsigned char)text[i]) != 0;
		hex &= isxdigit((unsigned char)text[i]) != 0;
	}
	text[n] = '\n';
	if (kinds[0] && kinds[1] && kinds[2] && !hex) {
		dr_assert(read_key(z, text, n + 1, 0600, &b) == 0);
		dr_assert(memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0);
	}
}

FUZZ(z)
{
	struct dr_boot_key key;
	size_t len;
	uint8_t *p = fz_bytes(z, 5000, &len);

	if (len < SHORTEST || len > FILE_MAX)
		dr_assert(read_key(z, p, len, 0600, &key) != 0);
	else if (len >= RANDOM_MIN && len <= FILE_MAX / 2 - 4)
		random_bytes(z, p, len);
}
