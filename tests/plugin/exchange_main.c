/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/units.h"
#include "tests/plugin/end.h"
#include "tests/plugin/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <ifaddrs.h>
#include <net/if.h>
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
	const char *plugin, *netns[RANKS_MAX], *only;
	uint64_t size[SIZES_MAX];
	unsigned n_sizes, channels, pairs, ms, socks, threads, version;
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

/* Whether NCCL_SOCKET_IFNAME, if it is a list of whole names, has this one. */
static bool wanted(const char *name)
{
	const char *list = getenv("NCCL_SOCKET_IFNAME"), *at;
	size_t len = strlen(name);

	if (!list || list[0] != '=')
		return true;
	for (at = strstr(list, name); at; at = strstr(at + 1, name))
		if ((at[-1] == '=' || at[-1] == ',') && (at[len] == ',' || at[len] == 0))
			return true;
	return false;
}

/* The address of the nth device that is up, and of the loopback if it is the only one. */
static struct sockaddr_in address(struct bench *b, unsigned nth)
{
	struct sockaddr_in found[CHANNELS_MAX],
		lo = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct ifaddrs *all = NULL;
	unsigned n = 0;

	CHECK(&b->e, getifaddrs(&all) == 0, "addresses");
	for (struct ifaddrs *a = all; a && n < CHANNELS_MAX; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
			!(a->ifa_flags & IFF_LOOPBACK) && a->ifa_flags & IFF_UP &&
			wanted(a->ifa_name))
			memcpy(&found[n++], a->ifa_addr, sizeof(lo));
	freeifaddrs(all);
	if (n == 0)
		return lo;
	found[nth % n].sin_port = 0;
	return found[nth % n];
}

static void tune(int fd)
{
	int on = 1;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static struct sock_comm *socket_comm(struct bench *b, unsigned from, unsigned nth)
{
	struct rank *r = b->e.r;
	int fds[1 + SOCK_CONNS_MAX], l = -1;
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	bool dials = r->id == from;

	RANK_AT(r, "sockets");
	if (dials) {
		rank_recv(r, 1 - from, &a, sizeof(a));
	} else {
		a = address(b, nth);
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
		tune(fds[i]);
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
		struct host_buffer hb =
			mem_buffer(&f->mem, f->posted % DEPTH * MESSAGE_MAX, size, 0);

		OK(&b->e, f->sends ? host_send(&b->e.h, f->comm, &hb, req)
				   : host_recv(&b->e.h, f->comm, 1, &hb, req));
	}
	f->posted += *req != NULL;
}

static void test_plugin(struct bench *b, void *req, int *done, int *n)
{
	int64_t ns = b->s->test_times ? dr_now_ns() : 0;

	OK(&b->e, b->e.h.test(req, done, n));
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

static bool sizes(struct settings *s, char *text)
{
	s->n_sizes = 0;
	while (text && s->n_sizes < SIZES_MAX)
		if (dr_parse_size(strsep(&text, ","), &s->size[s->n_sizes++], NULL) != 0)
			return false;
	return !text;
}

static bool namespaces(struct settings *s, char *text)
{
	s->netns[0] = strsep(&text, ",");
	s->netns[1] = text;
	return text && !strchr(text, ',');
}

static bool option(struct settings *s, int o, char *arg)
{
	unsigned *to = o == 'c'	  ? &s->channels
		       : o == 'p' ? &s->pairs
		       : o == 'm' ? &s->ms
		       : o == 'k' ? &s->socks
		       : o == 't' ? &s->threads
				  : NULL;
	uint64_t n;

	if (o == 's')
		return sizes(s, arg);
	if (o == 'n')
		return namespaces(s, arg);
	if (o == 'x') {
		s->test_times = true;
		return true;
	}
	if (o == 'o') {
		s->only = arg;
		return strcmp(arg, "plugin") == 0 || strcmp(arg, "socket") == 0;
	}
	if (!to || dr_parse_u64(arg, 0, 100000, &n, NULL) != 0)
		return false;
	*to = (unsigned)n;
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "netns", required_argument, NULL, 'n' },
		{ "sizes", required_argument, NULL, 's' },
		{ "channels", required_argument, NULL, 'c' },
		{ "pairs", required_argument, NULL, 'p' }, { "ms", required_argument, NULL, 'm' },
		{ "socks", required_argument, NULL, 'k' },
		{ "threads", required_argument, NULL, 't' },
		{ "only", required_argument, NULL, 'o' }, { "test-times", no_argument, NULL, 'x' },
		{ NULL, 0, NULL, 0 } };
	struct settings s = { .channels = 2, .pairs = 15, .ms = 150, .version = 11 };
	struct rank_job job = {
		.name = "exchange", .run = rank_main, .n = 2, .limit_s = 600, .arg = &s
	};
	char reason[300], all[] = "8,4K,64K,256K,1M,8M";
	int o;

	(void)sizes(&s, all);
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
		if (!option(&s, o, optarg))
			break;
	if (o != -1 || optind + 1 != argc || s.channels < 1 || s.channels > CHANNELS_MAX ||
		s.socks > SOCK_CONNS_MAX ||
		(s.threads ? s.socks == 0 || s.socks % s.threads : s.socks)) {
		fprintf(stderr,
			"exchange_main [--netns A,B] [--sizes N,...] [--channels N] [--pairs N] [--ms N]\n"
			"  [--socks N --threads N] [--only plugin|socket] [--test-times] PLUGIN\n");
		return 1;
	}
	s.plugin = argv[optind];
	job.plugin = s.plugin;
	job.version = s.version;
	job.netns = s.netns[0] ? s.netns : NULL;
	return rank_run(&job, reason, sizeof(reason)) != RANK_PASSED;
}
