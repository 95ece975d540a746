/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/tools/report.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/record/report.h"
#include "orchestrator/tools/report_priv.h"

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
	fprintf(f, "%s: ", report_status(doc));
	if (report_is_sweep(doc)) {
		fputs("sweep of ", f);
		report_count(f, report_number(doc, "nodes_expected"));
		fputs(" nodes", f);
		return;
	}
	report_text(f, report_string(doc, "options.test"));
	fputs(", ", f);
	report_text(f, report_string(doc, "host.name"));
	if (*report_string(doc, "host.peer.name")) {
		fputs(" and ", f);
		report_text(f, report_string(doc, "host.peer.name"));
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

int dr_report_write(const json_t *const *docs, const char *const *names, size_t n, FILE *f)
{
	int rc = 0;

	head(f, docs, n);
	fputs("<a class=\"skip\" href=\"#main\">Skip to the result</a>\n<header><h1>dualrail: ", f);
	if (n == 1)
		fprintf(f, "result of a %s", report_is_sweep(docs[0]) ? "sweep" : "run");
	else
		fprintf(f, "%zu results", n);
	fputs("</h1></header>\n<main id=\"main\">\n", f);
	for (size_t i = 0; i < n; i++) {
		fputs("<section class=\"result\">\n", f);
		if (n > 1) {
			fputs("<h2>", f);
			report_text(f, names[i]);
			fputs("</h2>\n", f);
		}
		(report_is_sweep(docs[i]) ? report_sweep : report_sections)(
			f, docs[i], (unsigned)i);
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
	int rc = f ? dr_report_write(docs, names, n, f) : -ENOMEM;

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
