/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <errno.h>
#include <string.h>

/* What each transition does. When it may happen: enabled.c. */

static const int64_t FAR = 100 * DR_NS_PER_S;

const char *ex_personality_name(enum ex_personality k)
{
	static const char *const n[] = { "stream", "remote-write", "plugin" };

	return n[k];
}

void ex_scope_init(struct ex_scope *sc)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sc->msgs; i++) {
		sc->base[i] = n;
		n += sc->parts[i];
	}
	dr_assert(sc->msgs <= EX_MSGS_MAX && n <= EX_PARTS_MAX);
	sc->all = (1u << n) - 1;
}

unsigned ex_parts_of(const struct ex_scope *sc, unsigned seq)
{
	return seq < sc->msgs ? ((1u << sc->parts[seq]) - 1) << sc->base[seq] : 0;
}

void ex_times(struct dr_fo *f)
{
	f->tick_ns = f->last_ns = f->since_ns = f->proposed_ns = EX_NOW;
	f->stuck_ns = f->moved_ns = f->failback_ns = 0;
	f->patience_ns = f->prm.stuck_after_ns;
	f->penalty = f->rounds = 0;
	if (f->resend_ns != DR_NEVER)
		f->resend_ns = EX_NOW + FAR;
	if (f->nopath_ns != 0)
		f->nopath_ns = EX_NOW;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_fo_path *pa = &f->path[i];

		pa->ready_ns = EX_NOW;
		pa->backoff_ns = pa->dial_after_ns = 0;
		if (pa->retry_ns != DR_NEVER)
			pa->retry_ns = EX_NOW + FAR;
		if (pa->deadline_ns != DR_NEVER)
			pa->deadline_ns = EX_NOW + FAR;
	}
}

/* As *to = *from, without what is empty: this is the most frequent call of all. */
void ex_copy(struct ex_state *to, const struct ex_state *from)
{
	for (unsigned e = 0; e < 2; e++) {
		memcpy(&to->fo[e], &from->fo[e], offsetof(struct dr_fo, act));
		to->fo[e].n_act = 0;
	}
	for (unsigned p = 0; p < DR_PATHS; p++) {
		const struct ex_path *f = &from->path[p];
		struct ex_path *t = &to->path[p];

		memcpy(t, f, offsetof(struct ex_path, lane));
		for (unsigned j = 0; j < EX_LANES; j++) {
			t->lane[j].n = f->lane[j].n;
			memcpy(t->lane[j].it, f->lane[j].it,
				f->lane[j].n * sizeof(f->lane[j].it[0]));
		}
	}
	to->consumed = from->consumed;
	to->faults = from->faults;
	to->dups = from->dups;
	to->holds = from->holds;
	memcpy(to->watch, from->watch, sizeof(to->watch));
}

/* Users who post as early as they may. */
static void users(const struct ex_scope *sc, struct ex_state *s)
{
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo *f = &s->fo[e];
		uint64_t seq;

		while (!sc->late_users[e] && !s->watch[e].stopped && f->state != DR_FO_DEAD &&
			f->tail < sc->msgs && dr_fo_push(f, sc->parts[f->tail], &seq) == 0)
			ex_turn(sc, s, e);
	}
}

void ex_init(const struct ex_scope *sc, struct ex_state *s)
{
	memset(s, 0, sizeof(*s));
	s->faults = (uint8_t)sc->faults;
	s->dups = (uint8_t)sc->dups;
	s->holds = (uint8_t)sc->holds;
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo_params p = { .sender = e == EX_TX,
			.connector = e == sc->connector,
			.shadow = true,
			.failback = !sc->no_failback,
			.window = sc->window,
			.hold_down_ns = sc->clock ? sc->hold_ns : DR_NS_PER_S,
			.lost_after_ns = sc->clock ? sc->lost_ns : DR_NS_PER_S,
			.stuck_after_ns = sc->clock ? sc->stuck_ns : DR_NS_PER_S };

		dr_fo_init(&s->fo[e], &p);
		dr_fo_start(&s->fo[e], EX_NOW);
		if (sc->clock)
			ex_watch_start(s);
		else
			ex_times(&s->fo[e]);
		ex_turn(sc, s, e);
	}
	users(sc, s);
	for (bool again = !sc->cold; again;) {
		struct ex_tr t[EX_TRS_MAX];
		unsigned n = ex_enabled(sc, s, t);

		again = false;
		for (unsigned i = 0; i < n && !again; i++) {
			again = (t[i].kind == EX_ACC || t[i].kind == EX_DIAL ||
					t[i].kind == EX_TAKE) &&
				s->fo[EX_TX].state != DR_FO_RUN;
			if (again)
				ex_step(sc, s, &t[i]);
		}
	}
	s->fo[EX_TX].rounds = s->watch[EX_TX].rounds = (uint8_t)sc->rounds;
}

/* What was under way to end e of this path gets there no more. */
void ex_lane_purge(struct ex_path *pa, unsigned e, bool data_too)
{
	if (e == EX_TX)
		pa->lane[EX_L_BACK].n = 0;
	else
		pa->lane[EX_L_CTRL].n = 0;
	if (e == EX_RX && data_too)
		pa->lane[EX_L_DATA].n = 0;
}

static struct ex_item lane_pop(struct ex_lane *l, unsigned i)
{
	struct ex_item it = l->it[i];

	l->n--;
	memmove(&l->it[i], &l->it[i + 1], (l->n - i) * sizeof(it));
	return it;
}

static void fail(struct ex_state *s, unsigned p, unsigned e)
{
	struct ex_end *en = &s->path[p].end[e];

	en->failed = true;
	ex_lane_purge(&s->path[p], e, false);
	dr_fo_path_failed(&s->fo[e], dr_fo_conn(p, en->gen), DR_SCOPE_PATH, -ECONNRESET,
		"modelled failure", EX_NOW);
}

static void deliver(
	const struct ex_scope *sc, struct ex_state *s, unsigned p, const struct ex_item *it)
{
	struct dr_fo *f = &s->fo[EX_RX];
	unsigned bit = 1u << (sc->base[it->seq] + it->mask);
	struct ex_path *pa = &s->path[p];
	uint64_t head = f->head;
	int rc;

	if (it->epoch != pa->rx_epoch || !(pa->rx & bit))
		return; /* withdrawn or there already: read and thrown away, or refused by the NIC */
	pa->rx &= (uint8_t)~bit;
	rc = dr_fo_delivered(
		f, dr_fo_conn(p, pa->end[EX_RX].gen), it->epoch, it->seq, it->mask, EX_NOW);
	if (rc < 0)
		return;
	if (it->seq != head)
		ex_violation("part %u of message %u is consumed, but the head is %u", it->mask,
			it->seq, (unsigned)head);
	if (s->consumed & bit)
		ex_violation("part %u of message %u is consumed twice", it->mask, it->seq);
	s->consumed |= (uint8_t)bit;
	if (rc == 1 && (~s->consumed & ex_parts_of(sc, it->seq)) != 0)
		ex_violation("message %u is delivered without all its parts", it->seq);
}

static void take_credit(const struct ex_scope *sc, struct ex_path *pa, const struct ex_item *it)
{
	if (it->epoch < pa->cr_epoch)
		return;
	if (it->epoch > pa->cr_epoch)
		pa->cr_msgs = pa->cr_parts = 0;
	pa->cr_epoch = it->epoch;
	pa->cr_msgs |= (uint8_t)(1u << it->seq);
	pa->cr_parts |=
		(uint8_t)(ex_parts_of(sc, it->seq) & ~((unsigned)it->mask << sc->base[it->seq]));
}

static void take(const struct ex_scope *sc, struct ex_state *s, unsigned p, unsigned e)
{
	struct ex_path *pa = &s->path[p];
	struct ex_item it = lane_pop(&pa->lane[e == EX_TX ? EX_L_BACK : EX_L_CTRL], 0);
	struct dr_frame fr = { .type = it.kind,
		.path = it.path,
		.flags = it.flags,
		.mask = it.mask,
		.epoch = it.epoch,
		.gen = it.gen,
		.err = it.kind == DR_FRAME_ABORT ? -ENETDOWN : 0,
		.seq = it.seq };

	if (it.kind == EX_IT_DATA)
		deliver(sc, s, p, &it);
	else if (it.kind == EX_IT_CREDIT)
		take_credit(sc, pa, &it);
	else
		dr_fo_frame(&s->fo[e], p, &fr, EX_NOW);
}

static void sent(const struct ex_scope *sc, struct ex_state *s, unsigned p, unsigned part)
{
	struct ex_path *pa = &s->path[p];
	unsigned seq = 0;

	while (seq + 1 < sc->msgs && sc->base[seq + 1] <= part)
		seq++;
	pa->wr &= (uint8_t) ~(1u << part);
	if (sc->kind == EX_STREAM && !ex_peer_gone(pa, EX_TX) && !pa->end[EX_RX].failed) {
		struct ex_lane *l = &pa->lane[EX_L_CTRL];

		if (l->n == EX_LANE_MAX)
			ex_violation("the model's lane is full");
		l->it[l->n++] = (struct ex_item){ .kind = EX_IT_DATA,
			.mask = (uint8_t)(part - sc->base[seq]),
			.seq = (uint8_t)seq,
			.epoch = pa->wr_epoch };
	}
	dr_fo_sent(&s->fo[EX_TX], p, pa->end[EX_TX].gen, pa->wr_epoch, seq, part - sc->base[seq]);
}

static void fence_done(struct ex_state *s, unsigned p, unsigned e)
{
	struct ex_path *pa = &s->path[p];
	struct ex_end *en = &pa->end[e];

	en->st = EX_FENCED;
	en->fence = false;
	ex_lane_purge(pa, e, true);
	if (e == EX_TX)
		pa->wr = pa->wr_lost = pa->cr_msgs = pa->cr_parts = 0;
	else
		pa->rx = 0;
	dr_fo_fenced(&s->fo[e], p, en->gen, EX_NOW);
}

/* Returns the end that the event went to. */
static unsigned dial(const struct ex_scope *sc, struct ex_state *s, unsigned p)
{
	unsigned c = sc->connector, a = !c;
	struct ex_end *ce = &s->path[p].end[c], *ae = &s->path[p].end[a];

	if (ae->st == EX_CONNECTING && ae->gen == ce->gen && !ae->fence && !ae->failed) {
		ce->st = EX_UP;
		ae->knocked = true;
		dr_fo_path_ready(&s->fo[c], p, ce->gen, EX_NOW);
		return c;
	}
	ce->knocked = true;
	dr_fo_incoming(&s->fo[a], p, ce->gen, EX_NOW);
	return a;
}

static void timer(struct dr_fo *f, const struct ex_tr *t)
{
	struct dr_fo_path *pa = &f->path[t->p];
	const int64_t past = EX_NOW - DR_NS_PER_S;

	switch ((enum ex_tr_kind)t->kind) {
	case EX_RETRY:
		pa->retry_ns = EX_NOW;
		break;
	case EX_HOLD:
		pa->ready_ns = past;
		break;
	case EX_WAITED: /* also long enough that a path that was not proposed may be used */
		f->since_ns = past;
		f->resend_ns = EX_NOW;
		for (unsigned i = 0; i < DR_PATHS; i++)
			f->path[i].ready_ns = past;
		break;
	case EX_LOST:
		f->nopath_ns = past;
		break;
	case EX_RESEND:
		f->resend_ns = EX_NOW;
		break;
	case EX_GONE:
	case EX_DIAL_OUT:
		pa->deadline_ns = EX_NOW;
		break;
	case EX_NO_ANSWER:
		f->proposed_ns = past;
		break;
	case EX_PRIMARY_OUT:
	case EX_DRAIN_OUT:
		f->since_ns = past;
		break;
	case EX_STUCK:
		f->stuck_ns = f->prm.stuck_after_ns;
		break;
	default:
		break;
	}
	dr_fo_tick(f, EX_NOW);
}

static void event(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t, unsigned *e)
{
	struct ex_path *pa = &s->path[t->p];
	struct ex_item it;
	uint64_t seq;
	int rc;

	switch ((enum ex_tr_kind)t->kind) {
	case EX_PUSH:
		rc = dr_fo_push(&s->fo[*e], sc->parts[s->fo[*e].tail], &seq);
		dr_assert(rc == 0);
		break;
	case EX_DIAL:
		*e = dial(sc, s, t->p);
		break;
	case EX_ACC:
		pa->end[*e].st = EX_UP;
		dr_fo_path_ready(&s->fo[*e], t->p, pa->end[*e].gen, EX_NOW);
		break;
	case EX_TAKE:
		take(sc, s, t->p, *e);
		break;
	case EX_DATA:
		it = lane_pop(&pa->lane[EX_L_DATA], t->arg);
		deliver(sc, s, t->p, &it);
		break;
	case EX_SENT:
		sent(sc, s, t->p, t->arg);
		break;
	case EX_FENCE_DONE:
		fence_done(s, t->p, *e);
		break;
	case EX_NOTICE:
	case EX_BREAK:
		fail(s, t->p, *e);
		break;
	case EX_RAIL_DOWN:
		pa->end[*e].told_down = true;
		dr_fo_rail(&s->fo[*e], t->p, false, EX_NOW);
		dr_fo_path_failed(&s->fo[*e], dr_fo_conn(t->p, s->fo[*e].path[t->p].gen),
			DR_SCOPE_RAIL, -ENETDOWN, "rail down", EX_NOW);
		break;
	case EX_RAIL_UP:
		pa->end[*e].told_down = false;
		dr_fo_rail(&s->fo[*e], t->p, true, EX_NOW);
		break;
	case EX_HEAL:
	case EX_CUT:
		pa->cut = t->kind == EX_CUT;
		break;
	case EX_LOSE_SENT:
		pa->wr_lost |= (uint8_t)(1u << t->arg);
		break;
	case EX_LOSE_DATA:
		lane_pop(&pa->lane[EX_L_DATA], t->arg);
		break;
	case EX_TIME:
	case EX_TICK:
	case EX_WAKE:
	case EX_OWN:
	case EX_TOLD:
	case EX_UNTOLD:
	case EX_STOP:
	case EX_HANG:
		ex_clock_event(sc, s, t);
		break;
	default:
		timer(&s->fo[*e], t);
		break;
	}
}

/* See struct ex_scope. */
static void at_once(const struct ex_scope *sc, struct ex_state *s)
{
	struct dr_fo *f = &s->fo[sc->connector];

	for (unsigned p = 0; p < DR_PATHS; p++) {
		for (unsigned e = 0; e < 2; e++) {
			const struct ex_end *en = &s->path[p].end[e];

			if (!en->fence || en->st != EX_CONNECTING)
				continue;
			fence_done(s, p, e);
			ex_turn(sc, s, e);
		}
		if (f->state == DR_FO_DEAD || f->path[p].state != DR_FOP_DOWN)
			continue;
		ex_times(f);
		f->path[p].retry_ns = EX_NOW;
		dr_fo_tick(f, EX_NOW);
		ex_turn(sc, s, sc->connector);
	}
}

/* The rules of time after an event; those of EX_TIME and of ticks were checked when it happened. */
static void watch(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t,
	const struct ex_seen was[2])
{
	bool ticks = t->kind == EX_TIME || t->kind == EX_TICK || t->kind == EX_OWN;

	for (unsigned e = 0; e < 2 && !ticks; e++)
		ex_watch_event(sc, s, e, &was[e], t, false);
	ex_clock_canon(sc, s);
}

void ex_step(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t)
{
	struct ex_seen was[2];
	uint32_t epoch[2] = { s->fo[0].epoch, s->fo[1].epoch };
	unsigned e = t->e;

	dr_assert(!t->fault || s->faults > 0);
	dr_assert(!t->dup || s->dups > 0);
	s->faults -= t->fault;
	s->dups -= t->dup;
	s->holds -= t->hold;
	for (unsigned i = 0; i < 2 && sc->clock; i++)
		ex_see(&s->fo[i], &was[i]);
	event(sc, s, t, &e);
	if (t->kind < EX_HEAL || (t->kind > EX_HEAL && t->kind < EX_CUT))
		ex_turn(sc, s, e);
	users(sc, s);
	if (sc->clock)
		watch(sc, s, t, was);
	else if (!sc->lazy)
		at_once(sc, s);
	for (e = 0; e < 2; e++) {
		if (!sc->clock)
			ex_times(&s->fo[e]);
		if (s->fo[e].epoch < epoch[e])
			ex_violation("the epoch of end %u went back", e);
	}
	ex_check(sc, s);
}
