/* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/output/parts.h"

/* A made-up matrix: GPUS x RAILS cells of a second each, each rail also with all GPUs, then all over all. */
enum { GPUS = 2, RAILS = 3, MB = 1000000, ALL = RAILS * (GPUS + 1) };

/* What a rail is like: Gb/s of its cells, how many channels left, what the counters saw of it (-1: no
 * counters), and what it carried with all GPUs over all rails. */
struct rail {
	double gbps;
	int64_t switched;
	double seen, total;
};

static void add_rail_rows(struct dr_record *rec, unsigned r, double speed_gbps)
{
	struct dr_rail_row row;

	dr_fields_init(&dr_rail_fields, &row);
	row.rail = r;
	snprintf(row.ifname, sizeof(row.ifname), "eth%u", r);
	row.speed_gbps = speed_gbps;
	dr_record_add(rec, rails, &row);
}

static void name_cell(struct dr_matrix_cell_row *c, unsigned r, unsigned k, int direction)
{
	dr_fields_init(&dr_matrix_cell_fields, c);
	c->phase = r * (GPUS + 1) + k;
	c->gpu = k < GPUS ? (int64_t)k : DR_UNSET;
	c->rail = r;
	c->direction = direction;
	c->message_bytes = 1 << 20;
	c->channels = k < GPUS ? 2 : 2 * GPUS;
	snprintf(c->nic, sizeof(c->nic), "eth%u", r);
	snprintf(c->peer_nic, sizeof(c->peer_nic), "ens%u", r);
}

/* Both ends' halves, as each of them would add it. */
static void add_cell(
	struct dr_record *rec, const struct rail *q, unsigned r, unsigned k, int direction)
{
	int64_t bytes = (int64_t)(q->gbps * 1e9 / 8);
	int64_t seen = q->seen < 0 ? DR_UNSET : (int64_t)(q->seen * (double)bytes);
	struct dr_matrix_cell_row c;

	name_cell(&c, r, k, direction);
	c.sender_bytes = bytes;
	c.sender_seconds = 1;
	c.client_counter_bytes = seen;
	c.switched = 0;
	dr_record_add(rec, matrix.cells, &c);
	name_cell(&c, r, k, direction);
	c.bytes = bytes;
	c.seconds = 1;
	c.server_counter_bytes = seen;
	c.switched = q->switched;
	assert_non_null(dr_record_add(rec, matrix.cells, &c));
}

static void add_total(struct dr_record *rec, const struct rail *q, unsigned r)
{
	struct dr_matrix_total_row t;

	for (int side = 0; side < 2; side++) {
		dr_fields_init(&dr_matrix_total_fields, &t);
		t.side = side;
		t.rail = r;
		snprintf(t.nic, sizeof(t.nic), "%s%u", side == DR_END_CLIENT ? "eth" : "ens", r);
		t.seconds = 2;
		t.switched = q->switched;
		if (q->seen >= 0) {
			t.counter_tx_bytes =
				side == DR_END_CLIENT ? (int64_t)(q->total * 250 * MB) : 1000;
			t.counter_rx_bytes =
				side == DR_END_CLIENT ? 1000 : (int64_t)(q->total * 250 * MB);
		}
		dr_record_add(rec, matrix.totals, &t);
	}
}

static struct dr_record *matrix(const struct rail q[RAILS], double speed_gbps)
{
	struct dr_bandwidth_row b;
	struct dr_record *rec;

	assert_int_equal(dr_record_create(&rec), 0);
	for (unsigned r = 0; r < RAILS; r++) {
		add_rail_rows(rec, r, speed_gbps);
		for (unsigned k = 0; k <= GPUS; k++)
			add_cell(rec, &q[r], r, k, DR_TO_SERVER);
		add_total(rec, &q[r], r);
	}
	for (unsigned k = 0; k < GPUS; k++) {
		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = ALL;
		b.gpu = k;
		b.direction = DR_TO_SERVER;
		b.gbps = 7 + k;
		dr_record_add(rec, bandwidth, &b);
	}
	return rec;
}

static struct dr_matrix_nic_row nic[RAILS]; /* of the last findings */

static size_t findings(struct dr_record *rec)
{
	size_t n;

	dr_record_settle(rec);
	n = rec->matrix.nics.n;
	memcpy(nic, rec->matrix.nics.v, DR_MIN(n, (size_t)RAILS) * sizeof(nic[0]));
	return n;
}

static void verdicts(const struct rail q[RAILS], double speed_gbps, int a, int b, int c)
{
	struct dr_record *rec = matrix(q, speed_gbps);

	assert_int_equal(findings(rec), RAILS);
	assert_int_equal(nic[0].finding, a);
	assert_int_equal(nic[1].finding, b);
	assert_int_equal(nic[2].finding, c);
	dr_record_destroy(rec);
}

static void halves_of_a_cell_are_joined(void **state)
{
	static const struct rail q[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 1, 1.05, 5 },
		{ 10, 0, 1.05, 5 } };
	struct dr_record *rec = matrix(q, NAN);
	const struct dr_matrix_cell_row *c = &rec->matrix.cells.v[4];

	(void)state;
	assert_int_equal(rec->matrix.cells.n, ALL);
	assert_float_equal(c->gbps, 10, 1e-9);
	assert_float_equal(c->sender_gbps, 10, 1e-9);
	assert_int_equal(c->switched, 1); /* the end that saw more */
	assert_true(c->client_counter_bytes > 0 && c->server_counter_bytes > 0);
	assert_int_equal(rec->matrix.cells.v[2].gpu, DR_UNSET); /* of all GPUs */
	assert_int_equal(rec->matrix.totals.n, 2 * RAILS);
	dr_record_destroy(rec);
}

static void slow_is_below_80_percent_of_the_others(void **state)
{
	static const struct rail just[RAILS] = { { 10, 0, 1.05, 5 }, { 8.1, 0, 1.05, 5 },
		{ 10, 0, 1.05, 5 } };
	static const struct rail below[RAILS] = { { 10, 0, 1.05, 5 }, { 7.9, 0, 1.05, 5 },
		{ 10, 0, 1.05, 5 } };
	static const struct rail fast[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 0, 1.05, 5 },
		{ 100, 0, 1.05, 5 } };

	(void)state;
	verdicts(just, NAN, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_OK);
	verdicts(below, NAN, DR_MATRIX_OK, DR_MATRIX_SLOW, DR_MATRIX_OK);
	assert_non_null(strstr(nic[1].cause, "79 % of 10.00 Gb/s"));
	/* Two of three are slow beside one fast one: each is below the median of its others. */
	verdicts(fast, NAN, DR_MATRIX_SLOW, DR_MATRIX_SLOW, DR_MATRIX_OK);
}

/* Each cell by itself: [rail][GPU], four GPUs. */
enum { GPUS4 = 4 };
static struct dr_record *cells(unsigned rails, const double gbps[][GPUS4])
{
	struct dr_record *rec;
	struct dr_matrix_cell_row c;

	assert_int_equal(dr_record_create(&rec), 0);
	for (unsigned r = 0; r < rails; r++) {
		add_rail_rows(rec, r, NAN);
		snprintf(rec->rails.v[r].address, 64, "10.50.%u.1", r);
		snprintf(rec->rails.v[r].peer_address, 64, "10.50.%u.2", r);
		for (unsigned k = 0; k < GPUS4; k++) {
			name_cell(&c, r, k, DR_TO_SERVER);
			c.phase = r * GPUS4 + k;
			c.gpu = k;
			c.gbps = gbps[r][k];
			c.bytes = (int64_t)(c.gbps * 1e9 / 8);
			c.seconds = 1;
			c.switched = 0;
			assert_non_null(dr_record_add(rec, matrix.cells, &c));
		}
	}
	return rec;
}

static void found(const struct dr_record *rec, int a, int b, int c)
{
	const int want[] = { a, b, c };

	for (size_t i = 0; i < rec->matrix.nics.n && i < 3; i++)
		assert_int_equal(rec->matrix.nics.v[i].finding, want[i]);
}

static void slow_is_told_by_all_cells(void **state)
{
	/* One good cell of a slow NIC, one bad cell of a good one. */
	static const double lucky[][GPUS4] = { { 0.95, 0.95, 0.96, 0.95 },
		{ 0.28, 0.29, 0.9, 0.28 }, { 0.96, 0.2, 0.95, 0.957 } };
	static const double noise[][GPUS4] = { { 10.8, 22.3, 14, 16 }, { 10.9, 11, 11.5, 12 },
		{ 15, 12, 21, 18 } };
	static const double two[][GPUS4] = { { 0.95, 0.95, 0.96, 0.95 }, { 0.28, 0.29, 0.28, 0.28 },
		{ 0.28, 0.29, 0.28, 0.28 }, { 0.95, 0.95, 0.96, 0.95 } };
	struct dr_record *rec = cells(3, lucky);
	const struct dr_matrix_nic_row *n = rec->matrix.nics.v;

	(void)state;
	dr_record_settle(rec);
	n = rec->matrix.nics.v;
	found(rec, DR_MATRIX_OK, DR_MATRIX_SLOW, DR_MATRIX_OK);
	assert_float_equal(n[1].alone_gbps, 0.285, 1e-9);
	assert_float_equal(n[1].others_percent, 30, 0.2);
	assert_int_equal(n[1].low_gpu, DR_UNSET);
	assert_int_equal(n[2].low_gpu, 1);
	assert_float_equal(n[2].low_gbps, 0.2, 1e-9);
	assert_float_equal(n[2].least_gbps, 0.95, 1e-9);
	dr_record_destroy(rec);
	rec = cells(3, noise);
	dr_record_settle(rec);
	found(rec, DR_MATRIX_OK, DR_MATRIX_UNKNOWN, DR_MATRIX_OK);
	assert_string_equal(rec->matrix.nics.v[1].cause,
		"cells of eth0 vary 10.80-22.30 Gb/s: too much to call a NIC slow; use a longer -D");
	dr_record_destroy(rec);
	/* Two slow ones of four do not hide each other. */
	rec = cells(4, two);
	dr_record_settle(rec);
	found(rec, DR_MATRIX_OK, DR_MATRIX_SLOW, DR_MATRIX_SLOW);
	dr_record_destroy(rec);
}

static void min_nic_fails_on_a_slow_nic(void **state)
{
	static const double one[][GPUS4] = { { 0.95, 0.95, 0.96, 0.95 }, { 0.96, 0.95, 0.96, 0.95 },
		{ 0.28, 0.29, 0.28, 0.29 } };
	struct dr_record *rec = cells(3, one);
	struct dr_bandwidth_row b;
	struct dr_thresholds t;
	struct dr_err e;

	(void)state;
	dr_fields_init(&dr_bandwidth_fields, &b);
	b.phase = 99;
	b.gpu = 0;
	b.direction = DR_TO_SERVER;
	b.gbps = 2;
	dr_record_add(rec, bandwidth, &b);
	dr_thresholds_init(&t);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	assert_int_equal(dr_thresholds_parse_min_nic(&t, "80%", &e), 0);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_int_equal(rec->errors.n, 1);
	assert_string_equal(rec->errors.v[0].text,
		"eth2 (rail 2), client to server: 0.285 Gb/s, 29 % of the other NICs, below "
		"--min-nic=80%");
	/* The share of the finding is the one that was asked for. */
	assert_int_equal(dr_thresholds_parse_min_nic(&t, "25%", &e), 0);
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_PASS);
	found(rec, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_OK);
	assert_int_equal(dr_thresholds_parse_min_nic(&t, "80", &e), -EINVAL);
	assert_int_equal(dr_thresholds_parse_min_nic(&t, "101%", &e), -EINVAL);
	/* A total below its threshold names the slowest NIC. */
	dr_thresholds_init(&t);
	t.min_bw_gbps = 3;
	assert_int_equal(dr_record_verdict(rec, &t), DR_EXIT_THRESHOLD);
	assert_string_equal(rec->errors.v[0].text,
		"bandwidth: 2 Gb/s in total, below --min-bw=3 Gb/s; slowest: eth2 0.285 Gb/s");
	dr_record_destroy(rec);
}

static void a_rails_own_speed_counts_where_another_reaches_its_own(void **state)
{
	static const struct rail q[RAILS] = { { 9.4, 0, 1.05, 5 }, { 7.8, 0, 1.05, 5 },
		{ 9.3, 0, 1.05, 5 } };

	(void)state;
	verdicts(q, NAN, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_OK);
	verdicts(q, 10, DR_MATRIX_OK, DR_MATRIX_SLOW, DR_MATRIX_OK);
	assert_non_null(strstr(nic[1].cause, "its own 10.00 Gb/s"));
	/* None reaches 100 Gb/s: that is the host's doing. */
	verdicts(q, 100, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_OK);
}

static void idle_is_told_by_the_counters(void **state)
{
	static const struct rail other_way[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 0, 0.01, 5 },
		{ 10, 0, 1.05, 5 } };
	static const struct rail nothing[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 0, 1.05, 5 },
		{ 0, 0, 1.05, 5 } };
	static const struct rail busy_rest[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 0, 1.05, 5 },
		{ 10, 0, 1.05, 0.01 } };
	static const struct rail blind[RAILS] = { { 10, 0, -1, 5 }, { 10, 0, -1, 5 },
		{ 10, 0, -1, 5 } };
	struct dr_record *rec = matrix(other_way, NAN);

	(void)state;
	verdicts(other_way, NAN, DR_MATRIX_OK, DR_MATRIX_IDLE, DR_MATRIX_OK);
	assert_non_null(strstr(nic[1].cause, "delivered 3750"));
	verdicts(nothing, NAN, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_IDLE);
	verdicts(busy_rest, NAN, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_IDLE);
	verdicts(blind, NAN, DR_MATRIX_OK, DR_MATRIX_OK, DR_MATRIX_OK);
	assert_true(isnan(nic[0].total_gbps) && isnan(nic[0].share_percent));
	/* Counters that do not see RDMA. */
	snprintf(rec->detection.transport, sizeof(rec->detection.transport), "verbs");
	assert_int_equal(findings(rec), RAILS);
	assert_int_equal(nic[1].finding, DR_MATRIX_OK);
	dr_record_destroy(rec);
}

static void what_moved_is_no_figure_for_the_rail(void **state)
{
	static const struct rail away[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 2, 0.01, 0 },
		{ 10, 0, 1.05, 5 } };
	static const struct rail half[RAILS] = { { 10, 0, 1.05, 5 }, { 2, 1, 0.5, 5 },
		{ 10, 0, 1.05, 5 } };

	(void)state;
	verdicts(away, NAN, DR_MATRIX_OK, DR_MATRIX_IDLE, DR_MATRIX_OK);
	assert_non_null(strstr(nic[1].cause, "left it in 3 of 3 cells"));
	assert_true(isnan(nic[1].alone_gbps));
	verdicts(half, NAN, DR_MATRIX_OK, DR_MATRIX_LEFT, DR_MATRIX_OK);
}

static char *printed(int (*write)(struct dr_record *rec, FILE *f), struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	if (write)
		assert_int_equal(write(rec, f), 0);
	else {
		dr_record_settle(rec);
		dr_matrix_print(rec, false, f);
	}
	assert_int_equal(fclose(f), 0);
	return text;
}

static void the_table_fits_and_says_it(void **state)
{
	static const struct rail q[RAILS] = { { 10, 0, 1.05, 5 }, { 6, 0, 1.05, 3 },
		{ 10, 2, 0.01, 0 } };
	struct dr_record *rec = matrix(q, NAN);
	char *text = printed(NULL, rec), *line, *save = NULL;

	(void)state;
	assert_non_null(strstr(text, "0  10.00 ###   6.00 ##    left     |     7.00"));
	assert_non_null(strstr(text, "total   5.00       3.00          0     |    15.00"));
	assert_non_null(strstr(text, "share %   62.5       37.5        0.0"));
	assert_null(strchr(text, '\033')); /* no terminal */
	assert_null(strstr(text, "to-client"));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strstr(line, " | "))
			assert_in_range(strlen(line), 1, 110);
	free(text);
	dr_record_destroy(rec);
}

static char *summary(struct dr_record *rec)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	dr_record_settle(rec);
	dr_matrix_print_summary(rec, f);
	assert_int_equal(fclose(f), 0);
	return text;
}

static void sentences_for_others(void **state)
{
	static const double one[][GPUS4] = { { 0.95, 0.96, 0.97, 0.96 }, { 0.96, 0.96, 0.96, 0.96 },
		{ 0.28, 0.29, 0.28, 0.29 } };
	struct dr_record *rec = cells(3, one);
	char *text = summary(rec);

	(void)state;
	assert_string_equal(text,
		"eth2 <-> ens2 (rail 2, 10.50.2.1 -> 10.50.2.2) is slow, client to server:\n"
		"  0.285 Gb/s, others 0.960 (29 %), all 4 GPUs; server to client not measured (--bidir)\n");
	free(text);
	rec->matrix.cells.n = 8;
	text = summary(rec);
	assert_string_equal(text,
		"None of 2 NICs is slow or idle, client to server: medians 0.960-0.960 Gb/s; "
		"server to client not measured (--bidir)\n");
	free(text);
	dr_record_destroy(rec);
}

static void document_and_csv(void **state)
{
	static const struct rail q[RAILS] = { { 10, 0, 1.05, 5 }, { 2, 0, 1.05, 5 },
		{ 10, 0, 1.05, 5 } };
	struct dr_record *rec = matrix(q, NAN), *empty;
	json_t *doc = dr_record_to_json(rec), *j = json_object_get(doc, "matrix"), *n;
	char *csv = printed(dr_csv_write, rec);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(j, "cells")), ALL);
	n = json_array_get(json_object_get(j, "nics"), 1);
	assert_string_equal(json_string_value(json_object_get(n, "finding")), "slow");
	assert_string_equal(json_string_value(json_object_get(n, "nic")), "eth1");
	assert_float_equal(json_real_value(json_object_get(n, "share_percent")), 100.0 / 3, 1e-9);
	assert_float_equal(
		json_real_value(json_object_get(json_object_get(j, "total"), "gbps")), 15, 1e-9);
	assert_non_null(strstr(csv, "\nmatrix-cell,"));
	assert_non_null(strstr(csv, "\nmatrix-nic,"));
	free(csv);
	json_decref(doc);
	dr_record_destroy(rec);
	assert_int_equal(dr_record_create(&empty), 0);
	doc = dr_record_to_json(empty);
	assert_true(json_is_null(json_object_get(doc, "matrix")));
	json_decref(doc);
	dr_record_destroy(empty);
}

static void the_peers_cells_come_once(void **state)
{
	static const struct rail q[RAILS] = { { 10, 0, 1.05, 5 }, { 10, 1, 1.05, 5 },
		{ 10, 0, 1.05, 5 } };
	struct dr_record *server = matrix(q, NAN), *client;
	struct dr_record_mark mark = { 0 };
	struct dr_err e;

	(void)state;
	server->side = DR_END_SERVER;
	assert_int_equal(dr_record_create(&client), 0);
	for (int round = 0; round < 2; round++) {
		json_t *part = dr_record_part(server, &mark);

		assert_int_equal(
			json_array_size(json_object_get(part, "matrix_cells")), round ? 0 : ALL);
		assert_int_equal(dr_record_merge(client, part, &e), 0);
		json_decref(part);
	}
	assert_int_equal(client->matrix.cells.n, ALL);
	assert_int_equal(client->matrix.totals.n, 2 * RAILS);
	assert_int_equal(client->matrix.cells.v[3].switched, 1);
	assert_int_equal(client->matrix.cells.v[2].gpu, DR_UNSET);
	assert_float_equal(client->matrix.cells.v[3].gbps, 10, 1e-9);
	dr_record_destroy(server);
	dr_record_destroy(client);
}

/* Of a run of one GPU, one rail and two channels. */
static void the_peers_rows_are_bounded_by_the_plan(void **state)
{
	static const struct {
		const char *list;
		unsigned at_most;
	} cases[] = { { "latency", 128 }, { "bandwidth", 256 }, { "channels", 4 },
		{ "memory", 128 } };
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		json_t *rows = json_array(), *part;
		struct dr_record *rec;

		for (int k = 0; k < 1000; k++)
			json_array_append_new(rows, json_pack("{s:i,s:i}", "gpu", k, "phase", k));
		part = json_pack("{s:s,s:{},s:{},s:o}", "schema", "dualrail-part/1", "host",
			"integrity", cases[i].list, rows);
		assert_int_equal(dr_record_create(&rec), 0);
		rec->bounds = (struct dr_row_bounds){ 1, 1, 2 };
		assert_int_equal(dr_record_merge(rec, part, &e), 0);
		assert_int_equal(
			rec->latency.n + rec->bandwidth.n + rec->channels.n + rec->memory.n,
			cases[i].at_most);
		assert_int_equal(rec->rows_lost, 1000 - cases[i].at_most);
		json_decref(part);
		dr_record_destroy(rec);
	}
}

/* Medians below 0, or infinite, are lower than each of the figures that they are of. */
static void the_peers_figures_can_be_judged(void **state)
{
	static const double gbps[][3] = { { -10, -5, -5 }, { 1e308, 1.5e308, 1.5e308 } };
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(gbps); i++) {
		json_t *cells = json_array(), *part;
		struct dr_record *rec;

		for (int r = 0; r < 3; r++)
			json_array_append_new(
				cells, json_pack("{s:i,s:i,s:i,s:s,s:i,s:f}", "phase", r, "gpu", 0,
					       "rail", r, "direction", "to-server", "bytes", 1000,
					       "gbps", gbps[i][r]));
		part = json_pack("{s:s,s:{},s:{},s:o}", "schema", "dualrail-part/1", "host",
			"integrity", "matrix_cells", cells);
		assert_int_equal(dr_record_create(&rec), 0);
		assert_int_equal(dr_record_merge(rec, part, &e), -EPROTO);
		dr_record_settle(rec);
		json_decref(part);
		dr_record_destroy(rec);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(halves_of_a_cell_are_joined),
		cmocka_unit_test(slow_is_below_80_percent_of_the_others),
		cmocka_unit_test(slow_is_told_by_all_cells),
		cmocka_unit_test(min_nic_fails_on_a_slow_nic),
		cmocka_unit_test(sentences_for_others),
		cmocka_unit_test(a_rails_own_speed_counts_where_another_reaches_its_own),
		cmocka_unit_test(idle_is_told_by_the_counters),
		cmocka_unit_test(what_moved_is_no_figure_for_the_rail),
		cmocka_unit_test(the_table_fits_and_says_it),
		cmocka_unit_test(document_and_csv),
		cmocka_unit_test(the_peers_cells_come_once),
		cmocka_unit_test(the_peers_rows_are_bounded_by_the_plan),
		cmocka_unit_test(the_peers_figures_can_be_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
