/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NIC_LIST_H
#define DR_TOPOLOGY_NIC_LIST_H

#include "topology/netdev.h"

/*
 * Pairs of NICs of two nodes. Pure functions: no I/O, no clock, no state; any thread.
 *
 * Two NICs form a DIRECT pair when they share a subnet (by the longer of both prefixes). Otherwise they form a ROUTED
 * pair when each end has a route to the other's address through this NIC, because sockets and queue pairs are bound
 * to their NIC. Unknown routes are assumed to exist.
 */
enum { DR_NICS_MAX = 16 }; /* of one end in dr_nic_pair_up */

struct dr_nic {
	struct dr_prefix addr; /* its address, with the bits of its subnet */
	uint16_t number;       /* the owner's number of it */
	bool spare;	       /* used only where no other pair exists, e.g. the control NIC */
	const struct dr_routes *routes; /* of its end; NULL: not known */
};

struct dr_nic_pair {
	unsigned a, b; /* positions in the two lists */
	bool routed;
};

enum dr_nic_want {
	/* Every direct pair; a routed one beside a single direct one; routed ones alone where no subnet
	 * is shared. NICs may be left over. */
	DR_NIC_WANT_AUTO,
	/* A partner for every NIC of list a, if that can be: direct where possible, else routed. */
	DR_NIC_WANT_ALL,
};

/*
 * Pair list a with list b, each NIC at most once, with as many direct pairs as possible. out has room for the smaller
 * count. Returns the number of pairs, in a's order. Where a NIC has several possible partners (several NICs of both
 * ends in one subnet), earlier list entries are paired first; otherwise the order of the lists does not matter.
 */
unsigned dr_nic_pair_up(const struct dr_nic *a, unsigned n_a, const struct dr_nic *b, unsigned n_b,
	enum dr_nic_want want, struct dr_nic_pair *out);
bool dr_nic_same_subnet(const struct dr_nic *a, const struct dr_nic *b);

#endif
