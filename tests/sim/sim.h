/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_SIM_SIM_H
#define DR_TESTS_SIM_SIM_H

#include "transport/path.h"

/*
 * A path kind in memory and in virtual time, for tests: two nodes (processes) 0 and 1, joined by
 * rails; rail index i of node 0 is paired with rail index i of node 1. Everything that happens follows
 * from the seed and from the calls made, so a seed replays a run.
 *
 * The owner drives the simulation. NICs and kernels act in dr_sim_world_step, processes in progress():
 *
 *	for (;;) {
 *		while (dr_sim_world_busy(w, 0) || dr_sim_world_busy(w, 1))
 *			... rail_progress and progress of that node's rails and paths, with
 *			    now_ns = dr_sim_world_now(w), and what the channel itself wants to do ...
 *		dr_sim_world_step(w, DR_MIN(dr_sim_world_next(w), my_next_timer));
 *	}
 *
 * A node is stalled by not calling its progress: its NIC still lands remote writes and its kernel
 * still takes and acknowledges bytes.
 *
 * Rails come from dr_sim_ops(personality of the world)->listen with
 * kind_params = &(struct dr_sim_rail_params){ world, node, port }, which is copied. Rails of one node with the same
 * index and different ports are several users of one NIC: they share its links and their faults, and each is joined
 * to the rail of the same port at the other node. Not thread safe.
 */

enum dr_sim_personality {
	/* Like TCP: control, credits and data in one ordered byte stream each way; data is copied when
	 * it is handed to the kernel (then SENT) and copied into the posted buffer by progress() of
	 * the receiver. A hard fence, close or stop resets the peer's end after a link delay. */
	DR_SIM_STREAM,
	/* Like verbs: credits carry addresses and a key; writes are done by the NIC, from the sender's
	 * memory into the posted buffer, when they arrive, whatever the processes do. Several queue
	 * pairs: parts overtake each other. The peer does not notice a fence. Writes that were in
	 * flight when the *sender* fenced may still land ("zombies") until the receiver has fenced. */
	DR_SIM_REMOTE_WRITE,
	/* Like an NCCL net plugin: one comm for data, others for control; SENT and DELIVERED in the
	 * order of posting only; no datagrams. Data lands as with remote write. */
	DR_SIM_PLUGIN,
};
const char *dr_sim_personality_name(enum dr_sim_personality p);
const struct dr_transport_ops *dr_sim_ops(enum dr_sim_personality p);

enum { DR_SIM_RAILS_MAX = 8, DR_SIM_PORTS_MAX = 4 };

/* One direction of a rail. Applies to what is sent from now on. */
struct dr_sim_link {
	int64_t delay_min_ns;
	int64_t delay_exp_ns; /* mean of an exponential on top; never reorders inside a lane */
	double bits_per_s;    /* shared by all paths of this direction; 0: unlimited */
	bool dgrams_wait;     /* and by datagrams, in the sender's queue; else they pass the data */
	uint32_t dgram_loss_ppm; /* datagrams lost per million */
	uint32_t dgram_dup_ppm;	 /* datagrams that arrive twice */
	uint32_t loss_ppm;	 /* segments and acknowledgements sent again after a timeout */
};

struct dr_sim_opts {
	enum dr_sim_personality personality;
	struct dr_sim_link link; /* every direction of every rail at the start */
	uint32_t segment_bytes;	 /* data moves in pieces of at most this */
	uint32_t window_bytes;	 /* bytes in flight of a lane (a socket's or queue pair's buffer) */
	uint32_t ctrl_room_bytes; /* on top of that, for control frames */
	uint32_t rcvbuf_bytes;	  /* stream: unread bytes a kernel keeps before its window closes */
	unsigned recv_depth;	  /* messages posted at most: post_recv -EAGAIN */
	unsigned send_depth;	  /* parts queued or in flight at most: post_send -EAGAIN */
	unsigned ctrl_depth;	  /* frames queued at most: post_ctrl -EAGAIN */
	unsigned qps;		  /* remote write: data queue pairs of a path, 1..4 */
	unsigned progress_max;	  /* events of one progress() call at most */
	int64_t rto_ns, rto_max_ns; /* stream: first and longest retransmission timeout */
	int64_t retry_ns;	    /* remote write, plugin: a retransmission timeout ... */
	unsigned retry_count;	    /* ... and after so many more: FAILED{PATH, -ETIMEDOUT} */
	int64_t fence_min_ns;	    /* remote write, plugin: a hard fence takes min + exp */
	int64_t fence_exp_ns;
	int64_t zombie_exp_ns; /* extra delay (mean) of writes in flight when the sender fences */
	bool mute;	       /* nothing is told of the peer's kernel, as by a plugin of NCCL */
	int64_t park_ns;       /* plugin: how long an incoming connection waits for its path */
};
/* The defaults: 10 us + 5 us exp, 10 Gb/s, 64 KiB segments; personality stream. */
void dr_sim_opts_init(struct dr_sim_opts *o);

struct dr_sim_world;
struct dr_sim_rail_params {
	struct dr_sim_world *world;
	unsigned node; /* 0 or 1 */
	unsigned port; /* below DR_SIM_PORTS_MAX */
};

/* opts NULL: defaults. Rails and paths are closed, stopped and fini'd before destroy. */
int dr_sim_world_create(uint64_t seed, const struct dr_sim_opts *opts, struct dr_sim_world **out);
void dr_sim_world_destroy(struct dr_sim_world *w);
int64_t dr_sim_world_now(const struct dr_sim_world *w);
/* Time of the next thing a NIC or kernel does (>= now); DR_NEVER: nothing is under way. */
int64_t dr_sim_world_next(const struct dr_sim_world *w);
/* Do all that happens up to and including `until`, in order, and set the clock to it. Returns the
 * number of things done. until < now is a bug of the caller; DR_NEVER leaves the clock at the last. */
size_t dr_sim_world_step(struct dr_sim_world *w, int64_t until);
/* A progress or rail_progress of this node has something to report or to take in now. A busy path
 * whose progress the owner never calls stays busy. */
bool dr_sim_world_busy(const struct dr_sim_world *w, unsigned node);
/* The same for the rails of this port, and their paths. */
bool dr_sim_port_busy(struct dr_sim_world *w, unsigned node, unsigned port);
/* Since the last call something happened that may make a rail or a path busy. */
bool dr_sim_world_stirred(struct dr_sim_world *w);
/* Something was done with its paths outside of dr_sim_world_step, or their progress was called: looks anew. */
void dr_sim_port_stir(struct dr_sim_world *w, unsigned node, unsigned port);
/* As a poller would: calls `ready` of every rail of this port, and every path of them, that is busy, once each, from
 * a place in the list that `first` draws. Returns how many. */
unsigned dr_sim_port_drive(struct dr_sim_world *w, unsigned node, unsigned port, uint64_t first);
/* The clock of a node: the world's, less what dr_sim_clock_stand took from it. All times that its
 * process passes in and gets are of this clock. */
int64_t dr_sim_world_clock(const struct dr_sim_world *w, unsigned node);
/* A hash over everything that happened; equal for equal seeds and calls. */
uint64_t dr_sim_world_hash(const struct dr_sim_world *w);

/*
 * The shadow-stamp checker. It knows of every posted buffer whether a path may touch it. Counted as
 * violations: a write into memory that is its user's (given back by DELIVERED or FENCED and not posted
 * again); a read of a send buffer that its user has back; memory deregistered, or a rail gone, with
 * something posted in it; sequence numbers not ascending; posting memory of another rail.
 *
 * SENT ends what one *path* may read; when the *channel* completes a send or a receive to its user,
 * the harness says so with give_back, and takes it again before the user posts it anew: any touch in
 * between, by any path, is a violation. bytes of one range may be given back in pieces.
 */
uint64_t dr_sim_world_violations(const struct dr_sim_world *w);
/* The user of this node takes the memory back now: a violation when a path that is not fenced still
 * has it posted, though it may never touch it. */
void dr_sim_world_check_idle(struct dr_sim_world *w, unsigned node, const void *base, size_t len);
const char *dr_sim_world_violation(
	const struct dr_sim_world *w); /* the first, in words; "" if none */
void dr_sim_world_give_back(struct dr_sim_world *w, const void *base, size_t len);
void dr_sim_world_take(struct dr_sim_world *w, const void *base, size_t len);

/*
 * Faults. `from` is the node whose outgoing direction is meant; DR_SIM_BOTH means both. All may be
 * called at any virtual time outside progress(); what has been delivered stays delivered.
 */
struct dr_sim_counts {
	uint64_t answers;   /* of a kernel, on a rail without a path */
	uint64_t zombies;   /* writes that landed after their sender had asked for its fence */
	uint64_t snapshots; /* segments still in the NIC when their sender's fence was done */
	uint64_t refused;   /* writes with a key that was no longer good */
	uint64_t read_again, lost;
	uint64_t dups;	    /* DELIVERED reported twice */
	uint64_t discarded; /* stream: bytes for which nothing was posted any more */
	uint64_t stuck;	    /* fences that failed */
	/* handshakes of streams and of remote write */
	uint64_t strangers, rejected, outdated;
	uint64_t cut_hellos; /* broke in the middle */
	/* of remote write */
	uint64_t claimed;	 /* paths that found their HELLO there */
	uint64_t welcomed_again; /* HELLOs answered once more */
};
const struct dr_sim_counts *dr_sim_world_counts(const struct dr_sim_world *w);

enum { DR_SIM_NODE0 = 1u << 0, DR_SIM_NODE1 = 1u << 1, DR_SIM_BOTH = 3 }; /* masks of nodes */

void dr_sim_link_get(
	const struct dr_sim_world *w, unsigned rail, unsigned from_node, struct dr_sim_link *out);
void dr_sim_link_set(
	struct dr_sim_world *w, unsigned rail, unsigned from_mask, const struct dr_sim_link *l);
/* Silent loss: nothing arrives and no end is notified. Off: retransmissions get through again. */
void dr_sim_cut(struct dr_sim_world *w, unsigned rail, unsigned from_mask, bool on);
/* Only datagrams are lost. */
void dr_sim_mute_dgrams(struct dr_sim_world *w, unsigned rail, unsigned from_mask, bool on);
/* Segments and padded datagrams of more than `bytes` bytes are lost; other datagrams pass. UINT32_MAX: none
 * is. 0: only datagrams pass. */
void dr_sim_hole(struct dr_sim_world *w, unsigned rail, unsigned from_mask, uint32_t bytes);
/* Nothing arrives for for_ns, then everything that was sent does. */
void dr_sim_clog(struct dr_sim_world *w, unsigned rail, unsigned from_mask, int64_t for_ns);
/* The link goes down: cut both ways, and after delay_ns the rail of each node in told_mask reports
 * FAILED{RAIL, -ENETDOWN} (path NULL), as do its paths when paths_too. Until dr_sim_link_up,
 * connect of a told node fails at once with the same. */
void dr_sim_link_down(struct dr_sim_world *w, unsigned rail, unsigned told_mask, int64_t delay_ns,
	bool paths_too);
void dr_sim_link_up(struct dr_sim_world *w, unsigned rail);
bool dr_sim_link_is_cut(const struct dr_sim_world *w, unsigned rail, unsigned from_node);

/* Stream, remote write: somebody who is not the peer connects to this port's rail of node `to`, or sends it a
 * datagram, and does this. */
enum dr_sim_stranger {
	DR_SIM_SILENT,	    /* says nothing, and stays; remote write: nothing */
	DR_SIM_GARBAGE,	    /* up to 40 bytes; remote write: as many as a HELLO may have */
	DR_SIM_PARTIAL,	    /* a part of a HELLO, and leaves */
	DR_SIM_WRONG_TOKEN, /* the HELLO of a path that is there, but for its token */
	DR_SIM_OLD_HELLO, /* one that was sent over this rail before and is outdated; or nothing if none is.
			   * Remote write: HELLO or WELCOME, also of the newest path */
};
enum { DR_SIM_STRANGERS = DR_SIM_OLD_HELLO + 1 };
void dr_sim_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, uint64_t seed);
/* Stream: the next connection that this node dials over this rail breaks, for both ends, after so many bytes
 * of its handshake (HELLO and HELLO_OK, 0 to 43), wherever they are then. Remote write: the next path of this
 * node and rail breaks, at this end alone, at the step of its handshake that `bytes` draws. */
void dr_sim_cut_hello(struct dr_sim_world *w, unsigned rail, unsigned from_node, unsigned bytes);

/* Two paths of one channel, index and generation have both been connecting for for_ns, since since_ns or
 * later: the newer one; NULL: none. */
struct dr_path *dr_sim_hanging(struct dr_sim_world *w, int64_t since_ns, int64_t for_ns);

/* Which paths are meant: those of a channel at one end; its numbers are those of the user of this port. */
struct dr_sim_place {
	unsigned node, port, rail;
	uint32_t channel;
	unsigned index;
};
/* The newest path that is not closed; NULL: none. */
struct dr_path *dr_sim_path_find(struct dr_sim_world *w, const struct dr_sim_place *at);
/* The connection breaks: FAILED{PATH, err} at the ends of the nodes in the mask (the other end learns
 * nothing by this). Data in flight from a broken end: stream, lost; else it may still land. */
void dr_sim_path_break(struct dr_path *p, unsigned at_mask, int err);

/* What goes wrong with the completion of the next part that arrives over this path. */
enum dr_sim_wc {
	DR_SIM_WC_OK,
	DR_SIM_WC_SENT_LATE,   /* SENT comes ns later */
	DR_SIM_WC_SENT_LOST,   /* SENT never comes: only a fence frees the buffer */
	DR_SIM_WC_RECV_LATE,   /* data is there, DELIVERED comes ns later */
	DR_SIM_WC_RECV_LOST,   /* data is there, DELIVERED never comes */
	DR_SIM_WC_ERR_LANDED,  /* sender: FAILED{PATH, -EIO}; the data arrived and is DELIVERED */
	DR_SIM_WC_ERR_UNTOLD,  /* sender: FAILED{PATH, -EIO}; the data arrived, without DELIVERED */
	DR_SIM_WC_ERR_DROPPED, /* sender: FAILED{PATH, -EIO}; the data did not arrive */
};
/* sender_end: the path that sends. Stream knows only the three errors (UNTOLD is LANDED there):
 * -ENOTSUP for the rest. */
int dr_sim_next_completion(struct dr_path *sender_end, enum dr_sim_wc wc, int64_t ns);
/* The next credit of this receiver is lost and its end reports FAILED{PATH, -EIO} after retry_ns x
 * (retry_count + 1). -ENOTSUP on a stream, where credits cannot be lost alone. */
int dr_sim_drop_credit(struct dr_path *receiver_end);
/* A part that the path delivers is reported again, `later` reports later (0: at once). This violates
 * the path contract; a channel must tolerate it. */
void dr_sim_dup_delivered(struct dr_path *receiver_end, unsigned later);
/* The clock of a node stood still for for_ns (its machine was suspended). */
void dr_sim_clock_stand(struct dr_sim_world *w, unsigned node, int64_t for_ns);
/* Hard fences begun from now on, on this node and rail, take ns (beyond their deadline: the
 * connection is destroyed at the deadline); stuck: destroying fails too, FAILED{RAIL, -EIO} at the
 * deadline and the buffers stay quarantined. ns < 0: back to the options. */
void dr_sim_fence_time(
	struct dr_sim_world *w, unsigned rail, unsigned node, int64_t ns, bool stuck);

/* How many ends of the newest path's connection are up; 0: not this one. A link may be dead. */
unsigned dr_sim_path_ends(const struct dr_sim_world *w, const struct dr_sim_place *at);

/* A path, open or closed, is in a fence that failed for good. */
bool dr_sim_path_quarantined(const struct dr_sim_world *w, const struct dr_sim_place *at);
/* And it held buffers of its user when that fence began: sends and receives that it had not
 * reported as done. */
bool dr_sim_path_holds(const struct dr_sim_world *w, const struct dr_sim_place *at);

/* The process dies, its rails with it: connections are reset (told over links that work), nothing of
 * it is touched any more. The owner then only closes, stops and fini's its paths and rails. */
void dr_sim_kill(struct dr_sim_world *w, unsigned node);

#endif
