/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/units.h"
#include "orchestrator/record/cell.h"
#include "orchestrator/record/fields.h"
#include "orchestrator/record/report.h"

/* Tables for people. At most 110 columns; no colours; the unit stands in the column's head or in
 * the title; "-" is unknown. */

static struct cell ms(int64_t ns)
{
	return num(known(ns) / 1e6, ns < DR_NS_PER_MS ? 3 : ns < 100 * DR_NS_PER_MS ? 2 : 1);
}

static struct cell us(int64_t ns)
{
	return sig(known(ns) / 1e3);
}

static struct cell size(int64_t bytes)
{
	struct cell c = { "-" };

	if (bytes != DR_UNSET)
		dr_format_size((uint64_t)bytes, c.s, sizeof(c.s));
	return c;
}

static struct cell duration(int64_t ns)
{
	struct cell c = { "unknown" };

	if (ns != DR_UNSET)
		dr_format_duration(ns, c.s, sizeof(c.s));
	return c;
}

/* ------------------------------- bandwidth ------------------------------- */

#define BANDWIDTH "%5s  %-9s  %9s %8s %9s %8s %7s %10s %8s %12s\n"
static void bandwidth_row(const struct dr_bandwidth_row *r, bool sum, FILE *f)
{
	fprintf(f, BANDWIDTH, sum ? "all" : count(r->gpu).s,
		dr_enum_name(dr_direction_names, r->direction), size(r->message_bytes).s,
		sum ? "" : num(r->seconds, 2).s, sig(r->gbps).s, sig(r->gbps / 8).s,
		num(r->line_rate_percent, 1).s, count(r->messages).s, count(r->retransmits).s,
		sig(r->sender_gbps).s);
}

/* The sum of one phase and direction. */
static void bandwidth_sum(const struct dr_record *rec, int64_t phase, int direction, FILE *f)
{
	struct dr_bandwidth_row sum = { .direction = direction };
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
		sum.retransmits += DR_MAX(r->retransmits, 0);
		sum.message_bytes = r->message_bytes;
	}
	sum.line_rate_percent = 100 * sum.gbps / line;
	if (n > 1)
		bandwidth_row(&sum, true, f);
}

static void print_bandwidth(const struct dr_record *rec, FILE *f)
{
	size_t k;

	if (!rec->bandwidth.n)
		return;
	fputs("\nBandwidth: payload on the receiver's clock (1 Gb/s = 10^9 bit/s, 1 GB/s = 10^9 byte/s)\n",
		f);
	fprintf(f, BANDWIDTH, "GPU", "direction", "message", "seconds", "Gb/s", "GB/s", "% line",
		"messages", "retrans", "sender Gb/s");
	for (size_t i = 0; i < rec->bandwidth.n; i++) {
		int64_t phase = rec->bandwidth.v[i].phase;

		for (k = 0; k < i && rec->bandwidth.v[k].phase != phase; k++)
			;
		if (k < i)
			continue;
		for (k = i; k < rec->bandwidth.n; k++)
			if (rec->bandwidth.v[k].phase == phase)
				bandwidth_row(&rec->bandwidth.v[k], false, f);
		bandwidth_sum(rec, phase, DR_TO_SERVER, f);
		bandwidth_sum(rec, phase, DR_TO_CLIENT, f);
	}
	if (isfinite(rec->bandwidth.v[0].line_rate_percent))
		fputs("  % line: percent of the GPU's share of the line rate of its primary rails\n",
			f);
}

static struct cell counter(int64_t payload, int64_t counted)
{
	struct cell c = { "-" };

	if (payload == DR_UNSET || counted == DR_UNSET)
		return c;
	if (payload < 1000000)
		snprintf(c.s, sizeof(c.s), "%.1f MB", (double)counted / 1e6);
	else
		snprintf(c.s, sizeof(c.s), "%+.1f %%",
			100 * ((double)counted - (double)payload) / (double)payload);
	return c;
}

static void nic_row(const struct dr_nic_row *r, FILE *f)
{
	static const char *const words[] = { "ok", "DIFFERS" };

	fprintf(f, "  %-6s  %-15s %10s %8s %8s %10s %9s %10s %9s %5s  %s\n",
		dr_enum_name(dr_end_names, r->side), r->name, sig(r->speed_gbps).s,
		sig(known(r->tx_bytes) * 8 / r->seconds / 1e9).s,
		sig(known(r->rx_bytes) * 8 / r->seconds / 1e9).s,
		num(known(r->tx_bytes) / 1e6, 1).s, counter(r->tx_bytes, r->counter_tx_bytes).s,
		num(known(r->rx_bytes) / 1e6, 1).s, counter(r->rx_bytes, r->counter_rx_bytes).s,
		count(r->connections).s,
		r->counter_check < 0 ? "unknown" : words[r->counter_check]);
}

static void print_nics(const struct dr_record *rec, FILE *f)
{
	if (!rec->nics.n)
		return;
	fputs("\nNICs during the whole run: payload, and the interface's own counters relative to it\n",
		f);
	fprintf(f, "  %-6s  %-15s %10s %8s %8s %10s %9s %10s %9s %5s  %s\n", "end", "NIC",
		"speed Gb/s", "tx Gb/s", "rx Gb/s", "tx MB", "counter", "rx MB", "counter", "conns",
		"check");
	for (int side = -1; side <= DR_END_SERVER; side++)
		for (size_t i = 0; i < rec->nics.n; i++)
			if (rec->nics.v[i].side == side)
				nic_row(&rec->nics.v[i], f);
	fputs("  check: ok if the counter is at least 99 % of the payload and at most 110 % (headers) plus 5 % of\n"
	      "  the other direction (acknowledgements), with a tolerance of 1 MiB\n"
	      "  conns: data connections made, including rebuilt ones\n",
		f);
}

static void print_memory(const struct dr_record *rec, FILE *f)
{
	static const char *const access[] = { "direct", "staged" };
	bool any = false;

	for (size_t i = 0; i < rec->memory.n; i++)
		any |= rec->memory.v[i].memory == 1;
	if (!any)
		return;
	fputs("\nGPU memory: copies to host memory (out) and from it (in) during the bandwidth phases; busy: share\n"
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
}

static void print_total(const struct dr_record *rec, FILE *f)
{
	int peer = rec->side < 0 ? -1 : !rec->side;
	const struct dr_total *t = &rec->total;

	if (!isfinite(t->gbps))
		return;
	fprintf(f, "\nTotal: %s Gb/s (%s GB/s)", sig(t->gbps).s, sig(t->gbps / 8).s);
	if (t->message_bytes != DR_UNSET)
		fprintf(f, " with messages of %s", size(t->message_bytes).s);
	if (isfinite(t->line_rate_percent))
		fprintf(f, ", %.1f %% of the line rate of %.4g Gb/s%s", t->line_rate_percent,
			t->line_gbps, dr_total_slower(t));
	else
		fputs(", line rate unknown", f);
	fprintf(f, "\nCPU: %s %s %%, %s %s %% (100 %% = one core)\n",
		dr_enum_name(dr_end_names, rec->side), num(rec->cpu_percent_local, 0).s,
		dr_enum_name(dr_end_names, peer), num(rec->cpu_percent_peer, 0).s);
}

static void print_latency(const struct dr_record *rec, FILE *f)
{
	if (!rec->latency.n)
		return;
	fputs("\nLatency: round trip of one message in us (one direction takes about half of it)\n",
		f);
	fprintf(f, "%5s  %10s %10s %9s %9s %9s %9s %9s\n", "GPU", "message", "samples", "p50",
		"p90", "p99", "p99.9", "max");
	for (size_t i = 0; i < rec->latency.n; i++) {
		const struct dr_latency_row *r = &rec->latency.v[i];

		fprintf(f, "%5s  %10s %10s %9s %9s %9s %9s %9s\n", count(r->gpu).s,
			size(r->bytes).s, count(r->samples).s, us(r->p50_ns).s, us(r->p90_ns).s,
			us(r->p99_ns).s, us(r->p999_ns).s, us(r->max_ns).s);
	}
}

/* ------------------------------- failover ------------------------------- */

static void print_gaps(const struct dr_gap_summary *g, size_t n, FILE *f)
{
	fputs("\nFailover: delivery gap of the worst channel, ms; on the right the medians of its parts, ms\n",
		f);
	fprintf(f, "  %-10s %-6s %6s %6s %8s %8s %8s %8s | %7s %7s %9s %7s %7s\n", "fault", "side",
		"trials", "hit", "p50", "p90", "p99", "max", "detect", "fence", "handshake",
		"replay", "first");
	for (size_t i = 0; i < n; i++)
		fprintf(f, "  %-10s %-6s %6s %6s %8s %8s %8s %8s | %7s %7s %9s %7s %7s\n",
			g[i].kind, dr_enum_name(dr_end_names, g[i].side), count(g[i].n).s,
			count(g[i].hit).s, ms(g[i].p50_ns).s, ms(g[i].p90_ns).s, ms(g[i].p99_ns).s,
			ms(g[i].max_ns).s, ms(g[i].detect_ns).s, ms(g[i].fence_ns).s,
			ms(g[i].handshake_ns).s, ms(g[i].replay_ns).s,
			ms(g[i].first_delivery_ns).s);
	fputs("  hit: trials with data in flight. A gap runs from the last delivery to: detection, end of the\n"
	      "  fence, answer to the switch (handshake), first replayed frame, first delivery\n",
		f);
}

static void print_recovery(const struct dr_gap_summary *g, size_t n, FILE *f)
{
	fputs("\nFailover: bandwidth in Gb/s (medians), failbacks, verdicts\n", f);
	fprintf(f, "  %-10s %-6s %8s %8s %8s %7s | %8s %7s | %6s %6s %6s %6s %6s\n", "fault",
		"side", "before", "during", "after", "after %", "failback", "gap ms", "pass",
		"wrong", "hang", "error", "missed");
	for (size_t i = 0; i < n; i++)
		fprintf(f,
			"  %-10s %-6s %8s %8s %8s %7s | %8s %7s | %6" PRId64 " %6" PRId64
			" %6" PRId64 " %6" PRId64 " %6" PRId64 "\n",
			g[i].kind, dr_enum_name(dr_end_names, g[i].side), sig(g[i].before_gbps).s,
			sig(g[i].during_gbps).s, sig(g[i].after_gbps).s,
			num(100 * g[i].after_gbps / g[i].before_gbps, 1).s, count(g[i].failbacks).s,
			ms(g[i].failback_gap_ns).s, g[i].verdicts[DR_VERDICT_PASS],
			g[i].verdicts[DR_VERDICT_WRONG], g[i].verdicts[DR_VERDICT_HANG],
			g[i].verdicts[DR_VERDICT_CLEAN_ERROR],
			g[i].verdicts[DR_VERDICT_MISSED_FAULT]);
}

static void print_failover(const struct dr_record *rec, FILE *f)
{
	if (!rec->faults.n && rec->false_failovers == DR_UNSET)
		return;
	if (rec->gap_groups.n) {
		print_gaps(rec->gap_groups.v, rec->gap_groups.n, f);
		print_recovery(rec->gap_groups.v, rec->gap_groups.n, f);
	}
	fprintf(f, "Detection: --detect %s, bound %s (computed), heartbeat every %s%s%s\n",
		rec->detection.mode[0] ? rec->detection.mode : "unknown",
		duration(rec->detection.bound_ns).s, duration(rec->detection.heartbeat_ns).s,
		rec->detection.fence[0] ? "; fence: " : "", rec->detection.fence);
	fprintf(f, "False failovers: %s\n", count(rec->false_failovers).s);
}

static void print_integrity(const struct dr_record *rec, FILE *f)
{
	static const char *const how[] = { "sequence numbers checked; --verify compares every byte",
		"every byte compared" };
	const struct dr_integrity_row *i = &rec->integrity_total;

	if (i->messages == DR_UNSET)
		return;
	fprintf(f,
		"\nData: %s messages, %s GB; lost %s, duplicated %s, reordered %s, corrupted %s (%s)\n",
		count(i->messages).s, sig(known(i->bytes) / 1e9).s, count(i->lost).s,
		count(i->duplicated).s, count(i->reordered).s, count(i->corrupted).s,
		i->verified < 0 ? "not checked" : how[i->verified > 0]);
}

static void print_verdict(const struct dr_record *rec, FILE *f)
{
	static const char *const words[] = { "PASS", "FAIL", "ERROR" };

	if (rec->exit_code < 0)
		return;
	fprintf(f, "\n%s (exit status %d)\n", words[rec->status], rec->exit_code);
	for (size_t i = 0; i < rec->errors.n; i++)
		fprintf(f, "  %s\n", rec->errors.v[i].text);
}

void dr_table_print(struct dr_record *rec, FILE *f)
{
	dr_record_settle(rec);
	dr_matrix_print(rec, f);
	print_bandwidth(rec, f);
	print_nics(rec, f);
	print_memory(rec, f);
	print_total(rec, f);
	print_latency(rec, f);
	print_failover(rec, f);
	print_integrity(rec, f);
	print_verdict(rec, f);
}

/* ------------------------------ while it runs ------------------------------ */

#define WRAP 100

static void print_options(const json_t *options, FILE *f)
{
	const char *key;
	json_t *v;
	size_t col = 0;

	json_object_foreach((json_t *)(uintptr_t)options, key, v)
	{
		if (json_is_null(v))
			continue;
		char *s = json_is_string(v) ? dr_strdup(json_string_value(v))
					    : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
		if (!s)
			continue;
		size_t n = strlen(key) + strlen(s) + 2;
		if (col + n > WRAP) {
			fputc('\n', f);
			col = 0;
		}
		fprintf(f, "%s%s=%s", col ? " " : "  ", key, s);
		col += n;
		free(s); /* lint-ok: of jansson, or dr_strdup's, which is malloc's too */
	}
	if (col)
		fputc('\n', f);
}

void dr_table_header(const struct dr_record *rec, FILE *f)
{
	fprintf(f, "dualrail %s %s, run %s, on %s", rec->version, rec->command, rec->run_id,
		rec->host.name);
	if (rec->peer_host.name[0])
		fprintf(f, " with %s (%s)", rec->peer_host.name, rec->peer_version);
	fputc('\n', f);
	print_options(rec->options, f);
	for (size_t i = 0; i < rec->rails.n; i++) {
		const struct dr_rail_row *r = &rec->rails.v[i];

		fprintf(f, "  rail %s: %s %s <-> %s %s%s, %s Gb/s, MTU %s\n", count(r->rail).s,
			r->ifname, r->address, r->peer_ifname, r->peer_address,
			r->routed ? " (routed)" : "",
			isfinite(r->speed_gbps) ? sig(r->speed_gbps).s : "unknown",
			count(r->mtu).s);
	}
	for (size_t i = 0; i < rec->gpus.n; i++) {
		const struct dr_gpu_row *g = &rec->gpus.v[i];

		fprintf(f, "  gpu %s: %s%s%s, primary rail %s, shadow rail %s, %s channels\n",
			count(g->gpu).s, g->name, g->name[0] && g->bus_id[0] ? " " : "", g->bus_id,
			count(g->primary).s, count(g->shadow).s, count(g->channels).s);
	}
	fflush(f);
}

void dr_table_interval(const void *row, FILE *f)
{
	const struct dr_interval_row *r = row;
	double from = known(r->start_ns) / 1e9;

	fprintf(f, "%8s - %-8s s  gpu %-3s  %-9s  %9s Gb/s %8s messages", num(from, 2).s,
		num(from + known(r->duration_ns) / 1e9, 2).s,
		r->gpu == DR_UNSET ? "all" : count(r->gpu).s,
		dr_enum_name(dr_direction_names, r->direction), sig(r->gbps).s,
		count(r->messages).s);
	if (r->retransmits > 0)
		fprintf(f, " %" PRId64 " retransmits", r->retransmits);
	fputc('\n', f);
}

void dr_table_fault(const void *row, FILE *f)
{
	const struct dr_fault_row *r = row;

	fprintf(f, "fault %s: %s path %s %s%s%s: ", count(r->trial).s, r->kind, count(r->path).s,
		dr_enum_name(dr_end_names, r->side), r->nic[0] ? " " : "", r->nic);
	if (r->gap_ns == DR_UNSET)
		fputs("no gap measured", f);
	else
		fprintf(f, "gap %s ms", ms(r->gap_ns).s);
	fprintf(f, ", %s channels, %s messages replayed: %s%s%s\n", count(r->channels_affected).s,
		count(r->replayed_messages).s, dr_enum_name(dr_verdict_names, r->verdict),
		r->note[0] ? ": " : "", r->note);
	if (r->gap_ns != DR_UNSET)
		fprintf(f,
			"  = detect %s + fence %s + handshake %s + replay %s + first delivery %s ms%s%s\n",
			ms(r->detect_ns).s, ms(r->fence_ns).s, ms(r->handshake_ns).s,
			ms(r->replay_ns).s, ms(r->first_delivery_ns).s, r->cause[0] ? "; " : "",
			r->cause);
}
