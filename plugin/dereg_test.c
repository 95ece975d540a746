/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/session_testkit.h"

#include "tests/stood.h"

/* Memory that is deregistered with chunks in flight. */

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
		dr_channel_path_dead(
			end[p->end]->bulk[p->thread].lane[l].ch, 0, -ECONNABORTED, "test", now);
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

/* An end's I/O threads stand from stop_end to go_on. */
static struct stop {
	struct ha_work work;
	sem_t stands, go;
} stop[ENDS][THREADS];

static void stand(struct ha_work *w, int64_t now)
{
	struct stop *s = dr_container_of(w, struct stop, work);

	(void)now;
	sem_post(&s->stands);
	while (sem_wait(&s->go) != 0)
		;
}

static void stop_end(unsigned i)
{
	for (unsigned t = 0; t < THREADS; t++) {
		struct stop *s = &stop[i][t];

		s->work.run = stand;
		sem_init(&s->stands, 0, 0);
		sem_init(&s->go, 0, 0);
		ha_thread_post(io[i][t], &s->work);
		while (sem_wait(&s->stands) != 0)
			;
	}
}

static void go_on(unsigned i)
{
	for (unsigned t = 0; t < THREADS; t++)
		sem_post(&stop[i][t].go);
}

static void nothing(void *arg, int64_t now)
{
	(void)arg;
	(void)now;
}

/* Also after a failure, or the threads would never end. */
static int release(void **state)
{
	for (unsigned i = 0; i < ENDS; i++)
		go_on(i);
	return teardown(state);
}

/* Until the receiver has posted so many chunks of its memory, or it is done. */
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
	/* A thread posts what it was asked for before it takes work that comes after this. */
	for (unsigned t = 0; t < THREADS; t++)
		ha_thread_call(io[RX][t], nothing, NULL);
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

/* The chunks of end i go on in other memory, and with them the session. Returns how long that took.
 * */
static int64_t replace(unsigned i, unsigned how)
{
	enum { Q = BYTES / 4 };
	struct message x = { .size = Q, .tag = 3 }, y = { .off = 2 * Q, .size = Q, .tag = 3 };
	struct dr_memory m = { .base = memory[i], .len = BYTES };
	struct ha_comm *own[ENDS], *other[ENDS];
	int64_t took, until = dr_now_ns() + LIMIT_NS;

	memcpy(own, comm, sizeof(own));
	open_comm(6);
	memcpy(other, comm, sizeof(other));
	memcpy(comm, own, sizeof(comm));
	memset(memory[TX], 1, BYTES);
	memset(memory[RX], 2, BYTES);
	wait_for_all_paths();
	stop_end(TX);
	start_large(&x, 1);
	if (i == TX) { /* its chunks are sent, and wait for an acknowledgement */
		stop_end(RX);
		go_on(TX);
		while (atomic_load(&mr[TX]->chunks) == 0)
			assert_true(dr_now_ns() < until);
	}
	if (how == BROKEN) { /* the other end stands */
		struct part p = { .end = i };

		atomic_store(&unreachable, rails == 1);
		for (; p.thread < THREADS; p.thread++)
			ha_thread_call(io[i][p.thread], break_path_0, &p);
	}
	stood_read(&began);
	took = deregister(i);
	assert_int_equal(ha_mr_reg(other[i], &m, &mr[i], NULL), 0);
	memset(memory[i], 3, BYTES / 2);
	go_on(!i);
	atomic_store(&unreachable, false);
	memcpy(comm, other, sizeof(comm));
	both(&y);
	for (unsigned b = 0; b < BYTES / 2;
		b++) /* nothing was written there, and nothing read there arrived */
		assert_true(
			i == RX ? memory[RX][b] == 3 : memory[RX][b] == 1 || memory[RX][b] == 2);
	for (unsigned b = BYTES / 2; b < BYTES; b++)
		assert_int_equal(memory[RX][b], b / Q == 2 ? 1 : 2);
	for (unsigned k = 0; k < ENDS; k++)
		assert_int_equal(atomic_load(&end[k]->err), 0);
	assert_non_null(end[i]->replaced);
	assert_int_equal(ha_mr_dereg(other[i], mr[i], NULL), 0);
	mr[i] = NULL;
	close_comm();
	memcpy(comm, own, sizeof(comm));
	return took;
}

static void memory_without_a_path_is_not_waited_for(void **state)
{
	(void)state;
	stood_judge(&began, replace(RX, BROKEN) < DEREG_NS, 50);
}

static void memory_on_a_path_that_is_silent_is_not_waited_for(void **state)
{
	(void)state;
	stood_judge(&began, replace(RX, STANDS) < DEREG_NS, 50);
}

static void memory_is_waited_for_while_a_rail_is_left(void **state)
{
	(void)state;
	assert_true(replace(RX, STANDS) >= DEREG_NS);
}

static void memory_that_is_sent_from_is_replaced(void **state)
{
	for (unsigned how = BROKEN; how <= STANDS; how++) {
		if (how > 0) {
			teardown(state);
			setup(state);
		}
		(void)replace(TX, how);
	}
}

/* They wait until the lane has room for them: only they are given up. Those of other comms before
 * them, if there are any, and after them arrive. */
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

/* The other path delivers them. An attempt that took as long as the wait tells nothing. */
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
		stop_end(TX);
		start_large(&x, 1);
		break_receiver();
		go_on(TX);
		in_flight = atomic_load(&mr[RX]->chunks) > 0;
		if (deregister(RX) >= DEREG_NS)
			continue;
		assert_null(end[RX]->replaced);
		told += in_flight;
	}
	print_message("%u attempts of a switch had chunks in flight\n", told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			memory_without_a_path_is_not_waited_for, setup_one_rail, release),
		cmocka_unit_test_setup_teardown(
			memory_on_a_path_that_is_silent_is_not_waited_for, setup_one_rail, release),
		cmocka_unit_test_setup_teardown(
			memory_is_waited_for_while_a_rail_is_left, setup, release),
		cmocka_unit_test_setup_teardown(
			memory_that_is_sent_from_is_replaced, setup, release),
		cmocka_unit_test_setup_teardown(
			memory_of_chunks_that_were_not_posted_is_free, setup_one_rail, release),
		cmocka_unit_test_setup_teardown(
			memory_is_not_taken_from_a_switch, setup_medium, release),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
