/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "orchestrator/record/report.h"

static const char *hint_of(int err)
{
	return err == ENOENT || err == ENOTDIR ? "; create the directory first"
	       : err == ENOSPC		       ? "; free some space"
	       : err == EISDIR		       ? "; name a file in it"
	       : err == EACCES || err == EPERM || err == EROFS
		       ? "; choose a directory that you may write to"
		       : "";
}

static int cannot(struct dr_err *e, const char *option, const char *path, int err)
{
	return dr_err_set(e, -err, "cannot write %s=%s: %s%s", option, path,
		err == ENOMEM ? "out of memory" : strerror(err), hint_of(err));
}

/*
 * A new file beside `target`, hidden and not ending in the target's suffix, so that node_exporter,
 * which reads *.prom, never takes it. Returns the descriptor, *out its name; -errno.
 */
static int temp_open(const char *target, char **out)
{
	const char *slash = strrchr(target, '/');
	int dir_len = slash ? (int)(slash - target) + 1 : 0, rc = -EEXIST;
	size_t size = strlen(target) + 32;
	char *name = dr_calloc(1, size);
	uint64_t r;

	if (!name)
		return -ENOMEM;
	for (int tries = 0; rc == -EEXIST && tries < 16; tries++) {
		if (dr_random_bytes(&r, sizeof(r)))
			r = (uint64_t)getpid() + (uint64_t)tries;
		snprintf(name, size, "%.*s.%s.%08" PRIx32, dir_len, target, target + dir_len,
			(uint32_t)r);
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0) {
			*out = name;
			return fd;
		}
		rc = -errno;
	}
	dr_free(name);
	return rc;
}

/* Where path really leads, so that a symbolic link stays one. *regular: a regular file is or may be there. */
static int resolve(const char *path, char **out, bool *regular)
{
	char buf[PATH_MAX];
	struct stat st;

	*regular = true;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		*regular = S_ISREG(st.st_mode);
		if (access(path, W_OK))
			return -errno;
		if (*regular && realpath(path, buf))
			path = buf;
	}
	*out = dr_strdup(path);
	return *out ? 0 : -ENOMEM;
}

/* The directory takes no new file but the file itself is writable (a bind mount): write it in place. */
static bool in_place_helps(int err, const char *path)
{
	return (err == EACCES || err == EPERM || err == EROFS) && access(path, W_OK) == 0;
}

/* A file that is written beside its target and renamed, or in place: temp NULL, fd below 0. */
struct file {
	char *path, *temp;
	int fd;
};

static void file_end(struct file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->temp)
		unlink(f->temp);
	dr_free(f->path);
	dr_free(f->temp);
}

static int file_begin(struct file *f, const char *option, const char *path, struct dr_err *e)
{
	bool regular;

	if (!*path)
		return dr_err_set(e, -EINVAL, "%s=: no file name", option);
	*f = (struct file){ .fd = -1 };
	int rc = resolve(path, &f->path, &regular);
	if (!rc && regular) {
		f->fd = temp_open(f->path, &f->temp);
		if (f->fd < 0 && !in_place_helps(-f->fd, f->path))
			rc = f->fd;
	}
	if (!rc)
		return 0;
	file_end(f);
	return cannot(e, option, path, -rc);
}

int dr_file_probe(const char *option, const char *path, struct dr_err *e)
{
	struct file f;
	int rc = file_begin(&f, option, path, e);

	if (!rc)
		file_end(&f);
	return rc;
}

/* 0 or errno; the file is closed. */
static int write_all(struct file *f, const char *text, size_t len)
{
	FILE *out = fdopen(f->fd, "w");
	struct stat st;

	if (!out)
		return errno;
	int err = -dr_stream_put(out, text, len, f->path, NULL);
	/* A pipe or a terminal knows no fsync: EINVAL, EROFS. */
	if (!err && fsync(f->fd) && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
		err = errno;
	if (!err && f->temp && stat(f->path, &st) == 0 && fchmod(f->fd, st.st_mode & 07777))
		err = errno;
	if (fclose(out) && !err)
		err = errno;
	f->fd = -1;
	return err;
}

int dr_file_write(
	const char *option, const char *path, const char *text, size_t len, struct dr_err *e)
{
	struct file f;
	int rc = file_begin(&f, option, path, e);

	if (rc)
		return rc;
	if (!f.temp)
		f.fd = open(f.path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
	int err = f.fd < 0 ? errno : write_all(&f, text, len);
	if (!err && f.temp && rename(f.temp, f.path))
		err = errno;
	file_end(&f);
	return err ? cannot(e, option, path, err) : 0;
}

bool dr_file_remove(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT;
	return S_ISREG(st.st_mode) && unlink(path) == 0;
}

int dr_stream_put(FILE *f, const char *text, size_t len, const char *what, struct dr_err *e)
{
	errno = 0;
	/* In one piece and flushed, so that errno belongs to this. */
	if (fwrite(text, 1, len, f) == len && !fflush(f) && !ferror(f))
		return 0;
	int err = errno ? errno : EIO;
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

int dr_json_output(const char *path, json_t *doc, int status)
{
	size_t len = 0;
	char *text = NULL;
	FILE *mem = path ? open_memstream(&text, &len) : NULL;
	int rc = mem ? dr_json_write(doc, mem, 2) : -ENOMEM;
	struct dr_err e;

	json_decref(doc);
	if (!path)
		return status;
	if (mem && fclose(mem))
		rc = -ENOMEM;
	if (rc)
		dr_err_set(&e, rc, "cannot write --json: out of memory");
	else if (strcmp(path, "-") == 0)
		rc = dr_stream_put(stdout, text, len, "standard output", &e);
	else
		rc = dr_file_write("--json", path, text, len, &e);
	free(text); /* lint-ok: of open_memstream */
	if (rc)
		dr_complain("%s", e.text);
	return rc && !status ? DR_EXIT_ENV : status;
}

/* -------------------------------- baseline -------------------------------- */

#define BASELINE_BYTES_MAX (64 << 20)

static int baseline_check(const char *option, const char *path, const json_t *doc, struct dr_err *e)
{
	const char *schema = json_string_value(json_object_get(doc, "schema"));
	const json_t *rows = json_object_get(doc, "bandwidth");

	if (!schema || strcmp(schema, DR_RECORD_SCHEMA))
		return dr_err_set(e, -EBADMSG,
			"%s=%s: its schema is \"%.40s\", not \"" DR_RECORD_SCHEMA
			"\"; write one with --save-baseline to a new file",
			option, path, schema ? schema : "");
	if (!json_is_array(rows) || !json_array_size(rows))
		return dr_err_set(e, -EBADMSG,
			"%s=%s: no bandwidth in it; write one with --test bw --save-baseline to a new "
			"file",
			option, path);
	return 0;
}

int dr_baseline_load(const char *option, const char *path, json_t **out, struct dr_err *e)
{
	json_error_t je;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return dr_err_set(e, -errno, "cannot read %s=%.80s: %s%s%.80s", option, path,
			strerror(errno),
			errno == ENOENT ? "; write it first with --save-baseline " : "",
			errno == ENOENT ? path : "");
	bool fits = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= BASELINE_BYTES_MAX;
	json_t *doc = fits ? json_loadfd(fd, JSON_REJECT_DUPLICATES, &je) : NULL;
	close(fd);
	if (!fits)
		return dr_err_set(e, -EBADMSG,
			"cannot read %s=%s: not a regular file of at most %d MiB", option, path,
			BASELINE_BYTES_MAX >> 20);
	if (!doc)
		return dr_err_set(e, -EBADMSG, "%s=%s: not JSON: line %d column %d: %s", option,
			path, je.line, je.column, je.text);
	int rc = baseline_check(option, path, doc, e);
	if (rc)
		json_decref(doc);
	else
		*out = doc;
	return rc;
}
