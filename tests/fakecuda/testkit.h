/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKECUDA_TESTKIT_H
#define DR_TESTS_FAKECUDA_TESTKIT_H

#include "gpu/gpu.h"
#include "tests/fakecuda/fakecuda.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* For the unit tests of gpu/: the emulated GPUs, each test with fresh ones and leaving none behind. */

static const struct dr_fakecuda_ctl *fake; /* NULL: a test that runs on a real GPU, too */

static inline int group_setup(void **state)
{
	(void)state;
	(void)unsetenv("CUDA_VISIBLE_DEVICES");
	fake = dr_fakecuda_attach("../tests");
	if (fake)
		return 0;
	print_error("tests/fakecuda/cuda_plugin.so is not built: make tests\n");
	return -1;
}

static inline void fresh(const char *gpus)
{
	(void)setenv("DR_FAKE_CUDA", gpus, 1);
	fake->reset();
}

static inline int setup(void **state)
{
	(void)state;
	if (fake)
		fresh("");
	return 0;
}

static inline int teardown(void **state)
{
	const char *first = NULL;
	unsigned misuse, left;

	(void)state;
	if (!fake)
		return 0;
	misuse = fake->violations(&first);
	left = fake->alive_total();
	if (misuse)
		print_error("misuse: %s\n", first);
	if (left)
		print_error("%u objects left behind\n", left);
	fake->reset();
	return misuse || left ? -1 : 0;
}

/* Into the GPU, done on return. */
static inline int put(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len)
{
	uint64_t ticket = 0;
	int rc = dr_gpu_copy_in(s, dev, host, len, &ticket, NULL);

	return rc ? rc : dr_gpu_stream_wait(s, ticket, NULL);
}

static inline void assert_says(struct dr_err e, const char *words)
{
	assert_non_null(words);
	if (!words || !strstr(e.text, words))
		fail_msg("\"%s\" does not say \"%s\"", e.text, words ? words : "");
}

#endif
