/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "base/mem.h"
#include "transport/verbs/verbs_hs_testkit.h"

#include <string.h>

/*
 * The handshake of remote write: that of the verbs kind (transport/verbs/verbs_hs.c, the object that ships), over
 * simulated datagrams, queue pairs and a helper.
 *
 *	datagram  HELLO, WELCOME: lost, repeated, late; never when the link is dead or carries no datagrams
 *	job	  the helper makes the queue pairs, or leads them to the peer's: takes its time, and fails when
 *		  the link stays dead
 *	lane 0	  messages without frames, and their acknowledgements
 *
 * A path's queue pairs have one number. A connection has the numbers of both ends: an end that is led to queue
 * pairs which are not led to it has a connection of its own, in which nothing arrives.
 */

enum { LATE_ONE_IN = 50, SLOW_JOB_ONE_IN = 20, STEPS = 6 };
static const int64_t JOB_NS = 50 * DR_NS_PER_US, JOB_EXP_NS = 200 * DR_NS_PER_US;
static const int64_t SLOW_JOB_NS = 10 * DR_NS_PER_MS;
static const int64_t NEIGHBOUR_NS = 100 * DR_NS_PER_MS; /* until it is known that there is none */
static const int64_t LATE_NS = 30 * DR_NS_PER_MS;

static struct sim_path *path_of(const struct sim_rail *r, uint32_t qpn)
{
	struct sim_path *p = r && !r->closed && !r->w->dead[r->node] ? r->paths : NULL;

	while (p && p->qpn != qpn)
		p = p->next;
	return p && !p->closed && !p->broken && p->fence == SIM_FENCE_NO ? p : NULL;
}

/* ---- what comes later: a job is done, a HELLO is due ---- */

static void later(struct sim_path *p, int64_t at,
	void (*fn)(struct dr_sim_world *w, const struct sim_event *ev))
{
	const struct sim_rail *r = sim_rail_of(p->base.rail);

	sim_at(p->w, at,
		(struct sim_event){ .fn = fn,
			.from = p->node,
			.lane = r->port * DR_SIM_RAILS_MAX + r->base.index,
			.a = p->qpn });
}

static struct sim_path *path_at(const struct dr_sim_world *w, const struct sim_event *ev)
{
	return path_of(w->rail[ev->from][ev->lane / DR_SIM_RAILS_MAX][ev->lane % DR_SIM_RAILS_MAX],
		(uint32_t)ev->a);
}

static void job_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_path *p = path_at(w, ev);
	unsigned rail = ev->lane % DR_SIM_RAILS_MAX;

	if (!p)
		return;
	if (p->verbs.state == VB_HS_JOINING &&
		(sim_link_dead(w, rail, 0) || sim_link_dead(w, rail, 1)) && !p->neighbour_asked) {
		p->neighbour_asked = true;
		later(p, w->now + NEIGHBOUR_NS, job_fire);
		return;
	}
	sim_item_add(w, &p->items, SIM_IT_JOB)->err =
		p->neighbour_asked && sim_link_dead(w, rail, p->node) ? -ETIMEDOUT : 0;
}

static void submit(struct sim_path *p)
{
	int64_t takes = JOB_NS + sim_exp(p->w, JOB_EXP_NS);

	if (dr_rng_chance(&p->w->rng, 1, SLOW_JOB_ONE_IN))
		takes += sim_exp(p->w, SLOW_JOB_NS);
	later(p, p->w->now + takes, job_fire);
}

static void tick_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_path *p = path_at(w, ev);

	if (p)
		(void)sim_item_add(w, &p->items, SIM_IT_TICK);
}

static void arm(struct sim_path *p)
{
	int64_t at = dr_verbs_hs_deadline(&p->verbs);

	if (at != DR_NEVER) /* of this node's clock */
		later(p, at + p->w->skew[p->node], tick_fire);
}

/* ---- datagrams ---- */

static void greet(struct sim_path *p)
{
	struct dr_verbs_hello mine = { .mtu = 4096,
		.ud_qpn = 1 + p->node,
		.psn = p->qpn,
		.msg_max = 1 << 20,
		.ctrl_recvs = (uint16_t)DR_MAX(4u, p->w->o.ctrl_depth) };
	struct sim_rail *r = sim_rail_of(p->base.rail);
	struct sim_dgram d = { .port = r->port, .rail = r->base.index, .kind = SIM_IT_GREETING };

	for (unsigned i = 0; i < p->verbs.n; i++)
		mine.qpn[i] = p->qpn;
	d.len = d.size = (uint32_t)dr_verbs_hs_greeting(&p->verbs, &mine, d.data);
	p->st.tx_wire += d.len; /* but not tx_last_ns: see path.h */
	sim_hs_said(&p->w->link[r->base.index][p->node], r->port, d.data, d.len);
	sim_rail_send(r, &d, 0);
	if (dr_rng_chance(&p->w->rng, 1, LATE_ONE_IN)) /* and again, behind what came since */
		sim_rail_send(r, &d, sim_exp(p->w, LATE_NS));
}

/* ---- queue pairs ---- */

static void lead(struct sim_path *p, uint32_t to)
{
	const struct sim_rail *r = sim_rail_of(p->base.rail);
	struct sim_conn *c = p->w->conns;

	sim_check_target(p, to);
	while (c && (c->rail != r->base.index || c->qpn[p->node] != p->qpn ||
			    c->qpn[!p->node] != to || c->end[p->node]))
		c = c->next;
	if (!c) {
		c = sim_conn_new(
			p->w, r->port, r->base.index, p->par.connector ? p->node : !p->node);
		c->state = SIM_ACCEPTED;
		c->qpn[p->node] = p->qpn;
		c->qpn[!p->node] = to;
	}
	sim_conn_join(c, p);
}

static void say(struct sim_path *p)
{
	struct sim_seg *s = sim_seg_new(p->w, SIM_SEG_HELLO);

	s->bytes = sizeof(uint32_t);
	sim_lane_send(p->conn, p->node, 0, s);
}

void sim_verbs_acked(struct sim_path *p)
{
	(void)sim_item_add(p->w, &p->items, SIM_IT_ACKED);
}

/* ---- steps ---- */

/* Fault: the path breaks at this step of its handshake. */
static bool breaks(struct sim_path *p)
{
	struct sim_link *l = &p->w->link[p->base.rail->index][p->node];

	if (!p->steps_counted && l->cut_hello > 0) {
		p->steps_left = 1 + l->cut_hello % STEPS;
		l->cut_hello = 0;
	}
	p->steps_counted = true;
	if (p->steps_left == 0 || --p->steps_left > 0)
		return false;
	p->w->counts.cut_hellos++;
	sim_path_broke(p, DR_SCOPE_PATH, -ECONNRESET);
	return true;
}

/* True: the path is up. */
static bool obey(struct sim_path *p, enum vb_hs_do what, const struct dr_verbs_hello *who)
{
	if (what != VB_HS_NOTHING && what != VB_HS_READY && breaks(p))
		return false;
	switch (what) {
	case VB_HS_GREET:
		greet(p);
		break;
	case VB_HS_JOIN:
		p->lead_to = who->qpn[0];
		submit(p);
		break;
	case VB_HS_SAY:
		say(p);
		break;
	case VB_HS_UNEQUAL:
		sim_path_broke(p, DR_SCOPE_PATH, -EPROTO);
		break;
	case VB_HS_READY:
		p->conn->state = SIM_OPEN;
		sim_path_up(p);
		return true;
	default:
		break;
	}
	return false;
}

static uint32_t new_queue_pair(struct sim_path *p)
{
	struct dr_sim_world *w = p->w;

	w->qp = dr_realloc(w->qp, (w->n_qps + 1) * sizeof(*w->qp));
	dr_assert(w->qp != NULL);
	w->qp[w->n_qps] = (struct sim_qp){ p->verbs.id, sim_rail_of(p->base.rail)->port };
	return ++w->n_qps;
}

void sim_verbs_connect(struct sim_path *p)
{
	if (p->broken)
		return; /* FAILED is due */
	p->qpn = new_queue_pair(p);
	dr_verbs_hs_start(&p->verbs);
	submit(p);
}

static void job_done(struct sim_path *p, int err)
{
	if (err) {
		sim_path_broke(p, DR_SCOPE_PATH, err);
	} else if (p->verbs.state == VB_HS_BUILDING) {
		struct vb_verdict v = dr_verbs_hs_built(&p->verbs, sim_now(p->w, p->node));

		p->w->counts.claimed += v.what == VB_HS_JOIN;
		obey(p, v.what, &v.who);
		arm(p);
	} else if (p->verbs.state == VB_HS_JOINING) {
		lead(p, p->lead_to);
		obey(p, dr_verbs_hs_joined(&p->verbs), NULL);
	}
}

bool sim_verbs_item(struct sim_path *p, const struct sim_item *it)
{
	if (p->broken || p->ready || p->fence != SIM_FENCE_NO)
		return false;
	switch (it->kind) {
	case SIM_IT_JOB:
		job_done(p, it->err);
		return false;
	case SIM_IT_TICK:
		obey(p, dr_verbs_hs_tick(&p->verbs, sim_now(p->w, p->node)), NULL);
		arm(p);
		return false;
	case SIM_IT_ACKED:
		return obey(p, dr_verbs_hs_acked(&p->verbs), NULL);
	default:
		return obey(p, dr_verbs_hs_message(&p->verbs), NULL);
	}
}

/* ---- a rail ---- */

void sim_verbs_rail_item(struct sim_rail *r, const struct sim_item *it, struct dr_sink *sink)
{
	struct dr_sim_counts *n = &r->w->counts;
	struct vb_verdict v =
		dr_verbs_admission_bytes(r->greetings, it->data, it->len, sim_now(r->w, r->node));
	struct dr_event ev = { .kind = DR_EV_INCOMING,
		.rail = &r->base,
		.channel = v.who.channel,
		.index = v.who.index,
		.gen = v.who.gen };

	n->rejected += v.what == VB_HS_REJECT;
	n->outdated += v.what == VB_HS_DROP;
	n->welcomed_again += v.what == VB_HS_GREET;
	if (!dr_verbs_admission_validate(r->greetings))
		sim_violation(r->w, "the admission of rail %u breaks its rules", r->base.index);
	if (v.to)
		obey(dr_container_of(v.to, struct sim_path, verbs), v.what, &v.who);
	if (v.what == VB_HS_INCOMING)
		sink->event(sink, &ev);
}

/* ---- strangers ---- */

/* A greeting that went over this rail before, and whose path the other end has had. */
static unsigned say_again(const struct sim_rail *r, struct dr_rng *g, uint8_t *out)
{
	const struct sim_said *s =
		r ? sim_hs_recall(&r->w->link[r->base.index][!r->node], r->port, g) : NULL;
	const struct sim_path *p;
	struct dr_verbs_hello h;
	const char *why;

	if (!s || dr_verbs_hello_parse(s->data, s->len, r->token, &h, &why))
		return 0;
	p = sim_hs_newest(r, h.channel, h.index);
	if (!p || p->par.gen < h.gen)
		return 0;
	memcpy(out, s->data, s->len);
	return s->len;
}

/* The HELLO or WELCOME of a path that is there, or of its successor, with another token. */
static unsigned say_wrong_token(const struct sim_rail *r, struct dr_rng *g, uint8_t *out)
{
	const struct sim_path *p = sim_hs_any(r, g);
	struct dr_verbs_hello h = { .mtu = 1024, .ud_qpn = 1, .msg_max = 4096, .ctrl_recvs = 4 };
	struct vb_admission other;
	struct vb_hs hs = { .rail = &other, .id = { .gen = 1 }, .n = DR_VERBS_SHARED_QPS };

	dr_verbs_admission_init(&other, r ? r->token : (const uint8_t[DR_TOKEN_LEN]){ 0 });
	other.token[dr_rng_below(g, DR_TOKEN_LEN)] ^= (uint8_t)(1 + dr_rng_below(g, 255));
	if (p) {
		hs.id = p->verbs.id;
		hs.id.gen += (uint32_t)dr_rng_below(g, 2);
		hs.n = p->verbs.n;
	}
	for (unsigned i = 0; i < hs.n; i++)
		h.qpn[i] = 0xffffff; /* of nobody */
	return (unsigned)dr_verbs_hs_greeting(&hs, &h, out);
}

bool sim_verbs_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, struct dr_rng *g)
{
	struct sim_dgram d = { .port = port, .rail = rail, .kind = SIM_IT_GREETING };
	const struct sim_rail *peer = w->rail[!to][port][rail];
	unsigned len = 0;

	switch (what) {
	case DR_SIM_SILENT:
		break;
	case DR_SIM_GARBAGE:
		len = 1 + (unsigned)dr_rng_below(g, DR_VERBS_HELLO_MAX);
		for (unsigned i = 0; i < len; i++)
			d.data[i] = (uint8_t)dr_rng_u64(g);
		break;
	case DR_SIM_PARTIAL:
		len = (unsigned)dr_rng_below(g, say_wrong_token(peer, g, d.data));
		break;
	case DR_SIM_WRONG_TOKEN:
		len = say_wrong_token(peer, g, d.data);
		break;
	case DR_SIM_OLD_HELLO:
		len = say_again(w->rail[to][port][rail], g, d.data);
		break;
	}
	d.len = d.size = len;
	if (len > 0)
		sim_dgram_at(w, !to, &d, w->now + sim_link_delay(w, rail, !to));
	return len > 0;
}
