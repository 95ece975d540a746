/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/run.h"

#include "base/mem.h"
#include "channel/channel_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/*
 * Visitors: channels that come and go in each manager while the other channels carry data, and while faults strike. An
 * end opens and starts its channel, before or after the other end has it; sends or receives some messages; gives it up,
 * when all is done or in the middle; and removes it. Then the next one comes, until the faults are over. Checked are
 *
 *  - content and order, and that a send completes after its delivery;
 *  - that it comes up, and that all its messages arrive, where nothing is wrong;
 *  - that each end may be removed 500 ms after its close, and that nothing touches its memory then;
 *  - and all that is checked of the channels beside it.
 */
enum { FIRST_ID = 1000, LEN = 64, WINDOW = 4, HANDLE_PATH = 6, HANDLE_NODE = 5, HANDLE_SENDER = 7 };
static const int64_t CLOSE_NS = 500 * DR_NS_PER_MS, STOOD_NS = 50 * DR_NS_PER_MS;
static const int64_t TURN_NS = 2 * DR_NS_PER_MS;
static const int64_t CALM_NS = 3 * DR_NS_PER_S;	    /* to come up, and for the messages */
static const int64_t PATIENCE_NS = 5 * DR_NS_PER_S; /* of a user whose messages do not arrive */

bool sim_is_visitor(const struct dr_channel *ch)
{
	return dr_channel_id(ch) >= FIRST_ID;
}

static struct sim_visitor *visitor_of(const struct dr_channel *ch)
{
	struct sim_worker *wk = ch->prm.arg;

	return &wk->r->visitor[wk->k];
}

static unsigned end_of(const struct dr_channel *ch)
{
	return ((const struct sim_worker *)ch->prm.arg)->end;
}

static struct sim_worker *worker_of(struct sim_run *r, const struct sim_visitor *v, unsigned end)
{
	return &r->wk[end][v->k];
}

static struct dr_channel *channel_of(struct sim_run *r, const struct sim_visitor *v, unsigned end)
{
	return dr_manager_channel_at(worker_of(r, v, end)->m, v->id);
}

static uint64_t word(const struct sim_run *r, const struct sim_visitor *v, uint64_t seq, size_t i)
{
	return dr_mix64(r->s->seed ^ ((uint64_t)v->id << 40) ^ (seq << 8) ^ v->k) + i;
}

static bool sends(const struct sim_visitor *v, unsigned end)
{
	return v->sender == end;
}

static uint8_t *slot(struct sim_visit_end *e, uint64_t seq)
{
	return e->mem + seq % WINDOW * LEN;
}

void sim_visit_failed(const struct dr_channel *ch, int err, const char *text)
{
	struct sim_visitor *v = visitor_of(ch);
	unsigned end = end_of(ch);
	struct sim_run *r = ((const struct sim_worker *)ch->prm.arg)->r;

	sim_say(r, "visitor %u end %u failed: %s", v->id, end, text);
	if (v->e[end].err != 0)
		sim_fail(r, "visitor: channel %u end %u failed twice", v->id, end);
	if (r->s->calm && v->e[!end].st != SIM_GONE && v->e[!end].st != SIM_CLOSING)
		sim_fail(r, "visitor: channel %u end %u failed without a cause: %s", v->id, end,
			text);
	v->e[end].err = err;
}

/* ---- an end ---- */

/* The peer's handle, from that of this end: nothing is learned from the peer before the dial. */
static struct dr_handle peer_handle(struct dr_channel *ch)
{
	struct dr_handle h;
	int rc = dr_channel_handle(ch, &h);
	unsigned at = 5;

	dr_assert(rc == 0);
	h.bytes[4] ^= 1;
	for (unsigned i = 0; i < DR_PATHS; i++) {
		h.bytes[at + 1 + HANDLE_NODE] ^= 1;
		h.bytes[at + 1 + HANDLE_SENDER] ^= 1;
		at += 1u + h.bytes[at];
	}
	return h;
}

static void open_end(struct sim_run *r, struct sim_visitor *v, unsigned end)
{
	struct dr_manager_channel spec = { v->primary, !v->primary, sends(v, end) };
	struct sim_visit_end *e = &v->e[end];
	struct sim_worker *wk = worker_of(r, v, end);
	int64_t now = dr_sim_world_clock(r->w, end);
	struct dr_handle h;
	struct dr_memory m = { .len = (size_t)WINDOW * LEN };
	struct dr_channel *ch;
	struct dr_err err = { 0 };
	int rc;

	e->mem = dr_calloc(WINDOW, LEN);
	dr_assert(e->mem);
	m.base = e->mem;
	rc = dr_manager_open_channel(wk->m, v->id, &spec, &ch, &err);
	if (rc == 0)
		rc = dr_channel_mem_reg(ch, &m, &e->reg, &err);
	if (rc == 0) {
		h = peer_handle(ch);
		rc = dr_channel_start(ch, &h, now, &err);
	}
	if (rc != 0)
		sim_fail(r, "visitor: channel %u end %u: %s", v->id, end, err.text);
	sim_say(r, "visitor %u end %u: opened", v->id, end);
	sim_cover.early_dials += end == 1 && v->e[0].st == SIM_ABSENT;
	e->st = SIM_HERE;
	e->since_ns = dr_sim_world_now(r->w);
}

static void check_content(struct sim_run *r, struct sim_visitor *v, unsigned end, uint64_t seq)
{
	const uint64_t *p = (void *)slot(&v->e[end], seq);

	for (size_t i = 0; i < LEN / 8; i++)
		if (p[i] != word(r, v, seq, i)) {
			sim_fail(r, "visitor: channel %u seq %" PRIu64 " at %zu: wrong content",
				v->id, seq, i * 8);
			return;
		}
}

static void take_back(struct sim_run *r, struct sim_visitor *v, unsigned end)
{
	struct sim_visit_end *e = &v->e[end];
	struct dr_channel *ch = channel_of(r, v, end);

	for (; e->done < e->posted && dr_channel_test(ch, e->done) == 1; e->done++) {
		uint8_t *p = slot(e, e->done);

		if (!sends(v, end))
			check_content(r, v, end, e->done);
		else if (v->e[!end].st != SIM_GONE && v->e[!end].done <= e->done &&
			 !dr_fo_done(&channel_of(r, v, !end)->fo, e->done))
			sim_fail(r,
				"visitor: channel %u: seq %" PRIu64 " completed before it arrived",
				v->id, e->done);
		dr_sim_world_check_idle(r->w, end, p, LEN);
		memset(p, 0xdb, LEN);
		dr_sim_world_give_back(r->w, p, LEN);
	}
}

static void post(struct sim_run *r, struct sim_visitor *v, unsigned end, int64_t now)
{
	struct sim_visit_end *e = &v->e[end];
	struct dr_channel *ch = channel_of(r, v, end);
	uint64_t seq;
	bool any = false;

	for (; e->posted < v->total && e->posted - e->done < DR_MIN((unsigned)WINDOW, r->s->window);
		e->posted++, any = true) {
		struct dr_span s = { .mem = &e->reg, .off = e->posted % WINDOW * LEN, .len = LEN };
		uint8_t *p = slot(e, e->posted);
		int rc;

		dr_sim_world_take(r->w, p, LEN);
		for (size_t i = 0; sends(v, end) && i < LEN / 8; i++)
			((uint64_t *)(void *)p)[i] = word(r, v, e->posted, i);
		rc = sends(v, end) ? dr_channel_send(ch, &s, 1, &seq, now)
				   : dr_channel_recv(ch, &s, 1, &seq, now);
		if (rc == 0 && seq == e->posted)
			continue;
		dr_sim_world_give_back(r->w, p, LEN);
		if (rc != -ESHUTDOWN)
			sim_fail(
				r, "visitor: channel %u end %u: a post returns %d", v->id, end, rc);
		return;
	}
	if (any)
		dr_channel_flush(ch, now);
}

/* Not in the middle of something unless that was drawn. */
static bool leaves(const struct sim_run *r, const struct sim_visitor *v, unsigned end)
{
	const struct sim_visit_end *e = &v->e[end], *peer = &v->e[!end];
	int64_t here = dr_sim_world_now(r->w) - e->since_ns;
	bool all = e->done == v->total &&
		   (peer->done == v->total || peer->st == SIM_CLOSING || peer->st == SIM_GONE);

	return e->err != 0 || all || here >= (v->rude ? v->stay_ns[end] : PATIENCE_NS) ||
	       r->dead[!end];
}

static void remove_end(struct sim_run *r, struct sim_visitor *v, unsigned end)
{
	struct sim_visit_end *e = &v->e[end];
	struct dr_channel *ch = channel_of(r, v, end);
	int64_t now = dr_sim_world_clock(r->w, end);
	size_t size = (size_t)WINDOW * LEN;
	int rc = dr_channel_mem_dereg(ch, &e->reg, now, NULL);
	int rc2 = dr_manager_remove_channel(worker_of(r, v, end)->m, ch, NULL);

	sim_say(r, "visitor %u end %u: removed", v->id, end);
	if ((rc != 0 || rc2 != 0) && dr_sim_world_counts(r->w)->stuck == 0)
		sim_fail(r, "visitor: channel %u end %u: removed with %d, %d", v->id, end, rc, rc2);
	e->st = SIM_GONE;
	sim_cover.removed++;
	if (rc != 0 || rc2 != 0)
		return; /* its memory is never returned */
	dr_sim_world_check_idle(r->w, end, e->mem, size);
	memset(e->mem, 0xdb, size);
	dr_sim_world_give_back(r->w, e->mem, size);
}

static void step_end(struct sim_run *r, struct sim_visitor *v, unsigned end)
{
	int64_t now = dr_sim_world_now(r->w), clock = dr_sim_world_clock(r->w, end);
	struct sim_visit_end *e = &v->e[end];
	struct dr_channel *ch = channel_of(r, v, end);

	if (e->st == SIM_ABSENT && now >= v->open_ns[end])
		open_end(r, v, end);
	if (e->st != SIM_HERE && e->st != SIM_CLOSING)
		return;
	ch = channel_of(r, v, end);
	take_back(r, v, end);
	if (e->err == 0 && dr_channel_ready(ch) == -ESHUTDOWN)
		e->err = -ESHUTDOWN;
	if (e->st == SIM_HERE && leaves(r, v, end)) {
		sim_say(r, "visitor %u end %u: closes after %" PRIu64 " of %" PRIu64, v->id, end,
			e->done, v->total);
		sim_cover.rude += e->done < v->total && e->err == 0;
		e->st = SIM_CLOSING;
		e->closed_ns = clock;
		e->since_ns = now;
		dr_channel_close(ch, clock);
		take_back(r, v, end);
	} else if (e->st == SIM_HERE) {
		post(r, v, end, clock);
	}
	if (e->st == SIM_CLOSING && dr_channel_closed(ch))
		remove_end(r, v, end);
}

/* ---- all ---- */

static void come(struct sim_run *r, struct sim_visitor *v, unsigned k, int64_t now)
{
	struct dr_rng *g = &r->visit_rng;
	uint32_t id = DR_MAX(v->id + 1, (uint32_t)FIRST_ID);
	/* Mostly soon one after the other; now and then a dial finds nobody for long. */
	int64_t apart = dr_rng_chance(g, 1, 5) ? 1500 * DR_NS_PER_MS : 2 * DR_NS_PER_MS;

	for (unsigned end = 0; end < 2; end++)
		dr_free(v->e[end].mem);
	*v = (struct sim_visitor){ .id = id,
		.k = k,
		.sender = (unsigned)dr_rng_below(g, 2),
		.primary = (unsigned)dr_rng_below(g, 2),
		.rude = dr_rng_chance(g, 1, 3),
		.total = dr_rng_below(g, 30) };
	for (unsigned end = 0; end < 2; end++) {
		v->open_ns[end] = now + (int64_t)dr_rng_below(g, 20 * DR_NS_PER_MS) +
				  (int64_t)dr_rng_below(g, (uint64_t)apart);
		v->stay_ns[end] = (int64_t)dr_rng_below(g, 100 * DR_NS_PER_MS);
	}
	sim_cover.visitors++;
}

static bool gone(const struct sim_run *r, const struct sim_visitor *v)
{
	for (unsigned end = 0; end < 2; end++)
		if (v->id != 0 && v->e[end].st != SIM_GONE && !r->dead[end])
			return false;
	return true;
}

void sim_visit_step(struct sim_worker *wk)
{
	struct sim_run *r = wk->r;
	struct sim_visitor *v = &r->visitor[wk->k];

	if (v->id != 0 && v->e[wk->end].st != SIM_GONE)
		step_end(r, v, wk->end);
}

static void watch(struct sim_run *r, struct sim_visitor *v, unsigned end)
{
	struct sim_worker *wk = worker_of(r, v, end);
	struct sim_visit_end *e = &v->e[end];
	int64_t now = dr_sim_world_now(r->w);
	int64_t since = DR_MAX(DR_MAX(e->since_ns, v->e[!end].since_ns), sim_all_run_ns(r));

	if (e->st == SIM_CLOSING && now > sim_stalled_until(wk) + STOOD_NS + TURN_NS &&
		dr_sim_world_clock(r->w, end) > e->closed_ns + CLOSE_NS + TURN_NS && e->err == 0)
		sim_fail(r, "visitor: channel %u end %u has not left after %.3f ms", v->id, end,
			SIM_MS(dr_sim_world_clock(r->w, end) - e->closed_ns));
	if (r->s->calm && !v->rude && e->st == SIM_HERE && v->e[!end].st == SIM_HERE &&
		now - since > CALM_NS)
		sim_fail(r,
			"visitor: channel %u end %u: %" PRIu64 " of %" PRIu64
			" messages after %.3f ms",
			v->id, end, e->done, v->total, SIM_MS(now - since));
}

/* Called in each turn: opens, closes and removes in time, whatever arrives. */
void sim_visit_run(struct sim_run *r, int64_t now)
{
	if (!r->s->visits || !r->was_ready || now < r->visit_due_ns)
		return;
	r->visit_due_ns = now + DR_NS_PER_MS;
	for (unsigned k = 0; k < r->s->n_managers; k++) {
		struct sim_visitor *v = &r->visitor[k];

		if (gone(r, v) && !r->faults_over)
			come(r, v, k, now);
		for (unsigned end = 0; end < 2 && v->id != 0; end++) {
			struct sim_worker *wk = worker_of(r, v, end);

			if (!sim_runs(wk) || v->e[end].st == SIM_GONE)
				continue;
			step_end(r, v, end);
			sim_touch(wk);
			watch(r, v, end);
		}
	}
}

int64_t sim_visit_next(const struct sim_run *r)
{
	return r->s->visits && r->was_ready && !sim_visit_over(r) ? r->visit_due_ns : DR_NEVER;
}

bool sim_visit_over(const struct sim_run *r)
{
	for (unsigned k = 0; k < r->s->n_managers; k++)
		if (!gone(r, &r->visitor[k]))
			return false;
	return !r->s->visits || r->faults_over;
}

void sim_visit_fini(struct sim_run *r)
{
	for (unsigned k = 0; k < SIM_MANAGERS_MAX; k++)
		for (unsigned end = 0; end < 2; end++)
			dr_free(r->visitor[k].e[end].mem);
}
