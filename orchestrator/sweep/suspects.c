/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/sweep/suspects.h"

#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/*
 * Invariants
 *
 * 1. Tests of a node: at most one per round, so a node has at most as many as rounds, and the arrays are never full.
 * 2. A belief is the log odds that a node is bad. Messages of belief propagation stand in the tests, one per end; the belief
 *    of a node is the prior's log odds and the sum of the messages to it.
 * 3. Results of the search for links change no belief of a node.
 */
enum { SWEEPS = 12, LINK_TRIES = 8 };
static const double LOG_ODDS_MAX = 30.0, CLEARED = 0.5, LINK_CERTAIN = 0.999;

struct test {
	uint32_t node[2];
	bool known, bad;
	double message[2]; /* log likelihood ratio to node[k] */
};

struct dr_suspects {
	struct dr_suspects_setup setup;
	struct dr_rng rng;
	uint32_t round;			 /* begun */
	struct test *tests;		 /* of the search for nodes */
	uint32_t test_count, test_first; /* test_first: of the last round */
	double *belief;			 /* per node, log odds */
	uint32_t *order;		 /* nodes, for pairing */
	struct dr_suspects_pair *pairs;	 /* of the last round */
	uint32_t pair_count;
	bool *busy;
	double *link;	    /* log likelihood ratio of groups a < b, at a * groups + b */
	uint32_t *measured; /* pairs measured, same index */
	uint32_t link_rounds;
};

static double log_odds(double p)
{
	return log(p / (1 - p));
}

static double probability(double odds)
{
	return 1 / (1 + exp(-odds));
}

static bool in_range(double p)
{
	return p > 0 && p < 0.5;
}

static uint32_t group_size(const struct dr_suspects *s)
{
	return (s->setup.nodes + s->setup.groups - 1) / s->setup.groups;
}

static bool has_links(const struct dr_suspects *s)
{
	return s->setup.groups > 1;
}

int dr_suspects_create(struct dr_suspects **out, const struct dr_suspects_setup *setup)
{
	struct dr_suspects *s;
	uint32_t n = setup->nodes, links = setup->groups * setup->groups;

	if (n < 2 || setup->groups > n || setup->groups > DR_SUSPECTS_GROUPS_MAX ||
		setup->rounds < 1 || setup->rounds > DR_SUSPECTS_ROUNDS_MAX ||
		!in_range(setup->noise) || !in_range(setup->prior))
		return -EINVAL;
	s = dr_calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->setup = *setup;
	dr_rng_seed(&s->rng, setup->seed);
	s->tests = dr_calloc((size_t)setup->rounds * (n / 2), sizeof(*s->tests));
	s->belief = dr_calloc(n, sizeof(*s->belief));
	s->order = dr_calloc(n, sizeof(*s->order));
	s->pairs = dr_calloc(n / 2, sizeof(*s->pairs));
	s->busy = dr_calloc(n, sizeof(*s->busy));
	s->link = dr_calloc(links + 1, sizeof(*s->link));
	s->measured = dr_calloc(links + 1, sizeof(*s->measured));
	if (!s->tests || !s->belief || !s->order || !s->pairs || !s->busy || !s->link ||
		!s->measured) {
		dr_suspects_destroy(s);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++) {
		s->belief[i] = log_odds(setup->prior);
		s->order[i] = i;
	}
	*out = s;
	return 0;
}

void dr_suspects_destroy(struct dr_suspects *s)
{
	if (!s)
		return;
	dr_free(s->tests);
	dr_free(s->belief);
	dr_free(s->order);
	dr_free(s->pairs);
	dr_free(s->busy);
	dr_free(s->link);
	dr_free(s->measured);
	dr_free(s);
}

/* ---- beliefs ---- */

/* What a test tells node[k], if the other one is bad with the log odds that it has without this test. */
static double message(const struct dr_suspects *s, const struct test *t, double other)
{
	double e = s->setup.noise, p = probability(other);
	double bad = t->bad ? 1 - e : e; /* the result's probability if one of the two is bad */
	double good = t->bad ? e : 1 - e;

	return log(bad / (p * bad + (1 - p) * good));
}

static void propagate(struct dr_suspects *s)
{
	for (int sweep = 0; sweep < SWEEPS; sweep++)
		for (uint32_t i = 0; i < s->test_count; i++) {
			struct test *t = &s->tests[i];

			for (int k = 0; k < 2 && t->known; k++) {
				double *to = &s->belief[t->node[k]];
				double other = s->belief[t->node[!k]] - t->message[!k];

				*to -= t->message[k];
				t->message[k] = message(s, t, other);
				*to = fmax(-LOG_ODDS_MAX, fmin(LOG_ODDS_MAX, *to + t->message[k]));
			}
		}
}

/* ---- pairs ---- */

static void shuffle(struct dr_suspects *s)
{
	for (uint32_t i = s->setup.nodes - 1; i > 0; i--) {
		uint32_t j = (uint32_t)dr_rng_below(&s->rng, i + 1), x = s->order[i];

		s->order[i] = s->order[j];
		s->order[j] = x;
	}
}

/* Most suspicious first; equals stay shuffled. */
static void sort_by_belief(struct dr_suspects *s, uint32_t *spare, uint32_t first, uint32_t n)
{
	uint32_t half = n / 2, i = 0, j = half;

	if (n < 2)
		return;
	sort_by_belief(s, spare, first, half);
	sort_by_belief(s, spare, first + half, n - half);
	for (uint32_t k = 0; k < n; k++) {
		bool left = j == n || (i < half && s->belief[s->order[first + i]] >=
							   s->belief[s->order[first + j]]);

		spare[first + k] = s->order[first + (left ? i++ : j++)];
	}
	for (uint32_t k = 0; k < n; k++)
		s->order[first + k] = spare[first + k];
}

static void add_pair(struct dr_suspects *s, uint32_t a, uint32_t b)
{
	s->pairs[s->pair_count++] = (struct dr_suspects_pair){ a, b };
	s->busy[a] = s->busy[b] = true;
}

static void node_round(struct dr_suspects *s)
{
	uint32_t n = s->setup.nodes, *spare;

	shuffle(s);
	spare = s->setup.blind ? NULL : dr_calloc(n, sizeof(*spare));
	/* Without memory the pairs are random, which is worse and not wrong. */
	if (spare)
		sort_by_belief(s, spare, 0, n);
	dr_free(spare);
	for (uint32_t i = 0; i < n / 2; i++)
		add_pair(s, s->order[i], s->order[n - 1 - i]);
	s->test_first = s->test_count;
	for (uint32_t i = 0; i < s->pair_count; i++)
		s->tests[s->test_count++] =
			(struct test){ .node = { s->pairs[i].a, s->pairs[i].b } };
}

/* ---- links ---- */

static bool cleared(const struct dr_suspects *s, uint32_t node)
{
	return dr_suspects_node(s, node) < CLEARED;
}

/* A cleared node of the group that is in no pair of this round, at random; UINT32_MAX: none. */
static uint32_t free_node(struct dr_suspects *s, uint32_t group)
{
	uint32_t size = group_size(s), first = group * size,
		 at = (uint32_t)dr_rng_below(&s->rng, size);

	for (uint32_t i = 0; i < size; i++) {
		uint32_t node = first + (at + i) % size;

		if (node < s->setup.nodes && !s->busy[node] && cleared(s, node))
			return node;
	}
	return UINT32_MAX;
}

static bool add_link_pair(struct dr_suspects *s, uint32_t link)
{
	uint32_t a = free_node(s, link / s->setup.groups), b = free_node(s, link % s->setup.groups);

	if (a == UINT32_MAX || b == UINT32_MAX)
		return false;
	add_pair(s, a, b);
	return true;
}

/* Which of all pairs of groups is next: the most likely one, of equals the one measured least; tried ones are left out. */
static uint32_t likeliest(const struct dr_suspects *s, const bool *tried)
{
	uint32_t g = s->setup.groups, best = UINT32_MAX;

	for (uint32_t a = 0; a < g; a++)
		for (uint32_t b = a + 1; b < g; b++) {
			uint32_t i = a * g + b;

			if (tried[i])
				continue;
			if (best == UINT32_MAX || s->link[i] > s->link[best] ||
				(s->link[i] == s->link[best] && s->measured[i] < s->measured[best]))
				best = i;
		}
	return best;
}

/* Suspicious links get several pairs of nodes, then every link one while there are free nodes. */
static void link_round(struct dr_suspects *s)
{
	uint32_t g = s->setup.groups, link;
	bool *tried = dr_calloc((size_t)g * g, sizeof(*tried));

	s->link_rounds++;
	if (!tried)
		return;
	while (!s->setup.blind && (link = likeliest(s, tried)) != UINT32_MAX) {
		int pairs = s->link[link] > 0 ? LINK_TRIES : 1;

		tried[link] = true;
		while (pairs-- > 0 && add_link_pair(s, link))
			continue;
	}
	dr_free(tried);
	if (s->setup.blind) {
		shuffle(s);
		for (uint32_t i = 0; i + 1 < s->setup.nodes; i += 2)
			add_pair(s, s->order[i], s->order[i + 1]);
	}
}

static void link_result(struct dr_suspects *s, const struct dr_suspects_pair *p, bool bad)
{
	uint32_t a = p->a / group_size(s), b = p->b / group_size(s), i;
	double step = log_odds(1 - s->setup.noise);

	if (a == b || !cleared(s, p->a) || !cleared(s, p->b))
		return;
	i = (a < b ? a : b) * s->setup.groups + (a < b ? b : a);
	s->link[i] += bad ? step : -step;
	s->measured[i]++;
}

/* The search ends when a link is found, or none can be any more, and after 2 + log2(nodes) rounds. */
static bool links_over(const struct dr_suspects *s)
{
	uint32_t a, b, g = s->setup.groups, rounds_max = 2;

	for (uint32_t n = s->setup.nodes; n > 1; n /= 2)
		rounds_max++;
	if (s->link_rounds >= rounds_max || dr_suspects_link(s, &a, &b))
		return true;
	for (a = 0; a < g; a++)
		for (b = a + 1; b < g; b++)
			if (s->link[a * g + b] > -2 * log_odds(1 - s->setup.noise) + 1e-9)
				return false;
	return true;
}

/* ---- interface ---- */

/* The results of the first search count for links too, once it is known which nodes are bad. */
static void start_links(struct dr_suspects *s)
{
	for (uint32_t i = 0; i < s->test_count; i++) {
		const struct test *t = &s->tests[i];

		if (t->known)
			link_result(
				s, &(struct dr_suspects_pair){ t->node[0], t->node[1] }, t->bad);
	}
}

uint32_t dr_suspects_next(struct dr_suspects *s, struct dr_suspects_pair *out)
{
	s->pair_count = 0;
	for (uint32_t i = 0; i < s->setup.nodes; i++)
		s->busy[i] = false;
	propagate(s);
	if (s->round < s->setup.rounds) {
		node_round(s);
	} else if (has_links(s)) {
		if (s->round == s->setup.rounds)
			start_links(s);
		if (!links_over(s))
			link_round(s);
	}
	s->round += s->pair_count > 0;
	for (uint32_t i = 0; i < s->pair_count; i++)
		out[i] = s->pairs[i];
	return s->pair_count;
}

void dr_suspects_result(struct dr_suspects *s, uint32_t i, bool bad)
{
	dr_assert(i < s->pair_count);
	if (s->round <= s->setup.rounds) {
		s->tests[s->test_first + i].known = true;
		s->tests[s->test_first + i].bad = bad;
	} else {
		link_result(s, &s->pairs[i], bad);
	}
}

double dr_suspects_node(const struct dr_suspects *s, uint32_t node)
{
	dr_assert(node < s->setup.nodes);
	return probability(s->belief[node]);
}

bool dr_suspects_link(const struct dr_suspects *s, uint32_t *a, uint32_t *b)
{
	uint32_t g = s->setup.groups;
	double count = (double)g * (g - 1) / 2;

	for (*a = 0; *a < g; (*a)++)
		for (*b = *a + 1; *b < g; (*b)++)
			if (s->link[*a * g + *b] - log(count) > log_odds(LINK_CERTAIN))
				return true;
	return false;
}

uint32_t dr_suspects_rounds(const struct dr_suspects *s)
{
	return s->round;
}
