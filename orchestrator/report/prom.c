/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "orchestrator/report/fields.h"
#include "orchestrator/report/report.h"

/*
 * A metric's HELP and TYPE come before its first sample and once a file, so each family is written
 * in one go; a family without samples is left out.
 */
struct writer {
	FILE *f;
	const char *peer;
	const char *name, *type, *help; /* of the family */
	bool open;			/* HELP and TYPE are written */
};

static void put_escaped(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '\\' || *s == '"')
			fputc('\\', f);
		if (*s == '\n')
			fputs("\\n", f);
		else
			fputc(*s, f);
	}
}

static void family(struct writer *w, const char *name, const char *type, const char *help)
{
	w->name = name;
	w->type = type;
	w->help = help;
	w->open = false;
}

/*
 * One sample of the family, suffix ("", "_sum", "_count") after its name. Labels come as pairs name,
 * value up to a NULL name. A value that is not finite is left out.
 */
static void sample(struct writer *w, const char *suffix, double value, ...)
{
	const char *label;
	va_list ap;

	if (!isfinite(value))
		return;
	if (!w->open)
		fprintf(w->f, "# HELP dualrail_%s %s\n# TYPE dualrail_%s %s\n", w->name, w->help,
			w->name, w->type);
	w->open = true;
	fprintf(w->f, "dualrail_%s%s{peer=\"", w->name, suffix);
	put_escaped(w->f, w->peer);
	fputc('"', w->f);
	va_start(ap, value);
	while ((label = va_arg(ap, const char *))) {
		fprintf(w->f, ",%s=\"", label);
		put_escaped(w->f, va_arg(ap, const char *));
		fputc('"', w->f);
	}
	va_end(ap);
	fprintf(w->f, "} %.15g\n", value);
}
#define NONE ((const char *)NULL)

struct num {
	char s[24];
};

static struct num num(int64_t v)
{
	struct num n = { "" };

	if (v != DR_UNSET)
		snprintf(n.s, sizeof(n.s), "%" PRId64, v);
	return n;
}

static double known(int64_t v)
{
	return v == DR_UNSET ? NAN : (double)v;
}

static double seconds(int64_t ns)
{
	return known(ns) / 1e9;
}

static const char *side_name(int side)
{
	return side < 0 ? "" : dr_enum_name(dr_end_names, side);
}

static const char *direction_name(int direction)
{
	return direction < 0 ? "" : dr_enum_name(dr_direction_names, direction);
}

static void write_bandwidth(struct writer *w, const struct dr_record *rec)
{
	struct dr_total t;
	size_t i;

	family(w, "bandwidth_bytes_per_second", "gauge",
		"Payload per second that arrived for this GPU, on the receiver's clock.");
	for (i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];

		sample(w, "", r->gbps * 1e9 / 8, "gpu", num(r->gpu).s, "direction",
			direction_name(r->direction), "message_bytes", num(r->message_bytes).s,
			"phase", num(r->phase).s, NONE);
	}
	dr_record_total(rec, &t);
	family(w, "total_bandwidth_bytes_per_second", "gauge",
		"Sum over GPUs of the payload per second, of the best phase.");
	sample(w, "", t.to_server_gbps * 1e9 / 8, "direction", "to-server", NONE);
	sample(w, "", t.to_client_gbps * 1e9 / 8, "direction", "to-client", NONE);
	family(w, "retransmits_total", "counter",
		"Retransmissions of kernel or NIC at the sender.");
	for (i = 0; i < rec->bandwidth.n; i++) {
		const struct dr_bandwidth_row *r = &rec->bandwidth.v[i];

		sample(w, "", known(r->retransmits), "gpu", num(r->gpu).s, "direction",
			direction_name(r->direction), "message_bytes", num(r->message_bytes).s,
			"phase", num(r->phase).s, NONE);
	}
}

static void write_nic_family(struct writer *w, const struct dr_record *rec, const char *name,
	const char *help, size_t off)
{
	size_t i;

	family(w, name, "counter", help);
	for (i = 0; i < rec->nics.n; i++) {
		const struct dr_nic_row *r = &rec->nics.v[i];

		sample(w, "", known(*(const int64_t *)((const char *)r + off)), "side",
			side_name(r->side), "nic", r->name, NONE);
	}
}

static void write_nics(struct writer *w, const struct dr_record *rec)
{
	size_t i;

	write_nic_family(w, rec, "nic_tx_bytes_total",
		"Payload sent over this NIC, replays included.",
		offsetof(struct dr_nic_row, tx_bytes));
	write_nic_family(w, rec, "nic_rx_bytes_total", "Payload received over this NIC.",
		offsetof(struct dr_nic_row, rx_bytes));
	write_nic_family(w, rec, "nic_counter_tx_bytes_total",
		"What the interface's own counter grew by, sending.",
		offsetof(struct dr_nic_row, counter_tx_bytes));
	write_nic_family(w, rec, "nic_counter_rx_bytes_total",
		"What the interface's own counter grew by, receiving.",
		offsetof(struct dr_nic_row, counter_rx_bytes));
	write_nic_family(w, rec, "nic_connections_total",
		"Paths that came up over this NIC, rebuilds included.",
		offsetof(struct dr_nic_row, connections));
	family(w, "nic_speed_bytes_per_second", "gauge", "Speed of the NIC as it states it.");
	for (i = 0; i < rec->nics.n; i++)
		sample(w, "", rec->nics.v[i].speed_gbps * 1e9 / 8, "side",
			side_name(rec->nics.v[i].side), "nic", rec->nics.v[i].name, NONE);
}

static void write_latency(struct writer *w, const struct dr_record *rec)
{
	size_t i, k;

	family(w, "latency_seconds", "summary",
		"Round trip of one message; quantile 1 is the maximum.");
	for (i = 0; i < rec->latency.n; i++) {
		const struct dr_latency_row *r = &rec->latency.v[i];
		const char *q[] = { "0.5", "0.9", "0.99", "0.999", "1" };
		int64_t v[] = { r->p50_ns, r->p90_ns, r->p99_ns, r->p999_ns, r->max_ns };

		for (k = 0; k < DR_ARRAY_LEN(q); k++)
			sample(w, "", seconds(v[k]), "gpu", num(r->gpu).s, "message_bytes",
				num(r->bytes).s, "quantile", q[k], NONE);
		sample(w, "_count", known(r->samples), "gpu", num(r->gpu).s, "message_bytes",
			num(r->bytes).s, NONE);
	}
}

#define GROUPS_MAX 64

static void write_failover(struct writer *w, const struct dr_record *rec)
{
	struct dr_gap_summary g[GROUPS_MAX];
	size_t i, k, n = DR_MIN(dr_record_gap_summary(rec, g, GROUPS_MAX), (size_t)GROUPS_MAX);

	family(w, "switchover_seconds", "summary",
		"Gap between deliveries around a fault, worst channel; quantile 1 is the maximum.");
	for (i = 0; i < n; i++) {
		const char *q[] = { "0.5", "0.9", "0.99", "1" };
		int64_t v[] = { g[i].p50_ns, g[i].p90_ns, g[i].p99_ns, g[i].max_ns };

		for (k = 0; k < DR_ARRAY_LEN(q); k++)
			sample(w, "", seconds(v[k]), "kind", g[i].kind, "side",
				side_name(g[i].side), "quantile", q[k], NONE);
		sample(w, "_sum", seconds(g[i].sum_ns), "kind", g[i].kind, "side",
			side_name(g[i].side), NONE);
		sample(w, "_count", (double)g[i].gaps, "kind", g[i].kind, "side",
			side_name(g[i].side), NONE);
	}
	family(w, "switchover_part_seconds", "gauge", "Median of each part of the gap.");
	for (i = 0; i < n; i++) {
		const char *part[] = { "detect", "fence", "handshake", "replay", "first_delivery" };
		int64_t v[] = { g[i].detect_ns, g[i].fence_ns, g[i].handshake_ns, g[i].replay_ns,
			g[i].first_delivery_ns };

		for (k = 0; k < DR_ARRAY_LEN(part); k++)
			sample(w, "", seconds(v[k]), "kind", g[i].kind, "side",
				side_name(g[i].side), "part", part[k], NONE);
	}
	family(w, "fault_trials_total", "counter", "Faults injected, by outcome.");
	for (i = 0; i < n; i++)
		for (k = 0; dr_verdict_names[k]; k++)
			sample(w, "", (double)g[i].verdicts[k], "kind", g[i].kind, "side",
				side_name(g[i].side), "verdict", dr_verdict_names[k], NONE);
	family(w, "false_failovers_total", "counter", "Switches while the active path forwarded.");
	sample(w, "", known(rec->false_failovers), NONE);
	family(w, "detection_bound_seconds", "gauge",
		"Bound of detection computed from the options.");
	sample(w, "", seconds(rec->detection.bound_ns), "mode", rec->detection.mode, NONE);
}

static void write_integrity(struct writer *w, const struct dr_record *rec)
{
	struct dr_integrity_row i;

	dr_record_integrity_total(rec, &i);
	family(w, "messages_total", "counter", "Messages that the receivers took in.");
	sample(w, "", known(i.messages), NONE);
	family(w, "messages_wrong_total", "counter", "Messages that were not as sent.");
	sample(w, "", known(i.lost), "reason", "lost", NONE);
	sample(w, "", known(i.duplicated), "reason", "duplicated", NONE);
	sample(w, "", known(i.reordered), "reason", "reordered", NONE);
	sample(w, "", known(i.corrupted), "reason", "corrupted", NONE);
}

static void write_paths(struct writer *w, const struct dr_record *rec)
{
	size_t i;

	family(w, "path_up", "gauge", "1: all channels of the GPU have this path up.");
	for (i = 0; i < rec->paths.n; i++)
		sample(w, "", rec->paths.v[i].up >= rec->paths.v[i].channels, "gpu",
			num(rec->paths.v[i].gpu).s, "path", num(rec->paths.v[i].path).s, NONE);
	family(w, "path_channels_up", "gauge", "Channels of the GPU that have this path up.");
	for (i = 0; i < rec->paths.n; i++)
		sample(w, "", known(rec->paths.v[i].up), "gpu", num(rec->paths.v[i].gpu).s, "path",
			num(rec->paths.v[i].path).s, NONE);
}

static void write_run(struct writer *w, const struct dr_record *rec)
{
	family(w, "info", "gauge", "What ran; always 1.");
	sample(w, "", 1, "version", rec->version, "peer_version", rec->peer_version, "side",
		side_name(rec->side), "transport", rec->detection.transport, "detect",
		rec->detection.mode, NONE);
	family(w, "cpu_cores", "gauge", "CPU used during the measurement, in cores.");
	sample(w, "", rec->cpu_percent_local / 100, "end", "local", NONE);
	sample(w, "", rec->cpu_percent_peer / 100, "end", "peer", NONE);
	if (rec->exit_code < 0)
		return;
	family(w, "last_run_success", "gauge", "1: the last run passed.");
	sample(w, "", rec->exit_code == DR_EXIT_PASS, NONE);
	family(w, "last_run_exit_code", "gauge", "Exit status of the last run.");
	sample(w, "", rec->exit_code, NONE);
	family(w, "last_run_timestamp_seconds", "gauge", "When the last run began, since 1970.");
	sample(w, "", (double)rec->start_wall_ns / 1e9, NONE);
}

int dr_prom_write(const struct dr_record *rec, FILE *f)
{
	struct writer w = { .f = f, .peer = rec->peer_host.name };

	write_run(&w, rec);
	write_bandwidth(&w, rec);
	write_nics(&w, rec);
	write_latency(&w, rec);
	write_failover(&w, rec);
	write_integrity(&w, rec);
	write_paths(&w, rec);
	return ferror(f) ? -EIO : 0;
}
