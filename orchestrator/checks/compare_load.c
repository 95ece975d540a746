/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "orchestrator/checks/compare_priv.h"
#include "orchestrator/output/parts.h"

/* Reads the documents, and refuses those that measured something else than the first one. */

void compare_note(struct compare *c, const char *file, const char *fmt, ...)
{
	struct compare_note n = { "", "" };
	va_list ap;

	dr_text_copy(n.file, sizeof(n.file), file);
	va_start(ap, fmt);
	vsnprintf(n.text, sizeof(n.text), fmt, ap);
	va_end(ap);
	dr_text_copy(n.text, sizeof(n.text), n.text);
	(void)compare_add(c, &c->notes, &n);
}

struct differing {
	struct compare *c;
	const char *file;
};

/* Once for all files with the same difference. */
static void put_difference(void *arg, const char *was, const char *is)
{
	const struct differing *d = arg;
	struct compare *c = d->c;
	struct compare_difference x = { "", "", "" };

	dr_text_copy(x.was, sizeof(x.was), was);
	dr_text_copy(x.is, sizeof(x.is), is);
	dr_text_copy(x.file, sizeof(x.file), d->file);
	for (size_t i = 0; i < c->differences.n; i++)
		if (strcmp(c->differences.v[i].was, x.was) == 0 &&
			strcmp(c->differences.v[i].is, x.is) == 0)
			return;
	(void)compare_add(c, &c->differences, &x);
}

/* ---- environments ---- */

/* Members of "host", "environment.ends" and "environment.nics" that change figures. */
static const char *const host_keys[] = { "name", "kernel", "cpus", NULL };
static const char *const end_keys[] = { "kernel", "congestion_control", "tcp_rmem", "tcp_wmem",
	"cpu_governor", NULL };
static const char *const nic_keys[] = { "mtu_bytes", "qdisc", "tso", "gso", "gro", "gso_max_bytes",
	"gro_max_bytes", "driver", "firmware", NULL };

static void format(const char *what, const char *key, const json_t *v, char *buf, size_t len)
{
	char *text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;

	snprintf(buf, len, "%.48s %.20s %.40s", what, key,
		json_is_string(v) ? json_string_value(v)
		: text		  ? text
				  : "unknown");
	free(text); /* lint-ok: of jansson */
}

/* What one of the two does not know is no difference. */
static void differ(const char *what, const char *const *keys, const json_t *was, const json_t *is,
	struct differing *to)
{
	char one[112], two[112];

	for (; *keys; keys++) {
		const json_t *a = json_object_get(was, *keys), *b = json_object_get(is, *keys);

		if (!a || !b || json_is_null(a) || json_is_null(b) || json_equal(a, b))
			continue;
		format(what, *keys, a, one, sizeof(one));
		format(what, *keys, b, two, sizeof(two));
		put_difference(to, one, two);
	}
}

/* Rows of two lists with the same end and NIC. */
static void differ_rows(const char *list, const char *const *keys, const json_t *was,
	const json_t *is, struct differing *to)
{
	const json_t *a = json_object_get(was, list), *b = json_object_get(is, list), *x, *y;
	size_t i, k;
	char what[96];

	json_array_foreach(a, i, x) json_array_foreach(b, k, y)
	{
		if (strcmp(dr_json_string(x, "side"), dr_json_string(y, "side")) != 0 ||
			strcmp(dr_json_string(x, "nic"), dr_json_string(y, "nic")) != 0)
			continue;
		snprintf(what, sizeof(what), "%.12s%s%.32s", dr_json_string(x, "side"),
			*dr_json_string(x, "nic") ? " " : "", dr_json_string(x, "nic"));
		differ(what, keys, x, y, to);
	}
}

static void compare_environments(const json_t *was, const json_t *is, struct differing *to)
{
	const json_t *a = json_object_get(was, "host"), *b = json_object_get(is, "host");
	const json_t *x = json_object_get(was, "environment"),
		     *y = json_object_get(is, "environment");

	differ("host", host_keys, a, b, to);
	differ("peer", host_keys, json_object_get(a, "peer"), json_object_get(b, "peer"), to);
	differ_rows("ends", end_keys, x, y, to);
	differ_rows("nics", nic_keys, x, y, to);
}

/* ---- documents ---- */

/* The versions of a side, each once, and its first and last begin. */
static void describe(struct compare_side *s, const json_t *doc)
{
	const char *version = dr_json_string(json_object_get(doc, "versions"), "local"),
		   *time = dr_json_string(doc, "start_time");
	char clean[40];

	dr_text_copy(clean, sizeof(clean), version);
	if (*clean && !strstr(s->versions, clean))
		dr_append(
			s->versions, sizeof(s->versions), "%s%s", *s->versions ? ", " : "", clean);
	dr_text_copy(clean, sizeof(clean), time);
	if (*clean && (!*s->first || strcmp(clean, s->first) < 0))
		memcpy(s->first, clean, sizeof(s->first));
	if (*clean && strcmp(clean, s->last) > 0)
		memcpy(s->last, clean, sizeof(s->last));
	s->runs++;
}

static int take(struct compare *c, int side, const char *path, const json_t *doc, struct dr_err *e)
{
	struct dr_record *rec;
	int rc = dr_record_create(&rec);

	if (rc)
		return dr_err_set(e, rc, "out of memory");
	rec->side =
		strcmp(dr_json_string(doc, "side"), "server") == 0 ? DR_END_SERVER : DR_END_CLIENT;
	rc = dr_record_read(rec, doc, e);
	if (rc)
		dr_err_prefix(e, "%.100s", path);
	else
		compare_take(c, side, path, rec);
	dr_record_destroy(rec);
	return rc;
}

/* What the documents are compared with, and the runs that were there already. */
struct seen {
	json_t *first, *runs;
};

static void note_incomplete(struct compare *c, const char *path, const json_t *doc)
{
	const char *why = dr_json_string(json_array_get(json_object_get(doc, "errors"), 0), "text");
	char clean[100];

	dr_text_copy(clean, sizeof(clean), why);
	compare_note(c, path, "left out: the run did not complete%s%s", *clean ? ": " : "", clean);
}

static bool counts(struct compare *c, const char *path, const json_t *doc, struct seen *seen)
{
	const char *status = json_string_value(json_object_get(doc, "status")),
		   *run = json_string_value(json_object_get(doc, "run_id"));

	if (!status || strcmp(status, "error") == 0)
		note_incomplete(c, path, doc);
	else if (run && json_object_get(seen->runs, run))
		compare_note(c, path, "left out: the same run as in %.100s",
			json_string_value(json_object_get(seen->runs, run)));
	else if (run && json_object_set_new(seen->runs, run, dr_json_text(path)))
		c->no_memory = true;
	else
		return true;
	return false;
}

static int load(struct compare *c, int side, const char *path, struct seen *seen, struct dr_err *e)
{
	struct differing d = { c, path };
	json_t *doc;
	int rc = dr_document_load(NULL, path, &doc, e);

	if (rc == -ENOENT && *path == '-')
		return dr_err_set(e, -EINVAL,
			"%.100s behind -- is taken for a file; options go before the --", path);
	if (rc)
		return rc;
	if (!counts(c, path, doc, seen)) {
		json_decref(doc);
		return 0;
	}
	rc = take(c, side, path, doc, e);
	if (rc == 0 && seen->first) {
		dr_baseline_differences(seen->first, doc, put_difference, &d);
		compare_environments(seen->first, doc, &d);
	} else if (rc == 0) {
		seen->first = json_incref(doc);
	}
	describe(&c->side[side], doc);
	json_decref(doc);
	return rc;
}

int compare_load(struct compare *c, struct dr_err *e)
{
	struct seen seen = { NULL, json_object() };
	int rc = seen.runs ? 0 : dr_err_set(e, -ENOMEM, "out of memory");

	c->trials = c->side[SIDE_OLD].n == 1 && c->side[SIDE_NEW].n == 1;
	for (int side = 0; side < 2; side++)
		for (int i = 0; i < c->side[side].n && !rc; i++)
			rc = load(c, side, c->side[side].path[i], &seen, e);
	json_decref(seen.first);
	json_decref(seen.runs);
	if (!rc && c->no_memory)
		rc = dr_err_set(e, -ENOMEM, "out of memory");
	return rc;
}
