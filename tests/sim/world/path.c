/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "base/mem.h"
#include "base/wire.h"

#include <string.h>

/*
 * A path's life, its posting and its fence; progress.c reports. Invariants:
 *
 *  1. Work is taken only while the path is up and neither broken, fenced nor closed.
 *  2. Once `down` is set nothing lands in a posting, and what is still in flight was copied.
 *  3. A work request leaves the list when its SENT is queued; a posting when all its parts are
 *     DELIVERED or the path is fenced or stopped.
 */

enum { HANDLE_MAGIC = 0x44525331 };

/* 0; -EAGAIN: not now, an event will tell; -ENOTCONN: not up yet, or known to be over. */
static int may_post(const struct sim_path *p)
{
	if (!p->ready || p->failed || p->closed || p->fence != SIM_FENCE_NO)
		return -ENOTCONN;
	if (p->broken || p->w->dead[p->node])
		return -EAGAIN;
	return 0;
}

int sim_create(
	struct dr_rail *r, const struct dr_path_params *par, struct dr_path **out, struct dr_err *e)
{
	struct sim_rail *rail = sim_rail_of(r);
	struct sim_path *p = dr_calloc(1, sizeof(*p));
	const struct dr_sim_opts *o = &rail->w->o;

	if (p) {
		p->posted = dr_calloc(o->recv_depth, sizeof(*p->posted));
		p->credits = dr_calloc(2 * o->recv_depth, sizeof(*p->credits));
	}
	if (!p || !p->posted || !p->credits) {
		if (p) {
			dr_free(p->posted);
			dr_free(p->credits);
		}
		dr_free(p);
		return dr_err_set(e, -ENOMEM, "create a simulated path: out of memory");
	}
	p->base.ops = r->ops;
	p->base.rail = r;
	p->w = rail->w;
	p->node = rail->node;
	p->par = *par;
	TAILQ_INIT(&p->wrs);
	STAILQ_INIT(&p->ctrl);
	STAILQ_INIT(&p->items);
	p->items.stirs = &rail->stirred;
	sim_hs_init(p);
	p->next = rail->paths;
	rail->paths = p;
	*out = &p->base;
	return 0;
}

int sim_handle(struct dr_path *dp, void *buf, size_t cap)
{
	const struct sim_path *p = sim_path_of(dp);
	const struct dr_path_ident id = dr_path_ident(&p->par);
	struct dr_wbuf b;

	dr_wbuf_init(&b, buf, cap);
	dr_wbuf_u32(&b, HANDLE_MAGIC);
	dr_wbuf_u8(&b, (uint8_t)p->w->o.personality);
	dr_wbuf_u8(&b, (uint8_t)p->node);
	dr_wbuf_u8(&b, (uint8_t)dp->rail->index);
	dr_path_ident_put(&b, &id);
	return b.failed ? -EMSGSIZE : (int)b.len;
}

int sim_connect(
	struct dr_path *dp, const void *handle, size_t len, int64_t now_ns, struct dr_err *e)
{
	struct sim_path *p = sim_path_of(dp);
	uint8_t kind = 0, node = 0, rail = 0;
	struct dr_path_ident peer;
	uint32_t magic = 0;
	struct dr_rbuf b;

	(void)now_ns;
	dr_rbuf_init(&b, handle, len);
	dr_rbuf_u32(&b, &magic);
	dr_rbuf_u8(&b, &kind);
	dr_rbuf_u8(&b, &node);
	dr_rbuf_u8(&b, &rail);
	(void)dr_path_ident_get(&b, &peer);
	/* Length 0: no news of the peer's path; a rebuild between rails that know each other. */
	if (len > 0 && (dr_rbuf_done(&b) || magic != HANDLE_MAGIC || kind != p->w->o.personality ||
			       node != !p->node || rail != dp->rail->index ||
			       !dr_path_fits(&p->par, &peer)))
		return dr_err_set(e, -EPROTO,
			"connect simulated path %u of channel %u: the handle is not that of its peer",
			p->par.index, p->par.channel);
	if (p->closed || p->fence != SIM_FENCE_NO || (!sim_hs_is_new(p) && !p->broken))
		return dr_err_set(e, -EINVAL, "connect simulated path: not a new path");
	p->connect_at = p->w->now;
	if (p->w->told[dp->rail->index][p->node])
		sim_path_broke(p, DR_SCOPE_RAIL, -ENETDOWN);
	else
		sim_hs_connect(p);
	return 0;
}

struct sim_posting *sim_posting_by_key(struct sim_path *p, uint64_t key)
{
	for (unsigned k = 0; k < p->post_n; k++) {
		struct sim_posting *m = &p->posted[(p->post_head + k) % p->w->o.recv_depth];

		if (m->key == key)
			return m;
	}
	return NULL;
}

void sim_posting_whole(struct sim_posting *m, unsigned part)
{
	if (m->whole & (1u << part))
		return;
	m->whole |= 1u << part;
	m->order[m->n_whole++] = (uint8_t)part;
}

static void check_order(struct sim_path *p, uint32_t epoch, uint64_t seq)
{
	if (p->any_posted &&
		(epoch < p->last_epoch || (epoch == p->last_epoch && seq <= p->last_seq)))
		sim_violation(p->w, "receive of epoch %u seq %llu posted after epoch %u seq %llu",
			epoch, (unsigned long long)seq, p->last_epoch,
			(unsigned long long)p->last_seq);
	if (p->post_n > 0 && epoch != p->last_epoch)
		sim_violation(p->w,
			"receive of epoch %u posted before those of epoch %u were fenced", epoch,
			p->last_epoch);
	p->any_posted = true;
	p->last_epoch = epoch;
	p->last_seq = seq;
}

int sim_post_recv(struct dr_path *dp, uint32_t epoch, uint64_t seq, const struct dr_part *parts,
	unsigned n, uint32_t skip)
{
	struct sim_path *p = sim_path_of(dp);
	int err = may_post(p);

	if (p->par.sender || n < 1 || n > DR_PARTS_MAX || skip >> n)
		return -EINVAL;
	if (err || p->post_n == p->w->o.recv_depth)
		return err ? err : -EAGAIN;
	check_order(p, epoch, seq);
	struct sim_posting *m = &p->posted[(p->post_head + p->post_n) % p->w->o.recv_depth];
	*m = (struct sim_posting){
		.key = ++p->w->keys, .epoch = epoch, .seq = seq, .n = n, .reported = skip
	};
	struct sim_seg *s = sim_seg_new(p->w, SIM_SEG_CREDIT);
	s->bytes = 32 + 8 * n;
	s->credit = (struct sim_credit){
		.key = m->key, .epoch = epoch, .seq = seq, .n = n, .skip = skip
	};
	for (unsigned i = 0; i < n; i++) {
		m->part[i] = parts[i];
		s->credit.cap[i] = parts[i].len;
		s->credit.tag[i] = parts[i].tag;
		if (!(skip & (1u << i)))
			sim_check_post(p, &parts[i], "receive");
	}
	p->post_n += skip != (1u << n) - 1;
	STAILQ_INSERT_TAIL(&p->ctrl, s, next);
	return 0;
}

static struct sim_credit *find_credit(struct sim_path *p, uint32_t epoch, uint64_t seq)
{
	unsigned n = 2 * p->w->o.recv_depth, at = (unsigned)(seq % n);

	if (epoch != p->credit_epoch || seq > p->credit_seq)
		return NULL;
	for (unsigned i = 0; i < n; i++, at = (at + 1) % n) {
		struct sim_credit *c = &p->credits[at];

		if (c->key && c->epoch == epoch && c->seq == seq)
			return c;
	}
	return NULL;
}

int sim_credit(struct dr_path *dp, uint32_t epoch, uint64_t seq, struct dr_credit *out)
{
	const struct sim_credit *c = find_credit(sim_path_of(dp), epoch, seq);

	if (!c)
		return -EAGAIN;
	*out = (struct dr_credit){ .n = c->n, .todo = ((1u << c->n) - 1) & ~(c->skip | c->sent) };
	memcpy(out->cap, c->cap, sizeof(out->cap));
	memcpy(out->tag, c->tag, sizeof(out->tag));
	return 0;
}

int sim_post_send(
	struct dr_path *dp, uint32_t epoch, uint64_t seq, unsigned part, const struct dr_part *what)
{
	struct sim_path *p = sim_path_of(dp);
	int err = may_post(p);

	if (!p->par.sender)
		return -EINVAL;
	struct sim_credit *c = find_credit(p, epoch, seq);
	if (err || !c)
		return err ? err : -EAGAIN;
	if (part >= c->n || ((c->skip | c->sent) & (1u << part)))
		return -EINVAL;
	if (what->len > c->cap[part])
		return -EMSGSIZE;
	if (p->n_wrs == p->w->o.send_depth)
		return -EAGAIN;
	sim_check_post(p, what, "send");
	c->sent |= 1u << part;
	struct sim_wr *wr = sim_alloc(sizeof(*wr));
	wr->id = ++p->w->keys;
	wr->to = *c;
	wr->part = part;
	wr->src = what->mr->base + what->off;
	wr->len = what->len;
	wr->mr = what->mr;
	if (p->w->o.personality == DR_SIM_REMOTE_WRITE)
		wr->lane = 1 + (unsigned)dr_rng_below(&p->w->rng, p->w->o.qps);
	else
		wr->lane = sim_is_stream(p->w) ? 0 : 1;
	TAILQ_INSERT_TAIL(&p->wrs, wr, next);
	p->n_wrs++;
	return 0;
}

static int post_bytes(struct sim_path *p, const void *bytes, size_t len, bool dgram)
{
	int err = may_post(p);

	if (len < 1 || len > (dgram ? DR_DGRAM_MAX : DR_CTRL_MAX))
		return -EINVAL;
	if (err || p->n_ctrl == p->w->o.ctrl_depth)
		return err ? err : -EAGAIN;
	struct sim_seg *s = sim_seg_new(p->w, SIM_SEG_CTRL);
	s->bytes = 8 + (uint32_t)len;
	s->len = (uint32_t)len;
	s->dgram = dgram;
	memcpy(s->frame, bytes, len);
	p->n_ctrl++;
	STAILQ_INSERT_TAIL(&p->ctrl, s, next);
	return 0;
}

int sim_post_ctrl(struct dr_path *dp, const void *frame, size_t len)
{
	return post_bytes(sim_path_of(dp), frame, len, false);
}

void sim_path_dgram(struct sim_path *p, const void *data, size_t len)
{
	if (post_bytes(p, data, len, true) == 0)
		sim_flush(&p->base, p->w->now);
}

static void unlink_wr(struct sim_path *p, struct sim_wr *wr)
{
	TAILQ_REMOVE(&p->wrs, wr, next);
	p->n_wrs--;
	dr_free(wr);
}

static void wr_sent(struct sim_path *p, struct sim_wr *wr)
{
	struct sim_item *it = sim_item_add(p->w, &p->items, SIM_IT_SENT);

	it->epoch = wr->to.epoch;
	it->seq = wr->to.seq;
	it->part = wr->part;
	unlink_wr(p, wr);
}

void sim_wr_acked(struct sim_path *p, uint64_t id)
{
	struct sim_wr *wr = TAILQ_FIRST(&p->wrs);

	while (wr && wr->id != id)
		wr = TAILQ_NEXT(wr, next);
	if (!wr)
		return;
	if (p->w->o.personality != DR_SIM_PLUGIN) {
		wr_sent(p, wr);
		return;
	}
	wr->done = true;
	while ((wr = TAILQ_FIRST(&p->wrs)) && wr->done)
		wr_sent(p, wr);
}

static void emit_piece(struct sim_path *p, struct sim_wr *wr)
{
	struct sim_seg *s = sim_seg_new(p->w, SIM_SEG_DATA);

	s->credit = wr->to;
	s->part = wr->part;
	s->off = wr->pos;
	s->total = wr->len;
	s->wr = wr->id;
	s->len = DR_MIN(wr->len - wr->pos, p->w->o.segment_bytes);
	s->bytes = s->len + 32;
	wr->pos += s->len;
	s->last = wr->emitted = wr->pos == wr->len;
	s->src = wr->src + s->off;
	if (sim_is_stream(p->w) && s->len > 0) {
		sim_check_read(p->w, s->src, s->len, wr->to.seq);
		s->copy = sim_alloc(s->len);
		memcpy(s->copy, s->src, s->len);
		s->src = NULL; /* the kernel's from here on */
	}
	p->st.tx_bytes += s->len;
	sim_lane_send(p->conn, p->node, wr->lane, s);
}

bool sim_ctrl_due(const struct sim_path *p)
{
	const struct sim_seg *s = STAILQ_FIRST(&p->ctrl);

	return s && s->flushed && sim_lane_room(p->conn, p->node, 0, p->w->o.ctrl_room_bytes);
}

/* Hand over what was flushed, as far as the lanes take it; control before data. */
void sim_pump(struct sim_path *p)
{
	unsigned blocked = 0;

	if (!p->conn || !p->ready || p->broken || p->closed || p->down ||
		p->fence != SIM_FENCE_NO || p->w->dead[p->node])
		return;
	while (sim_ctrl_due(p)) {
		struct sim_seg *s = sim_seg_pop(&p->ctrl);

		p->n_ctrl -= s->kind == SIM_SEG_CTRL;
		sim_lane_send(p->conn, p->node, 0, s);
	}
	for (struct sim_wr *next, *wr = TAILQ_FIRST(&p->wrs); wr && wr->flushed; wr = next) {
		next = TAILQ_NEXT(wr, next);
		while (!(blocked & (1u << wr->lane)) && !wr->emitted &&
			sim_lane_room(p->conn, p->node, wr->lane, 0))
			emit_piece(p, wr);
		if (!wr->emitted)
			blocked |= 1u << wr->lane;
		else if (sim_is_stream(p->w))
			wr_sent(p, wr);
	}
}

void sim_flush(struct dr_path *dp, int64_t now_ns)
{
	struct sim_path *p = sim_path_of(dp);

	(void)now_ns;
	for (struct sim_seg *s = STAILQ_FIRST(&p->ctrl); s; s = STAILQ_NEXT(s, next))
		s->flushed = true;
	for (struct sim_wr *wr = TAILQ_FIRST(&p->wrs); wr; wr = TAILQ_NEXT(wr, next))
		wr->flushed = true;
	sim_pump(p);
}

/* Nothing reaches this end any more and nothing of it is read: invariant 2. */
void sim_path_tear_down(struct sim_path *p)
{
	if (p->down)
		return;
	p->down = true;
	if (p->conn) {
		sim_lanes_mute(p->conn, p->node, false);
		sim_lanes_snapshot(p->conn, p->node);
		sim_lanes_reopen(
			p->conn, p->node); /* probes of a window that was shut find nobody */
	}
	while (!TAILQ_EMPTY(&p->wrs))
		unlink_wr(p, TAILQ_FIRST(&p->wrs));
	for (struct sim_seg *s; (s = sim_seg_pop(&p->ctrl));)
		sim_seg_free(p->w, s);
	p->n_ctrl = 0;
}

static void fence_over(struct sim_path *p, bool stuck)
{
	if (stuck) {
		p->quarantined = true;
		p->w->counts.stuck++;
		struct sim_item *it = sim_item_add(p->w, &p->items, SIM_IT_FAILED);
		it->scope = DR_SCOPE_RAIL;
		it->err = -EIO;
		it->text = "the fence failed and its connection could not be destroyed";
		it->key = 1; /* reported although the path failed before */
		return;
	}
	sim_path_tear_down(p);
	(void)sim_item_add(p->w, &p->items, SIM_IT_FENCED);
}

static void fence_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	struct sim_path *p = c->end[ev->from];

	if (p && p->fence == SIM_FENCE_ASKED && !p->down && !p->closed)
		fence_over(p, w->fence_stuck[c->rail][ev->from] && ev->a);
}

/* Sends whose SENT, and receives of which a DELIVERED was not reported yet. */
static bool holds(const struct sim_path *p)
{
	bool any = !TAILQ_EMPTY(&p->wrs) || p->post_n > 0;

	for (const struct sim_item *it = STAILQ_FIRST(&p->items); it; it = STAILQ_NEXT(it, next))
		any |= it->kind == SIM_IT_SENT;
	return any;
}

void sim_fence(struct dr_path *dp, int64_t deadline_ns)
{
	struct sim_path *p = sim_path_of(dp);
	struct dr_sim_world *w = p->w;
	unsigned rail = p->base.rail->index;
	int64_t takes = w->fence_ns[rail][p->node];
	bool stuck = w->fence_stuck[rail][p->node];

	if (p->closed || p->fence != SIM_FENCE_NO || w->dead[p->node])
		return;
	p->fence = SIM_FENCE_ASKED;
	p->holds |= holds(p);
	sim_hs_end(p);
	if (!p->conn || p->conn->state != SIM_OPEN) {
		sim_conn_detach(p);
		fence_over(p, false);
		return;
	}
	if (sim_is_stream(w))
		sim_conn_reset_peer(p->conn, p->node);
	sim_lanes_mute(p->conn, p->node, false);
	if (takes < 0)
		takes = sim_is_stream(w) ? 0 : w->o.fence_min_ns + sim_exp(w, w->o.fence_exp_ns);
	if (deadline_ns != DR_NEVER) /* of this node's clock */
		deadline_ns += w->skew[p->node];
	takes = stuck ? deadline_ns - w->now : DR_MIN(takes, deadline_ns - w->now);
	if (takes <= 0 && !stuck)
		fence_over(p, false);
	else
		sim_conn_at(p->conn, takes, fence_fire, p->node, 0, stuck);
}

static const int64_t ANSWER_NS = 500 * DR_NS_PER_MS; /* as verbs counts a probe without an answer */

void sim_stats(struct dr_path *dp, struct dr_path_stats *out)
{
	const struct sim_path *p = sim_path_of(dp);
	const struct dr_sim_world *w = p->w;
	struct sim_conn *c = p->conn;
	const struct sim_link *k = w->link[dp->rail->index];
	int64_t last = -1;

	*out = p->st;
	out->peer_ack_age_ns = -1;
	if (!c || w->o.mute)
		return;
	for (unsigned n = 0; n < SIM_LANES; n++) {
		struct sim_lane *l = &c->lane[p->node][n];

		out->acked_bytes += l->acked_data;
		out->silent_segments = DR_MAX(out->silent_segments, l->retries);
		out->unacked_bytes += l->unacked;
		if (sim_is_stream(w)) /* as the kernel tells */
			out->busy_ns += l->busy_ns + (l->unacked > 0 ? w->now - l->busy_since : 0);
		out->retransmits += l->retransmits;
		last = DR_MAX(last, l->last_ack);
		out->window_shut |= l->shut;
		if (l->shut && !sim_link_dead(w, c->rail, 0) && !sim_link_dead(w, c->rail, 1))
			last = w->now; /* the probes of the window are answered */
		if (l->shut)
			out->unanswered = DR_MAX(out->unanswered, l->probes);
		else if (l->unacked > 0) /* a killed NIC retries nothing; its owner's clock runs */
			out->unanswered = DR_MAX(out->unanswered,
				DR_MAX(l->retries, (unsigned)((w->now - l->last_ack) / ANSWER_NS)));
	}
	out->acked_wire = out->tx_wire - DR_MIN(out->tx_wire, out->unacked_bytes);
	out->peer_ack_age_ns = last < 0 ? -1 : w->now - last;
	out->rtt_ns = k[0].o.delay_min_ns + k[0].o.delay_exp_ns + k[1].o.delay_min_ns +
		      k[1].o.delay_exp_ns;
	out->repeats = true;
	out->rtt_min_ns = k[0].o.delay_min_ns + k[1].o.delay_min_ns;
	out->segment_bytes = DR_MIN(w->o.segment_bytes, 65507u);
}

void sim_close(struct dr_path *dp)
{
	struct sim_path *p = sim_path_of(dp);

	if (p->closed)
		return;
	p->closed = true;
	sim_hs_fini(p);
	if (!p->conn || p->conn->state != SIM_OPEN) {
		sim_conn_detach(p);
		return;
	}
	if (sim_is_stream(p->w) && !p->down && !p->w->dead[p->node])
		sim_conn_reset_peer(p->conn, p->node);
	sim_lanes_mute(p->conn, p->node, false);
	sim_lanes_reopen(p->conn, p->node);
}

/* What a fence could not destroy is destroyed here. */
int sim_stop(struct dr_path *dp)
{
	struct sim_path *p = sim_path_of(dp);

	sim_close(dp);
	if (p->stopped)
		return 0;
	p->stopped = true;
	sim_path_tear_down(p);
	sim_return_postings(p);
	sim_conn_detach(p);
	return 0;
}

void sim_fini(struct dr_path *dp)
{
	struct sim_path *p = sim_path_of(dp), **at;

	sim_stop(dp);
	for (at = &sim_rail_of(dp->rail)->paths; *at != p; at = &(*at)->next)
		;
	*at = p->next;
	sim_items_clear(p->w, &p->items);
	dr_free(p->posted);
	dr_free(p->credits);
	dr_free(p);
}
