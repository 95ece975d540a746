/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/plugin/end.h"
#include "tests/plugin/sockets.h"
#include "topology/netdev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The time of an exchange between two ranks as in NCCL's ring all-reduce: over a plugin, and over a peer that sends as
 * NCCL's Socket transport does (sockets.h), alternating in the same run.
 *
 *   exchange_main [OPTION...] PLUGIN
 *     --netns A,B       a network namespace for each rank
 *     --sizes N,N,...   bytes of the vector (8,4K,64K,256K,1M,8M)
 *     --channels N      NCCL's channels: comms in each direction (2)
 *     --pairs N         runs of each (15)
 *     --ms N            of one run (150)
 *     --socks N --threads N    data connections and threads of each comm of the peer (0 0: the caller's thread)
 *     --only NAME       plugin or socket: measures this one alone
 *     --test-times      at the end how long the plugin's test() took: a line "# rank ..." of each rank
 *
 * Each rank has one thread, which posts up to 8 receives and sends of each comm in advance and tests the oldest of each. A
 * channel sends its half of its part in messages of at most 512 KiB, then what it received, message by message.
 * Prints for each size and run one line "SIZE PLUGIN_US SOCKET_US".
 */
enum {
	DEPTH = 8,
	CHANNELS_MAX = 16,
	SIZES_MAX = 16,
	MESSAGE_MAX = 512 << 10,
	LEAST_PART = 32 << 10
};
enum { PLUGIN, SOCKET };

struct settings {
	const char *only;
	uint64_t size[SIZES_MAX];
	unsigned n_sizes, channels, pairs, ms, socks, threads;
	bool test_times;
};

/* How long calls of the plugin's test() took: how many in each microsecond, the last place for all above. */
enum { TEST_US = 20000 };
struct test_times {
	uint64_t calls, in_us[TEST_US + 1];
	int64_t longest_ns;
};

/* One direction of a channel, over one of the two. */
struct flow {
	int over;
	bool sends;
	void *comm;
	struct mem mem; /* DEPTH messages */
	void *req[DEPTH];
	uint64_t posted, done;
};
struct channel {
	struct flow in[2], out[2];
};

struct bench {
	struct end e;
	const struct settings *s;
	struct channel ch[CHANNELS_MAX];
	struct test_times times;
};

/* ---- open ---- */

/* Of the nth device of NCCL_SOCKET_IFNAME, or of those that serve; of the loopback if there is none. */
static struct sockaddr_in address(unsigned nth)
{
	struct sockaddr_in of = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *list = getenv("NCCL_SOCKET_IFNAME");
	struct dr_netdev_rail rail[CHANNELS_MAX];
	int n = dr_netdev_rails(list && *list == '=' ? list + 1 : list, (struct sockaddr *)&of,
		rail, CHANNELS_MAX, NULL);

	if (n > 0 && rail[nth % (unsigned)n].addr.ss_family == AF_INET)
		memcpy(&of, &rail[nth % (unsigned)n].addr, sizeof(of));
	of.sin_port = 0;
	return of;
}

static struct sock_comm *socket_comm(struct bench *b, unsigned from, unsigned nth)
{
	struct rank *r = b->e.r;
	int fds[1 + SOCK_CONNS_MAX], l = -1, on = 1;
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	bool dials = r->id == from;

	RANK_AT(r, "sockets");
	if (dials) {
		rank_recv(r, 1 - from, &a, sizeof(a));
	} else {
		a = address(nth);
		l = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(&b->e, bind(l, (struct sockaddr *)&a, sizeof(a)) == 0, "bind");
		CHECK(&b->e, listen(l, 32) == 0, "listen");
		CHECK(&b->e, getsockname(l, (struct sockaddr *)&a, &len) == 0, "address");
		rank_send(r, from, &a, sizeof(a));
	}
	for (unsigned i = 0; i < 1 + b->s->socks; i++) {
		fds[i] = dials ? socket(AF_INET, SOCK_STREAM, 0) : accept(l, NULL, NULL);
		CHECK(&b->e, fds[i] >= 0, "%s", strerror(errno));
		if (dials)
			CHECK(&b->e, connect(fds[i], (struct sockaddr *)&a, sizeof(a)) == 0, "%s",
				strerror(errno));
		(void)setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	if (l >= 0)
		close(l);
	return sock_open(dials, fds, b->s->socks, b->s->threads);
}

static void flow_open(struct bench *b, struct flow *f, int over, unsigned from, unsigned nth)
{
	*f = (struct flow){ .over = over, .sends = b->e.r->id == from };
	if (over == SOCKET) {
		f->comm = socket_comm(b, from, nth);
		mem_map(&b->e, &f->mem, (size_t)DEPTH * MESSAGE_MAX);
	} else {
		f->comm = end_comm(&b->e, from, 1 - from, (int)nth % b->e.ndev);
		mem_new(&b->e, &f->mem, f->comm, (size_t)DEPTH * MESSAGE_MAX);
	}
	CHECK(&b->e, f->comm, "no comm");
	memset(f->mem.p, 1, f->mem.len);
}

static void flow_close(struct bench *b, struct flow *f)
{
	if (f->over == SOCKET) {
		sock_close(f->comm);
		mem_unmap(&f->mem);
		return;
	}
	mem_free(&b->e, &f->mem);
	end_close_comm(&b->e, f->comm, f->sends);
}

/* ---- one exchange ---- */

static uint8_t *slot(const struct flow *f, uint64_t k)
{
	return f->mem.p + k % DEPTH * MESSAGE_MAX;
}

static void post(struct bench *b, struct flow *f, size_t size)
{
	void **req = &f->req[f->posted % DEPTH];

	*req = NULL;
	if (f->over == SOCKET) {
		*req = sock_post(f->comm, slot(f, f->posted), size);
	} else {
		struct dr_nccl_buffer hb =
			mem_buffer(&f->mem, f->posted % DEPTH * MESSAGE_MAX, size, 0);

		OK(&b->e, f->sends ? dr_nccl_isend(&b->e.n, f->comm, &hb, req)
				   : dr_nccl_irecv(&b->e.n, f->comm, 1, &hb, req));
	}
	f->posted += *req != NULL;
}

static void test_plugin(struct bench *b, void *req, int *done, int *n)
{
	int64_t ns = b->s->test_times ? dr_now_ns() : 0;

	OK(&b->e, b->e.n.test(req, done, n));
	if (!b->s->test_times)
		return;
	ns = dr_now_ns() - ns;
	b->times.calls++;
	b->times.in_us[DR_MIN(ns / 1000, (int64_t)TEST_US)]++;
	b->times.longest_ns = DR_MAX(b->times.longest_ns, ns);
}

/* The least number of whole microseconds within which this part of the calls ended. */
static unsigned test_quantile_us(const struct test_times *t, double part)
{
	uint64_t n = 0;

	for (unsigned us = 0; us < TEST_US; us++)
		if ((double)(n += t->in_us[us]) >= part * (double)t->calls)
			return us + 1;
	return TEST_US + 1;
}

static void print_test_times(const struct bench *b)
{
	const struct test_times *t = &b->times;

	printf("# rank %u: %lu calls of test: median %u us, p99 %u us, p99.9 %u us, longest %ld us\n",
		b->e.r->id, (unsigned long)t->calls, test_quantile_us(t, 0.5),
		test_quantile_us(t, 0.99), test_quantile_us(t, 0.999),
		(long)(t->longest_ns / 1000));
	fflush(stdout);
}

/* The oldest request, if there is one. */
static bool test(struct bench *b, struct flow *f, size_t size)
{
	void *req = f->req[f->done % DEPTH];
	size_t got = 0;
	int done = 0, n = 0;

	if (f->done == f->posted)
		return false;
	if (f->over == SOCKET) {
		done = sock_test(req, &got);
		CHECK(&b->e, done >= 0, "%s", strerror(-done));
	} else {
		test_plugin(b, req, &done, &n);
		got = (size_t)n;
	}
	if (!done)
		return false;
	CHECK(&b->e, got == size, "%zu bytes, expected %zu", got, size);
	if (!f->sends)
		CHECK(&b->e, memcmp(slot(f, f->done), &f->done, sizeof(f->done)) == 0,
			"message %lu is another one", (unsigned long)f->done);
	f->done++;
	return true;
}

/* One turn of a channel, which began at messages `in` and `out`. Returns whether anything happened. */
static bool turn(struct bench *b, struct channel *c, int over, uint64_t in, uint64_t out,
	uint64_t half, size_t size)
{
	struct flow *i = &c->in[over], *o = &c->out[over];
	bool any = false;

	while (i->posted < in + 2 * half && i->posted - i->done < DEPTH) {
		uint64_t before = i->posted;

		post(b, i, MESSAGE_MAX);
		if (i->posted == before)
			break;
	}
	any |= test(b, i, size);
	/* The first half is there; the second one is what came. */
	while (o->posted < out + 2 * half && o->posted - o->done < DEPTH &&
		(o->posted < out + half || i->done - in > o->posted - out - half)) {
		uint64_t k = o->posted;

		memcpy(slot(o, k), &k, sizeof(k));
		post(b, o, size);
		if (o->posted == k)
			break;
		any = true;
	}
	any |= test(b, o, size);
	return any;
}

static void exchange(struct bench *b, int over, uint64_t bytes)
{
	uint64_t part = bytes / 2, in[CHANNELS_MAX], out[CHANNELS_MAX], half;
	unsigned n = (unsigned)DR_MIN((uint64_t)b->s->channels, DR_MAX(part / LEAST_PART, 1ul));
	size_t size;
	bool more = true;

	part = DR_MAX(part / n, 8ul);
	half = (part + MESSAGE_MAX - 1) / MESSAGE_MAX;
	size = part / half;
	for (unsigned i = 0; i < n; i++) {
		in[i] = b->ch[i].in[over].done;
		out[i] = b->ch[i].out[over].posted;
	}
	while (more) {
		bool any = false;

		more = false;
		for (unsigned i = 0; i < n; i++) {
			struct channel *c = &b->ch[i];

			any |= turn(b, c, over, in[i], out[i], half, size);
			/* NCCL's kernel ends when it has everything; its proxy's sends may still run. */
			more |= c->in[over].done < in[i] + 2 * half ||
				c->out[over].done < out[i] + 2 * half;
		}
		if (!any)
			sched_yield();
	}
}

/* ---- measurement ---- */

/* The mean time of an exchange, us. Rank 0 says how often: as often as fits in `ms`, by a few before. */
static double run_for(struct bench *b, int over, uint64_t bytes, unsigned ms)
{
	struct rank *r = b->e.r;
	uint64_t n = 4;
	int64_t start;

	RANK_AT(r, over == SOCKET ? "socket" : "plugin");
	rank_barrier(r);
	start = dr_now_ns();
	for (uint64_t i = 0; i < n; i++)
		exchange(b, over, bytes);
	if (r->id == 0) {
		n = (uint64_t)ms * DR_NS_PER_MS * n / (uint64_t)(dr_now_ns() - start) + 1;
		rank_send(r, 1, &n, sizeof(n));
	} else {
		rank_recv(r, 0, &n, sizeof(n));
	}
	rank_barrier(r);
	start = dr_now_ns();
	for (uint64_t i = 0; i < n; i++)
		exchange(b, over, bytes);
	return (double)(dr_now_ns() - start) / (double)n / 1e3;
}

static void measure(struct bench *b)
{
	const struct settings *s = b->s;

	for (unsigned i = 0; i < s->n_sizes; i++)
		for (unsigned k = 0; k < s->pairs; k++) {
			double us[2] = { 0, 0 };

			for (unsigned o = 0; o < 2; o++) {
				int over = (o + k) % 2 ? SOCKET : PLUGIN;

				if (!s->only ||
					strcmp(s->only, over == SOCKET ? "socket" : "plugin") == 0)
					us[over] = run_for(b, over, s->size[i], s->ms);
			}
			if (b->e.r->id == 0)
				printf("%lu %.1f %.1f\n", (unsigned long)s->size[i], us[PLUGIN],
					us[SOCKET]);
		}
	fflush(stdout);
}

static void rank_main(struct rank *r)
{
	static struct bench b;

	b.s = r->arg;
	end_open(&b.e, r);
	for (unsigned i = 0; i < b.s->channels; i++)
		for (int over = PLUGIN; over <= SOCKET; over++) {
			flow_open(&b, r->id ? &b.ch[i].in[over] : &b.ch[i].out[over], over, 0, i);
			flow_open(&b, r->id ? &b.ch[i].out[over] : &b.ch[i].in[over], over, 1, i);
		}
	measure(&b);
	if (b.s->test_times)
		print_test_times(&b);
	rank_barrier(r);
	for (unsigned i = 0; i < b.s->channels; i++)
		for (int over = PLUGIN; over <= SOCKET; over++) {
			flow_close(&b, &b.ch[i].in[over]);
			flow_close(&b, &b.ch[i].out[over]);
		}
	end_close(&b.e);
}

/* ---- options ---- */

static bool sizes(void *to, char *text)
{
	struct settings *s = to;

	s->n_sizes = 0;
	while (text && s->n_sizes < SIZES_MAX)
		if (dr_parse_size(strsep(&text, ","), &s->size[s->n_sizes++], NULL) != 0)
			return false;
	return !text;
}

int main(int argc, char **argv)
{
	struct settings s = { .channels = 2, .pairs = 15, .ms = 150 };
	struct rank_job job = { .name = "exchange",
		.run = rank_main,
		.n = 2,
		.version = 11,
		.limit_s = 600,
		.arg = &s };
	const struct rank_option options[] = { RANK_BY("sizes", sizes, &s),
		RANK_IN("channels", &s.channels, 1, CHANNELS_MAX),
		RANK_IN("pairs", &s.pairs, 1, UINT32_MAX), RANK_IN("ms", &s.ms, 1, UINT32_MAX),
		RANK_IN("socks", &s.socks, 0, SOCK_CONNS_MAX),
		RANK_IN("threads", &s.threads, 0, SOCK_CONNS_MAX),
		RANK_IS("only", RANK_TEXT, &s.only),
		RANK_IS("test-times", RANK_FLAG, &s.test_times), { .name = NULL } };
	char all[] = "8,4K,64K,256K,1M,8M";
	int at;

	(void)sizes(&s, all);
	at = rank_options(&job, options, argc, argv, 1);
	if (at == 0)
		return 1;
	if (s.threads ? s.socks % s.threads || !s.socks : s.socks) {
		fprintf(stderr, "--threads has to divide --socks\n");
		return 1;
	}
	job.plugin = argv[at];
	return !rank_run(&job);
}
