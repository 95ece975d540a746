/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_KIT_H
#define DR_TESTS_FAKEVERBS_KIT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/fakeverbs/fakeverbs.h"

/* All of these tests, or those that the first argument names. */
static inline int kit_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n,
	CMFixtureFunction setup, CMFixtureFunction teardown)
{
	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests("tests", tests, n, setup, teardown);
}

#endif
