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

	ifi->ifi_change = IFF_UP;
	ifi->ifi_flags = up ? IFF_UP : 0;
	return dr_nl_err(
		e, dr_nl_once(nlh, NULL, NULL), "set device %d %s", ifindex, up ? "up" : "down");
}

int dr_netdev_may_change(int ifindex, struct dr_err *e)
{
	struct ifinfomsg *ifi;
	char buf[MSG_MAX];
	struct nlmsghdr *nlh = link_msg(buf, ifindex, &ifi);

	return dr_nl_err(e, dr_nl_once(nlh, NULL, NULL), "change device %d", ifindex);
}

static int send_addr(uint16_t type, int ifindex, const struct sockaddr *sa, unsigned prefix)
{
	char buf[MSG_MAX];
	void *body;
	bool add = type == RTM_NEWADDR;
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, type, add ? NLM_F_CREATE | NLM_F_EXCL : 0, sizeof(struct ifaddrmsg), &body);
	struct ifaddrmsg *ifa = body;
	struct dr_prefix p;

	if (dr_prefix_of(sa, 0, &p))
		return -EAFNOSUPPORT;
	ifa->ifa_family = p.family;
	ifa->ifa_prefixlen = (uint8_t)prefix;
	ifa->ifa_index = (uint32_t)ifindex;
	if (add && p.family == AF_INET6)
		ifa->ifa_flags = IFA_F_NODAD;
	mnl_attr_put(nlh, IFA_LOCAL, dr_prefix_len(&p), p.addr);
	mnl_attr_put(nlh, IFA_ADDRESS, dr_prefix_len(&p), p.addr);
	return dr_nl_once(nlh, NULL, NULL);
}

static int change_addr(
	uint16_t type, int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
{
	bool add = type == RTM_NEWADDR;
	char text[64];

	dr_netdev_addr_format(sa, text, sizeof(text));
	return dr_nl_err(e, send_addr(type, ifindex, sa, prefix), "%s address %s/%u %s device %d",
		add ? "add" : "remove", text, prefix, add ? "to" : "from", ifindex);
}

int dr_netdev_add_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
{
	return change_addr(RTM_NEWADDR, ifindex, sa, prefix, e);
}

int dr_netdev_del_addr(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e)
{
	return change_addr(RTM_DELADDR, ifindex, sa, prefix, e);
}

int dr_netdev_create_veth(
	const char *name, const char *peer, int peer_netns_fd, unsigned mtu, struct dr_err *e)
{
	char buf[MSG_MAX];
	void *body;

	if (strlen(name) >= IFNAMSIZ || strlen(peer) >= IFNAMSIZ)
		return dr_err_set(e, -EINVAL,
			"create the veth pair %s, %s: a name has at most 15 bytes", name, peer);
	struct nlmsghdr *nlh = dr_nl_msg(
		buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg), &body);
	mnl_attr_put_strz(nlh, IFLA_IFNAME, name);
	if (mtu)
		mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	struct nlattr *info = mnl_attr_nest_start(nlh, IFLA_LINKINFO);
	mnl_attr_put_strz(nlh, IFLA_INFO_KIND, "veth");
	struct nlattr *data = mnl_attr_nest_start(nlh, IFLA_INFO_DATA);
	struct nlattr *end = mnl_attr_nest_start(nlh, VETH_INFO_PEER);
	mnl_nlmsg_put_extra_header(nlh, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(nlh, IFLA_IFNAME, peer);
	if (mtu)
		mnl_attr_put_u32(nlh, IFLA_MTU, mtu);
	if (peer_netns_fd >= 0)
		mnl_attr_put_u32(nlh, IFLA_NET_NS_FD, (uint32_t)peer_netns_fd);
	mnl_attr_nest_end(nlh, end);
	mnl_attr_nest_end(nlh, data);
	mnl_attr_nest_end(nlh, info);
	return dr_nl_err(e, dr_nl_once(nlh, NULL, NULL), "create the veth pair %s, %s", name, peer);
}
