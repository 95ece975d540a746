/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/gin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const char *set; /* NAME=VALUE, the whole environment */

static char *env(const char *name)
{
	size_t n = strlen(name);

	return strncmp(set, name, n) == 0 && set[n] == '=' ? (char *)(uintptr_t)(set + n + 1)
							   : NULL;
}

enum { RDMA = 1, GDRCOPY = 2 };

static void carries(int version, const char *variable, int host, const char *transport)
{
	const char *got;

	set = variable;
	got = ha_gin_transport(version, env, host & RDMA, host & GDRCOPY);
	if (!transport)
		assert_null(got);
	else
		assert_string_equal(got, transport);
}

static const char *const IB = "InfiniBand transport";

static void the_version_decides(void **state)
{
	(void)state;
	carries(0, "", RDMA | GDRCOPY, NULL);
	carries(22803, "", RDMA, NULL);
	carries(22903, "", RDMA, NULL);
	carries(22907, "", RDMA, IB);
	carries(23007, "", RDMA, IB);
	carries(23203, "", RDMA | GDRCOPY, IB);
}

static void sockets_need_gdrcopy_and_a_new_version(void **state)
{
	(void)state;
	carries(23007, "", GDRCOPY, NULL);
	carries(23203, "", 0, NULL);
	carries(23203, "", GDRCOPY, "sockets");
	carries(23203, "NCCL_IB_DISABLE=1", RDMA | GDRCOPY, "sockets");
}

static void the_environment_turns_it_off(void **state)
{
	static const char *const off[] = { "NCCL_GIN_TYPE=0", "NCCL_WIN_ENABLE=0",
		"NCCL_CUMEM_ENABLE=0x0" };

	(void)state;
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		carries(22907, off[i], RDMA, NULL);
		carries(23203, off[i], RDMA | GDRCOPY, NULL);
	}
	carries(22907, "NCCL_IB_DISABLE=1", RDMA, NULL);
	carries(22907, "NCCL_IB_DISABLE=0", RDMA, IB);
	carries(22907, "NCCL_GIN_TYPE=", RDMA, IB);
	carries(22907, "NCCL_GIN_TYPE=2", RDMA, IB);
	carries(22907, "NCCL_GIN_PLUGIN=none", RDMA, IB);
}

/* RMA goes on there. */
static void gin_enable_is_not_enough_since_2_30_7(void **state)
{
	(void)state;
	carries(23004, "NCCL_GIN_ENABLE=0", RDMA, NULL);
	carries(23004, "NCCL_GIN_ENABLE=1", RDMA, IB);
	carries(23007, "NCCL_GIN_ENABLE=0", RDMA, IB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_version_decides),
		cmocka_unit_test(sockets_need_gdrcopy_and_a_new_version),
		cmocka_unit_test(the_environment_turns_it_off),
		cmocka_unit_test(gin_enable_is_not_enough_since_2_30_7),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
