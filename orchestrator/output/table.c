/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/opts.h"
#include "base/units.h"
#include "orchestrator/output/cell.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"

/* Tables for people, at most 100 columns wide; sentences follow the screen. The unit stands in the
 * column's head or in the title; "-" is unknown. */

static struct cell duration(int64_t ns)
{
	struct cell c = { "unknown" };

	if (ns != DR_UNSET)
		dr_format_duration(ns, c.s, sizeof(c.s));
	return c;
}

FILE *dr_wrap_open(struct dr_wrap *w)
{
	*w = (struct dr_wrap){ 0 };
	w->m = open_memstream(&w->text, &w->len);
	return w->m;
}

void dr_wrap_close(struct dr_wrap *w, FILE *f)
{
	if (!w->m)
		return;
	if (fclose(w->m) == 0)
		for (char *line, *rest = w->text; (line = strsep(&rest, "\n")) && rest;) {
			size_t in = strspn(line, " ");

			if (strstr(line + in, "  "))
				fprintf(f, "%s\n", line);
			else
				dr_table_words(line, (unsigned)in, (unsigned)in + 2, f);
		}
	free(w->text); /* lint-ok: of open_memstream */
}

/* ------------------------------- bandwidth ------------------------------- */

#define BANDWIDTH "%5s  %-9s  %9s %8s %9s %8s %7s %10s %8s %12s%s\n"
static void bandwidth_row(const struct dr_bandwidth_row *r, bool sum, FILE *f)
{
	fprintf(f, BANDWIDTH, sum ? "all" : count(r->gpu).s,
		dr_enum_name(dr_direction_names, r->direction), size(r->message_bytes).s,
		sum ? "" : num(r->seconds, 2).s, sig(r->gbps).s, sig(r->gbps / 8).s,
		num(r->line_rate_percent, 1).s,
		r->messages == 0 && r->gbps > 0 ? "<1" : count(r->messages).s,
		count(r->retransmits).s, sig(r->sender_gbps).s, r->switched > 0 ? " !" : "");
}

/* The sum of one phase and direction. */
static void bandwidth_sum(const struct dr_record *rec, int64_t phase, int direction, FILE *f)
{
	struct dr_bandwidth_row sum = { .direction = direction, .retransmits = DR_UNSET };
	double line = 0;
	size_t n = 0;

	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];

		if (r->phase != phase || r->direction != direction)
			continue;
		n++;
		sum.gbps += r->gbps;
		sum.sender_gbps += r->sender_gbps;
		line += dr_record_gpu_line_gbps(rec, r->gpu);
		sum.messages += DR_MAX(r->messages, 0);
		if (r->retransmits != DR_UNSET)
			sum.retransmits = DR_MAX(sum.retransmits, 0) + r->retransmits;
		sum.switched += DR_MAX(r->switched, 0);
		sum.message_bytes = r->message_bytes;
	}
	sum.line_rate_percent = 100 * sum.gbps / line;
	if (n > 1)
		bandwidth_row(&sum, true, f);
}

static const char *const MARK_LEGEND =
	"  !: channels were not on their own rail all the time, so this is not the figure of these rails\n";

static void print_bandwidth(const struct dr_record *rec, FILE *f)
{
	bool marked = false;

	if (!rec->bandwidth.n)
		return;
	fprintf(f,
		"\nBandwidth: payload on the receiver's clock (1 Gb/s = 10^9 bit/s, 1 GB/s = 10^9 byte/s)\n");
	fprintf(f, BANDWIDTH, "GPU", "direction", "message", "seconds", "Gb/s", "GB/s", "% line",
		"messages", "retrans", "sender Gb/s", "");
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		int64_t phase = rec->bandwidth.v[i].phase;

		if (!dr_bandwidth_first(rec, i))
			continue;
		for (size_t k = i; k < rec->bandwidth.n; k++)
			if (rec->bandwidth.v[k].phase == phase) {
				bandwidth_row(&rec->bandwidth.v[k], false, f);
				marked |= rec->bandwidth.v[k].switched > 0;
			}
		bandwidth_sum(rec, phase, DR_TO_SERVER, f);
		bandwidth_sum(rec, phase, DR_TO_CLIENT, f);
	}
	if (isfinite(rec->bandwidth.v[0].line_rate_percent))
		fputs("  % line: percent of the GPU's share of the line rate of its primary rails\n",
			f);
	if (marked)
		fputs(MARK_LEGEND, f);
	dr_result_bandwidth(rec, "Result", f);
}

/* The other direction's acknowledgements are in the counter too. */
static struct cell counter(int64_t payload, int64_t other, int64_t counted)
{
	struct cell c = { "-" };

	if (payload == DR_UNSET || counted == DR_UNSET)
		return c;
	if (payload < DR_NIC_CHECK_LEAST || payload < other / 10)
		snprintf(c.s, sizeof(c.s), "%.1f MB", (double)counted / 1e6);
	else
		snprintf(c.s, sizeof(c.s), "%+.1f %%",
			100 * ((double)counted - (double)payload) / (double)payload);
	return c;
}

#define NICS "  %-6s %-15s %6s %6s %6s %7s %8s %7s %8s %5s  %s\n"
static void nic_row(const struct dr_nic_row *r, FILE *f)
{
	static const char *const words[] = { "ok", "DIFFERS", "too little" };

	fprintf(f, NICS, dr_enum_name(dr_end_names, r->side), r->name, sig(r->speed_gbps).s,
		sig(known(r->tx_bytes) * 8 / r->seconds / 1e9).s,
		sig(known(r->rx_bytes) * 8 / r->seconds / 1e9).s, sig(known(r->tx_bytes) / 1e9).s,
		counter(r->tx_bytes, r->rx_bytes, r->counter_tx_bytes).s,
		sig(known(r->rx_bytes) / 1e9).s,
		counter(r->rx_bytes, r->tx_bytes, r->counter_rx_bytes).s, count(r->connections).s,
		r->counter_check < 0 ? "unknown" : words[r->counter_check]);
}

/* Of one end: did it get the processor? Stalls of less than a heartbeat change no verdict. */
static void print_processor(const struct dr_record *rec, const struct dr_env_row *r, FILE *f)
{
	const char *end = dr_enum_name(dr_end_names, r->side);

	if (r->throttled > 0)
		fprintf(f,
			"Processor, %s: throttled %s times for %s ms in all (cpu.max: %s CPUs)\n",
			end, count(r->throttled).s, ms(r->throttled_ns).s, sig(r->cpu_quota).s);
	if ((rec->faults.n || rec->unexpected_switches > 0) &&
		r->stall_ns > DR_MAX(rec->detection.heartbeat_ns, 0))
		fprintf(f,
			"Processor, %s: a thread ran up to %s ms late; gaps may be longer by that\n",
			end, ms(r->stall_ns).s);
}

static void degraded_nic(const struct dr_nic_row *r, FILE *f)
{
	fprintf(f, "  DEGRADED: %s %s", dr_enum_name(dr_end_names, r->side), r->name);
	if (isfinite(r->measured_gbps))
		fprintf(f, ", %s Gb/s measured", sig(r->measured_gbps).s);
	fputc('\n', f);
}

/* Round trips are a few bytes each: nothing to compare with counters. */
static bool latency_only(const struct dr_record *rec)
{
	return rec->latency.n && !rec->bandwidth.n && !rec->faults.n &&
	       rec->false_failovers == DR_UNSET;
}

/* What a reader has to know of the NICs. */
static void print_nic_marks(const struct dr_record *rec, FILE *f)
{
	for (size_t i = 0; i < rec->nics.n; i++)
		if (rec->nics.v[i].degraded == 1)
			degraded_nic(&rec->nics.v[i], f);
	for (size_t i = 0; i < rec->nics.n; i++)
		if (rec->nics.v[i].grown[0])
			fprintf(f, "  COUNTERS: %s %s: %s\n",
				dr_enum_name(dr_end_names, rec->nics.v[i].side),
				rec->nics.v[i].name, rec->nics.v[i].grown);
}

static void print_nics(const struct dr_record *rec, FILE *f)
{
	bool little = false;

	if (!rec->nics.n || latency_only(rec))
		return;
	fprintf(f,
		"\nNICs during the whole run: payload (speed, tx, rx in Gb/s), and its own counters relative to it\n");
	fprintf(f, NICS, "end", "NIC", "speed", "tx", "rx", "tx GB", "counter", "rx GB", "counter",
		"conns", "check");
	for (int side = -1; side <= DR_END_SERVER; side++)
		for (size_t i = 0; i < rec->nics.n; i++)
			if (rec->nics.v[i].side == side) {
				nic_row(&rec->nics.v[i], f);
				little |= rec->nics.v[i].counter_check == DR_NIC_CHECK_TOO_LITTLE;
			}
	print_nic_marks(rec, f);
	fputs("  check: ok if the counter is at least 99 % of the payload and at most 110 % (headers) plus 5 % of "
	      "the other direction (acknowledgements), or 192 bytes per packet, with a tolerance of 1 MiB\n"
	      "  conns: data connections made, including rebuilt ones\n",
		f);
	if (little)
		fputs("  too little: too little traffic to compare (less than 10 MiB each way)\n",
			f);
	dr_result_nics(rec, "Result", f);
}

static void print_memory(const struct dr_record *rec, FILE *f)
{
	static const char *const access[] = { "direct", "staged" };
	bool any = false;

	for (size_t i = 0; i < rec->memory.n; i++)
		any |= rec->memory.v[i].memory == 1;
	if (!any)
		return;
	fputs("\nGPU memory: copies to host memory (out) and from it (in) during the bandwidth phases; busy: share "
	      "of that time in which the GPU copied (one copy in 16 is timed)\n",
		f);
	fprintf(f, "  %-6s %4s  %-24s %-14s %-7s %10s %7s %10s %7s\n", "end", "GPU", "name",
		"bus id", "access", "out MB", "busy %", "in MB", "busy %");
	for (size_t i = 0; i < rec->memory.n; i++) {
		const struct dr_memory_row *r = &rec->memory.v[i];

		fprintf(f, "  %-6s %4s  %-24.24s %-14s %-7s %10s %7s %10s %7s\n",
			dr_enum_name(dr_end_names, r->side), count(r->gpu).s,
			r->memory == 1 ? r->name : "(host memory)", r->bus_id[0] ? r->bus_id : "-",
			r->staged < 0 ? "-" : access[r->staged],
			num(known(r->out_bytes) / 1e6, 1).s, num(r->out_busy_percent, 1).s,
			num(known(r->in_bytes) / 1e6, 1).s, num(r->in_busy_percent, 1).s);
	}
	for (size_t i = 0; i < rec->memory.n; i++) {
		const struct dr_memory_row *r = &rec->memory.v[i];

		if (r->unpacked_bytes > 0)
			fprintf(f,
				"  %-6s %4s  unpacked within the GPU: %s MB, which took %s %% of that time (%s)\n",
				dr_enum_name(dr_end_names, r->side), count(r->gpu).s,
				num((double)r->unpacked_bytes / 1e6, 1).s,
				num(r->unpack_busy_percent, 1).s, r->staged_because);
	}
}

static void print_cpu(const struct dr_record *rec, FILE *f)
{
	int peer = rec->side < 0 ? -1 : !rec->side;

	if (!isfinite(rec->total.gbps))
		return;
	fprintf(f, "\nCPU: %s %s %%, %s %s %% (100 %% = one core)\n",
		dr_enum_name(dr_end_names, rec->side), num(rec->cpu_percent_local, 0).s,
		dr_enum_name(dr_end_names, peer), num(rec->cpu_percent_peer, 0).s);
}

#define LATENCY "%5s  %-15s %10s %10s %9s %9s %9s %9s %9s%s\n"
static void print_latency(const struct dr_record *rec, FILE *f)
{
	bool marked = false;

	if (!rec->latency.n)
		return;
	fputs("\nLatency: round trip of one message in us (one direction takes about half of it)\n",
		f);
	fprintf(f, LATENCY, "GPU", "NIC", "message", "samples", "p50", "p90", "p99", "p99.9", "max",
		"");
	for (size_t i = 0; i < rec->latency.n; i++) {
		const struct dr_latency_row *r = &rec->latency.v[i];

		fprintf(f, LATENCY, count(r->gpu).s, r->nic, size(r->bytes).s, count(r->samples).s,
			us(r->p50_ns).s, us(r->p90_ns).s, us(r->p99_ns).s, us(r->p999_ns).s,
			us(r->max_ns).s, r->switched > 0 ? " !" : "");
		marked |= r->switched > 0;
	}
	if (marked)
		fputs(MARK_LEGEND, f);
	dr_result_latency(rec, "Result", f);
}

/* ------------------------------- failover ------------------------------- */

static void print_tail(const struct dr_gap_summary *g, size_t n, FILE *f)
{
	for (size_t i = 0; i < n; i++)
		if (g[i].gaps > 0 && g[i].gaps < 100) {
			fputs("  p99 of fewer than 100 trials is their maximum\n", f);
			return;
		}
}

/* A gap of a transport that moved its connections by itself has no parts. */
static void print_gap_legend(const struct dr_record *rec, FILE *f)
{
	int64_t cadence = DR_UNSET;
	bool parts = false, whole = false;

	for (size_t i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *r = &rec->faults.v[i];

		parts |= r->detect_ns != DR_UNSET;
		if (r->gap_ns == DR_UNSET || r->detect_ns != DR_UNSET)
			continue;
		whole = true;
		cadence = DR_MAX(cadence, r->cadence_p99_ns);
	}
	fputs("  hit: trials with data in flight", f);
	if (parts || !whole)
		fputs(". A gap runs from the last delivery to: detection, end of the\n"
		      "  fence, answer to the switch (handshake), first replayed frame, first delivery",
			f);
	fputc('\n', f);
	if (whole)
		fprintf(f,
			"  A gap without parts: the transport moved to another NIC by itself. It is the longest time between "
			"two deliveries, from the fault until data that were posted after it arrived. Without a fault that "
			"time is %s ms (p99)\n",
			ms(cadence).s);
}

#define GAPS "  %-13s %-6s %6s %3s %6s %6s %6s %6s | %6s %5s %9s %6s %6s\n"
static void print_gaps(const struct dr_record *rec, FILE *f)
{
	const struct dr_gap_summary *g = rec->gap_groups.v;
	size_t n = rec->gap_groups.n;

	fputs("\nFailover: delivery gap of the worst channel, ms; on the right the medians of its parts, ms\n",
		f);
	fprintf(f, GAPS, "fault", "side", "trials", "hit", "p50", "p90", "p99", "max", "detect",
		"fence", "handshake", "replay", "first");
	for (size_t i = 0; i < n; i++)
		fprintf(f, GAPS, dr_fault_row_name(g[i].kind, g[i].dir).s,
			dr_enum_name(dr_end_names, g[i].side), count(g[i].n).s, count(g[i].hit).s,
			ms(g[i].p50_ns).s, ms(g[i].p90_ns).s, ms(g[i].p99_ns).s, ms(g[i].max_ns).s,
			ms(g[i].detect_ns).s, ms(g[i].fence_ns).s, ms(g[i].handshake_ns).s,
			ms(g[i].replay_ns).s, ms(g[i].first_delivery_ns).s);
	print_tail(g, n, f);
	print_gap_legend(rec, f);
}

#define RECOVERY "  %-13s %-6s %6s %6s %6s %7s | %4s %5s | %4s %5s %4s %5s %6s %4s\n"
static void print_recovery(const struct dr_gap_summary *g, size_t n, FILE *f)
{
	fprintf(f,
		"\nFailover: bandwidth in Gb/s (medians), failbacks (back) and their gap in ms, verdicts\n");
	fprintf(f, RECOVERY, "fault", "side", "before", "during", "after", "after %", "back", "gap",
		"pass", "wrong", "hang", "error", "missed", "fail");
	for (size_t i = 0; i < n; i++) {
		const int64_t *v = g[i].verdicts;

		fprintf(f, RECOVERY, dr_fault_row_name(g[i].kind, g[i].dir).s,
			dr_enum_name(dr_end_names, g[i].side), sig(g[i].before_gbps).s,
			sig(g[i].during_gbps).s, sig(g[i].after_gbps).s,
			num(100 * g[i].after_gbps / g[i].before_gbps, 1).s, count(g[i].failbacks).s,
			ms(g[i].failback_gap_ns).s, count(v[DR_VERDICT_PASS]).s,
			count(v[DR_VERDICT_WRONG]).s, count(v[DR_VERDICT_HANG]).s,
			count(v[DR_VERDICT_CLEAN_ERROR]).s, count(v[DR_VERDICT_MISSED_FAULT]).s,
			count(v[DR_VERDICT_FAIL]).s);
	}
}

/* The bound is no criterion: it holds for threads that run when they are due. */
static void print_late(const struct dr_record *rec, FILE *f)
{
	int64_t bound = rec->detection.bound_ns, worst = 0;
	size_t late = 0, known_n = 0;

	for (size_t i = 0; bound != DR_UNSET && i < rec->faults.n; i++) {
		int64_t ns = rec->faults.v[i].fault_to_detect_ns;

		if (ns == DR_UNSET)
			continue;
		known_n++;
		late += ns > bound;
		worst = DR_MAX(worst, ns);
	}
	if (late)
		fprintf(f, "%zu of %zu trials were detected later than the bound (at worst %s)\n",
			late, known_n, duration(worst).s);
}

static void print_failover(const struct dr_record *rec, FILE *f)
{
	if (!rec->faults.n && rec->false_failovers == DR_UNSET)
		return;
	if (rec->gap_groups.n) {
		print_gaps(rec, f);
		print_recovery(rec->gap_groups.v, rec->gap_groups.n, f);
	}
	bool bounded = rec->detection.bound_ns != DR_UNSET;

	fprintf(f, "Detection: --detect %s, %s%s%s, heartbeat every %s%s%s\n",
		rec->detection.mode[0] ? rec->detection.mode : "unknown",
		bounded ? "bound " : "no bound", bounded ? duration(rec->detection.bound_ns).s : "",
		bounded ? " (computed)" : "", duration(rec->detection.heartbeat_ns).s,
		rec->detection.fence[0] ? "; fence: " : "", rec->detection.fence);
	print_late(rec, f);
	fprintf(f, "False failovers: %s\n", count(rec->false_failovers).s);
	dr_result_failover(rec, "Result", f);
}

/* Not without a terminal, nor with NO_COLOR (no-color.org). */
static bool may_colour(FILE *f)
{
	return isatty(fileno(f)) && !getenv("NO_COLOR");
}

void dr_table_verdict(const struct dr_record *rec, FILE *f)
{
	bool colour = may_colour(f);
	struct dr_wrap w;

	if (rec->exit_code < 0 || !dr_wrap_open(&w))
		return;
	dr_result_verdict(rec, w.m);
	for (size_t i = 0; i < rec->errors.n; i++)
		fprintf(w.m, "  %s\n", rec->errors.v[i].text);
	fputs(!colour ? "" : rec->exit_code ? "\033[1;31m" : "\033[1;32m", f);
	dr_wrap_close(&w, f);
	fputs(colour ? "\033[0m" : "", f);
}

static bool nic_differs(const struct dr_record *rec)
{
	for (size_t i = 0; i < rec->nics.n; i++)
		if (rec->nics.v[i].counter_check == DR_NIC_CHECK_DIFFERS)
			return true;
	return false;
}

static void print_answers(const struct dr_record *rec, bool colour, FILE *f)
{
	dr_matrix_print(rec, colour, f);
	if (rec->bandwidth.n)
		dr_result_bandwidth(rec, "Bandwidth", f);
	dr_result_sizes(rec, f);
	dr_result_latency(rec, "Latency", f);
	if (rec->faults.n)
		dr_result_failover(rec, "Failover", f);
	dr_result_faults(rec, f);
	if (nic_differs(rec))
		dr_result_nics(rec, "NICs", f);
	print_nic_marks(rec, f);
	for (size_t i = 0; i < rec->environment.n; i++)
		print_processor(rec, &rec->environment.v[i], f);
	if (rec->integrity_total.chunks != DR_UNSET)
		dr_result_data(rec, "Data", f);
	dr_result_baseline(rec, "Baseline", f);
	dr_matrix_print_summary(rec, f);
}

static void print_tables(const struct dr_record *rec, bool colour, FILE *f)
{
	dr_matrix_print(rec, colour, f);
	print_bandwidth(rec, f);
	print_nics(rec, f);
	print_memory(rec, f);
	print_cpu(rec, f);
	print_latency(rec, f);
	print_failover(rec, f);
	for (size_t i = 0; i < rec->environment.n; i++)
		print_processor(rec, &rec->environment.v[i], f);
	if (rec->integrity_total.chunks != DR_UNSET)
		dr_result_data(rec, "Data", f);
	dr_baseline_print(rec, f);
	dr_result_baseline(rec, "Result", f);
	dr_matrix_print_summary(rec, f);
	fputc('\n', f);
}

static void print_all(struct dr_record *rec,
	void (*print)(const struct dr_record *rec, bool colour, FILE *f), FILE *f)
{
	struct dr_wrap w;

	dr_record_settle(rec);
	if (dr_wrap_open(&w))
		print(rec, may_colour(f), w.m);
	dr_wrap_close(&w, f);
	dr_table_verdict(rec, f);
}

void dr_table_answers(struct dr_record *rec, FILE *f)
{
	print_all(rec, print_answers, f);
}

void dr_table_print(struct dr_record *rec, FILE *f)
{
	print_all(rec, print_tables, f);
}

/* ------------------------------ while it runs ------------------------------ */

/* COLUMNS, as of other programs, or the terminal's, or what fits on a page. */
static size_t screen_width(FILE *f)
{
	enum { LEAST = 40, USUAL = 100, MOST = 200 };
	const char *env = getenv("COLUMNS");
	uint64_t n = 0;
	struct winsize w;

	if (!env || dr_parse_u64(env, LEAST, MOST, &n, NULL))
		n = isatty(fileno(f)) && ioctl(fileno(f), TIOCGWINSZ, &w) == 0 ? w.ws_col : USUAL;
	return n < LEAST ? USUAL : DR_MIN(n, MOST);
}

void dr_table_words(const char *text, unsigned first, unsigned further, FILE *f)
{
	size_t column = (size_t)fprintf(f, "%*s", (int)first, "");

	dr_opts_wrap(f, text, column, further, screen_width(f));
}

void dr_table_header(const struct dr_record *rec, const char *options, FILE *f)
{
	fprintf(f, "dualrail %s %s, run %s, on %s", rec->version, rec->command, rec->run_id,
		rec->host.name);
	if (rec->peer_host.name[0])
		fprintf(f, " with %s (%s)", rec->peer_host.name, rec->peer_version);
	fprintf(f, "\n  %s\n", options ? options : "");
}

void dr_table_interval(const void *row, bool all, FILE *f)
{
	const struct dr_interval_row *r = row;
	double from = known(r->start_ns) / 1e9;

	(void)all;
	fprintf(f, "%8s - %-8s s  gpu %-3s  %-9s  %9s Gb/s %8s chunks%s", num(from, 2).s,
		num(from + known(r->duration_ns) / 1e9, 2).s,
		r->gpu == DR_UNSET ? "all" : count(r->gpu).s,
		dr_enum_name(dr_direction_names, r->direction), sig(r->gbps).s, count(r->chunks).s,
		r->omitted > 0 ? "  omitted (warm-up)" : "");
	fputc('\n', f);
}

/* "fault 3: link-down, client rail0: gap 32.8 ms, failback gap 13.2 ms: PASS" */
void dr_table_fault(const void *row, bool all, FILE *f)
{
	const struct dr_fault_row *r = row;

	fprintf(f, "fault %s: %s, %s%s%s: ", count(r->trial).s,
		dr_fault_row_name(r->kind, r->dir).s, dr_enum_name(dr_end_names, r->side),
		r->nic[0] ? " " : "", r->nic);
	if (r->error_after_ns != DR_UNSET)
		fprintf(f, "no delivery for %s until the error", duration(r->error_after_ns).s);
	else if (r->gap_ns == DR_UNSET)
		fputs("no gap measured", f);
	else
		fprintf(f, "gap %s ms", ms(r->gap_ns).s);
	if (all)
		fprintf(f, ", %s channels, %s chunks in flight, %s replayed",
			count(r->channels_affected).s, count(r->in_flight_chunks).s,
			count(r->replayed_chunks).s);
	else if (r->failback_gap_ns != DR_UNSET)
		fprintf(f, ", failback gap %s ms", ms(r->failback_gap_ns).s);
	fprintf(f, ": %s%s%s\n", dr_enum_name(dr_verdict_names, r->verdict), r->note[0] ? ": " : "",
		r->note);
	if (!all || r->gap_ns == DR_UNSET)
		return;
	if (r->detect_ns == DR_UNSET)
		fputs("  = longest time between two deliveries after the fault; no channel switched\n",
			f);
	else
		fprintf(f,
			"  = detect %s + fence %s + handshake %s + replay %s + first delivery %s ms%s%s\n",
			ms(r->detect_ns).s, ms(r->fence_ns).s, ms(r->handshake_ns).s,
			ms(r->replay_ns).s, ms(r->first_delivery_ns).s,
			r->cause[0] ? "\n  cause: " : "", r->cause);
}
