/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/bed.h"

#include <sys/socket.h>

/*
 * libnccl-net-fake.so with messages, and of pieces its bounce buffer, in memory of emulated GPUs (FAKENET_MEMORY=cuda). With
 * DR_LIBCUDA=libcuda.so.1 set, of a real one: then nothing is made to fail, and memory is read by the driver alone. FAKENET:
 * this personality alone. SEED: of lengths and places.
 */
enum {
	UNSET = 0x11,
	LEFT_BEHIND =
		99, /* status of a process that leaves or misuses something of the emulated GPU */
};

static struct bed b;
#define e b.e

static void current(struct CUctx_st *c)
{
	MUST(bed_cu->ctx_set_current(c) == 0);
}

static bool is_current(const struct CUctx_st *c)
{
	struct CUctx_st *now;

	MUST(bed_cu->ctx_get_current(&now) == 0);
	return now == c;
}

static bool is_second(void)
{
	int n = 0;

	MUST(bed_cu->device_get_count(&n) == 0);
	return n > 1;
}

/* Registers while another context is current, which is gone afterwards. */
static void connect_bed(void)
{
	bed_connect(&b, &b);
	if (is_second())
		(void)bed_use_device(1);
	bed_register(&b, e.scomm, &b.out);
	bed_register(&b, e.rcomm, &b.in);
	current(b.ctx);
	if (is_second())
		MUST(bed_cu->primary_ctx_release(1) == 0);
}

static void drop_bed(void)
{
	bed_close(&b);
	bed_drop(&b);
}

static void carry_messages(unsigned messages, unsigned held, bool big)
{
	unsigned long long dev = 0;

	bed_make(&b, "delay_us=0");
	b.messages = messages;
	b.held = held;
	b.big = big;
	connect_bed();
	if (bed_pieces()) {
		MUST(bed_cu->mem_host_get_device_pointer(&dev, e.unpack->meta, 0) == 0);
		MUST(dev == (uintptr_t)e.unpack->meta);
		MUST((uintptr_t)e.unpack->bounce_buf % FN_PAGE == 0);
	}
	bed_carry(&b, 1);
	drop_bed();
}

static void carry(void)
{
	carry_messages(30, 2, false);
}

static void carry_big(void)
{
	carry_messages(8, 0, true);
}

/* Copies take long: what is complete is there, and without a flush no more than that. */
static void carry_late(void)
{
	bed_make(&b, "delay_us=20000");
	connect_bed();
	for (unsigned message = 0; message < 6; message++)
		bed_carry_one(&b, message);
	drop_bed();
}

/* ---- pages of pieces ---- */

/* The second receive needs pages of the first. */
static void wait_for_pages(void)
{
	void *s, *r, *first;

	bed_make(&b, "delay_us=0");
	b.big = true;
	connect_bed();
	first = bed_receive(&b, 0);
	(void)ends_wait(&e, bed_send(&b, 0), first);
	s = bed_send(&b, 1);
	r = bed_receive(&b, 1);
	for (int i = 0; i < 2000; i++) {
		if (s && ends_done(&e, s, NULL))
			s = NULL;
		MUST(!ends_done(&e, r, NULL));
	}
	bed_judge(&b, 0);
	bed_consume(&b, 0, first);
	(void)ends_wait(&e, s, r);
	bed_judge(&b, 1);
	drop_bed();
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
	void *s[BED_DEPTH], *r[BED_DEPTH];
	int data_fd, two[2];

	bed_make(&b, "delay_us=0");
	b.big = true;
	connect_bed();
	data_fd = dup(e.data_fd);
	MUST(data_fd >= 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, two) == 0);
	MUST(dup2(two[0], e.data_fd) == e.data_fd);
	for (unsigned i = 0; i < BED_DEPTH; i++) {
		s[i] = bed_send(&b, i);
		r[i] = bed_receive(&b, i);
	}
	for (int i = 0; i < 1000; i++)
		MUST(!ends_done(&e, s[0], NULL) && !ends_done(&e, r[0], NULL));
	IN_TIME
	{
		relay(two[1], data_fd);
		sent += sent < BED_DEPTH && ends_done(&e, s[sent], NULL);
		if (!ends_done(&e, r[done], NULL))
			continue;
		bed_judge(&b, done);
		bed_consume(&b, done, r[done]);
		if (++done == BED_DEPTH)
			break;
	}
	MUST(sent == BED_DEPTH);
	bed_close(&b);
	(void)close(data_fd);
	(void)close(two[0]);
	(void)close(two[1]);
	bed_drop(&b);
}

static void need_emulated(void)
{
	if (!bed_fake)
		ends_skip("it needs an emulated GPU");
}

/* ---- dma-bufs of direct ---- */

static int export(const struct side *s)
{
	int fd = -1;

	MUST(bed_cu->mem_get_handle_for_address_range);
	MUST(bed_cu->mem_get_handle_for_address_range(
		     &fd, (uintptr_t)s->dev, BED_BYTES, DR_CUDA_RANGE_DMA_BUF_FD, 0) == 0);
	MUST(fd >= 0);
	return fd;
}

/* The part behind the first granule; the descriptor is closed before it is used. */
static void register_dmabuf(void *comm, struct side *s)
{
	int fd = export(s);

	MUST(ends_reg(&e.net, comm, s->dev, BED_ROOM, NCCL_PTR_CUDA, &s->dev_mh) ==
		NCCL_INTERNAL_ERROR);
	s->dev += BED_GRANULE;
	MUST(e.net.reg_dmabuf(comm, s->dev, BED_BYTES - BED_GRANULE, NCCL_PTR_CUDA, BED_GRANULE, fd,
		     &s->dev_mh) == NCCL_SUCCESS);
	MUST(close(fd) == 0);
}

static void carry_dmabuf(void)
{
	uint8_t byte;

	need_emulated();
	bed_make(&b, "");
	ends_listen(&e);
	ends_connect(&e);
	memset(b.out.pinned, UNSET, BED_ROOM);
	bed_write(&b.out, b.out.dev + BED_GRANULE, b.out.pinned, BED_ROOM);
	register_dmabuf(e.scomm, &b.out);
	register_dmabuf(e.rcomm, &b.in);
	/* The check has changed nothing. */
	bed_read(&b.out, &byte, b.out.dev, 1);
	MUST(byte == UNSET);
	bed_carry_one(&b, 4);
	MUST(e.net.dereg_mr(e.rcomm, b.in.dev_mh) == NCCL_SUCCESS);
	ends_close(&e);
	bed_drop(&b);
}

/* The dma-buf of the memory, with an offset in it that belongs to other memory. */
static void register_elsewhere(void)
{
	need_emulated();
	bed_make(&b, "");
	ends_listen(&e);
	ends_connect(&e);
	MUST(bed_cu->memset_d8_async((uintptr_t)(b.in.dev + BED_GRANULE), UNSET, 1, b.in.stream) ==
		0);
	MUST(bed_cu->stream_synchronize(b.in.stream) == 0);
	(void)e.net.reg_dmabuf(e.rcomm, b.in.dev + BED_GRANULE, BED_ROOM, NCCL_PTR_CUDA,
		BED_GRANULE + FN_PAGE, export(&b.in), &b.in.dev_mh);
}

/* ---- contexts ---- */

/* Comms keep the context of their connect and accept, and callers theirs: none, or another one. */
static void keep_contexts(void)
{
	struct CUctx_st *other[2] = { NULL };
	void *s, *r;

	bed_make(&b, "delay_us=2");
	connect_bed();
	if (is_second())
		other[1] = bed_use_device(1);
	for (unsigned message = 0; message < 4; message++) {
		current(b.ctx);
		s = bed_send(&b, message);
		r = bed_receive(&b, message);
		current(other[message % 2]);
		(void)ends_wait(&e, s, NULL);
		b.size = ends_wait(&e, NULL, r);
		MUST(is_current(other[message % 2]));
		current(b.ctx);
		bed_judge(&b, message);
		current(other[message % 2]);
		if (bed_pieces())
			bed_consume(&b, message, r);
		MUST(is_current(other[message % 2]));
	}
	current(NULL);
	bed_close(&b);
	MUST(is_current(NULL));
	if (is_second())
		MUST(bed_cu->primary_ctx_release(1) == 0);
	bed_drop(&b);
}

/* Without a context accept of pieces fails, and so does the registration of GPU memory until there is one. */
static void lack_context(void)
{
	bed_make(&b, "");
	current(NULL);
	ends_listen(&e);
	MUST(ends_dial(&e) == NCCL_SUCCESS);
	MUST(ends_admit(&e, true) == (bed_pieces() ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS));
	MUST(ends_reg(&e.net, e.scomm, b.out.host, BED_ROOM, NCCL_PTR_HOST, &b.out.host_mh) ==
		NCCL_SUCCESS);
	MUST(ends_reg(&e.net, e.scomm, b.out.dev, BED_ROOM, NCCL_PTR_CUDA, &b.out.dev_mh) ==
		NCCL_UNHANDLED_CUDA_ERROR);
	if (e.rcomm)
		MUST(ends_reg(&e.net, e.rcomm, b.in.dev, BED_ROOM, NCCL_PTR_CUDA, &b.in.dev_mh) ==
			NCCL_UNHANDLED_CUDA_ERROR);
	current(b.ctx);
	bed_register(&b, e.scomm, &b.out);
	if (e.rcomm)
		bed_register(&b, e.rcomm, &b.in);
	ends_close(&e);
	bed_drop(&b);
}

static void lack_library(void)
{
	(void)setenv("DR_LIBCUDA", "/nonexistent/libcuda.so", 1);
	ends_listen(&e);
	MUST(ends_dial(&e) == NCCL_SUCCESS && ends_admit(&e, true) == NCCL_UNHANDLED_CUDA_ERROR &&
		!e.rcomm);
	ends_close(&e);
}

/* ---- failures ---- */

static unsigned failures; /* calls of the plugin that returned 1 */

static bool fine(enum nccl_result result)
{
	MUST(result == NCCL_SUCCESS || result == NCCL_UNHANDLED_CUDA_ERROR);
	failures += result != NCCL_SUCCESS;
	return result == NCCL_SUCCESS;
}

static bool tested(void *request)
{
	int done = 0;

	IN_TIME
	{
		if (!fine(e.net.test(request, &done, NULL))) {
			MUST(!done);
			return false;
		}
		if (done)
			return true;
	}
}

/* The sender registers its memory, the receiver of direct a dma-buf. */
static void try_one(int fd)
{
	struct dr_nccl_buffer from = { b.out.dev, NULL, 5000, 0 }, to = { b.in.dev, NULL, 5000, 0 };
	int len = 5000;
	void *s, *r, *f;

	if (!fine(ends_reg(&e.net, e.scomm, from.data, BED_BYTES, NCCL_PTR_CUDA, &from.mhandle)) ||
		!fine(bed_pieces() ? ends_reg(&e.net, e.rcomm, to.data, BED_BYTES, NCCL_PTR_CUDA,
					     &to.mhandle)
				   : e.net.reg_dmabuf(e.rcomm, to.data, BED_BYTES, NCCL_PTR_CUDA, 0,
					     fd, &to.mhandle)))
		return;
	MUST(dr_nccl_isend(&e.net, e.scomm, &from, &s) == NCCL_SUCCESS);
	MUST(dr_nccl_irecv(&e.net, e.rcomm, 1, &to, &r) == NCCL_SUCCESS);
	if (!tested(s) || !tested(r))
		return;
	if (bed_pieces()) {
		(void)fine(e.net.consumed(e.rcomm, 1, r));
		return;
	}
	MUST(e.net.flush(e.rcomm, 1, &to.data, &len, &to.mhandle, &f) == NCCL_SUCCESS && f);
	(void)tested(f);
}

/* From listen to close, whatever fails. A failure of the work itself comes when the comms are there. */
static void scene(int fd, bool fail_work)
{
	e.scomm = e.rcomm = NULL;
	MUST(dr_nccl_listen(&e.net, 0, e.handle, &e.lcomm) == NCCL_SUCCESS);
	MUST(ends_dial(&e) == NCCL_SUCCESS);
	if (fine(ends_admit(&e, true))) {
		if (fail_work)
			bed_fake->fail_work(DR_CUDA_LAUNCH_FAILED);
		try_one(fd);
	}
	MUST(e.net.close_listen(e.lcomm) == NCCL_SUCCESS);
	if (fail_work)
		MUST(failures == 1);
	(void)fine(e.net.close_send(e.scomm));
	(void)fine(e.net.close_recv(e.rcomm));
}

static int start_scenes(void)
{
	need_emulated();
	bed_make(&b, "delay_us=2");
	ends_listen(&e);
	MUST(e.net.close_listen(e.lcomm) == NCCL_SUCCESS);
	return bed_pieces() ? -1 : export(&b.in);
}

/* Each driver call of the plugin fails once. The first ones, the looks of connect and accept for a context, may. */
static void fail_each_call(void)
{
	unsigned alive, k = 0, may = bed_pieces() ? 1 : 2;
	int fd = start_scenes();
	bool failed;

	alive = bed_fake->alive_total();
	do {
		failures = 0;
		bed_fake->fail_call("*", ++k, 0);
		scene(fd, false);
		failed = bed_fake->failed() != NULL;
		MUST((failures > 0) == (failed && k > may));
		MUST(bed_fake->alive_total() == alive);
		bed_fake->fail_call("*", 0, 0);
		MUST(is_current(b.ctx));
	} while (failed);
	MUST(k > 30);
	(void)close(fd);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
	bed_drop(&b);
}

static void fail_to_switch(void)
{
	void *s, *r;

	need_emulated();
	bed_make(&b, "delay_us=2");
	connect_bed();
	s = bed_send(&b, 1);
	r = bed_receive(&b, 1);
	current(NULL);
	bed_fake->fail_call("cuCtxSetCurrent", 1, 0);
	MUST(!tested(s) || !tested(r));
	MUST(is_current(NULL));
	drop_bed();
}

/* A copy fails after its call was made, and with it the context. */
static void fail_work(void)
{
	int fd = start_scenes();

	scene(fd, true);
	(void)close(fd);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
	bed_drop(&b);
}

/* Misuse of the driver, which the emulated one counts. The plugin does not crash. */
static void lose_context(void)
{
	need_emulated();
	bed_make(&b, "");
	connect_bed();
	bed_drop(&b);
	if (getenv("OTHER"))
		current(NULL);
	MUST(e.net.close_send(e.scomm) == NCCL_UNHANDLED_CUDA_ERROR);
	MUST(e.net.close_recv(e.rcomm) == NCCL_UNHANDLED_CUDA_ERROR);
	MUST(dr_nccl_finalize(&e.net) == NCCL_SUCCESS);
}

static int setup(void **state)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%llu", (unsigned long long)bed_seed);
	return ends_setup(state) || setenv("FAKENET_MEMORY", "cuda", 1) ||
	       setenv("FAKENET_SEED", text, 1);
}

static int group_setup(void **state)
{
	const char *given = getenv("SEED"), *library = getenv("DR_LIBCUDA");
	const char *only = getenv("FAKENET");

	(void)state;
	(void)unsetenv("CUDA_VISIBLE_DEVICES");
	if (only && *only)
		ends_only = strcmp(only, "pieces") == 0 ? PIECES : DIRECT;
	bed_seed = given && *given ? strtoull(given, NULL, 10) : (uint64_t)dr_now_ns() % 1000000;
	print_message("SEED=%llu\n", (unsigned long long)bed_seed);
	if (library && *library)
		return 0;
	bed_fake = dr_fakecuda_attach(NULL);
	if (bed_fake)
		return 0;
	print_error("tests/fakecuda/cuda_plugin.so is not built: make tests\n");
	return -1;
}

#define SPREAD "NCCL_GPUDIRECTTCPX_RECV_SYNC=1 NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=2 "

/* clang-format off */
static const struct ends_case cases[] = {
	{ NEWEST("carries GPU memory", carry, CUDA_FAKE) },
	{ NEWEST("carries it over eight connections", carry, CUDA_FAKE),
		.env = SPREAD "NCCL_DYNAMIC_CHUNK_SIZE=20001" },
	{ NEWEST("carries it in order", carry, CUDA_FAKE),
		.env = SPREAD "NCCL_DYNAMIC_CHUNK_SIZE=300000 FAKENET_ORDERED=1" },
	{ NEWEST("is there when complete", carry_late, CUDA_FAKE) },
	{ NEWEST("waits for pages", wait_for_pages, PIECES), .env = "FAKENET_PAGES=2048" },
	{ NEWEST("carries large messages", carry_big, PIECES), .env = "FAKENET_PAGES=2048" },
	{ NEWEST("one connection stands still", carry_unevenly, PIECES),
		.env = "FAKENET_PAGES=2100 NCCL_NSOCKS_PERTHREAD=2 NCCL_DYNAMIC_CHUNK_SIZE=2097152" },
	{ EACH("refuses the dma-buf of other memory", register_elsewhere, DIRECT),
		.env = "FAKENET_DMABUF=1", .aborts = true,
		.says = "regMrDmaBuf: offset 69632 of the dma-buf is other memory than" },
	{ EACH("takes dma-bufs alone", carry_dmabuf, DIRECT),
		.env = "FAKENET_DMABUF=only", .says = "regMr of CUDA memory, which needs a dma-buf" },
	{ NEWEST("keeps contexts", keep_contexts, CUDA_FAKE) },
	{ NEWEST("lacks a context", lack_context, CUDA_FAKE),
		.says = "FAKENET_MEMORY=cuda: no CUDA context is current" },
	{ NEWEST("lacks the library", lack_library, PIECES), .says = "/nonexistent/libcuda.so" },
	{ NEWEST("each call fails", fail_each_call, CUDA_FAKE),
		.env = "FAKENET_DMABUF=1", .says = "memcpy_htod_async: CUDA_ERROR_UNKNOWN (999" },
	{ NEWEST("a context cannot be set", fail_to_switch, CUDA_FAKE),
		.env = "FAKENET_DMABUF=1", .says = "ctx_set_current: CUDA_ERROR_UNKNOWN (999" },
	{ NEWEST("the work fails", fail_work, CUDA_FAKE),
		.env = "FAKENET_DMABUF=1", .says = "CUDA_ERROR_LAUNCH_FAILED (719" },
	{ NEWEST("the context is gone", lose_context, CUDA_FAKE),
		.env = "FAKENET_DMABUF=1 OTHER", .status = LEFT_BEHIND,
		.says = "CUDA_ERROR_INVALID_CONTEXT (201" },
	{ NEWEST("the context is gone, and none is current", lose_context, CUDA_FAKE),
		.env = "FAKENET_DMABUF=1 OTHER=1", .status = LEFT_BEHIND,
		.says = "ctx_set_current: CUDA_ERROR_INVALID_CONTEXT (201" },
};
/* clang-format on */

int main(void)
{
	return ends_main(cases, LENGTH(cases), setup, group_setup);
}
