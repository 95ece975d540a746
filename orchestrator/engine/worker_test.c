/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/worker_testkit.h"

#include "topology/numa.h"

#include <dirent.h>
#include <sched.h>

/* What a worker does when nothing breaks: counts, measurements, latency, snapshots, trace. */

static void check_counts(unsigned from, unsigned n_channels, const struct dr_phase *p)
{
	uint64_t messages = p->iters * n_channels;
	uint64_t per = (p->message_bytes + p->chunk_bytes - 1) / p->chunk_bytes;

	for (unsigned k = 0; k < cfg.n_gpus && n_channels; k++) {
		const struct dr_phase_result *tx = dr_worker_result(ends[from].w, k);
		const struct dr_phase_result *rx = dr_worker_result(ends[!from].w, k);

		assert_int_equal(rx->rx.messages, messages);
		assert_int_equal(rx->rx.bytes, messages * p->message_bytes);
		assert_int_equal(rx->rx.chunks, messages * per);
		assert_int_equal(tx->tx.messages, messages);
		assert_int_equal(tx->tx.bytes, messages * p->message_bytes);
		assert_true(rx->rx.ns > 0 && tx->tx.ns > 0);
		if (p->verify)
			assert_int_equal(
				rx->verified_chunks, (p->iters + p->warmup) * n_channels * per);
	}
}

/* Exact counts: windows, channel counts, both directions, short tails, several phases in a row. */
static void test_counted_iterations(void **state)
{
	static const struct config configs[] = {
		{ .n_gpus = 1, .n_bulk = 1, .window = 1, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 1, .window = 16, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 8, .window = 16, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 8, .window = 1, .chunk_max = 65536 },
		{ .n_gpus = 1, .n_bulk = 3, .window = 5, .chunk_max = 65536, .n_back = 3 },
		{ .n_gpus = 2,
			.n_bulk = 4,
			.window = 7,
			.chunk_max = 65536,
			.n_back = 2,
			.lat = true,
			.poll = DR_POLL_BUSY },
		{ .n_gpus = 1, .n_bulk = 1, .window = 256, .chunk_max = 4096 },
	};
	static const struct dr_phase phases[] = {
		{ .message_bytes = 1, .chunk_bytes = 1, .iters = 300, .verify = true },
		{ .message_bytes = 4096, .chunk_bytes = 4096, .iters = 50, .warmup = 3 },
		{ .message_bytes = 4097,
			.chunk_bytes = 4096,
			.iters = 20,
			.warmup = 2,
			.verify = true },
		{ .message_bytes = 1000003,
			.chunk_bytes = 4000,
			.iters = 2,
			.warmup = 1,
			.verify = true },
		{ .message_bytes = 8191, .chunk_bytes = 4096, .iters = 1 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(configs); i++) {
		open_both(&configs[i]);
		for (size_t p = 0; p < DR_ARRAY_LEN(phases); p++) {
			struct dr_phase ph = phases[p];

			ph.index = (unsigned)p;
			begin(ph);
			wait_all_parts();
			check_counts(CLIENT, cfg.n_bulk - cfg.n_back, &ph);
			check_counts(SERVER, cfg.n_back, &ph);
			check_clean(CLIENT);
			check_clean(SERVER);
		}
		close_both();
	}
}

static void test_marks(void **state)
{
	const struct config c = {
		.n_gpus = 2, .n_bulk = 4, .window = 16, .chunk_max = 65536, .n_back = 2
	};
	uint64_t at;

	(void)state;
	open_both(&c);
	for (unsigned round = 0; round < 2; round++) {
		begin((struct dr_phase){ .index = round,
			.message_bytes = 1 << 20,
			.chunk_bytes = 65536,
			.verify = round == 1 });
		at = live_rx(SERVER);
		WAIT(live_rx(SERVER) > at + (2 << 20) && live_rx(CLIENT) > 0);
		post_both(DR_CMD_MARK, 0);
		at = live_rx(SERVER);
		WAIT(live_rx(SERVER) > at + (32 << 20));
		post_both(DR_CMD_MARK, 1);
		stop_and_expect();
		for (unsigned s = 0; s < 2; s++) {
			check_clean(s);
			for (unsigned k = 0; k < c.n_gpus; k++) {
				const struct dr_phase_result *r = dr_worker_result(ends[s].w, k);

				assert_true(r->rx.bytes > 0 && r->tx.bytes > 0);
				/* Chunks are smaller until the path is known. */
				assert_true(r->rx.bytes <= r->rx.chunks * 65536);
				/* A message that was under way at the first mark is counted whole. */
				assert_true(r->rx.messages <= (r->rx.bytes >> 20) + 2);
				assert_true(r->rx.ns > 0 && r->rx.ns == r->tx.ns);
				assert_true(dr_hist_count(r->cadence) > 0);
				assert_int_equal(r->verified_chunks > 0, round == 1);
			}
		}
	}
	close_both();
}

/* Only the second GPU's channels whose primary is rail 1 carry data; the others keep quiet and are ready
 * for the next phase. */
static void test_who_takes_part(void **state)
{
	const struct config c = {
		.n_gpus = 2, .n_bulk = 4, .window = 8, .chunk_max = 65536, .n_back = 2
	};
	const struct dr_phase all = { .index = 1,
		.message_bytes = 100000,
		.chunk_bytes = 65536,
		.iters = 6,
		.verify = true };
	struct dr_phase some = all;
	struct dr_live l;

	(void)state;
	some.index = 0;
	some.gpu_mask = some.rail_mask = 2;
	open_both(&c);
	begin(some);
	for (unsigned s = 0; s < 2; s++)
		WAIT(ends[s].done[1][0] && ends[s].done[1][1]);
	for (unsigned s = 0; s < 2; s++) {
		assert_int_equal(ends[s].done[0][0] + ends[s].done[0][1], 0);
		assert_int_equal(dr_worker_result(ends[s].w, 1)->rx.messages, 6);
		for (unsigned k = 0; k < 2; k++)
			for (unsigned i = 0; i < 4; i++) {
				dr_worker_live(ends[s].w, k, i, &l);
				assert_int_equal(
					l.chunks_rx + l.chunks_tx > 0, k == 1 && i % 2 == 1);
			}
	}
	begin(all);
	wait_all_parts();
	check_counts(CLIENT, 2, &all);
	check_counts(SERVER, 2, &all);
	check_clean(CLIENT);
	check_clean(SERVER);
	close_both();
}

static void test_latency(void **state)
{
	static const struct {
		uint64_t bytes;
		uint32_t chunk;
		unsigned window;
		enum dr_poll_policy poll;
		bool verify;
		uint64_t iters;
	} row[] = {
		{ 64, 64, 16, DR_POLL_ADAPTIVE, true, 200 },
		{ 64, 64, 1, DR_POLL_ADAPTIVE, true, 200 },
		{ 64, 64, 16, DR_POLL_BUSY, false, 200 },
		{ 256 << 10, 256 << 10, 16, DR_POLL_ADAPTIVE, true, 200 },
		{ 100001, 4096, 4, DR_POLL_ADAPTIVE, true,
			200 }, /* 25 chunks through a window of 4 */
		{ 100001, 4096, 1, DR_POLL_BUSY, true, 20 },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		const struct config c = { .n_gpus = 2,
			.n_bulk = 1,
			.window = row[i].window,
			.chunk_max = 256 << 10,
			.lat = true,
			.poll = row[i].poll };
		const struct dr_phase_result *r;

		open_both(&c);
		begin((struct dr_phase){ .kind = DR_PHASE_LAT,
			.message_bytes = row[i].bytes,
			.chunk_bytes = row[i].chunk,
			.iters = row[i].iters,
			.warmup = 20,
			.verify = row[i].verify,
			.gpu_mask = 2 });
		WAIT(ends[CLIENT].done[1][1] && ends[SERVER].done[1][1]);
		assert_int_equal(ends[CLIENT].done[0][1] + ends[SERVER].done[0][1], 0);
		r = dr_worker_result(ends[CLIENT].w, 1);
		assert_non_null(r->rtt);
		assert_int_equal(dr_hist_count(r->rtt), row[i].iters);
		assert_int_equal(r->rx.messages, row[i].iters);
		print_message("%llu B, window %u, %s: RTT p50 %.1f us\n",
			(unsigned long long)row[i].bytes, row[i].window,
			row[i].poll == DR_POLL_BUSY ? "busy" : "adaptive",
			(double)dr_hist_percentile(r->rtt, 50) / 1000);
		assert_null(dr_worker_result(ends[SERVER].w, 1)->rtt);
		assert_int_equal(dr_worker_result(ends[SERVER].w, 1)->rx.messages, row[i].iters);
		check_clean(CLIENT);
		check_clean(SERVER);
		/* And bandwidth after it, on channels that kept quiet. */
		begin((struct dr_phase){ .index = 1,
			.message_bytes = 100000,
			.chunk_bytes = 65536,
			.iters = 10,
			.verify = true });
		wait_all_parts();
		close_both();
	}
}

static void test_latency_until_stopped(void **state)
{
	const struct config c = {
		.n_gpus = 1, .n_bulk = 1, .window = 4, .chunk_max = 4096, .lat = true
	};
	struct dr_command ex = { .kind = DR_CMD_EXPECT, .position = DR_ALL };
	struct dr_live l;

	(void)state;
	open_both(&c);
	begin((struct dr_phase){ .kind = DR_PHASE_LAT,
		.message_bytes = 10000,
		.chunk_bytes = 4096,
		.warmup = 5,
		.gpu_mask = 1 });
	do {
		pump(1);
		dr_worker_live(ends[SERVER].w, 0, 1, &l);
	} while (l.chunks_rx < 30);
	post(CLIENT, DR_CMD_STOP, 0, false);
	WAIT(ends[CLIENT].done[0][1]);
	dr_worker_live(ends[CLIENT].w, 0, 1, &l);
	assert_int_equal(l.posted % 3, 0);
	ex.expect[1] = l.posted;
	dr_worker_post(ends[SERVER].w, &ex);
	WAIT(ends[SERVER].done[0][1]);
	assert_int_equal(dr_hist_count(dr_worker_result(ends[CLIENT].w, 0)->rtt), l.posted / 3 - 5);
	close_both();
}

/* Only the upper side is asserted: a busy machine may be slower. */
static void test_rate_limit(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 2, .window = 16, .chunk_max = 16384 };
	const struct dr_phase_result *r;
	uint64_t at;

	(void)state;
	open_both(&c);
	begin((struct dr_phase){
		.message_bytes = 65536, .chunk_bytes = 16384, .rate_bits = 160e6 });
	WAIT(live_rx(SERVER) > 1 << 20);
	post_both(DR_CMD_MARK, 0);
	at = live_rx(SERVER);
	WAIT(live_rx(SERVER) > at + (8 << 20));
	post_both(DR_CMD_MARK, 1);
	stop_and_expect();
	r = dr_worker_result(ends[SERVER].w, 0);
	print_message("limit 2 x 160 Mb/s, measured %.1f Mb/s\n",
		(double)r->rx.bytes * 8e3 / (double)r->rx.ns);
	assert_true((double)r->rx.bytes * 8e9 / (double)r->rx.ns < 1.15 * 320e6);
	close_both();
}

/* Of 4 MiB that the window allows, about 1 MiB is posted on a path as short as this. */
static void receives_are_posted_as_the_path_needs_them(void **state)
{
	const struct config c = { .n_gpus = 1, .n_bulk = 1, .window = 16, .chunk_max = 256 << 10 };
	struct dr_live l;

	(void)state;
	open_both(&c);
	dr_worker_live(ends[SERVER].w, 0, 0, &l);
	begin((struct dr_phase){
		.message_bytes = 1 << 20, .chunk_bytes = 256 << 10, .verify = true });
	WAIT(live_rx(SERVER) > 256 << 20);
	stop_and_expect();
	dr_worker_live(ends[SERVER].w, 0, 0, &l);
	print_message("%llu receives are posted\n", (unsigned long long)(l.posted - l.chunks_rx));
	assert_in_range(l.posted - l.chunks_rx, 2, 12);
	close_both();
}

static void test_snapshot(void **state)
{
	const struct config c = {
		.n_gpus = 2, .n_bulk = 2, .window = 4, .chunk_max = 4096, .links = true
	};
	struct dr_worker_snap snap;

	(void)state;
	open_both(&c);
	begin((struct dr_phase){ .message_bytes = 4096, .chunk_bytes = 4096, .iters = 20 });
	wait_all_parts();
	post_both(DR_CMD_SNAPSHOT, 99);
	WAIT(ends[CLIENT].snapshot == 99 && ends[SERVER].snapshot == 99);
	for (unsigned k = 0; k < 2; k++) {
		dr_worker_snapshot(ends[SERVER].w, k, 1, &snap);
		assert_int_equal(snap.stats.messages, 20);
		assert_int_equal(snap.stats.bytes, 20 * 4096);
		assert_non_null(strstr(snap.text, "channel 1"));
	}
	close_both();
}

/* Memory policy of the worker's thread as the kernel shows it for memory without one of its own:
 * "default", "prefer:0". False: this kernel does not show it. */
static bool policy_of(const char *thread, char *buf, size_t len)
{
	DIR *tasks = opendir("/proc/self/task");
	char path[300], line[256], name[32] = "";
	struct dirent *d;
	bool found = false;

	while (tasks && !found && (d = readdir(tasks))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		f = fopen(path, "re");
		if (!f || !fgets(name, sizeof(name), f) || strncmp(name, thread, strlen(thread)))
			name[0] = '\0';
		if (f)
			fclose(f);
		snprintf(path, sizeof(path), "/proc/self/task/%s/numa_maps", d->d_name);
		f = name[0] ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f) && strchr(line, ' ')) {
			snprintf(buf, len, "%.40s", strchr(line, ' ') + 1);
			found = true;
		}
		fclose(f);
	}
	if (tasks)
		closedir(tasks);
	return found;
}

static void a_worker_allocates_on_its_node(void **state)
{
	struct config c = { .n_gpus = 1, .n_bulk = 1, .window = 4, .chunk_max = 4096 };
	char text[64], want[32];
	int rc = 0;

	(void)state;
	c.node = dr_numa_node_of_cpu(sched_getcpu());
	for (int pass = 0; pass < 2 && rc == 0; pass++) {
		c.numa = pass == 1;
		snprintf(want, sizeof(want), c.numa ? ":%d" : "default", c.node);
		open_both(&c);
		if (c.node < 0 || !policy_of("dr-worker-0", text, sizeof(text)))
			rc = -ENOTSUP;
		else if (!strstr(text, want) || (strncmp(text, "prefer", 6) == 0) != c.numa)
			rc = -EINVAL;
		close_both();
	}
	if (rc == -ENOTSUP) {
		print_message("skipped: this kernel shows no NUMA policies\n");
		skip();
	}
	if (rc)
		fail_msg("policy \"%s\", not %s", text, want);
}

static unsigned traced[4];

static void trace_sink(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	static const char *const word[] = { " posted ", " tested done ", " consumed ",
		" released " };

	(void)level;
	(void)arg;
	for (unsigned i = 0; i < DR_ARRAY_LEN(word); i++)
		if (strcmp(component, "trace") == 0 && strstr(text, word[i]))
			traced[i]++;
}

static void test_trace(void **state)
{
	const struct config c = {
		.n_gpus = 1, .n_bulk = 1, .window = 4, .chunk_max = 4096, .trace = true
	};

	(void)state;
	memset(traced, 0, sizeof(traced));
	dr_log_set_sink(trace_sink, NULL);
	open_both(&c);
	begin((struct dr_phase){ .message_bytes = 8192, .chunk_bytes = 4096, .iters = 10 });
	wait_all_parts();
	close_both();
	dr_log_set_sink(NULL, NULL);
	/* 20 chunks sent, 20 received, and 4 receives that stay posted. */
	assert_int_equal(traced[0], 20 + 24);
	assert_int_equal(traced[1], 40);
	assert_int_equal(traced[2], 20);
	assert_int_equal(traced[3], 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counted_iterations),
		cmocka_unit_test(test_marks),
		cmocka_unit_test(test_who_takes_part),
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_latency_until_stopped),
		cmocka_unit_test(test_rate_limit),
		cmocka_unit_test(receives_are_posted_as_the_path_needs_them),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(a_worker_allocates_on_its_node),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
