/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/record/otlp.h"

/* Where spans are sent, and what is repeated. What is sent: tests/e2e/otlp.bats. */

static const char *given[8][2];
static unsigned warnings;

static char *env(const char *name)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(given) && given[i][0]; i++)
		if (!strcmp(given[i][0], name))
			return (char *)(uintptr_t)given[i][1];
	return NULL;
}

static void count(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)component;
	(void)text;
	(void)arg;
	warnings += level == DR_LOG_WARN;
}

#define NAME "OTEL_EXPORTER_OTLP_"

/* One variable and the option; the address; NULL: none. */
static void goes_to(const char *option, const char *name, const char *value, const char *url)
{
	struct dr_otlp_settings s;

	memset(given, 0, sizeof(given));
	given[0][0] = name;
	given[0][1] = value;
	assert_int_equal(dr_otlp_settings(option, env, &s, NULL), url != NULL);
	if (url) {
		assert_string_equal(s.url, url);
		assert_string_equal(s.source, option ? "--trace-endpoint" : name);
		assert_int_equal(s.timeout_ns, 10 * DR_NS_PER_S);
		dr_otlp_settings_fini(&s);
	}
}

static void addresses(void **state)
{
	(void)state;
	goes_to(NULL, NAME "ENDPOINT", "http://c:4318", "http://c:4318/v1/traces");
	goes_to(NULL, NAME "ENDPOINT", "http://c/v1/traces/", "http://c/v1/traces/v1/traces");
	goes_to(NULL, NAME "ENDPOINT", "https://c/x?key=1", "https://c/x/v1/traces?key=1");
	goes_to(NULL, NAME "TRACES_ENDPOINT", "http://c:4318", "http://c:4318");
	goes_to(NULL, NAME "TRACES_ENDPOINT", "http://[::1]:4318/x/", "http://[::1]:4318/x/");
	goes_to(NULL, NAME "ENDPOINT", "", NULL);
	goes_to(NULL, NULL, NULL, NULL);
	goes_to("http://c:4318", NAME "ENDPOINT", "http://d", "http://c:4318/v1/traces");
	goes_to("http://c:4318/", NULL, NULL, "http://c:4318/v1/traces");
	goes_to("HTTP://c/x", NULL, NULL, "HTTP://c/x");
	warnings = 0;
	goes_to(NULL, NAME "ENDPOINT", "c:4318", NULL);
	assert_int_equal(warnings, 1);
}

static void headers(void **state)
{
	struct dr_otlp_settings s;

	(void)state;
	memset(given, 0, sizeof(given));
	given[0][0] = NAME "HEADERS";
	given[0][1] = "a=b, c = d%2Ce%3d , bad name=x,none,nl=x%0ay,,empty=,pc=5%";
	given[1][0] = NAME "TIMEOUT";
	given[1][1] = "250";
	warnings = 0;
	assert_int_equal(dr_otlp_settings("http://c", env, &s, NULL), 1);
	assert_int_equal(s.n_headers, 5);
	assert_string_equal(s.headers[0], "Content-Type: application/json");
	assert_string_equal(s.headers[2], "a: b");
	assert_string_equal(s.headers[3], "c: d,e=");
	assert_string_equal(s.headers[4], "pc: 5%");
	assert_int_equal(warnings, 4);
	assert_int_equal(s.timeout_ns, 250 * DR_NS_PER_MS);
	dr_otlp_settings_fini(&s);
}

static void repeated(void **state)
{
	static const int final[] = { 200, 202, 301, 400, 401, 404, 408, 413, 500, 501, 505 };
	static const int again[] = { 429, 502, 503, 504 };
	struct dr_http_answer a = { 0 };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(final); i++) {
		a.status = final[i];
		a.retry_after_ns = DR_NS_PER_S;
		assert_int_equal(dr_otlp_retry_ns(&a, 0, 0), 0);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(again); i++) {
		a.status = again[i];
		a.retry_after_ns = 7 * DR_NS_PER_S;
		assert_int_equal(dr_otlp_retry_ns(&a, 3, 0), 7 * DR_NS_PER_S);
		a.retry_after_ns = 0;
		/* 0.5 s, twice as much each time up to 5 s, a quarter less or more. */
		assert_int_equal(dr_otlp_retry_ns(&a, 0, 0), 375 * DR_NS_PER_MS);
		assert_in_range(dr_otlp_retry_ns(&a, 1, UINT64_MAX), 750 * DR_NS_PER_MS,
			1250 * DR_NS_PER_MS);
		assert_in_range(dr_otlp_retry_ns(&a, UINT32_MAX, 12345), 3750 * DR_NS_PER_MS,
			6250 * DR_NS_PER_MS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses),
		cmocka_unit_test(headers),
		cmocka_unit_test(repeated),
	};

	dr_log_set_sink(count, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
