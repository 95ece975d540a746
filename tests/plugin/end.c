/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/end.h"

#include "base/clock.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- life ---- */

void end_open(struct end *e, struct rank *r)
{
	char why[300];

	memset(e, 0, sizeof(*e));
	e->r = r;
	RANK_AT(r, "load");
	CHECK(e, host_load(&e->h, r->plugin, r->version, why, sizeof(why)) == 0, "%s", why);
	end_init(e);
}

void end_init(struct end *e)
{
	RANK_AT(e->r, "init");
	OK(e, host_init(&e->h, &e->ctx));
	CHECK(e, !host_has_contexts(&e->h) || e->ctx != (void *)(uintptr_t)0xbad,
		"the context was not set");
	e->ndev = -1;
	OK(e, e->h.devices(&e->ndev));
	CHECK(e, e->ndev > 0, "%d devices", e->ndev);
}

void end_finalize(struct end *e)
{
	RANK_AT(e->r, "finalize");
	OK(e, host_finalize(&e->h, e->ctx));
	e->ctx = NULL;
}

void end_close(struct end *e)
{
	end_finalize(e);
	RANK_AT(e->r, "unload");
	host_unload(&e->h);
	RANK_AT(e->r, "end");
}

void end_close_both(struct end *e)
{
	rank_barrier(e->r);
	end_finalize(e);
	CHECK(e, host_logged(&e->r->view->log, NCCL_LOG_WARN, "did not close") == 0,
		"finalize gave up although the peer is there");
	rank_barrier(e->r);
	end_close(e);
}

/* ---- comms ---- */

void *end_listen(struct end *e, int dev, struct handle *handle)
{
	void *l = NULL;

	RANK_AT(e->r, "listen");
	OK(e, host_listen(&e->h, e->ctx, dev, handle, &l));
	CHECK(e, l, "no listen comm");
	return l;
}

void *end_try_connect(struct end *e, int dev, struct handle *handle)
{
	void *comm;

	OK(e, host_connect(&e->h, e->ctx, dev, handle, &comm));
	CHECK(e, comm != (void *)(uintptr_t)0xbad, "the comm was not set");
	return comm;
}

void *end_try_accept(struct end *e, void *listen_comm)
{
	void *comm;

	OK(e, host_accept(&e->h, listen_comm, &comm));
	CHECK(e, comm != (void *)(uintptr_t)0xbad, "the comm was not set");
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
	OK(e, e->h.close_listen(l));
	return comm;
}

void end_close_comm(struct end *e, void *comm, bool sends)
{
	RANK_AT(e->r, "close");
	if (comm)
		OK(e, sends ? e->h.close_send(comm) : e->h.close_recv(comm));
}

/* ---- memory ---- */

void mem_map(struct end *e, struct mem *m, size_t len)
{
	memset(m, 0, sizeof(*m));
	m->len = len;
	m->p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(e, m->p != MAP_FAILED, "mmap of %zu bytes", len);
}

void mem_reg(struct end *e, struct mem *m, void *comm)
{
	RANK_AT(e->r, "regMr");
	m->comm = comm;
	OK(e, host_reg(&e->h, comm, m->p, m->len, NCCL_PTR_HOST, &m->mhandle));
}

void mem_dereg(struct end *e, struct mem *m)
{
	RANK_AT(e->r, "deregMr");
	OK(e, e->h.dereg(m->comm, m->mhandle));
	m->mhandle = NULL;
}

void mem_unmap(struct mem *m)
{
	munmap(m->p, m->len);
	m->p = NULL;
}

void mem_new(struct end *e, struct mem *m, void *comm, size_t len)
{
	mem_map(e, m, len);
	mem_reg(e, m, comm);
}

void mem_free(struct end *e, struct mem *m)
{
	mem_dereg(e, m);
	mem_unmap(m);
}

struct host_buffer mem_buffer(const struct mem *m, size_t off, size_t size, int tag)
{
	return (struct host_buffer){
		.data = m->p + off, .mhandle = m->mhandle, .size = size, .tag = tag
	};
}

static unsigned char pattern_at(size_t i, uint64_t key, uint64_t *word)
{
	if (i % 8 == 0 || *word == 0)
		*word = dr_mix64(key ^ (i / 8)) | 1;
	return (unsigned char)(*word >> (i % 8 * 8));
}

void pattern_fill(void *p, size_t len, uint64_t key)
{
	unsigned char *b = p;
	uint64_t word = 0;

	for (size_t i = 0; i < len; i++)
		b[i] = pattern_at(i, key, &word);
}

size_t pattern_check(const void *p, size_t len, uint64_t key)
{
	const unsigned char *b = p;
	uint64_t word = 0;
	size_t i = 0;

	while (i < len && b[i] == pattern_at(i, key, &word))
		i++;
	return i;
}

bool all_bytes(const void *p, size_t len, unsigned char value)
{
	const unsigned char *b = p;

	return len == 0 || (b[0] == value && memcmp(b, b + 1, len - 1) == 0);
}

/* ---- messages ---- */

void *end_send(struct end *e, void *comm, const struct host_buffer *b)
{
	void *request;
	unsigned turns = 0;

	do {
		request = (void *)(uintptr_t)0xbad; /* what an earlier use left */
		OK(e, host_send(&e->h, comm, b, &request));
		CHECK(e, request != (void *)(uintptr_t)0xbad, "isend did not set the request");
		if (!request)
			rank_relax(&turns);
	} while (!request);
	return request;
}

void *end_recv(struct end *e, void *comm, int n, const struct host_buffer *b)
{
	void *request;
	unsigned turns = 0;

	do {
		request = (void *)(uintptr_t)0xbad;
		OK(e, host_recv(&e->h, comm, n, b, &request));
		CHECK(e, request != (void *)(uintptr_t)0xbad, "irecv did not set the request");
		if (!request)
			rank_relax(&turns);
	} while (!request);
	return request;
}

bool end_test(struct end *e, void *request, int *sizes)
{
	int done = 0x5a5a;

	OK(e, e->h.test(request, &done, sizes));
	CHECK(e, done == 0 || done == 1, "test set done to %d", done);
	return done;
}

void end_wait(struct end *e, void *request, int *sizes)
{
	unsigned turns = 0;

	while (!end_test(e, request, sizes))
		rank_relax(&turns);
}

static void ping_one(struct end *e, const struct mem *m, size_t size, bool sends)
{
	struct host_buffer b = mem_buffer(m, 0, size, 7);
	int got = -1;

	if (sends) {
		pattern_fill(m->p, size, size);
		end_wait(e, end_send(e, m->comm, &b), NULL);
		return;
	}
	memset(m->p, 0, size);
	end_wait(e, end_recv(e, m->comm, 1, &b), &got);
	CHECK(e, got == (int)size, "received %d bytes of %zu", got, size);
	CHECK(e, pattern_check(m->p, size, size) == size, "wrong at byte %zu of %zu",
		pattern_check(m->p, size, size), size);
}

void end_ping(struct end *e, void *comm, bool sends)
{
	struct mem m;

	mem_new(e, &m, comm, 200000);
	RANK_AT(e->r, "small ping");
	ping_one(e, &m, 100, sends);
	RANK_AT(e->r, "large ping");
	ping_one(e, &m, m.len, sends);
	mem_free(e, &m);
}

/* ---- this process ---- */

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

struct held held_now(void)
{
	return (struct held){ .threads = entries("/proc/self/task"),
		.fds = entries("/proc/self/fd") };
}

static void name_fds(char *out, size_t len)
{
	struct dirent *d;
	DIR *dir = opendir("/proc/self/fd");
	size_t at = 0;

	while (dir && (d = readdir(dir)) && at < len) {
		char path[300], to[120];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", d->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0)
			at += (size_t)snprintf(out + at, len - at, " %.*s", (int)n, to);
	}
	if (dir)
		closedir(dir);
}

void held_back_to(struct rank *r, struct held before, const char *when)
{
	int64_t end = dr_now_ns() + 5 * DR_NS_PER_S;
	struct held now = held_now();
	char fds[400] = "";
	unsigned turns = 0;

	while ((now.threads > before.threads || now.fds > before.fds) && dr_now_ns() < end) {
		rank_relax(&turns);
		now = held_now();
	}
	name_fds(fds, sizeof(fds));
	RANK_CHECK(r, now.threads <= before.threads, "%s: %u threads, %u before", when, now.threads,
		before.threads);
	RANK_CHECK(r, now.fds <= before.fds, "%s: %u descriptors, %u before:%s", when, now.fds,
		before.fds, fds);
}

unsigned long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long total = 0, pages = 0;

	if (f) {
		if (fscanf(f, "%lu %lu", &total, &pages) != 2)
			pages = 0;
		fclose(f);
	}
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}
