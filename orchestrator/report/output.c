/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/report/fields.h"
#include "orchestrator/report/matrix.h"
#include "orchestrator/report/output.h"
#include "orchestrator/report/report.h"

/*
 * Invariants
 *  1. Standard output carries either people's tables, or one JSON document, or JSON lines: never two.
 *  2. What is written at the end is written by `targets` in order; each is all there or not at all.
 *  3. A failure to write becomes an error of the record before the next target is written, and those
 *     already written are written again, so that every file tells the final exit status.
 */
struct dr_output {
	struct dr_output_options o;
	FILE *tables;
	json_t *baseline;
	struct dr_metrics *metrics;
	bool terminal, progress_shown;
	struct dr_err stream_err; /* the first; code 0: none */
};

#define COMPONENT "report"
#define STDOUT "standard output"

static int probe_all(const struct dr_output_options *o, struct dr_err *e)
{
	const struct {
		const char *option, *path;
	} files[] = { { "--json", o->json_path }, { "--csv", o->csv_path },
		{ "--prom", o->prom_path }, { "--save-baseline", o->save_baseline_path } };
	size_t i;
	int rc;

	for (i = 0; i < DR_ARRAY_LEN(files); i++)
		if (files[i].path) {
			rc = dr_file_probe(files[i].option, files[i].path, e);
			if (rc)
				return rc;
		}
	return 0;
}

int dr_output_open(const struct dr_output_options *o, struct dr_output **out, struct dr_err *e)
{
	struct dr_output *p;
	int rc;

	if (o->json_stdout && o->json_stream)
		return dr_err_set(e, -EINVAL,
			"--json and --json-stream both want standard output; give --json=FILE");
	p = dr_calloc(1, sizeof(*p));
	if (!p)
		return dr_err_set(e, -ENOMEM, "output: out of memory");
	p->o = *o;
	p->o.out = o->out ? o->out : stdout;
	p->o.err = o->err ? o->err : stderr;
	p->tables = o->json_stdout || o->json_stream ? p->o.err : p->o.out;
	p->terminal = isatty(fileno(p->o.err));
	rc = probe_all(o, e);
	if (!rc && o->baseline_path)
		rc = dr_baseline_load(o->baseline_path, &p->baseline, e);
	if (!rc && o->metrics_listen)
		rc = dr_metrics_start(o->metrics_listen, &p->metrics, e);
	if (rc) {
		dr_output_close(p);
		return rc;
	}
	*out = p;
	return 0;
}

void dr_output_close(struct dr_output *o)
{
	if (!o)
		return;
	dr_output_progress(o, NULL);
	dr_metrics_stop(o->metrics);
	json_decref(o->baseline);
	dr_free(o);
}

const json_t *dr_output_baseline(const struct dr_output *o)
{
	return o->baseline;
}

uint16_t dr_output_metrics_port(const struct dr_output *o)
{
	return o->metrics ? dr_metrics_port(o->metrics) : 0;
}

FILE *dr_output_tables(const struct dr_output *o)
{
	return o->tables;
}

/* -------------------------------- the stream -------------------------------- */

/* One line {"event":...,"time":...,"data":...}; takes data over. */
static void stream(struct dr_output *o, const char *event, json_t *data)
{
	json_t *line;
	char *text;
	int bad = 0;

	if (!o->o.json_stream || o->stream_err.code) {
		json_decref(data);
		return;
	}
	line = json_object();
	dr_json_put(line, "event", json_string(event), &bad);
	dr_json_put(line, "time", dr_json_wall(dr_wall_ns()), &bad);
	dr_json_put(line, "monotonic_ns", json_integer(dr_now_ns()), &bad);
	dr_json_put(line, "data", data, &bad);
	text = bad ? NULL : json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(line);
	if (!text)
		dr_err_set(&o->stream_err, -ENOMEM, "--json-stream: out of memory");
	else if (!dr_stream_put(o->o.out, text, strlen(text), STDOUT, &o->stream_err))
		dr_stream_put(o->o.out, "\n", 1, STDOUT, &o->stream_err);
	if (o->stream_err.code)
		dr_error(COMPONENT, "%s", o->stream_err.text);
	free(text); /* lint-ok: of jansson */
}

static json_t *if_streaming(const struct dr_output *o, const struct dr_fields *t, const void *row)
{
	return o->o.json_stream ? dr_fields_to_json(t, row) : NULL;
}

void dr_output_progress(struct dr_output *o, const char *line)
{
	if (!o->terminal || o->o.quiet)
		return;
	if (line) {
		fprintf(o->o.err, "\r%.100s\033[K", line);
		fflush(o->o.err);
	} else if (o->progress_shown) {
		fputs("\r\033[K", o->o.err);
		fflush(o->o.err);
	}
	o->progress_shown = line != NULL;
}

/* Where lines for people go now; NULL: nowhere. Erases the progress line. */
static FILE *people(struct dr_output *o)
{
	dr_output_progress(o, NULL);
	return o->o.quiet ? NULL : o->tables;
}

void dr_output_start(struct dr_output *o, const struct dr_record *rec)
{
	FILE *f = people(o);

	if (f)
		dr_table_header(rec, f);
	if (o->o.json_stream)
		stream(o, "start", dr_record_to_json(rec));
	dr_output_publish(o, rec);
}

void dr_output_interval(struct dr_output *o, const struct dr_interval_row *row)
{
	FILE *f = people(o);

	if (f)
		dr_table_interval(row, f);
	stream(o, "interval", if_streaming(o, &dr_interval_fields, row));
}

void dr_output_cell(struct dr_output *o, const struct dr_cell_row *row)
{
	FILE *f = people(o);

	if (!row)
		return;
	if (f)
		dr_matrix_print_cell(row, f);
	stream(o, "cell", if_streaming(o, &dr_cell_fields, row));
}

void dr_output_fault(struct dr_output *o, const struct dr_fault_row *row)
{
	FILE *f = people(o);

	if (f)
		dr_table_fault(row, f);
	stream(o, "fault", if_streaming(o, &dr_fault_fields, row));
}

void dr_output_switch(struct dr_output *o, const struct dr_switch_row *row)
{
	stream(o, "switch", if_streaming(o, &dr_switch_fields, row));
}

void dr_output_event(struct dr_output *o, const struct dr_event_row *row)
{
	stream(o, "event", if_streaming(o, &dr_event_fields, row));
}

void dr_output_result(struct dr_output *o, const struct dr_record *rec)
{
	json_t *doc, *part;
	const char *const keys[] = { "bandwidth", "total", "latency", "nics", "integrity" };
	size_t i;

	dr_output_publish(o, rec);
	if (!o->o.json_stream)
		return;
	doc = dr_record_to_json(rec);
	part = json_object();
	for (i = 0; i < DR_ARRAY_LEN(keys); i++)
		json_object_set(part, keys[i], json_object_get(doc, keys[i]));
	json_decref(doc);
	stream(o, "result", part);
}

/* What write makes of the record, in memory of malloc's. */
static int render(int (*write)(const struct dr_record *rec, FILE *f), const struct dr_record *rec,
	char **text, size_t *len)
{
	FILE *f;
	int rc;

	*text = NULL;
	f = open_memstream(text, len);
	if (!f)
		return -ENOMEM;
	rc = write(rec, f);
	if (fclose(f) && !rc)
		rc = -ENOMEM;
	if (rc)
		free(*text); /* lint-ok: of open_memstream */
	return rc;
}

void dr_output_publish(struct dr_output *o, const struct dr_record *rec)
{
	char *text;
	size_t len;

	if (!o->metrics || render(dr_prom_write, rec, &text, &len))
		return;
	dr_metrics_publish(o->metrics, text, len);
	free(text); /* lint-ok: of open_memstream */
}

/* -------------------------------- the end -------------------------------- */

static int write_json(const struct dr_record *rec, FILE *f)
{
	json_t *doc = dr_record_to_json(rec);
	int rc = doc ? dr_json_write(doc, f, 2) : -ENOMEM;

	json_decref(doc);
	return rc;
}

struct target {
	const char *option, *path;
	int (*write)(const struct dr_record *rec, FILE *f);
	bool failed;
};

static int write_target(const struct target *t, const struct dr_record *rec, struct dr_err *e)
{
	struct dr_file file;
	char *text;
	size_t len;
	int rc = render(t->write, rec, &text, &len);

	if (rc)
		return dr_err_set(e, rc, "cannot write %s=%s: out of memory", t->option, t->path);
	rc = dr_file_begin(&file, t->option, t->path, e);
	if (!rc)
		rc = dr_file_commit(&file, text, len, e);
	free(text); /* lint-ok: of open_memstream */
	return rc;
}

static void note_failure(
	struct dr_record *rec, const struct dr_thresholds *t, const struct dr_err *e)
{
	dr_error(COMPONENT, "%s", e->text);
	dr_record_error(rec, DR_EXIT_ENV, e);
	dr_record_verdict(rec, t);
}

/* Write every target; again from the first when one fails, without those that failed. */
static void write_files(
	struct dr_record *rec, const struct dr_thresholds *t, struct target *target, size_t n)
{
	struct dr_err e = { 0 };
	size_t i = 0;

	while (i < n) {
		if (!target[i].path || target[i].failed || !write_target(&target[i], rec, &e)) {
			i++;
			continue;
		}
		target[i].failed = true;
		note_failure(rec, t, &e);
		i = 0;
	}
}

static void finish_stdout(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t)
{
	struct dr_err e = { 0 };
	char *text = NULL;
	size_t len = 0;

	if (o->o.json_stream)
		stream(o, "end", dr_record_to_json(rec));
	if (o->o.json_stdout && render(write_json, rec, &text, &len)) {
		text = NULL;
		len = 0;
		dr_err_set(&e, -ENOMEM, "--json: out of memory");
	}
	if (o->stream_err.code)
		e = o->stream_err;
	else if (!e.code)
		dr_stream_put(o->o.out, text ? text : "", len, STDOUT, &e);
	free(text); /* lint-ok: of open_memstream */
	if (e.code)
		note_failure(rec, t, &e);
}

int dr_output_finish(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t)
{
	struct target target[] = { { "--csv", o->o.csv_path, dr_csv_write, false },
		{ "--save-baseline", o->o.save_baseline_path, write_json, false },
		{ "--json", o->o.json_path, write_json, false },
		{ "--prom", o->o.prom_path, dr_prom_write, false } };

	dr_output_progress(o, NULL);
	dr_record_verdict(rec, t);
	if (rec->exit_code != DR_EXIT_PASS && o->o.save_baseline_path) {
		dr_warn(COMPONENT, "--save-baseline=%s: not written, the run did not pass",
			o->o.save_baseline_path);
		target[1].path = NULL;
	}
	write_files(rec, t, target, DR_ARRAY_LEN(target));
	if (o->tables != o->o.out) {
		finish_stdout(o, rec, t);
		dr_table_print(rec, o->tables);
		fflush(o->tables);
	} else {
		dr_table_print(rec, o->tables);
		finish_stdout(o, rec, t);
	}
	dr_output_publish(o, rec);
	return rec->exit_code;
}

int dr_output_refuse(
	const struct dr_output_options *o, struct dr_record *rec, int rc, const struct dr_err *e)
{
	struct dr_output_options json = { .json_stdout = o->json_stdout,
		.json_path = o->json_path,
		.json_stream = o->json_stream && !o->json_stdout,
		.out = o->out,
		.err = o->err };
	struct dr_output *out;
	int status = rc == -EINVAL ? DR_EXIT_USAGE : DR_EXIT_ENV;

	dr_record_error(rec, status, e);
	if (json.json_path && dr_file_probe("--json", json.json_path, NULL))
		json.json_path = NULL;
	if ((!json.json_path && !json.json_stdout && !json.json_stream) ||
		dr_output_open(&json, &out, NULL))
		return dr_record_verdict(rec, NULL);
	status = dr_output_finish(out, rec, NULL);
	dr_output_close(out);
	return status;
}
