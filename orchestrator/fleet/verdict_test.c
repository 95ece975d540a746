/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/verdict.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A fabric of nodes with two NICs each, every pair measured over both, both ways. A test spoils figures by a rule. */
enum { N = 8, NICS = 2 };
struct fabric {
	struct dr_sweep_node node[N];
	struct dr_sweep_result result[N * (N - 1) / 2];
	size_t n;
	struct dr_sweep_verdict v;
};

typedef void (*spoil_fn)(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l);

static void lane(struct dr_sweep_result *r, unsigned i, unsigned nic, bool back, spoil_fn spoil)
{
	struct dr_sweep_lane *l = &r->lane[i];
	uint32_t a = r->pair.client, b = r->pair.server;

	*l = (struct dr_sweep_lane){ .client_nic = (uint8_t)nic,
		.server_nic = (uint8_t)nic,
		.to_client = back,
		.gbps = 100 - (float)((a * 7 + b * 3 + i) % 9) };
	if (spoil)
		spoil(back ? b : a, back ? a : b, nic, l);
}

static void build(struct fabric *f, spoil_fn spoil)
{
	*f = (struct fabric){ .n = 0 };
	for (uint32_t i = 0; i < N; i++) {
		f->node[i] = (struct dr_sweep_node){ .rank = i, .presence = DR_SWEEP_PRESENT };
		dr_sweep_nic_index(&f->node[i], "eth0");
		dr_sweep_nic_index(&f->node[i], "eth1");
	}
	for (uint32_t a = 0; a < N; a++)
		for (uint32_t b = a + 1; b < N; b++) {
			struct dr_sweep_result *r = &f->result[f->n++];

			*r = (struct dr_sweep_result){
				.pair = { a, b }, .state = DR_SWEEP_OK, .n_lanes = 2 * NICS
			};
			r->lane = dr_calloc(2 * NICS, sizeof(*r->lane));
			for (unsigned k = 0; k < 2 * NICS; k++)
				lane(r, k, k / 2, k % 2, spoil);
		}
}

static void judge(struct fabric *f)
{
	const struct dr_sweep_judge j = { f->node, N, f->result, f->n, 0.8 };

	assert_int_equal(dr_sweep_judge(&j, &f->v), 0);
	for (size_t i = 0; i < f->v.n; i++)
		printf("  %s: %s\n", dr_sweep_kind_names[f->v.v[i].kind], f->v.v[i].text);
	printf("  %s\n", f->v.line);
}

static void drop(struct fabric *f)
{
	dr_sweep_verdict_fini(&f->v);
	for (size_t i = 0; i < f->n; i++)
		dr_sweep_result_fini(&f->result[i]);
	for (uint32_t i = 0; i < N; i++)
		dr_sweep_node_fini(&f->node[i]);
}

/* Exactly this finding, and this status. */
static void only(
	const struct fabric *f, enum dr_sweep_kind kind, int64_t rank, const char *nic, int status)
{
	assert_int_equal(f->v.n, 1);
	assert_int_equal(f->v.v[0].kind, kind);
	assert_int_equal(f->v.v[0].rank, rank);
	assert_string_equal(f->v.v[0].nic, nic);
	assert_int_equal(f->v.exit_code, status);
}

static void a_good_fabric_is_exonerated(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, NULL);
	judge(&f);
	assert_int_equal(f.v.n, 0);
	assert_int_equal(f.v.exit_code, 0);
	assert_int_equal(f.v.figures, N * (N - 1) / 2 * 4);
	assert_non_null(
		strstr(f.v.line, "network exonerated: 28 of 28 pairs of 8 nodes, 112 figures"));
	drop(&f);
}

static void slow_nic(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if ((from == 3 || to == 3) && nic == 1)
		l->gbps = 30;
}

static void slow_sender(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	(void)to;
	if (from == 3 && nic == 0)
		l->gbps = NAN;
}

static void slow_node(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	(void)nic;
	if (from == 6 || to == 6)
		l->gbps = 50;
}

static void slow_spine(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if ((from < 4) != (to < 4) && nic == 0)
		l->gbps = 60;
}

static void slow_pair(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if (nic == 1 && ((from == 2 && to == 5) || (from == 5 && to == 2)))
		l->gbps = 10;
}

static void slow_way(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if (nic == 1 && from == 2 && to == 5)
		l->gbps = 10;
}

static void wrong_nic(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	(void)from;
	if (to == 7 && nic == 0)
		l->wrong = 3;
}

static void wrong_way(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if (from == 1 && to == 0 && nic == 0)
		l->wrong = 3;
}

static void two_nics(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	if (((from == 3 || to == 3) && nic == 1) || ((from == 4 || to == 4) && nic == 1))
		l->gbps = 30;
}

static void each_sort_of_defect_has_its_name(void **state)
{
	static const struct {
		spoil_fn spoil;
		enum dr_sweep_kind kind;
		int64_t rank;
		const char *nic;
		int status;
		const char *text;
	} cases[] = {
		{ slow_nic, DR_SWEEP_BAD_NIC, 3, "eth1", 7, "rank 3 NIC eth1: lowest 30 Gb/s" },
		{ slow_sender, DR_SWEEP_ASYMMETRIC, 3, "eth0", 7, "rank 3 NIC eth0 sends slowly" },
		{ slow_node, DR_SWEEP_BAD_NODE, 6, "", 7, "rank 6: all 2 NICs are low" },
		{ slow_pair, DR_SWEEP_SLOW_PAIR, 2, "eth1", 7, "; the other way 10" },
		{ slow_way, DR_SWEEP_ASYMMETRIC, 2, "eth1", 7,
			"rank 2 NIC eth1 to rank 5 NIC eth1: 10 Gb/s" },
		{ wrong_nic, DR_SWEEP_CORRUPTS, 7, "eth0", 6, "corrupts data that it receives" },
		{ wrong_way, DR_SWEEP_CORRUPTS, 1, "eth0", 6,
			"from rank 1 NIC eth0 to rank 0 NIC eth0" },
		{ slow_spine, DR_SWEEP_FABRIC_LINK, 3, "eth0", 7,
			"{0,1,2,3} and {4,5,6,7} over NIC eth0: all 32 figures" },
	};
	struct fabric f;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		build(&f, cases[i].spoil);
		judge(&f);
		only(&f, cases[i].kind, cases[i].rank, cases[i].nic, cases[i].status);
		assert_non_null(strstr(f.v.v[0].text, cases[i].text));
		drop(&f);
	}
}

static void two_bad_nics_are_two_findings(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, two_nics);
	judge(&f);
	assert_int_equal(f.v.n, 2);
	assert_int_equal(f.v.v[0].kind, DR_SWEEP_BAD_NIC);
	assert_int_equal(f.v.v[1].kind, DR_SWEEP_BAD_NIC);
	assert_int_equal(f.v.v[0].rank + f.v.v[1].rank, 7);
	drop(&f);
}

static void failed_runs_are_put_down_to_their_node(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, NULL);
	for (size_t i = 0; i < f.n; i++)
		if (f.result[i].pair.client == 2 || f.result[i].pair.server == 2) {
			dr_sweep_result_fini(&f.result[i]);
			dr_sweep_fail(&f.result[i], "no route");
		}
	judge(&f);
	only(&f, DR_SWEEP_BAD_NODE, 2, "", 7);
	assert_non_null(strstr(f.v.v[0].text, "7 of 7 pairs failed: no route"));
	drop(&f);
	build(&f, NULL);
	dr_sweep_result_fini(&f.result[0]);
	dr_sweep_fail(&f.result[0], "no route");
	judge(&f);
	only(&f, DR_SWEEP_FAILED_PAIR, 0, "", 7);
	drop(&f);
}

static void dead_nics_and_slow_links_are_cables(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, slow_nic);
	for (uint32_t i = 0; i < N; i++)
		f.node[i].nic[0].speed_mbps = f.node[i].nic[1].speed_mbps = 100000;
	f.node[3].nic[1].speed_mbps = 25000;
	for (size_t i = 0; i < f.n; i++)
		if (f.result[i].pair.client == 3)
			f.result[i].counters = dr_strdup(
				"server eth1: rx_errors +1; client eth1: symbol_error +7");
	judge(&f);
	only(&f, DR_SWEEP_BAD_CABLE, 3, "eth1", 7);
	assert_non_null(strstr(f.v.v[0].text, "; symbol_error +7"));
	assert_null(strstr(f.v.v[0].text, "rx_errors"));
	drop(&f);
	build(&f, NULL);
	for (size_t i = 0; i < f.n; i++) {
		struct dr_sweep_result *r = &f.result[i];

		if (r->pair.client != 5 && r->pair.server != 5)
			continue;
		r->n_lanes = 2; /* eth0 alone */
		r->unused[r->pair.client == 5 ? 0 : 1] = 2;
	}
	f.node[5].nic[1].told = f.node[5].nic[1].up = true;
	judge(&f);
	only(&f, DR_SWEEP_BAD_CABLE, 5, "eth1", 7);
	f.node[5].nic[1].up = false;
	dr_sweep_verdict_fini(&f.v);
	judge(&f);
	only(&f, DR_SWEEP_BAD_NIC, 5, "eth1", 7);
	drop(&f);
}

/* One pair had no answer over a NIC that works with others: that is no finding, and is said. */
static void a_pair_without_one_of_its_nics_is_told(void **state)
{
	struct fabric f;

	(void)state;
	for (unsigned again = 0; again < 2; again++) {
		build(&f, NULL);
		f.result[0].unused[1] = 2;
		f.result[0].n_lanes = again ? f.result[0].n_lanes : 2; /* eth0 alone */
		judge(&f);
		assert_int_equal(f.v.n, 0);
		assert_int_equal(f.v.exit_code, 0);
		assert_int_equal(
			!strstr(f.v.line, "; 1 pair had no answer over a NIC that is used"), again);
		drop(&f);
	}
}

static void missing_nodes_are_told(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, NULL);
	f.node[1].presence = DR_SWEEP_LOST;
	snprintf(f.node[1].reason, sizeof(f.node[1].reason), "reset");
	for (size_t i = 0; i < f.n; i++)
		if (f.result[i].pair.client == 1 || f.result[i].pair.server == 1) {
			dr_sweep_result_fini(&f.result[i]);
			f.result[i].state = DR_SWEEP_MISSING;
		}
	judge(&f);
	only(&f, DR_SWEEP_NODE_MISSING, 1, "", 3);
	assert_string_equal(f.v.v[0].text, "rank 1 was lost: reset");
	assert_non_null(strstr(f.v.line, "INCOMPLETE: 21 of 28 pairs measured; 1 node missing"));
	drop(&f);
}

/* Every pair with rank 1 is low or failed before it is lost. */
static void slow_one(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	(void)nic;
	if (from == 1 || to == 1)
		l->gbps = 10;
}

static void a_lost_node_accuses_nobody(void **state)
{
	struct fabric f;

	(void)state;
	for (unsigned failed = 0; failed <= N - 1; failed++)
		for (int presence = DR_SWEEP_AWAITED; presence <= DR_SWEEP_LOST; presence += 2) {
			unsigned left = failed;

			build(&f, slow_one);
			f.node[1].presence = presence;
			snprintf(f.node[1].host, sizeof(f.node[1].host), "node07");
			for (size_t i = 0; i < f.n; i++) {
				struct dr_sweep_result *r = &f.result[i];
				uint32_t other =
					r->pair.client == 1 ? r->pair.server : r->pair.client;

				if (r->pair.client != 1 && r->pair.server != 1)
					continue;
				/* eth1 is used with others, eth2 with none. */
				r->n_lanes = 2;
				r->unused[0] = r->unused[1] =
					2 | 1 << dr_sweep_nic_index(&f.node[other], "eth2");
				if (left == 0)
					continue;
				left--;
				dr_sweep_result_fini(r);
				dr_sweep_fail(r, "no answer");
			}
			judge(&f);
			only(&f, DR_SWEEP_NODE_MISSING, 1, "", 3);
			assert_non_null(strstr(
				f.v.line, " pairs measured; 1 node missing: rank 1 (node07)"));
			assert_null(strstr(f.v.line, "no answer"));
			drop(&f);
		}
}

static void nothing_measured_exonerates_nothing(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, NULL);
	for (size_t i = 0; i < f.n; i++) {
		dr_sweep_result_fini(&f.result[i]);
		f.result[i].state = DR_SWEEP_MISSING;
	}
	judge(&f);
	assert_int_equal(f.v.exit_code, 3);
	f.n = 0;
	dr_sweep_verdict_fini(&f.v);
	judge(&f);
	assert_int_equal(f.v.exit_code, 3);
	f.n = N * (N - 1) / 2;
	drop(&f);
}

/* Lines of what is printed that have this text. */
static unsigned printed(const struct fabric *f, const char *text)
{
	const struct dr_sweep_judge j = { f->node, N, f->result, f->n, 0.8 };
	char *out = NULL, *line, *rest;
	size_t len = 0;
	FILE *to = open_memstream(&out, &len);
	unsigned n = 0;

	assert_non_null(to);
	assert_int_equal(dr_sweep_print(&j, &f->v, to), 0);
	fclose(to);
	rest = out;
	while ((line = strsep(&rest, "\n")) != NULL)
		n += strstr(line, text) != NULL;
	free(out); /* lint-ok: of open_memstream */
	return n;
}

/* The last line has room for four; equal reasons are one finding in the text. */
static void lost_nodes_are_named(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, NULL);
	for (uint32_t i = 3; i < N; i++) {
		f.node[i].presence = DR_SWEEP_LOST;
		snprintf(f.node[i].reason, sizeof(f.node[i].reason), "no answer");
	}
	judge(&f);
	assert_int_equal(f.v.n, N - 3);
	assert_non_null(
		strstr(f.v.line, "; 5 nodes missing: rank 3, rank 4, rank 5, rank 6 and 1 more"));
	assert_int_equal(printed(&f, "nodes with the same reason, ranks 3, 4, 5, 6, 7: no"), 1);
	drop(&f);
}

static void fast_fabric(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	l->gbps = (from == 3 || to == 3) && nic == 1 ? 1234.5F : 4321;
}

static void slow_fabric(uint32_t from, uint32_t to, unsigned nic, struct dr_sweep_lane *l)
{
	l->gbps = (from == 3 || to == 3) && nic == 1 ? 0.00469F : 0.0498F;
}

static void wide_figures_keep_their_mark(void **state)
{
	struct fabric f;

	(void)state;
	build(&f, slow_fabric);
	judge(&f);
	assert_int_equal(printed(&f, " 0.0047! 0.0047!"), 1);
	drop(&f);
	build(&f, fast_fabric);
	judge(&f);
	assert_int_equal(printed(&f, "   1234!   1234!"), 1);
	assert_int_equal(printed(&f, "    4321"), N - 1);
	drop(&f);
}

/* Reasons that differ in numbers alone are one. */
static void equal_reasons_are_one_line(void **state)
{
	struct fabric f;

	(void)state;
	for (unsigned bad = 1; bad <= 4; bad++) {
		build(&f, NULL);
		for (size_t i = 0, k = 0; i < f.n && k < bad; i += 9, k++) {
			char why[80];

			snprintf(why, sizeof(why), "cannot connect to 10.0.0.%zu port %zu", i,
				9 * i);
			dr_sweep_result_fini(&f.result[i]);
			dr_sweep_fail(&f.result[i], why);
		}
		judge(&f);
		assert_int_equal(f.v.n, bad);
		assert_int_equal(printed(&f, "10.0.0."), 1);
		assert_int_equal(
			printed(&f, "failed-pair: 3 pairs with the same reason, rank 0 with 1, "),
			bad == 3);
		drop(&f);
	}
	/* All pairs failed, as nodes and the pair that is left. */
	build(&f, NULL);
	for (size_t i = 0; i < f.n; i++) {
		dr_sweep_result_fini(&f.result[i]);
		dr_sweep_fail(&f.result[i], i % 2 ? "no route to 1" : "no route to 23");
	}
	judge(&f);
	assert_true(f.v.n > 2);
	assert_int_equal(printed(&f, "no route to"), 2);
	assert_int_equal(printed(&f, "median nan"), 0);
	assert_int_equal(printed(&f, "nodes with the same reason, ranks 0, 1, 2, "), 1);
	drop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_fabric_is_exonerated),
		cmocka_unit_test(each_sort_of_defect_has_its_name),
		cmocka_unit_test(two_bad_nics_are_two_findings),
		cmocka_unit_test(failed_runs_are_put_down_to_their_node),
		cmocka_unit_test(dead_nics_and_slow_links_are_cables),
		cmocka_unit_test(a_pair_without_one_of_its_nics_is_told),
		cmocka_unit_test(missing_nodes_are_told),
		cmocka_unit_test(a_lost_node_accuses_nobody),
		cmocka_unit_test(lost_nodes_are_named),
		cmocka_unit_test(equal_reasons_are_one_line),
		cmocka_unit_test(wide_figures_keep_their_mark),
		cmocka_unit_test(nothing_measured_exonerates_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
