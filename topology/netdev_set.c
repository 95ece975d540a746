/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "topology/nl.h"

#include <errno.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <netinet/in.h>
#include <string.h>

enum { MSG_MAX = 1024 };

static struct nlmsghdr *link_msg(void *buf, int ifindex, struct ifinfomsg **ifi)
{
	void *body;
	struct nlmsghdr *nlh = dr_nl_msg(buf, RTM_NEWLINK, 0, sizeof(**ifi), &body);

	*ifi = body;
	(*ifi)->ifi_index = ifindex;
	return nlh;
}

int dr_netdev_set_up(int ifindex, bool up, struct dr_err *e)
{
	struct ifinfomsg *ifi;
	char buf[MSG_MAX];
	struct nlmsghdr *nlh = link_msg(buf, ifindex, &ifi);
	int rc;

	ifi->ifi_change = IFF_UP;
	ifi->ifi_flags = up ? IFF_UP : 0;
	rc = dr_nl_once(nlh, NULL, NULL);
	if (rc < 0)
		return dr_nl_err(e, rc, "set device %d %s", ifindex, up ? "up" : "down");
	return 0;
}

int dr_netdev_may_change(int ifindex, struct dr_err *e)
{
	struct ifinfomsg *ifi;
	char buf[MSG_MAX];
	struct nlmsghdr *nlh = link_msg(buf, ifindex, &ifi);
	int rc = dr_nl_once(nlh, NULL, NULL);

	return rc < 0 ? dr_nl_err(e, rc, "change device %d", ifindex) : 0;
}

int dr_netdev_set_mtu(int ifindex, unsigned mtu, struct dr_err *e)
{
	struct ifinfomsg *ifi;
	char buf[MSG_MAX];
	struct nlmsghdr *nlh = link_msg(buf, ifindex, &ifi);
	int rc;

	mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	rc = dr_nl_once(nlh, NULL, NULL);
	if (rc < 0)
		return dr_nl_err(e, rc, "set the MTU of device %d to %u", ifindex, mtu);
	return 0;
}

static int change_addr(uint16_t type, int ifindex, const struct sockaddr *sa, unsigned prefix)
{
	char buf[MSG_MAX];
	void *body;
	bool add = type == RTM_NEWADDR;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, type, add ? NLM_F_CREATE | NLM_F_EXCL : 0, sizeof(struct ifaddrmsg), &body);
	struct ifaddrmsg *ifa = body;
	const void *bytes;
	size_t len;

	if (sa->sa_family == AF_INET) {
		bytes = &((const struct sockaddr_in *)sa)->sin_addr;
		len = 4;
	} else if (sa->sa_family == AF_INET6) {
		bytes = &((const struct sockaddr_in6 *)sa)->sin6_addr;
		len = 16;
	} else {
		return -EAFNOSUPPORT;
	}
	ifa->ifa_family = (uint8_t)sa->sa_family;
	ifa->ifa_prefixlen = (uint8_t)prefix;
	ifa->ifa_index = (uint32_t)ifindex;
	if (add && len == 16)
		ifa->ifa_flags = IFA_F_NODAD;
	mnl_attr_put(nlh, IFA_LOCAL, len, bytes);
	mnl_attr_put(nlh, IFA_ADDRESS, len, bytes);
	return dr_nl_once(nlh, NULL, NULL);
}

int dr_netdev_add_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
{
	int rc = change_addr(RTM_NEWADDR, ifindex, sa, prefix);
	char text[64];

	if (rc == 0)
		return 0;
	dr_netdev_addr_format(sa, text, sizeof(text));
	return dr_nl_err(e, rc, "add address %s/%u to device %d", text, prefix, ifindex);
}

int dr_netdev_del_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
{
	int rc = change_addr(RTM_DELADDR, ifindex, sa, prefix);
	char text[64];

	if (rc == 0)
		return 0;
	dr_netdev_addr_format(sa, text, sizeof(text));
	return dr_nl_err(e, rc, "remove address %s/%u from device %d", text, prefix, ifindex);
}

int dr_netdev_create_veth(
	const char *name, const char *peer, int peer_netns_fd, unsigned mtu, struct dr_err *e)
{
	char buf[MSG_MAX];
	void *body;
	struct nlmsghdr *nlh;
	struct nlattr *info, *data, *end;
	int rc;

	if (strlen(name) >= IFNAMSIZ || strlen(peer) >= IFNAMSIZ)
		return dr_err_set(e, -EINVAL, "create veth %s: names have at most 15 bytes", name);
	nlh = dr_nl_msg(
		buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg), &body);
	mnl_attr_put_strz(nlh, IFLA_IFNAME, name);
	if (mtu)
		mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	info = mnl_attr_nest_start(nlh, IFLA_LINKINFO);
	mnl_attr_put_strz(nlh, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(nlh, IFLA_INFO_DATA);
	end = mnl_attr_nest_start(nlh, VETH_INFO_PEER);
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(nlh, IFLA_IFNAME, peer);
	if (mtu)
		mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	if (peer_netns_fd >= 0)
		mnl_attr_put_u32(nlh, IFLA_NET_NS_FD, (uint32_t)peer_netns_fd);
	mnl_attr_nest_end(nlh, end);
	mnl_attr_nest_end(nlh, data);
	mnl_attr_nest_end(nlh, info);
	rc = dr_nl_once(nlh, NULL, NULL);
	if (rc < 0)
		return dr_nl_err(e, rc, "create the veth pair %s, %s", name, peer);
	return 0;
}

int dr_netdev_delete(int ifindex, struct dr_err *e)
{
	struct ifinfomsg *ifi;
	char buf[MSG_MAX];
	struct nlmsghdr *nlh = link_msg(buf, ifindex, &ifi);
	int rc;

	nlh->nlmsg_type = RTM_DELLINK;
	rc = dr_nl_once(nlh, NULL, NULL);
	if (rc < 0)
		return dr_nl_err(e, rc, "delete device %d", ifindex);
	return 0;
}
