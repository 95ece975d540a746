/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "transport/tcp/tcp_hs_testkit.h"

#include <string.h>
#include <sys/socket.h>

/*
 * The handshake of a stream: that of the TCP kind (transport/tcp/tcp_hs.c, the object that ships), over
 * simulated kernels.
 *
 *	SYN	 the dialer's kernel asks; lost requests are repeated every rto
 *	PENDING	 the acceptor's kernel has the connection: ACCEPT at its rail, CONNECTED at the dialer
 *	OPEN	 an acceptor adopted it
 *	GONE	 an end left before
 *
 * Kernels act in events, processes in progress, where bytes are given to the handshake. CHALLENGE, HELLO and HELLO_OK
 * go through lane 0 in one or two pieces, as all that follows them does.
 */

static void leave_arrive(struct dr_sim_world *w, const struct sim_event *ev);

/* The end of node `from` left: the other one is told, again and again if its kernel does that. */
static void leave(struct sim_conn *c, unsigned from, bool again)
{
	sim_conn_at(c, sim_link_delay(c->w, c->rail, from), leave_arrive, from, 0, again);
}

static void leave_arrive(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	unsigned to = !ev->from;
	struct sim_rail *r = sim_conn_rail(c, to);

	if (w->link[c->rail][ev->from].clog_until > w->now) {
		sim_at(w, w->link[c->rail][ev->from].clog_until, *ev);
		return;
	}
	if (sim_link_dead(w, c->rail, ev->from)) {
		if (ev->a)
			sim_at(w, w->now + w->o.rto_ns, *ev);
		return;
	}
	if (c->end[to])
		sim_path_broke(c->end[to], DR_SCOPE_PATH, -ECONNRESET);
	else if (c->state == SIM_PENDING && r && !r->closed && !w->dead[to])
		sim_item_add(w, &r->items, SIM_IT_HUNG_UP)->conn = c;
}

void sim_tcp_dialer_left(struct sim_conn *c)
{
	leave(c, c->dialer, false);
}

/* As handles tell where a listener is. */
static void set_places(struct tcp_admission *a, unsigned node, unsigned port, unsigned rail)
{
	struct tcp_rail_handle h = { .family = AF_INET,
		.addr = { 10, (uint8_t)node, (uint8_t)port, (uint8_t)rail },
		.tcp_port = 1,
		.udp_port = 1 };

	dr_tcp_place_set(&a->self, &h);
	h.addr[1] = !node;
	dr_tcp_place_set(&a->peer, &h);
}

void sim_tcp_rail_init(struct sim_rail *r)
{
	uint64_t secret[2] = { dr_rng_u64(&r->w->rng), dr_rng_u64(&r->w->rng) };

	_Static_assert(sizeof(secret) == DR_KEY_LEN, "two words make a key");
	dr_tcp_admission_init(r->admission, r->token, (const uint8_t *)secret);
	set_places(r->admission, r->node, r->port, r->base.index);
}

/* ---- bytes ---- */

static void send_piece(struct sim_conn *c, unsigned from, const uint8_t *data, unsigned len)
{
	struct sim_seg *s = sim_seg_new(c->w, SIM_SEG_HELLO);

	s->bytes = s->len = len;
	memcpy(s->frame, data, len);
	sim_lane_send(c, from, 0, s);
}

/* Fault: the connection breaks in the middle, for both ends. */
static void break_here(struct sim_conn *c)
{
	for (unsigned from = 0; from < 2; from++)
		leave(c, from, false);
	c->cut_after = UINT16_MAX;
	c->w->counts.cut_hellos++;
}

static void send_bytes(struct sim_conn *c, unsigned from, const uint8_t *data, unsigned len)
{
	unsigned n = DR_MIN(len, (unsigned)c->cut_after), first = n;

	if (n > 1 && dr_rng_chance(&c->w->rng, 1, 4))
		first = 1 + (unsigned)dr_rng_below(&c->w->rng, n - 1);
	if (first > 0)
		send_piece(c, from, data, first);
	if (first < n)
		send_piece(c, from, data + first, n - first);
	if (n < len)
		break_here(c);
	else if (c->cut_after != UINT16_MAX)
		c->cut_after -= (uint16_t)n;
}

/* ---- connecting ---- */

static void stranger_connected(struct sim_conn *c);
static void syn_arrive(struct dr_sim_world *w, const struct sim_event *ev);

static void syn_send(struct sim_conn *c, unsigned from)
{
	sim_conn_at(c, sim_link_delay(c->w, c->rail, from), syn_arrive, from, 0, 0);
}

static void accept_syn(struct dr_sim_world *w, struct sim_conn *c)
{
	unsigned to = !c->dialer;
	struct sim_rail *r = sim_conn_rail(c, to);

	if (!r || r->closed || w->dead[to]) {
		sim_path_broke_later(c, c->dialer, sim_link_delay(w, c->rail, to), -ECONNREFUSED);
		return;
	}
	c->state = SIM_PENDING;
	sim_item_add(w, &r->items, SIM_IT_ACCEPT)->conn = c;
	syn_send(c, to);
}

/* The dialer's request, or the answer of the acceptor's kernel. */
static void syn_arrive(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_conn *c = ev->obj;
	struct sim_path *dialer = c->end[c->dialer];

	if (c->state == SIM_GONE)
		return;
	if (w->link[c->rail][ev->from].clog_until > w->now)
		sim_at(w, w->link[c->rail][ev->from].clog_until, *ev);
	else if (sim_link_dead(w, c->rail, ev->from))
		sim_at(w, w->now + w->o.rto_ns, *ev);
	else if (ev->from == c->dialer)
		accept_syn(w, c);
	else if (dialer && !dialer->broken && !dialer->closed)
		(void)sim_item_add(w, &dialer->items, SIM_IT_CONNECTED);
	else if (!c->known[c->dialer])
		stranger_connected(c);
}

static void obey(struct sim_rail *r, const struct tcp_verdict *v, struct dr_sink *sink);

void sim_tcp_connect(struct sim_path *p)
{
	struct sim_rail *r = sim_rail_of(p->base.rail);

	if (p->broken)
		return; /* FAILED is due */
	dr_tcp_hs_start(&p->tcp);
	if (!p->par.connector) {
		struct tcp_verdict v = dr_tcp_admission_claim(r->admission, &p->tcp);

		obey(r, &v, NULL);
		return;
	}
	struct sim_conn *c = sim_conn_new(p->w, r->port, r->base.index, p->node);
	struct sim_link *l = &p->w->link[c->rail][p->node];
	if (l->cut_hello > 0)
		c->cut_after = (uint16_t)(l->cut_hello - 1);
	l->cut_hello = 0;
	sim_conn_join(c, p);
	syn_send(c, p->node);
}

static void say_hello(struct sim_path *p)
{
	uint8_t hello[TCP_HELLO_LEN];

	dr_tcp_hs_hello(&p->tcp, hello);
	dr_tcp_hs_greeted(&p->tcp);
	sim_hs_said(&p->w->link[p->conn->rail][p->node], p->conn->port, hello, sizeof(hello));
	send_bytes(p->conn, p->node, hello, sizeof(hello));
}

bool sim_tcp_item(struct sim_path *p, const struct sim_item *it)
{
	struct dr_err e;
	size_t used;

	if (p->broken || p->fence != SIM_FENCE_NO || it->kind == SIM_IT_CONNECTED)
		return false;
	if (p->tcp.state != TCP_HS_DIALLING && p->tcp.state != TCP_HS_GREETING)
		return false;
	int rc = dr_tcp_hs_bytes(&p->tcp, it->data, it->len, &used, &e);
	if (rc < 0)
		sim_path_broke(p, DR_SCOPE_PATH, rc);
	if (p->tcp.state == TCP_HS_CHALLENGED)
		say_hello(p);
	if (p->tcp.state != TCP_HS_UP)
		return false;
	sim_path_up(p);
	return true;
}

/* ---- a rail ---- */

static void shut(struct sim_conn *c)
{
	c->state = SIM_GONE;
	leave(c, !c->dialer, true);
}

static void adopt(struct sim_path *p, struct sim_conn *c)
{
	uint8_t ok[TCP_HELLO_OK_LEN];

	if (!c->known[c->dialer])
		sim_violation(p->w, "rail %u admitted a stranger to channel %u path %u",
			p->base.rail->index, p->par.channel, p->par.index);
	sim_conn_join(c, p);
	c->state = SIM_OPEN;
	dr_tcp_hs_welcome(&p->tcp, ok);
	send_bytes(c, p->node, ok, sizeof(ok));
	dr_tcp_hs_admitted(&p->tcp);
	sim_path_up(p);
	(void)sim_item_add(p->w, &p->items, SIM_IT_READY);
}

/* So that the owner's clock stops there. */
static void arm_deadline(struct sim_rail *r)
{
	sim_at(r->w, r->w->now + TCP_ADMIT_NS, (struct sim_event){ .fn = sim_stir_all });
}

static void obey(struct sim_rail *r, const struct tcp_verdict *v, struct dr_sink *sink)
{
	struct dr_event ev = { .kind = DR_EV_INCOMING,
		.rail = &r->base,
		.channel = v->who.channel,
		.index = v->who.index,
		.gen = v->who.gen };

	if (v->replaced >= 0)
		shut(r->pending[v->replaced]);
	switch (v->what) {
	case TCP_KEEP:
		return;
	case TCP_PARKED:
		arm_deadline(r);
		sink->event(sink, &ev);
		return;
	case TCP_ADMIT:
		adopt(dr_container_of(v->to, struct sim_path, tcp), r->pending[v->slot]);
		return;
	case TCP_REJECT:
		r->w->counts.rejected++;
		break;
	case TCP_DROP:
		r->w->counts.outdated += v->why != NULL;
		break;
	}
	shut(r->pending[v->slot]);
}

static void stranger_challenged(struct dr_sim_world *w, const struct sim_event *ev);

static void accept_conn(struct sim_rail *r, struct sim_conn *c)
{
	uint8_t challenge[TCP_CHALLENGE_LEN];
	bool evicted;
	unsigned slot = dr_tcp_admission_open(
		r->admission, c->known[c->dialer], sim_now(r->w, r->node), &evicted);

	if (evicted) {
		r->w->counts.rejected++;
		shut(r->pending[slot]);
	}
	r->pending[slot] = c;
	c->slot = slot + 1;
	arm_deadline(r);
	dr_tcp_admission_challenge(r->admission, slot, challenge);
	if (c->known[c->dialer]) {
		send_bytes(c, r->node, challenge, sizeof(challenge));
	} else if (c->answers) {
		memcpy(c->said, challenge, sizeof(challenge));
		sim_conn_at(c, sim_link_delay(r->w, c->rail, r->node), stranger_challenged, r->node,
			0, 0);
	}
}

/* It is in the admission still. */
static bool has_slot(const struct sim_rail *r, const struct sim_conn *c)
{
	return c->state == SIM_PENDING && c->slot > 0 && r->pending[c->slot - 1] == c;
}

static void read_conn(struct sim_rail *r, struct sim_conn *c, const uint8_t *data, uint32_t len,
	struct dr_sink *sink)
{
	do { /* as a kernel would give it to somebody who asks for so much */
		unsigned n = DR_MIN(len, dr_tcp_admission_want(r->admission, c->slot - 1));
		struct tcp_verdict v = dr_tcp_admission_bytes(
			r->admission, c->slot - 1, data, n, sim_now(r->w, r->node));

		data += n;
		len -= n;
		obey(r, &v, sink);
	} while (len > 0 && has_slot(r, c));
}

void sim_tcp_rail_item(struct sim_rail *r, const struct sim_item *it, struct dr_sink *sink)
{
	struct sim_conn *c = it->conn;

	if (c->state != SIM_PENDING)
		return;
	if (it->kind == SIM_IT_ACCEPT)
		accept_conn(r, c);
	else if (has_slot(r, c))
		read_conn(r, c, it->data, it->kind == SIM_IT_HUNG_UP ? 0 : it->len, sink);
	if (!dr_tcp_admission_validate(r->admission))
		sim_violation(r->w, "the admission of rail %u breaks its rules", r->base.index);
}

bool sim_tcp_due(const struct sim_rail *r)
{
	return r->admission && r->admission->n > 0 &&
	       dr_tcp_admission_deadline(r->admission) <= sim_now(r->w, r->node);
}

void sim_tcp_expire(struct sim_rail *r)
{
	for (unsigned i = 0; sim_tcp_due(r) && !r->closed && i < TCP_PENDING_MAX; i++) {
		if (!r->admission->slot[i].used)
			continue;
		struct tcp_verdict v =
			dr_tcp_admission_expire(r->admission, i, sim_now(r->w, r->node));
		obey(r, &v, NULL);
	}
}

/* Whatever is on its way in at this end is cut off. */
static void shut_all(const struct sim_rail *r)
{
	for (struct sim_conn *c = r->w->conns; c; c = c->next)
		if (c->state == SIM_PENDING && c->dialer != r->node &&
			sim_conn_rail(c, r->node) == r)
			shut(c);
}

void sim_tcp_rail_close(struct sim_rail *r)
{
	if (r->admission)
		shut_all(r);
}

void sim_tcp_kill(struct dr_sim_world *w, unsigned node)
{
	for (const struct sim_rail *r = w->rails[node]; r; r = r->next)
		shut_all(r);
	for (struct sim_conn *c = w->conns; c; c = c->next)
		if (c->state == SIM_PENDING && c->dialer == node)
			leave(c, node, false);
}

/* ---- strangers ---- */

static void leave_soon(struct sim_conn *c)
{
	if (c->leaves)
		sim_conn_at(c, sim_exp(c->w, DR_NS_PER_MS), leave_arrive, c->dialer, 0, false);
}

/* Connected: it says what it has to say, and may leave. */
static void stranger_connected(struct sim_conn *c)
{
	if (c->said_len > 0)
		send_piece(c, c->dialer, c->said, c->said_len);
	if (!c->answers)
		leave_soon(c);
}

/* It has the nonce, and not the token. */
static void stranger_challenged(struct dr_sim_world *w, const struct sim_event *ev)
{
	static const uint8_t secret[DR_KEY_LEN];
	struct sim_conn *c = ev->obj;
	uint8_t hello[TCP_HELLO_LEN];
	struct tcp_admission other;
	struct tcp_hs h;
	size_t used;

	if (c->state != SIM_PENDING || sim_link_dead(w, c->rail, ev->from))
		return;
	dr_tcp_admission_init(&other, c->answer_token, secret);
	set_places(&other, c->dialer, c->port, c->rail);
	dr_tcp_hs_init(&h, &other, &c->answer_id);
	dr_tcp_hs_start(&h);
	int rc = dr_tcp_hs_bytes(&h, c->said, TCP_CHALLENGE_LEN, &used, NULL);
	dr_assert(rc == 1);
	dr_tcp_hs_hello(&h, hello);
	if (c->answer_len > 0)
		send_piece(c, c->dialer, hello, c->answer_len);
	leave_soon(c);
}

/* One that went over this rail before: of a path that is gone, that is there, or that waits for this very HELLO. */
static bool say_again(struct dr_sim_world *w, struct sim_conn *c, struct dr_rng *g)
{
	const struct sim_said *s = sim_hs_recall(&w->link[c->rail][c->dialer], c->port, g);

	if (!s)
		return false;
	memcpy(c->said, s->data, TCP_HELLO_LEN);
	c->said_len = TCP_HELLO_LEN;
	return true;
}

/* The HELLO of a path that is there, or of its successor, with another token. */
static void answer_with_wrong_token(struct sim_conn *c, struct dr_rng *g)
{
	const struct sim_rail *r = sim_conn_rail(c, c->dialer);
	const struct sim_path *p = sim_hs_any(r, g);

	c->answer_id = (struct dr_path_ident){ .gen = 1, .connector = true };
	if (p) {
		c->answer_id = dr_path_ident(&p->par);
		c->answer_id.gen += (uint32_t)dr_rng_below(g, 2);
		c->answer_id.connector = true;
	}
	if (r)
		memcpy(c->answer_token, r->token, DR_TOKEN_LEN);
	c->answer_token[dr_rng_below(g, DR_TOKEN_LEN)] ^= (uint8_t)(1 + dr_rng_below(g, 255));
	c->answers = true;
	c->answer_len = TCP_HELLO_LEN;
}

bool sim_tcp_stranger(struct dr_sim_world *w, unsigned port, unsigned rail, unsigned to,
	enum dr_sim_stranger what, struct dr_rng *g)
{
	struct sim_conn *c = sim_conn_new(w, port, rail, !to);

	switch (what) {
	case DR_SIM_SILENT:
		break;
	case DR_SIM_GARBAGE:
		c->said_len = 1 + (unsigned)dr_rng_below(g, DR_CTRL_MAX);
		for (unsigned i = 0; i < c->said_len; i++)
			c->said[i] = (uint8_t)dr_rng_u64(g);
		break;
	case DR_SIM_PARTIAL:
		answer_with_wrong_token(c, g);
		c->answer_len = (unsigned)dr_rng_below(g, TCP_HELLO_LEN);
		c->leaves = true;
		break;
	case DR_SIM_WRONG_TOKEN:
		answer_with_wrong_token(c, g);
		break;
	case DR_SIM_OLD_HELLO:
		if (!say_again(w, c, g)) {
			c->state = SIM_GONE;
			return false;
		}
		break;
	}
	syn_send(c, c->dialer);
	return true;
}
