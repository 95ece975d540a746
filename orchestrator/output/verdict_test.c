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

#include "orchestrator/output/parts.h"
#include "orchestrator/output/parts_testkit.h"

static bool told(const struct dr_record *rec, const char *what)
{
	size_t i;

	for (i = 0; i < rec->errors.n; i++)
		if (strstr(rec->errors.v[i].text, what))
			return true;
	return false;
}

static void order_of_exit_statuses(void **state)
{
	/* Each row: what happened; what the run ends with. */
	static const struct {
		int errors[4], exit, status;
	} rows[] = {
		{ { 0 }, 0, DR_STATUS_PASS },
		{ { 8 }, 8, DR_STATUS_FAIL },
		{ { 8, 7 }, 7, DR_STATUS_FAIL },
		{ { 7, 8, 6 }, 6, DR_STATUS_FAIL },
		{ { 6, 5 }, 5, DR_STATUS_ERROR },
		{ { 5, 4 }, 4, DR_STATUS_ERROR },
		{ { 4, 3, 6 }, 3, DR_STATUS_ERROR },
		{ { 3, 2 }, 2, DR_STATUS_ERROR },
		{ { 2, 1 }, 1, DR_STATUS_ERROR },
		{ { 1, 130, 2 }, 130, DR_STATUS_ERROR },
		{ { 143, 3 }, 143, DR_STATUS_ERROR },
	};
	size_t i, k;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(rows); i++) {
		struct dr_record *rec;

		assert_int_equal(dr_record_create(&rec), 0);
		for (k = 0; k < 4 && rows[i].errors[k]; k++)
			dr_record_errorf(rec, rows[i].errors[k], "error %zu", k);
		assert_int_equal(dr_record_verdict(rec, NULL), rows[i].exit);
		assert_int_equal(rec->exit_code, rows[i].exit);
		assert_int_equal(rec->status, rows[i].status);
		dr_record_destroy(rec);
	}
}

static void data_and_trials(void **state)
{
	static const struct {
		enum dr_verdict verdict;
		int trials, exit;
	} rows[] = {
		{ DR_VERDICT_WRONG, 1, DR_EXIT_DATA },
		{ DR_VERDICT_HANG, 1, DR_EXIT_TIMEOUT },
		{ DR_VERDICT_CLEAN_ERROR, 1, DR_EXIT_FAILOVER },
		{ DR_VERDICT_MISSED_FAULT, 3,
			DR_EXIT_PASS }, /* 60 trials, 3 missed already: 90 % hit */
		{ DR_VERDICT_MISSED_FAULT, 4, DR_EXIT_FAILOVER },
		{ DR_VERDICT_INCOMPLETE, 1, DR_EXIT_FAILOVER },
	};
	struct dr_integrity_row wrong = { 5, 5, 0, 0, 1, 0, 0 };
	struct dr_record *rec;
	size_t i;
	int k;

	(void)state;
	for (i = 0; i < DR_ARRAY_LEN(rows); i++) {
		rec = sample_record();
		for (k = 0; k < rows[i].trials; k++)
			rec->faults.v[2 * k].verdict = (int)rows[i].verdict; /* link-down */
		assert_int_equal(dr_record_verdict(rec, NULL), rows[i].exit);
		dr_record_destroy(rec);
	}
	rec = sample_record();
	rec->false_failovers = 1;
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_FAILOVER);
	dr_integrity_add(&rec->integrity, &wrong);
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_DATA);
	assert_true(told(rec, "1 reordered"));
	rec->rows_lost = 3;
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_ENV);
	dr_record_destroy(rec);
}

static void judging_again_replaces_the_criteria(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_thresholds t;
	size_t n;

	(void)state;
	dr_thresholds_init(&t);
	t.min_bw_gbps = 1000;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	n = rec->errors.n;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_int_equal(rec->errors.n, n);
	assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_PASS);
	assert_int_equal(rec->errors.n, 0);
	/* An error that came in between stays and wins; bandwidth is not judged then. */
	dr_record_verdict(rec, &t);
	dr_record_errorf(rec, DR_EXIT_TRANSPORT, "both rails lost");
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_TRANSPORT);
	assert_int_equal(rec->errors.n, 1);
	dr_record_destroy(rec);
}

static void min_bw_texts(void **state)
{
	static const char *const bad[] = { "", "%", "90 percent", "-1", "nan", "90%%", "1e99",
		"10Mb/s" };
	struct dr_thresholds t;
	struct dr_err e;
	size_t i;

	(void)state;
	dr_thresholds_init(&t);
	assert_int_equal(dr_thresholds_parse_min_bw(&t, "90%", &e), 0);
	assert_float_equal(t.min_bw_percent, 90, 0);
	assert_true(isnan(t.min_bw_gbps));
	dr_thresholds_init(&t);
	assert_int_equal(dr_thresholds_parse_min_bw(&t, "37.5Gb/s", &e), 0);
	assert_float_equal(t.min_bw_gbps, 37.5, 0);
	assert_int_equal(dr_thresholds_parse_min_bw(&t, "8", &e), 0);
	assert_float_equal(t.min_bw_gbps, 8, 0);
	for (i = 0; i < DR_ARRAY_LEN(bad); i++) {
		assert_int_equal(dr_thresholds_parse_min_bw(&t, bad[i], &e), -EINVAL);
		assert_non_null(strstr(e.text, "--min-bw"));
	}
}

static void line_rate(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_thresholds t;

	(void)state;
	dr_thresholds_init(&t);
	t.min_bw_percent = 90;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	t.min_bw_percent = 94.5; /* the total is above that, rails 0 and 1 are not */
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_int_equal(rec->errors.n, 2);
	assert_true(told(rec, "rail 0 (eth1) to-server"));
	rec->rails.v[2].speed_gbps = NAN;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_ENV);
	assert_true(told(rec, "the speed of eth3 is unknown"));
	dr_record_destroy(rec);
	assert_int_equal(dr_record_create(&rec), 0);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_true(told(rec, "no bandwidth was measured"));
	dr_record_destroy(rec);
}

/* Both ways: neither direction may hide behind the other. */
static void both_directions(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_bandwidth_row b;
	int i;

	(void)state;
	for (i = 0; i < SAMPLE_GPUS; i++) {
		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = 0;
		b.gpu = i;
		b.direction = DR_TO_CLIENT;
		b.gbps = 10;
		dr_record_add(rec, bandwidth, &b);
	}
	dr_record_settle(rec);
	assert_float_equal(rec->total.gbps, 378.88 + 80, 1e-6);
	assert_float_equal(rec->total.to_client_gbps, 80, 1e-9);
	assert_float_equal(rec->total.line_gbps, 400, 1e-9);
	assert_float_equal(rec->total.line_rate_percent, 20, 1e-9);
	dr_record_destroy(rec);
}

/* A GPU whose channels are spread over rails has its share of each. */
static void spread_channels(void **state)
{
	struct dr_record *rec;
	struct dr_rail_row rail;
	struct dr_gpu_row gpu;
	int i;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	for (i = 0; i < 2; i++) {
		dr_fields_init(&dr_rail_fields, &rail);
		rail.rail = i;
		rail.speed_gbps = i ? 100 : 40;
		dr_record_add(rec, rails, &rail);
	}
	for (i = 0; i < 3; i++) {
		dr_fields_init(&dr_gpu_fields, &gpu);
		gpu.gpu = i / 2;
		gpu.primary = i == 1;
		gpu.shadow = i != 1;
		gpu.channels = i == 2 ? 6 : 2;
		dr_record_add(rec, gpus, &gpu);
	}
	/* gpu 0: 2 of rail 0's 8 channels, both of rail 1's; gpu 1: 6 of rail 0's. */
	assert_float_equal(dr_record_gpu_line_gbps(rec, 0), 10 + 100, 1e-9);
	assert_float_equal(dr_record_gpu_line_gbps(rec, 1), 30, 1e-9);
	assert_true(isnan(dr_record_gpu_line_gbps(rec, 2)));
	dr_record_destroy(rec);
}

/* Bandwidth of rails on which channels were not: no threshold takes it, and it becomes no baseline. */
static void switched_bandwidth_is_refused(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_thresholds t;

	(void)state;
	rec->bandwidth.v[1].switched = 3;
	dr_thresholds_init(&t);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	t.min_bw_gbps = 1;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	dr_thresholds_init(&t);
	t.save_baseline = true;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	dr_record_destroy(rec);
}

static void max_gap(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_switch_row row;
	struct dr_thresholds t;

	(void)state;
	dr_thresholds_init(&t);
	t.max_gap_ns = 50 * DR_NS_PER_MS;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	t.max_gap_ns = 20 * DR_NS_PER_MS;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_FAILOVER);
	assert_true(told(rec, "above --max-gap=20.0 ms in 30 of 60 trials, at worst 39."));
	dr_record_destroy(rec);
	/* A failover test without a trial has no gap to compare; without that test, unexpected switches count. */
	assert_int_equal(dr_record_create(&rec), 0);
	rec->false_failovers = 0;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_FAILOVER);
	rec->false_failovers = DR_UNSET;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	dr_fields_init(&dr_switch_fields, &row);
	row.receiver = row.unexpected = 1;
	row.gap_ns = 19 * DR_NS_PER_MS;
	dr_record_add(rec, switches, &row);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	row.gap_ns = 21 * DR_NS_PER_MS;
	dr_record_add(rec, switches, &row);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_FAILOVER);
	assert_true(told(rec,
		"unexpected switches: the gap is above --max-gap=20.0 ms in 1 of 2, at worst 21.0 ms"));
	dr_record_destroy(rec);
}

/* What --save-baseline writes. */
static json_t *saved(struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(dr_baseline_write(rec, NULL, f, NULL), 0);
	fclose(f);
	json_t *doc = json_loads(text, 0, NULL);
	assert_non_null(doc);
	free(text);
	return doc;
}

static void max_lat(void **state)
{
	struct dr_record *rec = sample_record();
	struct dr_thresholds t;
	struct dr_err e;

	(void)state;
	dr_thresholds_init(&t);
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "p50=1s,1h", &e), 0);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "p50=2us", &e), 0);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_true(told(rec, "p50 of the round trip is "));
	assert_true(told(rec, "above --max-lat p50=2us"));
	/* In a record without latency the criterion is missed, unless the run broke off. */
	rec->latency.n = 0;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_true(told(rec, "no latency was measured"));
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "p50", &e), -EINVAL);
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "5", &e), -EINVAL);
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "p95=1us", &e), -EINVAL);
	assert_int_equal(dr_thresholds_parse_max_lat(&t, "p99=1us,", &e), -EINVAL);
	dr_record_destroy(rec);
}

static void baseline(void **state)
{
	const struct dr_unused_nic_row unused = {
		.side = DR_END_CLIENT, .nic = "eth4", .reason = "control connection"
	};
	struct dr_record *was = sample_record(), *is = sample_record();
	struct dr_thresholds t;
	json_t *doc;

	(void)state;
	doc = dr_record_to_json(was);
	dr_thresholds_init(&t);
	t.baseline = doc;
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_PASS);
	is->bandwidth.v[4].gbps *= 0.85; /* 90 % unless --min-bw says otherwise */
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_THRESHOLD);
	assert_true(told(is, "gpu 4 to-server, messages of 64 MiB: "));
	assert_false(told(is, "is in the baseline"));
	/* A NIC comes before the GPUs that use it, one that this run does not have before all. */
	json_decref(doc);
	doc = saved(was);
	t.baseline = doc;
	is->bandwidth.v[4].gbps /= 10;
	memcpy(is->rails.v[3].ifname, "eth9", 5);
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_THRESHOLD);
	is->unused_nics.n = 0;
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_THRESHOLD);
	assert_string_equal(is->errors.v[0].text, "eth4 is in the baseline, not in this run");
	assert_non_null(strstr(is->errors.v[1].text, "eth3 to-server, messages of 64 MiB: "));
	dr_record_add(is, unused_nics, &unused);
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_THRESHOLD);
	assert_string_equal(is->errors.v[0].text,
		"eth4 is in the baseline, not in this run: it carries the control connection; give "
		"HOST's management address or --rails");
	assert_non_null(strstr(is->errors.v[2].text, "gpu 4"));
	assert_non_null(strstr(is->errors.v[is->errors.n - 1].text, "all GPUs together: "));
	is->bandwidth.v[4].gbps *= 10;
	memcpy(is->rails.v[3].ifname, "eth4", 5);
	t.min_bw_percent = 80;
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_PASS);
	is->bandwidth.n = 1;
	is->bandwidth.v[0].message_bytes = 1;
	assert_int_equal(dr_record_verdict(is, &t), DR_EXIT_ENV);
	json_decref(doc);
	dr_record_destroy(was);
	dr_record_destroy(is);
}

static void nic_counters(void **state)
{
	struct dr_nic_row r;

	(void)state;
	dr_fields_init(&dr_nic_fields, &r);
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_UNKNOWN);
	r.tx_bytes = 1000000000;
	r.rx_bytes = 0;
	r.counter_tx_bytes = 1069000000; /* TCP over IPv6, MTU 1500 */
	r.counter_rx_bytes = 23000000;	 /* acknowledgements */
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_OK);
	r.counter_tx_bytes = 1200000000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	r.counter_tx_bytes = 900000000; /* half the traffic went elsewhere, or was cut */
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	r.slack_bytes = 100000000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_OK);
	r.counter_rx_bytes = 500000000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	/* Small messages: 200 000 packets with 64 bytes of payload and 150 of headers and frames each. */
	r.slack_bytes = 0;
	r.tx_bytes = r.rx_bytes = 12800000;
	r.counter_tx_bytes = r.counter_rx_bytes = 42800000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	r.counter_tx_packets = r.counter_rx_packets = 200000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_OK);
	r.counter_rx_bytes = 60000000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	/* Other traffic of whole packets is found beside data all the same. */
	r.tx_bytes = 1000000000;
	r.counter_tx_bytes = 1300000000;
	r.counter_tx_packets = 1300000000 / 1500;
	r.counter_rx_bytes = 23000000;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_DIFFERS);
	/* Below 10 MiB nothing can be said: a latency test's headers are many times its payload. */
	r.tx_bytes = r.rx_bytes = 160000;
	r.counter_tx_bytes = r.counter_rx_bytes = 9000000;
	r.counter_tx_packets = r.counter_rx_packets = DR_UNSET;
	assert_int_equal(dr_nic_row_check(&r), DR_NIC_CHECK_TOO_LITTLE);
}

/* The end that saw the failure first says why; what the other one saw may be its consequence. */
static void the_first_detector_states_the_cause(void **state)
{
	struct dr_switch_row sw[2];
	struct dr_fault_row row;

	(void)state;
	for (int ahead = -1; ahead <= 1; ahead += 2)
		for (int receiver = 1; receiver >= 0; receiver--) {
			struct dr_switch_row *r = &sw[!receiver];

			dr_fields_init(&dr_switch_fields, r);
			r->receiver = receiver;
			r->gpu = r->channel = 0;
			r->rec = (struct dr_switch_record){ .self_detected = true,
				.epoch = 2,
				.last_delivery_ns = 1000,
				.detect_ns = receiver ? 5000 : 5000 - 700 - ahead * 200,
				.first_delivery_ns = 9000 };
			snprintf(r->rec.cause, sizeof(r->rec.cause),
				receiver ? "connection reset" : "no heartbeat received");
			if (receiver)
				continue;
			/* The sender's clock is 700 behind. */
			dr_fields_init(&dr_fault_fields, &row);
			dr_fault_row_from_switches(&row, sw, 2, 700, 10, DR_UNSET);
			assert_string_equal(row.cause,
				ahead > 0 ? "no heartbeat received" : "connection reset");
			dr_fields_init(&dr_fault_fields, &row);
			dr_fault_row_from_switches(&row, sw, 2, DR_UNSET, DR_UNSET, DR_UNSET);
			assert_string_equal(row.cause, "connection reset");
		}
}

static void idle_paths_are_no_hit(void **state)
{
	struct dr_record *rec = sample_record();

	(void)state;
	rec->faults.v[0].in_flight_chunks = 0;
	dr_record_settle(rec);
	assert_int_equal(rec->gap_groups.v[0].hit, SAMPLE_TRIALS - 1);
	assert_int_equal(rec->gap_groups.v[0].gaps, SAMPLE_TRIALS - 1);
	dr_record_destroy(rec);
}

/* What to do depends on why nothing was hit. */
static void the_advice_fits_the_miss(void **state)
{
	static const struct {
		const char *note, *text;
	} of[] = { { "", "leave --rate out" }, { DR_NOTE_NOBODY, "nobody broke the path in time" },
		{ DR_NOTE_UNUSED, "let it return before the next fault" },
		{ "no path of the channels was hit that carried data", "rails that carry data" } };

	(void)state;
	for (size_t k = 0; k < DR_ARRAY_LEN(of); k++) {
		struct dr_record *rec = sample_record();
		bool told = false;

		for (size_t i = 0; i < rec->faults.n; i++) {
			rec->faults.v[i].verdict = DR_VERDICT_MISSED_FAULT;
			snprintf(rec->faults.v[i].note, sizeof(rec->faults.v[i].note), "%s",
				of[k].note);
		}
		assert_int_equal(dr_record_verdict(rec, NULL), DR_EXIT_FAILOVER);
		for (size_t i = 0; i < rec->errors.n; i++)
			told |= strstr(rec->errors.v[i].text, of[k].text) != NULL;
		assert_true(told);
		dr_record_destroy(rec);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_detector_states_the_cause),
		cmocka_unit_test(idle_paths_are_no_hit),
		cmocka_unit_test(the_advice_fits_the_miss),
		cmocka_unit_test(order_of_exit_statuses),
		cmocka_unit_test(data_and_trials),
		cmocka_unit_test(judging_again_replaces_the_criteria),
		cmocka_unit_test(min_bw_texts),
		cmocka_unit_test(line_rate),
		cmocka_unit_test(both_directions),
		cmocka_unit_test(spread_channels),
		cmocka_unit_test(switched_bandwidth_is_refused),
		cmocka_unit_test(max_gap),
		cmocka_unit_test(max_lat),
		cmocka_unit_test(baseline),
		cmocka_unit_test(nic_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
