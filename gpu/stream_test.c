/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "gpu/gpu_priv.h"
#include "tests/fakecuda/testkit.h"
#include "orchestrator/engine/integrity.h"
#include "orchestrator/engine/worker.h"

enum { BYTES = 1 << 20 };

/* One GPU, memory of it, pinned memory, a stream. */
struct bed {
	struct dr_gpu *g;
	struct dr_gpu_memory m;
	unsigned char *host;
	struct dr_gpu_stream *s;
};

static void bed_make(struct bed *b, const char *gpus)
{
	void *host;

	fresh(gpus);
	assert_int_equal(dr_gpu_open(0, &b->g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(b->g, BYTES, &b->m, NULL), 0);
	assert_int_equal(dr_gpu_host_alloc(b->g, BYTES, &host, NULL), 0);
	b->host = host;
	assert_int_equal(dr_gpu_stream_create(b->g, &b->s, NULL), 0);
}

static void bed_drop(struct bed *b)
{
	dr_gpu_stream_destroy(b->s);
	dr_gpu_host_free(b->g, b->host);
	dr_gpu_free(b->g, &b->m);
	dr_gpu_close(b->g);
}

static uint64_t done_of(struct bed *b)
{
	uint64_t done;

	assert_int_equal(dr_gpu_stream_done(b->s, &done, NULL), 0);
	return done;
}

/* ---- copies ---- */

static void copies_are_asynchronous(void **state)
{
	unsigned char *there;
	struct bed b;
	uint64_t t[2];

	(void)state;
	bed_make(&b, "");
	there = fake->bytes(b.m.dev);
	fake->hold(true);
	memset(b.host, 1, 100);
	assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 100, &t[0], NULL), 0);
	assert_int_equal(dr_gpu_copy_out(b.s, b.host + 200, b.m.dev, 100, &t[1], NULL), 0);
	assert_int_equal(t[0], 1);
	assert_int_equal(t[1], 2);
	assert_int_equal(done_of(&b), 0);
	/* The source is read when the copy runs, so what stands there then is copied. */
	memset(b.host, 2, 100);
	assert_int_not_equal(there[0], 2);
	fake->hold(false);
	assert_int_equal(dr_gpu_stream_wait(b.s, 1, NULL), 0);
	assert_int_equal(there[99], 2);
	assert_int_equal(dr_gpu_stream_wait(b.s, 2, NULL), 0);
	assert_int_equal(done_of(&b), 2);
	assert_int_equal(b.host[200], 2);
	assert_int_equal(fake->pageable(), 0);
	bed_drop(&b);
}

static void tickets_are_counted(void **state)
{
	struct dr_gpu_stream_stats stats;
	uint64_t ticket, before;
	struct bed b;

	(void)state;
	bed_make(&b, "delay_us=100");
	for (int round = 0; round < 3; round++) {
		fake->hold(true);
		before = done_of(&b);
		for (unsigned i = 1; i <= DR_GPU_COPIES_MAX; i++) {
			assert_int_equal(
				dr_gpu_copy_out(b.s, b.host, b.m.dev, i % 7, &ticket, NULL), 0);
			assert_int_equal(ticket, before + i);
		}
		assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 1, &ticket, NULL), -EAGAIN);
		assert_int_equal(done_of(&b), before);
		fake->hold(false);
		assert_int_equal(dr_gpu_stream_wait(b.s, before + 100, NULL), 0);
		assert_true(done_of(&b) >= before + 100);
		assert_int_equal(dr_gpu_stream_wait(b.s, before + DR_GPU_COPIES_MAX, NULL), 0);
	}
	dr_gpu_stream_stats(b.s, &stats);
	assert_int_equal(stats.copies, 3 * DR_GPU_COPIES_MAX);
	assert_int_equal(stats.bytes, 3 * (DR_GPU_COPIES_MAX / 7 * 21 + 1 + 2 + 3 + 4));
	/* A 7th of them had nothing to copy; nothing waited in the queue. */
	assert_true(stats.busy_ns >= 3 * (DR_GPU_COPIES_MAX - DR_GPU_COPIES_MAX / 7) * 100000LL);
	bed_drop(&b);
}

static void idle_costs_no_call(void **state)
{
	uint64_t ticket;
	struct bed b;
	unsigned queries, enters;

	(void)state;
	bed_make(&b, "");
	assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 10, &ticket, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
	queries = fake->count("cuEventQuery");
	enters = fake->count("cuCtxSetCurrent");
	for (int i = 0; i < 10; i++)
		assert_int_equal(done_of(&b), 1);
	assert_int_equal(fake->count("cuEventQuery"), queries);
	assert_int_equal(fake->count("cuCtxSetCurrent"), enters);
	bed_drop(&b);
}

/* Driver calls of 64 copies: with completion flags, and with events where flags are missing or not wanted. */
static void calls_for(const char *gpus, unsigned flags, unsigned records)
{
	struct dr_gpu_stream_stats stats;
	uint64_t ticket = 0;
	struct bed b;
	unsigned before[2];

	bed_make(&b, gpus);
	before[0] = fake->count("cuStreamWriteValue32_v2");
	before[1] = fake->count("cuEventRecord");
	for (int i = 0; i < 64; i++)
		assert_int_equal(dr_gpu_copy_out(b.s, b.host, b.m.dev, 1000, &ticket, NULL), 0);
	while (done_of(&b) < 64)
		;
	dr_gpu_stream_stats(b.s, &stats);
	assert_int_equal(fake->count("cuStreamWriteValue32_v2") - before[0], flags);
	assert_int_equal(fake->count("cuEventRecord") - before[1], records);
	if (flags)
		assert_int_equal(fake->count("cuEventQuery"), 0);
	assert_int_equal(stats.copies, 64);
	assert_int_equal(stats.timed, 4);
	assert_int_equal(stats.calls, 64 + flags + records + 4 + fake->count("cuEventQuery") +
					      fake->count("cuStreamQuery"));
	assert_true(stats.busy_ns >= 64 * 100000LL);
	bed_drop(&b);
}

static void flags_save_calls(void **state)
{
	(void)state;
	calls_for("delay_us=100", 64, 8);
}

static void events_replace_flags(void **state)
{
	(void)state;
	calls_for("delay_us=100,version=11000", 0, 68);
	calls_for("delay_us=100,flags=0", 0, 68);
	calls_for("delay_us=100,fail=cuMemHostGetDevicePointer_v2:1", 0, 68);
	calls_for("delay_us=100,fail=cuStreamWriteValue32_v2:1", 0, 68);
	assert_int_equal(setenv("DR_GPU_COMPLETION", "events", 1), 0);
	calls_for("delay_us=100", 0, 68);
	assert_int_equal(unsetenv("DR_GPU_COMPLETION"), 0);
}

/* The flag has 32 bits, tickets have 64. */
static void flags_wrap(void **state)
{
	uint64_t ticket = 0;
	struct bed b;

	(void)state;
	bed_make(&b, "delay_us=10");
	b.s->issued = b.s->done = UINT32_MAX - 100ULL;
	atomic_store(b.s->flag.host, UINT32_MAX - 100U);
	for (int i = 0; i < 200; i++)
		assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 8, &ticket, NULL), 0);
	assert_int_equal(ticket, UINT32_MAX + 100ULL);
	while (done_of(&b) < ticket)
		;
	bed_drop(&b);
}

/* One thread drives two GPUs: each call about a stream finds the right context. */
static void two_gpus_on_a_thread(void **state)
{
	struct dr_gpu_memory m;
	struct dr_gpu_stream *s;
	struct dr_gpu *g;
	uint64_t t[2], done = 0;
	struct bed b;

	(void)state;
	bed_make(&b, "delay_us=300");
	assert_int_equal(dr_gpu_open(1, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, BYTES, &m, NULL), 0);
	assert_int_equal(dr_gpu_stream_create(g, &s, NULL), 0);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(dr_gpu_copy_out(b.s, b.host, b.m.dev, 8, &t[0], NULL), 0);
		assert_int_equal(dr_gpu_copy_out(s, b.host + 100, m.dev, 8, &t[1], NULL), 0);
	}
	while (done_of(&b) < t[0])
		;
	do
		assert_int_equal(dr_gpu_stream_done(s, &done, NULL), 0);
	while (done < t[1]);
	dr_gpu_stream_destroy(s);
	dr_gpu_free(g, &m);
	dr_gpu_close(g);
	bed_drop(&b);
}

/* Streams do not wait for each other: one is full of slow work, the other is done. */
static void streams_are_apart(void **state)
{
	struct dr_gpu_stream *other;
	uint64_t t, slow;
	struct bed b;

	(void)state;
	bed_make(&b, "delay_us=20000");
	assert_int_equal(dr_gpu_stream_create(b.g, &other, NULL), 0);
	for (int i = 0; i < 250; i++)
		assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 10, &slow, NULL), 0);
	assert_int_equal(dr_gpu_copy_in(other, b.m.dev + 100, b.host, 10, &t, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(other, t, NULL), 0);
	assert_true(done_of(&b) < slow);
	fake->delay(0);
	dr_gpu_stream_destroy(other);
	/* Destroying waits: nobody touches the memory that is freed next. */
	bed_drop(&b);
}

static void reads_and_writes_wait(void **state)
{
	unsigned char mine[300], back[300];
	struct bed b;

	(void)state;
	bed_make(&b, "");
	for (unsigned i = 0; i < sizeof(mine); i++)
		mine[i] = (unsigned char)(i * 7);
	assert_int_equal(put(b.s, b.m.dev + 5, mine, sizeof(mine)), 0);
	assert_int_equal(dr_gpu_set(b.s, b.m.dev + 10, 0x77, 3, NULL), 0);
	memset(mine + 5, 0x77, 3);
	assert_int_equal(dr_gpu_read(b.s, back, b.m.dev + 5, sizeof(back), NULL), 0);
	assert_memory_equal(mine, back, sizeof(mine));
	assert_int_equal(dr_gpu_read(b.s, back, b.m.dev, 0, NULL), 0);
	assert_int_equal(dr_gpu_set(b.s, b.m.dev, 1, 0, NULL), 0);
	bed_drop(&b);
}

static void failures_stick_of(const char *gpus)
{
	uint64_t t, done, bad;
	struct dr_err e;
	struct bed b;
	int rc;

	bed_make(&b, gpus);
	fake->fail_work(DR_CUDA_LAUNCH_FAILED);
	fake->hold(true); /* it fails after the copy was asked for, not meanwhile */
	assert_int_equal(dr_gpu_copy_out(b.s, b.host, b.m.dev, 10, &t, NULL), 0);
	fake->hold(false);
	do
		rc = dr_gpu_stream_done(b.s, &done, &e);
	while (rc == 0 && done < t);
	assert_int_equal(rc, -EIO);
	assert_says(e, "on GPU 0: CUDA_ERROR_LAUNCH_FAILED (719, unspecified launch failure)");
	assert_int_equal(dr_gpu_stream_done(b.s, &done, NULL), -EIO);
	assert_int_equal(dr_gpu_stream_wait(b.s, t, NULL), -EIO);
	assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 10, &t, NULL), -EIO);
	assert_int_equal(dr_gpu_read(b.s, b.host, b.m.dev, 10, NULL), -EIO);
	assert_int_equal(dr_gpu_pattern_fill(b.s, b.m.dev, 10, 0, NULL), -EIO);
	assert_int_equal(dr_gpu_pattern_check(b.s, b.m.dev, 10, 0, &bad, NULL), -EIO);
	bed_drop(&b);
}

static void failures_stick(void **state)
{
	(void)state;
	failures_stick_of("");
	failures_stick_of("version=11000");
}

/* ---- the pattern ---- */

static void expect_pattern(uint64_t dev, size_t len, uint64_t base)
{
	const unsigned char *there = fake->bytes(dev);

	for (size_t i = 0; i < len; i++) {
		uint64_t word = base + i / 8 * 0x9e3779b97f4a7c15ULL;

		assert_int_equal(there[i], (unsigned char)(word >> (8 * (i % 8))));
	}
}

static void fills_any_length(void **state)
{
	static const size_t lens[] = { 0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 4095, 4096, 70001 };
	unsigned char *there;
	uint64_t bad;
	struct bed b;

	(void)state;
	bed_make(&b, "delay_us=0");
	there = fake->bytes(b.m.dev);
	for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++) {
		uint64_t base = dr_pattern_base(1, 2, 3, i);

		assert_int_equal(dr_gpu_set(b.s, b.m.dev, 0x5c, 80000, NULL), 0);
		assert_int_equal(dr_gpu_pattern_fill(b.s, b.m.dev + 16, lens[i], base, NULL), 0);
		expect_pattern(b.m.dev + 16, lens[i], base);
		assert_int_equal(there[15], 0x5c);
		assert_int_equal(there[16 + lens[i]], 0x5c);
		assert_int_equal(
			dr_gpu_pattern_check(b.s, b.m.dev + 16, lens[i], base, &bad, NULL), 0);
	}
	bed_drop(&b);
}

static void finds_the_first_wrong_byte(void **state)
{
	uint64_t seed = 0, bad, base, at;
	struct dr_rng rng;
	struct bed b;
	size_t len;

	(void)state;
	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	bed_make(&b, "delay_us=0");
	for (int i = 0; i < 50; i++) {
		unsigned char *there = fake->bytes(b.m.dev);

		len = 1 + dr_rng_below(&rng, 5000);
		at = dr_rng_below(&rng, len);
		base = dr_rng_u64(&rng);
		assert_int_equal(dr_gpu_pattern_fill(b.s, b.m.dev, len, base, NULL), 0);
		there[at] ^= (unsigned char)(1u << dr_rng_below(&rng, 8));
		there[len - 1] ^= 0x80;
		if (at == len - 1)
			there[at] ^= 0x7f;
		assert_int_equal(dr_gpu_pattern_check(b.s, b.m.dev, len, base, &bad, NULL), 1);
		assert_int_equal(bad, at);
		/* What was found is forgotten. */
		assert_int_equal(dr_gpu_pattern_fill(b.s, b.m.dev, len, base, NULL), 0);
		assert_int_equal(dr_gpu_pattern_check(b.s, b.m.dev, len, base, &bad, NULL), 0);
		assert_int_equal(dr_gpu_pattern_check(b.s, b.m.dev, len, base + 1, &bad, NULL), 1);
		assert_int_equal(bad, 0);
	}
	bed_drop(&b);
}

/* Data made by the GPU passes the host's check, and the other way round. */
static void agrees_with_the_host(void **state)
{
	const uint64_t base = dr_pattern_base(9, 1, 2, 77);
	uint64_t bad, t;
	size_t at;
	struct bed b;

	(void)state;
	bed_make(&b, "");
	assert_int_equal(dr_gpu_pattern_fill(b.s, b.m.dev, 99999, base, NULL), 0);
	assert_int_equal(dr_gpu_read(b.s, b.host, b.m.dev, 99999, NULL), 0);
	assert_int_equal(dr_pattern_check(b.host, 99999, dr_pattern_base(9, 1, 2, 77), &at), 0);
	dr_pattern_fill(b.host, 12345, dr_pattern_base(9, 1, 2, 78));
	assert_int_equal(dr_gpu_copy_in(b.s, b.m.dev, b.host, 12345, &t, NULL), 0);
	assert_int_equal(
		dr_gpu_pattern_check(b.s, b.m.dev, 12345, dr_pattern_base(9, 1, 2, 78), &bad, NULL),
		0);
	bed_drop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(copies_are_asynchronous, setup, teardown),
		cmocka_unit_test_setup_teardown(tickets_are_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(idle_costs_no_call, setup, teardown),
		cmocka_unit_test_setup_teardown(flags_save_calls, setup, teardown),
		cmocka_unit_test_setup_teardown(events_replace_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(flags_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(two_gpus_on_a_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(streams_are_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_and_writes_wait, setup, teardown),
		cmocka_unit_test_setup_teardown(failures_stick, setup, teardown),
		cmocka_unit_test_setup_teardown(fills_any_length, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_the_first_wrong_byte, setup, teardown),
		cmocka_unit_test_setup_teardown(agrees_with_the_host, setup, teardown),
	};

	return cmocka_run_group_tests(tests, group_setup, NULL);
}
