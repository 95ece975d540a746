/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "channel/channel_priv.h"

#include <errno.h>

/*
 * When faults strike, and how. They come one after another: each waits for its time, or for a step
 * of the protocol, after the one before began. An outage waits until the other rail works, so that
 * while nothing that ends channels was drawn one rail always does, or is back within milliseconds.
 */
static const int64_t STEP_WAIT_NS = 120 * DR_NS_PER_MS; /* the step is not coming: strike anyway */
static const int64_t RETRY_NS = 5 * DR_NS_PER_MS;
static const int64_t OUTAGE_WAIT_NS = 1500 * DR_NS_PER_MS;
static const int64_t FLAP_HEAL_NS = 4 * DR_NS_PER_S;
enum { FLAPS_MIN = 100 };

static bool left_out(const struct sim_run *r, unsigned i)
{
	return r->s->without & (1u << i);
}

/* The path of some channel on this rail, at its sender's or its receiver's end. */
static struct dr_path *some_path(struct sim_run *r, struct dr_rng *g, unsigned fault, bool sender)
{
	unsigned rail = r->s->fault[fault].rail;
	unsigned c = (unsigned)dr_rng_below(g, r->s->n_channels);

	for (unsigned end = 0; end < 2; end++)
		for (unsigned i = 0; i < DR_PATHS; i++) {
			struct dr_sim_place at = sim_place(r, c, end, i);
			struct dr_path *p = at.rail == rail ? dr_sim_path_find(r->w, &at) : NULL;

			if (p == NULL || r->ch[c].user[end].sender != sender)
				continue;
			sim_switch_broke(r, fault, c, i);
			return p;
		}
	return NULL;
}

/* ---- links: what all faults that are on together make of them ---- */

static bool flap_is_down(const struct sim_run *r, unsigned i, int64_t now)
{
	return ((now - r->fs[i].at) / (4 * DR_NS_PER_MS)) % 2 == 0;
}

static void set_links(struct sim_run *r, int64_t now)
{
	unsigned cut[2] = { 0, 0 }, mute[2] = { 0, 0 };

	for (unsigned i = 0; i < r->s->n_faults; i++) {
		const struct sim_fault *f = &r->s->fault[i];

		if (r->fs[i].st != SIM_ON)
			continue;
		if (f->kind == F_CUT || (f->kind == F_FLAP && flap_is_down(r, i, now)))
			cut[f->rail] |= DR_SIM_BOTH;
		else if (f->kind == F_CUT_ONE_WAY)
			cut[f->rail] |= f->mask;
		else if (f->kind == F_BLINK || f->kind == F_BOTH_CUT)
			cut[0] = cut[1] = DR_SIM_BOTH;
		else if (f->kind == F_MUTE)
			mute[f->rail] |= f->mask;
	}
	for (unsigned rail = 0; rail < 2; rail++) {
		dr_sim_cut(r->w, rail, DR_SIM_BOTH, false);
		dr_sim_cut(r->w, rail, cut[rail], true);
		dr_sim_mute_dgrams(r->w, rail, DR_SIM_BOTH, false);
		dr_sim_mute_dgrams(r->w, rail, mute[rail], true);
	}
}

bool sim_loses(const struct sim_run *r, unsigned type)
{
	for (unsigned i = 0; i < r->s->n_faults; i++)
		if (r->fs[i].st == SIM_ON && r->s->fault[i].kind == F_LOSE &&
			(r->s->fault[i].seed >> type & 1))
			return true;
	return false;
}

static bool others_down(const struct sim_run *r, unsigned but, unsigned rail)
{
	for (unsigned i = 0; i < r->s->n_faults; i++)
		if (i != but && r->fs[i].st == SIM_ON && r->s->fault[i].kind == F_LINK_DOWN &&
			r->s->fault[i].rail == rail)
			return true;
	return false;
}

/* ---- one fault ---- */

static void stall(struct sim_run *r, const struct sim_fault *f, int64_t now)
{
	unsigned end = f->mask & 1;

	if (now < r->stalled_until[end])
		return;
	r->stalled_from[end] = now;
	r->stalled_until[end] = now + f->len_ns;
	r->clock_stands[end] = f->kind == F_CLOCK;
}

/* Of the managers that stand at least one was drawn, and at least one goes on. */
static void stall_workers(struct sim_run *r, const struct sim_fault *f, int64_t now)
{
	unsigned end = f->mask & 1, workers = sim_workers(r->s, f);

	for (unsigned k = 0; k < r->s->n_managers; k++) {
		struct sim_worker *wk = &r->wk[end][k];

		if (!(workers & (1u << k)))
			continue;
		sim_say(r, "end %u manager %u stands%s", end, k,
			wk->m->lag_ns == 0 ? ", which drives the heartbeats" : "");
		wk->stalled_until = DR_MAX(wk->stalled_until, now + f->len_ns);
	}
}

static void kill_end(struct sim_run *r, unsigned end)
{
	if (r->dead[end])
		return;
	r->dead[end] = true;
	dr_sim_kill(r->w, end);
}

static void stick(struct sim_run *r, unsigned i, bool on)
{
	const struct sim_fault *f = &r->s->fault[i];
	unsigned end = f->mask & 1;
	struct dr_rng g;
	struct dr_path *p;

	dr_sim_fence_time(r->w, f->rail, end, on ? 0 : r->s->fence_ns[f->rail][end], on);
	dr_rng_seed(&g, f->seed);
	p = on ? some_path(r, &g, i, dr_rng_chance(&g, 1, 2)) : NULL;
	if (p != NULL)
		dr_sim_path_break(p, DR_SIM_BOTH, -EIO);
}

static void strike_path(struct sim_run *r, unsigned i)
{
	const struct sim_fault *f = &r->s->fault[i];
	struct dr_rng g;
	struct dr_path *p;

	dr_rng_seed(&g, f->seed);
	p = some_path(r, &g, i,
		f->kind == F_COMPLETION || (f->kind == F_BREAK && dr_rng_chance(&g, 1, 2)));
	if (p == NULL)
		return;
	switch (f->kind) {
	case F_BREAK:
		dr_sim_path_break(p, f->mask, -ECONNRESET);
		break;
	case F_COMPLETION:
		(void)dr_sim_next_completion(
			p, 1 + dr_rng_below(&g, DR_SIM_WC_ERR_DROPPED), DR_NS_PER_MS);
		break;
	case F_CREDIT:
		(void)dr_sim_drop_credit(p);
		break;
	default:
		dr_sim_dup_delivered(p, (unsigned)dr_rng_below(&g, 5));
		break;
	}
}

static bool lasts(enum sim_fault_kind k)
{
	return !(k == F_BREAK || (k >= F_COMPLETION && k <= F_REPLAY) || k == F_CLOSE ||
		 (k >= F_CONTROL && k <= F_HALF) || k == F_DEREG || k == F_KILL);
}

static void strike(struct sim_run *r, unsigned i, int64_t now)
{
	const struct sim_fault *f = &r->s->fault[i];
	struct sim_fault_state *fs = &r->fs[i];

	sim_say(r, "fault %u: %s rail %u mask %u for %.3f ms (%s)", i, sim_fault_names[f->kind],
		f->rail, f->mask, SIM_MS(f->len_ns), sim_step_names[f->step]);
	sim_cover.faults[f->kind]++;
	fs->st = SIM_ON;
	fs->at = now;
	fs->until = now + (lasts(f->kind) ? f->len_ns : 0);
	r->last_fault_ns = now;
	r->next_burst_ns = DR_MIN(r->next_burst_ns, now);
	sim_switch_out(r, i);
	sim_boot_touch(r);
	for (unsigned w = 0; w < 2 * r->s->n_managers; w++)
		sim_touch(&r->wk[w % 2][w / 2]);
	switch (f->kind) {
	case F_LINK_DOWN:
		dr_sim_link_down(r->w, f->rail, f->mask, 50 * DR_NS_PER_US, (f->seed & 1) != 0);
		break;
	case F_BREAK:
	case F_COMPLETION:
	case F_CREDIT:
	case F_DUP:
		strike_path(r, i);
		break;
	case F_CLOG:
		dr_sim_clog(r->w, f->rail, f->mask, f->len_ns);
		break;
	case F_STALL:
	case F_CLOCK:
	case F_STOP:
		sim_cover.long_stops += f->len_ns >= 10 * DR_NS_PER_S;
		stall(r, f, now);
		break;
	case F_WORKER:
		stall_workers(r, f, now);
		break;
	case F_REPLAY:
		sim_tap_replay(r, f);
		break;
	case F_CLOSE:
		sim_give_up(r, f);
		break;
	case F_FLAPS:
		fs->until = DR_NEVER;
		fs->flip_ns = now;
		fs->give_up = now + FLAP_HEAL_NS;
		break;
	case F_CONTROL:
		sim_boot_break(r);
		break;
	case F_STRANGERS:
	case F_HALF:
		sim_greet_strike(r, f);
		break;
	case F_DEREG:
		sim_app_dereg(r, (unsigned)(f->seed % r->s->n_channels), f->mask & 1);
		break;
	case F_STUCK:
		stick(r, i, true);
		break;
	case F_KILL:
		kill_end(r, f->mask & 1);
		break;
	default:
		break;
	}
}

/* The rails fail in turn, the next one when both work. */
static void flap_rails(struct sim_run *r, unsigned i, int64_t now)
{
	const struct sim_fault *f = &r->s->fault[i];
	struct sim_fault_state *fs = &r->fs[i];
	unsigned rail = fs->flips % 2;

	if (now < fs->flip_ns)
		return;
	fs->flip_ns = now + DR_NS_PER_MS;
	if (fs->down) {
		dr_sim_link_up(r->w, rail);
		fs->down = false;
		fs->flips++;
		fs->give_up = now + FLAP_HEAL_NS;
		sim_cover.flaps++;
		if (fs->flips >= FLAPS_MIN + f->seed % FLAPS_MIN)
			fs->until = now;
	} else if (sim_app_healed(r, 3)) {
		dr_sim_link_down(r->w, rail, DR_SIM_BOTH, 50 * DR_NS_PER_US, (f->seed & 1) != 0);
		fs->down = true;
		fs->flip_ns = now + f->len_ns;
	} else if (now > DR_MAX(fs->give_up, sim_all_run_ns(r) + FLAP_HEAL_NS)) {
		sim_fail(r, "progress: paths are not up again after flap %u", fs->flips);
	}
}

static void lift(struct sim_run *r, unsigned i)
{
	const struct sim_fault *f = &r->s->fault[i];

	r->fs[i].st = SIM_OVER;
	if (f->kind == F_LINK_DOWN && !others_down(r, i, f->rail))
		dr_sim_link_up(r->w, f->rail);
	else if (f->kind == F_FLAPS && r->fs[i].down)
		dr_sim_link_up(r->w, r->fs[i].flips % 2);
	else if (f->kind == F_STUCK)
		stick(r, i, false);
}

/* ---- when ---- */

static bool at_step(const struct sim_run *r, unsigned c, unsigned end, enum sim_step step)
{
	const struct dr_fo *f = &sim_channel_at(r, c, end)->fo;
	bool fencing = f->path[0].state == DR_FOP_FENCING || f->path[1].state == DR_FOP_FENCING;
	bool dialling =
		f->path[0].state == DR_FOP_CONNECTING || f->path[1].state == DR_FOP_CONNECTING;

	switch (step) {
	case AT_TX_SWITCH:
		return f->state == DR_FO_SWITCH && !f->answered;
	case AT_TX_ANSWERED:
		return f->state == DR_FO_SWITCH && f->answered;
	case AT_TX_DRAIN:
		return f->state == DR_FO_DRAIN;
	case AT_TX_PLANNED:
		return f->planned && (f->state == DR_FO_SWITCH || f->state == DR_FO_FENCE);
	case AT_TX_FENCING:
		return f->prm.sender && fencing;
	case AT_RX_FENCING:
		return !f->prm.sender && fencing;
	case AT_RX_NOTIFY:
		return f->state == DR_FO_NOTIFY;
	case AT_RX_FENCE:
		return f->state == DR_FO_FENCE;
	case AT_CONNECTING:
		return dialling && f->ever_up;
	case AT_REPLAY:
		return f->prm.sender && f->state == DR_FO_RUN && f->rec_open;
	default:
		return false;
	}
}

void sim_faults_watch(struct sim_run *r, int64_t now)
{
	unsigned i = r->next_fault;
	const struct sim_fault *f;

	if (i >= r->s->n_faults || r->fs[i].st != SIM_ARMED)
		return;
	f = &r->s->fault[i];
	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++) {
			if (r->ch[c].user[end].err != 0 || !at_step(r, c, end, f->step))
				continue;
			sim_cover.steps[f->step]++;
			r->fs[i].st = SIM_WAITS;
			r->fs[i].at = now + f->after_ns;
			r->fault_due_ns = DR_MIN(r->fault_due_ns, r->fs[i].at);
			return;
		}
}

/* An outage of this rail would leave the other one, and that one works. */
static bool may_strike(struct sim_run *r, unsigned i)
{
	unsigned rail = r->s->fault[i].rail;

	enum sim_fault_kind kind = r->s->fault[i].kind;

	/* Until all channels are up, deadlines are their owner's, who is not simulated. */
	if ((kind >= F_DEREG || kind == F_FLAPS || kind == F_CLOSE) && !r->was_ready)
		return false;
	if (kind > F_FLAPS)
		return true;
	for (unsigned k = 0; k < r->s->n_faults; k++)
		if (r->fs[k].st == SIM_ON && r->s->fault[k].kind <= F_FLAPS &&
			(r->s->fault[k].rail != rail || kind == F_FLAPS ||
				r->s->fault[k].kind == F_FLAPS))
			return false;
	return sim_app_healed(r, kind == F_FLAPS ? 3 : 1u << !rail);
}

static int64_t wait_ns(const struct sim_run *r, const struct sim_fault *f)
{
	if (f->step == AT_TIME)
		return f->after_ns;
	if ((f->step == AT_TX_DRAIN || f->step == AT_TX_PLANNED) && r->s->failback)
		return STEP_WAIT_NS + 2 * r->s->hold_down_ns; /* the failback */
	return STEP_WAIT_NS;
}

/* The next fault in the row: waits, is armed, or strikes. */
static void advance(struct sim_run *r, int64_t now)
{
	while (r->next_fault < r->s->n_faults) {
		unsigned i = r->next_fault;
		struct sim_fault_state *fs = &r->fs[i];

		if (left_out(r, i)) {
			fs->st = SIM_OVER;
			r->next_fault++;
			continue;
		}
		if (fs->at == 0 && fs->st == SIM_WAITS) {
			int64_t wait = wait_ns(r, &r->s->fault[i]);

			fs->at = now + wait + 1;
			fs->give_up = fs->at + OUTAGE_WAIT_NS;
			if (r->s->fault[i].step != AT_TIME)
				fs->st = SIM_ARMED;
		}
		if (now < fs->at)
			return;
		if (may_strike(r, i)) {
			strike(r, i, now);
		} else if (now < fs->give_up) {
			fs->at = now + RETRY_NS;
			return;
		} else {
			fs->st = SIM_OVER;
		}
		r->next_fault++;
	}
}

static void stop_loss(struct sim_run *r)
{
	struct dr_sim_link l;

	for (unsigned rail = 0; rail < 2; rail++) {
		dr_sim_link_get(r->w, rail, 0, &l);
		l.loss_ppm = l.dgram_loss_ppm = l.dgram_dup_ppm = 0;
		dr_sim_link_set(r->w, rail, DR_SIM_BOTH, &l);
	}
}

static bool all_ended(const struct sim_run *r)
{
	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++)
			if (r->ch[c].user[end].err == 0 && !r->dead[end])
				return false;
	return true;
}

void sim_faults_run(struct sim_run *r, int64_t now)
{
	int64_t next = DR_NEVER;
	bool on = false;

	if (r->faults_over || (now < r->fault_due_ns && !all_ended(r)))
		return;
	for (unsigned i = 0; i < r->next_fault; i++) {
		if (r->fs[i].st == SIM_ON && r->s->fault[i].kind == F_FLAPS)
			flap_rails(r, i, now);
		if (r->fs[i].st == SIM_ON && (now >= r->fs[i].until || all_ended(r)))
			lift(r, i);
	}
	advance(r, now);
	set_links(r, now);
	for (unsigned i = 0; i < r->s->n_faults; i++) {
		const struct sim_fault_state *fs = &r->fs[i];

		if (fs->st == SIM_ON) {
			on = true;
			next = DR_MIN(next, fs->until);
			if (r->s->fault[i].kind == F_FLAP)
				next = DR_MIN(next, now + DR_NS_PER_MS);
			else if (r->s->fault[i].kind == F_FLAPS)
				next = DR_MIN(next, fs->flip_ns);
		}
	}
	if (r->next_fault < r->s->n_faults)
		next = DR_MIN(next, r->fs[r->next_fault].at);
	r->fault_due_ns = DR_MAX(next, now + 1);
	if ((r->next_fault == r->s->n_faults && !on) || all_ended(r)) {
		stop_loss(r);
		r->faults_over = true;
		r->faults_over_ns = now;
		r->traffic_until_ns = now + r->s->tail_ns;
		r->fault_due_ns = DR_NEVER;
	}
}
