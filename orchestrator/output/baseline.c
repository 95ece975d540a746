/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/*
 * Baselines: figures with the runs that they were measured in.
 *  1. In a run, rec->baseline holds figures only inside the functions here: those of this run, or those to be written.
 *  2. A figure is compared with the mean of its runs. The smallest one is shown beside it.
 *  3. Runs with other options are neither compared nor mixed: baseline_options.c refuses them before a run.
 */

/* ---- the figures of this run ---- */

static void add(struct dr_record *rec, const struct dr_figure_row *key, double gbps)
{
	struct dr_figure_row r = *key;

	if (!(gbps > 0))
		return;
	r.repeats = 1;
	r.mean_gbps = r.min_gbps = gbps;
	r.n_runs = 1;
	r.runs[0] = (struct dr_figure_run_row){ rec->start_wall_ns / 1000000000, gbps };
	dr_record_add(rec, baseline, &r);
}

static struct dr_figure_row key_of(
	enum dr_figure_kind kind, int64_t gpu, const char *nic, int direction, int64_t bytes)
{
	struct dr_figure_row r;

	dr_fields_init(&dr_figure_fields, &r);
	r.kind = kind;
	r.gpu = gpu;
	snprintf(r.nic, sizeof(r.nic), "%s", nic);
	r.direction = direction;
	r.message_bytes = bytes;
	return r;
}

/* 0: the GPU has no channels whose primary path is on this NIC, 1: all, 2: some. */
static int uses(const struct dr_record *rec, int64_t gpu, const char *nic)
{
	bool here = false, elsewhere = false;

	for (size_t i = 0; i < rec->gpus.n; i++) {
		const struct dr_gpu_row *g = &rec->gpus.v[i];
		const struct dr_rail_row *r =
			g->gpu == gpu ? dr_record_rail(rec, g->primary) : NULL;

		if (g->gpu == gpu)
			*(r && strcmp(r->ifname, nic) == 0 ? &here : &elsewhere) = true;
	}
	return here + (here && elsewhere);
}

/* NICs, with the GPUs that use no other, of a row's phase and direction; at the first row of it. */
static void collect_nics(struct dr_record *rec, size_t first)
{
	const struct dr_bandwidth_row *like = &rec->bandwidth.v[first], *b = rec->bandwidth.v;
	double sum[DR_RAILS_MAX] = { 0 };

	for (; b < rec->bandwidth.v + rec->bandwidth.n; b++) {
		if (b->phase != like->phase || b->direction != like->direction ||
			b->message_bytes != like->message_bytes)
			continue;
		if (b < like)
			return;
		for (size_t i = 0; i < rec->rails.n; i++) {
			int use = uses(rec, b->gpu, rec->rails.v[i].ifname);

			if (use)
				sum[i] += use == 2 ? NAN : b->gbps; /* others share it */
		}
	}
	for (size_t i = 0; i < rec->rails.n; i++) {
		struct dr_figure_row key = key_of(DR_FIGURE_NIC, DR_UNSET, rec->rails.v[i].ifname,
			like->direction, like->message_bytes);

		add(rec, &key, sum[i]);
	}
}

/* Of a matrix: pairs, and NICs with all GPUs over them. */
static void collect_cells(struct dr_record *rec)
{
	for (size_t i = 0; i < rec->matrix.cells.n; i++) {
		const struct dr_matrix_cell_row *c = &rec->matrix.cells.v[i];
		struct dr_figure_row key =
			key_of(c->gpu == DR_UNSET ? DR_FIGURE_NIC : DR_FIGURE_PAIR, c->gpu, c->nic,
				c->direction, c->message_bytes);

		if (!(c->switched > 0))
			add(rec, &key, c->gbps);
	}
}

static bool has_nic_cells(const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->matrix.cells.n; i++)
		if (rec->matrix.cells.v[i].gpu == DR_UNSET)
			return true;
	return false;
}

void dr_baseline_figures(struct dr_record *rec)
{
	bool cells = has_nic_cells(rec);

	rec->baseline.n = 0;
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *b = &rec->bandwidth.v[i];
		struct dr_figure_row key =
			key_of(DR_FIGURE_GPU, b->gpu, "", b->direction, b->message_bytes);

		add(rec, &key, b->gbps);
		if (!cells)
			collect_nics(rec, i);
	}
	collect_cells(rec);
}

static struct dr_figure_row *find(struct dr_record *rec, const struct dr_figure_row *key)
{
	return dr_rows_find(
		&rec->baseline.index, &dr_figure_fields, rec->baseline.v, rec->baseline.n, key);
}

/* ---- figures of a file ---- */

/* One of a document of an earlier version, or of --json: its row of "bandwidth". */
static bool figure_of_bandwidth(const json_t *v, struct dr_figure_row *out)
{
	struct dr_bandwidth_row b;

	if (dr_fields_from_json(&dr_bandwidth_fields, &b, v, NULL) || !(b.gbps > 0))
		return false;
	*out = key_of(DR_FIGURE_GPU, b.gpu, "", b.direction, b.message_bytes);
	out->repeats = 1;
	out->mean_gbps = out->min_gbps = b.gbps;
	return true;
}

/* Figure i of the document. False: there is none at i, or it is not readable; *n: how many. */
static bool figure_at(const json_t *doc, size_t i, size_t *n, struct dr_figure_row *out)
{
	const json_t *own = json_object_get(doc, "baseline"),
		     *bw = json_object_get(doc, "bandwidth");
	bool has = json_array_size(own) > 0;

	*n = json_array_size(has ? own : bw);
	if (!has)
		return figure_of_bandwidth(json_array_get(bw, i), out);
	return !dr_fields_from_json(&dr_figure_fields, out, json_array_get(own, i), NULL) &&
	       out->mean_gbps > 0 && out->repeats > 0;
}

/* ---- writing ---- */

/* The runs of `was` before the one of `r`, which is this run's. */
static void join(struct dr_figure_row *r, const struct dr_figure_row *was)
{
	struct dr_figure_run_row now = r->runs[0];
	unsigned keep = DR_MIN(was->n_runs, (unsigned)DR_FIGURE_RUNS - 1);

	memcpy(r->runs, was->runs + (was->n_runs - keep), keep * sizeof(*r->runs));
	r->runs[keep] = now;
	r->n_runs = keep + 1;
	r->repeats = was->repeats + 1;
	r->mean_gbps = was->mean_gbps + (now.gbps - was->mean_gbps) / (double)r->repeats;
	r->min_gbps = fmin(was->min_gbps, now.gbps);
}

/* This run's figure beside the mean of those before it. */
static void note_low(struct dr_baseline_saved *out, const struct dr_figure_row *was, double gbps)
{
	double percent = 100 * gbps / was->mean_gbps;

	if (!(percent < out->low_percent) && isfinite(out->low_percent))
		return;
	out->low_percent = percent;
	snprintf(out->low, sizeof(out->low), "%s %s: %s of %s Gb/s",
		figure_name(was->gpu, was->nic).s, dr_enum_name(dr_direction_names, was->direction),
		sig(gbps).s, sig(was->mean_gbps).s);
}

int dr_baseline_write(
	struct dr_record *rec, const json_t *earlier, FILE *f, struct dr_baseline_saved *saved)
{
	struct dr_baseline_saved none = { 0 }, *out = saved ? saved : &none;
	struct dr_figure_row was, *r;
	size_t n = earlier != NULL;

	*out = (struct dr_baseline_saved){ .runs = 1, .low_percent = NAN };
	dr_record_settle(rec);
	dr_baseline_figures(rec);
	for (size_t i = 0; i < n; i++) {
		if (!figure_at(earlier, i, &n, &was))
			continue;
		r = find(rec, &was);
		if (r) {
			note_low(out, &was, r->mean_gbps);
			join(r, &was);
			out->runs = DR_MAX(out->runs, r->repeats);
		} else {
			dr_record_add(rec, baseline, &was);
		}
	}
	int rc = dr_record_write(rec, f);
	rec->baseline.n = 0;
	return rc;
}

/* ---- comparing ---- */

static struct dr_comparison_row compared(const struct dr_figure_row *key)
{
	struct dr_comparison_row c;

	dr_fields_init(&dr_comparison_fields, &c);
	c.kind = key->kind;
	c.gpu = key->gpu;
	snprintf(c.nic, sizeof(c.nic), "%s", key->nic);
	c.direction = key->direction;
	c.message_bytes = key->message_bytes;
	return c;
}

/* A figure that a busy host lowered once is seldom low twice; one of a bad part is. */
static double better(const struct dr_record *rec, const struct dr_comparison_row *c)
{
	for (size_t i = 0; i < rec->n_earlier; i++) {
		const struct dr_comparison_row *was = &rec->earlier[i];

		if (was->kind == c->kind && was->gpu == c->gpu && was->direction == c->direction &&
			was->message_bytes == c->message_bytes && strcmp(was->nic, c->nic) == 0)
			return fmax(was->gbps, c->gbps); /* NAN: not measured */
	}
	return c->gbps;
}

static void compare(struct dr_record *rec, const struct dr_figure_row *was, double percent)
{
	struct dr_comparison_row c = compared(was);
	struct dr_figure_row *is = find(rec, was);

	c.mean_gbps = was->mean_gbps;
	c.min_gbps = was->min_gbps;
	c.repeats = was->repeats;
	c.result = DR_COMPARISON_NOT_RUN;
	if (is) {
		c.gbps = is->mean_gbps;
		c.gbps = better(rec, &c);
		c.percent = 100 * c.gbps / c.mean_gbps;
		c.result = c.percent < percent ? DR_COMPARISON_BELOW : DR_COMPARISON_OK;
		is->repeats = 0; /* seen */
	}
	dr_record_add(rec, comparison, &c);
}

void dr_baseline_compare(struct dr_record *rec, const json_t *baseline, double percent)
{
	struct dr_figure_row was;
	size_t n = 1;

	dr_baseline_figures(rec);
	rec->comparison.n = 0;
	for (size_t i = 0; i < n; i++)
		if (figure_at(baseline, i, &n, &was))
			compare(rec, &was, percent);
	for (size_t i = 0; i < rec->baseline.n; i++) {
		struct dr_comparison_row c = compared(&rec->baseline.v[i]);

		c.gbps = rec->baseline.v[i].mean_gbps;
		c.result = DR_COMPARISON_NEW;
		if (rec->baseline.v[i].repeats)
			dr_record_add(rec, comparison, &c);
	}
	rec->baseline.n = 0;
}

/* ---- for people ---- */

enum { SHOWN = 12 };

static void print_row(const struct dr_comparison_row *c, FILE *f)
{
	static const char *const words[] = { "ok", "BELOW", "not in this run",
		"not in the baseline" };

	fprintf(f, "  %-24s %-9s %9s %9s %9s %9s %5s %6s  %s\n", figure_name(c->gpu, c->nic).s,
		dr_enum_name(dr_direction_names, c->direction), size(c->message_bytes).s,
		sig(c->gbps).s, sig(c->mean_gbps).s, sig(c->min_gbps).s, count(c->repeats).s,
		num(c->percent, 1).s, words[c->result]);
}

/* "3", "1 to 3". */
static struct cell runs(int64_t least, int64_t most)
{
	struct cell c;

	if (least == most)
		snprintf(c.s, sizeof(c.s), "%" PRId64 " run%s", most, most == 1 ? "" : "s");
	else
		snprintf(c.s, sizeof(c.s), "%" PRId64 " to %" PRId64 " runs", least, most);
	return c;
}

void dr_result_baseline(const struct dr_record *rec, const char *title, FILE *f)
{
	static const char *const names[] = { "GPU", "NIC", "pair" };
	size_t kinds[3] = { 0 }, results[4] = { 0 };
	const char *before = "";
	const struct dr_comparison_row *low = NULL;
	int64_t least = INT64_MAX, most = 0;

	for (size_t i = 0; i < rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &rec->comparison.v[i];

		results[c->result]++;
		if (c->result > DR_COMPARISON_BELOW)
			continue;
		kinds[c->kind]++;
		least = DR_MIN(least, c->repeats);
		most = DR_MAX(most, c->repeats);
		low = !low || c->percent < low->percent ? c : low;
	}
	if (!rec->comparison.n)
		return;
	fprintf(f, "%s: compared", title);
	for (int k = 0; k < 3; k++)
		if (kinds[k]) {
			fprintf(f, "%s %zu %s", before, kinds[k], names[k]);
			before = ",";
		}
	fprintf(f, "%s", low ? " figures with the mean of " : " nothing");
	fprintf(f, "%s", low ? runs(least, most).s : "");
	if (low)
		fprintf(f, "; lowest %.1f %% (%s)", floored(low->percent),
			figure_name(low->gpu, low->nic).s);
	if (results[DR_COMPARISON_NOT_RUN])
		fprintf(f, "; %zu not in this run", results[DR_COMPARISON_NOT_RUN]);
	if (results[DR_COMPARISON_NEW])
		fprintf(f, "; %zu not in the baseline", results[DR_COMPARISON_NEW]);
	fputc('\n', f);
}

void dr_baseline_print(const struct dr_record *rec, FILE *f)
{
	size_t shown = 0;

	if (!rec->comparison.n)
		return;
	fprintf(f,
		"\nBaseline: bandwidth in Gb/s of this run, and mean and minimum of the baseline's runs\n");
	fprintf(f, "  %-24s %-9s %9s %9s %9s %9s %5s %6s\n", "", "direction", "message", "this run",
		"mean", "min", "runs", "%");
	/* What failed or was not compared comes first. */
	for (int ok = 0; ok < 2; ok++)
		for (size_t i = 0; i < rec->comparison.n && shown < SHOWN; i++)
			if ((rec->comparison.v[i].result == DR_COMPARISON_OK) == ok) {
				print_row(&rec->comparison.v[i], f);
				shown++;
			}
	if (rec->comparison.n > shown)
		fprintf(f, "  and %zu more (JSON: comparison)\n", rec->comparison.n - shown);
}
