/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_WORKER_H
#define DR_ORCHESTRATOR_WORKER_H

#include "base/hist.h"
#include "channel/manager.h"
#include "orchestrator/memory.h"

/*
 * One worker: a thread that drives one or more GPUs' ChannelManagers, their windows and buffers.
 * The main thread talks to it through one queue with an eventfd each way: commands in, reports out.
 * No lock is shared on the data path; live counters are relaxed atomics with one writer.
 */
enum dr_poll_policy { DR_POLL_ADAPTIVE, DR_POLL_BUSY };

enum dr_phase_kind { DR_PHASE_BW, DR_PHASE_LAT, DR_PHASE_FAILOVER };

/* One phase, the same at both ends. Every end runs the roles that its channels' directions give it. */
struct dr_phase {
	unsigned index;
	enum dr_phase_kind kind;
	uint64_t message_bytes;
	uint32_t chunk_bytes; /* min(--chunk, message): unit of sequence, window, ack and gap */
	uint64_t iters;	  /* messages a channel (BW) or round trips a GPU (LAT); 0: until stopped */
	uint64_t warmup;  /* messages or round trips before those that count */
	bool verify;	  /* fill and check every byte by the pattern */
	double rate_bits; /* a channel's limit in bits per second; 0: none */
	/* Who takes part; 0: all. Bit k: the GPU at position k. Bit r: channels whose primary path is on
	 * rail r, of which each of those GPUs has some in each direction; not for LAT. */
	uint32_t gpu_mask, rail_mask;
};
static inline bool dr_phase_has_gpu(const struct dr_phase *p, unsigned position)
{
	return !p->gpu_mask || (position < 32 && (p->gpu_mask >> position & 1));
}
static inline bool dr_phase_has_rail(const struct dr_phase *p, unsigned rail)
{
	return !p->rail_mask || (rail < 32 && (p->rail_mask >> rail & 1));
}

struct dr_worker_gpu_params {
	unsigned position;		  /* k: the k-th GPU of this run */
	unsigned gpu;			  /* logical GPU number, for names */
	struct dr_manager_params manager; /* poller, ops, arg, gpu are filled in by the worker */
	struct dr_bank
		*bank; /* GPU memory, around manager's transport already; NULL: host memory */
	/* Channels 0..n_bulk-1 carry bandwidth; lat_tx/lat_rx: channel numbers of the ping-pong as seen
	 * from this end, -1 none. */
	unsigned n_bulk;
	int lat_tx, lat_rx;
};

struct dr_worker_params {
	unsigned index;
	unsigned n_gpus;
	const struct dr_worker_gpu_params *gpus;
	enum dr_poll_policy poll;
	int64_t spin_ns;    /* adaptive: how long to spin before it sleeps */
	int cpu;	    /* pin to this CPU; -1: do not */
	int node;	    /* NUMA node of its memory and, unless pinned, its CPUs; -1: any */
	uint32_t chunk_max; /* largest chunk of any phase: capacity of the posted receives */
	uint64_t seed;
	bool client;	     /* this end sends the first ping */
	bool trace_requests; /* log post, test, completion of every request */
};

enum dr_report_kind {
	DR_REP_READY,	   /* all channels of GPU `position` carry data */
	DR_REP_PHASE_DONE, /* a part of the phase is finished at this end for GPU `position`; value: the
			      phase's index; flag: which part. BW and FAILOVER, one report for each part
			      that this end has: true, sending (all posted and acknowledged: live.posted
			      is final, the peer's EXPECT can be sent); false, receiving (all expected
			      are consumed). With channels both ways that makes two reports. LAT: one
			      report, flag true, at each end. GPUs without a part report nothing */
	DR_REP_SWITCH,	   /* rec, channel */
	DR_REP_PROTECTION, /* flag: protected; path */
	DR_REP_RAIL,	   /* rail, rail_state */
	DR_REP_SILENCE,	   /* flag: peer stalled (not dead); value: silent ns */
	DR_REP_FAILED, /* channel ended for good: err, text; the GPU's phase is over, no PHASE_DONE
			      follows. channel DR_ALL: the GPU cannot start (CONNECT, PHASE refused);
			      position DR_ALL: the worker itself cannot go on */
	DR_REP_SNAPSHOT,    /* answer to DR_CMD_SNAPSHOT: token in value; read the counters now */
	DR_REP_FIRST_ERROR, /* integrity: the first wrong byte, described in text */
};

struct dr_report {
	enum dr_report_kind kind;
	unsigned position; /* GPU */
	unsigned channel;
	unsigned path, rail;
	enum dr_rail_state rail_state;
	bool flag;
	int err;
	int64_t now_ns, value;
	struct dr_switch_record rec;
	char text[160];
};

enum dr_command_kind {
	DR_CMD_CONNECT, /* peer handles are set: start the channels */
	DR_CMD_PHASE,	/* phase: begin it, after all parts of the one before are done at this end.
			      No barrier between the ends is needed: a receiver leaves data of the next
			      phase in the window until it is told that phase (for clean times tell the
			      receiver first) */
	DR_CMD_STOP, /* senders: post no more messages; PHASE_DONE follows when all are acknowledged */
	DR_CMD_EXPECT, /* receivers: expect[channel] = total chunks ever sent on it; PHASE_DONE follows
			      when they are delivered. Speaks of the phase that runs at this end, so it
			      comes before the next DR_CMD_PHASE. Also LAT without iters, for the server's lat_rx */
	DR_CMD_MARK,	 /* value: 0 start of measurement, 1 end: both roles note time and counts */
	DR_CMD_SNAPSHOT, /* value: token */
	DR_CMD_BREAK,  /* abort path `path` of channel `channel` (or all: DR_ALL) of GPU `position`;
			 break_path: break it so instead, and let it be found out */
	DR_CMD_SWITCH, /* planned switch of the same */
	DR_CMD_FAIL,   /* end all channels: err, text */
	DR_CMD_PAUSE_RECV, /* flag: receivers post nothing (for the test that no credit is no failover) */
};
enum { DR_ALL = 0xffffffffu };

struct dr_command {
	enum dr_command_kind kind;
	unsigned position, channel, path; /* DR_ALL allowed */
	struct dr_phase phase;
	uint64_t expect[DR_CHANNELS_MAX];
	int64_t value;
	bool flag;
	int err;
	char text[96];
	void (*break_path)(struct dr_path *p); /* on the worker's thread; NULL: see DR_CMD_BREAK */
};

/* Counters of one channel that the main thread may read at any time (relaxed, one writer). */
struct dr_live {
	uint64_t chunks_tx, bytes_tx; /* acknowledged */
	uint64_t chunks_rx, bytes_rx; /* consumed */
	uint64_t posted;	      /* chunks taken by the channel at this end, ever */
	uint64_t in_flight;	      /* sender: posted and not acknowledged, now */
	int64_t last_ns;	      /* last delivery or acknowledgement */
	uint32_t epoch, active;
};

/*
 * Results of one phase for one GPU; written once, before the last PHASE_DONE of the GPU (or FAILED),
 * then constant until the next DR_CMD_PHASE. With iters the counts are those of the counted messages
 * and the time runs from the first channel's last warm-up chunk (no warm-up: from DR_CMD_PHASE) to the
 * last channel's last chunk; a sender's from acknowledgement to acknowledgement likewise. Durations are
 * 0 only where nothing was counted.
 */
struct dr_phase_result {
	uint64_t rx_messages, rx_bytes,
		rx_chunks;		/* between the marks, or the counted iterations */
	int64_t rx_ns;			/* duration on this end's clock */
	uint64_t tx_messages, tx_bytes; /* acknowledged in the same window at the sender */
	int64_t tx_ns;
	struct dr_hist *rtt;	 /* LAT at the client: round trips in ns; owned by the worker */
	struct dr_hist *cadence; /* receiver: time between deliveries of a channel, ns */
	uint64_t verified_chunks, corrupted, lost, duplicated, reordered; /* by the pattern */
	struct dr_bank_copies copies; /* during the phase; 0 without GPU memory */
	int64_t copies_ns;	      /* how long that was */
};

struct dr_worker;
int dr_worker_create(const struct dr_worker_params *p, struct dr_worker **out, struct dr_err *e)
	DR_MUST_CHECK;
/* Before dr_worker_start: this end's handles of the k-th GPU of this worker. */
struct dr_manager *dr_worker_manager(struct dr_worker *w, unsigned position);
/* Peer handles for DR_CMD_CONNECT, set before that command is posted. */
int dr_worker_set_peer(struct dr_worker *w, unsigned position,
	const uint8_t (*handles)[DR_HANDLE_MAX], const uint16_t *lens, unsigned n) DR_MUST_CHECK;
/* Start the thread, which makes the buffers: much pinned memory takes seconds, so workers are started side
 * by side. */
int dr_worker_start(struct dr_worker *w, struct dr_err *e) DR_MUST_CHECK;
/* Once after start: wait until the buffers are there. Errors: those of dr_channel_mem_reg, -ENOMEM. */
int dr_worker_started(struct dr_worker *w, struct dr_err *e) DR_MUST_CHECK;
void dr_worker_post(struct dr_worker *w, const struct dr_command *cmd); /* any thread */
/* Main thread: next report, 0 none, 1 taken. report_fd becomes readable when there are some. */
int dr_worker_report_fd(const struct dr_worker *w);
int dr_worker_next_report(struct dr_worker *w, struct dr_report *out);
void dr_worker_live(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_live *out);
/* After the last PHASE_DONE (or FAILED) of that GPU; `position` as in the parameters, as everywhere. */
const struct dr_phase_result *dr_worker_result(const struct dr_worker *w, unsigned position);
/* Copy of the channel's statistics taken at the last SNAPSHOT. */
void dr_worker_channel_stats(const struct dr_worker *w, unsigned position, unsigned channel,
	struct dr_channel_stats *out);
/* One text line per channel for the stall report, taken at the last SNAPSHOT. */
void dr_worker_describe(
	const struct dr_worker *w, unsigned position, unsigned channel, char *buf, size_t len);
/* Close, join the thread, free. Bounded: at most a second. */
void dr_worker_destroy(struct dr_worker *w);

/*
 * The pattern that every byte of a verified message has: 64-bit little-endian words, word i of chunk
 * seq is base(seed, gpu, channel, seq) + i * 0x9e3779b97f4a7c15 (the golden-ratio constant of
 * splitmix64); a tail shorter than a word takes its first bytes. fill and check run at memory speed.
 */
void dr_pattern_fill(
	void *buf, size_t len, uint64_t seed, unsigned gpu, unsigned channel, uint64_t seq);
/* 0 equal; else 1 and the offset of the first wrong byte. */
int dr_pattern_check(const void *buf, size_t len, uint64_t seed, unsigned gpu, unsigned channel,
	uint64_t seq, size_t *bad_offset);

#endif
