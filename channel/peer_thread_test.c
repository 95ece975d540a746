/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/poller.h"
#include "base/rng.h"
#include "channel/manager_priv.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Two processes in one: each has a peer and a thread for each of its managers, over TCP on the loopback. */
enum { ENDS = 2, GPUS = 3, RAILS = 2, HANDLES = RAILS + 1 };
static const int64_t LIMIT_NS = 30 * DR_NS_PER_S;

struct worker {
	struct dr_manager *m;
	struct dr_poller *poller;
	pthread_t thread;
	atomic_bool stop, pause, ready, paused;
	struct dr_handle h[HANDLES]; /* the other end's */
	int rc;
};

/* Waits for it, with a limit. */
#define UNTIL(cond)                                                                                \
	do {                                                                                       \
		int64_t from_ = dr_now_ns();                                                       \
		while (!(cond)) {                                                                  \
			assert_true(dr_now_ns() - from_ < LIMIT_NS);                               \
			sched_yield();                                                             \
		}                                                                                  \
	} while (0)

struct end {
	struct dr_poller *apart;
	struct dr_peer *peer;
	struct worker w[GPUS];
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct dr_err e = { 0 };

	w->rc = dr_manager_start(w->m, w->h, RAILS, dr_now_ns(), &e);
	if (w->rc == 0)
		w->rc = dr_channel_start(
			dr_manager_channel_at(w->m, 0), &w->h[RAILS], dr_now_ns(), &e);
	while (w->rc == 0 && !atomic_load(&w->stop)) {
		atomic_store(&w->paused, atomic_load(&w->pause));
		if (atomic_load(&w->paused)) { /* it does not even read */
			sched_yield();
			continue;
		}
		int64_t wait = DR_MIN(dr_manager_deadline(w->m) - dr_now_ns(), 5 * DR_NS_PER_MS);

		w->rc = DR_MIN(dr_poller_wait(w->poller, DR_MAX(wait, 0)), 0);
		dr_manager_tick(w->m, dr_now_ns());
		atomic_store(&w->ready, dr_manager_ready(w->m) == 1);
	}
	return NULL;
}

/* Of one pair of ends: ports are used again, by other tests too, and what still arrives there is refused. */
static uint8_t token[DR_TOKEN_LEN];

static struct dr_manager_params params(unsigned end)
{
	struct dr_manager_params p = { .transport = dr_transport_find("tcp"),
		.n_rails = RAILS,
		.connector = end == 0,
		.window = 4,
		.heartbeat_ns = 2 * DR_NS_PER_MS,
		.failback = true,
		.hold_down_ns = DR_NS_PER_S };

	memcpy(p.token, token, sizeof(p.token));
	for (unsigned r = 0; r < RAILS; r++) {
		struct sockaddr_in a = { .sin_family = AF_INET,
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 2 * r + end) };

		memcpy(&p.rail[r].local, &a, sizeof(a));
	}
	return p;
}

static void make(struct end *n, unsigned end)
{
	struct dr_manager_channel spec = { 0, 1, end == 0 };
	struct dr_manager_params p;
	struct dr_channel *ch;

	if (end == 0)
		assert_int_equal(dr_random_bytes(token, sizeof(token)), 0);
	p = params(end);
	assert_int_equal(dr_poller_create(&n->apart, NULL), 0);
	assert_int_equal(dr_peer_create(&p, n->apart, &n->peer, NULL), 0);
	p.peer = n->peer;
	for (unsigned k = 0; k < GPUS; k++) {
		p.gpu = k;
		assert_int_equal(dr_poller_create(&n->w[k].poller, NULL), 0);
		p.poller = n->w[k].poller;
		assert_int_equal(dr_manager_create(&p, &n->w[k].m, NULL), 0);
		assert_int_equal(dr_manager_open_channel(n->w[k].m, 0, &spec, &ch, NULL), 0);
	}
}

static void introduce(struct end *to, struct end *from)
{
	struct dr_handle h[RAILS];

	for (unsigned k = 0; k < GPUS; k++) {
		struct worker *w = &to->w[k];

		for (unsigned i = 0; i < RAILS; i++)
			assert_int_equal(dr_manager_handle(from->w[k].m, i, &w->h[i]), 0);
		assert_int_equal(
			dr_channel_handle(dr_manager_channel_at(from->w[k].m, 0), &w->h[RAILS]), 0);
		assert_int_equal(pthread_create(&w->thread, NULL, work, w), 0);
	}
	for (unsigned i = 0; i < RAILS; i++)
		assert_int_equal(dr_peer_handle(from->peer, i, &h[i]), 0);
	assert_int_equal(dr_peer_start(to->peer, h, RAILS, dr_now_ns(), NULL), 0);
}

static uint64_t received(struct end *n)
{
	uint64_t rx;

	assert_int_equal(pthread_mutex_lock(&n->peer->lock), 0);
	rx = n->peer->hb.received;
	assert_int_equal(pthread_mutex_unlock(&n->peer->lock), 0);
	return rx;
}

static void more(struct end n[ENDS], uint64_t by)
{
	for (unsigned end = 0; end < ENDS; end++) {
		uint64_t was = received(&n[end]);

		UNTIL(received(&n[end]) >= was + by);
	}
}

static void end_all(struct end n[ENDS])
{
	for (unsigned end = 0; end < ENDS; end++)
		for (unsigned k = 0; k < GPUS; k++) {
			struct worker *w = &n[end].w[k];

			atomic_store(&w->stop, true);
			dr_poller_wake(w->poller);
			assert_int_equal(pthread_join(w->thread, NULL), 0);
			assert_int_equal(w->rc, 0);
			dr_manager_close(w->m, dr_now_ns());
			assert_int_equal(dr_manager_destroy(w->m), 0);
			dr_poller_destroy(w->poller);
		}
	for (unsigned end = 0; end < ENDS; end++) {
		dr_peer_destroy(n[end].peer);
		dr_poller_destroy(n[end].apart);
	}
}

/* Heartbeats arrive while all run, while any one of them stands, and after the first ones have left. */
static void test_threads_share_the_heartbeats(void **state)
{
	static struct end n[ENDS];

	(void)state;
	for (unsigned end = 0; end < ENDS; end++)
		make(&n[end], end);
	introduce(&n[0], &n[1]);
	introduce(&n[1], &n[0]);
	for (unsigned end = 0; end < ENDS; end++)
		for (unsigned k = 0; k < GPUS; k++)
			UNTIL(atomic_load(&n[end].w[k].ready));
	more(n, 50);
	for (unsigned k = 0; k < GPUS; k++) {
		atomic_store(&n[0].w[k].pause, true);
		UNTIL(atomic_load(&n[0].w[k].paused));
		more(n, 20);
		atomic_store(&n[0].w[k].pause, false);
	}
	end_all(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads_share_the_heartbeats) };

	return cmocka_run_group_tests_name("peer_thread", tests, NULL, NULL);
}
