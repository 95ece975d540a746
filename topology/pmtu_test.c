/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "topology/pmtu.h"

/* Over the loopback, where nothing vanishes: the kernel answers for every port. */
static void over_the_loopback(void **state)
{
	struct dr_netdev_rail lo = { .ifname = "lo", .ifindex = 1, .prefix = 8, .mtu = 1500 };
	struct sockaddr_storage peer;
	struct dr_pmtu got;

	(void)state;
	assert_int_equal(dr_netdev_addr_parse("127.0.0.1", &lo.addr), 0);
	assert_int_equal(dr_netdev_addr_parse("127.0.0.2", &peer), 0);
	dr_pmtu_probe(&lo, (struct sockaddr *)&peer, 1400, &got);
	assert_int_equal(got.what, DR_PMTU_ARRIVES);
	assert_int_equal(got.bytes, 1400); /* the smaller of both ends */
	assert_int_equal(dr_netdev_addr_parse("192.0.2.1", &lo.addr), 0);
	dr_pmtu_probe(&lo, (struct sockaddr *)&peer, 1400, &got);
	assert_int_equal(got.what, DR_PMTU_ERROR);
	assert_int_equal(got.err, -EADDRNOTAVAIL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_the_loopback),
	};

	return cmocka_run_group_tests_name("path MTU", tests, NULL, NULL);
}
