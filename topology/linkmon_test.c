/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/linkmon.h"

#include "base/clock.h"
#include "topology/netdev.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/netdev_testkit.h"

static int why_not, ma, mb, mc, md;
static struct dr_linkmon *mon;

/* What was seen since the last reset, as text: "ma-down mb-down ". */
static char seen[4096];

static void note(int ifindex, void *arg)
{
	int state = dr_linkmon_state(mon, ifindex);
	size_t at = strlen(seen);

	(void)arg;
	snprintf(seen + at, sizeof(seen) - at, "%s-%s ",
		ifindex == ma	? "ma"
		: ifindex == mb ? "mb"
		: ifindex == mc ? "mc"
		: ifindex == md ? "md"
				: "other",
		state == 1   ? "up"
		: state == 0 ? "down"
			     : "gone");
}

/* Progress until want is among what was seen, or the deadline. */
static void expect(const char *want)
{
	int64_t deadline = dr_now_ns() + 5 * DR_NS_PER_S;

	for (;;) {
		struct pollfd p = { .fd = dr_linkmon_fd(mon), .events = POLLIN };

		assert_true(dr_linkmon_progress(mon, note, NULL) >= 0);
		if (strstr(seen, want))
			return;
		if (dr_now_ns() > deadline)
			fail_msg("no '%s' in '%s'", want, seen);
		poll(&p, 1, 100);
	}
}

static int set_up(void **state)
{
	struct dr_netdev d;

	(void)state;
	if (unshare(CLONE_NEWNET) < 0) {
		why_not = errno;
		return 0;
	}
	assert_int_equal(dr_netdev_create_veth("ma", "mb", -1, 0, NULL), 0);
	assert_int_equal(dr_netdev_by_name("ma", &d, NULL), 0);
	ma = d.ifindex;
	assert_int_equal(dr_netdev_by_name("mb", &d, NULL), 0);
	mb = d.ifindex;
	return 0;
}

/* Both up, monitor fresh. */
static void begin(void)
{
	if (why_not) {
		print_message("SKIP: needs a network namespace of its own (root): %s\n",
			strerror(why_not));
		skip();
	}
	assert_int_equal(dr_netdev_set_up(ma, true, NULL), 0);
	assert_int_equal(dr_netdev_set_up(mb, true, NULL), 0);
	assert_int_equal(dr_linkmon_open(&mon, NULL), 0);
	seen[0] = '\0';
}

static int end(void **state)
{
	(void)state;
	dr_linkmon_close(mon);
	mon = NULL;
	return 0;
}

static void opens_without_root(void **state)
{
	(void)state;
	assert_int_equal(dr_linkmon_open(&mon, NULL), 0);
	assert_true(dr_linkmon_fd(mon) >= 0);
	assert_int_equal(dr_linkmon_state(mon, 987654), -ENODEV);
}

static void nothing_at_first(void **state)
{
	(void)state;
	begin();
	assert_int_equal(dr_linkmon_progress(mon, note, NULL), 0);
	assert_int_equal(dr_linkmon_state(mon, ma), 1);
}

static void own_link_and_the_peers_carrier(void **state)
{
	(void)state;
	begin();
	assert_int_equal(dr_netdev_set_up(ma, false, NULL), 0);
	expect("ma-down ");
	expect("mb-down "); /* its carrier */
	assert_int_equal(dr_linkmon_state(mon, mb), 0);
	seen[0] = '\0';
	assert_int_equal(dr_netdev_set_up(ma, true, NULL), 0);
	expect("ma-up ");
	expect("mb-up ");
	assert_int_equal(dr_linkmon_state(mon, ma), 1);
	/* Each once: a change of something else is no event. */
	seen[0] = '\0';
	set_mtu(ma, 1400);
	assert_int_equal(dr_linkmon_progress(mon, note, NULL), 0);
	assert_string_equal(seen, "");
}

/* More notifications than the socket holds: the state comes from a dump. */
static void lost_notifications(void **state)
{
	int small = 2304;

	(void)state;
	begin();
	assert_int_equal(
		setsockopt(dr_linkmon_fd(mon), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(dr_netdev_set_up(ma, false, NULL), 0);
		assert_int_equal(dr_netdev_set_up(ma, true, NULL), 0);
	}
	assert_true(dr_linkmon_progress(mon, note, NULL) >= 0);
	/* far fewer than one each: notifications were lost */
	assert_true(strlen(seen) < 100 * strlen("ma-down "));
	assert_int_equal(dr_linkmon_state(mon, ma), 1);
	seen[0] = '\0';
	for (int i = 0; i < 100; i++) {
		assert_int_equal(dr_netdev_set_up(ma, true, NULL), 0);
		assert_int_equal(dr_netdev_set_up(ma, false, NULL), 0);
	}
	expect("ma-down ");
	assert_int_equal(dr_linkmon_state(mon, ma), 0);
}

static void devices_come_and_go(void **state)
{
	struct dr_netdev d;

	(void)state;
	begin();
	assert_int_equal(dr_netdev_create_veth("mc", "md", -1, 0, NULL), 0);
	assert_int_equal(dr_netdev_by_name("mc", &d, NULL), 0);
	mc = d.ifindex;
	assert_int_equal(dr_netdev_set_up(mc, true, NULL), 0);
	assert_int_equal(dr_netdev_by_name("md", &d, NULL), 0);
	md = d.ifindex;
	assert_int_equal(dr_netdev_set_up(md, true, NULL), 0);
	expect("mc-up ");
	delete_link(md);
	expect("mc-gone ");
	expect("md-gone ");
	assert_int_equal(dr_linkmon_state(mon, md), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(opens_without_root, end),
		cmocka_unit_test_teardown(nothing_at_first, end),
		cmocka_unit_test_teardown(own_link_and_the_peers_carrier, end),
		cmocka_unit_test_teardown(lost_notifications, end),
		cmocka_unit_test_teardown(devices_come_and_go, end),
	};

	return cmocka_run_group_tests_name("linkmon", tests, set_up, NULL);
}
