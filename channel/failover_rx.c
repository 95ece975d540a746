/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/failover_priv.h"

#include <errno.h>
#include <stdio.h>

/* The receiver's part of the failover core: the table of docs/PROTOCOL.md, section 4. */

static void send_answer(struct dr_fo *f)
{
	struct dr_frame fr = { .type = DR_FRAME_ANSWER,
		.epoch = f->epoch,
		.path = f->active,
		.gen = f->path[f->active].gen,
		.seq = f->answer_seq,
		.mask = f->answer_mask };

	dr_fo_broadcast(f, &fr);
}

static void send_notify(struct dr_fo *f, int64_t now)
{
	struct dr_frame fr = { .type = DR_FRAME_NOTIFY,
		.epoch = f->data_epoch,
		.path = f->target,
		.gen = f->target_gen };

	f->resend_ns = now + dr_fo_again_ns(f, DR_FO_RESEND_NS);
	dr_fo_broadcast(f, &fr);
}

/* Invariant 2: the cut is sent only when nothing of the old epoch can access a buffer any more. */
static void try_answer(struct dr_fo *f, int64_t now)
{
	unsigned q;

	if (f->state != DR_FO_FENCE)
		return;
	f->resend_ns =
		DR_NEVER; /* it may hold a NOTIFY's time; nothing is repeated during the fence */
	if (f->data_path != DR_FO_NONE && dr_fo_fencing(f, f->data_path) &&
		f->path[f->data_path].gen == f->data_gen)
		return;
	f->data_path = DR_FO_NONE;
	if (f->rec_open && f->rec.fenced_ns == 0)
		f->rec.fenced_ns = now;
	q = f->target;
	if (f->path[q].state == DR_FOP_CONNECTING && f->path[q].gen == f->target_gen &&
		now - f->since_ns < DR_FO_RESEND_NS) {
		f->resend_ns =
			f->since_ns + DR_FO_RESEND_NS; /* it is about to become READY here too */
		return;
	}
	if (f->path[q].state != DR_FOP_READY || f->path[q].gen != f->target_gen)
		q = dr_fo_pick(f, f->target);
	if (q == DR_FO_NONE)
		return; /* called again when a path is READY, or SWITCH names another */
	/* The sender may be about to propose this path in the next epoch. If it were adopted now, it
	 * would have to be fenced for that; then the same with the other path, indefinitely. */
	if (q != f->target && now - f->path[q].ready_ns < DR_FO_RESEND_NS) {
		f->resend_ns = f->path[q].ready_ns + DR_FO_RESEND_NS;
		return;
	}
	f->active = f->data_path = q;
	f->data_gen = f->path[q].gen;
	f->data_epoch = f->epoch;
	f->cursor = f->head;
	f->answer_seq = f->head;
	f->answer_mask = f->got;
	f->acked = f->head;
	dr_fo_set_state(f, DR_FO_RUN, now);
	if (f->rec_open) {
		f->rec.answer_ns = now;
		f->rec.last_delivery_ns = f->last_ns;
	}
	send_answer(f);
	if (f->rec_open && f->rec.idle)
		dr_fo_record_close(f, now);
}

static void on_switch(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	bool planned = fr->flags & DR_FRAME_PLANNED;
	unsigned old = f->data_path;

	if (fr->epoch < f->epoch)
		return;
	if (fr->epoch == f->epoch) {
		if (f->state == DR_FO_RUN)
			send_answer(f);
		return;
	}
	if (f->path[fr->path].state == DR_FOP_ABSENT) {
		dr_fo_die(
			f, -EPROTO, "the peer proposed a path that the channel does not have", now);
		return;
	}
	if (f->state != DR_FO_START)
		dr_fo_record_open(f, false, DR_SCOPE_PATH, 0,
			planned ? "failback, requested by the sender"
				: "switch, requested by the sender",
			now);
	if (f->rec_open) {
		dr_fo_record_round(f, planned);
		f->rec.idle |= !!(fr->flags & DR_FRAME_IDLE);
	}
	f->epoch = fr->epoch;
	f->target = fr->path;
	f->target_gen = fr->gen;
	f->planned = planned;
	if (planned) /* from a path that works */
		f->local_failures = 0;
	f->active = DR_FO_NONE;
	dr_fo_set_state(f, DR_FO_FENCE, now);
	if (old != DR_FO_NONE && f->path[old].gen == f->data_gen &&
		f->path[old].state == DR_FOP_READY)
		dr_fo_fence(f, old, now);
	try_answer(f, now);
}

void dr_fo_rx_path_ready(struct dr_fo *f, int64_t now)
{
	if (f->state == DR_FO_NOTIFY)
		send_notify(f, now);
	try_answer(f, now);
}

void dr_fo_rx_path_lost(struct dr_fo *f, unsigned p, int64_t now)
{
	if (f->state == DR_FO_RUN && p == f->active) {
		f->target = p;
		f->target_gen = f->path[p].gen;
		f->active = DR_FO_NONE;
		dr_fo_set_state(f, DR_FO_NOTIFY, now);
		send_notify(f, now);
	}
	/* In FENCE the sender learns of it at its own end, or from an ANSWER on another path. */
}

void dr_fo_rx_fenced(struct dr_fo *f, unsigned p, int64_t now)
{
	if (p == f->data_path) {
		if (f->rec_open && f->rec.fenced_ns == 0)
			f->rec.fenced_ns = now;
		if (f->path[p].state == DR_FOP_DOWN)
			f->data_path = DR_FO_NONE;
	}
	try_answer(f, now);
}

void dr_fo_rx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	if (fr->type == DR_FRAME_SWITCH)
		on_switch(f, fr, now);
	else
		dr_fo_die(f, -EPROTO, "the peer sent a frame that only a receiver sends", now);
}

void dr_fo_rx_close(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	bool confirm = fr->flags & DR_FRAME_CONFIRM;

	if (f->state != DR_FO_RUN || (confirm && !f->closing))
		return; /* CLOSE is repeated */
	if (fr->seq < f->head) {
		dr_fo_die(f, -EPROTO, "the peer closed the channel below what it sent", now);
		return;
	}
	if (fr->seq > f->head && !confirm && !f->closing)
		return; /* the rest will arrive */
	dr_fo_finish(f, fr, now);
}

void dr_fo_rx_tick(struct dr_fo *f, int64_t now)
{
	if (f->state == DR_FO_NOTIFY && now >= f->resend_ns)
		send_notify(f, now);
	else if (f->state == DR_FO_FENCE && now >= f->resend_ns)
		try_answer(f, now);
}

void dr_fo_arriving(struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, int64_t now)
{
	if (f->state == DR_FO_RUN && p == f->data_path && gen == f->data_gen &&
		epoch == f->data_epoch && f->rec_open && f->rec.first_frame_ns == 0)
		f->rec.first_frame_ns = now;
}

/* Invariant 1. An end that closes has told how far it got. */
int dr_fo_delivered(struct dr_fo *f, struct dr_fo_conn conn, uint32_t epoch, uint64_t seq,
	unsigned part, int64_t now)
{
	if (f->state == DR_FO_DEAD || f->closing || conn.path != f->data_path ||
		conn.gen != f->data_gen || epoch != f->data_epoch) {
		f->stale_dropped++;
		return -ESTALE;
	}
	if (seq < f->head || (seq == f->head && (f->got & (1u << part)))) {
		f->dup_dropped++;
		return -EALREADY;
	}
	if (seq != f->head || seq >= f->tail || part >= f->n_parts[dr_fo_slot(f, seq)]) {
		dr_fo_path_failed(f, conn, DR_SCOPE_PATH, -EPROTO,
			"received a part that does not belong to the head message", now);
		return -ESTALE;
	}
	f->got |= (uint8_t)(1u << part);
	if (f->got != dr_fo_full_mask(f, seq))
		return 0;
	f->got = 0;
	f->head++;
	f->cursor = DR_MAX(f->cursor, f->head);
	dr_fo_progressed(f, now);
	if (f->state == DR_FO_RUN)
		dr_fo_record_close(f, now);
	return 1;
}

void dr_fo_make_ack(struct dr_fo *f, struct dr_frame *out)
{
	dr_assert(f->state == DR_FO_RUN);
	f->acked = f->head;
	*out = (struct dr_frame){ .type = DR_FRAME_ACK,
		.epoch = f->epoch,
		.path = f->active,
		.gen = f->data_gen,
		.seq = f->head };
}

void dr_fo_rx_validate(const struct dr_fo *f)
{
	dr_assert(f->acked <= f->head);
	dr_assert(f->head == f->tail || f->got != dr_fo_full_mask(f, f->head));
	dr_assert(f->state != DR_FO_SWITCH && f->state != DR_FO_DRAIN);
	dr_assert(f->state != DR_FO_RUN || f->data_path == f->active);
}
