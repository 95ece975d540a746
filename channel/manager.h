/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_H
#define DR_CHANNEL_MANAGER_H

#include "channel/channel.h"

/*
 * ChannelManager: everything one GPU's worker has: its ends of the rails, their heartbeats, its
 * channels. One thread; no locks. The owner's loop is
 *
 *	for (;;) {
 *		dr_poller_wait(poller, min(dr_manager_deadline(m) - now, own timers));
 *		post, test, consume;
 *		dr_manager_tick(m, dr_now_ns());
 *		if nothing was done: dr_manager_idle(m, dr_now_ns());
 *	}
 *
 * Replies come before the tick, so that acknowledgements never stand in their way.
 */
enum { DR_RAILS_MAX = 16, DR_CHANNELS_MAX = 64 };

enum dr_detect { DR_DETECT_FAST, DR_DETECT_CONSERVATIVE };

struct dr_manager_rail {
	const char *ifname; /* may be NULL */
	struct sockaddr_storage local;
	int ifindex; /* for link events; 0: none */
};

struct dr_manager_channel {
	unsigned primary, shadow; /* rail numbers; equal: no shadow */
	bool sender;		  /* of this end */
};

struct dr_manager;

/* Rail verdict, for logs and the result document. */
enum dr_rail_state { DR_RAIL_ALIVE, DR_RAIL_SUSPECT, DR_RAIL_DOWN };

struct dr_manager_ops {
	struct dr_channel_ops channel; /* arg is dr_manager_params.arg */
	void (*rail)(
		void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now_ns);
	/* Every rail is silent. stalled: the peer's kernel still acknowledges, so only its process
	 * stands still and the run waits; false: nothing acknowledges, the channels fail now. */
	void (*silence)(void *arg, bool stalled, int64_t silent_ns, int64_t now_ns);
};

/* What the ChannelManagers of a session tell each other about the rails. A rail is a pair of NICs:
 * what one worker hears, all know, so that one whose own few datagrams were lost is not misled; and
 * what one has found dead, all leave at once. Relaxed: only freshness counts. */
struct dr_rail_life {
	_Atomic int64_t heard_ns[DR_RAILS_MAX]; /* last sign of life, monotonic */
	_Atomic uint32_t falls[DR_RAILS_MAX];	/* grows whenever a worker finds the rail silent */
};

struct dr_manager_params {
	const struct dr_transport_ops *transport;
	unsigned gpu;
	unsigned n_rails, n_channels;
	struct dr_manager_rail rail[DR_RAILS_MAX];
	struct dr_manager_channel channel[DR_CHANNELS_MAX];
	bool connector; /* the client dials */
	uint8_t token[DR_TOKEN_LEN];
	unsigned window;
	int64_t heartbeat_ns;
	enum dr_detect detect;
	bool failback;
	int64_t hold_down_ns;
	int64_t lost_after_ns; /* nothing acknowledged on any rail: both are lost; 0: 1.5 s */
	/* When the NIC gives up on its own, DR_NEVER: it does not; 0: a kind whose retransmission is
	 * the kernel's. Conservative detection waits twice that. */
	int64_t hw_window_ns;
	int64_t hw_retry_ns; /* between two of them: a lost last packet takes so long; 0: the kernel's */
	uint16_t port_min, port_max;
	int sockbuf, dscp;
	struct dr_poller *poller;  /* NULL in the simulator: dr_manager_tick then drives all I/O */
	struct dr_rail_life *life; /* shared by the managers of a session; NULL: on its own */
	const struct dr_manager_ops *ops;
	void *arg;
	void *kind_params; /* of the rails' kind, see dr_rail_params */
};

/* Opens the rails (listening) and makes the channels. */
int dr_manager_create(const struct dr_manager_params *p, struct dr_manager **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Handles for the bootstrap: one a rail, then one a channel. */
unsigned dr_manager_handle_count(const struct dr_manager *m);
int dr_manager_handle(struct dr_manager *m, unsigned i, void *buf, size_t cap);
/* All of the peer's handles, same count; starts the heartbeats and every channel. -EPROTO for bytes
 * that make no sense. */
int dr_manager_start(struct dr_manager *m, const uint8_t (*handles)[DR_HANDLE_MAX],
	const uint16_t *lens, unsigned n, int64_t now_ns, struct dr_err *e) DR_MUST_CHECK;
/* 1 all channels carry data, 0 not yet, -errno. */
int dr_manager_ready(const struct dr_manager *m);
struct dr_channel *dr_manager_channel_at(struct dr_manager *m, unsigned i);
unsigned dr_manager_n_channels(const struct dr_manager *m);
/* Timers, heartbeats, verdicts; without a poller all I/O too. Returns the number of events. */
int dr_manager_tick(struct dr_manager *m, int64_t now_ns);
int64_t dr_manager_deadline(const struct dr_manager *m);
/* The owner has nothing to do: what the channels held back goes out. False: there was nothing. */
bool dr_manager_idle(struct dr_manager *m, int64_t now_ns);
/* The kernel says that device's link went down or up (netlink). */
void dr_manager_link(struct dr_manager *m, int ifindex, bool up, int64_t now_ns);
/* The bound of detection in ns that these parameters give, printed with every failover result. */
int64_t dr_manager_detect_bound(const struct dr_manager_params *p);
/* Heartbeats sent and received, for the cost-by-counts benchmark. */
void dr_manager_heartbeats(const struct dr_manager *m, uint64_t *sent, uint64_t *received);
enum dr_rail_state dr_manager_rail_state(const struct dr_manager *m, unsigned rail);

void dr_manager_close(struct dr_manager *m);
/* Waits until nothing can touch a buffer any more, then frees all. */
void dr_manager_destroy(struct dr_manager *m);

#endif
