/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_SESSION_NODE_H
#define DR_ORCHESTRATOR_SESSION_NODE_H

#include "orchestrator/plan.h"
#include "orchestrator/session.h"
#include "orchestrator/session_cells.h"

/*
 * This process's end of a session: its workers, what they reported, and the rows that this end
 * measured. Knows neither client nor server logic; lives on the main thread.
 *
 * create -> handles -> start -> connect -> (n_ready == n_gpus) -> { phase -> mark 0 -> mark 1 -> stop ->
 * (sent, expect) -> (phase_over) -> results } ... -> finish -> destroy
 */
struct dr_node;

struct dr_node_ops {
	/* After the end's own book-keeping; never NULL. */
	void (*report)(void *arg, const struct dr_report *rep);
	/* All channels of GPU `position` have sent all of this phase: totals for the peer's
	 * EXPECT. */
	void (*sent)(void *arg, unsigned position, const uint64_t *totals, unsigned n);
};

struct dr_node_channel {
	bool both_up; /* as last reported */
	bool failed;
	unsigned home;		     /* path that it began on: 0 */
	unsigned active;	     /* path after the last switch */
	unsigned unplanned, planned; /* switches so far */
	int64_t last_switch_ns;
	uint64_t retransmits; /* at the last snapshot */
	uint32_t mark_epoch;  /* matrix: at the phase's first mark */
	bool mark_away;	      /* it was not on path 0 then */
};

struct dr_node {
	const struct dr_options *opt;
	const struct dr_plan *plan;
	enum dr_plan_end side;
	struct dr_poller *poller;
	struct dr_record *rec;
	struct dr_output *out;
	const struct dr_node_ops *ops;
	void *arg;

	struct dr_kind *kind;
	struct dr_bank *bank[DR_PLAN_GPUS_MAX];		/* by position; NULL: host memory */
	struct dr_bank_copies copies[DR_PLAN_GPUS_MAX]; /* in the bandwidth phases, */
	int64_t copies_ns[DR_PLAN_GPUS_MAX];		/* which took so long */
	struct dr_rail_life life;			/* of the rails, shared by all workers */
	unsigned n_workers;
	struct dr_node_worker *worker;
	unsigned worker_of[DR_PLAN_GPUS_MAX];
	struct dr_node_channel *channel; /* [position * n_channels + channel] */
	unsigned n_channels;

	unsigned n_ready;
	bool ready[DR_PLAN_GPUS_MAX];
	unsigned n_failed; /* channels, and GPUs that could not start */
	int fail_err;
	char fail_text[200];
	bool integrity_error;
	unsigned unprotected; /* channels with a shadow that is down now */

	struct dr_phase phase;
	bool phase_open;
	bool part_done[DR_PLAN_GPUS_MAX][2]; /* [0] receiving, [1] sending */
	int64_t mark_ns[2], mark_cpu_ns[2];
	int64_t cpu_ns, cpu_wall_ns;		/* sums over the bandwidth phases */
	uint64_t retransmits[DR_PLAN_GPUS_MAX]; /* of the senders, when the phase began */

	uint64_t token; /* of the last SNAPSHOT */
	unsigned snapshots_open;
	bool snapshot_last; /* the last snapshot is complete and no phase began since */

	int64_t phase_ns;	/* when it began here */
	int64_t interval_at_ns; /* start of the running interval; 0: none */
	uint64_t interval_bytes, interval_chunks;

	struct dr_cells cells; /* matrix */
	struct dr_netdev_counters nic_before[DR_RAILS_MAX];
	bool nic_counted[DR_RAILS_MAX];
	int64_t begin_ns;
};

/* Makes the workers and their managers (listening), not started yet. The plan is complete. */
int dr_node_create(struct dr_node **out, const struct dr_options *opt, const struct dr_plan *plan,
	enum dr_plan_end side, const uint8_t *token, struct dr_loop *loop, struct dr_record *rec,
	struct dr_output *output, const struct dr_node_ops *ops, void *arg, struct dr_err *e)
	DR_MUST_CHECK;
/* Closes the channels and joins the threads; at most a second. NULL is allowed. */
void dr_node_destroy(struct dr_node *node);

/* Handles of the GPU at `position` for the peer, all of them. */
unsigned dr_node_handle_count(const struct dr_node *node);
int dr_node_handles(
	struct dr_node *node, unsigned position, struct dr_boot_handle *out, unsigned n);
/* After the handles of all: the workers make their buffers, side by side, while the peer's handles come. */
int dr_node_start(struct dr_node *node, struct dr_err *e) DR_MUST_CHECK;
/* The peer's; waits for the GPU's buffers and starts its channels. -EPROTO, and what its worker ran into. */
int dr_node_connect(struct dr_node *node, unsigned position, const struct dr_boot_handle *handles,
	unsigned n, struct dr_err *e) DR_MUST_CHECK;

void dr_node_phase(struct dr_node *node, const struct dr_phase *phase);
void dr_node_mark(struct dr_node *node, int which);
void dr_node_stop(struct dr_node *node);
void dr_node_expect(struct dr_node *node, unsigned position, const uint64_t *totals, unsigned n);
/* Does data of this channel leave here? Is there bulk data that does (or comes)? Its direction. */
bool dr_node_sends(const struct dr_node *node, unsigned channel);
bool dr_node_has_bulk(const struct dr_node *node, bool sending);
int dr_node_direction(const struct dr_node *node, bool sending);
/* GPUs go by the client's numbers in everything that is recorded, so that both ends' rows meet. */
unsigned dr_node_gpu(const struct dr_node *node, unsigned position);
const struct dr_phase_result *dr_node_result(const struct dr_node *node, unsigned position);
/* As of the last snapshot. */
void dr_node_stats(const struct dr_node *node, unsigned position, unsigned channel,
	struct dr_channel_stats *out);
/* Retransmissions of all that the GPU sends, as of the last snapshot. */
uint64_t dr_node_retransmits(const struct dr_node *node, unsigned position);
/* All parts of the phase are done here. */
bool dr_node_phase_over(const struct dr_node *node);
/* Every GPU of this end has sent all of the phase (or has nothing to send). */
bool dr_node_all_sent(const struct dr_node *node);
/* Put the phase's rows into the record, after phase_over or when the run has to end early. Needs a
 * snapshot after the phase for the retransmissions. */
void dr_node_results(struct dr_node *node);
/* p50 and p99 of the time between deliveries, worst GPU; DR_UNSET when this end receives nothing. */
void dr_node_cadence(const struct dr_node *node, int64_t *p50_ns, int64_t *p99_ns);

/* Ask all workers for fresh statistics; done when snapshots_open is 0. */
void dr_node_snapshot(struct dr_node *node);
/* Log one line per channel from the last snapshot. */
void dr_node_stall_report(struct dr_node *node, const char *why);
/* Post a command to the worker(s) of a GPU (DR_ALL: every worker). */
void dr_node_post(struct dr_node *node, unsigned position, const struct dr_command *cmd);
/* Planned switch of every channel that sends here and is not on its primary path. */
void dr_node_go_home(struct dr_node *node);
/* Sums of the live counters. */
struct dr_node_flow {
	uint64_t tx_bytes, rx_bytes, tx_chunks, rx_chunks, in_flight;
};
void dr_node_flow(const struct dr_node *node, struct dr_node_flow *out);
void dr_node_live(
	const struct dr_node *node, unsigned position, unsigned channel, struct dr_live *out);
struct dr_node_channel *dr_node_channel(struct dr_node *node, unsigned position, unsigned channel);
/* When the next interval is due; DR_NEVER. Call tick then: adds interval rows of what is received
 * here. */
int64_t dr_node_deadline(const struct dr_node *node);
void dr_node_tick(struct dr_node *node, int64_t now_ns);
/* The rows of this end's memory, as far as known; once the channels are up, with what its path is. */
void dr_node_memory(struct dr_node *node);
/* "GPU memory: ..." for people, once the channels are up. False: all is host memory. */
bool dr_node_describe_memory(const struct dr_node *node, char *buf, size_t len);
/* At the end of the session: CPU, and the NIC rows from the snapshot asked for last, if it came. */
void dr_node_finish(struct dr_node *node);

#endif
