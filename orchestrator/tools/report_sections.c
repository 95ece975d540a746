/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/tools/report_priv.h"

#include <math.h>
#include <string.h>

/*
 * The parts of the page for one document, in the order in which they are read. A chart is an empty <figure>, filled by report.js, and
 * the table behind it: <details> that are open without script.
 */

/* ---- summary ---- */

static void tile_bandwidth(FILE *f, const json_t *doc, const char *path, const char *name)
{
	double v = report_number(doc, path),
	       percent = report_number(doc, "total.line_rate_percent");

	if (!isfinite(v))
		return;
	report_tile_number(f, name, v, "Gb/s");
	if (isfinite(percent)) {
		report_sig(f, percent);
		fputs(" % of the line rate", f);
	} else {
		fputs("all GPUs, best measurement", f);
	}
	report_tile_end(f);
}

static void tile_latency(FILE *f, const json_t *doc)
{
	const json_t *rows = report_at(doc, "latency"), *row;
	double best = INFINITY, worst = 0, bytes = NAN;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		double p50 = report_number(row, "rtt_us.p50");

		if (p50 < best) {
			best = p50;
			bytes = report_number(row, "bytes");
		}
	}
	if (!isfinite(best))
		return;
	json_array_foreach(rows, i, row) if (report_number(row, "bytes") == bytes) worst =
		fmax(worst, report_number(row, "rtt_us.p99"));
	report_tile_number(f, "Round trip, best median", best, "µs");
	fputs("p99 of the slowest GPU: ", f);
	report_sig(f, worst);
	fputs(" µs", f);
	report_tile_end(f);
}

static void tile_gap(FILE *f, const json_t *doc)
{
	double n = report_number(doc, "failover.gap_us.n");

	if (!(n > 0))
		return;
	report_tile_number(
		f, "Gap, median", report_number(doc, "failover.gap_us.p50") / 1000, "ms");
	fprintf(f, "longest of %.0f trials: ", n);
	report_sig(f, report_number(doc, "failover.gap_us.max") / 1000);
	fputs(" ms", f);
	report_tile_end(f);
}

static void tile_data(FILE *f, const json_t *doc)
{
	static const char *const wrong[] = { "integrity.lost", "integrity.duplicated",
		"integrity.reordered", "integrity.corrupted" };
	double bad = 0;

	if (!isfinite(report_number(doc, "integrity.chunks")))
		return;
	for (size_t i = 0; i < DR_ARRAY_LEN(wrong); i++)
		bad += fmax(0, report_number(doc, wrong[i]));
	report_tile_count(f, "Wrong chunks", bad,
		json_is_true(report_at(doc, "integrity.verified")) ? "every byte compared"
								   : "sequence numbers checked");
}

static void tiles(FILE *f, const json_t *doc)
{
	fputs("<dl class=\"tiles\">", f);
	tile_bandwidth(f, doc, "total.to_server_gbps", "Bandwidth to the server");
	tile_bandwidth(f, doc, "total.to_client_gbps", "Bandwidth to the client");
	tile_latency(f, doc);
	tile_gap(f, doc);
	tile_data(f, doc);
	report_tile_count(f, "Unexpected switches", report_number(doc, "unexpected_switches"),
		"outside the failover test");
	if (isfinite(report_number(doc, "failover.false_failovers")))
		report_tile_count(f, "False failovers",
			report_number(doc, "failover.false_failovers"), "switches without a fault");
	fputs("</dl>\n", f);
}

static void errors(FILE *f, const json_t *doc)
{
	const json_t *rows = report_at(doc, "errors"), *row;
	size_t i;

	if (!json_array_size(rows))
		return;
	fputs("<ul class=\"errors\">", f);
	json_array_foreach(rows, i, row)
	{
		if (i >= REPORT_ROWS)
			break;
		fputs("<li>", f);
		report_text(f, report_string(row, "text"));
		fputs("</li>", f);
	}
	fputs("</ul>\n", f);
}

static void line(FILE *f, const json_t *doc)
{
	fputs("<p class=\"soft\">", f);
	report_text(f, report_string(doc, "command"));
	fputs(", ", f);
	report_text(f, report_string(doc, "options.test"));
	fputs(" · ", f);
	report_text(f, report_string(doc, "host.name"));
	fputs(" and ", f);
	report_text(f, *report_string(doc, "host.peer.name") ? report_string(doc, "host.peer.name")
							     : "no peer");
	fputs(" · ", f);
	report_text(f, report_string(doc, "detection.transport"));
	fputs(" · ", f);
	report_text(f, report_string(doc, "start_time"));
	fputs(" · run ", f);
	report_text(f, report_string(doc, "run_id"));
	fputs("</p>\n", f);
}

/* ---- measurements ---- */

static const struct report_column bandwidth[] = { { "GPU", "gpu", FORM_INT, NULL },
	{ "direction", "direction", FORM_TEXT, NULL },
	{ "message", "message_bytes", FORM_BYTES, NULL }, { "Gb/s", "gbps", FORM_GBPS, NULL },
	{ "", "gbps", FORM_METER, NULL }, { "% of line", "line_rate_percent", FORM_PERCENT, NULL },
	{ "retransmits", "retransmits", FORM_INT, NULL },
	{ "channels on another rail", "switched", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column nics[] = { { "end", "side", FORM_TEXT, NULL },
	{ "NIC", "name", FORM_TEXT, NULL }, { "speed, Gb/s", "speed_gbps", FORM_GBPS, NULL },
	{ "Gb/s", "gbps", FORM_GBPS, NULL }, { "", "gbps", FORM_METER, NULL },
	{ "sent, bytes", "tx_bytes", FORM_INT, NULL },
	{ "received, bytes", "rx_bytes", FORM_INT, NULL },
	{ "counter", "counter_check", FORM_TEXT, NULL },
	{ "paths made", "connections", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column cells[] = { { "GPU", "gpu", FORM_INT, NULL },
	{ "NIC", "nic", FORM_TEXT, NULL }, { "peer's NIC", "peer_nic", FORM_TEXT, NULL },
	{ "direction", "direction", FORM_TEXT, NULL }, { "Gb/s", "gbps", FORM_GBPS, NULL },
	{ "", "gbps", FORM_METER, NULL },
	{ "channels on another rail", "switched", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column findings[] = { { "NIC", "nic", FORM_TEXT, NULL },
	{ "direction", "direction", FORM_TEXT, NULL },
	{ "alone, Gb/s", "alone_gbps", FORM_GBPS, NULL },
	{ "% of the others", "others_percent", FORM_PERCENT, NULL },
	{ "with all GPUs, Gb/s", "total_gbps", FORM_GBPS, NULL },
	{ "finding", "finding", FORM_BAD, "ok" }, { "cause", "cause", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column latency[] = { { "GPU", "gpu", FORM_INT, NULL },
	{ "NIC", "nic", FORM_TEXT, NULL }, { "message", "bytes", FORM_BYTES, NULL },
	{ "samples", "samples", FORM_INT, NULL }, { "p50, µs", "rtt_us.p50", FORM_US, NULL },
	{ "p90", "rtt_us.p90", FORM_US, NULL }, { "p99", "rtt_us.p99", FORM_US, NULL },
	{ "p99.9", "rtt_us.p999", FORM_US, NULL }, { "max", "rtt_us.max", FORM_US, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column comparison[] = { { "of", "kind", FORM_TEXT, NULL },
	{ "GPU", "gpu", FORM_INT, NULL }, { "NIC", "nic", FORM_TEXT, NULL },
	{ "direction", "direction", FORM_TEXT, NULL }, { "Gb/s", "gbps", FORM_GBPS, NULL },
	{ "baseline", "mean_gbps", FORM_GBPS, NULL }, { "%", "percent", FORM_PERCENT, NULL },
	{ "result", "result", FORM_BAD, "ok" }, { NULL, NULL, 0, NULL } };

static bool of_a_gpu(const json_t *row)
{
	return json_is_integer(json_object_get(row, "gpu"));
}

static bool has_rows(const json_t *doc, const char *path)
{
	return json_array_size(report_at(doc, path)) > 0;
}

static void section_bandwidth(FILE *f, const json_t *doc, unsigned n)
{
	if (!has_rows(doc, "bandwidth") && !has_rows(doc, "nics"))
		return;
	report_heading(f, n, "bandwidth", "Bandwidth");
	report_table(f, "Each GPU, by the receiver's clock", bandwidth, report_at(doc, "bandwidth"),
		NULL);
	report_table(f, "Each NIC over the whole run, both directions, payload", nics,
		report_at(doc, "nics"), NULL);
	report_table(f, "Beside the baseline", comparison, report_at(doc, "comparison"), NULL);
}

static void section_matrix(FILE *f, const json_t *doc, unsigned n)
{
	if (!has_rows(doc, "matrix.cells"))
		return;
	report_heading(f, n, "matrix", "GPU × NIC");
	report_table(f, "Findings", findings, report_at(doc, "matrix.nics"), NULL);
	report_chart(f, n, "matrix", "Bandwidth of each GPU over each NIC alone.");
	report_details(f, "Table of the cells");
	report_table(
		f, "One GPU over one NIC alone", cells, report_at(doc, "matrix.cells"), of_a_gpu);
	report_details_end(f);
}

static void section_latency(FILE *f, const json_t *doc, unsigned n)
{
	if (!has_rows(doc, "latency"))
		return;
	report_heading(f, n, "latency", "Latency");
	report_table(f, "Full round trips", latency, report_at(doc, "latency"), NULL);
	report_chart(f, n, "histogram",
		"Round trips of all GPUs by duration; bins of a quarter of a power of two.");
	report_chart(f, n, "percentiles", "Round trip that so many percent do not exceed.");
}

/* ---- failover ---- */

static const struct report_column summary[] = { { "kind", "kind", FORM_TEXT, NULL },
	{ "at", "side", FORM_TEXT, NULL }, { "direction", "dir", FORM_TEXT, NULL },
	{ "trials", "trials", FORM_INT, NULL }, { "hit data", "hit", FORM_INT, NULL },
	{ "gap p50, ms", "gap_us.p50", FORM_US_MS, NULL },
	{ "p99", "gap_us.p99", FORM_US_MS, NULL }, { "max", "gap_us.max", FORM_US_MS, NULL },
	{ "detect", "detect_us_median", FORM_US_MS, NULL },
	{ "fence", "fence_us_median", FORM_US_MS, NULL },
	{ "handshake", "handshake_us_median", FORM_US_MS, NULL },
	{ "replay", "replay_us_median", FORM_US_MS, NULL },
	{ "first delivery", "first_delivery_us_median", FORM_US_MS, NULL },
	{ "before, Gb/s", "bandwidth_before_gbps", FORM_GBPS, NULL },
	{ "during", "bandwidth_during_gbps", FORM_GBPS, NULL },
	{ "after", "bandwidth_after_gbps", FORM_GBPS, NULL },
	{ "failback gap, ms", "failback_gap_us_median", FORM_US_MS, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column trials[] = { { "trial", "trial", FORM_INT, NULL },
	{ "kind", "kind", FORM_TEXT, NULL }, { "direction", "dir", FORM_TEXT, NULL },
	{ "at", "side", FORM_TEXT, NULL }, { "NIC", "nic", FORM_TEXT, NULL },
	{ "verdict", "verdict", FORM_BAD, "PASS" }, { "gap, ms", "gap_us", FORM_US_MS, NULL },
	{ "cadence p99", "cadence_us.p99", FORM_US_MS, NULL },
	{ "fault to detection", "fault_to_detect_us", FORM_US_MS, NULL },
	{ "detect", "detect_us", FORM_US_MS, NULL }, { "fence", "fence_us", FORM_US_MS, NULL },
	{ "handshake", "handshake_us", FORM_US_MS, NULL },
	{ "replay", "replay_us", FORM_US_MS, NULL },
	{ "first delivery", "first_delivery_us", FORM_US_MS, NULL },
	{ "failback gap", "failback_gap_us", FORM_US_MS, NULL },
	{ "channels", "channels_affected", FORM_INT, NULL },
	{ "replayed", "replayed_chunks", FORM_INT, NULL }, { "cause", "cause", FORM_TEXT, NULL },
	{ "note", "note", FORM_TEXT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column switches[] = { { "end", "side", FORM_TEXT, NULL },
	{ "GPU", "gpu", FORM_INT, NULL }, { "channel", "channel", FORM_INT, NULL },
	{ "from path", "from_path", FORM_INT, NULL }, { "to path", "to_path", FORM_INT, NULL },
	{ "gap, ms", "gap_us", FORM_US_MS, NULL }, { "cause", "cause", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column degraded[] = { { "end", "side", FORM_TEXT, NULL },
	{ "NIC", "name", FORM_TEXT, NULL }, { "measured, Gb/s", "measured_gbps", FORM_GBPS, NULL },
	{ "heartbeats lost, %", "loss_percent", FORM_PERCENT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column silences[] = { { "end", "side", FORM_TEXT, NULL },
	{ "rail", "rail", FORM_INT, NULL }, { "NIC", "nic", FORM_TEXT, NULL },
	{ "heartbeats missed in a row", "misses", FORM_INT, NULL },
	{ "times", "silences", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };

static void section_time(FILE *f, const json_t *doc, unsigned n)
{
	bool faults = has_rows(doc, "failover.faults");

	if (!faults && !has_rows(doc, "intervals"))
		return;
	report_heading(f, n, "time", faults ? "Failover" : "Over time");
	if (faults)
		report_table(f, "Gaps and their parts, medians of each part by itself; ms", summary,
			report_at(doc, "failover.summary"), NULL);
	if (faults && strcmp(report_string(doc, "detection.mode"), "transport") == 0)
		fputs("<p>The transport moves to another NIC by itself, and no channel switches. Then a gap is the "
		      "longest time between two deliveries, from the fault until data that were posted after it "
		      "arrived; it has no parts. Cadence: that time without a fault.</p>\n",
			f);
	report_chart(f, n, "timeline",
		faults ? "Bandwidth of each interval. A fault is a full line, the steps of its switch are "
			 "dashed lines: detection, switch, first delivery, failback. Intervals are "
			 "placed to within some milliseconds."
		       : "Bandwidth of each interval, all GPUs.");
	if (!faults)
		return;
	fputs("<h3>Gaps by kind of fault</h3>\n", f);
	report_chart(f, n, "gaps", "Share of the trials whose gap is at most so long.");
	report_chart(f, n, "parts",
		"Parts of the gap, medians; the sum of medians is not the median of the gap.");
	report_details(f, "Table of the trials");
	report_table(f, "Trials; the channel with the longest gap; ms", trials,
		report_at(doc, "failover.faults"), NULL);
	report_details_end(f);
}

static bool is_unexpected(const json_t *row)
{
	return json_is_true(json_object_get(row, "unexpected"));
}

static bool is_degraded(const json_t *row)
{
	return json_is_true(json_object_get(row, "degraded"));
}

static void section_health(FILE *f, const json_t *doc, unsigned n)
{
	size_t found = 0;

	report_heading(f, n, "health", "Degraded rails and unexpected switches");
	found += report_table(f, "Degraded: slow beside another rail, or lost heartbeats", degraded,
		report_at(doc, "nics"), is_degraded);
	found += report_table(f, "Switches that nobody planned, outside the failover test",
		switches, report_at(doc, "failover.switches"), is_unexpected);
	if (!found)
		fputs("<p>None.</p>\n", f);
	if (!has_rows(doc, "silences"))
		return;
	report_details(f, "Missed heartbeats below the threshold");
	report_table(
		f, "Silences that ended by themselves", silences, report_at(doc, "silences"), NULL);
	report_details_end(f);
}

/* ---- environment ---- */

static const struct report_column rails[] = { { "rail", "rail", FORM_INT, NULL },
	{ "NIC", "ifname", FORM_TEXT, NULL }, { "address", "address", FORM_TEXT, NULL },
	{ "peer's NIC", "peer_ifname", FORM_TEXT, NULL },
	{ "address", "peer_address", FORM_TEXT, NULL },
	{ "speed, Gb/s", "speed_gbps", FORM_GBPS, NULL }, { "MTU", "mtu_bytes", FORM_INT, NULL },
	{ "NUMA", "numa", FORM_INT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column gpus[] = { { "GPU", "gpu", FORM_INT, NULL },
	{ "device", "name", FORM_TEXT, NULL }, { "PCI", "bus_id", FORM_TEXT, NULL },
	{ "primary rail", "primary_rail", FORM_INT, NULL },
	{ "shadow rail", "shadow_rail", FORM_INT, NULL },
	{ "channels", "channels", FORM_INT, NULL }, { "NUMA", "numa", FORM_INT, NULL },
	{ "CPU", "cpu", FORM_INT, NULL }, { "reason", "reason", FORM_TEXT, NULL },
	{ NULL, NULL, 0, NULL } };
static const struct report_column ends[] = { { "end", "side", FORM_TEXT, NULL },
	{ "kernel", "kernel", FORM_TEXT, NULL },
	{ "congestion control", "congestion_control", FORM_TEXT, NULL },
	{ "tcp_rmem", "tcp_rmem", FORM_TEXT, NULL }, { "tcp_wmem", "tcp_wmem", FORM_TEXT, NULL },
	{ "CPU governor", "cpu_governor", FORM_TEXT, NULL }, { NULL, NULL, 0, NULL } };
static const struct report_column env_nics[] = { { "end", "side", FORM_TEXT, NULL },
	{ "NIC", "nic", FORM_TEXT, NULL }, { "driver", "driver", FORM_TEXT, NULL },
	{ "firmware", "firmware", FORM_TEXT, NULL }, { "MTU", "mtu_bytes", FORM_INT, NULL },
	{ "qdisc", "qdisc", FORM_TEXT, NULL }, { "TSO", "tso", FORM_TEXT, NULL },
	{ "GSO", "gso", FORM_TEXT, NULL }, { "GRO", "gro", FORM_TEXT, NULL },
	{ "interrupts on CPUs", "interrupt_cpus", FORM_TEXT, NULL }, { NULL, NULL, 0, NULL } };

static void section_environment(FILE *f, const json_t *doc, unsigned n)
{
	report_heading(f, n, "environment", "Environment");
	report_table(f, "Rails", rails, report_at(doc, "topology.rails"), NULL);
	report_table(
		f, "GPUs of this end and their rails", gpus, report_at(doc, "topology.gpus"), NULL);
	report_details(f, "Hosts, settings and versions");
	report_pairs(f, "Versions", report_at(doc, "versions"));
	report_pairs(f, "Host", report_at(doc, "host"));
	report_pairs(f, "Peer's host", report_at(doc, "host.peer"));
	report_table(f, "Settings of each end", ends, report_at(doc, "environment.ends"), NULL);
	report_table(f, "Settings of each NIC", env_nics, report_at(doc, "environment.nics"), NULL);
	report_pairs(f, "Detection of failures", report_at(doc, "detection"));
	report_details_end(f);
	report_details(f, "Options and command line");
	report_pairs(f, "Effective options", report_at(doc, "options"));
	fputs("<pre>", f);
	for (size_t i = 0; i < json_array_size(report_at(doc, "argv")) && i < REPORT_ROWS; i++) {
		const char *word = json_string_value(json_array_get(report_at(doc, "argv"), i));

		report_text(f, word ? word : "");
		fputc(' ', f);
	}
	fputs("</pre>\n", f);
	report_details_end(f);
}

static void navigation(FILE *f, const json_t *doc, unsigned n)
{
	const struct report_part parts[] = { { "bandwidth", "Bandwidth",
						     has_rows(doc, "bandwidth") },
		{ "matrix", "GPU × NIC", has_rows(doc, "matrix.cells") },
		{ "latency", "Latency", has_rows(doc, "latency") },
		{ "time", "Failover and time",
			has_rows(doc, "intervals") || has_rows(doc, "failover.faults") },
		{ "health", "Degraded and unexpected", true },
		{ "environment", "Environment", true } };

	report_navigation(f, n, parts, DR_ARRAY_LEN(parts));
}

void report_sections(FILE *f, const json_t *doc, unsigned n)
{
	report_verdict(f, doc, "");
	line(f, doc);
	errors(f, doc);
	tiles(f, doc);
	navigation(f, doc, n);
	section_bandwidth(f, doc, n);
	section_matrix(f, doc, n);
	section_latency(f, doc, n);
	section_time(f, doc, n);
	section_health(f, doc, n);
	section_environment(f, doc, n);
	report_download(f, n);
}
