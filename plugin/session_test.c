/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/stood.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

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
static struct dr_rng rng;
static uint64_t eager, chunk;
static int sockbuf;
static unsigned rails;

/* TCP that makes no new connection while `unreachable`. */
static struct dr_transport_ops breakable;
static atomic_bool unreachable;

static struct sockaddr_storage address(const char *text)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;

	in->sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, text, &in->sin_addr), 1);
	return ss;
}

static int create_path(
	struct dr_rail *r, const struct dr_path_params *par, struct dr_path **out, struct dr_err *e)
{
	if (atomic_load(&unreachable))
		return dr_err_set(e, -ENETUNREACH, "no connection is made");
	return dr_transport_find("tcp")->create(r, par, out, e);
}

static int listen_rail(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	int rc = dr_transport_find("tcp")->listen(p, out, e);

	if (rc == 0)
		(*out)->ops = &breakable;
	return rc;
}

static struct ha_session_params params(bool connector)
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

static void drive(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		ha_session_tick(end[i], dr_now_ns());
}

static void handles_to(unsigned to)
{
	static struct dr_handle handle[64];
	struct dr_err e;

	assert_true(ha_session_handle_count(end[!to]) <= DR_ARRAY_LEN(handle));
	assert_int_equal(ha_session_handles(end[!to], handle), 0);
	if (ha_session_start(end[to], handle, &e) != 0)
		fail_msg("%s", e.text);
}

static void open_comm(unsigned number)
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

static void close_comm(void)
{
	for (unsigned i = 0; i < ENDS; i++)
		ha_comm_close(comm[i]);
	for (unsigned i = 0; i < ENDS; i++) {
		while (!ha_comm_closed(comm[i]))
			drive();
		assert_int_equal(ha_comm_free(comm[i]), 0);
	}
}

static int open_both(void **state)
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

static int setup(void **state)
{
	eager = EAGER;
	chunk = CHUNK;
	sockbuf = 0;
	rails = 2;
	return open_both(state);
}

static int setup_medium(void **state)
{
	eager = MEDIUM;
	chunk = CHUNK;
	sockbuf = 16 << 10;
	rails = 2;
	return open_both(state);
}

static int setup_one_rail(void **state)
{
	eager = EAGER;
	chunk = SMALL_CHUNK;
	sockbuf = 0;
	rails = 1;
	return open_both(state);
}

static int teardown(void **state)
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

static void start(struct message *x, unsigned i)
{
	struct ha_buffer b = { mr[i], memory[i] + x->off, x->size, x->tag };
	int rc = i == TX ? ha_comm_send(comm[i], &b, &x->req[i])
			 : ha_comm_recv(comm[i], &b, 1, &x->req[i]);

	if (rc != 0)
		fail_msg("%d", rc);
}

static void test_one(struct message *x, unsigned i)
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

static void both(struct message *x)
{
	int64_t until = dr_now_ns() + LIMIT_NS;

	while (!x->done[TX] || !x->done[RX]) {
		assert_true(dr_now_ns() < until);
		for (unsigned i = 0; i < ENDS; i++)
			test_one(x, i);
		drive();
	}
}

static uint8_t pattern(uint64_t message, uint64_t i)
{
	return (uint8_t)(message * 31 + i * 7 + i / 251);
}

/* n messages of random sizes, at most `depth` in flight; one chance in `hazard` before each round to break a path. A channel
 * ends after many switches without progress: on a busy machine the rounds could break paths faster than messages pass. */
static void stream(unsigned n, unsigned depth, uint64_t size_max, unsigned hazard)
{
	struct message *x = dr_calloc(n, sizeof(*x));
	int64_t until = dr_now_ns() + LIMIT_NS;
	unsigned head = 0, breaks = 0;
	uint64_t room = BYTES / depth;

	for (unsigned k = 0; k < n; k++) {
		x[k].off = k % depth * room;
		x[k].size = dr_rng_below(&rng, 3) ? dr_rng_below(&rng, size_max + 1)
						  : dr_rng_below(&rng, 200);
		x[k].tag = 3;
		assert_true(x[k].size <= room);
	}
	while (head < n) {
		unsigned top = DR_MIN(n, head + depth);

		assert_true(dr_now_ns() < until);
		for (unsigned k = head; k < top; k++) {
			for (uint64_t i = 0; !x[k].req[TX] && i < x[k].size; i++)
				memory[TX][x[k].off + i] = pattern(k, i);
			test_one(&x[k], TX);
			if (!x[k].req[TX])
				break;
		}
		for (unsigned k = head; k < top; k++) {
			test_one(&x[k], RX);
			if (!x[k].req[RX])
				break;
		}
		if (hazard && breaks < BREAKS && dr_rng_below(&rng, hazard) == 0) {
			breaks++;
			unsigned i = (unsigned)dr_rng_below(&rng, ENDS);

			pthread_mutex_lock(&end[i]->lock);
			dr_channel_break_path(comm[i]->ch,
				(unsigned)DR_MAX(dr_channel_active(comm[i]->ch), 0), dr_now_ns());
			pthread_mutex_unlock(&end[i]->lock);
		}
		drive();
		for (; head < n && x[head].done[TX] && x[head].done[RX]; head++) {
			breaks = 0;
			until = dr_now_ns() + LIMIT_NS;
			assert_int_equal(x[head].got, x[head].size);
			for (uint64_t i = 0; i < x[head].size; i++)
				if (memory[RX][x[head].off + i] != pattern(head, i))
					fail_msg("message %u differs at byte %llu of %llu", head,
						(unsigned long long)i,
						(unsigned long long)x[head].size);
		}
	}
	dr_free(x);
}

static void small_messages_arrive(void **state)
{
	(void)state;
	stream(5000, 16, EAGER, 0);
}

static void large_messages_arrive(void **state)
{
	(void)state;
	stream(300, 8, BYTES / 8, 0);
}

static void messages_survive_broken_connections(void **state)
{
	(void)state;
	stream(2000, 16, 8000, 500);
	assert_true(dr_channel_ready(comm[TX]->ch) >= 0);
}

static void medium_messages_arrive(void **state)
{
	(void)state;
	stream(1000, 16, MEDIUM, 100);
	assert_true(dr_channel_ready(comm[TX]->ch) >= 0);
}

/* What the socket does not take yet is sent only while somebody calls: until then the request is not done. Its memory
 * is free. */
static void a_request_waits_for_the_socket(void **state)
{
	struct message x = { .size = MEDIUM };

	(void)state;
	memset(memory[TX], 1, MEDIUM);
	start(&x, TX);
	memset(memory[TX], 2, MEDIUM);
	for (unsigned i = 0; i < 100; i++) /* nobody reads at the other end */
		test_one(&x, TX);
	assert_false(x.done[TX]);
	both(&x);
	assert_int_equal(x.got, MEDIUM);
	for (unsigned i = 0; i < MEDIUM; i++)
		assert_int_equal(memory[RX][i], 1);
}

/* Those of messages that are taken before the other path carries the comm, too. */
static void slots_are_free_after_a_switch(void **state)
{
	struct message x[HA_SLOTS + 1] = { 0 };
	int64_t until = dr_now_ns() + LIMIT_NS;

	(void)state;
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		x[k].size = 8;
	for (unsigned k = 0; k < HA_SLOTS || comm[RX]->arrived < HA_SLOTS;) {
		assert_true(dr_now_ns() < until);
		if (k < HA_SLOTS)
			test_one(&x[k], TX);
		k += k < HA_SLOTS && x[k].done[TX];
		drive();
	}
	pthread_mutex_lock(&end[RX]->lock);
	dr_channel_break_path(comm[RX]->ch, (unsigned)dr_channel_active(comm[RX]->ch), dr_now_ns());
	pthread_mutex_unlock(&end[RX]->lock);
	for (unsigned k = 0; k < HA_SLOTS; k++)
		start(&x[k], RX);
	assert_int_equal(dr_channel_ready(comm[RX]->ch), 0);
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		both(&x[k]);
}

/* Nothing is received, so the peer's slots stay in use. What waits for one goes out only while somebody calls. */
static void a_small_request_waits_for_a_slot(void **state)
{
	struct message x[HA_SLOTS + 1] = { 0 };
	struct message *last = &x[HA_SLOTS];
	int64_t until = dr_now_ns() + LIMIT_NS;

	(void)state;
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		x[k].size = 8;
	for (unsigned k = 0; k < HA_SLOTS; k++)
		while (!x[k].done[TX]) {
			assert_true(dr_now_ns() < until);
			test_one(&x[k], TX);
			drive();
		}
	while (!last->req[TX]) { /* acknowledgements make room */
		assert_true(dr_now_ns() < until);
		start(last, TX);
		drive();
	}
	for (unsigned i = 0; i < 100; i++)
		test_one(last, TX);
	assert_false(last->done[TX]);
	for (unsigned k = 0; k <= HA_SLOTS; k++)
		both(&x[k]);
}

static uint64_t system_calls(const struct ha_comm *c)
{
	struct dr_path_stats st;
	struct dr_path *p;
	uint64_t n;

	pthread_mutex_lock(&c->s->lock);
	p = dr_channel_path(c->ch, (unsigned)dr_channel_active(c->ch));
	p->ops->stats(p, &st);
	n = st.syscalls;
	pthread_mutex_unlock(&c->s->lock);
	return n;
}

/* One read, and its bytes stay in the socket until the next one. Other calls poll the connection too, now and then. */
static void a_small_message_takes_one_read(void **state)
{
	uint64_t least = UINT64_MAX;

	(void)state;
	for (unsigned i = 0; i < 200 && least > 1; i++) {
		struct message x = { .size = 8 };
		uint64_t before = 0;

		start(&x, RX);
		start(&x, TX);
		while (!x.done[TX] || !x.done[RX]) {
			if (!x.done[RX])
				before = system_calls(comm[RX]);
			test_one(&x, RX);
			if (x.done[RX])
				least = DR_MIN(least, system_calls(comm[RX]) - before);
			test_one(&x, TX);
		}
	}
	assert_int_equal(least, 1);
}

struct moved {
	unsigned thread;
	uint64_t bytes;
};

static void count_moved(void *arg, int64_t now)
{
	struct moved *m = arg;
	struct dr_channel_stats st;

	(void)now;
	for (unsigned l = 0; l < LANES; l++) {
		dr_channel_stats(end[RX]->bulk[m->thread].lane[l].ch, &st);
		m->bytes += st.bytes;
	}
}

static uint64_t bytes_moved_by(unsigned thread)
{
	struct moved m = { .thread = thread };

	ha_thread_call(io[RX][thread], count_moved, &m);
	return m.bytes;
}

/* Other sessions' work counts. Nothing is counted when all messages are done. */
static void chunks_go_to_the_thread_with_less_to_move(void **state)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	uint64_t before;

	(void)state;
	ha_thread_add_load(io[RX][0], 1 << 30);
	stream(50, 8, BYTES / 8, 0);
	assert_int_equal(bytes_moved_by(0), 0);
	assert_true(bytes_moved_by(1) > BYTES / 8);
	ha_thread_add_load(io[RX][0], -(1 << 30));
	ha_thread_add_load(io[RX][1], 1 << 30);
	before = bytes_moved_by(1);
	stream(50, 8, BYTES / 8, 0);
	assert_true(bytes_moved_by(0) > BYTES / 8);
	assert_int_equal(bytes_moved_by(1), before);
	ha_thread_add_load(io[RX][1], -(1 << 30));
	while (ha_thread_load(io[RX][0]) != 0 || ha_thread_load(io[RX][1]) != 0)
		assert_true(dr_now_ns() < until);
}

/* ---- memory that is deregistered with chunks in flight ---- */

enum { ATTEMPTS = 10, IN_FLIGHT = 3 };
static const int64_t DEREG_NS = 100 * DR_NS_PER_MS; /* see ha_mr_dereg */

struct part {
	unsigned end, thread;
	unsigned n;
};

static void each_part(void (*fn)(void *arg, int64_t now), struct part *p)
{
	for (p->end = 0; p->end < ENDS; p->end++)
		for (p->thread = 0; p->thread < THREADS; p->thread++)
			ha_thread_call(io[p->end][p->thread], fn, p);
}

static void break_path_0(void *arg, int64_t now)
{
	const struct part *p = arg;

	for (unsigned l = 0; l < LANES; l++)
		dr_channel_break_path(end[p->end]->bulk[p->thread].lane[l].ch, 0, now);
}

/* The comms keep their connections. */
static void break_lanes(void)
{
	struct part p;

	atomic_store(&unreachable, rails == 1);
	each_part(break_path_0, &p);
}

static void break_receiver(void)
{
	struct part p = { .end = RX };

	for (; p.thread < THREADS; p.thread++)
		ha_thread_call(io[RX][p.thread], break_path_0, &p);
}

static void count_up(void *arg, int64_t now)
{
	struct part *p = arg;

	(void)now;
	for (unsigned l = 0; l < LANES; l++)
		for (unsigned i = 0; i < rails; i++)
			p->n += dr_channel_path_up(end[p->end]->bulk[p->thread].lane[l].ch, i);
}

static void wait_for_all_paths(void)
{
	int64_t until = dr_now_ns() + LIMIT_NS;
	struct part p;

	do {
		assert_true(dr_now_ns() < until);
		drive();
		p.n = 0;
		each_part(count_up, &p);
	} while (p.n < ENDS * THREADS * LANES * rails);
}

/* The sender's I/O threads stand from stop_sender to go_on. */
static struct stop {
	struct ha_work work;
	sem_t stands, go;
} stop[THREADS];

static void stand(struct ha_work *w, int64_t now)
{
	struct stop *s = dr_container_of(w, struct stop, work);

	(void)now;
	sem_post(&s->stands);
	while (sem_wait(&s->go) != 0)
		;
}

static void stop_sender(void)
{
	for (unsigned t = 0; t < THREADS; t++) {
		stop[t].work.run = stand;
		sem_init(&stop[t].stands, 0, 0);
		sem_init(&stop[t].go, 0, 0);
		ha_thread_post(io[TX][t], &stop[t].work);
		while (sem_wait(&stop[t].stands) != 0)
			;
	}
}

static void go_on(void)
{
	for (unsigned t = 0; t < THREADS; t++)
		sem_post(&stop[t].go);
}

/* Until so many chunks of its memory are asked for, or it is done. */
static void start_large(struct message *x, unsigned chunks)
{
	int64_t until = dr_now_ns() + LIMIT_NS;

	do {
		assert_true(dr_now_ns() < until);
		for (unsigned i = 0; i < ENDS; i++)
			if (!x->req[i])
				start(x, i);
		test_one(x, RX);
		drive();
	} while (!x->done[RX] && (!x->req[TX] || atomic_load(&mr[RX]->chunks) < chunks));
}

/* As deregMr. Returns how long it took. */
static int64_t deregister(unsigned i)
{
	int64_t start_ns;

	ha_comm_forget(comm[i], mr[i]);
	start_ns = dr_now_ns();
	assert_int_equal(ha_mr_dereg(comm[i], mr[i], NULL), 0);
	mr[i] = NULL;
	return dr_now_ns() - start_ns;
}

enum { BROKEN, STANDS };
static struct stood began;

/* How long memory with chunks in flight takes. The session is lost. */
static int64_t lose(void **state, unsigned how)
{
	struct message x = { .size = BYTES, .tag = 3 };
	int64_t took;

	(void)state;
	stood_read(&began);
	wait_for_all_paths();
	if (how == STANDS)
		stop_sender();
	else
		break_lanes();
	start_large(&x, 1);
	assert_false(x.done[RX]);
	took = deregister(RX);
	assert_int_not_equal(atomic_load(&end[RX]->err), 0);
	if (how == STANDS)
		go_on();
	return took;
}

static void memory_without_a_path_is_not_waited_for(void **state)
{
	stood_judge(&began, lose(state, BROKEN) < DEREG_NS, 50);
}

static void memory_on_a_path_that_is_silent_is_not_waited_for(void **state)
{
	stood_judge(&began, lose(state, STANDS) < DEREG_NS, 50);
}

static void memory_is_waited_for_while_a_rail_is_left(void **state)
{
	assert_true(lose(state, STANDS) >= DEREG_NS);
}

/* They wait until the lane has room for them: only they are given up. Those of other comms before them, if there are any,
 * and after them arrive. */
static void memory_of_chunks_that_were_not_posted_is_free(void **state)
{
	enum { Q = BYTES / 4, FLYING = THREADS * LANES * HA_WINDOW };
	_Static_assert(Q / SMALL_CHUNK == FLYING, "a quarter of the memory fills all lanes");
	struct ha_comm *other[ENDS], *own[ENDS];

	for (unsigned before = 0; before < 2; before++) {
		struct message x = { .size = Q + before * Q, .tag = 3 },
			       gone = { .off = 3 * Q, .size = Q, .tag = 3 },
			       after = { .off = 2 * Q, .size = Q, .tag = 3 };
		struct dr_memory m = { .len = BYTES };
		struct ha_mr *first;

		if (before > 0) {
			teardown(state);
			setup_one_rail(state);
		}
		m.base = memory[RX];
		first = mr[RX];
		memset(memory[TX], 1, BYTES);
		memset(memory[RX], 2, BYTES);
		memcpy(own, comm, sizeof(own));
		open_comm(6);
		memcpy(other, comm, sizeof(other));
		wait_for_all_paths();
		break_lanes();
		memcpy(comm, own, sizeof(own));
		start_large(&x, (1 + before) * FLYING);
		memcpy(comm, other, sizeof(other));
		assert_int_equal(ha_mr_reg(comm[RX], &m, &mr[RX], NULL), 0);
		start_large(&gone, FLYING);
		(void)deregister(RX);
		mr[RX] = first;
		assert_int_equal(atomic_load(&end[RX]->err), 0);
		memcpy(comm, own, sizeof(own));
		start_large(&after, (2 + before) * FLYING);
		atomic_store(&unreachable, false);
		both(&x);
		both(&after);
		for (unsigned i = 0; i < BYTES; i++)
			assert_int_equal(memory[RX][i], i < x.size || i / Q == 2 ? 1 : 2);
		memcpy(comm, other, sizeof(other));
		close_comm();
		memcpy(comm, own, sizeof(own));
	}
}

/* The other path delivers them, so that the session is not lost. An attempt that took as long as the wait tells nothing. */
static void memory_is_not_taken_from_a_switch(void **state)
{
	unsigned told = 0;

	for (unsigned a = 0; a < ATTEMPTS && told < IN_FLIGHT; a++) {
		struct message x = { .size = BYTES, .tag = 3 };
		bool in_flight;

		if (a > 0) {
			teardown(state);
			setup_medium(state);
		}
		wait_for_all_paths();
		stop_sender();
		start_large(&x, 1);
		break_receiver();
		go_on();
		in_flight = atomic_load(&mr[RX]->chunks) > 0;
		if (deregister(RX) >= DEREG_NS)
			continue;
		assert_int_equal(atomic_load(&end[RX]->err), 0);
		told += in_flight;
	}
	print_message("%u attempts of a switch had chunks in flight\n", told);
}

int main(void)
{
	const char *env = getenv("SEED");
	uint64_t seed = env ? strtoull(env, NULL, 0) : (uint64_t)dr_wall_ns();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(small_messages_arrive, setup, teardown),
		cmocka_unit_test_setup_teardown(large_messages_arrive, setup, teardown),
		cmocka_unit_test_setup_teardown(
			chunks_go_to_the_thread_with_less_to_move, setup, teardown),
		cmocka_unit_test_setup_teardown(
			messages_survive_broken_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(slots_are_free_after_a_switch, setup, teardown),
		cmocka_unit_test_setup_teardown(a_small_request_waits_for_a_slot, setup, teardown),
		cmocka_unit_test_setup_teardown(a_small_message_takes_one_read, setup, teardown),
		cmocka_unit_test_setup_teardown(medium_messages_arrive, setup_medium, teardown),
		cmocka_unit_test_setup_teardown(
			a_request_waits_for_the_socket, setup_medium, teardown),
		cmocka_unit_test_setup_teardown(
			memory_without_a_path_is_not_waited_for, setup_one_rail, teardown),
		cmocka_unit_test_setup_teardown(memory_on_a_path_that_is_silent_is_not_waited_for,
			setup_one_rail, teardown),
		cmocka_unit_test_setup_teardown(
			memory_is_waited_for_while_a_rail_is_left, setup, teardown),
		cmocka_unit_test_setup_teardown(
			memory_of_chunks_that_were_not_posted_is_free, setup_one_rail, teardown),
		cmocka_unit_test_setup_teardown(
			memory_is_not_taken_from_a_switch, setup_medium, teardown),
	};

	print_message("SEED=%llu\n", (unsigned long long)seed);
	dr_rng_seed(&rng, seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
