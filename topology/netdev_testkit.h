/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NETDEV_TESTKIT_H
#define DR_TOPOLOGY_NETDEV_TESTKIT_H

#include "topology/netdev.h"
#include "topology/nl.h"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Changes to devices that only tests make. Each asserts that the kernel accepts it. */
static inline void change_link(int ifindex, uint16_t type, unsigned mtu)
{
	char buf[256];
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, type, 0, sizeof(struct ifinfomsg), &body);

	((struct ifinfomsg *)body)->ifi_index = ifindex;
	if (mtu)
		mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	assert_int_equal(dr_nl_once(nlh, NULL, NULL), 0);
}

static inline void set_mtu(int ifindex, unsigned mtu)
{
	change_link(ifindex, RTM_NEWLINK, mtu);
}

static inline void delete_link(int ifindex)
{
	change_link(ifindex, RTM_DELLINK, 0);
}

static inline int index_of(const char *name)
{
	struct dr_netdev d;

	assert_int_equal(dr_netdev_by_name(name, &d, NULL), 0);
	return d.ifindex;
}

/* A pair whose other end is in a namespace of its own, which lives as long as the process. */
static inline void make_far_veth(const char *name, const char *peer)
{
	static const char ns[] = "/proc/thread-self/ns/net";
	int here = open(ns, O_RDONLY | O_CLOEXEC);

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	int far = open(ns, O_RDONLY | O_CLOEXEC);
	assert_int_equal(setns(here, CLONE_NEWNET), 0);
	assert_int_equal(dr_netdev_create_veth(name, peer, far, 0, NULL), 0);
	assert_int_equal(dr_netdev_set_up(index_of(name), true, NULL), 0);
	assert_int_equal(setns(far, CLONE_NEWNET), 0);
	assert_int_equal(dr_netdev_set_up(index_of(peer), true, NULL), 0);
	assert_int_equal(setns(here, CLONE_NEWNET), 0);
	close(here);
}

#endif
