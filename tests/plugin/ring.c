/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/ring.h"

#include <string.h>

/*
 * Each pair has a send buffer at the one end and a receive buffer at the other, both as long as the vector. A ring
 * sends the part that it has just received, so both buffers of a rank hold the vector; what arrives is copied from the
 * one to the other.
 */
enum { SLICES = 4 }; /* of a step, in flight at once */

/* ---- open, close ---- */

/* The first one between ranks 0 and 1; another one for further pairs. */
static int device(const struct ring *g, unsigned peer)
{
	return (int)(DR_MAX(peer, g->id) - 1) % g->e.ndev;
}

static void connect_all(struct ring *g)
{
	struct end *e = &g->e;
	struct handle own, theirs[RANKS_MAX];
	void *listening[RANKS_MAX] = { NULL };
	unsigned left = 2 * (g->n - 1), turns = 0;

	for (unsigned i = 0; i < g->n; i++)
		if (i != g->id) {
			listening[i] = end_listen(e, device(g, i), &own);
			rank_send(e->r, i, &own, sizeof(own));
		}
	for (unsigned i = 0; i < g->n; i++)
		if (i != g->id)
			rank_recv(e->r, i, &theirs[i], sizeof(theirs[i]));
	RANK_AT(e->r, "connect to all");
	while (left > 0) {
		for (unsigned i = 0; i < g->n; i++) {
			int dev = device(g, i);

			if (i == g->id)
				continue;
			if (!g->out[i] && (g->out[i] = end_try_connect(e, dev, &theirs[i])))
				left--;
			if (!g->in[i] && (g->in[i] = end_try_accept(e, listening[i]))) {
				OK(e, e->n.close_listen(listening[i]));
				left--;
			}
		}
		rank_relax(&turns);
	}
}

void ring_open(struct ring *g, struct rank *r, size_t bytes)
{
	size_t unit = (size_t)r->n * RING_BLOCKS * SLICES;

	memset(g, 0, sizeof(*g));
	g->n = r->n;
	g->id = r->id;
	g->count = (bytes / sizeof(uint32_t) + unit - 1) / unit * unit;
	end_open(&g->e, r);
	connect_all(g);
	for (unsigned i = 0; i < g->n; i++)
		if (i != g->id) {
			mem_new(&g->e, &g->send[i], g->out[i], g->count * sizeof(uint32_t));
			mem_new(&g->e, &g->recv[i], g->in[i], g->count * sizeof(uint32_t));
		}
}

void ring_close(struct ring *g)
{
	for (unsigned i = 0; i < g->n; i++)
		if (i != g->id) {
			mem_free(&g->e, &g->send[i]);
			mem_free(&g->e, &g->recv[i]);
			end_close_comm(&g->e, g->out[i], true);
			end_close_comm(&g->e, g->in[i], false);
		}
	end_close(&g->e);
}

/* ---- messages ---- */

struct flight {
	void *send[RANKS_MAX * SLICES], *recv[RANKS_MAX * SLICES];
	struct dr_nccl_buffer out[RANKS_MAX * SLICES];
	struct dr_nccl_buffer in[RANKS_MAX * SLICES][RING_BLOCKS];
	unsigned to[RANKS_MAX * SLICES], from[RANKS_MAX * SLICES];
	unsigned n_send, n_recv, n_in; /* n_in: buffers of a receive */
};

/* One turn for one request: posts it, or tests it. Adds to *left unless it is done. */
static enum nccl_result turn_send(struct ring *g, struct flight *f, unsigned i, unsigned *left)
{
	const struct dr_nccl *n = &g->e.n;
	enum nccl_result rc;
	int done = 0;

	if (!f->out[i].data)
		return NCCL_SUCCESS;
	if (!f->send[i]) {
		*left += 1;
		return dr_nccl_isend(n, g->out[f->to[i]], &f->out[i], &f->send[i]);
	}
	rc = n->test(f->send[i], &done, NULL);
	if (done)
		f->out[i].data = NULL;
	*left += !done;
	return rc;
}

static enum nccl_result turn_recv(struct ring *g, struct flight *f, unsigned i, unsigned *left)
{
	const struct dr_nccl *n = &g->e.n;
	int done = 0, sizes[64] = { 0 };
	enum nccl_result rc;

	if (!f->in[i][0].data)
		return NCCL_SUCCESS;
	if (!f->recv[i]) {
		*left += 1;
		return dr_nccl_irecv(n, g->in[f->from[i]], (int)f->n_in, f->in[i], &f->recv[i]);
	}
	rc = n->test(f->recv[i], &done, sizes);
	for (unsigned b = 0; b < f->n_in && done; b++)
		CHECK(&g->e, sizes[b] == (int)f->in[i][b].size, "%d bytes, expected %zu", sizes[b],
			f->in[i][b].size);
	if (done)
		f->in[i][0].data = NULL;
	*left += !done;
	return rc;
}

/* Until all are done; the requests of one comm are posted in their order. */
static enum nccl_result fly(struct ring *g, struct flight *f)
{
	unsigned left = 1, turns = 0;
	enum nccl_result rc = NCCL_SUCCESS;

	while (left > 0 && rc == NCCL_SUCCESS) {
		left = 0;
		for (unsigned i = 0; i < f->n_recv && rc == NCCL_SUCCESS; i++)
			if (i == 0 || f->from[i] != f->from[i - 1] || f->recv[i - 1])
				rc = turn_recv(g, f, i, &left);
			else
				left++;
		for (unsigned i = 0; i < f->n_send && rc == NCCL_SUCCESS; i++)
			if (i == 0 || f->to[i] != f->to[i - 1] || f->send[i - 1])
				rc = turn_send(g, f, i, &left);
			else
				left++;
		if (left > 0)
			rank_relax(&turns);
	}
	return rc;
}

/* ---- ring ---- */

static uint32_t value(uint64_t key, unsigned rank, size_t i)
{
	return (uint32_t)dr_mix64(key * 64 + rank + ((uint64_t)i << 24));
}

static unsigned next_of(const struct ring *g)
{
	return (g->id + 1) % g->n;
}

static unsigned prev_of(const struct ring *g)
{
	return (g->id + g->n - 1) % g->n;
}

/* Sends part `out` to the next rank and receives part `in` from the previous one. */
static enum nccl_result ring_step(struct ring *g, unsigned out, unsigned in)
{
	size_t part = g->count / g->n * sizeof(uint32_t), slice = part / SLICES;
	struct flight f = { .n_send = SLICES, .n_recv = SLICES, .n_in = 1 };

	for (unsigned i = 0; i < SLICES; i++) {
		f.to[i] = next_of(g);
		f.from[i] = prev_of(g);
		f.out[i] =
			mem_buffer(&g->send[next_of(g)], out * part + i * slice, slice, (int)g->id);
		f.in[i][0] = mem_buffer(
			&g->recv[prev_of(g)], in * part + i * slice, slice, (int)prev_of(g));
	}
	return fly(g, &f);
}

static uint32_t *to_send(struct ring *g)
{
	return (uint32_t *)(void *)g->send[next_of(g)].p;
}

static uint32_t *received(struct ring *g)
{
	return (uint32_t *)(void *)g->recv[prev_of(g)].p;
}

static void take_part(struct ring *g, unsigned part, bool add)
{
	size_t n = g->count / g->n, at = part * n;
	uint32_t *to = to_send(g), *from = received(g);

	for (size_t i = at; i < at + n; i++)
		to[i] = add ? to[i] + from[i] : from[i];
}

static enum nccl_result gather_parts(struct ring *g, unsigned own)
{
	enum nccl_result rc = NCCL_SUCCESS;

	for (unsigned s = 0; s + 1 < g->n && rc == NCCL_SUCCESS; s++) {
		unsigned out = (own + g->n - s) % g->n, in = (out + g->n - 1) % g->n;

		rc = ring_step(g, out, in);
		if (rc == NCCL_SUCCESS)
			take_part(g, in, false);
	}
	return rc;
}

enum nccl_result ring_all_reduce(struct ring *g, uint64_t key)
{
	uint32_t *v = to_send(g);
	enum nccl_result rc = NCCL_SUCCESS;

	RANK_AT(g->e.r, "all-reduce");
	for (size_t i = 0; i < g->count; i++)
		v[i] = value(key, g->id, i);
	for (unsigned s = 0; s + 1 < g->n && rc == NCCL_SUCCESS; s++) {
		unsigned out = (g->id + g->n - s) % g->n, in = (out + g->n - 1) % g->n;

		rc = ring_step(g, out, in);
		if (rc == NCCL_SUCCESS)
			take_part(g, in, true);
	}
	if (rc == NCCL_SUCCESS)
		rc = gather_parts(g, (g->id + 1) % g->n);
	for (size_t i = 0; i < g->count && rc == NCCL_SUCCESS; i++) {
		uint32_t sum = 0;

		for (unsigned r = 0; r < g->n; r++)
			sum += value(key, r, i);
		CHECK(&g->e, v[i] == sum, "element %zu of all-reduce %llu", i,
			(unsigned long long)key);
	}
	g->checked += rc == NCCL_SUCCESS ? g->count : 0;
	return rc;
}

/* ---- all-to-all ---- */

/* Element i of what `from` sends to `to`. */
static uint32_t personal(uint64_t key, unsigned from, unsigned to, size_t i)
{
	return value(key ^ (uint64_t)to << 32, from, i);
}

/* Blocks of different sizes, sent in another order than they are received. */
static size_t block_at(const struct ring *g, unsigned b)
{
	return g->count / g->n * b * (b + 1) / (RING_BLOCKS * (RING_BLOCKS + 1));
}

static void plan_exchange(struct ring *g, struct flight *f, uint64_t key)
{
	f->n_in = RING_BLOCKS;
	for (unsigned i = 0; i < g->n; i++) {
		if (i == g->id)
			continue;
		for (unsigned b = 0; b < RING_BLOCKS; b++) {
			unsigned k = (b + (unsigned)key) % RING_BLOCKS;
			size_t at = block_at(g, b), end = block_at(g, b + 1);
			size_t sent_at = block_at(g, k), sent_end = block_at(g, k + 1);

			f->in[f->n_recv][b] = mem_buffer(&g->recv[i], at * sizeof(uint32_t),
				(end - at) * sizeof(uint32_t), (int)b);
			f->to[f->n_send] = i;
			f->out[f->n_send++] = mem_buffer(&g->send[i], sent_at * sizeof(uint32_t),
				(sent_end - sent_at) * sizeof(uint32_t), (int)k);
		}
		f->from[f->n_recv++] = i;
	}
}

enum nccl_result ring_all_to_all(struct ring *g, uint64_t key)
{
	size_t n = g->count / g->n;
	struct flight f = { .n_send = 0 };
	enum nccl_result rc;

	RANK_AT(g->e.r, "all-to-all");
	for (unsigned r = 0; r < g->n; r++)
		for (size_t i = 0; i < n && r != g->id; i++)
			((uint32_t *)(void *)g->send[r].p)[i] = personal(key, g->id, r, i);
	plan_exchange(g, &f, key);
	rc = fly(g, &f);
	for (unsigned r = 0; r < g->n && rc == NCCL_SUCCESS; r++)
		for (size_t i = 0; i < n && r != g->id; i++)
			CHECK(&g->e,
				((uint32_t *)(void *)g->recv[r].p)[i] == personal(key, r, g->id, i),
				"element %zu from rank %u of all-to-all %llu", i, r,
				(unsigned long long)key);
	g->checked += rc == NCCL_SUCCESS ? n * (g->n - 1) : 0;
	return rc;
}
