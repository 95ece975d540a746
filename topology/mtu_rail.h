/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_MTU_RAIL_H
#define DR_TOPOLOGY_MTU_RAIL_H

#include "base/err.h"
#include "base/poller.h"
#include "topology/mtu_search.h"

#include <net/if.h>
#include <sys/socket.h>

/*
 * One end of a rail in the test of mtu_search.h: a UDP socket of its own, bound to the rail's device. It is apart
 * from heartbeats and data, so that the test is the same for every transport kind. One thread, non-blocking.
 *
 * Peers name addresses at will. No datagram leaves, and none is read, before a TCP connection
 * between the two addresses has carried a datagram of the client and the server's answer, both
 * with their MACs. The client connects to the port of the server's datagrams. So each end has
 * the token and receives at its address: TCP passes in both directions.
 */
struct dr_mtu_rail {
	struct dr_pollable po;	  /* datagrams; fd -1: not open */
	struct dr_pollable link;  /* the connection, at the server its listener; fd -1: closed */
	struct dr_poller *poller; /* NULL: not started */
	struct dr_mtu_search search;
	char ifname[IFNAMSIZ];
	struct sockaddr_storage local, peer;
	bool v6;
	bool dialled; /* the client's connection was accepted */
	bool proven;  /* the peer has answered over it */
	unsigned scope;
	int64_t until_ns; /* proven by then */
	int err;	  /* the client found no server there: -errno */
};

enum { DR_MTU_HEADERS4 = 28, DR_MTU_HEADERS6 = 48 }; /* IP and UDP */

/* Opens the sockets: on that device with that address (its port is ignored), on a port of the
 * range (0, 0: any). Returns the port, or -errno; then r is closed. listens: the server's end. */
int dr_mtu_rail_open(struct dr_mtu_rail *r, const char *ifname,
	const struct sockaddr_storage *local, uint16_t port_min, uint16_t port_max, bool listens);
/* The peer's end is known: the test begins once it has proven itself, and is over without a result
 * when it does not in 5 s, or there is no route to it (err). p: header_bytes is set here, and
 * full_bytes may be any value; connector: this end did not listen. */
int dr_mtu_rail_start(struct dr_mtu_rail *r, struct dr_poller *poller,
	const struct sockaddr_storage *peer, uint16_t port, const struct dr_mtu_params *p,
	int64_t now);
/* To be called when it is due; DR_NEVER when nothing is left to do. Answers are sent until it is closed. */
int64_t dr_mtu_rail_deadline(const struct dr_mtu_rail *r);
void dr_mtu_rail_tick(struct dr_mtu_rail *r, int64_t now);
/* Allowed when it is not open, if it is zeroed or was closed before. */
void dr_mtu_rail_close(struct dr_mtu_rail *r);

#endif
