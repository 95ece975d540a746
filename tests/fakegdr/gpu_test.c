/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <pthread.h>

#include "base/rng.h"
#include "gpu/cuda.h"
#include "tests/fakecuda/fakecuda.h"
#include "tests/fakegdr/fakegdr.h"

/*
 * libnccl-net-fakegdr.so with messages in GPU memory (FAKEGDR_MEMORY=cuda), of emulated GPUs. With DR_LIBCUDA=libcuda.so.1 set,
 * of a real one: then nothing is made to fail. SEED: of lengths and places.
 */
enum {
	ROOM = 1 << 20,
	MESSAGES = 40,
	DEPTH = 4,
	GRANULE = 65536,
	PITCH = ROOM + GRANULE,
	UNSET = 0x11
};

static const struct dr_fakecuda_ctl *fake; /* NULL: a real GPU */
static const struct dr_cuda *cu;
static uint64_t seed;

static const int sizes[] = { 0, 1, 4095, 4096, 4097, ROOM, 131072 + 4096, 131073, (512 << 10) + 5 };

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* A side's own use of the GPU: DEPTH messages in GPU memory and as many in host memory. */
struct side {
	struct CUstream_st *stream;
	unsigned long long memory;
	uint8_t *gpu, *pinned, *host;
	void *gpu_mh, *host_mh;
};

struct bed {
	struct pair p;
	struct CUctx_st *ctx;
	struct side out, in;
};

static size_t bytes(void)
{
	return (size_t)DEPTH * PITCH;
}

/* It starts where it can be exported. */
static void side_make(struct side *s)
{
	void *pinned = NULL;

	MUST(cu->stream_create(&s->stream, DR_CUDA_STREAM_NON_BLOCKING) == 0);
	MUST(cu->mem_alloc(&s->memory, bytes() + GRANULE) == 0);
	MUST(cu->mem_host_alloc(&pinned, ROOM, DR_CUDA_HOST_PORTABLE) == 0);
	s->pinned = pinned;
	s->gpu = (uint8_t *)(uintptr_t)((s->memory + GRANULE - 1) / GRANULE * GRANULE);
	s->host = pair_pages(bytes());
}

static void side_drop(const struct side *s)
{
	(void)cu->stream_destroy(s->stream);
	(void)cu->mem_free(s->memory);
	(void)cu->mem_free_host(s->pinned);
	free(s->host);
}

static void bed_make(struct bed *b, const char *gpus)
{
	struct dr_err e;

	memset(b, 0, sizeof(*b));
	if (fake) {
		(void)setenv("DR_FAKE_CUDA", gpus, 1);
		fake->reset();
	}
	MUST(dr_cuda_load(&cu, &e) == 0);
	MUST(cu->primary_ctx_retain(&b->ctx, 0) == 0);
	MUST(cu->ctx_set_current(b->ctx) == 0);
	side_make(&b->out);
	side_make(&b->in);
}

static void bed_drop(struct bed *b)
{
	MUST(cu->ctx_set_current(b->ctx) == 0);
	side_drop(&b->out);
	side_drop(&b->in);
	(void)cu->primary_ctx_release(0);
}

static void register_side(struct bed *b, void *comm, struct side *s)
{
	const struct min_net_v7 *n = b->p.net;

	MUST(n->reg_mr(comm, s->gpu, (int)bytes(), GDR_PTR_CUDA, &s->gpu_mh) == MIN_OK);
	MUST(n->reg_mr(comm, s->host, (int)bytes(), MIN_PTR_HOST, &s->host_mh) == MIN_OK);
}

static void connect_bed(struct bed *b)
{
	pair_listen(&b->p);
	pair_connect(&b->p, true);
	register_side(b, b->p.scomm, &b->out);
	register_side(b, b->p.rcomm, &b->in);
}

static void close_bed(struct bed *b)
{
	MUST(b->p.net->dereg_mr(b->p.scomm, b->out.gpu_mh) == MIN_OK);
	MUST(b->p.net->dereg_mr(b->p.rcomm, b->in.gpu_mh) == MIN_OK);
	MUST(b->p.net->close_send(b->p.scomm) == MIN_OK);
	MUST(b->p.net->close_recv(b->p.rcomm) == MIN_OK);
}

/* ---- messages ---- */

static int size_of(unsigned message)
{
	if (message < N_SIZES)
		return sizes[message];
	return (int)(dr_mix64(seed + message) % (message % 2 ? ROOM + 1 : 20000));
}

/* Anywhere. */
static size_t place_of(unsigned message)
{
	return message % DEPTH * (size_t)PITCH + dr_mix64(seed + 1000 + message) % GRANULE;
}

static bool sent_from_host(unsigned message)
{
	return message % 3 == 2;
}

static bool received_in_host(unsigned message)
{
	return message % 4 == 3;
}

static uint8_t pattern(unsigned message, size_t i)
{
	return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3 + (i >> 16) * 11);
}

static void gpu_write(const struct side *s, uint8_t *to, size_t len)
{
	if (len == 0)
		return;
	MUST(cu->memcpy_htod_async((uintptr_t)to, s->pinned, len, s->stream) == 0);
	MUST(cu->stream_synchronize(s->stream) == 0);
}

static const uint8_t *gpu_read(const struct side *s, const uint8_t *from, size_t len)
{
	if (len == 0)
		return s->pinned;
	MUST(cu->memcpy_dtoh_async(s->pinned, (uintptr_t)from, len, s->stream) == 0);
	MUST(cu->stream_synchronize(s->stream) == 0);
	return s->pinned;
}

static void *post_send(struct bed *b, unsigned message)
{
	size_t at = place_of(message), size = (size_t)size_of(message);
	bool host = sent_from_host(message);
	uint8_t *to = host ? b->out.host + at : b->out.pinned;
	void *r = NULL;

	for (size_t i = 0; i < size; i++)
		to[i] = pattern(message, i);
	if (!host)
		gpu_write(&b->out, b->out.gpu + at, size);
	MUST(b->p.net->isend(b->p.scomm, host ? b->out.host + at : b->out.gpu + at, (int)size, 0,
		     host ? b->out.host_mh : b->out.gpu_mh, &r) == MIN_OK &&
		r);
	return r;
}

static void *post_receive(struct bed *b, unsigned message)
{
	size_t at = place_of(message);
	bool host = received_in_host(message);
	void *data = host ? b->in.host + at : b->in.gpu + at, *r = NULL;
	int size = message % 2 ? ROOM : size_of(message), tag = 0;

	MUST(b->p.net->irecv(b->p.rcomm, 1, &data, &size, &tag,
		     host ? &b->in.host_mh : &b->in.gpu_mh, &r) == MIN_OK &&
		r);
	return r;
}

static void *flush(struct bed *b, unsigned message)
{
	bool host = received_in_host(message);
	void *data = (host ? b->in.host : b->in.gpu) + place_of(message), *r = &seed;
	int size = size_of(message);

	MUST(b->p.net->iflush(b->p.rcomm, 1, &data, &size, host ? &b->in.host_mh : &b->in.gpu_mh,
		     &r) == MIN_OK &&
		r != &seed);
	return r;
}

static bool flushed(struct bed *b, void *request)
{
	int done = -1;

	MUST(b->p.net->test(request, &done, NULL) == MIN_OK);
	return done;
}

/* The message's first bytes are there, and the last `held` are not. */
static void check(struct bed *b, unsigned message, size_t held)
{
	size_t at = place_of(message), size = (size_t)size_of(message);
	const uint8_t *data = received_in_host(message) ? b->in.host + at
							: gpu_read(&b->in, b->in.gpu + at, size);

	for (size_t i = 0; i < size; i++)
		MUST(data[i] == (i < size - held ? pattern(message, i) : GDR_POISON));
}

static size_t held_of(unsigned message)
{
	int size = size_of(message);

	if (received_in_host(message) || getenv("FAKEGDR_ORDERED"))
		return 0;
	return (size_t)(size < GDR_HELD_MAX ? size : GDR_HELD_MAX);
}

static void finish_receive(struct bed *b, unsigned message)
{
	size_t held = held_of(message);
	void *f;

	MUST(b->p.size == size_of(message));
	check(b, message, held);
	f = flush(b, message);
	MUST((f != NULL) == (held > 0));
	if (!f)
		return;
	for (int i = 1; i < GDR_FLUSH_TESTS; i++)
		MUST(!flushed(b, f));
	check(b, message, held);
	MUST(flushed(b, f));
	check(b, message, 0);
}

/* As pair_done, which both threads may not call at a time. */
static bool sent(struct bed *b, void *request)
{
	int done = -1;

	MUST(b->p.net->test(request, &done, NULL) == MIN_OK);
	return done;
}

static void *send_all(void *arg)
{
	unsigned posted = 0, done = 0;
	int64_t start = dr_now_ns();
	struct bed *b = arg;
	void *request[DEPTH];

	while (done < MESSAGES) {
		for (; posted < MESSAGES && posted - done < DEPTH; posted++) {
			MUST(cu->ctx_set_current(b->ctx) == 0);
			request[posted % DEPTH] = post_send(b, posted);
			MUST(cu->ctx_set_current(NULL) == 0);
		}
		done += sent(b, request[done % DEPTH]);
		pair_in_time(start);
	}
	return NULL;
}

static void carry(void)
{
	unsigned posted = 0, done = 0;
	int64_t start = dr_now_ns();
	void *request[DEPTH];
	pthread_t thread;
	struct bed b;

	bed_make(&b, "delay_us=0");
	connect_bed(&b);
	MUST(pthread_create(&thread, NULL, send_all, &b) == 0);
	while (done < MESSAGES) {
		for (; posted < MESSAGES && posted - done < DEPTH; posted++)
			request[posted % DEPTH] = post_receive(&b, posted);
		if (pair_done(&b.p, request[done % DEPTH]))
			finish_receive(&b, done++);
		pair_in_time(start);
	}
	MUST(pthread_join(thread, NULL) == 0);
	close_bed(&b);
	bed_drop(&b);
}

/* Copies take long, and in an emulated GPU the bytes can be seen at once, without work behind the plugin's. */
static void carry_late(void)
{
	struct bed b;
	void *s, *r;

	bed_make(&b, "delay_us=20000");
	connect_bed(&b);
	for (unsigned message = 4; message < 6; message++) {
		size_t size = (size_t)size_of(message), held = held_of(message);
		const uint8_t *seen;

		s = post_send(&b, message);
		r = post_receive(&b, message);
		pair_wait(&b.p, s, r);
		seen = fake->bytes((uintptr_t)b.in.gpu + place_of(message));
		for (size_t i = 0; i < size; i++)
			MUST(seen[i] == (i < size - held ? pattern(message, i) : GDR_POISON));
		r = flush(&b, message);
		while (!flushed(&b, r))
			MUST(seen[size - 1] == GDR_POISON);
		for (size_t i = 0; i < size; i++)
			MUST(seen[i] == pattern(message, i));
	}
	close_bed(&b);
	bed_drop(&b);
}

/* ---- dma-bufs ---- */

static int export(const struct side *s)
{
	int fd = -1;

	MUST(cu->mem_get_handle_for_address_range);
	MUST(cu->mem_get_handle_for_address_range(
		     &fd, (uintptr_t)s->gpu, bytes(), DR_CUDA_RANGE_DMA_BUF_FD, 0) == 0);
	MUST(fd >= 0);
	return fd;
}

/* The part behind the first granule; the descriptor is closed before it is used. */
static void register_dmabuf(struct bed *b, void *comm, struct side *s)
{
	const struct min_net_v7 *n = b->p.net;
	int fd = export(s);

	MUST(n->reg_mr(comm, s->gpu, ROOM, GDR_PTR_CUDA, &s->gpu_mh) == MIN_INTERNAL_ERROR);
	s->gpu += GRANULE;
	MUST(n->reg_mr_dmabuf(comm, s->gpu, bytes() - GRANULE, GDR_PTR_CUDA, GRANULE, fd,
		     &s->gpu_mh) == MIN_OK);
	MUST(close(fd) == 0);
}

static void carry_dmabuf(void)
{
	const unsigned message = 4; /* from GPU to GPU memory */
	struct bed b;
	void *s, *r;
	size_t at;

	bed_make(&b, "");
	pair_listen(&b.p);
	pair_connect(&b.p, true);
	memset(b.out.pinned, UNSET, ROOM);
	gpu_write(&b.out, b.out.gpu + GRANULE, ROOM);
	register_dmabuf(&b, b.p.scomm, &b.out);
	register_dmabuf(&b, b.p.rcomm, &b.in);
	/* The check has changed nothing. */
	MUST(*gpu_read(&b.out, b.out.gpu, 1) == UNSET);
	at = place_of(message);
	MUST(at + ROOM <= bytes() - GRANULE);
	s = post_send(&b, message);
	r = post_receive(&b, message);
	pair_wait(&b.p, s, r);
	finish_receive(&b, message);
	close_bed(&b);
	bed_drop(&b);
}

/* ---- contexts and failures ---- */

static bool is_current(const struct CUctx_st *ctx)
{
	struct CUctx_st *now;

	MUST(cu->ctx_get_current(&now) == 0);
	return now == ctx;
}

/* Registers memory of the first GPU while the second one's context is current, which is gone afterwards. */
static void register_elsewhere_current(struct bed *b)
{
	struct CUctx_st *other;
	int n = 0;

	MUST(cu->device_get_count(&n) == 0);
	if (n > 1)
		MUST(cu->primary_ctx_retain(&other, 1) == 0 && cu->ctx_set_current(other) == 0);
	register_side(b, b->p.scomm, &b->out);
	register_side(b, b->p.rcomm, &b->in);
	MUST(cu->ctx_set_current(b->ctx) == 0);
	if (n > 1)
		MUST(cu->primary_ctx_release(1) == 0);
}

/* Comms keep the context of connect and accept, and callers theirs. */
static void keep_contexts(void)
{
	struct bed b;
	void *s, *r;

	bed_make(&b, "delay_us=2");
	pair_listen(&b.p);
	pair_connect(&b.p, true);
	register_elsewhere_current(&b);
	for (unsigned message = 4; message < 6; message++) {
		MUST(cu->ctx_set_current(b.ctx) == 0);
		s = post_send(&b, message);
		r = post_receive(&b, message);
		MUST(cu->ctx_set_current(NULL) == 0);
		pair_wait(&b.p, s, r);
		r = flush(&b, message);
		while (!flushed(&b, r))
			MUST(is_current(NULL));
		MUST(is_current(NULL));
		MUST(cu->ctx_set_current(b.ctx) == 0);
		check(&b, message, 0);
	}
	MUST(cu->ctx_set_current(NULL) == 0);
	close_bed(&b);
	MUST(is_current(NULL));
	bed_drop(&b);
}

/* Host memory is carried without one. */
static void lack_context(void)
{
	const struct min_net_v7 *n;
	struct bed b;

	bed_make(&b, "");
	MUST(cu->ctx_set_current(NULL) == 0);
	pair_listen(&b.p);
	pair_connect(&b.p, true);
	n = b.p.net;
	MUST(n->reg_mr(b.p.rcomm, b.in.host, ROOM, MIN_PTR_HOST, &b.in.host_mh) == MIN_OK);
	MUST(n->reg_mr(b.p.rcomm, b.in.gpu, ROOM, GDR_PTR_CUDA, &b.in.gpu_mh) == MIN_CUDA_ERROR);
	MUST(n->reg_mr(b.p.scomm, b.out.gpu, ROOM, GDR_PTR_CUDA, &b.out.gpu_mh) == MIN_CUDA_ERROR);
	MUST(cu->ctx_set_current(b.ctx) == 0);
	register_side(&b, b.p.scomm, &b.out);
	register_side(&b, b.p.rcomm, &b.in);
	close_bed(&b);
	bed_drop(&b);
}

static unsigned failures; /* calls of the plugin that returned 1 */

static bool fine(enum min_result result)
{
	MUST(result == MIN_OK || result == MIN_CUDA_ERROR);
	failures += result != MIN_OK;
	return result == MIN_OK;
}

static bool tested(struct bed *b, void *request)
{
	int64_t start = dr_now_ns();
	bool ok = true;
	int done = 0;

	while (ok && !done) {
		ok = fine(b->p.net->test(request, &done, NULL));
		MUST(ok || !done);
		pair_in_time(start);
	}
	return ok;
}

/* The sender registers its memory, the receiver a dma-buf. */
static void carry_one(struct bed *b, int fd)
{
	const struct min_net_v7 *n = b->p.net;
	void *data = b->in.gpu, *s, *r, *f;
	int size = 5000, tag = 0, len = (int)bytes();

	if (!fine(n->reg_mr(b->p.scomm, b->out.gpu, len, GDR_PTR_CUDA, &b->out.gpu_mh)) ||
		!fine(n->reg_mr_dmabuf(
			b->p.rcomm, data, bytes(), GDR_PTR_CUDA, 0, fd, &b->in.gpu_mh)))
		return;
	MUST(n->isend(b->p.scomm, b->out.gpu, size, 0, b->out.gpu_mh, &s) == MIN_OK);
	MUST(n->irecv(b->p.rcomm, 1, &data, &size, &tag, &b->in.gpu_mh, &r) == MIN_OK);
	if (!tested(b, s) || !tested(b, r))
		return;
	MUST(n->iflush(b->p.rcomm, 1, &data, &size, &b->in.gpu_mh, &f) == MIN_OK && f);
	(void)tested(b, f);
}

/* From listen to close, whatever fails. */
static void scene(struct bed *b, int fd)
{
	struct pair *p = &b->p;

	p->scomm = p->rcomm = NULL;
	MUST(p->net->listen(0, p->handle, &p->lcomm) == MIN_OK);
	pair_connect(p, true);
	carry_one(b, fd);
	(void)fine(p->net->close_send(p->scomm));
	(void)fine(p->net->close_recv(p->rcomm));
}

/* Each driver call of the plugin fails once. The first two are the looks of connect and accept for a context, which may. */
static void fail_each_call(void)
{
	unsigned alive, k = 0;
	struct bed b;
	bool failed;
	int fd;

	bed_make(&b, "delay_us=2");
	pair_listen(&b.p);
	MUST(b.p.net->close_listen(b.p.lcomm) == MIN_OK);
	fd = export(&b.in);
	alive = fake->alive_total();
	do {
		failures = 0;
		fake->fail_call("*", ++k, 0);
		scene(&b, fd);
		failed = fake->failed() != NULL;
		MUST((failures > 0) == (failed && k > 2));
		MUST(fake->alive_total() == alive);
		fake->fail_call("*", 0, 0);
		MUST(is_current(b.ctx));
	} while (failed);
	MUST(k > 30);
	(void)close(fd);
	bed_drop(&b);
}

/* ---- misuse ---- */

/* The dma-buf of the memory, with an offset in it that belongs to other memory. */
static void register_elsewhere(void)
{
	struct bed b;

	bed_make(&b, "");
	pair_listen(&b.p);
	pair_connect(&b.p, true);
	MUST(cu->memset_d8_async((uintptr_t)(b.in.gpu + GRANULE), 0x11, 1, b.in.stream) == 0);
	MUST(cu->stream_synchronize(b.in.stream) == 0);
	(void)b.p.net->reg_mr_dmabuf(b.p.rcomm, b.in.gpu + GRANULE, ROOM, GDR_PTR_CUDA,
		GRANULE + TCPX_PAGE, export(&b.in), &b.in.gpu_mh);
}

/* ---- tests ---- */

static void need_emulated(void)
{
	if (fake)
		return;
	print_message("SKIP: it needs an emulated GPU\n");
	skip();
}

static void carries_gpu_memory(void **state)
{
	(void)state;
	pair_ends(carry, 0, "");
	(void)setenv("NCCL_NSOCKS_PERTHREAD", "4", 1);
	(void)setenv("NCCL_SOCKET_NTHREADS", "2", 1);
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "20001", 1);
	pair_ends(carry, 0, "");
	(void)setenv("FAKEGDR_ORDERED", "1", 1);
	pair_ends(carry, 0, "");
}

static void is_there_when_it_says_so(void **state)
{
	(void)state;
	need_emulated();
	pair_ends(carry_late, 0, "");
}

static void takes_dmabufs(void **state)
{
	(void)state;
	need_emulated();
	(void)setenv("FAKEGDR_DMABUF", "1", 1);
	pair_aborts(register_elsewhere,
		"fakegdr: ", "regMrDmaBuf: offset 69632 of the dma-buf is other memory than");
	(void)setenv("FAKEGDR_DMABUF_ONLY", "1", 1);
	pair_ends(carry_dmabuf, 0, "regMr of CUDA memory, which needs a dma-buf");
}

static void keeps_contexts(void **state)
{
	(void)state;
	pair_ends(keep_contexts, 0, "");
	pair_ends(lack_context, 0, "FAKEGDR_MEMORY=cuda: no CUDA context is current");
}

static void reports_failures(void **state)
{
	(void)state;
	need_emulated();
	(void)setenv("FAKEGDR_DMABUF", "1", 1);
	pair_ends(fail_each_call, 0, "cuMemcpyHtoDAsync_v2: CUDA_ERROR_UNKNOWN (999)");
}

static int setup(void **state)
{
	return pair_setup(state) || setenv("FAKEGDR_MEMORY", "cuda", 1);
}

static int group_setup(void **state)
{
	const char *given = getenv("SEED"), *library = getenv("DR_LIBCUDA");

	(void)state;
	(void)unsetenv("CUDA_VISIBLE_DEVICES");
	seed = given && *given ? strtoull(given, NULL, 10) : (uint64_t)dr_now_ns() % 1000000;
	print_message("SEED=%llu\n", (unsigned long long)seed);
	if (library && *library)
		return 0;
	fake = dr_fakecuda_attach(NULL);
	if (fake)
		return 0;
	print_error("tests/fakecuda/cuda_plugin.so is not built: make tests\n");
	return -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(carries_gpu_memory, setup),
		cmocka_unit_test_setup(is_there_when_it_says_so, setup),
		cmocka_unit_test_setup(takes_dmabufs, setup),
		cmocka_unit_test_setup(keeps_contexts, setup),
		cmocka_unit_test_setup(reports_failures, setup),
	};

	pair_plugin = pair_fakegdr;
	return cmocka_run_group_tests(tests, group_setup, NULL);
}
