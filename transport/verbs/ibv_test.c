/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/ibv.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The order of the tests matters: what loads once stays. */

static void missing_library(void **state)
{
	const struct dr_ibv *t = NULL;
	struct dr_err e;

	(void)state;
	setenv("DR_IBVERBS", "libnone-of-this-name.so.1", 1);
	assert_int_equal(dr_ibv_load(&t, &e), -ENOENT);
	assert_null(t);
	assert_non_null(strstr(e.text, "libnone-of-this-name.so.1"));
	assert_non_null(strstr(e.text, "apt-get install libibverbs1 ibverbs-providers"));
	assert_int_equal(dr_ibv_load(&t, NULL), -ENOENT);
}

static void library_without_symbols(void **state)
{
	const struct dr_ibv *t = NULL;
	struct dr_err e;

	(void)state;
	setenv("DR_IBVERBS", "libm.so.6", 1);
	assert_int_equal(dr_ibv_load(&t, &e), -ENOSYS);
	assert_null(t);
	assert_non_null(strstr(e.text, "libm.so.6 has no ibv_get_device_list"));
}

static void *load(void *arg)
{
	const struct dr_ibv **t = arg;

	return dr_ibv_load(t, NULL) ? NULL : arg;
}

/* Needs the run-time library, which neither build nor tests ask for. */
static void the_real_one(void **state)
{
	const struct dr_ibv *t[4] = { NULL };
	pthread_t thread[4];
	struct dr_err e;
	void *ok, *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	(void)state;
	if (!lib) {
		print_message("SKIP: libibverbs1 is not installed\n");
		skip();
	}
	unsetenv("DR_IBVERBS");
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, load, &t[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(thread[i], &ok), 0);
		assert_non_null(ok);
		assert_ptr_equal(t[i], t[0]);
	}
	assert_string_equal(
		t[0]->wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
	assert_string_equal(t[0]->port_state_str(IBV_PORT_ACTIVE), "active");
	/* A library that loaded is kept, whatever the environment says later. */
	setenv("DR_IBVERBS", "libm.so.6", 1);
	assert_int_equal(dr_ibv_load(&t[1], &e), 0);
	assert_ptr_equal(t[1], t[0]);
	dlclose(lib);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(missing_library),
		cmocka_unit_test(library_without_symbols),
		cmocka_unit_test(the_real_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
