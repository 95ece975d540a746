/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/iso_port.h"
#include "transport/ncclnet/iso_testkit.h"
#include "transport/ncclnet/net_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "gpu/cuda.h"
#include "orchestrator/engine/rail_cuda.h"
#include "tests/fakecuda/testkit.h"
#include "tests/plugins/env.h"

#include <poll.h>
#include <signal.h>

/*
 * GPU memory of this process in the plugin's: two ports of one process, which runs the emulated GPUDirect-TCPX on the loopback
 * interface, or the plugin that receives into GPU memory, with buffers on emulated GPUs. Memory that is freed while the process has
 * it mapped is misuse there.
 */
enum { BYTES = 1 << 20, LEN = 300 << 10, PAGE = 4096 };

static struct {
	struct nn_port *port[2]; /* 0 dials, 1 listens */
	struct dr_gpu *gpu;
	struct dr_gpu_stream *work;
	struct dr_rail_cuda rail[2];
	struct dr_gpu_memory m[2];
	struct dr_mr mr[2];
	void *comm[2];
	size_t from; /* where the registered part of the memory begins */
	bool direct; /* the plugin receives into GPU memory, which it takes by a dma-buf */
} w;

static const struct dr_nccl *net(int i)
{
	return dr_nn_port_plugin(w.port[i]);
}

static bool accepted(void *listener)
{
	struct nccl_net_device_handle room, *device = &room;

	assert_int_equal(dr_nccl_accept(net(1), listener, &w.comm[1], &device), NCCL_SUCCESS);
	return w.comm[1] != NULL;
}

static bool connected(uint8_t *handle)
{
	assert_int_equal(dr_nccl_connect(net(0), 0, handle, &w.comm[0]), NCCL_SUCCESS);
	return w.comm[0] != NULL;
}

static void connect_both(void)
{
	uint8_t handle[NCCL_NET_HANDLE_BYTES] = { 0 };
	enum nccl_result rc = NCCL_IN_PROGRESS;
	void *listener;

	until((rc = dr_nccl_listen(net(1), 0, handle, &listener)) != NCCL_IN_PROGRESS);
	assert_int_equal(rc, NCCL_SUCCESS);
	w.comm[0] = w.comm[1] = NULL;
	until((w.comm[0] || connected(handle)) && (w.comm[1] || accepted(listener)));
	assert_int_equal(net(1)->close_listen(listener), NCCL_SUCCESS);
}

static void close_both(void)
{
	assert_int_equal(net(0)->close_send(w.comm[0]), NCCL_SUCCESS);
	assert_int_equal(net(1)->close_recv(w.comm[1]), NCCL_SUCCESS);
}

static void *pointer(uint64_t dev)
{
	return (void *)(uintptr_t)dev;
}

static void *post(int i, struct dr_nccl_buffer *b)
{
	void *request = NULL;

	until((i ? dr_nccl_irecv(net(1), w.comm[1], 1, b, &request)
		 : dr_nccl_isend(net(0), w.comm[0], b, &request)) != NCCL_SUCCESS ||
		request);
	assert_non_null(request);
	return request;
}

static void finish(int i, void *request, int *size)
{
	int done = 0;

	until(net(i)->test(request, &done, size) != NCCL_SUCCESS || done);
	assert_true(done);
}

/* A message from GPU memory to GPU memory, not at the start of either, nor of what is registered of it. */
static void exchange(uint64_t base)
{
	const uint64_t at = w.from + 65536;
	struct dr_nccl_buffer b[2];
	uint64_t bad = 0;
	int size = 0;

	connect_both();
	for (int i = 0; i < 2; i++) {
		b[i] = (struct dr_nccl_buffer){ .data = pointer(w.m[i].dev + w.from + PAGE),
			.size = BYTES - w.from - PAGE };
		assert_int_equal(
			dr_nccl_reg(net(i), w.comm[i], &b[i], NCCL_PTR_CUDA), NCCL_SUCCESS);
		b[i].data = pointer(w.m[i].dev + at);
		b[i].size = LEN;
	}
	assert_int_equal(dr_gpu_set(w.work, w.m[1].dev, 0x33, BYTES, NULL), 0);
	assert_int_equal(dr_gpu_pattern_fill(w.work, w.m[0].dev + at, LEN, base, NULL), 0);
	void *r = post(1, &b[1]), *s = post(0, &b[0]);
	finish(0, s, &size);
	finish(1, r, &size);
	assert_int_equal(size, LEN);
	assert_int_equal(dr_gpu_pattern_check(w.work, w.m[1].dev + at, LEN, base, &bad, NULL), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(net(i)->dereg_mr(w.comm[i], b[i].mhandle), NCCL_SUCCESS);
	close_both();
}

static void map_both(void)
{
	struct dr_err e = { 0 };

	for (int i = 0; i < 2; i++) {
		w.mr[i] = (struct dr_mr){ .base = pointer(w.m[i].dev + w.from),
			.len = BYTES - w.from,
			.cuda = true,
			.dmabuf = w.direct,
			.flush = w.direct,
			.dmabuf_off = w.from,
			.dmabuf_fd = -1 };
		/* The plugin compares the bytes: what is before the registered part differs from it. */
		assert_int_equal(dr_gpu_set(w.work, w.m[i].dev, 0x33, BYTES, NULL), 0);
		assert_int_equal(dr_gpu_set(w.work, w.m[i].dev, 0x44, w.from, NULL), 0);
		if (w.direct)
			assert_int_equal(
				dr_gpu_dmabuf(w.gpu, &w.m[i], &w.mr[i].dmabuf_fd, NULL), 0);
		if (dr_nn_port_map(w.port[i], &w.mr[i], &e))
			fail_msg("%s", e.text);
	}
}

static void unmap_both(void)
{
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dr_nn_port_unmap(w.port[i], &w.mr[i]), 0);
		if (w.direct)
			(void)close(w.mr[i].dmabuf_fd);
	}
}

static struct iso_config config_of(void)
{
	struct iso_config c = { .unpack = NN_UNPACK_AUTO, .ifname = "lo" };
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(n > 0);
	exe[n] = '\0';
	(void)snprintf(c.file, sizeof(c.file), "%.300s/../../tests/plugins/libnccl-net-fake.so",
		dirname(exe));
	assert_int_equal(fakenet_env(w.direct ? "FAKENET=direct" : "FAKENET=pieces"), 0);
	return c;
}

static int setup_ports(void **state)
{
	struct iso_config c = config_of();
	struct dr_err e = { 0 };

	(void)state;
	fresh("memory_mib=4096,delay_us=0");
	assert_int_equal(dr_gpu_open(0, &w.gpu, NULL), 0);
	assert_int_equal(dr_gpu_stream_create(w.gpu, &w.work, NULL), 0);
	for (int i = 0; i < 2; i++) {
		struct dr_rail_gpu g = dr_rail_cuda_init(&w.rail[i], w.gpu);

		assert_int_equal(dr_gpu_alloc(w.gpu, BYTES, &w.m[i], NULL), 0);
		if (dr_nn_port_open(&c, NULL, &g, &w.port[i], &e))
			fail_msg("%s", e.text);
	}
	return 0;
}

static int setup_direct(void **state)
{
	w.direct = true;
	w.from = 65536;
	return setup_ports(state);
}

static int teardown_ports(void **state)
{
	for (int i = 0; i < 2; i++) {
		dr_nn_port_close(w.port[i]);
		dr_rail_cuda_fini(&w.rail[i]);
		dr_gpu_free(w.gpu, &w.m[i]);
	}
	dr_gpu_stream_destroy(w.work);
	dr_gpu_close(w.gpu);
	w.direct = false;
	w.from = 0;
	return teardown(state);
}

/* What the process has unpacked, as the run's statistics have it. */
static uint64_t unpacked(void)
{
	struct dr_gpu_stream_stats s;

	(void)dr_nn_port_progress(w.port[1], dr_now_ns());
	dr_rail_cuda_stats(&w.rail[1], &s);
	return s.bytes;
}

static void messages_and_what_they_cost(void **state)
{
	(void)state;
	map_both();
	exchange(5);
	until(unpacked() >= LEN);
	assert_int_equal(unpacked(), LEN);
	exchange(6);
	until(unpacked() >= 2 * (uint64_t)LEN);
	unmap_both();
	for (int i = 0; i < 2; i++) /* nobody has it mapped */
		dr_gpu_free(w.gpu, &w.m[i]);
}

static void a_process_that_is_started_again_maps_it_again(void **state)
{
	uint64_t before;

	(void)state;
	map_both();
	exchange(7);
	until((before = unpacked()) >= LEN);
	dr_nn_port_kill(w.port[0]);
	until(dr_nn_port_is_gone(w.port[0]) && dr_nn_port_is_gone(w.port[1]));
	for (int i = 0; i < 2; i++)
		until(dr_nn_port_progress(w.port[i], dr_now_ns()));
	assert_int_equal(unpacked(), before);
	exchange(8);
	until(unpacked() >= before + LEN); /* added, not counted from 0 */
	unmap_both();
	for (int i = 0; i < 2; i++)
		dr_gpu_free(w.gpu, &w.m[i]);
}

/* A stopped process does not unmap it: it is ended, and the memory may be freed then. */
static void a_process_that_does_not_unmap_is_ended(void **state)
{
	pid_t pid;

	(void)state;
	map_both();
	pid = dr_nn_proc_hello(w.port[0]->proc)->pid;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	until(all_stopped(pid));
	unmap_both();
	assert_true(dr_nn_port_is_gone(w.port[0]));
	for (int i = 0; i < 2; i++)
		dr_gpu_free(w.gpu, &w.m[i]);
}

/* The same for one that does not map it: it would do so later. */
static void a_process_that_does_not_map_is_ended(void **state)
{
	struct dr_mr mr = { .base = pointer(w.m[0].dev), .len = BYTES, .cuda = true };
	struct dr_err e = { 0 };
	pid_t pid = dr_nn_proc_hello(w.port[0]->proc)->pid;

	(void)state;
	w.port[0]->map_ns = 50 * DR_NS_PER_MS;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	until(all_stopped(pid));
	assert_int_equal(dr_nn_port_map(w.port[0], &mr, &e), -ENOTSUP);
	assert_says(e, "does not map GPU memory: no answer from it");
	(void)kill(pid, SIGCONT);
	assert_true(dr_nn_port_is_gone(w.port[0]));
	dr_gpu_free(w.gpu, &w.m[0]);
}

static void memory_that_is_not_mapped(void **state)
{
	struct dr_nccl_buffer b = { .size = BYTES };

	(void)state;
	map_both();
	connect_both();
	b.data = pointer(w.m[1].dev); /* of the other port */
	assert_int_equal(dr_nccl_reg(net(0), w.comm[0], &b, NCCL_PTR_CUDA), NCCL_SYSTEM_ERROR);
	b.data = pointer(w.m[0].dev);
	b.size = BYTES + 1;
	assert_int_equal(dr_nccl_reg(net(0), w.comm[0], &b, NCCL_PTR_CUDA), NCCL_SYSTEM_ERROR);
	close_both();
	unmap_both();
	assert_int_equal(dr_nn_port_unmap(w.port[0], &w.mr[0]), 0); /* it is not */
}

/* The handle of memory that is no more: the process says why it does not map it. */
static int share_nothing(void *arg, const void *dev, struct dr_gpu_shared *out, struct dr_err *e)
{
	(void)arg;
	(void)dev;
	(void)e;
	memset(out, 0, sizeof(*out));
	return 0;
}

static void memory_that_cannot_be_mapped(void **state)
{
	struct dr_mr mr = { .base = pointer(w.m[0].dev), .len = BYTES, .cuda = true };
	struct dr_rail_gpu_ops ops = dr_rail_cuda_ops;
	struct dr_err e = { 0 };

	(void)state;
	ops.share = share_nothing;
	w.port[0]->gpu.ops = &ops;
	assert_int_equal(dr_nn_port_map(w.port[0], &mr, &e), -ENOTSUP);
	assert_says(
		e, "map memory of GPU 0 of another process (CUDA IPC): CUDA_ERROR_INVALID_VALUE");
	assert_says(e, "invalid argument"); /* the end of the text */
	w.port[0]->gpu.ops = &dr_rail_cuda_ops;
	map_both();
	exchange(9);
	unmap_both();
}

static void memory_that_cannot_be_shared(void **state)
{
	struct dr_mr mr = { .base = pointer(w.m[0].dev), .len = BYTES, .cuda = true };
	struct dr_err e = { 0 };

	(void)state;
	fake->fail_always("cuIpcGetMemHandle", DR_CUDA_NOT_SUPPORTED);
	assert_int_equal(dr_nn_port_map(w.port[0], &mr, &e), -ENOTSUP);
	assert_says(e, "CUDA_ERROR_NOT_SUPPORTED");
	fake->fail_always("cuIpcGetMemHandle", DR_CUDA_INVALID_VALUE);
	assert_int_equal(dr_nn_port_map(w.port[0], &mr, &e), -ENOTSUP);
	assert_says(e, "CUDA_ERROR_INVALID_VALUE");
	fake->fail_always("cuIpcGetMemHandle", 0);
	assert_int_equal(dr_nn_port_map(w.port[0], &mr, &e), 0);
	assert_int_equal(dr_nn_port_unmap(w.port[0], &mr), 0);
}

/* A process that ended just before is started again, and maps it then. */
static void a_process_that_has_ended_maps_it_later(void **state)
{
	struct dr_mr mr = { .base = pointer(w.m[0].dev), .len = BYTES, .cuda = true };
	struct dr_err e = { 0 };

	(void)state;
	dr_nn_port_kill(w.port[0]);
	until(dr_nn_port_is_gone(w.port[0]));
	if (dr_nn_port_map(w.port[0], &mr, &e))
		fail_msg("%s", e.text);
	/* The rail has to know that its listeners are gone. */
	assert_true(dr_nn_port_progress(w.port[0], dr_now_ns()));
	assert_false(dr_nn_port_progress(w.port[0], dr_now_ns()));
	assert_int_equal(dr_nn_port_unmap(w.port[0], &mr), 0);
}

static void look(int i)
{
	(void)dr_nn_port_progress(w.port[i], dr_now_ns());
	dr_iso_take_events(w.port[i]);
}

/* It is of no use: the next one may map it. */
static void a_process_that_cannot_map_it_again_is_ended(void **state)
{
	struct dr_gpu_shared was;
	struct iso_gpu_memory *g;

	(void)state;
	map_both();
	g = w.port[0]->region[dr_iso_gpu_region(w.port[0], w.mr[0].base, 1)].gpu;
	was = g->shared;
	memset(&g->shared, 0, sizeof(g->shared));
	dr_nn_port_kill(w.port[0]);
	until((look(0),
		strstr(dr_nn_port_last_death(w.port[0]), "it could not map the GPU memory: map")));
	/* ... but not without limit: other GPUs lose the process, too. */
	until((look(0), w.port[0]->map_failures > 3));
	assert_false(w.port[0]->killed);
	assert_null(dr_nn_port_death(w.port[0]));
	g->shared = was;
	dr_nn_port_kill(w.port[0]);
	until((look(0), g->mapped && g->rc == 0));
	until((look(1), !dr_nn_port_death(w.port[1])));
	exchange(13);
	unmap_both();
}

/* The process says that its plugin keeps it, and is ended. */
static void a_process_whose_plugin_keeps_it_is_ended(void **state)
{
	struct iso_message m = { .op = ISO_UNMAPPED, .rc = -EIO };
	pid_t pid;

	(void)state;
	map_both();
	pid = dr_nn_proc_hello(w.port[0]->proc)->pid;
	m.mem = (uint32_t)dr_iso_gpu_region(w.port[0], w.mr[0].base, 1);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	until(all_stopped(pid));
	(void)iso_ring_push(&w.port[0]->rings->events, &m);
	assert_int_equal(dr_nn_port_unmap(w.port[0], &w.mr[0]), 0);
	assert_true(dr_nn_port_is_gone(w.port[0]));
	assert_non_null(
		strstr(dr_nn_port_last_death(w.port[0]), "could not deregister GPU memory"));
	dr_gpu_free(w.gpu, &w.m[0]);
	assert_int_equal(dr_nn_port_unmap(w.port[1], &w.mr[1]), 0);
}

/* Requests that are outstanding there fail: the plugin, which would say nothing of them, is not asked any more. */
static void memory_that_is_deregistered_with_requests(void **state)
{
	struct dr_nccl_buffer b[2];
	int size = 0, done = 0;

	(void)state;
	map_both();
	connect_both();
	for (int i = 0; i < 2; i++) {
		b[i] = (struct dr_nccl_buffer){ .data = w.mr[i].base, .size = 2 * PAGE };
		assert_int_equal(
			dr_nccl_reg(net(i), w.comm[i], &b[i], NCCL_PTR_CUDA), NCCL_SUCCESS);
	}
	b[0].size = b[1].size = PAGE;
	void *first = post(1, &b[1]), *s = post(0, &b[0]);
	b[1].data = (uint8_t *)w.mr[1].base + PAGE;
	void *second = post(1, &b[1]);
	finish(0, s, &size);
	finish(1, first, &size);
	assert_int_equal(net(1)->dereg_mr(w.comm[1], b[1].mhandle), NCCL_SUCCESS);
	until(net(1)->test(second, &done, &size) == NCCL_SYSTEM_ERROR);
	assert_int_equal(net(0)->dereg_mr(w.comm[0], b[0].mhandle), NCCL_SUCCESS);
	close_both();
	unmap_both();
}

/* Part of an allocation, by its dma-buf: the plugin sees that offset and memory are the same. */
static void memory_that_is_taken_by_a_dma_buf(void **state)
{
	(void)state;
	map_both();
	exchange(10);
	exchange(11);
	dr_nn_port_kill(w.port[0]);
	until(dr_nn_port_is_gone(w.port[0]) && dr_nn_port_is_gone(w.port[1]));
	for (int i = 0; i < 2; i++)
		until(dr_nn_port_progress(w.port[i], dr_now_ns()));
	exchange(12);
	unmap_both();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_ports, teardown_ports)
	const struct CMUnitTest tests[] = { T(messages_and_what_they_cost),
		T(a_process_that_is_started_again_maps_it_again),
		T(a_process_that_does_not_unmap_is_ended), T(memory_that_is_not_mapped),
		T(memory_that_cannot_be_mapped), T(memory_that_cannot_be_shared),
		T(a_process_that_does_not_map_is_ended), T(a_process_that_has_ended_maps_it_later),
		T(a_process_that_cannot_map_it_again_is_ended),
		T(a_process_whose_plugin_keeps_it_is_ended),
		cmocka_unit_test_setup_teardown(
			memory_that_is_deregistered_with_requests, setup_direct, teardown_ports),
		cmocka_unit_test_setup_teardown(
			memory_that_is_taken_by_a_dma_buf, setup_direct, teardown_ports) };
	struct dr_err e = { 0 };

	dr_log_set_level(DR_LOG_ERROR);
	(void)setenv("DR_FAKE_CUDA", "memory_mib=4096,delay_us=0", 1);
	(void)setenv("FAKENET_MEMORY", "cuda", 1);
	(void)setenv("FAKENET_PAGES", "2048", 1);
	(void)setenv("FAKENET_DMABUF", "only", 1);
	(void)setenv("FAKENET_IFNAME", "lo", 1);
	(void)setenv("NCCL_DYNAMIC_CHUNK_SIZE", "524288", 1);
	(void)setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
	(void)fakenet_env("");
	fake = dr_fakecuda_attach("../../tests");
	if (!fake || dr_iso_spawner_start(dr_rail_cuda_ops.process, &e)) {
		printf("%s\n",
			fake ? e.text : "tests/fakecuda/cuda_plugin.so is not built: make tests");
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
