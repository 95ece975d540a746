/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_testkit.h"

/* Receivers that are stopped for a time stand for a transport that moves to another NIC. */
static const int64_t STOP_NS = 200 * DR_NS_PER_MS;
enum { TRIAL = 5 };

static void gaps(bool end, int64_t since_ns)
{
	struct dr_command c = { .kind = DR_CMD_GAPS,
		.position = DR_ALL,
		.path = TRIAL,
		.flag = end,
		.value = since_ns };

	for (unsigned s = 0; s < 2; s++)
		dr_worker_post(ends[s].w, &c);
}

static void flows(void)
{
	uint64_t at = live_rx(SERVER);

	WAIT(live_rx(SERVER) > at + (4 << 20));
}

static void opened(unsigned channels)
{
	const struct config c = {
		.n_gpus = 1, .n_bulk = channels, .window = 8, .chunk_max = 65536
	};

	open_both(&c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	flows();
}

static void for_a_time(void)
{
	for (int64_t until = dr_now_ns() + STOP_NS; dr_now_ns() < until;)
		pump(10);
}

static void resumed(void)
{
	post(SERVER, DR_CMD_PAUSE_RECV, 0, false);
	flows();
}

static void closed(void)
{
	stop_and_expect();
	check_clean(SERVER);
	assert_int_equal(ends[CLIENT].gaps, 0); /* it receives nothing */
	close_both();
}

/* The end is asked for while nothing arrives: the answer waits for the delivery, and each channel answers once. */
static void an_interval_counts_whole(void **state)
{
	int64_t since, asked;

	(void)state;
	opened(2);
	gaps(false, 0);
	since = dr_now_ns();
	stop_receiving();
	for_a_time();
	asked = dr_now_ns();
	gaps(true, since);
	for_a_time();
	assert_int_equal(ends[SERVER].gaps, 0);
	resumed();
	WAIT(ends[SERVER].gaps == 2);
	const struct dr_switch_record *r = &ends[SERVER].last_gap.rec;
	assert_true(r->last_delivery_ns < asked - STOP_NS);
	assert_true(r->first_delivery_ns > asked + STOP_NS);
	assert_int_equal(ends[SERVER].last_gap.value, TRIAL);
	stop_receiving();
	for_a_time();
	resumed();
	assert_int_equal(ends[SERVER].gaps, 2);
	closed();
}

/* One that is over when the fault takes effect, and one that begins after its end was asked for. */
static void what_the_fault_did_not_cause_does_not_count(void **state)
{
	int64_t since, answered;

	(void)state;
	opened(1);
	gaps(false, 0);
	stop_receiving();
	for_a_time();
	resumed();
	since = dr_now_ns();
	flows();
	gaps(true, since);
	WAIT(ends[SERVER].gaps == 1);
	answered = dr_now_ns();
	assert_true(ends[SERVER].last_gap.rec.first_delivery_ns > since);
	assert_true(ends[SERVER].last_gap.rec.first_delivery_ns <= answered);
	/* The next trial begins with nothing of this one. */
	gaps(false, 0);
	flows();
	gaps(true, 0);
	WAIT(ends[SERVER].gaps == 2);
	assert_true(ends[SERVER].last_gap.rec.last_delivery_ns > since);
	closed();
}

static void deliveries_that_are_watched_are_no_cadence(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 1, .window = 8, .chunk_max = 65536 };
	struct dr_live l;

	(void)state;
	open_both(&c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	gaps(false, 0);
	WAIT(live_rx(SERVER) > 32 << 20);
	dr_worker_live(ends[SERVER].w, 0, 0, &l);
	stop_and_expect();
	assert_true(dr_hist_count(dr_worker_result(ends[SERVER].w, 0)->cadence) < l.chunks_rx / 2);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_interval_counts_whole),
		cmocka_unit_test(what_the_fault_did_not_cause_does_not_count),
		cmocka_unit_test(deliveries_that_are_watched_are_no_cadence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
