/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap.h"

#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * A key is BLAKE2b-256 of random bytes, or Argon2id of a passphrase. Which of the two a file has, its text decides; both
 * ends must come to the same key from the same file, so neither salt nor cost depends on the host.
 * Cost: 64 MiB and three passes, of the order of 0.1 s once per start. The salt is a label: it keeps tables apart that were made for other
 * programs, and no more, so that a passphrase should be a long one.
 */
#define MAKE_ONE "; create one with: head -c 32 /dev/urandom | base64 >K; chmod 600 K"

enum { FILE_MAX = 4096, BYTES_MIN = 16, RANDOM_MIN = 32, PASSES = 3 };
static const size_t PASSPHRASE_MEMORY = 64 << 20;
static const char salt[] = "dualrail key v1";
_Static_assert(sizeof(salt) == crypto_pwhash_SALTBYTES, "the 0 is part of the salt");

/* Hex digits of RANDOM_MIN bytes or more. Returns their number in out, or 0. */
static size_t from_hex(const char *text, size_t len, uint8_t out[FILE_MAX])
{
	size_t n = 0;
	const char *end = text;
	if (sodium_hex2bin(out, FILE_MAX, text, len, NULL, &n, &end) || end != text + len)
		return 0;
	return n >= RANDOM_MIN ? n : 0;
}

/* Base64 of RANDOM_MIN bytes or more. Words without spaces are base64, too: random bytes have all kinds of characters. */
static size_t from_base64(const char *text, size_t len, uint8_t out[FILE_MAX])
{
	size_t n = 0;
	const char *end = text;
	bool digit = false, upper = false, lower = false;
	for (size_t i = 0; i < len; i++) {
		digit |= isdigit((unsigned char)text[i]) != 0;
		upper |= isupper((unsigned char)text[i]) != 0;
		lower |= islower((unsigned char)text[i]) != 0;
	}
	if (!digit || !upper || !lower ||
		sodium_base642bin(
			out, FILE_MAX, text, len, NULL, &n, &end, sodium_base64_VARIANT_ORIGINAL) ||
		end != text + len)
		return 0;
	return n >= RANDOM_MIN ? n : 0;
}

static int key_from_text(
	const char *path, const char *text, size_t len, struct dr_boot_key *out, struct dr_err *e)
{
	uint8_t raw[FILE_MAX];
	while (len > 0 && isspace((unsigned char)text[len - 1]))
		len--;
	if (len < BYTES_MIN)
		return dr_err_set(e, -EINVAL,
			"key file %s: %zu bytes, at least %d are needed" MAKE_ONE, path, len,
			BYTES_MIN);
	size_t n = from_hex(text, len, raw);
	if (!n)
		n = from_base64(text, len, raw);
	int rc = 0;
	if (n)
		crypto_generichash(out->bytes, sizeof(out->bytes), raw, n, NULL, 0);
	else if (crypto_pwhash(out->bytes, sizeof(out->bytes), text, len, (const uint8_t *)salt,
			 PASSES, PASSPHRASE_MEMORY, crypto_pwhash_ALG_ARGON2ID13))
		rc = dr_err_set(e, -ENOMEM,
			"key file %s: no memory to stretch the passphrase, which takes %zu MiB; free it, or use random bytes" MAKE_ONE,
			path, PASSPHRASE_MEMORY >> 20);
	sodium_memzero(raw, sizeof(raw));
	return rc;
}

/* A file; a pipe has no readers but this one. */
static int check_mode(const char *path, const struct stat *st, struct dr_err *e)
{
	if (!S_ISREG(st->st_mode) || !(st->st_mode & (S_IRGRP | S_IROTH)))
		return 0;
	return dr_err_set(e, -EPERM,
		"key file %s can be read by other users (mode %04o); run: chmod 600 %s", path,
		(unsigned)st->st_mode & 07777u, path);
}

/* With 0 a program that core_pattern names still gets the core; with 1 nobody does (core(5)). */
static void leave_no_core(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_CORE, &r))
		return;
	r.rlim_cur = r.rlim_max = DR_MIN(r.rlim_max, 1u);
	(void)setrlimit(RLIMIT_CORE, &r);
}

int dr_boot_key_read(const char *path, struct dr_boot_key *out, struct dr_err *e)
{
	if (sodium_init() < 0)
		return dr_err_set(e, -EIO, "bootstrap: cannot initialise libsodium");
	struct dr_err why;
	int fd = dr_file_open(path, &why);
	if (fd < 0)
		return dr_err_set(
			e, fd, "key file %s: %s%s", path, why.text, fd == -ENOENT ? MAKE_ONE : "");
	leave_no_core();
	struct stat st;
	char buf[FILE_MAX + 1];
	ssize_t got = dr_file_read(fd, buf, sizeof(buf));
	int rc = got < 0 ? (int)got : fstat(fd, &st) ? -errno : 0;
	size_t len = rc ? 0 : (size_t)got;
	close(fd);
	if (rc)
		dr_err_set(e, rc, "key file %s: %s", path, strerror(-rc));
	else
		rc = check_mode(path, &st, e);
	if (rc == 0 && len > FILE_MAX)
		rc = dr_err_set(e, -EINVAL,
			"key file %s: larger than %d bytes; give a file made for --key-file", path,
			FILE_MAX);
	if (rc == 0)
		rc = key_from_text(path, buf, len, out, e);
	sodium_memzero(buf, sizeof(buf));
	sodium_stackzero(4ul * FILE_MAX); /* what the hash left */
	return rc;
}
