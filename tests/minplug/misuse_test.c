/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/ends.h"

/* libnccl-net-min.so: peers and callers that do what they must not do. */

static int setup(void **state)
{
	(void)state;
	return setenv("MINNET_IFNAME", "lo", 1);
}

struct wired {
	struct ends e;
	uint8_t out[64], in[64];
	void *smh, *rmh;
};

static void wired_init(struct wired *w, int version)
{
	const struct net *n = &w->e.net;

	ends_init(&w->e, version);
	ends_connect(&w->e);
	memset(w->out, 0x5a, sizeof(w->out));
	memset(w->in, 0, sizeof(w->in));
	assert_int_equal(n->reg(n, w->e.scomm, w->out, 64, MIN_PTR_HOST, &w->smh), MIN_OK);
	assert_int_equal(n->reg(n, w->e.rcomm, w->in, 64, MIN_PTR_HOST, &w->rmh), MIN_OK);
}

static void *wired_send(struct wired *w, size_t size, int tag)
{
	void *request;

	assert_int_equal(
		w->e.net.isend(&w->e.net, w->e.scomm, w->out, size, tag, w->smh, &request), MIN_OK);
	return request;
}

static void *wired_receive(struct wired *w, size_t size, int tag)
{
	void *request;

	assert_int_equal(
		w->e.net.irecv(&w->e.net, w->e.rcomm, 1, w->in, size, tag, w->rmh, &request),
		MIN_OK);
	return request;
}

/* The comm that failed says so again; what was complete before is told. */
static void refuses_what_does_not_fit(void **state)
{
	static const struct {
		size_t sent, room;
		int sent_tag, tag;
		enum min_result result;
	} row[] = {
		{ 8, 8, 1, 2, MIN_INTERNAL_ERROR },
		{ 9, 8, 1, 1, MIN_INVALID_USAGE },
		{ 1, 0, 1, 1, MIN_INVALID_USAGE },
	};

	(void)state;
	EACH_VERSION(v)
	{
		for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
			void *sent[2], *received[2], *more = &more;
			struct wired w;

			wired_init(&w, v);
			sent[0] = wired_send(&w, 8, 1);
			sent[1] = wired_send(&w, row[i].sent, row[i].sent_tag);
			received[0] = wired_receive(&w, 8, 1);
			received[1] = wired_receive(&w, row[i].room, row[i].tag);
			assert_int_equal(ends_wait(&w.e.net, sent[0]), MIN_OK);
			assert_int_equal(ends_wait(&w.e.net, sent[1]), MIN_OK);
			assert_int_equal(ends_wait(&w.e.net, received[1]), row[i].result);
			assert_int_equal(ends_wait(&w.e.net, received[0]), MIN_OK);
			assert_int_equal(
				w.e.net.irecv(&w.e.net, w.e.rcomm, 1, w.in, 8, 1, w.rmh, &more),
				row[i].result);
			assert_null(more);
			ends_fini(&w.e);
		}
	}
}

static void peer_that_closes_is_a_remote_error(void **state)
{
	(void)state;
	EACH_VERSION(v)
	{
		enum min_result result = MIN_OK;
		int64_t start = dr_now_ns();
		struct wired w;
		void *r;

		wired_init(&w, v);
		r = wired_send(&w, 8, 1);
		assert_int_equal(ends_wait(&w.e.net, r), MIN_OK);
		assert_int_equal(w.e.net.close_send(&w.e.net, w.e.scomm), MIN_OK);
		/* What was sent before still arrives. */
		assert_int_equal(ends_wait(&w.e.net, wired_receive(&w, 8, 1)), MIN_OK);
		assert_int_equal(ends_wait(&w.e.net, wired_receive(&w, 8, 1)), MIN_REMOTE_ERROR);
		ends_connect(&w.e);
		assert_int_equal(
			w.e.net.reg(&w.e.net, w.e.scomm, w.out, 64, MIN_PTR_HOST, &w.smh), MIN_OK);
		assert_int_equal(w.e.net.close_recv(&w.e.net, w.e.rcomm), MIN_OK);
		while (result == MIN_OK) {
			assert_true(ends_in_time(start));
			result = ends_wait(&w.e.net, wired_send(&w, 64, 1));
		}
		assert_int_equal(result, MIN_REMOTE_ERROR);
		assert_int_equal(w.e.net.close_send(&w.e.net, w.e.scomm), MIN_OK);
		assert_int_equal(w.e.net.close_listen(&w.e.net, w.e.lcomm), MIN_OK);
		assert_int_equal(w.e.net.finalize(&w.e.net, w.e.ctx), MIN_OK);
	}
}

static void misuse_is_an_internal_error(void **state)
{
	(void)state;
	EACH_VERSION(v)
	{
		void *r, *mh = &mh;
		int done = -1;
		struct wired w;
		struct net *n = &w.e.net;
		uint8_t outside[4];

		wired_init(&w, v);
		assert_int_equal(n->reg(n, w.e.scomm, w.out, 8, 2, &mh), MIN_INTERNAL_ERROR);
		assert_null(mh);
		assert_int_equal(
			n->reg(n, w.e.scomm, NULL, 8, MIN_PTR_HOST, &mh), MIN_INTERNAL_ERROR);
		/* Memory that is not registered, registered with another comm, or longer. */
		r = &r;
		assert_int_equal(
			n->isend(n, w.e.scomm, outside, 4, 1, w.smh, &r), MIN_INTERNAL_ERROR);
		assert_null(r);
		assert_int_equal(n->isend(n, w.e.scomm, w.out, 4, 1, NULL, &r), MIN_INTERNAL_ERROR);
		assert_int_equal(n->isend(n, w.e.scomm, w.in, 4, 1, w.rmh, &r), MIN_INTERNAL_ERROR);
		assert_int_equal(
			n->irecv(n, w.e.rcomm, 1, w.in + 1, 64, 1, w.rmh, &r), MIN_INTERNAL_ERROR);
		assert_int_equal(n->dereg(n, w.e.scomm, w.rmh), MIN_INTERNAL_ERROR);
		r = &r;
		assert_int_equal(
			n->irecv(n, w.e.rcomm, 2, w.in, 8, 1, w.rmh, &r), MIN_INTERNAL_ERROR);
		assert_null(r);
		/* The wrong end, and a request that was done. */
		assert_int_equal(n->isend(n, w.e.rcomm, w.in, 4, 1, w.rmh, &r), MIN_INTERNAL_ERROR);
		r = wired_send(&w, 8, 1);
		assert_int_equal(ends_wait(n, r), MIN_OK);
		assert_int_equal(n->test(n, r, &done, NULL), MIN_INTERNAL_ERROR);
		assert_int_equal(done, 0);
		/* None of that ends the comm; no bytes need no registration. */
		assert_int_equal(ends_wait(n, wired_receive(&w, 8, 1)), MIN_OK);
		assert_int_equal(n->isend(n, w.e.scomm, NULL, 0, 1, NULL, &r), MIN_OK);
		assert_int_equal(ends_wait(n, r), MIN_OK);
		assert_int_equal(ends_wait(n, wired_receive(&w, 8, 1)), MIN_OK);
		ends_fini(&w.e);
	}
}

/* After deregMr nothing is written to the memory, though bytes for it are there. */
static void deregistered_memory_is_left_alone(void **state)
{
	(void)state;
	EACH_VERSION(v)
	{
		void *received[2], *other_mh;
		uint8_t other[8] = { 0 }, clean[64] = { 0 };
		struct wired w;
		struct net *n = &w.e.net;

		wired_init(&w, v);
		assert_int_equal(n->reg(n, w.e.rcomm, other, 8, MIN_PTR_HOST, &other_mh), MIN_OK);
		received[0] = wired_receive(&w, 8, 1);
		assert_int_equal(
			n->irecv(n, w.e.rcomm, 1, other, 8, 1, other_mh, &received[1]), MIN_OK);
		assert_int_equal(ends_wait(n, wired_send(&w, 8, 1)), MIN_OK);
		assert_int_equal(ends_wait(n, wired_send(&w, 8, 1)), MIN_OK);
		assert_int_equal(n->dereg(n, w.e.rcomm, w.rmh), MIN_OK);
		assert_int_equal(ends_wait(n, received[1]), MIN_INTERNAL_ERROR);
		assert_int_equal(ends_wait(n, received[0]), MIN_INTERNAL_ERROR);
		assert_memory_equal(w.in, clean, sizeof(clean));
		ends_fini(&w.e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_does_not_fit),
		cmocka_unit_test(peer_that_closes_is_a_remote_error),
		cmocka_unit_test(misuse_is_an_internal_error),
		cmocka_unit_test(deregistered_memory_is_left_alone),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
