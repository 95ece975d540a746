/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_H
#define DR_CHANNEL_MANAGER_H

#include "channel/channel.h"

/*
 * ChannelManager: what a worker has for one GPU: its ends of the rails, their heartbeats, its
 * channels. Times are monotonic ns. The owner's loop: wait until dr_manager_deadline; post, test,
 * consume; dr_manager_tick; if nothing was done, dr_manager_idle.
 *
 * Threads: one at a time drives a manager and calls its functions and those of its channels. Life:
 * create; handles of the rails to the peer; start with the peer's; close, drive until closed;
 * destroy. Channels come and go between create and close: dr_manager_open_channel.
 */
enum { DR_RAILS_MAX = 16, DR_MANAGER_CHANNELS_MAX = 65536 };

enum dr_detect {
	DR_DETECT_FAST,
	DR_DETECT_CONSERVATIVE,
	/* Only errors of the transport: it moves to another NIC by itself, so that neither silence
	 * nor a link event says that a path has failed. */
	DR_DETECT_TRANSPORT,
};
/* By name, as in --detect. */
extern const char *const dr_detect_names[];

/* Neither rail answers for so long: both are lost. A job that would start anew waits longer. */
#define DR_LOST_AFTER_NS (1500 * DR_NS_PER_MS)
#define DR_LOST_AFTER_JOB_NS (4 * DR_NS_PER_S)

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
struct dr_peer;

/* State of a rail, for logs and the result document. */
enum dr_rail_state { DR_RAIL_ALIVE, DR_RAIL_SUSPECT, DR_RAIL_DOWN };

struct dr_manager_ops {
	struct dr_channel_ops channel; /* arg is dr_manager_params.arg */
	void (*rail)(
		void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now_ns);
	/* Every rail is silent for silent_ns. stalled: the peer's kernel still acknowledges, so
	 * only its process is stalled and the channels wait. false: nothing is acknowledged and the
	 * channels fail, or (silent_ns 0) the peer is heard again. */
	void (*silence)(void *arg, bool stalled, int64_t silent_ns, int64_t now_ns);
};

/* The peer was heard on the rail at least once. */
bool dr_manager_heard(const struct dr_manager *m, unsigned rail);

struct dr_manager_params {
	const struct dr_transport_ops *transport;
	unsigned gpu;
	unsigned n_rails;
	struct dr_manager_rail rail[DR_RAILS_MAX];
	bool connector;		     /* the client dials */
	uint8_t token[DR_TOKEN_LEN]; /* random, new for each pair of managers */
	unsigned window;
	int64_t heartbeat_ns;
	enum dr_detect detect;
	bool failback;
	int64_t hold_down_ns;
	/* The channels end after this time without any acknowledgement; 0: DR_LOST_AFTER_NS. */
	int64_t lost_after_ns;
	/* Time after which the NIC reports an error by itself; DR_NEVER: never; 0: the kernel
	 * retransmits. Conservative detection waits twice that, DR_DETECT_TRANSPORT always. */
	int64_t hw_window_ns;
	int64_t hw_retry_ns; /* interval of the NIC's retries: how long the loss of a last packet takes; 0: the kernel's */
	uint16_t port_min, port_max;
	int sockbuf, dscp;
	struct dr_poller *poller; /* NULL in the simulator: dr_manager_tick then drives all I/O */
	struct dr_peer *peer; /* sends the heartbeats, see channel/peer.h; NULL: the manager does */
	const struct dr_manager_ops *ops;
	void *arg;
	const void *kind_params; /* of the rails' kind, see dr_rail_params */
};

/* Opens the rails (listening). Copies p; what p points to stays the caller's and must outlive the
 * manager. -EINVAL, -ENOMEM, and the errors of the kind's listen; nothing stays open then. */
int dr_manager_create(const struct dr_manager_params *p, struct dr_manager **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Handles for the bootstrap: one per rail. */
unsigned dr_manager_handle_count(const struct dr_manager *m);
int dr_manager_handle(struct dr_manager *m, unsigned i, struct dr_handle *out);
/* Takes the handles of all of the peer's rails, as many as here; starts the heartbeats. -EPROTO: a
 * handle is malformed, or their number differs. */
int dr_manager_start(struct dr_manager *m, const struct dr_handle *h, unsigned n, int64_t now_ns,
	struct dr_err *e) DR_MUST_CHECK;
/* Opens a channel with a number that the owner chooses, the same at both ends, in any order. Its
 * handle goes to the peer; dr_channel_start, with the peer's, comes after dr_manager_start. Not in
 * a callback of the manager or of a channel. Once removed, a number must not be used again with
 * this peer's manager: a datagram or a dial of the old channel may still arrive. -EEXIST: the
 * number is in use; -EINVAL: spec names a rail that is not there; -ENOSPC: DR_MANAGER_CHANNELS_MAX
 * channels; -ESHUTDOWN: after dr_manager_close; -ENOMEM; and the errors of the kind's create. It is
 * told at once of rails that are down. */
int dr_manager_open_channel(struct dr_manager *m, uint32_t id,
	const struct dr_manager_channel *spec, struct dr_channel **out, struct dr_err *e)
	DR_MUST_CHECK;
/* After dr_channel_closed, else -EBUSY and nothing was done. Waits until nothing can access a
 * buffer any more, and frees the channel. Other channels go on. Another error: the channel is gone,
 * but a connection could not be destroyed, see dr_channel_stop. */
int dr_manager_remove_channel(struct dr_manager *m, struct dr_channel *ch, struct dr_err *e)
	DR_MUST_CHECK;
/* The channel with this number; NULL: there is none. */
struct dr_channel *dr_manager_channel_at(struct dr_manager *m, uint32_t id);
/* 1 all channels carry data, or there are none; 0 not yet, -errno. */
int dr_manager_ready(const struct dr_manager *m);
/* Timers, heartbeats, rail states; without a poller all I/O too. Returns the number of events. */
int dr_manager_tick(struct dr_manager *m, int64_t now_ns);
/* Latest time for the next dr_manager_tick. */
int64_t dr_manager_deadline(const struct dr_manager *m);
/* The longest time that a tick came late: this process stood, or its owner did not come. */
int64_t dr_manager_late_ns(const struct dr_manager *m);
/* The owner is idle: sends what the channels held back. False: nothing was held back. */
bool dr_manager_idle(struct dr_manager *m, int64_t now_ns);
/* The link of device ifindex went down or up (netlink). */
void dr_manager_link(struct dr_manager *m, int ifindex, bool up, int64_t now_ns);
/* The detection bound in ns for these parameters, printed with every failover result. */
int64_t dr_manager_detect_bound(const struct dr_manager_params *p);
/* Starts to close all channels; does not block. To be driven until dr_manager_closed, see
 * dr_channel_close. */
void dr_manager_close(struct dr_manager *m, int64_t now_ns);
bool dr_manager_closed(const struct dr_manager *m);
/* Waits until nothing can access a buffer any more, then frees everything. NULL is allowed. -errno:
 * a connection could not be destroyed; memory that was not deregistered before, or not with
 * success, must stay allocated until the process ends. */
int dr_manager_destroy(struct dr_manager *m);

#endif
