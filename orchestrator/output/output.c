/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/output.h"
#include "orchestrator/output/parts.h"

/*
 * Invariants
 *  1. Standard output carries either people's tables, or one JSON document, or JSON lines: never two.
 *  2. What is written at the end is written in the order of `formats`; each is all there or not at all.
 *  3. A failure to write becomes an error of the record before the next target is written, and those
 *     already written are written again, so that every file tells the final exit status.
 */
struct dr_output {
	struct dr_output_options o;
	FILE *tables;
	json_t *baseline;
	json_t *earlier;		/* what the file of --save-baseline has; NULL: nothing */
	struct dr_baseline_saved saved; /* runs 0: no baseline was written */
	struct dr_metrics *metrics;
	bool terminal, progress_shown;
	struct dr_err stream_err; /* the first; code 0: none */
};

#define COMPONENT "report"
/* As --baseline judges without --min-bw. */
#define LOW_PERCENT 90.0
#define STDOUT "standard output"

/* The files that are written at the end. To add one: a function that writes the record, and a line here. The
 * option of the first one, which may also go to standard output, stands with the general options. */
static const struct format {
	const char *option, *help;
	int (*write)(struct dr_record *rec, FILE *f);
	bool pass_only; /* not written when the run did not pass */
	bool refused;	/* written also when the run does not begin, unless options are wrong */
} formats[] = {
	{ "--json", .write = dr_record_write, .refused = true },
	{ "--csv",
		"Write the results as CSV, all tables in one file: the first column is the table's name.",
		.write = dr_csv_write },
	{ "--save-baseline",
		"Add the bandwidth of this run, if it passes, to the baseline in FILE, or begin one. Runs with "
		"other options than those in FILE are refused with status 2.",
		.pass_only = true },
	{ "--prom",
		"Write the results in the Prometheus text format, also when the run fails. Several files in "
		"one textfile directory need different labels (host, test, --prom-label). The file appears "
		"by rename.",
		.write = dr_prom_write, .refused = true },
	{ "--trace",
		"Write phases, channels, faults and switches as OpenTelemetry spans (OTLP JSON), also when the "
		"run fails. The client's file has both ends; the server's has the same trace id.",
		.write = dr_trace_write, .refused = true },
};
enum { N_FORMATS = DR_ARRAY_LEN(formats) };
_Static_assert(DR_ARRAY_LEN(formats) <= DR_OUTPUT_FILES_MAX, "each has its path");

const struct dr_opt_group *dr_output_group(unsigned commands, unsigned judging)
{
	static struct dr_opt rows[N_FORMATS];
	static const struct dr_opt_group group = { "Result files", rows, N_FORMATS };

	for (size_t i = 1; i < N_FORMATS; i++)
		rows[i - 1] = (struct dr_opt){ .name = formats[i].option + 2,
			.kind = DR_OPT_STRING,
			.arg = "FILE",
			.file = formats[i].pass_only ? DR_OPT_ADD : DR_OPT_WRITE,
			.brief = formats[i].pass_only ? "add this run to a reference" : NULL,
			.commands = formats[i].pass_only ? judging : commands,
			.offset = offsetof(struct dr_output_files, path[i]),
			.help = formats[i].help };
	rows[N_FORMATS - 1] = (struct dr_opt){
		.name = "prom-label",
		.kind = DR_OPT_CUSTOM,
		.arg = "KEY=VALUE",
		.commands = commands,
		.repeat = true,
		.parse = dr_prom_label_parse,
		.offset = offsetof(struct dr_output_files, labels),
		.help = "Add this label to every line of --prom and --metrics-listen. Repeatable."
	};
	return &group;
}

static const char *path_of(const struct dr_output_options *o, size_t i)
{
	return i ? o->files.path[i] : o->json_path;
}

static int probe_all(const struct dr_output_options *o, struct dr_err *e)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < N_FORMATS; i++)
		if (path_of(o, i))
			rc = dr_file_probe(formats[i].option, path_of(o, i), e);
	return rc;
}

static const char *save_path(const struct dr_output *p)
{
	for (size_t i = 0; i < N_FORMATS; i++)
		if (formats[i].pass_only && path_of(&p->o, i))
			return path_of(&p->o, i);
	return NULL;
}

/* The runs that --save-baseline adds this one to. What is no baseline is not overwritten, but for an empty file. */
static int load_earlier(struct dr_output *p, struct dr_err *e)
{
	const char *path = save_path(p);
	struct stat st;

	if (!path || stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size == 0)
		return 0;
	return dr_baseline_load("--save-baseline", path, &p->earlier, e);
}

int dr_output_check_baselines(const struct dr_output *o, const struct dr_record *rec,
	const unsigned *gpus, size_t n_gpus, struct dr_err *e)
{
	const struct dr_baseline_file compared = { o->o.baseline_path, o->baseline, false },
				      saved = { save_path(o), o->earlier, true };
	int rc = dr_baseline_check(&compared, rec, gpus, n_gpus, e);

	return rc ? rc : dr_baseline_check(&saved, rec, gpus, n_gpus, e);
}

int dr_output_open(const struct dr_output_options *o, struct dr_output **out, struct dr_err *e)
{
	struct dr_output *p = dr_calloc(1, sizeof(*p));
	if (!p)
		return dr_err_set(e, -ENOMEM, "output: out of memory");
	p->o = *o;
	p->o.out = o->out ? o->out : stdout;
	p->o.err = o->err ? o->err : dr_log_tables();
	p->tables = o->json_stdout || o->json_stream ? p->o.err : p->o.out;
	p->terminal = isatty(fileno(p->o.err));
	int rc = probe_all(o, e);
	if (!rc && o->baseline_path)
		rc = dr_baseline_load("--baseline", o->baseline_path, &p->baseline, e);
	if (!rc)
		rc = load_earlier(p, e);
	if (!rc && o->metrics_listen)
		rc = dr_metrics_start(o->metrics_listen, o->metrics_allow, &p->metrics, e);
	if (rc) {
		dr_output_close(p);
		return rc;
	}
	*out = p;
	return 0;
}

int dr_output_probe(const struct dr_output *o, struct dr_err *e)
{
	return probe_all(&o->o, e);
}

int dr_output_serve(struct dr_output *o, struct dr_err *e)
{
	return o->metrics ? dr_metrics_serve(o->metrics, e) : 0;
}

void dr_output_close(struct dr_output *o)
{
	if (!o)
		return;
	dr_output_progress(o, NULL);
	dr_metrics_stop(o->metrics);
	json_decref(o->baseline);
	json_decref(o->earlier);
	dr_free(o);
}

const json_t *dr_output_baseline(const struct dr_output *o)
{
	return o->baseline;
}

bool dr_output_is_json(const struct dr_output *o)
{
	return o->o.json_stdout || o->o.json_path || o->o.json_stream;
}

bool dr_output_has_tables(const struct dr_output *o)
{
	return o->o.tables;
}

bool dr_output_saves_baseline(const struct dr_output *o)
{
	return save_path(o) != NULL;
}

uint16_t dr_output_metrics_port(const struct dr_output *o)
{
	return o->metrics ? dr_metrics_port(o->metrics) : 0;
}

FILE *dr_output_tables(const struct dr_output *o)
{
	return o->tables;
}

void dr_output_complain(const struct dr_output *o, const char *text)
{
	int tables = fileno(o->tables); /* -1: lines of the log */
	struct stat a, b;
	bool twice = tables >= 0 && isatty(tables) && !fstat(tables, &a) &&
		     !fstat(STDERR_FILENO, &b) && a.st_rdev == b.st_rdev;

	if (!twice)
		dr_complain("%s", text);
}

/* -------------------------------- the stream -------------------------------- */

/* One line {"event":...,"time":...,"data":...}; takes data over. */
static void stream(struct dr_output *o, const char *event, json_t *data)
{
	if (!o->o.json_stream || o->stream_err.code) {
		json_decref(data);
		return;
	}
	json_t *line = json_pack("{s:s, s:o, s:I, s:o}", "event", event, "time",
		dr_json_wall(dr_wall_ns()), "monotonic_ns", (json_int_t)dr_now_ns(), "data", data);
	char *text = json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(line);
	if (!text)
		dr_err_set(&o->stream_err, -ENOMEM, "--json-stream: out of memory");
	else if (!dr_stream_put(o->o.out, text, strlen(text), STDOUT, &o->stream_err))
		dr_stream_put(o->o.out, "\n", 1, STDOUT, &o->stream_err);
	if (o->stream_err.code)
		dr_error(COMPONENT, "%s", o->stream_err.text);
	free(text); /* lint-ok: of jansson */
}

void dr_output_progress(struct dr_output *o, const char *line)
{
	if (!o->terminal || (o->o.quiet && !o->o.live))
		return;
	if (line) {
		fprintf(o->o.err, "\r%.100s\033[K", line);
		fflush(o->o.err);
	} else if (o->progress_shown) {
		fputs("\r\033[K", o->o.err);
		fflush(o->o.err);
	}
	o->progress_shown = line != NULL;
	dr_log_set_live(line != NULL);
}

/* Where lines for people go now; NULL: nowhere. Erases the progress line. */
static FILE *people(struct dr_output *o)
{
	dr_output_progress(o, NULL);
	return o->o.quiet ? NULL : o->tables;
}

void dr_output_start(struct dr_output *o, struct dr_record *rec)
{
	FILE *f = people(o);

	struct dr_wrap w;

	if (f && dr_wrap_open(&w)) {
		dr_table_header(rec, o->o.options, w.m);
		dr_wrap_close(&w, f);
		fflush(f);
	}
	if (o->o.json_stream)
		stream(o, "start", dr_record_to_json(rec));
	dr_output_publish(o, rec);
}

void dr_output_row_at(struct dr_output *o, size_t list_off, const void *row)
{
	const struct dr_row_type *t = dr_row_type_at(list_off);
	bool line = t->line && (o->o.tables || t->always || (t->interval && o->o.intervals));
	FILE *f = row && line ? people(o) : NULL;
	struct dr_wrap w;

	if (f && dr_wrap_open(&w)) {
		t->line(row, o->o.tables, w.m);
		dr_wrap_close(&w, f);
		fflush(f);
	}
	if (row && o->o.json_stream)
		stream(o, t->event, dr_fields_to_json(t->fields, row));
}

void dr_output_text(struct dr_output *o, const char *text)
{
	FILE *f = people(o);

	if (!f)
		return;
	dr_table_words(text, 0, 2, f);
	fflush(f);
}

void dr_output_line(struct dr_output *o, const char *component, const char *text)
{
	if (!o->o.quiet && dr_log_is_json())
		dr_say(component, "%s", text);
	if (!dr_log_is_json() || fileno(o->tables) >= 0) /* else the tables are lines of the log */
		dr_output_text(o, text);
}

void dr_output_result(struct dr_output *o, struct dr_record *rec)
{
	dr_output_publish(o, rec);
	if (!o->o.json_stream)
		return;
	dr_record_settle(rec);
	stream(o, "result", dr_fields_to_json(&dr_result_fields, rec));
}

static int closed(FILE *f, int rc, char **text, size_t *len)
{
	if (f && fclose(f) && !rc)
		rc = -ENOMEM;
	if (rc) {
		if (f)
			free(*text); /* lint-ok: of open_memstream */
		*text = NULL;
		*len = 0;
	}
	return rc;
}

/* What write makes of the record, in memory of malloc's; on failure *text is NULL and *len 0. */
static int render(int (*write)(struct dr_record *rec, FILE *f), struct dr_record *rec, char **text,
	size_t *len)
{
	FILE *f = open_memstream(text, len);

	return closed(f, f ? write(rec, f) : -ENOMEM, text, len);
}

void dr_output_publish(struct dr_output *o, struct dr_record *rec)
{
	char *text;
	size_t len;

	if (!o->metrics || render(dr_prom_write_live, rec, &text, &len))
		return;
	dr_metrics_publish(o->metrics, text, len);
	free(text); /* lint-ok: of open_memstream */
}

/* -------------------------------- the end -------------------------------- */

static int write_file(struct dr_output *o, size_t i, struct dr_record *rec, struct dr_err *e)
{
	const struct format *x = &formats[i];
	const char *path = path_of(&o->o, i);
	char *text;
	size_t len;

	FILE *f = open_memstream(&text, &len);
	int rc = !f	    ? -ENOMEM
		 : x->write ? x->write(rec, f)
			    : dr_baseline_write(rec, o->earlier, f, &o->saved);
	if ((rc = closed(f, rc, &text, &len)) != 0)
		return dr_err_set(e, rc, "cannot write %s=%s: out of memory", x->option, path);
	rc = dr_file_write(x->option, path, text, len, DR_FILE_SYNC, e);
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

/* Writes every file; again from the first when one fails, without those that failed. */
static void write_files(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t)
{
	bool passed = rec->exit_code == DR_EXIT_PASS, done[N_FORMATS] = { false };
	struct dr_err e = { 0 };

	if (rec->exit_code == DR_EXIT_USAGE) /* nothing that refused options name is touched */
		return;
	for (size_t i = 0; i < N_FORMATS; i++) {
		done[i] = !path_of(&o->o, i) || (formats[i].pass_only && !passed);
		if (done[i] && path_of(&o->o, i))
			dr_warn(COMPONENT, "%s=%s: not written, %s", formats[i].option,
				path_of(&o->o, i),
				rec->bandwidth.n ? "the run did not pass" : "nothing was measured");
	}
	for (size_t i = 0; i < N_FORMATS;) {
		if (done[i] || !write_file(o, i, rec, &e)) {
			i++;
			continue;
		}
		if (formats[i].pass_only)
			o->saved.runs = 0;
		done[i] = true;
		note_failure(rec, t, &e);
		i = 0;
	}
}

/* A run that is worse than those before it is in the mean from now on. */
static void tell_saved(const struct dr_output *o)
{
	const struct dr_baseline_saved *s = &o->saved;

	if (!s->runs)
		return;
	fprintf(o->tables, "baseline: %s now has %lld run%s\n", save_path(o), (long long)s->runs,
		s->runs == 1 ? "" : "s");
	if (s->low_percent < LOW_PERCENT)
		dr_warn(COMPONENT,
			"--save-baseline %s: the run that was added has only %.0f %% of the mean so far (%s); "
			"if the fabric was not healthy, delete the file and begin it anew",
			save_path(o), s->low_percent, s->low);
}

int64_t dr_output_saved(const struct dr_output *o)
{
	return o->saved.runs;
}

static void finish_stdout(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t)
{
	struct dr_err e = { 0 };
	char *text = NULL;
	size_t len = 0;

	if (o->o.json_stream)
		stream(o, "end", dr_record_to_json(rec));
	if (o->o.json_stdout && render(dr_record_write, rec, &text, &len))
		dr_err_set(&e, -ENOMEM, "--json: out of memory");
	if (o->stream_err.code)
		e = o->stream_err;
	else if (!e.code)
		dr_stream_put(o->o.out, text ? text : "", len, STDOUT, &e);
	free(text); /* lint-ok: of open_memstream */
	if (e.code)
		note_failure(rec, t, &e);
}

/* A log in JSON has one line for the result of each run; the tables may be elsewhere. */
static void log_result(const struct dr_record *rec)
{
	static const char *const words[] = { "PASS", "FAIL", "ERROR" };
	bool passed = rec->exit_code == DR_EXIT_PASS;
	char members[32], text[1000] = "";

	if (!dr_log_is_json())
		return;
	snprintf(members, sizeof(members), "\"exit_code\":%d", rec->exit_code);
	dr_append(text, sizeof(text), "%s", words[rec->status]);
	if (!passed)
		dr_append(text, sizeof(text), " (exit status %d)", rec->exit_code);
	for (size_t i = 0; i < rec->errors.n; i++)
		dr_append(text, sizeof(text), "%s %s", i ? ";" : ":", rec->errors.v[i].text);
	dr_log_set_thread_run(rec->run_id);
	dr_log_members(passed ? DR_LOG_INFO : DR_LOG_ERROR, "result", members, text);
	dr_log_set_thread_run(NULL);
}

int dr_output_finish(struct dr_output *o, struct dr_record *rec, const struct dr_thresholds *t)
{
	bool json = o->tables != o->o.out;

	dr_output_progress(o, NULL);
	dr_record_verdict(rec, t);
	write_files(o, rec, t);
	if (json)
		finish_stdout(o, rec, t);
	if (o->o.tables && !o->o.no_tables)
		dr_table_print(rec, o->tables);
	else if (!o->o.quiet && !o->o.no_tables)
		dr_table_answers(rec, o->tables);
	else if (!o->o.no_tables)
		dr_table_verdict(rec, o->tables);
	tell_saved(o);
	fflush(o->tables);
	if (!json)
		finish_stdout(o, rec, t);
	dr_output_publish(o, rec);
	log_result(rec);
	return rec->exit_code;
}

int dr_output_refuse(const struct dr_output_options *o, struct dr_record *rec, int status,
	const struct dr_err *e)
{
	struct dr_output_options few = { .json_stdout = o->json_stdout,
		.json_path = o->json_path,
		.json_stream = o->json_stream && !o->json_stdout,
		.no_tables = true,
		.out = o->out,
		.err = o->err };
	bool files = status != DR_EXIT_USAGE;
	struct dr_output *out;

	dr_record_error(rec, status, e);
	if (!files || (few.json_path && dr_file_probe("--json", few.json_path, NULL)))
		few.json_path = NULL;
	for (size_t i = 1; i < N_FORMATS && files; i++) {
		const char *path = formats[i].refused ? path_of(o, i) : NULL;

		if (path && dr_file_probe(formats[i].option, path, NULL) == 0)
			few.files.path[i] = path;
	}
	if (dr_output_open(&few, &out, NULL)) {
		dr_record_verdict(rec, NULL);
		log_result(rec);
		return rec->exit_code;
	}
	status = dr_output_finish(out, rec, NULL);
	dr_output_close(out);
	return status;
}
