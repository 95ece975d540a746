/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_HELLO_H
#define DR_TRANSPORT_VERBS_HELLO_H

#include "base/defs.h"
#include "transport/path_base.h"
#include "transport/verbs/verbs.h"

/* The bytes with which rails and paths connect, see hello.c. Sans-IO. */
enum {
	DR_VERBS_DGRAM = 1,
	DR_VERBS_HELLO = 2,
	DR_VERBS_WELCOME = 3,
	DR_VERBS_NEWS = 4,
	DR_VERBS_QPS = 1 + DR_VERBS_QPS_MAX,
	DR_VERBS_PROBE_QPS = 2,
	DR_VERBS_SHARED_QPS = DR_VERBS_QPS + DR_VERBS_PROBE_QPS,
	DR_VERBS_PSN_STEP = 0x10000,
	DR_VERBS_PSN_MASK = 0xffffff,
	DR_VERBS_HELLO_MAX = 96 + 4 * DR_VERBS_SHARED_QPS,
	DR_VERBS_NEWS_MAX = 96,
};

/* Where a rail's datagrams are to be sent. */
struct dr_verbs_addr {
	bool roce;
	uint8_t port;
	uint16_t mtu, lid;
	uint8_t gid[16];
	uint32_t ud_qpn, ud_qkey;
};

struct dr_verbs_hello {
	uint8_t type;
	bool sender; /* of this end */
	uint8_t index, n;
	uint32_t channel, gen;
	uint16_t mtu, lid;
	uint8_t gid[16];
	uint32_t ud_qpn, ud_qkey;
	uint32_t psn, msg_max;
	uint16_t ctrl_recvs;
	uint32_t qpn[DR_VERBS_SHARED_QPS];
};

/* A rail is reached there now; life grows with every new address. */
struct dr_verbs_news {
	bool answer; /* to the peer's own */
	uint64_t life;
	uint64_t knows; /* the receiver's life that its sender knows */
	struct dr_verbs_addr addr;
};

/* Length, or -EMSGSIZE. */
int dr_verbs_addr_encode(const struct dr_verbs_addr *a, void *buf, size_t cap);
/* 0, or -EPROTO and what is wrong. */
int dr_verbs_addr_parse(const void *buf, size_t len, struct dr_verbs_addr *out, const char **why);
size_t dr_verbs_hello_encode(const struct dr_verbs_hello *h, const uint8_t key[DR_TOKEN_LEN],
	uint8_t buf[DR_VERBS_HELLO_MAX]);
/* 0; -EPROTO: malformed; -EACCES: of another session. *why says so in words. */
int dr_verbs_hello_parse(const void *buf, size_t len, const uint8_t key[DR_TOKEN_LEN],
	struct dr_verbs_hello *out, const char **why);
/* The same for news. */
size_t dr_verbs_news_encode(const struct dr_verbs_news *n, const uint8_t key[DR_TOKEN_LEN],
	uint8_t buf[DR_VERBS_NEWS_MAX]);
int dr_verbs_news_parse(const void *buf, size_t len, const uint8_t key[DR_TOKEN_LEN],
	struct dr_verbs_news *out, const char **why);

#endif
