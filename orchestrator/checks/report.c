/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/report.h"

#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "orchestrator/checks/report_priv.h"
#include "orchestrator/output/parts.h"

/* Rows of errors and of findings, each. */
enum { REASONS_MAX = 20 };

/*
 * report.js draws the page from the embedded documents. This file writes the frame of the page, the
 * documents, and for a reader without script the verdict of each.
 */

/* ---- values of a document ---- */

/* Escaped and clean; between tags. */
static void put_text(FILE *f, const char *s)
{
	char clean[512], *p = clean;

	dr_text_copy(clean, sizeof(clean), s);
	for (; *p; p++)
		if (strchr("<>&\"'", *p))
			fprintf(f, "&#%d;", *p);
		else
			fputc(*p, f);
}

/* The member at a path like "gap_us.p50"; NULL: there is none. */
static const json_t *member(const json_t *v, const char *path)
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

/* "" if there is none, or it is no text. */
static const char *string(const json_t *v, const char *path)
{
	const char *s = json_string_value(member(v, path));

	return s ? s : "";
}

/* NAN if there is none, or it is no number. */
static double number(const json_t *v, const char *path)
{
	const json_t *n = member(v, path);

	return json_is_number(n) ? json_number_value(n) : NAN;
}

static bool is_sweep(const json_t *doc)
{
	return strcmp(string(doc, "schema"), DR_SWEEP_SCHEMA) == 0;
}

static const char *verdict(const json_t *doc)
{
	static const char *const verdicts[][2] = { { "pass", "PASS" }, { "fail", "FAIL" },
		{ "error", "ERROR" } };

	for (size_t i = 0; i < DR_ARRAY_LEN(verdicts); i++)
		if (strcmp(string(doc, "status"), verdicts[i][0]) == 0)
			return verdicts[i][1];
	return *string(doc, "status") ? "UNKNOWN" : "NOT OVER";
}

/* ---- without script ---- */

static void row_text(FILE *f, const char *name, const char *value)
{
	if (!*value)
		return;
	fprintf(f, "<tr><th scope=\"row\">%s</th><td>", name);
	put_text(f, value);
	fputs("</td></tr>\n", f);
}

static void without_script(FILE *f, const json_t *doc)
{
	static const struct {
		const char *name, *path, *unit;
	} figures[] = {
		{ "exit status", "exit_code", "" },
		{ "bandwidth to the server", "total.to_server_gbps", " Gb/s" },
		{ "bandwidth to the client", "total.to_client_gbps", " Gb/s" },
		{ "unexpected switches", "unexpected_switches", "" },
		{ "lost chunks", "integrity.lost", "" },
		{ "duplicated chunks", "integrity.duplicated", "" },
		{ "reordered chunks", "integrity.reordered", "" },
		{ "corrupted chunks", "integrity.corrupted", "" },
		{ "pairs", "measured.pairs", "" },
		{ "pairs with figures", "measured.ok", "" },
		{ "median of the pairs", "measured.median_gbps", " Gb/s" },
		{ "low figures", "measured.low", "" },
	};
	static const char *const reasons[] = { "errors", "findings" };
	const json_t *row;
	char text[192];
	size_t i;

	fputs("<noscript><p>The tables and charts need script.</p>\n<table><caption>Verdict</caption><tbody>\n",
		f);
	row_text(f, "status", verdict(doc));
	row_text(f, "reason", string(doc, "verdict"));
	for (i = 0; i < DR_ARRAY_LEN(figures); i++) {
		double v = number(doc, figures[i].path);

		snprintf(text, sizeof(text), "%.6g%s", v, figures[i].unit);
		row_text(f, figures[i].name, isfinite(v) ? text : "");
	}
	json_array_foreach(member(doc, "failover.summary"), i, row)
	{
		snprintf(text, sizeof(text),
			"%.40s at the %.8s%s%.8s: p50 %.4g ms, p99 %.4g ms (%.0f of %.0f hit data)",
			string(row, "kind"), string(row, "side"), *string(row, "dir") ? ", " : "",
			string(row, "dir"), number(row, "gap_us.p50") / 1000,
			number(row, "gap_us.p99") / 1000, number(row, "hit"),
			number(row, "trials"));
		row_text(f, "gap", isfinite(number(row, "gap_us.p99")) ? text : "");
	}
	for (size_t k = 0; k < DR_ARRAY_LEN(reasons); k++) {
		json_array_foreach(member(doc, reasons[k]), i, row) if (i < REASONS_MAX)
			row_text(f, "reason", string(row, "text"));
		if (i <= REASONS_MAX)
			continue;
		snprintf(text, sizeof(text), "and %zu more", i - REASONS_MAX);
		row_text(f, "reason", text);
	}
	fputs("</tbody></table></noscript>\n", f);
}

/* ---- the page ---- */

/* 'sha256-...' of what stands between the tags. */
static void policy_hash(FILE *f, const char *text)
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	char base64[64];

	crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
	sodium_bin2base64(
		base64, sizeof(base64), hash, sizeof(hash), sodium_base64_VARIANT_ORIGINAL);
	fprintf(f, " 'sha256-%s'", base64);
}

/* What it was, so that several pages can be told apart: "PASS: bw, node1 and node2". */
static void title(FILE *f, const json_t *const *docs, size_t n)
{
	const json_t *doc = docs[0];

	if (n != 1) {
		fprintf(f, "%zu results", n);
		return;
	}
	fprintf(f, "%s: ", verdict(doc));
	if (is_sweep(doc)) {
		fprintf(f, "sweep of %.0f nodes", fmax(0, number(doc, "nodes_expected")));
		return;
	}
	put_text(f, string(doc, "options.test"));
	fputs(", ", f);
	put_text(f, string(doc, "host.name"));
	if (*string(doc, "host.peer.name")) {
		fputs(" and ", f);
		put_text(f, string(doc, "host.peer.name"));
	}
}

static void head(FILE *f, const json_t *const *docs, size_t n)
{
	fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src",
		f);
	policy_hash(f, dr_report_uplot_js);
	policy_hash(f, dr_report_js);
	fputs("; style-src", f);
	policy_hash(f, dr_report_uplot_css);
	policy_hash(f, dr_report_css);
	fputs("; img-src data:; base-uri 'none'; form-action 'none'\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<link rel=\"icon\" href=\"data:,\">\n<title>dualrail: ",
		f);
	title(f, docs, n);
	fprintf(f, "</title>\n<style>%s</style>\n<style>%s</style>\n</head>\n<body>\n",
		dr_report_uplot_css, dr_report_css);
}

/* JSON in which no sequence of characters means anything in HTML. */
static int embed(FILE *f, const json_t *doc, size_t n)
{
	char *text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(15));

	if (!text)
		return -ENOMEM;
	fprintf(f, "<script type=\"application/json\" id=\"data-%zu\">", n);
	for (const char *p = text; *p;) {
		size_t len = strcspn(p, "<>&");

		fwrite(p, 1, len, f);
		p += len;
		if (*p)
			fprintf(f, "\\u%04x", (unsigned)(unsigned char)*p++);
	}
	fputs("</script>\n", f);
	free(text); /* lint-ok: of jansson */
	return 0;
}

static int write_html(const json_t *const *docs, const char *const *names, size_t n, FILE *f)
{
	int rc = 0;

	head(f, docs, n);
	fputs("<a class=\"skip\" href=\"#main\">Skip to the result</a>\n<header><h1>dualrail: ", f);
	if (n == 1)
		fprintf(f, "result of a %s", is_sweep(docs[0]) ? "sweep" : "run");
	else
		fprintf(f, "%zu results", n);
	fputs("</h1></header>\n<main id=\"main\">\n", f);
	for (size_t i = 0; i < n; i++) {
		fprintf(f, "<section class=\"result\" data-result=\"%zu\">\n", i);
		if (n > 1) {
			fputs("<h2>", f);
			put_text(f, names[i]);
			fputs("</h2>\n", f);
		}
		without_script(f, docs[i]);
		fputs("</section>\n", f);
	}
	fputs("</main>\n<footer class=\"soft\"><p>Written by dualrail " DR_VERSION
	      ". The page needs no network. Charts: uPlot 1.6.32, MIT licence, Copyright (c) 2022 Leon "
	      "Sorokin.</p></footer>\n",
		f);
	for (size_t i = 0; i < n && !rc; i++)
		rc = embed(f, docs[i], i);
	fprintf(f, "<script>%s</script>\n<script>%s</script>\n</body>\n</html>\n",
		dr_report_uplot_js, dr_report_js);
	return rc;
}

static int write_page(const char *path, const json_t *const *docs, const char *const *names,
	size_t n, struct dr_err *e)
{
	size_t len = 0;
	char *text = NULL;
	FILE *f = open_memstream(&text, &len);
	int rc = f ? write_html(docs, names, n, f) : -ENOMEM;

	if (f && fclose(f))
		rc = -ENOMEM;
	rc = rc ? dr_err_set(e, rc, "--output: out of memory")
		: dr_file_write("--output", path, text, len, 0, e);
	free(text); /* lint-ok: of open_memstream */
	return rc;
}

/* ---- the command ---- */

int dr_report_main(const struct dr_options *o)
{
	size_t n = 0;
	json_t **docs;
	struct dr_err e;
	int rc = dr_file_probe("--output", o->page, &e);

	docs = rc ? NULL : dr_calloc((size_t)o->n_inputs, sizeof(json_t *));
	if (!rc && !docs)
		rc = dr_err_set(&e, -ENOMEM, "out of memory");
	for (; !rc && n < (size_t)o->n_inputs; n += !rc)
		rc = dr_document_load_any(o->inputs[n], &docs[n], &e);
	if (!rc)
		rc = write_page(o->page, (const json_t *const *)docs,
			(const char *const *)o->inputs, n, &e);
	if (rc)
		dr_complain("%s", e.text);
	while (n)
		json_decref(docs[--n]);
	dr_free(docs);
	return rc ? DR_EXIT_ENV : 0;
}
