/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_WIRE_H
#define DR_TRANSPORT_NCCLNET_WIRE_H

#include "base/key.h"
#include "base/nccl_net_abi.h"
#include "base/source.h"
#include "transport/path_base.h"
#include "transport/path_frame.h"

#include <sys/socket.h>

/*
 * The bytes of the nccl kind, all big endian; sans-IO. A listener of a plugin gives one comm, so an end that dials asks the
 * peer's rail for the handle of a new one: on a TCP connection of its own it sends a HELLO, and gets a reply. The first
 * message on each comm is the same HELLO. Control messages then hold whole frames (path_frame.h)
 * other than DATA. Data messages are the parts themselves, without a header.
 *
 * Parsers accept any bytes: 0, or -EPROTO and the reason in *why, which may be NULL.
 */
enum {
	NN_NONCE_LEN = 8,
	NN_SETTINGS = 4,
	NN_RAIL_HANDLE_LEN = 36 + 4 * NN_SETTINGS,
	NN_HELLO_PLAIN = 16, /* in front of the MAC */
	NN_HELLO_LEN = NN_HELLO_PLAIN + DR_MAC_LEN,
	NN_REPLY_LEN = NCCL_NET_HANDLE_BYTES + DR_MAC_LEN,
};

/* Where a rail is asked for handles, and a nonce that its HELLOs and those to it are bound to. */
struct nn_rail_handle {
	uint16_t plugin; /* hash of the plugin's name: both ends need the same plugin */
	uint8_t nonce[NN_NONCE_LEN];
	struct sockaddr_storage at;    /* TCP; IPv4 or IPv6 */
	uint32_t setting[NN_SETTINGS]; /* of the plugin, that both ends must share; unpack.h */
};
/* Returns the length, or -EMSGSIZE. */
int dr_nn_rail_handle_encode(const struct nn_rail_handle *h, void *buf, size_t cap);
int dr_nn_rail_handle_parse(
	const void *buf, size_t len, struct nn_rail_handle *out, const char **why);

/* What a comm is for. */
enum nn_role { NN_CTRL, NN_DATA, NN_ROLES };
struct nn_hello {
	struct dr_path_ident id; /* of the end that dialled */
	enum nn_role role;
};
/* The MAC covers the hello, the dialler's nonce and the listener's. */
struct nn_hello_key {
	const uint8_t *key; /* DR_KEY_NCCL_HELLO */
	const uint8_t *dialler, *listener;
};
void dr_nn_hello_encode(
	const struct nn_hello *h, const struct nn_hello_key *k, uint8_t out[NN_HELLO_LEN]);
/* -EPROTO: malformed; -EPERM: the MAC is wrong. */
int dr_nn_hello_parse(const void *buf, size_t len, const struct nn_hello_key *k,
	struct nn_hello *out, const char **why);

/* The plugin's handle for the dialler that sent this HELLO. The MAC covers both and the nonces. -EPERM: it is wrong. */
void dr_nn_reply_encode(const uint8_t hello[NN_HELLO_LEN],
	const uint8_t handle[NCCL_NET_HANDLE_BYTES], const struct nn_hello_key *k,
	uint8_t out[NN_REPLY_LEN]);
int dr_nn_reply_parse(const uint8_t reply[NN_REPLY_LEN], const uint8_t hello[NN_HELLO_LEN],
	const struct nn_hello_key *k, uint8_t handle[NCCL_NET_HANDLE_BYTES]);

#endif
