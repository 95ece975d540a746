/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap.h"

#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 4096, BYTES_MIN = 16 };

static bool all_hex(const uint8_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isxdigit(b[i]))
			return false;
	return n >= 2 * BYTES_MIN && n % 2 == 0;
}

static int read_all(int fd, uint8_t *buf, size_t cap, size_t *len)
{
	*len = 0;
	while (*len < cap) {
		ssize_t n = read(fd, buf + *len, cap - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		*len += (size_t)n;
	}
	return 0;
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
			"key file %s: %zu bytes, at least %d are needed; make one with 'head -c 32 "
			"/dev/urandom | xxd -p -c 64'",
			path, len, BYTES_MIN);
	crypto_generichash(out->bytes, sizeof(out->bytes), buf, len, NULL, 0);
	return 0;
}

int dr_boot_key_read(const char *path, struct dr_boot_key *out, struct dr_err *e)
{
	if (sodium_init() < 0)
		return dr_err_set(e, -EIO, "libsodium does not start");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return dr_err_set(e, -errno, "key file %s: %s", path, strerror(errno));
	struct stat st;
	uint8_t buf[FILE_MAX + 1];
	size_t len = 0;
	int rc = fstat(fd, &st) ? -errno : read_all(fd, buf, sizeof(buf), &len);
	close(fd);
	if (rc) {
		dr_err_set(e, rc, "key file %s: %s", path, strerror(-rc));
	} else if (len > FILE_MAX) {
		rc = dr_err_set(e, -EINVAL, "key file %s: more than %d bytes; is it a key?", path,
			FILE_MAX);
	} else {
		rc = key_from_bytes(path, buf, len, out, e);
		if (rc == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
			dr_warn("bootstrap",
				"key file %s: everybody on this host may read it; "
				"chmod 600 %s",
				path, path);
	}
	sodium_memzero(buf, sizeof(buf));
	return rc;
}
