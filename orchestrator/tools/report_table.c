/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/tools/report_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"

/* Values of a document as HTML. */

void report_text(FILE *f, const char *s)
{
	char clean[512], *p = clean;

	dr_text_copy(clean, sizeof(clean), s);
	for (; *p; p++)
		switch (*p) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		case '\'':
			fputs("&#39;", f);
			break;
		default:
			fputc(*p, f);
		}
}

const json_t *report_at(const json_t *v, const char *path)
{
	char key[48];

	while (v && *path) {
		size_t len = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)len, path);
		v = json_object_get(v, key);
		path += len + (path[len] == '.');
	}
	return v;
}

const char *report_string(const json_t *v, const char *path)
{
	const char *s = json_string_value(report_at(v, path));

	return s ? s : "";
}

double report_number(const json_t *v, const char *path)
{
	const json_t *n = report_at(v, path);

	return json_is_number(n) ? json_number_value(n) : NAN;
}

void report_sig(FILE *f, double v)
{
	double a = fabs(v);

	if (!isfinite(v))
		fputs("–", f);
	else
		fprintf(f, "%.*f", a == 0 ? 0 : a < 1 ? 3 : a < 100 ? 2 : a < 10000 ? 1 : 0, v);
}

void report_count(FILE *f, double v)
{
	if (isfinite(v))
		fprintf(f, "%.0f", v);
	else
		fputs("–", f);
}

static void put_any(FILE *f, const json_t *v)
{
	char *text;

	if (json_is_string(v)) {
		report_text(f, json_string_value(v));
	} else if (json_is_boolean(v)) {
		fputs(json_is_true(v) ? "yes" : "no", f);
	} else if (!v || json_is_null(v)) {
		fputs("–", f);
	} else {
		text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
		report_text(f, text ? text : "");
		free(text); /* lint-ok: of jansson */
	}
}

static void put_bytes(FILE *f, double v)
{
	char text[32];

	if (!(v >= 0) || v > 9e15) {
		fputs("–", f);
		return;
	}
	dr_format_size((uint64_t)v, text, sizeof(text));
	fputs(text, f);
}

static bool is_number(enum report_form form)
{
	return form != FORM_TEXT && form != FORM_BAD && form != FORM_METER;
}

static double largest(const json_t *rows, const char *path, report_keep keep)
{
	double most = 0;
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row) if (!keep || keep(row)) most =
		fmax(most, report_number(row, path));
	return most;
}

static void put_cell(FILE *f, const struct report_column *c, const json_t *row, double most)
{
	double v = report_number(row, c->path);
	const char *s = report_string(row, c->path);

	if (c->form == FORM_BAD)
		fprintf(f, "<td%s>", *s && strcmp(s, c->good) != 0 ? " class=\"bad\"" : "");
	else
		fprintf(f, "<td%s>", is_number(c->form) ? " class=\"n\"" : "");
	switch (c->form) {
	case FORM_TEXT:
	case FORM_BAD:
	case FORM_INT:
		put_any(f, report_at(row, c->path));
		break;
	case FORM_US_MS:
		report_sig(f, v / 1000);
		break;
	case FORM_BYTES:
		put_bytes(f, v);
		break;
	case FORM_METER:
		if (v >= 0 && most > 0)
			fprintf(f, "<meter min=\"0\" max=\"%.6g\" value=\"%.6g\">%.3g</meter>",
				most, v, v);
		break;
	default:
		report_sig(f, v);
	}
	fputs("</td>", f);
}

size_t report_table(FILE *f, const char *caption, const struct report_column *c, const json_t *rows,
	report_keep keep)
{
	double most[24] = { 0 };
	const json_t *row;
	size_t i, n = 0;

	json_array_foreach(rows, i, row) n += !keep || keep(row);
	if (!n)
		return 0;
	fputs("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", f);
	report_text(f, caption);
	fputs("\"><table><caption>", f);
	report_text(f, caption);
	if (n > REPORT_ROWS)
		fprintf(f, " (the first %d of %zu rows; the document has all)", REPORT_ROWS, n);
	fputs("</caption><thead><tr>", f);
	for (size_t k = 0; k < DR_ARRAY_LEN(most) && c[k].head; k++) {
		if (c[k].form == FORM_METER)
			most[k] = largest(rows, c[k].path, keep);
		fprintf(f, "<th scope=\"col\"%s>%s</th>",
			is_number(c[k].form) ? " class=\"n\"" : "", c[k].head);
	}
	fputs("</tr></thead><tbody>\n", f);
	n = 0;
	json_array_foreach(rows, i, row)
	{
		if (keep && !keep(row))
			continue;
		if (n++ >= REPORT_ROWS)
			continue;
		fputs("<tr>", f);
		for (size_t k = 0; k < DR_ARRAY_LEN(most) && c[k].head; k++)
			put_cell(f, &c[k], row, most[k]);
		fputs("</tr>\n", f);
	}
	fputs("</tbody></table></div>\n", f);
	return n;
}
