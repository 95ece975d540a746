/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/mem.h"
#include "channel/channel_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * The users of the channels: keep their windows full, take back what is done, and check, each time,
 *
 *  - content and length by (seed, channel, seq, part): nothing lost, doubled, reordered, corrupted;
 *  - that a buffer that comes back is posted on no path, whatever that path would do with it; it is
 *    scribbled over, and the simulator knows that it is the user's now;
 *  - that a send completes after its delivery;
 *  - that the gap which a receiver reports is the one that its user saw.
 */

static const int64_t STEADY_NS = 250 * DR_NS_PER_MS;

static uint64_t word(const struct sim_run *r, unsigned c, uint64_t seq, unsigned part, size_t i)
{
	return dr_mix64(r->s->seed ^ ((uint64_t)c << 56) ^ (seq << 16) ^ ((uint64_t)part << 12)) +
	       i;
}

static uint32_t part_len(const struct sim_run *r, unsigned c, uint64_t seq, unsigned part)
{
	return 8 * (1 + (uint32_t)(word(r, c, seq, part, 77) % (SIM_PART_MAX / 8)));
}

static uint8_t *part_addr(const struct sim_user *u, uint64_t seq, unsigned part)
{
	return u->mem + ((seq % u->r->s->window) * SIM_PARTS_MAX + part) * SIM_PART_MAX;
}

/* ---- what the channels tell ---- */

static void check_gap(const struct sim_user *u, const struct dr_switch_record *rec)
{
	struct sim_run *r = u->r;
	const struct sim_channel *c = &r->ch[u->channel];
	int64_t t[] = { rec->last_delivery_ns, rec->detect_ns, rec->fenced_ns, rec->answer_ns,
		rec->first_frame_ns, rec->first_delivery_ns };

	for (size_t i = 1; i < DR_ARRAY_LEN(t); i++)
		if (t[i] < t[i - 1])
			sim_fail(r, "gap: channel %u epoch %u: part %zu of the gap is negative",
				u->channel, rec->epoch, i);
	if (rec->idle)
		return;
	if (t[0] != c->gap_from_ns || t[5] != c->gap_to_ns)
		sim_fail(r,
			"gap: channel %u epoch %u: %" PRId64 " to %" PRId64
			" ns are reported, %" PRId64 " to %" PRId64 " are true",
			u->channel, rec->epoch, t[0], t[5], c->gap_from_ns, c->gap_to_ns);
	sim_cover.gaps++;
	sim_cover.worst_gap_ns = DR_MAX(sim_cover.worst_gap_ns, (uint64_t)(t[5] - t[0]));
}

/* Where the other rail is never touched: a switch takes fences, a few round trips and no timers. */
static void check_bound(const struct sim_user *u, const struct dr_switch_record *rec)
{
	struct sim_run *r = u->r;
	int64_t ns = rec->answer_ns - rec->detect_ns;

	if (r->s->steady && rec->rounds == 1 && ns > STEADY_NS)
		sim_fail(r, "bound: channel %u %s: %.3f ms from detection to ANSWER", u->channel,
			u->sender ? "sender" : "receiver", SIM_MS(ns));
}

static void on_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	const struct sim_user *u;
	struct sim_run *r;

	(void)arg;
	if (sim_is_visitor(ch))
		return;
	u = sim_user_of(ch);
	r = u->r;
	sim_say(r, "channel %u %s: epoch %u path %u -> %u %s (%s), gap %.3f ms, rounds %u",
		u->channel, u->sender ? "sender" : "receiver", rec->epoch, rec->from, rec->to,
		rec->planned ? "failback" : "switch", rec->cause,
		SIM_MS(rec->first_delivery_ns - rec->last_delivery_ns), rec->rounds);
	sim_cover.switches += !rec->planned;
	sim_cover.failbacks += rec->planned;
	sim_cover.replayed += rec->replayed_messages;
	sim_cover.rounds += rec->rounds > 1;
	r->next_burst_ns = DR_MIN(r->next_burst_ns, dr_sim_world_now(r->w) + 50 * DR_NS_PER_US);
	if (!rec->planned && rec->self_detected)
		*(u->sender ? &sim_cover.self_tx : &sim_cover.self_rx) += 1;
	sim_switch_recorded(u, rec);
	check_bound(u, rec);
	if (!u->sender)
		check_gap(u, rec);
}

static void on_completed(
	void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now)
{
	const struct sim_user *u;
	struct sim_channel *c;

	(void)arg, (void)seq, (void)bytes;
	if (sim_is_visitor(ch) || ch->prm.sender)
		return;
	u = sim_user_of(ch);
	c = &u->r->ch[u->channel];
	if (c->tap[u->end].epoch != c->epoch) {
		sim_switch_delivered(u, c->tap[u->end].epoch, c->tap[u->end].path);
		c->gap_from_ns = c->last_ns != 0
					 ? c->last_ns
					 : sim_worker_of(u->r, u->channel, u->end)->start_ns;
		c->gap_to_ns = now;
	}
	c->last_ns = now;
}

static void on_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now)
{
	struct sim_user *u;
	struct sim_run *r;

	(void)arg, (void)now;
	if (sim_is_visitor(ch)) {
		sim_visit_failed(ch, err, text);
		return;
	}
	u = sim_user_of(ch);
	r = u->r;
	sim_say(r, "channel %u end %u failed: %s", u->channel, u->end, text);
	if (u->err != 0)
		sim_fail(r, "outcome: channel %u end %u failed twice", u->channel, u->end);
	if (err == -ESHUTDOWN)
		sim_fail(r, "close: channel %u end %u reports a close as an error", u->channel,
			u->end);
	u->err = err;
	u->died_ns = dr_sim_world_now(r->w);
	sim_cover.deaths++;
	sim_judge_death(u, err, text);
}

static void on_protection(void *arg, struct dr_channel *ch, bool prot, unsigned path, int64_t now)
{
	(void)arg, (void)ch, (void)path, (void)now;
	sim_cover.protections += prot;
}

static void on_silence(void *arg, bool stalled, int64_t ns, int64_t now)
{
	(void)arg, (void)ns, (void)now;
	sim_cover.stalls += stalled;
}

const struct dr_manager_ops sim_app_ops = {
	.channel = { .switched = on_switched,
		.protection = on_protection,
		.failed = on_failed,
		.completed = on_completed },
	.silence = on_silence,
};

/* ---- messages ---- */

static int test(void *ctx, uint64_t seq)
{
	return dr_channel_test(sim_channel_of(ctx), seq);
}

static void check_content(const struct sim_user *u, uint64_t seq)
{
	struct sim_run *r = u->r;

	for (unsigned i = 0; i < r->ch[u->channel].parts; i++) {
		uint32_t len = part_len(r, u->channel, seq, i);
		const uint64_t *p = (void *)part_addr(u, seq, i);

		if (dr_channel_received_len(sim_channel_of(u), seq, i) != len)
			sim_fail(r,
				"content: channel %u seq %" PRIu64
				" part %u: %u bytes instead of %u",
				u->channel, seq, i,
				dr_channel_received_len(sim_channel_of(u), seq, i), len);
		for (size_t k = 0; k < len / 8; k++)
			if (p[k] != word(r, u->channel, seq, i, k)) {
				sim_fail(r, "content: channel %u seq %" PRIu64 " part %u at %zu",
					u->channel, seq, i, k * 8);
				return;
			}
	}
}

static int consume(void *ctx, uint64_t seq)
{
	struct sim_user *u = ctx;
	struct sim_run *r = u->r;
	const struct sim_user *peer = sim_peer_of(u);

	if (seq != u->done)
		sim_fail(r, "order: channel %u end %u: seq %" PRIu64 " after %" PRIu64, u->channel,
			u->end, seq, u->done);
	if (!u->sender) {
		check_content(u, seq);
		sim_cover.messages++;
	} else if (peer->done <= seq && !dr_fo_done(&sim_channel_of(peer)->fo, seq)) {
		sim_fail(r, "word: channel %u: seq %" PRIu64 " completed before it was delivered",
			u->channel, seq);
	}
	for (unsigned i = 0; i < r->ch[u->channel].parts; i++) {
		uint8_t *p = part_addr(u, seq, i);

		dr_sim_world_check_idle(r->w, u->end, p, SIM_PART_MAX);
		memset(p, 0xdb, SIM_PART_MAX);
		dr_sim_world_give_back(r->w, p, SIM_PART_MAX);
	}
	u->done++;
	return 0;
}

static const struct dr_window_ops window_ops = { test, consume };

static void post_one(struct sim_user *u, int64_t now)
{
	struct sim_run *r = u->r;
	struct dr_span s[SIM_PARTS_MAX];
	uint64_t seq = u->posted, got;
	unsigned n = r->ch[u->channel].parts;
	int rc;

	for (unsigned i = 0; i < n; i++) {
		uint8_t *p = part_addr(u, seq, i);
		uint32_t len = u->sender ? part_len(r, u->channel, seq, i) : SIM_PART_MAX;

		dr_sim_world_take(r->w, p, SIM_PART_MAX);
		for (size_t k = 0; u->sender && k < len / 8; k++)
			((uint64_t *)(void *)p)[k] = word(r, u->channel, seq, i, k);
		s[i] = (struct dr_span){ &u->reg, (uint64_t)(p - u->mem), len, i };
	}
	rc = u->sender ? dr_channel_send(sim_channel_of(u), s, n, &got, now)
		       : dr_channel_recv(sim_channel_of(u), s, n, &got, now);
	if (rc == 0 && got == seq)
		rc = dr_window_push(&u->win, seq);
	else if (rc == 0)
		rc = -EPROTO;
	if (rc != 0)
		sim_fail(r, "order: channel %u end %u: post of seq %" PRIu64 " says %d", u->channel,
			u->end, seq, rc);
	u->posted++;
}

static void post_more(struct sim_user *u, int64_t now)
{
	struct sim_run *r = u->r;
	bool posted = false;

	if (!u->sender && r->s->pause_ns > 0 && dr_sim_world_now(r->w) < r->pause_until_ns &&
		dr_sim_world_now(r->w) >= r->s->pause_from_ns)
		return;
	while (u->posted < r->ch[u->channel].total && !dr_window_full(&u->win) && u->err == 0) {
		post_one(u, now);
		posted = true;
	}
	if (posted)
		dr_channel_flush(sim_channel_of(u), now);
}

static void step(struct sim_user *u, int64_t now)
{
	int rc = -1;

	if (!u->gone && u->err == 0)
		rc = dr_window_drain(&u->win);
	sim_give_up_step(u, now);
	if (rc >= 0 && !u->closing && u->err == 0)
		post_more(u, now);
}

void sim_app_step_user(struct sim_user *u)
{
	step(u, dr_sim_world_clock(u->r->w, u->end));
}

void sim_app_step(struct sim_worker *wk)
{
	struct sim_run *r = wk->r;
	int64_t now = dr_sim_world_clock(r->w, wk->end);

	for (unsigned c = wk->k; c < r->s->n_channels; c += r->s->n_managers)
		step(&r->ch[c].user[wk->end], now);
	sim_visit_step(wk);
}

static bool failback_is_near(struct sim_run *r)
{
	for (unsigned c = 0; c < r->s->n_channels && r->s->failback; c++) {
		const struct sim_user *u = &r->ch[c].user[r->ch[c].user[0].sender ? 0 : 1];
		const struct dr_fo *f = &sim_channel_of(u)->fo;

		if (f->active == 1 && f->path[0].state == DR_FOP_READY)
			return true;
	}
	return false;
}

void sim_app_offer(struct sim_run *r, int64_t now)
{
	int64_t gap;

	if (now < r->next_burst_ns)
		return;
	gap = now - r->last_fault_ns < 2 * DR_NS_PER_MS ? r->s->dense_ns
	      : failback_is_near(r)			? DR_NS_PER_MS
							: r->s->sparse_ns;
	if (r->faults_over && now >= r->traffic_until_ns && (!r->s->wait_failback || r->healed)) {
		r->next_burst_ns = DR_NEVER;
		return;
	}
	r->next_burst_ns = now + 1 + (int64_t)dr_rng_below(&r->rng, 2 * (uint64_t)gap);
	for (unsigned c = 0; c < r->s->n_channels; c++) {
		struct sim_channel *a = &r->ch[c];
		uint64_t done = DR_MIN(a->user[0].done, a->user[1].done);

		if ((r->s->idle & (1u << c)) && !r->faults_over)
			continue;
		if (a->total < done + 2 * r->s->window)
			a->total += dr_rng_below(&r->rng, r->s->window / 2 + 2);
	}
}

/* ---- begin and end ---- */

void sim_app_setup(struct sim_run *r)
{
	size_t size = (size_t)r->s->window * SIM_PARTS_MAX * SIM_PART_MAX;

	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++) {
			struct sim_user *u = &r->ch[c].user[end];
			struct dr_memory m;
			struct dr_err e;
			int rc;

			u->r = r;
			u->channel = c;
			u->end = end;
			u->sender = r->s->sender[c] == (end == 0);
			u->mem = dr_calloc(1, size);
			dr_assert(u->mem != NULL);
			rc = dr_window_init(&u->win, r->s->window, &window_ops, u);
			dr_assert(rc == 0);
			m = (struct dr_memory){ .base = u->mem, .len = size };
			rc = dr_channel_mem_reg(sim_channel_of(u), &m, &u->reg, &e);
			dr_assert(rc == 0);
			r->ch[c].parts = r->s->parts[c];
			r->ch[c].total = r->s->idle & (1u << c) ? 0 : r->s->first_messages;
			sim_cover.two_part += end == 0 && r->ch[c].parts > 1;
		}
}

void sim_app_dereg(struct sim_run *r, unsigned c, unsigned end)
{
	struct sim_user *u = &r->ch[c].user[end];

	if (u->closing)
		return;
	if (u->posted == u->done) { /* so that there is something in it */
		r->ch[c].total++;
		step(u, dr_sim_world_clock(r->w, end));
	}
	/* Or the peer has closed it, which the user has not noticed yet. */
	if (u->gone || u->err != 0 || u->posted == u->done ||
		dr_channel_ready(sim_channel_of(u)) < 0)
		return;
	u->gone = u->dereg = true;
	if (dr_channel_mem_dereg(sim_channel_of(u), &u->reg, dr_sim_world_clock(r->w, end), NULL) !=
		0)
		sim_fail(r, "outcome: channel %u end %u: memory cannot be deregistered", c, end);
	dr_sim_world_give_back(r->w, u->mem, (size_t)r->s->window * SIM_PARTS_MAX * SIM_PART_MAX);
	if (u->err != -ECANCELED)
		sim_fail(r, "outcome: channel %u end %u: memory is gone and it says %d", c, end,
			u->err);
}

/* Without datagrams a channel that ends tells its peer on its paths alone. Where these are broken at the
 * other end, or are dropped with what was just queued, nobody tells it. Only where one end alone had a
 * reason: elsewhere both find out by themselves. Before READY the owner of a channel ends the session. */
static bool untold(const struct sim_user *u)
{
	const struct sim_run *r = u->r;
	const struct sim_user *peer = sim_peer_of(u);

	if (!r->was_ready && peer->err != 0 && u->err == 0)
		return true;
	return r->s->world.personality == DR_SIM_PLUGIN &&
	       (peer->err == -EIO || peer->err == -ECANCELED || peer->err == -ESHUTDOWN) &&
	       u->err == 0 && dr_sim_world_now(r->w) > peer->died_ns + 2 * r->s->lost_after_ns;
}

static bool user_over(const struct sim_user *u)
{
	if (untold(u))
		return true;
	if (sim_given_up(u->r, u->channel))
		return u->err != 0 || u->r->dead[u->end];
	return u->done == u->r->ch[u->channel].total || u->err != 0 || u->r->dead[u->end];
}

bool sim_app_over(const struct sim_run *r)
{
	for (unsigned c = 0; c < r->s->n_channels; c++)
		if (!user_over(&r->ch[c].user[0]) || !user_over(&r->ch[c].user[1]))
			return false;
	return true;
}

bool sim_app_healed(struct sim_run *r, unsigned rail_mask)
{
	for (unsigned c = 0; c < r->s->n_channels; c++) {
		const struct sim_user *u = r->ch[c].user;

		if (u[0].err != 0 || u[1].err != 0 || r->dead[0] || r->dead[1])
			continue;
		for (unsigned i = 0; i < DR_PATHS; i++) {
			const struct dr_fo_path *a = &sim_channel_of(&u[0])->fo.path[i],
						*b = &sim_channel_of(&u[1])->fo.path[i];

			if (!(rail_mask & (1u << sim_rail_of_path(r, c, i))) ||
				sim_quarantined(r, c, 0, i) || sim_quarantined(r, c, 1, i))
				continue;
			if (a->state != DR_FOP_READY || b->state != DR_FOP_READY ||
				a->gen != b->gen || a->rail_down || b->rail_down)
				return false;
		}
	}
	return true;
}

bool sim_app_back(struct sim_run *r)
{
	for (unsigned c = 0; c < r->s->n_channels; c++) {
		const struct sim_user *u = r->ch[c].user;

		if (u[0].err == 0 && u[1].err == 0 && !r->dead[0] && !r->dead[1] &&
			!sim_quarantined(r, c, 0, 0) && !sim_quarantined(r, c, 1, 0) &&
			sim_channel_of(&u[u[0].sender ? 0 : 1])->fo.active != 0)
			return false;
	}
	return true;
}

/* Only outages of the other rail: a switch fences the path once at most, where it leaves it. */
static void check_kept(struct sim_run *r, unsigned c)
{
	const struct sim_fault *f = r->s->fault;
	unsigned bad = 0;

	if (!r->s->steady || r->s->world.personality != DR_SIM_STREAM || r->s->n_faults == 0 ||
		sim_given_up(r, c))
		return;
	while (bad < r->s->n_faults - 1 && (r->s->without & (1u << bad)))
		bad++;
	for (unsigned end = 0; end < 2; end++) {
		const struct dr_fo *fo = &sim_channel_of(&r->ch[c].user[end])->fo;

		if (fo->path[r->s->primary[c] == f[bad].rail].gen > fo->epoch)
			sim_fail(r,
				"kept: channel %u end %u: the path that never failed was dialled again",
				c, end);
	}
}

static void collect_channel(struct sim_run *r, unsigned c, uint64_t *refused)
{
	const struct sim_channel *a = &r->ch[c];

	for (unsigned end = 0; end < 2; end++) {
		const struct sim_user *u = &a->user[end], *peer = &a->user[!end];
		const struct dr_fo *fo = &sim_channel_of(u)->fo;
		struct dr_channel_stats s;

		dr_channel_stats(sim_channel_of(u), &s);
		sim_cover.duplicates += s.duplicates_dropped;
		sim_cover.stale += fo->stale_dropped;
		sim_cover.heals += s.heals;
		sim_cover.untold += untold(u);
		if (!u->sender)
			*refused += s.duplicates_dropped + fo->stale_dropped;
		if (u->err != 0 && peer->err == 0 && peer->done < a->total && !r->dead[!end] &&
			!untold(peer) && r->fail[0] == '\0')
			sim_fail(r, "outcome: channel %u: end %u ended, the other did not", c, end);
	}
	/* ABORT may be lost with the queue of the path that is closed behind it. */
	sim_cover.unlike += a->user[0].err != 0 && a->user[1].err != 0 &&
			    (a->user[0].err == -ECANCELED) != (a->user[1].err == -ECANCELED);
	check_kept(r, c);
	sim_switch_collect(r, c);
	sim_give_up_collect(r, c);
	sim_cover.idle += r->s->idle >> c & 1;
}

void sim_app_collect(struct sim_run *r)
{
	uint64_t refused = 0;

	for (unsigned c = 0; c < r->s->n_channels; c++)
		collect_channel(r, c, &refused);
	if (dr_sim_world_counts(r->w)->dups > refused)
		sim_fail(r, "twice: %" PRIu64 " completions came twice, %" PRIu64 " were refused",
			dr_sim_world_counts(r->w)->dups, refused);
	if (dr_sim_world_violations(r->w) != 0)
		sim_fail(r, "memory: %s", dr_sim_world_violation(r->w));
}

void sim_app_fini(struct sim_run *r)
{
	for (unsigned c = 0; c < r->s->n_channels; c++)
		for (unsigned end = 0; end < 2; end++)
			dr_free(r->ch[c].user[end].mem);
}
