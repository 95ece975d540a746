/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_TCP_TCP_H
#define DR_TRANSPORT_TCP_TCP_H

#include "base/source.h"
#include "transport/known.h"
#include "transport/path_base.h"
#include "transport/tcp/tcp_hs.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

/*
 * The TCP kind, internal to transport/tcp (and its tests). One non-blocking socket a path, one
 * listener and one UDP socket a rail, all bound to the rail's address and device.
 *
 *   tcp_sock.c   sockets: options, binding, addresses
 *   tcp_rail.c   rail: listener, peer, datagrams, memory
 *   tcp_admit.c  rail: connections on their way in
 *   tcp_ask.c    rail: whether the peer's kernel answers
 *   tcp_path.c   path: life, failure, fence, statistics, the ops table
 *   tcp_tx.c     path: what goes out        tcp_rx.c   path: what comes in
 *   tcp_hs.c     the handshake (sans-IO)       tcp_wire.c   the bytes (sans-IO)
 */
extern const struct dr_transport_ops dr_tcp_ops;
/* tcp_kind.c: the descriptor. */
struct dr_transport_kind;
extern const struct dr_transport_kind dr_tcp_kind;

enum {
	TCP_SENDS = 64,	      /* parts queued on one path */
	TCP_STAGE = 16 << 10, /* bytes read ahead of the frame at hand */
};
struct dr_mr {
	uint8_t *base;
	size_t len;
};

/* dr_rail_params.kind_params; NULL: the system's congestion control. */
enum { TCP_CC_LEN = 16 }; /* TCP_CA_NAME_MAX of the kernel */
struct dr_tcp_params {
	char cc[TCP_CC_LEN + 16]; /* name, "": the system's; longer ones are refused */
	bool distrusts;		  /* see dr_transport_kind.distrust */
};

/* ---- rail ---------------------------------------------------------------------------------- */

struct tcp_rail;

/* The socket of a slot of the admission. Empty slot: po.fd is -1. */
struct tcp_pending {
	struct dr_pollable po;
	struct tcp_rail *rail;
	bool fired;  /* the poller saw something; see tcp_rail.polled */
	bool parked; /* its HELLO was right */
	char from[80];
};

struct tcp_rail {
	struct dr_rail base;
	struct dr_rail_params par;
	char ifname[IFNAMSIZ];
	struct dr_tcp_params tcp;
	uint32_t scope_id; /* of link-local addresses on this rail */
	bool closed;
	struct dr_pollable listener, udp;
	struct sockaddr_storage peer, udp_peer; /* its listener, its heartbeat port */
	bool has_peer, udp_connected;
	struct dr_known_limit limit;
	int64_t udp_next_ns;	/* not connected: when rail_progress tries again */
	struct tcp_path *paths; /* every path that is not closed */
	unsigned n_paths;	/* every path that is not freed */

	struct tcp_admission admission;
	struct tcp_pending pending[TCP_PENDING_MAX]; /* by slot */
	/* A ready callback ran since the last progress, so that only what fired needs a look. A
	 * progress without one comes from an owner that spins: look at everything. */
	bool polled, listener_fired, udp_fired;
	int64_t paused_until_ns; /* descriptors ran out: nothing is accepted; 0: accepting */
	int64_t warn_window_ns;	 /* rate limit of the log lines about rejected connections */
	unsigned warned, suppressed;
	struct dr_sink *sink; /* during progress */
	int n_events;
	/* The connection of rail_ask; fd -1: none. */
	struct tcp_ask {
		int fd;
		bool connected;
		int64_t next_ns; /* the next byte on it, or connection */
		struct dr_rail_answer answer;
	} ask;
};

static inline struct tcp_rail *tcp_rail(struct dr_rail *r)
{
	return dr_container_of(r, struct tcp_rail, base);
}

int dr_tcp_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e);
int dr_tcp_rail_handle(struct dr_rail *r, void *buf, size_t cap);
int dr_tcp_rail_peer(struct dr_rail *r, const void *handle, size_t len, struct dr_err *e);
void dr_tcp_rail_dgram(struct dr_rail *r, const void *data, size_t len);
void dr_tcp_rail_padded(struct dr_rail *r, const void *data, size_t len, uint32_t size);
void dr_tcp_rail_ask(struct dr_rail *r, int64_t now_ns, struct dr_rail_answer *out);
int dr_tcp_rail_progress(struct dr_rail *r, int64_t now_ns, struct dr_sink *sink);
void dr_tcp_rail_close(struct dr_rail *r);
void dr_tcp_rail_fini(struct dr_rail *r);
int dr_tcp_mr_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);
int dr_tcp_mr_dereg(struct dr_rail *r, struct dr_mr *mr);

/* Admission. */
void dr_tcp_admit_init(struct tcp_rail *r);
void dr_tcp_admit_close(struct tcp_rail *r);
/* Accept, read HELLOs, hand over to paths, drop what is late. all: look at every connection. */
void dr_tcp_admit_progress(struct tcp_rail *r, bool all, int64_t now_ns);
struct tcp_path;
/* Acceptor p: adopt the parked connection that matches, if there is one. */
void dr_tcp_admit_claim(struct tcp_path *p);

/* The connection fd has proven the session's token: a peer without key receives at its address. */
void dr_tcp_known_add(const struct tcp_rail *r, int fd);

/* Sockets. */
enum { TCP_NAME_LEN = 80 };
void dr_tcp_addr_format(const struct sockaddr_storage *sa, char out[TCP_NAME_LEN]);
/* What to do when a port is taken; 0: when the kernel has none to give. */
const char *dr_tcp_port_advice(uint16_t port);
/* Non-blocking socket bound to the rail's device, address and port (0: the kernel's choice). */
int dr_tcp_sock_open(
	const struct tcp_rail *r, int type, uint16_t port, bool reuse, int *fd, struct dr_err *e);
/* What every data connection has, accepted or dialled. Failures are not fatal. */
void dr_tcp_sock_tune(const struct tcp_rail *r, int fd);

/* ---- path ---------------------------------------------------------------------------------- */

/*
 * States. posts work in UP only (before: -ENOTCONN; after a failure that progress has not reported:
 * -EAGAIN, so that callers see FAILED first; after that -ENOTCONN).
 */
enum tcp_state {
	TCP_OPENING, /* no socket, or the handshake runs on it: tcp_path.hs */
	TCP_UP,	     /* frames flow */
	TCP_FAILING, /* broken; FAILED is due in the next progress. No buffer is touched from here on */
	TCP_FAILED,  /* FAILED was reported; waits for fence or close */
	TCP_ABORTED, /* fenced: socket gone; FENCED is due in the next progress */
	TCP_FENCED,  /* FENCED was reported; waits for close */
	TCP_CLOSED,  /* no socket, no events */
};

/* Sender: a part in the queue; header and payload are one run of bytes on the wire. */
struct tcp_send {
	uint32_t epoch;
	uint64_t seq;
	unsigned part;
	uint8_t *data;
	uint32_t len;
	uint8_t hdr[DR_PATH_FRAME_HDR];
};

/*
 * Sends are counted, never moved: told <= done <= flushed <= posted, queue slot = count % TCP_SENDS.
 * told: SENT was reported; done: all bytes taken by the socket; flushed: may go on the wire.
 * head_off: bytes of send `done` that the socket has taken.
 */
struct tcp_tx {
	struct tcp_send queue[TCP_SENDS];
	uint64_t told, done, flushed, posted;
	uint32_t head_off;
	struct dr_path_queue ctrl;
	uint64_t data_end; /* tx_wire behind the last byte of data */
	bool blocked;	   /* the socket took less than offered: wait for EPOLLOUT */
	int err;	   /* the socket refused; FAILED follows when nothing is left to read */
};

/* Receiver: a posted message. Slot seq % DR_PATH_RING. */
struct tcp_recv {
	bool used;
	uint8_t todo; /* bit i: part i is neither skipped nor delivered */
	uint8_t n;
	uint32_t epoch;
	uint64_t seq;
	struct {
		uint8_t *data;
		uint32_t cap;
	} parts[DR_PARTS_MAX];
};

struct tcp_rx {
	uint8_t *stage; /* [at, end) is read and not used yet */
	size_t at, end;
	size_t peeked; /* bytes of the socket that were read into the stage and are still in the socket */
	/* The data frame at hand: `left` bytes of its payload are still to come. They go to body, or
	 * nowhere when body is NULL. While left > 0 and the stage is empty, the socket is read straight
	 * into body. */
	uint8_t *body;
	uint32_t left;
	struct dr_path_frame cur;
	struct tcp_recv *cur_recv;
	bool bulk; /* the last data frame was large: read little ahead, what is staged is copied */
	struct tcp_recv *ring; /* receiver only */
	uint32_t epoch;	       /* newest posted */
};

struct tcp_path {
	struct dr_path_base base; /* base.po.fd is the socket, -1: none */
	struct tcp_path *next;	  /* on the rail */
	enum tcp_state state;
	struct tcp_hs hs;
	bool registered;  /* base.po is known to the poller */
	uint32_t revents; /* what the poller said since the last progress */
	bool polled;	  /* ... it said something; without: the owner spins */

	struct tcp_tx tx;
	struct tcp_rx rx;

	/* For silent_segments: when the peer's kernel acknowledged last, as far as it is known, and what
	 * was sent then. */
	int64_t answer_ns;
	uint64_t answer_bytes;	  /* acknowledged so far, */
	uint32_t answer_segments; /* data segments sent so far, */
	unsigned answer_flight;	  /* and in flight */
	unsigned nudges;	  /* segments that did not leave this host since, */
	int64_t nudged_ns;	  /* and the last of them */
	/* For recent_segments: counts when an answer was seen, the second one a window or more after the first. */
	struct tcp_counts {
		int64_t ns;
		uint32_t segments, retransmits;
	} counts[2];
};

static inline struct tcp_path *tcp_path(struct dr_path *p)
{
	return dr_container_of(p, struct tcp_path, base.path);
}

static inline struct tcp_rail *tcp_path_rail(struct tcp_path *p)
{
	return tcp_rail(p->base.path.rail);
}

/* Break p for a reason that the next progress reports. Only the first reason counts. */
void dr_tcp_fail(struct tcp_path *p, enum dr_scope scope, int err, const char *fmt, ...)
	DR_PRINTF(4, 5);
/* Same for an error of the socket: the scope follows from err. */
void dr_tcp_fail_socket(struct tcp_path *p, int err, const char *doing);
/* Have the poller, if there is one, look for these events of p's socket. */
void dr_tcp_watch(struct tcp_path *p, uint32_t events);
/* dr_path_stats.unanswered. withdrawn: the peer's window is closed. */
struct tcp_info;
unsigned dr_tcp_unanswered(const struct tcp_info *ti, bool withdrawn);
/* Sets recent_segments and recent_retransmits from the connection's counts, now that the peer's kernel has
 * acknowledged something. */
void dr_tcp_count_recent(struct tcp_path *p, uint32_t segments, uint32_t retransmits, int64_t now);
/* Hand an admitted connection to the waiting acceptor p, which owns fd from here on. */
void dr_tcp_adopt(struct tcp_path *p, int fd);
/* Connector: the challenge came. */
void dr_tcp_say_hello(struct tcp_path *p);

/* tcp_tx.c */
/* 0, -EAGAIN or -ENOTCONN: see enum tcp_state. */
int dr_tcp_may_post(const struct tcp_path *p);
int dr_tcp_tx_init(struct tcp_path *p);
void dr_tcp_tx_fini(struct tcp_path *p);
int dr_tcp_post_send(struct dr_path *bp, uint32_t epoch, uint64_t seq, unsigned part,
	const struct dr_part *what);
int dr_tcp_post_ctrl(struct dr_path *bp, const void *frame, size_t len);
void dr_tcp_flush(struct dr_path *bp, int64_t now_ns);
/* A credit came. */
void dr_tcp_tx_credited(struct tcp_path *p, const struct dr_path_frame *f, const uint8_t *payload);
/* Offer what is flushed to the socket, once. */
void dr_tcp_tx_push(struct tcp_path *p);
/* Report SENT of every part that the socket has taken whole. */
void dr_tcp_tx_report(struct tcp_path *p);
/* Forget what the socket has not taken; SENT of the rest is still to be reported. */
void dr_tcp_tx_drop(struct tcp_path *p);
static inline bool dr_tcp_tx_pending(const struct tcp_tx *t)
{
	return t->done != t->flushed || t->ctrl.at != t->ctrl.flushed;
}

/* tcp_rx.c */
int dr_tcp_rx_init(struct tcp_path *p);
void dr_tcp_rx_fini(struct tcp_path *p);
int dr_tcp_post_recv(struct dr_path *bp, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip);
/* Read what is there, bounded, and report it. */
void dr_tcp_rx_pull(struct tcp_path *p);
/* Before the socket is closed: what was read leaves it, or the peer would get a reset for unread data. */
void dr_tcp_rx_release(struct tcp_path *p);
/* Withdraw every posted receive: no buffer is written from here on; what comes is swallowed. */
void dr_tcp_rx_withdraw(struct tcp_path *p);

#endif
