/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_CHANNEL_PRIV_H
#define DR_CHANNEL_CHANNEL_PRIV_H

#include "channel/failover.h"

/* Shared by channel.c (data path) and channel_ctl.c (lifecycle, actions, rail verdicts, statistics). */
struct dr_channel_path {
	struct dr_channel *ch;
	unsigned index;
	struct dr_path *path; /* NULL: no connection */
	uint32_t gen;	      /* of path */
	bool broken;	      /* its connection has failed */
	struct dr_sink sink;
	uint8_t peer[DR_HANDLE_MAX];
	uint16_t peer_len;
	struct dr_path_stats past; /* totals of earlier generations */
	uint32_t connections;	   /* generations that became READY */
};

struct dr_message {
	unsigned n;
	struct dr_span span[DR_PARTS_MAX];
	uint32_t got[DR_PARTS_MAX]; /* receiver: bytes received */
};

struct dr_channel {
	struct dr_channel_params prm;
	struct dr_fo fo;
	struct dr_channel_path path[DR_PATHS];
	int64_t now;			/* of the current call */
	int64_t started_ns;		/* DR_NEVER: not yet */
	int64_t late_ns, late_until_ns; /* see dr_channel_late */
	uint64_t reported;		/* messages reported to ops->completed */
	uint64_t bytes_done;
	struct dr_err unsafe; /* the first connection that could not be destroyed; code 0: none */
	int64_t probe_ns;     /* next PROBE on an idle path, whose peer may be gone unnoticed, */
	int64_t probe_gap_ns; /* after so long without anything that was sent */
	/* sender */
	uint64_t sent_high; /* messages below it were posted before: again, it is a replay */
	uint64_t replayed_messages, replayed_bytes, replayed_before;
	uint32_t credit_epoch; /* of the latest ops->credited; receiver: of its credits */
	/* receiver */
	uint64_t credited, credit_flushed; /* receives posted; of these, announced as credits */
	bool ack_batch;			   /* see dr_channel_set_ack_batch */
	int64_t ack_since_ns;		   /* time of the oldest unacknowledged delivery; 0: none */
	/* Everything that was sent on the active path until heard_tx_ns is known to be acknowledged by its
	 * transport; at quiet_ns nothing else had been sent. */
	int64_t heard_tx_ns, quiet_ns;
	int64_t carried_ns;	 /* sender: the transport has acknowledged more data last */
	struct dr_message msg[]; /* params.window */
};

/* An idle path gets a PROBE after this time: so often if the kind does not show the peer's fence, and else because
 * a reset may be lost. */
#define DR_CHANNEL_PROBE_NS (250 * DR_NS_PER_MS)
#define DR_CHANNEL_KEEPALIVE_NS (2 * DR_NS_PER_S)

void dr_channel_keepalive(struct dr_channel *ch, int64_t now);
/* Of each path's sink. */
void dr_channel_on_event(struct dr_sink *sink, const struct dr_event *ev);
/* Carries out the core's actions; never inside a sink, since that would free the path that calls it. */
void dr_channel_settle(struct dr_channel *ch);
/* After an event: carries out actions, posts what the core allows, carries out actions. */
void dr_channel_turn(struct dr_channel *ch, int64_t now);
int dr_channel_path_progress(struct dr_channel *ch, unsigned i, int64_t now);

#endif
