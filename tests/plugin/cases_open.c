/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/contract.h"

#include "base/clock.h"
#include "base/sysfile.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* listen, connect, accept between two ranks that both want to talk. */

/* No call may wait for the peer: bound for one call, in the time of own_ns(). */
static const int64_t CALL_NS = 500 * DR_NS_PER_MS;

/* The clock without what this thread waited for a processor, where the kernel tells. */
static int64_t own_ns(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "re");
	long long waited = 0;

	if (f && fscanf(f, "%*d %lld", &waited) != 1)
		waited = 0;
	if (f)
		fclose(f);
	return dr_now_ns() - waited;
}

/* Returns when all its threads have stopped. */
static void stop_process(struct end *e, pid_t pid)
{
	unsigned turns = 0;
	char text[512], state = 0;

	CHECK(e, kill(pid, SIGSTOP) == 0, "SIGSTOP");
	RANK_AT(e->r, "wait until the peer is stopped");
	for (; state != 'T'; rank_relax(&turns)) {
		CHECK(e, dr_sysfile_text(text, sizeof(text), "", "/proc/%d/stat", (int)pid) > 0,
			"stat");
		CHECK(e, sscanf(text, "%*d (%*[^)]) %c", &state) == 1, "%s", text);
	}
}

/* While the other side does nothing: connect and accept return at once, without a comm. */
static void never_blocks(struct rank *r)
{
	int64_t start, longest = 0;
	unsigned turns = 0;
	struct handle h;
	struct end e;
	pid_t pid = getpid();
	void *l, *comm = NULL;

	end_open(&e, r);
	if (r->id == 1) {
		l = end_listen(&e, 0, &h);
		for (int i = 0; i < 300; i++) { /* nobody has the handle yet */
			start = own_ns();
			CHECK(&e, !end_try_accept(&e, l), "accepted nobody");
			longest = DR_MAX(longest, own_ns() - start);
		}
		rank_send(r, 0, &h, sizeof(h));
		rank_send(r, 0, &pid, sizeof(pid));
		comm = end_accept(&e, l);
		OK(&e, e.n.close_listen(l));
	} else {
		rank_recv(r, 1, &h, sizeof(h));
		rank_recv(r, 1, &pid, sizeof(pid));
		stop_process(&e, pid);
		RANK_AT(r, "connect to a stopped process");
		for (int i = 0; i < 300; i++) {
			start = own_ns();
			CHECK(&e, !end_try_connect(&e, 0, &h), "connected to a stopped process");
			longest = DR_MAX(longest, own_ns() - start);
			rank_relax(&turns);
		}
		kill(pid, SIGCONT);
		comm = end_connect(&e, 0, &h);
	}
	printf("# rank %u: longest call %.0f us of %s\n", r->id, (double)longest / 1e3,
		r->id == 1 ? "accept" : "connect");
	fflush(stdout);
	CHECK(&e, longest < CALL_NS, "a call took %lld ms", (long long)(longest / DR_NS_PER_MS));
	end_ping(&e, comm, r->id == 0);
	end_close_comm(&e, comm, r->id == 0);
	end_close(&e);
}

/* n comms in each direction, all of them opened at once by calls in turn, as NCCL's proxy thread does. */
static void open_both_ways(struct end *e, unsigned n, int dev, void **out, void **in)
{
	struct handle own, *theirs = calloc(n, sizeof(*theirs));
	void **l = calloc(n, sizeof(*l));
	unsigned left = 2 * n, turns = 0, peer = !e->r->id;

	for (unsigned i = 0; i < n; i++) {
		l[i] = end_listen(e, dev, &own);
		rank_send(e->r, peer, &own, sizeof(own));
	}
	for (unsigned i = 0; i < n; i++)
		rank_recv(e->r, peer, &theirs[i], sizeof(theirs[i]));
	RANK_AT(e->r, "connect and accept in turn");
	while (left > 0) {
		for (unsigned i = 0; i < n; i++) {
			if (!out[i] && (out[i] = end_try_connect(e, dev, &theirs[i])))
				left--;
			if (!in[i] && (in[i] = end_try_accept(e, l[i]))) {
				OK(e, e->n.close_listen(l[i]));
				left--;
			}
		}
		rank_relax(&turns);
	}
	free(theirs);
	free(l);
}

/* Both ends connect first and accept later would be a deadlock if connect waited. */
static void both_ways(struct rank *r)
{
	void *out = NULL, *in = NULL;
	struct end e;

	end_open(&e, r);
	open_both_ways(&e, 1, 0, &out, &in);
	end_ping(&e, r->id ? in : out, r->id == 0);
	end_ping(&e, r->id ? out : in, r->id == 1);
	end_close_comm(&e, out, true);
	end_close_comm(&e, in, false);
	end_close(&e);
}

/* Each of two senders has its own session with the receiver, also for its second comm. */
static void two_senders(struct rank *r)
{
	enum { COMMS = 4 };
	void *comm[COMMS] = { NULL };
	struct end e;

	end_open(&e, r);
	for (unsigned i = 0; i < COMMS; i++)
		if (r->id == i % 2 || r->id == 2)
			comm[i] = end_comm(&e, i % 2, 2, 0);
	for (unsigned i = 0; i < COMMS; i++)
		if (comm[i])
			end_ping(&e, comm[i], r->id != 2);
	for (unsigned i = 0; i < COMMS; i++)
		end_close_comm(&e, comm[i], r->id != 2);
	end_close(&e);
}

static void many(struct rank *r)
{
	enum { COMMS = 24 };
	void *out[COMMS] = { NULL }, *in[COMMS] = { NULL };
	struct mem m[COMMS][2];
	void *request[COMMS][2];
	struct end e;

	end_open(&e, r);
	open_both_ways(&e, COMMS, 0, out, in);
	for (unsigned i = 0; i < COMMS; i++) { /* all carry data at once */
		size_t size = i % 2 ? 100000 : 300;
		struct dr_nccl_buffer b[2];

		mem_new(&e, &m[i][0], out[i], size);
		mem_new(&e, &m[i][1], in[i], size);
		pattern_fill(m[i][0].p, size, i);
		b[0] = mem_buffer(&m[i][0], 0, size, (int)i);
		b[1] = mem_buffer(&m[i][1], 0, size, (int)i);
		request[i][1] = end_recv(&e, in[i], 1, &b[1]);
		request[i][0] = end_send(&e, out[i], &b[0]);
	}
	RANK_AT(r, "messages on all comms");
	for (unsigned i = 0; i < COMMS; i++) {
		end_wait(&e, request[i][1], NULL);
		end_wait(&e, request[i][0], NULL);
		CHECK(&e, pattern_check(m[i][1].p, m[i][1].len, i) == m[i][1].len, "comm %u", i);
		mem_free(&e, &m[i][0]);
		mem_free(&e, &m[i][1]);
	}
	for (unsigned i = 0; i < COMMS; i++) {
		end_close_comm(&e, out[i], true);
		end_close_comm(&e, in[i], false);
	}
	end_close(&e);
}

/* Device i of one rank to device N-1-i of the other, with one comm each. */
static void reverse_devices(struct rank *r)
{
	struct end e;

	end_open(&e, r);
	CHECK(&e, e.ndev >= 2, "%d devices", e.ndev);
	for (int i = 0; i < e.ndev; i++) {
		bool sends = r->id == 0;
		void *comm = end_comm(&e, 0, 1, sends ? i : e.ndev - 1 - i);

		end_ping(&e, comm, sends);
		end_close_comm(&e, comm, sends);
	}
	end_close(&e);
}

/* NULL in place of a pointer to a device handle. */
static void *try_without_device(struct end *e, struct handle *h, void *l)
{
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	const struct dr_nccl *n = &e->n;
	void *comm = NULL;

	if (l)
		OK(e, n->accept.device(l, &comm, NULL));
	else if (n->version >= 11)
		OK(e, n->connect.context(n->ctx, 0, h, &comm, NULL));
	else if (n->version == 10)
		OK(e, n->connect.config(0, &config, h, &comm, NULL));
	else
		OK(e, n->connect.device(0, h, &comm, NULL));
	return comm;
}

static void no_device_handles(struct rank *r)
{
	void *comm = NULL, *l = NULL;
	unsigned turns = 0;
	struct handle h;
	struct end e;

	end_open(&e, r);
	if (r->id == 1) {
		l = end_listen(&e, 0, &h);
		rank_send(r, 0, &h, sizeof(h));
	} else {
		rank_recv(r, 1, &h, sizeof(h));
	}
	while (!(comm = try_without_device(&e, &h, l)))
		rank_relax(&turns);
	if (l)
		OK(&e, e.n.close_listen(l));
	end_ping(&e, comm, r->id == 0);
	end_close_comm(&e, comm, r->id == 0);
	end_close(&e);
}

/* Copies of one handle are as good as the original, each makes a comm: some at once, then one after the other. */
static void listen_again(struct rank *r)
{
	enum { AT_ONCE = 4, TIMES = 12 };
	void *comm[TIMES] = { NULL }, *l = NULL;
	unsigned up = 0, turns = 0;
	struct handle h[TIMES];
	struct end e;

	end_open(&e, r);
	if (r->id == 1) {
		l = end_listen(&e, 0, &h[0]);
		rank_send(r, 0, &h[0], sizeof(h[0]));
	} else {
		rank_recv(r, 1, &h[0], sizeof(h[0]));
	}
	for (int i = 1; i < TIMES; i++)
		h[i] = h[0];
	RANK_AT(r, "connect from copies");
	for (; up < AT_ONCE; rank_relax(&turns))
		for (int i = 0; i < AT_ONCE; i++)
			if (!comm[i] && (comm[i] = l ? end_try_accept(&e, l)
						     : end_try_connect(&e, 0, &h[i])))
				up++;
	for (int i = 0; i < TIMES; i++) {
		struct mem m;

		if (i >= AT_ONCE)
			comm[i] = l ? end_accept(&e, l) : end_connect(&e, 0, &h[i]);
		for (int j = 0; j < i; j++)
			CHECK(&e, comm[i] != comm[j], "two comms are one");
		/* The order of accept need not be that of connect: all carry the same. */
		mem_new(&e, &m, comm[i], 64);
		end_checked(&e, &m, 8, r->id == 0, 5);
		mem_free(&e, &m);
	}
	if (l)
		OK(&e, e.n.close_listen(l));
	for (int i = AT_ONCE; i < TIMES; i++) { /* the comms outlive it */
		end_ping(&e, comm[i], r->id == 0);
		end_close_comm(&e, comm[i], r->id == 0);
	}
	for (int i = 0; i < AT_ONCE; i++)
		end_close_comm(&e, comm[i], r->id == 0);
	end_close(&e);
}

/* Handles that are never connected: with several proxies per comm NCCL makes such. */
static void listen_unused(struct rank *r)
{
	struct held before = { 0 };
	struct handle h;
	struct end e;

	end_open(&e, r);
	for (int i = 0; i < 40; i++) {
		void *l = end_listen(&e, i % e.ndev, &h);

		if (i % 2)
			CHECK(&e, !end_try_accept(&e, l), "accepted nobody");
		OK(&e, e.n.close_listen(l));
		if (i == e.ndev) /* it may keep a socket for each device */
			before = held_now();
	}
	held_back_to(r, before, "after closeListen");
	end_close(&e);
}

static const struct contract_case cases[] = {
	{ .name = "never_blocks", .run = never_blocks, .ranks = 2 },
	{ .name = "both_ways", .run = both_ways, .ranks = 2, .each = true },
	{ .name = "two_senders", .run = two_senders, .ranks = 3 },
	{ .name = "many", .run = many, .ranks = 2 },
	{ .name = "reverse_devices", .run = reverse_devices, .ranks = 2, .rails = true },
	{ .name = "no_device_handles",
		.run = no_device_handles,
		.ranks = 2,
		.from = 7,
		.each = true },
	{ .name = "listen_again", .run = listen_again, .ranks = 2 },
	{ .name = "listen_unused", .run = listen_unused, .ranks = 1 },
};
const struct contract_cases contract_open = { cases, DR_ARRAY_LEN(cases) };
