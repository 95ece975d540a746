/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include "base/source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct sockaddr_storage at(unsigned host, uint16_t port)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(0x0a000000u + host);
	in->sin_port = htons(port);
	return ss;
}

static void last_of_a_pair(void **state)
{
	struct sockaddr_storage a = at(1, 5), b = at(2, 30001), c = at(3, 7), d = at(2, 0);
	unsigned port = 9;

	(void)state;
	assert_int_equal(dr_failure_last(&a, &b, &port), 0);
	assert_int_equal(port, 9);
	dr_failure_keep(&a, &b, -ECONNREFUSED);
	dr_failure_keep(&c, &b, -EMFILE);
	dr_failure_keep(&a, &b, -EHOSTUNREACH);
	assert_int_equal(dr_failure_last(&a, &d, &port), -EHOSTUNREACH);
	assert_int_equal(port, 30001);
	assert_int_equal(dr_failure_last(&c, &d, NULL), -EMFILE);
	assert_int_equal(dr_failure_last(&b, &a, NULL), 0);
	/* An error of this process comes first. */
	dr_failure_keep(&a, &b, -EMFILE);
	dr_failure_keep(&a, &b, -ECONNREFUSED);
	assert_int_equal(dr_failure_last(&a, &d, NULL), -EMFILE);
	dr_failure_keep(&a, &b, -EACCES);
	assert_int_equal(dr_failure_last(&a, &d, NULL), -EACCES);
}

static void the_oldest_pair_gives_way(void **state)
{
	struct sockaddr_storage a = at(1, 0), peer;

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		peer = at(100 + i, 1);
		dr_failure_keep(&a, &peer, -(int)(1 + i));
	}
	peer = at(139, 0);
	assert_int_equal(dr_failure_last(&a, &peer, NULL), -40);
	peer = at(108, 0);
	assert_int_equal(dr_failure_last(&a, &peer, NULL), -9);
	peer = at(107, 0);
	assert_int_equal(dr_failure_last(&a, &peer, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_of_a_pair),
		cmocka_unit_test(the_oldest_pair_gives_way),
	};

	return cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}
