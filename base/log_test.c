/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"

struct seen {
	int n;
	enum dr_log_level level;
	char component[64], text[1200];
};

static void remember(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	struct seen *s = arg;

	s->n++;
	s->level = level;
	snprintf(s->component, sizeof(s->component), "%s", component);
	snprintf(s->text, sizeof(s->text), "%s", text);
	errno = EBADF;
}

static int back_to_defaults(void **state)
{
	(void)state;
	dr_log_set_sink(NULL, NULL);
	dr_log_set_prefix(NULL);
	dr_log_set_run(NULL);
	dr_log_set_node(NULL, -1);
	dr_log_set_thread_run(NULL);
	dr_log_set_gpu(-1);
	dr_log_set_json(0);
	dr_log_set_level(DR_LOG_INFO);
	return 0;
}

static void the_sink_sees_what_passes_the_level(void **state)
{
	struct seen s = { 0 };

	(void)state;
	dr_log_set_sink(remember, &s);
	dr_debug("tcp", "not %s", "seen");
	assert_int_equal(s.n, 0);
	errno = EAGAIN;
	dr_warn("tcp", "rail %d is down", 1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.level, DR_LOG_WARN);
	assert_string_equal(s.component, "tcp");
	assert_string_equal(s.text, "rail 1 is down");
	dr_log_set_level(DR_LOG_DEBUG);
	dr_debug("tcp", "seen");
	assert_int_equal(s.n, 2);
	dr_log_set_level(DR_LOG_ERROR);
	dr_warn("tcp", "not seen");
	assert_int_equal(s.n, 2);
	dr_error("tcp", "%2000s", "x");
	assert_int_equal(strlen(s.text), 999);
	assert_string_equal(s.text + 996, "...");
}

static char line[8192];

static size_t format(size_t len, int json, int64_t wall_ns, enum dr_log_level level,
	const char *component, const char *text)
{
	const struct dr_log_line parts = { wall_ns, level, component, text, NULL };

	return dr_log_format(line, len, json, &parts);
}

static void text_lines(void **state)
{
	const int64_t t = 1769854830123456789;
	size_t n;

	(void)state;
	n = format(sizeof(line), 0, t, DR_LOG_INFO, "tcp", "up\n\x1b[31m \xc3\xa9 \xff");
	assert_string_equal(line, "2026-01-31T10:20:30.123Z info tcp: up  [31m \xc3\xa9 ?\n");
	assert_int_equal(n, strlen(line));
	dr_log_set_prefix("server");
	format(sizeof(line), 0, t, DR_LOG_ERROR, "tcp", "x");
	assert_string_equal(line, "2026-01-31T10:20:30.123Z error server/tcp: x\n");
	dr_log_set_prefix("client");
	format(sizeof(line), 0, t, DR_LOG_ERROR, "tcp", "x");
	assert_string_equal(line, "2026-01-31T10:20:30.123Z error client/tcp: x\n");
	n = format(50, 0, t, DR_LOG_ERROR, "tcp", "longer than what is left");
	assert_true(n < 50);
	assert_int_equal(line[n - 1], '\n');
}

static void json_lines_parse_whatever_the_text(void **state)
{
	static const char *const text[] = { "plain", "quote \" backslash \\", "a\nb\tc\rd\x01\x7f",
		"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "" };
	/* A lone continuation, a cut sequence, an overlong slash, a surrogate, above U+10FFFF. */
	static const char *const broken[] = { "\x80", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80",
		"\xf4\x90\x80\x80", "\xff\xfe" };
	json_t *o;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(text); i++) {
		format(sizeof(line), 1, 0, DR_LOG_WARN, "t\"cp", text[i]);
		assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
		o = json_loads(line, 0, NULL);
		assert_non_null(o);
		assert_string_equal(json_string_value(json_object_get(o, "text")), text[i]);
		assert_string_equal(json_string_value(json_object_get(o, "level")), "warn");
		assert_string_equal(json_string_value(json_object_get(o, "component")), "t\"cp");
		assert_string_equal(json_string_value(json_object_get(o, "time")),
			"1970-01-01T00:00:00.000000Z");
		json_decref(o);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(broken); i++) {
		format(sizeof(line), 1, 0, DR_LOG_WARN, "tcp", broken[i]);
		o = json_loads(line, 0, NULL);
		assert_non_null(o);
		assert_memory_equal(
			json_string_value(json_object_get(o, "text")), "\xef\xbf\xbd", 3);
		json_decref(o);
	}
}

#define HEAD "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"level\":\"warn\",\"component\":\"tcp\","

static void json_lines_name_run_node_rank_and_gpu(void **state)
{
	struct dr_log_line parts = { 0, DR_LOG_WARN, "tcp", "x", "\"exit_code\":7" };

	(void)state;
	dr_log_set_run("run-1");
	dr_log_set_node("no\"de", 3);
	dr_log_set_gpu(2);
	dr_log_format(line, sizeof(line), 1, &parts);
	assert_string_equal(line,
		HEAD "\"run_id\":\"run-1\",\"node\":\"no\\\"de\",\"rank\":3,\"gpu\":2,"
		     "\"exit_code\":7,\"text\":\"x\"}\n");
	dr_log_set_thread_run("run-2");
	dr_log_set_node(NULL, 0);
	dr_log_set_gpu(-1);
	format(sizeof(line), 1, 0, DR_LOG_WARN, "tcp", "x");
	assert_string_equal(line, HEAD "\"run_id\":\"run-2\",\"rank\":0,\"text\":\"x\"}\n");
	dr_log_set_thread_run("");
	dr_log_set_node(NULL, -1);
	format(sizeof(line), 1, 0, DR_LOG_WARN, "tcp", "x");
	assert_string_equal(line, HEAD "\"text\":\"x\"}\n");
	format(sizeof(line), 0, 0, DR_LOG_WARN, "tcp", "x");
	assert_string_equal(line, "1970-01-01T00:00:00.000Z warn tcp: x\n");
}

static void a_line_is_one_write_to_standard_error(void **state)
{
	int fd[2], saved;
	ssize_t n;

	(void)state;
	assert_int_equal(pipe(fd), 0);
	saved = dup(STDERR_FILENO);
	assert_true(saved >= 0);
	dup2(fd[1], STDERR_FILENO);
	errno = ENOENT;
	dr_info("main", "hello");
	n = errno;
	dr_log_set_live(true); /* the line that it erases was not ended */
	dr_say("main", "one");
	dr_say("main", "two");
	dup2(saved, STDERR_FILENO);
	assert_int_equal(n, ENOENT);
	n = read(fd[0], line, sizeof(line) - 1);
	assert_true(n > 25);
	line[n] = 0;
	assert_string_equal(line + 24, " info main: hello\n\r\033[Kone\ntwo\n");
	close(fd[0]);
	close(fd[1]);
	close(saved);
}

static void wall_time_reads_as_iso_8601(void **state)
{
	char buf[32];

	(void)state;
	dr_wall_format(1769854830123456789, buf, sizeof(buf));
	assert_string_equal(buf, "2026-01-31T10:20:30.123456Z");
	dr_wall_format(-1, buf, sizeof(buf));
	assert_string_equal(buf, "1969-12-31T23:59:59.999999Z");
	assert_true(dr_now_ns() > 0 && dr_now_ns() <= dr_now_ns());
	assert_true(dr_wall_ns() > 1700000000 * DR_NS_PER_S);
	assert_true(dr_cpu_ns() > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(the_sink_sees_what_passes_the_level, back_to_defaults),
		cmocka_unit_test_teardown(text_lines, back_to_defaults),
		cmocka_unit_test_teardown(json_lines_parse_whatever_the_text, back_to_defaults),
		cmocka_unit_test_teardown(json_lines_name_run_node_rank_and_gpu, back_to_defaults),
		cmocka_unit_test_teardown(a_line_is_one_write_to_standard_error, back_to_defaults),
		cmocka_unit_test(wall_time_reads_as_iso_8601),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
