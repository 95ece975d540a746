/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_REACH_H
#define DR_TOPOLOGY_REACH_H

#include "base/err.h"
#include "topology/netdev.h"

/*
 * Why does a peer's address not answer to a NIC of this host? Tells it from the error, and from the
 * kernel's NICs, routes and neighbours. Causes at this host come first, then what points at a
 * firewall, then a loss on the way. Blocks only for the kernel's answers; any thread.
 */
struct dr_reach {
	const char *ifname;
	const struct sockaddr_storage *local, *peer; /* peer AF_UNSPEC: not known */
	unsigned port;				     /* at the peer; 0: not known */
	const char *ports; /* the setting of the ports that a firewall has to admit */
	int err; /* -errno of the connection; 0: what base/failure.h has, else no answer */
};
/* "CAUSE; WHAT TO DO". */
void dr_reach_describe(const struct dr_reach *r, char *buf, size_t len);

/* Two NICs of this host have addresses in one IPv4 subnet of that prefix length, and the one
 * answers ARP requests for the other's: packets may reach the wrong NIC, where they are dropped.
 * root: "" for this machine. */
bool dr_reach_flux(const char *root, const char *ifname, const struct sockaddr_storage *own,
	const struct sockaddr_storage *other, unsigned prefix);

#endif
