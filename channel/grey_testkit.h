/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_GREY_TESTKIT_H
#define DR_CHANNEL_GREY_TESTKIT_H

#include "channel/flow_testkit.h"

/* Data flows, and connections over rail 0 report what a test wants. */
static struct dr_path_stats reported;
static uint64_t acked_step, segments_step, rx_step, wire_step;
static unsigned n_reports;
static struct flow *silent; /* the age of its answer grows, */
static int64_t silent_ns;   /* since then */

static inline void report(struct dr_path *p, struct dr_path_stats *out)
{
	(void)p;
	n_reports++;
	reported.acked_bytes += acked_step;
	reported.rx_segments += segments_step;
	reported.rx_wire += rx_step;
	reported.acked_wire += wire_step;
	if (silent)
		reported.peer_ack_age_ns = dr_sim_world_clock(silent->p.w, 0) - silent_ns;
	*out = reported;
}

/* Data on rail 0 is lost, heartbeats pass. The sender's path reports `st`. */
static inline void grey_open(struct flow *f, const struct dr_path_stats *st, uint32_t passes)
{
	struct dr_sim_opts o = small_packets();
	static struct dr_transport_ops path_ops;
	struct dr_path *p;

	flow_open(f, &o, WARM_NS);
	dr_sim_hole(f->p.w, 0, DR_SIM_NODE0, passes);
	p = dr_channel_path(dr_manager_channel_at(f->p.m[0], 0), 0);
	path_ops = *p->ops;
	path_ops.stats = report;
	p->ops = &path_ops;
	reported = *st;
	acked_step = segments_step = rx_step = wire_step = 0;
	silent = NULL;
}

static const struct dr_path_stats no_answer = { .repeats = true,
	.peer_ack_age_ns = 200 * DR_NS_PER_MS,
	.rtt_ns = DR_NS_PER_MS,
	.silent_segments = 8 };

/* What another channel's connection over rail 0 reports. */
static struct dr_path_stats other;
static uint64_t other_step;
static bool
	others_silent; /* the age of its answer grows with the first one's; else it has just been answered */

static inline void report_other(struct dr_path *p, struct dr_path_stats *out)
{
	(void)p;
	other.acked_bytes += other_step;
	if (silent)
		other.peer_ack_age_ns = others_silent ? other.peer_ack_age_ns + BEAT_NS : 0;
	*out = other;
}

/* As grey_open. Another connection over the rail reports `st`, and progress of `step` bytes in each look. */
static inline void crowd_open(struct flow *f, const struct dr_path_stats *own,
	const struct dr_path_stats *st, uint64_t step)
{
	static struct dr_transport_ops path_ops;
	struct dr_path *p;

	grey_open(f, own, 200);
	p = dr_channel_path(dr_manager_channel_at(f->p.m[0], 1), 1);
	assert_int_equal(p->rail->index, 0);
	path_ops = *p->ops;
	path_ops.stats = report_other;
	p->ops = &path_ops;
	other = *st;
	other_step = step;
	others_silent = true;
}

#endif
