/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NL_H
#define DR_TOPOLOGY_NL_H

#include "base/defs.h"
#include "base/err.h"

#include <libmnl/libmnl.h>

/* Netlink requests over libmnl, its errno convention converted to ours. One thread at a time. */
struct dr_nl {
	struct mnl_socket *sock;
	unsigned seq;
};

enum { DR_NL_BUF = 32768 }; /* the kernel fills at most this much per read of a dump */

/* bus: NETLINK_ROUTE or NETLINK_NETFILTER; groups: old-style multicast bit mask. Answers are waited
 * for at most 5 s (-ETIMEDOUT). */
int dr_nl_open(struct dr_nl *nl, int bus, unsigned groups, struct dr_err *e);
void dr_nl_close(struct dr_nl *nl);
/* Header of a message of len bytes behind nlmsghdr, zeroed, in buf; *body is that payload. */
struct nlmsghdr *dr_nl_msg(void *buf, uint16_t type, uint16_t flags, size_t body_len, void **body);
/* Send nlh with NLM_F_ACK and wait for the answer; cb (may be NULL) sees messages before it. */
int dr_nl_request(struct dr_nl *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg);
/* Send nlh with NLM_F_DUMP; restart (NULL: none) is called before each attempt, since a dump that
 * was interrupted by a change starts over, on a new socket. NETLINK_ROUTE only. */
int dr_nl_dump(
	struct dr_nl *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void (*restart)(void *arg), void *arg);
/* dr_err_set "what: why", and for -EPERM what to do. Returns rc. */
int dr_nl_err(struct dr_err *e, int rc, const char *fmt, ...) DR_PRINTF(3, 4);
/* One request on a socket of its own. */
int dr_nl_once(struct nlmsghdr *nlh, mnl_cb_t cb, void *arg);

/* 0 where the attribute is too short for a number. */
static inline uint32_t dr_nl_u32(const struct nlattr *a)
{
	return mnl_attr_get_payload_len(a) < sizeof(uint32_t) ? 0 : mnl_attr_get_u32(a);
}

#endif
