/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "gpu/cuda.h"
#include "tests/fakecuda/testkit.h"

#include <pthread.h>
#include <sys/mman.h>

/* ---- which GPUs, and which one ---- */

static void lists_what_there_is(void **state)
{
	struct dr_gpu_info g[4];

	(void)state;
	fresh("devices=3,memory_mib=64");
	memset(g, 0xee, sizeof(g));
	assert_int_equal(dr_gpu_list(g, 2, NULL), 3);
	assert_int_equal(g[1].ordinal, 1);
	assert_string_equal(g[1].bus_id, "0000:2b:00.0");
	assert_string_equal(g[1].name, "Fake GPU");
	assert_int_equal(g[1].memory_bytes, 64 << 20);
	assert_int_equal(g[1].cc_major, 9);
	assert_true(g[1].dmabuf);
	assert_int_equal(g[2].cc_major, 0xeeeeeeee);
	/* A driver that does not know the attribute. */
	fresh("version=11000");
	assert_int_equal(dr_gpu_list(g, 4, NULL), 2);
	assert_false(g[0].dmabuf);
}

/* CUDA may hide GPUs and give them other numbers: the address stays. */
static void numbers_are_cudas(void **state)
{
	struct dr_gpu_info g[4];
	struct dr_gpu *opened;

	(void)state;
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	fresh("devices=3");
	unsetenv("CUDA_VISIBLE_DEVICES");
	assert_int_equal(dr_gpu_list(g, 4, NULL), 2);
	assert_string_equal(g[0].bus_id, "0000:3b:00.0");
	assert_int_equal(dr_gpu_find(g, 2, "3b:00.0", NULL), 0);
	assert_int_equal(dr_gpu_find(g, 2, "2b:00.0", NULL), -ENODEV);
	assert_int_equal(dr_gpu_open(1, &opened, NULL), 0);
	assert_string_equal(dr_gpu_info(opened)->bus_id, "0000:1b:00.0");
	dr_gpu_close(opened);
}

static void finds_what_is_meant(void **state)
{
	static const struct {
		const char *what;
		int place;
	} cases[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "01", 1 },
		{ "2", -ENODEV },
		{ "99999999999999999999", -ENODEV },
		{ "0000:2b:00.0", 1 },
		{ "2B:00.0", 1 },
		{ "2b:0.0", 1 },
		{ "00000000:2B:00.0", 1 },
		{ "2b:00.1", -ENODEV },
		{ "0001:2b:00.0", -ENODEV },
		{ "", -EINVAL },
		{ "GPU0", -EINVAL },
		{ "2b:00", -EINVAL },
		{ "2b:00.0.", -EINVAL },
		{ "-1", -EINVAL },
		{ " 1", -EINVAL },
	};
	struct dr_gpu_info g[2];
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_gpu_list(g, 2, NULL), 2);
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		int place = dr_gpu_find(g, 2, cases[i].what, &e);

		if (place != cases[i].place)
			print_error("'%s': %d\n", cases[i].what, place);
		assert_int_equal(place, cases[i].place);
		if (place == -ENODEV)
			assert_says(e, "no such GPU: ");
	}
	assert_says(e, "' 1' is not a GPU: give an index (0) or a PCI address (0000:3b:00.0)");
	assert_int_equal(dr_gpu_find(g, 2, "3b:00.0", &e), -ENODEV);
	assert_string_equal(e.text,
		"no such GPU: 3b:00.0; available: 2 GPUs: 0 (0000:1b:00.0), 1 (0000:2b:00.0)");
	assert_int_equal(dr_gpu_find(g, 1, "1", &e), -ENODEV);
	assert_string_equal(e.text, "no such GPU: 1; available: 1 GPU: 0 (0000:1b:00.0)");
}

/* ---- contexts ---- */

static void one_context_each(void **state)
{
	struct dr_fakecuda_alive alive;
	struct dr_gpu *a, *b, *again;
	struct dr_err e;

	(void)state;
	assert_int_equal(dr_gpu_open(0, &a, NULL), 0);
	assert_int_equal(dr_gpu_open(1, &b, NULL), 0);
	assert_int_equal(dr_gpu_open(0, &again, NULL), 0);
	fake->alive(&alive);
	assert_int_equal(alive.contexts, 3);
	assert_int_equal(alive.modules, 6); /* pattern, unpacking */
	assert_int_equal(dr_gpu_info(b)->ordinal, 1);
	assert_string_equal(dr_gpu_info(b)->bus_id, "0000:2b:00.0");
	dr_gpu_close(a);
	assert_int_equal(dr_gpu_memory(again, NULL, NULL, NULL), 0);
	dr_gpu_close(b);
	dr_gpu_close(again);
	dr_gpu_close(NULL);
	assert_int_equal(fake->alive_total(), 0);
	assert_int_equal(dr_gpu_open(2, &a, &e), -ENODEV);
	assert_says(e, "GPU 2: CUDA_ERROR_INVALID_DEVICE");
}

static void *use_elsewhere(void *arg)
{
	struct dr_gpu_stream *s;
	struct dr_gpu_memory m;
	struct dr_gpu *g = arg;
	char there[8] = "";
	int rc = dr_gpu_alloc(g, 8, &m, NULL);

	if (rc == 0)
		rc = dr_gpu_stream_create(g, &s, NULL);
	if (rc == 0)
		rc = put(s, m.dev, "abcdefg", 8);
	if (rc == 0)
		rc = dr_gpu_read(s, there, m.dev, 8, NULL);
	if (rc == 0) {
		dr_gpu_stream_destroy(s);
		dr_gpu_free(g, &m);
	}
	return rc == 0 && strcmp(there, "abcdefg") == 0 ? arg : NULL;
}

/* Threads that never heard of the GPU, and one that goes from one GPU to the other. */
static void any_thread_may(void **state)
{
	struct dr_gpu *g[2];
	pthread_t thread[2];
	void *ok;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(dr_gpu_open(i, &g[i], NULL), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, use_elsewhere, g[0]), 0);
	for (int i = 0; i < 4; i++)
		assert_non_null(use_elsewhere(g[i % 2]));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(thread[i], &ok), 0);
		assert_non_null(ok);
	}
	dr_gpu_close(g[0]);
	dr_gpu_close(g[1]);
}

static void compiler_complains(void **state)
{
	struct dr_gpu *g;
	struct dr_err e;

	(void)state;
	fake->fail_call("cuModuleLoadDataEx", 1, 0);
	assert_int_equal(dr_gpu_open(0, &g, &e), -EIO);
	assert_says(e, "ptxas fatal : the fake's compiler failed: CUDA_ERROR_INVALID_PTX (218");
}

/* Of each kernel. */
static void kernel_not_found(void **state)
{
	static const char *const words[] = { "look up dr_pattern_fill in the pattern code on GPU 1",
		"look up dr_pattern_check in the pattern code on GPU 1",
		"look up dr_unpack in the unpacking code on GPU 1" };
	struct dr_gpu *g;
	struct dr_err e;

	(void)state;
	for (unsigned i = 0; i < DR_ARRAY_LEN(words); i++) {
		fake->fail_call("cuModuleGetFunction", i + 1, 0);
		assert_true(dr_gpu_open(1, &g, &e) < 0);
		assert_says(e, words[i]);
		assert_int_equal(fake->alive_total(), 0);
	}
	assert_int_equal(dr_gpu_open(1, &g, NULL), 0);
	dr_gpu_close(g);
}

/* ---- memory ---- */

static void memory_is_aligned(void **state)
{
	static const uint64_t lens[] = { 1, 4096, 65535, 65536, 65537, 3 << 20 };
	struct dr_gpu_memory m[DR_ARRAY_LEN(lens)];
	uint64_t unused, total;
	struct dr_gpu *g;

	(void)state;
	assert_int_equal(dr_gpu_open(0, &g, NULL), 0);
	for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++) {
		assert_int_equal(dr_gpu_alloc(g, lens[i], &m[i], NULL), 0);
		assert_int_equal(m[i].dev % DR_GPU_ALIGN, 0);
		assert_int_equal(m[i].len % DR_GPU_ALIGN, 0);
		assert_true(m[i].len >= lens[i] && m[i].len < lens[i] + DR_GPU_ALIGN);
		/* All of it is in what the driver gave. */
		assert_non_null(fake->bytes(m[i].dev));
		assert_non_null(fake->bytes(m[i].dev + m[i].len - 1));
	}
	assert_int_equal(dr_gpu_memory(g, &unused, &total, NULL), 0);
	assert_int_equal(total, 1 << 30);
	assert_true(unused < total);
	for (size_t i = 0; i < DR_ARRAY_LEN(lens); i++)
		dr_gpu_free(g, &m[i]);
	dr_gpu_free(g, &m[0]);
	assert_int_equal(m[0].dev, 0);
	assert_int_equal(dr_gpu_memory(g, &unused, NULL, NULL), 0);
	assert_int_equal(unused, total);
	dr_gpu_close(g);
}

static void out_of_memory(void **state)
{
	struct dr_gpu_memory m;
	struct dr_gpu *g;
	struct dr_err e;

	(void)state;
	fresh("memory_mib=1");
	assert_int_equal(dr_gpu_open(1, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, 1 << 20, &m, &e), -ENOMEM);
	assert_string_equal(e.text,
		"GPU 1 (0000:2b:00.0) is out of memory: 1114111 bytes requested, 1048576 of 1048576 free; "
		"reduce --window, --chunk or --channels, or stop the process that holds the memory (nvidia-smi lists it)");
	assert_int_equal(dr_gpu_alloc(g, UINT64_MAX, &m, &e), -ENOMEM);
	fake->fail_call("cuMemHostAlloc", 1, 0);
	assert_int_equal(dr_gpu_host_alloc(g, 4096, &(void *){ NULL }, &e), -ENOMEM);
	assert_says(e, "cannot allocate 4096 bytes of pinned host memory; reduce --window");
	dr_gpu_close(g);
}

static void keeps_the_order_or_not(void **state)
{
	struct dr_gpu_info g;

	(void)state;
	assert_true(dr_gpu_list(&g, 1, NULL) >= 1);
	assert_false(g.ordered);
	fresh("ordered=1");
	assert_true(dr_gpu_list(&g, 1, NULL) >= 1);
	assert_true(g.ordered);
}

static void exports_a_dmabuf(void **state)
{
	struct dr_gpu_stream *s;
	struct dr_gpu_memory m;
	struct dr_gpu *g;
	struct dr_err e;
	char *p;
	int fd;

	(void)state;
	assert_int_equal(dr_gpu_open(0, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, 100000, &m, NULL), 0);
	assert_int_equal(dr_gpu_stream_create(g, &s, NULL), 0);
	assert_int_equal(put(s, m.dev, "first", 6), 0);
	assert_int_equal(dr_gpu_dmabuf(g, &m, &fd, NULL), 0);
	p = mmap(NULL, m.len, PROT_READ, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_string_equal(p, "first");
	assert_int_equal(munmap(p, m.len), 0);
	assert_int_equal(close(fd), 0);
	fake->fail_call("cuMemGetHandleForAddressRange", 1, DR_CUDA_NOT_SUPPORTED);
	assert_int_equal(dr_gpu_dmabuf(g, &m, &fd, &e), -ENOTSUP);
	assert_says(e, "export 131072 bytes of GPU 0 as a dma-buf: CUDA_ERROR_NOT_SUPPORTED");
	dr_gpu_stream_destroy(s);
	dr_gpu_free(g, &m);
	dr_gpu_close(g);
}

static void exports_none(void **state)
{
	struct dr_gpu_memory m;
	struct dr_gpu *g;
	struct dr_err e;
	int fd;

	(void)state;
	fresh("dmabuf=0");
	assert_int_equal(dr_gpu_open(0, &g, NULL), 0);
	assert_int_equal(dr_gpu_alloc(g, 1, &m, NULL), 0);
	assert_int_equal(dr_gpu_dmabuf(g, &m, &fd, &e), -ENOTSUP);
	assert_says(e, "NVIDIA's open kernel modules");
	dr_gpu_free(g, &m);
	dr_gpu_close(g);
}

/* ---- whatever fails, nothing stays ---- */

static int copy_and_look(struct dr_gpu_stream *s, uint64_t dev, unsigned char *host)
{
	uint64_t ticket, done, bad;
	int rc = dr_gpu_pattern_fill(s, dev, 1000, 7, NULL);

	if (rc == 0)
		rc = dr_gpu_copy_out(s, host, dev, 1000, &ticket, NULL);
	if (rc == 0)
		rc = dr_gpu_stream_wait(s, ticket, NULL);
	if (rc == 0)
		rc = dr_gpu_copy_in(s, dev + 4096, host, 1000, &ticket, NULL);
	do
		rc = rc ? rc : dr_gpu_stream_done(s, &done, NULL);
	while (rc == 0 && done < ticket);
	if (rc == 0)
		rc = dr_gpu_set(s, dev + 4096 + 999, (uint8_t)~host[999], 1, NULL);
	if (rc == 0) {
		rc = dr_gpu_pattern_check(s, dev + 4096, 1000, 7, &bad, NULL);
		if (rc == 1)
			rc = bad == 999 ? 0 : -EBADMSG;
		else if (rc == 0)
			rc = -EBADMSG;
	}
	return rc;
}

static int with_stream(struct dr_gpu *g, const struct dr_gpu_memory *m, void *host)
{
	struct dr_gpu_stream *s;
	int fd, rc = dr_gpu_stream_create(g, &s, NULL);

	if (rc)
		return rc;
	rc = copy_and_look(s, m->dev, host);
	dr_gpu_stream_destroy(s);
	if (rc == 0)
		rc = dr_gpu_memory(g, NULL, NULL, NULL);
	if (rc == 0)
		rc = dr_gpu_dmabuf(g, m, &fd, NULL);
	return rc ? rc : close(fd);
}

static int all_of_it(void)
{
	struct dr_gpu_memory m;
	struct dr_gpu_info info;
	struct dr_gpu *g;
	void *host;
	int rc = dr_gpu_list(&info, 1, NULL);

	if (rc > 0)
		rc = dr_gpu_open(0, &g, NULL);
	if (rc)
		return rc;
	rc = dr_gpu_alloc(g, 10000, &m, NULL);
	if (rc == 0) {
		rc = dr_gpu_host_alloc(g, 10000, &host, NULL);
		if (rc == 0) {
			rc = with_stream(g, &m, host);
			dr_gpu_host_free(g, host);
		}
		dr_gpu_free(g, &m);
	}
	dr_gpu_close(g);
	return rc;
}

/* Calls whose failure is not one of ours: what they free is freed, what they tell is not needed; the last two
 * have events instead where a stream is made. */
static int is_harmless(const char *call)
{
	static const char *const harmless[] = { "cuMemFree_v2", "cuMemFreeHost",
		"cuStreamDestroy_v2", "cuEventDestroy_v2", "cuModuleUnload",
		"cuDevicePrimaryCtxRelease_v2", "cuCtxGetCurrent", "cuCtxSetCurrent",
		"cuEventElapsedTime", "cuStreamSynchronize", "cuMemHostGetDevicePointer_v2",
		"cuStreamWriteValue32_v2" };

	for (size_t i = 0; i < DR_ARRAY_LEN(harmless); i++)
		if (strcmp(call, harmless[i]) == 0)
			return 1;
	return 0;
}

static void every_call_fails_once_of(void)
{
	unsigned k, misuse;
	const char *call;
	int rc;

	fresh("delay_us=0");
	assert_int_equal(all_of_it(), 0);
	for (k = 1;; k++) {
		fresh("delay_us=0");
		fake->fail_call("*", k, 0);
		rc = all_of_it();
		call = fake->failed();
		if (!call)
			break;
		misuse = fake->violations(NULL);
		if (fake->alive_total() || misuse || (rc == 0 && !is_harmless(call)))
			print_error("call %u, %s: %d, %u left, %u misused\n", k, call, rc,
				fake->alive_total(), misuse);
		assert_true(
			rc < 0 || is_harmless(call) || strcmp(call, "cuDeviceGetAttribute") == 0);
		assert_int_equal(fake->alive_total(), 0);
		assert_int_equal(misuse, 0);
	}
	assert_int_equal(rc, 0);
	assert_true(k > 40);
	for (long a = 0; a < 2; a++) {
		fresh("");
		dr_mem_fail_after(a + 1);
		assert_int_equal(all_of_it(), -ENOMEM);
		assert_int_equal(fake->alive_total(), 0);
	}
	dr_mem_fail_after(-1);
}

static void every_call_fails_once(void **state)
{
	(void)state;
	every_call_fails_once_of();
	assert_int_equal(setenv("DR_GPU_COMPLETION", "events", 1), 0);
	every_call_fails_once_of();
	assert_int_equal(unsetenv("DR_GPU_COMPLETION"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(lists_what_there_is, setup, teardown),
		cmocka_unit_test_setup_teardown(numbers_are_cudas, setup, teardown),
		cmocka_unit_test_setup_teardown(finds_what_is_meant, setup, teardown),
		cmocka_unit_test_setup_teardown(one_context_each, setup, teardown),
		cmocka_unit_test_setup_teardown(any_thread_may, setup, teardown),
		cmocka_unit_test_setup_teardown(compiler_complains, setup, teardown),
		cmocka_unit_test_setup_teardown(kernel_not_found, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_is_aligned, setup, teardown),
		cmocka_unit_test_setup_teardown(out_of_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(keeps_the_order_or_not, setup, teardown),
		cmocka_unit_test_setup_teardown(exports_a_dmabuf, setup, teardown),
		cmocka_unit_test_setup_teardown(exports_none, setup, teardown),
		cmocka_unit_test_setup_teardown(every_call_fails_once, setup, teardown),
	};

	return cmocka_run_group_tests(tests, group_setup, NULL);
}
