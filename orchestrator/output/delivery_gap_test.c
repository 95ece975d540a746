/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/output/record.h"

#include "base/clock.h"
#include "orchestrator/output/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS DR_NS_PER_MS

/* Faults whose channels did not switch: gaps of three channels, in milliseconds. */
static void fault(struct dr_record *rec, int64_t trial, int64_t a, int64_t b, int64_t c)
{
	const int64_t gap[] = { a, b, c };
	struct dr_delivery_gap_row rows[3];
	struct dr_fault_row row;

	for (int i = 0; i < 3; i++) {
		dr_fields_init(&dr_delivery_gap_fields, &rows[i]);
		rows[i].side = DR_END_SERVER;
		rows[i].gpu = 1;
		rows[i].channel = i;
		rows[i].trial = trial;
		rows[i].gap_ns = gap[i] * MS;
		rows[i].last_delivery_ns = 100 * MS;
		rows[i].first_delivery_ns = (100 + gap[i]) * MS;
		assert_non_null(dr_record_add(rec, delivery_gaps, &rows[i]));
	}
	dr_fields_init(&dr_fault_fields, &row);
	row.trial = trial;
	snprintf(row.kind, sizeof(row.kind), "blackhole");
	row.path = 0;
	row.side = DR_END_CLIENT;
	row.detect_ns = 5 * MS; /* of a switch before it */
	row.verdict = DR_VERDICT_PASS;
	row.in_flight_chunks = 8;
	row.channels_affected = 3;
	row.cadence_p99_ns = 2 * MS;
	assert_ptr_equal(dr_fault_row_from_gaps(&row, rows, 3), &rows[1]);
	assert_non_null(dr_record_add(rec, faults, &row));
}

static struct dr_record *record(void)
{
	struct dr_record *rec;

	assert_int_equal(dr_record_create(&rec), 0);
	rec->side = DR_END_CLIENT;
	snprintf(rec->detection.mode, sizeof(rec->detection.mode), "transport");
	rec->false_failovers = 0;
	fault(rec, 0, 20, 31, 24);
	fault(rec, 1, 20, 45, 21);
	return rec;
}

static void the_worst_channel_gives_the_gap(void **state)
{
	struct dr_record *rec = record();
	const struct dr_fault_row *r = &rec->faults.v[0];
	struct dr_fault_row none;

	(void)state;
	assert_int_equal(r->gap_ns, 31 * MS);
	assert_int_equal(r->gap_median_channel_ns, 24 * MS);
	assert_int_equal(r->gpu, 1);
	assert_int_equal(r->channel, 1);
	assert_int_equal(r->detect_ns, DR_UNSET);
	assert_int_equal(r->first_delivery_ns, DR_UNSET);
	dr_fields_init(&dr_fault_fields, &none);
	none.gap_ns = 7;
	none.detect_ns = 3;
	assert_null(dr_fault_row_from_gaps(&none, NULL, 0));
	assert_int_equal(none.gap_ns, 7);
	assert_int_equal(none.detect_ns, 3);
	dr_record_destroy(rec);
}

/* The distribution and --max-gap, as for switches. */
static void it_counts_as_a_gap(void **state)
{
	struct dr_record *rec = record();
	struct dr_thresholds t;

	(void)state;
	dr_record_settle(rec);
	assert_int_equal(rec->gap_all.gaps, 2);
	assert_int_equal(rec->gap_all.p50_ns, 31 * MS);
	assert_int_equal(rec->gap_all.max_ns, 45 * MS);
	assert_int_equal(rec->gap_all.detect_ns, DR_UNSET);
	dr_thresholds_init(&t);
	t.max_gap_ns = 45 * MS;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	t.max_gap_ns = 44 * MS;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_FAILOVER);
	assert_non_null(strstr(rec->errors.v[0].text, "1 of 2 trials, at worst 45"));
	dr_record_destroy(rec);
}

static void has(
	struct dr_record *rec, void (*print)(struct dr_record *, FILE *), const char *const *want)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	print(rec, f);
	fclose(f);
	for (; *want; want++)
		if (!strstr(text, *want))
			fail_msg("no \"%s\" in:\n%s", *want, text);
	free(text); /* lint-ok: of open_memstream */
}

static void lines(struct dr_record *rec, FILE *f)
{
	dr_table_fault(&rec->faults.v[0], true, f);
}

static void csv(struct dr_record *rec, FILE *f)
{
	assert_int_equal(dr_csv_write(rec, f), 0);
}

static void prom(struct dr_record *rec, FILE *f)
{
	assert_int_equal(dr_prom_write(rec, f), 0);
}

static void trace(struct dr_record *rec, FILE *f)
{
	rec->clock_offset_ns = 0; /* the server's spans are there */
	assert_int_equal(dr_trace_write(rec, f), 0);
}

/* Texts say that it is no switch, and name the cadence. */
static void every_output_has_it(void **state)
{
	struct dr_record *rec = record();

	(void)state;
	has(rec, lines,
		(const char *const[]){ "gap 31.00 ms, 3 channels",
			"longest time between two deliveries", "no channel switched", NULL });
	has(rec, dr_table_print,
		(const char *const[]){ "31.00  45.00  45.00  45.00 |      -     -",
			"longest time between", "Without a", "2.00 ms (p99)",
			"longest gap 45.00 ms", NULL });
	has(rec, csv, (const char *const[]){ "31000", "45000", NULL });
	has(rec, prom,
		(const char *const[]){
			"dualrail_switchover_seconds_count", "quantile=\"1\"} 0.045", NULL });
	has(rec, trace, (const char *const[]){ "\"delivery gap\"", NULL });
	dr_record_destroy(rec);
}

/* As large as their type, of a peer. */
static void counts_of_many_switches_are_bounded(void **state)
{
	static struct dr_switch_row many[1024];
	struct dr_fault_row row;

	(void)state;
	dr_fields_init(&dr_fault_fields, &row);
	for (size_t i = 0; i < DR_ARRAY_LEN(many); i++)
		many[i].rec.replayed_bytes = UINT64_C(1) << 53;
	(void)dr_fault_row_from_switches(&row, many, DR_ARRAY_LEN(many), 0, 0, 0);
	assert_int_equal(row.replayed_bytes, INT64_C(1) << 53);
}

static void says(struct dr_record *rec, const char *text, bool is)
{
	char *all = NULL;
	size_t len;
	FILE *f = open_memstream(&all, &len);

	dr_table_print(rec, f);
	assert_int_equal(fclose(f), 0);
	if ((strstr(all, text) != NULL) != is)
		fail_msg("%s in: %s", text, all);
	free(all);
}

/* Beside late detections: did the end get the processor? And the counters of its NICs. */
static void tables_say_what_was_in_the_way(void **state)
{
	struct dr_record *rec;
	struct dr_env_row end;
	struct dr_nic_row nic;

	(void)state;
	assert_int_equal(dr_record_create(&rec), 0);
	rec->detection.heartbeat_ns = 10 * MS;
	dr_fields_init(&dr_env_fields, &end);
	end.side = DR_END_SERVER;
	end.cpu_quota = 1.5;
	end.throttled = 12;
	end.throttled_ns = 340 * MS;
	end.stall_ns = 34 * MS;
	dr_record_add(rec, environment, &end);
	says(rec,
		"Processor, server: throttled 12 times for 340.0 ms in all (cpu.max: 1.50 CPUs)\n",
		true);
	says(rec, "Processor, server: a worker", false); /* nothing was detected */
	fault(rec, 0, 5, 9, 7);
	says(rec, "\nProcessor, server: a thread ran up to 34.00 ms late", true);
	rec->environment.v[0].stall_ns = 9 * MS;
	says(rec, "Processor, server: a worker", false);
	dr_fields_init(&dr_nic_fields, &nic);
	nic.side = DR_END_CLIENT;
	snprintf(nic.name, sizeof(nic.name), "eth1");
	snprintf(nic.grown, sizeof(nic.grown), "rx_missed +12");
	dr_record_add(rec, nics, &nic);
	says(rec, "  COUNTERS: client eth1: rx_missed +12\n", true);
	dr_record_destroy(rec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_worst_channel_gives_the_gap),
		cmocka_unit_test(it_counts_as_a_gap),
		cmocka_unit_test(every_output_has_it),
		cmocka_unit_test(counts_of_many_switches_are_bounded),
		cmocka_unit_test(tables_say_what_was_in_the_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
