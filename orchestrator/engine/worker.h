/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_WORKER_H
#define DR_ORCHESTRATOR_WORKER_H

#include "base/hist.h"
#include "channel/manager.h"
#include "orchestrator/engine/gpu_buffers.h"
#include "orchestrator/options/run.h"

/*
 * Folder engine/: what moves and checks the data of a run. Workers (this header, the interface of the folder), the
 * transfer loops of each GPU (engine.h), GPU memory (gpu_buffers.h) and the data pattern (integrity.h).
 *
 * A worker is a thread that drives the ChannelManagers of one or more GPUs, their windows and buffers. The main
 * thread communicates with it through two queues with an eventfd each: commands in, reports out. No lock is shared
 * on the data path; live counters are relaxed atomics with one writer.
 */

struct dr_worker_gpu_params {
	unsigned position;		  /* k: the k-th GPU of the run */
	unsigned gpu;			  /* logical GPU number, for names */
	struct dr_manager_params manager; /* poller, ops, arg, gpu are filled in by the worker */
	/* Opened with the numbers 0..n_channels-1. */
	unsigned n_channels;
	struct dr_manager_channel channel[DR_GPU_CHANNELS_MAX];
	struct dr_gpu_buffers *
		gpu_buffers; /* GPU memory, around manager's transport already; NULL: host memory */
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
	int64_t spin_ns;    /* adaptive: time to spin before sleeping */
	int cpu;	    /* pin to this CPU; -1: not pinned */
	int node;	    /* NUMA node of its memory and, unless pinned, its CPUs; -1: any */
	uint32_t chunk_max; /* largest chunk of any phase: capacity of the posted receives */
	uint64_t seed;
	bool client;		     /* this end sends the first message of a round trip */
	bool trace_requests;	     /* log post, test, completion of every request */
	struct dr_rail_rates *rates; /* of all workers; NULL: rates are not judged */
};

enum dr_report_kind {
	DR_REP_READY,	   /* all channels of GPU `position` are connected */
	DR_REP_PHASE_DONE, /* a part of the phase is finished at this end for GPU `position`; value: the
			      phase's index; flag: which part. BW and FAILOVER, one report for each part
			      that this end has: true, sending (all posted and acknowledged: live.posted
			      is final, the peer's EXPECT can be sent); false, receiving (all expected
			      are consumed). With channels both ways that makes two reports. LAT: one
			      report, flag true, at each end. GPUs without a part report nothing */
	DR_REP_SWITCH,	   /* rec, channel */
	DR_REP_PROTECTION, /* flag: protected; path */
	DR_REP_RAIL,	   /* rail, rail_state */
	DR_REP_DEGRADED,   /* rail; flag: it is degraded; text: why */
	DR_REP_SILENCE,	   /* flag: peer stalled (not dead); value: silent ns */
	DR_REP_FAILED, /* channel failed permanently: err, text; the GPU's phase is over, no PHASE_DONE
			      follows. channel DR_ALL: the GPU cannot start (CONNECT, PHASE refused);
			      position DR_ALL: the worker cannot continue */
	DR_REP_SNAPSHOT,    /* reply to DR_CMD_SNAPSHOT: token in value; the counters can be read */
	DR_REP_FIRST_ERROR, /* integrity: the first wrong byte, described in text */
	DR_REP_GAP, /* answer to DR_CMD_GAPS of a channel that receives: value: the trial; rec: last_delivery_ns,
		       first_delivery_ns */
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
	DR_CMD_CONNECT, /* start the channels; the peer handles are set */
	DR_CMD_PHASE,	/* phase: begin it, after all parts of the one before are done at this end.
			      No barrier between the ends is needed: a receiver leaves data of the next
			      phase in the window until it is told that phase (for clean times tell the
			      receiver first) */
	DR_CMD_STOP,	/* senders: stop posting; PHASE_DONE follows when all is acknowledged */
	DR_CMD_EXPECT, /* receivers: expect[channel] = total chunks ever sent on it (flag: expect_bytes, too);
			      PHASE_DONE follows when they are delivered. Refers to the phase that runs at this end, so it
			      comes before the next DR_CMD_PHASE. Also LAT without iters, for the server's lat_rx */
	DR_CMD_MARK,	 /* value: 0 start of measurement, 1 end: both roles note time and counts */
	DR_CMD_SNAPSHOT, /* value: token */
	DR_CMD_BREAK,  /* abort path `path` of channel `channel` (or all: DR_ALL) of GPU `position`;
			 with break_path: call that instead, so that the failure is detected */
	DR_CMD_SWITCH, /* planned switch of the same */
	DR_CMD_FAIL,   /* fail all channels: err, text */
	DR_CMD_GAPS, /* of the bulk channels that receive, path: the trial. flag false: note the time between
			deliveries from now on, and take none for cadence. True: it ends with the next delivery of each
			channel, which reports its longest interval that ended after value. An interval that the command
			finds open counts whole, however late that delivery comes */
	DR_CMD_PAUSE_RECV, /* flag: receivers post nothing (to test that lack of credit causes no failover) */
};
enum { DR_ALL = 0xffffffffu };

struct dr_command {
	enum dr_command_kind kind;
	unsigned position, channel, path; /* DR_ALL allowed */
	struct dr_phase phase;
	uint64_t expect[DR_GPU_CHANNELS_MAX], expect_bytes[DR_GPU_CHANNELS_MAX];
	int64_t value;
	bool flag;
	int err;
	char text[96];
	void (*break_path)(struct dr_path *p); /* on the worker's thread; NULL: see DR_CMD_BREAK */
};

/* Counters of one channel. The main thread may read them at any time. */
struct dr_live {
	uint64_t chunks_tx, bytes_tx; /* acknowledged */
	uint64_t chunks_rx, bytes_rx; /* consumed */
	uint64_t posted;	      /* chunks posted at this end since the start */
	uint64_t in_flight;	      /* sender: posted and not acknowledged */
	uint32_t epoch, active;
};

/* What was done in a phase. Of a stream: until ns. Sender: acknowledged; receiver: consumed. */
struct dr_tally {
	uint64_t messages, chunks, bytes;
	int64_t ns;
};

/*
 * Results of one phase for one GPU; written once, before the last PHASE_DONE of the GPU (or FAILED),
 * then constant until the next DR_CMD_PHASE. With iters the counts are those of the counted messages
 * and the time runs from the first channel's last warm-up chunk (no warm-up: from DR_CMD_PHASE) to the
 * last channel's last chunk; a sender's from acknowledgement to acknowledgement likewise. Durations are
 * 0 only where nothing was counted.
 */
struct dr_phase_result {
	struct dr_tally rx, tx;	 /* between the marks, or the counted iterations; ns: duration */
	struct dr_hist *rtt;	 /* LAT at the client: round trips in ns; owned by the worker */
	struct dr_hist *cadence; /* receiver: time between deliveries of a channel, ns */
	uint64_t verified_chunks, corrupted, lost, duplicated, reordered; /* by the pattern */
	uint64_t wrong_bytes;		     /* in corrupted chunks of the right length */
	char first_wrong[160];		     /* the first wrong chunk; "": none */
	struct dr_gpu_buffers_copies copies; /* during the phase; 0 without GPU memory */
	int64_t copies_ns;		     /* how long that was */
};

struct dr_worker;
int dr_worker_create(const struct dr_worker_params *p, struct dr_worker **out, struct dr_err *e)
	DR_MUST_CHECK;
/* This end's handles of a GPU: one per rail, then one per channel. */
unsigned dr_worker_handle_count(const struct dr_worker *w, unsigned position);
/* Before dr_worker_start: writes handle i. */
int dr_worker_handle(struct dr_worker *w, unsigned position, unsigned i, struct dr_handle *out);
/* The peer's, as many, for DR_CMD_CONNECT; set before that command is posted. */
int dr_worker_set_peer(struct dr_worker *w, unsigned position, const struct dr_handle *h,
	unsigned n) DR_MUST_CHECK;
/* Start the thread, which allocates the buffers. Pinning much memory takes seconds, so all workers are started
 * before the first dr_worker_started. */
int dr_worker_start(struct dr_worker *w, struct dr_err *e) DR_MUST_CHECK;
/* Once after start: wait for the buffers. Errors: those of dr_channel_mem_reg, -ENOMEM. */
int dr_worker_started(struct dr_worker *w, struct dr_err *e) DR_MUST_CHECK;
void dr_worker_post(struct dr_worker *w, const struct dr_command *cmd); /* any thread */
/* Main thread: 1 and the next report, or 0. report_fd is readable while there are reports. */
int dr_worker_report_fd(const struct dr_worker *w);
int dr_worker_next_report(struct dr_worker *w, struct dr_report *out);
void dr_worker_live(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_live *out);
/* The longest time so far that one of its managers was late, see dr_manager_late_ns; any thread. */
int64_t dr_worker_late_ns(const struct dr_worker *w);
/* After the last PHASE_DONE (or FAILED) of that GPU; `position` as in the parameters, as everywhere. */
const struct dr_phase_result *dr_worker_result(const struct dr_worker *w, unsigned position);
/* A channel at the last SNAPSHOT: its statistics, and a line of text for the stall report. */
struct dr_worker_snap {
	struct dr_channel_stats stats;
	char text[256];
};
void dr_worker_snapshot(
	const struct dr_worker *w, unsigned position, unsigned channel, struct dr_worker_snap *out);
/* Begin to close: the thread tells the peer, drives the channels until it knows, for half a second at most, and ends.
 * Returns at once, so that several workers close at the same time. */
void dr_worker_quit(struct dr_worker *w);
/* Quit, join the thread, free. Bounded: at most a second. */
void dr_worker_destroy(struct dr_worker *w);

#endif
