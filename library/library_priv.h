/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_LIBRARY_LIBRARY_PRIV_H
#define DR_LIBRARY_LIBRARY_PRIV_H

#include "bootstrap/rdv.h"
#include "channel/manager.h"
#include "library/dualrail.h"
#include "library/request.h"
#include "topology/linkmon.h"
#include "topology/nic_list.h"
#include "transport/kind.h"

#include <pthread.h>
#include <sys/queue.h>

/*
 * Inside of libdualrail's interface (dualrail.h). endpoint.c has the endpoint and its thread, connect.c how a peer comes
 * up, peer.c its life, put.c the sending end of a put, take.c the receiving end, memory.c registered ranges, event.c what
 * the user is told.
 *
 * Threads. One lock for an endpoint. The endpoint's thread holds it while it works and not while it sleeps; a call of
 * the user holds it, posts at once what it can, and wakes the thread. What a comment does not except is under the lock.
 */
enum {
	DR_LIB_WINDOW = 64, /* messages of a channel in flight */
	DR_LIB_RAILS_MAX = 8,
	DR_LIB_NOTES_MAX = 1024, /* of a peer that the user has not read */
	DR_LIB_ANNOUNCED_MAX =
		4096, /* entries of requests whose data is not acknowledged, of a connection and direction */
	DR_LIB_CHANNELS_MAX = 2 + 2 * DUALRAIL_LANES_MAX,
	DR_LIB_KEY_BUCKETS = 4096,
};

/* An event; of a peer or a put it is a part of that (owned false), so that it needs no memory when it happens. */
struct dr_lib_event {
	STAILQ_ENTRY(dr_lib_event) next;
	bool queued, owned;
	struct dualrail_event e;
	char text[300];
	struct dualrail_put *put; /* PUT_DONE */
	const uint8_t *data;	  /* NOTE: behind this struct */
};

/* A range on the data channels of one peer. */
struct dr_lib_reg {
	struct dr_lib_reg *next;
	const struct dualrail_peer *peer;
	struct dr_mem mem[DR_LIB_CHANNELS_MAX];
};

struct dualrail_memory {
	struct dualrail *d;
	struct dualrail_memory *next, *key_next; /* of the endpoint; of the bucket of its key */
	struct dr_lib_reg *regs;
	struct dr_memory m;
	uint64_t key;
	unsigned users; /* blocks of puts of this end, and chunks that peers write */
	bool gone;	/* being deregistered: no new users */
};

/* What one message of a lane carries. */
struct dr_lib_chunk {
	STAILQ_ENTRY(dr_lib_chunk) next;
	struct dualrail_put *put;	      /* sender */
	const struct dualrail_memory *source; /* sender */
	struct dualrail_memory *target;	      /* receiver; NULL: refused */
	uint64_t off;
	uint32_t len;
	uint32_t refusal; /* an errno; 0: none */
};
STAILQ_HEAD(dr_lib_fifo, dr_lib_chunk);

struct dr_lib_lane {
	unsigned channel;	    /* index in the peer's table */
	struct dr_lib_fifo waiting; /* sender: for the credit; receiver: for room in the window */
	struct dr_lib_chunk *flying[DR_LIB_WINDOW];
	uint64_t head, tail; /* sequence numbers: the oldest in flight, the next to be posted */
	uint64_t bytes;	     /* sender: waiting and in flight */
};

/* The request channel of one direction. */
struct dr_lib_requests {
	unsigned channel;
	uint8_t *
		slot; /* DR_LIB_WINDOW of DR_REQUEST_BYTES; that of message s is s modulo the window */
	struct dr_mem mem;
	uint64_t head, tail;
	struct dualrail_put *note_of[DR_LIB_WINDOW]; /* sender */
};

enum dr_lib_state { DR_LIB_EXCHANGE, DR_LIB_STARTING, DR_LIB_UP, DR_LIB_ENDED };

struct dualrail_peer {
	struct dualrail *d;
	struct dualrail_peer *next;
	enum dr_lib_state state;
	bool connector, closed; /* closed: the peer knows of the end, or could not be told */
	int code;		/* ENDED: why */
	int64_t until_ns;	/* STARTING */
	struct dr_rdv_comm *exchange;
	struct dr_manager *m;
	unsigned n_rails, lanes;
	struct dr_manager_rail rail[DR_LIB_RAILS_MAX];
	struct sockaddr_storage rail_peer[DR_LIB_RAILS_MAX];
	struct dr_channel *ch[DR_LIB_CHANNELS_MAX];
	bool exposed[DR_LIB_CHANNELS_MAX]; /* without a second path, and the user was told */
	struct dr_mem nothing[DR_LIB_CHANNELS_MAX];
	struct dr_lib_requests to, from;
	struct dr_lib_lane tx[DUALRAIL_LANES_MAX], rx[DUALRAIL_LANES_MAX];
	unsigned announced, asked; /* entries: of this end, of the peer */
	unsigned notes;		   /* unread */
	STAILQ_HEAD(, dualrail_put)
	puts, noted; /* with blocks to be announced; with a note to be sent */
	bool closing;
	char why[160]; /* the first channel's end */
	struct dr_lib_event up, down;
};

struct dualrail_put {
	struct dualrail *d;
	struct dualrail_put *all;	 /* of the endpoint */
	STAILQ_ENTRY(dualrail_put) next; /* of one of the peer's lists */
	struct dualrail_peer *peer;	 /* NULL: it is gone */
	size_t n, at;
	uint64_t at_off;
	unsigned left;	   /* chunks that are announced and not done */
	int code;	   /* of the first refusal */
	_Atomic int state; /* what dualrail_test returns; read without the lock */
	bool released;
	size_t note_len;
	uint8_t *note; /* behind the blocks */
	struct dr_lib_event done;
	struct dualrail_block block[];
};

struct dualrail {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a peer is closed, memory has no users */
	pthread_t thread;
	bool quit;
	atomic_bool thread_waits; /* for the lock */
	struct dr_poller *poller;
	const struct dr_transport_kind *kind;
	union dr_kind_params params;
	struct dualrail_options o; /* defaults filled in; its texts are not valid */
	unsigned n_nics, n_addrs;  /* offered; of the rendezvous */
	struct dr_netdev_rail nic[DR_NICS_MAX];
	struct dr_rdv_addr addr[DR_RDV_ADDRS_MAX];
	struct dr_rdv *rdv;
	struct dr_rdv_listen *listen;
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct dr_link_watch links;
	struct dualrail_peer *peers;
	struct dualrail_memory *memories, *keys[DR_LIB_KEY_BUCKETS];
	struct dualrail_put *puts;
	/* Events. */
	int event_fd;
	STAILQ_HEAD(, dr_lib_event) events;
	struct {
		struct dualrail_event e;
		char text[300];
		uint8_t data[DUALRAIL_NOTE_MAX];
	} shown;
};

/* ---- endpoint.c ---- */

/* Pairs; unlock wakes the thread, since what it waits for may have changed. */
void dr_lib_lock(struct dualrail *d);
void dr_lib_unlock(struct dualrail *d);
int dr_lib_error(struct dualrail_error *to, const struct dr_err *e);

/* ---- event.c ---- */

/* A new one with room for len bytes of data; NULL: no memory. */
struct dr_lib_event *dr_lib_event(struct dualrail_peer *p, int kind, size_t len);
void dr_lib_event_put(struct dualrail *d, struct dr_lib_event *v);
/* The rail of a channel's path; channels 0 and 1 are of requests and notes. */
unsigned dr_lib_rail(const struct dualrail_peer *p, unsigned channel, unsigned path);
/* Forgets those of p. */
void dr_lib_events_drop(struct dualrail_peer *p);

/* ---- memory.c ---- */

/* The range on a channel of this peer. */
const struct dr_mem *dr_lib_mem(
	const struct dualrail_peer *p, const struct dualrail_memory *m, unsigned channel);
/* What peers may write to by this key; NULL. */
struct dualrail_memory *dr_lib_by_key(struct dualrail *d, uint64_t key);
/* All memory of the endpoint on the channels of a new peer. */
int dr_lib_regs_add(struct dualrail_peer *p, struct dr_err *e);
/* The first error. */
int dr_lib_regs_remove(struct dualrail_peer *p, struct dr_err *e);
void dr_lib_unuse(struct dualrail_memory *m);

/* ---- peer.c ---- */

extern const struct dr_manager_ops dr_lib_manager_ops;
/* In state EXCHANGE. */
struct dualrail_peer *dr_lib_peer(struct dualrail *d, bool connector);
/* Everything that can be done now. */
void dr_lib_pump(struct dualrail_peer *p, int64_t now_ns);
void dr_lib_tick(struct dualrail_peer *p, int64_t now_ns);
/* The connection ends with code. */
void dr_lib_end(struct dualrail_peer *p, int code, const char *text);
/* Frees; for a peer that is closed or has no manager. */
int dr_lib_peer_free(struct dualrail_peer *p, struct dr_err *e);

/* ---- connect.c ---- */

extern const struct dr_rdv_ops dr_lib_rdv_ops;

/* ---- put.c: of the sending end ---- */

void dr_lib_send(struct dualrail_peer *p, int64_t now_ns);
/* All puts of a connection that has ended. */
void dr_lib_puts_end(struct dualrail_peer *p, int code);
/* The user has read its event. */
void dr_lib_put_unref(struct dualrail_put *put);
void dr_lib_put_free(struct dualrail_put *put);

/* ---- take.c: of the receiving end ---- */

/* Posts the receives of the request channel. */
void dr_lib_take_start(struct dualrail_peer *p, int64_t now_ns);
void dr_lib_take(struct dualrail_peer *p, int64_t now_ns);

#endif
