/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/record/report.h"

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
		rc = dr_file_write("--json", path, text, len, DR_FILE_SYNC, &e);
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

/* The file's text in memory of dr_calloc's. */
static int baseline_read(
	const char *option, const char *path, char **text, size_t *len, struct dr_err *e)
{
	struct dr_err why;
	struct stat st;
	int fd = dr_file_open(path, &why);

	if (fd < 0)
		return dr_err_set(e, fd, "cannot read %s=%.80s: %s%s%.80s", option, path, why.text,
			fd == -ENOENT ? "; write it first with --save-baseline " : "",
			fd == -ENOENT ? path : "");
	bool fits = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= BASELINE_BYTES_MAX;
	char *p = fits ? dr_calloc(1, (size_t)st.st_size + 1) : NULL;
	ssize_t n = p ? dr_file_read(fd, p, (size_t)st.st_size) : -ENOMEM;

	close(fd);
	if (n >= 0) {
		*text = p;
		*len = (size_t)n;
		return 0;
	}
	dr_free(p);
	return fits ? dr_err_set(
			      e, (int)n, "cannot read %s=%s: %s", option, path, strerror((int)-n))
		    : dr_err_set(e, -EBADMSG,
			      "cannot read %s=%s: not a regular file of at most %d MiB", option,
			      path, BASELINE_BYTES_MAX >> 20);
}

int dr_baseline_load(const char *option, const char *path, json_t **out, struct dr_err *e)
{
	json_error_t je;
	size_t len = 0;
	char *text = NULL;
	int rc = baseline_read(option, path, &text, &len, e);

	if (rc)
		return rc;
	json_t *doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
	dr_free(text);
	if (!doc)
		return dr_err_set(e, -EBADMSG, "%s=%s: not JSON: line %d column %d: %s", option,
			path, je.line, je.column, je.text);
	rc = baseline_check(option, path, doc, e);
	if (rc)
		json_decref(doc);
	else
		*out = doc;
	return rc;
}
