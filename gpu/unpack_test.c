/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "gpu/gpu_priv.h"
#include "tests/fakecuda/testkit.h"

/* Pieces in any order and at any place, put together in each way. */

enum { BYTES = 1 << 20, PIECES = 300, GUARD = 64, FILLER = 0x5c };

static const enum dr_gpu_unpack_how hows[] = { DR_GPU_UNPACK_KERNEL, DR_GPU_UNPACK_D2D,
	DR_GPU_UNPACK_HOST };

struct bed {
	struct dr_gpu *g;
	struct dr_gpu_memory src, dst;
	struct dr_gpu_piece *piece; /* pinned, room for PIECES + 1 */
	struct dr_gpu_stream *s;
	struct dr_rng rng;
};

static uint64_t seed; /* of this run */

static void bed_make(struct bed *b, const char *gpus)
{
	void *p;

	fresh(gpus);
	assert_int_equal(dr_gpu_open(0, &b->g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(b->g, BYTES, &b->src, NULL), 0);
	assert_int_equal(dr_gpu_alloc(b->g, BYTES, &b->dst, NULL), 0);
	assert_int_equal(dr_gpu_host_alloc(b->g, (PIECES + 1) * sizeof(*b->piece), &p, NULL), 0);
	b->piece = p;
	assert_int_equal(dr_gpu_stream_create(b->g, &b->s, NULL), 0);
	dr_rng_seed(&b->rng, seed);
	for (unsigned i = 0; i < BYTES; i++)
		((uint8_t *)fake->bytes(b->src.dev))[i] = (uint8_t)(i * 7 + i / 253);
}

static void bed_drop(struct bed *b)
{
	dr_gpu_stream_destroy(b->s);
	dr_gpu_host_free(b->g, b->piece);
	dr_gpu_free(b->g, &b->src);
	dr_gpu_free(b->g, &b->dst);
	dr_gpu_close(b->g);
	assert_int_equal(fake->violations(NULL), 0);
	assert_int_equal(fake->alive_total(), 0);
}

/* A message in pieces, which lie in src from its end on, and are listed in no order. */
static unsigned cut(struct bed *b, size_t len)
{
	uint32_t at = BYTES;
	unsigned n = 0;

	for (size_t off = 0; off < len;) {
		uint32_t most = 1 + (uint32_t)dr_rng_below(&b->rng, 4096);
		uint32_t size = n + 1 == PIECES ? (uint32_t)(len - off)
						: (uint32_t)DR_MIN((size_t)most, len - off);
		unsigned other = (unsigned)dr_rng_below(&b->rng, n + 1);

		at -= size;
		b->piece[n] = b->piece[other];
		b->piece[other] = (struct dr_gpu_piece){ at, size, off };
		off += size;
		n++;
	}
	return n;
}

static struct dr_gpu_unpack work(const struct bed *b, unsigned n, size_t len)
{
	return (struct dr_gpu_unpack){
		.dst = b->dst.dev + GUARD, .src = b->src.dev, .len = len, .piece = b->piece, .n = n
	};
}

static void check(struct bed *b, unsigned n, size_t len)
{
	const uint8_t *dst = fake->bytes(b->dst.dev), *src = fake->bytes(b->src.dev);

	for (unsigned i = 0; i < n; i++)
		assert_memory_equal(dst + GUARD + b->piece[i].dst_off, src + b->piece[i].src_off,
			b->piece[i].len);
	for (unsigned i = 0; i < GUARD; i++) {
		assert_int_equal(dst[i], FILLER);
		assert_int_equal(dst[GUARD + len + i], FILLER);
	}
}

static void come_together(const char *gpus)
{
	static const size_t lens[] = { 0, 1, 15, 4096, 4097, 65536, 500000 };
	struct dr_gpu_stream_stats st;
	uint64_t ticket = 0, bytes = 0;
	struct bed b;

	bed_make(&b, gpus);
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++)
		for (unsigned k = 0; k < DR_ARRAY_LEN(lens); k++) {
			unsigned n = cut(&b, lens[k]);
			struct dr_gpu_unpack u = work(&b, n, lens[k]);

			memset(fake->bytes(b.dst.dev), FILLER, BYTES);
			assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket, NULL), 0);
			assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
			check(&b, n, lens[k]);
			bytes += lens[k];
		}
	assert_int_equal(ticket, DR_ARRAY_LEN(hows) * DR_ARRAY_LEN(lens));
	dr_gpu_stream_stats(b.s, &st);
	assert_int_equal(st.copies, ticket);
	assert_int_equal(st.bytes, bytes);
	assert_int_equal(st.timed, 1 + ticket / DR_GPU_TIME_EVERY);
	assert_true(st.busy_ns > 0);
	assert_int_equal(fake->pageable(), 0);
	bed_drop(&b);
}

static void pieces_come_together(void **state)
{
	(void)state;
	come_together("");
	come_together("version=11000"); /* by events */
}

/* A gap between the pieces keeps what is there. */
static void gaps_stay(void **state)
{
	struct bed b;
	uint64_t ticket;

	(void)state;
	bed_make(&b, "");
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++) {
		struct dr_gpu_unpack u = work(&b, 2, 300);

		b.piece[0] = (struct dr_gpu_piece){ 500, 100, 200 };
		b.piece[1] = (struct dr_gpu_piece){ 9, 100, 0 };
		memset(fake->bytes(b.dst.dev), FILLER, BYTES);
		assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket, NULL), 0);
		assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
		check(&b, 2, 300);
		for (unsigned i = 100; i < 200; i++)
			assert_int_equal(((uint8_t *)fake->bytes(b.dst.dev))[GUARD + i], FILLER);
	}
	bed_drop(&b);
}

static void unpacking_is_asynchronous_and_in_order(void **state)
{
	struct bed b;
	uint64_t ticket[2], done;

	(void)state;
	bed_make(&b, "");
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++) {
		unsigned n = cut(&b, 50000);
		struct dr_gpu_unpack u = work(&b, n, 50000);

		if (hows[h] == DR_GPU_UNPACK_HOST) { /* its buffer is there */
			assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket[0], NULL), 0);
			assert_int_equal(dr_gpu_stream_wait(b.s, ticket[0], NULL), 0);
		}
		fake->hold(true);
		assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket[0], NULL), 0);
		assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket[1], NULL), 0);
		assert_int_equal(dr_gpu_stream_done(b.s, &done, NULL), 0);
		assert_true(done < ticket[0]);
		fake->hold(false);
		assert_int_equal(dr_gpu_stream_wait(b.s, ticket[1], NULL), 0);
		assert_int_equal(dr_gpu_stream_done(b.s, &done, NULL), 0);
		assert_int_equal(done, ticket[1]);
	}
	bed_drop(&b);
}

static void only_so_many_are_outstanding(void **state)
{
	struct dr_gpu_unpack u;
	struct bed b;
	uint64_t ticket = 0;

	(void)state;
	bed_make(&b, "");
	u = work(&b, cut(&b, 64), 64);
	fake->hold(true);
	for (unsigned i = 0; i < DR_GPU_COPIES_MAX; i++)
		assert_int_equal(dr_gpu_unpack(b.s, &u, DR_GPU_UNPACK_KERNEL, &ticket, NULL), 0);
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++)
		assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket, NULL), -EAGAIN);
	assert_int_equal(ticket, DR_GPU_COPIES_MAX);
	fake->hold(false);
	assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++)
		assert_int_equal(dr_gpu_unpack(b.s, &u, hows[h], &ticket, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
	bed_drop(&b);
}

static unsigned pinned(void)
{
	struct dr_fakecuda_alive a;

	fake->alive(&a);
	return a.pinned;
}

/* The host buffer grows when the work that uses it is done, and stays as it is for less. */
static void host_buffer_grows(void **state)
{
	static const size_t lens[] = { 1000, 5000, 3000, 100000 };
	uint64_t ticket, done;
	struct bed b;
	unsigned before;

	(void)state;
	bed_make(&b, "delay_us=200");
	before = pinned();
	for (unsigned i = 0; i < DR_ARRAY_LEN(lens); i++) {
		unsigned n = cut(&b, lens[i]);
		struct dr_gpu_unpack u = work(&b, n, lens[i]);
		bool grows = b.s->gather_len < lens[i];
		const uint8_t *was = b.s->gather;

		/* Work that uses the whole buffer, with a list of its own. */
		struct dr_gpu_unpack first = work(&b, 1, b.s->gather_len);
		first.piece = b.piece + PIECES;
		b.piece[PIECES] = (struct dr_gpu_piece){ 0, (uint32_t)b.s->gather_len, 0 };
		assert_int_equal(dr_gpu_unpack(b.s, &first, DR_GPU_UNPACK_HOST, &ticket, NULL), 0);
		assert_int_equal(dr_gpu_unpack(b.s, &u, DR_GPU_UNPACK_HOST, &ticket, NULL), 0);
		assert_int_equal(dr_gpu_stream_done(b.s, &done, NULL), 0);
		if (grows)
			assert_true(done >= ticket - 1);
		else
			assert_ptr_equal(b.s->gather, was);
		assert_int_equal(b.s->gather_len, DR_MAX(lens[i], first.len));
		assert_int_equal(pinned(), before + 1);
		assert_int_equal(dr_gpu_stream_wait(b.s, ticket, NULL), 0);
		for (unsigned k = 0; k < n; k++)
			assert_memory_equal((uint8_t *)fake->bytes(u.dst + b.piece[k].dst_off),
				(uint8_t *)fake->bytes(u.src + b.piece[k].src_off), b.piece[k].len);
	}
	bed_drop(&b);
}

/* A GPU cannot read ordinary host memory. */
static void lists_are_pinned(void **state)
{
	struct dr_gpu_piece ordinary = { 0, 10, 0 };
	struct dr_gpu_unpack u;
	uint64_t ticket;
	struct dr_err e;
	struct bed b;

	(void)state;
	bed_make(&b, "");
	u = work(&b, 1, 10);
	u.piece = &ordinary;
	assert_int_equal(dr_gpu_unpack(b.s, &u, DR_GPU_UNPACK_KERNEL, &ticket, &e), -EINVAL);
	assert_says(e, "unpacking on GPU 0: CUDA_ERROR_INVALID_VALUE");
	bed_drop(&b);
}

/* Whichever call of the driver fails: an error, or the pieces are there (only their time is unknown). Nothing is left
 * behind. */
static void every_call_may_fail(void **state)
{
	struct bed b;
	uint64_t ticket;
	unsigned n, errors = 0;

	(void)state;
	for (unsigned h = 0; h < DR_ARRAY_LEN(hows); h++) {
		bool reached = true;

		for (unsigned k = 1; reached; k++) {
			struct dr_gpu_unpack u;
			int rc;

			bed_make(&b, "");
			n = cut(&b, 3000);
			u = work(&b, n, 3000);
			memset(fake->bytes(b.dst.dev), FILLER, BYTES);
			fake->fail_call("*", k, 0);
			rc = dr_gpu_unpack(b.s, &u, hows[h], &ticket, NULL);
			if (rc == 0)
				rc = dr_gpu_stream_wait(b.s, ticket, NULL);
			reached = fake->failed() != NULL;
			fake->fail_call("*", 0, 0);
			assert_true(rc == 0 || reached);
			if (rc == 0)
				check(&b, n, 3000);
			errors += rc != 0;
			bed_drop(&b);
		}
	}
	assert_true(errors >= 4 * DR_ARRAY_LEN(hows));
}

static int seed_setup(void **state)
{
	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	return group_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_come_together),
		cmocka_unit_test(gaps_stay),
		cmocka_unit_test(unpacking_is_asynchronous_and_in_order),
		cmocka_unit_test(only_so_many_are_outstanding),
		cmocka_unit_test(host_buffer_grows),
		cmocka_unit_test(lists_are_pinned),
		cmocka_unit_test(every_call_may_fail),
	};

	return cmocka_run_group_tests(tests, seed_setup, NULL);
}
