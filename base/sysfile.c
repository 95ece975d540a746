/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sysfile.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The path of a function whose last parameters are root, fmt, ...; "", which names no file, when too long. */
#define MAKE_PATH(path, root, fmt)                                                                 \
	do {                                                                                       \
		va_list ap_;                                                                       \
		va_start(ap_, fmt);                                                                \
		make_path(path, sizeof(path), root, fmt, ap_);                                     \
		va_end(ap_);                                                                       \
	} while (0)

static bool DR_PRINTF(4, 0)
	make_path(char *buf, size_t len, const char *root, const char *fmt, va_list ap)
{
	size_t n = strlen(root);

	if (n < len) {
		memcpy(buf, root, n);
		size_t m = (size_t)vsnprintf(buf + n, len - n, fmt, ap);
		if (m < len - n)
			return true;
	}
	buf[0] = '\0';
	return false;
}

bool dr_sysfile_path(char *buf, size_t len, const char *root, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	bool fits = make_path(buf, len, root, fmt, ap);
	va_end(ap);
	return fits;
}

static int read_text(char *buf, size_t len, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t n = 0;
	ssize_t got = 0;

	buf[0] = '\0';
	if (fd < 0)
		return path[0] ? -errno : -ENAMETOOLONG;
	while (n < len - 1 && (got = read(fd, buf + n, len - 1 - n)) > 0)
		n += (size_t)got;
	int err = errno;
	close(fd);
	buf[got < 0 ? 0 : n] = '\0';
	n = strlen(buf);
	while (n > 0 && isspace((unsigned char)buf[n - 1]))
		buf[--n] = '\0';
	return got < 0 ? -err : (int)n;
}

int dr_sysfile_text(char *buf, size_t len, const char *root, const char *fmt, ...)
{
	char path[DR_SYSFILE_PATH_MAX];

	MAKE_PATH(path, root, fmt);
	return read_text(buf, len, path);
}

int dr_sysfile_link(char *buf, size_t len, const char *root, const char *fmt, ...)
{
	char path[DR_SYSFILE_PATH_MAX], to[PATH_MAX];

	MAKE_PATH(path, root, fmt);
	ssize_t n = readlink(path, to, sizeof(to) - 1);
	to[DR_MAX(n, 0)] = '\0';
	const char *slash = strrchr(to, '/');
	snprintf(buf, len, "%s", slash ? slash + 1 : to);
	return n < 0 ? -errno : (int)strlen(buf);
}

bool dr_sysfile_number(int64_t *out, const char *root, const char *fmt, ...)
{
	char path[DR_SYSFILE_PATH_MAX], buf[64], *end;

	MAKE_PATH(path, root, fmt);
	if (read_text(buf, sizeof(buf), path) <= 0)
		return false;
	errno = 0;
	long long v = strtoll(buf, &end, 0); /* "0x10de" as well as "-1" and "16" */
	if (errno || end == buf || (*end && !isspace((unsigned char)*end)))
		return false;
	*out = v;
	return true;
}

bool dr_sysfile_has(const char *root, const char *fmt, ...)
{
	char path[DR_SYSFILE_PATH_MAX];

	MAKE_PATH(path, root, fmt);
	return access(path, F_OK) == 0;
}

static int visible(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

int dr_sysfile_each(const char *root, const char *dir, dr_sysfile_fn fn, void *arg)
{
	char path[DR_SYSFILE_PATH_MAX];
	struct dirent **list;
	int rc = 0, n = -1;

	if (dr_sysfile_path(path, sizeof(path), root, "%s", dir))
		n = scandir(path, &list, visible, versionsort);
	for (int i = 0; i < n; i++) {
		rc = rc ? rc : fn(list[i]->d_name, arg);
		free(list[i]); /* lint-ok: scandir's memory */
	}
	if (n >= 0)
		free(list); /* lint-ok: scandir's memory */
	return rc;
}
