/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world/sim_priv.h"

#include "base/mem.h"
#include "base/wire.h"

#include <string.h>

/* Rails: where connections are admitted, datagrams come in and memory is registered. */

enum { RAIL_MAGIC = 0x44525330, REORDER_ONE_IN = 64 };

static int sim_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	const struct dr_sim_rail_params *k = p->kind_params;
	struct dr_sim_world *w = k->world;
	struct sim_rail **at;

	dr_assert(k->node < 2 && k->port < DR_SIM_PORTS_MAX);
	if (p->index >= DR_SIM_RAILS_MAX)
		return dr_err_set(e, -ENODEV, "listen on simulated rail %u: there are %u", p->index,
			DR_SIM_RAILS_MAX);
	if (w->rail[k->node][k->port][p->index])
		return dr_err_set(e, -EADDRINUSE, "listen on simulated rail %u: in use", p->index);
	struct sim_rail *r = dr_calloc(1, sizeof(*r));
	if (!r)
		return dr_err_set(
			e, -ENOMEM, "listen on simulated rail %u: out of memory", p->index);
	r->base = (struct dr_rail){ .ops = dr_sim_ops(w->o.personality), .index = p->index };
	r->w = w;
	r->node = k->node;
	r->port = k->port;
	memcpy(r->token, p->token, DR_TOKEN_LEN);
	r->ready = p->ready;
	r->arg = p->arg;
	STAILQ_INIT(&r->items);
	r->items.stirs = &r->stirred;
	if (sim_is_stream(w)) {
		r->admission = sim_alloc(sizeof(*r->admission));
		sim_tcp_rail_init(r);
	}
	if (w->o.personality == DR_SIM_REMOTE_WRITE) {
		r->greetings = sim_alloc(sizeof(*r->greetings));
		dr_verbs_admission_init(r->greetings, p->token);
	}
	w->rail[k->node][k->port][p->index] = r;
	at = &w->rails[k->node];
	while (*at)
		at = &(*at)->next;
	*at = r;
	*out = &r->base;
	return 0;
}

static int sim_rail_handle(struct dr_rail *dr, void *buf, size_t cap)
{
	struct dr_wbuf b;

	dr_wbuf_init(&b, buf, cap);
	dr_wbuf_u32(&b, RAIL_MAGIC);
	dr_wbuf_u8(&b, (uint8_t)sim_rail_of(dr)->node);
	dr_wbuf_u8(&b, (uint8_t)dr->index);
	dr_wbuf_u8(&b, (uint8_t)sim_rail_of(dr)->port);
	return b.failed ? -EMSGSIZE : (int)b.len;
}

static int sim_rail_peer(struct dr_rail *dr, const void *handle, size_t len, struct dr_err *e)
{
	struct sim_rail *r = sim_rail_of(dr);
	uint32_t magic = 0;
	uint8_t node = 0, index = 0, port = 0;
	struct dr_rbuf b;

	dr_rbuf_init(&b, handle, len);
	dr_rbuf_u32(&b, &magic);
	dr_rbuf_u8(&b, &node);
	dr_rbuf_u8(&b, &index);
	dr_rbuf_u8(&b, &port);
	if (dr_rbuf_done(&b) || magic != RAIL_MAGIC || node != !r->node || index != dr->index ||
		port != r->port)
		return dr_err_set(e, -EPROTO,
			"simulated rail %u: the handle is not that of its peer", dr->index);
	r->has_peer = true;
	return 0;
}

static void dgram_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_dgram *d = ev->obj;
	struct sim_rail *r = w->rail[!ev->from][d->port][d->rail];

	if (w->link[d->rail][ev->from].clog_until > w->now) {
		sim_at(w, w->link[d->rail][ev->from].clog_until, *ev);
		return;
	}
	if (r && !r->closed && !w->dead[r->node] && r->n_dgrams < SIM_DGRAMS_MAX &&
		!sim_link_dead(w, d->rail, ev->from) && !w->link[d->rail][ev->from].mute) {
		struct sim_item *it = sim_item_add(w, &r->items, d->kind);
		it->len = d->len;
		it->size = d->size;
		memcpy(it->data, d->data, d->len);
		r->n_dgrams++;
	}
	dr_free(d);
}

void sim_dgram_at(struct dr_sim_world *w, unsigned from, const struct sim_dgram *what, int64_t at)
{
	struct sim_dgram *d = sim_alloc(sizeof(*d));

	*d = *what;
	/* a == UINT64_MAX: the event owns d */
	sim_at(w, at,
		(struct sim_event){ .fn = dgram_fire, .obj = d, .from = from, .a = UINT64_MAX });
}

/* The time that the datagram spends in the queue of its host's device, behind data. */
static int64_t queue_ns(struct sim_rail *r, const struct sim_dgram *d)
{
	struct sim_link *k = &r->w->link[d->rail][r->node];

	if (!k->o.dgrams_wait || k->o.bits_per_s <= 0)
		return 0;
	k->busy_until = DR_MAX(r->w->now, k->busy_until) +
			(int64_t)((double)d->size * 8e9 / k->o.bits_per_s);
	return k->busy_until - r->w->now;
}

void sim_rail_send(struct sim_rail *r, const struct sim_dgram *d, int64_t late_ns)
{
	struct dr_sim_world *w = r->w;
	const struct dr_sim_link *l = &w->link[d->rail][r->node].o;

	if (!r->has_peer || r->closed || w->dead[r->node] ||
		(d->size > d->len && d->size > w->link[d->rail][r->node].passes))
		return;
	int copies = 1 - dr_rng_chance(&w->rng, l->dgram_loss_ppm, 1000000);
	if (copies)
		copies += dr_rng_chance(&w->rng, l->dgram_dup_ppm, 1000000);
	while (copies-- > 0) {
		int64_t at =
			w->now + late_ns + queue_ns(r, d) + sim_link_delay(w, d->rail, r->node);

		/* What leaves at the same time comes in order, as on one flow, with few exceptions. */
		if (late_ns == 0 && !dr_rng_chance(&w->rng, 1, REORDER_ONE_IN))
			at = r->dgram_at = DR_MAX(at, r->dgram_at);
		sim_dgram_at(w, r->node, d, at);
	}
}

static void sim_rail_padded(struct dr_rail *dr, const void *data, size_t len, uint32_t size)
{
	struct sim_dgram d = { .port = sim_rail_of(dr)->port,
		.rail = dr->index,
		.kind = SIM_IT_DGRAM,
		.len = (uint32_t)len,
		.size = size };

	if (!(dr->ops->caps & DR_CAP_DGRAM) || len > DR_DGRAM_MAX)
		return;
	memcpy(d.data, data, len);
	sim_rail_send(sim_rail_of(dr), &d, 0);
}

/* As the nccl kind, which has none but those of its paths. */
static void dgram_on_paths(struct sim_rail *r, const void *data, size_t len)
{
	int64_t heard = r->base.rx_last_ns;
	bool news = heard != r->heard_ns;

	r->heard_ns = heard;
	for (struct sim_path *p = r->paths; p && news; p = p->next)
		if (p->ready && !p->broken && p->base.rx_last_ns == heard) {
			sim_path_dgram(p, data, len);
			return;
		}
	for (struct sim_path *p = r->paths; p; p = p->next)
		sim_path_dgram(p, data, len);
}

/* Told the owner while the path is in progress. */
void sim_rail_came(struct sim_rail *r, const struct sim_item *it)
{
	r->came = it;
	if (r->ready)
		r->ready(r->arg, sim_now(r->w, r->node));
	r->came = NULL;
}

static void sim_rail_dgram(struct dr_rail *dr, const void *data, size_t len)
{
	if (!(dr->ops->caps & DR_CAP_DGRAM))
		dgram_on_paths(sim_rail_of(dr), data, len);
	sim_rail_padded(dr, data, len, (uint32_t)len);
}

/* The kernel's answer is back at the end that asked; a: it refuses. */
static void answer_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	struct sim_rail *r = w->rail[ev->from][ev->lane >> 8][ev->lane & 0xff];

	if (!r || !r->asks || sim_link_dead(w, ev->lane & 0xff, !ev->from))
		return;
	r->answer.at_ns = sim_now(w, ev->from);
	r->answer.refused = ev->a != 0;
	w->counts.answers++;
}

static void ask_fire(struct dr_sim_world *w, const struct sim_event *ev)
{
	unsigned rail = ev->lane & 0xff, port = ev->lane >> 8, to = !ev->from;
	const struct sim_rail *r = w->rail[to][port][rail];
	struct sim_event back = *ev;

	if (sim_link_dead(w, rail, ev->from) ||
		dr_rng_chance(&w->rng, w->link[rail][to].o.loss_ppm, 1000000))
		return;
	back.fn = answer_fire;
	back.a = w->dead[to] || !r || r->closed;
	sim_at(w, w->now + sim_link_delay(w, rail, to), back);
}

/* As the tcp kind: a connection per second, and then bytes on it, which a kernel repeats. */
static void sim_rail_ask(struct dr_rail *dr, int64_t now_ns, struct dr_rail_answer *out)
{
	struct sim_rail *r = sim_rail_of(dr);
	struct dr_sim_world *w = r->w;

	r->asks = out != NULL;
	if (!out) {
		r->answer = (struct dr_rail_answer){ 0 };
		return;
	}
	*out = r->answer;
	if (now_ns < r->ask_ns || !r->has_peer || r->closed)
		return;
	r->ask_ns = now_ns + (r->answer.at_ns != 0 ? DR_NS_PER_S / 4 : DR_NS_PER_S);
	if (dr_rng_chance(&w->rng, w->link[dr->index][r->node].o.loss_ppm, 1000000))
		return;
	sim_at(w, w->now + sim_link_delay(w, dr->index, r->node),
		(struct sim_event){
			.fn = ask_fire, .from = r->node, .lane = r->port << 8 | dr->index });
}

static int sim_rail_progress(struct dr_rail *dr, int64_t now_ns, struct dr_sink *sink)
{
	struct sim_rail *r = sim_rail_of(dr);
	unsigned items = r->w->o.progress_max;
	int n = 0;

	dr_assert(now_ns == sim_now(r->w, r->node));
	if (r->w->dead[r->node])
		return 0;
	if (r->came) {
		sink->event(sink, &(struct dr_event){ .kind = DR_EV_DGRAM,
					  .rail = dr,
					  .data = r->came->data,
					  .len = r->came->len,
					  .size = r->came->len });
		return 1;
	}
	while (items-- > 0 && !r->closed) {
		struct sim_item *it = sim_item_pop(&r->items);
		struct dr_event ev = { .rail = dr };

		if (!it)
			break;
		r->w->hash = dr_mix64(r->w->hash ^ it->kind ^ it->len);
		switch (it->kind) {
		case SIM_IT_DGRAM:
			r->n_dgrams--;
			ev.kind = DR_EV_DGRAM;
			ev.data = it->data;
			ev.len = it->len;
			ev.size = it->size;
			break;
		case SIM_IT_GREETING:
			r->n_dgrams--;
			n++;
			sim_verbs_rail_item(r, it, sink);
			sim_item_free(r->w, it);
			continue;
		case SIM_IT_ACCEPT:
		case SIM_IT_HELLO:
		case SIM_IT_HUNG_UP:
			n++;
			sim_tcp_rail_item(r, it, sink);
			sim_item_free(r->w, it);
			continue;
		case SIM_IT_INCOMING:
			ev.kind = DR_EV_INCOMING;
			ev.channel = it->channel;
			ev.index = it->index;
			ev.gen = it->gen;
			break;
		default:
			ev.kind = DR_EV_FAILED;
			ev.scope = it->scope;
			ev.err = it->err;
			ev.text = it->text;
			break;
		}
		n++;
		sink->event(sink, &ev);
		sim_item_free(r->w, it);
	}
	sim_tcp_expire(r);
	return n;
}

static void sim_rail_close(struct dr_rail *dr)
{
	struct sim_rail *r = sim_rail_of(dr);

	if (r->closed)
		return;
	r->closed = true;
	sim_tcp_rail_close(r);
}

static void sim_rail_fini(struct dr_rail *dr)
{
	struct sim_rail *r = sim_rail_of(dr), **at = &r->w->rails[r->node];

	if (r->paths)
		sim_violation(
			r->w, "rail %u of node %u goes while it has paths", dr->index, r->node);
	dr_assert(!r->paths);
	while (r->mrs)
		(void)dr->ops->mr_dereg(dr, r->mrs);
	sim_items_clear(r->w, &r->items);
	dr_free(r->admission);
	dr_free(r->greetings);
	r->w->rail[r->node][r->port][dr->index] = NULL;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	dr_free(r);
}

static int sim_mr_reg(
	struct dr_rail *dr, const struct dr_memory *mem, struct dr_mr **out, struct dr_err *e)
{
	struct sim_rail *r = sim_rail_of(dr);
	int rc = dr_memory_host_only(dr, mem, e);

	if (rc)
		return rc;
	struct dr_mr *m = dr_calloc(1, sizeof(*m));
	if (!m)
		return dr_err_set(e, -ENOMEM,
			"register %zu bytes on simulated rail %u: out of memory", mem->len,
			dr->index);
	m->rail = r;
	m->base = mem->base;
	m->len = mem->len;
	m->next = r->mrs;
	r->mrs = m;
	*out = m;
	return 0;
}

static bool uses(const struct sim_path *p, const struct dr_mr *m)
{
	for (const struct sim_wr *wr = TAILQ_FIRST(&p->wrs); wr; wr = TAILQ_NEXT(wr, next))
		if (wr->mr == m)
			return true;
	for (unsigned k = 0; k < p->post_n; k++) {
		const struct sim_posting *x = &p->posted[(p->post_head + k) % p->w->o.recv_depth];

		for (unsigned i = 0; i < x->n; i++)
			if (x->part[i].mr == m && !(x->reported & (1u << i)))
				return true;
	}
	return false;
}

static int sim_mr_dereg(struct dr_rail *dr, struct dr_mr *m)
{
	struct sim_rail *r = sim_rail_of(dr);
	struct dr_mr **at;

	if (!m)
		return 0;
	for (struct sim_path *p = r->paths; p; p = p->next) {
		if (!uses(p, m))
			continue;
		if (!p->quarantined)
			sim_violation(r->w, "node %u deregisters memory that is posted on rail %u",
				r->node, dr->index);
		sim_path_tear_down(p);
		sim_return_postings(p);
	}
	for (at = &r->mrs; *at != m; at = &(*at)->next)
		;
	*at = m->next;
	dr_free(m);
	return 0;
}

const struct dr_transport_ops *dr_sim_ops(enum dr_sim_personality p)
{
#define SIM_OPS(NAME, CAPS, PADDED, ASK)                                                           \
	{                                                                                          \
		sizeof(struct dr_transport_ops), NAME, CAPS, sim_listen, sim_rail_handle,          \
			sim_rail_peer, sim_rail_dgram, PADDED, ASK, sim_rail_progress,             \
			sim_rail_close, sim_rail_fini, sim_mr_reg, sim_mr_dereg, sim_create,       \
			sim_handle, sim_connect, sim_post_recv, sim_post_send, sim_post_ctrl,      \
			sim_flush, sim_credit, sim_progress, sim_fence, sim_stats, NULL,           \
			sim_close, sim_stop, sim_fini                                              \
	}
	static const struct dr_transport_ops of[] = {
		SIM_OPS("sim-stream", DR_CAP_ORDERED | DR_CAP_DGRAM | DR_CAP_RESET, sim_rail_padded,
			sim_rail_ask),
		SIM_OPS("sim-remote-write", DR_CAP_REMOTE_WRITE | DR_CAP_DGRAM, NULL, NULL),
		SIM_OPS("sim-plugin", DR_CAP_ORDERED, NULL, NULL),
	};

	return &of[p];
}
