/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * One end of a channel: the failover core (failover.c) with real paths and the user's buffers.
 *
 * 1. The core decides, this file does: every event of a path goes into the core as one call; what the
 *    core wants done stands in its action list, which settle() carries out when no path is reporting
 *    (a sink must not free the path that calls it).
 * 2. A path object belongs to one generation. It is freed when the core has it DOWN or the channel is
 *    dead, and only after stop(), which waits until nothing can touch a buffer.
 * 3. pump() posts what the core allows, in order, and flushes once. Credits and acknowledgements are
 *    held back until they are worth a system call: see enum urge, credits_due and ack_due.
 * 4. Whoever changes what dr_channel_deadline returns ends in due(), which tells the owner.
 */

enum {
	ACK_DELAY_NS = 50 * 1000,      /* acknowledge at the latest so long after a delivery ... */
	PATIENT_NS = 20 * 1000 * 1000, /* ... or so, where nobody waits for it */
	FENCE_NS = 100 * 1000 * 1000,  /* a fence that takes longer destroys the connection */
};

/* How much an acknowledgement has to be worth to be sent now. */
enum urge {
	URGE_EVENT, /* a path reported: the user takes, replies and posts again first */
	URGE_FLUSH, /* the user has: a quarter of the window is worth a frame */
	URGE_IDLE,  /* nobody has anything better to do */
};

static void on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct dr_channel_path *cp = dr_container_of(sink, struct dr_channel_path, sink);
	struct dr_channel *ch = cp->ch;
	unsigned i = cp->index;
	struct dr_frame fr;
	char why[64];
	int rc;

	dr_dassert(cp->path != NULL && ev->path == cp->path);
	switch (ev->kind) {
	case DR_EV_READY:
		dr_debug("channel", "channel %u path %u gen %u: ready", ch->prm.id, i, cp->gen);
		cp->connections++;
		dr_fo_path_ready(&ch->fo, i, cp->gen, ch->now);
		break;
	case DR_EV_SENT:
		dr_fo_sent(&ch->fo, i, cp->gen, ev->epoch, ev->seq, ev->part);
		break;
	case DR_EV_ARRIVING:
		dr_fo_arriving(&ch->fo, i, cp->gen, ev->epoch, ch->now);
		break;
	case DR_EV_DELIVERED:
		dr_channel_on_delivered(ch, cp, ev);
		break;
	case DR_EV_CTRL:
		if (ev->len > 0 && *(const uint8_t *)ev->data >= DR_CHANNEL_FOREIGN) {
			if (ch->prm.ops != NULL && ch->prm.ops->foreign != NULL)
				ch->prm.ops->foreign(
					ch->prm.arg, ch, i, ev->data, ev->len, ch->now);
			break;
		}
		rc = dr_frame_decode(ev->data, ev->len, &fr);
		if (rc == 0) {
			dr_fo_frame(&ch->fo, i, &fr, ch->now);
			break;
		}
		snprintf(why, sizeof(why), "control frame of %u bytes makes no sense", ev->len);
		dr_fo_path_failed(&ch->fo, i, cp->gen, DR_SCOPE_PATH, rc, why, ch->now);
		break;
	case DR_EV_FENCED:
		dr_debug("channel", "channel %u path %u gen %u: fenced", ch->prm.id, i, cp->gen);
		dr_fo_fenced(&ch->fo, i, cp->gen, ch->now);
		break;
	case DR_EV_FAILED:
		dr_debug("channel", "channel %u path %u gen %u: failed (%s): %s", ch->prm.id, i,
			cp->gen, dr_scope_name(ev->scope), ev->text);
		dr_fo_path_failed(&ch->fo, i, cp->gen, ev->scope, ev->err, ev->text, ch->now);
		break;
	case DR_EV_CREDIT:
	case DR_EV_DGRAM:
	case DR_EV_INCOMING:
		break;
	}
	dr_channel_report_done(ch);
}

void dr_channel_on_delivered(
	struct dr_channel *ch, struct dr_channel_path *cp, const struct dr_event *ev)
{
	struct dr_message *m = &ch->msg[ev->seq % ch->prm.window];
	int rc =
		dr_fo_delivered(&ch->fo, cp->index, cp->gen, ev->epoch, ev->seq, ev->part, ch->now);

	if (rc < 0)
		return;
	m->got[ev->part] = ev->len;
	if (ch->ack_since_ns == 0)
		ch->ack_since_ns = ch->now;
}

void dr_channel_report_done(struct dr_channel *ch)
{
	while (ch->reported < ch->fo.head) {
		const struct dr_message *m = &ch->msg[ch->reported % ch->prm.window];
		uint64_t bytes = 0;

		for (unsigned i = 0; i < m->n; i++)
			bytes += ch->prm.sender ? m->span[i].len : m->got[i];
		ch->bytes_done += bytes;
		ch->reported++;
		if (ch->prm.ops != NULL && ch->prm.ops->completed != NULL)
			ch->prm.ops->completed(
				ch->prm.arg, ch, ch->reported - 1, (uint32_t)bytes, ch->now);
	}
}

static int64_t ack_delay(const struct dr_channel *ch)
{
	return ch->patient ? PATIENT_NS : ACK_DELAY_NS;
}

static bool ack_due(const struct dr_channel *ch, enum urge urge)
{
	unsigned quarter = ch->prm.window / 4;
	uint64_t n = ch->fo.head - ch->fo.acked;
	unsigned enough = ch->patient ? ch->prm.window - quarter : DR_MAX(quarter, 1u);

	if (ch->fo.state != DR_FO_RUN || n == 0)
		return false;
	return urge == URGE_IDLE || (urge == URGE_FLUSH && n >= enough) ||
	       ch->now - ch->ack_since_ns >= ack_delay(ch);
}

/* Credits wait for an acknowledgement to ride with, unless the sender may run out of them. */
static bool credits_due(const struct dr_channel *ch)
{
	unsigned w = ch->prm.window, few = ch->patient ? (w - 1) / 4 : w / 2;

	return ch->credited > ch->credit_flushed &&
	       ch->credit_flushed - DR_MIN(ch->credit_flushed, ch->fo.head) <= few;
}

static void pump_receiver(struct dr_channel *ch, enum urge urge)
{
	struct dr_fo *f = &ch->fo;
	struct dr_part parts[DR_PARTS_MAX];
	unsigned part, skip;
	struct dr_path *p;
	uint64_t seq;

	if (f->state != DR_FO_RUN)
		return;
	p = ch->path[f->active].path;
	if (f->data_epoch != ch->credit_epoch) { /* a new epoch starts without credits */
		ch->credit_epoch = f->data_epoch;
		ch->credited = ch->credit_flushed = f->head;
	}
	while (dr_fo_next(f, &seq, &part, &skip)) {
		const struct dr_message *m = &ch->msg[seq % ch->prm.window];

		for (unsigned i = 0; i < m->n; i++)
			parts[i] = (struct dr_part){ m->span[i].mem->mr[f->active], m->span[i].off,
				m->span[i].len, m->span[i].tag };
		if (dr_path_post_recv(p, f->epoch, seq, parts, m->n, skip) != 0)
			break;
		dr_fo_posted(f, ch->now);
		ch->credited = f->cursor;
	}
	if (ack_due(ch, urge)) {
		uint64_t told = f->acked;
		uint8_t buf[DR_FRAME_LEN];
		struct dr_frame fr;

		dr_fo_make_ack(f, &fr);
		dr_frame_encode(&fr, buf);
		if (dr_path_post_ctrl(p, buf, sizeof(buf)) != 0) {
			f->acked = told; /* back-pressure: told with the next one, */
			ch->ack_since_ns = ch->now + DR_NS_PER_MS; /* which is not due at once */
			return;
		}
		ch->ack_since_ns = 0;
	} else if (!credits_due(ch)) {
		return;
	}
	ch->credit_flushed = ch->credited;
	dr_path_flush(p, ch->now);
}

static void pump_sender(struct dr_channel *ch)
{
	struct dr_fo *f = &ch->fo;
	unsigned part, skip, posted = 0;
	uint64_t seq;

	while (dr_fo_next(f, &seq, &part, &skip)) {
		const struct dr_message *m = &ch->msg[seq % ch->prm.window];
		const struct dr_span *s = &m->span[part];
		struct dr_part what = { s->mem->mr[f->active], s->off, s->len, s->tag };
		int rc = dr_path_post_send(ch->path[f->active].path, f->epoch, seq, part, &what);

		if (rc == -EAGAIN)
			break;
		if (rc != 0) {
			dr_fo_die(f, rc, "the receiver's buffer is smaller than the message",
				ch->now);
			break;
		}
		if (seq < ch->sent_high)
			ch->replayed_bytes += s->len;
		dr_fo_posted(f, ch->now);
		posted++;
	}
	ch->sent_high = DR_MAX(ch->sent_high, f->cursor);
	if (posted > 0)
		dr_path_flush(ch->path[f->active].path, ch->now);
}

static void due(struct dr_channel *ch)
{
	if (ch->prm.due_ns != NULL)
		*ch->prm.due_ns = DR_MIN(*ch->prm.due_ns, dr_channel_deadline(ch));
}

/* Carry out what the core wants, post and flush what it allows. */
static void turn(struct dr_channel *ch, enum urge urge, int64_t now)
{
	ch->now = now;
	dr_channel_settle(ch);
	if (ch->prm.sender)
		pump_sender(ch);
	else
		pump_receiver(ch, urge);
	if (ch->fo.n_act > 0)
		dr_channel_settle(ch);
	due(ch);
#ifdef DR_DEBUG
	dr_fo_validate(&ch->fo);
#endif
}

void dr_channel_turn(struct dr_channel *ch, int64_t now)
{
	turn(ch, URGE_EVENT, now);
}

int dr_channel_path_progress(struct dr_channel *ch, unsigned i, int64_t now)
{
	struct dr_channel_path *cp = &ch->path[i];

	ch->now = now;
	return cp->path != NULL ? dr_path_progress(cp->path, now, &cp->sink) : 0;
}

int dr_channel_progress(struct dr_channel *ch, int64_t now)
{
	int n = 0;

	for (unsigned i = 0; i < DR_PATHS; i++)
		n += dr_channel_path_progress(ch, i, now);
	dr_channel_tick(ch, now);
	return n;
}

void dr_channel_tick(struct dr_channel *ch, int64_t now)
{
	dr_fo_tick(&ch->fo, now);
	dr_channel_keepalive(ch, now);
	dr_channel_turn(ch, now);
}

int64_t dr_channel_deadline(const struct dr_channel *ch)
{
	int64_t d = DR_MIN(dr_fo_deadline(&ch->fo), ch->probe_ns);

	if (!ch->prm.sender && ch->fo.state == DR_FO_RUN && ch->fo.head > ch->fo.acked)
		d = DR_MIN(d, ch->ack_since_ns + ack_delay(ch));
	return d;
}

static int post(
	struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq, int64_t now)
{
	struct dr_message *m;
	int rc;

	if (n < 1 || n > DR_PARTS_MAX)
		return -EINVAL;
	rc = dr_fo_push(&ch->fo, n, seq);
	if (rc != 0)
		return rc;
	ch->now = now;
	m = &ch->msg[*seq % ch->prm.window];
	m->n = n;
	for (unsigned i = 0; i < n; i++) {
		dr_dassert(parts[i].off + parts[i].len <= parts[i].mem->len);
		m->span[i] = parts[i];
		m->got[i] = 0;
	}
	return 0;
}

int dr_channel_send(
	struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq, int64_t now)
{
	dr_assert(ch->prm.sender);
	return post(ch, parts, n, seq, now);
}

int dr_channel_recv(
	struct dr_channel *ch, const struct dr_span *parts, unsigned n, uint64_t *seq, int64_t now)
{
	dr_assert(!ch->prm.sender);
	return post(ch, parts, n, seq, now);
}

int dr_channel_test(const struct dr_channel *ch, uint64_t seq)
{
	if (dr_fo_done(&ch->fo, seq))
		return 1;
	return ch->fo.state == DR_FO_DEAD ? ch->fo.err : 0;
}

uint32_t dr_channel_received_len(const struct dr_channel *ch, uint64_t seq, unsigned part)
{
	dr_assert(part < DR_PARTS_MAX && seq < ch->fo.tail && ch->fo.tail - seq <= ch->prm.window);
	return ch->msg[seq % ch->prm.window].got[part];
}

void dr_channel_flush(struct dr_channel *ch, int64_t now)
{
	turn(ch, URGE_FLUSH, now);
}

void dr_channel_set_patient(struct dr_channel *ch, bool on)
{
	dr_assert(!ch->prm.sender);
	ch->patient = on;
	due(ch);
}

bool dr_channel_idle(struct dr_channel *ch, int64_t now)
{
	if (ch->ack_since_ns == 0 || ch->patient)
		return false;
	turn(ch, URGE_IDLE, now);
	return ch->ack_since_ns == 0;
}

int dr_channel_poll(struct dr_channel *ch, int64_t now)
{
	unsigned i = ch->fo.active;
	int n = i < DR_PATHS ? dr_channel_path_progress(ch, i, now) : 0;

	/* The answer to what came is posted first; the patient have nothing else to say. */
	if (n > 0 && (!ch->patient || ch->fo.n_act > 0))
		dr_channel_turn(ch, now);
	else if (n > 0)
		due(ch);
	return n;
}

int dr_channel_try_drive(struct dr_channel *ch)
{
	return atomic_flag_test_and_set_explicit(&ch->driven, memory_order_acquire) ? -EBUSY : 0;
}

void dr_channel_unlock(struct dr_channel *ch)
{
	/* Releases what the driver did to the next one's acquire in dr_channel_try_drive. */
	atomic_flag_clear_explicit(&ch->driven, memory_order_release);
}

void dr_channel_sink_init(struct dr_channel *ch)
{
	for (unsigned i = 0; i < DR_PATHS; i++) {
		ch->path[i].ch = ch;
		ch->path[i].index = i;
		ch->path[i].sink.event = on_event;
	}
}

void dr_channel_fence_deadline(struct dr_channel *ch, unsigned i, bool soft)
{
	ch->path[i].path->ops->fence(ch->path[i].path, soft, ch->now + FENCE_NS);
}
