/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/record/fields.h"
#include "orchestrator/record/report.h"

/*
 * HELP and TYPE of a metric come before its first sample and once a file, so each metric is written in
 * one go; a metric without samples is left out. The metrics and labels stand in the field tables.
 */
struct writer {
	FILE *f;
	const char *peer; /* NULL: the rows have no such label */
	const char *help; /* of the metric; NULL: it is written */
	bool histogram;	  /* the metric is one */
	bool labelled;	  /* the sample has a label already */
};

static void put_label(struct writer *w, const char *name, const char *value)
{
	FILE *f = w->f;

	fprintf(f, "%c%s=\"", w->labelled ? ',' : '{', name);
	w->labelled = true;
	for (const char *s = value; *s; s++) {
		if (*s == '\\' || *s == '"')
			fputc('\\', f);
		if (*s == '\n')
			fputs("\\n", f);
		else
			fputc(*s, f);
	}
	fputc('"', f);
}

static const struct dr_field_out *out_of(const struct dr_field *f)
{
	static const struct dr_field_out none;

	return f->out ? f->out : &none;
}

/* In base units; NAN: unknown. */
static double value_of(const struct dr_field *f, const void *row)
{
	const void *p = (const char *)row + f->off;

	if (dr_field_unknown(f, row))
		return NAN;
	if (f->kind == DR_F_INT)
		return (double)*(const int64_t *)p;
	if (f->kind == DR_F_ENUM)
		return *(const int *)p;
	if (f->kind == DR_F_US || f->kind == DR_F_MS)
		return (double)*(const int64_t *)p / 1e9;
	if (strstr(f->name, "gbps"))
		return *(const double *)p * 1e9 / 8;
	return strstr(f->name, "percent") ? *(const double *)p / 100 : *(const double *)p;
}

static void put_labels(struct writer *w, const struct dr_fields *t, const void *row)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field *x = &t->f[i];
		const char *name = out_of(x)->label;
		const void *p = (const char *)row + x->off;
		char number[24] = "";

		if (!name)
			continue;
		if (x->kind == DR_F_INT && !dr_field_unknown(x, row))
			snprintf(number, sizeof(number), "%" PRId64, *(const int64_t *)p);
		if (x->kind == DR_F_ENUM)
			put_label(w, name,
				*(const int *)p < 0 ? "" : dr_enum_name(x->names, *(const int *)p));
		else
			put_label(w, name, x->kind == DR_F_STR ? p : number);
	}
}

/* "dualrail_metric{peer=...", the first of its labels, after HELP and TYPE when it is the metric's first sample. */
static void begin_sample(struct writer *w, const struct dr_field_out *m)
{
	size_t len = strlen(m->metric);
	bool total = len > 6 && !strcmp(m->metric + len - 6, "_total");
	bool summary = m->suffix || (m->extra && !strcmp(m->extra, "quantile"));

	if (w->help)
		fprintf(w->f, "# HELP dualrail_%s %s\n# TYPE dualrail_%s %s\n", m->metric, w->help,
			m->metric,
			w->histogram ? "histogram"
			: total	     ? "counter"
			: summary    ? "summary"
				     : "gauge");
	w->help = NULL;
	fprintf(w->f, "dualrail_%s%s", m->metric, m->suffix ? m->suffix : "");
	w->labelled = false;
	if (w->peer)
		put_label(w, "peer", w->peer);
}

static void end_sample(struct writer *w, double value)
{
	fprintf(w->f, "%s %.15g\n", w->labelled ? "}" : "", value);
}

/* One sample; t: the row's table with its labels, NULL: none. What is not finite is left out. */
static void sample(struct writer *w, const struct dr_field_out *m, const struct dr_fields *t,
	const void *row, double value)
{
	if (!isfinite(value))
		return;
	begin_sample(w, m);
	if (t)
		put_labels(w, t, row);
	if (m->extra)
		put_label(w, m->extra, m->value);
	end_sample(w, value);
}

/* Rows of one table; `metrics` is the table itself or one nested in it (then all its fields are). */
struct rows {
	const struct dr_fields *labels, *metrics;
	const char *v;
	size_t n;
};

/* One metric: of each row all fields that belong to it. */
static void write_metric(struct writer *w, const struct rows *r, const struct dr_field_out *first)
{
	const char *row = r->v;

	w->help = first->help;
	for (size_t i = 0; i < r->n; i++, row += r->labels->size)
		for (size_t k = 0; k < r->metrics->n; k++) {
			const struct dr_field *f = &r->metrics->f[k];

			if (out_of(f)->metric && !strcmp(out_of(f)->metric, first->metric))
				sample(w, f->out, r->labels, row, value_of(f, row));
		}
}

/* Bounds of buckets: powers of two of ns, where bins end, too. */
enum { BUCKET_FIRST = 10, BUCKET_LAST = 34 };

static void write_buckets(
	struct writer *w, const struct rows *r, const struct dr_field *f, const char *row)
{
	const struct dr_bin_row *bin = (const void *)(row + f->off);
	unsigned n = *(const unsigned *)(const void *)(row + f->n_off), i = 0;
	struct dr_field_out m = { .metric = out_of(f)->metric, .suffix = "_bucket", .extra = "le" };
	double count = 0, sum = 0; /* sum: as exact as the bins */
	char le[32];

	for (int k = BUCKET_FIRST; k <= BUCKET_LAST + 1; k++) {
		bool last = k > BUCKET_LAST;

		for (; i < n && (last || bin[i].to_ns <= (int64_t)1 << k); i++) {
			count += (double)bin[i].count;
			sum += (double)bin[i].count * (double)(bin[i].from_ns + bin[i].to_ns) / 2e9;
		}
		snprintf(le, sizeof(le), "%.15g", (double)((int64_t)1 << k) / 1e9);
		m.value = last ? "+Inf" : le;
		sample(w, &m, r->labels, row, count);
	}
	m.extra = NULL;
	m.suffix = "_sum";
	sample(w, &m, r->labels, row, sum);
	m.suffix = "_count";
	sample(w, &m, r->labels, row, count);
}

static void write_histogram(struct writer *w, const struct rows *r, const struct dr_field *f)
{
	const char *row = r->v;

	w->help = out_of(f)->help;
	w->histogram = true;
	for (size_t i = 0; i < r->n; i++, row += r->labels->size)
		if (!dr_field_unknown(f, row))
			write_buckets(w, r, f, row);
	w->histogram = false;
}

static void write_rows(struct writer *w, const struct rows *r)
{
	for (size_t i = 0; i < r->metrics->n; i++) {
		const struct dr_field *f = &r->metrics->f[i];

		if (out_of(f)->help && f->kind == DR_F_ROWS)
			write_histogram(w, r, f);
		else if (out_of(f)->help)
			write_metric(w, r, f->out);
		if (f->kind == DR_F_ROW && f->off == 0 && f->row->size == r->labels->size)
			write_rows(w, &(struct rows){ r->labels, f->row, r->v, r->n });
	}
}

static void write_run(struct writer *w, const struct dr_record *rec)
{
	const struct {
		struct dr_field_out metric;
		double value;
	} last[] = { { { .metric = "last_run_success", .help = "1: the last run passed." },
			     rec->exit_code == DR_EXIT_PASS },
		{ { .metric = "last_run_exit_code", .help = "Exit status of the last run." },
			rec->exit_code },
		{ { .metric = "last_run_timestamp_seconds",
			  .help = "Begin of the last run, since 1970." },
			(double)rec->start_wall_ns / 1e9 } };
	const char *const labels[][2] = { { "version", rec->version },
		{ "peer_version", rec->peer_version },
		{ "side", rec->side < 0 ? "" : dr_enum_name(dr_end_names, rec->side) },
		{ "transport", rec->detection.transport }, { "detect", rec->detection.mode } };

	w->help = "Versions and settings of the run; always 1.";
	begin_sample(w, &(struct dr_field_out){ .metric = "info" });
	for (size_t i = 0; i < DR_ARRAY_LEN(labels); i++)
		put_label(w, labels[i][0], labels[i][1]);
	end_sample(w, 1);
	for (size_t i = 0; rec->exit_code >= 0 && i < DR_ARRAY_LEN(last); i++) {
		w->help = last[i].metric.help;
		sample(w, &last[i].metric, NULL, NULL, last[i].value);
	}
}

int dr_prom_write(struct dr_record *rec, FILE *f)
{
	struct writer w = { .f = f, .peer = rec->peer_host.name };

	dr_record_settle(rec);
	write_run(&w, rec);
	write_rows(
		&w, &(struct rows){ &dr_record_fields, &dr_record_fields, (const char *)rec, 1 });
	for (size_t i = 0; i < dr_n_row_types; i++) {
		struct rows r = { dr_row_types[i].fields, dr_row_types[i].fields, NULL, 0 };

		w.peer = dr_row_types[i].flags & DR_ROW_OWN ? NULL : rec->peer_host.name;
		r.v = dr_row_type_rows(&dr_row_types[i], rec, &r.n);
		write_rows(&w, &r);
	}
	return ferror(f) ? -EIO : 0;
}
