/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_LOCALITY_H
#define DR_TOPOLOGY_LOCALITY_H

#include "base/defs.h"
#include "base/err.h"

#include <stdbool.h>

/*
 * Assignment of NICs to GPUs: a pure function of distances. No I/O and no pointers, so that one end can send its
 * numbers to the other and both compute the same map.
 */
enum { DR_LOCALITY_GPUS_MAX = 64, DR_LOCALITY_NICS_MAX = 64 };

/* Lowest common level of a GPU and a NIC, nearest first. */
enum dr_locality_level {
	DR_LOCALITY_SWITCH,  /* at a PCI switch: a bridge below a root port */
	DR_LOCALITY_ROOT,    /* at a root port or a host bridge */
	DR_LOCALITY_NODE,    /* in one NUMA node */
	DR_LOCALITY_SYSTEM,  /* in different NUMA nodes */
	DR_LOCALITY_UNKNOWN, /* the place of one of them is unknown */
};
/* A distance: the level, then for switches the number of bridges between (0..15). Smaller is nearer. */
#define DR_DISTANCE(level, bridges) ((uint8_t)((level) << 4 | DR_MIN((bridges), 15u)))
enum { DR_DISTANCE_UNKNOWN = DR_LOCALITY_UNKNOWN << 4 };

/* One end. Two NICs share a port, card or switch when their numbers are equal; 0: unknown, shared with none.
 * `order` does not depend on the order of the input: rank by bus id, then name. */
struct dr_locality {
	unsigned n_gpus, n_nics;
	struct dr_locality_gpu {
		uint16_t order;
		uint8_t distance[DR_LOCALITY_NICS_MAX];
	} gpu[DR_LOCALITY_GPUS_MAX];
	struct dr_locality_nic {
		uint16_t order;
		uint16_t port;	 /* physical port: functions and VFs of one have the same */
		uint16_t card;	 /* physical device: the ports of one card have the same */
		uint16_t branch; /* PCI switch that it hangs from */
		bool spare;	 /* a shadow only, and the last choice: e.g. a routed rail */
	} nic[DR_LOCALITY_NICS_MAX];
};

struct dr_locality_pair {
	uint8_t primary, shadow; /* NICs; equal: no shadow */
};
struct dr_locality_choice {
	unsigned n; /* pairs, >= 1; channels take them in turn */
	struct dr_locality_pair pair[DR_LOCALITY_NICS_MAX];
	uint8_t shadow[DR_LOCALITY_NICS_MAX]; /* of each NIC, were it the primary */
	uint8_t distance;		      /* to the primaries */
	uint8_t n_nearest;		      /* NICs at that distance */
};

/*
 * The map of n_gpus GPUs (the first ones of the ends) over n_nics rails. A rail is a NIC at each end,
 * so a GPU's distance to it is the larger of those known at both ends, and two rails share a port,
 * card or switch when they do at either. b: NULL when one end alone is known.
 *
 * Primaries: all NICs at a GPU's minimum distance. GPUs with the same set of them share it evenly, in
 * `order`: of 4 GPUs and 2 NICs the first two get the first NIC; of 2 GPUs and 4 NICs each gets two.
 * Shadow: never on the primary's port; then by preference: no spare, on another PCI switch, near the
 * GPU, on another card, shadow of few so far, mutual, next in order.
 *
 * False, and nothing written, when no distance is known at all.
 */
bool dr_locality_choose(const struct dr_locality *a, const struct dr_locality *b, unsigned n_gpus,
	unsigned n_nics, struct dr_locality_choice *out);

/* out is l with the NICs nic[0..n), in that order; one may be there twice. out is not l. */
void dr_locality_select(
	const struct dr_locality *l, const uint8_t *nic, unsigned n, struct dr_locality *out);

/* {"gpus": [[order, distance...]...], "nics": [[order, port, card, branch]...]} and back. NULL: no memory.
 * Any JSON is safe: -EPROTO. */
struct json_t *dr_locality_to_json(const struct dr_locality *l);
int dr_locality_from_json(struct dr_locality *l, const struct json_t *j, struct dr_err *e)
	DR_MUST_CHECK;

/* "same PCI switch", "same root", "same NUMA node", "other NUMA node", "unknown". */
const char *dr_locality_text(uint8_t distance);

#endif
