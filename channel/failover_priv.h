/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FAILOVER_PRIV_H
#define DR_CHANNEL_FAILOVER_PRIV_H

#include "channel/failover.h"
#include "detect/rules.h"

/* Shared by failover.c (paths, timers), failover_tx.c (sender) and failover_rx.c (receiver). */
enum {
	DR_FO_RESEND_NS = 10 * 1000 * 1000, /* interval of repeated SWITCH and NOTIFY */
};

static inline unsigned dr_fo_slot(const struct dr_fo *f, uint64_t seq)
{
	return (unsigned)(seq % f->prm.window);
}

static inline unsigned dr_fo_full_mask(const struct dr_fo *f, uint64_t seq)
{
	return (1u << f->n_parts[dr_fo_slot(f, seq)]) - 1;
}

/* Waiting for a fence that may still end. */
static inline bool dr_fo_fencing(const struct dr_fo *f, unsigned p)
{
	return f->path[p].state == DR_FOP_FENCING && !f->path[p].stuck;
}

static inline int64_t dr_fo_again_ns(const struct dr_fo *f, int64_t interval_ns)
{
	return f->stalled ? DR_ASK_STANDS_NS : interval_ns;
}

struct dr_fo_act *dr_fo_add(struct dr_fo *f, enum dr_fo_act_kind kind, unsigned path);
/* Sends the frame on every READY path. */
void dr_fo_broadcast(struct dr_fo *f, const struct dr_frame *fr);
/* Ends with -ESHUTDOWN. fr: the peer's frame that agrees, confirmed here unless it is a confirmation; NULL:
 * the peer may not know. */
void dr_fo_finish(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_set_state(struct dr_fo *f, enum dr_fo_state s, int64_t now);
/* Starts to fence path p, which is READY or CONNECTING. */
void dr_fo_fence(struct dr_fo *f, unsigned p, int64_t now);
/* A READY path other than `not`, the primary if possible; DR_FO_NONE: none. */
unsigned dr_fo_pick(const struct dr_fo *f, unsigned except);
/* Receiver: nothing waits to be delivered. Sender: the same, for some time. */
bool dr_fo_idle(const struct dr_fo *f, int64_t now);
void dr_fo_record_open(
	struct dr_fo *f, bool self, enum dr_scope scope, int err, const char *why, int64_t now);
/* The switch takes one more epoch. */
void dr_fo_record_round(struct dr_fo *f, bool planned);
void dr_fo_record_close(struct dr_fo *f, int64_t now);
void dr_fo_progressed(struct dr_fo *f, int64_t now);

void dr_fo_tx_path_ready(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_tx_path_lost(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_tx_fenced(struct dr_fo *f, int64_t now);
void dr_fo_tx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_tx_close(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
/* The receiver has ended and had delivered everything below seq. False: a path may still read some of that,
 * or own fences decide what is done. */
bool dr_fo_tx_last_ack(struct dr_fo *f, uint64_t seq);
/* Before the end: completes what is acknowledged and no path reads any more. */
void dr_fo_tx_end(struct dr_fo *f);
void dr_fo_tx_tick(struct dr_fo *f, int64_t dt, int64_t now);
/* In DRAIN with nothing outstanding: the planned switch may begin. */
bool dr_fo_tx_drained(const struct dr_fo *f);
void dr_fo_tx_validate(const struct dr_fo *f);

void dr_fo_rx_path_ready(struct dr_fo *f, int64_t now);
void dr_fo_rx_path_lost(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_rx_fenced(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_rx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_rx_close(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_rx_tick(struct dr_fo *f, int64_t now);
void dr_fo_rx_validate(const struct dr_fo *f);

#endif
