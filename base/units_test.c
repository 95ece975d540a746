/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/units.h"

static void sizes_are_read(void **state)
{
	static const struct {
		const char *s;
		uint64_t bytes;
	} row[] = {
		{ "0", 0 },
		{ "17", 17 },
		{ "8B", 8 },
		{ "1K", 1024 },
		{ "1k", 1024 },
		{ "1KiB", 1024 },
		{ "4kB", 4000 },
		{ "64M", 64ULL << 20 },
		{ "64m", 64ULL << 20 },
		{ "3MB", 3000000 },
		{ "1GiB", 1ULL << 30 },
		{ "2G", 2ULL << 30 },
		{ "1GB", 1000000000 },
		{ "1T", 1ULL << 40 },
		{ "2TB", 2000000000000 },
		{ "1.5K", 1536 },
		{ "0.5KiB", 512 },
		{ "1.001kB", 1001 },
		{ "18446744073709551615", UINT64_MAX },
	};
	uint64_t v;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		assert_int_equal(dr_parse_size(row[i].s, &v, NULL), 0);
		assert_int_equal(v, row[i].bytes);
	}
}

static void wrong_sizes_are_named(void **state)
{
	static const struct {
		const char *s;
		int rc;
	} row[] = {
		{ "", -EINVAL },
		{ " 1", -EINVAL },
		{ "1 ", -EINVAL },
		{ "-1", -EINVAL },
		{ "+1", -EINVAL },
		{ "8x", -EINVAL },
		{ "1KB", -EINVAL },
		{ "1mb", -EINVAL },
		{ "M", -EINVAL },
		{ ".5K", -EINVAL },
		{ "1.", -EINVAL },
		{ "1.2.3", -EINVAL },
		{ "0x10", -EINVAL },
		{ "1e3", -EINVAL },
		{ "1.5", -EINVAL },
		{ "0.3K", -EINVAL },
		{ "18446744073709551616", -ERANGE },
		{ "16777216T", -ERANGE },
		{ "99999999999999999999999999", -ERANGE },
	};
	struct dr_err e;
	uint64_t v;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		v = 7;
		assert_int_equal(dr_parse_size(row[i].s, &v, &e), row[i].rc);
		assert_int_equal(e.code, row[i].rc);
		assert_non_null(strstr(e.text, row[i].s));
		assert_int_equal(v, 7);
	}
	assert_int_equal(dr_parse_size("8x", &v, &e), -EINVAL);
	assert_string_equal(e.text, "\"8x\" is not a size; use e.g. 64M, 1GiB, 4kB");
}

static void durations(void **state)
{
	static const struct {
		const char *s;
		int64_t ns;
	} row[] = {
		{ "10ms", 10000000 },
		{ "1.5s", 1500000000 },
		{ "250us", 250000 },
		{ "100ns", 100 },
		{ "2m", 120 * DR_NS_PER_S },
		{ "1h", 3600 * DR_NS_PER_S },
		{ "5", 5 * DR_NS_PER_S },
		{ "0", 0 },
		{ "0.001", DR_NS_PER_MS },
		{ "9223372036854775807ns", INT64_MAX },
	};
	int64_t v = 7;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		assert_int_equal(dr_parse_duration(row[i].s, &v, NULL), 0);
		assert_int_equal(v, row[i].ns);
	}
	assert_int_equal(dr_parse_duration("1d", &v, NULL), -EINVAL);
	assert_int_equal(dr_parse_duration("1S", &v, NULL), -EINVAL);
	assert_int_equal(dr_parse_duration("-1s", &v, NULL), -EINVAL);
	assert_int_equal(dr_parse_duration("ms", &v, NULL), -EINVAL);
	assert_int_equal(dr_parse_duration("0.5ns", &v, NULL), -EINVAL);
	assert_int_equal(dr_parse_duration("9223372036854775808ns", &v, NULL), -ERANGE);
	assert_int_equal(dr_parse_duration("3000000h", &v, NULL), -ERANGE);
}

static void rates(void **state)
{
	static const char *const bad[] = { "", "G", "10GB", "10GB/s", "-1G", "1..2G", "1.G",
		"10P" };
	double v = 0;

	(void)state;
	assert_int_equal(dr_parse_rate("10G", &v, NULL), 0);
	assert_true(v == 1e10);
	assert_int_equal(dr_parse_rate("400M", &v, NULL), 0);
	assert_true(v == 4e8);
	assert_int_equal(dr_parse_rate("2.5Gb/s", &v, NULL), 0);
	assert_true(v == 2.5e9);
	assert_int_equal(dr_parse_rate("100Gbit", &v, NULL), 0);
	assert_true(v == 1e11);
	assert_int_equal(dr_parse_rate("9600", &v, NULL), 0);
	assert_true(v == 9600);
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++)
		assert_int_equal(dr_parse_rate(bad[i], &v, NULL), -EINVAL);
	assert_true(v == 9600);
}

static void numbers(void **state)
{
	struct dr_err e;
	uint64_t u = 7;
	double d = 7;

	(void)state;
	assert_int_equal(dr_parse_u64("16", 1, 16, &u, &e), 0);
	assert_int_equal(u, 16);
	assert_int_equal(dr_parse_u64("17", 1, 16, &u, &e), -ERANGE);
	assert_string_equal(e.text, "17 is out of range; use 1 to 16");
	assert_int_equal(dr_parse_u64("99999999999999999999", 1, 16, &u, &e), -ERANGE);
	assert_int_equal(dr_parse_u64("1.0", 0, 16, &u, &e), -EINVAL);
	assert_int_equal(dr_parse_u64("1x", 0, 16, &u, &e), -EINVAL);
	assert_int_equal(dr_parse_u64("-1", 0, 16, &u, &e), -EINVAL);
	assert_int_equal(dr_parse_u64("", 0, 16, &u, &e), -EINVAL);
	assert_int_equal(u, 16);

	assert_int_equal(dr_parse_double("0.25", 0, 1, &d, &e), 0);
	assert_true(d == 0.25);
	assert_int_equal(dr_parse_double("-1e-1", -1, 1, &d, &e), 0);
	assert_int_equal(dr_parse_double("1.5", 0, 1, &d, &e), -ERANGE);
	assert_int_equal(dr_parse_double("1e999", 0, 1, &d, &e), -ERANGE);
	assert_int_equal(dr_parse_double("nan", 0, 1, &d, &e), -EINVAL);
	assert_int_equal(dr_parse_double("inf", 0, 1, &d, &e), -EINVAL);
	assert_int_equal(dr_parse_double("0x1", 0, 1, &d, &e), -EINVAL);
	assert_int_equal(dr_parse_double(" 1", 0, 1, &d, &e), -EINVAL);
	assert_int_equal(dr_parse_double("", 0, 1, &d, &e), -EINVAL);
	assert_int_equal(dr_parse_double("1-", 0, 1, &d, &e), -EINVAL);
}

static void lists(void **state)
{
	static const char *const bad[] = { "", ",", "1,", ",1", "1,,2", "3-1", "1-", "-1", "a",
		"1-2-3", "1,1", "0-3,2", "1 ,2" };
	static const unsigned expected[] = { 0, 1, 2, 3, 8 };
	struct dr_err e;
	unsigned v[8];
	size_t n = 99;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(bad); i++)
		assert_int_equal(dr_parse_list(bad[i], 100, v, DR_ARRAY_LEN(v), &n, &e), -EINVAL);
	assert_int_equal(dr_parse_list("0-9", 100, v, DR_ARRAY_LEN(v), &n, &e), -ERANGE);
	assert_int_equal(dr_parse_list("7-8", 7, v, DR_ARRAY_LEN(v), &n, &e), -ERANGE);
	assert_int_equal(
		dr_parse_list("0-18446744073709551615", 7, v, DR_ARRAY_LEN(v), &n, &e), -ERANGE);
	assert_int_equal(n, 99);
	assert_int_equal(dr_parse_list("0-3,8", 8, v, DR_ARRAY_LEN(v), &n, &e), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(v, expected, sizeof(expected));
	assert_int_equal(dr_parse_list("8,0", 8, v, DR_ARRAY_LEN(v), &n, &e), 0);
	assert_int_equal(n, 2);
	assert_int_equal(v[0], 8);
}

static void formats(void **state)
{
	static const struct {
		uint64_t v;
		const char *s;
	} size[] = { { 0, "0 B" }, { 8, "8 B" }, { 1536, "1536 B" }, { 512 << 10, "512 KiB" },
		{ 64 << 20, "64 MiB" }, { 1ULL << 50, "1024 TiB" } };
	static const struct {
		int64_t v;
		const char *s;
	} dur[] = { { 0, "0 ns" }, { 999, "999 ns" }, { 1000, "1.00 us" }, { 850000, "850 us" },
		{ 12340000, "12.3 ms" }, { 1200000000, "1.20 s" }, { 999600, "1.00 ms" },
		{ 9999, "10.0 us" }, { 99990000, "100 ms" }, { 90 * DR_NS_PER_S, "90.0 s" },
		{ 7200 * DR_NS_PER_S, "7200 s" }, { -1500, "-1.50 us" }, { DR_NEVER, "never" } };
	char buf[32];

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(size); i++) {
		dr_format_size(size[i].v, buf, sizeof(buf));
		assert_string_equal(buf, size[i].s);
	}
	for (size_t i = 0; i < DR_ARRAY_LEN(dur); i++) {
		dr_format_duration(dur[i].v, buf, sizeof(buf));
		assert_string_equal(buf, dur[i].s);
	}
}

static void errors_are_composed(void **state)
{
	struct dr_err e = { 0 };
	char longer[400];

	(void)state;
	assert_int_equal(dr_err_set(NULL, -EIO, "x"), -EIO);
	assert_int_equal(dr_err_set(&e, -ECONNREFUSED, "connect %s", "10.0.0.7"), -ECONNREFUSED);
	assert_int_equal(dr_err_prefix(&e, "path %d", 1), -ECONNREFUSED);
	assert_string_equal(e.text, "path 1: connect 10.0.0.7");
	assert_int_equal(dr_err_set(&e, -EIO, "again: %s", e.text), -EIO);
	assert_string_equal(e.text, "again: path 1: connect 10.0.0.7");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	dr_err_prefix(&e, "%s", longer);
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	dr_err_prefix(&e, "short");
	assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
	assert_string_equal(dr_errno_name(111), "ECONNREFUSED");
	assert_string_equal(dr_errno_name(-111), "ECONNREFUSED");
	assert_string_equal(dr_errno_name(0), "E?");
	assert_string_equal(dr_errno_name(99999), "E?");
	assert_string_equal(dr_errno_name(INT32_MIN), "E?");
}

static void texts(void **state)
{
	char buf[8] = "";
	int n = -1;

	(void)state;
	dr_append(buf, sizeof(buf), "%d", 12);
	dr_append(buf, sizeof(buf), "%s", "345678");
	assert_string_equal(buf, "1234567");
	dr_append(buf, sizeof(buf), "9");
	assert_string_equal(buf, "1234567");
	assert_int_equal(dr_parse_choice("on|off", "off", &n, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(dr_parse_choice("on|off", "o", &n, NULL), -EINVAL);
	dr_format_choice("on|off", 1, buf, sizeof(buf));
	assert_string_equal(buf, "off");
	dr_format_duration_exact(1500000, buf, sizeof(buf));
	assert_string_equal(buf, "1500us");
}

static void hosts_and_ports(void **state)
{
	static const struct {
		const char *text, *host;
		uint16_t port;
		int rc;
	} row[] = {
		{ "node1", "node1", 7, 0 },
		{ "node1:80", "node1", 80, 0 },
		{ "192.0.2.7:65535", "192.0.2.7", 65535, 0 },
		{ "2001:db8::7", "2001:db8::7", 7, 0 },
		{ "[2001:db8::7]", "2001:db8::7", 7, 0 },
		{ "[fe80::1%eth0]:9", "fe80::1%eth0", 9, 0 },
		{ "", NULL, 7, -EINVAL },
		{ ":80", NULL, 7, -EINVAL },
		{ "[]", NULL, 7, -EINVAL },
		{ "node1:", NULL, 7, -EINVAL },
		{ "node1:0", NULL, 7, -EINVAL },
		{ "node1:65536", NULL, 7, -EINVAL },
		{ "[::1]:x", NULL, 7, -EINVAL },
		{ "a-name-that-is-too-long", NULL, 7, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		char host[20];
		uint16_t port = 7;
		struct dr_err e;

		assert_int_equal(
			dr_split_host(row[i].text, host, sizeof(host), &port, &e), row[i].rc);
		assert_int_equal(port, row[i].port);
		if (row[i].host)
			assert_string_equal(host, row[i].host);
	}
}

static void ranges_of_ports(void **state)
{
	static const char *const wrong[] = { "", "5", "5-", "-5", "0-5", "6-5", "1-65536", "1-2-3",
		" 1-2", "1-2 ", "+1-2", "a-b", "1-999999" };
	uint16_t first = 7, last = 7;
	struct dr_err e;

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(wrong); i++)
		assert_int_equal(dr_parse_ports(wrong[i], &first, &last, &e), -EINVAL);
	assert_int_equal(first + last, 14);
	assert_int_equal(dr_parse_ports("1-65535", &first, &last, &e), 0);
	assert_int_equal(first, 1);
	assert_int_equal(last, 65535);
	assert_int_equal(dr_parse_ports("30000-30000", &first, &last, &e), 0);
	assert_int_equal(first, last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(wrong_sizes_are_named),
		cmocka_unit_test(durations),
		cmocka_unit_test(rates),
		cmocka_unit_test(numbers),
		cmocka_unit_test(lists),
		cmocka_unit_test(ranges_of_ports),
		cmocka_unit_test(formats),
		cmocka_unit_test(errors_are_composed),
		cmocka_unit_test(texts),
		cmocka_unit_test(hosts_and_ports),
	};

	return cmocka_run_group_tests_name("units", tests, NULL, NULL);
}
