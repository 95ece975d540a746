/* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/output/parts.h"

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

static struct dr_baseline_saved last;

/* What --save-baseline writes; takes earlier over. */
static json_t *saved(struct dr_record *rec, json_t *earlier)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_int_equal(dr_baseline_write(rec, earlier, f, &last), 0);
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

static bool fits(const json_t *doc, bool saves, struct dr_record *rec, struct dr_err *e)
{
	static const unsigned gpus[] = { 0, 1 };
	const struct dr_baseline_file file = { "good.json", doc, saves };

	return dr_baseline_check(&file, rec, gpus, DR_ARRAY_LEN(gpus), e) == 0;
}

static void other_options_are_refused_and_named(void **state)
{
	json_t *doc = saved(run((double[]){ 10, 20, 40 }, 8), NULL);
	struct dr_record *rec = run((double[]){ 30, 20, 40 }, 8);
	struct dr_err e;

	(void)state;
	assert_true(fits(doc, false, rec, &e));
	/* What was not given and what a version does not know are no differences. */
	dr_record_set_options(rec, json_pack("{s:i, s:s, s:b, s:n}", "channels", 8, "duration",
					   "9s", "bidir", 0, "rate"));
	assert_true(fits(doc, false, rec, &e));
	dr_record_set_options(rec, json_pack("{s:i, s:s}", "channels", 4, "duration", "9s"));
	assert_false(fits(doc, false, rec, &e));
	assert_string_equal(e.text,
		"baseline good.json: written with --channels 8, this run has --channels 4; use those "
		"options or another file");
	assert_false(fits(doc, true, rec, &e));
	assert_string_equal(e.text,
		"--save-baseline good.json: its runs had --channels 8, this one --channels 4; choose "
		"another file, or delete this one");
	/* GPUs: those of the record, and before it has any those that are named. */
	dr_record_set_options(rec, json_pack("{s:i}", "channels", 8));
	rec->gpus.n = 2;
	assert_false(fits(doc, false, rec, &e));
	assert_non_null(strstr(e.text, "written with --gpus 0-2, this run has --gpus 0-1;"));
	rec->gpus.v[1].gpu = 5;
	assert_false(fits(doc, false, rec, &e));
	assert_non_null(strstr(e.text, "this run has --gpus 0,5;"));
	rec->gpus.n = 0;
	assert_false(fits(doc, false, rec, &e));
	assert_non_null(strstr(e.text, "this run has --gpus 0-1;"));
	dr_record_destroy(rec);
	json_decref(doc);
}

static void forms_of_options(void **state)
{
	struct dr_record *rec = run((double[]){ 10, 20, 40 }, 8);
	json_t *doc;
	struct dr_err e;

	(void)state;
	dr_record_set_options(rec, json_pack("{s:I, s:b, s:n, s:s}", "size", (json_int_t)64 << 20,
					   "matrix", 1, "rails", "map", "0=a,b"));
	doc = dr_record_to_json(rec);
	rec->gpus.n = 3; /* without GPU 2's second row */
	dr_record_set_options(rec, json_pack("{s:I, s:b, s:s, s:n}", "size", (json_int_t)65536,
					   "matrix", 0, "rails", "eth1", "map"));
	assert_false(fits(doc, false, rec, &e));
	assert_non_null(
		strstr(e.text, "written with no --rails --map 0=a,b --size 64M --matrix, "));
	assert_non_null(
		strstr(e.text, "this run has --rails eth1 no --map --size 64K no --matrix;"));
	dr_record_destroy(rec);
	json_decref(doc);
}

static void a_run_below_the_mean_is_told(void **state)
{
	json_t *doc = saved(run((double[]){ 10, 20, 40 }, 8), NULL);

	(void)state;
	assert_int_equal(last.runs, 1);
	assert_true(isnan(last.low_percent));
	doc = saved(run((double[]){ 10, 5, 40 }, 8), doc);
	assert_int_equal(last.runs, 2);
	assert_float_equal(last.low_percent, 25, 1e-9);
	assert_string_equal(last.low, "GPU 1 to-server: 5.00 of 20.00 Gb/s");
	json_decref(doc);
}

static void a_matrix_has_figures_of_nics_with_all_gpus(void **state)
{
	struct dr_record *rec = run((double[]){ 10, 20, 40 }, 8);
	json_t *doc;

	(void)state;
	rec->matrix.cells.v[0].gpu = DR_UNSET;
	doc = saved(rec, NULL);
	/* That of the cell, no sum over GPUs that use every NIC. */
	assert_float_equal(number(doc, "baseline", -1, "eth2", "mean_gbps"), 7, 1e-9);
	assert_true(isnan(number(doc, "baseline", -1, "eth0", "mean_gbps")));
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

static void the_higher_of_two_measurements_is_compared(void **state)
{
	const struct dr_comparison_row first[] = {
		{ .kind = DR_FIGURE_GPU, .gpu = 0, .message_bytes = 4096, .gbps = 9.9 },
		{ .kind = DR_FIGURE_GPU, .gpu = 1, .message_bytes = 4096, .gbps = NAN },
		{ .kind = DR_FIGURE_GPU,
			.gpu = 2,
			.message_bytes = 4096,
			.gbps = 39,
			.nic = "eth9" },
	};
	json_t *base = saved(run((double[]){ 10, 20, 40 }, 8), NULL), *doc;
	struct dr_record *rec = run((double[]){ 5, 10, 20 }, 8);

	(void)state;
	for (size_t i = 0; i < rec->bandwidth.n; i++)
		assert_int_equal(rec->bandwidth.v[i].message_bytes, 4096);
	rec->earlier = first;
	rec->n_earlier = DR_ARRAY_LEN(first);
	doc = compared(rec, base);
	assert_float_equal(number(doc, "comparison", 0, "", "gbps"), 9.9, 1e-9);
	assert_string_equal(result(doc, 0), "ok");
	assert_float_equal(number(doc, "comparison", 1, "", "percent"), 50, 1e-9);
	assert_float_equal(number(doc, "comparison", 2, "", "percent"), 50, 1e-9);
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
		cmocka_unit_test(other_options_are_refused_and_named),
		cmocka_unit_test(forms_of_options),
		cmocka_unit_test(a_run_below_the_mean_is_told),
		cmocka_unit_test(a_matrix_has_figures_of_nics_with_all_gpus),
		cmocka_unit_test(a_comparison_names_everything),
		cmocka_unit_test(the_higher_of_two_measurements_is_compared),
		cmocka_unit_test(a_document_of_json_is_a_baseline_of_one_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
