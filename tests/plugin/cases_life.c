/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/sysfile.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* init, properties, contexts, finalize, fork. */

/* ---- the table, properties ---- */

/* Members that NCCL would act on. */
static bool leaves_out_device_functions(const struct end *e)
{
	char symbol[32];
	const struct nccl_net_v7 *t; /* the same offsets in all versions that have them */

	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%u", e->n.version);
	t = dlsym(e->n.so, symbol);
	return e->n.version < 7 || (!t->irecvConsumed && !t->getDeviceMr);
}

/* Beside what `dualrail plugin` checks of any plugin. */
static void check_device(struct end *e, int dev, const struct dr_nccl_properties *p)
{
	struct nccl_net_properties_v12 raw;
	int64_t mbps;

	CHECK(e, p->name && p->name[0], "no name");
	CHECK(e, !p->pci_path || access(p->pci_path, F_OK) == 0, "no PCI device %s", p->pci_path);
	CHECK(e, p->max_recvs >= 8, "maxRecvs %d", p->max_recvs);
	if (dr_sysfile_number(&mbps, "", "/sys/class/net/%s/speed", p->name) && mbps > 0)
		CHECK(e, p->speed_mbps == mbps, "%s: speed %d, the kernel says %lld", p->name,
			p->speed_mbps, (long long)mbps);
	CHECK(e,
		e->n.version == 6 || (p->device_type == NCCL_NET_DEVICE_HOST && !p->device_version),
		"type %d version %d", p->device_type, p->device_version);
	CHECK(e, p->multi_request == 1, "maxMultiRequestSize %d", p->multi_request);
	if (e->n.version < 12)
		return;
	memset(&raw, 0xa5, sizeof(raw));
	OK(e, e->n.properties.v12(dev, &raw));
	CHECK(e, raw.latency >= 0 && raw.latency < 1e6f, "latency %f", (double)raw.latency);
	CHECK(e, raw.vProps.ndevs == 0 || (raw.vProps.ndevs == 1 && raw.vProps.devs[0] == dev),
		"%d devices, the first is %d", raw.vProps.ndevs, raw.vProps.devs[0]);
	for (size_t i = 1; i < DR_ARRAY_LEN(raw.vProps.devs); i++)
		CHECK(e, raw.vProps.devs[i] == 0, "members without a meaning are not zero");
}

static void *ask_often(void *arg)
{
	struct end *e = arg;

	for (int i = 0; i < 200; i++) {
		struct dr_nccl_properties p;

		OK(e, dr_nccl_properties(&e->n, i % e->ndev, &p));
	}
	return NULL;
}

/* True and persistent, while another thread asks. */
static void properties(struct rank *r)
{
	struct dr_nccl_properties p, again;
	struct end e;
	pthread_t t;
	int n = 0;

	end_open(&e, r);
	CHECK(&e, strcmp(e.n.name, "HA") == 0, "named %s", e.n.name);
	/* NCCL would call irecvConsumed with a request that is done. */
	CHECK(&e, leaves_out_device_functions(&e), "functions for devices of type UNPACK");
	OK(&e, e.n.devices(&n));
	CHECK(&e, n == e.ndev, "%d devices, then %d", e.ndev, n);
	CHECK(&e, rank_logged(r, NCCL_LOG_INFO, "HA") || rank_logged(r, NCCL_LOG_INFO, "dualrail"),
		"no line at INFO says what is in force");
	CHECK(&e, pthread_create(&t, NULL, ask_often, &e) == 0, "thread");
	for (int i = 0; i < n; i++) {
		char name[64];

		OK(&e, dr_nccl_properties(&e.n, i, &p));
		snprintf(name, sizeof(name), "%s", p.name);
		check_device(&e, i, &p);
		OK(&e, dr_nccl_properties(&e.n, (i + 1) % n, &again));
		OK(&e, dr_nccl_properties(&e.n, i, &again));
		CHECK(&e,
			strcmp(p.name, name) == 0 && strcmp(again.name, name) == 0 &&
				p.guid == again.guid && p.port == again.port,
			"device %d did not persist", i);
	}
	CHECK(&e, dr_nccl_properties(&e.n, -1, &again) != NCCL_SUCCESS, "device -1");
	CHECK(&e, dr_nccl_properties(&e.n, n, &again) != NCCL_SUCCESS, "device past the last");
	CHECK(&e, !again.past_end, "bytes behind the struct were written");
	pthread_join(t, NULL);
	end_close(&e);
}

/* ---- contexts ---- */

/* What NCCL does then: it calls finalize nevertheless (2.28.3 to 2.29.3), and goes on. */
static void init_fails(struct rank *r)
{
	struct held before;
	struct end e;
	int n = 0;

	end_load(&e, r, r->plugin);
	before = held_now();
	setenv("HA_NCCL_HEARTBEAT_MS", "often", 1);
	RANK_AT(r, "init with a wrong value");
	CHECK(&e, end_try_init(&e) != NCCL_SUCCESS, "init took a wrong value");
	CHECK(&e, !e.n.finalize || e.n.ctx == NULL, "the context is %p", e.n.ctx);
	CHECK(&e, rank_logged(r, NCCL_LOG_WARN, "HA_NCCL_HEARTBEAT_MS") > 0,
		"no warning names the variable");
	for (int i = 0; i < 2 && e.n.finalize; i++)
		OK(&e, e.n.finalize(e.n.ctx));
	CHECK(&e, e.n.devices(&n) != NCCL_SUCCESS || n == 0, "%d devices without init", n);
	held_back_to(r, before, "after init failed");
	unsetenv("HA_NCCL_HEARTBEAT_MS");
	end_init(&e);
	end_short_comm(&e);
	end_finalize(&e);
	if (e.n.finalize)
		held_back_to(r, before, "after finalize");
	dr_nccl_close(&e.n);
}

/* The first context ends while the second is used. */
static void contexts(struct rank *r)
{
	struct end e, second;

	end_open(&e, r);
	second = e;
	end_init(&second);
	end_short_comm(&e);
	end_finalize(&e);
	end_short_comm(&second);
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
	comm = end_comm(&e, 0, 1, 0);
	end_ping(&e, comm, sends);
	(void)end_listen(&e, 0, &h);
	rank_send(r, !r->id, &h, sizeof(h));
	rank_recv(r, !r->id, &other, sizeof(other));
	(void)end_try_connect(&e, 0, &other);
	rank_barrier(r);
	end_finalize(&e);
	dr_nccl_close(&e.n);
	held_back_to(r, before, "after finalize with open comms");
	rank_barrier(r);
	end_open(&e, r);
	end_short_comm(&e);
	end_close(&e);
}

/* ---- several communicators ---- */

struct thread_arg {
	struct end e;
	void *comm[2]; /* out, in */
	pthread_t t;
};

static void *exchange_both(void *arg)
{
	enum { BYTES = 60000, TIMES = 20 };
	struct thread_arg *a = arg;
	struct mem m[2];
	void *request[2];

	for (int d = 0; d < 2; d++)
		mem_new(&a->e, &m[d], a->comm[d], BYTES);
	for (uint64_t i = 0; i < TIMES; i++) {
		size_t size = i % 2 ? BYTES : 500;
		struct dr_nccl_buffer out = mem_buffer(&m[0], 0, size, 0);
		struct dr_nccl_buffer in = mem_buffer(&m[1], 0, size, 0);

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
	return NULL;
}

static void *communicator(void *arg)
{
	struct thread_arg *a = arg;

	(void)exchange_both(a);
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
		struct dr_nccl_properties p;

		end_init(&e);
		OK(&e, dr_nccl_properties(&e.n, 0, &p));
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
	dr_nccl_close(&e.n);
}

/* ---- fork ---- */

/* The child has none of the plugin's threads: every call fails or does nothing, and none waits. */
static void in_child(struct end *e, void *comm, bool sends, struct mem *m)
{
	struct dr_nccl_buffer b = mem_buffer(m, 0, 100, 0);
	struct dr_nccl_properties p;
	struct handle h;
	void *out = NULL, *request = NULL;
	int n = 0;

	RANK_AT(e->r, "child: devices");
	CHECK(e, e->n.devices(&n) != NCCL_SUCCESS || n >= 0, "devices");
	RANK_AT(e->r, "child: properties");
	(void)dr_nccl_properties(&e->n, 0, &p);
	RANK_AT(e->r, "child: listen");
	CHECK(e, dr_nccl_listen(&e->n, 0, &h, &out) != NCCL_SUCCESS || !out, "it listens");
	RANK_AT(e->r, "child: message");
	if (sends)
		CHECK(e, dr_nccl_isend(&e->n, comm, &b, &request) != NCCL_SUCCESS, "it sends");
	else
		CHECK(e, dr_nccl_irecv(&e->n, comm, 1, &b, &request) != NCCL_SUCCESS,
			"it receives");
	RANK_AT(e->r, "child: deregMr");
	(void)e->n.dereg_mr(comm, m->mhandle);
	RANK_AT(e->r, "child: close");
	(void)(sends ? e->n.close_send(comm) : e->n.close_recv(comm));
	RANK_AT(e->r, "child: finalize");
	(void)dr_nccl_finalize(&e->n);
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
	CHECK(&e, pthread_create(&a.t, NULL, exchange_both, &a) == 0, "thread");
	for (int i = 0; i < 8; i++) {
		pid_t child = fork();
		int status = 0;

		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			in_child(&e, comm, sends, &m);
			_exit(0);
		}
		/* Where it hangs is told by the rank's place, which is the child's. */
		CHECK(&e, waitpid(child, &status, 0) == child && status == 0,
			"the child ended with %#x in %s", (unsigned)status,
			atomic_load(&r->view->what));
	}
	RANK_AT(r, "traffic after fork");
	pthread_join(a.t, NULL);
	mem_free(&e, &m);
	end_ping(&e, comm, sends);
	end_close_comm(&e, comm, sends);
	end_close(&e);
}

static const struct contract_case cases[] = {
	{ .name = "properties", .run = properties, .ranks = 1, .each = true },
	{ .name = "init_fails", .run = init_fails, .ranks = 2, .each = true },
	{ .name = "contexts", .run = contexts, .ranks = 2, .from = 11 },
	{ .name = "finalize_open", .run = finalize_open, .ranks = 2, .from = 11 },
	{ .name = "two_threads", .run = two_threads, .ranks = 2 },
	{ .name = "init_in_threads", .run = init_in_threads, .ranks = 1, .from = 11 },
	{ .name = "fork", .run = forked, .ranks = 2 },
};
const struct contract_cases contract_life = { cases, DR_ARRAY_LEN(cases) };
