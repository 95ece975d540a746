/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "orchestrator/report/report.h"

/* The table is cut out of the result document, so that both say the same. */
static const char *const columns[] = { "phase", "trial", "side", "gpu", "channel", "rail", "name",
	"kind", "path", "nic", "peer_nic", "direction", "message_bytes", "bytes", "seconds", "gbps",
	"line_rate_percent", "messages", "retransmits", "sender_bytes", "sender_seconds",
	"sender_gbps", "to_server_gbps", "to_client_gbps", "line_gbps", "cpu_percent_local",
	"cpu_percent_peer", "speed_gbps", "tx_bytes", "rx_bytes", "counter_tx_bytes",
	"counter_rx_bytes", "counter_check", "connections", "client_counter_bytes",
	"server_counter_bytes", "channels", "switched", "alone_gbps", "together_gbps",
	"share_percent", "finding", "samples", "rtt_us.p50", "rtt_us.p90", "rtt_us.p99",
	"rtt_us.p999", "rtt_us.max", "start_us", "duration_us", "channels_affected", "gap_us",
	"gap_us_median_channel", "cadence_us.p50", "cadence_us.p99", "detect_us", "fence_us",
	"handshake_us", "replay_us", "first_delivery_us", "fault_after_us", "in_flight_messages",
	"replayed_messages", "replayed_bytes", "rounds", "failback_us", "failback_gap_us",
	"bandwidth_before_gbps", "bandwidth_during_gbps", "bandwidth_after_gbps", "verdict",
	"cause" };

static void put_text(const char *s, FILE *f)
{
	if (!strpbrk(s, ",\"\r\n")) {
		fputs(s, f);
		return;
	}
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', f);
		fputc(*s, f);
	}
	fputc('"', f);
}

static const json_t *find(const json_t *obj, const char *name)
{
	const char *dot = strchr(name, '.');
	char outer[32];

	if (!dot)
		return json_object_get(obj, name);
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
	return json_object_get(json_object_get(obj, outer), dot + 1);
}

static void put_row(const char *kind, const char *run_id, const json_t *row, FILE *f)
{
	size_t i;

	put_text(kind, f);
	fputc(',', f);
	put_text(run_id, f);
	for (i = 0; i < DR_ARRAY_LEN(columns); i++) {
		const json_t *v = find(row, columns[i]);

		/* In latency rows the message size is called bytes. */
		if (!strcmp(kind, "latency") && !strcmp(columns[i], "message_bytes"))
			v = json_object_get(row, "bytes");
		else if (!strcmp(kind, "latency") && !strcmp(columns[i], "bytes"))
			v = NULL;
		fputc(',', f);
		if (json_is_string(v))
			put_text(json_string_value(v), f);
		else if (json_is_integer(v))
			fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		else if (json_is_real(v))
			fprintf(f, "%.15g", json_real_value(v));
	}
	fputc('\n', f);
}

static void put_rows(const char *kind, const json_t *doc, const json_t *rows, FILE *f)
{
	const char *run_id = json_string_value(json_object_get(doc, "run_id"));
	size_t i;

	for (i = 0; i < json_array_size(rows); i++)
		put_row(kind, run_id ? run_id : "", json_array_get(rows, i), f);
}

int dr_csv_write(const struct dr_record *rec, FILE *f)
{
	json_t *doc = dr_record_to_json(rec);
	const json_t *total;
	size_t i;

	if (!doc)
		return -ENOMEM;
	fputs("record,run_id", f);
	for (i = 0; i < DR_ARRAY_LEN(columns); i++) {
		const char *p;

		fputc(',', f);
		for (p = columns[i]; *p; p++)
			fputc(*p == '.' ? '_' : *p, f);
	}
	fputc('\n', f);
	put_rows("bandwidth", doc, json_object_get(doc, "bandwidth"), f);
	total = json_object_get(doc, "total");
	if (json_is_number(json_object_get(total, "gbps")))
		put_row("total", rec->run_id, total, f);
	put_rows("cell", doc, json_object_get(json_object_get(doc, "matrix"), "cells"), f);
	put_rows("matrix-nic", doc, json_object_get(json_object_get(doc, "matrix"), "nics"), f);
	put_rows("nic", doc, json_object_get(doc, "nics"), f);
	put_rows("latency", doc, json_object_get(doc, "latency"), f);
	put_rows("fault", doc, json_object_get(json_object_get(doc, "failover"), "faults"), f);
	put_rows("interval", doc, json_object_get(doc, "intervals"), f);
	json_decref(doc);
	return 0;
}
