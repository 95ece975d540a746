/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_RUN_H
#define DR_ORCHESTRATOR_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* What the options ask a run to do: the poll policy and the phases. */
enum { DR_GPU_CHANNELS_MAX = 64 }; /* of a GPU in a run */

enum dr_poll_policy { DR_POLL_ADAPTIVE, DR_POLL_BUSY };

enum dr_phase_kind { DR_PHASE_BW, DR_PHASE_LAT, DR_PHASE_FAILOVER };

/* One phase, the same at both ends. Each end runs the roles that its channels' directions give it. */
struct dr_phase {
	unsigned index;
	enum dr_phase_kind kind;
	uint64_t message_bytes;
	uint32_t chunk_bytes; /* min(--chunk, message): unit of sequence, window, ack and gap */
	uint64_t
		iters; /* messages per channel (BW) or round trips per GPU (LAT); 0: until stopped */
	uint64_t warmup;  /* messages or round trips before those that count */
	bool verify;	  /* fill and check every byte with the pattern */
	double rate_bits; /* limit of a channel in bits per second; 0: none */
	/* Participants; 0: all. gpu_mask bit k: the GPU at position k. rail_mask bit r: the channels whose
	 * primary path is on rail r; each of those GPUs has some in each direction. rail_mask is 0 for LAT. */
	uint32_t gpu_mask, rail_mask;
};

static inline bool dr_phase_has_gpu(const struct dr_phase *p, unsigned position)
{
	return !p->gpu_mask || (position < 32 && (p->gpu_mask >> position & 1));
}

static inline bool dr_phase_has_rail(const struct dr_phase *p, unsigned rail)
{
	return !p->rail_mask || (rail < 32 && (p->rail_mask >> rail & 1));
}

#endif
