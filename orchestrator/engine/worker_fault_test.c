/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_testkit.h"
#include "tests/faulty/faulty.h"
#include "tests/stood.h"

#include <sys/mman.h>

/* A worker when something breaks: paths, peers, memory, parameters; and when it is torn down. */

static struct stood stood;

static void break_one(const struct config *c, unsigned side)
{
	struct dr_command brk = { .kind = DR_CMD_BREAK, .position = 0, .channel = 0, .path = 0 };
	unsigned from = c->n_back == c->n_bulk ? SERVER : CLIENT;
	struct dr_live l;
	uint64_t at;

	open_both(c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	/* The counter that the fault injection will look at. */
	WAIT(live_rx(!from) > 4 << 20);
	WAIT((dr_worker_live(ends[from].w, 0, 0, &l), l.in_flight > 0));
	dr_worker_post(ends[side].w, &brk);
	WAIT(ends[CLIENT].switches >= 1 && ends[SERVER].switches >= 1);
	for (unsigned s = 0; s < 2; s++) {
		const struct dr_switch_record *r = &ends[s].last_switch.rec;

		assert_int_equal(ends[s].last_switch.channel, 0);
		assert_int_equal(r->from, 0);
		assert_int_equal(r->to, 1);
		assert_true(r->first_delivery_ns >= r->last_delivery_ns);
		dr_worker_live(ends[s].w, 0, 0, &l);
		assert_int_equal(l.active, 1);
		assert_int_equal(l.epoch, r->epoch);
	}
	at = live_rx(!from);
	WAIT(live_rx(!from) > at + (4 << 20));
	stop_and_expect();
	check_clean(CLIENT);
	check_clean(SERVER);
	assert_true(dr_worker_result(ends[!from].w, 0)->verified_chunks > 0);
	close_both();
}

static _Atomic unsigned broken;
static struct dr_path *_Atomic which;

static void break_below(struct dr_path *p)
{
	which = p;
	broken++;
}

/* A fault below the path is done to the paths meant, and is for them to find out. */
static void test_a_fault_below_the_path(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 16, .chunk_max = 65536 };
	struct dr_command brk = { .kind = DR_CMD_BREAK,
		.position = 0,
		.channel = 1,
		.path = 1,
		.break_path = break_below };

	(void)state;
	stood_read(&stood);
	open_both(&c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 100000, .chunk_bytes = 65536 });
	WAIT(live_rx(SERVER) > 4 << 20);
	dr_worker_post(ends[CLIENT].w, &brk);
	WAIT(broken == 1);
	assert_string_equal(((struct dr_path *)which)->ops->name, "tcp");
	brk.channel = brk.path = DR_ALL;
	dr_worker_post(ends[CLIENT].w, &brk);
	WAIT(broken == 5);
	stop_and_expect();
	check_clean(SERVER);
	close_both();
	stood_judge(&stood, ends[CLIENT].switches + ends[SERVER].switches == 0, 100);
}

static void test_broken_path_in_mid_transfer(void **state)
{
	static const struct config configs[] = {
		{ .n_gpus = 1, .n_bulk = 2, .window = 16, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 1, .window = 1, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 4, .n_back = 4, .window = 5, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 4, .n_back = 2, .window = 16, .chunk_max = 65536 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(configs); i++)
		for (unsigned side = 0; side < 2; side++)
			break_one(&configs[i], side);
}

/* Everything at once, several times over: all channels lose the path they are on. */
static void test_all_channels_lose_their_path(void **state)
{
	const struct config c = {
		.n_gpus = 2, .n_bulk = 4, .n_back = 2, .window = 16, .chunk_max = 65536
	};
	struct dr_command brk = { .kind = DR_CMD_BREAK, .position = DR_ALL, .channel = DR_ALL };
	uint64_t at;

	(void)state;
	stood_read(&stood);
	open_both(&c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 100000, .chunk_bytes = 65536 });
	for (unsigned round = 1; round <= 4; round++) {
		at = live_rx(SERVER);
		WAIT(live_rx(SERVER) > at + (2 << 20));
		brk.path = round % 2;
		dr_worker_post(ends[round / 2 % 2].w, &brk);
	}
	at = live_rx(SERVER);
	WAIT(live_rx(SERVER) > at + (4 << 20));
	stop_and_expect();
	assert_true(ends[CLIENT].switches > 0 && ends[SERVER].switches > 0);
	check_clean(CLIENT);
	check_clean(SERVER);
	close_both();
}

/* No credit for longer than every bound is no failover. */
static void test_paused_receiver(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 8, .chunk_max = 65536 };
	int64_t until;
	uint64_t at;

	(void)state;
	stood_read(&stood);
	open_both(&c);
	begin((struct dr_phase){
		.kind = DR_PHASE_FAILOVER, .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	WAIT(live_rx(SERVER) > 4 << 20);
	stop_receiving();
	at = live_rx(SERVER);
	assert_in_range(live_in_flight(CLIENT), 2,
		2 * 8); /* the rule of flight.h may limit more than the window */
	for (until = dr_now_ns() + DR_NS_PER_S; dr_now_ns() < until;)
		pump(10);
	assert_int_equal(live_rx(SERVER), at);
	post(SERVER, DR_CMD_PAUSE_RECV, 0, false);
	WAIT(live_rx(SERVER) > at + (4 << 20));
	stop_and_expect();
	check_clean(SERVER);
	close_both();
	stood_judge(&stood, ends[CLIENT].switches + ends[SERVER].switches == 0, 100);
}

static void test_fail_and_refuse(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 4, .chunk_max = 4096 };

	(void)state;
	dr_log_set_level(DR_LOG_ERROR);
	open_both(&c);
	begin((struct dr_phase){ .message_bytes = 4096, .chunk_bytes = 4096 });
	WAIT(live_rx(SERVER) > 1 << 20);
	post(SERVER, DR_CMD_FAIL, 0, false);
	WAIT(ends[SERVER].failed == 2 && ends[CLIENT].failed == 2);
	assert_int_equal(ends[SERVER].last_failed.err, -ECANCELED);
	assert_true(ends[CLIENT].last_failed.err < 0);
	/* A result exists, and nobody waits for a phase that cannot run. */
	assert_true(dr_worker_result(ends[SERVER].w, 0)->rx.bytes > 0);
	begin((struct dr_phase){ .message_bytes = 4096, .chunk_bytes = 4096, .iters = 1 });
	WAIT(ends[SERVER].failed == 3 && ends[CLIENT].failed == 3);
	close_both();
	dr_log_set_level(DR_LOG_INFO);
}

static void test_phases_out_of_range(void **state)
{
	static const struct dr_phase bad[] = {
		{ .message_bytes = UINT64_MAX, .chunk_bytes = 1 },
		{ .message_bytes = 4096, .chunk_bytes = 1, .iters = UINT64_MAX / 1000 },
		{ .message_bytes = 1, .chunk_bytes = 1, .iters = UINT64_MAX, .warmup = 1 },
	};
	const struct config c = { .n_gpus = 1, .n_bulk = 1, .window = 4, .chunk_max = 4096 };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		open_both(&c);
		begin(bad[i]);
		WAIT(ends[SERVER].failed && ends[CLIENT].failed);
		assert_int_equal(ends[SERVER].last_failed.err, -EOVERFLOW);
		close_both();
	}
}

static void destroy_bounded(unsigned side)
{
	int64_t t = dr_now_ns();

	dr_worker_destroy(ends[side].w);
	ends[side].w = NULL;
	/* One second is promised; a sanitizer on a loaded machine may take longer, but a hang has no end. */
	assert_true(dr_now_ns() - t < 10 * DR_NS_PER_S);
}

static void test_destroy_in_every_state(void **state)
{
	const struct config c = {
		.n_gpus = 2, .n_bulk = 8, .window = 16, .chunk_max = 65536, .lat = true
	};

	(void)state;
	dr_log_set_level(DR_LOG_ERROR);
	for (unsigned stage = 0; stage < 7; stage++) {
		create_both(&c);
		if (stage >= 1)
			run_both();
		if (stage == 2) /* the other end never connects */
			post(CLIENT, DR_CMD_CONNECT, 0, false);
		if (stage >= 3)
			post_both(DR_CMD_CONNECT, 0);
		if (stage == 2)
			pump(20);
		if (stage >= 4)
			WAIT(ends[CLIENT].ready == 2 && ends[SERVER].ready == 2);
		if (stage >= 5) {
			begin((struct dr_phase){ .message_bytes = 1 << 20, .chunk_bytes = 65536 });
			WAIT(live_rx(SERVER) > 1 << 20);
		}
		if (stage == 6) {
			/* The client goes in mid-transfer; the server hears of it, never hangs. */
			destroy_bounded(CLIENT);
			WAIT(ends[SERVER].failed > 0);
		} else {
			destroy_bounded(SERVER);
			destroy_bounded(CLIENT);
			continue;
		}
		destroy_bounded(SERVER);
	}
	dr_worker_destroy(NULL);
	dr_log_set_level(DR_LOG_INFO);
}

static bool dead(unsigned side)
{
	struct dr_worker_snap snap;

	post(side, DR_CMD_SNAPSHOT, ++ends[side].asked, false);
	WAIT(ends[side].snapshot == ends[side].asked);
	for (unsigned i = 0; i < cfg.n_bulk; i++) {
		dr_worker_snapshot(ends[side].w, 0, i, &snap);
		if (!strstr(snap.text, ": dead "))
			return false;
	}
	return true;
}

/* The peer learns that the channels were closed. It does not have to infer it from broken connections. */
static void test_the_peer_is_told_before_the_paths_close(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 4, .window = 16, .chunk_max = 65536 };

	(void)state;
	for (unsigned first = CLIENT; first <= SERVER; first++) {
		open_both(&c);
		begin((struct dr_phase){
			.message_bytes = 1 << 20, .chunk_bytes = 65536, .iters = 10 });
		wait_all_parts();
		destroy_bounded(first);
		WAIT(dead(!first));
		assert_int_equal(ends[!first].failed, 0);
		destroy_bounded(!first);
	}
}

/* A sender's close waits for what it has posted, so its peer ends in order, too, although the phase needs more. */
static void test_a_close_in_mid_transfer_delivers_what_was_posted(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 4, .window = 16, .chunk_max = 65536 };

	(void)state;
	open_both(&c);
	begin((struct dr_phase){ .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	WAIT(live_rx(SERVER) > 4 << 20);
	destroy_bounded(CLIENT);
	WAIT(ends[SERVER].failed > 0);
	assert_int_equal(ends[SERVER].last_failed.err, -ESHUTDOWN);
	assert_int_equal(ends[SERVER].first_errors, 0);
	destroy_bounded(SERVER);
}

/* A receiver that waits for data has nothing to post, and so no call that fails. */
static void test_a_receiver_that_waits_learns_that_the_peer_has_closed(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 4, .chunk_max = 4096 };
	const struct dr_command phase = { .kind = DR_CMD_PHASE,
		.position = DR_ALL,
		.phase = { .message_bytes = 4096, .chunk_bytes = 4096 } };

	(void)state;
	open_both(&c);
	dr_worker_post(ends[SERVER].w, &phase);
	post(SERVER, DR_CMD_SNAPSHOT, 1, false); /* it has begun */
	WAIT(ends[SERVER].snapshot == 1);
	destroy_bounded(CLIENT);
	WAIT(ends[SERVER].failed > 0);
	assert_int_equal(ends[SERVER].last_failed.err, -ESHUTDOWN);
	destroy_bounded(SERVER);
}

/* ---- memory that a NIC may keep ---- */

static struct dr_memory buffers[8]; /* registered by the server's worker */
static unsigned n_buffers, kept_lines;
static int (*reg_below)(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);

static int note_and_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	assert_true(n_buffers < DR_ARRAY_LEN(buffers));
	buffers[n_buffers++] = *m;
	return reg_below(r, m, out, e);
}

static char last_line[512];

/* arg: what the line must say too. */
static void count_kept(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)component;
	if (level == DR_LOG_ERROR)
		(void)snprintf(last_line, sizeof(last_line), "%s", text);
	kept_lines += level == DR_LOG_ERROR && strstr(text, arg) &&
		      strstr(text, "their 2097152 bytes stay allocated until the process ends");
}

static bool is_mapped(const struct dr_memory *m)
{
	return msync(m->base, m->len, MS_ASYNC) == 0;
}

/* Two channels on which the server receives; every stop, or every mr_dereg, of its paths reports an error. */
static void end_with(int stop_err, int dereg_err, const char *line)
{
	const struct dr_faulty_opts o = { .stop_err = stop_err, .dereg_err = dereg_err };
	struct dr_faulty *faulty;
	struct dr_faulty_rail_params rail;
	struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 16, .chunk_max = 65536 };
	bool fails = stop_err || dereg_err;

	assert_int_equal(dr_faulty_create(dr_transport_find("tcp"), &o, &faulty), 0);
	reg_below = faulty->ops.mr_reg;
	faulty->ops.mr_reg = note_and_reg;
	rail = (struct dr_faulty_rail_params){ .faulty = faulty };
	c.transport[SERVER] = &faulty->ops;
	c.kind_params[SERVER] = &rail;
	n_buffers = kept_lines = 0;
	last_line[0] = '\0';
	open_both(&c);
	begin((struct dr_phase){ .message_bytes = 1 << 20, .chunk_bytes = 65536 });
	WAIT(live_rx(SERVER) > 4 << 20);
	/* The receiver is destroyed first: after a sender's close nothing may be outstanding in its buffers. */
	dr_log_set_sink(count_kept, (void *)(uintptr_t)line);
	dr_worker_destroy(ends[SERVER].w);
	dr_log_set_sink(NULL, NULL);
	ends[SERVER].w = NULL;
	dr_worker_destroy(ends[CLIENT].w);
	ends[CLIENT].w = NULL;
	assert_int_equal(n_buffers, 4); /* each on two rails */
	if (kept_lines != fails)
		fail_msg("%u lines of %d about kept buffers; the last error: %s", kept_lines, fails,
			last_line);
	for (unsigned i = 0; i < n_buffers; i++) {
		assert_int_equal(is_mapped(&buffers[i]), fails);
		if (fails && i % 2)
			dr_pages_free(buffers[i].base, buffers[i].len);
	}
	dr_faulty_destroy(faulty);
}

static void test_a_buffer_that_the_nic_may_keep_is_not_freed(void **state)
{
	(void)state;
	dr_log_set_level(DR_LOG_ERROR);
	end_with(0, 0, "");
	end_with(-EIO, 0, "could not be destroyed: EIO");
	end_with(0, -EBUSY, "could not be deregistered from rail 0 (faulty(tcp)): EBUSY");
	dr_log_set_level(DR_LOG_INFO);
}

/* Every allocation of start-up fails once; nothing is owed afterwards (the sanitizer looks). */
static void test_out_of_memory(void **state)
{
	const struct config c = { .n_gpus = 2, .n_bulk = 2, .window = 4, .chunk_max = 4096 };
	struct dr_err e;
	int rc = -ENOMEM;
	long k;

	(void)state;
	cfg = c;
	for (k = 1; rc != 0; k++) {
		memset(ends, 0, sizeof(ends));
		memset(&e, 0, sizeof(e));
		dr_mem_fail_after(k);
		rc = make_end(CLIENT, &e);
		if (rc == 0)
			rc = dr_worker_start(ends[CLIENT].w, &e);
		rc = rc ? rc : dr_worker_started(ends[CLIENT].w, &e);
		dr_mem_fail_after(-1);
		if (rc != 0) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(e.code, -ENOMEM);
			assert_true(e.text[0] != '\0');
		}
		dr_worker_destroy(ends[CLIENT].w);
	}
	ends[CLIENT].w = NULL;
	print_message("%ld allocations\n", k - 2);
	assert_true(k > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_fault_below_the_path),
		cmocka_unit_test(test_broken_path_in_mid_transfer),
		cmocka_unit_test(test_all_channels_lose_their_path),
		cmocka_unit_test(test_paused_receiver),
		cmocka_unit_test(test_fail_and_refuse),
		cmocka_unit_test(test_phases_out_of_range),
		cmocka_unit_test(test_destroy_in_every_state),
		cmocka_unit_test(test_the_peer_is_told_before_the_paths_close),
		cmocka_unit_test(test_a_close_in_mid_transfer_delivers_what_was_posted),
		cmocka_unit_test(test_a_receiver_that_waits_learns_that_the_peer_has_closed),
		cmocka_unit_test(test_a_buffer_that_the_nic_may_keep_is_not_freed),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
