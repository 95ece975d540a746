/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include <stdlib.h>
#include <string.h>

/*
 * Receives of several buffers. The k-th send of a tag belongs to the k-th buffer of that tag; sends of different tags
 * may come in any order, within a group and a little ahead of it. One comm from rank 0 to rank 1; both ranks draw the
 * same groups.
 */
enum { BUFFERS = 8, GROUPS = 12, BYTES = 300 * 1024, DEPTH = 4, TURNS = 300 };

struct message {
	int tag;
	size_t size, cap;
	uint64_t key;
	size_t place;
	void *request;
	bool sent, done;
};
struct group {
	unsigned n;
	struct message of[BUFFERS]; /* as received */
	unsigned order[BUFFERS];    /* as sent: indices of `of` */
	void *request;
};
struct talk {
	struct end e;
	bool sends;
	void *comm;
	struct mem m;
	struct group g[GROUPS];
	unsigned n;
};

/* ---- drawing ---- */

struct rules {
	unsigned n;    /* buffers in a group; 0: drawn */
	unsigned tags; /* different ones; 0: all different */
	bool shuffled, sizes;
};

static size_t draw_size(struct dr_rng *rng)
{
	switch (dr_rng_below(rng, 4)) {
	case 0:
		return 0;
	case 1:
		return (size_t)dr_rng_below(rng, 500);
	case 2:
		return (size_t)dr_rng_below(rng, 20000);
	default:
		return (size_t)dr_rng_below(rng, BYTES);
	}
}

static void shuffle(struct dr_rng *rng, unsigned *order, unsigned n)
{
	for (unsigned i = n; i > 1; i--) {
		unsigned j = (unsigned)dr_rng_below(rng, i), t = order[i - 1];

		order[i - 1] = order[j];
		order[j] = t;
	}
}

/* Equal tags keep their order: the k-th of a tag among the drawn places is its k-th buffer. */
static void keep_tag_order(struct group *g)
{
	bool used[BUFFERS] = { false };

	for (unsigned i = 0; i < g->n; i++) {
		int tag = g->of[g->order[i]].tag;
		unsigned b = 0;

		while (g->of[b].tag != tag || used[b])
			b++;
		used[b] = true;
		g->order[i] = b;
	}
}

static void draw(struct talk *t, const struct rules *rules)
{
	struct dr_rng *rng = &t->e.r->common;

	t->n = GROUPS;
	for (unsigned i = 0; i < t->n; i++) {
		struct group *g = &t->g[i];

		memset(g, 0, sizeof(*g));
		g->n = rules->n ? rules->n : 1 + (unsigned)dr_rng_below(rng, BUFFERS);
		for (unsigned b = 0; b < g->n; b++) {
			struct message *m = &g->of[b];

			m->tag = (int)(rules->tags ? dr_rng_below(rng, rules->tags) : b) * 1000;
			m->size = rules->sizes ? draw_size(rng) : 1000;
			m->cap = m->size + (dr_rng_chance(rng, 1, 3) ? 77 : 0);
			m->key = i * BUFFERS + b;
			m->place = (size_t)m->key * (BYTES + 4096);
			g->order[b] = b;
		}
		if (rules->shuffled) {
			shuffle(rng, g->order, g->n);
			keep_tag_order(g);
		}
	}
}

/* ---- sending ---- */

/* A tag of which an earlier message could not be sent yet has to wait. */
static bool try_send(struct talk *t, struct message *m)
{
	struct host_buffer b = mem_buffer(&t->m, m->place, m->size, m->tag);

	m->request = (void *)(uintptr_t)0xbad;
	OK(&t->e, host_send(&t->e.h, t->comm, &b, &m->request));
	m->sent = m->request != NULL;
	return m->sent;
}

/* One turn over the groups from `first` on, as NCCL's progress thread does for several proxies. */
static unsigned send_turn(struct talk *t, unsigned first)
{
	int waiting[GROUPS * BUFFERS];
	unsigned n_waiting = 0, left = 0;

	for (unsigned i = first; i < t->n && i < first + DEPTH; i++)
		for (unsigned k = 0; k < t->g[i].n; k++) {
			struct message *m = &t->g[i].of[t->g[i].order[k]];
			bool held = false;

			for (unsigned w = 0; w < n_waiting; w++)
				held = held || waiting[w] == m->tag;
			if (!m->sent && (held || !try_send(t, m)))
				waiting[n_waiting++] = m->tag;
			if (m->sent && !m->done)
				m->done = end_test(&t->e, m->request, NULL);
			left += !m->done && i == first;
		}
	return left;
}

static void send_all(struct talk *t, bool late)
{
	char token = 'l';
	unsigned turns = 0;

	RANK_AT(t->e.r, "send groups");
	if (late) { /* as far as it goes without any receive */
		for (unsigned i = 0; i < TURNS; i++) {
			(void)send_turn(t, 0);
			rank_relax(&turns);
		}
		rank_send(t->e.r, 1, &token, 1);
	} else {
		rank_recv(t->e.r, 1, &token, 1);
	}
	for (unsigned first = 0; first < t->n;) {
		if (send_turn(t, first) == 0)
			first++;
		else
			rank_relax(&turns);
	}
}

/* ---- receiving ---- */

static void post(struct talk *t, struct group *g)
{
	struct host_buffer b[BUFFERS];

	for (unsigned i = 0; i < g->n; i++) {
		b[i] = mem_buffer(&t->m, g->of[i].place, g->of[i].cap, g->of[i].tag);
		memset(b[i].data, 0, g->of[i].cap);
	}
	g->request = end_recv(&t->e, t->comm, (int)g->n, b);
}

static void check(struct talk *t, unsigned i)
{
	struct group *g = &t->g[i];
	int sizes[64];

	memset(sizes, 0, sizeof(sizes)); /* as NCCL */
	end_wait(&t->e, g->request, sizes);
	for (unsigned b = 0; b < g->n; b++) {
		struct message *m = &g->of[b];

		CHECK(&t->e, sizes[b] == (int)m->size, "group %u of %u, buffer %u: %d bytes of %zu",
			i, g->n, b, sizes[b], m->size);
		CHECK(&t->e, pattern_check(t->m.p + m->place, m->size, m->key) == m->size,
			"group %u of %u, buffer %u (tag %d, %zu bytes): not what was sent", i, g->n,
			b, m->tag, m->size);
	}
	for (unsigned b = g->n; b < DR_ARRAY_LEN(sizes); b++)
		CHECK(&t->e, sizes[b] == 0, "entry %u of sizes was written", b);
}

static void receive_all(struct talk *t, bool late)
{
	char token = 'e';
	unsigned posted = 0;

	RANK_AT(t->e.r, "receive groups");
	if (late)
		rank_recv(t->e.r, 0, &token, 1);
	for (unsigned i = 0; i < t->n; i++) {
		while (posted < t->n && posted < i + DEPTH)
			post(t, &t->g[posted++]);
		if (i == 0 && !late)
			rank_send(t->e.r, 0, &token, 1);
		check(t, i);
	}
}

static void talk(struct rank *r, const struct rules *rules, unsigned n_rules)
{
	static struct talk t;

	memset(&t, 0, sizeof(t));
	end_open(&t.e, r);
	t.sends = r->id == 0;
	t.comm = end_comm(&t.e, 0, 1, 0);
	mem_new(&t.e, &t.m, t.comm, (size_t)GROUPS * BUFFERS * (BYTES + 4096));
	for (unsigned i = 0; i < 2 * n_rules; i++) {
		atomic_store(&r->view->step, i);
		draw(&t, &rules[i / 2]);
		for (unsigned g = 0; g < t.n && t.sends; g++)
			for (unsigned b = 0; b < t.g[g].n; b++)
				pattern_fill(t.m.p + t.g[g].of[b].place, t.g[g].of[b].size,
					t.g[g].of[b].key);
		if (t.sends)
			send_all(&t, i % 2);
		else
			receive_all(&t, i % 2);
		rank_barrier(r);
	}
	mem_free(&t.e, &t.m);
	end_close_comm(&t.e, t.comm, t.sends);
	end_close(&t.e);
}

/* ---- cases: each with early and with late receives ---- */

static void groups(struct rank *r)
{
	static const struct rules rules[] = { { .n = 1 }, { .n = 2, .shuffled = true },
		{ .n = 3, .shuffled = true }, { .n = 5, .shuffled = true },
		{ .n = 8, .shuffled = true } };

	talk(r, rules, DR_ARRAY_LEN(rules));
}

static void groups_equal_tags(struct rank *r)
{
	static const struct rules rules[] = { { .n = 8, .tags = 1, .shuffled = true },
		{ .n = 8, .tags = 2, .shuffled = true }, { .n = 5, .tags = 3, .shuffled = true } };

	talk(r, rules, DR_ARRAY_LEN(rules));
}

static void groups_mixed(struct rank *r)
{
	static const struct rules rules[] = { { .sizes = true, .shuffled = true },
		{ .tags = 2, .sizes = true, .shuffled = true },
		{ .tags = 4, .sizes = true, .shuffled = true },
		{ .n = 8, .sizes = true, .shuffled = true } };

	talk(r, rules, DR_ARRAY_LEN(rules));
}

/* More buffers than maxRecvs, or none, is an error and no request. */
static void groups_too_many(struct rank *r)
{
	struct host_buffer b[16];
	void *comm, *request = (void *)(uintptr_t)0xbad;
	struct mem m;
	struct end e;

	end_open(&e, r);
	comm = end_comm(&e, 0, 1, 0);
	mem_new(&e, &m, comm, 4096);
	for (int i = 0; i < 16; i++)
		b[i] = mem_buffer(&m, 0, 16, i);
	if (r->id == 1) {
		struct host_properties p;

		OK(&e, host_properties(&e.h, 0, &p));
		CHECK(&e, host_recv(&e.h, comm, p.max_recvs + 1, b, &request) != NCCL_SUCCESS,
			"maxRecvs + 1 buffers");
		CHECK(&e, request == NULL, "the request was not set");
		CHECK(&e, host_recv(&e.h, comm, 0, b, &request) != NCCL_SUCCESS, "no buffers");
	}
	rank_barrier(r);
	mem_free(&e, &m);
	end_close_comm(&e, comm, r->id == 0);
	end_close(&e);
}

static const struct contract_case cases[] = {
	{ .name = "groups", .run = groups, .ranks = 2 },
	{ .name = "groups_equal_tags", .run = groups_equal_tags, .ranks = 2 },
	{ .name = "groups_mixed", .run = groups_mixed, .ranks = 2, .each = true },
	{ .name = "groups_too_many", .run = groups_too_many, .ranks = 2, .each = true },
};
const struct contract_cases contract_group = { cases, DR_ARRAY_LEN(cases) };
