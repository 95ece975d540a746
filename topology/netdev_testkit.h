/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NETDEV_TESTKIT_H
#define DR_TOPOLOGY_NETDEV_TESTKIT_H

#include "topology/nl.h"

#include <linux/rtnetlink.h>
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

#endif
