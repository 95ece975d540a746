/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NL_H
#define DR_TOPOLOGY_NL_H

#include "base/defs.h"
#include "base/err.h"
#include "topology/addr.h"

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <string.h>

/* Netlink requests over libmnl, its errno convention converted to ours. One thread at a time. */
struct dr_nl {
	struct mnl_socket *sock;
	unsigned seq;
};

enum { DR_NL_BUF = 32768 }; /* the kernel fills at most this much per read of a dump */

struct dr_nl_dump {
	uint16_t type;
	uint8_t family;
	size_t body;
	mnl_cb_t cb;
	void (*restart)(void *arg);
	void *arg; /* of cb and restart */
};

/* bus: NETLINK_ROUTE or NETLINK_NETFILTER; groups: old-style multicast bit mask. Answers are waited
 * for at most 5 s (-ETIMEDOUT). */
int dr_nl_open(struct dr_nl *nl, int bus, unsigned groups, struct dr_err *e);
void dr_nl_close(struct dr_nl *nl);
/* Header of a message of len bytes behind nlmsghdr, zeroed, in buf; *body is that payload. */
struct nlmsghdr *dr_nl_msg(void *buf, uint16_t type, uint16_t flags, size_t body_len, void **body);
/* Send nlh with NLM_F_ACK and wait for the answer; cb (may be NULL) sees messages before it. */
int dr_nl_request(struct dr_nl *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg);
/*
 * Have everything of one type (RTM_GETLINK, ...) listed, on a socket of its own; body: size of the type's fixed part,
 * family: its first byte. A dump that was interrupted by a change starts over, after restart (NULL: none). Counters of
 * links are left out.
 */
int dr_nl_dump(const struct dr_nl_dump *d);
/* Set "what: reason" unless rc is 0, for -EPERM with the missing capability. Returns rc. */
int dr_nl_err(struct dr_err *e, int rc, const char *fmt, ...) DR_PRINTF(3, 4);
/* One request on a socket of its own. */
int dr_nl_once(struct nlmsghdr *nlh, mnl_cb_t cb, void *arg);

/* ---- reading ---- */

/* Attributes by type, NULL where there is none. Larger types are left out. */
enum { DR_NL_ATTRS = 64 };
struct dr_nl_attrs {
	const struct nlattr *at[DR_NL_ATTRS];
};

/* The attributes of a message whose fixed part has `body` bytes. */
static inline void dr_nl_attrs(const struct nlmsghdr *nlh, size_t body, struct dr_nl_attrs *out)
{
	/* mnl_attr_for_each would take the padding of a message as a part of its last attribute. */
	const char *end = (const char *)nlh + nlh->nlmsg_len;
	const struct nlattr *a = mnl_nlmsg_get_payload_offset(nlh, body);

	memset(out, 0, sizeof(*out));
	for (; mnl_attr_ok(a, (int)(end - (const char *)a)); a = mnl_attr_next(a)) {
		if (mnl_attr_get_type(a) < DR_NL_ATTRS)
			out->at[mnl_attr_get_type(a)] = a;
	}
}

/* The fixed part of a message of this type, and its attributes; NULL: another type, or too short. */
static inline const void *dr_nl_body(
	const struct nlmsghdr *nlh, uint16_t type, size_t body, struct dr_nl_attrs *out)
{
	if (nlh->nlmsg_type != type || mnl_nlmsg_get_payload_len(nlh) < body)
		return NULL;
	dr_nl_attrs(nlh, body, out);
	return mnl_nlmsg_get_payload(nlh);
}

/* Each struct rtnexthop of an RTA_MULTIPATH attribute. */
#define DR_NL_EACH_HOP(nh, a)                                                                      \
	for (int left_ = ((nh) = mnl_attr_get_payload(a), (int)mnl_attr_get_payload_len(a));       \
		left_ >= (int)sizeof(*(nh)) && RTNH_OK(nh, left_);                                 \
		left_ -= (int)RTNH_ALIGN((nh)->rtnh_len), (nh) = RTNH_NEXT(nh))

/* 0 where the attribute is missing or too short for a number. */
static inline uint32_t dr_nl_u32(const struct nlattr *a)
{
	return a && mnl_attr_get_payload_len(a) >= sizeof(uint32_t) ? mnl_attr_get_u32(a) : 0;
}

/* "" where the attribute is missing. */
static inline void dr_nl_text(const struct nlattr *a, char *buf, size_t len)
{
	snprintf(buf, len, "%.*s", a ? (int)mnl_attr_get_payload_len(a) : 0,
		a ? mnl_attr_get_str(a) : "");
}

/* An address; false: missing, or its length is not the family's. */
static inline bool dr_nl_addr(const struct nlattr *a, uint8_t family, struct dr_prefix *out)
{
	*out = (struct dr_prefix){ .family = family };
	if (!a || (family != AF_INET && family != AF_INET6) ||
		mnl_attr_get_payload_len(a) != dr_prefix_len(out))
		return false;
	memcpy(out->addr, mnl_attr_get_payload(a), dr_prefix_len(out));
	return true;
}

#endif
