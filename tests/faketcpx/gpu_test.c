/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/pair.h"

#include <pthread.h>
#include <sys/socket.h>

#include "base/rng.h"
#include "gpu/cuda.h"
#include "tests/fakecuda/fakecuda.h"

/*
 * libnccl-net-faketcpx.so with its bounce buffer and messages in GPU memory (FAKETCPX_MEMORY=cuda), of emulated GPUs.
 * With DR_LIBCUDA=libcuda.so.1 set, of a real one: then nothing is made to fail, and memory is read by the driver alone.
 * SEED: of lengths and places.
 */
enum {
	ROOM = TCPX_RECEIVE_MAX,
	MESSAGES = 20,
	BIG_MESSAGES = 8,
	DEPTH = 4,
	DEVICES = 2,
	LEFT_BEHIND = 99
};

static const struct dr_fakecuda_ctl *fake; /* NULL: a real GPU */
static const struct dr_cuda *cu;
static uint64_t seed;

static const int sizes[] = { 0, 1, 4096, 512 << 10, ROOM, 4097, (1 << 20) + 13, 131072, 131073 };

enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* A side's own use of the GPU: DEPTH messages in GPU memory and as many in host memory, both registered. */
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
	bool big; /* messages of 4 MiB alone */
	unsigned messages;
	unsigned held;			  /* receives that are complete and not consumed */
	struct tcpx_device_handle handle; /* a copy of the one in GPU memory */
};

static void side_make(struct side *s)
{
	void *pinned = NULL;

	MUST(cu->stream_create(&s->stream, DR_CUDA_STREAM_NON_BLOCKING) == 0);
	MUST(cu->mem_alloc(&s->memory, (size_t)DEPTH * ROOM + TCPX_PAGE) == 0);
	MUST(cu->mem_host_alloc(&pinned, ROOM, DR_CUDA_HOST_PORTABLE) == 0);
	s->pinned = pinned;
	s->gpu = (uint8_t *)(uintptr_t)((s->memory + TCPX_PAGE - 1) / TCPX_PAGE * TCPX_PAGE);
	s->host = pair_pages((size_t)DEPTH * ROOM);
}

static void side_drop(const struct side *s)
{
	(void)cu->stream_destroy(s->stream);
	(void)cu->mem_free(s->memory);
	(void)cu->mem_free_host(s->pinned);
	free(s->host);
}

static struct CUctx_st *use_device(int dev)
{
	struct CUctx_st *ctx;

	MUST(cu->primary_ctx_retain(&ctx, dev) == 0);
	MUST(cu->ctx_set_current(ctx) == 0);
	return ctx;
}

/* A context that is current, and memory of the test. */
static void bed_make(struct bed *b, const char *gpus)
{
	struct dr_err e;

	memset(b, 0, sizeof(*b));
	if (fake) {
		(void)setenv("DR_FAKE_CUDA", gpus, 1);
		fake->reset();
	}
	MUST(dr_cuda_load(&cu, &e) == 0);
	b->ctx = use_device(0);
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
	int len = DEPTH * ROOM;

	MUST(n->reg_mr(comm, s->gpu, len, TCPX_PTR_CUDA, &s->gpu_mh) == MIN_OK);
	MUST(n->reg_mr(comm, s->host, len, MIN_PTR_HOST, &s->host_mh) == MIN_OK);
}

static void connect_bed(struct bed *b)
{
	pair_listen(&b->p);
	pair_connect(&b->p, true);
	MUST(cu->memcpy_dtoh_async(&b->handle, (uintptr_t)b->p.device.handle, sizeof(b->handle),
		     b->in.stream) == 0);
	MUST(cu->stream_synchronize(b->in.stream) == 0);
	b->p.unpack = &b->handle;
	register_side(b, b->p.scomm, &b->out);
	register_side(b, b->p.rcomm, &b->in);
}

static void close_bed(struct bed *b)
{
	MUST(b->p.net->dereg_mr(b->p.scomm, b->out.gpu_mh) == MIN_OK);
	MUST(b->p.net->dereg_mr(b->p.scomm, b->out.host_mh) == MIN_OK);
	MUST(b->p.net->close_send(b->p.scomm) == MIN_OK);
	MUST(b->p.net->close_recv(b->p.rcomm) == MIN_OK);
}

/* ---- messages ---- */

static int size_of(const struct bed *b, unsigned message)
{
	if (b->big)
		return ROOM;
	if (message < N_SIZES)
		return sizes[message];
	return (int)(dr_mix64(seed + message) % (message % 2 ? ROOM + 1 : 20000));
}

static uint8_t pattern(unsigned message, size_t i)
{
	return (uint8_t)(message * 131 + i * 7 + (i >> 8) * 3 + (i >> 16) * 11);
}

/* Every third message is sent from host memory, every second one received into it. */
static void *post_send(struct bed *b, unsigned message)
{
	size_t at = message % DEPTH * (size_t)ROOM, size = (size_t)size_of(b, message);
	bool host = message % 3 == 2;
	uint8_t *to = host ? b->out.host + at : b->out.pinned;
	void *r = NULL;

	for (size_t i = 0; i < size; i++)
		to[i] = pattern(message, i);
	if (!host && size > 0) {
		to = b->out.gpu + at;
		MUST(cu->memcpy_htod_async((uintptr_t)to, b->out.pinned, size, b->out.stream) == 0);
		MUST(cu->stream_synchronize(b->out.stream) == 0);
	}
	MUST(b->p.net->isend(b->p.scomm, host ? b->out.host + at : b->out.gpu + at, (int)size, 0,
		     host ? b->out.host_mh : b->out.gpu_mh, &r) == MIN_OK &&
		r);
	return r;
}

static void *post_receive(struct bed *b, unsigned message)
{
	size_t at = message % DEPTH * (size_t)ROOM;
	bool host = message % 2 == 1;
	void *data = host ? b->in.host + at : b->in.gpu + at, *r = NULL;
	int size = ROOM, tag = 0;

	MUST(b->p.net->irecv(b->p.rcomm, 1, &data, &size, &tag,
		     host ? &b->in.host_mh : &b->in.gpu_mh, &r) == MIN_OK &&
		r);
	return r;
}

static unsigned long long in_bounce(const struct bed *b, const struct tcpx_fragment *f)
{
	return (uintptr_t)b->p.unpack->bounce_buf + f->src_off;
}

/* In an emulated GPU the bytes can be seen at once, without work of a stream that is behind the plugin's. */
static void see(const struct bed *b, unsigned message, const struct tcpx_fragment *f)
{
	const uint8_t *bytes = fake->bytes(in_bounce(b, f));

	MUST(bytes != NULL);
	for (uint32_t i = 0; i < f->len; i++)
		MUST(bytes[i] == pattern(message, f->dst_off + i));
}

/* Fragments put together by copies of the driver give the message. */
static void unpack(struct bed *b, unsigned message)
{
	const struct tcpx_fragment *f = b->p.unpack->meta->mem[message % TCPX_SLOTS];
	uint64_t n = b->p.unpack->meta->cnt[message % TCPX_SLOTS];
	size_t size = (size_t)size_of(b, message), total = 0;
	uint8_t *to = b->in.pinned;

	MUST(n <= TCPX_FRAGMENTS_MAX);
	for (uint64_t i = 0; fake && i < n; i++)
		see(b, message, &f[i]);
	for (size_t i = 0; i < size; i++)
		to[i] = (uint8_t)~pattern(message, i);
	for (uint64_t i = 0; i < n; i++) {
		MUST(f[i].len > 0 && f[i].len <= TCPX_PAGE);
		MUST(f[i].src_off / TCPX_PAGE == (f[i].src_off + f[i].len - 1) / TCPX_PAGE);
		MUST(f[i].dst_off < size && f[i].len <= size - f[i].dst_off);
		MUST(cu->memcpy_dtoh_async(
			     to + f[i].dst_off, in_bounce(b, &f[i]), f[i].len, b->in.stream) == 0);
		total += f[i].len;
	}
	MUST(cu->stream_synchronize(b->in.stream) == 0);
	MUST(total == size);
	for (size_t i = 0; i < size; i++)
		MUST(to[i] == pattern(message, i));
}

/* The pages of the message are the plugin's again. */
static void consume(struct bed *b, unsigned message, void *request)
{
	const struct tcpx_meta *meta = b->p.unpack->meta;
	const struct tcpx_fragment f = meta->mem[message % TCPX_SLOTS][0];
	uint64_t n = meta->cnt[message % TCPX_SLOTS];
	const uint8_t *bytes;

	MUST(b->p.net->irecv_consumed(b->p.rcomm, 1, request) == MIN_OK);
	MUST(meta->cnt[message % TCPX_SLOTS] > TCPX_FRAGMENTS_MAX);
	bytes = fake && n > 0 ? fake->bytes(in_bounce(b, &f)) : NULL;
	for (uint32_t i = 0; bytes && i < f.len; i++)
		MUST(bytes[i] == TCPX_POISON);
}

static void *send_all(void *arg)
{
	struct bed *b = arg;
	unsigned posted = 0, done = 0;
	int64_t start = dr_now_ns();
	void *request[DEPTH];

	while (done < b->messages) {
		for (; posted < b->messages && posted - done < DEPTH; posted++) {
			MUST(cu->ctx_set_current(b->ctx) == 0);
			request[posted % DEPTH] = post_send(b, posted);
			MUST(cu->ctx_set_current(NULL) == 0);
		}
		done += pair_done(&b->p, request[done % DEPTH]);
		pair_in_time(start);
	}
	return NULL;
}

static void receive_all(struct bed *b)
{
	unsigned posted = 0, done = 0, consumed = 0;
	int64_t start = dr_now_ns();
	void *request[TCPX_SLOTS];

	while (consumed < b->messages) {
		for (; posted < b->messages && posted - done < DEPTH; posted++)
			request[posted % TCPX_SLOTS] = post_receive(b, posted);
		if (done < b->messages && pair_done(&b->p, request[done % TCPX_SLOTS]))
			unpack(b, done++);
		if (done - consumed > b->held || done == b->messages) {
			consume(b, consumed, request[consumed % TCPX_SLOTS]);
			consumed++;
		}
		pair_in_time(start);
	}
}

static void carry_messages(bool big, unsigned held)
{
	unsigned long long dev = 0;
	pthread_t thread;
	struct bed b;

	bed_make(&b, "delay_us=0");
	b.big = big;
	b.messages = big ? BIG_MESSAGES : MESSAGES;
	b.held = held;
	connect_bed(&b);
	MUST(cu->mem_host_get_device_pointer(&dev, b.p.unpack->meta, 0) == 0);
	MUST(dev == (uintptr_t)b.p.unpack->meta);
	MUST((uintptr_t)b.p.unpack->bounce_buf % TCPX_PAGE == 0);
	MUST(pthread_create(&thread, NULL, send_all, &b) == 0);
	receive_all(&b);
	MUST(pthread_join(thread, NULL) == 0);
	close_bed(&b);
	bed_drop(&b);
}

static void carry(void)
{
	carry_messages(false, 2);
}

static void carry_big(void)
{
	carry_messages(true, 0);
}

/* Copies take long: what is complete is there. */
static void carry_late(void)
{
	struct bed b;
	void *s, *r;

	bed_make(&b, "delay_us=20000");
	connect_bed(&b);
	for (unsigned message = 0; message < 3; message++) {
		s = post_send(&b, message);
		r = post_receive(&b, message);
		pair_wait(&b.p, s, r);
		unpack(&b, message);
		consume(&b, message, r);
	}
	close_bed(&b);
	bed_drop(&b);
}

/* The second receive needs pages of the first. */
static void wait_for_pages(void)
{
	void *s, *r, *first;
	struct bed b;

	bed_make(&b, "delay_us=0");
	b.big = true;
	connect_bed(&b);
	s = post_send(&b, 0);
	first = post_receive(&b, 0);
	pair_wait(&b.p, s, first);
	s = post_send(&b, 1);
	r = post_receive(&b, 1);
	for (int i = 0; i < 2000; i++) {
		if (s && pair_done(&b.p, s))
			s = NULL;
		MUST(!pair_done(&b.p, r));
	}
	unpack(&b, 0);
	consume(&b, 0, first);
	pair_wait(&b.p, s, r);
	unpack(&b, 1);
	close_bed(&b);
	bed_drop(&b);
}

static void relay(int from, int to)
{
	char bytes[65536];
	ssize_t n = recv(from, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);

	if (n > 0)
		n = send(to, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		MUST(recv(from, bytes, (size_t)n, 0) == n);
}

/*
 * One of two data connections stands still until the other one has given all that the receiver takes. What the later
 * receives leave is enough for the oldest one.
 */
static void carry_unevenly(void)
{
	unsigned sent = 0, done = 0;
	void *s[DEPTH], *r[DEPTH];
	int data_fd, ends[2];
	int64_t start;
	struct bed b;

	bed_make(&b, "delay_us=0");
	b.big = true;
	connect_bed(&b);
	data_fd = dup(b.p.data_fd);
	MUST(data_fd >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	MUST(dup2(ends[0], b.p.data_fd) == b.p.data_fd);
	for (unsigned i = 0; i < DEPTH; i++) {
		s[i] = post_send(&b, i);
		r[i] = post_receive(&b, i);
	}
	for (int i = 0; i < 1000; i++)
		MUST(!pair_done(&b.p, s[0]) && !pair_done(&b.p, r[0]));
	for (start = dr_now_ns(); done < DEPTH; pair_in_time(start)) {
		relay(ends[1], data_fd);
		sent += sent < DEPTH && pair_done(&b.p, s[sent]);
		if (!pair_done(&b.p, r[done]))
			continue;
		unpack(&b, done);
		consume(&b, done, r[done]);
		done++;
	}
	MUST(sent == DEPTH);
	close_bed(&b);
	(void)close(data_fd);
	(void)close(ends[0]);
	(void)close(ends[1]);
	bed_drop(&b);
}

/* ---- contexts ---- */

static bool is_current(const struct CUctx_st *ctx)
{
	struct CUctx_st *now;

	MUST(cu->ctx_get_current(&now) == 0);
	return now == ctx;
}

/* Comms keep the context of their connect and accept, and callers theirs. */
static void keep_contexts(void)
{
	struct CUctx_st *other[DEVICES] = { NULL };
	int n = 0;
	struct bed b;
	void *s, *r;

	bed_make(&b, "delay_us=2");
	connect_bed(&b);
	MUST(cu->device_get_count(&n) == 0);
	if (n > 1)
		other[1] = use_device(1);
	for (unsigned message = 0; message < 2 * DEVICES; message++) {
		MUST(cu->ctx_set_current(b.ctx) == 0);
		s = post_send(&b, message);
		r = post_receive(&b, message);
		MUST(cu->ctx_set_current(other[message % DEVICES]) == 0);
		pair_wait(&b.p, s, r);
		MUST(is_current(other[message % DEVICES]));
		MUST(cu->ctx_set_current(b.ctx) == 0);
		unpack(&b, message);
		MUST(cu->ctx_set_current(other[message % DEVICES]) == 0);
		consume(&b, message, r);
		MUST(is_current(other[message % DEVICES]));
	}
	MUST(cu->ctx_set_current(NULL) == 0);
	close_bed(&b);
	MUST(is_current(NULL));
	if (n > 1)
		MUST(cu->primary_ctx_release(1) == 0);
	bed_drop(&b);
}

/* The last call of accept, the first one was made. */
static enum min_result accept_all(struct pair *p)
{
	struct min_device_handle *device = &p->device;
	enum min_result result = MIN_OK;
	int64_t start = dr_now_ns();

	while (result == MIN_OK && !p->rcomm) {
		result = p->net->accept(p->lcomm, &p->rcomm, &device);
		pair_in_time(start);
	}
	return result;
}

static void connect_all(struct pair *p)
{
	int64_t start = dr_now_ns();

	while (!p->scomm) {
		MUST(p->net->connect(0, p->handle, &p->scomm, NULL) == MIN_OK);
		pair_in_time(start);
	}
}

/* Without a context accept fails, and so does the registration of GPU memory by the sender until there is one. */
static void lack_context(void)
{
	struct bed b;

	bed_make(&b, "");
	MUST(cu->ctx_set_current(NULL) == 0);
	pair_listen(&b.p);
	connect_all(&b.p);
	MUST(accept_all(&b.p) == MIN_CUDA_ERROR && !b.p.rcomm);
	MUST(b.p.net->reg_mr(b.p.scomm, b.out.host, ROOM, MIN_PTR_HOST, &b.out.host_mh) == MIN_OK);
	MUST(b.p.net->reg_mr(b.p.scomm, b.out.gpu, ROOM, TCPX_PTR_CUDA, &b.out.gpu_mh) ==
		MIN_CUDA_ERROR);
	MUST(cu->ctx_set_current(b.ctx) == 0);
	MUST(b.p.net->reg_mr(b.p.scomm, b.out.gpu, ROOM, TCPX_PTR_CUDA, &b.out.gpu_mh) == MIN_OK);
	MUST(b.p.net->close_send(b.p.scomm) == MIN_OK);
	MUST(b.p.net->close_listen(b.p.lcomm) == MIN_OK);
	bed_drop(&b);
}

static void lack_library(void)
{
	struct pair p;

	(void)setenv("DR_LIBCUDA", "/nonexistent/libcuda.so", 1);
	pair_listen(&p);
	connect_all(&p);
	MUST(accept_all(&p) == MIN_CUDA_ERROR && !p.rcomm);
	MUST(p.net->close_send(p.scomm) == MIN_OK);
	MUST(p.net->close_listen(p.lcomm) == MIN_OK);
}

/* ---- failures ---- */

static unsigned failures; /* calls of the plugin that returned 1 */

static bool fine(enum min_result result)
{
	MUST(result == MIN_OK || result == MIN_CUDA_ERROR);
	failures += result != MIN_OK;
	return result == MIN_OK;
}

static bool tested(struct pair *p, void *request)
{
	int64_t start = dr_now_ns();
	bool ok = true;
	int done = 0;

	while (ok && !done) {
		ok = fine(p->net->test(request, &done, NULL));
		MUST(ok || !done);
		pair_in_time(start);
	}
	return ok;
}

static void carry_one(struct bed *b)
{
	struct pair *p = &b->p;
	void *data = b->in.gpu, *s, *r;
	int size = 5000, tag = 0;

	if (!fine(p->net->reg_mr(p->scomm, b->out.gpu, ROOM, TCPX_PTR_CUDA, &b->out.gpu_mh)) ||
		!fine(p->net->reg_mr(p->rcomm, data, ROOM, TCPX_PTR_CUDA, &b->in.gpu_mh)))
		return;
	MUST(p->net->isend(p->scomm, b->out.gpu, size, 0, b->out.gpu_mh, &s) == MIN_OK);
	MUST(p->net->irecv(p->rcomm, 1, &data, &size, &tag, &b->in.gpu_mh, &r) == MIN_OK);
	if (tested(p, s) && tested(p, r))
		(void)fine(p->net->irecv_consumed(p->rcomm, 1, r));
}

/* From listen to close, whatever fails. */
static void scene(struct bed *b)
{
	struct pair *p = &b->p;

	p->scomm = p->rcomm = NULL;
	MUST(p->net->listen(0, p->handle, &p->lcomm) == MIN_OK);
	connect_all(p);
	if (fine(accept_all(p)))
		carry_one(b);
	MUST(p->net->close_listen(p->lcomm) == MIN_OK);
	(void)fine(p->net->close_send(p->scomm));
	if (p->rcomm)
		(void)fine(p->net->close_recv(p->rcomm));
}

/* Each driver call of the plugin fails once. The first one is connect's look for a context, which may. */
static void fail_each_call(void)
{
	unsigned alive, k = 0;
	struct bed b;
	bool failed;

	bed_make(&b, "delay_us=2");
	pair_listen(&b.p);
	MUST(b.p.net->close_listen(b.p.lcomm) == MIN_OK);
	alive = fake->alive_total();
	do {
		failures = 0;
		fake->fail_call("*", ++k, 0);
		scene(&b);
		failed = fake->failed() != NULL;
		MUST((failures > 0) == (failed && k > 1));
		MUST(fake->alive_total() == alive);
		fake->fail_call("*", 0, 0);
		MUST(is_current(b.ctx));
	} while (failed);
	MUST(k > 30);
	bed_drop(&b);
}

static void fail_to_switch(void)
{
	struct bed b;
	void *s, *r;

	bed_make(&b, "delay_us=2");
	connect_bed(&b);
	s = post_send(&b, 1);
	r = post_receive(&b, 1);
	MUST(cu->ctx_set_current(NULL) == 0);
	fake->fail_call("cuCtxSetCurrent", 1, 0);
	MUST(!tested(&b.p, s) || !tested(&b.p, r));
	MUST(is_current(NULL));
	close_bed(&b);
	bed_drop(&b);
}

/* A copy fails after its call was made, and with it the context. */
static void fail_work(void)
{
	struct bed b;

	bed_make(&b, "delay_us=2");
	pair_listen(&b.p);
	MUST(b.p.net->close_listen(b.p.lcomm) == MIN_OK);
	b.p.scomm = b.p.rcomm = NULL;
	MUST(b.p.net->listen(0, b.p.handle, &b.p.lcomm) == MIN_OK);
	connect_all(&b.p);
	MUST(accept_all(&b.p) == MIN_OK);
	fake->fail_work(DR_CUDA_LAUNCH_FAILED);
	failures = 0;
	carry_one(&b);
	MUST(failures == 1);
	MUST(b.p.net->close_listen(b.p.lcomm) == MIN_OK);
	(void)fine(b.p.net->close_send(b.p.scomm));
	(void)fine(b.p.net->close_recv(b.p.rcomm));
	bed_drop(&b);
}

/* Misuse of the driver, which the emulated one counts. The plugin does not crash. */
static void lose_context(bool current)
{
	struct bed b;

	bed_make(&b, "");
	connect_bed(&b);
	bed_drop(&b);
	if (!current)
		MUST(cu->ctx_set_current(NULL) == 0);
	MUST(b.p.net->close_send(b.p.scomm) == MIN_CUDA_ERROR);
	MUST(b.p.net->close_recv(b.p.rcomm) == MIN_CUDA_ERROR);
}

static void lose_own_context(void)
{
	lose_context(true);
}

static void lose_other_context(void)
{
	lose_context(false);
}

static void refuse_settings(void)
{
	MUST(pair_load()->init(pair_log) == MIN_INTERNAL_ERROR);
}

/* ---- tests ---- */

static void carries_gpu_memory(void **state)
{
	(void)state;
	pair_ends(carry, 0, "");
	(void)setenv("NCCL_GPUDIRECTTCPX_RECV_SYNC", "1", 1);
	(void)setenv("NCCL_NSOCKS_PERTHREAD", "4", 1);
	(void)setenv("NCCL_SOCKET_NTHREADS", "2", 1);
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "20000", 1);
	pair_ends(carry, 0, "");
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "300000", 1);
	pair_ends(carry, 0, "");
}

static void is_there_when_complete(void **state)
{
	(void)state;
	pair_ends(carry_late, 0, "");
}

static void waits_for_pages(void **state)
{
	(void)state;
	(void)setenv("FAKETCPX_PAGES", "2048", 1);
	pair_ends(wait_for_pages, 0, "");
	pair_ends(carry_big, 0, "");
	(void)setenv("FAKETCPX_PAGES", "2100", 1);
	(void)setenv("NCCL_NSOCKS_PERTHREAD", "2", 1);
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "2097152", 1);
	pair_ends(carry_unevenly, 0, "");
}

static void keeps_contexts(void **state)
{
	(void)state;
	pair_ends(keep_contexts, 0, "");
	pair_ends(lack_context, 0, "no CUDA context is current");
	pair_ends(lack_library, 0, "/nonexistent/libcuda.so");
}

static void reports_failures(void **state)
{
	(void)state;
	if (!fake)
		skip();
	pair_ends(fail_each_call, 0, "cuMemcpyHtoDAsync_v2: CUDA_ERROR_UNKNOWN (999)");
	pair_ends(fail_to_switch, 0, "cuCtxSetCurrent: CUDA_ERROR_UNKNOWN (999)");
	pair_ends(fail_work, 0, "cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)");
	pair_ends(lose_own_context, LEFT_BEHIND, "CUDA_ERROR_INVALID_CONTEXT (201)");
	pair_ends(lose_other_context, LEFT_BEHIND,
		"cuCtxSetCurrent: CUDA_ERROR_INVALID_CONTEXT (201)");
}

static void refuses_settings(void **state)
{
	(void)state;
	(void)setenv("FAKETCPX_PAGES", "2047", 1);
	pair_ends(refuse_settings, 0, "FAKETCPX_PAGES=2047, 2048 to 32768 are possible");
	(void)setenv("FAKETCPX_PAGES", "", 1);
	(void)setenv("FAKETCPX_MEMORY", "gpu", 1);
	pair_ends(refuse_settings, 0, "FAKETCPX_MEMORY=gpu is neither host nor cuda");
}

static int setup(void **state)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)seed);
	return pair_setup(state) || setenv("FAKETCPX_MEMORY", "cuda", 1) ||
	       setenv("FAKETCPX_SEED", text, 1);
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
		cmocka_unit_test_setup(is_there_when_complete, setup),
		cmocka_unit_test_setup(waits_for_pages, setup),
		cmocka_unit_test_setup(keeps_contexts, setup),
		cmocka_unit_test_setup(reports_failures, setup),
		cmocka_unit_test_setup(refuses_settings, setup),
	};

	return cmocka_run_group_tests(tests, group_setup, NULL);
}
