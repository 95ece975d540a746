/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/mem.h"
#include "channel/channel_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * The loop of one schedule. The clock jumps to the next thing that happens: a NIC or kernel, a
 * deadline of a manager, the conversation, a fault, the users. An end is driven when it is due or
 * has something to take in, unless it stands still.
 *
 * After the faults every message arrives within DONE_NS, and every path is up again within HEAL_NS.
 * Conservative detection waits 2.4 s for each of two completions that are lost one after the other,
 * and a second for a drain between them.
 */
static const int64_t DONE_NS = 6 * DR_NS_PER_S, DONE_LATE_NS = 8 * DR_NS_PER_S;
static const int64_t HEAL_NS = 4 * DR_NS_PER_S;
enum {
	ROUNDS_MAX =
		20000, /* of both ends, at one time: half a minute of a peer, an event a round */
	CREEPS = 100,  /* steps of a microsecond or less in a row: a deadline stays due */
	SPINS_MAX = 20000, /* of these, each as long as a turn of a real loop */
};

int sim_verbose;

void sim_fail(struct sim_run *r, const char *fmt, ...)
{
	va_list ap;

	if (r->fail[0] != '\0')
		return;
	va_start(ap, fmt);
	(void)vsnprintf(r->fail, sizeof(r->fail), fmt, ap);
	va_end(ap);
}

void sim_say(const struct sim_run *r, const char *fmt, ...)
{
	va_list ap;

	if (!sim_verbose)
		return;
	fprintf(stderr, "  %9.3f ms ", SIM_MS(dr_sim_world_now(r->w)));
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* ---- who is where ---- */

struct dr_channel *sim_channel_at(const struct sim_run *r, unsigned c, unsigned end)
{
	return dr_manager_channel_at(sim_worker_of(r, c, end)->m, c / r->s->n_managers);
}

struct sim_user *sim_user_of(const struct dr_channel *ch)
{
	const struct sim_worker *wk = ch->prm.arg;

	return &wk->r->ch[dr_channel_id(ch) * wk->r->s->n_managers + wk->k].user[wk->end];
}

struct dr_sim_place sim_place(const struct sim_run *r, unsigned c, unsigned end, unsigned path)
{
	return (struct dr_sim_place){ .node = end,
		.port = sim_manager_of(r, c),
		.rail = sim_rail_of_path(r, c, path),
		.channel = c / r->s->n_managers,
		.index = path };
}

bool sim_quarantined(const struct sim_run *r, unsigned c, unsigned end, unsigned path)
{
	struct dr_sim_place at = sim_place(r, c, end, path);

	return dr_sim_path_quarantined(r->w, &at);
}

int64_t sim_stalled_until(const struct sim_worker *wk)
{
	return DR_MAX(wk->stalled_until, wk->r->stalled_until[wk->end]);
}

bool sim_runs(const struct sim_worker *wk)
{
	return wk->started && !wk->r->dead[wk->end] &&
	       dr_sim_world_now(wk->r->w) >= sim_stalled_until(wk);
}

int64_t sim_all_run_ns(const struct sim_run *r)
{
	int64_t ns = DR_MAX(r->stalled_until[0], r->stalled_until[1]);

	for (unsigned end = 0; end < 2; end++)
		for (unsigned k = 0; k < r->s->n_managers; k++)
			ns = DR_MAX(ns, r->wk[end][k].stalled_until);
	return ns;
}

void sim_touch(struct sim_worker *wk)
{
	wk->r->due_changed = true;
	wk->touched = true;
}

/* ---- begin ---- */

static int open_channels(const struct sim_run *r, struct sim_worker *wk, struct dr_err *e)
{
	const struct sim_schedule *s = r->s;
	struct dr_channel *ch;
	int rc = 0;

	for (unsigned c = wk->k; c < s->n_channels && rc == 0; c += s->n_managers) {
		struct dr_manager_channel spec = { .primary = sim_rail_of_path(r, c, 0),
			.shadow = sim_rail_of_path(r, c, 1),
			.sender = s->sender[c] == (wk->end == 0) };

		rc = dr_manager_open_channel(wk->m, c / s->n_managers, &spec, &ch, e);
	}
	return rc;
}

static int make_managers(struct sim_run *r, unsigned end, struct dr_manager_params *p)
{
	struct dr_sim_rail_params rp = { .world = r->w, .node = end };
	struct dr_err e;

	p->kind_params = &rp;
	p->peer = r->peer[end];
	for (unsigned k = 0; k < r->s->n_managers; k++) {
		struct sim_worker *wk = &r->wk[end][k];

		*wk = (struct sim_worker){
			.r = r, .end = end, .k = k, .poller = { r, end, NULL, false }
		};
		wk->start_at = wk->due_ns = DR_NEVER;
		rp.port = k;
		p->gpu = 3 + k;
		p->poller = &wk->poller;
		p->arg = wk;
		if (dr_manager_create(p, &wk->m, &e) != 0 || open_channels(r, wk, &e) != 0) {
			sim_fail(r, "create: %s", e.text);
			return -1;
		}
	}
	return 0;
}

/* As the orchestrator does: with datagrams the heartbeats belong to the process. */
static int make_peer(struct sim_run *r, unsigned end, const struct dr_manager_params *p)
{
	struct dr_sim_rail_params rp = { .world = r->w, .node = end, .port = SIM_PEER_PORT };
	struct dr_manager_params m = *p;
	struct dr_err e;

	if (!r->s->peer)
		return 0;
	m.kind_params = &rp;
	r->apart[end] = (struct dr_poller){ r, end, NULL, false };
	if (dr_peer_create(&m, &r->apart[end], &r->peer[end], &e) == 0)
		return 0;
	sim_fail(r, "create: %s", e.text);
	return -1;
}

static int setup(struct sim_run *r)
{
	const struct sim_schedule *s = r->s;
	struct dr_manager_params p = { .transport = dr_sim_ops(s->world.personality),
		.n_rails = 2,
		.window = s->window,
		.detect = s->conservative ? DR_DETECT_CONSERVATIVE : DR_DETECT_FAST,
		.heartbeat_ns = s->heartbeat_ns,
		.failback = s->failback,
		.hold_down_ns = s->hold_down_ns,
		.lost_after_ns = s->lost_after_ns,
		.ops = &sim_app_ops };

	for (unsigned end = 0; end < 2; end++) {
		p.connector = end == 1;
		if (make_peer(r, end, &p) != 0 || make_managers(r, end, &p) != 0)
			return -1;
		for (unsigned rail = 0; rail < 2; rail++)
			dr_sim_fence_time(r->w, rail, end, s->fence_ns[rail][end], false);
	}
	sim_app_setup(r);
	sim_tap_setup(r);
	sim_boot_create(r);
	return 0;
}

/* ---- turns ---- */

/* In the world's clock. A thread asks for the deadline before it sleeps. */
static int64_t deadline(struct sim_worker *wk)
{
	struct sim_run *r = wk->r;
	int64_t now = dr_sim_world_now(r->w), d;

	if (!wk->started || r->dead[wk->end])
		return DR_NEVER;
	if (wk->touched) {
		wk->due_ns = dr_manager_deadline(wk->m);
		dr_sim_port_stir(r->w, wk->end, wk->k);
	}
	wk->touched = false;
	d = wk->due_ns;
	if (wk->poller.woken)
		d = now;
	else if (d == DR_NEVER)
		return DR_NEVER;
	else
		d += now - dr_sim_world_clock(r->w, wk->end);
	return DR_MAX(d, sim_stalled_until(wk));
}

/* An end that goes on after its clock stood finds it where it was, before it looks at anything else. */
static void stand_clocks(struct sim_run *r)
{
	int64_t now = dr_sim_world_now(r->w);

	for (unsigned end = 0; end < 2; end++) {
		if (!r->clock_stands[end] || now < r->stalled_until[end] ||
			r->stalled_from[end] == r->stalled_until[end])
			continue;
		dr_sim_clock_stand(r->w, end, r->stalled_until[end] - r->stalled_from[end]);
		r->stalled_from[end] = r->stalled_until[end];
		sim_boot_touch(r);
		r->due_changed = true;
	}
}

/* Runs what its poller watches. */
static unsigned poll(struct sim_worker *wk)
{
	struct sim_run *r = wk->r;
	unsigned n = 0;

	if (dr_sim_port_busy(r->w, wk->end, wk->k))
		n = dr_sim_port_drive(r->w, wk->end, wk->k, dr_rng_u64(&r->rng));
	if (wk->poller.watched && dr_sim_port_busy(r->w, wk->end, SIM_PEER_PORT)) {
		wk->poller.watched->ready(
			wk->poller.watched, EPOLLIN, dr_sim_world_clock(r->w, wk->end));
		n++;
	}
	return n;
}

static uint32_t ticks_of(const struct sim_worker *wk)
{
	return wk->r->peer[wk->end] ? atomic_load(&wk->r->peer[wk->end]->ticks) : 0;
}

/* True: it did something, and may have more to do. */
static bool drive(struct sim_worker *wk, bool app)
{
	struct sim_run *r = wk->r;
	unsigned n;

	if (!sim_runs(wk))
		return false;
	if (wk->touched)
		dr_sim_port_stir(r->w, wk->end, wk->k);
	n = poll(wk);
	if (dr_sim_world_now(r->w) >= deadline(wk) || (r->s->eager && n > 0)) {
		uint32_t ticks = ticks_of(wk);

		wk->poller.woken = false;
		dr_manager_tick(wk->m, dr_sim_world_clock(r->w, wk->end));
		sim_cover.taken_over += wk->m->lag_ns > 0 && ticks_of(wk) != ticks;
	} else if (n == 0 && !app)
		return false;
	sim_app_step(wk);
	wk->due_ns = dr_manager_deadline(wk->m);
	wk->touched = false;
	r->due_changed = true;
	dr_sim_port_stir(r->w, wk->end, wk->k);
	return dr_sim_port_busy(r->w, wk->end, wk->k) ||
	       (wk->poller.watched && dr_sim_port_busy(r->w, wk->end, SIM_PEER_PORT));
}

/* All workers, in an order that `order` draws. */
static bool drive_all(struct sim_run *r, uint64_t order, bool app)
{
	unsigned n = 2 * r->s->n_managers;
	struct sim_worker *left[2 * SIM_MANAGERS_MAX];
	bool again = false;

	for (unsigned i = 0; i < n; i++)
		left[i] = &r->wk[i % 2][i / 2];
	for (; n > 0; n--) {
		unsigned i = (unsigned)(order % n);

		order /= n;
		again |= drive(left[i], app);
		left[i] = left[n - 1];
	}
	return again;
}

/* The next time that a worker is due, or goes on with what came while it stood. */
static int64_t workers_due(struct sim_run *r)
{
	int64_t now = dr_sim_world_now(r->w), next = DR_NEVER;

	if (!r->due_changed && now < r->workers_ns)
		return r->workers_ns;
	for (unsigned end = 0; end < 2; end++)
		for (unsigned k = 0; k < r->s->n_managers; k++) {
			int64_t stands = sim_stalled_until(&r->wk[end][k]);

			next = DR_MIN(next, deadline(&r->wk[end][k]));
			if (stands > now)
				next = DR_MIN(next, stands);
		}
	r->due_changed = false;
	r->workers_ns = next;
	return next;
}

static void step_ends(struct sim_run *r, bool app)
{
	bool due = r->due_changed || dr_sim_world_now(r->w) >= r->workers_ns;

	if (!dr_sim_world_stirred(r->w) && !app && !due)
		return;
	r->due_changed = true;
	for (unsigned round = 0; round < ROUNDS_MAX; round++) {
		bool again = drive_all(r, dr_rng_u64(&r->rng), app && round == 0);

		sim_faults_watch(r, dr_sim_world_now(r->w));
		if (!again)
			return;
	}
	sim_fail(r, "progress: an end stays busy");
}

static bool kept_busy(const struct sim_run *r, int64_t now)
{
	return !r->faults_over || now < r->traffic_until_ns || now < r->pause_until_ns ||
	       !sim_app_over(r) || !sim_boot_done(r) || !sim_visit_over(r);
}

static void no_end(struct sim_run *r, const char *what)
{
	char text[2][400];

	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++) {
			dr_channel_describe(sim_channel_at(r, c, end),
				dr_sim_world_clock(r->w, end), text[end], sizeof(text[end]));
			sim_say(r, "%" PRIu64 " of %" PRIu64 " done; %s", r->ch[c].user[end].done,
				r->ch[c].total, text[end]);
		}
	sim_fail(r, "progress: %s although the faults have stopped", what);
}

static int64_t next_time(struct sim_run *r)
{
	int64_t next = DR_MIN(r->fault_due_ns, r->started == 3 ? r->next_burst_ns : DR_NEVER);

	next = DR_MIN(next, DR_MIN(sim_boot_next(r), dr_sim_world_next(r->w)));
	next = DR_MIN(next, workers_due(r));
	next = DR_MIN(next, sim_visit_next(r));
	if (dr_sim_world_now(r->w) < r->pause_until_ns)
		next = DR_MIN(next, r->pause_until_ns);
	return next;
}

/* Flaps double the hold-down up to 64-fold. */
static int64_t back_ns(const struct sim_run *r)
{
	return r->s->wait_failback ? 65 * r->s->hold_down_ns : 0;
}

/* A visitor that is there stays as long as its patience lasts. */
static int64_t visit_ns(const struct sim_run *r)
{
	return r->s->visits ? 8 * DR_NS_PER_S : 0;
}

/* All is well, or it is not within the time that it may take. */
static bool over(struct sim_run *r, int64_t now)
{
	int64_t from = DR_MAX(r->faults_over_ns, r->pause_until_ns);

	from = DR_MAX(from, sim_all_run_ns(r));
	if (!r->faults_over)
		return false;
	if (!r->healed && sim_app_healed(r, 3) && (!r->s->wait_failback || sim_app_back(r))) {
		r->healed = true;
		r->traffic_until_ns = DR_MAX(r->traffic_until_ns, now);
	}
	if (r->healed && !kept_busy(r, now))
		return true;
	if (!r->healed && now > from + HEAL_NS + back_ns(r))
		no_end(r, "paths are not up again, or not taken");
	else if (now > DR_MAX(from, r->traffic_until_ns) + visit_ns(r) +
				 (r->s->conservative ? DONE_LATE_NS : DONE_NS) &&
		 r->healed)
		no_end(r, "no end");
	return false;
}

static bool all_ready(const struct sim_run *r)
{
	for (unsigned end = 0; end < 2; end++)
		for (unsigned k = 0; k < r->s->n_managers; k++)
			if (dr_manager_ready(r->wk[end][k].m) != 1)
				return false;
	return true;
}

static void simulate(struct sim_run *r)
{
	unsigned creeps = 0;

	r->pause_until_ns = r->s->pause_from_ns + r->s->pause_ns;
	while (r->fail[0] == '\0' && dr_sim_world_violations(r->w) == 0) {
		int64_t now = dr_sim_world_now(r->w), next;
		bool app = now >= r->next_burst_ns || now == r->pause_until_ns;

		sim_faults_run(r, now);
		stand_clocks(r);
		sim_boot_step(r, now);
		sim_visit_run(r, now);
		if (r->started == 3)
			sim_app_offer(r, now);
		step_ends(r, app);
		sim_greet_watch(r, now);
		sim_judge(r, now);
		sim_switch_watch(r, now);
		sim_watch(r, now);
		if (!r->was_ready && r->started == 3)
			r->was_ready = all_ready(r);
		if (over(r, now))
			return;
		next = next_time(r);
		creeps = next > now + DR_NS_PER_US ? 0 : creeps + 1;
		if (creeps > CREEPS) {
			next = DR_MAX(next, now + 200 * DR_NS_PER_US);
			sim_cover.spins++;
		}
		if (creeps > SPINS_MAX) {
			no_end(r, "a deadline stays due");
			return;
		}
		if (next == DR_NEVER && kept_busy(r, now)) {
			no_end(r, "nothing is due");
			return;
		}
		dr_sim_world_step(r->w, DR_MAX(DR_MIN(next, now + DR_NS_PER_S), now + 1));
	}
}

static void collect(struct sim_run *r)
{
	const struct dr_sim_counts *n = dr_sim_world_counts(r->w);

	sim_app_collect(r);
	sim_greet_collect(r);
	sim_cover.schedules++;
	sim_cover.personality[r->s->world.personality]++;
	sim_cover.managers[r->s->n_managers - 1]++;
	*(r->s->peer ? &sim_cover.shared : &sim_cover.alone) += 1;
	sim_cover.virtual_ms += (uint64_t)(dr_sim_world_now(r->w) / DR_NS_PER_MS);
	sim_cover.zombies += n->zombies;
	sim_cover.snapshots += n->snapshots;
	sim_cover.refused += n->refused;
	sim_cover.read_again += n->read_again;
	sim_cover.lost += n->lost;
	sim_cover.dups += n->dups;
	sim_cover.discarded += n->discarded;
	sim_cover.stuck += n->stuck;
	sim_cover.answers += n->answers;
}

static void close_all(struct sim_run *r)
{
	for (unsigned end = 0; end < 2; end++)
		for (unsigned k = 0; k < SIM_MANAGERS_MAX; k++)
			if (r->wk[end][k].m)
				dr_manager_close(r->wk[end][k].m, dr_sim_world_clock(r->w, end));
	for (unsigned end = 0; end < 2; end++) {
		for (unsigned k = 0; k < SIM_MANAGERS_MAX;
			k++) /* the world destroys what a fence could not */
			(void)dr_manager_destroy(r->wk[end][k].m);
		dr_peer_destroy(r->peer[end]);
	}
}

int sim_schedule_run(uint64_t seed, uint32_t without, char *why, size_t len)
{
	struct sim_run *r = dr_calloc(1, sizeof(*r));
	struct sim_schedule s;
	int failed;

	dr_assert(r != NULL);
	sim_draw(&s, seed, without);
	r->s = &s;
	dr_rng_seed(&r->rng, dr_mix64(seed + 1));
	dr_rng_seed(&r->visit_rng, dr_mix64(seed + 4));
	if (dr_sim_world_create(dr_mix64(seed + 2), &s.world, &r->w) != 0)
		return 1;
	sim_say(r, "seed %" PRIu64 ": %s, %u managers%s, %u channels, window %u, %u faults", seed,
		dr_sim_personality_name(s.world.personality), s.n_managers,
		s.peer ? " with common heartbeats" : "", s.n_channels, s.window,
		sim_count_faults(&s));
	if (setup(r) == 0) {
		simulate(r);
		collect(r);
	}
	close_all(r);
	sim_boot_destroy(r);
	sim_app_fini(r);
	sim_visit_fini(r);
	dr_sim_world_destroy(r->w);
	failed = r->fail[0] != '\0';
	snprintf(why, len, "%s", r->fail);
	dr_free(r);
	return failed;
}
