/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_SIM_WORLD_SIM_PRIV_H
#define DR_TESTS_SIM_WORLD_SIM_PRIV_H

#include "base/rng.h"
#include "tests/sim/sim.h"
#include "transport/tcp/tcp_hs.h"
#include "transport/verbs/verbs_hs.h"

#include <errno.h>
#include <sys/queue.h>

/*
 * How the simulated kind is put together.
 *
 *	process	   path.c: posting, pump, progress, fence      rail.c: datagrams, admissions, memory
 *	connection conn.c: how ends break, handshake of a plugin  hs_tcp.c: handshake of a stream
 *		   hs_verbs.c: handshake of remote write	  hs.c: what they have in common
 *		   check.c: who owns which byte, who is whose peer
 *	NIC, link  wire.c: lanes, landing, acknowledgements    world.c: clock, events   fault.c: faults
 *
 * A connection (sim_conn) joins two path ends and outlives both: what is in flight belongs to it, so a
 * sender that is gone can still have writes land. It holds LANES per direction: ordered, reliable,
 * windowed pipes (one for a stream; one for control and some for data otherwise). A lane moves
 * SEGMENTS; only its first one has an event armed. What the NIC or kernel has for the process waits
 * as an ITEM in its path's or rail's list until progress.
 */

enum {
	SIM_LANES = 5,
	SIM_DGRAMS_MAX = 256,
	SIM_SAID = 8, /* that a link remembers */
};

struct sim_path;
struct sim_rail;
struct sim_conn;

struct sim_credit {
	uint64_t key; /* of the posting at the receiver; 0: free slot */
	uint32_t epoch;
	uint64_t seq;
	unsigned n;
	uint32_t skip, sent; /* bits of parts */
	uint32_t cap[DR_PARTS_MAX], tag[DR_PARTS_MAX];
};

enum sim_seg_kind { SIM_SEG_HELLO, SIM_SEG_CTRL, SIM_SEG_CREDIT, SIM_SEG_DATA, SIM_SEG_RESET };

struct sim_seg {
	STAILQ_ENTRY(sim_seg) next;
	enum sim_seg_kind kind;
	uint32_t bytes;	 /* on the wire */
	int64_t depart;	 /* leaves the sender's NIC */
	int64_t at;	 /* arrives */
	uint64_t number; /* in its lane, from 1 */
	bool flushed;	 /* may leave */
	bool dgram;	 /* CTRL: of the rail */
	uint32_t len;	 /* HELLO, CTRL: bytes of frame; DATA: bytes of this piece */
	uint8_t frame[DR_DGRAM_MAX];
	struct sim_credit credit; /* CREDIT; DATA uses epoch, seq, key */
	unsigned part;
	uint32_t off, total; /* DATA: where in the part; the part's length */
	uint64_t wr;	     /* DATA: id of its work request */
	bool last;	     /* DATA: the part's last piece */
	const uint8_t *src;  /* DATA: the sender's memory, read on arrival ... */
	uint8_t *copy;	     /* ... unless it was copied before */
	int64_t sent_late;   /* DATA, last: report SENT so much later; DR_NEVER: not at all */
};

STAILQ_HEAD(sim_segs, sim_seg);

struct sim_lane {
	struct sim_segs wire;	      /* in order */
	struct sim_segs done;	      /* arrived, acknowledgement under way */
	uint64_t numbers, arrived;    /* last segment sent; last arrived */
	uint64_t unacked, acked_data; /* bytes */
	int64_t tail_at, rto, last_ack;
	int64_t busy_since, busy_ns; /* unacked is not 0; time so far before that */
	/* First transmission or probe of the window since the last answer that was repeated without one; 0: none. */
	int64_t silent_ns;
	unsigned retries, probes; /* of these, repetitions; probes */
	uint64_t retransmits;
	bool armed, ack_armed, probe_armed,
		shut; /* shut: the receiver's window is closed, or no receive is ready */
};

/* PENDING: stream, in the admission of the acceptor's rail. PARKED: plugin. ACCEPTED: plugin; remote write,
 * neither end is up. */
enum sim_conn_state { SIM_SYN, SIM_PENDING, SIM_PARKED, SIM_ACCEPTED, SIM_OPEN, SIM_GONE };

struct sim_conn {
	struct sim_conn *next;
	struct dr_sim_world *w;
	unsigned port, rail, dialer;
	uint32_t channel, gen;
	unsigned index;
	uint32_t qpn[2]; /* remote write: of the ends' queue pairs */
	enum sim_conn_state state;
	struct sim_path *end[2];    /* by node; NULL: not there (yet, any more) */
	struct dr_path_ident id[2]; /* of the paths that it joined, also of one that is gone */
	bool known[2];		    /* there was one */
	uint8_t said[80];	    /* by a stranger, to whom no path belongs */
	unsigned said_len;
	/* The stranger answers the challenge, as this path, with another token. */
	bool answers;
	struct dr_path_ident answer_id;
	uint8_t answer_token[DR_TOKEN_LEN];
	unsigned answer_len; /* bytes of HELLO that it says */
	bool leaves;	     /* the stranger, at once */
	unsigned slot; /* PENDING: 1 + that in the admission; 0: the process does not know of it */
	uint16_t
		cut_after; /* stream: bytes of the handshake that still come through each way; UINT16_MAX: all */
	bool mute[2]; /* this end's NIC sends nothing new and retransmits nothing */
	struct sim_lane lane[2][SIM_LANES]; /* [from][n] */
	enum dr_sim_wc wc;
	int64_t wc_ns;
	bool drop_credit;
};

struct sim_posting {
	uint64_t key;
	uint32_t epoch;
	uint64_t seq;
	unsigned n;
	struct dr_part part[DR_PARTS_MAX];
	uint32_t got[DR_PARTS_MAX];   /* bytes there */
	uint32_t whole, reported;     /* bits; skipped parts are reported from the start */
	uint8_t order[DR_PARTS_MAX];  /* in which the parts became whole */
	unsigned n_whole, n_reported; /* of order[] */
};

struct sim_wr {
	TAILQ_ENTRY(sim_wr) next;
	uint64_t id;
	struct sim_credit to; /* epoch, seq, key */
	unsigned part, lane;
	const uint8_t *src;
	uint32_t len, pos;
	bool flushed, emitted, done;
	struct dr_mr *mr;
};
TAILQ_HEAD(sim_wrs, sim_wr);

enum sim_item_kind {
	SIM_IT_READY,
	SIM_IT_CONNECTED, /* stream: the kernel has connected */
	SIM_IT_HELLO,	  /* bytes of the handshake; for a path, or for a rail with conn (stream) */
	SIM_IT_CTRL,	  /* key: a datagram of the rail */
	SIM_IT_CREDIT,
	SIM_IT_DATA,  /* stream: bytes to copy into a posting */
	SIM_IT_WHOLE, /* a part landed */
	SIM_IT_SENT,
	SIM_IT_FENCED,
	SIM_IT_FAILED,
	SIM_IT_DGRAM,	 /* rail */
	SIM_IT_INCOMING, /* rail */
	SIM_IT_ACCEPT,	 /* rail: a connection came */
	SIM_IT_HUNG_UP,	 /* rail: a connection that is not adopted went */
	/* remote write */
	SIM_IT_GREETING, /* rail: HELLO or WELCOME */
	SIM_IT_JOB,	 /* the helper is done */
	SIM_IT_TICK,	 /* a HELLO may be due */
	SIM_IT_ACKED,	 /* a message of the handshake was acknowledged */
};

struct sim_item {
	STAILQ_ENTRY(sim_item) next;
	enum sim_item_kind kind;
	uint32_t epoch, gen, channel;
	uint64_t seq, key;
	unsigned part, index;
	enum dr_scope scope;
	int err;
	const char *text;
	uint32_t len, size;
	uint8_t data[DR_DGRAM_MAX]; /* CTRL, DGRAM */
	struct sim_seg *seg;	    /* CREDIT, DATA: owned */
	struct sim_conn *conn;	    /* rail: ACCEPT, HELLO, HUNG_UP */
};
/* As of STAILQ_HEAD, with what an item stirs; NULL: nothing. */
struct sim_items {
	struct sim_item *stqh_first, **stqh_last;
	bool *stirs;
};

struct sim_dgram {
	unsigned port, rail;
	enum sim_item_kind kind; /* of the peer's item */
	uint32_t len, size;
	uint8_t data[DR_DGRAM_MAX];
};

enum sim_fence { SIM_FENCE_NO, SIM_FENCE_ASKED, SIM_FENCE_DONE };

struct sim_path {
	struct dr_path base;
	struct dr_sim_world *w;
	unsigned node;
	struct dr_path_params par;
	struct sim_path *next; /* of the rail */
	struct sim_conn *conn;
	struct tcp_hs tcp;  /* stream */
	struct vb_hs verbs; /* remote write, with the next three */
	uint32_t qpn, lead_to;
	bool neighbour_asked, steps_counted;
	unsigned steps_left; /* until the handshake breaks; 0: it does not */
	int64_t connect_at;  /* connect was called, and is under way */
	bool waiting;	     /* plugin: acceptor, connect called, no connection yet */
	bool ready;	     /* READY was queued */
	bool broken;	     /* FAILED was queued: no new work */
	bool failed;	     /* FAILED was reported */
	bool closed, stopped;
	bool down;	  /* NIC end is torn down: nothing lands, nothing is read */
	bool quarantined; /* a fence failed for good */
	bool holds;	  /* buffers, for all that its user was told until its fence began */
	enum sim_fence fence;
	unsigned dup_next;	/* report DELIVERED of the next part again, so many reports later */
	struct dr_event dup_ev; /* what will be reported again */
	unsigned dup_in;	/* after so many more reports; 0: none waits */
	struct sim_items items;
	uint32_t rx_unread; /* stream: bytes; else control frames */
	/* receiver */
	struct sim_posting *posted; /* ring of recv_depth */
	unsigned post_head, post_n;
	uint32_t last_epoch, arriving_epoch;
	uint64_t last_seq;
	bool any_posted, any_arriving;
	/* sender */
	struct sim_credit *credits; /* 2 x recv_depth, seq x at seq % that or behind it */
	uint32_t credit_epoch;	    /* of the newest that came */
	uint64_t credit_seq;
	struct sim_wrs wrs;
	unsigned n_wrs;
	/* both */
	struct sim_segs ctrl;
	unsigned n_ctrl; /* frames among them, credits not counted */
	struct dr_path_stats st;
};

struct dr_mr {
	struct dr_mr *next;
	struct sim_rail *rail;
	uint8_t *base;
	size_t len;
};

struct sim_rail {
	struct dr_rail base;
	struct sim_rail *next; /* of the node, in the order of listen */
	struct dr_sim_world *w;
	unsigned node, port;
	bool closed, has_peer;
	uint8_t token[DR_TOKEN_LEN];
	struct tcp_admission *admission;	   /* stream */
	struct vb_admission *greetings;		   /* remote write */
	struct sim_conn *pending[TCP_PENDING_MAX]; /* by slot */
	struct sim_items items;
	unsigned n_dgrams;
	int64_t dgram_at; /* the last one sent arrives */
	/* plugin: rx_last_ns when the last datagram was sent; one that came, while its path is in
	 * progress */
	int64_t heard_ns;
	const struct sim_item *came;
	struct sim_path *paths;
	struct dr_mr *mrs;
	bool asks; /* rail_ask was called, and not ended */
	int64_t ask_ns;
	struct dr_rail_answer answer;
	void (*ready)(void *arg, int64_t now_ns); /* as of a poller */
	void *arg;
	bool stirred; /* it or a path may be busy; false: none is */
};

struct sim_event {
	int64_t at;
	uint64_t serial;
	void (*fn)(struct dr_sim_world *w, const struct sim_event *ev);
	void *obj;
	unsigned from, lane;
	uint64_t a;
};

struct sim_said {
	unsigned len, port;
	uint8_t data[DR_VERBS_HELLO_MAX];
};

struct sim_link {
	struct dr_sim_link o;
	bool cut, mute;
	uint32_t passes; /* larger segments and datagrams are lost */
	int64_t clog_until, busy_until;
	struct sim_said said[SIM_SAID]; /* sent in handshakes */
	unsigned n_said;
	unsigned
		cut_hello; /* the next handshake breaks after so many bytes, less one; remote write: steps */
};

struct sim_qp {
	struct dr_path_ident owner;
	unsigned port;
};

struct sim_range {
	uintptr_t a, b;
};
struct sim_ranges {
	struct sim_range *r;
	size_t n, cap;
};

struct dr_sim_world {
	struct dr_sim_opts o;
	struct dr_rng rng;
	int64_t now;
	struct sim_event *heap;
	size_t n_events, cap_events;
	uint64_t serial, hash, keys;
	struct sim_qp *qp; /* remote write: the queue pairs 1 to n_qps */
	uint32_t n_qps;
	struct sim_rail *rail[2][DR_SIM_PORTS_MAX][DR_SIM_RAILS_MAX];
	struct sim_rail *rails[2]; /* the same as lists */
	struct sim_link link[DR_SIM_RAILS_MAX][2];
	bool down[DR_SIM_RAILS_MAX], told[DR_SIM_RAILS_MAX][2];
	unsigned down_no[DR_SIM_RAILS_MAX];
	int64_t fence_ns[DR_SIM_RAILS_MAX][2];
	bool fence_stuck[DR_SIM_RAILS_MAX][2];
	bool dead[2], stirred;
	struct sim_conn *conns;
	struct sim_ranges returned; /* given back by DELIVERED or FENCED */
	struct sim_ranges users;    /* given back by the harness */
	uint64_t violations;
	char violation[256];
	int64_t skew[2]; /* what the clock of a node is behind */
	struct dr_sim_counts counts;
	struct sim_items spare_items;
	struct sim_segs spare_segs;
};

static inline bool sim_is_stream(const struct dr_sim_world *w)
{
	return w->o.personality == DR_SIM_STREAM;
}

static inline int64_t sim_now(const struct dr_sim_world *w, unsigned node)
{
	return w->now - w->skew[node];
}

static inline struct sim_path *sim_path_of(struct dr_path *p)
{
	return dr_container_of(p, struct sim_path, base);
}

static inline struct sim_rail *sim_rail_of(struct dr_rail *r)
{
	return dr_container_of(r, struct sim_rail, base);
}

/* The rail at an end of a connection; NULL: there is none. */
static inline struct sim_rail *sim_conn_rail(const struct sim_conn *c, unsigned node)
{
	return c->w->rail[node][c->port][c->rail];
}

/* world.c */
void sim_at(struct dr_sim_world *w, int64_t at, struct sim_event ev);
/* The same for something of a connection, in so many ns. */
void sim_conn_at(struct sim_conn *c, int64_t ns,
	void (*fn)(struct dr_sim_world *w, const struct sim_event *ev), unsigned from,
	unsigned lane, uint64_t a);
/* So that an owner's clock stops there, and it looks at all of its rails. */
void sim_stir_all(struct dr_sim_world *w, const struct sim_event *ev);
int64_t sim_exp(struct dr_sim_world *w, int64_t mean);
int64_t sim_link_delay(struct dr_sim_world *w, unsigned rail, unsigned from);
bool sim_link_dead(const struct dr_sim_world *w, unsigned rail, unsigned from);
void *sim_alloc(size_t size); /* never NULL */
struct sim_item *sim_item_add(struct dr_sim_world *w, struct sim_items *l, enum sim_item_kind kind);
void sim_item_free(struct dr_sim_world *w, struct sim_item *it);
struct sim_seg *sim_seg_new(struct dr_sim_world *w, enum sim_seg_kind kind);
/* The first, taken out; NULL: none. */
struct sim_item *sim_item_pop(struct sim_items *l);
struct sim_seg *sim_seg_pop(struct sim_segs *l);
void sim_items_clear(struct dr_sim_world *w, struct sim_items *l);

/* check.c */
void sim_violation(struct dr_sim_world *w, const char *fmt, ...) DR_PRINTF(2, 3);
void sim_ranges_add(struct sim_ranges *l, uintptr_t a, uintptr_t b);
void sim_ranges_del(struct sim_ranges *l, uintptr_t a, uintptr_t b);
bool sim_ranges_hit(const struct sim_ranges *l, uintptr_t a, uintptr_t b);
void sim_check_post(struct sim_path *p, const struct dr_part *part, const char *what);
void sim_check_write(struct sim_path *p, const void *to, size_t len, uint64_t seq, unsigned part);
void sim_check_read(struct dr_sim_world *w, const void *from, size_t len, uint64_t seq);
void sim_check_again(struct dr_sim_world *w, const struct sim_seg *s);
void sim_return_part(struct sim_path *p, const struct dr_part *part, bool delivered);
void sim_return_postings(struct sim_path *p);
void sim_check_peers(struct sim_path *p);
/* Remote write: p's queue pairs are led to the one with this number. */
void sim_check_target(struct sim_path *p, uint32_t qpn);

/* wire.c */
void sim_lane_init(struct dr_sim_world *w, struct sim_lane *l);
void sim_lane_send(struct sim_conn *c, unsigned from, unsigned lane, struct sim_seg *s);
bool sim_lane_room(const struct sim_conn *c, unsigned from, unsigned lane, uint32_t extra);
void sim_lanes_reopen(struct sim_conn *c, unsigned to);
void sim_lanes_mute(struct sim_conn *c, unsigned from, bool drop_all);
/* A link of this rail died: windows that are shut are probed. */
void sim_lanes_probe(struct dr_sim_world *w, unsigned rail);
void sim_lanes_snapshot(struct sim_conn *c, unsigned from);
void sim_lanes_free(struct sim_conn *c);
void sim_seg_free(struct dr_sim_world *w, struct sim_seg *s);

/* conn.c */
struct sim_conn *sim_conn_new(
	struct dr_sim_world *w, unsigned port, unsigned rail, unsigned dialer);
/* This path is an end of c from here on. */
void sim_conn_join(struct sim_conn *c, struct sim_path *p);
void sim_conn_dial(struct sim_path *p);
void sim_conn_adopt(struct sim_path *p);
void sim_conn_ready(struct sim_path *p);
/* The path may post from here on. */
void sim_path_up(struct sim_path *p);
void sim_conn_reset_peer(struct sim_conn *c, unsigned from);
void sim_conn_detach(struct sim_path *p);
void sim_path_broke(struct sim_path *p, enum dr_scope scope, int err);
void sim_path_broke_later(struct sim_conn *c, unsigned node, int64_t delay_ns, int err);

/* rail.c */
/* This leaves the rail, or is lost; late_ns: it takes so much longer. */
void sim_rail_send(struct sim_rail *r, const struct sim_dgram *d, int64_t late_ns);
/* It arrives at a time, if the link lives then. */
void sim_dgram_at(struct dr_sim_world *w, unsigned from, const struct sim_dgram *what, int64_t at);

/* hs.c */
void sim_hs_init(struct sim_path *p);
void sim_hs_end(struct sim_path *p);
void sim_hs_fini(struct sim_path *p);
bool sim_hs_is_new(const struct sim_path *p);
void sim_hs_connect(struct sim_path *p);
/* What a path's kernel or NIC has for its handshake. True: it is up. */
bool sim_hs_item(struct sim_path *p, const struct sim_item *it);
/* This was sent over the link, for this port; something that was, lately; NULL: nothing. */
void sim_hs_said(struct sim_link *l, unsigned port, const void *data, unsigned len);
const struct sim_said *sim_hs_recall(const struct sim_link *l, unsigned port, struct dr_rng *g);
/* The newest path of this rail with these coordinates; any path of it. NULL: none. */
const struct sim_path *sim_hs_newest(const struct sim_rail *r, uint32_t channel, unsigned index);
const struct sim_path *sim_hs_any(const struct sim_rail *r, struct dr_rng *g);

/* hs_verbs.c */
void sim_verbs_connect(struct sim_path *p);
bool sim_verbs_item(struct sim_path *p, const struct sim_item *it);
void sim_verbs_rail_item(struct sim_rail *r, const struct sim_item *it, struct dr_sink *sink);
/* The peer's NIC acknowledged a message of the handshake. */
void sim_verbs_acked(struct sim_path *p);
/* Somebody who is not the peer says something. False: nothing. */
bool sim_verbs_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, struct dr_rng *g);

/* hs_tcp.c */
bool sim_tcp_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, struct dr_rng *g);
void sim_tcp_rail_init(struct sim_rail *r);
void sim_tcp_connect(struct sim_path *p);
bool sim_tcp_item(struct sim_path *p, const struct sim_item *it);
/* The same for a rail. */
void sim_tcp_rail_item(struct sim_rail *r, const struct sim_item *it, struct dr_sink *sink);
void sim_tcp_expire(struct sim_rail *r);
bool sim_tcp_due(const struct sim_rail *r);
void sim_tcp_rail_close(struct sim_rail *r);
/* The dialer of a connection that nobody has adopted leaves. */
void sim_tcp_dialer_left(struct sim_conn *c);
/* The process of this node died. */
void sim_tcp_kill(struct dr_sim_world *w, unsigned node);

/* path.c */
void sim_pump(struct sim_path *p);
/* A frame or credit is flushed and its lane takes it. */
bool sim_ctrl_due(const struct sim_path *p);
bool sim_path_busy(const struct sim_path *p);
struct sim_posting *sim_posting_by_key(struct sim_path *p, uint64_t key);
void sim_posting_whole(struct sim_posting *m, unsigned part);
void sim_wr_acked(struct sim_path *p, uint64_t wr);
void sim_path_tear_down(struct sim_path *p);

int sim_create(
	struct dr_rail *r, const struct dr_path_params *p, struct dr_path **out, struct dr_err *e);
int sim_handle(struct dr_path *p, void *buf, size_t cap);
int sim_connect(
	struct dr_path *p, const void *handle, size_t len, int64_t now_ns, struct dr_err *e);
int sim_post_recv(struct dr_path *p, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip);
int sim_post_send(
	struct dr_path *p, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what);
/* A datagram of the rail, on the path, and one that came. */
void sim_rail_came(struct sim_rail *r, const struct sim_item *it);
void sim_path_dgram(struct sim_path *p, const void *data, size_t len);
int sim_post_ctrl(struct dr_path *p, const void *frame, size_t len);
void sim_flush(struct dr_path *p, int64_t now_ns);
int sim_credit(struct dr_path *p, uint32_t epoch, uint64_t seq, struct dr_credit *out);
int sim_progress(struct dr_path *p, int64_t now_ns, struct dr_sink *sink);
void sim_fence(struct dr_path *p, int64_t deadline_ns);
void sim_stats(struct dr_path *p, struct dr_path_stats *out);
void sim_close(struct dr_path *p);
int sim_stop(struct dr_path *p);
void sim_fini(struct dr_path *p);

#endif
