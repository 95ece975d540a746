/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

/*
 * Faults of the handshakes of paths: strangers at the listeners, and connections that break after any byte of
 * HELLO or HELLO_OK. They switch nothing and end nothing. That a path comes up with its own peer alone is
 * checked by the simulated world, for every path (transport/sim/check.c).
 */
static const int64_t LOOK_NS = 20 * DR_NS_PER_MS;
static const int64_t HANDSHAKE_NS = 250 * DR_NS_PER_MS;
enum { HANDSHAKE_BYTES = 44, FEW = 4, CROWD = 80 };

static void strangers(struct sim_run *r, const struct sim_fault *f, struct dr_rng *g)
{
	bool crowd = dr_rng_chance(g, 1, 8);
	unsigned n = crowd ? CROWD : 1 + (unsigned)dr_rng_below(g, FEW);

	while (n-- > 0) {
		enum dr_sim_stranger what = (enum dr_sim_stranger)dr_rng_below(g, DR_SIM_STRANGERS);

		if (crowd)
			what = DR_SIM_SILENT;
		/* mostly where somebody accepts */
		dr_sim_stranger(r->w, f->rail, dr_rng_chance(g, 1, 8), what, dr_rng_u64(g));
	}
}

void sim_greet_strike(struct sim_run *r, const struct sim_fault *f)
{
	struct dr_rng g;

	dr_rng_seed(&g, f->seed);
	if (f->kind == F_STRANGERS)
		strangers(r, f, &g);
	else /* of the next dials: the client dials */
		for (unsigned rail = 0; rail < 2; rail++)
			dr_sim_cut_hello(
				r->w, rail, 1, (unsigned)dr_rng_below(&g, HANDSHAKE_BYTES));
}

static bool disturbed(const struct sim_run *r, int64_t now)
{
	if (!r->faults_over &&
		(r->s->world.link.loss_ppm > 0 || r->s->world.link.dgram_loss_ppm > 0))
		return true;
	for (unsigned i = 0; i < r->s->n_faults; i++)
		if (r->fs[i].st == SIM_ON)
			return true;
	return now < DR_MAX(r->stalled_until[0], r->stalled_until[1]) || r->dead[0] || r->dead[1];
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

	sim_cover.strangers += n->strangers;
	sim_cover.rejected += n->rejected;
	sim_cover.outdated += n->outdated;
	sim_cover.cut_hellos += n->cut_hellos;
}
