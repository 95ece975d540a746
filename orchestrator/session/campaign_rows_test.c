/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/control.h"
#include "orchestrator/session/campaign_priv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A client with one GPU and two channels that send, and the record of a campaign. Times are in milliseconds. */
enum { CHANNELS = 2 };
#define MS DR_NS_PER_MS
#define BOUND (50 * MS)

static struct world {
	struct dr_client c;
	struct dr_local local;
	struct dr_local_channel channel[CHANNELS];
	struct dr_trial t;
	struct dr_control control; /* the clocks are not compared yet */
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
	if (dr_record_create(&w.c.s.rec))
		return -1;
	w.c.s.rec->detection.bound_ns = BOUND;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	dr_record_destroy(w.c.s.rec);
	return 0;
}

/* Both channels are hit at 0 and the fault is undone at undone_ms. */
static void trial(unsigned number, int64_t undone_ms)
{
	dr_trial_claim_late(&w.c); /* as campaign.c does it */
	w.t = (struct dr_trial){ .number = number,
		.expects_switch = true,
		.n_affected = CHANNELS,
		.first_switch = w.c.s.rec->switches.n,
		.undone_ns = undone_ms * MS };
	for (struct dr_local_channel *ch = w.channel; ch < w.local.end; ch++) {
		memset(&ch->trial, 0, sizeof(ch->trial));
		ch->trial.hit = ch->trial.affected = true;
		ch->trial.unplanned = ch->unplanned;
	}
}

/* A switch of the channel, in the rows of both ends. */
static void switches(unsigned channel, uint32_t epoch, int64_t detect_ms)
{
	struct dr_switch_row row;

	w.channel[channel].unplanned++;
	for (int side = DR_END_CLIENT; side <= DR_END_SERVER; side++) {
		dr_fields_init(&dr_switch_fields, &row);
		row.side = side;
		row.gpu = 0;
		row.channel = channel;
		row.receiver = side == DR_END_SERVER;
		row.rec.epoch = epoch;
		row.rec.detect_ns = detect_ms * MS;
		assert_non_null(dr_record_add(w.c.s.rec, switches, &row));
	}
}

static int64_t false_failovers(void)
{
	dr_trial_claim_late(&w.c);
	return dr_trial_false_failovers(&w.c);
}

static void assert_trials(const int64_t *want, size_t n)
{
	assert_int_equal(w.c.s.rec->switches.n, 2 * n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(w.c.s.rec->switches.v[2 * i].trial, want[i]);
		assert_int_equal(w.c.s.rec->switches.v[2 * i + 1].trial, want[i]);
	}
}

static void switches_in_time_belong_to_the_trial(void **state)
{
	(void)state;
	trial(7, 1000);
	switches(0, 2, 40);
	switches(1, 2, 1040);
	dr_trial_claim(&w.c, &w.t);
	assert_trials((int64_t[]){ 7, 7 }, 2);
	assert_true(dr_trial_complete(&w.c, &w.t));
	assert_int_equal(false_failovers(), 0);
}

static void a_loss_long_after_the_fault_is_a_false_failover(void **state)
{
	(void)state;
	trial(0, 1000);
	switches(0, 2, 40);
	switches(1, 2, 40);
	switches(1, 4, 3000);
	dr_trial_claim(&w.c, &w.t);
	assert_trials((int64_t[]){ 0, 0, DR_UNSET }, 3);
	assert_int_equal(false_failovers(), 1);
}

/* The trial is a HANG: the switch that misses its deadline is no false failover too, whether its rows are there when
 * the trial is judged, before the next trial begins, or at the end. */
static void a_switch_after_the_deadline_is_counted_once(void **state)
{
	(void)state;
	for (unsigned when = 0; when < 3; when++) {
		tear_down(state);
		set_up(state);
		trial(0, 5100);
		switches(0, 2, 40);
		dr_trial_late(&w.c, &w.t);
		assert_true(w.channel[1].trial.late && !w.channel[0].trial.late);
		if (when == 0)
			switches(1, 2, 6000);
		dr_trial_claim(&w.c, &w.t);
		if (when == 1)
			switches(1, 2, 6000);
		if (when < 2) {
			trial(1, 20000);
			switches(0, 4, 19000);
			switches(1, 4, 19000);
			dr_trial_claim(&w.c, &w.t);
			assert_trials((int64_t[]){ 0, 0, 1, 1 }, 4);
		} else {
			switches(1, 2, 6000);
		}
		assert_int_equal(false_failovers(), 0);
		assert_int_equal(w.c.s.rec->switches.v[2].trial, 0);
	}
}

/* A channel that hung is excused once. */
static void a_second_switch_after_the_deadline_is_a_false_failover(void **state)
{
	(void)state;
	trial(0, 5100);
	switches(0, 2, 40);
	dr_trial_late(&w.c, &w.t);
	dr_trial_claim(&w.c, &w.t);
	switches(1, 2, 6000);
	switches(1, 4, 7000);
	switches(0, 4, 7000);
	assert_int_equal(false_failovers(), 2);
	assert_trials((int64_t[]){ 0, 0, DR_UNSET, DR_UNSET }, 4);
}

/* The figures of a trial with both switches in time, of this fault, at 20 ms. */
static void figures_of(const char *fault, bool error)
{
	struct dr_fault_spec spec;
	struct dr_err e;

	if (dr_fault_spec_parse(fault, &spec, &e))
		fail_msg("%s", e.text);
	trial(0, 1000);
	dr_fields_init(&dr_fault_fields, &w.t.row);
	w.t.spec = &spec;
	w.t.fault_ns = 20 * MS;
	w.t.error = error;
	w.c.s.rec->switches.n = 0;
	w.t.first_switch = 0;
	switches(0, 2, 40);
	switches(1, 2, 40);
	for (size_t i = 0; i < w.c.s.rec->switches.n; i++) {
		w.c.s.rec->switches.v[i].rec.last_delivery_ns = 10 * MS;
		w.c.s.rec->switches.v[i].rec.first_delivery_ns = 60 * MS;
	}
	dr_trial_claim(&w.c, &w.t);
	dr_trial_figures(&w.c, &w.t);
	w.t.spec = NULL;
}

/* What a person or a command takes is no detection. */
static void the_time_of_a_fault_by_others_is_not_known(void **state)
{
	static const char *const others[] = { "manual:path=0", "exec=cut:path=0" };

	(void)state;
	w.c.s.plan.reverse = true;
	w.c.s.plan.n_each = CHANNELS;
	figures_of("link-down:path=0,side=client", false);
	assert_int_equal(w.t.row.fault_to_detect_ns, 20 * MS);
	for (size_t i = 0; i < DR_ARRAY_LEN(others); i++) {
		figures_of(others[i], false);
		assert_int_equal(w.t.row.gap_ns, 50 * MS);
		assert_int_equal(w.t.row.detect_ns, 30 * MS);
		assert_int_equal(w.t.row.fault_after_ns, DR_UNSET);
		assert_int_equal(w.t.row.fault_to_detect_ns, DR_UNSET);
	}
}

/* A switch before the second path is lost, too, is no short gap. */
static void an_error_has_no_gap_but_the_time_until_it(void **state)
{
	(void)state;
	w.local.n_failed = 1;
	w.local.fail_silent_ns = 1500 * MS;
	figures_of("link-down:path=0", true);
	assert_int_equal(w.t.row.gap_ns, DR_UNSET);
	assert_int_equal(w.t.row.detect_ns, DR_UNSET);
	assert_int_equal(w.t.row.error_after_ns, 1500 * MS);
	/* The server's channels ended: this end does not know. */
	w.local.n_failed = 0;
	figures_of("link-down:path=0", true);
	assert_int_equal(w.t.row.gap_ns, DR_UNSET);
	assert_int_equal(w.t.row.error_after_ns, DR_UNSET);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(switches_in_time_belong_to_the_trial),
		TEST(a_loss_long_after_the_fault_is_a_false_failover),
		TEST(a_switch_after_the_deadline_is_counted_once),
		TEST(the_time_of_a_fault_by_others_is_not_known),
		TEST(an_error_has_no_gap_but_the_time_until_it),
		TEST(a_second_switch_after_the_deadline_is_a_false_failover),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
