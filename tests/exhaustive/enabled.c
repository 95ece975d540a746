/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

/* Which transitions may happen now. `busy` is set by those that will happen by themselves before long:
 * while there is one, a timer that judges the peer costs a fault. */
struct list {
	const struct ex_scope *sc;
	const struct ex_state *s;
	struct ex_tr *t;
	unsigned n;
	bool busy;
};

static void add(struct list *l, enum ex_tr_kind kind, unsigned p, unsigned e, unsigned arg)
{
	/* A stopped end does nothing; what is done to it, it finds later. */
	if (l->s->watch[e].stopped && kind != EX_WAKE && kind != EX_TIME && kind != EX_HEAL &&
		kind != EX_CUT && kind != EX_HANG)
		return;
	dr_assert(l->n < EX_TRS_MAX);
	l->t[l->n++] = (struct ex_tr){
		.kind = (uint8_t)kind, .p = (uint8_t)p, .e = (uint8_t)e, .arg = (uint8_t)arg
	};
}

/* A fault of this kind. */
static bool may(const struct list *l, unsigned kind)
{
	return l->s->faults > 0 && (!l->sc->clock || (l->sc->may & kind));
}

static void add_soon(struct list *l, enum ex_tr_kind kind, unsigned p, unsigned e, unsigned arg)
{
	unsigned n = l->n;

	add(l, kind, p, e, arg);
	l->busy |= l->n > n;
}

/* free: it takes no delay that would have to be explained. */
static void add_late(struct list *l, enum ex_tr_kind kind, unsigned p, unsigned e, bool free)
{
	free |= !l->busy;
	if (!free && l->s->faults == 0)
		return;
	add(l, kind, p, e, 0);
	l->t[l->n - 1].fault = !free;
}

static void add_again(struct list *l, enum ex_tr_kind kind, unsigned p, unsigned e)
{
	if (l->busy && l->s->dups == 0)
		return;
	add(l, kind, p, e, 0);
	l->t[l->n - 1].dup = l->busy;
}

static void users(struct list *l)
{
	for (unsigned e = 0; e < 2; e++) {
		const struct dr_fo *f = &l->s->fo[e];

		if (l->sc->late_users[e] && f->state != DR_FO_DEAD && f->tail < l->sc->msgs &&
			f->tail - f->head < f->prm.window)
			add(l, EX_PUSH, 0, e, 0);
	}
}

static void connecting(struct list *l, unsigned p)
{
	const struct ex_path *pa = &l->s->path[p];
	unsigned c = l->sc->connector, a = !c;
	const struct ex_end *ce = &pa->end[c], *ae = &pa->end[a];
	bool dialling = ce->st == EX_CONNECTING && !ce->failed && !ce->fence;
	bool waits = ae->st == EX_CONNECTING && !ae->failed && !ae->fence;

	if (pa->cut || l->s->watch[EX_TX].stopped || l->s->watch[EX_RX].stopped)
		return;
	if (dialling && l->s->fo[a].state == DR_FO_DEAD)
		add_soon(l, EX_NOTICE, p, c, 0); /* refused */
	else if (dialling && ((waits && ae->gen == ce->gen) || !ce->knocked))
		add_soon(l, EX_DIAL, p, c, 0);
	else if (dialling && l->s->fo[a].path[p].gen >= ce->gen)
		add_soon(l, EX_NOTICE, p, c, 0); /* nobody adopts it: refused */
	if (!waits || !ae->knocked)
		return;
	add_soon(l, EX_ACC, p, a, 0);
	if (ex_peer_gone(pa, a))
		add_soon(l, EX_NOTICE, p, a, 0);
}

static void data(struct list *l, unsigned p)
{
	const struct ex_path *pa = &l->s->path[p];
	const struct ex_lane *la = &pa->lane[EX_L_DATA];
	const struct ex_end *tx = &pa->end[EX_TX], *rx = &pa->end[EX_RX];
	unsigned first = (unsigned)__builtin_ctz(pa->rx | 1u << EX_PARTS_MAX);
	unsigned seq = 0;
	bool rx_runs = rx->st == EX_UP && !rx->failed && !l->s->watch[EX_RX].stopped;
	bool tx_runs = tx->st == EX_UP && !tx->failed && !l->s->watch[EX_TX].stopped;

	/* The oldest message with a receive posted here: DELIVERED comes in the order of messages. */
	while (seq < l->sc->msgs && !(ex_parts_of(l->sc, seq) & (1u << first)))
		seq++;
	for (unsigned i = 0; i < la->n && rx_runs && !pa->cut; i++) {
		const struct ex_item *it = &la->it[i];

		if (it->seq > seq && it->epoch == pa->rx_epoch)
			continue;
		if ((l->sc->kind == EX_PLUGIN && i > 0) || l->sc->grey)
			break;
		add_soon(l, EX_DATA, p, EX_RX, i);
		if (may(l, EX_MAY_LOSE)) {
			add(l, EX_LOSE_DATA, p, EX_RX, i);
			l->t[l->n - 1].fault = true;
		}
	}
	for (unsigned i = 0; i < EX_PARTS_MAX && tx_runs; i++) {
		bool stream = l->sc->kind == EX_STREAM;

		if (!(pa->wr & (1u << i)) || (stream ? tx->fence : pa->cut))
			continue;
		if (l->sc->grey)
			break;
		if (!(pa->wr_lost & (1u << i)))
			add_soon(l, EX_SENT, p, EX_TX, i);
		if (!(pa->wr_lost & (1u << i)) && !stream && may(l, EX_MAY_LOSE)) {
			add(l, EX_LOSE_SENT, p, EX_TX, i);
			l->t[l->n - 1].fault = true;
		}
		if (l->sc->kind != EX_REMOTE_WRITE || !l->sc->any_order)
			break; /* in order; a lost one holds back the rest */
	}
}

static void ends(struct list *l, unsigned p)
{
	const struct ex_path *pa = &l->s->path[p];

	for (unsigned e = 0; e < 2; e++) {
		const struct ex_end *en = &pa->end[e];
		bool up = en->st == EX_UP && !en->failed;

		if (en->fence && !en->hung)
			add_soon(l, EX_FENCE_DONE, p, e, 0);
		if (up && !pa->cut && pa->lane[e == EX_TX ? EX_L_BACK : EX_L_CTRL].n > 0)
			add_soon(l, EX_TAKE, p, e, 0);
		if (up && !en->fence &&
			((pa->cut && (l->sc->lazy || en->told_down)) ||
				(!pa->cut && ex_peer_gone(pa, e)))) {
			add(l, EX_NOTICE, p, e, 0);
			l->busy |= !pa->cut && !l->s->watch[e].stopped;
		}
		if (l->s->fo[e].state == DR_FO_DEAD)
			continue;
		if (pa->cut && !en->told_down)
			add(l, EX_RAIL_DOWN, p, e, 0);
		if (!pa->cut && en->told_down)
			add_soon(l, EX_RAIL_UP, p, e, 0);
	}
	if (pa->cut)
		add(l, EX_HEAL, p, 0, 0);
}

static void timers_soon(struct list *l)
{
	const struct dr_fo *tx = &l->s->fo[EX_TX], *rx = &l->s->fo[EX_RX];
	const struct dr_fo *c = &l->s->fo[l->sc->connector];

	for (unsigned p = 0; p < DR_PATHS; p++)
		if (c->state != DR_FO_DEAD && c->path[p].state == DR_FOP_DOWN) {
			add(l, EX_RETRY, p, l->sc->connector, 0);
			l->busy |= !l->s->path[p].cut;
		}
	if (tx->state == DR_FO_DRAIN && dr_fo_deadline(tx) == tx->tick_ns)
		add_soon(l, EX_DRAINED, 0, EX_TX, 0);
	if (rx->state == DR_FO_FENCE && rx->resend_ns != DR_NEVER)
		add_soon(l, EX_WAITED, 0, EX_RX, 0);
	if (tx->state == DR_FO_RUN && tx->active != 0 && tx->path[0].state == DR_FOP_READY &&
		!tx->path[0].rail_down && (!l->busy || l->s->holds > 0)) {
		add(l, EX_HOLD, 0, EX_TX, 0);
		l->t[l->n - 1].hold = l->busy;
	}
}

static void timers_late(struct list *l)
{
	const struct dr_fo *tx = &l->s->fo[EX_TX], *rx = &l->s->fo[EX_RX];
	const struct ex_path *pa = l->s->path;
	unsigned c = l->sc->connector;

	for (unsigned e = 0; e < 2; e++) {
		const struct dr_fo *f = &l->s->fo[e];

		if (f->state != DR_FO_DEAD && f->nopath_ns != 0 && f->ever_up &&
			((pa[0].cut && pa[1].cut) || l->s->fo[!e].state == DR_FO_DEAD))
			add(l, EX_LOST, 0, e, 0);
	}
	for (unsigned p = 0; p < DR_PATHS; p++) {
		if (l->s->fo[c].state != DR_FO_DEAD &&
			l->s->fo[c].path[p].state == DR_FOP_CONNECTING)
			add_late(l, EX_DIAL_OUT, p, c, pa[p].cut);
		if (l->s->fo[!c].state != DR_FO_DEAD && l->s->fo[!c].path[p].state == DR_FOP_DOWN)
			add_again(l, EX_GONE, p, !c);
	}
	if (tx->state == DR_FO_START &&
		(tx->path[0].state == DR_FOP_READY || tx->path[1].state == DR_FOP_READY))
		add_late(l, EX_PRIMARY_OUT, 0, EX_TX, pa[0].cut);
	if (tx->state == DR_FO_SWITCH && tx->target != DR_FO_NONE) {
		add_again(l, EX_RESEND, 0, EX_TX);
		if (!tx->answered)
			add_late(l, EX_NO_ANSWER, 0, EX_TX, pa[tx->target].cut);
	}
	if (rx->state == DR_FO_NOTIFY)
		add_again(l, EX_RESEND, 0, EX_RX);
	if (tx->state == DR_FO_RUN || tx->state == DR_FO_DRAIN) {
		if (tx->cursor + (tx->cursor_part > 0) > tx->head &&
			!tx->path[tx->active].rail_down)
			add_late(l, EX_STUCK, 0, EX_TX, pa[tx->active].cut);
		if (tx->state == DR_FO_DRAIN)
			add_late(l, EX_DRAIN_OUT, 0, EX_TX, pa[0].cut || pa[1].cut);
	}
}

/* Time, and what only scopes with a clock have. */
static void clocks(struct list *l)
{
	const struct ex_state *s = l->s;
	bool due = false;
	int64_t next = ex_clock_next(l->sc, s);

	for (unsigned e = 0; e < 2; e++) {
		const struct ex_watch *w = &s->watch[e];

		if (s->fo[e].state == DR_FO_DEAD)
			continue;
		due |= ex_clock_due(s, e) || (!w->stopped && w->debt_ns > 0);
		if (ex_clock_due(s, e))
			add_soon(l, EX_TICK, 0, e, 0);
		if (!w->stopped && w->debt_ns > 0)
			add_soon(l, EX_OWN, 0, e, 0);
		if (w->stopped)
			add(l, EX_WAKE, 0, e, 0);
		if (!s->fo[e].stalled && s->watch[!e].stopped && l->sc->told == 1)
			add_soon(l, EX_TOLD, 0, e, 0);
		else if (!s->fo[e].stalled && s->watch[!e].stopped && l->sc->told == 0)
			add(l, EX_TOLD, 0, e, 0);
		if (s->fo[e].stalled && !s->watch[!e].stopped)
			add_soon(l, EX_UNTOLD, 0, e, 0);
	}
	if (next > 0 && !due && (!l->busy || may(l, EX_MAY_LATE))) {
		add(l, EX_TIME, 0, 0, 0);
		l->t[l->n - 1].fault = l->busy;
	}
}

static void clock_faults(struct list *l)
{
	for (unsigned e = 0; e < 2; e++) {
		const struct ex_watch *w = &l->s->watch[e];

		if (l->s->fo[e].state == DR_FO_DEAD)
			continue;
		if (may(l, EX_MAY_STOP) && w->debt_ns == 0)
			add(l, EX_STOP, 0, e, 0);
		for (unsigned p = 0; p < DR_PATHS && may(l, EX_MAY_HANG); p++)
			if (l->s->path[p].end[e].fence && !l->s->path[p].end[e].hung)
				add(l, EX_HANG, p, e, 0);
	}
}

/* Both ends run, and have nothing to do. */
static bool at_rest(const struct list *l)
{
	for (unsigned e = 0; e < 2; e++)
		for (unsigned p = 0; p < DR_PATHS; p++)
			if (l->s->fo[e].state != DR_FO_RUN ||
				l->s->fo[e].path[p].state != DR_FOP_READY)
				return false;
	return !l->busy && ex_done(l->sc, l->s);
}

static void flaps(struct list *l)
{
	if (at_rest(l))
		add(l, EX_BREAK, l->s->fo[EX_TX].active, EX_TX, 0);
}

static void faults(struct list *l)
{
	unsigned n = l->n;

	if (l->sc->flaps)
		flaps(l);
	n = l->n;
	if (l->s->faults == 0)
		return;
	for (unsigned p = 0; p < DR_PATHS; p++) {
		for (unsigned e = 0; e < 2; e++) {
			const struct ex_end *en = &l->s->path[p].end[e];

			/* A cut rail's ends fail for nothing: EX_NOTICE. */
			if (en->st == EX_UP && !en->failed && !en->fence && may(l, EX_MAY_BREAK) &&
				!l->s->path[p].cut && !ex_peer_gone(&l->s->path[p], e))
				add(l, EX_BREAK, p, e, 0);
		}
		if (!l->s->path[p].cut && may(l, EX_MAY_CUT))
			add(l, EX_CUT, p, 0, 0);
	}
	if (l->sc->clock)
		clock_faults(l);
	for (; n < l->n; n++)
		l->t[n].fault = true;
}

unsigned ex_enabled(const struct ex_scope *sc, const struct ex_state *s, struct ex_tr *out)
{
	struct list l = { .sc = sc, .s = s, .t = out };

	if ((ex_done(sc, s) && !sc->idle) || ex_dead(s))
		return 0;
	users(&l);
	for (unsigned p = 0; p < DR_PATHS; p++) {
		connecting(&l, p);
		ends(&l, p);
		data(&l, p);
	}
	if (sc->clock) {
		clocks(&l);
	} else {
		timers_soon(&l);
		timers_late(&l);
	}
	faults(&l);
	return l.n;
}
