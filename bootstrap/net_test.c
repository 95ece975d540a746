/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/net.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A connection starts where it was told, or not at all. */
static void where_connections_start(void **state)
{
	(void)state;
	struct dr_addr to, local, got = { .len = sizeof(got.ss) };
	struct dr_net_from from = { .addr = &local, .n = 1, .device = "lo" };
	int listener, fd;
	char name[32];
	socklen_t len = sizeof(name);
	assert_int_equal(dr_addr_parse("127.0.0.1", &to), 0);
	assert_int_equal(dr_addr_parse("127.0.0.9", &local), 0);
	assert_int_equal(dr_net_listen(&to, &listener, NULL), 0);
	assert_int_equal(dr_net_connect(&to, &from, &fd), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&got.ss, &got.len), 0);
	assert_int_not_equal(dr_sa_port(&got.ss), 0);
	dr_sa_set_port(&got.ss, 0);
	assert_memory_equal(&got.ss, &local.ss, local.len);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &len), 0);
	assert_string_equal(name, "lo");
	close(fd);
	from.device = "nosuch0";
	assert_int_equal(dr_net_connect(&to, &from, &fd), -ENODEV);
	from.device = NULL;
	assert_int_equal(dr_addr_parse("::1", &local), 0);
	assert_int_equal(dr_net_connect(&to, &from, &fd), -EADDRNOTAVAIL);
	assert_true(dr_addr_is_local(&to));
	assert_int_equal(dr_addr_parse("192.0.2.1", &to), 0);
	assert_false(dr_addr_is_local(&to));
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(where_connections_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
