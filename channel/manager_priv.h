/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_PRIV_H
#define DR_CHANNEL_MANAGER_PRIV_H

#include "channel/heartbeat.h"
#include "channel/manager.h"
#include "channel/rate.h"

_Static_assert((int)DR_SILENCES == (int)DR_HB_HISTOGRAM, "one histogram");

/* Shared by manager.c and manager_rails.c. */
struct mgr_rail {
	struct dr_manager *m;
	unsigned index;
	int ifindex;
	struct dr_rail *rail;
	struct dr_sink sink;
	enum dr_rail_state state;
	/* While the rail is suspect: the kernel was asked, and what it had received on the rail's paths. */
	bool asked;
	uint64_t rx_segments;
	/* Last look for congestion, and what was acknowledged on the rail's paths then, and received by receivers;
	 * until when the rail counts as congested. */
	int64_t looked_ns, congested_ns;
	uint64_t moved_bytes;
};

/* A sending channel at the last sample of the rates. */
struct mgr_flow {
	bool known; /* the transport was asked: */
	unsigned path;
	uint32_t gen;
	uint64_t acked, unacked;
	int64_t held_ns, busy_ns, at_ns;
	uint64_t done; /* bytes that the peer acknowledged */
};

struct dr_manager {
	struct dr_manager_params prm;
	struct dr_hb hb;
	struct mgr_rail rail[DR_RAILS_MAX];
	unsigned n_open;
	struct dr_channel *channel[DR_CHANNELS_MAX];
	struct dr_channel_ops
		ops; /* own callbacks, which forward to the owner's; arg is the manager */
	bool started, stalled, lost;
	int64_t probe_ns; /* next probe while silent */
	int64_t silence_reported_ns;
	uint32_t falls_seen[DR_RAILS_MAX]; /* last values of the shared counters */
	int64_t life_ns;		   /* when the paths were last checked for signs of life */
	int64_t owed_ns; /* next check whether data waits too long; DR_NEVER: none is owed */
	int64_t due_ns;	 /* earliest tick that a channel needs; lowered by the channels */
	int64_t now;
	/* manager_rates.c. waited_ns: data has waited on the rail since then; DR_NEVER. */
	struct dr_rail_rates *rates, own_rates;
	struct mgr_flow flow[DR_CHANNELS_MAX];
	struct dr_rate_reports reports[DR_RAILS_MAX];
	int64_t waited_ns[DR_RAILS_MAX];
	int64_t sampled_ns;
	struct {
		bool on;
		unsigned c, path, rail; /* the channel and the path that carry the filler */
		uint32_t gen;
		uint64_t base; /* filler of the connection that was acknowledged before */
		int64_t next_ns;
		struct dr_rate_probe p;
	} probe; /* of a rail's rate */
};

/* Rail r is down, or up again: sets its state and informs the channels that use it. */
void dr_manager_rail_down(struct dr_manager *m, unsigned r, int err, const char *why);
void dr_manager_rail_up(struct dr_manager *m, unsigned r, const char *why);
/* If a heartbeat tick is due: sends heartbeats, judges the rails, handles silence on all rails. Returns
 * the number of events of what it read before it judged. */
int dr_manager_beat(struct dr_manager *m);
/* Goes on with the probe of a rail's rate, at m->probe.next_ns; at its end answers the channels that ask. */
void dr_manager_probe(struct dr_manager *m);
/* Samples the rates of the rails, if it is time. */
void dr_manager_rates(struct dr_manager *m);

#endif
