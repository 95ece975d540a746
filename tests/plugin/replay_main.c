/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/units.h"
#include "tests/plugin/end.h"
#include "tests/plugin/recording.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Repeats recorded calls to a plugin (record_plugin.c): two ranks, each with the calls of one process in their order.
 *
 *   replay_main [--netns A,B] [--version V] [--limit S] [--log] RECORDING PLUGIN
 *
 * A call that was told "not yet" is repeated until it is done, as often as it takes, and before the next one is made. So
 * at any time as many requests are in flight as were in the recording. Memory of GPUs is memory of the host here, and a
 * device that this host does not have is another one. Every message has bytes of its own, which the receiver compares;
 * its size and order are those of the recording.
 *
 * Prints a line for each rank. Exit status 0: all calls of both ranks were made, and all bytes were right.
 */
enum { TAGS_MAX = 64, FLIGHTS_MAX = 1024 };

struct handle_of {
	int64_t hash;
	struct handle handle;
};

struct comm {
	bool begun, sends;
	void *comm;
	/* connect */
	void *ctx;
	int dev;
	struct handle handle;
	/* accept */
	void *listen_comm;
	int64_t hash; /* of the handle: the same at both ends */
	struct {
		int64_t tag;
		uint64_t n; /* messages so far */
	} tag[TAGS_MAX];
};

struct part {
	struct mem *m;
	size_t off, cap;
	uint64_t key;
};
struct request {
	void *req;
	bool recv;
	unsigned n;
	struct part part[REC_BUFFERS_MAX];
};

/* One rank. Objects by the recording's numbers. */
struct replay {
	struct end e;
	void *ctx[REC_OBJECTS_MAX];
	struct {
		void *comm;
		int64_t hash;
	} listen[REC_OBJECTS_MAX];
	struct comm comm[REC_OBJECTS_MAX];
	struct mem mr[REC_OBJECTS_MAX];
	struct request *request[REC_REQUESTS_MAX]; /* in flight */
	struct handle_of known[REC_OBJECTS_MAX];   /* of the peer's listen comms */
	unsigned n_known;
	unsigned line, flights, depth;
	uint64_t sent, received, bytes;
};

#define RIGHT(p, cond) CHECK(&(p)->e, cond, "line %u", (p)->line)

/* ---- comms ---- */

static void tell_handle(struct replay *p, int64_t hash, const struct handle *h)
{
	struct handle_of of = { .hash = hash, .handle = *h };

	rank_send(p->e.r, !p->e.r->id, &of, sizeof(of));
}

static struct handle handle_of(struct replay *p, int64_t hash)
{
	for (unsigned i = 0;; i++) {
		if (i == p->n_known) {
			RIGHT(p, p->n_known < REC_OBJECTS_MAX);
			RANK_AT(p->e.r, "handle of the peer");
			rank_recv(p->e.r, !p->e.r->id, &p->known[i], sizeof(p->known[i]));
			p->n_known++;
		}
		if (p->known[i].hash == hash)
			return p->known[i].handle;
	}
}

static void listen_for(struct replay *p, const int64_t *a)
{
	struct handle h;

	RIGHT(p, !p->listen[a[0]].comm);
	RANK_AT(p->e.r, "listen");
	p->e.n.ctx = p->ctx[a[1]];
	OK(&p->e, dr_nccl_listen(&p->e.n, (int)(a[2] % p->e.ndev), &h, &p->listen[a[0]].comm));
	p->listen[a[0]].hash = a[3];
	tell_handle(p, a[3], &h);
}

/* One call for each comm that is not up. */
static void turn(struct replay *p)
{
	for (unsigned i = 0; i < REC_OBJECTS_MAX; i++) {
		struct comm *c = &p->comm[i];

		if (!c->begun || c->comm)
			continue;
		p->e.n.ctx = c->ctx;
		c->comm = c->sends ? end_try_connect(&p->e, c->dev, &c->handle)
				   : end_try_accept(&p->e, c->listen_comm);
	}
}

static void begin_comm(struct replay *p, const struct rec_call *call)
{
	struct comm *c = &p->comm[call->arg[0]];

	RIGHT(p, !c->begun);
	memset(c, 0, sizeof(*c));
	c->sends = call->verb == REC_CONNECT;
	if (c->sends) {
		c->ctx = p->ctx[call->arg[1]];
		c->dev = (int)(call->arg[2] % p->e.ndev);
		c->hash = call->arg[3];
		c->handle = handle_of(p, c->hash);
	} else {
		c->listen_comm = p->listen[call->arg[1]].comm;
		c->hash = p->listen[call->arg[1]].hash;
		RIGHT(p, c->listen_comm);
	}
	c->begun = true;
	turn(p);
}

static void until_up(struct replay *p, unsigned comm)
{
	unsigned turns = 0;

	RANK_AT(p->e.r, "comm comes up");
	RIGHT(p, p->comm[comm].begun);
	while (!p->comm[comm].comm) {
		turn(p);
		rank_relax(&turns);
	}
}

static void close_comm(struct replay *p, const struct rec_call *call)
{
	struct comm *c = &p->comm[call->arg[0]];
	bool sends = call->verb == REC_CLOSE_SEND;

	RIGHT(p, c->comm && c->sends == sends);
	end_close_comm(&p->e, c->comm, sends);
	c->begun = false; /* its number is not used again */
	c->comm = NULL;
}

/* ---- memory ---- */

static void register_memory(struct replay *p, const int64_t *a)
{
	RIGHT(p, p->comm[a[1]].comm && a[2] > 0 && !p->mr[a[0]].p);
	mem_new(&p->e, &p->mr[a[0]], p->comm[a[1]].comm, (size_t)a[2]);
}

static void part_of(struct replay *p, struct part *part, const int64_t *a)
{
	*part = (struct part){ .off = (size_t)a[1], .cap = (size_t)a[2] };
	RIGHT(p, a[0] < REC_OBJECTS_MAX && a[1] >= 0 && a[2] >= 0);
	if (a[0] < 0)
		return;
	part->m = &p->mr[a[0]];
	RIGHT(p, part->m->p && part->off <= part->m->len && part->cap <= part->m->len - part->off);
}

static struct dr_nccl_buffer buffer_of(const struct part *part, int64_t tag)
{
	if (!part->m)
		return (struct dr_nccl_buffer){ .size = part->cap, .tag = (int)tag };
	return mem_buffer(part->m, part->off, part->cap, (int)tag);
}

/* ---- messages ---- */

/* The bytes of the next message with that tag: both ends count the same. */
static uint64_t next_key(struct replay *p, struct comm *c, int64_t tag)
{
	unsigned i = 0;

	while (i < TAGS_MAX && c->tag[i].n > 0 && c->tag[i].tag != tag)
		i++;
	RIGHT(p, i < TAGS_MAX);
	c->tag[i].tag = tag;
	return dr_mix64((uint64_t)c->hash ^ dr_mix64((uint64_t)tag << 32 | c->tag[i].n++));
}

static struct request *new_request(struct replay *p, int64_t number, bool recv, unsigned n)
{
	struct request *q = calloc(1, sizeof(*q));

	RIGHT(p, q && !p->request[number] && p->flights < FLIGHTS_MAX);
	q->recv = recv;
	q->n = n;
	return q;
}

static void in_flight(struct replay *p, int64_t number, struct request *q)
{
	p->request[number] = q;
	p->flights++;
	p->depth = DR_MAX(p->depth, p->flights);
}

static void send_message(struct replay *p, const int64_t *a)
{
	struct request *q = new_request(p, a[0], false, 1);
	struct comm *c = &p->comm[a[1]];
	struct dr_nccl_buffer b;

	RANK_AT(p->e.r, "send");
	RIGHT(p, c->comm && c->sends);
	part_of(p, &q->part[0], a + 2);
	q->part[0].key = next_key(p, c, a[5]);
	b = buffer_of(&q->part[0], a[5]);
	if (q->part[0].m)
		pattern_fill(b.data, b.size, q->part[0].key);
	q->req = end_send(&p->e, c->comm, &b);
	in_flight(p, a[0], q);
	p->sent++;
	p->bytes += b.size;
}

static void *post_recv(
	struct replay *p, void *comm, bool optional, unsigned n, const struct dr_nccl_buffer *b)
{
	unsigned turns = 0;

	for (;;) {
		void *request = optional ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;

		OK(&p->e, end_irecv_raw(&p->e, comm, (int)n, b, &request));
		if (request)
			return request;
		rank_relax(&turns);
	}
}

enum { POISON = 0xee };

static void recv_message(struct replay *p, const int64_t *a)
{
	unsigned n = (unsigned)a[4];
	struct request *q = new_request(p, a[0], true, n);
	struct comm *c = &p->comm[a[1]];
	struct dr_nccl_buffer b[REC_BUFFERS_MAX];

	RANK_AT(p->e.r, "recv");
	RIGHT(p, c->comm && !c->sends);
	for (unsigned i = 0; i < n; i++) {
		const int64_t *at = a + 5 + (size_t)i * 4;

		part_of(p, &q->part[i], at);
		q->part[i].key = next_key(p, c, at[3]);
		b[i] = buffer_of(&q->part[i], at[3]);
		if (q->part[i].m)
			memset(b[i].data, POISON, b[i].size);
	}
	q->req = post_recv(p, c->comm, a[2], n, b);
	in_flight(p, a[0], q);
}

static void check_message(struct replay *p, const struct part *part, int got, int64_t size)
{
	const unsigned char *at = part->m ? part->m->p + part->off : NULL;

	CHECK(&p->e, got == size, "line %u: %d bytes, %lld in the recording", p->line, got,
		(long long)size);
	p->received++;
	if (!at)
		return;
	CHECK(&p->e, pattern_check(at, (size_t)size, part->key) == (size_t)size,
		"line %u: wrong at byte %zu of %lld", p->line,
		pattern_check(at, (size_t)size, part->key), (long long)size);
	CHECK(&p->e, all_bytes(at + size, part->cap - (size_t)size, POISON),
		"line %u: bytes behind the message were written", p->line);
}

static void until_done(struct replay *p, const struct rec_call *call)
{
	struct request *q = p->request[call->arg[0]];
	int got[REC_BUFFERS_MAX] = { 0 };

	RANK_AT(p->e.r, "request");
	RIGHT(p, q && call->n == 2 + (q->recv ? q->n : 0));
	if (q->req)
		end_wait(&p->e, q->req, got);
	for (unsigned i = 0; q->recv && i < q->n; i++)
		check_message(p, &q->part[i], got[i], call->arg[2 + i]);
	p->request[call->arg[0]] = NULL;
	p->flights--;
	free(q);
}

/* What it waits for, if anything, is done before the next call. */
static void flush(struct replay *p, const int64_t *a)
{
	void *data[REC_BUFFERS_MAX], *mhandle[REC_BUFFERS_MAX], *request = NULL;
	int size[REC_BUFFERS_MAX], n = (int)a[2];

	RANK_AT(p->e.r, "flush");
	for (int i = 0; i < n; i++) {
		struct dr_nccl_buffer b;
		struct part part;

		part_of(p, &part, a + 3 + (ptrdiff_t)i * 3);
		b = buffer_of(&part, 0);
		data[i] = b.data;
		mhandle[i] = b.mhandle;
		size[i] = (int)b.size;
	}
	OK(&p->e, p->e.n.flush(p->comm[a[1]].comm, n, data, size, mhandle, &request));
	if (request)
		end_wait(&p->e, request, NULL);
	if (a[0] >= 0) { /* its end in the recording has nothing to wait for */
		struct request *q = new_request(p, a[0], false, 0);

		in_flight(p, a[0], q);
	}
}

/* ---- calls ---- */

static void set_attributes(struct replay *p, const int64_t *a)
{
	struct nccl_net_attr attr = {
		.op = (uint32_t)a[8], .algo = (uint32_t)a[9], .proto = (uint32_t)a[10]
	};
	struct nccl_net_comm_attr *side[] = { &attr.sendCommAttr, &attr.recvCommAttr };
	const struct nccl_net_v11 *t; /* the same offset in version 12 */

	for (int i = 0; i < 2; i++)
		*side[i] = (struct nccl_net_comm_attr){ (int32_t)a[4 * i], (int32_t)a[4 * i + 1],
			(int32_t)a[4 * i + 2], (int32_t)a[4 * i + 3] };
	if (p->e.n.version < 11)
		return;
	t = dlsym(p->e.n.so, p->e.n.version == 11 ? "ncclNetPlugin_v11" : "ncclNetPlugin_v12");
	CHECK(&p->e, t && t->setNetAttr, "no setNetAttr");
	OK(&p->e, t->setNetAttr(p->ctx[0], &attr));
}

static void begin_context(struct replay *p, int64_t number)
{
	end_init(&p->e);
	p->ctx[number] = p->e.n.ctx;
}

static void one_call(struct replay *p, const struct rec_call *c)
{
	const int64_t *a = c->arg;
	struct dr_nccl_properties props;

	p->line = c->line;
	atomic_store(&p->e.r->view->step, c->line);
	switch (c->verb) {
	case REC_INIT:
		begin_context(p, a[0]);
		break;
	case REC_PROPERTIES:
		OK(&p->e, dr_nccl_properties(&p->e.n, (int)(a[0] % p->e.ndev), &props));
		break;
	case REC_LISTEN:
		listen_for(p, a);
		break;
	case REC_CONNECT:
	case REC_ACCEPT:
		begin_comm(p, c);
		break;
	case REC_UP:
		until_up(p, (unsigned)a[0]);
		break;
	case REC_REGISTER:
		register_memory(p, a);
		break;
	case REC_UNREGISTER:
		RIGHT(p, p->mr[a[0]].p);
		mem_free(&p->e, &p->mr[a[0]]);
		break;
	case REC_SEND:
		send_message(p, a);
		break;
	case REC_RECV:
		recv_message(p, a);
		break;
	case REC_FLUSH:
		flush(p, a);
		break;
	case REC_DONE:
		until_done(p, c);
		break;
	case REC_ATTRIBUTES:
		set_attributes(p, a);
		break;
	case REC_CLOSE_SEND:
	case REC_CLOSE_RECV:
		close_comm(p, c);
		break;
	case REC_CLOSE_LISTEN:
		RIGHT(p, p->listen[a[0]].comm);
		OK(&p->e, p->e.n.close_listen(p->listen[a[0]].comm));
		p->listen[a[0]].comm = NULL;
		break;
	case REC_FINALIZE:
		p->e.n.ctx = p->ctx[a[0]];
		p->e.n.initialised = true;
		end_finalize(&p->e);
		break;
	default: /* devices: with init */
		break;
	}
}

static void replay(struct rank *r)
{
	const struct recording *rec = r->arg;
	const struct rec_process *calls = &rec->process[r->id];
	static struct replay p;

	end_load(&p.e, r, r->plugin);
	for (unsigned i = 0; i < calls->n; i++)
		one_call(&p, &calls->call[i]);
	RANK_AT(r, "end");
	CHECK(&p.e, p.flights == 0, "%u requests of the recording have no end", p.flights);
	rank_barrier(r);
	dr_nccl_close(&p.e.n);
	printf("rank %u: %u calls, %llu sent, %llu received and right, %llu bytes sent, depth %u\n",
		r->id, calls->n, (unsigned long long)p.sent, (unsigned long long)p.received,
		(unsigned long long)p.bytes, p.depth);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct recording rec;
	struct rank_job job = {
		.name = "replay", .run = replay, .n = 2, .version = 11, .limit_s = 60, .arg = &rec
	};
	const struct rank_option none = { .name = NULL };
	int at = rank_options(&job, &none, argc, argv, 2);
	char why[400];

	if (at == 0)
		return 1;
	if (rec_read(&rec, argv[at], why, sizeof(why)) != 0) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	job.plugin = argv[at + 1];
	setenv("NCCL_DEBUG", "INFO", 0);
	return rank_run(&job, why, sizeof(why)) != RANK_PASSED;
}
