/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Single messages: sizes, order, content, errors of use. One comm from rank 0 to rank 1. */

enum { KIB = 1024, MIB = 1024 * 1024 };

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
		unsigned open[NCCL_NET_REQUESTS_MAX], left, turns = 0;

		for (left = 0; left < n; left++) {
			struct dr_nccl_buffer b;
			bool small = dr_rng_chance(&r->common, 1, 2);

			size[left] = (size_t)dr_rng_below(&r->common, small ? 9 * KIB : EACH);
			b = mem_buffer(&o.m, left * EACH, size[left], 9);
			if (o.sends)
				pattern_fill(b.data, b.size, left);
			else
				memset(b.data, 0, EACH);
			request[left] = o.sends ? end_send(&o.e, o.comm, &b)
						: end_recv(&o.e, o.comm, 1, &b);
			open[left] = left;
		}
		while (left > 0) {
			unsigned k = (unsigned)dr_rng_below(&r->own, left), i = open[k];
			int got = -1;

			if (!end_test(&o.e, request[i], &got)) {
				rank_relax(&turns);
				continue;
			}
			turns = 0;
			open[k] = open[--left];
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

/*
 * LL and LL128: NCCL needs no completion, but a request that can be tested, and the data in place. Between, empty
 * messages without memory, for which NCCL registers nothing, and into a buffer that is not empty. Nothing is to be flushed
 * in host memory: iflush ends at once or is a request.
 */
static void completion(struct rank *r)
{
	static const size_t sizes[][2] = { { 4 * KIB, 4 * KIB }, { 128 * KIB, 128 * KIB }, { 0, 0 },
		{ 64, 64 }, { 0, 64 * KIB } };
	struct one o;

	one_open(&o, r, 128 * KIB);
	for (uint64_t i = 0; i < 40; i++) {
		const size_t *size = sizes[i % DR_ARRAY_LEN(sizes)];
		bool hint = r->version >= 9 && i % 2;
		struct dr_nccl_buffer b = mem_buffer(&o.m, 0, size[!o.sends], 0);
		void *request = NULL;
		unsigned turns = 0;
		int got = 0;

		if (size[1] == 0)
			b = (struct dr_nccl_buffer){ .tag = 0 };
		if (o.sends && size[0])
			pattern_fill(o.m.p, size[0], i);
		if (o.sends)
			request = end_send(&o.e, o.comm, &b);
		for (; !request; rank_relax(&turns)) {
			request = hint ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;
			OK(&o.e, end_irecv_raw(&o.e, o.comm, 1, &b, &request));
			CHECK(&o.e, !hint || request != NCCL_NET_OPTIONAL_RECV_COMPLETION,
				"the request is the hint");
		}
		end_wait(&o.e, request, i % 3 ? &got : NULL);
		CHECK(&o.e, o.sends || i % 3 == 0 || hint || got == (int)size[0], "message %d: %d",
			(int)i, got);
		/* A GPU looks at the memory itself, whatever test says. */
		RANK_AT(r, "data in place");
		while (pattern_check(o.m.p, size[0], i) != size[0])
			rank_relax(&turns);
		if (o.sends || !size[0])
			continue;
		OK(&o.e, dr_nccl_flush(&o.e.n, o.comm, &b, &request));
		CHECK(&o.e, request != DR_NCCL_UNSET, "iflush did not set the request");
		if (request)
			end_wait(&o.e, request, NULL);
	}
	one_close(&o);
}

/* ---- a send longer than the receive ---- */

/* Until the comm gives an error, in a call of its own or for the request. */
static void until_error(
	struct end *e, void *comm, bool sends, void *request, struct dr_nccl_buffer *b)
{
	int64_t end = dr_now_ns() + 10 * DR_NS_PER_S;
	enum nccl_result rc = NCCL_SUCCESS;
	unsigned turns = 0;

	RANK_AT(e->r, "wait for the error");
	while (rc == NCCL_SUCCESS && dr_now_ns() < end) {
		int done = 0;

		if (request) {
			rc = e->n.test(request, &done, NULL);
			if (done)
				request = NULL;
		} else {
			rc = sends ? dr_nccl_isend(&e->n, comm, b, &request)
				   : dr_nccl_irecv(&e->n, comm, 1, b, &request);
		}
		rank_relax(&turns);
	}
	CHECK(e, rc != NCCL_SUCCESS, "no error in time");
	CHECK(e, rc == NCCL_INVALID_USAGE || rc == NCCL_REMOTE_ERROR, "%s",
		dr_nccl_result_name(rc));
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
		struct dr_nccl_buffer b;
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
			"a message of %zu bytes came for a buffer of %zu (tag %zu)", of[i][0],
			of[i][1], 40 + i);
		if (sends)
			snprintf(text, sizeof(text), "a message is longer than the peer's buffer");
		CHECK(&e, rank_logged(r, NCCL_LOG_WARN, text) > 0, "no warning has: %s", text);
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

		for (int i = 0; i < 3; i++)
			mem_new(&g->o->e, &m[i], g->o->comm, (size_t)(i + 1) * 100000);
		for (int i = 0; i < 3; i++)
			mem_free(&g->o->e, &m[i]);
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
	for (uint64_t i = 0; i < 60; i++)
		end_checked(&o.e, &o.m, i % 2 ? MIB : 3000, o.sends, i);
	atomic_store(&g.stop, true);
	pthread_join(t, NULL);
	CHECK(&o.e, g.n > 0, "nothing was registered meanwhile");
	one_close(&o);
}

/* Overlapping and odd ranges; what cannot be registered is an error with a NULL handle, and nothing worse. */
static void registrations(struct rank *r)
{
	struct dr_nccl_buffer first, b;
	void *none = DR_NCCL_UNSET;
	struct one o;

	one_open(&o, r, 100000);
	first = (struct dr_nccl_buffer){ .data = o.m.p + 1, .size = 50001 };
	b = (struct dr_nccl_buffer){ .data = o.m.p + 4097, .size = 60000 };
	OK(&o.e, dr_nccl_reg(&o.e.n, o.comm, &first, NCCL_PTR_HOST));
	OK(&o.e, dr_nccl_reg(&o.e.n, o.comm, &b, NCCL_PTR_HOST));
	if (r->version >= 8) {
		CHECK(&o.e,
			o.e.n.reg_mr.wide(o.comm, o.m.p, 4096, NCCL_PTR_CUDA, &none) !=
				NCCL_SUCCESS,
			"host memory as GPU memory");
		CHECK(&o.e, none == NULL, "the handle was not set");
	}
	if (o.sends)
		pattern_fill(b.data, b.size, 1);
	OK(&o.e, o.e.n.dereg_mr(o.comm, first.mhandle));
	(void)end_message(&o.e, o.comm, o.sends, &b);
	CHECK(&o.e, pattern_check(b.data, b.size, 1) == b.size, "wrong data");
	OK(&o.e, o.e.n.dereg_mr(o.comm, b.mhandle));
	one_close(&o);
}

/* A receive of several large messages is done when each of them is. */
static void groups(struct rank *r)
{
	enum { N = 3 };
	struct dr_nccl_buffer b[N];
	void *request[N];
	int got[N];
	struct one o;

	one_open(&o, r, (size_t)N * MIB);
	for (int i = 0; i < N; i++) {
		b[i] = mem_buffer(&o.m, (size_t)i * MIB, MIB, i);
		if (o.sends)
			pattern_fill(b[i].data, MIB, (uint64_t)i);
	}
	if (!o.sends)
		request[0] = end_recv(&o.e, o.comm, N, b);
	for (int i = N; o.sends && i-- > 0;)
		request[i] = end_send(&o.e, o.comm, &b[i]);
	for (int i = 0; i < (o.sends ? N : 1); i++)
		end_wait(&o.e, request[i], o.sends ? NULL : got);
	for (int i = 0; !o.sends && i < N; i++)
		CHECK(&o.e, got[i] == MIB && pattern_check(b[i].data, MIB, (uint64_t)i) == MIB,
			"message %d: %d bytes", i, got[i]);
	one_close(&o);
}

/* A buffer outside of its registration, a wrong comm or device: an error and no request. */
static void outside(struct rank *r)
{
	enum { AT = 4096, LEN = 4096 };
	static const struct {
		int at, len;
	} bad[] = { { -1, 16 }, { LEN, 16 }, { LEN - 15, 16 }, { 0, LEN + 1 } };
	struct dr_nccl_buffer own, b[2];
	enum nccl_result rc;
	void *none = NULL;
	struct one o;

	one_open(&o, r, 3 * LEN);
	own = (struct dr_nccl_buffer){ .data = o.m.p + AT, .size = LEN };
	OK(&o.e, dr_nccl_reg(&o.e.n, o.comm, &own, NCCL_PTR_HOST));
	for (size_t i = 0; i <= DR_ARRAY_LEN(bad); i++) {
		struct dr_nccl_buffer *of = &b[!o.sends];
		void *request = DR_NCCL_UNSET;

		b[0] = b[1] = own;
		if (i < DR_ARRAY_LEN(bad)) {
			of->data = (unsigned char *)own.data + bad[i].at;
			of->size = (size_t)bad[i].len;
		} else {
			of->mhandle = NULL;
		}
		rc = o.sends ? dr_nccl_isend(&o.e.n, o.comm, of, &request)
			     : end_irecv_raw(&o.e, o.comm, 2, b, &request);
		CHECK(&o.e, rc == NCCL_INVALID_ARGUMENT && !request, "buffer %zu", i);
	}
	rc = o.sends ? dr_nccl_irecv(&o.e.n, o.comm, 1, &own, &none)
		     : dr_nccl_isend(&o.e.n, o.comm, &own, &none);
	CHECK(&o.e, rc == NCCL_INVALID_ARGUMENT && !none, "the other kind of comm");
	rc = dr_nccl_listen(&o.e.n, o.e.ndev, o.m.p, &none);
	CHECK(&o.e, rc == NCCL_INVALID_ARGUMENT && !none, "listen");
	rc = dr_nccl_connect(&o.e.n, o.e.ndev, o.m.p, &none);
	CHECK(&o.e, rc == NCCL_INVALID_ARGUMENT && !none, "connect");
	CHECK(&o.e, o.e.n.dereg_mr(NULL, own.mhandle) == NCCL_INVALID_ARGUMENT, "deregMr");
	OK(&o.e, o.e.n.close_send(NULL));
	CHECK(&o.e, o.e.n.test(NULL, &(int){ 0 }, NULL) == NCCL_INVALID_ARGUMENT, "test");
	CHECK(&o.e, dr_nccl_reg(&o.e.n, NULL, b, NCCL_PTR_HOST) == NCCL_INVALID_ARGUMENT, "regMr");
	rank_barrier(r);
	OK(&o.e, o.e.n.dereg_mr(o.comm, own.mhandle));
	one_close(&o);
}

/* More buffers than maxRecvs, or none, is an error and no request. */
static void groups_too_many(struct rank *r)
{
	struct dr_nccl_buffer b[16];
	struct dr_nccl_properties p;
	void *request = DR_NCCL_UNSET;
	struct one o;

	one_open(&o, r, 4096);
	for (int i = 0; i < 16; i++)
		b[i] = mem_buffer(&o.m, 0, 16, i);
	if (r->id == 1) {
		OK(&o.e, dr_nccl_properties(&o.e.n, 0, &p));
		for (int n = 0; n <= p.max_recvs + 1; n += p.max_recvs + 1)
			CHECK(&o.e, end_irecv_raw(&o.e, o.comm, n, b, &request) && !request,
				"%d buffers", n);
	}
	rank_barrier(r);
	one_close(&o);
}

static const struct contract_case cases[] = {
	{ .name = "any_order", .run = any_order, .ranks = 2 },
	{ .name = "completion", .run = completion, .ranks = 2, .each = true },
	{ .name = "too_long", .run = too_long, .ranks = 2 },
	{ .name = "register_in_thread", .run = register_in_thread, .ranks = 2 },
	{ .name = "groups_too_many", .run = groups_too_many, .ranks = 2 },
	{ .name = "groups", .run = groups, .ranks = 2 },
	{ .name = "outside", .run = outside, .ranks = 2 },
	{ .name = "registrations", .run = registrations, .ranks = 2, .each = true },
};
const struct contract_cases contract_data = { cases, DR_ARRAY_LEN(cases) };
