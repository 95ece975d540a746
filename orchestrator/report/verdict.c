/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "orchestrator/record.h"
#include "orchestrator/report/fields.h"

/*
 * The verdict adds an error row for every criterion that the record misses, marks it `criterion`,
 * and picks the worst of all error rows. Judging again first takes its own rows away.
 */

#define BASELINE_PERCENT 90.0
#define HIT_PERCENT 90.0

void dr_thresholds_init(struct dr_thresholds *t)
{
	t->min_bw_gbps = t->min_bw_percent = t->min_hit_percent = NAN;
	t->max_gap_ns = DR_UNSET;
	t->baseline = NULL;
}

int dr_thresholds_parse_min_bw(struct dr_thresholds *t, const char *s, struct dr_err *e)
{
	size_t n = strlen(s);
	char num[32];
	double v;
	bool percent = n && s[n - 1] == '%';

	if (percent)
		n--;
	else if (n > 4 && !strcmp(s + n - 4, "Gb/s"))
		n -= 4;
	while (n && s[n - 1] == ' ')
		n--;
	if (n >= sizeof(num))
		return dr_err_set(
			e, -EINVAL, "--min-bw=%.40s: too long; \"90%%\" or \"37.5\" (Gb/s)", s);
	memcpy(num, s, n);
	num[n] = '\0';
	if (dr_parse_double(num, 0, percent ? 1000 : 1e6, &v, NULL))
		return dr_err_set(e, -EINVAL,
			"--min-bw=%.40s: neither a share (\"90%%\") nor a bandwidth in Gb/s (\"37.5\")",
			s);
	if (percent)
		t->min_bw_percent = v;
	else
		t->min_bw_gbps = v;
	return 0;
}

/* Add a criterion's error row. */
static void miss(struct dr_record *rec, int exit_status, const char *fmt, ...) DR_PRINTF(3, 4);
static void miss(struct dr_record *rec, int exit_status, const char *fmt, ...)
{
	char text[256];
	size_t n = rec->errors.n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dr_record_errorf(rec, exit_status, "%s", text);
	if (rec->errors.n > n)
		rec->errors.v[n].criterion = true;
}

static void forget_criteria(struct dr_record *rec)
{
	size_t i, k = 0;

	for (i = 0; i < rec->errors.n; i++)
		if (!rec->errors.v[i].criterion)
			rec->errors.v[k++] = rec->errors.v[i];
	rec->errors.n = k;
}

/* ------------------------------- bandwidth ------------------------------- */

/* Does this GPU use no other primary rail? Only then is its rate the rail's business alone. */
static bool only_rail(const struct dr_record *rec, int64_t gpu, int64_t rail)
{
	size_t i;

	for (i = 0; i < rec->gpus.n; i++)
		if (rec->gpus.v[i].gpu == gpu && rec->gpus.v[i].primary != rail)
			return false;
	return true;
}

/* A slow rail among many hides in the total, so each is judged by the sum of its GPUs. GPUs that
 * share a rail need not share it fairly, so they are not judged one by one. */
static void judge_rail(struct dr_record *rec, const struct dr_rail_row *rail, int64_t phase,
	int direction, double percent)
{
	double sum = 0;
	bool any = false;
	size_t i, k;

	for (i = 0; i < rec->gpus.n; i++) {
		const struct dr_gpu_row *g = &rec->gpus.v[i];

		if (g->primary != rail->rail)
			continue;
		if (!only_rail(rec, g->gpu, rail->rail))
			return;
		for (k = 0; k < i; k++)
			if (rec->gpus.v[k].gpu == g->gpu)
				break;
		if (k < i)
			continue; /* the same GPU with another shadow */
		for (k = 0; k < rec->bandwidth.n; k++) {
			const struct dr_bandwidth_row *b = &rec->bandwidth.v[k];

			if (b->gpu == g->gpu && b->phase == phase && b->direction == direction &&
				isfinite(b->gbps)) {
				sum += b->gbps;
				any = true;
			}
		}
	}
	if (any && 100 * sum / rail->speed_gbps < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"rail %" PRId64
			" (%s) %s: %.2f Gb/s is %.1f %% of its %.4g Gb/s, below %.4g %%",
			rail->rail, rail->ifname, dr_direction_names[direction], sum,
			100 * sum / rail->speed_gbps, rail->speed_gbps, percent);
}

static void judge_line_rate(struct dr_record *rec, const struct dr_total *t, double percent)
{
	size_t i;

	for (i = 0; i < rec->rails.n; i++)
		if (!(rec->rails.v[i].speed_gbps > 0) && !isfinite(t->line_gbps)) {
			miss(rec, DR_EXIT_ENV,
				"--min-bw=%.4g%%: the speed of rail %" PRId64
				" (%s) is unknown, so there is no line rate to compare with; give "
				"Gb/s instead, or --baseline",
				percent, rec->rails.v[i].rail, rec->rails.v[i].ifname);
			return;
		}
	if (!isfinite(t->line_rate_percent)) {
		miss(rec, DR_EXIT_ENV,
			"--min-bw=%.4g%%: the line rate of the rails is unknown; give Gb/s instead, or "
			"--baseline",
			percent);
		return;
	}
	if (t->line_rate_percent < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"bandwidth: %.2f Gb/s%s is %.1f %% of the line rate of %.4g Gb/s, below %.4g %%",
			fmin(t->to_server_gbps, t->to_client_gbps),
			isfinite(t->to_server_gbps) && isfinite(t->to_client_gbps)
				? " in the slower direction"
				: "",
			t->line_rate_percent, t->line_gbps, percent);
	for (i = 0; i < rec->rails.n; i++) {
		judge_rail(rec, &rec->rails.v[i], t->phase, DR_TO_SERVER, percent);
		judge_rail(rec, &rec->rails.v[i], t->phase, DR_TO_CLIENT, percent);
	}
}

static const struct dr_bandwidth_row *like(
	const struct dr_record *rec, const struct dr_bandwidth_row *b)
{
	size_t i;

	for (i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];

		if (r->gpu == b->gpu && r->direction == b->direction &&
			r->message_bytes == b->message_bytes && isfinite(r->gbps))
			return r;
	}
	return NULL;
}

static void judge_baseline(struct dr_record *rec, const json_t *doc, double percent)
{
	const json_t *rows = json_object_get(doc, "bandwidth");
	double was = 0, is = 0;
	size_t i, compared = 0;

	for (i = 0; i < json_array_size(rows); i++) {
		struct dr_bandwidth_row b;
		const struct dr_bandwidth_row *r;

		if (dr_fields_from_json(&dr_bandwidth_fields, &b, json_array_get(rows, i), NULL) ||
			!(b.gbps > 0))
			continue;
		r = like(rec, &b);
		if (!r)
			continue;
		compared++;
		was += b.gbps;
		is += r->gbps;
		if (100 * r->gbps / b.gbps < percent)
			miss(rec, DR_EXIT_THRESHOLD,
				"gpu %" PRId64 " %s, %" PRId64
				" bytes: %.2f Gb/s is %.1f %% of the baseline's "
				"%.2f Gb/s, below %.4g %%",
				r->gpu, dr_direction_names[r->direction], r->message_bytes, r->gbps,
				100 * r->gbps / b.gbps, b.gbps, percent);
	}
	if (!compared)
		miss(rec, DR_EXIT_ENV,
			"baseline: no GPU, direction and message size in it that this run measured too; "
			"run with the options that made it");
	else if (100 * is / was < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"all %zu figures compared: %.2f Gb/s is %.1f %% of the baseline's %.2f Gb/s, "
			"below %.4g %%",
			compared, is, 100 * is / was, was, percent);
}

static void judge_bandwidth(struct dr_record *rec, const struct dr_thresholds *t)
{
	struct dr_total total;

	dr_record_total(rec, &total);
	if (isnan(t->min_bw_gbps) && isnan(t->min_bw_percent) && !t->baseline)
		return;
	if (!isfinite(total.gbps)) {
		miss(rec, DR_EXIT_THRESHOLD,
			"--min-bw or --baseline was asked for, but no bandwidth was measured (--test bw)");
		return;
	}
	if (total.gbps < t->min_bw_gbps)
		miss(rec, DR_EXIT_THRESHOLD,
			"bandwidth: %.2f Gb/s in total, below --min-bw=%.4g Gb/s", total.gbps,
			t->min_bw_gbps);
	if (t->baseline)
		judge_baseline(rec, t->baseline,
			isfinite(t->min_bw_percent) ? t->min_bw_percent : BASELINE_PERCENT);
	else if (isfinite(t->min_bw_percent))
		judge_line_rate(rec, &total, t->min_bw_percent);
}

/* -------------------------- data and failover -------------------------- */

static void judge_integrity(struct dr_record *rec)
{
	struct dr_integrity_row i;

	dr_record_integrity_total(rec, &i);
	if (i.lost > 0 || i.duplicated > 0 || i.reordered > 0 || i.corrupted > 0)
		miss(rec, DR_EXIT_DATA,
			"data wrong: of %" PRId64 " messages %" PRId64 " lost, %" PRId64
			" duplicated, %" PRId64 " reordered, %" PRId64 " corrupted",
			DR_MAX(i.messages, 0), DR_MAX(i.lost, 0), DR_MAX(i.duplicated, 0),
			DR_MAX(i.reordered, 0), DR_MAX(i.corrupted, 0));
}

static void judge_faults(struct dr_record *rec, const struct dr_thresholds *t, bool broken)
{
	int64_t count[DR_VERDICT_MISSED_FAULT + 1] = { 0 }, over = 0, worst = 0, n;
	double hit, min_hit = isfinite(t->min_hit_percent) ? t->min_hit_percent : HIT_PERCENT;
	char limit[32], gap[32];
	size_t i;

	n = (int64_t)rec->faults.n;
	for (i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *f = &rec->faults.v[i];

		if (f->verdict >= 0 && f->verdict <= DR_VERDICT_MISSED_FAULT)
			count[f->verdict]++;
		if (t->max_gap_ns != DR_UNSET && f->gap_ns != DR_UNSET &&
			f->gap_ns > t->max_gap_ns) {
			over++;
			worst = DR_MAX(worst, f->gap_ns);
		}
	}
	if (count[DR_VERDICT_WRONG])
		miss(rec, DR_EXIT_DATA, "failover: data wrong in %" PRId64 " of %" PRId64 " trials",
			count[DR_VERDICT_WRONG], n);
	if (count[DR_VERDICT_HANG])
		miss(rec, DR_EXIT_TIMEOUT,
			"failover: no delivery within the deadline in %" PRId64 " of %" PRId64
			" trials",
			count[DR_VERDICT_HANG], n);
	if (count[DR_VERDICT_CLEAN_ERROR])
		miss(rec, DR_EXIT_FAILOVER,
			"failover: the channel ended with an error in %" PRId64 " of %" PRId64
			" trials",
			count[DR_VERDICT_CLEAN_ERROR], n);
	hit = n ? 100.0 * (double)(n - count[DR_VERDICT_MISSED_FAULT]) / (double)n : 100;
	if (hit < min_hit)
		miss(rec, DR_EXIT_FAILOVER,
			"failover: data was in flight in only %.0f %% of %" PRId64
			" trials, below %.4g %%; "
			"send more (larger -s, more channels)",
			hit, n, min_hit);
	if (over) {
		dr_format_duration(t->max_gap_ns, limit, sizeof(limit));
		dr_format_duration(worst, gap, sizeof(gap));
		miss(rec, DR_EXIT_FAILOVER,
			"failover: the gap is above --max-gap=%s in %" PRId64 " of %" PRId64
			" trials, at worst %s",
			limit, over, n, gap);
	}
	if (t->max_gap_ns != DR_UNSET && !n && !broken)
		miss(rec, DR_EXIT_FAILOVER,
			"--max-gap was asked for, but there was no fault to measure");
	if (rec->false_failovers > 0)
		miss(rec, DR_EXIT_FAILOVER, "failover: %" PRId64 " switches without a fault",
			rec->false_failovers);
}

/* ------------------------------- the worst ------------------------------- */

/* Smaller is worse; the order of the exit statuses but for signals, which win. */
static int rank(int exit_status)
{
	return exit_status >= 128 ? 0 : exit_status;
}

int dr_record_verdict(struct dr_record *rec, const struct dr_thresholds *t)
{
	struct dr_thresholds none;
	int code = DR_EXIT_PASS;
	bool broken;
	size_t i;

	dr_thresholds_init(&none);
	if (!t)
		t = &none;
	forget_criteria(rec);
	broken = rec->errors.n > 0; /* what was not measured is then no criterion missed */
	judge_integrity(rec);
	judge_faults(rec, t, broken);
	if (!broken)
		judge_bandwidth(rec, t);
	for (i = 0; i < rec->errors.n; i++) {
		int s = rec->errors.v[i].exit_status;

		if (s != DR_EXIT_PASS && (code == DR_EXIT_PASS || rank(s) < rank(code)))
			code = s;
	}
	if (rec->rows_lost && (code == DR_EXIT_PASS || rank(code) > rank(DR_EXIT_ENV))) {
		code = DR_EXIT_ENV;
		miss(rec, code, "%" PRIu64 " rows of the results found no room (memory or limit)",
			rec->rows_lost);
	}
	rec->exit_code = code;
	rec->status =
		code == DR_EXIT_PASS ? DR_STATUS_PASS
		: code == DR_EXIT_DATA || code == DR_EXIT_THRESHOLD || code == DR_EXIT_FAILOVER
			? DR_STATUS_FAIL
			: DR_STATUS_ERROR;
	return code;
}
