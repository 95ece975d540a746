/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_RATES_H
#define DR_ORCHESTRATOR_RATES_H

#include "detect/rate.h"
#include "orchestrator/engine/worker.h"

/*
 * What the rails of one GPU carry: samples of its sending channels, for the judge that all GPUs of
 * the process share (detect/rate.h). One thread.
 */
struct dr_rates {
	struct dr_rail_rates *judge; /* NULL: nothing is sampled */
	int64_t sampled_ns;
	int64_t waited_ns[DR_RAILS_MAX]; /* data has waited on the rail since then; DR_NEVER */
	struct dr_rate_flow {		 /* a channel at the last sample */
		struct dr_path *path; /* only to compare, it may be gone; NULL: it sent nothing */
		uint64_t acked, unacked;
		int64_t held_ns, busy_ns;
	} flow[DR_GPU_CHANNELS_MAX];
};

void dr_rates_init(struct dr_rates *r, struct dr_rail_rates *judge);
static inline bool dr_rates_due(const struct dr_rates *r, int64_t now_ns)
{
	return r->judge && now_ns - r->sampled_ns >= DR_RATE_SAMPLE_NS;
}
/* What this channel sends from now on has another connection. */
static inline void dr_rates_switched(struct dr_rates *r, unsigned channel)
{
	r->flow[channel].path = NULL;
}
/* When it is due. channel: those of the GPU, each time in the same order. Returns the rails (bits)
 * whose verdict has changed. */
uint32_t dr_rates_sample(
	struct dr_rates *r, struct dr_channel *const *channel, unsigned n, int64_t now_ns);

#endif
