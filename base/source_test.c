/* SPDX-License-Identifier: Apache-2.0 */
#include "base/source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct sockaddr_storage host(const char *text)
{
	struct sockaddr_storage ss = { 0 };

	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&ss)->sin_addr) == 1) {
		ss.ss_family = AF_INET;
		return ss;
	}
	assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&ss)->sin6_addr), 1);
	ss.ss_family = AF_INET6;
	return ss;
}

static bool has(const char *networks, const char *addr)
{
	struct dr_networks l;
	struct sockaddr_storage ss = host(addr);

	assert_int_equal(dr_networks_parse(networks, &l, NULL), 0);
	return dr_networks_have(&l, &ss);
}

static void networks(void **state)
{
	(void)state;
	assert_true(has("10.0.0.0/8", "10.255.0.1"));
	assert_false(has("10.0.0.0/8", "11.0.0.1"));
	assert_true(has("192.0.2.128/25", "192.0.2.128"));
	assert_false(has("192.0.2.128/25", "192.0.2.127"));
	assert_true(has("192.0.2.7", "192.0.2.7"));
	assert_false(has("192.0.2.7", "192.0.2.6"));
	assert_true(has("0.0.0.0/0", "203.0.113.1"));
	assert_false(has("0.0.0.0/0", "2001:db8::1"));
	assert_true(has("2001:db8::/33", "2001:db8:7fff::1"));
	assert_false(has("2001:db8::/33", "2001:db8:8000::1"));
	assert_true(has("10.0.0.0/8,2001:db8::/32", "2001:db8::1"));
	assert_true(has("127.0.0.0/8", "::ffff:127.0.0.1"));
	assert_false(has("::/0", "::ffff:127.0.0.1"));
}

static void no_networks(void **state)
{
	static const char *const bad[] = { "", "x", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/ 8",
		"10.0.0.0/-1", "10.0.0.1/8", "10.0.0.0/8,", ",10.0.0.0/8", "2001:db8::/129",
		"2001:db8::1/64", "10.0.0.0/99999999999999999999", "10.0.0.0/8 ",
		"::ffff:10.0.0.0/104" };
	struct dr_networks l;
	char many[(DR_NETWORKS_MAX + 1) * 9 + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(dr_networks_parse(bad[i], &l, NULL), -EINVAL);
	for (int i = 0; i <= DR_NETWORKS_MAX; i++)
		snprintf(many + 9 * i, sizeof(many) - 9 * (size_t)i, "10.1.2.3,");
	many[sizeof(many) - 2] = '\0';
	assert_int_equal(dr_networks_parse(many, &l, NULL), -ERANGE);
}

static void hosts(void **state)
{
	struct sockaddr_storage a = host("192.0.2.7"), b = host("::ffff:192.0.2.7"),
				c = host("2001:db8::1"), d = host("192.0.2.8"), none = { 0 };

	(void)state;
	assert_true(dr_same_host(&a, &b));
	assert_true(dr_same_host(&c, &c));
	assert_false(dr_same_host(&a, &d));
	assert_false(dr_same_host(&a, &c));
	assert_false(dr_same_host(&none, &none));
}

static void reserve(void **state)
{
	struct rlimit before, tight;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	tight = before;
	tight.rlim_cur = 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_false(dr_files_scarce(47));
	assert_true(dr_files_scarce(48));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(networks),
		cmocka_unit_test(no_networks),
		cmocka_unit_test(hosts),
		cmocka_unit_test(reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
