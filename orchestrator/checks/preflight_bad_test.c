/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "orchestrator/checks/preflight_priv.h"

/* What is below in a comparison of 2 GPUs and 3 NICs, and the parts that are named for it. */
static const struct {
	/* [GPU][NIC], [2]: all GPUs; [3]: all NICs of GPU 0 and 1. x: below, -: not in the run */
	const char *rows[4];
	const char *words;
} cases[] = {
	{ { "...", "...", "...", ".." }, "" },
	{ { ".x.", ".x.", ".x.", "xx" },
		"NIC eth1, to-server: 20 Gb/s is 20 % of the baseline's 100" },
	{ { "xxx", "...", "x.x", "x." },
		"GPU 0, to-server: 20 Gb/s is 20 % of the baseline's 100" },
	{ { "..x", "...", "...", ".." },
		"GPU 0 over eth2, to-server: 20 Gb/s is 20 % of the baseline's 100" },
	/* GPU 0's cell over eth1 is explained by the NIC: it is below over all others. */
	{ { "xxx", ".x.", "...", ".." },
		"NIC eth1, to-server: 20 Gb/s is 20 % of the baseline's 100; "
		"GPU 0, to-server: 20 Gb/s is 20 % of the baseline's 100" },
	{ { ".xx", ".x.", "...", ".." },
		"NIC eth1, to-server: 20 Gb/s is 20 % of the baseline's 100; "
		"GPU 0 over eth2, to-server: 20 Gb/s is 20 % of the baseline's 100" },
	{ { "-..", "-..", "-..", ".." }, "NIC eth0: not in this run: its link is down" },
	{ { "...", "...", "..x", ".." },
		"NIC eth2, to-server: 20 Gb/s is 20 % of the baseline's 100, only with all GPUs at once" },
	{ { "...", "...", "...", ".x" },
		"GPU 1, to-server: 20 Gb/s is 20 % of the baseline's 100, only together with all GPUs over all NICs" },
};

static void add(struct dr_record *rec, enum dr_figure_kind kind, int64_t gpu, int nic, char how)
{
	struct dr_comparison_row c = { .kind = (int)kind,
		.gpu = gpu,
		.direction = DR_TO_SERVER,
		.message_bytes = 4096,
		.gbps = how == 'x' ? 20 : 99,
		.mean_gbps = 100,
		.percent = how == 'x' ? 20 : 99,
		.result = how == 'x'   ? DR_COMPARISON_BELOW
			  : how == '-' ? DR_COMPARISON_NOT_RUN
				       : DR_COMPARISON_OK };

	if (nic >= 0)
		snprintf(c.nic, sizeof(c.nic), "eth%d", nic);
	dr_record_add(rec, comparison, &c);
}

static struct dr_record *record(const char *const rows[4])
{
	struct dr_record *rec;

	assert_int_equal(dr_record_create(&rec), 0);
	for (int nic = 0; nic < 3; nic++) {
		struct dr_rail_row rail;

		if (rows[0][nic] != '-') {
			dr_fields_init(&dr_rail_fields, &rail);
			rail.rail = nic;
			snprintf(rail.ifname, sizeof(rail.ifname), "eth%d", nic);
			dr_record_add(rec, rails, &rail);
		}
		for (int gpu = 0; gpu < 2; gpu++)
			add(rec, DR_FIGURE_PAIR, gpu, nic, rows[gpu][nic]);
		add(rec, DR_FIGURE_NIC, DR_UNSET, nic, rows[2][nic]);
	}
	for (int gpu = 0; gpu < 2; gpu++)
		add(rec, DR_FIGURE_GPU, gpu, -1, rows[3][gpu]);
	dr_record_errorf(rec, DR_EXIT_THRESHOLD,
		"eth0 is in the baseline, not in this run: its link is down");
	return rec;
}

static void figures_are_put_down_to_parts(void **state)
{
	struct preflight_bad bad[PREFLIGHT_BAD_MAX];
	char words[512];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		struct dr_record *rec = record(cases[i].rows);
		size_t n = preflight_find_bad(rec, bad);

		preflight_describe_bad(bad, n, words, sizeof(words));
		assert_string_equal(words, cases[i].words);
		dr_record_destroy(rec);
	}
}

/* More than there is room for: no more than the room, and the line says how many. */
static void many(void **state)
{
	struct preflight_bad bad[PREFLIGHT_BAD_MAX + 1];
	struct dr_record *rec;
	char words[512];

	(void)state;
	memset(bad, 0x55, sizeof(bad));
	assert_int_equal(dr_record_create(&rec), 0);
	for (int nic = 0; nic < 2 * PREFLIGHT_BAD_MAX; nic++)
		add(rec, DR_FIGURE_PAIR, 0, nic, 'x');
	assert_int_equal(preflight_find_bad(rec, bad), PREFLIGHT_BAD_MAX);
	assert_int_equal(bad[PREFLIGHT_BAD_MAX].kind, 0x55555555);
	preflight_describe_bad(bad, PREFLIGHT_BAD_MAX, words, sizeof(words));
	assert_non_null(strstr(words, "; and 60 more"));
	assert_null(strstr(words, "eth4"));
	dr_record_destroy(rec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_are_put_down_to_parts),
		cmocka_unit_test(many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
