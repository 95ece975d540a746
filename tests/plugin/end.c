/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/end.h"

#include "base/clock.h"
#include "base/sysfile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- life ---- */

void end_load(struct end *e, struct rank *r, const char *file)
{
	struct dr_err err = { 0 };

	*e = (struct end){ .r = r };
	RANK_AT(r, "load");
	CHECK(e, dr_nccl_open(&e->n, file, r->version, &err) == 0, "%s", err.text);
	CHECK(e, !e->n.missing, "%s is NULL", e->n.missing);
}

void end_open(struct end *e, struct rank *r)
{
	end_load(e, r, r->plugin);
	end_init(e);
}

enum { RAW_MAX = 16 };

/* As dr_nccl_init, with the rank's logger. */
enum nccl_result end_try_init(struct end *e)
{
	static _Atomic uint64_t communicators;
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	struct dr_nccl *n = &e->n;
	enum nccl_result rc = NCCL_SUCCESS;

	n->ctx = DR_NCCL_UNSET;
	if (n->version >= 11)
		rc = n->init.context(&n->ctx, atomic_fetch_add(&communicators, 1) + 1, &config,
			rank_logger, NULL);
	else if (!n->initialised)
		rc = n->version == 10 ? n->init.profiled(rank_logger, NULL)
				      : n->init.plain(rank_logger);
	n->initialised = rc == NCCL_SUCCESS;
	return rc;
}

void end_init(struct end *e)
{
	RANK_AT(e->r, "init");
	OK(e, end_try_init(e));
	CHECK(e, e->n.version < 11 || e->n.ctx != DR_NCCL_UNSET, "the context was not set");
	e->ndev = -1;
	OK(e, e->n.devices(&e->ndev));
	CHECK(e, e->ndev > 0, "%d devices", e->ndev);
}

void end_finalize(struct end *e)
{
	RANK_AT(e->r, "finalize");
	OK(e, dr_nccl_finalize(&e->n));
	e->n.initialised = false;
}

void end_close(struct end *e)
{
	end_finalize(e);
	RANK_AT(e->r, "unload");
	dr_nccl_close(&e->n);
	RANK_AT(e->r, "end");
}

void end_close_both(struct end *e)
{
	rank_barrier(e->r);
	end_finalize(e);
	CHECK(e, rank_logged(e->r, NCCL_LOG_WARN, "did not close") == 0,
		"finalize gave up although the peer is there");
	rank_barrier(e->r);
	end_close(e);
}

/* ---- comms ---- */

void *end_listen(struct end *e, int dev, struct handle *handle)
{
	void *l;

	RANK_AT(e->r, "listen");
	OK(e, dr_nccl_listen(&e->n, dev, handle, &l));
	CHECK(e, l && l != DR_NCCL_UNSET, "no listen comm");
	return l;
}

void *end_try_connect(struct end *e, int dev, struct handle *handle)
{
	void *comm;

	OK(e, dr_nccl_connect(&e->n, dev, handle, &comm));
	CHECK(e, comm != DR_NCCL_UNSET, "the comm was not set");
	return comm;
}

void *end_try_accept(struct end *e, void *listen_comm)
{
	struct nccl_net_device_handle *none = NULL;
	void *comm;

	OK(e, dr_nccl_accept(&e->n, listen_comm, &comm, &none));
	CHECK(e, comm != DR_NCCL_UNSET, "the comm was not set");
	return comm;
}

void *end_connect(struct end *e, int dev, struct handle *handle)
{
	unsigned turns = 0;
	void *comm;

	RANK_AT(e->r, "connect");
	while (!(comm = end_try_connect(e, dev, handle)))
		rank_relax(&turns);
	return comm;
}

void *end_accept(struct end *e, void *listen_comm)
{
	unsigned turns = 0;
	void *comm;

	RANK_AT(e->r, "accept");
	while (!(comm = end_try_accept(e, listen_comm)))
		rank_relax(&turns);
	return comm;
}

void *end_comm(struct end *e, unsigned from, unsigned to, int dev)
{
	struct handle h;
	void *l, *comm;

	if (e->r->id == from) {
		RANK_AT(e->r, "handle of the peer");
		rank_recv(e->r, to, &h, sizeof(h));
		return end_connect(e, dev, &h);
	}
	l = end_listen(e, dev, &h);
	rank_send(e->r, from, &h, sizeof(h));
	comm = end_accept(e, l);
	OK(e, e->n.close_listen(l));
	return comm;
}

void end_close_comm(struct end *e, void *comm, bool sends)
{
	RANK_AT(e->r, "close");
	if (comm)
		OK(e, sends ? e->n.close_send(comm) : e->n.close_recv(comm));
}

void end_short_comm(struct end *e)
{
	bool sends = e->r->id == 0;
	void *comm = end_comm(e, 0, 1, 0);

	end_ping(e, comm, sends);
	end_close_comm(e, comm, sends);
}

/* ---- memory ---- */

void mem_map(struct end *e, struct mem *m, size_t len)
{
	memset(m, 0, sizeof(*m));
	m->len = len;
	m->p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(e, m->p != MAP_FAILED, "mmap of %zu bytes", len);
}

void mem_dereg(struct end *e, struct mem *m)
{
	RANK_AT(e->r, "deregMr");
	OK(e, e->n.dereg_mr(m->comm, m->mhandle));
	m->mhandle = NULL;
}

void mem_unmap(struct mem *m)
{
	munmap(m->p, m->len);
	m->p = NULL;
}

void mem_new(struct end *e, struct mem *m, void *comm, size_t len)
{
	struct dr_nccl_buffer b;

	mem_map(e, m, len);
	b = mem_buffer(m, 0, len, 0);
	RANK_AT(e->r, "regMr");
	OK(e, dr_nccl_reg(&e->n, comm, &b, NCCL_PTR_HOST));
	m->comm = comm;
	m->mhandle = b.mhandle;
}

void mem_free(struct end *e, struct mem *m)
{
	mem_dereg(e, m);
	mem_unmap(m);
}

struct dr_nccl_buffer mem_buffer(const struct mem *m, size_t off, size_t size, int tag)
{
	return (struct dr_nccl_buffer){
		.data = m->p + off, .mhandle = m->mhandle, .size = size, .tag = tag
	};
}

bool all_bytes(const void *p, size_t len, unsigned char value)
{
	const unsigned char *b = p;

	return len == 0 || (b[0] == value && memcmp(b, b + 1, len - 1) == 0);
}

/* ---- messages ---- */

void *end_send(struct end *e, void *comm, const struct dr_nccl_buffer *b)
{
	void *request;
	unsigned turns = 0;

	for (;; rank_relax(&turns)) {
		OK(e, dr_nccl_isend(&e->n, comm, b, &request));
		CHECK(e, request != DR_NCCL_UNSET, "isend did not set the request");
		if (request)
			return request;
	}
}

void *end_recv(struct end *e, void *comm, int n, const struct dr_nccl_buffer *b)
{
	void *request;
	unsigned turns = 0;

	for (;; rank_relax(&turns)) {
		OK(e, dr_nccl_irecv(&e->n, comm, n, b, &request));
		CHECK(e, request != DR_NCCL_UNSET, "irecv did not set the request");
		if (request)
			return request;
	}
}

enum nccl_result end_irecv_raw(
	struct end *e, void *comm, int n, const struct dr_nccl_buffer *b, void **request)
{
	void *data[RAW_MAX] = { NULL }, *mhandle[RAW_MAX] = { NULL }, *profile[RAW_MAX] = { NULL };
	size_t wide[RAW_MAX] = { 0 };
	int sizes[RAW_MAX] = { 0 }, tags[RAW_MAX] = { 0 };

	for (int i = 0; i < n && i < RAW_MAX; i++) {
		data[i] = b[i].data;
		mhandle[i] = b[i].mhandle;
		wide[i] = b[i].size;
		sizes[i] = (int)b[i].size;
		tags[i] = b[i].tag;
	}
	if (e->n.version >= 10)
		return e->n.irecv.profiled(comm, n, data, wide, tags, mhandle, profile, request);
	if (e->n.version == 9)
		return e->n.irecv.wide(comm, n, data, wide, tags, mhandle, request);
	return e->n.irecv.narrow(comm, n, data, sizes, tags, mhandle, request);
}

bool end_test(struct end *e, void *request, int *sizes)
{
	int done = 0x5a5a;

	OK(e, e->n.test(request, &done, sizes));
	CHECK(e, done == 0 || done == 1, "test set done to %d", done);
	return done;
}

void end_wait(struct end *e, void *request, int *sizes)
{
	unsigned turns = 0;

	while (!end_test(e, request, sizes))
		rank_relax(&turns);
}

int end_message(struct end *e, void *comm, bool sends, const struct dr_nccl_buffer *b)
{
	int got = -1;

	end_wait(e, sends ? end_send(e, comm, b) : end_recv(e, comm, 1, b), &got);
	return got;
}

void end_checked(struct end *e, const struct mem *m, size_t size, bool sends, uint64_t key)
{
	struct dr_nccl_buffer b = mem_buffer(m, 0, size, 7);
	int got;

	if (sends)
		pattern_fill(m->p, size, key);
	else
		memset(m->p, 0, size);
	got = end_message(e, m->comm, sends, &b);
	CHECK(e, sends || got == (int)size, "received %d bytes of %zu", got, size);
	CHECK(e, pattern_check(m->p, size, key) == size, "message %llu: wrong at byte %zu of %zu",
		(unsigned long long)key, pattern_check(m->p, size, key), size);
}

void end_ping(struct end *e, void *comm, bool sends)
{
	struct mem m;

	mem_new(e, &m, comm, 200000);
	RANK_AT(e->r, "small ping");
	end_checked(e, &m, 100, sends, 100);
	RANK_AT(e->r, "large ping");
	end_checked(e, &m, m.len, sends, m.len);
	mem_free(e, &m);
}

/* ---- one comm ---- */

void one_open(struct one *o, struct rank *r, size_t len)
{
	end_open(&o->e, r);
	o->sends = r->id == 0;
	o->comm = end_comm(&o->e, 0, 1, 0);
	mem_new(&o->e, &o->m, o->comm, len);
	RANK_AT(r, "messages");
}

void one_close(struct one *o)
{
	mem_free(&o->e, &o->m);
	end_close_comm(&o->e, o->comm, o->sends);
	end_close(&o->e);
}

/* ---- this process ---- */

static int count(const char *name, void *arg)
{
	(void)name;
	++*(unsigned *)arg;
	return 0;
}

struct held held_now(void)
{
	struct held h = { 0 };

	(void)dr_sysfile_each("", "/proc/self/task", count, &h.threads);
	(void)dr_sysfile_each("", "/proc/self/fd", count, &h.fds);
	return h;
}

static int print_fd(const char *name, void *arg)
{
	char path[80], to[120];
	ssize_t n;

	(void)arg;
	snprintf(path, sizeof(path), "/proc/self/fd/%s", name);
	n = readlink(path, to, sizeof(to));
	if (n > 0)
		printf("#     descriptor %.*s\n", (int)n, to);
	return 0;
}

void held_back_to(struct rank *r, struct held before, const char *when)
{
	int64_t end = dr_now_ns() + 5 * DR_NS_PER_S;
	struct held now = held_now();
	unsigned turns = 0;

	while ((now.threads > before.threads || now.fds > before.fds) && dr_now_ns() < end) {
		rank_relax(&turns);
		now = held_now();
	}
	if (now.fds > before.fds) {
		(void)dr_sysfile_each("", "/proc/self/fd", print_fd, NULL);
		fflush(stdout);
	}
	RANK_CHECK(r, now.threads <= before.threads && now.fds <= before.fds,
		"%s: %u threads and %u descriptors, %u and %u before", when, now.threads, now.fds,
		before.threads, before.fds);
}
