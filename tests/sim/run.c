/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/mem.h"

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
 */
static const int64_t DONE_NS = 6 * DR_NS_PER_S;
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

static int setup(struct sim_run *r)
{
	const struct sim_schedule *s = r->s;
	struct dr_manager_params p = { .transport = dr_sim_ops(s->world.personality),
		.gpu = 3,
		.n_rails = 2,
		.n_channels = s->n_channels,
		.window = s->window,
		.heartbeat_ns = s->heartbeat_ns,
		.failback = s->failback,
		.hold_down_ns = s->hold_down_ns,
		.lost_after_ns = s->lost_after_ns,
		.poller = (struct dr_poller *)
				  r->w, /* only tells that paths are driven from outside */
		.ops = &sim_app_ops,
		.arg = r };

	for (unsigned end = 0; end < 2; end++) {
		struct dr_sim_rail_params rp = { r->w, end };
		struct dr_err e;

		p.connector = end == 1;
		p.kind_params = &rp;
		for (unsigned c = 0; c < s->n_channels; c++)
			p.channel[c] = (struct dr_manager_channel){ c % 2, !(c % 2),
				s->sender[c] == (end == 0) };
		if (dr_manager_create(&p, &r->m[end], &e) != 0) {
			sim_fail(r, "create: %s", e.text);
			return -1;
		}
		for (unsigned rail = 0; rail < 2; rail++)
			dr_sim_fence_time(r->w, rail, end, s->fence_ns[rail][end], false);
	}
	sim_app_setup(r);
	sim_tap_setup(r);
	sim_boot_create(r);
	return 0;
}

static int64_t deadline(const struct sim_run *r, unsigned end)
{
	int64_t d = r->m[end] != NULL && (r->started & (1u << end)) ? dr_manager_deadline(r->m[end])
								    : DR_NEVER;

	if (r->dead[end] || d == DR_NEVER)
		return DR_NEVER;
	return DR_MAX(
		d + dr_sim_world_now(r->w) - dr_sim_world_clock(r->w, end), r->stalled_until[end]);
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
	}
}

/* True: it did something, and may have more to do. */
static bool drive(struct sim_run *r, unsigned end, bool app)
{
	int64_t now = dr_sim_world_now(r->w);
	unsigned n;

	if (r->dead[end] || now < r->stalled_until[end])
		return false;
	if (!(r->started & (1u << end)))
		return false;
	n = dr_sim_world_drive(r->w, end, dr_rng_u64(&r->rng));
	if (now >= deadline(r, end))
		dr_manager_tick(r->m[end], dr_sim_world_clock(r->w, end));
	else if (n == 0 && !app)
		return false;
	sim_app_step(r, end);
	return dr_sim_world_busy(r->w, end);
}

static void step_ends(struct sim_run *r, bool app)
{
	for (unsigned round = 0; round < ROUNDS_MAX; round++) {
		unsigned first = (unsigned)dr_rng_u64(&r->rng) & 1;
		bool again = drive(r, first, app && round == 0);

		again |= drive(r, !first, app && round == 0);
		sim_faults_watch(r, dr_sim_world_now(r->w));
		if (!again)
			return;
	}
	sim_fail(r, "progress: an end stays busy");
}

static bool kept_busy(const struct sim_run *r, int64_t now)
{
	return !r->faults_over || now < r->traffic_until_ns || now < r->pause_until_ns ||
	       !sim_app_over(r) || !sim_boot_done(r);
}

static void no_end(struct sim_run *r, const char *what)
{
	char text[2][400];

	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++) {
			dr_channel_describe(dr_manager_channel_at(r->m[end], c),
				dr_sim_world_clock(r->w, end), text[end], sizeof(text[end]));
			sim_say(r, "%" PRIu64 " of %" PRIu64 " done; %s", r->ch[c].user[end].done,
				r->ch[c].total, text[end]);
		}
	sim_fail(r, "progress: %s although the faults have stopped", what);
}

static int64_t next_time(struct sim_run *r)
{
	int64_t next = DR_MIN(r->fault_due_ns, r->started == 3 ? r->next_burst_ns : DR_NEVER);

	next = DR_MIN(next, DR_MIN(deadline(r, 0), deadline(r, 1)));
	next = DR_MIN(next, DR_MIN(sim_boot_next(r), dr_sim_world_next(r->w)));
	for (unsigned end = 0; end < 2; end++) /* what came while it stood still */
		if (r->stalled_until[end] > dr_sim_world_now(r->w))
			next = DR_MIN(next, r->stalled_until[end]);
	if (dr_sim_world_now(r->w) < r->pause_until_ns)
		next = DR_MIN(next, r->pause_until_ns);
	return next;
}

/* Flaps double the hold-down up to 64-fold. */
static int64_t back_ns(const struct sim_run *r)
{
	return r->s->wait_failback ? 65 * r->s->hold_down_ns : 0;
}

/* All is well, or it is not within the time that it may take. */
static bool over(struct sim_run *r, int64_t now)
{
	int64_t from = DR_MAX(r->faults_over_ns, r->pause_until_ns);

	from = DR_MAX(from, DR_MAX(r->stalled_until[0], r->stalled_until[1]));

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
	else if (now > DR_MAX(from, r->traffic_until_ns) + DONE_NS && r->healed)
		no_end(r, "no end");
	return false;
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
		if (r->started == 3)
			sim_app_offer(r, now);
		step_ends(r, app);
		sim_give_up_watch(r);
		sim_greet_watch(r, now);
		if (!r->was_ready && r->started == 3)
			r->was_ready =
				dr_manager_ready(r->m[0]) == 1 && dr_manager_ready(r->m[1]) == 1;
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
	sim_cover.virtual_ms += (uint64_t)(dr_sim_world_now(r->w) / DR_NS_PER_MS);
	sim_cover.zombies += n->zombies;
	sim_cover.snapshots += n->snapshots;
	sim_cover.refused += n->refused;
	sim_cover.read_again += n->read_again;
	sim_cover.lost += n->lost;
	sim_cover.dups += n->dups;
	sim_cover.discarded += n->discarded;
	sim_cover.stuck += n->stuck;
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
	if (dr_sim_world_create(dr_mix64(seed + 2), &s.world, &r->w) != 0)
		return 1;
	sim_say(r, "seed %" PRIu64 ": %s, %u channels, window %u, %u faults%s", seed,
		dr_sim_personality_name(s.world.personality), s.n_channels, s.window,
		sim_count_faults(&s), s.may_die ? ", channels may end" : "");
	if (setup(r) == 0) {
		simulate(r);
		collect(r);
	}
	for (unsigned end = 0; end < 2; end++)
		if (r->m[end] != NULL)
			dr_manager_close(r->m[end], dr_sim_world_clock(r->w, end));
	for (unsigned end = 0; end < 2; end++)
		(void)dr_manager_destroy(r->m[end]); /* the world destroys what a fence could not */
	sim_boot_destroy(r);
	sim_app_fini(r);
	dr_sim_world_destroy(r->w);
	failed = r->fail[0] != '\0';
	snprintf(why, len, "%s", r->fail);
	dr_free(r);
	return failed;
}
