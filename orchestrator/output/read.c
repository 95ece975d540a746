/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/* Result documents of earlier runs. */
/* A sweep of 1,000 nodes, all pairs, has 261 MB. */
enum { DOCUMENT_BYTES_MAX = 64 << 20, SWEEP_BYTES_MAX = 512 << 20 };

/* name: the path with its option, hint: behind "does not exist". */
static int read_text(const char *name, const char *hint, const char *path, size_t bytes_max,
	json_t **out, struct dr_err *e)
{
	struct dr_err why;
	size_t len;
	char *text;
	int rc = dr_file_text(path, bytes_max, &text, &len, &why);

	if (rc)
		return dr_err_set(e, rc, "cannot read %.100s: %s%.100s", name, why.text,
			rc == -ENOENT ? hint : "");
	*out = dr_json_parse(text, len, &why);
	dr_free(text);
	if (!*out)
		return dr_err_set(e, -EBADMSG, "%.100s: %s", name, why.text);
	return 0;
}

struct wanted {
	size_t bytes_max;
	const char *schemas[3];
	const char *text; /* which schemas these are, and how to get one */
};

static int load(const char *name, const char *hint, const char *path, const struct wanted *w,
	json_t **out, struct dr_err *e)
{
	int rc = read_text(name, hint, path, w->bytes_max, out, e);
	char schema[48];

	for (int i = 0; rc == 0 && w->schemas[i]; i++)
		if (strcmp(dr_json_string(*out, "schema"), w->schemas[i]) == 0)
			return 0;
	if (rc)
		return rc;
	dr_text_copy(schema, sizeof(schema), dr_json_string(*out, "schema"));
	json_decref(*out);
	*out = NULL;
	return dr_err_set(
		e, -EBADMSG, "%.100s: its schema is \"%.40s\", not %s", name, schema, w->text);
}

int dr_document_load(const char *option, const char *path, json_t **out, struct dr_err *e)
{
	const struct wanted wanted = { DOCUMENT_BYTES_MAX, { DR_RECORD_SCHEMA },
		option ? "\"" DR_RECORD_SCHEMA "\"; write one with --save-baseline to a new file"
		       : "\"" DR_RECORD_SCHEMA
			 "\"; only documents of client and demo are read: --json=FILE" };
	char name[128], hint[128] = "";

	snprintf(name, sizeof(name), "%s%s%s", option ? option : "", option ? "=" : "", path);
	if (option)
		snprintf(hint, sizeof(hint), "; write it first with --save-baseline %.80s", path);
	return load(name, hint, path, &wanted, out, e);
}

int dr_document_load_any(const char *path, json_t **out, struct dr_err *e)
{
	static const struct wanted wanted = { SWEEP_BYTES_MAX,
		{ DR_RECORD_SCHEMA, DR_SWEEP_SCHEMA },
		"\"" DR_RECORD_SCHEMA "\" or \"" DR_SWEEP_SCHEMA
		"\"; only documents of client, demo and sweep are read: --json=FILE" };

	return load(path, "", path, &wanted, out, e);
}

/* The lists from which the figures of a run follow, and what is compared beside them. */
static const size_t lists[] = { offsetof(struct dr_record, rails), offsetof(struct dr_record, gpus),
	offsetof(struct dr_record, bandwidth), offsetof(struct dr_record, matrix.cells),
	offsetof(struct dr_record, latency), offsetof(struct dr_record, faults),
	offsetof(struct dr_record, environment), offsetof(struct dr_record, environment_nics) };

static const json_t *list_of(const json_t *doc, size_t off)
{
	char outer[DR_FIELD_OUTER];

	for (size_t i = 0; i < dr_record_fields.n; i++) {
		const struct dr_field *f = &dr_record_fields.f[i];

		if (f->off != off || f->kind != DR_F_LIST)
			continue;
		const char *key = dr_field_key(f, outer);
		const json_t *home = *outer ? json_object_get(doc, outer) : doc;

		return json_object_get(home, key);
	}
	return NULL;
}

int dr_record_read(struct dr_record *rec, const json_t *doc, struct dr_err *e)
{
	_Alignas(max_align_t) char row[DR_RECORD_ROW_MAX];
	struct dr_total total;
	int rc = 0;

	for (size_t i = 0; i < DR_ARRAY_LEN(lists) && !rc; i++) {
		const struct dr_row_type *t = dr_row_type_at(lists[i]);
		const json_t *a = list_of(doc, lists[i]);
		size_t most = dr_row_type_max(t, rec);

		if (json_array_size(a) > most)
			rc = dr_err_set(e, -EPROTO, "%s: %zu rows; a run has %zu at most",
				t->fields->what, json_array_size(a), most);
		dr_assert(t->fields->size <= sizeof(row));
		for (size_t k = 0; !rc && k < json_array_size(a); k++) {
			rc = dr_fields_from_json(t->fields, row, json_array_get(a, k), e);
			if (!rc && !dr_record_add_row(rec, lists[i], row))
				rc = dr_err_set(e, -ENOMEM, "out of memory");
		}
	}
	if (!rc && json_is_object(json_object_get(doc, "total")))
		rc = dr_fields_from_json(
			&dr_total_fields, &total, json_object_get(doc, "total"), e);
	else
		dr_fields_init(&dr_total_fields, &total);
	if (rc)
		return rc;
	rec->cpu_percent_local = total.cpu_percent_local;
	rec->cpu_percent_peer = total.cpu_percent_peer;
	return 0;
}
