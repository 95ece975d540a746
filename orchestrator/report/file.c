/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/report/report.h"

static int cannot(struct dr_err *e, const char *option, const char *path, int err, const char *hint)
{
	return dr_err_set(e, -err, "cannot write %s=%s: %s%s%s", option, path, strerror(err),
		hint ? "; " : "", hint ? hint : "");
}

/*
 * A new file beside `target`, hidden and not ending in the target's suffix, so that node_exporter,
 * which reads *.prom, never takes it. Returns the descriptor, *out its name; -errno.
 */
static int temp_open(const char *target, char **out)
{
	const char *slash = strrchr(target, '/');
	int dir_len = slash ? (int)(slash - target) + 1 : 0, fd, rc = -EEXIST, tries;
	size_t size = strlen(target) + 32;
	char *name = dr_calloc(1, size);
	uint64_t r;

	if (!name)
		return -ENOMEM;
	for (tries = 0; rc == -EEXIST && tries < 16; tries++) {
		if (dr_random_bytes(&r, sizeof(r)))
			r = (uint64_t)getpid() + (uint64_t)tries;
		snprintf(name, size, "%.*s.%s.%08" PRIx32, dir_len, target, target + dir_len,
			(uint32_t)r);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0) {
			*out = name;
			return fd;
		}
		rc = -errno;
	}
	dr_free(name);
	return rc;
}

/* Where path really leads, so that a symbolic link stays one. In *regular: 1 a regular file is or
 * may be there, 0 something else. */
static int resolve(const char *option, const char *path, char **out, int *regular, struct dr_err *e)
{
	char buf[PATH_MAX];
	struct stat st;

	if (!*path)
		return dr_err_set(e, -EINVAL, "%s=: no file name", option);
	*regular = 1;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return cannot(e, option, path, EISDIR, NULL);
		*regular = S_ISREG(st.st_mode);
		if (access(path, W_OK))
			return cannot(e, option, path, errno, NULL);
		if (*regular && realpath(path, buf))
			path = buf;
	}
	*out = dr_strdup(path);
	return *out ? 0 : dr_err_set(e, -ENOMEM, "cannot write %s=%s: out of memory", option, path);
}

/* May the folder be full of rights but the file itself be writable (a bind mount)? Then in place. */
static bool in_place_helps(int err, const char *path)
{
	return (err == EACCES || err == EPERM || err == EROFS) && access(path, W_OK) == 0;
}

static const char *hint_of(int err)
{
	return err == ENOENT || err == ENOTDIR ? "make the folder first" : NULL;
}

int dr_file_probe(const char *option, const char *path, struct dr_err *e)
{
	char *target, *temp;
	int regular, fd, rc = resolve(option, path, &target, &regular, e);

	if (rc)
		return rc;
	if (regular) {
		fd = temp_open(target, &temp);
		if (fd >= 0) {
			close(fd);
			unlink(temp);
			dr_free(temp);
		} else if (!in_place_helps(-fd, target)) {
			rc = cannot(e, option, path, -fd, hint_of(-fd));
		}
	}
	dr_free(target);
	return rc;
}

static void file_clear(struct dr_file *f)
{
	dr_free(f->path);
	dr_free(f->temp);
	memset(f, 0, sizeof(*f));
}

int dr_file_begin(struct dr_file *f, const char *option, const char *path, struct dr_err *e)
{
	int regular, fd = -EACCES, rc;

	memset(f, 0, sizeof(*f));
	rc = resolve(option, path, &f->path, &regular, e);
	if (rc)
		return rc;
	f->option = option;
	if (regular)
		fd = temp_open(f->path, &f->temp);
	if (fd < 0 && (!regular || in_place_helps(-fd, f->path))) {
		fd = open(f->path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
		fd = fd < 0 ? -errno : fd;
	}
	f->f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (f->f)
		return 0;
	rc = fd < 0 ? -fd : errno;
	if (fd >= 0)
		close(fd);
	if (f->temp)
		unlink(f->temp);
	rc = cannot(e, option, path, rc, hint_of(rc));
	file_clear(f);
	return rc;
}

int dr_file_commit(struct dr_file *f, const char *text, size_t len, struct dr_err *e)
{
	struct stat st;
	int rc = 0, err = -dr_stream_put(f->f, text, len, f->path, NULL);

	/* A pipe or a terminal knows no fsync: EINVAL, EROFS. */
	if (!err && fsync(fileno(f->f)) && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
		err = errno;
	if (!err && f->temp && stat(f->path, &st) == 0 && fchmod(fileno(f->f), st.st_mode & 07777))
		err = errno;
	if (fclose(f->f) && !err)
		err = errno;
	if (!err && f->temp && rename(f->temp, f->path))
		err = errno;
	if (err) {
		rc = cannot(e, f->option, f->path, err, err == ENOSPC ? "free some space" : NULL);
		if (f->temp)
			unlink(f->temp);
	}
	file_clear(f);
	return rc;
}

int dr_stream_put(FILE *f, const char *text, size_t len, const char *what, struct dr_err *e)
{
	int err;

	errno = 0;
	/* In one piece and flushed, so that errno belongs to this. */
	if (fwrite(text, 1, len, f) == len && !fflush(f) && !ferror(f))
		return 0;
	err = errno ? errno : EIO;
	return dr_err_set(e, -err, "cannot write to %s: %s", what, strerror(err));
}

int dr_json_write(const json_t *doc, FILE *f, unsigned indent)
{
	/* 15 digits bring every decimal of so many digits back as it was: 0.1, not 0.1000...01. */
	size_t flags = JSON_REAL_PRECISION(15) | (indent ? JSON_INDENT(indent) : JSON_COMPACT);

	if (!doc || json_dumpf(doc, f, flags) || fputc('\n', f) == EOF)
		return -ENOMEM;
	return 0;
}

/* -------------------------------- baseline -------------------------------- */

#define BASELINE_BYTES_MAX (64 << 20)

static int baseline_check(const char *path, const json_t *doc, struct dr_err *e)
{
	const char *schema = json_string_value(json_object_get(doc, "schema"));
	const json_t *rows = json_object_get(doc, "bandwidth");

	if (!schema || strcmp(schema, "dualrail/1"))
		return dr_err_set(e, -EBADMSG,
			"--baseline=%s: its schema is \"%.40s\", not \"dualrail/1\"; write one with "
			"--save-baseline",
			path, schema ? schema : "");
	if (!json_is_array(rows) || !json_array_size(rows))
		return dr_err_set(e, -EBADMSG,
			"--baseline=%s: no bandwidth in it; write one with --test bw --save-baseline",
			path);
	return 0;
}

int dr_baseline_load(const char *path, json_t **out, struct dr_err *e)
{
	json_error_t je;
	struct stat st;
	json_t *doc;
	int rc, fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return dr_err_set(
			e, -errno, "cannot read --baseline=%s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > BASELINE_BYTES_MAX) {
		close(fd);
		return dr_err_set(e, -EBADMSG,
			"cannot read --baseline=%s: not a regular file of at most %d MiB", path,
			BASELINE_BYTES_MAX >> 20);
	}
	doc = json_loadfd(fd, JSON_REJECT_DUPLICATES, &je);
	close(fd);
	if (!doc)
		return dr_err_set(e, -EBADMSG, "--baseline=%s: not JSON: line %d column %d: %s",
			path, je.line, je.column, je.text);
	rc = baseline_check(path, doc, e);
	if (rc)
		json_decref(doc);
	else
		*out = doc;
	return rc;
}
