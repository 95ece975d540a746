/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <string.h>

/* Time in the scopes with a clock: clock.h. */

enum { TIMES = 8, PATH_TIMES = 4, SPINS = 4 };
static const int64_t UNIT_NS = 2 * DR_NS_PER_MS;
static const int64_t FAR_NS = 62 * DR_NS_PER_S;
static const int64_t GRID_NS = 50 * DR_NS_PER_MS;

/* Durations are not moved when time passes: stuck_ns, backoff_ns. */
static void times_of(struct dr_fo *f, int64_t *t[TIMES + DR_PATHS * PATH_TIMES])
{
	int64_t *own[TIMES] = { &f->tick_ns, &f->since_ns, &f->proposed_ns, &f->resend_ns,
		&f->nopath_ns, &f->moved_ns, &f->failback_ns, &f->last_ns };

	memcpy(t, own, sizeof(own));
	for (unsigned p = 0; p < DR_PATHS; p++) {
		int64_t **at = &t[TIMES + p * PATH_TIMES];

		at[0] = &f->path[p].ready_ns;
		at[1] = &f->path[p].retry_ns;
		at[2] = &f->path[p].dial_after_ns;
		at[3] = &f->path[p].deadline_ns;
	}
}

bool ex_clock_due(const struct ex_state *s, unsigned e)
{
	const struct ex_watch *w = &s->watch[e];

	return !w->stopped && w->debt_ns == 0 && s->fo[e].state != DR_FO_DEAD &&
	       dr_fo_deadline(&s->fo[e]) <= EX_NOW;
}

int64_t ex_clock_next(const struct ex_scope *sc, const struct ex_state *s)
{
	int64_t next = DR_NEVER;

	for (unsigned e = 0; e < 2; e++) {
		const struct ex_watch *w = &s->watch[e];
		int64_t d = DR_NEVER;

		if (s->fo[e].state == DR_FO_DEAD)
			continue;
		if (w->stopped)
			d = EX_NOW + sc->stop_ns - w->debt_ns;
		else if (w->debt_ns > 0)
			return 0;
		else
			d = dr_fo_deadline(&s->fo[e]);
		next = DR_MIN(next, d);
	}
	return next == DR_NEVER ? -1 : DR_MAX(next - EX_NOW, 0);
}

static void pass(const struct ex_scope *sc, struct ex_state *s, int64_t ns)
{
	int64_t *t[TIMES + DR_PATHS * PATH_TIMES];

	for (unsigned e = 0; e < 2; e++) {
		times_of(&s->fo[e], t);
		for (unsigned i = 0; i < DR_ARRAY_LEN(t); i++)
			if (*t[i] != 0 && *t[i] != DR_NEVER)
				*t[i] -= ns;
	}
	ex_watch_time(sc, s, ns);
}

/* Ticks until the deadline is a later one. */
static void tick(const struct ex_scope *sc, struct ex_state *s, unsigned e, const struct ex_tr *t)
{
	struct dr_fo *f = &s->fo[e];

	for (unsigned i = 0; i < SPINS && f->state != DR_FO_DEAD; i++) {
		struct ex_seen was;

		ex_see(f, &was);
		dr_fo_tick(f, EX_NOW);
		ex_turn(sc, s, e);
		ex_watch_event(sc, s, e, &was, t, true);
		if (!ex_clock_due(s, e))
			return;
	}
	if (f->state != DR_FO_DEAD)
		ex_violation("end %u is due again and again without an effect", e);
}

static bool same(const struct ex_scope *plain, const struct ex_state *s, uint8_t *was, unsigned *n)
{
	uint8_t key[EX_PACK_MAX];
	unsigned len = ex_pack(plain, s, key);
	bool is = len == *n && memcmp(key, was, len) == 0;

	memcpy(was, key, len);
	*n = len;
	return is;
}

/* With a stride, ticks that change nothing but times are part of the step. */
static void time_passes(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t)
{
	int64_t d = ex_clock_next(sc, s), passed = d;
	struct ex_scope plain = *sc;
	uint8_t was[EX_PACK_MAX];
	unsigned n = 0;

	dr_assert(d >= 0);
	pass(sc, s, d);
	if (sc->stride_ns == 0)
		return;
	plain.clock = false;
	same(&plain, s, was, &n);
	for (;;) {
		for (unsigned e = 0; e < 2; e++)
			if (ex_clock_due(s, e))
				tick(sc, s, e, t);
		if (!same(&plain, s, was, &n))
			return;
		d = ex_clock_next(sc, s);
		if (d <= 0 || passed + d > sc->stride_ns)
			return;
		pass(sc, s, d);
		passed += d;
	}
}

void ex_clock_event(const struct ex_scope *sc, struct ex_state *s, const struct ex_tr *t)
{
	struct ex_watch *w = &s->watch[t->e];

	switch ((enum ex_tr_kind)t->kind) {
	case EX_TIME:
		time_passes(sc, s, t);
		break;
	case EX_OWN:
		dr_fo_own_stall(&s->fo[t->e], w->debt_ns, EX_NOW);
		w->debt_ns = 0;
		tick(sc, s, t->e, t);
		break;
	case EX_TICK:
		tick(sc, s, t->e, t);
		break;
	case EX_STOP:
	case EX_WAKE:
		w->stopped = t->kind == EX_STOP;
		break;
	case EX_TOLD:
	case EX_UNTOLD:
		dr_fo_stalled(&s->fo[t->e], t->kind == EX_TOLD, EX_NOW);
		break;
	default:
		dr_assert(t->kind == EX_HANG);
		s->path[t->p].end[t->e].hung = true;
		break;
	}
}

static void not_before(int64_t *t, int64_t age)
{
	if (*t != 0 && *t != DR_NEVER)
		*t = DR_MAX(*t, EX_NOW - age);
}

static int64_t state_max(const struct dr_fo *f)
{
	if (f->state == DR_FO_RUN)
		return 0;
	if (f->state == DR_FO_START || f->state == DR_FO_DRAIN)
		return DR_NS_PER_S;
	return f->stalled ? 10 * DR_NS_PER_MS : 30 * DR_NS_PER_S;
}

static void canon_path(struct dr_fo *f, unsigned p, bool lift)
{
	struct dr_fo_path *pa = &f->path[p];
	int64_t ready = 10 * DR_NS_PER_MS;

	if (!f->prm.connector)
		pa->backoff_ns = 0;
	if (pa->backoff_ns != 0)
		ready = DR_NS_PER_S + UNIT_NS;
	if (f->prm.sender && p == 0)
		ready = DR_MAX(ready, f->prm.hold_down_ns << f->penalty);
	if (pa->state != DR_FOP_READY)
		pa->ready_ns = EX_NOW;
	not_before(&pa->ready_ns, ready);
	not_before(&pa->retry_ns, 0);
	if (pa->state != DR_FOP_DOWN)
		pa->dial_after_ns = 0;
	not_before(&pa->dial_after_ns, 0);
	if (pa->state == DR_FOP_READY)
		pa->deadline_ns = DR_NEVER;
	not_before(&pa->deadline_ns, lift ? FAR_NS : 0);
}

void ex_clock_canon(const struct ex_scope *sc, struct ex_state *s)
{
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo *f = &s->fo[e];
		bool lift = s->watch[e].debt_ns > 0;

		f->last_ns = EX_NOW;
		f->looked_ns = 0;
		ex_watch_canon(sc, s, e);
		if (f->state == DR_FO_DEAD)
			continue;
		if (f->state != DR_FO_SWITCH || f->target == DR_FO_NONE || f->answered ||
			f->stalled)
			f->proposed_ns = EX_NOW;
		if (f->state < DR_FO_SWITCH)
			f->resend_ns = DR_NEVER;
		if (!f->prm.sender) /* only the sender measures the time between ticks */
			f->tick_ns = f->moved_ns = EX_NOW;
		not_before(&f->tick_ns, lift ? FAR_NS : 2 * GRID_NS);
		not_before(&f->since_ns, lift ? FAR_NS : state_max(f));
		not_before(&f->proposed_ns, lift ? FAR_NS : DR_NS_PER_S / 2);
		not_before(&f->resend_ns, 0);
		not_before(&f->nopath_ns, lift ? FAR_NS : f->prm.lost_after_ns);
		not_before(&f->moved_ns, lift ? FAR_NS : f->prm.stuck_after_ns + GRID_NS);
		not_before(&f->failback_ns, f->prm.hold_down_ns / 2);
		for (unsigned p = 0; p < DR_PATHS; p++)
			canon_path(f, p, lift);
	}
}

static uint8_t *put2(uint8_t *b, int64_t v)
{
	dr_assert(v >= 0 && v < 65536);
	*b++ = (uint8_t)(v & 255);
	*b++ = (uint8_t)(v >> 8);
	return b;
}

static uint8_t *put_time(uint8_t *b, int64_t t)
{
	if (t == 0 || t == DR_NEVER)
		return put2(b, t != 0);
	return put2(b, (t - EX_NOW) / UNIT_NS + 32768);
}

static int64_t get2(const uint8_t **b)
{
	int64_t v = (*b)[0] | (*b)[1] << 8;

	*b += 2;
	return v;
}

static int64_t get_time(const uint8_t **b)
{
	int64_t v = get2(b);

	return v < 2 ? (v != 0 ? DR_NEVER : 0) : EX_NOW + (v - 32768) * UNIT_NS;
}

enum { AGES = 7 + 3 * DR_PATHS };
static void ages_of(struct ex_watch *w, int64_t *t[AGES])
{
	int64_t *own[AGES] = { &w->debt_ns, &w->nopath_ns, &w->state_ns, &w->proposed_ns,
		&w->owed_ns, &w->hold_ns, &w->failback_ns, &w->path_ns[0], &w->path_ns[1],
		&w->due_ns[0], &w->due_ns[1], &w->ready_ns[0], &w->ready_ns[1] };

	memcpy(t, own, sizeof(own));
}

/* It is compared with the path's present generation only. */
static unsigned sent_path(const struct dr_fo *f)
{
	unsigned p = f->sent_path;

	return f->state != DR_FO_DEAD && p < DR_PATHS && f->sent_gen == f->path[p].gen ? p
										       : DR_FO_NONE;
}

uint8_t *ex_clock_put(const struct ex_state *s, uint8_t *b)
{
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo f; /* its head: without the actions */
		struct ex_watch w = s->watch[e];
		const struct ex_path *pa = s->path;
		int64_t *t[TIMES + DR_PATHS * PATH_TIMES], *a[AGES];

		memcpy(&f, &s->fo[e], offsetof(struct dr_fo, rec));
		times_of(&f, t);
		ages_of(&w, a);
		*b++ = (uint8_t)(w.stopped | f.stalled << 1 | pa[0].end[e].hung << 2 |
				 pa[1].end[e].hung << 3 | f.path[0].stuck << 4 |
				 f.path[1].stuck << 5 | sent_path(&f) << 6);
		*b++ = (uint8_t)(f.state == DR_FO_DEAD ? 0 : f.rounds);
		*b++ = (uint8_t)(f.state == DR_FO_DEAD ? 0 : f.penalty | w.flaps << 4);
		*b++ = (uint8_t)(w.tries[0] | w.tries[1] << 4);
		*b++ = w.rounds;
		if (f.state == DR_FO_DEAD)
			continue;
		for (unsigned i = 0; i < DR_ARRAY_LEN(t); i++)
			b = put_time(b, *t[i]);
		for (unsigned i = 0; i < AGES; i++)
			b = put2(b, (*a[i] < 0 ? -UNIT_NS : *a[i]) / UNIT_NS + 1);
		b = put2(b, f.stuck_ns / UNIT_NS);
		b = put2(b, f.path[0].backoff_ns / UNIT_NS);
		b = put2(b, f.path[1].backoff_ns / UNIT_NS);
	}
	return b;
}

const uint8_t *ex_clock_get(const uint8_t *b, struct ex_state *s)
{
	for (unsigned e = 0; e < 2; e++) {
		struct dr_fo *f = &s->fo[e];
		struct ex_watch *w = &s->watch[e];
		int64_t *t[TIMES + DR_PATHS * PATH_TIMES], *a[AGES];

		times_of(f, t);
		ages_of(w, a);
		w->stopped = *b & 1;
		f->stalled = *b >> 1 & 1;
		for (unsigned p = 0; p < DR_PATHS; p++) {
			s->path[p].end[e].hung = *b >> (2 + p) & 1;
			f->path[p].stuck = *b >> (4 + p) & 1;
		}
		f->sent_path = *b >> 6;
		f->sent_gen = f->sent_path < DR_PATHS ? f->path[f->sent_path].gen : 0;
		f->rounds = b[1];
		f->penalty = b[2] & 15;
		w->flaps = b[2] >> 4;
		w->tries[0] = b[3] & 15;
		w->tries[1] = b[3] >> 4;
		w->rounds = b[4];
		b += 5;
		if (f->state == DR_FO_DEAD)
			continue;
		for (unsigned i = 0; i < DR_ARRAY_LEN(t); i++)
			*t[i] = get_time(&b);
		for (unsigned i = 0; i < AGES; i++) {
			int64_t v = get2(&b);

			*a[i] = v == 0 ? -1 : (v - 1) * UNIT_NS;
		}
		f->patience_ns = f->prm.stuck_after_ns;
		f->stuck_ns = get2(&b) * UNIT_NS;
		f->path[0].backoff_ns = get2(&b) * UNIT_NS;
		f->path[1].backoff_ns = get2(&b) * UNIT_NS;
	}
	return b;
}
