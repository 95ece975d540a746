/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include <string.h>

/*
 * Lanes: what NICs, kernels and links do.
 *
 *  - A lane delivers in order and each segment once. Only the first segment has an event armed, so a
 *    lost one holds up all behind it, as a retransmission does.
 *  - A segment that meets a dead link, or (not a stream) an end that does not answer, is tried again
 *    after the retransmission timeout; a MUTE end retries nothing: what is lost then is lost.
 *  - A kernel gives a stream up when GIVE_UP_NS have passed since it first repeated what has no
 *    answer: data, or probes of a window that the peer's kernel keeps shut. It answers them though
 *    its process stands. The tcp kind sets no keepalive, so that a stream on which nothing is sent
 *    never breaks by itself.
 *  - An acknowledgement that is lost is asked for again by the same timer. Remote write and plugin give
 *    up after retry_count of either: the sender sees an error although the data may have arrived.
 *  - Remote writes read the sender's memory on arrival, as late as it can be, unless the sender was
 *    fenced: then what had left its NIC was copied (snapshot) when the fence was done.
 */

static const int64_t GIVE_UP_NS =
	60 * DR_NS_PER_S; /* tcp_retries2 is 15: 14 s (TCP_RTO_MAX_MS) to 924 s */

static void lane_fire(struct dr_sim_world *w, const struct sim_event *ev);
static void ack_fire(struct dr_sim_world *w, const struct sim_event *ev);
static void ack_again(struct dr_sim_world *w, const struct sim_event *ev);
static void probe_fire(struct dr_sim_world *w, const struct sim_event *ev);

void sim_lane_init(struct dr_sim_world *w, struct sim_lane *l)
{
	memset(l, 0, sizeof(*l));
	STAILQ_INIT(&l->wire);
	STAILQ_INIT(&l->done);
	l->rto = sim_is_stream(w) ? w->o.rto_ns : w->o.retry_ns;
	l->last_ack = -1;
}

static void arm(struct sim_conn *c, unsigned from, unsigned lane, int64_t at)
{
	struct sim_lane *l = &c->lane[from][lane];

	if (l->armed)
		return;
	l->armed = true;
	sim_conn_at(c, at - c->w->now, lane_fire, from, lane, 0);
}

static void arm_head(struct sim_conn *c, unsigned from, unsigned lane)
{
	const struct sim_seg *head = STAILQ_FIRST(&c->lane[from][lane].wire);

	if (head)
		arm(c, from, lane, head->at);
}

void sim_lane_send(struct sim_conn *c, unsigned from, unsigned lane, struct sim_seg *s)
{
	struct dr_sim_world *w = c->w;
	struct sim_link *k = &w->link[c->rail][from];
	struct sim_lane *l = &c->lane[from][lane];
	int64_t start = DR_MAX(w->now, k->busy_until);

	if (c->mute[from]) {
		sim_seg_free(w, s);
		return;
	}
	s->depart = start;
	if (k->o.bits_per_s > 0)
		s->depart += (int64_t)((double)s->bytes * 8e9 / k->o.bits_per_s);
	k->busy_until = s->depart;
	s->at = DR_MAX(s->depart + sim_link_delay(w, c->rail, from), l->tail_at);
	l->tail_at = s->at;
	s->number = ++l->numbers;
	STAILQ_INSERT_TAIL(&l->wire, s, next);
	if (l->unacked == 0)
		l->last_ack = l->busy_since =
			w->now; /* the age of an acknowledgement counts from here */
	l->unacked += s->bytes;
	if (c->end[from]) {
		c->end[from]->st.tx_wire += s->bytes;
		if (s->kind != SIM_SEG_HELLO) /* see path.h */
			dr_path_sent(&c->end[from]->base, sim_now(w, from));
	}
	arm_head(c, from, lane);
}

bool sim_lane_room(const struct sim_conn *c, unsigned from, unsigned lane, uint32_t extra)
{
	return c->lane[from][lane].unacked < c->w->o.window_bytes + extra;
}

/* The peer's kernel or NIC answers. */
static void answered(struct sim_conn *c, struct sim_lane *l)
{
	l->last_ack = c->w->now;
	l->silent_ns = 0;
	l->retries = l->probes = 0;
}

void sim_lanes_reopen(struct sim_conn *c, unsigned to)
{
	for (unsigned n = 0; n < SIM_LANES; n++) {
		struct sim_lane *l = &c->lane[!to][n];

		if (!l->shut)
			continue;
		l->shut = false;
		if (!sim_link_dead(c->w, c->rail, to)) /* the update of the window tells it */
			answered(c, l);
		arm(c, !to, n, c->w->now + sim_link_delay(c->w, c->rail, to));
	}
}

/* Drop what has not left the NIC; what has left is on its way, and slow to die (zombies). */
void sim_lanes_mute(struct sim_conn *c, unsigned from, bool drop_all)
{
	struct dr_sim_world *w = c->w;

	c->mute[from] = true;
	for (unsigned n = 0; n < SIM_LANES; n++) {
		struct sim_lane *l = &c->lane[from][n];
		struct sim_segs all = STAILQ_HEAD_INITIALIZER(all);
		int64_t least = 0;

		STAILQ_CONCAT(&all, &l->wire);
		for (struct sim_seg *s; (s = sim_seg_pop(&all));) {
			if (s->kind != SIM_SEG_RESET && (drop_all || s->depart > w->now)) {
				sim_seg_free(w, s);
				continue;
			}
			if (!sim_is_stream(w) && s->kind == SIM_SEG_DATA)
				s->at += sim_exp(w, w->o.zombie_exp_ns);
			s->at = least = DR_MAX(s->at, least);
			STAILQ_INSERT_TAIL(&l->wire, s, next);
		}
	}
}

void sim_lanes_snapshot(struct sim_conn *c, unsigned from)
{
	for (unsigned n = 0; n < SIM_LANES; n++)
		for (struct sim_seg *s = STAILQ_FIRST(&c->lane[from][n].wire); s;
			s = STAILQ_NEXT(s, next)) {
			if (s->kind != SIM_SEG_DATA || s->copy || s->len == 0)
				continue;
			sim_check_read(c->w, s->src, s->len, s->credit.seq);
			s->copy = sim_alloc(s->len);
			memcpy(s->copy, s->src, s->len);
			s->src = NULL;
			c->w->counts.snapshots++;
		}
}

static void free_list(struct dr_sim_world *w, struct sim_segs *l)
{
	for (struct sim_seg *s; (s = sim_seg_pop(l));)
		sim_seg_free(w, s);
}

void sim_lanes_free(struct sim_conn *c)
{
	for (unsigned from = 0; from < 2; from++)
		for (unsigned n = 0; n < SIM_LANES; n++) {
			free_list(c->w, &c->lane[from][n].wire);
			free_list(c->w, &c->lane[from][n].done);
		}
}

/* A retransmission goes back to the oldest segment without an acknowledgement, and reads the sender's
 * memory again; the other end throws away what it has. */
static void read_again(struct sim_conn *c, unsigned from, const struct sim_lane *l)
{
	if (c->mute[from])
		return;
	for (const struct sim_seg *s = STAILQ_FIRST(&l->done); s; s = STAILQ_NEXT(s, next))
		sim_check_again(c->w, s);
	for (const struct sim_seg *s = STAILQ_FIRST(&l->wire); s; s = STAILQ_NEXT(s, next))
		if (s->depart <= c->w->now)
			sim_check_again(c->w, s);
}

/* Stream: something has to be repeated. True when the kernel gives the connection up; *again is when it would. */
static bool timed_out(struct sim_conn *c, unsigned from, struct sim_lane *l, int64_t *again)
{
	if (l->silent_ns == 0)
		l->silent_ns = c->w->now;
	*again = c->w->now + l->rto;
	l->rto = DR_MIN(2 * l->rto, c->w->o.rto_max_ns);
	if (c->w->now < l->silent_ns + GIVE_UP_NS)
		return false;
	sim_path_broke(c->end[from], DR_SCOPE_PATH, -ETIMEDOUT);
	if (!c->mute[from]) /* a stranger's, or one that no path has yet */
		sim_lanes_mute(c, from, true);
	return true;
}

/* A segment or an acknowledgement did not get through: true when the sender gives up. */
static bool retry(struct sim_conn *c, unsigned from, struct sim_lane *l, int64_t *again)
{
	struct dr_sim_world *w = c->w;

	read_again(c, from, l);
	l->retransmits++;
	l->retries++;
	if (sim_is_stream(w))
		return timed_out(c, from, l, again);
	*again = w->now + l->rto;
	if (l->retries <= w->o.retry_count)
		return false;
	sim_path_broke(c->end[from], DR_SCOPE_PATH, -ETIMEDOUT);
	return true;
}

static void lost(struct sim_conn *c, unsigned from, unsigned lane)
{
	struct sim_lane *l = &c->lane[from][lane];
	int64_t again;

	if (c->mute[from]) { /* what came behind it is out of sequence and refused */
		free_list(c->w, &l->wire);
	} else if (!retry(c, from, l, &again)) {
		arm(c, from, lane, again);
	} else {
		arm_head(c, from, lane); /* what the break left */
	}
}

/* Probes of a window that is shut are as far apart as they become. As long as the links work they are answered, without
 * events. */
static void probe_later(struct sim_conn *c, unsigned from, unsigned lane, int64_t at)
{
	if (!c->lane[from][lane].probe_armed)
		sim_conn_at(c, at - c->w->now, probe_fire, from, lane, 0);
	c->lane[from][lane].probe_armed = true;
}

static void probe_first(struct sim_conn *c, unsigned from, unsigned lane)
{
	struct sim_lane *l = &c->lane[from][lane];

	if (!l->shut || l->probe_armed)
		return;
	l->last_ack = c->w->now;
	l->rto = sim_is_stream(c->w) ? c->w->o.rto_max_ns : l->rto;
	probe_later(c, from, lane, c->w->now + c->w->o.rto_max_ns);
}

void sim_lanes_probe(struct dr_sim_world *w, unsigned rail)
{
	for (struct sim_conn *c = w->conns; c; c = c->next)
		for (unsigned i = 0; c->rail == rail && i < 2 * SIM_LANES; i++)
			probe_first(c, i % 2, i / 2);
}

static bool fits(const struct sim_path *dst, const struct sim_seg *s)
{
	if (s->kind == SIM_SEG_RESET || s->kind == SIM_SEG_HELLO)
		return true;
	if (sim_is_stream(dst->w))
		return dst->rx_unread + s->bytes <= dst->w->o.rcvbuf_bytes;
	return s->kind != SIM_SEG_CTRL || dst->rx_unread < 2 * dst->w->o.ctrl_depth;
}

/* The NIC puts a piece where the credit said. */
static void land_write(struct sim_conn *c, unsigned from, struct sim_path *dst, struct sim_seg *s)
{
	struct sim_posting *m = sim_posting_by_key(dst, s->credit.key);
	const struct dr_part *part;

	if (!m || s->part >= m->n || s->off + s->len > m->part[s->part].len) {
		/* the key is no longer good: the NIC refuses, and says so to a sender that listens */
		c->w->counts.refused++;
		sim_path_broke_later(c, from, sim_link_delay(c->w, c->rail, !from), -EACCES);
		return;
	}
	c->w->counts.zombies += c->mute[from];
	part = &m->part[s->part];
	uint8_t *to = part->mr->base + part->off + s->off;
	if (s->len > 0) {
		if (!s->copy)
			sim_check_read(c->w, s->src, s->len, s->credit.seq);
		sim_check_write(dst, to, s->len, s->credit.seq, s->part);
		memcpy(to, s->copy ? s->copy : s->src, s->len);
	}
	m->got[s->part] += s->len;
}

static void told_late(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	struct sim_path *dst = c->end[!ev->from];

	if (!dst || dst->down || !sim_posting_by_key(dst, ev->a))
		return;
	struct sim_item *it = sim_item_add(w, &dst->items, SIM_IT_WHOLE);
	it->key = ev->a;
	it->part = ev->lane;
}

static void land(struct sim_conn *c, unsigned from, struct sim_path *dst, struct sim_seg *s,
	int64_t tell_after)
{
	struct dr_sim_world *w = c->w;
	struct sim_item *it;

	if (w->o.personality == DR_SIM_PLUGIN)
		sim_conn_ready(dst);
	switch (s->kind) {
	case SIM_SEG_HELLO:
		it = sim_item_add(
			w, dst ? &dst->items : &sim_conn_rail(c, !from)->items, SIM_IT_HELLO);
		it->conn = c;
		it->len = s->len;
		memcpy(it->data, s->frame, s->len);
		return;
	case SIM_SEG_RESET:
		sim_path_broke(dst, DR_SCOPE_PATH, -ECONNRESET);
		return;
	case SIM_SEG_CTRL:
		it = sim_item_add(w, &dst->items, SIM_IT_CTRL);
		it->key = s->dgram;
		it->len = s->len;
		memcpy(it->data, s->frame, s->len);
		dst->rx_unread += sim_is_stream(w) ? s->bytes : 1;
		return;
	case SIM_SEG_CREDIT:
		if (c->drop_credit && !sim_is_stream(w)) {
			c->drop_credit = false;
			sim_path_broke_later(
				c, from, w->o.retry_ns * (int64_t)(w->o.retry_count + 1), -EIO);
			return;
		}
		it = sim_item_add(w, &dst->items, SIM_IT_CREDIT);
		break;
	default:
		if (!sim_is_stream(w)) {
			land_write(c, from, dst, s);
			if (s->last && tell_after != DR_NEVER)
				sim_conn_at(c, tell_after, told_late, from, s->part, s->credit.key);
			return;
		}
		it = sim_item_add(w, &dst->items, SIM_IT_DATA);
	}
	it->seg = sim_seg_new(w, s->kind);
	*it->seg = *s;
	s->copy = NULL;
	if (sim_is_stream(w))
		dst->rx_unread += s->bytes;
}

/* The part's last piece arrives and its completion was told to go wrong. True: the sender is broken
 * and the piece is used up. */
static bool go_wrong(struct sim_conn *c, unsigned from, struct sim_path *dst, struct sim_seg *s,
	int64_t *tell_after)
{
	enum dr_sim_wc wc = c->wc;

	if (wc == DR_SIM_WC_OK || s->kind != SIM_SEG_DATA || !s->last)
		return false;
	c->wc = DR_SIM_WC_OK;
	switch (wc) {
	case DR_SIM_WC_SENT_LATE:
		s->sent_late = c->wc_ns;
		return false;
	case DR_SIM_WC_SENT_LOST:
		s->sent_late = DR_NEVER;
		return false;
	case DR_SIM_WC_RECV_LATE:
		*tell_after = c->wc_ns;
		return false;
	case DR_SIM_WC_RECV_LOST:
		*tell_after = DR_NEVER;
		return false;
	default:
		break;
	}
	sim_lanes_mute(c, from, sim_is_stream(c->w));
	if (wc != DR_SIM_WC_ERR_DROPPED)
		land(c, from, dst, s, wc == DR_SIM_WC_ERR_UNTOLD ? DR_NEVER : 0);
	sim_seg_free(c->w, s);
	sim_path_broke_later(c, from, sim_link_delay(c->w, c->rail, !from), -EIO);
	return true;
}

static void arrive(struct sim_conn *c, unsigned from, unsigned lane, struct sim_path *dst)
{
	struct dr_sim_world *w = c->w;
	struct sim_lane *l = &c->lane[from][lane];
	struct sim_seg *s = sim_seg_pop(&l->wire);
	int64_t tell_after = 0;

	if (go_wrong(c, from, dst, s, &tell_after)) {
		arm_head(c, from, lane);
		return;
	}
	land(c, from, dst, s, tell_after);
	l->arrived = s->number;
	STAILQ_INSERT_TAIL(&l->done, s, next);
	sim_conn_at(c, sim_link_delay(w, c->rail, !from), ack_fire, from, lane, s->number);
	arm_head(c, from, lane);
}

static bool drop(struct dr_sim_world *w, unsigned rail, unsigned from)
{
	uint32_t ppm = w->link[rail][from].o.loss_ppm;
	bool lose = ppm > 0 && dr_rng_chance(&w->rng, ppm, 1000000);

	w->counts.lost += lose;
	return lose;
}

static void lane_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	unsigned from = ev->from, to = !from;
	struct sim_lane *l = &c->lane[from][ev->lane];
	struct sim_path *dst = c->end[to];
	/* A connection on its way in has no path yet, but somebody who reads. */
	bool in = !dst && c->state == SIM_PENDING && to != c->dialer;
	bool gone = (!dst && !in) || (dst && (dst->down || dst->closed)) || w->dead[to];

	l->armed = false;
	const struct sim_seg *head = STAILQ_FIRST(&l->wire);
	if (!head || l->shut)
		return;
	if (head->at > w->now) {
		arm_head(c, from, ev->lane);
		return;
	}
	if (w->link[c->rail][from].clog_until > w->now) {
		arm(c, from, ev->lane, w->link[c->rail][from].clog_until);
		return;
	}
	if (sim_is_stream(w) && !gone && !in)
		gone = dst->broken;
	if (sim_link_dead(w, c->rail, from) || head->bytes > w->link[c->rail][from].passes ||
		drop(w, c->rail, from)) {
		lost(c, from, ev->lane);
	} else if (gone && sim_is_stream(w) && !sim_link_dead(w, c->rail, to)) {
		/* The peer's kernel answers with a reset. */
		sim_seg_free(w, sim_seg_pop(&l->wire));
		arm_head(c, from, ev->lane);
		sim_path_broke_later(c, from, sim_link_delay(w, c->rail, to), -ECONNRESET);
	} else if (gone) {
		lost(c, from, ev->lane);
	} else if (!in && !fits(dst, head)) {
		l->shut = true;
		if (sim_link_dead(w, c->rail, to))
			probe_first(c, from, ev->lane);
	} else {
		arrive(c, from, ev->lane, dst);
	}
}

/* A probe of a window that is shut. */
static void probe_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	struct sim_lane *l = &c->lane[ev->from][ev->lane];
	int64_t again = w->now + w->o.rto_max_ns;

	l->probe_armed = false;
	if (!l->shut || c->mute[ev->from])
		return;
	if (!sim_link_dead(w, c->rail, 0) && !sim_link_dead(w, c->rail, 1)) {
		answered(c, l);
		return;
	}
	l->probes++;
	if (!sim_is_stream(w) || !timed_out(c, ev->from, l, &again))
		probe_later(c, ev->from, ev->lane, again);
}

static void sent_late(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;

	(void)w;
	if (c->end[ev->from])
		sim_wr_acked(c->end[ev->from], ev->a);
}

static void ack_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	unsigned from = ev->from;
	struct sim_lane *l = &c->lane[from][ev->lane];
	struct sim_path *p = c->end[from];

	if (w->link[c->rail][!from].clog_until > w->now) {
		sim_at(w, w->link[c->rail][!from].clog_until, *ev);
		return;
	}
	if (sim_link_dead(w, c->rail, !from) || drop(w, c->rail, !from)) {
		if (!l->ack_armed && !c->mute[from]) {
			l->ack_armed = true;
			sim_conn_at(c, l->rto, ack_again, from, ev->lane, 0);
		}
		return;
	}
	answered(c, l);
	l->rto = sim_is_stream(w) ? w->o.rto_ns : w->o.retry_ns;
	for (struct sim_seg *s; (s = STAILQ_FIRST(&l->done)) && s->number <= ev->a;) {
		STAILQ_REMOVE_HEAD(&l->done, next);
		l->unacked -= s->bytes;
		if (l->unacked == 0)
			l->busy_ns += w->now - l->busy_since;
		if (s->kind == SIM_SEG_DATA)
			l->acked_data += s->bytes;
		if (s->kind == SIM_SEG_HELLO && p && !sim_is_stream(w))
			sim_verbs_acked(p);
		if (s->kind == SIM_SEG_DATA && s->last && s->sent_late != DR_NEVER && s->wr)
			sim_conn_at(c, s->sent_late, sent_late, from, 0, s->wr);
		sim_seg_free(w, s);
	}
	if (p && !sim_is_stream(w))
		sim_pump(p); /* the NIC goes on by itself */
	else if (p)
		sim_rail_of(p->base.rail)->stirred = w->stirred = true; /* there is room */
}

/* The retransmission timer of a segment that arrived and whose acknowledgement did not. */
static void ack_again(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	unsigned from = ev->from;
	struct sim_lane *l = &c->lane[from][ev->lane];
	int64_t again;

	l->ack_armed = false;
	if (c->mute[from] || STAILQ_EMPTY(&l->done))
		return;
	if (sim_link_dead(w, c->rail, from) || sim_link_dead(w, c->rail, !from)) {
		if (retry(c, from, l, &again))
			return;
		l->ack_armed = true;
		sim_at(w, again, *ev);
		return;
	}
	int64_t there = sim_link_delay(w, c->rail, from), back = sim_link_delay(w, c->rail, !from);
	sim_conn_at(c, there + back, ack_fire, from, ev->lane, l->arrived);
}
