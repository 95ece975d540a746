/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NIC_LIST_H
#define DR_TOPOLOGY_NIC_LIST_H

#include "topology/netdev.h"

/*
 * Pairs of NICs of two nodes, and the encoding of a NIC list. Pure functions: no I/O, no clock, no state; any thread.
 *
 * Two NICs form a DIRECT pair when they share a subnet (by the longer of both prefixes). Otherwise they form a ROUTED
 * pair when each end has a route to the other's address through this NIC, because sockets and queue pairs are bound
 * to their NIC. Unknown routes are assumed to exist.
 */
enum {
	DR_NICS_MAX = 16,	   /* of one end in dr_nic_pair_up */
	DR_NIC_HANDLE_MAX = 6,	   /* NICs in a handle */
	DR_NIC_HANDLE_BYTES = 128, /* six with IPv6 addresses take 122 */
};

struct dr_nic {
	struct dr_prefix addr; /* its address, with the bits of its subnet */
	uint16_t number;       /* the owner's number of it; encoded */
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

/*
 * A list of NICs as bytes, for a connection handle: u8 version 1, u8 n (1..6), n x {u8 4 or 6, u8 prefix
 * bits, u16 number, 4 or 16 bytes of address}; big endian. Routes and spare do not travel. Writes as many
 * as fit in cap, from the first on; returns the length, *taken: how many. -EMSGSIZE: not even one.
 */
int dr_nic_list_encode(const struct dr_nic *nics, unsigned n, void *buf, size_t cap,
	unsigned *taken) DR_MUST_CHECK;
/* Bytes of a peer. out has room for DR_NIC_HANDLE_MAX; returns how many. -EPROTO: not of that form, an
 * address that no NIC can have (unspecified, multicast, broadcast), or one that is there twice. */
int dr_nic_list_decode(const void *data, size_t len, struct dr_nic *out, struct dr_err *e)
	DR_MUST_CHECK;

#endif
