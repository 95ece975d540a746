/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_TOOLS_REPORT_PRIV_H
#define DR_ORCHESTRATOR_TOOLS_REPORT_PRIV_H

#include "orchestrator/tools/report.h"

/* Files of report/, each with a 0 behind it; report_assets.c. */
extern const char dr_report_uplot_js[], dr_report_js[], dr_report_uplot_css[], dr_report_css[];

/* Text of a document, escaped and clean; between tags and in quoted attributes. */
void report_text(FILE *f, const char *s);
/* The member at a path like "rtt_us.p50"; NULL: there is none. */
const json_t *report_at(const json_t *v, const char *path);
/* "" if there is none, or it is no text. */
const char *report_string(const json_t *v, const char *path);
/* NAN if there is none, or it is no number. */
double report_number(const json_t *v, const char *path);

/* Four significant digits or so; "–" for NAN. */
void report_sig(FILE *f, double v);
/* A whole number; "–" for NAN. */
void report_count(FILE *f, double v);

enum report_form {
	FORM_TEXT,
	FORM_INT,
	FORM_GBPS,
	FORM_PERCENT,
	FORM_US,    /* microseconds */
	FORM_US_MS, /* microseconds, shown as milliseconds */
	FORM_BYTES,
	FORM_METER, /* a bar up to the largest value of the column */
	FORM_BAD,   /* a text that is marked unless it is the first of `good` */
};
struct report_column {
	const char *head, *path;
	enum report_form form;
	const char *good;
};
/* A table of the rows of an array that `keep` takes (NULL: all), at most `REPORT_ROWS` of them. Nothing without rows; the number
 * of rows. */
enum { REPORT_ROWS = 300 };
typedef bool (*report_keep)(const json_t *row);
size_t report_table(FILE *f, const char *caption, const struct report_column *c, const json_t *rows,
	report_keep keep);

/* report_parts.c. doc: number of the document in the page. */
void report_heading(FILE *f, unsigned doc, const char *id, const char *title);
/* An empty <figure> that report.js fills; its table follows in details. */
void report_chart(FILE *f, unsigned doc, const char *name, const char *caption);
void report_details(FILE *f, const char *title);
void report_details_end(FILE *f);
/* Tiles of a list: a figure, and a remark that the caller writes in between. */
void report_tile_number(FILE *f, const char *name, double v, const char *unit);
void report_tile_whole(FILE *f, const char *name, double v);
void report_tile_end(FILE *f);
/* A whole tile. */
void report_tile_count(FILE *f, const char *name, double v, const char *remark);
/* "PASS" of a document's status. */
const char *report_status(const json_t *doc);
/* It, the exit status, and a text. */
void report_verdict(FILE *f, const json_t *doc, const char *text);
/* An object as a table of two columns. */
void report_pairs(FILE *f, const char *caption, const json_t *obj);
struct report_part {
	const char *id, *title; /* as in report_heading */
	bool there;
};
void report_navigation(FILE *f, unsigned doc, const struct report_part *parts, size_t n);
void report_download(FILE *f, unsigned doc);

/* report_sections.c, report_sweep.c: everything of one document. number: of its embedded copy. */
void report_sections(FILE *f, const json_t *doc, unsigned number);
bool report_is_sweep(const json_t *doc);
void report_sweep(FILE *f, const json_t *doc, unsigned number);

#endif
