/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_CHANNEL_PRIV_H
#define DR_CHANNEL_CHANNEL_PRIV_H

#include "channel/failover.h"

#include <stdatomic.h>

/* Shared by channel.c (data path) and channel_ctl.c (lifecycle, actions, verdicts, statistics). */
struct dr_channel_path {
	struct dr_channel *ch;
	unsigned index;
	struct dr_path *path; /* NULL: no connection */
	uint32_t gen;	      /* of path */
	struct dr_sink sink;
	uint8_t peer[DR_HANDLE_MAX];
	uint16_t peer_len;
	struct dr_path_stats past; /* sums of the generations that are gone */
	uint32_t connections;	   /* generations that came up */
};

struct dr_message {
	unsigned n;
	struct dr_span span[DR_PARTS_MAX];
	uint32_t got[DR_PARTS_MAX]; /* receiver: bytes that came */
};

struct dr_channel {
	struct dr_channel_params prm;
	struct dr_fo fo;
	struct dr_channel_path path[DR_PATHS];
	struct dr_message msg[DR_CHANNEL_WINDOW_MAX];
	int64_t now;	   /* of the call under way */
	uint64_t reported; /* messages told to ops->completed */
	uint64_t bytes_done;
	bool dead_told;
	int64_t probe_ns; /* next look at idle paths whose peer may have gone unseen; DR_NEVER */
	/* sender */
	uint64_t sent_high; /* messages below were posted before: a replay when posted again */
	uint64_t replayed_messages, replayed_bytes, replayed_before;
	/* receiver */
	uint32_t credit_epoch;
	uint64_t credited, credit_flushed; /* receives posted, and of them announced */
	bool patient;			   /* see dr_channel_set_patient */
	int64_t ack_since_ns;		   /* oldest delivery not acknowledged; 0 none */
	atomic_flag driven;
};

enum { DR_CHANNEL_PROBE_NS = 250 * 1000 * 1000 };

void dr_channel_keepalive(struct dr_channel *ch, int64_t now);
void dr_channel_sink_init(struct dr_channel *ch);
void dr_channel_on_delivered(
	struct dr_channel *ch, struct dr_channel_path *cp, const struct dr_event *ev);
void dr_channel_report_done(struct dr_channel *ch);
/* Carry out what the core wants; never inside a sink. */
void dr_channel_settle(struct dr_channel *ch);
/* After an event: settle, post what the core allows, settle. */
void dr_channel_turn(struct dr_channel *ch, int64_t now);
int dr_channel_path_progress(struct dr_channel *ch, unsigned i, int64_t now);
void dr_channel_fence_deadline(struct dr_channel *ch, unsigned i, bool soft);

#endif
