/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/news.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/units.h"

static char said[2000];

static void sink(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)component, (void)arg;
	assert_int_equal(level, DR_LOG_INFO);
	dr_append(said, sizeof(said), "%s\n", text);
}

static void moved(const char *peer, int64_t gap_ns, int64_t now_ns)
{
	const struct ha_news n = { .device = 3,
		.ifname = "rail0",
		.peer = peer,
		.to = "rail1",
		.gap_ns = gap_ns,
		.why = "link down" };

	ha_news_add(&n, now_ns);
}

static void down(const char *peer, int64_t now_ns)
{
	const struct ha_news n = {
		.device = 3, .ifname = "rail0", .peer = peer, .why = "link down"
	};

	ha_news_add(&n, now_ns);
}

static void printed(int64_t now_ns, bool all, const char *lines)
{
	said[0] = '\0';
	ha_news_print(now_ns, all);
	assert_string_equal(said, lines);
}

static void an_event_is_one_line(void **state)
{
	const int64_t ms = DR_NS_PER_MS;

	(void)state;
	dr_log_set_sink(sink, NULL);
	dr_log_set_level(DR_LOG_INFO);
	down("other:1", 5 * ms);
	moved("host:1", -1, 6 * ms);
	moved("host:1", 14 * ms, 7 * ms);
	moved("host:1", 12 * ms, 900 * ms);
	printed(1004 * ms, false, "");
	printed(1005 * ms, false,
		"rail0: 3 connections from host:1 go on over rail1, longest gap 14.000 ms: link "
		"down\n");
	printed(9000 * ms, true, "");
	moved("host:1", -1, 10000 * ms);
	printed(10000 * ms, true,
		"rail0: 1 connection from host:1 goes on over rail1, none carried data: link down\n");
	moved("host:1", 0, 10000 * ms);
	moved("host:2", 0, 10000 * ms);
	down("other:1", 10000 * ms);
	printed(10000 * ms, true,
		"rail0: 2 connections from several peers go on over rail1, longest gap 0.000 ms: link "
		"down\n");
	down("host:1", 20000 * ms);
	down("host:1", 20001 * ms);
	printed(30000 * ms, false, "rail0 to host:1 is down: link down\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(an_event_is_one_line) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
