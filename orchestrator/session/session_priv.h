/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_PRIV_H
#define DR_ORCHESTRATOR_SESSION_PRIV_H

#include "base/limits.h"
#include "detect/rate.h"
#include "orchestrator/engine/worker.h"
#include "orchestrator/fault/options.h"
#include "orchestrator/plan/affinity.h"
#include "orchestrator/session/message.h"
#include "orchestrator/session/mtu.h"
#include "orchestrator/session/session.h"
#include "topology/route.h"
#include "topology/trouble.h"

/*
 * What both ends of a session have, for the files of this folder:
 *   session.c   the loop, the control connection, messages
 *   inject.c    faults at this end
 *   rights.c    what this process may still do when it reads bytes of the peer
 *   switch_lines.c  lines about switches, while the run lasts
 *   pulse.c     signs of life while the main thread makes buffers
 *   local.c, local_phase.c   this end's workers; their commands and reports
 *   rows.c, matrix_cell.c, live.c   what they measure
 * struct dr_client and the server's struct server begin with a struct dr_session, which is the argument of all
 * callbacks.
 */
struct dr_session;

struct dr_session_ops {
	/* A report of a worker, after the local end's own book-keeping. NULL: not needed. */
	void (*report)(struct dr_session *s, const struct dr_report *rep);
	/* Handles of the GPU at `position` to the peer. */
	int (*handles)(
		struct dr_session *s, unsigned position, const struct dr_handle *h, unsigned n);
	int (*take)(struct dr_session *s, const struct dr_message *m, struct dr_err *e);
	/* A message that could not be read or taken. */
	void (*bad_message)(struct dr_session *s, const struct dr_err *e);
	/* This end cannot connect its channels, its guard died, or a client cannot send. */
	void (*failed)(struct dr_session *s, int status, const struct dr_err *e);
	/* A fault at this end was injected or undone, or could not be. */
	void (*fault)(struct dr_session *s, const struct dr_fault_report *rep);
	/* Tell the peer that this end is alive, from another thread (bootstrap.h, pulse). Its argument is the session. NULL: the
	 * peer needs no such sign. */
	void (*alive)(void *session);
};

/* A fault that the guard injects or holds: from the request until the guard reported that it was undone, or that it was
 * not injected. */
struct dr_injected {
	uint32_t guard_id; /* the guard's; 0: free entry */
	uint32_t id;	   /* of who asked: this end's campaign, or the client */
	bool over;	   /* its session ended */
	bool undo, sent;   /* it has to be undone; the guard was asked to */
};
enum { DR_INJECTED_MAX = 32 };

/* Faults at this end: those of NICs through the guard, closed connections through the workers, manual ones by
 * asking. Without --allow-faults there is no guard and every request is refused. */
struct dr_injector {
	struct dr_guard_options go;
	char rails[1024];     /* --rails with the names of net devices */
	struct dr_route told; /* go.control */
	struct dr_guard *guard;
	bool left; /* a fault of a dead guard could not be undone: this end has to end */
	struct dr_pollable po;
	struct dr_injected held[DR_INJECTED_MAX];
};

struct dr_session {
	const struct dr_options *opt;
	struct dr_record *rec;
	struct dr_output *out;
	enum dr_plan_end side;
	const struct dr_session_ops *ops;
	struct dr_loop loop;
	struct dr_injector inj;
	struct dr_topo *topo; /* this machine; NULL: unknown */
	struct dr_rights rights;
	struct dr_control *control;

	/* Of the current peer. */
	struct dr_plan plan;
	struct dr_route route;
	struct dr_local *local; /* NULL: not agreed yet */
	int status; /* exit status with which this end gave up the session; 0: goes on */
	bool lost;  /* control connection is down now */
	enum dr_boot_cause lost_cause;
	int64_t failed_ns; /* when the first channel ended; 0 */
};

/* From the first channel that ended until it is clear why: a dead peer's FIN on the control
 * connection may come a little later than those on the data paths. */
enum { DR_SESSION_WHY_NS = 400 * 1000 * 1000 };

/* Loop, guard and machine; then the process gives up its rights (dr_rights_restrict). Before
 * threads of our own; dr_session_close in any case. */
int dr_session_open(struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;
/* Destroys the local end, undoes what is left of the faults. */
void dr_session_close(struct dr_session *s);
/* What a client cannot send ends its run (ops->failed); a server logs it. Without a connection it is no error. */
void dr_session_send(struct dr_session *s, const struct dr_message *m);
/* Why channels of the local end or its peer ended with err: the exit status, and *what for people:
 * "both paths lost", "the data paths never came up" or "channel ended". */
int dr_session_loss(const struct dr_session *s, int err, const char **what);
/* The reason of an error with DR_EXIT_PEER, from how the control connection ended. */
enum dr_reason dr_session_reason(enum dr_boot_cause cause);
/* What failed on the way to the peer: its fault (DR_EXIT_PEER) or this end's (DR_EXIT_ENV). */
int dr_session_exit(int err);
/* The detection settings of the plan, for the result document. */
void dr_session_record_detection(struct dr_session *s);

/* Operations of the bootstrap that both ends share; arg: the session. */
void dr_session_on_handles(void *arg, unsigned k, const struct dr_handle *handles, unsigned n);
void dr_session_on_message(void *arg, const json_t *msg);
void dr_session_on_lost(void *arg, enum dr_boot_cause cause, const char *text);
void dr_session_on_resumed(void *arg);

/* inject.c. init and fini are part of dr_session_open and dr_session_close; fini may be called before, and undoes
 * what is left. */
int dr_inject_init(struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;
void dr_inject_fini(struct dr_session *s);
/* What a fault acts on at its side. */
struct dr_inject_target {
	unsigned position, channel; /* of the GPU; the first when the fault does not say */
	int rail;	 /* that it cuts; -1: acts on channels, or the NIC is none of the rails' */
	const char *nic; /* the spec's, or that of the path; "" for close, qp-error */
};
struct dr_inject_target dr_inject_target(const struct dr_fault_spec *f, const struct dr_plan *plan);
/* Faults at a server need its leave, and a client that proved who it is. -EACCES. */
int dr_inject_allowed(const struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;
/* The rules of this end for one fault; the text begins with "--fault KIND". */
int dr_inject_check(const struct dr_session *s, const struct dr_fault_spec *f, struct dr_err *e)
	DR_MUST_CHECK;
/* The same for all faults of this end in the list; at a server, for those that the offer names. */
int dr_inject_check_all(const struct dr_session *s, const struct dr_fault_list *l, struct dr_err *e)
	DR_MUST_CHECK;
int dr_inject_check_offered(const struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;
/* Begin, undo: ops->fault gets a report with this id, perhaps from inside the call. The caller chooses ids; one that is
 * active already in this session is refused. A session holds up to DR_INJECTED_MAX faults, each with its id. */
void dr_inject(struct dr_session *s, const struct dr_fault_spec *f, uint32_t id);
void dr_inject_undo(struct dr_session *s, uint32_t id);
/* The session ended: every fault that it holds is undone. Reports come no more, failures are logged. */
void dr_inject_end(struct dr_session *s);
/* A server that has no workers: another guard in place of one that died. */
void dr_inject_renew(struct dr_session *s);

/*
 * The local end: workers, what they reported, and the rows that this end
 * measured. Knows neither client nor server logic; lives on the main thread.
 *
 * create -> start -> connect -> (n_ready == n_gpus) -> { phase -> MARK 0 -> MARK 1 -> STOP ->
 * (sent, EXPECT) -> (phase_over) -> results } ... -> finish -> destroy
 */
struct dr_local_worker {
	struct dr_pollable po; /* fd -1: it has not made its buffers, and commands pass it over */
	struct dr_local *local;
	struct dr_worker *w;
};

struct dr_local_gpu {
	unsigned position;
	unsigned
		number; /* the client's, as in all that is recorded, so that both ends' rows meet */
	struct dr_local_worker *on;
	struct dr_gpu_buffers *buffers;	     /* NULL: host memory */
	struct dr_gpu_buffers_copies copies; /* in the bandwidth phases, */
	int64_t copies_ns;		     /* their duration */
	bool ready;
	bool done[2];	      /* parts of the phase: [0] receiving, [1] sending */
	uint64_t retransmits; /* of its senders, when the phase began */
	/* live.c: sums when the session began, and switches since. */
	struct dr_live_gpu_row live_base, live;
	struct dr_live_path_row live_path_base[DR_PATHS];
};

struct dr_local_channel {
	struct dr_local_gpu *gpu;
	unsigned number;
	bool sends; /* data leaves here */
	bool bulk;  /* not of the latency test */
	struct dr_plan_map rails;
	bool both_up;		     /* as last reported */
	unsigned unplanned, planned; /* switches so far */
	int64_t last_switch_ns;
	/* The measured part of the phase: its epoch at the begin; it was not on path 0 all that time. */
	uint32_t mark_epoch;
	bool away;
	uint64_t chunks_before; /* received before the phase */
	unsigned line_batch;	/* switch_lines.c: the last one that it is in */
	/* Campaign, of the running trial. */
	struct {
		bool hit;	 /* the fault acts on the path that carries its data, */
		bool affected;	 /* and there are data: the latency test is not running */
		uint64_t chunks; /* acknowledged and consumed here when the fault took effect */
		bool has_row;	 /* the receiver's row of its switch is in the record */
		unsigned unplanned, planned; /* switches before */
		/* Missed the deadline; its first switch since belongs to trial `number`, whose rows begin here. */
		bool late;
		unsigned number;
		size_t first_switch;
	} trial;
};

/* Sums of the live counters. */
struct dr_local_flow {
	uint64_t tx_bytes, rx_bytes, tx_chunks, rx_chunks;
};

/* See switch_lines.c. */
struct dr_switch_lines {
	size_t seen, first; /* rows: there at the last look; all before `first` are done with */
	int64_t due_ns;	    /* end of the batch; 0: none */
	unsigned batch, lines;
};

struct dr_local {
	struct dr_session *s;
	const struct dr_plan *plan; /* these are the session's */
	struct dr_record *rec;
	struct dr_output *out;
	enum dr_plan_end side;

	/* Shared by all workers: the peer's heartbeats, with the poller of their endpoints; NULL: the kind has no
	 * datagrams; and what is known of the rails. */
	struct dr_peer *peer;
	struct dr_poller *peer_poller;
	struct dr_rail_rates rates;
	unsigned n_workers, n_channels; /* n_channels: of a GPU */
	struct dr_local_worker *worker;
	struct dr_local_gpu gpu[DR_PLAN_GPUS_MAX], *gpu_end;
	struct dr_local_channel *channel, *end; /* by GPU and number */

	unsigned n_ready;
	unsigned n_failed; /* channels, and GPUs that could not start */
	int64_t fail_silent_ns; /* before the failures: longest time without delivery or acknowledgement; DR_UNSET */
	int fail_err;
	char fail_text[300];
	unsigned unprotected; /* channels with a shadow that is down now */

	struct dr_phase phase;
	bool phase_open, marked_away; /* marked_away: of this phase the channels' `away` is final */
	int64_t mark_ns[2], mark_cpu_ns[2];
	int64_t cpu_ns, cpu_wall_ns; /* sums over the bandwidth phases */

	uint64_t token; /* of the last SNAPSHOT */
	unsigned snapshots_open;
	bool snapshot_last; /* the last snapshot is complete and no phase began since */
	bool snapshot_live; /* the last one is for the live figures, and leaves snapshot_last as it was: */
	bool snapshot_was;
	int64_t live_due_ns;	      /* live.c: the next page; 0: none */
	int rail_state[DR_RAILS_MAX]; /* enum dr_rail_state, as last reported */
	int64_t rail_losses
		[DR_RAILS_MAX]; /* live.c: outside the failover test, earlier sessions included */

	int64_t phase_ns;	 /* when it began here */
	int64_t interval_at_ns;	 /* start of the running interval; 0: none */
	int64_t interval_due_ns; /* its end */
	bool interval_omitted;	 /* it began before the measured part */
	struct dr_local_flow interval;

	struct dr_switch_lines switch_lines;
	bool trial_open; /* of the failover test: it explains switches without a plan */

	struct { /* of a matrix: [0] when the measured part began, [1] when it ended */
		struct dr_netdev_counters counter[DR_RAILS_MAX];
		bool counted[DR_RAILS_MAX];
		int64_t ns;
	} matrix[2];
	struct dr_netdev_counters nic_before[DR_RAILS_MAX];
	struct dr_trouble_counts trouble_before[DR_RAILS_MAX];
	struct dr_limit_cpu cpu_before;
	bool nic_counted[DR_RAILS_MAX];
	int64_t begin_ns;
};

/* Makes the workers and their managers (listening), not started yet, for the session's plan: s->local. */
int dr_local_create(struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;
/* Closes the channels and joins the threads; at most a second. NULL is allowed. */
void dr_local_destroy(struct dr_local *l);
/* Sends the handles of all GPUs; then the workers make their buffers, in parallel, while the peer's
 * handles come. */
int dr_local_start(struct dr_local *l, struct dr_err *e) DR_MUST_CHECK;
/* The peer's handles; waits for the GPU's buffers and starts its channels. -EPROTO, and errors of its
 * worker. */
int dr_local_connect(struct dr_local *l, unsigned position, const struct dr_handle *handles,
	unsigned n, struct dr_err *e) DR_MUST_CHECK;
/* Where the worker runs. */
struct dr_affinity_place dr_local_place(
	const struct dr_local *l, const struct dr_local_worker *worker);

/* local_phase.c. */
void dr_local_phase(struct dr_local *l, const struct dr_phase *phase);
/* What a MARK, STOP, SWITCH or EXPECT asks of this end. -EPROTO: an EXPECT that is not of this plan. */
int dr_local_take(struct dr_local *l, const struct dr_message *m, struct dr_err *e);
/* Is there bulk data that leaves here (or comes)? Its direction. */
bool dr_local_has_bulk(const struct dr_local *l, bool sending);
int dr_local_direction(const struct dr_local *l, bool sending);
/* The phase is over: without marks its measured part ends now. */
void dr_local_measured(struct dr_local *l);
/* Of a phase that is over: channels of the GPU in one direction that were on another rail for some time. */
unsigned dr_local_away(const struct dr_local *l, const struct dr_local_gpu *g, bool sending);
/* The GPU finished its part of the phase, or has none: its worker has published the result and leaves it unchanged
 * until the next phase. Before that the worker writes the result. */
bool dr_local_gpu_over(const struct dr_local_gpu *g);
/* The same for all GPUs; all have sent what they had to. */
bool dr_local_phase_over(const struct dr_local *l);
bool dr_local_all_sent(const struct dr_local *l);
/* Post a command to the worker of a GPU (DR_ALL: every worker). */
void dr_local_post(struct dr_local *l, unsigned position, const struct dr_command *cmd);
/* The worker's report queue is readable. */
void dr_local_on_reports(struct dr_pollable *po, uint32_t revents, int64_t now_ns);
/* Ask all workers for fresh statistics; done when snapshots_open is 0. */
void dr_local_snapshot(struct dr_local *l);
/* As of the last snapshot: one channel; retransmissions of all that the GPU sends; a line for each channel that
 * waits, logged. */
struct dr_channel_stats dr_local_stats(const struct dr_local_channel *ch);
uint64_t dr_local_retransmits(const struct dr_local *l, const struct dr_local_gpu *g);
/* The same for the live figures only: the rows of the run do not depend on it. Nothing while one is open. */
void dr_local_snapshot_live(struct dr_local *l);
/* As of the last snapshot: the peer has closed all channels in order. */
bool dr_local_all_closed(const struct dr_local *l);
void dr_local_stall_report(struct dr_local *l, const char *why);
/* The channel of a row's GPU and channel; NULL: none of ours. */
struct dr_local_channel *dr_local_channel_of(
	const struct dr_local *l, int64_t gpu, int64_t channel);
/* Live counters: of one channel, and their sums. */
struct dr_live dr_local_live(const struct dr_local_channel *ch);
struct dr_local_flow dr_local_flow(const struct dr_local *l);

/* environment.c. Settings of this end and of its NICs that change the figures; at the end,
 * whether it got the processor. */
void dr_local_record_environment(struct dr_local *l);
void dr_local_record_processor(struct dr_local *l);

/* rows.c. The rows of the plan; the NICs' own counters before the first byte. */
void dr_local_record_plan(struct dr_local *l);
void dr_local_count_nics(struct dr_local *l);
/* The channels of the GPU, which are all connected now. */
void dr_local_channel_rows(struct dr_local *l, const struct dr_local_gpu *g, int64_t connected_ns);
/* The phase begins, or is over. */
void dr_local_phase_row(struct dr_local *l, bool over);
/* Processor time of this process and of those that the transport has started. */
/* Put the phase's rows into the record, after phase_over or when the run has to end early. Needs a
 * snapshot after the phase for the retransmissions. */
void dr_local_results(struct dr_local *l);
/* p50 and p99 of the time between deliveries, worst GPU; DR_UNSET when this end receives nothing. */
void dr_local_cadence(const struct dr_local *l, int64_t *p50_ns, int64_t *p99_ns);
/* The running interval ends: its row, if there is one. The next one begins. */
void dr_local_interval_end(struct dr_local *l, int64_t now_ns);
void dr_local_interval_begin(struct dr_local *l, int64_t now_ns);
/* When the next interval or line about switches is due; DR_NEVER. Call tick then: adds interval rows of what is received
 * here. True: there are rows that a server's client waits for. */
int64_t dr_local_deadline(const struct dr_local *l);
/* Rails of the GPUs whose channels are not up, as bits. */
uint32_t dr_local_waiting(const struct dr_local *l);
bool dr_local_tick(struct dr_local *l, int64_t now_ns);
/* The rows of this end's memory, as far as known; once the channels are up, with what its path is. */
void dr_local_memory(struct dr_local *l);
/* "GPU memory: ..." for people, once the channels are up. False: all is host memory. */
bool dr_local_describe_memory(const struct dr_local *l, char *buf, size_t len);
/* At the end of the session: CPU, and the NIC rows from the snapshot asked for last, if it came. */
void dr_local_finish(struct dr_local *l);
/* Retransmissions of the GPU in this phase; DR_UNSET: the transport does not tell. */
int64_t dr_local_again(const struct dr_local *l, const struct dr_local_gpu *g);

/* limits.c. Before anything is opened: has this process the memory, the open files, whose soft
 * limit is raised, and the ports that the plan needs? -ENOBUFS, -EMFILE, -EADDRINUSE with both
 * numbers. */
int dr_session_check_limits(const struct dr_session *s, struct dr_err *e) DR_MUST_CHECK;

/* Warns if the session has one rail only, or rails of this end answer ARP for each other; at both
 * ends, when it begins. */
void dr_session_warn_rails(const struct dr_session *s);

/*
 * live.c. The rows of --metrics-listen, from the workers' relaxed counters and from snapshots, twice a second. Sums go on
 * from one session of the process to the next. Without the option nothing is done.
 */
/* At the start of the process: there was no session yet. */
void dr_live_start(struct dr_output *out, struct dr_record *rec);
void dr_live_begin(struct dr_local *l);
int64_t dr_live_deadline(const struct dr_local *l);
void dr_live_tick(struct dr_local *l, int64_t now_ns);
void dr_live_switch(struct dr_local_gpu *g, const struct dr_report *rep, bool receiver);
/* The rail's state from now on; also without the option. */
void dr_live_rail(struct dr_local *l, unsigned rail, enum dr_rail_state state);
/* The last figures of the session; the caller publishes them. */
void dr_live_end(struct dr_local *l);

/*
 * switch_lines.c. One line for people for switches that come together, while the run lasts. tick: true when a batch is
 * complete; a server then sends its rows, which have the gaps. trial: the failover test has begun or ended one, and has
 * claimed its switches. end: what is left, with or without the gap.
 */
bool dr_switch_lines_tick(struct dr_local *l, int64_t now_ns);
void dr_switch_lines_trial(struct dr_local *l, bool open);
void dr_switch_lines_end(struct dr_local *l);

/*
 * matrix_cell.c. The bandwidth phases of a matrix as one end sees them: what its NICs' own counters rose
 * by while the phase was measured. A cell is a phase with a rail_mask of one bit; the phase of all GPUs over all rails has none.
 */
bool dr_matrix_cell_running(const struct dr_local *l);
/* The measured part begins (0: at the mark, with iterations at the beginning of the phase) or ends. */
void dr_matrix_mark(struct dr_local *l, int which);
/* The rows of the phase that is over; needs a snapshot after it. */
void dr_matrix_results(struct dr_local *l);

#endif
