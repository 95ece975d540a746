/* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/record/report.h"

/* A run of three GPUs: 0 and 1 share rail 0, GPU 2 has channels on rails 1 and 2. A pair of a matrix on top. */
static struct dr_record *run(const double gbps[3], int channels)
{
	static const struct dr_gpu_row gpus[] = { { .gpu = 0, .primary = 0 },
		{ .gpu = 1, .primary = 0 }, { .gpu = 2, .primary = 1 },
		{ .gpu = 2, .primary = 2 } };
	struct dr_record *rec;

	assert_int_equal(dr_record_create(&rec), 0);
	dr_record_set_options(rec, json_pack("{s:i}", "channels", channels));
	for (int i = 0; i < 3; i++) {
		struct dr_rail_row rail;
		struct dr_bandwidth_row b;

		dr_fields_init(&dr_rail_fields, &rail);
		rail.rail = i;
		snprintf(rail.ifname, sizeof(rail.ifname), "eth%d", i);
		dr_record_add(rec, rails, &rail);
		dr_fields_init(&dr_bandwidth_fields, &b);
		b.phase = 0;
		b.gpu = i;
		b.direction = DR_TO_SERVER;
		b.message_bytes = 4096;
		b.gbps = gbps[i];
		dr_record_add(rec, bandwidth, &b);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(gpus); i++) {
		struct dr_gpu_row g = gpus[i];

		dr_record_add(rec, gpus, &g);
	}
	struct dr_matrix_cell_row c;
	dr_fields_init(&dr_matrix_cell_fields, &c);
	c.phase = 1;
	c.gpu = 1;
	c.rail = 2;
	snprintf(c.nic, sizeof(c.nic), "eth2");
	c.direction = DR_TO_SERVER;
	c.message_bytes = 4096;
	c.gbps = 7;
	dr_record_add(rec, matrix.cells, &c);
	return rec;
}

/* What --save-baseline writes; takes earlier over. */
static json_t *saved(struct dr_record *rec, json_t *earlier)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(dr_baseline_write(rec, earlier, f), 0);
	fclose(f);
	json_t *doc = json_loads(text, 0, NULL);
	assert_non_null(doc);
	free(text);
	json_decref(earlier);
	dr_record_destroy(rec);
	return doc;
}

/* The figure's number of that name; gpu -1: of a NIC. NAN: null, or there is no such figure. */
static double number(
	const json_t *doc, const char *list, int gpu, const char *nic, const char *name)
{
	const json_t *v;
	size_t i;

	json_array_foreach(json_object_get(doc, list), i, v)
	{
		const json_t *g = json_object_get(v, "gpu");
		const char *n = json_string_value(json_object_get(v, "nic"));
		const json_t *x = json_object_get(v, name);

		if ((json_is_integer(g) ? json_integer_value(g) : -1) == gpu &&
			!strcmp(n ? n : "", nic))
			return json_is_number(x) ? json_number_value(x) : NAN;
	}
	return NAN;
}

static void a_first_run_has_a_figure_of_each_gpu_nic_and_pair(void **state)
{
	json_t *doc = saved(run((double[]){ 10, 20, 40 }, 8), NULL);

	(void)state;
	assert_int_equal(json_array_size(json_object_get(doc, "baseline")), 5);
	assert_float_equal(number(doc, "baseline", 0, "", "mean_gbps"), 10, 1e-9);
	assert_float_equal(number(doc, "baseline", 2, "", "min_gbps"), 40, 1e-9);
	assert_float_equal(number(doc, "baseline", -1, "eth0", "mean_gbps"), 30, 1e-9);
	/* GPU 2 is spread, so nothing is known of its NICs alone. */
	assert_true(isnan(number(doc, "baseline", -1, "eth1", "mean_gbps")));
	assert_float_equal(number(doc, "baseline", 1, "eth2", "mean_gbps"), 7, 1e-9);
	json_decref(doc);
}

static void runs_add_up(void **state)
{
	json_t *doc = NULL;

	(void)state;
	for (int i = 1; i <= 40; i++)
		doc = saved(run((double[]){ i, 20, 40 }, 8), doc);
	assert_float_equal(number(doc, "baseline", 0, "", "mean_gbps"), 20.5, 1e-9);
	assert_float_equal(number(doc, "baseline", 0, "", "min_gbps"), 1, 1e-9);
	assert_float_equal(number(doc, "baseline", 0, "", "repeats"), 40, 0);
	const json_t *runs =
		json_object_get(json_array_get(json_object_get(doc, "baseline"), 0), "runs");
	assert_int_equal(json_array_size(runs), 32);
	assert_float_equal(
		json_number_value(json_object_get(json_array_get(runs, 0), "gbps")), 9, 1e-9);
	assert_float_equal(
		json_number_value(json_object_get(json_array_get(runs, 31), "gbps")), 40, 1e-9);
	json_decref(doc);
}

static void other_options_begin_anew(void **state)
{
	json_t *doc = saved(run((double[]){ 10, 20, 40 }, 8), NULL);
	struct dr_record *rec = run((double[]){ 30, 20, 40 }, 4);

	(void)state;
	assert_string_equal(dr_baseline_differs(doc, rec), "channels");
	doc = saved(rec, doc);
	assert_float_equal(number(doc, "baseline", 0, "", "repeats"), 1, 0);
	assert_float_equal(number(doc, "baseline", 0, "", "mean_gbps"), 30, 1e-9);
	json_decref(doc);
}

static json_t *compared(struct dr_record *rec, const json_t *baseline)
{
	dr_baseline_compare(rec, baseline, 90);
	json_t *doc = dr_record_to_json(rec);
	dr_record_destroy(rec);
	return doc;
}

static const char *result(const json_t *doc, size_t i)
{
	return json_string_value(
		json_object_get(json_array_get(json_object_get(doc, "comparison"), i), "result"));
}

static void a_comparison_names_everything(void **state)
{
	json_t *base = saved(run((double[]){ 10, 20, 40 }, 8), NULL), *doc;
	struct dr_record *rec;

	(void)state;
	base = saved(run((double[]){ 30, 20, 40 }, 8), base);
	rec = run((double[]){ 17, 20, NAN }, 8);
	/* GPU 0's mean is 20; GPU 2 was not measured; another size was. */
	rec->bandwidth.v[1].message_bytes = 8192;
	doc = compared(rec, base);
	assert_float_equal(number(doc, "comparison", 0, "", "percent"), 85, 1e-9);
	assert_float_equal(number(doc, "comparison", 0, "", "min_gbps"), 10, 1e-9);
	assert_float_equal(number(doc, "comparison", 0, "", "repeats"), 2, 0);
	assert_string_equal(result(doc, 0), "below");
	assert_true(isnan(number(doc, "comparison", 2, "", "gbps")));
	assert_float_equal(number(doc, "comparison", 2, "", "mean_gbps"), 40, 1e-9);
	assert_float_equal(number(doc, "comparison", 1, "eth2", "percent"), 100, 1e-9);
	size_t n = json_array_size(json_object_get(doc, "comparison"));
	/* The baseline's 5, GPU 1 and its NIC with the other size. */
	assert_int_equal(n, 7);
	assert_string_equal(result(doc, n - 1), "not-in-baseline");
	json_decref(doc);
	json_decref(base);
}

static void a_document_of_json_is_a_baseline_of_one_run(void **state)
{
	struct dr_record *rec = run((double[]){ 10, 20, 40 }, 8);
	json_t *old = dr_record_to_json(rec), *doc;

	(void)state;
	dr_record_destroy(rec);
	doc = compared(run((double[]){ 10, 10, 40 }, 8), old);
	assert_float_equal(number(doc, "comparison", 1, "", "percent"), 50, 1e-9);
	assert_float_equal(number(doc, "comparison", 1, "", "repeats"), 1, 0);
	json_decref(doc);
	json_decref(old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_first_run_has_a_figure_of_each_gpu_nic_and_pair),
		cmocka_unit_test(runs_add_up),
		cmocka_unit_test(other_options_begin_anew),
		cmocka_unit_test(a_comparison_names_everything),
		cmocka_unit_test(a_document_of_json_is_a_baseline_of_one_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
