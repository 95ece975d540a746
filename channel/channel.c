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
 * 1. The core decides and this file acts. Every event of a path is one call of the core, which
 *    writes actions into a list. dr_channel_settle carries them out when no path is reporting (a
 *    sink must not free the path that calls it).
 * 2. A path object belongs to one generation. It is freed when the core has it DOWN or the channel
 *    has ended, and only after stop(), which waits until nothing can access a buffer.
 * 3. Every function that changes the result of dr_channel_deadline ends in due().
 */

enum {
	ACK_DELAY_NS = 50 * 1000,	 /* latest acknowledgement after a delivery */
	ACK_BATCH_NS = 20 * 1000 * 1000, /* the same with batched acknowledgements */
};

/* How much unacknowledged data justifies an acknowledgement now, by what the caller is doing. */
enum ack_policy {
	ACK_POLICY_EVENT, /* a path reported an event: the user consumes, replies and posts first */
	ACK_POLICY_FLUSH, /* the user has had its turn: a quarter of the window justifies a frame */
	ACK_POLICY_IDLE,  /* the worker is idle: any delivery does */
};

static void credited(struct dr_channel *ch)
{
	if (ch->prm.ops && ch->prm.ops->credited)
		ch->prm.ops->credited(ch->prm.arg, ch, ch->now);
}

static void on_delivered(
	struct dr_channel *ch, struct dr_channel_path *cp, const struct dr_event *ev)
{
	struct dr_message *m = &ch->msg[ev->seq % ch->prm.window];
	int rc = dr_fo_delivered(
		&ch->fo, dr_fo_conn(cp->index, cp->gen), ev->epoch, ev->seq, ev->part, ch->now);

	if (rc < 0)
		return;
	m->got[ev->part] = ev->len;
	if (ch->ack_since_ns == 0)
		ch->ack_since_ns = ch->now;
}

static void report_done(struct dr_channel *ch)
{
	while (ch->reported < ch->fo.head) {
		const struct dr_message *m = &ch->msg[ch->reported % ch->prm.window];
		uint64_t bytes = 0;

		for (unsigned i = 0; i < m->n; i++)
			bytes += ch->prm.sender ? m->span[i].len : m->got[i];
		ch->bytes_done += bytes;
		ch->reported++;
		if (ch->prm.ops && ch->prm.ops->completed)
			ch->prm.ops->completed(
				ch->prm.arg, ch, ch->reported - 1, (uint32_t)bytes, ch->now);
	}
}

void dr_channel_on_event(struct dr_sink *sink, const struct dr_event *ev)
{
	struct dr_channel_path *cp = dr_container_of(sink, struct dr_channel_path, sink);
	struct dr_channel *ch = cp->ch;
	unsigned i = cp->index;
	struct dr_frame fr;
	char why[64];
	int rc;

	dr_dassert(cp->path && ev->path == cp->path);
	switch (ev->kind) {
	case DR_EV_READY:
		dr_debug("channel", "channel %u path %u gen %u: ready", ch->prm.id, i, cp->gen);
		cp->connections++;
		cp->broken = false;
		dr_fo_path_ready(&ch->fo, i, cp->gen, ch->now);
		break;
	case DR_EV_SENT:
		dr_fo_sent(&ch->fo, i, cp->gen, ev->epoch, ev->seq, ev->part);
		break;
	case DR_EV_ARRIVING:
		dr_fo_arriving(&ch->fo, i, cp->gen, ev->epoch, ch->now);
		break;
	case DR_EV_DELIVERED:
		on_delivered(ch, cp, ev);
		break;
	case DR_EV_CTRL:
		rc = dr_frame_decode(ev->data, ev->len, &fr);
		if (rc == 0) {
			dr_fo_frame(&ch->fo, i, &fr, ch->now);
			break;
		}
		snprintf(why, sizeof(why), "control frame of %u bytes is malformed", ev->len);
		dr_fo_path_failed(&ch->fo, dr_fo_conn(i, cp->gen), DR_SCOPE_PATH, rc, why, ch->now);
		break;
	case DR_EV_FENCED:
		dr_debug("channel", "channel %u path %u gen %u: fenced", ch->prm.id, i, cp->gen);
		dr_fo_fenced(&ch->fo, i, cp->gen, ch->now);
		break;
	case DR_EV_FAILED:
		dr_debug("channel", "channel %u path %u gen %u: failed (%s): %s", ch->prm.id, i,
			cp->gen, dr_scope_name(ev->scope), ev->text);
		cp->broken = true;
		dr_fo_path_failed(
			&ch->fo, dr_fo_conn(i, cp->gen), ev->scope, ev->err, ev->text, ch->now);
		break;
	case DR_EV_CREDIT:
		credited(ch);
		break;
	case DR_EV_DGRAM:
	case DR_EV_INCOMING:
		break;
	}
	report_done(ch);
}

static int64_t ack_delay(const struct dr_channel *ch)
{
	return ch->ack_batch ? ACK_BATCH_NS : ACK_DELAY_NS;
}

static bool ack_due(const struct dr_channel *ch, enum ack_policy policy)
{
	unsigned quarter = ch->prm.window / 4;
	uint64_t n = ch->fo.head - ch->fo.acked;
	unsigned enough = ch->ack_batch ? ch->prm.window - quarter : DR_MAX(quarter, 1u);

	if (ch->fo.state != DR_FO_RUN || n == 0)
		return false;
	return policy == ACK_POLICY_IDLE || (policy == ACK_POLICY_FLUSH && n >= enough) ||
	       ch->now - ch->ack_since_ns >= ack_delay(ch);
}

/* Credits wait for an acknowledgement to share its frame, unless the sender may run out of them. */
static bool credits_due(const struct dr_channel *ch)
{
	unsigned w = ch->prm.window, few = ch->ack_batch ? (w - 1) / 4 : w / 2;

	return ch->credited > ch->credit_flushed &&
	       ch->credit_flushed - DR_MIN(ch->credit_flushed, ch->fo.head) <= few;
}

/* After back-pressure, or when the path has failed and the core is about to learn of it, the post is
 * repeated. Any other error is for good: the message would never be announced, or never leave. */
static void post_failed(struct dr_channel *ch, int rc, const char *what)
{
	char why[64];

	if (rc == -EAGAIN || rc == -ENOTCONN)
		return;
	snprintf(why, sizeof(why), "%s (%s)", what, dr_errno_name(rc));
	dr_fo_die(&ch->fo, rc, why, ch->now);
}

static void pump_receiver(struct dr_channel *ch, enum ack_policy policy)
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
		int rc = dr_path_post_recv(p, f->epoch, seq, parts, m->n, skip);
		if (rc != 0) {
			post_failed(ch, rc, "the path refused a receive");
			break;
		}
		dr_fo_posted(f, ch->now);
		ch->credited = f->cursor;
	}
	if (f->state == DR_FO_DEAD)
		return;
	if (ack_due(ch, policy)) {
		uint64_t told = f->acked;
		uint8_t buf[DR_FRAME_LEN];
		struct dr_frame fr;

		dr_fo_make_ack(f, &fr);
		dr_frame_encode(&fr, buf);
		if (dr_path_post_ctrl(p, buf, sizeof(buf)) != 0) {
			f->acked = told; /* back-pressure: acknowledged with the next frame, */
			ch->ack_since_ns = ch->now + DR_NS_PER_MS; /* in 1 ms */
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

	if (f->state == DR_FO_RUN && ch->credit_epoch != f->epoch) {
		ch->credit_epoch = f->epoch;
		credited(ch); /* credits may have come before the switch was over */
	}
	while (dr_fo_next(f, &seq, &part, &skip)) {
		const struct dr_message *m = &ch->msg[seq % ch->prm.window];
		const struct dr_span *s = &m->span[part];
		struct dr_part what = { s->mem->mr[f->active], s->off, s->len, s->tag };
		int rc = dr_path_post_send(ch->path[f->active].path, f->epoch, seq, part, &what);

		if (rc != 0) {
			post_failed(ch, rc,
				rc == -EMSGSIZE
					? "the receiver's buffer is smaller than the message"
					: "the path refused a send");
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
	int64_t d;

	if (!ch->prm.due_ns)
		return;
	d = dr_channel_deadline(ch);
	if (d >= *ch->prm.due_ns)
		return;
	*ch->prm.due_ns = d;
	if (ch->prm.host)
		ch->prm.host->sooner(ch->prm.host_arg);
}

/* Reports what is done, carries out the core's actions, posts and flushes what it allows. */
static void turn(struct dr_channel *ch, enum ack_policy policy, int64_t now)
{
	ch->now = now;
	report_done(ch);
	dr_channel_settle(ch);
	if (ch->prm.sender)
		pump_sender(ch);
	else
		pump_receiver(ch, policy);
	if (ch->fo.n_act > 0)
		dr_channel_settle(ch);
	due(ch);
#ifdef DR_DEBUG
	dr_fo_validate(&ch->fo);
#endif
}

void dr_channel_turn(struct dr_channel *ch, int64_t now)
{
	turn(ch, ACK_POLICY_EVENT, now);
}

int dr_channel_path_progress(struct dr_channel *ch, unsigned i, int64_t now)
{
	struct dr_channel_path *cp = &ch->path[i];

	ch->now = now;
	return cp->path ? dr_path_progress(cp->path, now, &cp->sink) : 0;
}

int dr_channel_progress(struct dr_channel *ch, int64_t now)
{
	int n = 0;

	for (unsigned i = 0; i < DR_PATHS; i++)
		n += dr_channel_path_progress(ch, i, now);
	dr_channel_tick(ch, now);
	return n;
}

/* Its owner has yet to start it, or to close it. */
static bool fresh(const struct dr_channel *ch)
{
	return ch->started_ns == DR_NEVER && ch->fo.state == DR_FO_START;
}

void dr_channel_tick(struct dr_channel *ch, int64_t now)
{
	if (fresh(ch))
		return;
	dr_fo_tick(&ch->fo, now);
	dr_channel_keepalive(ch, now);
	dr_channel_turn(ch, now);
}

int64_t dr_channel_deadline(const struct dr_channel *ch)
{
	int64_t d;

	if (fresh(ch))
		return DR_NEVER;
	d = DR_MIN(dr_fo_deadline(&ch->fo), ch->probe_ns);
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

int dr_channel_credit(const struct dr_channel *ch, struct dr_credit *out)
{
	const struct dr_fo *f = &ch->fo;
	struct dr_path *p;

	dr_assert(ch->prm.sender);
	if (f->state == DR_FO_DEAD)
		return f->err;
	if (f->active == DR_FO_NONE)
		return -EAGAIN;
	p = ch->path[f->active].path;
	return p->ops->credit(p, f->epoch, f->tail, out);
}

int dr_channel_test(const struct dr_channel *ch, uint64_t seq)
{
	if (dr_fo_done(&ch->fo, seq))
		return 1;
	return ch->fo.state == DR_FO_DEAD ? ch->fo.err : 0;
}

bool dr_channel_sent(const struct dr_channel *ch, uint64_t seq)
{
	dr_assert(ch->prm.sender && seq < ch->fo.tail);
	return dr_fo_sent_whole(&ch->fo, seq);
}

uint32_t dr_channel_received_len(const struct dr_channel *ch, uint64_t seq, unsigned part)
{
	dr_assert(part < DR_PARTS_MAX && seq < ch->fo.tail && ch->fo.tail - seq <= ch->prm.window);
	return ch->msg[seq % ch->prm.window].got[part];
}

void dr_channel_flush(struct dr_channel *ch, int64_t now)
{
	turn(ch, ACK_POLICY_FLUSH, now);
}

void dr_channel_set_ack_batch(struct dr_channel *ch, bool on)
{
	dr_assert(!ch->prm.sender);
	ch->ack_batch = on;
	due(ch);
}

bool dr_channel_idle(struct dr_channel *ch, int64_t now)
{
	if (ch->ack_since_ns == 0 || ch->ack_batch)
		return false;
	turn(ch, ACK_POLICY_IDLE, now);
	return ch->ack_since_ns == 0;
}

int dr_channel_poll(struct dr_channel *ch, int64_t now)
{
	unsigned i = ch->fo.active;
	int n = i < DR_PATHS ? dr_channel_path_progress(ch, i, now) : 0;

	/* The user's reply is posted first; a channel that batches acknowledgements sends nothing else
	 * now. */
	if (n > 0 && (!ch->ack_batch || ch->fo.n_act > 0))
		dr_channel_turn(ch, now);
	else if (n > 0)
		due(ch);
	return n;
}

int dr_channel_active(const struct dr_channel *ch)
{
	return ch->fo.active == DR_FO_NONE ? -1 : (int)ch->fo.active;
}
