/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/rng.h"
#include "gpu/gpu.h"
#include "orchestrator/engine/integrity.h"
#include "orchestrator/engine/worker.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/*
 * gpu/ on a real GPU, the first that there is. Without one: status 77 and the reason. What it
 * measures is printed, never asserted. DR_GPU_SMALL=1 leaves out what is large (for compute-sanitizer).
 */
enum { MIB = 1 << 20 };
static const uint64_t GIB = (uint64_t)1 << 30;

static struct dr_gpu *gpu;
static struct dr_gpu_stream *stream;
static bool small_only;

static double per_s(uint64_t bytes, int64_t ns)
{
	return (double)bytes / (double)ns;
}

static void skip_when_small(void)
{
	if (!small_only)
		return;
	print_message("SKIP: DR_GPU_SMALL leaves out what is large\n");
	skip();
}

static struct dr_gpu_memory take(uint64_t len)
{
	struct dr_gpu_memory m = { 0 };
	struct dr_err e;

	if (dr_gpu_alloc(gpu, len, &m, &e))
		print_error("%s\n", e.text);
	assert_int_not_equal(m.dev, 0);
	return m;
}

static void *take_pinned(size_t len)
{
	void *p = NULL;
	struct dr_err e;

	if (dr_gpu_host_alloc(gpu, len, &p, &e))
		print_error("%s\n", e.text);
	assert_non_null(p);
	return p;
}

/* ---- what there is ---- */

static void lists_and_opens_all(void **state)
{
	struct dr_gpu_info g[16];
	struct dr_gpu *opened;
	int64_t begin;
	int n = dr_gpu_list(g, 16, NULL);

	(void)state;
	assert_true(n >= 1);
	for (int i = 0; i < n && i < 16; i++) {
		print_message("GPU %u: %s, %s, %llu MiB, compute capability %u.%u, dma-buf %s\n",
			g[i].ordinal, g[i].bus_id, g[i].name,
			(unsigned long long)(g[i].memory_bytes / MIB), g[i].cc_major, g[i].cc_minor,
			g[i].dmabuf ? "yes" : "no");
		assert_int_equal(dr_gpu_find(g, (unsigned)n, g[i].bus_id, NULL), i);
		begin = dr_now_ns();
		assert_int_equal(dr_gpu_open((unsigned)i, &opened, NULL), 0);
		print_message("  opened in %.1f ms\n", (double)(dr_now_ns() - begin) / 1e6);
		dr_gpu_close(opened);
	}
	assert_int_equal(dr_gpu_open((unsigned)n, &opened, NULL), -ENODEV);
}

/* ---- memory ---- */

static void memory_is_aligned_and_comes_back(void **state)
{
	static const uint64_t lens[] = { 1, 512, 4096, 65537, 3 * MIB + 1 };
	struct dr_gpu_memory m[DR_ARRAY_LEN(lens)];
	uint64_t before, after;
	void *p;

	(void)state;
	assert_int_equal(dr_gpu_memory(gpu, &before, NULL, NULL), 0);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++) {
			m[i] = take(lens[i]);
			assert_int_equal(m[i].dev % DR_GPU_ALIGN, 0);
			assert_true(m[i].len >= lens[i]);
			assert_int_equal(dr_gpu_set(stream, m[i].dev, 0x5a, m[i].len, NULL), 0);
		}
		for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++)
			dr_gpu_free(gpu, &m[i]);
		p = take_pinned(round * 100 + 1);
		assert_int_equal((uintptr_t)p % 256, 0);
		dr_gpu_host_free(gpu, p);
	}
	assert_int_equal(dr_gpu_memory(gpu, &after, NULL, NULL), 0);
	/* Other processes may use the GPU too. */
	assert_true(after + 64 * (uint64_t)MIB > before);
}

static void out_of_memory_is_said(void **state)
{
	struct dr_gpu_memory m;
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_gpu_alloc(gpu, 2 * dr_gpu_info(gpu)->memory_bytes, &m, &e), -ENOMEM);
	print_message("%s\n", e.text);
	assert_non_null(strstr(e.text, "bytes requested"));
	m = take(MIB);
	assert_int_equal(dr_gpu_set(stream, m.dev, 1, MIB, NULL), 0);
	dr_gpu_free(gpu, &m);
}

static void exports_a_dmabuf(void **state)
{
	struct dr_gpu_memory m = take(MIB);
	struct dr_err e = { 0 };
	int fd = -1, rc = dr_gpu_dmabuf(gpu, &m, &fd, &e);

	(void)state;
	print_message("dma-buf: %s\n", rc ? e.text : "exported");
	assert_int_equal(rc, dr_gpu_info(gpu)->dmabuf ? 0 : -ENOTSUP);
	if (rc == 0)
		assert_int_equal(close(fd), 0);
	dr_gpu_free(gpu, &m);
}

/* ---- copies ---- */

static void copies_round_trip(void **state)
{
	static const size_t lens[] = { 0, 1, 3, 4095, 65536, 1000003 };
	struct dr_gpu_memory m = take(MIB);
	unsigned char *a = take_pinned(MIB), *b = take_pinned(MIB);
	uint64_t in, out, done = 0;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++) {
		dr_pattern_fill(a, lens[i], dr_pattern_base(1, 2, 3, i));
		memset(b, 0, MIB);
		assert_int_equal(dr_gpu_copy_in(stream, m.dev, a, lens[i], &in, NULL), 0);
		assert_int_equal(dr_gpu_copy_out(stream, b, m.dev, lens[i], &out, NULL), 0);
		assert_int_equal(out, in + 1);
		while (done < out)
			assert_int_equal(dr_gpu_stream_done(stream, &done, NULL), 0);
		assert_memory_equal(a, b, lens[i]);
		assert_int_equal(b[lens[i]], 0);
	}
	dr_gpu_host_free(gpu, a);
	dr_gpu_host_free(gpu, b);
	dr_gpu_free(gpu, &m);
}

/* Keeps the GPU's processors busy until told to stop. */
struct busy {
	struct dr_gpu_memory m;
	atomic_bool stop;
	atomic_uint fills;
	int rc;
};

static void *keep_busy(void *arg)
{
	struct busy *b = arg;
	struct dr_gpu_stream *s;

	b->rc = dr_gpu_stream_create(gpu, &s, NULL);
	if (b->rc)
		return NULL;
	while (b->rc == 0 && !atomic_load(&b->stop)) {
		b->rc = dr_gpu_pattern_fill(s, b->m.dev, b->m.len, 1, NULL);
		atomic_fetch_add(&b->fills, 1);
	}
	dr_gpu_stream_destroy(s);
	return NULL;
}

static double copy_rate(struct dr_gpu_stream *s, uint64_t dev, void *host, size_t len, unsigned n)
{
	uint64_t ticket = 0, done = 0;
	int64_t begin = dr_now_ns();
	unsigned issued = 0;

	while (issued < n) {
		assert_int_equal(dr_gpu_stream_done(s, &done, NULL), 0);
		if (ticket - done >= 4 && ticket > done)
			continue;
		assert_int_equal(dr_gpu_copy_out(s, host, dev, len, &ticket, NULL), 0);
		issued++;
	}
	assert_int_equal(dr_gpu_stream_wait(s, ticket, NULL), 0);
	return per_s((uint64_t)len * n, dr_now_ns() - begin);
}

static void copies_run_beside_kernels(void **state)
{
	struct busy b = { .m = take(small_only ? MIB : 512 * MIB) };
	struct dr_gpu_memory m = take(MIB);
	void *host = take_pinned(MIB);
	double alone = copy_rate(stream, m.dev, host, MIB, 200), beside;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, keep_busy, &b), 0);
	while (atomic_load(&b.fills) < 3)
		;
	beside = copy_rate(stream, m.dev, host, MIB, 200);
	atomic_store(&b.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(b.rc, 0);
	print_message("1 MiB copies out: %.1f GB/s alone, %.1f GB/s beside %u fills of %llu MiB\n",
		alone, beside, atomic_load(&b.fills), (unsigned long long)(b.m.len / MIB));
	dr_gpu_host_free(gpu, host);
	dr_gpu_free(gpu, &m);
	dr_gpu_free(gpu, &b.m);
}

static void rate_of(const char *name, struct dr_gpu_memory *m, char *host, size_t len)
{
	struct dr_gpu_stream_stats a, b;
	double gbps;
	unsigned n = (unsigned)DR_MIN((size_t)2000, 4 * GIB / len);

	dr_gpu_stream_stats(stream, &a);
	gbps = copy_rate(stream, m->dev, host, len, n);
	dr_gpu_stream_stats(stream, &b);
	print_message("%s %7zu KiB: %.1f GB/s, %.2f us a copy, of which the GPU's %.2f us\n", name,
		len / 1024, gbps, (double)len / gbps / 1e3,
		(double)(b.busy_ns - a.busy_ns) / (double)(b.copies - a.copies) / 1e3);
}

/* From asking for a copy of a few bytes to knowing that it is done, in us. */
static double round_trip_us(uint64_t dev, void *host, bool out)
{
	uint64_t ticket, done = 0;
	int64_t begin = dr_now_ns();

	for (int i = 0; i < 1000; i++) {
		if (out)
			assert_int_equal(dr_gpu_copy_out(stream, host, dev, 8, &ticket, NULL), 0);
		else
			assert_int_equal(dr_gpu_copy_in(stream, dev, host, 8, &ticket, NULL), 0);
		do
			assert_int_equal(dr_gpu_stream_done(stream, &done, NULL), 0);
		while (done < ticket);
	}
	return (double)(dr_now_ns() - begin) / 1e6;
}

static void what_copies_cost(void **state)
{
	static const size_t lens[] = { 4096, 65536, 512 * 1024, 4 * MIB, 64 * MIB };
	struct dr_gpu_memory m;
	uint64_t ticket, done = 0;
	int64_t begin, ns[3];
	unsigned polls = 0;
	char *host;

	(void)state;
	skip_when_small();
	m = take(64 * MIB);
	host = take_pinned(64 * MIB);
	for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++)
		rate_of("copies out", &m, host, lens[i]);
	begin = dr_now_ns();
	for (int i = 0; i < 200; i++)
		assert_int_equal(dr_gpu_copy_in(stream, m.dev, host, 64, &ticket, NULL), 0);
	ns[0] = dr_now_ns() - begin;
	assert_int_equal(dr_gpu_stream_wait(stream, ticket, NULL), 0);
	assert_int_equal(dr_gpu_copy_in(stream, m.dev, host, 64 * MIB, &ticket, NULL), 0);
	begin = dr_now_ns();
	for (; done < ticket; polls++)
		assert_int_equal(dr_gpu_stream_done(stream, &done, NULL), 0);
	ns[1] = dr_now_ns() - begin;
	begin = dr_now_ns();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(dr_gpu_memory(gpu, NULL, NULL, NULL), 0);
	ns[2] = dr_now_ns() - begin;
	print_message(
		"asking for a copy: %.2f us; looking for its end: %.3f us; asking for free memory: %.2f us\n",
		(double)ns[0] / 200e3, (double)ns[1] / polls / 1e3, (double)ns[2] / 1e6);
	print_message("8 bytes: %.1f us out, %.1f us in, each looked for until it is done\n",
		round_trip_us(m.dev, host, true), round_trip_us(m.dev, host, false));
	dr_gpu_host_free(gpu, host);
	dr_gpu_free(gpu, &m);
}

/* ---- unpacking ---- */

static const struct {
	enum dr_gpu_unpack_how how;
	const char *name;
} ways[] = { { DR_GPU_UNPACK_KERNEL, "kernel" }, { DR_GPU_UNPACK_D2D, "copies" },
	{ DR_GPU_UNPACK_HOST, "host" } };

/* A list, in pinned memory, of pieces of src in any order. They lie at multiples of step there, and at any address
 * for step 1; in dst they leave no gap. */
static unsigned cut(
	struct dr_rng *rng, struct dr_gpu_piece *list, size_t len, uint32_t most, uint32_t step)
{
	uint32_t at = 0;
	unsigned n = 0;

	for (size_t off = 0; off < len; n++) {
		uint32_t size = step > 1 ? most : 1 + (uint32_t)dr_rng_below(rng, most);
		unsigned other = (unsigned)dr_rng_below(rng, n + 1);

		size = (uint32_t)DR_MIN((size_t)size, len - off);
		list[n] = list[other];
		list[other] = (struct dr_gpu_piece){ at, size, off };
		at += (size + step - 1) / step * step;
		off += size;
	}
	return n;
}

static void expect_unpacked(struct dr_gpu_unpack *u, enum dr_gpu_unpack_how how,
	const unsigned char *src, unsigned char *host)
{
	uint64_t ticket;

	assert_int_equal(dr_gpu_set(stream, u->dst - 16, 0x5c, u->len + 32, NULL), 0);
	assert_int_equal(dr_gpu_unpack(stream, u, how, &ticket, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(stream, ticket, NULL), 0);
	assert_int_equal(dr_gpu_read(stream, host, u->dst - 16, u->len + 32, NULL), 0);
	for (unsigned i = 0; i < u->n; i++)
		assert_memory_equal(host + 16 + u->piece[i].dst_off, src + u->piece[i].src_off,
			u->piece[i].len);
	for (size_t i = 0; i < 16; i++) {
		assert_int_equal(host[i], 0x5c);
		assert_int_equal(host[16 + u->len + i], 0x5c);
	}
}

/* One list, rewritten each time: a kernel reads what stands there now. */
static void unpacks_in_each_way(void **state)
{
	struct dr_gpu_memory src = take(2 * MIB), dst = take(2 * MIB);
	unsigned char *a = take_pinned(2 * MIB), *b = take_pinned(2 * MIB);
	struct dr_gpu_piece *list = take_pinned(MIB * sizeof(*list));
	uint64_t seed = 0;
	struct dr_rng rng;

	(void)state;
	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	assert_int_equal(dr_gpu_pattern_fill(stream, src.dev, 2 * MIB, seed, NULL), 0);
	assert_int_equal(dr_gpu_read(stream, a, src.dev, 2 * MIB, NULL), 0);
	for (int i = 0; i < (small_only ? 6 : 60); i++) {
		size_t len = dr_rng_below(&rng, i % 2 ? MIB : 5000);
		struct dr_gpu_unpack u = { .src = src.dev, .dst = dst.dev + 16 + (i / 3 % 2) * 5 };

		u.len = len;
		u.piece = list;
		u.n = i % 5 ? cut(&rng, list, len, i % 4 < 2 ? 4096 : 70, 1)
			    : cut(&rng, list, len, 4096, 4096);
		for (size_t k = 0; k < DR_ARRAY_LEN(ways); k++)
			expect_unpacked(&u, ways[k].how, a, b);
	}
	dr_gpu_host_free(gpu, list);
	dr_gpu_host_free(gpu, a);
	dr_gpu_host_free(gpu, b);
	dr_gpu_free(gpu, &src);
	dr_gpu_free(gpu, &dst);
}

/* Up to four at a time. */
static double unpack_rate(
	const struct dr_gpu_unpack *u, enum dr_gpu_unpack_how how, unsigned n, int64_t *us)
{
	uint64_t ticket = 0, done = 0, first;
	int64_t begin;

	assert_int_equal(dr_gpu_unpack(stream, u, how, &first, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(stream, first, NULL), 0);
	begin = dr_now_ns();
	while (ticket < first + n) {
		assert_int_equal(dr_gpu_stream_done(stream, &done, NULL), 0);
		if (ticket >= done + 4)
			continue;
		assert_int_equal(dr_gpu_unpack(stream, u, how, &ticket, NULL), 0);
	}
	assert_int_equal(dr_gpu_stream_wait(stream, ticket, NULL), 0);
	*us = (dr_now_ns() - begin) / n / 1000;
	return per_s((uint64_t)u->len * n, dr_now_ns() - begin);
}

/* Messages in pieces of a page, at pages, as a NIC splits them, and with the payload of an Ethernet frame. */
static void what_unpacking_costs(void **state)
{
	static const size_t lens[] = { 65536, 512 * 1024, 4 * MIB };
	static const uint32_t sizes[] = { 4096, 1448 };
	struct dr_gpu_memory src, dst;
	struct dr_gpu_piece *list;
	struct dr_rng rng;
	int64_t us;

	(void)state;
	skip_when_small();
	src = take(16 * MIB);
	dst = take(4 * MIB);
	list = take_pinned(4096 * sizeof(*list));
	dr_rng_seed(&rng, 1);
	for (size_t i = 0; i < DR_ARRAY_LEN(lens) * DR_ARRAY_LEN(sizes); i++) {
		uint32_t size = sizes[i % DR_ARRAY_LEN(sizes)];
		struct dr_gpu_unpack u = { .src = src.dev, .dst = dst.dev, .piece = list };

		u.len = lens[i / DR_ARRAY_LEN(sizes)];
		u.n = cut(&rng, list, u.len, size, 4096);
		for (size_t k = 0; k < DR_ARRAY_LEN(ways); k++) {
			double gbps = unpack_rate(&u, ways[k].how,
				ways[k].how == DR_GPU_UNPACK_KERNEL ? 500 : 20, &us);

			print_message("unpack %5zu KiB in %4u pieces by %s: %.1f GB/s, %lld us\n",
				u.len / 1024, u.n, ways[k].name, gbps, (long long)us);
		}
	}
	dr_gpu_host_free(gpu, list);
	dr_gpu_free(gpu, &src);
	dr_gpu_free(gpu, &dst);
}

/* ---- the pattern ---- */

static void expect_filled(uint64_t dev, size_t len, uint64_t seq, unsigned char *host)
{
	uint64_t base = dr_pattern_base(4, 5, 6, seq), bad;
	size_t at = 0;

	assert_int_equal(dr_gpu_set(stream, dev, 0x5c, len + 16, NULL), 0);
	assert_int_equal(dr_gpu_pattern_fill(stream, dev, len, base, NULL), 0);
	assert_int_equal(dr_gpu_read(stream, host, dev, len + 16, NULL), 0);
	if (dr_pattern_check(host, len, dr_pattern_base(4, 5, 6, seq), &at))
		print_error("%zu bytes: byte %zu is wrong\n", len, at);
	assert_int_equal(dr_pattern_check(host, len, dr_pattern_base(4, 5, 6, seq), &at), 0);
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(host[len + i], 0x5c);
	assert_int_equal(dr_gpu_pattern_check(stream, dev, len, base, &bad, NULL), 0);
}

static void pattern_of_every_length(void **state)
{
	struct dr_gpu_memory m = take(2 * MIB);
	unsigned char *host = take_pinned(2 * MIB);
	uint64_t seq = 0;

	(void)state;
	for (size_t len = 0; len < 100; len++)
		expect_filled(m.dev + 16 * (len % 5), len, seq++, host);
	for (size_t k = 0; k < 17; k++) {
		expect_filled(m.dev, 4096 - 8 + k, seq++, host);
		expect_filled(m.dev + 16, MIB - 8 + k, seq++, host);
	}
	dr_gpu_host_free(gpu, host);
	dr_gpu_free(gpu, &m);
}

static void plant(uint64_t dev, uint64_t at, unsigned bit)
{
	unsigned char byte;
	uint64_t ticket;

	assert_int_equal(dr_gpu_read(stream, &byte, dev + at, 1, NULL), 0);
	byte ^= (unsigned char)(1u << bit);
	assert_int_equal(dr_gpu_copy_in(stream, dev + at, &byte, 1, &ticket, NULL), 0);
	assert_int_equal(dr_gpu_stream_wait(stream, ticket, NULL), 0);
}

/* Up to three wrong bytes: the first is found. */
static void wrong_bytes_are_found(void **state)
{
	struct dr_gpu_memory m = take(4 * MIB);
	uint64_t seed = 0, bad, base, at, first;
	struct dr_rng rng;
	size_t len;

	(void)state;
	assert_int_equal(dr_random_bytes(&seed, sizeof(seed)), 0);
	print_message("seed %llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	for (int i = 0; i < (small_only ? 20 : 300); i++) {
		len = 1 + dr_rng_below(&rng, i % 2 ? 64 : 4 * MIB);
		base = dr_rng_u64(&rng);
		assert_int_equal(dr_gpu_pattern_fill(stream, m.dev, len, base, NULL), 0);
		first = len;
		for (uint64_t n = 1 + dr_rng_below(&rng, 3); n > 0; n--) {
			at = dr_rng_below(&rng, len);
			if (at == first)
				continue;
			plant(m.dev, at, (unsigned)dr_rng_below(&rng, 8));
			first = DR_MIN(first, at);
		}
		bad = UINT64_MAX;
		if (dr_gpu_pattern_check(stream, m.dev, len, base, &bad, NULL) != 1 || bad != first)
			print_error("round %d: %zu bytes, %llu is wrong, %llu found\n", i, len,
				(unsigned long long)first, (unsigned long long)bad);
		assert_int_equal(bad, first);
	}
	dr_gpu_free(gpu, &m);
}

/* Lengths and offsets that 32 bits do not hold. */
static void more_than_4_gib(void **state)
{
	const uint64_t len = 5 * GIB + 3;
	struct dr_gpu_memory m;
	uint64_t unused, bad;

	(void)state;
	skip_when_small();
	assert_int_equal(dr_gpu_memory(gpu, &unused, NULL, NULL), 0);
	if (unused < len + 512 * (uint64_t)MIB) {
		print_message("SKIP: less than 5.5 GiB of GPU memory are free\n");
		skip();
	}
	m = take(len);
	assert_int_equal(dr_gpu_pattern_fill(stream, m.dev, len, 11, NULL), 0);
	assert_int_equal(dr_gpu_pattern_check(stream, m.dev, len, 11, &bad, NULL), 0);
	plant(m.dev, len - 1, 7);
	assert_int_equal(dr_gpu_pattern_check(stream, m.dev, len, 11, &bad, NULL), 1);
	assert_int_equal(bad, len - 1);
	plant(m.dev, 4 * GIB + 17, 0);
	assert_int_equal(dr_gpu_pattern_check(stream, m.dev, len, 11, &bad, NULL), 1);
	assert_int_equal(bad, 4 * GIB + 17);
	dr_gpu_free(gpu, &m);
}

/* ---- threads and GPUs ---- */

static int fill_copy_check(struct dr_gpu *g, struct dr_gpu_stream *s, struct dr_gpu_memory *m,
	void *host, uint64_t base)
{
	uint64_t ticket, bad;
	int rc = dr_gpu_pattern_fill(s, m->dev, MIB, base, NULL);

	(void)g;
	if (rc == 0)
		rc = dr_gpu_copy_out(s, host, m->dev, MIB, &ticket, NULL);
	if (rc == 0)
		rc = dr_gpu_copy_in(s, m->dev + MIB, host, MIB, &ticket, NULL);
	if (rc == 0)
		rc = dr_gpu_stream_wait(s, ticket, NULL);
	return rc ? rc : dr_gpu_pattern_check(s, m->dev + MIB, MIB, base, &bad, NULL);
}

static void *work_on(void *arg)
{
	struct dr_gpu_stream *s = NULL;
	struct dr_gpu_memory m = { 0 };
	struct dr_gpu *g = arg;
	void *host = NULL;
	int rc = dr_gpu_stream_create(g, &s, NULL);

	if (rc == 0)
		rc = dr_gpu_alloc(g, 2 * MIB, &m, NULL);
	if (rc == 0)
		rc = dr_gpu_host_alloc(g, MIB, &host, NULL);
	for (uint64_t i = 0; rc == 0 && i < (small_only ? 5 : 200); i++)
		rc = fill_copy_check(g, s, &m, host, i);
	dr_gpu_host_free(g, host);
	dr_gpu_free(g, &m);
	dr_gpu_stream_destroy(s);
	return rc == 0 ? arg : NULL;
}

static void threads_share_gpus(void **state)
{
	struct dr_gpu_info info[1];
	struct dr_gpu *g[2] = { gpu, gpu };
	pthread_t thread[4];
	void *ok;
	int n = dr_gpu_list(info, 1, NULL);

	(void)state;
	if (n > 1)
		assert_int_equal(dr_gpu_open(1, &g[1], NULL), 0);
	print_message("4 threads on %d GPU%s\n", DR_MIN(n, 2), n > 1 ? "s" : "");
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work_on, g[i % 2]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(thread[i], &ok), 0);
		assert_non_null(ok);
	}
	/* One thread, from one GPU to the other. */
	for (int i = 0; i < 4; i++)
		assert_non_null(work_on(g[i % 2]));
	if (n > 1)
		dr_gpu_close(g[1]);
}

static int open_first(void **state)
{
	struct dr_err e;

	(void)state;
	if (dr_gpu_open(0, &gpu, &e) == 0 && dr_gpu_stream_create(gpu, &stream, &e) == 0)
		return 0;
	print_error("%s\n", e.text);
	return -1;
}

static int close_first(void **state)
{
	(void)state;
	dr_gpu_stream_destroy(stream);
	dr_gpu_close(gpu);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_and_opens_all),
		cmocka_unit_test(memory_is_aligned_and_comes_back),
		cmocka_unit_test(out_of_memory_is_said),
		cmocka_unit_test(exports_a_dmabuf),
		cmocka_unit_test(copies_round_trip),
		cmocka_unit_test(copies_run_beside_kernels),
		cmocka_unit_test(what_copies_cost),
		cmocka_unit_test(unpacks_in_each_way),
		cmocka_unit_test(what_unpacking_costs),
		cmocka_unit_test(pattern_of_every_length),
		cmocka_unit_test(wrong_bytes_are_found),
		cmocka_unit_test(more_than_4_gib),
		cmocka_unit_test(threads_share_gpus),
	};
	struct dr_gpu_info info;
	struct dr_err e;

	small_only = getenv("DR_GPU_SMALL") != NULL;
	if (dr_gpu_list(&info, 1, &e) < 0) {
		printf("%s\n", e.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, open_first, close_first);
}
