/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_WIRE_H
#define DR_TRANSPORT_TCP_WIRE_H

#include "base/defs.h"
#include "transport/path_base.h"

/*
 * The bytes of the TCP kind, all big endian; sans-IO. A connection:
 *
 *   connector -> acceptor   HELLO     magic, version, index, flags, token, channel, gen
 *   acceptor -> connector   HELLO_OK  magic, version, 0, gen
 *   then both ways          frames    a header of TCP_FRAME_HDR bytes and `len` bytes of payload
 *
 * Parsers accept any bytes: 0, or -EPROTO and the reason in *why.
 */
enum {
	TCP_WIRE_VERSION = 2,
	TCP_HELLO_LEN = 32,
	TCP_HELLO_OK_LEN = 12,
	TCP_FRAME_HDR = 20,
	TCP_CREDIT_PART_LEN = 8,			    /* capacity, tag */
	TCP_SMALL_MAX = DR_PARTS_MAX * TCP_CREDIT_PART_LEN, /* longest payload but that of DATA */
	TCP_DATA_MAX = 1 << 30, /* bytes of one part: a length above is a lost frame boundary */
};

struct tcp_hello {
	uint8_t token[DR_TOKEN_LEN];
	uint32_t channel, gen;
	uint8_t index;
	bool sender; /* data leaves at the connector */
};
void dr_tcp_hello_encode(const struct tcp_hello *h, uint8_t out[TCP_HELLO_LEN]);
int dr_tcp_hello_parse(const void *buf, size_t len, struct tcp_hello *out, const char **why);

void dr_tcp_hello_ok_encode(uint32_t gen, uint8_t out[TCP_HELLO_OK_LEN]);
int dr_tcp_hello_ok_parse(const void *buf, size_t len, uint32_t *gen, const char **why);

enum tcp_frame_type {
	TCP_FRAME_DATA = 1,   /* sender -> receiver: part, epoch, seq; payload: the part */
	TCP_FRAME_CREDIT = 2, /* receiver -> sender: n, skip, epoch, seq; payload: n x {cap, tag} */
	TCP_FRAME_FILL = 4,   /* sender -> receiver; payload: discarded */
	TCP_FRAME_CTRL = 3,   /* both ways; payload: 1..DR_CTRL_MAX bytes of the user's */
};
struct tcp_frame {
	uint8_t type, part, n, skip;
	uint32_t len; /* of the payload */
	uint32_t epoch;
	uint64_t seq;
};
void dr_tcp_frame_encode(const struct tcp_frame *f, uint8_t out[TCP_FRAME_HDR]);
/* Header only; len is checked against the type, so that a payload other than DATA's is small. */
int dr_tcp_frame_parse(const void *buf, size_t len, struct tcp_frame *out, const char **why);

struct tcp_credit_part {
	uint32_t cap, tag;
};
void dr_tcp_credit_encode(const struct tcp_credit_part *parts, unsigned n, uint8_t *out);
/* The payload of a CREDIT frame whose header was parsed: exactly n parts. */
int dr_tcp_credit_parse(const void *buf, size_t len, unsigned n, struct tcp_credit_part *parts);

/* Where a rail listens. The scope of a link-local address is the reader's own matter. */
struct tcp_rail_handle {
	int family; /* AF_INET, AF_INET6 */
	uint8_t addr[16];
	uint16_t tcp_port, udp_port; /* host order */
};
/* Returns the length, or -EMSGSIZE. */
int dr_tcp_rail_handle_encode(const struct tcp_rail_handle *h, void *buf, size_t cap);
int dr_tcp_rail_handle_parse(
	const void *buf, size_t len, struct tcp_rail_handle *out, const char **why);

/* A path needs no address of its own; its handle lets both ends notice that they are mixed up. */
int dr_tcp_path_handle_encode(const struct dr_path_ident *h, void *buf, size_t cap);
int dr_tcp_path_handle_parse(
	const void *buf, size_t len, struct dr_path_ident *out, const char **why);

#endif
