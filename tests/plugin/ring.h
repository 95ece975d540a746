/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_RING_H
#define DR_TESTS_PLUGIN_RING_H

#include "tests/plugin/end.h"

/*
 * Collectives on host memory over a plugin's calls, as NCCL's proxies make them: each rank has a comm to and from each
 * other one. Every element of every result is checked. Functions return the plugin's result; after an error nothing
 * but ring_close is useful.
 */
enum { RING_BLOCKS = 4 }; /* of an all-to-all between two ranks, one grouped receive */

struct ring {
	struct end e;
	unsigned n, id;
	size_t count; /* elements of the vector, a multiple of n * RING_BLOCKS */
	void *out[RANKS_MAX], *in[RANKS_MAX];
	struct mem send[RANKS_MAX], recv[RANKS_MAX]; /* for the comms to and from that rank */
	uint64_t checked;
};

void ring_open(struct ring *g, struct rank *r, size_t bytes);
void ring_close(struct ring *g);

/* key: makes the values of this call. */
enum nccl_result ring_all_reduce(struct ring *g, uint64_t key);
enum nccl_result ring_all_to_all(struct ring *g, uint64_t key);

#endif
