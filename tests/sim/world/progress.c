/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include <string.h>

/*
 * What the process sees: items become events, in order. DELIVERED comes in the order of the messages:
 * parts of a message behind the head wait, though they have landed. A stream's bytes are copied into
 * the posting here, when the process reads them, or thrown away when nothing is posted for them.
 */

struct report {
	struct sim_path *p;
	struct dr_sink *sink;
	unsigned n, max;
};

static void emit(struct report *r, struct dr_event ev)
{
	ev.path = &r->p->base;
	ev.rail = r->p->base.rail;
	r->n++;
	r->sink->event(r->sink, &ev);
}

/* The part of the head message to report next; -1: none yet. */
static int next_whole(const struct sim_path *p)
{
	const struct sim_posting *m = &p->posted[p->post_head];

	if (p->post_n == 0)
		return -1;
	if (p->w->o.personality != DR_SIM_PLUGIN)
		return m->n_reported < m->n_whole ? m->order[m->n_reported] : -1;
	for (unsigned i = 0; i < m->n; i++) /* first in, first out */
		if (!(m->reported & (1u << i)))
			return m->whole & (1u << i) ? (int)i : -1;
	return -1;
}

/* Fault: a completion that is reported twice. */
static void again(struct report *r, const struct dr_event *ev)
{
	struct sim_path *p = r->p;

	if (p->dup_next > 0) {
		p->dup_ev = *ev;
		p->dup_in = p->dup_next;
		p->dup_next = 0;
	}
	if (p->dup_in == 0 || --p->dup_in > 0 || p->closed || p->failed)
		return;
	p->w->counts.dups++;
	emit(r, p->dup_ev);
}

static void report_delivered(struct report *r)
{
	struct sim_path *p = r->p;
	int part;

	while (r->n < r->max && !p->closed && (part = next_whole(p)) >= 0) {
		struct sim_posting *m = &p->posted[p->post_head];
		struct dr_event ev = { .kind = DR_EV_DELIVERED,
			.epoch = m->epoch,
			.seq = m->seq,
			.part = (unsigned)part,
			.len = m->got[part] };

		m->reported |= 1u << part;
		m->n_reported++;
		sim_return_part(p, &m->part[part], true);
		if (m->reported == (1u << m->n) - 1) {
			p->post_head = (p->post_head + 1) % p->w->o.recv_depth;
			p->post_n--;
		}
		p->st.rx_bytes += p->w->o.personality == DR_SIM_STREAM ? 0 : ev.len;
		emit(r, ev);
		again(r, &ev);
	}
}

static void arriving(struct report *r, uint32_t epoch, uint64_t seq)
{
	struct sim_path *p = r->p;

	if (p->any_arriving && epoch <= p->arriving_epoch)
		return;
	p->any_arriving = true;
	p->arriving_epoch = epoch;
	emit(r, (struct dr_event){ .kind = DR_EV_ARRIVING, .epoch = epoch, .seq = seq });
}

static bool spent(const struct sim_credit *x)
{
	return !x->key || (x->skip | x->sent) == (1u << x->n) - 1;
}

/* A free slot, or one whose parts were all sent; there is one, as the receiver posts so many at most. */
static struct sim_credit *credit_slot(struct sim_path *p, uint64_t seq)
{
	unsigned i, n = 2 * p->w->o.recv_depth, at = (unsigned)(seq % n);

	for (i = 0; i < n && !spent(&p->credits[at]); i++)
		at = (at + 1) % n;
	dr_assert(i < n);
	return &p->credits[at];
}

static void on_credit(struct report *r, const struct sim_credit *c)
{
	struct sim_path *p = r->p;

	if (c->epoch < p->credit_epoch)
		return;
	if (c->epoch > p->credit_epoch)
		memset(p->credits, 0, 2 * p->w->o.recv_depth * sizeof(*p->credits));
	p->credit_epoch = c->epoch;
	p->credit_seq = c->seq;
	*credit_slot(p, c->seq) = *c;
	emit(r, (struct dr_event){ .kind = DR_EV_CREDIT, .epoch = c->epoch, .seq = c->seq });
}

static void read_done(struct sim_path *p, uint32_t units)
{
	p->rx_unread -= units;
	if (p->conn)
		sim_lanes_reopen(p->conn, p->node);
}

/* Stream: a piece of a part comes out of the socket. */
static void on_data(struct report *r, const struct sim_seg *s)
{
	struct sim_path *p = r->p;
	struct sim_posting *m = sim_posting_by_key(p, s->credit.key);

	p->st.rx_bytes += s->len;
	if (p->down || !m || s->part >= m->n || m->reported & (1u << s->part) ||
		s->off != m->got[s->part] || s->off + s->len > m->part[s->part].len) {
		p->w->counts.discarded++;
		return; /* withdrawn: read and thrown away */
	}
	uint8_t *to = m->part[s->part].mr->base + m->part[s->part].off + s->off;
	if (s->len > 0) {
		sim_check_write(p, to, s->len, s->credit.seq, s->part);
		memcpy(to, s->copy, s->len);
	}
	m->got[s->part] += s->len;
	if (s->last)
		sim_posting_whole(m, s->part);
	arriving(r, s->credit.epoch, s->credit.seq);
}

static void on_whole(struct report *r, const struct sim_item *it)
{
	struct sim_posting *m = sim_posting_by_key(r->p, it->key);
	uint32_t epoch;
	uint64_t seq;

	if (!m)
		return;
	sim_posting_whole(m, it->part);
	epoch = m->epoch;
	seq = m->seq;
	arriving(r, epoch, seq);
}

static void on_fenced(struct report *r)
{
	struct sim_path *p = r->p;

	sim_return_postings(p);
	p->fence = SIM_FENCE_DONE;
	emit(r, (struct dr_event){ .kind = DR_EV_FENCED });
}

static void on_failed(struct report *r, const struct sim_item *it)
{
	if (r->p->failed && it->key == 0)
		return;
	r->p->failed = r->p->broken = true;
	emit(r, (struct dr_event){ .kind = DR_EV_FAILED,
			.scope = it->scope,
			.err = it->err,
			.text = it->text });
}

static void come_up(struct report *r, const struct sim_item *it)
{
	if (sim_hs_item(r->p, it))
		emit(r, (struct dr_event){ .kind = DR_EV_READY });
}

static void on_item(struct report *r, const struct sim_item *it)
{
	struct sim_path *p = r->p;

	p->w->hash = dr_mix64(p->w->hash ^ ((uint64_t)it->kind << 32) ^ it->seq ^ it->len);
	/* Bytes of the peer's process: its kernel connects alone. */
	if (it->kind <= SIM_IT_WHOLE && it->kind != SIM_IT_CONNECTED)
		dr_path_heard(&p->base, sim_now(p->w, p->node));
	if (it->kind == SIM_IT_CTRL)
		read_done(p, sim_is_stream(p->w) ? it->len + 8 : 1);
	else if (it->seg && sim_is_stream(p->w))
		read_done(p, it->seg->bytes);
	if (p->failed && it->kind != SIM_IT_FENCED && it->kind != SIM_IT_FAILED) {
		p->holds |= it->kind == SIM_IT_SENT; /* its user is not told */
		return;
	}
	if (!p->ready && (it->kind == SIM_IT_CTRL || it->kind == SIM_IT_CREDIT))
		come_up(r, it); /* remote write: a later message than that of the handshake */
	switch (it->kind) {
	case SIM_IT_CONNECTED:
	case SIM_IT_HELLO:
	case SIM_IT_JOB:
	case SIM_IT_TICK:
	case SIM_IT_ACKED:
		come_up(r, it);
		break;
	case SIM_IT_READY:
		emit(r, (struct dr_event){ .kind = DR_EV_READY });
		break;
	case SIM_IT_CTRL:
		if (it->key != 0) {
			sim_rail_came(sim_rail_of(p->base.rail), it);
			break;
		}
		emit(r, (struct dr_event){ .kind = DR_EV_CTRL, .data = it->data, .len = it->len });
		break;
	case SIM_IT_CREDIT:
		on_credit(r, &it->seg->credit);
		break;
	case SIM_IT_DATA:
		on_data(r, it->seg);
		break;
	case SIM_IT_WHOLE:
		on_whole(r, it);
		break;
	case SIM_IT_SENT:
		emit(r, (struct dr_event){ .kind = DR_EV_SENT,
				.epoch = it->epoch,
				.seq = it->seq,
				.part = it->part });
		break;
	case SIM_IT_FENCED:
		on_fenced(r);
		break;
	case SIM_IT_FAILED:
		on_failed(r, it);
		break;
	default:
		dr_assert(!"an item of a rail in a path");
	}
}

int sim_progress(struct dr_path *dp, int64_t now_ns, struct dr_sink *sink)
{
	struct sim_path *p = sim_path_of(dp);
	struct report r = { .p = p, .sink = sink, .max = p->w->o.progress_max };
	unsigned items = p->w->o.progress_max;

	dr_assert(now_ns == sim_now(p->w, p->node));
	if (p->closed || p->w->dead[p->node])
		return 0;
	if (sim_is_stream(p->w))
		sim_pump(p);
	while (!p->closed && r.n < r.max) {
		if (!p->failed)
			report_delivered(&r);
		if (p->closed || r.n >= r.max || items-- == 0)
			break;
		struct sim_item *it = sim_item_pop(&p->items);
		if (!it)
			break;
		on_item(&r, it);
		sim_item_free(p->w, it);
	}
	return (int)r.n;
}

bool sim_path_busy(const struct sim_path *p)
{
	if (p->closed)
		return false;
	if (!STAILQ_EMPTY(&p->items) || (!p->failed && next_whole(p) >= 0))
		return true;
	if (!sim_is_stream(p->w) || !p->conn || !p->ready || p->broken || p->down ||
		p->fence != SIM_FENCE_NO)
		return false;
	const struct sim_wr *wr = TAILQ_FIRST(&p->wrs);
	return sim_ctrl_due(p) || (wr && wr->flushed && sim_lane_room(p->conn, p->node, 0, 0));
}
