/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/failover_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Failover core: paths, timers, and the code of both roles. docs/PROTOCOL.md, section 5, has the
 * invariants and the functions that maintain them.
 */

static const int64_t BACKOFF_MIN_NS = 10 * DR_NS_PER_MS;
static const int64_t BACKOFF_MAX_NS = 500 * DR_NS_PER_MS;
static const int64_t REDIAL_DELAY_NS = 20 * DR_NS_PER_MS; /* see dial_ns */
static const int64_t DIAL_NS = DR_NS_PER_S; /* a dial that takes longer is cancelled and repeated */
static const int64_t TICK_MAX_NS = 100 * DR_NS_PER_MS;
/* Progress, failback, late primary. All channels of a process tick at the same times, so that a thousand idle ones wake
 * it 20 times a second. */
static const int64_t SENDER_TICK_NS = 50 * DR_NS_PER_MS;
static const int64_t GONE_AGAIN_NS = 100 * DR_NS_PER_MS;
static const int64_t FENCE_MAX_NS = DR_NS_PER_S; /* the kinds destroy the connection long before */
/* Longest time in which a CLOSE is repeated, or confirmed again; or so long after this end itself stood. */
static const int64_t CLOSE_NS = 500 * DR_NS_PER_MS, CLOSE_STOOD_NS = 50 * DR_NS_PER_MS;
static const int64_t SAY_AGAIN_NS = 50 * DR_NS_PER_MS;
/* A path that carried the epoch so long did not fail in a row with the one before. */
static const int64_t LOCAL_CALM_NS = DR_NS_PER_S;
static const int64_t GIVE_UP_NS = 30 * DR_NS_PER_S; /* longest time of a switch */

const char *dr_fo_state_name(enum dr_fo_state s)
{
	static const char *const n[DR_FO_STATES] = { "start", "run", "drain", "switch", "notify",
		"fence", "dead" };

	return s < DR_FO_STATES ? n[s] : "?";
}

const char *dr_fo_pstate_name(enum dr_fo_pstate s)
{
	static const char *const n[] = { "absent", "down", "connecting", "ready", "fencing" };

	return s < DR_ARRAY_LEN(n) ? n[s] : "?";
}

void dr_fo_init(struct dr_fo *f, const struct dr_fo_params *p)
{
	dr_assert(p->window >= 1 && p->window <= DR_CHANNEL_WINDOW_MAX);
	memset(f, 0, sizeof(*f));
	f->prm = *p;
	f->active = f->target = f->data_path = f->sent_path = f->answer_path = DR_FO_NONE;
	f->resend_ns = DR_NEVER;
	f->patience_ns = p->stuck_after_ns;
	f->path[0].state = DR_FOP_DOWN;
	f->path[1].state = p->shadow ? DR_FOP_DOWN : DR_FOP_ABSENT;
	for (unsigned i = 0; i < DR_PATHS; i++)
		f->path[i].retry_ns = f->path[i].deadline_ns = DR_NEVER;
}

struct dr_fo_act *dr_fo_add(struct dr_fo *f, enum dr_fo_act_kind kind, unsigned path)
{
	struct dr_fo_act *a;

	dr_assert(f->n_act < DR_FO_ACTS_MAX);
	a = &f->act[f->n_act++];
	*a = (struct dr_fo_act){ .kind = kind, .path = path };
	if (path < DR_PATHS)
		a->gen = f->path[path].gen;
	return a;
}

/* On path p, or as a datagram that concerns it. A new frame replaces a waiting one of the same
 * type. So a peer that repeated a frame many times while we were stalled gets one answer, and
 * `act` stays bounded. */
static void post(struct dr_fo *f, enum dr_fo_act_kind kind, unsigned p, const struct dr_frame *fr)
{
	for (unsigned i = 0; i < f->n_act; i++) {
		struct dr_fo_act *a = &f->act[i];

		if (a->kind == kind && a->path == p && a->gen == f->path[p].gen &&
			a->frame.type == fr->type) {
			a->frame = *fr;
			return;
		}
	}
	dr_fo_add(f, kind, p)->frame = *fr;
}

void dr_fo_broadcast(struct dr_fo *f, const struct dr_frame *fr)
{
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (f->path[i].state == DR_FOP_READY)
			post(f, DR_FOA_CTRL, i, fr);
}

/* A farewell (ABORT, CLOSE). */
static void say(struct dr_fo *f, enum dr_frame_type type, unsigned flags)
{
	struct dr_frame fr = { .type = type,
		.flags = flags,
		.epoch = f->epoch,
		.err = type == DR_FRAME_ABORT ? f->err : 0,
		.seq = f->prm.sender ? f->tail : f->head };

	dr_fo_broadcast(f, &fr);
	post(f, DR_FOA_DGRAM, 0, &fr);
}

void dr_fo_set_state(struct dr_fo *f, enum dr_fo_state s, int64_t now)
{
	dr_assert(f->state != DR_FO_DEAD);
	f->state = s;
	f->since_ns = now;
}

unsigned dr_fo_pick(const struct dr_fo *f, unsigned except)
{
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (i != except && f->path[i].state == DR_FOP_READY)
			return i;
	return DR_FO_NONE;
}

static void connect_path(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	dr_assert(pa->state == DR_FOP_DOWN && gen > pa->gen);
	pa->state = DR_FOP_CONNECTING;
	pa->gen = gen;
	pa->retry_ns = DR_NEVER;
	pa->deadline_ns = f->prm.connector ? now + DIAL_NS : DR_NEVER;
	dr_fo_add(f, DR_FOA_CONNECT, p);
}

static void count_ready(struct dr_fo *f, unsigned changed, int64_t now)
{
	unsigned present = 0, ready = 0;

	for (unsigned i = 0; i < DR_PATHS; i++) {
		present += f->path[i].state != DR_FOP_ABSENT;
		ready += f->path[i].state == DR_FOP_READY;
	}
	if (ready == 0 && f->nopath_ns == 0)
		f->nopath_ns = now;
	else if (ready > 0)
		f->nopath_ns = 0;
	if ((present == DR_PATHS && ready == DR_PATHS) != f->protected_told) {
		f->protected_told = !f->protected_told;
		dr_fo_add(f, DR_FOA_PROTECTION, changed)->prot = f->protected_told;
	}
}

void dr_fo_start(struct dr_fo *f, int64_t now)
{
	f->tick_ns = f->last_ns = f->since_ns = f->moved_ns = now;
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (f->path[i].state == DR_FOP_DOWN)
			connect_path(f, i, 1, now);
}

static bool current(const struct dr_fo *f, unsigned p, uint32_t gen)
{
	return f->state != DR_FO_DEAD && p < DR_PATHS && f->path[p].gen == gen;
}

void dr_fo_path_ready(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (!current(f, p, gen) || pa->state != DR_FOP_CONNECTING)
		return;
	pa->state = DR_FOP_READY;
	pa->ready_ns = now;
	pa->deadline_ns = DR_NEVER;
	f->heals += pa->was_up;
	pa->was_up = f->ever_up = true;
	count_ready(f, p, now);
	if (f->prm.sender)
		dr_fo_tx_path_ready(f, p, now);
	else
		dr_fo_rx_path_ready(f, now);
}

void dr_fo_fence(struct dr_fo *f, unsigned p, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	dr_assert(pa->state == DR_FOP_READY || pa->state == DR_FOP_CONNECTING);
	/* It worked, also if a switch fences it. */
	if (pa->state == DR_FOP_READY && now - pa->ready_ns > DR_NS_PER_S)
		pa->backoff_ns = 0;
	pa->state = DR_FOP_FENCING;
	pa->stuck = false;
	pa->deadline_ns = now + FENCE_MAX_NS;
	dr_fo_add(f, DR_FOA_FENCE, p);
	count_ready(f, p, now);
}

/* The path that carries the data lacks something of this end: memory, a permission, a resource within its
 * limit. The other path may not need it. If both do, every switch between them completes, so that the
 * rounds of invariant 5 do not end it. */
static bool local_for_good(struct dr_fo *f, unsigned p, enum dr_scope scope, int64_t now)
{
	if (scope != DR_SCOPE_LOCAL || p != f->active)
		return false;
	if (now - f->since_ns >= LOCAL_CALM_NS)
		f->local_failures = 0;
	return ++f->local_failures >= DR_FO_LOCAL_MAX;
}

void dr_fo_path_failed(struct dr_fo *f, struct dr_fo_conn conn, enum dr_scope scope, int err,
	const char *why, int64_t now)
{
	unsigned p = conn.path;
	struct dr_fo_path *pa = &f->path[p];

	if (!current(f, p, conn.gen) ||
		(pa->state != DR_FOP_READY && pa->state != DR_FOP_CONNECTING))
		return;
	if (local_for_good(f, p, scope, now)) {
		dr_fo_die(f, err, why, now);
		return;
	}
	if (p == f->active && f->state != DR_FO_SWITCH)
		dr_fo_record_open(f, true, scope, err, why, now);
	dr_fo_fence(f, p, now);
	if (f->prm.sender)
		dr_fo_tx_path_lost(f, p, now);
	else
		dr_fo_rx_path_lost(f, p, now);
}

/* Not every kind shows a fence to the peer, and a reset may be lost. The dialling end shows it by
 * dialling, the accepting end by GONE; without a READY path as a datagram, since the peer of an idle
 * channel would have no reason to dial. */
static void say_gone(struct dr_fo *f, unsigned p, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];
	struct dr_frame fr = {
		.type = DR_FRAME_GONE, .epoch = f->epoch, .path = p, .gen = pa->gen
	};

	pa->deadline_ns = now + dr_fo_again_ns(f, GONE_AGAIN_NS);
	if (dr_fo_pick(f, DR_FO_NONE) == DR_FO_NONE)
		post(f, DR_FOA_DGRAM, p, &fr);
	else
		dr_fo_broadcast(f, &fr);
}

void dr_fo_fenced(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (!current(f, p, gen) || pa->state != DR_FOP_FENCING)
		return;
	pa->dial_after_ns = now + REDIAL_DELAY_NS;
	pa->state = DR_FOP_DOWN;
	pa->retry_ns = f->prm.connector ? now + pa->backoff_ns : DR_NEVER;
	pa->deadline_ns = DR_NEVER;
	pa->backoff_ns = DR_MIN(DR_MAX(2 * pa->backoff_ns, BACKOFF_MIN_NS), BACKOFF_MAX_NS);
	if (f->prm.sender)
		dr_fo_tx_fenced(f, now);
	else
		dr_fo_rx_fenced(f, p, now);
	if (pa->state != DR_FOP_DOWN || f->prm.connector || f->state == DR_FO_DEAD)
		return;
	if (pa->incoming > pa->gen)
		connect_path(f, p, pa->incoming, now);
	else
		say_gone(f, p, now);
}

void dr_fo_incoming(struct dr_fo *f, unsigned p, uint32_t gen, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (f->state == DR_FO_DEAD) /* refused, with the reason */
		say(f, DR_FRAME_ABORT, 0);
	if (f->state == DR_FO_DEAD || f->prm.connector || pa->state == DR_FOP_ABSENT ||
		gen <= pa->gen)
		return;
	pa->incoming = DR_MAX(pa->incoming, gen);
	if (pa->state == DR_FOP_DOWN)
		connect_path(f, p, pa->incoming, now);
	else /* the peer has abandoned the old connection */
		dr_fo_path_failed(f, dr_fo_conn(p, pa->gen), DR_SCOPE_PATH, -ECONNRESET,
			"the peer reconnected this path", now);
}

void dr_fo_rail(struct dr_fo *f, unsigned p, bool ok, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (f->state == DR_FO_DEAD || pa->state == DR_FOP_ABSENT)
		return;
	if (ok && pa->rail_down && f->prm.connector) { /* reconnecting is never postponed */
		pa->backoff_ns = 0;
		if (pa->state == DR_FOP_DOWN)
			pa->retry_ns = now;
		else if (pa->state == DR_FOP_CONNECTING)
			dr_fo_path_failed(f, dr_fo_conn(p, pa->gen), DR_SCOPE_PATH, -ETIMEDOUT,
				"the rail is back: reconnecting", now);
	}
	if (ok && pa->rail_down)
		pa->ready_ns = now; /* the hold-down begins */
	pa->rail_down = !ok;
}

static void leave(struct dr_fo *f)
{
	if (f->left)
		return;
	f->left = true;
	dr_fo_add(f, DR_FOA_LEAVE, DR_FO_NONE);
}

/* A frame for a channel that has ended. ABORT and a confirmation tell that the peer has ended, too. CLOSE
 * is confirmed only if this end did not end with an error, which the peer would never learn otherwise. Any
 * other frame shows that the peer does not know. */
static void frame_when_dead(struct dr_fo *f, const struct dr_frame *fr)
{
	bool close = fr->type == DR_FRAME_CLOSE, confirm = fr->flags & DR_FRAME_CONFIRM;

	if (fr->type == DR_FRAME_PROBE)
		return;
	if (fr->type != DR_FRAME_ABORT && !(close && (confirm || f->err == -ESHUTDOWN))) {
		say(f, DR_FRAME_ABORT, 0);
		return;
	}
	f->peer_knows = true;
	if (!confirm)
		say(f, fr->type, DR_FRAME_CONFIRM);
	if (confirm || f->closing)
		leave(f);
}

/* The peer has ended. If it closed, this end has an error only if something is left to be done. */
static void on_abort(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	bool closed = fr->err == -ESHUTDOWN;
	char why[64];

	if (f->prm.sender && !dr_fo_tx_last_ack(f, fr->seq) && closed) {
		/* Told again when the peer hears of this end; the fence replaces completions. */
		if (f->state == DR_FO_RUN || f->state == DR_FO_DRAIN)
			dr_fo_path_failed(f, dr_fo_conn(f->active, f->path[f->active].gen),
				DR_SCOPE_PATH, -ETIMEDOUT,
				"completions of data that the peer has delivered are missing", now);
		return;
	}
	/* -ECANCELED is what the close of a receiver makes of a sender with messages outstanding. */
	if (closed ? f->closing || f->head == (f->prm.sender ? f->tail : fr->seq)
		   : f->closing && !f->prm.sender && fr->err == -ECANCELED) {
		dr_fo_finish(f, fr, now);
		return;
	}
	if (closed) {
		dr_fo_die(f, -ECANCELED,
			"the peer closed the channel before everything was delivered", now);
	} else {
		snprintf(why, sizeof(why), "the peer ended the channel (%s)",
			dr_errno_name(fr->err));
		dr_fo_die(f, fr->err != 0 ? fr->err : -ECANCELED, why, now);
	}
	frame_when_dead(f, fr);
}

void dr_fo_frame(struct dr_fo *f, unsigned p, const struct dr_frame *fr, int64_t now)
{
	if (f->path[p].state == DR_FOP_ABSENT)
		return;
	if (f->state == DR_FO_DEAD) {
		frame_when_dead(f, fr);
	} else if (fr->type == DR_FRAME_ABORT) {
		on_abort(f, fr, now);
	} else if (fr->type == DR_FRAME_CLOSE) {
		if (fr->epoch == f->epoch && f->prm.sender)
			dr_fo_tx_close(f, fr, now);
		else if (fr->epoch == f->epoch)
			dr_fo_rx_close(f, fr, now);
	} else if (fr->type == DR_FRAME_GONE) {
		if (f->prm.connector && f->path[fr->path].gen == fr->gen)
			dr_fo_path_failed(f, dr_fo_conn(fr->path, fr->gen), DR_SCOPE_PATH,
				-ECONNRESET, "the peer's end of the path is gone", now);
	} else if (fr->type != DR_FRAME_PROBE) {
		if (f->prm.sender)
			dr_fo_tx_frame(f, fr, now);
		else
			dr_fo_rx_frame(f, fr, now);
	}
}

/* Time at which a DOWN path is dialled. The kernel of a peer that stands takes a dial, and
 * nobody admits it: each would fill a place of its backlog. While another path is READY, a
 * switch to it is in progress or just done. Creating connections (milliseconds of a processor
 * for queue pairs of software RoCE) would delay that switch. */
static int64_t dial_ns(const struct dr_fo *f, unsigned p)
{
	const struct dr_fo_path *pa = &f->path[p];

	if (f->stalled)
		return DR_NEVER;
	return dr_fo_pick(f, p) == DR_FO_NONE ? pa->retry_ns
					      : DR_MAX(pa->retry_ns, pa->dial_after_ns);
}

/* The path has buffers of the user that it may still access: parts posted and not retired, or receives
 * posted and not delivered. */
static bool holds_buffers(const struct dr_fo *f, unsigned p)
{
	uint32_t gen = f->path[p].gen;

	if (!f->prm.sender)
		return p == f->data_path && gen == f->data_gen && f->cursor > f->head;
	for (uint64_t s = f->head; p == f->sent_path && gen == f->sent_gen && s < f->tail; s++)
		if (f->posted[dr_fo_slot(f, s)] & ~f->retired[dr_fo_slot(f, s)])
			return true;
	return false;
}

/* Invariants 2 and 6. An empty path is left as it is, since its connection may live on: it is not used
 * again unless FENCED arrives. */
static void fence_overdue(struct dr_fo *f, unsigned p, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (holds_buffers(f, p)) {
		dr_fo_die(f, -EIO,
			"a path could not be fenced within 1 s; its buffers cannot be reused", now);
		return;
	}
	pa->stuck = true;
	pa->deadline_ns = DR_NEVER;
	if (f->prm.sender)
		dr_fo_tx_fenced(f, now);
	else
		dr_fo_rx_fenced(f, p, now);
}

static void path_tick(struct dr_fo *f, unsigned p, int64_t now)
{
	struct dr_fo_path *pa = &f->path[p];

	if (pa->state == DR_FOP_CONNECTING && now >= pa->deadline_ns && !f->stalled)
		dr_fo_path_failed(f, dr_fo_conn(p, pa->gen), DR_SCOPE_PATH, -ETIMEDOUT,
			"dial timed out", now);
	else if (pa->state == DR_FOP_DOWN && now >= dial_ns(f, p))
		connect_path(f, p, pa->gen + 1, now);
	else if (pa->state == DR_FOP_DOWN && !f->prm.connector && now >= pa->deadline_ns)
		say_gone(f, p, now);
	else if (pa->state == DR_FOP_FENCING && now >= pa->deadline_ns)
		fence_overdue(f, p, now);
}

/* What was read before the tick may have set a time already: nothing began later than now. */
void dr_fo_own_stall(struct dr_fo *f, int64_t for_ns, int64_t now)
{
	int64_t *began[] = { &f->tick_ns, &f->since_ns, &f->proposed_ns, &f->moved_ns,
		&f->nopath_ns };

	for (size_t i = 0; i < DR_ARRAY_LEN(began); i++)
		if (*began[i] != 0)
			*began[i] = DR_MIN(*began[i] + for_ns, DR_MAX(now, *began[i]));
	/* What came while it stood is read first: it may confirm the close, or complete what was delivered. */
	if (f->closing && f->state != DR_FO_DEAD && f->leave_ns < now + CLOSE_STOOD_NS)
		f->leave_ns = DR_MIN(f->leave_ns + for_ns, now + CLOSE_STOOD_NS);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_fo_path *pa = &f->path[i];
		int64_t most = pa->state == DR_FOP_FENCING ? FENCE_MAX_NS : DIAL_NS;

		if ((pa->state == DR_FOP_FENCING || pa->state == DR_FOP_CONNECTING) &&
			pa->deadline_ns != DR_NEVER)
			pa->deadline_ns = DR_MIN(pa->deadline_ns + for_ns, now + most);
	}
}

/* Repeats what the peer has not confirmed, until the time for it is over. */
static void farewell_tick(struct dr_fo *f, int64_t now)
{
	bool dead = f->state == DR_FO_DEAD;

	if (f->left || (!dead && !f->closing))
		return;
	if (now >= f->leave_ns && dead) {
		leave(f);
	} else if (now >= f->leave_ns) {
		dr_fo_finish(f, NULL, now);
	} else if (now >= f->say_ns && !f->peer_knows) {
		if (dead)
			say(f, DR_FRAME_ABORT, 0);
		else if (f->state == DR_FO_RUN || f->state == DR_FO_DRAIN)
			say(f, DR_FRAME_CLOSE, 0);
		f->say_ns = now + SAY_AGAIN_NS;
	}
}

/* When the channel ends for want of a path. None can come up while the peer stands; its kernel
 * answers. */
static int64_t lost_ns(const struct dr_fo *f)
{
	return f->nopath_ns != 0 && f->ever_up && !f->stalled ? f->nopath_ns + f->prm.lost_after_ns
							      : DR_NEVER;
}

void dr_fo_tick(struct dr_fo *f, int64_t now)
{
	/* Ticks are called when due; a longer pause is our own and no evidence about the peer. */
	int64_t dt = DR_MIN(now - f->tick_ns, TICK_MAX_NS);

	farewell_tick(f, now);
	if (f->state == DR_FO_DEAD)
		return;
	f->tick_ns = now;
	for (unsigned i = 0; i < DR_PATHS && f->state != DR_FO_DEAD; i++)
		path_tick(f, i, now);
	if (f->state == DR_FO_DEAD)
		return;
	if (now >= lost_ns(f)) {
		dr_fo_die(f, -ENETDOWN, "no path left: every rail of the channel is lost", now);
		return;
	}
	if (f->state >= DR_FO_SWITCH && !f->stalled && now - f->since_ns >= GIVE_UP_NS) {
		dr_fo_die(f, -ETIMEDOUT, "switching paths did not finish within 30 s", now);
		return;
	}
	if (f->prm.sender)
		dr_fo_tx_tick(f, dt, now);
	else
		dr_fo_rx_tick(f, now);
}

int64_t dr_fo_deadline(const struct dr_fo *f)
{
	int64_t d = DR_NEVER;

	if ((f->state == DR_FO_DEAD || f->closing) && !f->left)
		d = f->peer_knows ? f->leave_ns : DR_MIN(f->leave_ns, f->say_ns);
	if (f->state == DR_FO_DEAD)
		return d;
	if (f->prm.sender && dr_fo_tx_drained(f))
		return f->tick_ns;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		const struct dr_fo_path *pa = &f->path[i];

		if (pa->state == DR_FOP_DOWN)
			d = DR_MIN(d, DR_MIN(dial_ns(f, i), pa->deadline_ns));
		else if (pa->state == DR_FOP_FENCING ||
			 (pa->state == DR_FOP_CONNECTING && !f->stalled))
			d = DR_MIN(d, pa->deadline_ns);
	}
	d = DR_MIN(d, lost_ns(f));
	if (f->state == DR_FO_SWITCH || f->state == DR_FO_NOTIFY || f->state == DR_FO_FENCE)
		d = DR_MIN(d, f->resend_ns);
	if (f->prm.sender &&
		(f->state == DR_FO_START || f->state == DR_FO_RUN || f->state == DR_FO_DRAIN))
		d = DR_MIN(d, (f->tick_ns / SENDER_TICK_NS + 1) * SENDER_TICK_NS);
	if (f->state >= DR_FO_SWITCH && !f->stalled)
		d = DR_MIN(d, f->since_ns + GIVE_UP_NS);
	return d;
}

int dr_fo_push(struct dr_fo *f, unsigned n_parts, uint64_t *seq)
{
	unsigned s;

	dr_assert(n_parts >= 1 && n_parts <= DR_PARTS_MAX);
	if (f->state == DR_FO_DEAD)
		return f->err;
	if (f->closing)
		return -ESHUTDOWN;
	if (f->tail - f->head >= f->prm.window)
		return -EAGAIN;
	s = dr_fo_slot(f, f->tail);
	f->n_parts[s] = (uint8_t)n_parts;
	f->posted[s] = f->retired[s] = 0;
	*seq = f->tail++;
	return 0;
}

bool dr_fo_next(const struct dr_fo *f, uint64_t *seq, unsigned *part, unsigned *skip)
{
	if (f->cursor >= f->tail)
		return false;
	if (f->state == DR_FO_DRAIN ? f->cursor_part == 0 : f->state != DR_FO_RUN)
		return false;
	*seq = f->cursor;
	*part = f->cursor_part;
	*skip = !f->prm.sender && f->cursor == f->head ? f->got : 0;
	return true;
}

void dr_fo_posted(struct dr_fo *f, int64_t now)
{
	unsigned i = dr_fo_slot(f, f->cursor);

	dr_assert(f->cursor < f->tail);
	if (!f->prm.sender) {
		f->cursor++;
		return;
	}
	if (!dr_fo_owed(f))
		f->moved_ns = now;
	dr_assert(!(f->posted[i] & (1u << f->cursor_part)));
	if (f->rec_open && f->rec.first_frame_ns == 0)
		f->rec.first_frame_ns = now;
	f->sent_path = f->active;
	f->sent_gen = f->path[f->active].gen;
	f->posted[i] |= (uint8_t)(1u << f->cursor_part);
	f->high = DR_MAX(f->high, f->cursor + 1);
	while (f->cursor_part < f->n_parts[i] && (f->posted[i] & (1u << f->cursor_part)))
		f->cursor_part++;
	if (f->cursor_part == f->n_parts[i]) {
		f->cursor++;
		f->cursor_part = 0;
	}
}

bool dr_fo_sent_whole(const struct dr_fo *f, uint64_t seq)
{
	return seq < f->acked || f->retired[dr_fo_slot(f, seq)] == dr_fo_full_mask(f, seq);
}

void dr_fo_progressed(struct dr_fo *f, int64_t now)
{
	f->last_ns = f->moved_ns = now;
	f->rounds = 0;
	f->local_failures = 0;
	f->stuck_ns = 0;
}

void dr_fo_stalled(struct dr_fo *f, bool stalled, int64_t now)
{
	if (f->stalled && !stalled) {
		f->since_ns = f->proposed_ns = now;
		f->nopath_ns = f->nopath_ns != 0 ? now : 0;
		if (f->state == DR_FO_SWITCH || f->state == DR_FO_NOTIFY)
			f->resend_ns = now;
		for (unsigned i = 0; i < DR_PATHS; i++) {
			f->path[i].backoff_ns = 0;
			if (f->path[i].retry_ns != DR_NEVER)
				f->path[i].retry_ns = now;
		}
	}
	f->stalled = stalled;
}

static void end(struct dr_fo *f, int err, const char *why, int64_t now)
{
	if (f->prm.sender)
		dr_fo_tx_end(f);
	dr_fo_set_state(f, DR_FO_DEAD, now);
	f->err = err;
	snprintf(f->why, sizeof(f->why), "%s", why);
	f->active = f->target = f->data_path = DR_FO_NONE;
	f->rec_open = false;
}

/* After lost_after_ns a peer that could not be told has no path either and ends by its own clock. If that stood, the peer
 * finds out by a probe of its idle paths. An end that closes does not wait longer for that. */
void dr_fo_die(struct dr_fo *f, int err, const char *why, int64_t now)
{
	if (f->state == DR_FO_DEAD)
		return;
	dr_assert(err < 0);
	end(f, err, why, now);
	if (!f->closing)
		f->leave_ns = now + f->prm.lost_after_ns;
	f->say_ns = now + SAY_AGAIN_NS;
	say(f, DR_FRAME_ABORT, 0);
	dr_fo_add(f, DR_FOA_DEAD, DR_FO_NONE);
}

void dr_fo_finish(struct dr_fo *f, const struct dr_frame *fr, int64_t now)
{
	end(f, -ESHUTDOWN, "the channel was closed", now);
	f->leave_ns = now + CLOSE_NS;
	if (fr)
		frame_when_dead(f, fr);
	if (f->closing)
		leave(f);
}

void dr_fo_close(struct dr_fo *f, int64_t now)
{
	if (f->closing || f->err == -ESHUTDOWN)
		return;
	f->closing = true;
	if (f->state == DR_FO_DEAD) { /* the peer that told its error was answered */
		if (f->peer_knows)
			leave(f);
		return;
	}
	f->leave_ns = now + CLOSE_NS;
	f->say_ns = now;
	if (f->state == DR_FO_START)
		dr_fo_finish(f, NULL, now);
	else
		farewell_tick(f, now);
}

void dr_fo_validate(const struct dr_fo *f)
{
	dr_assert(f->head <= f->tail && f->tail - f->head <= f->prm.window);
	dr_assert(f->cursor >= f->head || f->state == DR_FO_DEAD);
	dr_assert(f->cursor <= f->tail);
	dr_assert(f->active == DR_FO_NONE || f->path[f->active].state != DR_FOP_ABSENT);
	dr_assert((f->state == DR_FO_RUN || f->state == DR_FO_DRAIN) == (f->active != DR_FO_NONE) ||
		  f->state == DR_FO_NOTIFY || f->state == DR_FO_FENCE);
	if (f->state == DR_FO_RUN || f->state == DR_FO_DRAIN)
		dr_assert(f->path[f->active].state == DR_FOP_READY);
	for (unsigned i = 0; i < DR_PATHS; i++)
		dr_assert(f->path[i].state != DR_FOP_DOWN || f->path[i].retry_ns == DR_NEVER ||
			  f->prm.connector);
	if (f->prm.sender)
		dr_fo_tx_validate(f);
	else
		dr_fo_rx_validate(f);
}
