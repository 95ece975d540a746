/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_NIC_LIST_H
#define DR_TOPOLOGY_NIC_LIST_H

#include "topology/netdev.h"

/*
 * Pairs of NICs of two nodes: the one decision for client, server, plugin and library. Pure
 * functions: no I/O, no clock, no state; any thread.
 *
 * A list has an entry for each address, those of a NIC in a row. Two NICs form a DIRECT pair when
 * one of the addresses of each share a subnet (by the longer of both prefixes). Otherwise they
 * form a ROUTED pair when each end has a route to the other's address through this NIC, because
 * sockets and queue pairs are bound to their NIC. Unknown routes are assumed to exist.
 *
 * An address that both ends have joins nothing, unless the user names the NICs, or one list is
 * part of the other: then both processes are on one host.
 */
enum { DR_NICS_MAX = 256 }; /* addresses of one end in dr_nic_pair_up */

struct dr_nic {
	struct dr_prefix addr; /* with the bits of its subnet */
	uint8_t nic;	       /* the owner's number of the NIC: its addresses have the same */
	uint8_t rank;	       /* enum dr_nic_rank */
	bool named;	       /* by the user: it must take part */
	const struct dr_routes *routes; /* of its end; NULL: not known */
};
/* The entry of an address; one that is no address has the rank DR_NIC_NONE. */
void dr_nic_set(struct dr_nic *out, const struct sockaddr_storage *addr, unsigned prefix,
	unsigned nic, unsigned rank);

/* The list in an offer of plugin or library: [["10.0.0.1/24", nic, rank]...] without routes; NULL:
 * no memory. Back, into out[DR_NICS_MAX]: returns the count, > 0. Any JSON is safe: -EPROTO. */
struct json_t *dr_nics_to_json(const struct dr_nic *nic, unsigned n);
int dr_nics_from_json(const struct json_t *j, struct dr_nic *out, struct dr_err *e) DR_MUST_CHECK;

struct dr_nic_pair {
	unsigned a, b; /* positions in the two lists */
	bool routed;
};

/*
 * Pair list a with list b, each NIC at most once, with as many direct pairs as possible. out has
 * room for DR_NICS_MAX pairs. Returns their number, in the order of a's NICs.
 *
 * Where the user named NICs of a: a partner for every one of them, if that can be: direct where
 * possible, else routed. Otherwise: every direct pair of NICs of rank DR_NIC_RAIL, and a routed
 * one beside a single direct one. Where there is none: of any rank; then routed ones, in the same
 * order. NICs may be left over.
 *
 * A management NIC of b counts as a rail where the only NIC of a in its subnet is one, so that
 * both ends agree; one of a where the user named NICs of b.
 *
 * Where a NIC has several possible partners, earlier entries of the lists are paired first;
 * otherwise the order of the lists does not matter.
 */
unsigned dr_nic_pair_up(const struct dr_nic *a, unsigned n_a, const struct dr_nic *b, unsigned n_b,
	struct dr_nic_pair *out);
bool dr_nic_same_subnet(const struct dr_nic *a, const struct dr_nic *b);

#endif
