/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/plugin/end.h"

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
enum { TAGS = 64, BUFFERS = 8, NUMBERS = 4 * BUFFERS + 4, POISON = 0xee };

struct part {
	struct mem *m; /* NULL: no bytes */
	struct dr_nccl_buffer b;
	uint64_t key;
};

/* What a number of the recording names, until it ends. */
enum kind { CTX, LISTEN, DIAL, COMM, MR, REQUEST };
struct object {
	struct object *next;
	enum kind kind;
	int64_t id;
	void *p; /* the plugin's; of a listen: the next comm that it has accepted, of a dial: its comm */
	int64_t hash; /* of the handle: the same at both ends of a comm */
	/* listen, dial */
	void *ctx, *listen_comm;
	int dev;
	struct handle handle;
	/* comm */
	bool sends;
	struct {
		int64_t tag;
		uint64_t n; /* messages so far */
	} tag[TAGS];
	/* registration */
	struct mem mem;
	int64_t base;
	/* request */
	bool receives;
	unsigned n;
	struct part part[BUFFERS];
};

struct told_handle {
	int64_t hash;
	struct handle handle;
};

/* One rank. */
struct replay {
	struct end e;
	struct object *objects;
	struct told_handle known[64];			  /* of the peer's listen comms */
	unsigned n_known, line, n, calls, flights, depth; /* n: numbers of the line */
	uint64_t sent, received, bytes;
};

#define RIGHT(p, cond) CHECK(&(p)->e, cond, "line %u is not a line of a recording", (p)->line)

/* ---- objects ---- */

static struct object **place_of(struct replay *p, enum kind kind, int64_t id)
{
	struct object **at = &p->objects;

	while (*at && ((*at)->kind != kind || (*at)->id != id))
		at = &(*at)->next;
	return at;
}

static struct object *find(struct replay *p, enum kind kind, int64_t id)
{
	struct object *o = *place_of(p, kind, id);

	RIGHT(p, o);
	return o;
}

static struct object *add(struct replay *p, enum kind kind, int64_t id)
{
	struct object *o = calloc(1, sizeof(*o));

	RIGHT(p, o && id && !*place_of(p, kind, id));
	o->next = p->objects;
	o->kind = kind;
	o->id = id;
	return p->objects = o;
}

static void drop(struct replay *p, struct object *o)
{
	*place_of(p, o->kind, o->id) = o->next;
	free(o);
}

/* ---- contexts, comms ---- */

static void do_init(struct replay *p, const int64_t *a)
{
	end_init(&p->e);
	add(p, CTX, a[0])->p = p->e.n.ctx;
}

static void do_finalize(struct replay *p, const int64_t *a)
{
	struct object *o = find(p, CTX, a[0]);

	p->e.n.ctx = o->p;
	p->e.n.initialised = true;
	end_finalize(&p->e);
	drop(p, o);
}

static void do_listen(struct replay *p, const int64_t *a)
{
	struct object *o = add(p, LISTEN, a[0]);
	struct told_handle told = { .hash = a[3] };

	p->e.n.ctx = find(p, CTX, a[1])->p;
	o->hash = a[3];
	o->listen_comm = end_listen(&p->e, (int)(a[2] % p->e.ndev), &told.handle);
	rank_send(p->e.r, !p->e.r->id, &told, sizeof(told));
}

/* One call for each comm that may come. */
static void turn(struct replay *p)
{
	for (struct object *o = p->objects; o; o = o->next) {
		p->e.n.ctx = o->ctx;
		if (o->kind == DIAL && !o->p)
			o->p = end_try_connect(&p->e, o->dev, &o->handle);
		else if (o->kind == LISTEN && !o->p)
			o->p = end_try_accept(&p->e, o->listen_comm);
	}
}

static void do_dial(struct replay *p, const int64_t *a)
{
	struct object *o = add(p, DIAL, a[0]);
	unsigned i = 0;

	RANK_AT(p->e.r, "handle of the peer");
	o->ctx = find(p, CTX, a[1])->p;
	o->dev = (int)(a[2] % p->e.ndev);
	o->hash = a[3];
	for (;; i++) {
		RIGHT(p, i < DR_ARRAY_LEN(p->known));
		if (i == p->n_known)
			rank_recv(
				p->e.r, !p->e.r->id, &p->known[p->n_known++], sizeof(p->known[0]));
		if (p->known[i].hash == o->hash)
			break;
	}
	o->handle = p->known[i].handle;
	turn(p);
}

/* Until there is the comm of a dial or a listen. */
static void come_up(struct replay *p, int64_t id, struct object *from)
{
	struct object *o = add(p, COMM, id);
	unsigned turns = 0;

	RANK_AT(p->e.r, "comm comes up");
	for (; !from->p; rank_relax(&turns))
		turn(p);
	o->p = from->p;
	o->hash = from->hash;
	o->sends = from->kind == DIAL;
	from->p = NULL;
}

static void do_connect(struct replay *p, const int64_t *a)
{
	struct object *dial = find(p, DIAL, a[1]);

	come_up(p, a[0], dial);
	drop(p, dial);
}

static void do_accept(struct replay *p, const int64_t *a)
{
	come_up(p, a[0], find(p, LISTEN, a[1]));
}

static void do_close_listen(struct replay *p, const int64_t *a)
{
	struct object *o = find(p, LISTEN, a[0]);

	OK(&p->e, p->e.n.close_listen(o->listen_comm));
	drop(p, o);
}

/* Either end: the recording's is that of the comm. */
static void do_close(struct replay *p, const int64_t *a)
{
	struct object *o = find(p, COMM, a[0]);

	end_close_comm(&p->e, o->p, o->sends);
	drop(p, o);
}

/* ---- memory ---- */

static void do_register(struct replay *p, const int64_t *a)
{
	struct object *o = add(p, MR, a[0]);

	o->base = a[2];
	mem_new(&p->e, &o->mem, find(p, COMM, a[1])->p, (size_t)a[3]);
}

static void do_unregister(struct replay *p, const int64_t *a)
{
	struct object *o = find(p, MR, a[0]);

	mem_free(&p->e, &o->mem);
	drop(p, o);
}

/* MR ADDRESS BYTES */
static void part_of(struct replay *p, struct part *part, const int64_t *a, int64_t tag)
{
	struct object *o = a[0] ? find(p, MR, a[0]) : NULL;
	size_t off = o ? (size_t)(a[1] - o->base) : 0, size = (size_t)a[2];

	*part = (struct part){ .b = { .size = size, .tag = (int)tag } };
	if (!o)
		return;
	RIGHT(p, off <= o->mem.len && size <= o->mem.len - off);
	part->m = &o->mem;
	part->b = mem_buffer(part->m, off, size, (int)tag);
}

/* ---- messages ---- */

/* The bytes of the next message with that tag: both ends count the same. */
static uint64_t next_key(struct replay *p, struct object *c, int64_t tag)
{
	unsigned i = 0;

	while (i < TAGS && c->tag[i].n > 0 && c->tag[i].tag != tag)
		i++;
	RIGHT(p, i < TAGS);
	c->tag[i].tag = tag;
	return dr_mix64((uint64_t)c->hash ^ dr_mix64((uint64_t)tag << 32 | c->tag[i].n++));
}

static struct object *in_flight(struct replay *p, int64_t id, unsigned n)
{
	struct object *q = add(p, REQUEST, id);

	RIGHT(p, n <= BUFFERS);
	q->n = n;
	p->flights++;
	p->depth = DR_MAX(p->depth, p->flights);
	return q;
}

static void do_send(struct replay *p, const int64_t *a)
{
	struct object *q = in_flight(p, a[0], 1), *c = find(p, COMM, a[1]);
	struct part *part = &q->part[0];

	RANK_AT(p->e.r, "send");
	part_of(p, part, a + 2, a[5]);
	part->key = next_key(p, c, a[5]);
	if (part->m)
		pattern_fill(part->b.data, part->b.size, part->key);
	q->p = end_send(&p->e, c->p, &part->b);
	p->sent++;
	p->bytes += part->b.size;
}

static void do_recv(struct replay *p, const int64_t *a)
{
	struct object *q = in_flight(p, a[0], (p->n - 3) / 4), *c = find(p, COMM, a[1]);
	struct dr_nccl_buffer b[BUFFERS];
	unsigned turns = 0;

	RANK_AT(p->e.r, "recv");
	q->receives = true;
	for (unsigned i = 0; i < q->n; i++) {
		const int64_t *at = a + 3 + (ptrdiff_t)i * 4;

		part_of(p, &q->part[i], at, at[3]);
		q->part[i].key = next_key(p, c, at[3]);
		b[i] = q->part[i].b;
		if (q->part[i].m)
			memset(b[i].data, POISON, b[i].size);
	}
	for (; !q->p; rank_relax(&turns)) {
		q->p = a[2] ? NCCL_NET_OPTIONAL_RECV_COMPLETION : NULL;
		OK(&p->e, end_irecv_raw(&p->e, c->p, (int)q->n, b, &q->p));
	}
}

static void check_message(struct replay *p, const struct part *part, int got, int64_t size)
{
	const unsigned char *at = part->b.data;
	size_t right = part->m ? pattern_check(at, (size_t)size, part->key) : (size_t)size;

	CHECK(&p->e, got == size, "line %u: %d bytes, %lld in the recording", p->line, got,
		(long long)size);
	p->received++;
	CHECK(&p->e, right == (size_t)size, "line %u: wrong at byte %zu of %lld", p->line, right,
		(long long)size);
	CHECK(&p->e, !part->m || all_bytes(at + size, part->b.size - (size_t)size, POISON),
		"line %u: bytes behind the message were written", p->line);
}

static void do_done(struct replay *p, const int64_t *a)
{
	struct object *q = find(p, REQUEST, a[0]);
	int got[BUFFERS] = { 0 };

	RANK_AT(p->e.r, "request");
	RIGHT(p, !q->receives || p->n == 1 + q->n);
	if (q->p)
		end_wait(&p->e, q->p, got);
	for (unsigned i = 0; q->receives && i < q->n; i++)
		check_message(p, &q->part[i], got[i], a[1 + i]);
	p->flights--;
	drop(p, q);
}

/* What it waits for, if anything, is done before the next call. */
static void do_flush(struct replay *p, const int64_t *a)
{
	void *data[BUFFERS], *mhandle[BUFFERS], *request = NULL, *comm = find(p, COMM, a[1])->p;
	int size[BUFFERS], count = (int)(p->n - 2) / 3;

	RANK_AT(p->e.r, "flush");
	RIGHT(p, count <= BUFFERS);
	for (int i = 0; i < count; i++) {
		struct part part;

		part_of(p, &part, a + 2 + (ptrdiff_t)i * 3, 0);
		data[i] = part.b.data;
		mhandle[i] = part.b.mhandle;
		size[i] = (int)part.b.size;
	}
	OK(&p->e, p->e.n.flush(comm, count, data, size, mhandle, &request));
	if (request)
		end_wait(&p->e, request, NULL);
	if (a[0]) /* its end in the recording has nothing to wait for */
		(void)in_flight(p, a[0], 0);
}

/* ---- calls ---- */

static void do_attributes(struct replay *p, const int64_t *a)
{
	struct nccl_net_attr attr = {
		.op = (uint32_t)a[8], .algo = (uint32_t)a[9], .proto = (uint32_t)a[10]
	};
	struct nccl_net_comm_attr *side[] = { &attr.sendCommAttr, &attr.recvCommAttr };
	const struct nccl_net_v11 *t;

	_Static_assert(offsetof(struct nccl_net_v11, setNetAttr) ==
			       offsetof(struct nccl_net_v12, setNetAttr),
		"one struct for both");
	for (int i = 0; i < 2; i++)
		*side[i] = (struct nccl_net_comm_attr){ (int32_t)a[4 * i], (int32_t)a[4 * i + 1],
			(int32_t)a[4 * i + 2], (int32_t)a[4 * i + 3] };
	if (p->e.n.version < 11)
		return;
	t = dlsym(p->e.n.so, p->e.n.version == 11 ? "ncclNetPlugin_v11" : "ncclNetPlugin_v12");
	CHECK(&p->e, t && t->setNetAttr, "no setNetAttr");
	OK(&p->e, t->setNetAttr(p->e.n.ctx, &attr));
}

static const struct {
	const char *name;
	unsigned least; /* numbers */
	void (*call)(struct replay *p, const int64_t *a);
} calls[] = { { "init", 1, do_init }, { "listen", 4, do_listen }, { "dial", 4, do_dial },
	{ "connect", 2, do_connect }, { "accept", 2, do_accept }, { "register", 5, do_register },
	{ "unregister", 1, do_unregister }, { "send", 6, do_send }, { "recv", 7, do_recv },
	{ "flush", 5, do_flush }, { "done", 1, do_done }, { "attributes", 11, do_attributes },
	{ "close-send", 1, do_close }, { "close-recv", 1, do_close },
	{ "close-listen", 1, do_close_listen }, { "finalize", 1, do_finalize } };

static void one_call(struct replay *p, char *text)
{
	const char *word = strsep(&text, " ");
	int64_t a[NUMBERS];
	unsigned n = 0, c = 0;

	for (char *end; text; n++) {
		char *number = strsep(&text, " ");

		RIGHT(p, n < NUMBERS);
		a[n] = (int64_t)strtoull(number, &end, 0);
		RIGHT(p, *number && !*end);
	}
	while (c < DR_ARRAY_LEN(calls) && strcmp(word, calls[c].name) != 0)
		c++;
	RIGHT(p, c < DR_ARRAY_LEN(calls) && n >= calls[c].least);
	atomic_store(&p->e.r->view->step, p->line);
	p->n = n;
	calls[c].call(p, a);
	p->calls++;
}

static void replay(struct rank *r)
{
	FILE *f = fopen(r->arg, "re");
	static struct replay p;
	char text[1000];
	unsigned process = 0;

	end_load(&p.e, r, r->plugin);
	CHECK(&p.e, f, "%s", (const char *)r->arg);
	for (p.line = 1; fgets(text, sizeof(text), f); p.line++) {
		text[strcspn(text, "\n")] = 0;
		if (strcmp(text, "process") == 0)
			process++;
		else if (text[0] != '#' && process == r->id + 1)
			one_call(&p, text);
	}
	fclose(f);
	RANK_AT(r, "end");
	CHECK(&p.e, process == 2 && p.flights == 0,
		"%u processes; %u requests of the recording have no end", process, p.flights);
	rank_barrier(r);
	dr_nccl_close(&p.e.n);
	printf("rank %u: %u calls, %llu sent, %llu received and right, %llu bytes sent, depth %u\n",
		r->id, p.calls, (unsigned long long)p.sent, (unsigned long long)p.received,
		(unsigned long long)p.bytes, p.depth);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct rank_job job = {
		.name = "replay", .run = replay, .n = 2, .version = 11, .limit_s = 60
	};
	const struct rank_option none = { .name = NULL };
	int at = rank_options(&job, &none, argc, argv, 2);

	if (at == 0)
		return 1;
	job.arg = argv[at];
	job.plugin = argv[at + 1];
	setenv("NCCL_DEBUG", "INFO", 0);
	return !rank_run(&job);
}
