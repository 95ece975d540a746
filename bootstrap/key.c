/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap.h"

#include "base/file.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKE_ONE "; create one with: head -c 32 /dev/urandom | base64 >K; chmod 600 K"

enum { FILE_MAX = 4096, BYTES_MIN = 16 };

static bool all_hex(const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isxdigit(b[i]))
			return false;
	return n >= 2 * BYTES_MIN && n % 2 == 0;
}

static int key_from_bytes(
	const char *path, const uint8_t *buf, size_t len, struct dr_boot_key *out, struct dr_err *e)
{
	uint8_t raw[FILE_MAX / 2 + 1];
	while (len > 0 && isspace(buf[len - 1]))
		len--;
	if (all_hex(buf, len)) {
		size_t n = 0;
		sodium_hex2bin(raw, sizeof(raw), (const char *)buf, len, NULL, &n, NULL);
		crypto_generichash(out->bytes, sizeof(out->bytes), raw, n, NULL, 0);
		sodium_memzero(raw, sizeof(raw));
		return 0;
	}
	if (len < BYTES_MIN)
		return dr_err_set(e, -EINVAL,
			"key file %s: %zu bytes, at least %d are needed" MAKE_ONE, path, len,
			BYTES_MIN);
	crypto_generichash(out->bytes, sizeof(out->bytes), buf, len, NULL, 0);
	return 0;
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
	struct stat st;
	uint8_t buf[FILE_MAX + 1];
	ssize_t got = dr_file_read(fd, buf, sizeof(buf));
	int rc = got < 0 ? (int)got : fstat(fd, &st) ? -errno : 0;
	size_t len = rc ? 0 : (size_t)got;
	close(fd);
	if (rc) {
		dr_err_set(e, rc, "key file %s: %s", path, strerror(-rc));
	} else if (len > FILE_MAX) {
		rc = dr_err_set(e, -EINVAL,
			"key file %s: larger than %d bytes; give a file made for --key-file", path,
			FILE_MAX);
	} else {
		rc = key_from_bytes(path, buf, len, out, e);
		if (rc == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
			dr_warn("bootstrap",
				"key file %s is readable by all users of this host; run chmod 600 %s",
				path, path);
	}
	sodium_memzero(buf, sizeof(buf));
	return rc;
}
