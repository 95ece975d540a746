/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "orchestrator/output/parts.h"

int dr_stream_put(FILE *f, const char *text, size_t len, const char *what, struct dr_err *e)
{
	errno = 0;
	/* In one piece and flushed, so that errno belongs to this. */
	if (fwrite(text, 1, len, f) == len && !fflush(f) && !ferror(f))
		return 0;
	if (!errno) { /* an earlier write failed: the next one does for the same reason */
		clearerr(f);
		(void)!(fputc('\n', f) == EOF || fflush(f));
	}
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

	if (status == DR_EXIT_USAGE && path && strcmp(path, "-") != 0)
		path = NULL; /* nothing that refused options name is touched */
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

int dr_baseline_load(const char *option, const char *path, json_t **out, struct dr_err *e)
{
	json_t *doc = NULL;
	int rc = dr_document_load(option, path, &doc, e);

	if (rc)
		return rc;
	if (!json_array_size(json_object_get(doc, "bandwidth"))) {
		json_decref(doc);
		return dr_err_set(e, -EBADMSG,
			"%s=%.100s: no bandwidth in it; write one with --test bw --save-baseline to a new "
			"file",
			option, path);
	}
	*out = doc;
	return 0;
}
