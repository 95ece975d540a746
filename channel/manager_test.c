/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_testkit.h"

#include <errno.h>

/*
 * The ChannelManager's verdicts about rails: between the ends of one pair of workers, and between workers of
 * one process, which share what they hear.
 */
/* Kinds without datagrams beat on a channel's path. That the peer has fenced that one already, and
 * cannot say so, is no verdict on the rail. */
static void test_beats_go_where_the_peer_listens(void **state)
{
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_PLUGIN);
	dr_sim_cut(p.w, 1, DR_SIM_NODE1, true); /* nothing from end 1 on rail 1, NOTIFY too */
	dr_channel_path_dead(dr_manager_channel_at(p.m[1], 0), 0, -ECONNABORTED, "test",
		dr_sim_world_clock(p.w, 1));
	run_for(&p, 20 * BEAT_NS);
	assert_int_equal(p.downs[1][0], 0);
	assert_int_equal(p.downs[0][0], 0);
	assert_true(p.downs[0][1] > 0); /* the cut is seen */
	pair_close(&p);
}

/* The path that was heard last is one that the peer has fenced. What it misses, it reports, and the next
 * heartbeats go onto every path. */
static void test_missed_beats_go_onto_every_path(void **state)
{
	struct dr_path *fenced;
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_PLUGIN);
	fenced = dr_channel_path(dr_manager_channel_at(p.m[1], 0), 0);
	fenced->ops->fence(fenced, dr_sim_world_clock(p.w, 1));
	dr_channel_path(dr_manager_channel_at(p.m[0], 0), 0)->rx_last_ns = DR_NEVER;
	run_for(&p, 20 * BEAT_NS);
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(p.downs[end][0] + p.downs[end][1], 0);
	pair_close(&p);
}

/* A fence that takes long leaves a rail without a path, as after each failback. Nothing can
 * be heard there, and the heartbeats of the other rail are no evidence. */
static void test_a_rail_without_paths_is_not_silent(void **state)
{
	struct dr_sim_opts o = world_of(DR_SIM_PLUGIN);
	struct dr_channel *ch;
	struct pair p;

	(void)state;
	o.fence_min_ns = 8 * BEAT_NS;
	pair_open_with(&p, &o, DR_DETECT_FAST);
	both_paths_up(&p);
	for (unsigned end = 0; end < 2; end++)
		for (uint32_t c = 0; c < CHANNELS; c++) /* both paths over rail 1 */
			dr_channel_path_dead(dr_manager_channel_at(p.m[end], c), c == 0,
				-ECONNABORTED, "test", dr_sim_world_clock(p.w, end));
	run_for(&p, 6 * BEAT_NS);
	ch = dr_manager_channel_at(p.m[0], 0);
	assert_false(dr_channel_path_up(ch, 1));
	run_for(&p, 20 * BEAT_NS);
	assert_true(dr_channel_path_up(ch, 1));
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(p.downs[end][0] + p.downs[end][1], 0);
	pair_close(&p);
}

/* Both rails fail for a moment in which the accepting end loses both paths of a channel, and the resets are
 * lost too. The other end has no reason to dial, and no path is left to say so. */
static void lost_resets(enum dr_sim_personality kind)
{
	struct dr_channel_stats st;
	struct pair p;

	pair_up(&p, kind);
	cut_all(&p, true);
	for (unsigned i = 0; i < DR_PATHS; i++)
		dr_channel_path_dead(dr_manager_channel_at(p.m[1], 0), i, -ECONNABORTED, "test",
			dr_sim_world_clock(p.w, 1));
	run_for(&p, 2 * BEAT_NS);
	cut_all(&p, false);
	run_for(&p, 300 * DR_NS_PER_MS);
	for (unsigned end = 0; end < 2; end++) {
		assert_int_equal(dr_channel_ready(dr_manager_channel_at(p.m[end], 0)), 1);
		dr_channel_stats(dr_manager_channel_at(p.m[end], 0), &st);
		assert_int_equal(st.path_connections[0], 2);
		assert_int_equal(st.path_connections[1], 2);
	}
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	assert_int_equal(dr_manager_ready(p.m[1]), 1);
	pair_close(&p);
}

static void test_lost_resets_of_both_paths(void **state)
{
	(void)state;
	lost_resets(DR_SIM_STREAM);
	lost_resets(DR_SIM_REMOTE_WRITE);
}

/* A rail is not judged by what was not read: its datagrams and its paths are, before it falls. */
static void unread(bool dgrams)
{
	struct pair p;

	pair_up(&p, DR_SIM_STREAM);
	if (!dgrams) /* control frames alone tell of rail 0 then */
		dr_sim_mute_dgrams(p.w, 0, DR_SIM_NODE1, true);
	p.m[0]->prm.poller = (struct dr_poller *)&p; /* end 0 reads what it is called for, */
	for (int i = 0; i < 100; i++) {
		int64_t now;

		dr_sim_world_step(p.w, dr_sim_world_now(p.w) + BEAT_NS / 2);
		now = dr_sim_world_clock(p.w, 1);
		dr_manager_tick(p.m[1], now);
		for (unsigned c = 0; c < CHANNELS && !dgrams; c++)
			dr_channel_probe(dr_manager_channel_at(p.m[1], c), now);
		now = dr_sim_world_clock(p.w, 0);
		p.m[0]->now = now; /* which is rail 1 */
		p.m[0]->rail[1].rail->ops->rail_progress(
			p.m[0]->rail[1].rail, now, &p.m[0]->rail[1].sink);
		dr_manager_tick(p.m[0], now);
	}
	assert_int_equal(p.downs[0][0] + p.downs[0][1], 0);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	p.m[0]->prm.poller = NULL;
	run_for(&p, 10 * BEAT_NS);
	assert_int_equal(p.downs[0][0], 1);
	pair_close(&p);
}

static void test_unread_data_clears_a_rail(void **state)
{
	(void)state;
	unread(true);
	unread(false);
}

/* netlink's word: down counts at once unless the transport alone judges, up only where no heartbeat judges. */
static void link_events(enum dr_detect detect)
{
	struct dr_channel_stats st;
	struct pair p;

	pair_open(&p, DR_SIM_STREAM, detect);
	both_paths_up(&p);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	dr_manager_link(p.m[0], 7, false, dr_sim_world_clock(p.w, 0)); /* somebody else's */
	dr_manager_link(p.m[0], 0, false, dr_sim_world_clock(p.w, 0));
	assert_int_equal(p.downs[0][0] + p.downs[0][1], 0);
	dr_manager_link(p.m[0], 1, false, dr_sim_world_clock(p.w, 0));
	dr_manager_link(p.m[0], 1, false, dr_sim_world_clock(p.w, 0)); /* said again */
	assert_int_equal(p.downs[0][0], 1);
	assert_int_equal(p.downs[0][1], 0);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &st);
	assert_false(st.path_up[0]);
	assert_true(st.path_up[1]);
	dr_manager_link(p.m[0], 1, true, dr_sim_world_clock(p.w, 0));
	assert_int_equal(p.ups[0][0], detect == DR_DETECT_CONSERVATIVE);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(p.m[0]->rail[0].state, DR_RAIL_ALIVE);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &st);
	assert_int_equal(st.path_connections[0], 2); /* built again */
	assert_int_equal(st.path_connections[1], 2); /* and so was the one that the failback left */
	pair_close(&p);
}

/* A path comes up before its rail is heard, and the link goes down again: the path is not kept. */
static void test_link_goes_down_before_the_rail_is_heard(void **state)
{
	struct dr_channel_stats st = { 0 };
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	dr_manager_link(p.m[0], 1, false, dr_sim_world_clock(p.w, 0));
	run_for(&p, 100 * DR_NS_PER_MS);
	dr_sim_mute_dgrams(p.w, 0, DR_SIM_BOTH, true);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	for (unsigned i = 0; i < 3000 && !st.path_up[0]; i++) {
		run_for(&p, DR_NS_PER_MS);
		dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &st);
	}
	assert_true(st.path_up[0]);
	assert_int_equal(p.m[0]->rail[0].state, DR_RAIL_DOWN);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	dr_manager_link(p.m[0], 1, false, dr_sim_world_clock(p.w, 0));
	run_for(&p, DR_NS_PER_MS);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &st);
	assert_false(st.path_up[0]);
	assert_true(st.path_up[1]);
	dr_sim_mute_dgrams(p.w, 0, DR_SIM_BOTH, false);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	run_for(&p, 3 * DR_NS_PER_S);
	dr_channel_stats(dr_manager_channel_at(p.m[0], 0), &st);
	assert_true(st.path_up[0]);
	pair_close(&p);
}

/* A cut of 1 s, a link event and silence: the transport says nothing, so the rail is not left. */
static void test_transport_alone_judges(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, DR_SIM_PLUGIN, DR_DETECT_TRANSPORT);
	both_paths_up(&p);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	dr_manager_link(p.m[0], 1, false, dr_sim_world_clock(p.w, 0));
	run_for(&p, DR_NS_PER_S);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	run_for(&p, DR_NS_PER_S);
	assert_int_equal(p.downs[0][0] + p.downs[0][1] + p.downs[1][0] + p.downs[1][1], 0);
	assert_int_not_equal(p.m[0]->rail[0].state, DR_RAIL_DOWN);
	both_paths_up(&p);
	pair_close(&p);
}

static void test_link_events(void **state)
{
	(void)state;
	link_events(DR_DETECT_FAST);
	link_events(DR_DETECT_CONSERVATIVE);
}

/* End 1 executes nothing; its kernel and NIC do. */
static void stop_peer_for(struct pair *p, int64_t ns)
{
	int64_t until = dr_sim_world_now(p->w) + ns;

	while (dr_sim_world_now(p->w) < until) {
		int64_t next = DR_MIN(dr_sim_world_next(p->w), dr_manager_deadline(p->m[0]));

		next = DR_MAX(DR_MIN(next, until), dr_sim_world_now(p->w));
		dr_sim_world_step(p->w, next);
		do
			dr_manager_tick(p->m[0], dr_sim_world_clock(p->w, 0));
		while (dr_sim_world_busy(p->w, 0));
	}
}

/* The peer's kernel takes a few control frames only, then its window is shut. Its process is waited for
 * as long as the kernel answers probes, over one rail too; then both rails are cut, and what they carried may break. */
static void stopped_peer(enum dr_sim_personality kind, bool one_rail, bool cut, bool broken)
{
	struct dr_sim_opts o = world_of(kind);
	struct pair p;

	o.segment_bytes = 256;
	o.rcvbuf_bytes = 512;
	o.ctrl_depth = 4;
	pair_open_with(&p, &o, DR_DETECT_FAST);
	both_paths_up(&p);
	if (one_rail) {
		dr_sim_cut(p.w, 1, DR_SIM_BOTH, true);
		run_for(&p, 10 * BEAT_NS);
	}
	stop_peer_for(&p, 15 * DR_NS_PER_S);
	assert_int_equal(p.losses[0], 0);
	assert_true(p.stalls[0] >= 14); /* once per second */
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, cut);
	dr_sim_cut(p.w, 1, DR_SIM_BOTH, cut || one_rail);
	for (unsigned r = 0; r < RAILS && broken; r++)
		dr_sim_link_down(p.w, r, DR_SIM_NODE0, 0, true);
	if (cut) {
		stop_peer_for(&p, 1350 * DR_NS_PER_MS);
		assert_true(dr_manager_ready(p.m[0]) >= 0);
		stop_peer_for(&p, 1650 * DR_NS_PER_MS);
		assert_int_equal(dr_manager_ready(p.m[0]), -ENETDOWN);
	} else {
		run_for(&p, DR_NS_PER_S);
		assert_int_equal(dr_manager_ready(p.m[0]), 1);
		assert_int_equal(dr_manager_ready(p.m[1]), 1);
	}
	pair_close(&p);
}

static void test_a_stopped_peer_is_waited_for(void **state)
{
	(void)state;
	for (enum dr_sim_personality kind = DR_SIM_STREAM; kind <= DR_SIM_PLUGIN; kind++)
		for (unsigned i = 0; i < 6; i++)
			stopped_peer(kind, i & 1, i & 6, i & 4);
}

/* The process goes on when both rails are cut: nobody is told that its window opens. */
static void test_a_stopped_peer_that_goes_on_behind_a_cut_is_lost(void **state)
{
	(void)state;
	for (enum dr_sim_personality kind = DR_SIM_STREAM; kind <= DR_SIM_PLUGIN; kind++) {
		struct dr_sim_opts o = world_of(kind);
		struct pair p;

		o.segment_bytes = 256;
		o.rcvbuf_bytes = 512;
		o.ctrl_depth = 4;
		pair_open_with(&p, &o, DR_DETECT_FAST);
		both_paths_up(&p);
		stop_peer_for(&p, 5 * DR_NS_PER_S);
		cut_all(&p, true);
		stop_peer_for(&p, DR_NS_PER_S);
		run_for(&p, DR_NS_PER_S);
		assert_int_equal(p.losses[0], 1);
		assert_int_equal(dr_manager_ready(p.m[0]), -ENETDOWN);
		pair_close(&p);
	}
}

/* The kind tells nothing of the peer's kernel: a stopped process and two cut rails look the same. */
static void test_silence_of_an_unknown_cause_is_waited_for(void **state)
{
	(void)state;
	for (unsigned cut = 0; cut < 2; cut++) {
		struct dr_sim_opts o = world_of(DR_SIM_PLUGIN);
		struct pair p;

		o.mute = true;
		o.retry_count = 10000;
		pair_open_with(&p, &o, DR_DETECT_FAST);
		both_paths_up(&p);
		cut_all(&p, cut);
		stop_peer_for(&p, 55 * DR_NS_PER_S);
		assert_int_equal(p.losses[0], 0);
		assert_true(p.stalls[0] >= 50); /* once per second */
		assert_int_equal(dr_manager_ready(p.m[0]), 1);
		if (cut) {
			stop_peer_for(&p, 10 * DR_NS_PER_S);
			assert_int_equal(p.losses[0], 1);
			assert_int_equal(dr_manager_ready(p.m[0]), -ENETDOWN);
		} else {
			run_for(&p, DR_NS_PER_S);
			assert_int_equal(dr_manager_ready(p.m[0]), 1);
			assert_int_equal(dr_manager_ready(p.m[1]), 1);
		}
		pair_close(&p);
	}
}

/* Nothing is stopped, both rails die: found as fast as ever. */
static void test_both_rails_lost(void **state)
{
	(void)state;
	for (enum dr_sim_personality kind = DR_SIM_STREAM; kind <= DR_SIM_PLUGIN; kind++) {
		struct pair p;

		pair_up(&p, kind);
		dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
		dr_sim_cut(p.w, 1, DR_SIM_BOTH, true);
		run_for(&p, 1450 * DR_NS_PER_MS);
		assert_int_equal(p.losses[0] + p.losses[1], 0);
		run_for(&p, 200 * DR_NS_PER_MS);
		assert_int_equal(p.losses[0], 1);
		assert_int_equal(p.losses[1], 1);
		pair_close(&p);
	}
}

/* Both links fail and return while both processes stand: the time in which nobody could dial does not count. */
static void test_an_own_stall_is_no_time_without_paths(void **state)
{
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_link_down(p.w, i, DR_SIM_BOTH, 0, true);
	run_for(&p, 100 * DR_NS_PER_MS);
	for (unsigned i = 0; i < DR_PATHS; i++)
		assert_false(dr_channel_path_up(dr_manager_channel_at(p.m[0], 0), i));
	dr_sim_world_step(p.w, dr_sim_world_now(p.w) + 5 * DR_NS_PER_S);
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_link_up(p.w, i);
	run_for(&p, DR_NS_PER_S);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned c = 0; c < CHANNELS; c++) {
			assert_int_equal(p.failed[end][c], 0);
			assert_int_equal(dr_manager_ready(p.m[end]), 1);
		}
	pair_close(&p);
}

/* One message over channel 0, from end 0 to end 1. */
struct message {
	uint8_t data[2][64];
	struct dr_mem mem[2];
	uint64_t seq[2];
};

static void message_post(struct pair *p, struct message *x)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_channel *ch = dr_manager_channel_at(p->m[end], 0);
		struct dr_memory m = { .base = x->data[end], .len = sizeof(x->data[end]) };
		struct dr_span s = { .mem = &x->mem[end], .len = sizeof(x->data[end]) };
		int64_t now = dr_sim_world_clock(p->w, end);
		struct dr_err e;

		assert_int_equal(dr_channel_mem_reg(ch, &m, &x->mem[end], &e), 0);
		assert_int_equal(end == 0 ? dr_channel_send(ch, &s, 1, &x->seq[end], now)
					  : dr_channel_recv(ch, &s, 1, &x->seq[end], now),
			0);
		dr_channel_flush(ch, now);
	}
}

/* The receiver closes at once when it has the message, before it has acknowledged it, and is gone as soon as
 * it may be. */
static void receiver_closes_first(enum dr_sim_personality kind)
{
	struct dr_channel *rx, *tx;
	struct message x = { 0 };
	struct pair p;

	pair_up(&p, kind);
	tx = dr_manager_channel_at(p.m[0], 0);
	rx = dr_manager_channel_at(p.m[1], 0);
	dr_channel_set_ack_batch(rx, true);
	message_post(&p, &x);
	while (dr_channel_test(rx, x.seq[1]) == 0)
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	assert_int_equal(dr_channel_test(tx, x.seq[0]), 0);
	dr_manager_close(p.m[1], dr_sim_world_clock(p.w, 1));
	for (unsigned i = 0; !dr_manager_closed(p.m[1]); i++) {
		assert_true(i < 10000);
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	}
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_cut(p.w, i, DR_SIM_BOTH, true); /* nothing else arrives */
	run_for(&p, 5 * DR_NS_PER_S);
	assert_int_equal(dr_channel_test(tx, x.seq[0]), 1);
	assert_int_equal(dr_channel_ready(tx), -ESHUTDOWN);
	assert_int_equal(dr_channel_ready(rx), -ESHUTDOWN);
	assert_int_equal(p.failed[0][0], 0);
	assert_int_equal(p.failed[1][0], 0);
	assert_true(dr_channel_closed(tx));
	/* Paths of an ended channel take no part in verdicts about rails. */
	for (unsigned i = 0; i < DR_PATHS; i++)
		assert_false(dr_channel_path_up(rx, i) || dr_channel_path_up(tx, i));
	pair_close(&p);
}

static void test_close_delivers_the_held_acknowledgement(void **state)
{
	(void)state;
	receiver_closes_first(DR_SIM_STREAM);
	receiver_closes_first(DR_SIM_REMOTE_WRITE);
	receiver_closes_first(DR_SIM_PLUGIN);
}

/* An end that was told stays so that it can confirm again, for as long as the peer has paths to ask on. */
static void test_an_end_that_was_told_leaves_when_the_peer_has_left(void **state)
{
	struct pair p;
	int64_t told;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	dr_manager_close(p.m[1], dr_sim_world_clock(p.w, 1));
	while (!dr_manager_closed(p.m[1]))
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	told = dr_sim_world_now(p.w);
	assert_int_equal(dr_channel_ready(dr_manager_channel_at(p.m[0], 0)), -ESHUTDOWN);
	assert_false(dr_manager_closed(p.m[0]));
	while (!dr_manager_closed(p.m[0])) {
		assert_true(dr_sim_world_now(p.w) - told < 100 * DR_NS_PER_MS);
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	}
	pair_close(&p);
}

/* Memory is deregistered while both rails are cut, so that the one ABORT and the resets of its paths are
 * lost. The peer learns the reason when the rails are back. */
static void lost_abort(enum dr_sim_personality kind, int64_t cut_ns)
{
	struct message x = { 0 };
	struct pair p;

	pair_up(&p, kind);
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_cut(p.w, i, DR_SIM_BOTH, true);
	message_post(&p, &x);
	assert_int_equal(dr_channel_mem_dereg(dr_manager_channel_at(p.m[1], 0), &x.mem[1],
				 dr_sim_world_clock(p.w, 1), NULL),
		0);
	assert_int_equal(p.failed[1][0], -ECANCELED);
	run_for(&p, cut_ns);
	assert_int_equal(p.failed[0][0], 0);
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_cut(p.w, i, DR_SIM_BOTH, false);
	run_for(&p, 150 * DR_NS_PER_MS);
	assert_int_equal(p.failed[0][0], -ECANCELED);
	assert_true(dr_channel_closed(dr_manager_channel_at(p.m[1], 0)));
	pair_close(&p);
}

static void test_lost_abort_is_repeated(void **state)
{
	(void)state;
	lost_abort(DR_SIM_STREAM, 20 * DR_NS_PER_MS);
	lost_abort(DR_SIM_STREAM, 300 * DR_NS_PER_MS);
	lost_abort(DR_SIM_REMOTE_WRITE, 20 * DR_NS_PER_MS);
}

/* The end that has given up telling refuses the peer's dial with its error. */
static void test_dial_to_a_dead_channel_is_refused(void **state)
{
	struct message x = { 0 };
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	message_post(&p, &x);
	dr_sim_world_step(p.w, dr_sim_world_now(p.w) + DR_NS_PER_US);
	assert_int_equal(dr_channel_mem_dereg(dr_manager_channel_at(p.m[1], 0), &x.mem[1],
				 dr_sim_world_clock(p.w, 1), NULL),
		0);
	for (int64_t t = 0; t < 2 * DR_NS_PER_S; t += BEAT_NS) { /* end 0 stands still */
		dr_sim_world_step(p.w, dr_sim_world_now(p.w) + BEAT_NS);
		dr_manager_tick(p.m[1], dr_sim_world_clock(p.w, 1));
	}
	assert_true(dr_channel_closed(dr_manager_channel_at(p.m[1], 0)));
	run_for(&p, 100 * DR_NS_PER_MS);
	assert_int_equal(p.failed[0][0], -ECANCELED);
	pair_close(&p);
}

/* The peer ends and leaves while this end stands still, and the resets of its connections are lost. Nothing is on the wire
 * that the peer's kernel would refuse. */
static void peer_ends_meanwhile(struct pair *p, int64_t stands_ns)
{
	pair_open(p, DR_SIM_STREAM, DR_DETECT_FAST);
	both_paths_up(p);
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_cut(p->w, i, DR_SIM_BOTH, true);
	dr_channel_fail(
		dr_manager_channel_at(p->m[1], 0), -EIO, "planned", dr_sim_world_clock(p->w, 1));
	for (int64_t t = 0; t < stands_ns; t += BEAT_NS) {
		dr_sim_world_step(p->w, dr_sim_world_now(p->w) + BEAT_NS);
		dr_manager_tick(p->m[1], dr_sim_world_clock(p->w, 1));
	}
	assert_true(dr_channel_closed(dr_manager_channel_at(p->m[1], 0)));
	for (unsigned i = 0; i < RAILS; i++)
		dr_sim_cut(p->w, i, DR_SIM_BOTH, false);
}

static void test_an_end_that_stood_still_asks_whether_its_paths_live(void **state)
{
	struct pair p;

	(void)state;
	peer_ends_meanwhile(&p, 1700 * DR_NS_PER_MS);
	run_for(&p, 100 * DR_NS_PER_MS); /* no path is idle for 2 s */
	assert_int_equal(p.failed[0][0], -EIO);
	pair_close(&p);
}

/* It does not know that it stood: the clock of a machine that is suspended stands, too. The peer's heartbeats go on. */
static void test_an_end_whose_clock_stood_learns_that_its_paths_are_gone(void **state)
{
	struct pair p;

	(void)state;
	peer_ends_meanwhile(&p, 5 * DR_NS_PER_S);
	dr_sim_clock_stand(p.w, 0, 5 * DR_NS_PER_S);
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(p.failed[0][0], -EIO);
	assert_int_equal(p.losses[0], 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beats_go_where_the_peer_listens),
		cmocka_unit_test(test_missed_beats_go_onto_every_path),
		cmocka_unit_test(test_a_rail_without_paths_is_not_silent),
		cmocka_unit_test(test_lost_resets_of_both_paths),
		cmocka_unit_test(test_unread_data_clears_a_rail),
		cmocka_unit_test(test_link_goes_down_before_the_rail_is_heard),
		cmocka_unit_test(test_transport_alone_judges),
		cmocka_unit_test(test_link_events),
		cmocka_unit_test(test_a_stopped_peer_is_waited_for),
		cmocka_unit_test(test_silence_of_an_unknown_cause_is_waited_for),
		cmocka_unit_test(test_a_stopped_peer_that_goes_on_behind_a_cut_is_lost),
		cmocka_unit_test(test_both_rails_lost),
		cmocka_unit_test(test_an_own_stall_is_no_time_without_paths),
		cmocka_unit_test(test_close_delivers_the_held_acknowledgement),
		cmocka_unit_test(test_an_end_that_was_told_leaves_when_the_peer_has_left),
		cmocka_unit_test(test_lost_abort_is_repeated),
		cmocka_unit_test(test_dial_to_a_dead_channel_is_refused),
		cmocka_unit_test(test_an_end_that_stood_still_asks_whether_its_paths_live),
		cmocka_unit_test(test_an_end_whose_clock_stood_learns_that_its_paths_are_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
