/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: the same key, whether it stands there as bytes or as digits, with or without a newline. */
#include "bootstrap/bootstrap.h"
#include "tests/fuzz/lib/fuzz.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_key(const void *b, size_t len, struct dr_boot_key *out)
{
	int rc, fd = memfd_create("key", MFD_CLOEXEC);
	struct dr_err e = { 0 };
	char path[64];

	dr_assert(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, b, len) == (ssize_t)len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = dr_boot_key_read(path, out, &e);
	close(fd);
	if (rc)
		fz_explained(rc, &e);
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	struct dr_boot_key a, b;
	size_t len;
	uint8_t *p = fz_bytes(&z, 5000, &len);
	char *hex = malloc(2 * len + 2);
	bool digits = len > 0;
	int rc = read_key(p, len, &a);

	dr_assert(hex);
	for (size_t i = 0; i < len; i++)
		digits = digits && (isxdigit(p[i]) || isspace(p[i]));
	dr_assert(len <= 4096 || rc);
	if (rc == 0 && len <= 2000 && !digits && !isspace(p[len - 1])) {
		sodium_bin2hex(hex, 2 * len + 1, p, len);
		hex[2 * len] = '\n';
		dr_assert(read_key(hex, 2 * len + 1, &b) == 0);
		dr_assert(memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0);
	}
	free(hex);
	free(p);
	return 0;
}
