/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/units.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/record.h"
#include "topology/netdev.h"

/*
 * The verdict adds an error row for every criterion that the record misses, marks it `criterion`,
 * and picks the worst of all error rows. Judging again first takes its own rows away.
 */

#define BASELINE_PERCENT 90.0
#define HIT_PERCENT 90.0

void dr_thresholds_init(struct dr_thresholds *t)
{
	t->min_bw_gbps = t->min_bw_percent = t->min_nic_percent = t->min_hit_percent = NAN;
	t->max_gap_ns = DR_UNSET;
	for (size_t i = 0; i < DR_LAT_FIGURES; i++)
		t->max_lat_ns[i] = DR_UNSET;
	t->baseline = NULL;
	t->save_baseline = t->min_nic_implied = false;
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
			"--min-bw=%.40s: not a percentage (\"90%%\") or a bandwidth in Gb/s (\"37.5\")",
			s);
	if (percent)
		t->min_bw_percent = v;
	else
		t->min_bw_gbps = v;
	return 0;
}

int dr_thresholds_parse_min_nic(struct dr_thresholds *t, const char *s, struct dr_err *e)
{
	size_t n = strlen(s);
	char num[16];

	if (n > 1 && n < sizeof(num) && s[n - 1] == '%') {
		memcpy(num, s, n - 1);
		num[n - 1] = '\0';
		if (!dr_parse_double(num, 1, 100, &t->min_nic_percent, NULL))
			return 0;
	}
	return dr_err_set(e, -EINVAL,
		"--min-nic=%.40s: not a percentage from 1%% to 100%%; use e.g. 80%%", s);
}

static const struct {
	const char *name;
	size_t off;
} lat_figures[] = { { "p50", offsetof(struct dr_latency_row, p50_ns) },
	{ "p90", offsetof(struct dr_latency_row, p90_ns) },
	{ "p99", offsetof(struct dr_latency_row, p99_ns) },
	{ "p999", offsetof(struct dr_latency_row, p999_ns) },
	{ "max", offsetof(struct dr_latency_row, max_ns) } };
_Static_assert(DR_ARRAY_LEN(lat_figures) == DR_LAT_FIGURES, "each has its limit");

static int parse_lat_limit(struct dr_thresholds *t, const char *word)
{
	const char *eq = strchr(word, '='), *time = eq ? eq + 1 : word;
	size_t len = eq ? (size_t)(eq - word) : strlen("p99");
	int64_t ns;

	/* A number without a unit would be seconds. */
	if (!time[strspn(time, "0123456789.")] || dr_parse_duration(time, &ns, NULL) || ns <= 0)
		return -EINVAL;
	for (size_t i = 0; i < DR_LAT_FIGURES; i++)
		if (strlen(lat_figures[i].name) == len &&
			!strncmp(eq ? word : "p99", lat_figures[i].name, len)) {
			t->max_lat_ns[i] = ns;
			return 0;
		}
	return -EINVAL;
}

int dr_thresholds_parse_max_lat(struct dr_thresholds *t, const char *s, struct dr_err *e)
{
	char copy[160], *rest = copy, *word;

	snprintf(copy, sizeof(copy), "%s", s);
	while ((word = strsep(&rest, ",")))
		if (strlen(s) >= sizeof(copy) || parse_lat_limit(t, word))
			return dr_err_set(e, -EINVAL,
				"--max-lat=%.60s: \"%.40s\" is not [PNN=]TIME with p50, p90, p99, p999 or "
				"max and a unit; use e.g. p99=200us",
				s, word);
	return 0;
}

int dr_thresholds_check(
	const struct dr_thresholds *t, const struct dr_record *rec, struct dr_err *e)
{
	if (t->baseline || t->save_baseline || isnan(t->min_bw_percent))
		return 0;
	for (size_t i = 0; i < rec->gpus.n; i++) {
		int64_t rail = rec->gpus.v[i].primary;
		const struct dr_rail_row *r = dr_record_rail(rec, rail);

		if (!r || !(r->speed_gbps > 0))
			return dr_err_set(e, -ENODATA,
				"--min-bw %.4g%%: neither NIC of rail %" PRId64
				" (%s) reports its speed, so there is no line rate to compare with; "
				"give --min-bw in Gb/s, or use --baseline",
				t->min_bw_percent, rail, r ? r->ifname : "?");
	}
	return 0;
}

static void mark(struct dr_error_row *row)
{
	if (row)
		row->criterion = true;
}

/* miss(rec, exit status, format, ...): adds a criterion's error row. */
#define miss(...) mark(dr_record_errorf(__VA_ARGS__))

static void forget_criteria(struct dr_record *rec)
{
	size_t k = 0;

	for (size_t i = 0; i < rec->errors.n; i++)
		if (!rec->errors.v[i].criterion)
			rec->errors.v[k++] = rec->errors.v[i];
	rec->errors.n = k;
}

/* ------------------------------- bandwidth ------------------------------- */

/* 0: this GPU does not have the rail as primary rail, 1: it has, 2: and others too. */
static int uses_rail(const struct dr_record *rec, int64_t gpu, int64_t rail)
{
	bool uses = false, others = false;

	for (size_t i = 0; i < rec->gpus.n; i++)
		if (rec->gpus.v[i].gpu == gpu) {
			uses |= rec->gpus.v[i].primary == rail;
			others |= rec->gpus.v[i].primary != rail;
		}
	return uses ? 1 + others : 0;
}

/* Sum of the GPUs that use this rail alone; NAN: there is none, or one uses others too. */
static double rail_sum(const struct dr_record *rec, int64_t rail, int64_t phase, int direction)
{
	double sum = 0;
	bool any = false;

	for (size_t i = 0; i < rec->gpus.n; i++)
		if (uses_rail(rec, rec->gpus.v[i].gpu, rail) == 2)
			return NAN;
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *b = &rec->bandwidth.v[i];

		if (b->phase != phase || b->direction != direction || !isfinite(b->gbps) ||
			!uses_rail(rec, b->gpu, rail))
			continue;
		sum += b->gbps;
		any = true;
	}
	return any ? sum : NAN;
}

/* A slow rail among many hides in the total, so each is judged by the sum of its GPUs, if their bandwidth
 * depends on it alone. GPUs that share a rail need not share it fairly, so they are not judged one by one. */
static void judge_rail(struct dr_record *rec, const struct dr_rail_row *rail, int64_t phase,
	int direction, double percent)
{
	double sum = rail_sum(rec, rail->rail, phase, direction);

	if (100 * sum / rail->speed_gbps < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"rail %" PRId64
			" (%s) %s: %.2f Gb/s is %.1f %% of its %.4g Gb/s, below %.4g %%",
			rail->rail, rail->ifname, dr_direction_names[direction], sum,
			floored(100 * sum / rail->speed_gbps), rail->speed_gbps, percent);
}

/* "; slowest: eth2 0.285 Gb/s": of a matrix, or of NICs that GPUs use alone; "": not known. */
static const char *slowest_nic(const struct dr_record *rec, char *buf, size_t len)
{
	double least = NAN;

	buf[0] = '\0';
	for (size_t i = 0; i < rec->matrix.nics.n; i++) {
		const struct dr_matrix_nic_row *n = &rec->matrix.nics.v[i];

		if (!(n->alone_gbps >= least) && isfinite(n->alone_gbps)) {
			least = n->alone_gbps;
			snprintf(buf, len, "; slowest: %s %.3g Gb/s", n->nic, least);
		}
	}
	for (size_t i = 0; !rec->matrix.nics.n && rec->rails.n > 1 && i < rec->rails.n; i++)
		for (int direction = DR_TO_SERVER; direction <= DR_TO_CLIENT; direction++) {
			double sum =
				rail_sum(rec, rec->rails.v[i].rail, rec->total.phase, direction);

			if (!(sum >= least) && isfinite(sum)) {
				least = sum;
				snprintf(buf, len, "; slowest: %s %.3g Gb/s",
					rec->rails.v[i].ifname, least);
			}
		}
	return buf;
}

static void judge_line_rate(struct dr_record *rec, const struct dr_total *t, double percent)
{
	const char *unknown = "the rails";
	char slowest[96];

	if (!isfinite(t->line_rate_percent)) {
		for (size_t i = rec->rails.n; i-- > 0;)
			if (!(rec->rails.v[i].speed_gbps > 0))
				unknown = rec->rails.v[i].ifname;
		miss(rec, DR_EXIT_ENV,
			"--min-bw=%.4g%%: the speed of %s is unknown, so there is no line rate; use Gb/s or "
			"--baseline instead",
			percent, unknown);
		return;
	}
	if (t->line_rate_percent < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"bandwidth: %.2f Gb/s%s is %.1f %% of the line rate of %.4g Gb/s, below %.4g %%%s",
			fmin(t->to_server_gbps, t->to_client_gbps), dr_total_slower(t),
			floored(t->line_rate_percent), t->line_gbps, percent,
			slowest_nic(rec, slowest, sizeof(slowest)));
	for (size_t i = 0; i < rec->rails.n; i++)
		for (int direction = DR_TO_SERVER; direction <= DR_TO_CLIENT; direction++)
			judge_rail(rec, &rec->rails.v[i], t->phase, direction, percent);
}

/* One of the bandwidth of a GPU ("gpu 3"), of a NIC, or of a pair. */
static void miss_comparison(
	struct dr_record *rec, const struct dr_comparison_row *c, double percent)
{
	char gpu[40] = "";

	if (c->gpu != DR_UNSET)
		snprintf(gpu, sizeof(gpu), "gpu %" PRId64 "%s", c->gpu, c->nic[0] ? " over " : "");
	miss(rec, DR_EXIT_THRESHOLD,
		"%s%s %s, messages of %s: %.4g Gb/s is %.1f %% of the baseline's "
		"%.4g Gb/s (mean of %" PRId64 "), below %.4g %%",
		gpu, c->nic, dr_enum_name(dr_direction_names, c->direction),
		size(c->message_bytes).s, c->gbps, floored(c->percent), c->mean_gbps, c->repeats,
		percent);
}

/* ": its link is down"; "": not known. */
static const char *why_not_used(const struct dr_record *rec, const char *nic)
{
	static const char *const why[][2] = {
		{ "no carrier", ": its link is down" },
		{ "down", ": its link is down" },
		{ DR_CONTROL_CONNECTION,
			": it carries the control connection; give HOST's management "
			"address or --rails" },
		{ "no partner at the other end", ": its link is up, but it has no partner" },
		{ DR_NO_ANSWER, ": the peer's NIC did not answer before the run" },
		{ DR_LOSES_LARGE, ": packets of full size did not pass before the run" },
	};

	for (size_t i = 0; i < rec->unused_nics.n; i++) {
		const struct dr_unused_nic_row *r = &rec->unused_nics.v[i];

		if (r->side != DR_END_CLIENT || strcmp(r->nic, nic) != 0)
			continue;
		for (size_t k = 0; k < DR_ARRAY_LEN(why); k++)
			if (!strncmp(r->reason, why[k][0], strlen(why[k][0])))
				return why[k][1];
	}
	return "";
}

/* NICs that the baseline's runs used and this one did not. */
static void judge_missing_nics(struct dr_record *rec, const json_t *doc)
{
	const json_t *rails = json_object_get(json_object_get(doc, "topology"), "rails"), *v;
	size_t i;

	json_array_foreach(rails, i, v)
	{
		const char *nic = json_string_value(json_object_get(v, "ifname"));

		if (nic && rec->rails.n && !dr_record_rail_on(rec, nic))
			miss(rec, DR_EXIT_THRESHOLD,
				"%.40s is in the baseline, not in this run%.80s", nic,
				why_not_used(rec, nic));
	}
}

static void judge_baseline(struct dr_record *rec, const json_t *doc, double percent)
{
	static const int order[] = { DR_FIGURE_NIC, DR_FIGURE_GPU, DR_FIGURE_PAIR };
	double was = 0, is = 0;
	size_t compared = 0;

	judge_missing_nics(rec, doc);
	dr_baseline_compare(rec, doc, percent);
	/* A NIC below explains the GPUs and pairs that use it. */
	for (size_t k = 0; k < DR_ARRAY_LEN(order); k++)
		for (size_t i = 0; i < rec->comparison.n; i++)
			if (rec->comparison.v[i].kind == order[k] &&
				rec->comparison.v[i].result == DR_COMPARISON_BELOW)
				miss_comparison(rec, &rec->comparison.v[i], percent);
	for (size_t i = 0; i < rec->comparison.n; i++) {
		const struct dr_comparison_row *c = &rec->comparison.v[i];

		if (c->result > DR_COMPARISON_BELOW || c->nic[0])
			continue;
		compared++;
		was += c->mean_gbps;
		is += c->gbps;
	}
	if (!compared)
		miss(rec, DR_EXIT_ENV,
			"baseline: it has no GPU, direction and message size in common with this run; "
			"use the options of the run that wrote it");
	else if (compared > 1 && 100 * is / was < percent)
		miss(rec, DR_EXIT_THRESHOLD,
			"all GPUs together: %.4g Gb/s is %.1f %% of the baseline's %.4g Gb/s, below "
			"%.4g %%",
			is, floored(100 * is / was), was, percent);
}

/* Bandwidth that was measured while channels were on other rails than their own says nothing about these rails. */
static void judge_switched(struct dr_record *rec, const struct dr_thresholds *t)
{
	static const char *const text =
		"%s: %" PRId64
		" channels were not on their own rail all the time (marked in the tables; "
		"failover.switches), so the bandwidth is not that of the rails; repeat the run";
	int64_t rows = 0, cells = 0;

	for (size_t i = 0; i < rec->bandwidth.n; i++)
		rows += DR_MAX(rec->bandwidth.v[i].switched, 0);
	for (size_t i = 0; i < rec->matrix.cells.n; i++)
		cells += DR_MAX(rec->matrix.cells.v[i].switched, 0);
	if (rec->matrix.cells.n && (cells || rows))
		miss(rec, DR_EXIT_THRESHOLD, text, "--matrix", DR_MAX(cells, rows));
	else if (rows && (isfinite(t->min_bw_gbps) || isfinite(t->min_bw_percent)))
		miss(rec, DR_EXIT_THRESHOLD, text, "--min-bw", rows);
	else if (rows && (t->baseline || t->save_baseline))
		miss(rec, DR_EXIT_THRESHOLD, text, t->baseline ? "--baseline" : "--save-baseline",
			rows);
}

/* --min-nic: what the matrix says of each NIC. */
static void judge_nics(struct dr_record *rec, double percent, bool implied)
{
	bool any = false;

	if (isnan(percent))
		return;
	for (size_t i = 0; i < rec->matrix.nics.n; i++) {
		const struct dr_matrix_nic_row *n = &rec->matrix.nics.v[i];

		any |= isfinite(n->others_percent) || n->finding == DR_MATRIX_IDLE;
		if (n->finding == DR_MATRIX_SLOW && n->others_percent < percent)
			miss(rec, DR_EXIT_THRESHOLD,
				"%s (rail %" PRId64
				"), %s: %.3g Gb/s, %.0f %% of the other NICs, below "
				"--min-nic=%.4g%%",
				n->nic, n->rail, way(n->direction), n->alone_gbps,
				floor(n->others_percent), percent);
		else if (n->finding == DR_MATRIX_SLOW || n->finding == DR_MATRIX_IDLE)
			miss(rec, DR_EXIT_THRESHOLD, "%s (rail %" PRId64 "), %s: %s: %s", n->nic,
				n->rail, way(n->direction), dr_matrix_finding_names[n->finding],
				n->cause);
	}
	if (!any && !implied)
		miss(rec, DR_EXIT_ENV,
			"--min-nic: there is no other NIC to compare with; use --min-bw or --baseline");
}

static void judge_bandwidth(struct dr_record *rec, const struct dr_thresholds *t)
{
	const struct dr_total *total = &rec->total;
	char slowest[96];

	judge_switched(rec, t);
	judge_nics(rec, t->min_nic_percent, t->min_nic_implied);
	if (isnan(t->min_bw_gbps) && isnan(t->min_bw_percent) && !t->baseline)
		return;
	if (!isfinite(total->gbps)) {
		miss(rec, DR_EXIT_THRESHOLD,
			"--min-bw, --baseline: no bandwidth was measured; add bw to --test");
		return;
	}
	if (total->gbps < t->min_bw_gbps)
		miss(rec, DR_EXIT_THRESHOLD,
			"bandwidth: %.4g Gb/s in total, below --min-bw=%.4g Gb/s%s", total->gbps,
			t->min_bw_gbps, slowest_nic(rec, slowest, sizeof(slowest)));
	if (t->baseline)
		judge_baseline(rec, t->baseline,
			isfinite(t->min_bw_percent) ? t->min_bw_percent : BASELINE_PERCENT);
	else if (isfinite(t->min_bw_percent) &&
		 (isfinite(total->line_gbps) || !t->save_baseline)) /* a share of what it saves */
		judge_line_rate(rec, total, t->min_bw_percent);
}

/* -------------------------------- latency -------------------------------- */

static void judge_latency_row(
	struct dr_record *rec, const struct dr_latency_row *r, size_t figure, int64_t limit_ns)
{
	int64_t ns = *(const int64_t *)(const void *)((const char *)r + lat_figures[figure].off);
	char is[32], limit[32];

	if (ns == DR_UNSET || ns <= limit_ns)
		return;
	dr_format_duration(ns, is, sizeof(is));
	dr_format_duration_exact(limit_ns, limit, sizeof(limit));
	miss(rec, DR_EXIT_THRESHOLD,
		"latency: GPU %" PRId64 ", %" PRId64
		" bytes: %s of the round trip is %s, above --max-lat %s=%s",
		r->gpu, r->bytes, lat_figures[figure].name, is, lat_figures[figure].name, limit);
}

static void judge_latency(struct dr_record *rec, const struct dr_thresholds *t)
{
	bool any = false;

	for (size_t k = 0; k < DR_LAT_FIGURES; k++) {
		any |= t->max_lat_ns[k] != DR_UNSET;
		for (size_t i = 0; t->max_lat_ns[k] != DR_UNSET && i < rec->latency.n; i++)
			judge_latency_row(rec, &rec->latency.v[i], k, t->max_lat_ns[k]);
	}
	if (any && !rec->latency.n)
		miss(rec, DR_EXIT_THRESHOLD,
			"--max-lat: no latency was measured; add lat to --test");
}

/* -------------------------- data and failover -------------------------- */

/* Of a matrix: the cells, so that the GPU and the NIC are known. */
static void judge_cells(struct dr_record *rec)
{
	char gpu[40];

	for (size_t k = 0; k < rec->matrix.cells.n; k++) {
		const struct dr_matrix_cell_row *c = &rec->matrix.cells.v[k];

		if (c->wrong_chunks <= 0)
			continue;
		snprintf(gpu, sizeof(gpu), "all GPUs");
		if (c->gpu != DR_UNSET)
			snprintf(gpu, sizeof(gpu), "gpu %" PRId64, c->gpu);
		miss(rec, DR_EXIT_DATA,
			"data wrong: %s over %.40s, %s: %" PRId64 " chunks, %" PRId64
			" bytes; first: %.110s",
			gpu, c->nic, dr_enum_name(dr_direction_names, c->direction),
			c->wrong_chunks, DR_MAX(c->wrong_bytes, 0), c->first_wrong);
	}
}

static void judge_integrity(struct dr_record *rec)
{
	const struct dr_integrity_row *i = &rec->integrity_total;

	judge_cells(rec);

	if (i->lost > 0 || i->duplicated > 0 || i->reordered > 0 || i->corrupted > 0)
		miss(rec, DR_EXIT_DATA,
			"data wrong: of %" PRId64 " chunks %" PRId64 " lost, %" PRId64
			" duplicated, %" PRId64 " reordered, %" PRId64 " corrupted",
			DR_MAX(i->chunks, 0), DR_MAX(i->lost, 0), DR_MAX(i->duplicated, 0),
			DR_MAX(i->reordered, 0), DR_MAX(i->corrupted, 0));
}

/* Trials without the result they should have; a missed fault is judged by the share of hits. */
static const struct {
	int verdict, exit_status;
	const char *text;
} failures[] = { { DR_VERDICT_WRONG, DR_EXIT_DATA, "data wrong" },
	{ DR_VERDICT_HANG, DR_EXIT_TIMEOUT, "a channel did not switch within the deadline" },
	{ DR_VERDICT_CLEAN_ERROR, DR_EXIT_FAILOVER, "the channel ended with an error" } };

/* Switches outside the failover test, whose cause is outside of the program. */
static void judge_unexpected_gaps(struct dr_record *rec, int64_t max_ns)
{
	int64_t over = 0, worst = 0, n = 0;
	char limit[32], gap[32];

	for (size_t i = 0; i < rec->switches.n; i++) {
		const struct dr_switch_row *r = &rec->switches.v[i];

		if (r->receiver != 1 || r->unexpected != 1 || r->trial != DR_UNSET)
			continue;
		n++;
		over += r->gap_ns > max_ns;
		worst = DR_MAX(worst, r->gap_ns);
	}
	dr_format_duration(max_ns, limit, sizeof(limit));
	dr_format_duration(worst, gap, sizeof(gap));
	if (over)
		miss(rec, DR_EXIT_FAILOVER,
			"unexpected switches: the gap is above --max-gap=%s in %" PRId64
			" of %" PRId64 ", at worst %s",
			limit, over, n, gap);
}

static void judge_gaps(struct dr_record *rec, int64_t max_ns, bool broken)
{
	int64_t over = 0, worst = 0;
	char limit[32], gap[32];

	for (size_t i = 0; i < rec->faults.n; i++)
		if (rec->faults.v[i].gap_ns > max_ns) {
			over++;
			worst = DR_MAX(worst, rec->faults.v[i].gap_ns);
		}
	dr_format_duration(max_ns, limit, sizeof(limit));
	dr_format_duration(worst, gap, sizeof(gap));
	if (over)
		miss(rec, DR_EXIT_FAILOVER,
			"failover: the gap is above --max-gap=%s in %" PRId64
			" of %zu trials, at worst %s",
			limit, over, rec->faults.n, gap);
	judge_unexpected_gaps(rec, max_ns);
	if (!rec->faults.n && rec->false_failovers != DR_UNSET && !broken)
		miss(rec, DR_EXIT_FAILOVER,
			"--max-gap: no fault was injected, so there is no gap to compare");
}

/* What to do about trials that hit no data in flight. */
static const char *advice(const struct dr_record *rec)
{
	bool quiet = false, nobody = true, unused = false;

	for (size_t i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *f = &rec->faults.v[i];

		if (f->verdict != DR_VERDICT_MISSED_FAULT)
			continue;
		quiet |= !f->note[0];
		nobody &= !strcmp(f->note, DR_NOTE_NOBODY);
		unused |= !strcmp(f->note, DR_NOTE_UNUSED);
	}
	return nobody ? "nobody broke the path in time: break it when the run asks for it, or use a "
			"longer --timeout"
	       : quiet ? "no chunk was in flight then: leave --rate out or raise it, use more channels "
			 "(-N), or a larger --window"
	       : unused
		       ? "the transport used another NIC then: let it return before the next fault, by every= "
			 "in --fault or a shorter hold-down of its own"
		       : "use faults on rails that carry data";
}

static void judge_faults(struct dr_record *rec, const struct dr_thresholds *t, bool broken)
{
	size_t count[DR_VERDICTS] = { 0 }, n = rec->faults.n;
	double min_hit = isfinite(t->min_hit_percent) ? t->min_hit_percent : HIT_PERCENT;

	for (size_t i = 0; i < n; i++)
		if (rec->faults.v[i].verdict >= 0 && rec->faults.v[i].verdict < DR_VERDICTS)
			count[rec->faults.v[i].verdict]++;
	for (size_t i = 0; i < DR_ARRAY_LEN(failures); i++)
		if (count[failures[i].verdict])
			miss(rec, failures[i].exit_status, "failover: %s in %zu of %zu trials",
				failures[i].text, count[failures[i].verdict], n);
	size_t done = n - count[DR_VERDICT_INCOMPLETE];
	double hit =
		done ? 100.0 * (double)(done - count[DR_VERDICT_MISSED_FAULT]) / (double)done : 100;
	if (done < n && !broken)
		miss(rec, DR_EXIT_FAILOVER, "failover: %zu of %zu trials did not finish", n - done,
			n);
	if (hit < min_hit)
		miss(rec, DR_EXIT_FAILOVER,
			"failover: only %.0f %% of %zu trials hit data in flight, below %.4g %%; %s",
			floor(hit), done, min_hit, advice(rec));
	if (t->max_gap_ns != DR_UNSET)
		judge_gaps(rec, t->max_gap_ns, broken);
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

	dr_thresholds_init(&none);
	if (t && t->min_nic_percent > 0)
		rec->min_nic_percent = t->min_nic_percent;
	if (!t)
		t = &none;
	forget_criteria(rec);
	rec->comparison.n = 0;
	dr_record_settle(rec);
	if (rec->end_ns == DR_UNSET)
		rec->end_ns = dr_now_ns();
	bool broken = rec->errors.n > 0; /* what was not measured is then no criterion missed */
	judge_integrity(rec);
	judge_faults(rec, t, broken);
	if (!broken) {
		judge_bandwidth(rec, t);
		judge_latency(rec, t);
	}
	for (size_t i = 0; i < rec->errors.n; i++) {
		int s = rec->errors.v[i].exit_status;

		if (s != DR_EXIT_PASS && (code == DR_EXIT_PASS || rank(s) < rank(code)))
			code = s;
	}
	if (rec->rows_lost && (code == DR_EXIT_PASS || rank(code) > rank(DR_EXIT_ENV))) {
		code = DR_EXIT_ENV;
		miss(rec, code,
			"%" PRIu64
			" rows of the results were dropped (no memory, or limit reached)",
			rec->rows_lost);
	}
	rec->exit_code = code;
	rec->status = code == DR_EXIT_PASS				 ? DR_STATUS_PASS
		      : code >= DR_EXIT_DATA && code <= DR_EXIT_FAILOVER ? DR_STATUS_FAIL
									 : DR_STATUS_ERROR;
	return code;
}
