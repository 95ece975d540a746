/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_PMTU_H
#define DR_TOPOLOGY_PMTU_H

#include "topology/netdev.h"

/* Do packets of the rail's MTU arrive at the other end? */
enum { DR_PMTU_PORT = 33434, DR_PMTU_HEADERS4 = 28 }; /* headers: IPv4 and UDP */

enum dr_pmtu_what {
	DR_PMTU_ARRIVES, /* a packet of the size of the MTU was answered */
	DR_PMTU_SMALLER, /* a router or this kernel reports that it is too large; bytes: the limit */
	DR_PMTU_VANISHES, /* a small packet was answered, a large one was not */
	DR_PMTU_SILENT,	  /* neither was answered, e.g. because of a firewall */
	DR_PMTU_ERROR,	  /* could not be sent; err */
};
struct dr_pmtu {
	enum dr_pmtu_what what;
	unsigned bytes;
	int err;
};
/*
 * Sends datagrams with fragmentation disabled from the rail's NIC to an unused port, the first one of
 * traceroute: the peer's kernel answers "port unreachable". The large datagram fits into the MTU of both ends, as
 * TCP segments do; if it is lost, the cause is between them. peer_mtu: 0 if unknown. Blocks for at most 3 s.
 */
void dr_pmtu_probe(const struct dr_netdev_rail *rail, const struct sockaddr *peer,
	unsigned peer_mtu, struct dr_pmtu *out);

#endif
