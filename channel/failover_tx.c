/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/failover_priv.h"

#include <errno.h>
#include <stdio.h>

/* The sender's part of the failover core: the table of docs/PROTOCOL.md, section 3. */

static const int64_t DRAIN_MAX_NS = DR_NS_PER_S; /* a drain that takes longer is cancelled */
static const unsigned PENALTY_MAX = 6;		 /* the hold-down is doubled so often */
/* The longest wait for an answer; SWITCH is repeated 50 times. */
static const int64_t ANSWER_NS = 500 * DR_NS_PER_MS;
/* At the start, before the shadow is used, unless the rail is known to be down. */
static const int64_t PRIMARY_WAIT_NS = 500 * DR_NS_PER_MS;

static void send_switch(struct dr_fo *f, int64_t now)
{
	struct dr_frame fr = { .type = DR_FRAME_SWITCH, .epoch = f->epoch, .seq = f->acked };

	f->resend_ns = now + dr_fo_again_ns(f, DR_FO_RESEND_NS);
	if (f->target == DR_FO_NONE)
		return;
	fr.path = f->target;
	fr.gen = f->path[f->target].gen;
	fr.flags = (f->planned ? DR_FRAME_PLANNED : 0) | (dr_fo_idle(f, now) ? DR_FRAME_IDLE : 0);
	dr_fo_broadcast(f, &fr);
}

static void begin_switch(struct dr_fo *f, unsigned target, bool planned, int64_t now)
{
	if (++f->rounds > DR_FO_ROUNDS_MAX) {
		dr_fo_die(f, -ETIMEDOUT, "too many switches of paths without progress", now);
		return;
	}
	dr_assert(f->epoch < UINT32_MAX);
	f->epoch++;
	if (f->rec_open) {
		dr_fo_record_round(f, planned);
		if (f->state != DR_FO_SWITCH)
			f->rec.in_flight_messages =
				(uint32_t)(f->cursor + (f->cursor_part > 0) - f->acked);
	}
	f->active = DR_FO_NONE;
	f->target = target;
	f->proposed_ns = now;
	f->planned = planned;
	if (planned) /* from a path that works */
		f->local_failures = 0;
	f->answered = false;
	dr_fo_set_state(f, DR_FO_SWITCH, now);
	send_switch(f, now);
}

void dr_fo_tx_path_ready(struct dr_fo *f, unsigned p, int64_t now)
{
	if (f->state == DR_FO_START && (p == 0 || f->path[0].rail_down)) {
		begin_switch(f, p, false, now);
	} else if (f->state == DR_FO_SWITCH && f->target == DR_FO_NONE) {
		f->target = p;
		f->proposed_ns = now;
		send_switch(f, now);
	}
}

void dr_fo_tx_path_lost(struct dr_fo *f, unsigned p, int64_t now)
{
	switch (f->state) {
	case DR_FO_RUN:
	case DR_FO_DRAIN:
		if (p == f->active) {
			if (p == 0 && f->failback_ns != 0)
				f->penalty = now - f->failback_ns < f->prm.hold_down_ns / 2
						     ? DR_MIN(f->penalty + 1, PENALTY_MAX)
						     : 0;
			begin_switch(f, dr_fo_pick(f, p), false, now);
		} else if (f->state == DR_FO_DRAIN && p == f->target) {
			dr_fo_set_state(f, DR_FO_RUN, now);
		}
		break;
	case DR_FO_SWITCH:
		if (p == f->target || (f->answered && p == f->answer_path)) {
			if (!f->rec_open)
				dr_fo_record_open(f, true, DR_SCOPE_PATH, -ECONNRESET,
					"path failed during a switch", now);
			begin_switch(f, dr_fo_pick(f, p), false, now);
		}
		break;
	default:
		break;
	}
}

static bool any_fencing(const struct dr_fo *f)
{
	return dr_fo_fencing(f, 0) || dr_fo_fencing(f, 1);
}

/* Invariants 2 and 4: once the receiver's cut is known and all own fences are done, messages below
 * the cut complete and the rest is replayed in order. */
static void try_resume(struct dr_fo *f, int64_t now)
{
	if (f->state != DR_FO_SWITCH || !f->answered || any_fencing(f))
		return;
	dr_assert(f->path[f->answer_path].state == DR_FOP_READY);
	/* Progress, or nothing is on the wire that could make any: an idle channel may switch any number of
	 * times. A planned switch ends a drain. */
	if (f->answer_seq > f->acked || f->high <= f->answer_seq || f->planned)
		f->rounds = 0;
	if (f->answer_seq > f->acked)
		f->local_failures = 0;
	for (uint64_t s = f->answer_seq; s < f->tail; s++) {
		unsigned i = dr_fo_slot(f, s);

		if (f->posted[i] != 0)
			f->rec.replayed_messages++;
		f->posted[i] = f->retired[i] = 0;
	}
	f->acked = f->head = f->cursor = f->answer_seq;
	f->cursor_part = 0;
	if (f->answer_mask != 0) {
		unsigned i = dr_fo_slot(f, f->head);

		f->posted[i] = f->retired[i] = (uint8_t)f->answer_mask;
		while (f->answer_mask & (1u << f->cursor_part))
			f->cursor_part++;
	}
	f->active = f->answer_path;
	f->target = DR_FO_NONE;
	f->answered = false;
	f->stuck_ns = 0;
	f->moved_ns = now;
	f->patience_ns = f->prm.stuck_after_ns;
	if (f->planned && f->active == 0)
		f->failback_ns = now;
	else if (f->planned) /* not ready at the other end: wait another hold-down */
		f->path[0].ready_ns = now;
	if (f->rec_open) {
		f->rec.answer_ns = now;
		if (f->rec.fenced_ns == 0)
			f->rec.fenced_ns = f->rec.detect_ns;
	}
	dr_fo_set_state(f, DR_FO_RUN, now);
	if (f->rec_open && f->cursor == f->tail)
		dr_fo_record_close(f, now); /* nothing to replay, nothing to wait for */
}

void dr_fo_tx_fenced(struct dr_fo *f, int64_t now)
{
	if (f->rec_open && f->rec.fenced_ns == 0)
		f->rec.fenced_ns = now;
	try_resume(f, now);
}

static bool answer_makes_sense(const struct dr_fo *f, const struct dr_frame *fr)
{
	if (fr->seq < f->acked || fr->seq > f->high)
		return false;
	if (fr->mask == 0)
		return true;
	return fr->seq < f->high && (fr->mask & ~dr_fo_full_mask(f, fr->seq)) == 0 &&
	       fr->mask != dr_fo_full_mask(f, fr->seq);
}

static void on_answer(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	const struct dr_fo_path *pa = &f->path[fr->path];

	if (f->state != DR_FO_SWITCH || fr->epoch != f->epoch || f->answered)
		return; /* stale, or a repetition */
	if (!answer_makes_sense(f, fr)) {
		dr_fo_die(f, -EPROTO, "the peer's answer names messages that were never sent", now);
		return;
	}
	if (pa->state == DR_FOP_CONNECTING && pa->gen == fr->gen) {
		f->target = fr->path; /* it becomes READY here too, or fails; SWITCH is repeated */
		return;
	}
	if (pa->state != DR_FOP_READY || pa->gen != fr->gen) {
		begin_switch(f, dr_fo_pick(f, fr->path), false, now);
		return;
	}
	f->answered = true;
	f->answer_path = fr->path;
	f->answer_seq = fr->seq;
	f->answer_mask = fr->mask;
	try_resume(f, now);
}

static void complete(struct dr_fo *f)
{
	while (f->head < f->acked &&
		f->retired[dr_fo_slot(f, f->head)] == dr_fo_full_mask(f, f->head))
		f->head++;
}

static void on_ack(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	if ((f->state != DR_FO_RUN && f->state != DR_FO_DRAIN) || fr->epoch != f->epoch ||
		fr->seq <= f->acked)
		return;
	if (fr->seq > f->cursor) {
		dr_fo_die(f, -EPROTO, "the peer acknowledged a message that was never sent", now);
		return;
	}
	f->acked = fr->seq;
	dr_fo_progressed(f, now);
	dr_fo_record_close(f, now);
	complete(f);
}

/* CLOSE, and its confirmation, acknowledge everything that was delivered. */
void dr_fo_tx_close(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	bool confirm = fr->flags & DR_FRAME_CONFIRM;

	if ((f->state != DR_FO_RUN && f->state != DR_FO_DRAIN) || (confirm && !f->closing))
		return; /* CLOSE is repeated */
	on_ack(f, fr, now);
	if (f->state == DR_FO_DEAD || f->head < f->acked)
		return; /* or the path still reads what was delivered: CLOSE is repeated */
	if (f->head < f->tail && !f->closing) {
		dr_fo_die(f, -ECANCELED,
			"the peer closed the channel before everything was delivered", now);
		return;
	}
	dr_fo_finish(f, fr, now);
}

void dr_fo_tx_end(struct dr_fo *f)
{
	if (f->state == DR_FO_SWITCH && !any_fencing(f))
		f->head = f->acked;
}

/* A receiver that has ended delivers nothing more, so this holds in any epoch. */
bool dr_fo_tx_last_ack(struct dr_fo *f, uint64_t seq)
{
	if (f->state != DR_FO_START && seq > f->acked && seq <= f->cursor)
		f->acked = seq;
	if (f->state == DR_FO_SWITCH)
		dr_fo_tx_end(f);
	else
		complete(f);
	return f->head == f->acked;
}

static void on_notify(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	if (fr->epoch != f->epoch)
		return;
	dr_fo_path_failed(f, dr_fo_conn(fr->path, fr->gen), DR_SCOPE_PATH, -EREMOTEIO,
		"the receiver's end of the path failed", now);
	/* The receiver had answered on a path that failed since. Its ANSWER is lost, and it waits for
	 * the next epoch. */
	if (f->state == DR_FO_SWITCH && fr->epoch == f->epoch)
		begin_switch(f, dr_fo_pick(f, fr->path), false, now);
}

void dr_fo_tx_frame(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	switch (fr->type) {
	case DR_FRAME_ACK:
		on_ack(f, fr, now);
		break;
	case DR_FRAME_ANSWER:
		on_answer(f, fr, now);
		break;
	case DR_FRAME_NOTIFY:
		on_notify(f, fr, now);
		break;
	default:
		dr_fo_die(f, -EPROTO, "the peer sent a frame that only a sender sends", now);
		break;
	}
}

bool dr_fo_tx_drained(const struct dr_fo *f)
{
	return f->state == DR_FO_DRAIN && f->acked == f->cursor && f->cursor_part == 0 &&
	       f->head == f->acked;
}

/* Not before the last switch is complete: its record would be that of the failback, too. */
static bool may_fail_back(const struct dr_fo *f)
{
	return f->prm.failback && f->state == DR_FO_RUN && f->active != 0 && !f->rec_open &&
	       f->path[0].state == DR_FOP_READY && !f->path[0].rail_down;
}

static void want_failback(struct dr_fo *f, int64_t now)
{
	if (!may_fail_back(f) || now - f->path[0].ready_ns < f->prm.hold_down_ns << f->penalty)
		return;
	f->target = 0;
	dr_fo_set_state(f, DR_FO_DRAIN, now);
}

void dr_fo_transport(struct dr_fo *f, struct dr_fo_conn conn, uint64_t acked_bytes,
	int64_t answer_ns, int64_t patience_ns, int64_t now)
{
	if (conn.path != f->active || conn.gen != f->path[conn.path].gen)
		return;
	if (acked_bytes > f->acked_bytes) {
		f->moved_ns = DR_MAX(f->moved_ns, DR_MIN(DR_MAX(answer_ns, f->looked_ns), now));
		f->stuck_ns = 0;
	}
	f->looked_ns = now;
	f->acked_bytes = acked_bytes;
	f->patience_ns = DR_MAX(f->prm.stuck_after_ns, patience_ns);
}

/* A message that is acknowledged but not retired counts as owed: its completion may be lost. Only time in
 * which the peer is not known to be stalled counts. */
static void watch_progress(struct dr_fo *f, int64_t dt, int64_t now)
{
	if (!dr_fo_owed(f))
		f->stuck_ns = 0;
	else if (!f->stalled)
		f->stuck_ns = DR_MIN(f->stuck_ns + dt, now - f->moved_ns);
	if (f->stuck_ns >= f->patience_ns) {
		f->stuck_ns = 0;
		dr_fo_path_failed(f, dr_fo_conn(f->active, f->path[f->active].gen), DR_SCOPE_PATH,
			-ETIMEDOUT, "credited data is not acknowledged although the rail works",
			now);
	}
}

/* A path that is READY here may be dead at the other end: use another one, or reconnect this one. */
static void watch_answer(struct dr_fo *f, int64_t now)
{
	unsigned t = f->target;

	if (f->answered || f->stalled || t == DR_FO_NONE || now - f->proposed_ns < ANSWER_NS)
		return;
	dr_fo_path_failed(f, dr_fo_conn(t, f->path[t].gen), DR_SCOPE_PATH, -ETIMEDOUT,
		"the switch to this path was not answered", now);
}

void dr_fo_tx_tick(struct dr_fo *f, int64_t dt, int64_t now)
{
	switch (f->state) {
	case DR_FO_START:
		if (dr_fo_pick(f, DR_FO_NONE) != DR_FO_NONE &&
			(f->path[0].rail_down || now - f->since_ns >= PRIMARY_WAIT_NS))
			begin_switch(f, dr_fo_pick(f, DR_FO_NONE), false, now);
		break;
	case DR_FO_RUN:
		watch_progress(f, dt, now);
		if (f->state == DR_FO_RUN)
			want_failback(f, now);
		break;
	case DR_FO_DRAIN:
		watch_progress(f, dt, now);
		if (f->state == DR_FO_DRAIN && now - f->since_ns >= DRAIN_MAX_NS) {
			f->target = DR_FO_NONE;
			f->path[0].ready_ns = now; /* wait another hold-down */
			dr_fo_set_state(f, DR_FO_RUN, now);
		}
		break;
	case DR_FO_SWITCH:
		if (now >= f->resend_ns)
			send_switch(f, now);
		watch_answer(f, now);
		break;
	default:
		break;
	}
	if (dr_fo_tx_drained(f)) {
		dr_fo_record_open(f, true, DR_SCOPE_OP, 0, "failback to the primary path", now);
		begin_switch(f, f->target, true, now);
	}
}

int dr_fo_switch_now(struct dr_fo *f, int64_t now)
{
	unsigned to = dr_fo_pick(f, f->active);

	if (!f->prm.sender || f->state != DR_FO_RUN || f->rec_open || to == DR_FO_NONE)
		return f->state == DR_FO_DEAD ? f->err : -EAGAIN;
	f->target = to;
	dr_fo_set_state(f, DR_FO_DRAIN, now);
	return 0;
}

void dr_fo_sent(
	struct dr_fo *f, unsigned p, uint32_t gen, uint32_t epoch, uint64_t seq, unsigned part)
{
	unsigned i;

	if ((f->state != DR_FO_RUN && f->state != DR_FO_DRAIN) || p != f->active ||
		f->path[p].gen != gen || epoch != f->epoch || seq < f->head || seq >= f->tail) {
		f->stale_dropped++;
		return;
	}
	i = dr_fo_slot(f, seq);
	dr_assert(f->posted[i] & (1u << part));
	f->retired[i] |= (uint8_t)(1u << part);
	complete(f);
}

void dr_fo_tx_validate(const struct dr_fo *f)
{
	dr_assert(f->head <= f->acked && f->acked <= f->tail);
	dr_assert(f->acked <= f->high && f->high <= f->tail);
	for (uint64_t s = f->head; s < f->tail; s++) {
		unsigned i = dr_fo_slot(f, s);

		dr_assert((f->retired[i] & ~f->posted[i]) == 0);
	}
	dr_assert(f->state != DR_FO_NOTIFY && f->state != DR_FO_FENCE);
}
