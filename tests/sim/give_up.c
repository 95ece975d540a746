/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "channel/channel_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * Users that give a channel up: either end or both, idle or with messages outstanding, at any step of the
 * protocol. A user drives its end until it has left, takes its memory back at once, and overwrites it.
 *
 *  - The end leaves within 500 ms of its own clock, or 50 ms after it stood; the peer ends as well.
 *  - Nothing can be posted after the close. A close is reported as an error to nobody.
 *  - No delivered message is reported as failed by its sender, if the close was confirmed.
 *  - Nothing touches the memory of an end that has left.
 */
static const int64_t CLOSE_NS = 500 * DR_NS_PER_MS;
static const int64_t STOOD_NS = 50 * DR_NS_PER_MS;
static const int64_t TURN_NS = DR_NS_PER_MS; /* of a loop that was due */

static int64_t clock_of(const struct sim_user *u)
{
	return dr_sim_world_clock(u->r->w, u->end);
}

static void close_end(struct sim_user *u)
{
	struct dr_span s = { &u->reg, 0, 8, 0 };
	struct dr_channel *ch = sim_channel_of(u);
	uint64_t seq;
	int rc;

	sim_cover.closes++;
	sim_cover.closed_busy += u->posted > u->done;
	u->closing = true;
	u->closed_ns = clock_of(u);
	dr_channel_close(ch, clock_of(u));
	rc = u->sender ? dr_channel_send(ch, &s, 1, &seq, clock_of(u))
		       : dr_channel_recv(ch, &s, 1, &seq, clock_of(u));
	if (rc != -ESHUTDOWN && rc != u->err)
		sim_fail(u->r, "close: channel %u end %u: a post after it returns %d", u->channel,
			u->end, rc);
	sim_give_up_step(u, clock_of(u));
}

void sim_give_up(struct sim_run *r, const struct sim_fault *f)
{
	unsigned c = (unsigned)(f->seed % r->s->n_channels);
	bool busy = f->seed >> 32 & 1;

	for (unsigned end = 0; end < 2; end++) {
		struct sim_user *u = &r->ch[c].user[end];

		if (busy && !u->closing && u->err == 0 &&
			sim_runs(sim_worker_of(r, c, end))) { /* so that there is something */
			r->ch[c].total++;
			sim_app_step_user(u);
		}
	}
	for (unsigned end = 0; end < 2; end++) {
		struct sim_user *u = &r->ch[c].user[end];

		if ((f->mask & (1u << end)) && !u->closing && !u->gone && u->err == 0 &&
			sim_runs(sim_worker_of(r, c, end)))
			close_end(u);
	}
}

/* The end has left: its user takes the memory back. */
static void release(struct sim_user *u)
{
	struct sim_run *r = u->r;
	struct dr_channel *ch = sim_channel_of(u);
	size_t size = u->reg.len;

	u->confirmed = ch->fo.peer_knows;
	sim_cover.confirmed += u->confirmed;
	sim_cover.unconfirmed += !u->confirmed;
	u->gone = true;
	if (dr_channel_stop(ch, NULL) != 0)
		sim_fail(r, "close: channel %u end %u cannot be stopped", u->channel, u->end);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		struct dr_sim_place at = sim_place(r, u->channel, u->end, i);

		if (dr_sim_path_quarantined(r->w, &at))
			return; /* never returned */
	}
	dr_sim_world_check_idle(r->w, u->end, u->mem, size);
	if (dr_channel_mem_dereg(ch, &u->reg, clock_of(u), NULL) != 0)
		sim_fail(r, "close: channel %u end %u: memory cannot be deregistered", u->channel,
			u->end);
	memset(u->mem, 0xdb, size);
	dr_sim_world_give_back(r->w, u->mem, size);
}

void sim_give_up_step(struct sim_user *u, int64_t now)
{
	struct dr_channel *ch = sim_channel_of(u);

	if (u->err == 0 && dr_channel_ready(ch) == -ESHUTDOWN) {
		u->err = -ESHUTDOWN;
		u->died_ns = dr_sim_world_now(u->r->w);
		if (!sim_given_up(u->r, u->channel))
			sim_fail(u->r, "close: channel %u end %u is closed, but by nobody",
				u->channel, u->end);
		dr_channel_close(ch, now); /* changes nothing any more */
	}
	if (u->err != 0 && u->closing && !u->gone && dr_channel_closed(ch))
		release(u);
}

void sim_give_up_watch(struct sim_run *r)
{
	int64_t now = dr_sim_world_now(r->w);

	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++) {
			struct sim_user *u = &r->ch[c].user[end];

			if (!u->closing || u->gone || !sim_runs(sim_worker_of(r, c, end)) ||
				now <= sim_stalled_until(sim_worker_of(r, c, end)) + STOOD_NS +
						TURN_NS ||
				clock_of(u) <= u->closed_ns + CLOSE_NS + TURN_NS)
				continue;
			sim_fail(r, "close: channel %u end %u has not left after %.3f ms", c, end,
				SIM_MS(clock_of(u) - u->closed_ns));
		}
}

bool sim_given_up(const struct sim_run *r, unsigned c)
{
	return r->ch[c].user[0].closing || r->ch[c].user[1].closing;
}

/* Messages that are outstanding then, or, without datagrams, a peer that could not be told. */
bool sim_give_up_excuses(const struct sim_user *u, int err)
{
	if (!sim_peer_of(u)->closing)
		return false;
	return err == -ECANCELED ||
	       (err == -ENETDOWN && u->r->s->world.personality == DR_SIM_PLUGIN);
}

/* A close is not confirmed when the paths are not up in its time. */
void sim_give_up_collect(struct sim_run *r, unsigned c)
{
	const struct sim_user *tx = &r->ch[c].user[r->ch[c].user[0].sender ? 0 : 1];
	const struct sim_user *rx = sim_peer_of(tx);
	uint64_t done = sim_channel_of(tx)->fo.head, delivered = sim_channel_of(rx)->fo.head;

	if (!sim_given_up(r, c) || r->dead[0] || r->dead[1])
		return;
	for (unsigned end = 0; end < 2; end++) {
		const struct sim_user *u = &r->ch[c].user[end];

		if (u->dereg || (u->closing && !u->confirmed))
			return;
		if (u->err != -ESHUTDOWN && u->err != -ECANCELED)
			return;
	}
	if (done < delivered)
		sim_fail(r,
			"close: channel %u: %" PRIu64
			" messages are delivered, the sender fails %" PRIu64 " of them",
			c, delivered, delivered - done);
}
