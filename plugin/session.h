/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_SESSION_H
#define DR_PLUGIN_SESSION_H

#include "channel/manager.h"
#include "plugin/match.h"
#include "plugin/stats.h"
#include "plugin/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

/*
 * A session: what one process has for all comms from one device to one device of another process. It has two rails
 * (one without a backup device), common heartbeats, a ChannelManager for small messages ("inline"), and for each I/O
 * thread a ChannelManager with bulk lanes, which the comms share. The primary of all of them is rail 0, on the device's own
 * NIC: NCCL has a device for each NIC and spreads its channels over them. Data flows from the end that dialled to the other.
 *
 * Threads. The inline manager, with the comms' channels, is driven under `lock` by threads that call a comm, and by the
 * control thread if none did for half a heartbeat. The bulk managers belong to their I/O threads. Comms by number and the
 * outboxes of sending comms are used by both, under `names`. Order of locks: lock, then names; the peer's lock of
 * the library comes last. Life (create, start, destroy) is the control thread's.
 */
enum {
	HA_WINDOW = 64, /* chunks of a lane in flight */
	HA_SLOTS = 64, /* frames of a comm in flight: 32 requests, and what is acknowledged later */
	HA_SESSION_THREADS_MAX = 32,
};

struct ha_comm;
struct ha_mr;
struct ha_session;

/* A chunk that a lane carries. Made by the receiver's comm when a message has its buffer, by the sender's lane when the
 * receiver asks for it. */
struct ha_chunk {
	struct ha_work work; /* receiver: on its way to the I/O thread */
	STAILQ_ENTRY(ha_chunk) next;
	struct ha_lane *lane;
	struct ha_comm *comm; /* sender: NULL if its comm is closed */
	struct ha_mr *mr;     /* of span; NULL: answer without bytes */
	struct dr_span span;
	uint64_t ordinal;  /* sender: of the message */
	atomic_uint *left; /* receiver: chunks of the buffer that are missing */
};

struct ha_lane {
	struct ha_bulk *bulk;
	unsigned
		index; /* in the session; number of its channel in the manager: index modulo lanes per thread */
	struct dr_channel *ch;
	struct dr_mem nothing;		    /* for answers without bytes */
	struct ha_chunk *flying[HA_WINDOW]; /* posted, by sequence number modulo the window */
	unsigned n_flying;
	int64_t posted_ns;		 /* the last of them */
	STAILQ_HEAD(, ha_chunk) waiting; /* receiver: to be posted */
	bool dirty;			 /* to be looked at in this turn */
	bool lost;			 /* its channel has ended: nothing is completed any more */
	_Atomic uint64_t bytes;		 /* receiver: asked for and not delivered */
};

struct ha_bulk {
	struct ha_session *s;
	struct ha_thread *thread;
	struct ha_member member;
	bool added; /* the member */
	struct dr_manager *m;
	struct ha_lane *lane;
};

struct ha_session_params {
	bool connector;
	uint8_t token[DR_TOKEN_LEN];
	struct dr_manager_params
		manager; /* detection, sockets, window: as ha_config_manager set it; rails, transport */
	unsigned n_threads, lanes; /* lanes of each thread */
	struct ha_thread *const *threads;
	uint64_t chunk, eager;	   /* bytes */
	unsigned device[DR_PATHS]; /* of the rails, for counters */
	unsigned test_max_poll;	   /* times that a call looks for events of its comm */
	char peer[64];		   /* its name, for messages */
};

struct ha_session {
	struct ha_session_params prm;
	struct dr_peer *peer;
	struct sockaddr_storage rail_peer[DR_PATHS]; /* port 0; AF_UNSPEC: not known */
	struct dr_poller *apart;		     /* of the peer */
	/* Inline; under lock. */
	pthread_mutex_t lock;
	struct dr_poller *poller;
	struct dr_manager *m;
	_Atomic int64_t driven_ns;
	int64_t polled_ns; /* the last time for all of its file descriptors */
	bool completed;	   /* a message of a comm, since it was cleared */
	/* Bulk. */
	struct ha_bulk bulk[HA_SESSION_THREADS_MAX];
	struct ha_lane *lanes;
	unsigned n_lanes;
	/* Read under lock or names, written under both. */
	pthread_mutex_t names;
	struct ha_comm **comm;	 /* by number; HA_COMMS_MAX */
	struct ha_comm *comms;	 /* all of them */
	atomic_int err;		 /* -errno: a lane is lost, and with it the session */
	struct ha_mr *replaced;	 /* memory for chunks whose own was deregistered; under names */
	struct ha_counters past; /* of comms that are gone; under lock */
	_Atomic int64_t gap_ns;	 /* of all switches */
};

/* Opens the rails of all managers at this end. */
int ha_session_create(const struct ha_session_params *p, struct ha_session **out, struct dr_err *e)
	DR_MUST_CHECK;
unsigned ha_session_handle_count(const struct ha_session *s);
int ha_session_handles(struct ha_session *s, struct dr_handle *out);
/* Takes all of the peer's handles, as many. -EPROTO: one is malformed. */
int ha_session_start(struct ha_session *s, const struct dr_handle *peer, struct dr_err *e)
	DR_MUST_CHECK;
/* The link of a device went up or down. */
void ha_session_link(struct ha_session *s, int ifindex, bool up);
/* For the control thread: drives the inline manager if nobody did lately. */
void ha_session_tick(struct ha_session *s, int64_t now_ns);
int64_t ha_session_deadline(const struct ha_session *s);
/* Starts to close the lanes; closed: all ends know it or cannot be told. */
void ha_session_close(struct ha_session *s);
bool ha_session_closed(struct ha_session *s);
/* After the last comm. -errno: a connection could not be destroyed. */
int ha_session_destroy(struct ha_session *s);

/* Adds its counters. */
void ha_session_counters(struct ha_session *s, struct ha_counters *to);
/* The session is lost: its comms end with err. Any thread. */
void ha_session_fail(struct ha_session *s, int err, const char *why);

/* ---- for comms ---- */

/* With lock held: drives the comm's own connection, and the whole manager when it is time. */
void ha_session_drive(struct ha_session *s, struct dr_channel *ch, int64_t now_ns);
/* Receiver: asks for the chunk at `want` in mr, on the lane with the fewest bytes outstanding; its
 * mem is set here, its tag names the chunk. *left is decremented when it is there. -ENOMEM. */
int ha_session_ask(struct ha_comm *comm, struct ha_mr *mr, struct dr_span want, atomic_uint *left)
	DR_MUST_CHECK;

#endif
