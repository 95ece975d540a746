/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_GREY_TESTKIT_H
#define DR_CHANNEL_GREY_TESTKIT_H

#include "channel/channel_priv.h"
#include "channel/flow_testkit.h"

/* Data flows, and connections over rail 0 report what a test wants. */
static struct dr_path_stats reported;
static uint64_t acked_step, segments_step, wire_step;
static unsigned n_reports;
static struct flow *silent; /* the age of its answer grows, */
static int64_t silent_ns;   /* since then */

static inline void report(struct dr_path *p, struct dr_path_stats *out)
{
	(void)p;
	n_reports++;
	reported.acked_bytes += acked_step;
	reported.rx_segments += segments_step;
	reported.acked_wire += wire_step;
	if (silent)
		reported.peer_ack_age_ns = dr_sim_world_clock(silent->p.w, 0) - silent_ns;
	*out = reported;
}

/* What the other channel's path on rail 0 reports. */
static struct dr_path_stats others;

static inline void report_others(struct dr_path *p, struct dr_path_stats *out)
{
	(void)p;
	*out = others;
}

static inline void replace_stats(struct flow *f, uint32_t id, struct dr_transport_ops *own,
	void (*stats)(struct dr_path *p, struct dr_path_stats *out))
{
	struct dr_path *p = dr_channel_path(dr_manager_channel_at(f->p.m[0], id), 0);

	*own = *p->ops;
	own->stats = stats;
	p->ops = own;
}

/* Data on rail 0 is lost, heartbeats pass. The sender's path reports `st`. */
static inline void grey_open(struct flow *f, const struct dr_path_stats *st, uint32_t passes)
{
	struct dr_sim_opts o = small_packets();
	static struct dr_transport_ops path_ops, other_ops;

	flow_open_with(f, &o, DR_DETECT_FAST, 0);
	open_channel(&f->p, 2); /* it has the same rails */
	flow_for(f, WARM_NS);
	f->stall_ns = 0;
	dr_sim_hole(f->p.w, 0, DR_SIM_NODE0, passes);
	replace_stats(f, 0, &path_ops, report);
	replace_stats(f, 2, &other_ops, report_others);
	reported = *st;
	others = (struct dr_path_stats){ .repeats = true };
	acked_step = segments_step = wire_step = 0;
	silent = NULL;
}

static const struct dr_path_stats no_answer = { .repeats = true,
	.peer_ack_age_ns = 200 * DR_NS_PER_MS,
	.rtt_ns = DR_NS_PER_MS,
	.silent_segments = 8 };

/* Meanwhile data of the other channel `id` is acknowledged. */
static inline void carry_for(struct flow *f, uint32_t id, int64_t ms)
{
	struct dr_channel *ch = dr_manager_channel_at(f->p.m[0], id);

	for (int64_t i = 0; i < ms; i++) {
		ch->carried_ns = dr_sim_world_clock(f->p.w, 0);
		flow_for(f, DR_NS_PER_MS);
	}
}

#endif
