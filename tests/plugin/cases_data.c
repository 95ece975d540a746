/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Single messages: sizes, order, content, errors of use. One comm from rank 0 to rank 1. */

enum { KIB = 1024, MIB = 1024 * 1024 };

struct one {
	struct end e;
	bool sends;
	void *comm;
	struct mem m;
};

static void one_open(struct one *o, struct rank *r, size_t len)
{
	end_open(&o->e, r);
	o->sends = r->id == 0;
	o->comm = end_comm(&o->e, 0, 1, 0);
	mem_new(&o->e, &o->m, o->comm, len);
	RANK_AT(r, "messages");
}

static void one_close(struct one *o)
{
	mem_free(&o->e, &o->m);
	end_close_comm(&o->e, o->comm, o->sends);
	end_close(&o->e);
}

/* ---- sizes ---- */

/* What is sent into a receive of that capacity; bytes behind the message are not touched. */
static void pair_of_sizes(struct one *o, size_t sent, size_t cap)
{
	enum { MARGIN = 32 };
	struct end *e = &o->e;
	struct host_buffer b = mem_buffer(&o->m, MARGIN, o->sends ? sent : cap, 3);
	unsigned char *p = b.data;
	int got = -1;

	if (o->sends) {
		pattern_fill(p, sent, sent ^ cap << 32);
		end_wait(e, end_send(e, o->comm, &b), &got);
		CHECK(e, got == -1 || got == (int)sent, "sent %zu, test says %d", sent, got);
		return;
	}
	memset(o->m.p, 0x77, cap + 2 * MARGIN);
	end_wait(e, end_recv(e, o->comm, 1, &b), &got);
	CHECK(e, got == (int)sent, "%zu sent into %zu: test says %d", sent, cap, got);
	CHECK(e, pattern_check(p, sent, sent ^ cap << 32) == sent,
		"%zu sent into %zu: wrong at %zu", sent, cap,
		pattern_check(p, sent, sent ^ cap << 32));
	CHECK(e, all_bytes(o->m.p, MARGIN, 0x77), "%zu sent into %zu: bytes before", sent, cap);
	CHECK(e, all_bytes(p + sent, cap - sent + MARGIN, 0x77), "%zu sent into %zu: bytes behind",
		sent, cap);
}

static void sizes(struct rank *r)
{
	static const size_t of[] = { 0, 1, 2, 7, 8, 64, 127, 128, 129, 4 * KIB, 8 * KIB - 1,
		8 * KIB, 8 * KIB + 1, 16 * KIB, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 200000,
		512 * KIB - 1, 512 * KIB, 512 * KIB + 1, MIB, 2 * MIB + 17, 8 * MIB };
	static const size_t smaller[][2] = { { 0, 1 }, { 0, MIB }, { 1, MIB },
		{ 8 * KIB, 8 * KIB + 1 }, { 4 * KIB, 5 * KIB }, { 16 * KIB, 17 * KIB },
		{ MIB, 2 * MIB }, { 8 * KIB + 1, 4 * MIB }, { 512 * KIB + 1, 8 * MIB } };
	struct one o;

	one_open(&o, r, 8 * MIB + 4 * KIB);
	for (size_t i = 0; i < DR_ARRAY_LEN(of); i++)
		pair_of_sizes(&o, of[i], of[i]);
	for (size_t i = 0; i < DR_ARRAY_LEN(smaller); i++)
		pair_of_sizes(&o, smaller[i][0], smaller[i][1]);
	one_close(&o);
}

/* Not a multiple of anything, any place in the memory. SEED. */
static void random_sizes(struct rank *r)
{
	enum { MESSAGES = 150 };
	struct one o;

	one_open(&o, r, 4 * MIB);
	for (int i = 0; i < MESSAGES; i++) {
		size_t most = (size_t)1 << dr_rng_below(&r->common, 21);
		size_t sent = (size_t)dr_rng_below(&r->common, most);
		size_t cap = sent + (dr_rng_chance(&r->common, 1, 2)
						    ? 0
						    : (size_t)dr_rng_below(&r->common, most));

		pair_of_sizes(&o, sent, cap);
	}
	one_close(&o);
}

/* Without memory, as NCCL does for empty blocks: nothing is registered for them. */
static void zero_bytes(struct rank *r)
{
	struct host_buffer none = { .tag = 1 }, some;
	struct one o;

	one_open(&o, r, 64 * KIB);
	for (int i = 0; i < 40; i++) {
		int got = -1;

		some = i % 3 ? mem_buffer(&o.m, 0, i % 2 ? 64 * KIB : 5, 1) : none;
		if (o.sends && i % 3 == 1) /* an empty message into a buffer that is not */
			some.size = 0;
		end_wait(&o.e,
			o.sends ? end_send(&o.e, o.comm, &some) : end_recv(&o.e, o.comm, 1, &some),
			o.sends ? NULL : &got);
		CHECK(&o.e, o.sends || got == (i % 3 == 2 ? (int)some.size : 0), "message %d: %d",
			i, got);
	}
	one_close(&o);
}

/* ---- order ---- */

/* As many requests as the ABI allows, tested in any order at either end. */
static void any_order(struct rank *r)
{
	unsigned n = r->version == 6 ? NCCL_NET_REQUESTS_MAX_V6 : NCCL_NET_REQUESTS_MAX;
	enum { ROUNDS = 6, EACH = 80 * KIB };
	void *request[NCCL_NET_REQUESTS_MAX];
	size_t size[NCCL_NET_REQUESTS_MAX];
	struct one o;

	one_open(&o, r, NCCL_NET_REQUESTS_MAX * EACH);
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned left = n, turns = 0;

		for (unsigned i = 0; i < n; i++) {
			struct host_buffer b;
			bool small = dr_rng_chance(&r->common, 1, 2);

			size[i] = (size_t)dr_rng_below(&r->common, small ? 9 * KIB : EACH);
			b = mem_buffer(&o.m, i * EACH, size[i], 9);
			if (o.sends)
				pattern_fill(b.data, b.size, i);
			else
				memset(b.data, 0, EACH);
			request[i] = o.sends ? end_send(&o.e, o.comm, &b)
					     : end_recv(&o.e, o.comm, 1, &b);
		}
		while (left > 0) {
			unsigned i = (unsigned)dr_rng_below(&r->own, n);
			int got = -1;

			if (!request[i] || !end_test(&o.e, request[i], &got)) {
				rank_relax(&turns);
				continue;
			}
			request[i] = NULL;
			left--;
			if (o.sends)
				continue;
			CHECK(&o.e, got == (int)size[i], "request %u: %d bytes of %zu", i, got,
				size[i]);
			CHECK(&o.e, pattern_check(o.m.p + i * EACH, size[i], i) == size[i],
				"request %u of %zu bytes", i, size[i]);
		}
	}
	one_close(&o);
}

static void sizes_null(struct rank *r)
{
	struct one o;

	one_open(&o, r, 64 * KIB);
	for (int i = 0; i < 20; i++) {
		struct host_buffer b = mem_buffer(&o.m, 0, i % 2 ? 64 * KIB : 64, 0);

		if (o.sends)
			pattern_fill(o.m.p, b.size, (uint64_t)i);
		end_wait(&o.e, o.sends ? end_send(&o.e, o.comm, &b) : end_recv(&o.e, o.comm, 1, &b),
			NULL);
		CHECK(&o.e, pattern_check(o.m.p, b.size, (uint64_t)i) == b.size, "message %d", i);
	}
	one_close(&o);
}

/* LL and LL128: NCCL needs no completion, but a request that can be tested, and the data in place. */
static void optional_completion(struct rank *r)
{
	struct one o;

	one_open(&o, r, 128 * KIB);
	for (int i = 0; i < 20; i++) {
		struct host_buffer b = mem_buffer(&o.m, 0, i % 2 ? 128 * KIB : 4 * KIB, 0);
		void *request = NULL;
		unsigned turns = 0;

		if (o.sends) {
			pattern_fill(o.m.p, b.size, (uint64_t)i);
			end_wait(&o.e, end_send(&o.e, o.comm, &b), NULL);
			continue;
		}
		while (!request) {
			request = NCCL_NET_OPTIONAL_RECV_COMPLETION;
			OK(&o.e, host_recv(&o.e.h, o.comm, 1, &b, &request));
			CHECK(&o.e, request != NCCL_NET_OPTIONAL_RECV_COMPLETION,
				"the request is the hint");
		}
		/* A GPU looks at the memory itself, whatever test says. */
		RANK_AT(r, "data in place");
		end_wait(&o.e, request, NULL);
		while (pattern_check(o.m.p, b.size, (uint64_t)i) != b.size)
			rank_relax(&turns);
	}
	one_close(&o);
}

/* Only host memory: nothing to flush, at once or as a request. */
static void flush(struct rank *r)
{
	struct one o;

	one_open(&o, r, 4 * KIB);
	for (int i = 0; i < 4; i++) {
		struct host_buffer b = mem_buffer(&o.m, 0, 1000, 0);
		void *request = (void *)(uintptr_t)0xbad, *data = b.data, *mh = b.mhandle;
		int size = 1000;

		if (o.sends) {
			end_wait(&o.e, end_send(&o.e, o.comm, &b), NULL);
			continue;
		}
		end_wait(&o.e, end_recv(&o.e, o.comm, 1, &b), NULL);
		OK(&o.e, o.e.h.flush(o.comm, 1, &data, &size, &mh, &request));
		CHECK(&o.e, request != (void *)(uintptr_t)0xbad, "iflush did not set the request");
		if (request)
			end_wait(&o.e, request, NULL);
	}
	one_close(&o);
}

/* ---- a send longer than the receive ---- */

/* Until the comm gives an error, in a call of its own or for the request. */
static void until_error(struct end *e, void *comm, bool sends, void *request, struct host_buffer *b)
{
	int64_t end = dr_now_ns() + 10 * DR_NS_PER_S;
	enum nccl_result rc = NCCL_SUCCESS;
	unsigned turns = 0;

	RANK_AT(e->r, "wait for the error");
	while (rc == NCCL_SUCCESS && dr_now_ns() < end) {
		int done = 0;

		if (request) {
			rc = e->h.test(request, &done, NULL);
			if (done)
				request = NULL;
		} else {
			rc = sends ? host_send(&e->h, comm, b, &request)
				   : host_recv(&e->h, comm, 1, b, &request);
		}
		rank_relax(&turns);
	}
	CHECK(e, rc != NCCL_SUCCESS, "no error in time");
	CHECK(e, rc == NCCL_INVALID_USAGE || rc == NCCL_REMOTE_ERROR, "%s", host_result_name(rc));
}

static void too_long(struct rank *r)
{
	static const size_t of[][2] = { { 512, 511 }, { 1, 0 }, { 9 * KIB, 8 * KIB },
		{ 17 * KIB, 16 * KIB }, { 2 * MIB, MIB }, { 2 * MIB, 100 } };
	struct end e;

	end_open(&e, r);
	for (size_t i = 0; i < DR_ARRAY_LEN(of); i++) {
		bool sends = r->id == 0;
		void *comm = end_comm(&e, 0, 1, 0), *request;
		struct host_buffer b;
		struct mem m;
		char text[120];

		mem_new(&e, &m, comm, 2 * MIB + 4 * KIB);
		b = mem_buffer(&m, 0, of[i][sends ? 0 : 1], 40 + (int)i);
		memset(m.p, sends ? 1 : 0, m.len);
		request = sends ? end_send(&e, comm, &b) : end_recv(&e, comm, 1, &b);
		until_error(&e, comm, sends, request, &b);
		CHECK(&e, sends || all_bytes(m.p + b.size, m.len - b.size, 0),
			"bytes behind the receive were written");
		snprintf(text, sizeof(text),
			sends ? "a message of %zu bytes is longer than the peer's buffer of %zu (tag %zu)"
			      : "a message of %zu bytes came for a buffer of %zu (tag %zu)",
			of[i][0], of[i][1], 40 + i);
		CHECK(&e, host_logged(&r->view->log, NCCL_LOG_WARN, text) > 0, "no warning has: %s",
			text);
		mem_free(&e, &m);
		end_close_comm(&e, comm, sends);
		rank_barrier(r);
	}
	end_close_both(&e);
}

/* ---- memory ---- */

struct registrar {
	struct one *o;
	atomic_bool stop;
	unsigned long n;
};

static void *register_often(void *arg)
{
	struct registrar *g = arg;

	while (!atomic_load(&g->stop)) {
		struct mem m[3];

		for (int i = 0; i < 3; i++) {
			mem_map(&g->o->e, &m[i], (size_t)(i + 1) * 100000);
			OK(&g->o->e, host_reg(&g->o->e.h, g->o->comm, m[i].p, m[i].len,
					     NCCL_PTR_HOST, &m[i].mhandle));
		}
		for (int i = 0; i < 3; i++) {
			OK(&g->o->e, g->o->e.h.dereg(g->o->comm, m[i].mhandle));
			mem_unmap(&m[i]);
		}
		g->n++;
	}
	return NULL;
}

/* User buffers are registered by NCCL's service thread while the progress thread sends. */
static void register_in_thread(struct rank *r)
{
	struct registrar g = { .n = 0 };
	struct one o;
	pthread_t t;

	one_open(&o, r, MIB);
	g.o = &o;
	CHECK(&o.e, pthread_create(&t, NULL, register_often, &g) == 0, "thread");
	for (uint64_t i = 0; i < 60; i++) {
		struct host_buffer b = mem_buffer(&o.m, 0, i % 2 ? MIB : 3000, 0);

		if (o.sends)
			pattern_fill(o.m.p, b.size, i);
		end_wait(&o.e, o.sends ? end_send(&o.e, o.comm, &b) : end_recv(&o.e, o.comm, 1, &b),
			NULL);
		CHECK(&o.e, pattern_check(o.m.p, b.size, i) == b.size, "message %llu",
			(unsigned long long)i);
	}
	atomic_store(&g.stop, true);
	pthread_join(t, NULL);
	CHECK(&o.e, g.n > 0, "nothing was registered meanwhile");
	one_close(&o);
}

/* Overlapping and odd ranges; what cannot be registered is an error with a NULL handle, and nothing worse. */
static void registrations(struct rank *r)
{
	void *first = NULL, *second = NULL, *none = (void *)(uintptr_t)0xbad;
	struct host_buffer b;
	struct one o;

	one_open(&o, r, 100000);
	OK(&o.e, host_reg(&o.e.h, o.comm, o.m.p + 1, 50001, NCCL_PTR_HOST, &first));
	OK(&o.e, host_reg(&o.e.h, o.comm, o.m.p + 4097, 60000, NCCL_PTR_HOST, &second));
	CHECK(&o.e, host_reg(&o.e.h, o.comm, o.m.p, 4096, NCCL_PTR_CUDA, &none) != NCCL_SUCCESS,
		"host memory as GPU memory");
	CHECK(&o.e, none == NULL, "the handle was not set");
	b = (struct host_buffer){ o.m.p + 4097, second, 60000, 0 };
	if (o.sends)
		pattern_fill(b.data, b.size, 1);
	OK(&o.e, o.e.h.dereg(o.comm, first));
	end_wait(&o.e, o.sends ? end_send(&o.e, o.comm, &b) : end_recv(&o.e, o.comm, 1, &b), NULL);
	CHECK(&o.e, pattern_check(b.data, b.size, 1) == b.size, "wrong data");
	OK(&o.e, o.e.h.dereg(o.comm, second));
	one_close(&o);
}

static const struct contract_case cases[] = {
	{ .name = "message_sizes", .run = sizes, .ranks = 2, .each = true },
	{ .name = "random_sizes", .run = random_sizes, .ranks = 2 },
	{ .name = "zero_bytes", .run = zero_bytes, .ranks = 2, .each = true },
	{ .name = "any_order", .run = any_order, .ranks = 2, .each = true },
	{ .name = "sizes_null", .run = sizes_null, .ranks = 2, .each = true },
	{ .name = "optional_completion",
		.run = optional_completion,
		.ranks = 2,
		.from = 9,
		.each = true },
	{ .name = "flush", .run = flush, .ranks = 2, .each = true },
	{ .name = "too_long", .run = too_long, .ranks = 2 },
	{ .name = "register_in_thread", .run = register_in_thread, .ranks = 2 },
	{ .name = "registrations", .run = registrations, .ranks = 2, .each = true },
};
const struct contract_cases contract_data = { cases, DR_ARRAY_LEN(cases) };
