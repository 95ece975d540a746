/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "bootstrap/server_priv.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Strangers at a server's port; source addresses are those of the loopback device. */
static struct {
	struct dr_poller *poller;
	struct dr_boot_server *s;
	struct dr_networks allow;
	char log[64 << 10];
} w;

static void log_sink(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	size_t len = strlen(w.log);

	(void)level, (void)component, (void)arg;
	snprintf(w.log + len, sizeof(w.log) - len, "%s\n", text);
}

static void on_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n)
{
	(void)arg, (void)params, (void)gpus, (void)n;
}

static void on_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	(void)arg, (void)cause, (void)text;
}

static int setup(void **state)
{
	static const struct dr_boot_ops ops = { .on_offer = on_offer, .on_closed = on_closed };
	static const unsigned gpu;
	struct dr_boot_opts o = {
		.gpus = &gpu, .n_gpus = 1, .timing = { .stage_ns = 60 * DR_NS_PER_S }
	};

	memset(&w, 0, sizeof(w));
	if (*state) {
		assert_int_equal(dr_networks_parse(*state, &w.allow, NULL), 0);
		o.allow = &w.allow;
	}
	dr_log_set_sink(log_sink, NULL);
	assert_int_equal(dr_poller_create(&w.poller, NULL), 0);
	return dr_boot_server_create(&w.s, &o, &ops, NULL, w.poller, NULL);
}

static int teardown(void **state)
{
	(void)state;
	dr_boot_server_destroy(w.s);
	dr_poller_destroy(w.poller);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

static void turn(void)
{
	(void)dr_poller_wait(w.poller, 5 * DR_NS_PER_MS);
	dr_boot_server_tick(w.s, dr_now_ns());
}

#define until(cond)                                                                                \
	do {                                                                                       \
		int64_t until_end = dr_now_ns() + 20 * DR_NS_PER_S;                                \
		while (!(cond)) {                                                                  \
			turn();                                                                    \
			if (dr_now_ns() > until_end)                                               \
				fail_msg("never: %s; log:\n%s", #cond, w.log);                     \
		}                                                                                  \
	} while (0)

static bool raw_closed(int fd)
{
	char buf[512];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || errno != EAGAIN;
}

static void close_all(const int *fd, int n)
{
	for (int i = 0; i < n; i++)
		close(fd[i]);
}

static struct sockaddr_in address(uint32_t host, uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };

	sa.sin_addr.s_addr = htonl(host);
	return sa;
}

static void raw_connect(int fd, uint32_t host)
{
	struct sockaddr_in from = address(host, 0),
			   to = address(INADDR_LOOPBACK, dr_boot_server_port(w.s, 0));

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

static int raw_open(uint32_t host)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	raw_connect(fd, host);
	return fd;
}

static int open_files(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static unsigned count_links(void)
{
	unsigned n = 0;

	for (const struct dr_link *l = w.s->e.links; l; l = l->next)
		n++;
	return n;
}

enum { HOST = 0x7f000001, SOURCE_MAX = 64 };

/* What begins like a hello and is none is told so, and its connection closes once it has read that. These never do. */
static void closing_connections_count(void **state)
{
	enum { N = 200 };
	static const char text[] = "DUALRAIL / HTTP/1.1\r\n\r\n";
	int fd[N], before = open_files();

	(void)state;
	for (int i = 0; i < N; i++) {
		fd[i] = raw_open(HOST);
		assert_int_equal(send(fd[i], text, sizeof(text), MSG_NOSIGNAL), sizeof(text));
		until(raw_closed(fd[i]));
		assert_true(open_files() - before <= i + 1 + SOURCE_MAX);
	}
	close_all(fd, N);
}

static void a_source_loses_its_oldest(void **state)
{
	enum { N = SOURCE_MAX + 6 };
	int fd[N], other = raw_open(HOST + 1);

	(void)state;
	for (int i = 0; i < N; i++)
		fd[i] = raw_open(HOST);
	for (int i = 0; i < N - SOURCE_MAX; i++)
		until(raw_closed(fd[i]));
	assert_non_null(strstr(w.log, "too many pending connections of this address"));
	assert_true(w.s->acceptor.shed_ns > 0);
	for (int i = N - SOURCE_MAX; i < N; i++)
		assert_false(raw_closed(fd[i]));
	assert_false(raw_closed(other));
	close(other);
	close_all(fd, N);
}

static void a_flood_closes_its_own(void **state)
{
	enum { SOURCES = 4, N = SOURCES * SOURCE_MAX };
	int fd[N], slow = raw_open(HOST);

	(void)state;
	for (int i = 0; i < N; i++)
		fd[i] = raw_open(HOST + 1 + (uint32_t)(i % SOURCES));
	for (int i = 0; i < N / 2; i++)
		until(raw_closed(fd[i]));
	assert_non_null(strstr(w.log, "too many pending connections; the oldest is closed"));
	assert_false(raw_closed(slow));
	close(slow);
	close_all(fd, N);
}

/* Those that wait for places wait less once one was closed that did not use its place. */
static void a_flood_waits_less(void **state)
{
	enum { PLACES = 4, TIME_S = 3600 };
	struct dr_acceptor *a = &w.s->acceptor;
	int fd[PLACES + 2];

	(void)state;
	a->places = PLACES;
	a->place_ns = TIME_S * DR_NS_PER_S;
	for (int i = 0; i < PLACES; i++)
		fd[i] = raw_open(HOST);
	until(count_links() == PLACES);
	for (int i = PLACES; i < PLACES + 2; i++)
		fd[i] = raw_open(HOST);
	until(dr_acceptor_deadline(a) != DR_NEVER);
	assert_true(dr_acceptor_deadline(a) > dr_now_ns() + a->place_ns / 2);
	a->shed_ns = dr_now_ns();
	dr_acceptor_resume(a);
	until(dr_acceptor_deadline(a) != DR_NEVER);
	assert_true(dr_acceptor_deadline(a) < dr_now_ns() + a->place_ns / 2);
	assert_int_equal(count_links(), PLACES);
	close_all(fd, PLACES + 2);
}

/* A host that has an IPv6 network of its own: each connection is of another address. */
static void a_network_closes_its_own(void **state)
{
	enum { N = DR_ACCEPTOR_PENDING_MAX };
	int fd[N], slow = raw_open(HOST);
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < N - 1; i++)
		fd[i] = raw_open(HOST + 1 + (uint32_t)(i % 2));
	until((n = count_links()) == N);
	for (struct dr_link *l = w.s->e.links->next; l; l = l->next) {
		struct sockaddr_in6 *six = (struct sockaddr_in6 *)&l->addr.ss;

		*six = (struct sockaddr_in6){ .sin6_family = AF_INET6 };
		six->sin6_addr.s6_addr[0] = 0x20;
		six->sin6_addr.s6_addr[15] = (uint8_t)n--;
	}
	fd[N - 1] = raw_open(HOST + 3);
	until(raw_closed(fd[0]));
	assert_false(raw_closed(slow));
	assert_false(raw_closed(fd[N - 1]));
	close(slow);
	close_all(fd, N);
}

static void few_descriptors_are_for_data(void **state)
{
	enum { N = 12 };
	struct rlimit before, tight;
	int fd[N], slow = raw_open(HOST + 1);

	(void)state;
	for (int i = 0; i < N; i++)
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	until(count_links() == 1);
	tight = before;
	tight.rlim_cur = (rlim_t)fd[N - 1] + 8; /* the next ones are of the last quarter */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	for (int i = 0; i < N; i++)
		raw_connect(fd[i], HOST);
	for (int i = 0; i < N - 3; i++)
		until(raw_closed(fd[i]));
	assert_non_null(strstr(w.log, "few descriptors are free"));
	for (int i = N - 3; i < N; i++)
		assert_false(raw_closed(fd[i]));
	assert_false(raw_closed(slow)); /* of another address */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	close(slow);
	close_all(fd, N);
}

static void other_networks_are_refused(void **state)
{
	int in = raw_open(HOST + 1), out;

	(void)state;
	for (int i = 0; i < 30; i++) {
		out = raw_open(HOST);
		until(raw_closed(out));
		close(out);
	}
	assert_non_null(strstr(w.log, "rejected connection from 127.0.0.1:"));
	assert_non_null(strstr(w.log, "not in the networks of --allow-from (1 so far)"));
	assert_null(strstr(w.log, "(29 so far)")); /* held back */
	assert_false(raw_closed(in));
	close(in);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
/* ---- a flood ---- */

enum { FLOOD = 700 };
static struct dr_acceptor flooded;
static struct dr_link *no_links;
static unsigned taken;

static void take(struct dr_acceptor *a, int fd, const struct dr_addr *from, int64_t now_ns)
{
	(void)a, (void)from, (void)now_ns;
	taken++;
	close(fd);
}

static bool is_pending(const struct dr_link *l)
{
	(void)l;
	return false;
}

/* Connected, and says this. */
static int speaker(const struct dr_addr *to, const char *text)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)&to->ss, to->len), 0);
	assert_true(send(fd, text, strlen(text), MSG_NOSIGNAL) > 0);
	return fd;
}

static void flood_turn(void)
{
	(void)dr_poller_wait(w.poller, DR_NS_PER_MS);
	dr_acceptor_tick(&flooded, dr_now_ns());
}

static bool is_over(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0 || errno != EAGAIN;
}

static unsigned count_over(const int *fd)
{
	unsigned n = 0;

	for (unsigned i = 0; i < FLOOD; i++)
		n += is_over(fd[i]);
	return n;
}

static void garbage_is_rejected_at_a_bounded_rate(void **state)
{
	static const struct dr_acceptor_ops ops = { .accepted = take, .pending = is_pending };
	struct dr_addr at = { .len = sizeof(struct sockaddr_in) };
	int fd[FLOOD], own, listener;
	bool flood = false;

	(void)state;
	((struct sockaddr_in *)&at.ss)->sin_family = AF_INET;
	((struct sockaddr_in *)&at.ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	dr_acceptor_init(&flooded, &ops, w.poller, &no_links, "test");
	assert_int_equal(dr_acceptor_listen(&flooded, &at, NULL), 0);
	int64_t begin = dr_now_ns();
	for (unsigned i = 0; i < FLOOD; i++)
		fd[i] = speaker(&at, "GET / HTTP/1.0\r\n\r\n");
	own = speaker(&at, "DUALRAIL");
	/* As in the middle of a flood, for a second. */
	flooded.rejects.at_ns = dr_now_ns();
	flooded.rejects.tokens = -DR_ACCEPTOR_REJECTS_PER_S;
	while (count_over(fd) < FLOOD) {
		flood_turn();
		unsigned n = count_over(fd);

		flood |= flooded.rejects.flooded;
		/* Counted after the clock is read: never more than the bucket gave. */
		double s = (double)(dr_now_ns() - begin) / 1e9;
		assert_true(n <= DR_ACCEPTOR_REJECTS + s * DR_ACCEPTOR_REJECTS_PER_S + 1);
	}
	assert_true(flood);
	until((flood_turn(), taken == 1));
	until((flood_turn(), dr_acceptor_deadline(&flooded) == DR_NEVER));
	/* The next one after the flood finds the long queue again. */
	listener = speaker(&at, "DUAL");
	flooded.rejects.at_ns -= DR_NS_PER_S;
	until((flood_turn(), taken == 2));
	assert_false(flooded.rejects.flooded);
	close(listener);
	close(own);
	for (unsigned i = 0; i < FLOOD; i++)
		close(fd[i]);
	dr_acceptor_fini(&flooded);
}

int main(void)
{
	static char networks[] = "10.0.0.0/8,127.0.0.2";
	const struct CMUnitTest tests[] = {
		TEST(closing_connections_count),
		TEST(a_source_loses_its_oldest),
		TEST(a_flood_closes_its_own),
		TEST(a_network_closes_its_own),
		TEST(a_flood_waits_less),
		TEST(few_descriptors_are_for_data),
		TEST(garbage_is_rejected_at_a_bounded_rate),
		cmocka_unit_test_prestate_setup_teardown(
			other_networks_are_refused, setup, teardown, networks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
