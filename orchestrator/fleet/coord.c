/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fleet/coord.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 *  1. A node is in at most one running pair.
 *  2. A pair runs only while both nodes are present, and until each has told the end of its part.
 *     So a dead node is lost before a failure with it counts: that pair is MISSING.
 *  3. A node that was lost may join again; its MISSING pairs are then measured after the other
 *     rounds.
 *  4. Every wait has a deadline, so that a sweep ends whatever nodes do.
 *
 * Memory is linear in nodes and in the pairs that were begun. A round costs its pairs; a lookup
 * among the results of an earlier sweep is a binary search.
 */

int dr_coord_init(struct dr_coord *c, const struct dr_coord_opts *o, int64_t now_ns)
{
	dr_assert(o->nodes >= 2);
	*c = (struct dr_coord){ .o = *o, .until_ns = now_ns + o->join_ns };
	c->here = dr_calloc(o->nodes, sizeof(*c->here));
	c->pairs = dr_calloc(o->nodes / 2 + 1, sizeof(*c->pairs));
	c->round = dr_calloc(o->nodes / 2 + 1, sizeof(*c->round));
	if (c->here && c->pairs && c->round)
		return 0;
	dr_coord_fini(c);
	return -ENOMEM;
}

void dr_coord_fini(struct dr_coord *c)
{
	for (size_t i = 0; i < c->n_results; i++)
		dr_sweep_result_fini(&c->result[i]);
	dr_free(c->result);
	dr_free(c->here);
	dr_free(c->pairs);
	dr_free(c->round);
	dr_free(c->action);
	memset(c, 0, sizeof(*c));
}

bool dr_coord_is_here(const struct dr_coord *c, uint32_t rank)
{
	return rank < c->o.nodes && c->here[rank];
}

/* ---- actions ---- */

static void act(
	struct dr_coord *c, enum dr_coord_act what, uint32_t rank, uint32_t result, bool client)
{
	struct dr_coord_action *grown;

	if (c->action_head == c->action_n)
		c->action_head = c->action_n = 0;
	grown = dr_grow(c->action, &c->action_cap, c->action_n + 1, sizeof(*grown));
	if (!grown) {
		c->failed = true;
		return;
	}
	c->action = grown;
	c->action[c->action_n++] = (struct dr_coord_action){ what, rank, result, client };
}

bool dr_coord_next(struct dr_coord *c, struct dr_coord_action *out)
{
	if (c->action_head == c->action_n)
		return false;
	*out = c->action[c->action_head++];
	return true;
}

/* ---- results ---- */

static struct dr_sweep_result *add(struct dr_coord *c, struct dr_sweep_pair pair)
{
	struct dr_sweep_result *grown =
		dr_grow(c->result, &c->results_cap, c->n_results + 1, sizeof(*grown));

	if (!grown) {
		c->failed = true;
		return NULL;
	}
	c->result = grown;
	c->result[c->n_results] = (struct dr_sweep_result){ .pair = pair,
		.state = DR_SWEEP_MISSING,
		.exit_code = -1,
		.rtt_us = NAN,
		.rtt_p99_us = NAN };
	return &c->result[c->n_results++];
}

struct dr_sweep_result *dr_coord_known(struct dr_coord *c, struct dr_sweep_pair pair)
{
	struct dr_sweep_result *r;

	dr_assert(c->phase == DR_COORD_JOINING && c->n_known == c->n_results);
	r = add(c, pair);
	if (r) {
		r->known = true;
		c->n_known++;
	}
	return r;
}

static uint64_t key_of(struct dr_sweep_pair p)
{
	return (uint64_t)DR_MIN(p.client, p.server) << 32 | DR_MAX(p.client, p.server);
}

static int by_pair(const void *a, const void *b)
{
	uint64_t x = key_of(((const struct dr_sweep_result *)a)->pair);
	uint64_t y = key_of(((const struct dr_sweep_result *)b)->pair);

	return x < y ? -1 : x > y;
}

static struct dr_sweep_result *find_known(struct dr_coord *c, struct dr_sweep_pair pair)
{
	const struct dr_sweep_result want = { .pair = pair };

	return c->n_known ? bsearch(&want, c->result, c->n_known, sizeof(want), by_pair) : NULL;
}

/* ---- rounds ---- */

static void begin(struct dr_coord *c, uint32_t i)
{
	struct dr_sweep_result *r = &c->result[i];

	r->again = false;
	r->round = c->rounds;
	r->client_done = r->server_done = !c->here[r->pair.client] || !c->here[r->pair.server];
	if (r->client_done)
		return;
	r->state = DR_SWEEP_RUNNING;
	r->known = false; /* it was MISSING there */
	r->attempts += r->attempts < UINT8_MAX;
	c->running++;
	act(c, DR_COORD_RUN, r->pair.server, i, false);
	act(c, DR_COORD_RUN, r->pair.client, i, true);
}

static void begin_round(struct dr_coord *c, int64_t now_ns)
{
	c->rounds++;
	c->until_ns = now_ns + c->o.pair_ns;
	for (uint32_t i = 0; i < c->n_round; i++)
		begin(c, c->round[i]);
}

static void over(struct dr_coord *c)
{
	c->phase = DR_COORD_OVER;
	c->until_ns = DR_NEVER;
	c->n_round = c->running = 0;
	act(c, DR_COORD_END, 0, 0, false);
}

/* The results of the pattern's next round: false, there is none. */
static bool pattern_round(struct dr_coord *c)
{
	uint32_t n = c->o.pattern->round(c->o.nodes, c->rounds, c->pairs);

	c->n_round = 0;
	for (uint32_t i = 0; i < n && !c->failed; i++) {
		struct dr_sweep_result *r = find_known(c, c->pairs[i]);

		if (!r)
			r = add(c, c->pairs[i]);
		if (r)
			c->round[c->n_round++] = (uint32_t)(r - c->result);
	}
	return n > 0;
}

/* Marked pairs whose nodes are there, as many as fit in a round. */
static bool again_round(struct dr_coord *c)
{
	uint8_t *busy = dr_calloc(c->o.nodes, 1);

	c->n_round = 0;
	for (size_t i = 0; busy && i < c->n_results; i++) {
		struct dr_sweep_pair p = c->result[i].pair;

		if (!c->result[i].again || !c->here[p.client] || !c->here[p.server] ||
			busy[p.client] || busy[p.server])
			continue;
		busy[p.client] = busy[p.server] = 1;
		c->round[c->n_round++] = (uint32_t)i;
	}
	c->failed = c->failed || !busy;
	dr_free(busy);
	return c->n_round > 0;
}

static void review(struct dr_coord *c, int64_t now_ns)
{
	c->phase = DR_COORD_REVIEW;
	c->until_ns = now_ns; /* the owner answers at once */
	c->n_round = 0;
	act(c, DR_COORD_LOOK, 0, 0, false);
}

/* Known results stay as they are, unless they are MISSING. */
static void drop_known(struct dr_coord *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->n_round; i++)
		if (!c->result[c->round[i]].known ||
			c->result[c->round[i]].state == DR_SWEEP_MISSING)
			c->round[n++] = c->round[i];
	c->n_round = n;
}

static void next_round(struct dr_coord *c, int64_t now_ns)
{
	while (c->running == 0 && !c->failed) {
		if (c->phase == DR_COORD_ROUND) {
			if (!pattern_round(c)) {
				review(c, now_ns);
				return;
			}
			drop_known(c);
		} else if (!again_round(c)) {
			review(c, now_ns);
			return;
		}
		begin_round(c, now_ns);
	}
	if (c->failed)
		over(c);
}

static void start(struct dr_coord *c, int64_t now_ns)
{
	if (c->n_known)
		qsort(c->result, c->n_known, sizeof(*c->result), by_pair);
	c->phase = DR_COORD_ROUND;
	if (c->present < 2)
		over(c);
	else
		next_round(c, now_ns);
}

enum dr_sweep_way dr_coord_way(const struct dr_coord *c)
{
	return c->reviewed < c->o.reviews    ? DR_SWEEP_BOTH_WAYS
	       : c->reviewed == c->o.reviews ? DR_SWEEP_TO_SERVER
					     : DR_SWEEP_TO_CLIENT;
}

void dr_coord_reviewed(struct dr_coord *c, int64_t now_ns)
{
	unsigned last = c->o.reviews + (c->o.alone ? 2 : 0);
	enum dr_sweep_way way = dr_coord_way(c);

	if (c->phase != DR_COORD_REVIEW) /* stopped after it had asked */
		return;
	if (c->reviewed++ >= last) {
		over(c);
		return;
	}
	for (size_t i = 0; i < c->n_results; i++) {
		struct dr_sweep_result *r = &c->result[i];

		/* Who has come back meanwhile. */
		r->again = r->again || (way == DR_SWEEP_BOTH_WAYS && r->state == DR_SWEEP_MISSING);
		r->way = (uint8_t)way;
	}
	c->phase = DR_COORD_AGAIN;
	if (again_round(c)) {
		begin_round(c, now_ns);
		next_round(c, now_ns);
	} else if (c->reviewed < last) {
		/* Nothing to repeat: on to the runs in one direction. */
		c->reviewed = DR_MAX(c->reviewed, c->o.reviews);
		review(c, now_ns);
	} else {
		over(c);
	}
}

/* ---- events ---- */

static void stop(struct dr_coord *c, const struct dr_sweep_result *r, bool client)
{
	uint32_t rank = client ? r->pair.client : r->pair.server;

	if (!(client ? r->client_done : r->server_done) && c->here[rank])
		act(c, DR_COORD_STOP, rank, (uint32_t)(r - c->result), client);
}

/* 2: the other part may wait for one that failed or was lost, so it is stopped. */
static void part_ended(struct dr_coord *c, struct dr_sweep_result *r, bool client)
{
	bool *done = client ? &r->client_done : &r->server_done;

	if (*done)
		return;
	*done = true;
	if (r->client_done && r->server_done)
		c->running--;
	else if (r->state == DR_SWEEP_FAILED || !c->here[client ? r->pair.client : r->pair.server])
		stop(c, r, !client);
}

bool dr_coord_expects(const struct dr_coord *c, uint32_t result, bool client)
{
	const struct dr_sweep_result *r = result < c->n_results ? &c->result[result] : NULL;

	return r && c->n_round && r->round == c->rounds &&
	       !(client ? r->client_done : r->server_done);
}

void dr_coord_done(struct dr_coord *c, uint32_t result, bool client, int64_t now_ns)
{
	struct dr_sweep_result *r = &c->result[result];

	if (!dr_coord_expects(c, result, client))
		return;
	if (client && r->state == DR_SWEEP_RUNNING)
		dr_sweep_fail(r, "the client's part ended without figures");
	part_ended(c, r, client);
	next_round(c, now_ns);
}

void dr_coord_joined(struct dr_coord *c, uint32_t rank, int64_t now_ns)
{
	if (c->here[rank] || c->phase == DR_COORD_OVER)
		return;
	c->here[rank] = 1;
	c->present++;
	if (c->phase == DR_COORD_JOINING && c->present == c->o.nodes)
		start(c, now_ns);
}

/* 2: a failure in the round in which the node was lost is its loss. */
static void lose_pair(struct dr_coord *c, struct dr_sweep_result *r, uint32_t rank)
{
	if (r->pair.client != rank && r->pair.server != rank)
		return;
	if (r->state == DR_SWEEP_RUNNING || r->state == DR_SWEEP_FAILED)
		r->state = r->n_lanes ? DR_SWEEP_OK : DR_SWEEP_MISSING;
	part_ended(c, r, r->pair.client == rank);
}

void dr_coord_lost(struct dr_coord *c, uint32_t rank, int64_t now_ns)
{
	if (!dr_coord_is_here(c, rank))
		return;
	c->here[rank] = 0;
	c->present--;
	if (c->phase != DR_COORD_ROUND && c->phase != DR_COORD_AGAIN)
		return;
	for (uint32_t i = 0; i < c->n_round; i++)
		lose_pair(c, &c->result[c->round[i]], rank);
	next_round(c, now_ns);
}

/* No more of this round is waited for. */
static void end_round(struct dr_coord *c, bool late)
{
	for (uint32_t i = 0; i < c->n_round; i++) {
		struct dr_sweep_result *r = &c->result[c->round[i]];

		if (r->client_done && r->server_done)
			continue;
		if (r->state == DR_SWEEP_RUNNING && late)
			dr_sweep_fail(r, "no result in time (--pair-timeout)");
		else if (r->state == DR_SWEEP_RUNNING)
			r->state = r->n_lanes ? DR_SWEEP_OK : DR_SWEEP_MISSING;
		stop(c, r, true);
		stop(c, r, false);
		r->client_done = r->server_done = true;
		c->running--;
	}
}

void dr_coord_stop(struct dr_coord *c)
{
	if (c->phase == DR_COORD_OVER)
		return;
	end_round(c, false);
	over(c);
}

void dr_coord_tick(struct dr_coord *c, int64_t now_ns)
{
	if (now_ns < c->until_ns)
		return;
	if (c->phase == DR_COORD_JOINING) {
		start(c, now_ns);
	} else if (c->phase == DR_COORD_ROUND || c->phase == DR_COORD_AGAIN) {
		end_round(c, true);
		next_round(c, now_ns);
	}
}

int64_t dr_coord_deadline(const struct dr_coord *c)
{
	return c->until_ns;
}
