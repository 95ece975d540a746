/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda.h"
#include "tests/fakecuda/testkit.h"

#include <pthread.h>

/* What keeps a machine's driver from being used, each with its own words. The order of the tests
 * matters: what loads once stays. */

static char fake_path[PATH_MAX];

static int remember(void **state)
{
	if (group_setup(state))
		return -1;
	(void)snprintf(fake_path, sizeof(fake_path), "%s", getenv("DR_LIBCUDA"));
	return 0;
}

static void fails(int code, const char *words, const char *remedy)
{
	struct dr_gpu_info info;
	struct dr_err e;

	assert_int_equal(dr_gpu_list(&info, 1, &e), code);
	assert_int_equal(e.code, code);
	assert_says(e, words);
	assert_says(e, remedy);
	assert_true(strlen(e.text) < sizeof(e.text) - 1);
	assert_int_equal(dr_gpu_list(&info, 1, NULL), code);
}

static void missing_library(void **state)
{
	(void)state;
	setenv("DR_LIBCUDA", "libnone-of-this-name.so.1", 1);
	fails(-ENOENT, "libnone-of-this-name.so.1", "install the NVIDIA driver");
}

static void another_library(void **state)
{
	(void)state;
	setenv("DR_LIBCUDA", "libm.so.6", 1);
	fails(-ENOSYS, "libm.so.6 lacks cuDriverGetVersion", "install the NVIDIA driver");
}

static void too_old(void **state)
{
	(void)state;
	setenv("DR_LIBCUDA", fake_path, 1);
	fresh("version=10020");
	fails(-ENOSYS, "it supports CUDA 10.2, at least 11.0 is needed", "upgrade it");
}

static void no_version(void **state)
{
	(void)state;
	fresh("");
	fake->fail_always("cuDriverGetVersion", DR_CUDA_UNKNOWN);
	fails(-ENOSYS, " (CUDA error 999)", "reinstall the NVIDIA driver");
	/* As the toolkit's stub does it. */
	fake->fail_always("cuDriverGetVersion", DR_CUDA_STUB_LIBRARY);
	fails(-ENOSYS, "(CUDA error 34)", "remove its stubs folder from LD_LIBRARY_PATH");
}

static void no_gpu(void **state)
{
	(void)state;
	fresh("devices=0");
	fails(-ENODEV, "CUDA_ERROR_NO_DEVICE (100, no CUDA-capable device is detected)",
		"or use --memory host");
}

static void does_not_start(void **state)
{
	static const struct {
		const char *init;
		int code;
		const char *words, *remedy;
	} cases[] = {
		{ "init=34", -ENOSYS, "CUDA_ERROR_STUB_LIBRARY", "LD_LIBRARY_PATH" },
		{ "init=803", -ENOSYS, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot" },
		{ "init=999", -EIO, "CUDA_ERROR_UNKNOWN", "modprobe nvidia-uvm" },
		{ "init=12345", -EIO, "unknown error (12345, no description)", "initialize CUDA" },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(cases); i++) {
		fresh(cases[i].init);
		fails(cases[i].code, cases[i].words, cases[i].remedy);
	}
}

static void *load(void *arg)
{
	const struct dr_cuda **t = arg;

	return dr_cuda_load(t, NULL) ? NULL : arg;
}

static void loads_once(void **state)
{
	const struct dr_cuda *t[4] = { NULL };
	pthread_t thread[4];
	void *ok;

	(void)state;
	fresh("");
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, load, &t[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(thread[i], &ok), 0);
		assert_non_null(ok);
		assert_ptr_equal(t[i], t[0]);
	}
	assert_int_equal(fake->count("cuInit"), 1);
	/* A library that loaded is kept, whatever the environment says later. */
	setenv("DR_LIBCUDA", "libm.so.6", 1);
	assert_int_equal(dr_cuda_load(&t[1], NULL), 0);
	assert_ptr_equal(t[1], t[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(missing_library),
		cmocka_unit_test(another_library),
		cmocka_unit_test(too_old),
		cmocka_unit_test(no_version),
		cmocka_unit_test(no_gpu),
		cmocka_unit_test(does_not_start),
		cmocka_unit_test(loads_once),
	};

	return cmocka_run_group_tests(tests, remember, NULL);
}
