/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_PRIV_H
#define DR_CHANNEL_MANAGER_PRIV_H

#include "channel/frame.h"
#include "channel/heartbeat.h"
#include "channel/peer.h"

#include "base/poller.h"

#include <pthread.h>
#include <stdatomic.h>

/* Shared by manager*.c and peer.c. */

/* A rail as seen from all managers. */
struct peer_rail {
	struct dr_peer *peer;
	unsigned index;
	/* The endpoint of its heartbeats; a manager without a peer: its own rail. */
	struct dr_rail *rail;
	struct dr_sink sink;
	uint32_t verdicts; /* so far, falls and rises */
	bool down;	   /* the last one */
	int err;	   /* of the last fall */
	char why[160];
	int64_t gap_ns; /* since the last full tick: the shortest of the managers' longest gaps; 0: unknown */
};

/* See peer.c. All but the atomics is protected by the lock; a peer that is not shared needs none. */
struct dr_peer {
	struct dr_hb hb;
	bool shared;
	pthread_mutex_t lock;
	_Atomic int64_t next_ns;   /* when the next tick is due */
	_Atomic uint32_t ticks;	   /* full ticks so far */
	_Atomic uint32_t verdicts; /* counts all falls and rises */
	struct peer_rail rail[DR_RAILS_MAX];
	struct dr_manager *driver, *managers;
	unsigned n_open;
	struct dr_poller *poller;
	struct dr_pollable po; /* the poller's file descriptor, in the driver's poller */
	int64_t now;
};

struct mgr_rail {
	struct dr_manager *m;
	unsigned index;
	int ifindex;
	struct dr_rail *rail;
	struct dr_sink sink;
	enum dr_rail_state state;
	/* While the rail is suspect: the kernel was asked, and what it had received on the rail's paths, and the peer's
	 * had acknowledged. */
	bool asked;
	uint64_t rx_segments, acked_wire;
};

enum { DR_NO_RAIL = DR_RAILS_MAX };
/* A channel, and all that its manager knows of it. */
struct mgr_channel {
	struct mgr_channel *next;
	struct dr_manager *m;
	struct dr_channel *ch;
	unsigned rail[DR_PATHS]; /* of its paths; DR_NO_RAIL: it has no shadow */
	int64_t due_ns;		 /* not later than its deadline; lowered by the channel */
};

struct dr_manager {
	struct dr_manager_params prm;
	struct dr_peer *peer, own_peer; /* own_peer: of this manager alone */
	struct dr_hb *hb;		/* the peer's */
	struct dr_dgram_end dgram;
	struct mgr_rail rail[DR_RAILS_MAX];
	unsigned n_open;
	struct mgr_channel *channels;
	unsigned n_channels;
	int64_t due_ns; /* the earliest of theirs, or before it */
	bool started, stalled, lost;
	/* While silent: the next look (0: no silence) and the next PROBE, the kernel's newest
	 * answer, and how long the silence was when it was seen. */
	int64_t ask_ns, probe_ns, answer_at_ns, answered_ns;
	int64_t silence_reported_ns;
	int64_t owed_ns; /* next check whether data waits too long; DR_NEVER: none is owed */
	int64_t now;
	/* Of the peer, see peer.c. */
	unsigned locks; /* how often this manager holds the lock */
	bool closing;
	int64_t lag_ns; /* it comes so long after the time of a tick; 0: it drives */
	struct dr_manager *next;
	uint32_t verdicts_seen, ticks_seen;
	struct {
		uint32_t verdicts;
		int64_t rx_ns; /* dr_peer_heard_ns at the last look of any manager */
	} seen[DR_RAILS_MAX];
	int64_t look_ns;   /* the next look is due */
	int64_t retry_ns;  /* not before, since another manager held the lock */
	int64_t rails_ns;  /* own rails are looked after then */
	int64_t ticked_ns; /* last dr_manager_tick */
	int64_t late_ns;   /* see dr_manager_late_ns */
};

/* Rail r is down (err: -errno), or alive: sets its state and informs the channels that use it. */
void dr_manager_rail(
	struct dr_manager *m, unsigned r, enum dr_rail_state st, int err, const char *why);
/* The same for all managers of the peer: it is known to be down, or carries no padded heartbeats
 * (padded). Holds the lock. */
void dr_manager_rail_fell(struct dr_manager *m, unsigned r, bool padded, int err, const char *why);
/* Takes the verdicts since the last call. Holds the lock. */
void dr_manager_take_verdicts(struct dr_manager *m);
/* If a heartbeat tick is due: sends heartbeats, judges the rails, handles silence on all rails. Returns
 * the number of events of what it read before it judged. */
int dr_manager_beat(struct dr_manager *m);
/* manager_silence.c, at a full tick: if no rail is heard, asks the peer's kernel, and informs channels and owner. */
void dr_manager_watch_silence(struct dr_manager *m);

/* manager_channels.c. */
void dr_manager_tick_channels(struct dr_manager *m);
/* Stops and frees all channels. Returns the first error of dr_channel_stop. */
int dr_manager_free_channels(struct dr_manager *m);
/* The time after which a path without progress is left, see dr_channel_params.stuck_after_ns. */
int64_t dr_manager_stuck_ns(const struct dr_manager_params *p);

/* peer.c. */
/* Opens an end of rail p->index. Fills in what is the same for all its ends in this process. */
int dr_peer_listen(const struct dr_manager_params *m, struct dr_rail_params *p,
	struct dr_rail **out, struct dr_err *e) DR_MUST_CHECK;
void dr_peer_init(struct dr_peer *p, const struct dr_manager_params *m, unsigned gpu);
void dr_peer_join(struct dr_manager *m);
void dr_peer_leave(struct dr_manager *m);
/* May be nested. try: false: another manager holds it. */
void dr_peer_lock(struct dr_manager *m);
bool dr_peer_try_lock(struct dr_manager *m);
void dr_peer_unlock(struct dr_manager *m);
/* The latest time for this manager's next look. */
int64_t dr_peer_due(const struct dr_manager *m);
/* A full tick was executed since this manager's last look, or a verdict is new: it looks when it is awake. */
bool dr_peer_news(const struct dr_manager *m);
/* When the manager last read bytes on one of its paths on the rail, and sent some; 0: never. Of any manager of the peer,
 * while the lock is held. */
static inline int64_t dr_peer_heard_ns(const struct dr_manager *m, unsigned rail)
{
	return atomic_load_explicit(&m->rail[rail].rail->rx_last_ns, memory_order_relaxed);
}
static inline int64_t dr_peer_sent_ns(const struct dr_manager *m, unsigned rail)
{
	return atomic_load_explicit(&m->rail[rail].rail->tx_last_ns, memory_order_relaxed);
}
/* The rest: while the lock is held. */
void dr_peer_fell(struct dr_peer *p, unsigned r, int err, const char *why);
void dr_peer_rose(struct dr_peer *p, unsigned r);
/* Reads the heartbeats that have arrived on these rails. Returns the number of events. */
int dr_peer_read(struct dr_manager *m, uint32_t rails);
/* The manager has looked, and the tick had this result. True: a full tick was executed since its last look. */
bool dr_peer_looked(struct dr_manager *m, const struct dr_hb_out *out);

#endif
