/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_SESSION_TESTKIT_H
#define DR_PLUGIN_SESSION_TESTKIT_H

#include "plugin/comm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two ends of a session in one process, over two addresses of the loopback device. */
enum {
	THREADS = 2,
	LANES = 2,
	CHUNK = 64 << 10,
	SMALL_CHUNK = 4 << 10,
	EAGER = 1024,
	MEDIUM = 256 << 10,
	BYTES = 4 << 20,
	BREAKS = 16, /* of paths, between two messages */
};
enum { TX, RX, ENDS };
static const int64_t LIMIT_NS = 60 * DR_NS_PER_S; /* of a wait: an error if it is reached */

static struct ha_thread *io[ENDS][THREADS];
static struct ha_session *end[ENDS];
static struct ha_comm *comm[ENDS];
static uint8_t *memory[ENDS];
static struct ha_mr *mr[ENDS];
static uint64_t eager, chunk;
static int sockbuf;
static unsigned rails;

/* TCP that makes no new connection while `unreachable`. */
static struct dr_transport_ops breakable;
static atomic_bool unreachable;

static inline struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;

	in->sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, text, &in->sin_addr), 1);
	return ss;
}

static inline int create_path(
	struct dr_rail *r, const struct dr_path_params *par, struct dr_path **out, struct dr_err *e)
{
	if (atomic_load(&unreachable))
		return dr_err_set(e, -ENETUNREACH, "no connection is made");
	return dr_transport_find("tcp")->create(r, par, out, e);
}

static inline int listen_rail(
	const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	int rc = dr_transport_find("tcp")->listen(p, out, e);

	if (rc == 0)
		(*out)->ops = &breakable;
	return rc;
}

static inline struct ha_session_params params(bool connector)
{
	struct ha_session_params p = { .connector = connector,
		.n_threads = THREADS,
		.lanes = LANES,
		.threads = io[connector ? TX : RX],
		.chunk = chunk,
		.eager = eager,
		.test_max_poll = 32,
		.peer = "peer" };

	breakable = *dr_transport_find("tcp");
	breakable.listen = listen_rail;
	breakable.create = create_path;
	p.manager.transport = &breakable;
	p.manager.n_rails = rails;
	p.manager.rail[0].local = address(connector ? "127.0.0.1" : "127.0.0.3");
	p.manager.rail[1].local = address(connector ? "127.0.0.2" : "127.0.0.4");
	p.manager.heartbeat_ns = 10 * DR_NS_PER_MS;
	p.manager.failback = true;
	p.manager.hold_down_ns = 100 * DR_NS_PER_MS;
	p.manager.hw_window_ns = 0;
	p.manager.lost_after_ns = 10 * DR_NS_PER_S;
	p.manager.sockbuf = sockbuf;
	memset(p.token, 7, sizeof(p.token));
	return p;
}

static inline void drive(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		ha_session_tick(end[i], dr_now_ns());
}

static inline void handles_to(unsigned to)
{
	static struct dr_handle handle[64];
	struct dr_err e;

	assert_true(ha_session_handle_count(end[!to]) <= DR_ARRAY_LEN(handle));
	assert_int_equal(ha_session_handles(end[!to], handle), 0);
	if (ha_session_start(end[to], handle, &e) != 0)
		fail_msg("%s", e.text);
}

static inline void open_comm(unsigned number)
{
	struct dr_handle handle[ENDS];
	int64_t until = dr_now_ns() + LIMIT_NS;
	struct dr_err e;

	for (unsigned i = 0; i < ENDS; i++) {
		if (ha_comm_open(end[i], number, &comm[i], &e) != 0)
			fail_msg("%s", e.text);
		assert_int_equal(ha_comm_handle(comm[i], &handle[i]), 0);
	}
	for (unsigned i = 0; i < ENDS; i++)
		assert_int_equal(ha_comm_start(comm[i], &handle[!i], &e), 0);
	while (ha_comm_ready(comm[TX]) != 1 || ha_comm_ready(comm[RX]) != 1) {
		assert_true(dr_now_ns() < until);
		drive();
	}
}

static inline void close_comm(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		ha_comm_close(comm[i]);
	for (unsigned i = 0; i < ENDS; i++) {
		while (!ha_comm_closed(comm[i]))
			drive();
		assert_int_equal(ha_comm_free(comm[i]), 0);
	}
}

static inline int open_both(void **state)
{
	struct dr_err e;

	(void)state;
	atomic_store(&unreachable, false);
	for (unsigned t = 0; t < THREADS; t++)
		for (unsigned i = 0; i < ENDS; i++)
			assert_int_equal(ha_thread_start("io", 0, &io[i][t], &e), 0);
	for (unsigned i = 0; i < ENDS; i++) {
		struct ha_session_params p = params(i == TX);

		if (ha_session_create(&p, &end[i], &e) != 0)
			fail_msg("%s", e.text);
	}
	for (unsigned i = 0; i < ENDS; i++)
		handles_to(i);
	open_comm(5);
	for (unsigned i = 0; i < ENDS; i++) {
		struct dr_memory m = { .len = BYTES };

		m.base = memory[i] = dr_pages_alloc(BYTES);
		assert_int_equal(ha_mr_reg(comm[i], &m, &mr[i], &e), 0);
	}
	return 0;
}

static inline int setup(void **state)
{
	eager = EAGER;
	chunk = CHUNK;
	sockbuf = 0;
	rails = 2;
	return open_both(state);
}

static inline int setup_medium(void **state)
{
	eager = MEDIUM;
	chunk = CHUNK;
	sockbuf = 16 << 10;
	rails = 2;
	return open_both(state);
}

static inline int setup_one_rail(void **state)
{
	eager = EAGER;
	chunk = SMALL_CHUNK;
	sockbuf = 0;
	rails = 1;
	return open_both(state);
}

static inline int teardown(void **state)
{
	(void)state;
	atomic_store(&unreachable, false);
	for (unsigned i = 0; i < ENDS; i++)
		if (mr[i])
			assert_int_equal(ha_mr_dereg(comm[i], mr[i], NULL), 0);
	close_comm();
	for (unsigned i = 0; i < ENDS; i++)
		ha_session_close(end[i]);
	while (!ha_session_closed(end[TX]) || !ha_session_closed(end[RX]))
		drive();
	for (unsigned i = 0; i < ENDS; i++) {
		assert_int_equal(ha_session_destroy(end[i]), 0);
		dr_pages_free(memory[i], BYTES);
	}
	for (unsigned t = 0; t < THREADS; t++)
		for (unsigned i = 0; i < ENDS; i++)
			ha_thread_stop(io[i][t]);
	return 0;
}

/* ---- messages ---- */

struct message {
	struct ha_request *req[ENDS];
	bool done[ENDS];
	uint64_t off, size;
	uint32_t tag;
	int got;
};

static inline void start(struct message *x, unsigned i)
{
	struct ha_buffer b = { mr[i], memory[i] + x->off, x->size, x->tag };
	int rc = i == TX ? ha_comm_send(comm[i], &b, &x->req[i])
			 : ha_comm_recv(comm[i], &b, 1, &x->req[i]);

	if (rc != 0)
		fail_msg("%d", rc);
}

static inline void test_one(struct message *x, unsigned i)
{
	int rc;

	if (!x->req[i]) {
		start(x, i);
		return;
	}
	if (x->done[i])
		return;
	rc = ha_comm_test(x->req[i], &x->done[i], i == RX ? &x->got : NULL);
	if (rc != 0)
		fail_msg("%d", rc);
}

static inline void both(struct message *x)
{
	int64_t until = dr_now_ns() + LIMIT_NS;

	while (!x->done[TX] || !x->done[RX]) {
		assert_true(dr_now_ns() < until);
		for (unsigned i = 0; i < ENDS; i++)
			test_one(x, i);
		drive();
	}
}

#endif
