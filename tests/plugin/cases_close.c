/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ends of comms: with and without deregistration, with requests outstanding, with a peer that is gone. */

enum { REQUESTS = 32, EACH = 256 * 1024, SENT = 0x33 };
/* A final failure is reported within 5 s; the rest is for a busy machine. */
static const int64_t ERROR_NS = 15 * DR_NS_PER_S;

/* What becomes of the memory before the comm is closed. */
enum fate {
	REPLACED, /* new pages with a pattern: a late write would be seen, a late read would send them */
	UNMAPPED,
	KEPT, /* and registered */
};

struct half {
	struct end *e;
	void *comm;
	bool sends;
	struct mem m;
	void *request[REQUESTS];
	enum fate fate;
};

static void half_open(struct half *h, struct end *e)
{
	memset(h, 0, sizeof(*h));
	h->e = e;
	h->sends = e->r->id == 0;
	h->comm = end_comm(e, 0, 1, 0);
	mem_new(e, &h->m, h->comm, (size_t)REQUESTS * EACH);
	memset(h->m.p, h->sends ? SENT : 0, h->m.len);
}

static size_t size_of(unsigned i)
{
	return i % 2 ? 500 : EACH;
}

/* Every other one is small. A call that has to be repeated is, so that both ends post the same. */
static void half_post(struct half *h, unsigned n)
{
	unsigned turns = 0;

	RANK_AT(h->e->r, "post");
	for (unsigned i = 0; i < n; i++) {
		struct dr_nccl_buffer b = mem_buffer(&h->m, (size_t)i * EACH, size_of(i), 0);
		enum nccl_result rc;

		do {
			h->request[i] = DR_NCCL_UNSET;
			rc = h->sends ? dr_nccl_isend(&h->e->n, h->comm, &b, &h->request[i])
				      : dr_nccl_irecv(&h->e->n, h->comm, 1, &b, &h->request[i]);
			rank_relax(&turns);
		} while (rc == NCCL_SUCCESS && !h->request[i]);
		if (rc != NCCL_SUCCESS)
			h->request[i] = NULL;
	}
}

/* Every request ends, with data or with an error. Returns the number of errors. */
static unsigned half_settle(struct half *h, int64_t bound_ns)
{
	int64_t end = dr_now_ns() + bound_ns;
	unsigned errors = 0, turns = 0;

	RANK_AT(h->e->r, "requests of a comm whose peer closed");
	for (unsigned i = 0; i < REQUESTS; i++) {
		while (h->request[i]) {
			int done = 0x5a5a;
			enum nccl_result rc = h->e->n.test(h->request[i], &done, NULL);

			CHECK(h->e, done == 0 || done == 1, "done was not set");
			errors += rc != NCCL_SUCCESS;
			CHECK(h->e,
				!done || h->sends ||
					all_bytes(h->m.p + (size_t)i * EACH, size_of(i), SENT),
				"request %u is done without the data that were sent", i);
			if (rc != NCCL_SUCCESS || done)
				h->request[i] = NULL;
			CHECK(h->e, dr_now_ns() < end, "request %u neither ends nor fails", i);
			rank_relax(&turns);
		}
	}
	return errors;
}

static void half_close(struct half *h, enum fate fate)
{
	if (fate != KEPT) {
		mem_dereg(h->e, &h->m);
		munmap(h->m.p, h->m.len);
	}
	if (fate == REPLACED) {
		h->m.p = mmap(h->m.p, h->m.len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(h->e, h->m.p != MAP_FAILED, "mmap");
		memset(h->m.p, 0x44, h->m.len);
	}
	end_close_comm(h->e, h->comm, h->sends);
}

/* Another comm works, and the memory was not written. */
static void half_check(struct half *h, enum fate fate)
{
	end_short_comm(h->e);
	CHECK(h->e, fate != REPLACED || all_bytes(h->m.p, h->m.len, 0x44),
		"memory was written after deregMr");
	if (fate != UNMAPPED)
		munmap(h->m.p, h->m.len);
}

/* ncclCommAbort: both ends give up with everything in flight. What stays registered has nothing in flight. */
static void both_close(struct rank *r)
{
	struct end e;

	end_open(&e, r);
	for (int i = 0; i < 6; i++) {
		enum fate fate = (enum fate)(i % 3);
		struct half h;

		half_open(&h, &e);
		if (fate == KEPT)
			end_ping(&e, h.comm, h.sends);
		else
			half_post(&h, REQUESTS); /* the other end may have closed already */
		if (i < 3)			 /* both in mid-stream */
			rank_barrier(r);
		half_close(&h, fate);
		half_check(&h, fate);
	}
	end_close_both(&e);
}

/* One end closes with everything in flight; the requests of the other end with an error or with data. */
static void one_closes(struct rank *r, unsigned closer)
{
	struct end e;

	end_open(&e, r);
	for (int i = 0; i < 4; i++) {
		bool posts =
			r->id != closer || i % 2 == 0; /* else only the other end has requests */
		struct half h;

		half_open(&h, &e);
		if (posts)
			half_post(&h, REQUESTS);
		if (i >= 2) /* when the other end has posted */
			rank_barrier(r);
		if (r->id != closer)
			(void)half_settle(&h, ERROR_NS);
		half_close(&h, REPLACED);
		half_check(&h, REPLACED);
	}
	end_close_both(&e);
}

static void sender_closes(struct rank *r)
{
	one_closes(r, 0);
}

static void receiver_closes(struct rank *r)
{
	one_closes(r, 1);
}

static void *abandon(void *arg)
{
	struct half *h = arg;

	half_close(h, h->fate);
	return NULL;
}

/* ncclCommAbort of one communicator while another one, e.g. its parent, carries data: another thread closes the comm. */
static void closed_beside(struct rank *r)
{
	struct half h;
	struct end e;
	pthread_t t;
	void *other;

	end_open(&e, r);
	other = end_comm(&e, 0, 1, 0);
	for (int i = 0; i < 4; i++) {
		half_open(&h, &e);
		h.fate = i % 2 ? UNMAPPED : REPLACED;
		half_post(&h, REQUESTS);
		CHECK(&e, pthread_create(&t, NULL, abandon, &h) == 0, "thread");
		RANK_AT(r, "data beside a comm that ends");
		for (int k = 0; k < 5; k++)
			end_ping(&e, other, h.sends);
		pthread_join(t, NULL);
		half_check(&h, h.fate);
	}
	end_close_comm(&e, other, r->id == 0);
	end_close_both(&e);
}

/* The peer process ends in mid-stream: errors in time, then the comm can be closed. */
static void peer_ends(struct rank *r)
{
	struct half h;
	struct end e;
	struct dr_nccl_buffer b;
	int64_t end;
	enum nccl_result rc = NCCL_SUCCESS;
	unsigned turns = 0;
	void *request = NULL;

	end_open(&e, r);
	half_open(&h, &e);
	end_ping(&e, h.comm, h.sends);
	half_post(&h, REQUESTS);
	if (r->id == 1) {
		rank_barrier(r);
		_exit(0);
	}
	rank_barrier(r);
	(void)half_settle(&h, ERROR_NS);
	RANK_AT(r, "isend to a process that is gone");
	b = mem_buffer(&h.m, 0, EACH, 0);
	end = dr_now_ns() + ERROR_NS;
	while (rc == NCCL_SUCCESS) {
		int done = 0;

		rc = request ? e.n.test(request, &done, NULL)
			     : dr_nccl_isend(&e.n, h.comm, &b, &request);
		if (done)
			request = NULL; /* the socket took it */
		CHECK(&e, dr_now_ns() < end, "no error in time");
		rank_relax(&turns);
	}
	CHECK(&e, rc == NCCL_REMOTE_ERROR || rc == NCCL_SYSTEM_ERROR, "%s",
		dr_nccl_result_name(rc));
	CHECK(&e, rank_logged(r, NCCL_LOG_WARN, "") > 0, "no warning says why");
	half_close(&h, UNMAPPED);
	end_close(&e);
}

/* Requests that were done at a sender that ended since: what it sent arrives. */
static void sender_exits(struct rank *r)
{
	enum { MESSAGES = 8 };
	struct one o;
	char gone;

	one_open(&o, r, 4096);
	RANK_AT(r, "the sender ends");
	while (r->id == 1 && recv(r->fd[0], &gone, 1, 0) > 0)
		;
	RANK_AT(r, "what the sender left");
	for (uint64_t i = 0; i < MESSAGES; i++)
		end_checked(&o.e, &o.m, o.m.len, o.sends, i);
	one_close(&o);
}

static const struct contract_case cases[] = {
	{ .name = "both_close", .run = both_close, .ranks = 2 },
	{ .name = "sender_closes", .run = sender_closes, .ranks = 2 },
	{ .name = "receiver_closes", .run = receiver_closes, .ranks = 2 },
	{ .name = "closed_beside", .run = closed_beside, .ranks = 2 },
	{ .name = "sender_exits", .run = sender_exits, .ranks = 2, .each = true },
	{ .name = "peer_ends", .run = peer_ends, .ranks = 2 },
};
const struct contract_cases contract_close = { cases, DR_ARRAY_LEN(cases) };
