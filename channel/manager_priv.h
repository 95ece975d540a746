/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_PRIV_H
#define DR_CHANNEL_MANAGER_PRIV_H

#include "channel/heartbeat.h"
#include "channel/manager.h"

/* Shared by manager.c and manager_rails.c. */
struct mgr_rail {
	struct dr_manager *m;
	unsigned index;
	int ifindex;
	struct dr_rail *rail;
	struct dr_sink sink;
	enum dr_rail_state state;
	/* While the rail is suspect: the path whose kernel was asked (only compared), and what it had received. */
	const struct dr_path *asked;
	uint64_t rx_segments;
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
};

/* Rail r is down, or up again: sets its state and informs the channels that use it. */
void dr_manager_rail_down(struct dr_manager *m, unsigned r, int err, const char *why);
void dr_manager_rail_up(struct dr_manager *m, unsigned r, const char *why);
/* If a heartbeat tick is due: sends heartbeats, judges the rails, handles silence on all rails. Returns
 * the number of events of what it read before it judged. */
int dr_manager_beat(struct dr_manager *m);

#endif
