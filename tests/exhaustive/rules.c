/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/exhaustive/model.h"

#include <errno.h>
#include <string.h>

/* The rules of time (docs/PROTOCOL.md, 5, and docs/DETECTION.md), held against the model's own
 * ages: clock.h. The constants are those of the protocol, not the core's. */
static const int64_t MS = DR_NS_PER_MS;
static const int64_t GRID_NS = 50 * DR_NS_PER_MS; /* the sender looks that often */
static const int64_t DIAL_NS = DR_NS_PER_S, FENCE_NS = DR_NS_PER_S, DRAIN_NS = DR_NS_PER_S;
static const int64_t ANSWER_NS = 500 * DR_NS_PER_MS, PRIMARY_NS = 500 * DR_NS_PER_MS;
static const int64_t SWITCH_NS = 30 * DR_NS_PER_S;
static const int64_t REDIAL_NS = 20 * DR_NS_PER_MS;
enum { ROUNDS_MAX = 64, FLAPS_MAX = 6, TRIES_MAX = 8 };

/* One event, as the rules see it. */
struct look {
	const struct ex_scope *sc;
	struct ex_state *s;
	unsigned e;
	struct dr_fo *f;
	struct ex_watch *w;
	const struct ex_seen *was;
	const struct ex_tr *t;
	bool tick;
};

void ex_see(const struct dr_fo *f, struct ex_seen *was)
{
	memset(was, 0, sizeof(*was));
	was->state = f->state;
	was->epoch = f->epoch;
	was->target = f->target;
	was->active = f->active;
	was->planned = f->planned;
	was->answered = f->answered;
	was->stalled = f->stalled;
	was->ever_up = f->ever_up;
	was->rec_open = f->rec_open;
	was->owed = dr_fo_owed(f);
	was->acked = f->acked;
	was->high = f->high;
	for (unsigned p = 0; p < DR_PATHS; p++) {
		was->gen[p] = f->path[p].gen;
		was->path[p].state = f->path[p].state;
		was->path[p].stuck = f->path[p].stuck;
		was->path[p].rail_down = f->path[p].rail_down;
	}
}

void ex_watch_start(struct ex_state *s)
{
	for (unsigned e = 0; e < 2; e++)
		s->watch[e] = (struct ex_watch){ .nopath_ns = -1, .failback_ns = -1 };
}

/* That happened, to this end. */
static bool at(const struct look *l, enum ex_tr_kind kind)
{
	return l->t->kind == kind && l->t->e == l->e;
}

static unsigned ms(int64_t ns)
{
	return (unsigned)(ns / MS);
}

/* What is done at a tick is due, and what is due is done. */
static void rule(const struct look *l, const char *what, int64_t age, int64_t bound, bool done)
{
	/* The core counts time with a stopped peer in whole ticks. */
	int64_t slack = l->sc->may & EX_MAY_STOP && bound == l->f->prm.stuck_after_ns ? GRID_NS : 0;

	if (done && age + slack < bound)
		ex_violation("end %u: %s after %u ms, not %u", l->e, what, ms(age), ms(bound));
	if (!done && age >= bound + slack)
		ex_violation("end %u: not yet after %u ms: %s", l->e, ms(age), what);
}

static int64_t delay_of(unsigned tries)
{
	return tries == 0 ? 0 : DR_MIN((10 * MS) << (tries - 1), 500 * MS);
}

static bool other_ready(const struct dr_fo *f, unsigned p)
{
	return f->path[!p].state == DR_FOP_READY;
}

static bool other_was_ready(const struct look *l, unsigned p)
{
	return l->was->path[!p].state == DR_FOP_READY;
}

static bool changed(const struct look *l, unsigned p)
{
	const struct dr_fo_path *pa = &l->f->path[p];

	return pa->state != l->was->path[p].state || pa->gen != l->was->gen[p];
}

static void check_fence(const struct look *l, unsigned p)
{
	const struct dr_fo_path *pa = &l->f->path[p];
	const struct ex_path *held = &l->s->path[p];
	bool given_up = pa->stuck && !l->was->path[p].stuck;

	if (l->was->path[p].stuck)
		return;
	rule(l, "a fence is given up", l->w->path_ns[p], FENCE_NS, changed(l, p) || given_up);
	if (given_up && (l->e == EX_TX ? held->wr : held->rx) != 0)
		ex_violation("end %u: the fence of path %u is given up, but the path may still "
			     "access a buffer",
			l->e, p);
}

/* What a tick does to a path by itself, and what it leaves. */
static void check_path(const struct look *l, unsigned p)
{
	const struct dr_fo_path *pa = &l->f->path[p];
	int64_t age = l->w->path_ns[p], due;
	bool connector = l->f->prm.connector;

	switch (l->was->path[p].state) {
	case DR_FOP_CONNECTING:
		if (l->was->stalled && changed(l, p))
			ex_violation("end %u: a stopped peer admits nobody, and pays for it", l->e);
		if (l->was->stalled)
			break;
		if (l->was->state == DR_FO_SWITCH && l->was->target == p && changed(l, p))
			break; /* a switch to it may have been given up */
		if (connector)
			rule(l, "a dial is given up", age, DIAL_NS, changed(l, p));
		else if (changed(l, p))
			ex_violation("end %u waits no longer for a dial", l->e);
		break;
	case DR_FOP_FENCING:
		check_fence(l, p);
		break;
	case DR_FOP_DOWN:
		due = DR_MAX(l->w->due_ns[p], other_was_ready(l, p) ? REDIAL_NS : 0);
		/* The other path may have ended in this tick. */
		if (other_was_ready(l, p) != other_ready(l->f, p))
			due = changed(l, p) ? l->w->due_ns[p] : INT64_MAX - GRID_NS;
		if (l->was->stalled && connector && changed(l, p))
			ex_violation("end %u dials a stopped peer", l->e);
		else if (connector && !l->was->stalled)
			rule(l, "a path is dialled", age, due, changed(l, p));
		break;
	case DR_FOP_ABSENT:
	case DR_FOP_READY:
		(void)pa;
		break;
	}
}

/* The active path, or the proposed one, is given up by a tick. */
static void check_verdicts(const struct look *l)
{
	const struct ex_seen *was = l->was;
	unsigned p = was->state == DR_FO_SWITCH ? was->target : was->active;
	bool given_up;

	if (!l->f->prm.sender || p == DR_FO_NONE || was->path[p].state != DR_FOP_READY)
		return;
	given_up = changed(l, p);
	if (was->state == DR_FO_RUN || was->state == DR_FO_DRAIN) {
		rule(l, "data is not acknowledged", l->w->owed_ns, l->f->prm.stuck_after_ns,
			given_up);
	} else if (was->state == DR_FO_SWITCH && !was->answered) {
		if (was->stalled && given_up)
			ex_violation(
				"end %u: a stopped peer does not answer, and pays for it", l->e);
		if (!was->stalled)
			rule(l, "SWITCH is not answered", l->w->proposed_ns, ANSWER_NS, given_up);
	}
}

static bool begins_failback(const struct look *l)
{
	const struct dr_fo *f = l->f;

	return l->was->state == DR_FO_RUN && l->was->active != 0 && f->target == 0 &&
	       (f->state == DR_FO_DRAIN || (f->state == DR_FO_SWITCH && f->planned));
}

static void check_states(const struct look *l)
{
	const struct ex_seen *was = l->was;
	const struct dr_fo *f = l->f;
	int64_t hold = f->prm.hold_down_ns << l->w->flaps;
	bool began = begins_failback(l);

	if (began && !f->prm.failback)
		ex_violation("failback is off, but happens");
	if (was->state == DR_FO_RUN && f->prm.sender && was->active != 0 && f->prm.failback &&
		was->path[0].state == DR_FOP_READY && !was->path[0].rail_down && !was->rec_open &&
		(began || f->state == DR_FO_RUN))
		rule(l, "failback", l->w->hold_ns, hold, began);
	else if (began)
		ex_violation(
			"failback to a primary that does not work, or before a switch is complete");
	if (was->state == DR_FO_DRAIN && (f->state == DR_FO_RUN || f->state == DR_FO_DRAIN) &&
		was->epoch == f->epoch)
		rule(l, "a drain is cancelled", l->w->state_ns, DRAIN_NS, f->state == DR_FO_RUN);
	if (was->state == DR_FO_START && f->prm.sender && !was->path[0].rail_down &&
		was->path[0].state != DR_FOP_READY && was->path[1].state == DR_FOP_READY)
		rule(l, "the shadow is used first", l->w->state_ns, PRIMARY_NS,
			f->state != DR_FO_START);
}

/* Why the channel ends, or does not. */
static void check_end(const struct look *l)
{
	const struct ex_watch *w = l->w;
	const struct dr_fo *f = l->f;
	bool told = at(l, EX_TAKE) && l->s->fo[!l->e].state == DR_FO_DEAD;
	bool fence = false;

	for (unsigned p = 0; p < DR_PATHS; p++)
		fence |= l->was->path[p].state == DR_FOP_FENCING && !l->was->path[p].stuck &&
			 w->path_ns[p] >= FENCE_NS;
	if (f->state != DR_FO_DEAD) {
		if (w->rounds > ROUNDS_MAX)
			ex_violation("%u epochs without progress", w->rounds);
		if (l->tick && !f->stalled && w->nopath_ns >= f->prm.lost_after_ns)
			ex_violation("end %u lives on after %u ms without a path", l->e,
				ms(w->nopath_ns));
		if (l->tick && !f->stalled && f->state >= DR_FO_SWITCH &&
			w->state_ns >= SWITCH_NS && f->state == l->was->state &&
			f->epoch == l->was->epoch)
			ex_violation("end %u: a switch takes %u ms", l->e, ms(w->state_ns));
		return;
	}
	if (told)
		return;
	if (f->err == -ENETDOWN && w->nopath_ns < f->prm.lost_after_ns)
		ex_violation("end %u ends for want of a path after %d ms", l->e,
			(int)(w->nopath_ns / MS));
	else if (f->err == -EIO && !fence)
		ex_violation("end %u ends for a fence that is in time", l->e);
	else if (f->err == -ETIMEDOUT && w->rounds < ROUNDS_MAX &&
		 (l->was->stalled || w->state_ns < SWITCH_NS))
		ex_violation("end %u ends after %u epochs and %u ms: %s", l->e, w->rounds,
			ms(w->state_ns), f->why);
}

static void update_path(const struct look *l, unsigned p)
{
	struct ex_watch *w = l->w;
	const struct dr_fo_path *pa = &l->f->path[p];
	bool rail_up = at(l, EX_RAIL_UP) && l->t->p == p && l->f->prm.connector &&
		       l->was->path[p].rail_down;
	bool goes_on = l->was->stalled && !l->f->stalled;

	if (l->was->path[p].state == DR_FOP_READY && pa->state != DR_FOP_READY &&
		w->ready_ns[p] > DR_NS_PER_S)
		w->tries[p] = 0;
	if (rail_up || goes_on)
		w->tries[p] = 0;
	if ((rail_up || goes_on) && pa->state == DR_FOP_DOWN)
		w->due_ns[p] = 0;
	if (!changed(l, p))
		return;
	w->path_ns[p] = 0;
	if (pa->state == DR_FOP_READY && l->was->path[p].state == DR_FOP_CONNECTING) {
		w->ready_ns[p] = 0;
		if (p == 0)
			w->hold_ns = 0;
	}
	if (pa->state == DR_FOP_DOWN) {
		w->due_ns[p] = delay_of(w->tries[p]);
		w->tries[p] = (uint8_t)DR_MIN(w->tries[p] + 1, TRIES_MAX);
	}
}

/* A failure of the active path, or a switch that is complete. */
static void update_switch(const struct look *l)
{
	const struct ex_seen *was = l->was;
	const struct dr_fo *f = l->f;
	struct ex_watch *w = l->w;
	bool ran = was->state == DR_FO_RUN || was->state == DR_FO_DRAIN;

	if (!f->prm.sender)
		return;
	if (ran && f->state == DR_FO_SWITCH && !f->planned && was->active == 0 &&
		w->failback_ns >= 0) {
		bool lately = w->failback_ns < f->prm.hold_down_ns / 2;

		w->flaps = lately ? (uint8_t)DR_MIN(w->flaps + 1, FLAPS_MAX) : 0;
	}
	if (was->state == DR_FO_DRAIN && f->state == DR_FO_RUN && l->tick)
		w->hold_ns = 0;
	/* A failback waits for the end of a switch, and is due in the next look then. */
	if ((was->rec_open && !f->rec_open) ||
		(was->state == DR_FO_SWITCH && f->state == DR_FO_RUN))
		w->hold_ns = DR_MIN(w->hold_ns, f->prm.hold_down_ns << w->flaps);
	if (f->epoch != was->epoch)
		w->rounds = (uint8_t)(w->rounds + (f->epoch - was->epoch));
	if (f->acked > was->acked)
		w->rounds = 0;
	if (was->state == DR_FO_SWITCH && f->state == DR_FO_RUN) {
		if (was->planned || was->high <= f->acked)
			w->rounds = 0;
		if (was->planned && f->active == 0)
			w->failback_ns = 0;
		else if (was->planned)
			w->hold_ns = 0;
	}
}

static bool usable(const struct dr_fo *f)
{
	for (unsigned p = 0; p < DR_PATHS; p++)
		if (f->path[p].state == DR_FOP_READY)
			return true;
	return false;
}

static void update(const struct look *l)
{
	const struct ex_seen *was = l->was;
	const struct dr_fo *f = l->f;
	struct ex_watch *w = l->w;
	bool runs = f->state == DR_FO_RUN || f->state == DR_FO_DRAIN;
	bool ran = was->state == DR_FO_RUN || was->state == DR_FO_DRAIN;

	for (unsigned p = 0; p < DR_PATHS; p++)
		update_path(l, p);
	if (at(l, EX_RAIL_UP) && l->t->p == 0 && was->path[0].rail_down)
		w->hold_ns = 0;
	update_switch(l);
	if (usable(f) || !f->ever_up)
		w->nopath_ns = -1;
	else if (w->nopath_ns < 0 || (was->stalled && !f->stalled))
		w->nopath_ns = 0;
	if (f->state != was->state || f->epoch != was->epoch || (was->stalled && !f->stalled))
		w->state_ns = 0;
	if (f->epoch != was->epoch || was->target == DR_FO_NONE || (was->stalled && !f->stalled) ||
		f->state != DR_FO_SWITCH)
		w->proposed_ns = 0;
	if (!runs || !ran || f->acked > was->acked || !was->owed || !dr_fo_owed(f))
		w->owed_ns = 0;
}

void ex_watch_event(const struct ex_scope *sc, struct ex_state *s, unsigned e,
	const struct ex_seen *was, const struct ex_tr *t, bool tick)
{
	struct look l = { sc, s, e, &s->fo[e], &s->watch[e], was, t, tick };

	if (was->state == DR_FO_DEAD)
		return;
	for (unsigned p = 0; p < DR_PATHS && tick && l.f->state != DR_FO_DEAD; p++)
		check_path(&l, p);
	if (tick && l.f->state != DR_FO_DEAD) {
		check_verdicts(&l);
		check_states(&l);
	}
	if (l.f->state == DR_FO_DEAD) {
		check_end(&l);
		return;
	}
	update(&l);
	check_end(&l);
	if (sc->told == 1 && sc->may == EX_MAY_STOP && s->fo[EX_TX].epoch > 1 &&
		s->fo[EX_TX].active != 0)
		ex_violation("a switch, because an end was stopped");
}

static void overdue(unsigned e, const char *what, int64_t age, int64_t bound)
{
	if (age > bound)
		ex_violation("end %u: %s for %u ms, and no deadline says so", e, what, ms(age));
}

static void check_overdue(const struct ex_scope *sc, const struct ex_state *s, unsigned e)
{
	const struct ex_watch *w = &s->watch[e];
	const struct dr_fo *f = &s->fo[e];

	for (unsigned p = 0; p < DR_PATHS; p++) {
		enum dr_fo_pstate st = f->path[p].state;

		if (st == DR_FOP_CONNECTING && f->prm.connector && !f->stalled)
			overdue(e, "a dial goes on", w->path_ns[p], DIAL_NS);
		if (st == DR_FOP_FENCING && !f->path[p].stuck)
			overdue(e, "a fence goes on", w->path_ns[p], FENCE_NS);
		if (st == DR_FOP_DOWN && f->prm.connector && !f->stalled)
			overdue(e, "a path is down", w->path_ns[p],
				DR_MAX(w->due_ns[p], other_ready(f, p) ? REDIAL_NS : 0));
	}
	overdue(e, "no path works", w->nopath_ns, f->prm.lost_after_ns);
	if (f->state >= DR_FO_SWITCH && !f->stalled)
		overdue(e, "a switch goes on", w->state_ns, SWITCH_NS + GRID_NS);
	if (f->state == DR_FO_SWITCH && f->target != DR_FO_NONE && !f->answered && !f->stalled)
		overdue(e, "an answer is missing", w->proposed_ns, ANSWER_NS + GRID_NS);
	if (f->prm.sender && (f->state == DR_FO_RUN || f->state == DR_FO_DRAIN))
		overdue(e, "data is not acknowledged", w->owed_ns,
			f->prm.stuck_after_ns + (sc->may & EX_MAY_STOP ? 2 : 1) * GRID_NS);
	if (f->state == DR_FO_DRAIN)
		overdue(e, "a drain goes on", w->state_ns, DRAIN_NS + GRID_NS);
	if (f->state == DR_FO_RUN && f->prm.sender && f->active != 0 && f->prm.failback &&
		f->path[0].state == DR_FOP_READY && !f->path[0].rail_down && !f->rec_open)
		overdue(e, "the primary works", w->hold_ns,
			(f->prm.hold_down_ns << w->flaps) + GRID_NS);
}

void ex_watch_time(const struct ex_scope *sc, struct ex_state *s, int64_t ns)
{
	for (unsigned e = 0; e < 2; e++) {
		struct ex_watch *w = &s->watch[e];
		const struct dr_fo *f = &s->fo[e];

		if (f->state == DR_FO_DEAD)
			continue;
		w->hold_ns += ns;
		if (w->failback_ns >= 0)
			w->failback_ns += ns;
		for (unsigned p = 0; p < DR_PATHS; p++)
			w->ready_ns[p] += ns;
		for (unsigned p = 0; p < DR_PATHS; p++)
			if (!w->stopped || f->path[p].state == DR_FOP_READY ||
				f->path[p].state == DR_FOP_DOWN)
				w->path_ns[p] += ns;
		if (w->stopped) {
			w->debt_ns += ns;
			continue;
		}
		if (w->nopath_ns >= 0 && !f->stalled)
			w->nopath_ns += ns;
		if (!f->stalled || f->state < DR_FO_SWITCH)
			w->state_ns += ns;
		if (!f->stalled) {
			w->proposed_ns += ns;
			w->owed_ns += ns;
		}
		check_overdue(sc, s, e);
	}
}

static void at_most(int64_t *age, int64_t most)
{
	*age = DR_MIN(*age, most);
}

static void canon_path(struct ex_watch *w, const struct dr_fo *f, unsigned p)
{
	bool up = f->path[p].state == DR_FOP_READY;
	int64_t most = 0;

	switch (f->path[p].state) {
	case DR_FOP_CONNECTING:
		most = f->prm.connector ? 2 * DIAL_NS : 0;
		break;
	case DR_FOP_FENCING:
		most = f->path[p].stuck ? 0 : 2 * FENCE_NS;
		break;
	case DR_FOP_DOWN:
		most = f->prm.connector ? 600 * MS : 0;
		break;
	case DR_FOP_READY:
	case DR_FOP_ABSENT:
		break;
	}
	at_most(&w->ready_ns[p],
		up && f->prm.connector && w->tries[p] > 0 ? DR_NS_PER_S + 2 * MS : 0);
	at_most(&w->path_ns[p], most);
	if (f->path[p].state != DR_FOP_DOWN || !f->prm.connector)
		w->due_ns[p] = 0;
	if (!f->prm.connector)
		w->tries[p] = 0;
}

void ex_watch_canon(const struct ex_scope *sc, struct ex_state *s, unsigned e)
{
	const struct dr_fo *f = &s->fo[e];
	struct ex_watch *w = &s->watch[e];
	bool tx = f->prm.sender, runs = f->state == DR_FO_RUN || f->state == DR_FO_DRAIN;

	(void)sc;
	if (f->state == DR_FO_DEAD) {
		*w = (struct ex_watch){ .stopped = false };
		return;
	}
	at_most(&w->nopath_ns, 2 * f->prm.lost_after_ns);
	at_most(&w->state_ns, f->state >= DR_FO_SWITCH ? SWITCH_NS + 4 * GRID_NS
			      : f->state == DR_FO_RUN  ? 0
						       : DRAIN_NS + 4 * GRID_NS);
	at_most(&w->proposed_ns, f->state == DR_FO_SWITCH && f->target != DR_FO_NONE && !f->answered
					 ? ANSWER_NS + 4 * GRID_NS
					 : 0);
	at_most(&w->owed_ns, tx && runs ? f->prm.stuck_after_ns + 4 * GRID_NS : 0);
	at_most(&w->hold_ns, tx && f->path[0].state == DR_FOP_READY
				     ? (f->prm.hold_down_ns << w->flaps) + 4 * GRID_NS
				     : 0);
	at_most(&w->failback_ns, f->prm.hold_down_ns / 2);
	for (unsigned p = 0; p < DR_PATHS; p++)
		canon_path(w, f, p);
}
