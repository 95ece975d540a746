/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_ROUTE_H
#define DR_TOPOLOGY_ROUTE_H

#include "topology/netdev.h"

/* Over which device and between which addresses the control connection runs, as seen from here. */
struct dr_route {
	struct sockaddr_storage local, peer; /* ports are meaningless */
	char ifname[IFNAMSIZ];
	bool same_host; /* the peer's address is one of this host's (this namespace's) */
	bool reserved; /* set by the caller: its NIC is no automatic rail, e.g. because faults are planned */
};

/* peer: "192.0.2.7:51234", "[2001:db8::1]:51234", or without port. -EINVAL, -ENETUNREACH. */
int dr_route_to(const char *peer, struct dr_route *out, struct dr_err *e) DR_MUST_CHECK;
/*
 * The same for a host name, first address that has a route. n_from > 0: the connection is bound to the first of these
 * local addresses of its family. -ENXIO: does not resolve, -EHOSTDOWN: not now, as no name server
 * answers, -EADDRNOTAVAIL: no address of a family of `from`.
 */
int dr_route_to_host(const char *host, const struct sockaddr_storage *from, unsigned n_from,
	struct dr_route *out, struct dr_err *e) DR_MUST_CHECK;
/* The connection is bound to the first of these local addresses that has the peer's family, any
 * without a peer. False: none has. */
bool dr_route_bind(struct dr_route *route, const struct sockaddr_storage *from, unsigned n_from);
/* How automatic rails are chosen beside this control connection, without the devices. */
struct dr_netdev_choice dr_route_choice(const struct dr_route *route);
/*
 * What this end offers (dr_netdev_rails): list is --rails, NULL: automatic. Both ends on one host:
 * 127.0.0.1 and
 * 127.0.0.2 over lo, since devices of one host do not reach each other. Their routes are filled in.
 * Returns the count.
 */
int dr_route_rails(const char *list, const struct dr_route *route, struct dr_netdev_rail *out,
	unsigned cap, struct dr_err *e) DR_MUST_CHECK;

#endif
