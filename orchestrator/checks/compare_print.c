/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/checks/compare_priv.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/parts.h"

/* The outcome as tables and as a document. */

static const char *const group_names[] = { "total", "gpu", "nic", "pair", "latency", "gap", "cpu",
	NULL };
static const char *const result_names[] = { "no-change", "worse", "better", "too-few-runs",
	"only-old", "only-new", NULL };
static const char *const quantity_names[] = { "bandwidth", "rtt_p50", "rtt_p90", "rtt_p99",
	"rtt_p999", "gap_p50", "gap_p99", "failback_gap", "cpu", NULL };
static const char *const units[] = { "Gb/s", "us", "us", "us", "us", "us", "us", "us", "%" };
const char *const compare_unit_names[] = { "gbps", "us", "us", "us", "us", "us", "us", "us",
	"percent_per_gbps" };

/* ---- table ---- */

enum { NAME_WIDTH = 38, SHOWN = 30 };

static void name_of(const struct compare_figure *f, char *buf, size_t len)
{
	static const char *const quantities[] = { "", "RTT p50", "RTT p90", "RTT p99", "RTT p99.9",
		"gap p50", "gap p99", "failback gap", "CPU per Gb/s" };
	char bytes[32];

	buf[0] = '\0';
	if (f->group == GROUP_TOTAL)
		dr_append(buf, len, "total");
	if (f->quantity != QUANTITY_BANDWIDTH)
		dr_append(buf, len, "%s", quantities[f->quantity]);
	if (f->kind[0])
		dr_append(buf, len, " %s", f->kind);
	if (f->gpu != DR_UNSET)
		dr_append(buf, len, "%sGPU %" PRId64, *buf ? " " : "", f->gpu);
	if (f->nic[0])
		dr_append(buf, len, "%s%.20s", *buf ? " over " : "", f->nic);
	if (f->direction >= 0)
		dr_append(buf, len, " %s", dr_enum_name(dr_direction_names, f->direction));
	if (f->end >= 0)
		dr_append(buf, len, " %s", dr_enum_name(dr_end_names, f->end));
	if (f->dir > 0)
		dr_append(buf, len, " %s", dr_enum_name(dr_fault_dir_names, f->dir));
	if (f->message_bytes != DR_UNSET) {
		dr_format_size((uint64_t)f->message_bytes, bytes, sizeof(bytes));
		dr_append(buf, len, ", %s", bytes);
	}
}

/* "-4.9" of a factor 0.951. */
static struct cell change(double ratio)
{
	struct cell c = { "-" };

	if (isfinite(ratio))
		snprintf(c.s, sizeof(c.s), "%+.*f", fabs(ratio - 1) < 0.9995 ? 1 : 0,
			100 * (ratio - 1));
	return c;
}

static void print_figure(const struct compare_figure *f, FILE *out)
{
	static const char *const words[] = { "no change", "WORSE", "better", "too few", "only old",
		"only new" };
	char name[112] = "", limits[64] = "";

	name_of(f, name, sizeof(name));
	if (!isnan(f->shift.low))
		snprintf(limits, sizeof(limits), "%.20s to %.20s", change(f->shift.low).s,
			change(f->shift.high).s);
	fprintf(out, "  %-*.*s %8s %8s %-4s %7s %15s  %s\n", NAME_WIDTH, NAME_WIDTH, name,
		sig(f->of[SIDE_OLD].median).s, sig(f->of[SIDE_NEW].median).s, units[f->quantity],
		change(f->shift.ratio).s, limits, words[f->result]);
}

static void print_figures(const struct compare *c, bool all, FILE *f)
{
	/* What became worse first; the totals in any case. */
	static const int order[] = { RESULT_WORSE, RESULT_BETTER, RESULT_SAME, RESULT_FEW,
		RESULT_OLD, RESULT_NEW };
	size_t shown = 0;

	fprintf(f, "\n  %-*s %8s %8s %-4s %7s %15s\n", NAME_WIDTH, "figure, medians of the runs",
		"old", "new", "", "change%", "interval");
	for (size_t k = 0; k < DR_ARRAY_LEN(order) * GROUPS; k++)
		for (size_t i = 0; i < c->figures.n && (all || shown < SHOWN); i++)
			if (c->figures.v[i].result == order[k / GROUPS] &&
				c->figures.v[i].group == (int)(k % GROUPS)) {
				print_figure(&c->figures.v[i], f);
				shown++;
			}
	if (shown < c->figures.n)
		fprintf(f, "  and %zu more (-v, or --json)\n", c->figures.n - shown);
}

static void print_sides(const struct compare *c, FILE *f)
{
	static const char *const names[] = { "old", "new" };

	for (int i = 0; i < 2; i++) {
		const struct compare_side *s = &c->side[i];

		fprintf(f, "%s: %zu run%s", names[i], s->runs, s->runs == 1 ? "" : "s");
		if (s->versions[0])
			fprintf(f, ", version %s", s->versions);
		if (s->first[0])
			fprintf(f, ", %.19s to %.19s", s->first, s->last);
		fputc('\n', f);
	}
	for (size_t i = 0; i < c->notes.n; i++)
		fprintf(f, "note: %s: %s\n", c->notes.v[i].file, c->notes.v[i].text);
}

static void print_differences(const struct compare *c, FILE *f)
{
	if (!c->differences.n)
		return;
	fprintf(f, "%s\n",
		c->allow_differences ? "The runs differ in more than their time:"
				     : "Not compared: the runs measured different things.");
	for (size_t i = 0; i < c->differences.n; i++)
		fprintf(f, "  %s  ->  %s   (%s)\n", c->differences.v[i].was, c->differences.v[i].is,
			c->differences.v[i].file);
	if (!c->allow_differences)
		fputs("Choose runs with equal options, or add --allow-differences.\n", f);
}

static int64_t runs_needed(const struct compare *c)
{
	int64_t most = 0;

	for (size_t i = 0; i < c->figures.n; i++)
		if (c->figures.v[i].result == RESULT_FEW)
			most = DR_MAX(most, c->figures.v[i].runs_needed);
	return most;
}

static void print_result(const struct compare *c, FILE *f)
{
	const size_t *n = c->results;

	fprintf(f,
		"Result: of %zu figures %zu worse, %zu better, %zu without a change beyond the noise",
		n[RESULT_WORSE] + n[RESULT_BETTER] + n[RESULT_SAME] + n[RESULT_FEW],
		n[RESULT_WORSE], n[RESULT_BETTER], n[RESULT_SAME]);
	if (n[RESULT_OLD] + n[RESULT_NEW])
		fprintf(f, ";\n  %zu only in old runs, %zu only in new ones", n[RESULT_OLD],
			n[RESULT_NEW]);
	fprintf(f, ".\n");
	if (n[RESULT_FEW])
		fprintf(f,
			"  %zu not judged: %" PRId64
			" runs of each side are needed. Intervals of one run do not show how runs differ.\n",
			n[RESULT_FEW], runs_needed(c));
	fprintf(f,
		"Method: factor new/old by Hodges and Lehmann, limits by the Mann-Whitney test. All limits of\n"
		"  one side hold together with %.0f %% (Bonferroni). Worse, better: the interval is without 0,\n"
		"  the change above %g %%.\n",
		100 * (1 - COMPARE_LEVEL), 100 * c->tolerance);
}

/* Of status_names. */
static int status_of(const struct compare *c)
{
	return c->status == 0 ? 0 : c->status == DR_EXIT_ENV ? 2 : 1;
}

void compare_print(const struct compare *c, bool all, FILE *f)
{
	static const char *const words[] = { "PASS", "FAIL", "ERROR" };

	print_sides(c, f);
	print_differences(c, f);
	if (c->figures.n) {
		print_figures(c, all, f);
		print_result(c, f);
	} else if (!c->differences.n || c->allow_differences) {
		fputs("No figure can be compared.\n", f);
	}
	if (c->no_memory)
		fputs("Out of memory: figures are missing.\n", f);
	fprintf(f, "%s (exit status %d)\n", words[status_of(c)], c->status);
}

/* ---- document ---- */

#define F(kind_, name_, member, text_, ...)                                                        \
	DR_FIELD(name_, DR_F_##kind_, T, member, .text = (text_), __VA_ARGS__)

#define T struct compare_figure
#define SIDE(name_, i_)                                                                            \
	F(INT, name_ ".runs", of[i_].values.n,                                                     \
		"values: one of each run, or of each trial of a fault"),                           \
		F(NUM, name_ ".median", of[i_].median, "their median"),                            \
		F(NUM, name_ ".min", of[i_].least, "the smallest"),                                \
		F(NUM, name_ ".max", of[i_].most, "the largest")
static const struct dr_field figure_table[] = {
	DR_FIELD_ENUM("group", T, group, group_names,
		.text = "group of figures that shares a part of the level", .flags = DR_F_KEY),
	DR_FIELD_ENUM(
		"quantity", T, quantity, quantity_names, .text = "what it is", .flags = DR_F_KEY),
	F(TEXT, "unit", unit, "unit of median, min and max"),
	F(INT, "gpu", gpu, "the client's GPU", .flags = DR_F_KEY),
	F(STR, "nic", nic, "NIC at the client", .flags = DR_F_KEY),
	DR_FIELD_ENUM("direction", T, direction, dr_direction_names,
		.text = "direction of the data", .flags = DR_F_KEY),
	F(INT, "message_bytes", message_bytes, "size of a message", .flags = DR_F_KEY),
	F(STR, "kind", kind, "kind of the faults, as in --fault", .flags = DR_F_KEY),
	DR_FIELD_ENUM("side", T, end, dr_end_names, .text = "end where they act; cpu: the end",
		.flags = DR_F_KEY),
	DR_FIELD_ENUM("dir", T, dir, dr_fault_dir_names, .text = "direction that they block",
		.flags = DR_F_KEY),
	SIDE("old", SIDE_OLD),
	SIDE("new", SIDE_NEW),
	F(NUM, "ratio", shift.ratio, "factor new / old: the median of all ratios"),
	F(NUM, "ratio_low", shift.low, "lower limit of the factor; null: too few runs"),
	F(NUM, "ratio_high", shift.high, "upper limit"),
	F(NUM, "level", level,
		"probability that the true factor is beyond one of the limits, each"),
	F(INT, "runs_needed", runs_needed, "runs of each side that limits at this level need"),
	DR_FIELD_ENUM("result", T, result, result_names,
		.text = "worse or better: the limits exclude 1, and the factor is beyond the tolerance"),
};
DR_FIELDS(compare_figure_fields, "figures", figure_table, T, .text = "one figure of both sides");
#undef T

#define T struct compare_difference
static const struct dr_field difference_table[] = {
	F(STR, "first", was, "what the first document has"),
	F(STR, "other", is, "what another one has"),
	F(STR, "file", file, "the first file that has it"),
};
static DR_FIELDS(difference_fields, "differences", difference_table, T,
	.text = "an option or a setting that differs");
#undef T

#define T struct compare_note
static const struct dr_field note_table[] = {
	F(STR, "file", file, "the document"),
	F(STR, "text", text, "what was left out of it, and why"),
};
static DR_FIELDS(note_fields, "notes", note_table, T, .text = "a remark about one document");
#undef T

struct document {
	struct compare c;
	const char *version, *method;
	int status;
	double confidence, tolerance;
};
static const char *const method =
	"Hodges-Lehmann estimate of the factor, Mann-Whitney limits (exact up to 50 runs), weighted Bonferroni";
static const char *const status_names[] = { "pass", "fail", "error", NULL };
#define T struct document
#define ENDS(name_, i_)                                                                            \
	F(INT, name_ ".runs", c.side[i_].runs, "documents that were compared"),                    \
		F(STR, name_ ".versions", c.side[i_].versions, "versions of the program"),         \
		F(STR, name_ ".first_time", c.side[i_].first, "begin of the first run, ISO 8601"), \
		F(STR, name_ ".last_time", c.side[i_].last, "begin of the last run, ISO 8601")
static const struct dr_field document_table[] = {
	DR_FIELD_CONST("schema", "dualrail-compare/1", .text = "format of this document"),
	F(TEXT, "version", version, "version of this program"),
	DR_FIELD_ENUM("status", T, status, status_names,
		.text = "fail: a figure became worse; error: nothing could be compared",
		.flags = DR_F_REQUIRED),
	F(SINT, "exit_code", c.status, "exit status of the program"),
	F(TEXT, "method", method, "how the limits are computed"),
	F(NUM, "confidence", confidence,
		"probability that no figure is called worse if nothing changed; the same for better"),
	F(NUM, "tolerance_percent", tolerance, "--tolerance"),
	ENDS("old", SIDE_OLD),
	ENDS("new", SIDE_NEW),
	F(LIST, "differences", c.differences, "in options and environment",
		.row = &difference_fields),
	F(LIST, "notes", c.notes, "about documents", .row = &note_fields),
	F(LIST, "figures", c.figures, "every figure; none if differences were refused",
		.row = &compare_figure_fields),
};
DR_FIELDS(dr_compare_fields, "compare", document_table, T, .text = "what `dualrail compare` found");
#undef T

json_t *compare_json(const struct compare *c)
{
	const struct document d = { .c = *c,
		.version = DR_VERSION,
		.method = method,
		.status = status_of(c),
		.confidence = 1 - COMPARE_LEVEL,
		.tolerance = 100 * c->tolerance };

	return dr_fields_to_json(&dr_compare_fields, &d);
}
