/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/machine.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool DR_PRINTF(4, 0)
	make_path(char *buf, size_t len, const char *root, const char *fmt, va_list ap)
{
	int n = snprintf(buf, len, "%s", root), m;

	if (n < 0 || (size_t)n >= len)
		return false;
	m = vsnprintf(buf + n, len - (size_t)n, fmt, ap);
	return m >= 0 && (size_t)m < len - (size_t)n;
}

bool dr_machine_path(char *buf, size_t len, const char *root, const char *fmt, ...)
{
	va_list ap;
	bool fits;

	va_start(ap, fmt);
	fits = make_path(buf, len, root, fmt, ap);
	va_end(ap);
	return fits;
}

static int read_text(char *buf, size_t len, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), err;
	size_t n = 0;
	ssize_t got = 0;

	if (fd < 0)
		return -errno;
	while (n < len - 1 && (got = read(fd, buf + n, len - 1 - n)) > 0)
		n += (size_t)got;
	err = errno;
	close(fd);
	buf[n] = '\0';
	n = strlen(buf);
	while (n > 0 && isspace((unsigned char)buf[n - 1]))
		buf[--n] = '\0';
	return got < 0 ? -err : (int)n;
}

static int DR_PRINTF(4, 0)
	text_at(char *buf, size_t len, const char *root, const char *fmt, va_list ap)
{
	char path[DR_MACHINE_PATH_MAX];
	int n;

	buf[0] = '\0';
	if (!make_path(path, sizeof(path), root, fmt, ap))
		return -ENAMETOOLONG;
	n = read_text(buf, len, path);
	if (n < 0)
		buf[0] = '\0';
	return n;
}

int dr_machine_text(char *buf, size_t len, const char *root, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = text_at(buf, len, root, fmt, ap);
	va_end(ap);
	return n;
}

bool dr_machine_number(int64_t *out, const char *root, const char *fmt, ...)
{
	char buf[64], *end;
	long long v;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = text_at(buf, sizeof(buf), root, fmt, ap);
	va_end(ap);
	if (n <= 0)
		return false;
	errno = 0;
	v = strtoll(buf, &end, 0); /* "0x10de" as well as "-1" and "16" */
	if (errno || end == buf || (*end && !isspace((unsigned char)*end)))
		return false;
	*out = v;
	return true;
}

bool dr_machine_has(const char *root, const char *fmt, ...)
{
	char path[DR_MACHINE_PATH_MAX];
	va_list ap;
	bool fits;

	va_start(ap, fmt);
	fits = make_path(path, sizeof(path), root, fmt, ap);
	va_end(ap);
	return fits && access(path, F_OK) == 0;
}

bool dr_machine_line(const char *text, const char *key, char *buf, size_t len)
{
	size_t n = strlen(key);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) != 0 || line[n] != ':')
			continue;
		line += n + 1;
		line += strspn(line, " \t");
		snprintf(buf, len, "%.*s", (int)strcspn(line, "\n"), line);
		return true;
	}
	return false;
}
