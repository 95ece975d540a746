/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include <errno.h>

/*
 * Whether a channel may end, and whether it must, by what the simulated world shows: which connections join both
 * ends, which rails carry, and who runs. Nothing of it comes from the channels.
 *
 *  death  An end ends because it closed, or its memory went, or a fence failed that holds its
 *         buffers, or the peer has told it of its own end, or since nothing joined it to its peer
 *         for lost_after. In this time, since a path was up last and less COME_UP_NS, each rail was
 *         cut or had a fence of the channel that failed for good, or one of both ends did not run:
 *         otherwise there would have been a path. A path that joins them ends this time when
 *         something must have been heard on it (hear_ns).
 *  ends   and an end that nothing joins to its peer for longer does end.
 *
 * Only time in which the end itself runs counts, but for what its kernel or NIC waits for. While
 * the peer stands, no path can be built. Streams ask its kernel on each rail, and nothing may end
 * while a rail carries for as long as that takes (answers_ns). Not covered with the others: a path
 * that breaks while the peer is stopped, so the time in which it stands counts there; where a
 * connection is left, the peer's NIC answers on it, and nothing may end. `ends` judges nobody while
 * the peer stands. An end of a stream may also end because the peer's process was killed.
 */
/* A dial that was lost is repeated after a second; then it has a handshake to do. */
static const int64_t COME_UP_NS = 1100 * DR_NS_PER_MS;
static const int64_t OWN_STALL_NS = 100 * DR_NS_PER_MS; /* that an end notices; see manager.c */
/* Silence counts from what the peer's process sent last; after 100 ms its kernel or NIC is asked,
 * and every 500 ms while it answers. So the last answer may be as old when the last path is
 * lost. */
static const int64_t PROBE_NS = 600 * DR_NS_PER_MS;
/* A question per second and rail; one may be lost with its answer. */
static const int64_t ASK_NS = DR_NS_PER_S + 300 * DR_NS_PER_MS;
static const int64_t ENDS_NS = 2 * DR_NS_PER_S; /* behind lost_after */
static const int64_t FENCE_NS = DR_NS_PER_S;	/* that cannot be done */
/* Conservative detection leaves a silent path to the kernel's repetitions. */
static const int64_t REPEATED_NS = 4 * DR_NS_PER_S;

static bool stream(const struct sim_run *r)
{
	return r->s->world.personality == DR_SIM_STREAM;
}

static bool carries(const struct sim_run *r, unsigned rail)
{
	return !dr_sim_link_is_cut(r->w, rail, 0) && !dr_sim_link_is_cut(r->w, rail, 1);
}

/* Ends that are up of a connection of this end, over a rail that carries. */
static unsigned ends_up(const struct sim_run *r, unsigned c, unsigned end)
{
	unsigned n = 0;

	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_sim_place at = sim_place(r, c, end, i);
		n = DR_MAX(n, carries(r, at.rail) ? dr_sim_path_ends(r->w, &at) : 0);
	}
	return n;
}

/* A path whose fence failed for good is not dialled again. */
static bool may_come_up(const struct sim_run *r, unsigned c)
{
	for (unsigned i = 0; i < DR_PATHS; i++)
		if (carries(r, sim_rail_of_path(r, c, i)) && !sim_quarantined(r, c, 0, i) &&
			!sim_quarantined(r, c, 1, i))
			return true;
	return false;
}

/* A tick of both ends, and one look; as many as detection allows for where heartbeats are lost. */
static int64_t hear_ns(const struct sim_run *r)
{
	return (sim_lossy(r->s) ? 5 : 2) * r->s->heartbeat_ns + DR_NS_PER_MS;
}

static int64_t answers_ns(const struct sim_run *r)
{
	return sim_lossy(r->s) ? 2 * ASK_NS : ASK_NS;
}

/* It is so, and has been for long enough. */
static bool settled(bool is, int64_t for_ns, int64_t *since_ns, int64_t now)
{
	*since_ns = is ? *since_ns : now;
	return is && now - *since_ns >= for_ns;
}

/* The process runs: heartbeats, and with them silence, are those of all its managers. */
static bool process_runs(const struct sim_run *r, unsigned end)
{
	bool any = false;

	for (unsigned k = 0; k < r->s->n_managers; k++)
		any |= sim_runs(&r->wk[end][k]);
	return any;
}

/* What was so since the last look, for the time since then. A short stall of its own is no stall to an end. */
static void count(struct sim_run *r, int64_t now)
{
	for (unsigned i = 0; i < 2 * r->s->n_channels; i++) {
		struct sim_user *u = &r->ch[i / 2].user[i % 2];
		int64_t ns = now - r->judged_ns;

		if (!u->runs) {
			u->stood_ns += ns;
			continue;
		}
		if (u->stood_ns <= OWN_STALL_NS + r->s->heartbeat_ns)
			ns += u->stood_ns;
		u->stood_ns = 0;
		u->alone_ns += u->joined ? 0 : ns;
		u->unheard_ns += u->heard ? 0 : ns;
		u->could_ns += u->could ? ns : 0;
		u->left_ns += u->left ? ns : 0;
	}
	r->judged_ns = now;
}

static void check_ends(struct sim_run *r, const struct sim_user *u, int64_t now)
{
	int64_t most = r->s->lost_after_ns + ENDS_NS + (r->s->conservative ? REPEATED_NS : 0);

	for (unsigned i = 0; i < r->s->n_faults; i++)
		most += r->s->fault[i].kind == F_STUCK ? FENCE_NS : 0;
	/* What happened while a thread of its process stood it learns when that goes on, and what is
	 * read then is a sign of life. A plugin tells nothing of the peer's kernel: while the peer
	 * stands, silence may be that (manager_silence.c). */
	if (u->err == 0 && u->was_joined && u->left_ns > most &&
		sim_runs(sim_worker_of(r, u->channel, u->end)) && now - sim_all_run_ns(r) > most)
		sim_fail(r, "ends: channel %u end %u goes on %.3f ms after it lost its peer",
			u->channel, u->end, SIM_MS(u->left_ns));
}

void sim_judge(struct sim_run *r, int64_t now)
{
	bool rail = carries(r, 0) || carries(r, 1);
	bool up[2] = { process_runs(r, 0), process_runs(r, 1) };

	count(r, now);
	for (unsigned c = 0; c < r->s->n_channels; c++) {
		bool both = sim_runs(sim_worker_of(r, c, 0)) && sim_runs(sim_worker_of(r, c, 1));
		bool is = ends_up(r, c, 0) == DR_PATHS;

		for (unsigned end = 0; end < 2; end++) {
			struct sim_user *u = &r->ch[c].user[end];
			bool stands = !r->dead[!end] && !sim_runs(sim_worker_of(r, c, !end));

			u->joined = settled(is, hear_ns(r), &u->joined_at, now);
			if (u->joined || settled(stands && rail && up[end] && stream(r),
						 answers_ns(r), &u->answers_at, now)) {
				u->alone_ns = u->could_ns = u->stood_ns = 0;
				u->alone_at = now;
			}
			u->was_joined |= is;
			u->could_ns = is ? 0 : u->could_ns;
			u->left = !is && !stands;
			u->left_ns = u->left ? u->left_ns : 0;
			u->heard = settled(is && up[!end], hear_ns(r), &u->heard_at, now);
			u->unheard_ns = u->heard ? 0 : u->unheard_ns;
			u->runs = up[end];
			/* An end that has ended builds no path. */
			u->could = !is && both && r->ch[c].user[!end].err == 0 && may_come_up(r, c);
			check_ends(r, u, now);
		}
	}
}

/* A fence that failed for good ends a channel if the path holds buffers of the user. That it is
 * there is not enough. */
static bool stuck(const struct sim_user *u, int err)
{
	bool any = false;

	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_sim_place at = sim_place(u->r, u->channel, u->end, i);

		any |= dr_sim_path_holds(u->r->w, &at);
	}
	return err == -EIO && any && u->posted > u->done;
}

void sim_judge_death(struct sim_user *u, int err, const char *text)
{
	struct sim_run *r = u->r;
	int64_t now = dr_sim_world_now(r->w), least = r->s->lost_after_ns - hear_ns(r);

	count(r, now);
	if (u->unheard_ns >= least && now - u->alone_at >= least - PROBE_NS)
		least = 0;
	if (stuck(u, err) || sim_give_up_excuses(u, err) || (u->dereg && err == -ECANCELED) ||
		sim_peer_of(u)->err == err)
		return;
	if (err == -ECONNRESET && stream(r) && r->dead[!u->end])
		return;
	if (err != -ENETDOWN || u->alone_ns < least || u->could_ns > COME_UP_NS)
		sim_fail(r,
			"death: channel %u end %u failed; it had no path for %.3f ms, %.3f of them while "
			"both ran and a rail carried: %s",
			u->channel, u->end, SIM_MS(u->alone_ns), SIM_MS(u->could_ns), text);
}
