/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FAILOVER_PRIV_H
#define DR_CHANNEL_FAILOVER_PRIV_H

#include "channel/failover.h"

/* Shared by failover.c (paths, timers), failover_tx.c (sender) and failover_rx.c (receiver). */
enum {
	DR_FO_RESEND_NS = 10 * 1000 * 1000, /* SWITCH and NOTIFY are repeated so often */
};

static inline unsigned dr_fo_slot(const struct dr_fo *f, uint64_t seq)
{
	return (unsigned)(seq % f->prm.window);
}

static inline unsigned dr_fo_full_mask(const struct dr_fo *f, uint64_t seq)
{
	return (1u << f->n_parts[dr_fo_slot(f, seq)]) - 1;
}

struct dr_fo_act *dr_fo_add(struct dr_fo *f, enum dr_fo_act_kind kind, unsigned path);
/* The frame goes out on every READY path. */
void dr_fo_broadcast(struct dr_fo *f, const struct dr_frame *fr);
void dr_fo_set_state(struct dr_fo *f, enum dr_fo_state s, int64_t now);
/* Start to fence path p; it is READY or CONNECTING, or FENCING softly. */
void dr_fo_fence(struct dr_fo *f, unsigned p, bool soft, int64_t now);
/* A READY path other than `not`, the primary first; DR_FO_NONE. */
unsigned dr_fo_pick(const struct dr_fo *f, unsigned not );
void dr_fo_record_open(
	struct dr_fo *f, bool self, enum dr_scope scope, int err, const char *why, int64_t now);
void dr_fo_record_close(struct dr_fo *f, int64_t now);
void dr_fo_progressed(struct dr_fo *f, int64_t now);

void dr_fo_tx_path_ready(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_tx_path_lost(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_tx_fenced(struct dr_fo *f, int64_t now);
void dr_fo_tx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_tx_tick(struct dr_fo *f, int64_t dt, int64_t now);
/* DRAIN has nothing outstanding any more: the planned switch may begin. */
bool dr_fo_tx_drained(const struct dr_fo *f);
void dr_fo_tx_validate(const struct dr_fo *f);

void dr_fo_rx_path_ready(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_rx_path_lost(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_rx_fenced(struct dr_fo *f, unsigned p, int64_t now);
void dr_fo_rx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now);
void dr_fo_rx_tick(struct dr_fo *f, int64_t now);
void dr_fo_rx_validate(const struct dr_fo *f);

#endif
