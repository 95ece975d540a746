/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_HELLO_H
#define DR_TRANSPORT_VERBS_HELLO_H

#include "base/defs.h"
#include "transport/path_base.h"
#include "transport/verbs/verbs.h"

/*
 * The bytes with which rails and paths connect (sans-IO). All big endian.
 *
 *	rail handle	u32 magic | u8 version | u8 RoCE | u8 port | u16 mtu | u16 lid | 16 B gid |
 *			u32 UD queue pair | u32 its key
 *	path handle	u8 version | u8 flags (1 sender, 2 connector) | u8 index | u32 channel | u32 gen
 *	datagram	u8 DGRAM | bytes
 *	HELLO, WELCOME	u8 type | u32 magic | u8 version | u8 flags | u8 index | u32 channel | u32 gen |
 *			u16 mtu | u16 lid | 16 B gid | u32 UD queue pair | u32 its key | u32 psn |
 *			u32 largest message | u16 control receives | u8 n | n x u32 queue pair |
 *			16 B MAC
 *
 *	NEWS		u8 type | u32 magic | u8 version | u8 flags (1 answer) | u64 life | u64 knows |
 *			rail handle | 16 B MAC
 *
 * Queue pair 0 carries control, the last DR_VERBS_PROBE_QPS probes, those between data. Queue pair i starts at psn + i * DR_VERBS_PSN_STEP.
 * MAC: BLAKE2b over all before it, with a key of the message's type that is derived from the session's token.
 */
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
int dr_verbs_path_handle_encode(const struct dr_path_ident *h, void *buf, size_t cap);
int dr_verbs_path_handle_parse(
	const void *buf, size_t len, struct dr_path_ident *out, const char **why);
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
