/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/control.h"
#include "orchestrator/session/campaign_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A client with one GPU and three channels, two of which the fault hits. Times are in milliseconds, of the client's clock.
 * The server's is AHEAD, known within ERROR. */
enum { CHANNELS = 3, AHEAD = 1000, ERROR = 2 };
#define MS DR_NS_PER_MS

static struct world {
	struct dr_client c;
	struct dr_local local;
	struct dr_local_channel channel[CHANNELS];
	struct dr_fault_spec spec;
	struct dr_trial t;
	struct dr_control control;
} w;

static int set_up(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.local.n_channels = CHANNELS;
	w.local.gpu_end = w.local.gpu + 1;
	w.local.channel = w.channel;
	w.local.end = w.channel + CHANNELS;
	w.c.s.local = &w.local;
	w.c.s.control = &w.control;
	return dr_record_create(&w.c.s.rec);
}

static int tear_down(void **state)
{
	(void)state;
	dr_record_destroy(w.c.s.rec);
	return 0;
}

static void clocks_compared(void)
{
	w.control.clock.valid = true;
	w.control.clock.at_ns = dr_now_ns();
	w.control.clock.low_ns = (AHEAD - ERROR) * MS;
	w.control.clock.high_ns = (AHEAD + ERROR) * MS;
}

/* Took effect at 50 at its end. */
static void trial(const char *fault)
{
	struct dr_err e;

	if (dr_fault_spec_parse(fault, &w.spec, &e))
		fail_msg("%s", e.text);
	w.t = (struct dr_trial){ .number = 4,
		.spec = &w.spec,
		.watched = true,
		.by_transport = true,
		.n_affected = 2,
		.first_gap = w.c.s.rec->delivery_gaps.n,
		.fault_ns = 50 * MS };
	dr_fields_init(&dr_fault_fields, &w.t.row);
	for (unsigned i = 0; i < CHANNELS; i++)
		w.channel[i].trial.affected = w.channel[i].trial.hit = i < 2;
}

static void gap(int side, int64_t number, int64_t channel, int64_t from_ms, int64_t to_ms)
{
	struct dr_delivery_gap_row row;

	dr_fields_init(&dr_delivery_gap_fields, &row);
	row.side = side;
	row.gpu = 0;
	row.channel = channel;
	row.trial = number;
	row.last_delivery_ns = from_ms * MS;
	row.first_delivery_ns = to_ms * MS;
	row.gap_ns = (to_ms - from_ms) * MS;
	assert_non_null(dr_record_add(w.c.s.rec, delivery_gaps, &row));
}

static void the_affected_channels_of_the_trial_count(void **state)
{
	(void)state;
	clocks_compared();
	gap(DR_END_SERVER, 4, 0, 0, 500); /* of another campaign */
	trial("blackhole:path=0");
	gap(DR_END_SERVER, 3, 1, 1000, 1400); /* answered after its trial was over */
	gap(DR_END_SERVER, 4, 2, 1000, 1300); /* not affected */
	gap(DR_END_SERVER, 4, 0, 1045, 1075);
	assert_false(dr_trial_gaps_complete(&w.c, &w.t));
	gap(DR_END_SERVER, 4, 1, 1052, 1092);
	assert_true(dr_trial_gaps_complete(&w.c, &w.t));
	dr_trial_figures(&w.c, &w.t);
	assert_int_equal(w.t.row.gap_ns, 40 * MS);
	assert_int_equal(w.t.row.gap_median_channel_ns, 30 * MS);
	assert_int_equal(w.t.row.channel, 1);
	assert_int_equal(w.t.row.detect_ns, DR_UNSET);
	/* At 1050 on the receiver's clock: data that had arrived were delivered for 2 ms. */
	assert_int_equal(w.t.row.fault_after_ns, -2 * MS);
	assert_int_equal(w.t.row.clock_offset_ns, AHEAD * MS);
}

static void the_fault_is_placed_on_the_receivers_clock(void **state)
{
	(void)state;
	clocks_compared();
	trial("blackhole:path=0,side=server");
	gap(DR_END_CLIENT, 4, 0, -960, -920);
	gap(DR_END_SERVER, 4, 1, 45, 75);
	dr_trial_figures(&w.c, &w.t);
	assert_int_equal(w.t.row.gap_ns, 40 * MS);
	assert_int_equal(w.t.row.fault_after_ns, 10 * MS);
	assert_int_equal(w.t.row.clock_offset_ns, -AHEAD * MS);
}

static void without_a_time_of_the_fault_there_still_is_a_gap(void **state)
{
	(void)state;
	trial("blackhole:path=0"); /* the clocks are not compared */
	gap(DR_END_SERVER, 4, 0, 1045, 1075);
	dr_trial_figures(&w.c, &w.t);
	assert_int_equal(w.t.row.gap_ns, 30 * MS);
	assert_int_equal(w.t.row.fault_after_ns, DR_UNSET);
	clocks_compared();
	trial("exec=cut:path=0");
	gap(DR_END_SERVER, 4, 0, 1045, 1075);
	dr_trial_figures(&w.c, &w.t);
	assert_int_equal(w.t.row.gap_ns, 30 * MS);
	assert_int_equal(w.t.row.fault_after_ns, DR_UNSET);
}

static void an_error_has_no_gap(void **state)
{
	(void)state;
	trial("blackhole:path=0");
	gap(DR_END_SERVER, 4, 0, 1045, 1075);
	w.t.error = true;
	dr_trial_figures(&w.c, &w.t);
	assert_int_equal(w.t.row.gap_ns, DR_UNSET);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_affected_channels_of_the_trial_count),
		TEST(the_fault_is_placed_on_the_receivers_clock),
		TEST(without_a_time_of_the_fault_there_still_is_a_gap),
		TEST(an_error_has_no_gap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
