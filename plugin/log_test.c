/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/log.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NET = NCCL_SUBSYS_NET, INIT_NET = NCCL_SUBSYS_INIT | NCCL_SUBSYS_NET };

/* What NCCL's logger got last. */
static struct {
	unsigned n;
	enum nccl_log_level level;
	unsigned long flags;
	char file[32], text[1200];
	int line;
} got;

__attribute__((format(printf, 5, 6))) static void logger(enum nccl_log_level level,
	unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	got.n++;
	got.level = level;
	got.flags = flags;
	got.line = line;
	snprintf(got.file, sizeof(got.file), "%s", file);
	va_start(ap, fmt);
	vsnprintf(got.text, sizeof(got.text), fmt, ap);
	va_end(ap);
}

/* Standard error while a test runs. */
static int saved_stderr;
static FILE *captured;

static int set_up(void **state)
{
	(void)state;
	captured = tmpfile();
	assert_non_null(captured);
	saved_stderr = dup(STDERR_FILENO);
	dup2(fileno(captured), STDERR_FILENO);
	memset(&got, 0, sizeof(got));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ha_log_stop();
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	fclose(captured);
	return 0;
}

static const char *on_stderr(void)
{
	static char text[4096];
	ssize_t n = pread(fileno(captured), text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void before_init_warnings_go_to_standard_error(void **state)
{
	(void)state;
	dr_info("tcp", "quiet");
	dr_warn("tcp", "loud");
	assert_null(strstr(on_stderr(), "quiet"));
	assert_non_null(strstr(on_stderr(), "warn tcp: loud"));
	assert_int_equal(got.n, 0);
}

static void levels_and_subsystems(void **state)
{
	static const struct {
		enum dr_log_level level;
		const char *component;
		enum nccl_log_level to;
		unsigned long flags;
	} rows[] = {
		{ DR_LOG_ERROR, "tcp", NCCL_LOG_WARN, ~0ul },
		{ DR_LOG_WARN, "config", NCCL_LOG_WARN, ~0ul },
		{ DR_LOG_INFO, "tcp", NCCL_LOG_INFO, NET },
		{ DR_LOG_INFO, "config", NCCL_LOG_INFO, INIT_NET },
		{ DR_LOG_INFO, "failover", NCCL_LOG_INFO, INIT_NET },
		{ DR_LOG_DEBUG, "tcp", NCCL_LOG_TRACE, NET },
	};
	char want[64];

	(void)state;
	ha_log_start(logger);
	ha_log_set_level(DR_LOG_DEBUG, false);
	for (size_t i = 0; i < DR_ARRAY_LEN(rows); i++) {
		dr_log(rows[i].level, rows[i].component, "line %zu 100%%", i);
		assert_int_equal(got.n, i + 1);
		assert_int_equal(got.level, rows[i].to);
		assert_true(got.flags == rows[i].flags);
		assert_string_equal(got.file, "HA");
		assert_int_equal(got.line, 0);
		snprintf(want, sizeof(want), "NET/HA %s: line %zu 100%%", rows[i].component, i);
		assert_string_equal(got.text, want);
	}
	assert_string_equal(on_stderr(), "");
}

static void debug_lines_can_be_of_level_info(void **state)
{
	(void)state;
	ha_log_start(logger);
	ha_log_set_level(DR_LOG_DEBUG, true);
	dr_debug("tcp", "detail");
	assert_int_equal(got.level, NCCL_LOG_INFO);
}

static void the_level_filters(void **state)
{
	(void)state;
	ha_log_start(logger);
	dr_debug("tcp", "not yet");
	assert_int_equal(got.n, 0);
	dr_info("tcp", "before the configuration is known");
	assert_int_equal(got.n, 1);
	ha_log_set_level(DR_LOG_WARN, false);
	dr_info("tcp", "no");
	assert_int_equal(got.n, 1);
	/* Another communicator: the level stays. */
	ha_log_start(logger);
	dr_info("tcp", "no");
	assert_int_equal(got.n, 1);
}

static void after_the_last_communicator_standard_error_again(void **state)
{
	(void)state;
	ha_log_start(logger);
	ha_log_stop();
	ha_log_stop();
	dr_warn("tcp", "late");
	assert_int_equal(got.n, 0);
	assert_non_null(strstr(on_stderr(), "late"));
	ha_log_start(logger);
	dr_info("tcp", "next");
	assert_int_equal(got.n, 1);
	ha_log_start(NULL);
	dr_warn("tcp", "no logger");
	assert_int_equal(got.n, 1);
}

/* ---- threads ---- */

static _Atomic unsigned calls, inside;
static _Atomic bool allowed, ended, wrong;

static void strict_logger(enum nccl_log_level level, unsigned long flags, const char *file,
	int line, const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
	if (atomic_fetch_add(&inside, 1) != 0 || !atomic_load(&allowed))
		atomic_store(&wrong, true);
	atomic_fetch_add(&calls, 1);
	atomic_fetch_sub(&inside, 1);
}

static void *chatter(void *arg)
{
	while (!atomic_load(&ended))
		dr_info("tcp", "line of thread %s", (const char *)arg);
	return NULL;
}

/* Lines of several threads while loggers come and go: none is called after the stop, nor twice at a time. */
static void stop_waits_for_lines_in_progress(void **state)
{
	static char name[3][2] = { "a", "b", "c" };
	pthread_t t[3];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, chatter, name[i]), 0);
	for (unsigned k = 0; k < 50; k++) {
		unsigned before = atomic_load(&calls);

		atomic_store(&allowed, true);
		ha_log_start(strict_logger);
		while (atomic_load(&calls) == before)
			;
		ha_log_stop();
		atomic_store(&allowed, false);
	}
	atomic_store(&ended, true);
	for (size_t i = 0; i < DR_ARRAY_LEN(t); i++)
		pthread_join(t[i], NULL);
	assert_false(atomic_load(&wrong));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(before_init_warnings_go_to_standard_error),
		TEST(levels_and_subsystems),
		TEST(debug_lines_can_be_of_level_info),
		TEST(the_level_filters),
		TEST(after_the_last_communicator_standard_error_again),
		TEST(stop_waits_for_lines_in_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
