/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "orchestrator/output/fields.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/parts_testkit.h"

/* What write makes of the record; to be freed. */
static char *text_of(int (*write)(struct dr_record *, FILE *), struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_int_equal(write(rec, f), 0);
	fclose(f);
	return text;
}

static int write_json(struct dr_record *rec, FILE *f)
{
	json_t *doc = dr_record_to_json(rec);
	int rc = dr_json_write(doc, f, 2);

	json_decref(doc);
	return rc;
}

static int write_table(struct dr_record *rec, FILE *f)
{
	dr_table_header(rec, NULL, f);
	dr_table_print(rec, f);
	return 0;
}

/* The document as a reader gets it: printed, then parsed strictly. */
static json_t *parsed(struct dr_record *rec)
{
	char *text = text_of(write_json, rec);
	json_error_t e;
	json_t *doc = json_loads(text, JSON_REJECT_DUPLICATES, &e);

	assert_non_null(doc);
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, "inf\n"));
	free(text);
	return doc;
}

static const json_t *at(const json_t *doc, const char *a, const char *b)
{
	const json_t *v = json_object_get(json_object_get(doc, a), b);

	assert_non_null(v);
	return v;
}

static void check_keys(const json_t *doc)
{
	static const char *const keys[] = { "schema", "run_id", "status", "exit_code", "argv",
		"options", "versions", "host", "topology", "detection", "bandwidth", "nics",
		"total", "latency", "failover", "integrity", "intervals", "events", "errors" };
	static const char *const failover[] = { "faults", "gap_us", "false_failovers",
		"bandwidth_before_gbps", "bandwidth_during_gbps", "bandwidth_after_gbps" };
	size_t i;

	for (i = 0; i < DR_ARRAY_LEN(keys); i++)
		assert_non_null(json_object_get(doc, keys[i]));
	for (i = 0; i < DR_ARRAY_LEN(failover); i++)
		at(doc, "failover", failover[i]);
	assert_string_equal(json_string_value(json_object_get(doc, "schema")), "dualrail/1");
}

static void empty_record_is_a_document(void **state)
{
	struct dr_record *rec;
	json_t *doc;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	doc = parsed(rec);
	check_keys(doc);
	assert_true(json_is_null(json_object_get(doc, "status")));
	assert_true(json_is_null(json_object_get(doc, "exit_code")));
	assert_true(json_is_null(at(doc, "total", "gbps")));
	assert_true(json_is_null(at(doc, "failover", "false_failovers")));
	assert_int_equal(json_array_size(json_object_get(doc, "bandwidth")), 0);
	json_decref(doc);
	dr_record_errorf(rec, DR_EXIT_USAGE, "--size=64Q: no such unit");
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_USAGE);
	doc = parsed(rec);
	check_keys(doc);
	assert_int_equal(json_integer_value(json_object_get(doc, "exit_code")), 1);
	assert_int_equal(json_array_size(json_object_get(doc, "errors")), 1);
	json_decref(doc);
	dr_record_destroy(rec);
}

static void not_a_number_becomes_null(void **state)
{
	struct dr_record *rec;
	struct dr_bandwidth_row b;
	const json_t *row;
	json_t *doc;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	rec->cpu_percent_local = INFINITY;
	dr_fields_init(&dr_bandwidth_fields, &b);
	b.gpu = 0;
	b.bytes = 100;
	b.seconds = 0; /* no division */
	dr_record_add(rec, bandwidth, &b);
	doc = parsed(rec);
	row = json_array_get(json_object_get(doc, "bandwidth"), 0);
	assert_true(json_is_null(json_object_get(row, "gbps")));
	assert_true(json_is_null(json_object_get(row, "line_rate_percent")));
	assert_true(json_is_null(json_object_get(row, "direction")));
	assert_true(json_is_null(json_object_get(row, "messages")));
	assert_true(json_is_null(at(doc, "total", "cpu_percent_local")));
	json_decref(doc);
	dr_record_destroy(rec);
}

static void bytes_that_are_no_utf8_do_not_break_the_document(void **state)
{
	char *argv[] = { (char *)"dualrail", (char *)"--json=/tmp/\xff\xfe", (char *)"" };
	struct dr_record *rec;
	const json_t *a;
	json_t *doc;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	dr_record_set_argv(rec, 3, argv);
	dr_record_errorf(rec, DR_EXIT_ENV, "no such file: \xc3");
	doc = parsed(rec);
	a = json_object_get(doc, "argv");
	assert_int_equal(json_array_size(a), 3);
	assert_string_equal(json_string_value(json_array_get(a, 1)), "--json=/tmp/\?\?");
	assert_string_equal(json_string_value(json_array_get(a, 2)), "");
	json_decref(doc);
	dr_record_destroy(rec);
}

static void sample_document(void **state)
{
	struct dr_record *rec = sample_record();
	const json_t *b, *f;
	json_t *doc;

	(void)state;
	assert_non_null(rec);
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_PASS);
	doc = parsed(rec);
	check_keys(doc);
	b = json_object_get(doc, "bandwidth");
	assert_int_equal(json_array_size(b), SAMPLE_GPUS); /* the sender's rows were joined */
	b = json_array_get(b, 3);
	assert_float_equal(
		json_number_value(json_object_get(b, "gbps")), 29.55e9 * 8 / 5 / 1e9, 1e-9);
	assert_float_equal(
		json_number_value(json_object_get(b, "line_rate_percent")), 47.28 / 50 * 100, 1e-9);
	assert_int_equal(json_integer_value(json_object_get(b, "retransmits")), 17);
	assert_float_equal(json_number_value(at(doc, "total", "gbps")), 378.88, 1e-6);
	assert_float_equal(json_number_value(at(doc, "total", "line_rate_percent")), 94.72, 1e-6);
	f = json_array_get(at(doc, "failover", "faults"), 0);
	assert_string_equal(json_string_value(json_object_get(f, "verdict")), "PASS");
	assert_non_null(json_object_get(json_object_get(f, "sender"), "detect_us"));
	assert_int_equal(json_integer_value(json_object_get(f, "replayed_chunks")), 56);
	assert_int_equal(json_integer_value(json_object_get(f, "channels_affected")), 8);
	assert_int_equal(json_array_size(at(doc, "failover", "summary")), 2);
	json_decref(doc);
	dr_record_destroy(rec);
}

static void parts_add_up_to_the_gap(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_fault_row row;
	struct dr_switch_row sw;
	size_t i;

	(void)state;
	for (i = 0; i < rec->faults.n; i++) {
		const struct dr_fault_row *f = &rec->faults.v[i];

		assert_int_equal(f->detect_ns + f->fence_ns + f->handshake_ns + f->replay_ns +
					 f->first_delivery_ns,
			f->gap_ns);
		assert_true(f->gap_median_channel_ns <= f->gap_ns);
	}
	/* Times that were not reached or stand in the wrong order still add up. */
	dr_fields_init(&dr_switch_fields, &sw);
	sw.receiver = 1;
	sw.gpu = sw.channel = 0;
	memset(&sw.rec, 0, sizeof(sw.rec));
	sw.rec.last_delivery_ns = 1000;
	sw.rec.detect_ns = 5000;
	sw.rec.fenced_ns = 4000;
	sw.rec.first_frame_ns = 99999;
	sw.rec.first_delivery_ns = 9000;
	dr_fields_init(&dr_fault_fields, &row);
	assert_int_equal(dr_fault_row_from_switches(&row, &sw, 1, DR_UNSET, DR_UNSET, DR_UNSET), 1);
	assert_int_equal(row.gap_ns, 8000);
	assert_int_equal(row.detect_ns, 4000);
	assert_int_equal(row.fence_ns, 0);
	assert_int_equal(row.handshake_ns, 0);
	assert_int_equal(row.replay_ns, 4000);
	assert_int_equal(row.first_delivery_ns, 0);
	assert_int_equal(row.sender_detect_ns, DR_UNSET);
	/* A switch that never delivered has no gap. */
	sw.rec.first_delivery_ns = 0;
	dr_fields_init(&dr_fault_fields, &row);
	assert_int_equal(dr_fault_row_from_switches(&row, &sw, 1, 0, 0, 0), 0);
	assert_int_equal(row.gap_ns, DR_UNSET);
	assert_int_equal(dr_fault_row_from_switches(&row, NULL, 0, 0, 0, 0), 0);
	dr_record_destroy(rec);
}

static void senders_times_are_shifted(void **state)
{
	struct dr_record *rec = sample_record();
	const struct dr_fault_row *f = &rec->faults.v[0];

	(void)state;
	assert_int_equal(f->sender_detect_ns, f->detect_ns + 60000);
	assert_int_equal(f->sender_first_ack_ns, f->gap_ns + 40000);
	assert_true(f->fault_after_ns <= 1000);
	assert_string_equal(f->cause, "rail 1: 3 heartbeats of 10 ms missed");
	dr_record_destroy(rec);
}

static int cmp(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void gap_table(void **state)
{
	struct dr_record *rec = sample_record();
	const struct dr_gap_summary *g, *all = &rec->gap_all;
	int64_t v[SAMPLE_TRIALS];
	size_t i, n = 0;

	(void)state;
	dr_record_settle(rec);
	assert_int_equal(rec->gap_groups.n, 2);
	g = rec->gap_groups.v;
	assert_string_equal(g[0].kind, "link-down");
	assert_int_equal(g[0].side, DR_END_CLIENT);
	assert_int_equal(g[0].n, SAMPLE_TRIALS);
	assert_int_equal(g[0].hit, SAMPLE_TRIALS);
	assert_string_equal(g[1].kind, "blackhole");
	assert_int_equal(g[1].verdicts[DR_VERDICT_MISSED_FAULT], SAMPLE_TRIALS - g[1].hit);
	assert_int_equal(g[1].verdicts[DR_VERDICT_MISSED_FAULT], 3);
	assert_int_equal(g[1].gaps, g[1].hit);
	for (i = 0; i < rec->faults.n; i += 2)
		v[n++] = rec->faults.v[i].gap_ns;
	qsort(v, n, sizeof(*v), cmp);
	assert_int_equal(g[0].p50_ns, v[14]); /* nearest rank: ceil(0.5 * 30) */
	assert_int_equal(g[0].p90_ns, v[26]);
	assert_int_equal(g[0].p99_ns, v[29]);
	assert_int_equal(g[0].max_ns, v[29]);
	assert_float_equal(g[0].during_gbps, 24.1, 1e-12);
	assert_int_equal(all->n, 2 * SAMPLE_TRIALS);
	assert_int_equal(all->hit, 2 * SAMPLE_TRIALS - 3);
	dr_record_destroy(rec);
}

static void csv(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_nic_row nic;
	char *text, *line, *save = NULL;
	size_t columns = 0, lines = 0;

	(void)state;
	text = text_of(dr_csv_write, rec);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n = 1;
		const char *p;

		for (p = line; *p; p++)
			n += *p == ',';
		columns = columns ? columns : n;
		assert_int_equal(n, columns);
		assert_null(strstr(line, ", "));
		lines++;
	}
	assert_int_equal(lines, 1 + 8 + 1 + 8 + 2 + 60 + 1);
	free(text);
	dr_fields_init(&dr_nic_fields, &nic);
	snprintf(nic.name, sizeof(nic.name), "a,\"b\"\nc");
	dr_record_add(rec, nics, &nic);
	text = text_of(dr_csv_write, rec);
	assert_non_null(strstr(text, ",\"a,\"\"b\"\"\nc\","));
	assert_ptr_equal(strstr(text, "record,run_id,phase,gpu,"), text);
	assert_non_null(strstr(text, ",rtt_us_p50,"));
	assert_non_null(strstr(text, ",connections,counter_check,"));
	assert_non_null(strstr(text, ",64,ok,"));
	free(text);
	dr_record_destroy(rec);
}

/* Every line is a comment or NAME{LABELS} NUMBER; HELP and TYPE of a metric come once. */
static void check_prom(const char *text)
{
	char *copy = strdup(text), *line, *save = NULL;

	assert_int_equal(text[strlen(text) - 1], '\n');
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *end, name[80];

		if (!strncmp(line, "# TYPE ", 7)) {
			assert_int_equal(sscanf(line + 7, "%79s", name), 1);
			snprintf(name + strlen(name), 2, " ");
			end = strstr(text, line);
			assert_non_null(end);
			assert_null(strstr(end + 1, line));
			continue;
		}
		if (line[0] == '#')
			continue;
		assert_ptr_equal(strstr(line, "dualrail_"), line);
		end = strrchr(line, ' ');
		assert_non_null(end);
		assert_int_equal(end[-1], '}');
		strtod(end + 1, &end);
		assert_int_equal(*end, '\0');
	}
	free(copy);
}

static void prom(void **state)
{
	struct dr_record *rec = sample_record();
	char *text;

	(void)state;
	text = text_of(dr_prom_write, rec);
	check_prom(text);
	assert_null(strstr(text, "last_run"));
	assert_non_null(strstr(text, "dualrail_nic_tx_bytes{host=\"node-b\",side=\"client\","
				     "nic=\"eth1\"} 59000000000\n"));
	assert_non_null(strstr(text, "dualrail_nic_connections{host=\"node-b\",side=\"server\","
				     "nic=\"eth2\"} 65\n"));
	assert_non_null(strstr(text,
		"dualrail_bandwidth_bytes_per_second{host=\"node-b\",phase=\"0\",gpu=\"0\","
		"direction=\"to-server\",message_bytes=\"67108864\"} "
		"5850000000\n"));
	assert_non_null(strstr(text, "dualrail_latency_seconds{host=\"node-b\",gpu=\"0\","
				     "message_bytes=\"64\",quantile=\"0.5\"} 9.4e-06\n"));
	assert_non_null(strstr(text, "dualrail_round_trip_seconds_bucket{host=\"node-b\",gpu=\"0\","
				     "message_bytes=\"64\",le=\"8.192e-06\"} 0\n"));
	assert_non_null(strstr(text, "message_bytes=\"64\",le=\"1.6384e-05\"} 199999\n"));
	assert_non_null(strstr(text, "message_bytes=\"64\",le=\"17.179869184\"} 199999\n"));
	assert_non_null(strstr(text, "message_bytes=\"64\",le=\"+Inf\"} 200000\n"));
	assert_non_null(strstr(text, "dualrail_path_up{host=\"node-b\",gpu=\"7\",path=\"1\"} 0\n"));
	assert_non_null(strstr(text, "dualrail_switchover_seconds_count{host=\"node-b\","
				     "kind=\"link-down\",side=\"client\",dir=\"\"} 30\n"));
	assert_non_null(strstr(text, "dualrail_switchover_seconds_count{host=\"node-b\","
				     "kind=\"blackhole\",side=\"server\",dir=\"out\"} 27\n"));
	free(text);
	dr_record_verdict(rec, NULL);
	snprintf(rec->peer_host.name, sizeof(rec->peer_host.name), "a\"b\\c\nd");
	text = text_of(dr_prom_write, rec);
	check_prom(text);
	assert_non_null(strstr(text, "dualrail_last_run_success{host=\"a\\\"b\\\\c\\nd\"} 1\n"));
	free(text);
	dr_record_destroy(rec);
	assert_int_equal(dr_record_create(&rec), 0);
	text = text_of(dr_prom_write, rec);
	check_prom(text);
	free(text);
	dr_record_destroy(rec);
}

/* What the textfile collector reads has no rows of the process; the page of --metrics-listen has them. */
static void prom_of_files(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_prom_labels labels = { 1, { { "rack", "b7" } } };
	char *text;

	(void)state;
	rec->live_process.active = 1;
	snprintf(rec->target, sizeof(rec->target), "node1:20008");
	snprintf(rec->tests, sizeof(rec->tests), "bw,lat");
	rec->labels = &labels;
	dr_record_reason(dr_record_errorf(rec, DR_EXIT_PEER, "busy"), DR_REASON_BUSY);
	dr_record_verdict(rec, NULL);
	text = text_of(dr_prom_write, rec);
	check_prom(text);
	assert_null(strstr(text, "session_active"));
	assert_non_null(
		strstr(text, "dualrail_last_run_exit_code{host=\"node1:20008\",test=\"bw,lat\","
			     "rack=\"b7\",reason=\"busy\"} 3\n"));
	assert_non_null(
		strstr(text, "dualrail_info{host=\"node1:20008\",test=\"bw,lat\",rack=\"b7\","
			     "peer=\"node-b\","));
	assert_non_null(strstr(text, "dualrail_last_run_duration_seconds{"));
	free(text);
	text = text_of(dr_prom_write_live, rec);
	check_prom(text);
	assert_non_null(strstr(text, "dualrail_session_active{rack=\"b7\"} 1\n"));
	free(text);
	dr_record_destroy(rec);
}

/* The span of that name in the trace; NULL: none. */
static const json_t *span_named(const json_t *trace, size_t end, const char *name)
{
	const json_t *r = json_array_get(json_object_get(trace, "resourceSpans"), end),
		     *scope = json_array_get(json_object_get(r, "scopeSpans"), 0), *s;
	size_t i;

	json_array_foreach(json_object_get(scope, "spans"), i,
		s) if (!strcmp(json_string_value(json_object_get(s, "name")), name)) return s;
	return NULL;
}

static int64_t span_time(const json_t *span, const char *key)
{
	return strtoll(json_string_value(json_object_get(span, key)), NULL, 10);
}

enum { OFFSET = 5000000, LATE = 1000 };

/* A run with a switch at the peer, LATE after the begin of its phase. */
static struct dr_record *traced_record(void)
{
	struct dr_record *rec;
	struct dr_switch_row s;

	assert_int_equal(dr_record_create(&rec), 0);
	rec->side = DR_END_CLIENT;
	rec->session_ns = rec->start_ns;
	rec->clock_offset_ns = OFFSET;
	int64_t peer = rec->start_ns + OFFSET;
	struct dr_phase_row p = {
		.side = DR_END_SERVER, .begin_ns = peer, .end_ns = peer + 9 * LATE
	};
	dr_record_add(rec, phases, &p);
	dr_record_add(rec, channels,
		&((struct dr_channel_row){
			.side = DR_END_SERVER, .begin_ns = peer, .connected_ns = peer }));
	dr_fields_init(&dr_switch_fields, &s);
	s.side = DR_END_SERVER;
	s.gpu = s.channel = 0;
	s.rec = (struct dr_switch_record){ .epoch = 1, .detect_ns = peer + LATE };
	s.rec.first_delivery_ns = peer + 3 * LATE;
	dr_record_add(rec, switches, &s);
	dr_record_verdict(rec, NULL);
	return rec;
}

static json_t *trace_of(struct dr_record *rec)
{
	char *text = text_of(dr_trace_write, rec);
	json_t *doc = json_loads(text, 0, NULL);

	assert_non_null(doc);
	free(text);
	return doc;
}

static void trace_has_one_clock(void **state)
{
	struct dr_record *rec = traced_record();
	json_t *t = trace_of(rec);
	const json_t *phase = span_named(t, 1, "phase bw"), *s = span_named(t, 1, "failover");

	(void)state;
	assert_int_equal(span_time(phase, "startTimeUnixNano"), rec->start_wall_ns);
	assert_int_equal(span_time(s, "startTimeUnixNano"), rec->start_wall_ns + LATE);
	assert_int_equal(span_time(s, "endTimeUnixNano"), rec->start_wall_ns + 3 * LATE);
	assert_string_equal(json_string_value(json_object_get(s, "parentSpanId")),
		json_string_value(json_object_get(span_named(t, 1, "channel"), "spanId")));
	json_decref(t);
	/* Without the offset there is nothing to put the peer's times in. */
	rec->clock_offset_ns = DR_UNSET;
	t = trace_of(rec);
	assert_int_equal(json_array_size(json_object_get(t, "resourceSpans")), 1);
	json_decref(t);
	dr_record_destroy(rec);
}

/* Numbers of the peer that are no times: every span still ends after its begin, within its parent. */
static void trace_of_a_hostile_peer(void **state)
{
	const int64_t bad[] = { INT64_MAX, INT64_MIN + 1, -1, 0 };
	struct dr_record *rec = traced_record();

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		rec->phases.v[0].begin_ns = rec->channels.v[0].connected_ns = bad[i];
		rec->switches.v[0].rec.first_delivery_ns = rec->switches.v[0].gap_ns = bad[i];
		rec->switches.v[0].trial = bad[i];
		json_t *t = trace_of(rec);
		const json_t *run = span_named(t, 1, "dualrail server"),
			     *s = span_named(t, 1, "failover");
		assert_true(
			span_time(s, "startTimeUnixNano") >= span_time(run, "startTimeUnixNano"));
		assert_true(span_time(s, "endTimeUnixNano") >= span_time(s, "startTimeUnixNano"));
		assert_true(span_time(run, "endTimeUnixNano") >= span_time(s, "endTimeUnixNano"));
		json_decref(t);
	}
	dr_record_destroy(rec);
}

static void tables_fit(void **state)
{
	struct dr_record *rec = sample_record();
	char *text, *line, *save = NULL;

	(void)state;
	dr_record_verdict(rec, NULL);
	text = text_of(write_table, rec);
	assert_non_null(strstr(text, "lost 0, duplicated 0, reordered 0, corrupted 0"));
	assert_non_null(strstr(text, "DIFFERS"));
	assert_non_null(strstr(text, "\n  blackhole out server"));
	assert_non_null(strstr(text, "p99 of fewer than 100 trials is their maximum"));
	assert_null(strstr(text, "later than the bound"));
	assert_non_null(strstr(text, "PASS (exit status 0)"));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		assert_true(strlen(line) <= 100);
	free(text);
	rec->detection.bound_ns = 1;
	text = text_of(write_table, rec);
	assert_non_null(
		strstr(text, "60 of 60 trials were detected later than the bound (at worst "));
	free(text);
	for (size_t i = 0; i < rec->faults.n; i++)
		rec->faults.v[i].verdict = i ? DR_VERDICT_INCOMPLETE : DR_VERDICT_PASS;
	text = text_of(write_table, rec);
	assert_non_null(
		strstr(text, "Result: 1 of 60 trials passed, 59 did not finish; longest gap "));
	assert_int_equal(rec->gap_all.gaps, 1);
	free(text);
	rec->faults.v[0].verdict = DR_VERDICT_CLEAN_ERROR;
	rec->faults.v[0].gap_ns = DR_UNSET;
	rec->faults.v[0].error_after_ns = 1500000000;
	text = text_of(write_table, rec);
	assert_non_null(strstr(text, "; no delivery for"));
	assert_null(strstr(text, "longest gap"));
	assert_int_equal(rec->gap_all.gaps, 0);
	free(text);
	dr_record_destroy(rec);
	assert_int_equal(dr_record_create(&rec), 0);
	text = text_of(write_table, rec);
	assert_null(strstr(text, "nan"));
	free(text);
	dr_record_destroy(rec);
}

/* The counters of a latency test are headers and heartbeats. */
static void round_trips_alone_have_no_table_of_nics(void **state)
{
	struct dr_record *rec = sample_record();
	char *text;

	(void)state;
	rec->bandwidth.n = rec->faults.n = 0;
	rec->false_failovers = DR_UNSET;
	text = text_of(write_table, rec);
	assert_non_null(strstr(text, "Latency: "));
	assert_non_null(strstr(text, "    1  mlx5_1                64 B     200000"));
	assert_null(strstr(text, "NICs during the whole run"));
	free(text);
	dr_record_destroy(rec);
}

/* What the server measured comes to the client and is joined there. */
static void merge(void **state)
{
	struct dr_integrity_row in = { 10, 100, 0, 1, 0, 0, 0 };
	struct dr_record *server, *client, *whole = sample_record();
	struct dr_record_mark mark = { 0 };
	struct dr_bandwidth_row b;
	struct dr_err e;
	json_t *part;
	char *text;

	(void)state;
	assert_int_equal(dr_record_create(&server), 0);
	assert_int_equal(dr_record_create(&client), 0);
	server->side = DR_END_SERVER;
	client->side = DR_END_CLIENT;
	dr_fields_init(&dr_bandwidth_fields, &b);
	b.phase = 0;
	b.gpu = 5;
	b.direction = DR_TO_SERVER;
	b.bytes = 1000000000;
	b.seconds = 2;
	dr_record_add(server, bandwidth, &b);
	dr_record_add(server, switches, &whole->switches.v[0]);
	dr_integrity_add(&server->integrity, &in);
	dr_record_errorf(server, DR_EXIT_PEER, "the client went away");
	server->cpu_percent_local = 55.5;
	dr_fields_init(&dr_bandwidth_fields, &b);
	b.phase = 0;
	b.gpu = 5;
	b.direction = DR_TO_SERVER;
	b.sender_bytes = 1100000000;
	b.sender_seconds = 2;
	dr_record_add(client, bandwidth, &b);

	/* Through text, as over the control connection. */
	part = dr_record_part(server, &mark);
	text = json_dumps(part, JSON_COMPACT | JSON_REAL_PRECISION(15));
	json_decref(part);
	part = json_loads(text, 0, NULL);
	free(text);
	assert_int_equal(dr_record_merge(client, part, &e), 0);
	json_decref(part);
	assert_int_equal(client->bandwidth.n, 1);
	assert_float_equal(client->bandwidth.v[0].gbps, 4.0, 1e-12);
	assert_float_equal(client->bandwidth.v[0].sender_gbps, 4.4, 1e-12);
	assert_int_equal(client->switches.n, 1);
	assert_memory_equal(&client->switches.v[0].rec.last_delivery_ns,
		&whole->switches.v[0].rec.last_delivery_ns, 6 * sizeof(int64_t));
	assert_string_equal(client->switches.v[0].rec.cause, whole->switches.v[0].rec.cause);
	assert_int_equal(client->switches.v[0].rec.err, -110);
	assert_int_equal(client->switches.v[0].rec.scope, DR_SCOPE_RAIL);
	assert_float_equal(client->cpu_percent_peer, 55.5, 1e-12);
	assert_int_equal(client->errors.n, 0);
	assert_int_equal(client->events.n, 1);
	assert_string_equal(client->events.v[0].kind, "peer-error");
	assert_int_equal(client->events.v[0].side, DR_END_SERVER);

	/* The next part holds only what is new, and the newest sums; nothing counts twice. */
	dr_record_add(server, switches, &whole->switches.v[2]);
	dr_integrity_add(&server->integrity, &in);
	part = dr_record_part(server, &mark);
	assert_int_equal(json_array_size(json_object_get(part, "switches")), 1);
	assert_int_equal(dr_record_merge(client, part, &e), 0);
	json_decref(part);
	assert_int_equal(client->switches.n, 2);
	assert_int_equal(client->bandwidth.n, 1);
	assert_int_equal(client->events.n, 1);
	dr_record_settle(client);
	assert_int_equal(client->integrity_total.chunks, 20);
	assert_int_equal(client->integrity_total.duplicated, 2);
	assert_int_equal(dr_record_verdict(client, NULL), DR_EXIT_DATA);
	dr_record_destroy(server);
	dr_record_destroy(client);
	dr_record_destroy(whole);
}

static void bad_parts_are_refused(void **state)
{
	static const char *const bad[] = { "[]", "{}", "{\"schema\":\"dualrail-part/2\"}",
		"{\"schema\":\"dualrail-part/1\"}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{\"lost\":-1}}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},\"nics\":7}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},\"nics\":[7]}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},\"nics\":[{\"side\":3}]}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},"
		"\"latency\":[{\"rtt_us\":{\"p50\":1e300}}]}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},"
		"\"bandwidth\":[{\"gpu\":\"x\"}]}",
		"{\"schema\":\"dualrail-part/1\",\"host\":{},\"integrity\":{},"
		"\"switches\":[{\"epoch\":4294967296}]}" };
	struct dr_record *rec;
	struct dr_err e;
	size_t i;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	for (i = 0; i < DR_ARRAY_LEN(bad); i++) {
		json_t *part = json_loads(bad[i], 0, NULL);

		assert_non_null(part);
		assert_int_equal(dr_record_merge(rec, part, &e), -EPROTO);
		assert_non_null(strstr(e.text, "peer's part"));
		json_decref(part);
	}
	dr_record_destroy(rec);
}

/* Whatever allocation fails, there is no crash and no leak, and what comes out is whole or nothing. */
static void no_memory(void **state)
{
	long k;

	(void)state;
	for (k = 1; k < 400; k += k < 60 ? 1 : 17) {
		struct dr_record *rec;
		char *text = NULL;
		size_t len;
		FILE *f;
		json_t *doc;

		dr_mem_fail_after(k);
		rec = sample_record();
		if (!rec)
			continue;
		dr_record_verdict(rec, NULL);
		dr_mem_fail_after(-1);
		doc = parsed(rec);
		check_keys(doc);
		json_decref(doc);
		if (rec->rows_lost)
			assert_int_equal(rec->exit_code, DR_EXIT_ENV);
		dr_mem_fail_after(k);
		f = open_memstream(&text, &len);
		dr_table_print(rec, f);
		dr_csv_write(rec, f);
		fclose(f);
		free(text);
		dr_mem_fail_after(-1);
		dr_record_destroy(rec);
	}
	dr_mem_fail_after(-1);
}

static void reset_for_the_next_client(void **state)
{
	struct dr_record *rec = sample_record();
	char id[40];
	json_t *doc;

	(void)state;
	memcpy(id, rec->run_id, sizeof(id));
	dr_record_errorf(rec, DR_EXIT_PEER, "the client went away");
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_PEER);
	dr_record_reset(rec);
	assert_string_not_equal(id, rec->run_id);
	assert_int_equal(rec->bandwidth.n + rec->errors.n + rec->faults.n, 0);
	assert_int_equal(rec->rails.n, SAMPLE_RAILS);
	assert_int_equal(rec->exit_code, -1);
	doc = parsed(rec);
	check_keys(doc);
	json_decref(doc);
	dr_record_destroy(rec);
}

static int print_sample(void)
{
	struct dr_record *rec = sample_record();
	struct dr_thresholds t;

	dr_thresholds_init(&t);
	t.min_bw_percent = 95;
	dr_record_verdict(rec, &t);
	dr_table_header(rec, NULL, stdout);
	dr_table_interval(&rec->intervals.v[0], true, stdout);
	dr_table_fault(&rec->faults.v[0], true, stdout);
	dr_table_print(rec, stdout);
	puts("\n---- prom");
	dr_prom_write(rec, stdout);
	dr_record_destroy(rec);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_record_is_a_document),
		cmocka_unit_test(not_a_number_becomes_null),
		cmocka_unit_test(bytes_that_are_no_utf8_do_not_break_the_document),
		cmocka_unit_test(sample_document),
		cmocka_unit_test(parts_add_up_to_the_gap),
		cmocka_unit_test(senders_times_are_shifted),
		cmocka_unit_test(gap_table),
		cmocka_unit_test(csv),
		cmocka_unit_test(prom),
		cmocka_unit_test(prom_of_files),
		cmocka_unit_test(trace_has_one_clock),
		cmocka_unit_test(trace_of_a_hostile_peer),
		cmocka_unit_test(tables_fit),
		cmocka_unit_test(round_trips_alone_have_no_table_of_nics),
		cmocka_unit_test(merge),
		cmocka_unit_test(bad_parts_are_refused),
		cmocka_unit_test(no_memory),
		cmocka_unit_test(reset_for_the_next_client),
	};

	if (argc > 1 && !strcmp(argv[1], "--print"))
		return print_sample();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
