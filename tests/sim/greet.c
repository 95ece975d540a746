/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

/*
 * Faults of the handshakes of paths: strangers at the listeners, and handshakes that break half-way: those of
 * streams after any byte of CHALLENGE, HELLO or HELLO_OK, those of remote write at any step, at one end, which begins again
 * with the next generation. They switch nothing and end nothing. That a path comes up with its own peer alone is
 * checked by the simulated world, for every path (tests/sim/world/check.c).
 */
static const int64_t LOOK_NS = 20 * DR_NS_PER_MS;
static const int64_t HANDSHAKE_NS = 250 * DR_NS_PER_MS;
enum { HANDSHAKE_BYTES = 100, FEW = 4, CROWD = 80 };

static bool remote_write(const struct sim_run *r)
{
	return r->s->world.personality == DR_SIM_REMOTE_WRITE;
}

static void strangers(struct sim_run *r, const struct sim_fault *f, struct dr_rng *g)
{
	bool crowd = dr_rng_chance(g, 1, 8);
	unsigned n = crowd ? CROWD : 1 + (unsigned)dr_rng_below(g, FEW);

	while (n-- > 0) {
		enum dr_sim_stranger what = (enum dr_sim_stranger)dr_rng_below(g, DR_SIM_STRANGERS);

		if (crowd)
			what = remote_write(r) ? DR_SIM_OLD_HELLO : DR_SIM_SILENT;
		/* mostly where somebody accepts */
		dr_sim_stranger(r->w, (unsigned)dr_rng_below(g, r->s->n_managers), f->rail,
			dr_rng_chance(g, 1, 8), what, dr_rng_u64(g));
	}
}

void sim_greet_strike(struct sim_run *r, const struct sim_fault *f)
{
	struct dr_rng g;

	dr_rng_seed(&g, f->seed);
	if (f->kind == F_STRANGERS)
		strangers(r, f, &g);
	else /* of the next dials: the client dials; remote write: at either end */
		for (unsigned rail = 0; rail < 2; rail++) {
			unsigned bytes = (unsigned)dr_rng_below(&g, HANDSHAKE_BYTES);

			dr_sim_cut_hello(r->w, rail,
				remote_write(r) ? (unsigned)dr_rng_below(&g, 2) : 1, bytes);
		}
}

/* Remote write repeats its datagrams every 12 ms: a loss of some percent does not count as a disturbance. */
static bool disturbed(const struct sim_run *r, int64_t now)
{
	const struct dr_sim_link *l = &r->s->world.link;

	if (!r->faults_over && (l->loss_ppm > 0 || (l->dgram_loss_ppm > 0 && !remote_write(r))))
		return true;
	for (unsigned i = 0; i < r->s->n_faults; i++)
		if (r->fs[i].st == SIM_ON)
			return true;
	return now < sim_all_run_ns(r) || r->dead[0] || r->dead[1];
}

void sim_greet_watch(struct sim_run *r, int64_t now)
{
	struct dr_path *p;

	if (disturbed(r, now))
		r->disturbed_ns = now;
	if (now < r->greet_due_ns || r->started != 3)
		return;
	r->greet_due_ns = now + LOOK_NS;
	p = dr_sim_hanging(r->w, r->disturbed_ns + 1, HANDSHAKE_NS);
	if (p)
		sim_fail(r, "handshake: a path of rail %u does not come up although its rail works",
			p->rail->index);
}

void sim_greet_collect(const struct sim_run *r)
{
	const struct dr_sim_counts *n = dr_sim_world_counts(r->w);
	bool verbs = remote_write(r);

	sim_cover.strangers[verbs] += n->strangers;
	sim_cover.rejected[verbs] += n->rejected;
	sim_cover.outdated[verbs] += n->outdated;
	sim_cover.cut_hellos[verbs] += n->cut_hellos;
	sim_cover.kept_hellos += n->claimed;
	sim_cover.welcomed_again += n->welcomed_again;
}
