/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "orchestrator/engine/gpu_buffers.h"
#include "orchestrator/engine/worker.h"
#include "tests/fakecuda/fakecuda.h"

/* Buffers on the fake GPUs: the pattern there, what it says of chunks that are wrong, and that no call
 * that fails leaves anything behind. */
enum { CHUNK = 10007, STRIDE = 12288, CHUNKS = 6, SEED = 5 };

static const struct dr_fakecuda_ctl *fake;

struct bed {
	struct dr_gpu_buffers *gpu_buffers;
	struct dr_manager_params m;
	struct dr_gpu_memory buf;
	struct dr_integrity v;
	struct dr_err e;
};

static int setup(struct bed *b)
{
	struct dr_gpu_buffers_params p = { .ordinal = 1, .ring_bytes = CHUNKS * STRIDE };
	int rc;

	memset(b, 0, sizeof(*b));
	b->m.transport = dr_transport_find("tcp");
	rc = dr_gpu_buffers_open(&p, &b->gpu_buffers, &b->e);
	if (rc == 0)
		rc = dr_gpu_buffers_wrap(b->gpu_buffers, &b->m, &b->e);
	if (rc == 0)
		rc = dr_gpu_alloc(
			dr_gpu_buffers_gpu(b->gpu_buffers), CHUNKS * STRIDE, &b->buf, &b->e);
	dr_integrity_init(&b->v, SEED, 1, 2, 4);
	dr_integrity_begin(&b->v, 0);
	return rc;
}

static void teardown(struct bed *b)
{
	const char *first = "";

	if (b->buf.dev)
		dr_gpu_free(dr_gpu_buffers_gpu(b->gpu_buffers), &b->buf);
	dr_gpu_buffers_close(b->gpu_buffers);
	assert_int_equal(fake->alive_total(), 0);
	if (fake->violations(&first) > 0)
		fail_msg("%s", first);
}

static uint8_t *chunk(struct bed *b, uint64_t slot)
{
	return (uint8_t *)(uintptr_t)b->buf.dev + slot * STRIDE;
}

static int fill(struct bed *b, uint64_t slot, uint64_t seq)
{
	return dr_gpu_buffers_fill(
		b->gpu_buffers, chunk(b, slot), CHUNK, dr_pattern_base(SEED, 1, 2, seq), &b->e);
}

static int check(struct bed *b, uint64_t slot, size_t len)
{
	const struct dr_chunk c = { chunk(b, slot), len, CHUNK, b->v.next };

	return dr_gpu_buffers_check(b->gpu_buffers, &b->v, &c, &b->e);
}

static uint8_t *bytes(struct bed *b, uint64_t slot)
{
	return fake->bytes((uintptr_t)chunk(b, slot));
}

static void the_same_pattern_as_in_host_memory(void **state)
{
	struct bed b;

	(void)state;
	assert_int_equal(setup(&b), 0);
	for (uint64_t i = 0; i < CHUNKS; i++) {
		assert_int_equal(fill(&b, i, i), 0);
		assert_int_equal(
			dr_pattern_check(bytes(&b, i), CHUNK, dr_pattern_base(SEED, 1, 2, i), NULL),
			0);
		assert_int_equal(check(&b, i, CHUNK), 0);
	}
	assert_int_equal(b.v.next, CHUNKS);
	assert_int_equal(b.v.checked, CHUNKS);
	teardown(&b);
}

static void a_wrong_byte_is_found_and_named(void **state)
{
	struct bed b;

	(void)state;
	assert_int_equal(setup(&b), 0);
	assert_int_equal(fill(&b, 0, 0), 0);
	assert_int_equal(fill(&b, 1, 1), 0);
	bytes(&b, 0)[CHUNK - 1] ^= 1;
	assert_int_equal(check(&b, 0, CHUNK), 1);
	assert_int_equal(b.v.corrupted, 1);
	assert_non_null(strstr(b.v.text, "first wrong byte at offset 10006"));
	assert_int_equal(check(&b, 1, CHUNK), 0); /* and the stream goes on */
	teardown(&b);
}

static void moved_and_short_chunks(void **state)
{
	struct bed b;

	(void)state;
	assert_int_equal(setup(&b), 0);
	assert_int_equal(fill(&b, 0, 2), 0);
	assert_int_equal(check(&b, 0, CHUNK), 1);
	assert_int_equal(b.v.lost, 2);
	assert_non_null(strstr(b.v.text, "seq 0 has the content of 2 (lost)"));
	assert_int_equal(fill(&b, 0, 3), 0);
	assert_int_equal(check(&b, 0, CHUNK - 1), 1);
	assert_int_equal(b.v.corrupted, 1);
	assert_non_null(strstr(b.v.text, "10006 bytes arrived, 10007 were expected"));
	teardown(&b);
}

static void a_gpu_that_fails_is_no_wrong_byte(void **state)
{
	struct bed b;

	(void)state;
	assert_int_equal(setup(&b), 0);
	assert_int_equal(fill(&b, 0, 0), 0);
	fake->fail_call("cuLaunchKernel", 1, 0);
	assert_true(check(&b, 0, CHUNK) < 0);
	assert_non_null(strstr(b.e.text, "CUDA_ERROR"));
	assert_int_equal(b.v.corrupted, 0);
	teardown(&b);
}

static void what_it_is(void **state)
{
	struct dr_gpu_buffers_copies c;
	struct bed b;

	(void)state;
	assert_int_equal(setup(&b), 0);
	assert_string_equal(b.m.transport->name, "staged(tcp)");
	assert_string_equal(dr_gpu_info(dr_gpu_buffers_gpu(b.gpu_buffers))->bus_id, "0000:2b:00.0");
	assert_null(dr_gpu_buffers_error(b.gpu_buffers));
	dr_gpu_buffers_copies(b.gpu_buffers, &c);
	assert_int_equal(c.way[0].bytes + c.way[1].bytes, 0);
	teardown(&b);
}

static void every_call_fails_once(void **state)
{
	struct bed b;
	unsigned k;

	(void)state;
	for (k = 1;; k++) {
		int rc;

		fake->fail_call("*", k, 0);
		rc = setup(&b);
		if (rc == 0)
			rc = fill(&b, 0, 0);
		if (rc == 0)
			rc = check(&b, 0, CHUNK);
		if (rc < 0)
			assert_true(b.e.text[0] != '\0');
		if (b.gpu_buffers && b.buf.dev)
			dr_gpu_free(dr_gpu_buffers_gpu(b.gpu_buffers), &b.buf);
		dr_gpu_buffers_close(b.gpu_buffers);
		if (!fake->failed())
			break;
		fake->fail_call("*", 0, 0);
		assert_int_equal(fake->alive_total(), 0);
	}
	fake->fail_call("*", 0, 0);
	assert_true(k > 20);
}

/* Of GPU memory that a NIC may still access: closing its context would free it. */
static void kept_memory_stays_until_the_process_ends(void **state)
{
	struct dr_fakecuda_alive a;
	const char *first = "";
	struct bed b;

	(void)state;
	fake->reset();
	assert_int_equal(setup(&b), 0);
	dr_gpu_buffers_keep(b.gpu_buffers);
	dr_gpu_buffers_close(b.gpu_buffers);
	fake->alive(&a);
	assert_int_equal(a.contexts, 1);
	assert_int_equal(a.memories, 1);
	assert_int_equal(a.pinned + a.streams + a.events + a.modules, 0);
	if (fake->violations(&first) > 0)
		fail_msg("%s", first);
	fake->reset();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_pattern_as_in_host_memory),
		cmocka_unit_test(a_wrong_byte_is_found_and_named),
		cmocka_unit_test(moved_and_short_chunks),
		cmocka_unit_test(a_gpu_that_fails_is_no_wrong_byte),
		cmocka_unit_test(what_it_is),
		cmocka_unit_test(kept_memory_stays_until_the_process_ends),
		cmocka_unit_test(every_call_fails_once),
	};

	setenv("DR_FAKE_CUDA", "devices=2,memory_mib=64", 1);
	fake = dr_fakecuda_attach("../../tests");
	if (!fake) {
		printf("the fake libcuda is not built\n");
		return 77;
	}
	dr_log_set_level(DR_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
