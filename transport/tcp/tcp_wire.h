/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_WIRE_H
#define DR_TRANSPORT_TCP_WIRE_H

#include "base/key.h"
#include "transport/path_base.h"
#include "transport/path_frame.h"

/*
 * The bytes of the TCP kind, all big endian; sans-IO. A connection:
 *
 *   acceptor -> connector   CHALLENGE magic, version, 0, nonce
 *   connector -> acceptor   HELLO     magic, version, index, flags, channel, gen, nonce, MAC
 *   acceptor -> connector   HELLO_OK  magic, version, 0, gen, MAC
 *   then both ways          frames    see path_frame.h
 *
 * or bytes TCP_ASK from either end's host, see tcp_ask.c.
 *
 * tcp_hs.c states what the MACs cover.
 *
 * Parsers accept any bytes: 0, or -EPROTO and the reason in *why.
 */
enum {
	TCP_WIRE_VERSION = 3,
	TCP_NONCE_LEN = 16,
	TCP_CHALLENGE_LEN = 8 + TCP_NONCE_LEN,
	TCP_HELLO_PLAIN = 16 + TCP_NONCE_LEN, /* in front of the MAC */
	TCP_HELLO_LEN = TCP_HELLO_PLAIN + DR_MAC_LEN,
	TCP_HELLO_OK_PLAIN = 12,
	TCP_HELLO_OK_LEN = TCP_HELLO_OK_PLAIN + DR_MAC_LEN,
	TCP_ASK = 0, /* in place of HELLO: nothing follows, the acceptor drops the connection */
};

void dr_tcp_challenge_encode(const uint8_t nonce[TCP_NONCE_LEN], uint8_t out[TCP_CHALLENGE_LEN]);
int dr_tcp_challenge_parse(
	const void *buf, size_t len, uint8_t nonce[TCP_NONCE_LEN], const char **why);

struct tcp_hello {
	uint32_t channel, gen;
	uint8_t index;
	bool sender; /* data leaves at the connector */
	uint8_t nonce[TCP_NONCE_LEN];
	uint8_t mac[DR_MAC_LEN];
};
void dr_tcp_hello_encode(const struct tcp_hello *h, uint8_t out[TCP_HELLO_LEN]);
int dr_tcp_hello_parse(const void *buf, size_t len, struct tcp_hello *out, const char **why);
/* The first bytes of a connection, TCP_HELLO_LEN at most: can they be the beginning of a HELLO? */
int dr_tcp_hello_begins(const void *buf, size_t len, const char **why);

struct tcp_hello_ok {
	uint32_t gen;
	uint8_t mac[DR_MAC_LEN];
};
void dr_tcp_hello_ok_encode(const struct tcp_hello_ok *h, uint8_t out[TCP_HELLO_OK_LEN]);
int dr_tcp_hello_ok_parse(const void *buf, size_t len, struct tcp_hello_ok *out, const char **why);

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

#endif
