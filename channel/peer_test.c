/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_testkit.h"

#include "base/poller.h"

#include <errno.h>

/*
 * Several managers of one process with a common peer. Each manager, and the heartbeats, have a world of their own,
 * since a simulated rail has one listener; faults and time are the same in all of them.
 */
enum { MANAGERS = 2, WORLDS = MANAGERS + 1, BEATS = MANAGERS };

struct member {
	struct pair p; /* for its counters of verdicts; its world is the group's */
	int64_t stalled_until[2];
};

struct group {
	struct dr_sim_world *w[WORLDS];
	struct dr_peer *peer[2];
	struct member mb[MANAGERS];
};

static struct dr_manager_params params(struct group *g, struct dr_sim_rail_params *rp, unsigned k)
{
	struct dr_manager_params mp = { .transport = dr_sim_ops(DR_SIM_STREAM),
		.gpu = k,
		.n_rails = RAILS,
		.connector = rp->node == 0,
		.window = 4,
		.heartbeat_ns = BEAT_NS,
		.detect = DR_DETECT_FAST,
		.failback = true,
		.hold_down_ns = DR_NS_PER_S,
		.peer = k < MANAGERS ? g->peer[rp->node] : NULL,
		.ops = &ops,
		.kind_params = rp };

	for (unsigned r = 0; r < RAILS; r++)
		mp.rail[r].ifindex = (int)r + 1;
	return mp;
}

static void make_end(struct group *g, unsigned end)
{
	struct dr_sim_rail_params rp = { .world = g->w[BEATS], .node = end };
	struct dr_manager_params mp = params(g, &rp, BEATS);
	struct dr_err e = { 0 };

	if (dr_peer_create(&mp, NULL, &g->peer[end], &e))
		fail_msg("peer: %s", e.text);
	for (unsigned k = 0; k < MANAGERS; k++) {
		struct pair *p = &g->mb[k].p;

		rp.world = p->w = g->w[k];
		mp = params(g, &rp, k);
		p->told[end] = (struct told){ p, end };
		mp.arg = &p->told[end];
		if (dr_manager_create(&mp, &p->m[end], &e))
			fail_msg("create: %s", e.text);
	}
}

static void introduce_peers(struct group *g)
{
	struct dr_handle h[RAILS];
	struct dr_err e = { 0 };

	for (unsigned end = 0; end < 2; end++) {
		for (unsigned i = 0; i < RAILS; i++)
			assert_int_equal(dr_peer_handle(g->peer[!end], i, &h[i]), 0);
		assert_int_equal(dr_peer_start(g->peer[end], h, RAILS - 1, 0, &e), -EPROTO);
		assert_int_equal(dr_peer_start(g->peer[end], h, RAILS, 0, &e), 0);
	}
}

static void step(struct group *g, int64_t until)
{
	int64_t now = dr_sim_world_now(g->w[0]), next = until;

	for (unsigned i = 0; i < WORLDS; i++)
		next = DR_MIN(next, dr_sim_world_next(g->w[i]));
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned end = 0; end < 2; end++)
			if (g->mb[k].p.m[end] && g->mb[k].stalled_until[end] <= now)
				next = DR_MIN(next, dr_manager_deadline(g->mb[k].p.m[end]));
			else if (g->mb[k].p.m[end])
				next = DR_MIN(next, g->mb[k].stalled_until[end]);
	next = DR_MAX(next, now);
	for (unsigned i = 0; i < WORLDS; i++)
		dr_sim_world_step(g->w[i], next);
	for (unsigned round = 0; round < 3; round++)
		for (unsigned k = 0; k < MANAGERS; k++)
			for (unsigned end = 0; end < 2; end++)
				if (g->mb[k].p.m[end] && g->mb[k].stalled_until[end] <= next)
					dr_manager_tick(g->mb[k].p.m[end], next);
}

static void go(struct group *g, int64_t ns)
{
	int64_t until = dr_sim_world_now(g->w[0]) + ns;

	while (dr_sim_world_now(g->w[0]) < until)
		step(g, until);
}

static void stall(struct group *g, unsigned k, unsigned end, int64_t ns)
{
	g->mb[k].stalled_until[end] = dr_sim_world_now(g->w[0]) + ns;
}

static void cut(struct group *g, unsigned rail, unsigned from_mask, bool on)
{
	for (unsigned i = 0; i < WORLDS; i++)
		dr_sim_cut(g->w[i], rail, from_mask, on);
}

static void group_make(struct group *g)
{
	struct dr_sim_opts o = world_of(DR_SIM_STREAM);

	memset(g, 0, sizeof(*g));
	for (unsigned i = 0; i < WORLDS; i++)
		assert_int_equal(dr_sim_world_create(i + 1, &o, &g->w[i]), 0);
	for (unsigned end = 0; end < 2; end++)
		make_end(g, end);
}

static void group_open(struct group *g)
{
	group_make(g);
	for (unsigned k = 0; k < MANAGERS; k++)
		introduce(&g->mb[k].p);
	introduce_peers(g);
	go(g, 200 * DR_NS_PER_MS);
	for (unsigned k = 0; k < MANAGERS; k++) {
		assert_int_equal(dr_manager_ready(g->mb[k].p.m[0]), 1);
		assert_int_equal(dr_manager_ready(g->mb[k].p.m[1]), 1);
	}
}

static void leave(struct group *g, unsigned k)
{
	for (unsigned end = 0; end < 2; end++) {
		dr_manager_close(g->mb[k].p.m[end], dr_sim_world_now(g->w[0]));
		assert_int_equal(dr_manager_destroy(g->mb[k].p.m[end]), 0);
		g->mb[k].p.m[end] = NULL;
	}
}

static void group_close(struct group *g)
{
	for (unsigned k = 0; k < MANAGERS; k++)
		if (g->mb[k].p.m[0])
			leave(g, k);
	for (unsigned end = 0; end < 2; end++)
		dr_peer_destroy(g->peer[end]);
	for (unsigned i = 0; i < WORLDS; i++) {
		assert_int_equal(dr_sim_world_violations(g->w[i]), 0);
		dr_sim_world_destroy(g->w[i]);
	}
}

static unsigned downs(const struct group *g, unsigned rail)
{
	unsigned n = 0;

	for (unsigned k = 0; k < MANAGERS; k++)
		n += g->mb[k].p.downs[0][rail] + g->mb[k].p.downs[1][rail];
	return n;
}

static void no_verdicts(const struct group *g)
{
	assert_int_equal(downs(g, 0) + downs(g, 1), 0);
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned end = 0; end < 2; end++)
			assert_int_equal(g->mb[k].p.stalls[end] + g->mb[k].p.losses[end], 0);
}

static uint64_t sent(const struct group *g, unsigned end)
{
	return g->peer[end]->hb.sent;
}

static void test_one_stream_per_rail(void **state)
{
	struct group g;
	uint64_t was[2];

	(void)state;
	group_open(&g);
	for (unsigned end = 0; end < 2; end++)
		was[end] = sent(&g, end);
	go(&g, 100 * BEAT_NS);
	for (unsigned end = 0; end < 2; end++)
		assert_in_range(sent(&g, end) - was[end], RAILS * 99, RAILS * 101);
	no_verdicts(&g);
	group_close(&g);
}

static void test_every_manager_leaves_a_rail_that_fell(void **state)
{
	struct group g;

	(void)state;
	group_open(&g);
	cut(&g, 0, DR_SIM_BOTH, true);
	go(&g, 10 * BEAT_NS);
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned end = 0; end < 2; end++) {
			assert_int_equal(g.mb[k].p.downs[end][0], 1);
			assert_int_equal(g.mb[k].p.m[end]->rail[0].state, DR_RAIL_DOWN);
		}
	cut(&g, 0, DR_SIM_BOTH, false);
	go(&g, 20 * BEAT_NS);
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned end = 0; end < 2; end++) {
			assert_int_equal(g.mb[k].p.ups[end][0], 1);
			assert_int_equal(g.mb[k].p.m[end]->rail[0].state, DR_RAIL_ALIVE);
		}
	/* One that stands while the rail falls, rises and falls again does not use it. */
	stall(&g, 1, 0, 45 * BEAT_NS);
	for (unsigned i = 0; i < 3; i++, go(&g, 15 * BEAT_NS))
		cut(&g, 0, DR_SIM_BOTH, i != 1);
	assert_int_equal(g.mb[0].p.ups[0][0], 2);
	assert_int_equal(g.mb[1].p.ups[0][0], 1);
	assert_int_equal(g.mb[1].p.m[0]->rail[0].state, DR_RAIL_DOWN);
	assert_int_equal(downs(&g, 1), 0);
	group_close(&g);
}

/* Whichever manager stands, the other one sends the heartbeats, in time, and judges. */
static void one_stands(unsigned k, unsigned end)
{
	struct group g;
	uint64_t was;

	group_open(&g);
	was = sent(&g, end);
	stall(&g, k, end, 300 * BEAT_NS);
	go(&g, 100 * BEAT_NS);
	assert_int_equal(downs(&g, 0) + downs(&g, 1), 0);
	assert_in_range(sent(&g, end) - was, RAILS * 80, RAILS * 101);
	cut(&g, 1, DR_SIM_BOTH, true);
	go(&g, 10 * BEAT_NS);
	assert_int_equal(downs(&g, 1), 3);
	assert_int_equal(g.mb[k].p.downs[end][1], 0);
	cut(&g, 1, DR_SIM_BOTH, false);
	go(&g, 20 * BEAT_NS);
	assert_int_equal(g.mb[!k].p.ups[end][1], 1);
	go(&g, 200 * BEAT_NS); /* it goes on, and takes both verdicts */
	assert_int_equal(g.mb[k].p.downs[end][1], 1);
	assert_int_equal(g.mb[k].p.ups[end][1], 1);
	assert_int_equal(downs(&g, 0), 0);
	for (unsigned i = 0; i < MANAGERS; i++)
		assert_int_equal(g.mb[i].p.losses[!end], 0);
	group_close(&g);
}

static void test_heartbeats_go_on_while_one_manager_stands(void **state)
{
	(void)state;
	for (unsigned k = 0; k < MANAGERS; k++) {
		one_stands(k, 0);
		one_stands(k, 1);
	}
}

/* No rail falls because a whole process stands; its peer knows that it is silent. */
static void test_a_process_that_stands_is_not_a_rail_that_fell(void **state)
{
	struct group g;

	(void)state;
	group_open(&g);
	for (unsigned k = 0; k < MANAGERS; k++)
		stall(&g, k, 0, 50 * BEAT_NS);
	go(&g, 100 * BEAT_NS);
	assert_int_equal(downs(&g, 0) + downs(&g, 1), 0);
	for (unsigned k = 0; k < MANAGERS; k++) {
		assert_true(g.mb[k].p.stalls[1] > 0);
		assert_int_equal(g.mb[k].p.losses[0] + g.mb[k].p.losses[1], 0);
	}
	group_close(&g);
}

static void test_another_manager_drives_when_the_driver_leaves(void **state)
{
	struct group g;
	uint64_t was;

	(void)state;
	group_open(&g);
	leave(&g, 0);
	assert_true(g.peer[0]->driver == NULL);
	was = sent(&g, 0);
	go(&g, 100 * BEAT_NS);
	assert_true(g.peer[0]->driver == g.mb[1].p.m[0]);
	assert_in_range(sent(&g, 0) - was, RAILS * 98, RAILS * 101);
	no_verdicts(&g);
	group_close(&g);
}

/* A manager that finds the lock taken neither waits nor comes back at once, and loses nothing. */
static void test_nobody_waits_for_the_lock(void **state)
{
	struct group g;
	struct dr_manager *m;
	int64_t now;
	uint64_t was;

	(void)state;
	group_open(&g);
	m = g.mb[0].p.m[0];
	was = sent(&g, 0);
	assert_int_equal(pthread_mutex_lock(&g.peer[0]->lock), 0);
	now = dr_sim_world_now(g.w[0]) + BEAT_NS;
	for (unsigned i = 0; i < WORLDS; i++)
		dr_sim_world_step(g.w[i], now);
	dr_manager_tick(m, now);
	assert_in_range(dr_manager_deadline(m) - now, 10 * DR_NS_PER_US, DR_NS_PER_MS);
	assert_int_equal(pthread_mutex_unlock(&g.peer[0]->lock), 0);
	assert_int_equal(sent(&g, 0), was);
	go(&g, BEAT_NS / 10);
	assert_int_equal(sent(&g, 0), was + RAILS);
	go(&g, 10 * BEAT_NS);
	no_verdicts(&g);
	group_close(&g);
}

/* The link of a device is down for all managers, also for those that were not told. */
static void test_a_link_that_is_down_is_a_verdict_for_all(void **state)
{
	struct group g;

	(void)state;
	group_open(&g);
	cut(&g, 0, DR_SIM_BOTH, true);
	dr_manager_link(g.mb[1].p.m[0], 1, false, dr_sim_world_now(g.w[0]));
	assert_int_equal(g.mb[1].p.downs[0][0], 1);
	go(&g, DR_NS_PER_MS);
	assert_int_equal(g.mb[0].p.downs[0][0], 1);
	dr_manager_link(g.mb[0].p.m[0], 1, false, dr_sim_world_now(g.w[0]));
	go(&g, 10 * BEAT_NS);
	assert_int_equal(downs(&g, 0), 4);
	assert_int_equal(downs(&g, 1), 0);
	cut(&g, 0, DR_SIM_BOTH, false);
	group_close(&g);
}

/* As the transport reports it from the manager's own end of the rail. */
static void endpoint_fails(struct group *g, unsigned k, unsigned end, enum dr_scope scope, int err)
{
	struct dr_manager *m = g->mb[k].p.m[end];
	struct dr_event ev = {
		.kind = DR_EV_FAILED, .scope = scope, .err = err, .text = "planned"
	};

	m->now = dr_sim_world_now(g->w[0]);
	ev.rail = m->rail[0].rail;
	m->rail[0].sink.event(&m->rail[0].sink, &ev);
}

/* A manager's own objects on a rail fail: no verdict, for itself neither. The device fails: one for all. */
static void test_an_endpoint_of_one_manager_is_not_the_rail(void **state)
{
	struct dr_channel_stats st;
	struct group g;

	(void)state;
	group_open(&g);
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned end = 0; end < 2; end++) {
			endpoint_fails(&g, k, end, DR_SCOPE_LOCAL, -EIO);
			go(&g, 10 * BEAT_NS);
			no_verdicts(&g);
		}
	for (unsigned k = 0; k < MANAGERS; k++)
		for (unsigned c = 0; c < CHANNELS; c++) {
			dr_channel_stats(dr_manager_channel_at(g.mb[k].p.m[0], c), &st);
			assert_int_equal(st.switches, 0);
		}
	endpoint_fails(&g, 1, 0, DR_SCOPE_RAIL, -ENODEV);
	go(&g, BEAT_NS);
	for (unsigned k = 0; k < MANAGERS; k++)
		assert_int_equal(g.mb[k].p.downs[0][0], 1);
	assert_int_equal(downs(&g, 1), 0);
	go(&g, 20 * BEAT_NS);
	for (unsigned k = 0; k < MANAGERS; k++)
		assert_int_equal(g.mb[k].p.m[0]->rail[0].state, DR_RAIL_ALIVE);
	group_close(&g);
}

/* Bytes of one manager replace heartbeats, and are signs of life of the rail for all. */
static void test_bytes_of_one_manager_count_for_all(void **state)
{
	struct group g;
	struct dr_path *path;
	uint64_t was = 0;

	(void)state;
	group_open(&g);
	for (unsigned i = 0; i < 100; i++) {
		for (unsigned end = 0; end < 2; end++) {
			path = dr_channel_path(dr_manager_channel_at(g.mb[1].p.m[end], 0), 0);
			dr_path_heard(path, dr_sim_world_now(g.w[0]));
			dr_path_sent(path, dr_sim_world_now(g.w[0]));
		}
		if (i == 50)
			was = sent(&g, 0);
		go(&g, BEAT_NS / 10);
	}
	assert_in_range(sent(&g, 0) - was, 4, 8); /* on one rail */
	no_verdicts(&g);
	group_close(&g);
}

/* The peer ends a channel while one manager of the other process stands, and the resets are lost. The heartbeats of the
 * process do not hide that this manager has to ask. */
static void test_a_manager_that_stood_alone_asks_whether_its_paths_live(void **state)
{
	struct group g;
	struct pair *p = &g.mb[1].p;

	(void)state;
	group_open(&g);
	for (unsigned r = 0; r < RAILS; r++)
		dr_sim_cut(g.w[1], r, DR_SIM_BOTH, true);
	dr_channel_fail(
		dr_manager_channel_at(p->m[1], 0), -EIO, "planned", dr_sim_world_now(g.w[0]));
	stall(&g, 1, 0, 1600 * DR_NS_PER_MS);
	go(&g, 1600 * DR_NS_PER_MS - BEAT_NS);
	assert_true(dr_channel_closed(dr_manager_channel_at(p->m[1], 0)));
	for (unsigned r = 0; r < RAILS; r++)
		dr_sim_cut(g.w[1], r, DR_SIM_BOTH, false);
	go(&g, 100 * DR_NS_PER_MS); /* no path is idle for 2 s */
	assert_int_equal(p->failed[0][0], -EIO);
	assert_int_equal(g.mb[0].p.failed[0][0], 0);
	group_close(&g);
}

/* What a manager read before another one began to suspect the rail does not end the suspicion; what it reads
 * later does. */
static void test_bytes_from_before_a_suspicion_do_not_end_it(void **state)
{
	struct group g;
	struct dr_manager *m;
	struct dr_hb *h;
	struct dr_path *path;

	(void)state;
	group_open(&g);
	h = &g.peer[0]->hb;
	m = g.mb[0].p.m[0];
	path = dr_channel_path(dr_manager_channel_at(g.mb[1].p.m[0], 0), 0);
	cut(&g, 0, DR_SIM_BOTH, true);
	go(&g, BEAT_NS / 2);
	dr_path_heard(path, dr_sim_world_now(g.w[0]));
	go(&g, BEAT_NS / 20);
	m->now = dr_sim_world_now(g.w[0]);
	dr_peer_lock(m); /* as in its look */
	dr_hb_suspect(h, 0, m->now);
	dr_peer_unlock(m);
	go(&g, BEAT_NS / 4);
	assert_true(h->d.rail[0].suspected);
	dr_path_heard(path, dr_sim_world_now(g.w[0]));
	go(&g, BEAT_NS / 4);
	assert_false(h->d.rail[0].suspected);
	cut(&g, 0, DR_SIM_BOTH, false);
	group_close(&g);
}

/* Until the next full tick at this end. */
static void one_tick(struct group *g, unsigned end)
{
	const struct dr_hb *h = &g->peer[end]->hb;
	int64_t was = h->last_tick_ns;

	while (h->last_tick_ns == was)
		step(g, DR_NEVER);
}

/* Manager k reads bytes on rail 0 now, and then stands. */
static void reads_and_stands(struct group *g, unsigned k)
{
	dr_path_heard(dr_channel_path(dr_manager_channel_at(g->mb[k].p.m[0], 0), 0),
		dr_sim_world_now(g->w[0]));
	stall(g, k, 0, 100 * BEAT_NS);
}

/* Bytes are one sign of life, whatever their manager does before and after it. */
static void test_bytes_count_once(void **state)
{
	struct dr_detect_rail *r;
	struct group g;

	(void)state;
	for (unsigned k = 0; k < MANAGERS; k++) {
		int64_t read_ns;

		group_open(&g);
		r = &g.peer[0]->hb.d.rail[0];
		cut(&g, 0, DR_SIM_BOTH, true);
		while (dr_detect_missed(&g.peer[0]->hb.d, 0) == 0)
			go(&g, BEAT_NS / 20);
		read_ns = dr_sim_world_now(g.w[0]);
		reads_and_stands(&g, k);
		one_tick(&g, 0);
		assert_int_equal(r->heard_ns, read_ns);
		go(&g, BEAT_NS / 4);
		stall(&g, k, 0, 0); /* it looks before the next tick */
		one_tick(&g, 0);
		assert_int_equal(r->heard_ns, read_ns);
		assert_true(dr_detect_missed(&g.peer[0]->hb.d, 0) > 0);
		cut(&g, 0, DR_SIM_BOTH, false);
		group_close(&g);
	}
}

/* The driver stands, and nobody else's poller is told that heartbeats have arrived: who executes the tick reads them. Those
 * that waited while bytes of paths were signs of life do not hide a silence. */
static void test_the_tick_reads_what_the_driver_has_not(void **state)
{
	struct group g;
	struct dr_poller *poller;
	struct dr_manager *m;
	const struct dr_hb *h;

	(void)state;
	assert_int_equal(dr_poller_create(&poller, NULL), 0);
	group_open(&g);
	m = g.mb[1].p.m[0];
	h = &g.peer[0]->hb;
	assert_true(m->lag_ns > 0);
	m->prm.poller = poller;
	stall(&g, 0, 0, 300 * BEAT_NS);
	for (unsigned i = 0; i < 190; i++) {
		for (unsigned p = 0; i >= 90 && p < DR_PATHS; p++)
			dr_path_heard(dr_channel_path(dr_manager_channel_at(m, 0), p),
				dr_sim_world_now(g.w[0]));
		one_tick(&g, 0);
		assert_true(h->d.silent_ns <= BEAT_NS);
		assert_false(m->stalled);
		if (i == 90)
			no_verdicts(&g);
	}
	for (unsigned r = 0; r < RAILS; r++)
		cut(&g, r, DR_SIM_BOTH, true);
	for (unsigned i = 0; i < 12; i++)
		one_tick(&g, 0);
	assert_true(h->d.silent_ns >= 9 * BEAT_NS);
	m->prm.poller = NULL;
	group_close(&g);
	dr_poller_destroy(poller);
}

/* Of the managers' gaps on a rail the shortest counts: a path that is read rarely makes no rail
 * slow. */
static void test_the_shortest_gap_of_all_managers_counts(void **state)
{
	struct group g;

	(void)state;
	group_open(&g);
	for (unsigned i = 0; i < 200; i++) {
		for (unsigned k = 0; k < MANAGERS; k++) {
			struct dr_path *path[2];

			for (unsigned end = 0; end < 2; end++) {
				path[end] = dr_channel_path(
					dr_manager_channel_at(g.mb[k].p.m[end], 0), 0);
				dr_path_heard(path[end], dr_sim_world_now(g.w[0]));
				dr_path_sent(path[end], dr_sim_world_now(g.w[0]));
			}
			path[0]->rail->rx_gap_ns = (k == 0 ? 150 : 2) * DR_NS_PER_MS;
		}
		go(&g, BEAT_NS / 10);
	}
	assert_in_range(dr_detect_usual_gap(&g.peer[0]->hb.d, 0), 2 * DR_NS_PER_MS, 2 * BEAT_NS);
	group_close(&g);
}

/* A manager that starts late learns which rails are down. */
static void test_a_manager_that_starts_later_knows_the_verdicts(void **state)
{
	struct group g;

	(void)state;
	for (unsigned rose = 0; rose < 2; rose++) {
		group_make(&g);
		introduce(&g.mb[0].p);
		introduce_peers(&g);
		go(&g, 20 * BEAT_NS);
		cut(&g, 0, DR_SIM_BOTH, true);
		go(&g, 20 * BEAT_NS);
		cut(&g, 0, DR_SIM_BOTH, !rose);
		go(&g, 20 * BEAT_NS);
		introduce(&g.mb[1].p);
		for (unsigned end = 0; end < 2; end++) {
			assert_int_equal(g.mb[1].p.m[end]->rail[0].state,
				rose ? DR_RAIL_ALIVE : DR_RAIL_DOWN);
			assert_int_equal(g.mb[1].p.m[end]->rail[1].state, DR_RAIL_ALIVE);
		}
		cut(&g, 0, DR_SIM_BOTH, false);
		go(&g, 20 * BEAT_NS);
		for (unsigned end = 0; end < 2; end++)
			assert_int_equal(g.mb[1].p.m[end]->rail[0].state, DR_RAIL_ALIVE);
		group_close(&g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_stream_per_rail),
		cmocka_unit_test(test_every_manager_leaves_a_rail_that_fell),
		cmocka_unit_test(test_heartbeats_go_on_while_one_manager_stands),
		cmocka_unit_test(test_a_process_that_stands_is_not_a_rail_that_fell),
		cmocka_unit_test(test_another_manager_drives_when_the_driver_leaves),
		cmocka_unit_test(test_nobody_waits_for_the_lock),
		cmocka_unit_test(test_a_link_that_is_down_is_a_verdict_for_all),
		cmocka_unit_test(test_an_endpoint_of_one_manager_is_not_the_rail),
		cmocka_unit_test(test_bytes_of_one_manager_count_for_all),
		cmocka_unit_test(test_a_manager_that_stood_alone_asks_whether_its_paths_live),
		cmocka_unit_test(test_bytes_from_before_a_suspicion_do_not_end_it),
		cmocka_unit_test(test_bytes_count_once),
		cmocka_unit_test(test_the_tick_reads_what_the_driver_has_not),
		cmocka_unit_test(test_the_shortest_gap_of_all_managers_counts),
		cmocka_unit_test(test_a_manager_that_starts_later_knows_the_verdicts),
	};

	return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
