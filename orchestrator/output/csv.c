/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/*
 * dr_csv_write makes one flat table: its columns are the fields of all row types that have a name in CSV, in the order of
 * the row types, each name once. The values are those of the JSON document.
 */
enum { COLUMNS_MAX = 160 };

static const char *column_of(const struct dr_field *f)
{
	const struct dr_field_out *out = f->out;

	return out && out->csv ? out->csv : f->name;
}

static size_t columns(const char *names[COLUMNS_MAX])
{
	size_t n = 0, c;

	for (size_t i = 0; i < dr_n_row_types; i++) {
		const struct dr_fields *t = dr_row_types[i].fields;

		for (size_t k = 0; dr_row_types[i].csv && k < t->n; k++) {
			if (t->f[k].flags & DR_F_NO_CSV)
				continue;
			for (c = 0; c < n && strcmp(names[c], column_of(&t->f[k])) != 0; c++)
				;
			dr_assert(c < COLUMNS_MAX);
			names[c] = column_of(&t->f[k]);
			n = DR_MAX(n, c + 1);
		}
	}
	return n;
}

static void put_text(const char *s, FILE *f)
{
	if (!strpbrk(s, ",\"\r\n")) {
		fputs(s, f);
		return;
	}
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', f);
		fputc(*s, f);
	}
	fputc('"', f);
}

/* The value of the row in that column; nothing where it has none. */
static int put_value(const struct dr_fields *t, const char *column, const void *row, FILE *f)
{
	size_t i = 0;

	while (i < t->n && (t->f[i].flags & DR_F_NO_CSV || strcmp(column_of(&t->f[i]), column)))
		i++;
	if (i == t->n)
		return 0;
	json_t *v = dr_field_value(&t->f[i], row);
	int rc = v ? 0 : -ENOMEM;
	if (json_is_string(v))
		put_text(json_string_value(v), f);
	else if (json_is_integer(v))
		fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		fprintf(f, "%.15g", json_real_value(v));
	json_decref(v);
	return rc;
}

static bool has_rows(const struct dr_row_type *t, const struct dr_record *rec)
{
	size_t n;
	const char *row = dr_row_type_rows(t, rec, &n);

	return n && !(t->flags & DR_ROW_SINGLE && dr_field_unknown(&t->fields->f[0], row));
}

static int put_rows(const struct dr_row_type *t, const struct dr_record *rec,
	const char *const *names, size_t n_names, FILE *f)
{
	size_t n;
	const char *row = dr_row_type_rows(t, rec, &n);
	int rc = 0;

	if (!has_rows(t, rec))
		return 0;
	for (size_t i = 0; !rc && i < n; i++, row += t->fields->size) {
		fprintf(f, "%s,%s", t->csv, rec->run_id);
		for (size_t c = 0; !rc && c < n_names; c++) {
			fputc(',', f);
			rc = put_value(t->fields, names[c], row, f);
		}
		fputc('\n', f);
	}
	return rc;
}

static void put_head(const char *const *names, size_t n, FILE *f)
{
	fputs("record,run_id", f);
	for (size_t i = 0; i < n; i++) {
		fputc(',', f);
		for (const char *p = names[i]; *p; p++)
			fputc(*p == '.' ? '_' : *p, f);
	}
	fputc('\n', f);
}

int dr_csv_write(struct dr_record *rec, FILE *f)
{
	const char *names[COLUMNS_MAX] = { NULL };
	size_t n = columns(names);
	int rc = 0;

	dr_record_settle(rec);
	put_head(names, n, f);
	for (size_t i = 0; !rc && i < dr_n_row_types; i++)
		if (dr_row_types[i].csv)
			rc = put_rows(&dr_row_types[i], rec, names, n, f);
	return rc;
}
