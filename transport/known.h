/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_KNOWN_H
#define DR_TRANSPORT_KNOWN_H

#include "transport/path.h"

/*
 * Addresses at which a peer without key has shown itself. Such a peer names addresses at will, and
 * could have this end send its heartbeats to a third host. A connection shows that it receives at
 * an address; the kinds say which. Until then a rail sends no more than came, in bytes (tcp) or in
 * datagrams of its own (verbs), and no padded ones. That is enough for paths to connect, and gives
 * a sender with a forged address nothing that it could not send itself.
 *
 * Heartbeats have a rail end of their own, without connections. So what a path has shown holds for
 * all rail ends of the process with the same token. Any thread. The last 64 addresses are kept: a
 * server has one session at a time.
 */
struct dr_known {
	uint8_t token[DR_TOKEN_LEN], at[18], len; /* of at; 0: no address */
};

/* Of a rail. on: datagrams that leave are limited to those that came. */
struct dr_known_limit {
	bool on;
	uint64_t heard, answered;
	struct dr_known peer;
};

void dr_known_add(const struct dr_known *k);
/* May a datagram of this amount, in the unit of `heard`, leave to the peer? The limit ends when the
 * peer's address is known. */
bool dr_known_may_send(struct dr_known_limit *l, size_t amount, bool padded);

#endif
