/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* init, properties, contexts, finalize, fork. */

/* ---- the table, properties ---- */

static void table(struct rank *r)
{
	struct end e;
	int n = 0;

	end_open(&e, r);
	CHECK(&e, e.h.name && strcmp(e.h.name, "HA") == 0, "named %s", e.h.name);
	/* NCCL would call it with a request that is done. */
	CHECK(&e, !host_has_consumed(&e.h), "irecvConsumed is for devices of type UNPACK");
	CHECK(&e, !host_has_device_mr(&e.h), "getDeviceMr is for devices of type UNPACK");
	OK(&e, e.h.devices(&n));
	CHECK(&e, n == e.ndev, "%d devices, then %d", e.ndev, n);
	CHECK(&e,
		host_logged(&r->view->log, NCCL_LOG_INFO, "HA") > 0 ||
			host_logged(&r->view->log, NCCL_LOG_INFO, "dualrail") > 0,
		"no line at INFO says what is in force");
	end_close(&e);
}

static void check_device(struct end *e, int dev, const struct host_properties *p)
{
	struct stat st;
	char path[300];
	FILE *f;
	int mbps = 0;

	CHECK(e, p->name && p->name[0], "no name");
	CHECK(e, !p->pci_path || stat(p->pci_path, &st) == 0, "no PCI device %s", p->pci_path);
	CHECK(e, p->ptr_support & NCCL_PTR_HOST, "host memory is not supported");
	CHECK(e, p->max_recvs >= 8, "maxRecvs %d", p->max_recvs);
	CHECK(e, p->max_comms > 0, "maxComms %d", p->max_comms);
	CHECK(e, p->latency >= 0 && p->latency < 1e6f, "latency %f", (double)p->latency);
	CHECK(e, p->rest_zero, "members without a meaning are not zero");
	CHECK(e, !p->past_end, "bytes behind the struct were written");
	snprintf(path, sizeof(path), "/sys/class/net/%s/speed", p->name);
	f = fopen(path, "r");
	if (f && fscanf(f, "%d", &mbps) == 1 && mbps > 0)
		CHECK(e, p->speed == mbps, "%s: speed %d, the kernel says %d", p->name, p->speed,
			mbps);
	CHECK(e, p->speed > 0, "speed %d", p->speed);
	if (f)
		fclose(f);
	if (p->has.device)
		CHECK(e, p->device_type == NCCL_NET_DEVICE_HOST && p->device_version == 0,
			"type %d version %d", p->device_type, p->device_version);
	if (p->has.global)
		CHECK(e, p->reg_is_global == 0 || p->reg_is_global == 1, "%d", p->reg_is_global);
	if (p->has.vprops) {
		CHECK(e, p->ndevs == 0 || (p->ndevs == 1 && p->first_dev == dev),
			"%d devices, the first is %d", p->ndevs, p->first_dev);
		CHECK(e, p->force_flush == 0 || p->force_flush == 1, "%d", p->force_flush);
		CHECK(e, p->p2p_bytes > 0 && p->p2p_bytes <= NCCL_NET_BYTES_MAX, "%zu",
			p->p2p_bytes);
		CHECK(e, p->coll_bytes > 0 && p->coll_bytes <= NCCL_NET_BYTES_MAX, "%zu",
			p->coll_bytes);
	}
	if (p->has.multi)
		CHECK(e, p->multi_request == 1, "maxMultiRequestSize %d", p->multi_request);
	if (p->has.rail)
		CHECK(e, p->rail_id >= -1 && p->plane_id >= -1, "%d %d", p->rail_id, p->plane_id);
}

static void *ask_often(void *arg)
{
	struct end *e = arg;

	for (int i = 0; i < 200; i++) {
		struct host_properties p;

		OK(e, host_properties(&e->h, i % e->ndev, &p));
	}
	return NULL;
}

/* True, unique, persistent; zero where they mean nothing. */
static void properties(struct rank *r)
{
	enum { DEVICES = 16 };
	struct host_properties p[DEVICES], again;
	char names[DEVICES][64];
	struct end e;
	pthread_t t;
	int n;

	end_open(&e, r);
	n = DR_MIN(e.ndev, (int)DEVICES);
	RANK_CHECK(r, pthread_create(&t, NULL, ask_often, &e) == 0, "thread");
	for (int i = 0; i < n; i++) {
		OK(&e, host_properties(&e.h, i, &p[i]));
		check_device(&e, i, &p[i]);
		snprintf(names[i], sizeof(names[i]), "%s", p[i].name);
		for (int j = 0; j < i; j++) {
			CHECK(&e, strcmp(names[j], names[i]) != 0, "two devices %s", names[i]);
			CHECK(&e, p[j].guid != p[i].guid || p[j].port != p[i].port,
				"%s and %s are one port to NCCL: guid %llx, port %d", names[j],
				names[i], (unsigned long long)p[i].guid, p[i].port);
		}
	}
	for (int i = 0; i < n; i++) {
		OK(&e, host_properties(&e.h, i, &again));
		CHECK(&e, strcmp(p[i].name, names[i]) == 0 && strcmp(again.name, names[i]) == 0,
			"the name of device %d did not persist", i);
		CHECK(&e, p[i].guid == again.guid && p[i].port == again.port, "changed");
	}
	CHECK(&e, host_properties(&e.h, -1, &again) != NCCL_SUCCESS, "device -1");
	CHECK(&e, host_properties(&e.h, e.ndev, &again) != NCCL_SUCCESS, "device past the last");
	CHECK(&e, !again.past_end, "bytes behind the struct were written");
	pthread_join(t, NULL);
	end_close(&e);
}

/* ---- contexts ---- */

/* A comm with the other rank, in the direction 0 to 1, a ping, and its end. */
static void short_comm(struct end *e)
{
	bool sends = e->r->id == 0;
	void *comm = end_comm(e, 0, 1, 0);

	end_ping(e, comm, sends);
	end_close_comm(e, comm, sends);
}

/* What NCCL does then: it calls finalize nevertheless (2.28.3 to 2.29.3), and goes on. */
static void init_fails(struct rank *r)
{
	struct held before;
	struct end e = { .r = r };
	char why[300];
	int n = 0;

	CHECK(&e, host_load(&e.h, r->plugin, r->version, why, sizeof(why)) == 0, "%s", why);
	before = held_now();
	setenv("HA_NCCL_HEARTBEAT_MS", "often", 1);
	RANK_AT(r, "init with a wrong value");
	CHECK(&e, host_init(&e.h, &e.ctx) != NCCL_SUCCESS, "init took a wrong value");
	CHECK(&e, e.ctx == NULL, "the context is %p", e.ctx);
	CHECK(&e, host_logged(&r->view->log, NCCL_LOG_WARN, "HA_NCCL_HEARTBEAT_MS") > 0,
		"no warning names the variable");
	OK(&e, host_finalize(&e.h, NULL));
	OK(&e, host_finalize(&e.h, e.ctx));
	CHECK(&e, e.h.devices(&n) != NCCL_SUCCESS || n == 0, "%d devices without init", n);
	held_back_to(r, before, "after init failed");
	unsetenv("HA_NCCL_HEARTBEAT_MS");
	end_init(&e);
	short_comm(&e);
	end_finalize(&e);
	if (host_has_contexts(&e.h))
		held_back_to(r, before, "after finalize");
	host_unload(&e.h);
}

/* The first context ends while the second is used. */
static void contexts(struct rank *r)
{
	struct end e, second;

	end_open(&e, r);
	second = e;
	end_init(&second);
	e.h.contexts = second.h.contexts;
	short_comm(&e);
	end_finalize(&e);
	short_comm(&second);
	end_finalize(&second);
}

/* NCCL closes no comm that never came up. */
static void finalize_open(struct rank *r)
{
	bool sends = r->id == 0;
	struct handle h, other;
	struct held before;
	struct end e;
	void *comm;

	end_open(&e, r);
	end_close(&e);
	before = held_now();
	end_open(&e, r);
	if (!host_has_contexts(&e.h))
		rank_skip(r, "this version has no finalize");
	comm = end_comm(&e, 0, 1, 0);
	end_ping(&e, comm, sends);
	(void)end_listen(&e, 0, &h);
	rank_send(r, !r->id, &h, sizeof(h));
	rank_recv(r, !r->id, &other, sizeof(other));
	(void)end_try_connect(&e, 0, &other);
	rank_barrier(r);
	end_finalize(&e);
	host_unload(&e.h);
	held_back_to(r, before, "after finalize with open comms");
	rank_barrier(r);
	end_open(&e, r);
	short_comm(&e);
	end_close(&e);
}

static void set_attr(struct rank *r)
{
	struct nccl_net_attr a = {
		.sendCommAttr = { 1, 1, 1, 1 }, .recvCommAttr = { -1, -1, -1, -1 }, .op = 1 << 4
	};
	struct end e;

	end_open(&e, r);
	CHECK(&e, host_set_attr(&e.h, e.ctx, &a) == NCCL_SUCCESS, "setNetAttr");
	short_comm(&e);
	CHECK(&e, host_set_attr(&e.h, e.ctx, &a) == NCCL_SUCCESS, "setNetAttr");
	end_close(&e);
}

/* ---- several communicators ---- */

struct thread_arg {
	struct end e;
	void *comm[2]; /* out, in */
	pthread_t t;
};

static void exchange_both(struct thread_arg *a)
{
	enum { BYTES = 60000, TIMES = 20 };
	struct mem m[2];
	void *request[2];

	for (int d = 0; d < 2; d++)
		mem_new(&a->e, &m[d], a->comm[d], BYTES);
	for (uint64_t i = 0; i < TIMES; i++) {
		size_t size = i % 2 ? BYTES : 500;
		struct host_buffer out = mem_buffer(&m[0], 0, size, 0);
		struct host_buffer in = mem_buffer(&m[1], 0, size, 0);

		pattern_fill(m[0].p, size, i);
		request[1] = end_recv(&a->e, a->comm[1], 1, &in);
		request[0] = end_send(&a->e, a->comm[0], &out);
		end_wait(&a->e, request[1], NULL);
		end_wait(&a->e, request[0], NULL);
		CHECK(&a->e, pattern_check(m[1].p, size, i) == size, "message %llu",
			(unsigned long long)i);
	}
	for (int d = 0; d < 2; d++)
		mem_free(&a->e, &m[d]);
}

static void *communicator(void *arg)
{
	struct thread_arg *a = arg;

	exchange_both(a);
	end_close_comm(&a->e, a->comm[0], true);
	end_close_comm(&a->e, a->comm[1], false);
	return NULL;
}

/* Each in a thread of its own, with a context of its own, both ways. */
static void two_threads(struct rank *r)
{
	struct thread_arg a[2];
	struct end e;

	end_open(&e, r);
	for (int i = 0; i < 2; i++) {
		a[i].e = e;
		if (i > 0)
			end_init(&a[i].e);
		for (unsigned d = 0; d < 2; d++)
			a[i].comm[d != r->id] = end_comm(&a[i].e, d, !d, 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(&e, pthread_create(&a[i].t, NULL, communicator, &a[i]) == 0, "thread");
	RANK_AT(r, "two threads");
	for (int i = 0; i < 2; i++)
		pthread_join(a[i].t, NULL);
	for (int i = 0; i < 2; i++)
		end_finalize(&a[i].e);
}

static void *begin_and_end(void *arg)
{
	const struct end *first = arg;

	for (int i = 0; i < 10; i++) {
		struct end e = *first;
		struct host_properties p;

		end_init(&e);
		OK(&e, host_properties(&e.h, 0, &p));
		CHECK(&e, p.name && p.name[0], "no name");
		end_finalize(&e);
	}
	return NULL;
}

/* Communicators that several threads create and destroy: the plugin starts and stops all the time. */
static void init_in_threads(struct rank *r)
{
	enum { THREADS = 3 };
	struct held before;
	pthread_t t[THREADS];
	struct end e;

	end_open(&e, r);
	end_finalize(&e);
	before = held_now();
	for (int i = 0; i < THREADS; i++)
		CHECK(&e, pthread_create(&t[i], NULL, begin_and_end, &e) == 0, "thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	held_back_to(r, before, "after the last finalize");
	host_unload(&e.h);
}

/* ---- fork ---- */

/* The child has none of the plugin's threads: every call fails or does nothing, and none waits. */
static void in_child(struct end *e, void *comm, bool sends, struct mem *m)
{
	struct host_buffer b = mem_buffer(m, 0, 100, 0);
	struct host_properties p;
	struct handle h;
	void *out = NULL, *request = NULL;
	int n = 0;

	RANK_AT(e->r, "child: devices");
	CHECK(e, e->h.devices(&n) != NCCL_SUCCESS || n >= 0, "devices");
	RANK_AT(e->r, "child: properties");
	(void)host_properties(&e->h, 0, &p);
	RANK_AT(e->r, "child: listen");
	CHECK(e, host_listen(&e->h, e->ctx, 0, &h, &out) != NCCL_SUCCESS || !out, "it listens");
	RANK_AT(e->r, "child: message");
	if (sends)
		CHECK(e, host_send(&e->h, comm, &b, &request) != NCCL_SUCCESS, "it sends");
	else
		CHECK(e, host_recv(&e->h, comm, 1, &b, &request) != NCCL_SUCCESS, "it receives");
	RANK_AT(e->r, "child: deregMr");
	(void)e->h.dereg(comm, m->mhandle);
	RANK_AT(e->r, "child: close");
	(void)(sends ? e->h.close_send(comm) : e->h.close_recv(comm));
	RANK_AT(e->r, "child: finalize");
	(void)host_finalize(&e->h, e->ctx);
}

static void wait_for_child(struct end *e, pid_t child)
{
	int64_t end = dr_now_ns() + 10 * DR_NS_PER_S;
	unsigned turns = 0;
	char text[sizeof(e->r->view->text)];
	int status = 0;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (dr_now_ns() > end) {
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			CHECK(e, false, "the child hangs in: %s", atomic_load(&e->r->view->what));
		}
		rank_relax(&turns);
	}
	snprintf(text, sizeof(text), "%s", e->r->view->text);
	CHECK(e, WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the child ended with %#x in %s: %s", (unsigned)status,
		atomic_load(&e->r->view->what), text);
}

static void *traffic(void *arg)
{
	exchange_both(arg);
	return NULL;
}

/* In mid-traffic of another thread, several times: a lock may be held at that moment. */
static void forked(struct rank *r)
{
	bool sends = r->id == 0;
	struct thread_arg a;
	struct mem m;
	struct end e;
	void *comm;

	end_open(&e, r);
	comm = end_comm(&e, 0, 1, 0);
	mem_new(&e, &m, comm, 4096);
	a.e = e;
	for (unsigned d = 0; d < 2; d++)
		a.comm[d != r->id] = end_comm(&e, d, !d, 0);
	CHECK(&e, pthread_create(&a.t, NULL, traffic, &a) == 0, "thread");
	for (int i = 0; i < 8; i++) {
		pid_t child = fork();

		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			in_child(&e, comm, sends, &m);
			_exit(0);
		}
		wait_for_child(&e, child);
	}
	RANK_AT(r, "traffic after fork");
	pthread_join(a.t, NULL);
	mem_free(&e, &m);
	end_ping(&e, comm, sends);
	end_close_comm(&e, comm, sends);
	end_close(&e);
}

static const struct contract_case cases[] = {
	{ .name = "table", .run = table, .ranks = 1, .each = true },
	{ .name = "properties", .run = properties, .ranks = 1, .each = true },
	{ .name = "init_fails", .run = init_fails, .ranks = 2, .each = true },
	{ .name = "contexts", .run = contexts, .ranks = 2, .from = 11 },
	{ .name = "finalize_open", .run = finalize_open, .ranks = 2, .from = 11 },
	{ .name = "set_attr", .run = set_attr, .ranks = 2, .from = 11, .each = true },
	{ .name = "two_threads", .run = two_threads, .ranks = 2 },
	{ .name = "init_in_threads", .run = init_in_threads, .ranks = 1, .from = 11 },
	{ .name = "fork", .run = forked, .ranks = 2 },
};
const struct contract_cases contract_life = { cases, DR_ARRAY_LEN(cases) };
