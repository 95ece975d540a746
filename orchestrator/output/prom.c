/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/*
 * HELP and TYPE of a metric come before its first sample and once a file, so each metric is written in
 * one go; a metric without samples is left out. The metrics and labels stand in the field tables.
 */
struct writer {
	FILE *f;
	const struct dr_record *rec;
	bool own;	  /* rows of the process, which have no label host and test */
	const char *help; /* of the metric; NULL: it is written */
	bool of_run;	  /* the metric's values begin anew with each run, which the help says */
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

/* Whom the run measured, by the name that the user gave: it is known in every run, also in one that reached nobody.
 * A server has the client's address. */
static void put_run(struct writer *w)
{
	const struct dr_record *rec = w->rec;

	put_label(w, "host", rec->target[0] ? rec->target : rec->peer_host.name);
	if (rec->tests[0])
		put_label(w, "test", rec->tests);
}

/* "dualrail_metric{host=...", the first of its labels, after HELP and TYPE when it is the metric's first sample. */
static void begin_sample(struct writer *w, const struct dr_field_out *m)
{
	size_t len = strlen(m->metric);
	bool total = len > 6 && !strcmp(m->metric + len - 6, "_total");
	bool summary = m->suffix || (m->extra && !strcmp(m->extra, "quantile"));

	if (w->help)
		fprintf(w->f, "# HELP dualrail_%s %s%s\n# TYPE dualrail_%s %s\n", m->metric,
			w->help, w->of_run ? " Of the last run." : "", m->metric,
			w->histogram ? "histogram"
			: total	     ? "counter"
			: summary    ? "summary"
				     : "gauge");
	w->help = NULL;
	fprintf(w->f, "dualrail_%s%s", m->metric, m->suffix ? m->suffix : "");
	w->labelled = false;
	if (!w->own)
		put_run(w);
	for (size_t i = 0; w->rec->labels && i < w->rec->labels->n; i++)
		put_label(w, w->rec->labels->v[i].name, w->rec->labels->v[i].value);
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

/* The reason of the error that gave the exit status; "": none. */
static const char *reason_of(const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->errors.n; i++)
		if (rec->errors.v[i].exit_status == rec->exit_code && rec->errors.v[i].reason >= 0)
			return dr_enum_name(dr_reason_names, rec->errors.v[i].reason);
	return "";
}

static void write_info(struct writer *w)
{
	const struct dr_record *rec = w->rec;
	const char *const labels[][2] = { { "peer", rec->peer_host.name },
		{ "version", rec->version }, { "peer_version", rec->peer_version },
		{ "side", rec->side < 0 ? "" : dr_enum_name(dr_end_names, rec->side) },
		{ "transport", rec->detection.transport }, { "detect", rec->detection.mode } };

	w->help = "The peer's own name, versions and settings of the run; always 1.";
	begin_sample(w, &(struct dr_field_out){ .metric = "info" });
	for (size_t i = 0; i < DR_ARRAY_LEN(labels); i++)
		put_label(w, labels[i][0], labels[i][1]);
	end_sample(w, 1);
}

/* GPUs with channels that have one rail only; NAN: the run has not come to its rails, or its matrix tests one at a time. */
static double unprotected_gpus(const struct dr_record *rec)
{
	double n = 0;

	for (size_t i = 0; i < rec->gpus.n; i++) {
		const struct dr_gpu_row *r = &rec->gpus.v[i];
		bool counted = r->shadow != DR_UNSET;

		for (size_t k = 0; k < i && !counted; k++)
			counted = rec->gpus.v[k].gpu == r->gpu && rec->gpus.v[k].shadow == DR_UNSET;
		n += !counted;
	}
	return rec->gpus.n && !rec->matrix.cells.n ? n : NAN;
}

static void write_run(struct writer *w)
{
	const struct dr_record *rec = w->rec;
	const struct {
		struct dr_field_out metric;
		double value;
	} last[] = { { { .metric = "last_run_success", .help = "1: the last run passed." },
			     rec->exit_code == DR_EXIT_PASS },
		{ { .metric = "last_run_exit_code",
			  .help = "Exit status of the last run; reason: which error of status 3.",
			  .extra = "reason",
			  .value = reason_of(rec) },
			rec->exit_code },
		{ { .metric = "last_run_timestamp_seconds",
			  .help = "Begin of the last run, since 1970." },
			(double)rec->start_wall_ns / 1e9 },
		{ { .metric = "last_run_duration_seconds", .help = "Duration of the last run." },
			rec->end_ns == DR_UNSET ? 0
						: (double)(rec->end_ns - rec->start_ns) / 1e9 } };

	write_info(w);
	for (size_t i = 0; rec->exit_code >= 0 && i < DR_ARRAY_LEN(last); i++) {
		w->help = last[i].metric.help;
		sample(w, &last[i].metric, NULL, NULL, last[i].value);
	}
	w->help = "GPUs with channels that have one rail only, so that a lost link ends the run.";
	sample(w, &(struct dr_field_out){ .metric = "unprotected_gpus" }, NULL, NULL,
		unprotected_gpus(rec));
}

static int write_all(struct dr_record *rec, bool live, FILE *f)
{
	struct writer w = { .f = f, .rec = rec };

	dr_record_settle(rec);
	write_run(&w);
	w.of_run = true;
	write_rows(
		&w, &(struct rows){ &dr_record_fields, &dr_record_fields, (const char *)rec, 1 });
	for (size_t i = 0; i < dr_n_row_types; i++) {
		struct rows r = { dr_row_types[i].fields, dr_row_types[i].fields, NULL, 0 };

		w.own = dr_row_types[i].flags & DR_ROW_OWN;
		w.of_run = !w.own;
		r.v = dr_row_type_rows(&dr_row_types[i], rec, &r.n);
		if (live || !w.own)
			write_rows(&w, &r);
	}
	return ferror(f) ? -EIO : 0;
}

int dr_prom_write(struct dr_record *rec, FILE *f)
{
	return write_all(rec, false, f);
}

int dr_prom_write_live(struct dr_record *rec, FILE *f)
{
	return write_all(rec, true, f);
}

/* -------------------------------- --prom-label -------------------------------- */

static bool is_label(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalpha((unsigned char)s[i]) && s[i] != '_' &&
			(!i || !isdigit((unsigned char)s[i])))
			return false;
	return len && strncmp(s, "__", 2) != 0;
}

static bool field_has(const struct dr_fields *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct dr_field_out *x = out_of(&t->f[i]);

		if ((x->label && !strcmp(x->label, name)) || (x->extra && !strcmp(x->extra, name)))
			return true;
	}
	return false;
}

/* A label twice in a line is no valid text. */
static bool taken(const char *name)
{
	static const char *const own[] = { "host", "test", "peer", "version", "peer_version",
		"side", "transport", "detect", "reason", "le", "quantile" };

	for (size_t i = 0; i < DR_ARRAY_LEN(own); i++)
		if (!strcmp(own[i], name))
			return true;
	for (size_t i = 0; i < dr_n_row_types; i++)
		if (field_has(dr_row_types[i].fields, name))
			return true;
	return false;
}

int dr_prom_label_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_prom_labels *l = dst;

	(void)row;
	if (!text) {
		l->n = 0;
		return 0;
	}
	size_t len = strcspn(text, "=");
	char *name = l->v[DR_MIN(l->n, (size_t)DR_PROM_LABELS_MAX - 1)].name;
	if (l->n == DR_PROM_LABELS_MAX)
		return dr_err_set(e, -ERANGE, "more than %d labels", DR_PROM_LABELS_MAX);
	if (text[len] != '=' || len >= sizeof(l->v[0].name) || !is_label(text, len))
		return dr_err_set(e, -EINVAL,
			"\"%.60s\" is not KEY=VALUE; KEY has letters, digits and _, e.g. rack=b7",
			text);
	snprintf(name, sizeof(l->v[0].name), "%.*s", (int)len, text);
	if (taken(name))
		return dr_err_set(e, -EINVAL,
			"dualrail's own metrics have a label \"%s\"; choose another name", name);
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i].name, name))
			return dr_err_set(e, -EINVAL, "label \"%s\" is given twice", name);
	l->v[l->n++].value = text + len + 1;
	return 0;
}
