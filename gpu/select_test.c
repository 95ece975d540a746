/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "gpu/select.h"
#include "tests/fakecuda/fakecuda.h"

static const struct dr_fakecuda_ctl *fake;

static void names(struct dr_gpu_names *l, const char *text)
{
	struct dr_err e;

	memset(l, 0, sizeof(*l));
	if (dr_gpu_names_parse(NULL, text, l, &e))
		fail_msg("%s: %s", text, e.text);
}

static void gpus(const char *config)
{
	setenv("DR_FAKE_CUDA", config, 1);
	fake->reset();
}

static void lists_of_names(void **state)
{
	struct dr_gpu_names l;
	unsigned number;

	(void)state;
	names(&l, "0-2,7,0000:3b:00.0,AB:00.1");
	assert_int_equal(l.n, 6);
	assert_true(dr_gpu_name_number(l.v[2], &number) && number == 2);
	assert_true(dr_gpu_name_number(l.v[3], &number) && number == 7);
	assert_false(dr_gpu_name_number(l.v[4], &number));
	assert_false(dr_gpu_name_number(l.v[5], &number));
	assert_string_equal(l.v[5], "AB:00.1");
	assert_int_equal(dr_gpu_names_parse(NULL, NULL, &l, NULL), 0);
	assert_int_equal(l.n, 0);
}

static void what_is_no_name(void **state)
{
	static const char *const bad[] = { "", "x", "0-", "0,,1", "3:", "0,0", "0-3,2",
		"3b:00.0,3B:00.0", "0000:0000:0000:0000:0000:0000", "1:zz" };
	struct dr_gpu_names l;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++) {
		int rc;

		memset(&l, 0, sizeof(l));
		rc = dr_gpu_names_parse(NULL, bad[i], &l, &e);
		/* "3:" looks like an address; whether it is one the GPUs' list says. */
		if (strcmp(bad[i], "3:") == 0)
			continue;
		if (rc != -EINVAL && rc != -ERANGE)
			fail_msg("\"%s\": %d", bad[i], rc);
		assert_true(e.text[0] != '\0');
	}
	memset(&l, 0, sizeof(l));
	assert_int_equal(dr_gpu_names_parse(NULL, "0-32", &l, &e), -ERANGE);
	assert_non_null(strstr(e.text, "more than 32 GPUs"));
	/* A number that is too large is no GPU, however large it is. */
	memset(&l, 0, sizeof(l));
	assert_int_equal(dr_gpu_names_parse(NULL, "9999999", &l, &e), 0);
	assert_int_equal(dr_gpu_names_parse(NULL, "99999999999", &l, &e), -ENODEV);
	assert_non_null(strstr(e.text, "no such GPU: 99999999999"));
}

static int resolve(const char *text, enum dr_memory_choice m, struct dr_opt_list *out, bool *cuda,
	struct dr_err *e)
{
	struct dr_gpu_names l = { 0 };

	if (text)
		names(&l, text);
	memset(e, 0, sizeof(*e));
	return dr_gpu_select(&l, m, out, cuda, e);
}

static void all_or_the_named_ones(void **state)
{
	struct dr_opt_list l;
	struct dr_err e;
	bool cuda;

	(void)state;
	gpus("devices=3");
	assert_int_equal(resolve(NULL, DR_MEMORY_AUTO, &l, &cuda, &e), 0);
	assert_true(cuda && l.n == 3 && l.v[2] == 2);
	assert_int_equal(resolve("2b:00.0,0", DR_MEMORY_AUTO, &l, &cuda, &e), 0);
	assert_true(cuda && l.n == 2 && l.v[0] == 1 && l.v[1] == 0);
	assert_int_equal(resolve("1,2b:00.0", DR_MEMORY_ON_GPU, &l, &cuda, &e), -EINVAL);
	assert_non_null(strstr(e.text, "named twice"));
	assert_int_equal(resolve("3", DR_MEMORY_AUTO, &l, &cuda, &e), -ENODEV);
	assert_non_null(strstr(e.text, "0000:3b:00.0"));
	assert_int_equal(resolve("3:", DR_MEMORY_AUTO, &l, &cuda, &e), -EINVAL);
	assert_int_equal(resolve("0-7", DR_MEMORY_ON_HOST, &l, &cuda, &e), 0);
	assert_true(!cuda && l.n == 8);
	assert_int_equal(resolve("2b:00.0", DR_MEMORY_ON_HOST, &l, &cuda, &e), -EINVAL);
}

static void no_gpus(void **state)
{
	struct dr_opt_list l;
	struct dr_err e;
	bool cuda = true;

	(void)state;
	gpus("devices=0");
	assert_int_equal(resolve(NULL, DR_MEMORY_AUTO, &l, &cuda, &e), 0);
	assert_true(!cuda && l.n == 8 && l.v[7] == 7);
	assert_int_equal(resolve("4,5", DR_MEMORY_AUTO, &l, &cuda, &e), 0);
	assert_true(!cuda && l.n == 2 && l.v[0] == 4);
	assert_int_equal(resolve(NULL, DR_MEMORY_ON_GPU, &l, &cuda, &e), -ENODEV);
	assert_int_equal(resolve("2b:00.0", DR_MEMORY_AUTO, &l, &cuda, &e), -ENODEV);
}

/* An error needs no place to be told in. */
static void errors_without_words(void **state)
{
	struct dr_gpu_names l;
	struct dr_opt_list out;
	bool cuda;

	(void)state;
	gpus("devices=1");
	names(&l, "0000:99:00.0");
	assert_int_equal(dr_gpu_select(&l, DR_MEMORY_AUTO, &out, &cuda, NULL), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_names),
		cmocka_unit_test(what_is_no_name),
		cmocka_unit_test(all_or_the_named_ones),
		cmocka_unit_test(no_gpus),
		cmocka_unit_test(errors_without_words),
	};

	fake = dr_fakecuda_attach("../tests");
	if (!fake) {
		printf("the fake libcuda is not built\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
