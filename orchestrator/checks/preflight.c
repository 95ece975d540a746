/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/preflight.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/units.h"
#include "orchestrator/checks/preflight_priv.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/session/session.h"

/*
 * Checks, run, verdict. A check that failed is a part of the line; it prevents the run only if that
 * could not begin. All judging is the run's own (output/verdict.c): preflight adds the checks
 * before it, and a line with the verdict's reason.
 */
enum { LINE_BYTES = 1024 };

struct preflight {
	const struct dr_options *opt;
	struct dr_record *rec;
	int64_t begin_ns;
	int status;
	char failure[512];     /* of the checks; "": none, or the run could not begin */
	char line[LINE_BYTES]; /* the verdict, without what stands before it */
	struct preflight_bad bad[PREFLIGHT_BAD_MAX];
	size_t n_bad;
	int64_t saved;	  /* runs in the file of --save-baseline; 0: this one was not added */
	int measurements; /* 2: something was below after the first */
	json_t *checks, *result; /* NULL: not begun */
};

/* ---- the document ---- */

struct document {
	const char *version, *target, *verdict;
	int failed, exit_code, measurements;
	char host[256];
	double seconds;
	json_t *bad, *checks, *result;
};
static const char *const status_names[] = { "pass", "fail", NULL };
#define T struct document
#define F(kind, name, member, text_, ...)                                                          \
	DR_FIELD(name, DR_F_##kind, T, member, .text = (text_), __VA_ARGS__)
static const struct dr_field document[] = {
	DR_FIELD_CONST("schema", "dualrail-preflight/1", .text = "format of this document"),
	F(TEXT, "version", version, "version of this program"),
	DR_FIELD_ENUM("status", T, failed, status_names, .text = "outcome", .flags = DR_F_REQUIRED),
	F(SINT, "exit_code", exit_code, "exit status of the program", .min = 0, .max = 255),
	F(STR, "host", host, "this host"),
	F(TEXT, "target", target, "HOST as given"),
	F(TEXT, "verdict", verdict, "the line that is printed, without host and status"),
	F(SINT, "measurements", measurements,
		"2: figures were below after the first, so the higher one of each is compared",
		.min = 0, .max = 2),
	F(NUM, "seconds", seconds, "time that it took"),
	F(JSON, "bad", bad, "what is below the baseline; empty: nothing, or nothing was compared",
		.row = &preflight_bad_fields),
	F(JSON, "checks", checks, "document of doctor (doctor.json); null: not begun",
		.schema = "{\"type\":[\"object\",\"null\"]}"),
	F(JSON, "result", result, "document of the run (result.json); null: not begun",
		.schema = "{\"type\":[\"object\",\"null\"]}"),
};
DR_FIELDS(dr_preflight_fields, "preflight", document, T, .text = "what `dualrail preflight` found");
#undef F
#undef T

static json_t *to_json(const struct preflight *p)
{
	struct document d = { .version = DR_VERSION,
		.target = p->opt->host_text,
		.verdict = p->line,
		.failed = p->status != 0,
		.exit_code = p->status,
		.measurements = p->measurements,
		.seconds = (double)(dr_now_ns() - p->begin_ns) / 1e9,
		.bad = dr_rows_to_json(&preflight_bad_fields, p->bad, p->n_bad),
		.checks = p->checks,
		.result = p->result };
	json_t *o = NULL;

	(void)!gethostname(d.host, sizeof(d.host) - 1);
	if (d.bad)
		o = dr_fields_to_json(&dr_preflight_fields, &d);
	json_decref(d.bad);
	return o;
}

static int write_document(struct preflight *p)
{
	const char *path = p->opt->json_path;

	return dr_json_output(path, path ? to_json(p) : NULL, p->status);
}

/* ---- the line ---- */

static void describe_errors(struct preflight *p)
{
	const struct dr_record *rec = p->rec;

	for (size_t i = 0; i < rec->errors.n; i++)
		if (rec->errors.v[i].exit_status == p->status) {
			dr_append(p->line, sizeof(p->line), "%s", rec->errors.v[i].text);
			return;
		}
	dr_append(p->line, sizeof(p->line), "exit status %d of the run", p->status);
}

/* Why the NICs could not be compared with each other; NULL: they were, or with a baseline. */
static const char *undecided(const struct preflight *p)
{
	const struct dr_record *rec = p->rec;

	for (size_t i = 0; !rec->comparison.n && i < rec->matrix.nics.n; i++)
		if (rec->matrix.nics.v[i].finding == DR_MATRIX_UNKNOWN &&
			rec->matrix.nics.v[i].cause[0])
			return rec->matrix.nics.v[i].cause;
	return NULL;
}

/* "; lowest GPU 0 over eth1, 97.1 % of the baseline" */
static void describe_lowest(struct preflight *p)
{
	const struct dr_record *rec = p->rec;
	const struct dr_comparison_row *low = NULL;
	const char *why = undecided(p);
	size_t n = 0;

	for (size_t i = 0; i < rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &rec->comparison.v[i];

		if (c->result > DR_COMPARISON_BELOW)
			continue;
		n++;
		low = !low || c->percent < low->percent ? c : low;
	}
	if (!low) {
		dr_append(p->line, sizeof(p->line), "; compared with no baseline%s%s",
			why || rec->rails.n < 2 ? "" : ", the NICs with each other",
			why ? "; not judged: " : "");
		dr_append(p->line, sizeof(p->line), "%s", why ? why : "");
		return;
	}
	dr_append(p->line, sizeof(p->line),
		"; %zu figures, the lowest %.1f %% of the baseline (%s)", n, floored(low->percent),
		figure_name(low->gpu, low->nic).s);
}

static size_t count_gpus(const struct dr_record *rec)
{
	size_t n = 0;

	for (size_t i = 0; i < rec->gpus.n; i++)
		n += i == 0 || rec->gpus.v[i].gpu != rec->gpus.v[i - 1].gpu;
	return n;
}

/* " (eth0, eth1)": a NIC that is missing here was not measured. */
static void describe_nics(struct preflight *p)
{
	const struct dr_record *rec = p->rec;

	for (size_t i = 0; i < rec->rails.n; i++)
		dr_append(
			p->line, sizeof(p->line), "%s%s", i ? ", " : " (", rec->rails.v[i].ifname);
	dr_append(p->line, sizeof(p->line), "%s", rec->rails.n ? ")" : "");
}

static void describe_pass(struct preflight *p)
{
	const struct dr_options *o = p->opt;
	const struct dr_record *rec = p->rec;
	size_t gpus = count_gpus(rec);

	dr_append(p->line, sizeof(p->line), "%zu GPU%s x %zu NIC%s", gpus, gpus == 1 ? "" : "s",
		rec->rails.n, rec->rails.n == 1 ? "" : "s");
	describe_nics(p);
	dr_append(p->line, sizeof(p->line), ", %.3g Gb/s together", rec->total.gbps);
	describe_lowest(p);
	dr_record_silent_nics(rec, p->line, sizeof(p->line));
	dr_record_control_nic(rec, p->line, sizeof(p->line));
	if (p->saved)
		dr_append(p->line, sizeof(p->line),
			"; saved, the baseline now has %" PRId64 " run%s", p->saved,
			p->saved == 1 ? "" : "s");
	if (!o->bidir)
		dr_append(p->line, sizeof(p->line), "; %s not measured (--bidir)",
			dr_enum_name(dr_direction_names, o->reverse ? DR_TO_SERVER : DR_TO_CLIENT));
}

static void describe_run(struct preflight *p)
{
	if (p->n_bad)
		preflight_describe_bad(p->bad, p->n_bad, p->line, sizeof(p->line));
	else if (p->status)
		describe_errors(p);
	else
		describe_pass(p);
	if (p->measurements > 1 && (p->n_bad || !p->status))
		dr_append(p->line, sizeof(p->line), "; measured twice");
	if (p->failure[0])
		dr_append(p->line, sizeof(p->line), "; failed check: %s", p->failure);
}

/* One line, whatever a peer or a file has put into it. */
static void print_line(struct preflight *p)
{
	const char *path = p->opt->json_path;
	FILE *f = path && strcmp(path, "-") == 0 ? dr_log_tables() : stdout;
	char text[LINE_BYTES];

	dr_text_copy(text, sizeof(text), p->line);
	memcpy(p->line, text, sizeof(text));
	fprintf(f, "preflight %.100s: %s (exit status %d): %s\n", p->opt->host_text,
		p->status ? "FAIL" : "PASS", p->status, p->line);
	fflush(f);
}

/* ---- the steps ---- */

static void fail(struct preflight *p, int status, const char *text)
{
	p->status = status;
	snprintf(p->line, sizeof(p->line), "%s", text);
}

/* False: the run cannot begin. */
static bool check(struct preflight *p, struct dr_options *o, struct dr_output *out,
	dr_preflight_checks_fn checks)
{
	struct dr_preflight_checks found = { .status = 0 };

	checks(o, out, &found);
	p->checks = found.document;
	if (found.status)
		fail(p, found.status, found.failure);
	else
		memcpy(p->failure, found.failure, sizeof(p->failure));
	return !found.status;
}

static void find_bad(struct preflight *p)
{
	p->n_bad = p->status == DR_EXIT_THRESHOLD ? preflight_find_bad(p->rec, p->bad) : 0;
}

/* Figures are below that were measured, or vary. A NIC that is missing will be missing again. */
static bool is_worth_repeating(const struct preflight *p)
{
	if (p->status == DR_EXIT_PASS && undecided(p))
		return true;
	for (size_t i = 0; i < p->n_bad; i++)
		if (!isfinite(p->bad[i].percent))
			return false;
	return p->n_bad > 0;
}

/* Has this run judged? Else it could not be repeated, as by a server for one client. */
static bool has_judged(int status)
{
	return status == DR_EXIT_PASS || status == DR_EXIT_DATA || status == DR_EXIT_THRESHOLD ||
	       status > 128;
}

/* Short cells vary on a busy host: what is low in one of two measurements is not named. */
static void measure_again(struct preflight *p, struct dr_options *o, struct dr_output *out)
{
	struct dr_record *rec = p->rec;
	size_t bytes = rec->comparison.n * sizeof(*rec->comparison.v);
	struct dr_comparison_row *first = dr_calloc(1, bytes);
	int status;

	if (!first)
		return;
	if (bytes)
		memcpy(first, rec->comparison.v, bytes);
	rec->n_earlier = rec->comparison.n;
	dr_record_reset(rec);
	rec->earlier = first;
	status = dr_session_main(o, rec, out);
	if (has_judged(status)) {
		p->measurements = 2;
		p->status = status;
		find_bad(p);
		json_decref(p->result);
		p->result = dr_record_to_json(rec);
	}
	rec->earlier = NULL;
	rec->n_earlier = 0;
	dr_free(first);
}

static void measure(struct preflight *p, struct dr_options *o, struct dr_output *out)
{
	p->status = dr_session_main(o, p->rec, out);
	p->measurements = 1;
	find_bad(p);
	p->result = dr_record_to_json(p->rec);
	if (is_worth_repeating(p))
		measure_again(p, o, out);
	p->saved = dr_output_saved(out);
	describe_run(p);
}

static void run(struct preflight *p, struct dr_options *o, const struct dr_output_options *oo,
	dr_preflight_checks_fn checks)
{
	struct dr_output *out;
	struct dr_err e = { 0 };
	int rc = dr_output_open(oo, &out, &e);

	if (rc) {
		dr_complain("%s", e.text);
		fail(p, dr_output_refuse(oo, p->rec, dr_options_exit(rc), &e), e.text);
		return;
	}
	if (check(p, o, out, checks)) {
		measure(p, o, out);
	} else {
		dr_record_errorf(p->rec, p->status, "%s", p->line);
		dr_output_complain(out, p->line);
		p->status = dr_output_finish(out, p->rec, NULL);
	}
	dr_output_close(out);
}

int dr_preflight_main(struct dr_options *o, struct dr_record *rec,
	const struct dr_output_options *oo, dr_preflight_checks_fn checks)
{
	struct preflight p = { .opt = o, .rec = rec, .begin_ns = dr_now_ns() };
	const char *path = o->json_path;
	struct dr_err e = { 0 };
	int rc = path && strcmp(path, "-") != 0 ? dr_file_probe("--json", path, &e) : 0;

	o->quiet = o->verbose == 0;
	if (rc) {
		dr_complain("%s", e.text);
		fail(&p, DR_EXIT_ENV, e.text);
	} else {
		run(&p, o, oo, checks);
	}
	print_line(&p);
	if (!rc)
		p.status = write_document(&p);
	json_decref(p.checks);
	json_decref(p.result);
	return p.status;
}

int dr_preflight_refuse(const struct dr_options *o, int status, const struct dr_err *e)
{
	struct preflight p = { .opt = o, .begin_ns = dr_now_ns() };

	fail(&p, status, e->text);
	return o->json_path ? write_document(&p) : status;
}
