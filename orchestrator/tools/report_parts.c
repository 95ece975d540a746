/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/tools/report_priv.h"

#include <math.h>
#include <string.h>

/* Parts that pages of runs and of sweeps share. */

void report_heading(FILE *f, unsigned doc, const char *id, const char *title)
{
	fprintf(f, "<h2 id=\"%s-%u\">%s</h2>\n", id, doc, title);
}

void report_chart(FILE *f, unsigned doc, const char *name, const char *caption)
{
	fprintf(f,
		"<figure data-chart=\"%s\" data-result=\"%u\"><div class=\"plot\"></div><figcaption>%s"
		"</figcaption></figure>\n",
		name, doc, caption);
}

void report_details(FILE *f, const char *title)
{
	fprintf(f, "<details><summary>%s</summary>\n", title);
}

void report_details_end(FILE *f)
{
	fputs("</details>\n", f);
}

static void begin_tile(FILE *f, const char *name)
{
	fprintf(f, "<div><dt>%s</dt><dd class=\"big\">", name);
}

static void begin_remark(FILE *f)
{
	fputs("</dd><dd class=\"soft\">", f);
}

void report_tile_number(FILE *f, const char *name, double v, const char *unit)
{
	begin_tile(f, name);
	report_sig(f, v);
	fprintf(f, " <small>%s</small>", unit);
	begin_remark(f);
}

void report_tile_whole(FILE *f, const char *name, double v)
{
	begin_tile(f, name);
	report_count(f, v);
	begin_remark(f);
}

void report_tile_end(FILE *f)
{
	fputs("</dd></div>", f);
}

void report_tile_count(FILE *f, const char *name, double v, const char *remark)
{
	report_tile_whole(f, name, v);
	fputs(remark, f);
	report_tile_end(f);
}

/* Anything else that a document may have is no class name. */
static const char *const statuses[][2] = { { "pass", "PASS" }, { "fail", "FAIL" },
	{ "error", "ERROR" } };

static size_t status_of(const json_t *doc)
{
	size_t i = 0;

	while (i < DR_ARRAY_LEN(statuses) &&
		strcmp(report_string(doc, "status"), statuses[i][0]) != 0)
		i++;
	return i;
}

const char *report_status(const json_t *doc)
{
	size_t i = status_of(doc);

	return i < DR_ARRAY_LEN(statuses) ? statuses[i][1] : "NOT OVER";
}

void report_verdict(FILE *f, const json_t *doc, const char *text)
{
	size_t i = status_of(doc);
	double code = report_number(doc, "exit_code");

	fprintf(f, "<div class=\"verdict %s\"><strong>%s</strong><span>",
		i < DR_ARRAY_LEN(statuses) ? statuses[i][0] : "error", report_status(doc));
	report_text(f, text);
	if (isfinite(code))
		fprintf(f, "%sexit status %.0f", *text ? " · " : "", code);
	fputs("</span></div>\n", f);
}

/* An object as a table of two columns. */
void report_pairs(FILE *f, const char *caption, const json_t *obj)
{
	static const struct report_column columns[] = { { "name", "name", FORM_TEXT, NULL },
		{ "value", "value", FORM_TEXT, NULL }, { NULL, NULL, 0, NULL } };
	json_t *rows = json_array(), *v;
	const char *key;

	json_object_foreach((json_t *)obj, key, v) if (!json_is_null(v) && !json_is_object(v))
		json_array_append_new(rows, json_pack("{s:s, s:O}", "name", key, "value", v));
	report_table(f, caption, columns, rows, NULL);
	json_decref(rows);
}

void report_navigation(FILE *f, unsigned doc, const struct report_part *parts, size_t n)
{
	fputs("<nav aria-label=\"Parts\"><ul>", f);
	for (size_t i = 0; i < n; i++)
		if (parts[i].there)
			fprintf(f, "<li><a href=\"#%s-%u\">%s</a></li>", parts[i].id, doc,
				parts[i].title);
	fputs("</ul></nav>\n", f);
}

void report_download(FILE *f, unsigned doc)
{
	fprintf(f,
		"<p><a class=\"button\" data-download=\"%u\" download=\"result-%u.json\" href=\"#data-%u\" "
		"hidden>Download the result document</a></p>\n",
		doc, doc, doc);
}
