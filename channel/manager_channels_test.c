/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/manager_testkit.h"

#include "channel/channel_priv.h"
#include "channel/frame.h"

#include <errno.h>

/*
 * Channels that come and go in a manager that runs: while others carry data, while a rail is down, before the peer
 * knows them, in any number.
 */
enum { LEN = 4096, WINDOW = 4 };

/* A flow of messages on one channel; end 0 sends. */
struct stream {
	uint32_t id;
	uint8_t data[2][WINDOW * LEN];
	struct dr_mem mem[2];
	uint64_t posted[2], done[2];
};

static struct dr_channel *of(const struct pair *p, uint32_t id, unsigned end)
{
	return dr_manager_channel_at(p->m[end], id);
}

static void rails_only(struct pair *p, enum dr_sim_personality kind)
{
	struct dr_sim_opts o = world_of(kind);

	pair_make(p, &o, DR_DETECT_FAST);
	introduce_rails(p);
	run_for(p, 100 * DR_NS_PER_MS);
}

static void stream_open(struct pair *p, struct stream *s, uint32_t id)
{
	memset(s, 0, sizeof(*s));
	s->id = id;
	for (unsigned end = 0; end < 2; end++) {
		struct dr_memory m = { .base = s->data[end], .len = sizeof(s->data[end]) };

		assert_int_equal(dr_channel_mem_reg(of(p, id, end), &m, &s->mem[end], NULL), 0);
	}
}

static void pump(struct pair *p, struct stream *s)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_span span = { .mem = &s->mem[end], .len = LEN };
		struct dr_channel *ch = of(p, s->id, end);
		int64_t now = dr_sim_world_clock(p->w, end);
		uint64_t seq;

		while (s->done[end] < s->posted[end] && dr_channel_test(ch, s->done[end]) == 1)
			s->done[end]++;
		do {
			span.off = s->posted[end] % WINDOW * LEN;
		} while ((end == 0 ? dr_channel_send : dr_channel_recv)(ch, &span, 1, &seq, now) ==
				 0 &&
			 ++s->posted[end]);
		dr_channel_flush(ch, now);
	}
}

static void stream_for(struct pair *p, struct stream *s, int64_t ns)
{
	int64_t until = dr_sim_world_now(p->w) + ns;

	while (dr_sim_world_now(p->w) < until) {
		turn(p, until);
		pump(p, s);
	}
}

static void stream_close(struct pair *p, struct stream *s)
{
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(dr_channel_mem_dereg(of(p, s->id, end), &s->mem[end],
					 dr_sim_world_clock(p->w, end), NULL),
			0);
}

/* Both ends leave; each is removed as soon as it may be. */
static void remove_channel(struct pair *p, uint32_t id)
{
	struct dr_err e;
	unsigned left = 2;

	for (unsigned end = 0; end < 2; end++)
		dr_channel_close(of(p, id, end), dr_sim_world_clock(p->w, end));
	for (unsigned i = 0; left > 0; i++) {
		assert_true(i < 100000);
		turn(p, dr_sim_world_now(p->w) + DR_NS_PER_MS);
		for (unsigned end = 0; end < 2; end++) {
			struct dr_channel *ch = of(p, id, end);

			if (!ch || !dr_channel_closed(ch))
				continue;
			assert_int_equal(dr_manager_remove_channel(p->m[end], ch, &e), 0);
			left--;
		}
	}
}

static void check_list(struct dr_manager *m)
{
	unsigned n = 0;

	for (const struct mgr_channel *c = m->channels; c; c = c->next, n++) {
		assert_true(m->due_ns <= c->due_ns);
		assert_true(c->due_ns <= dr_channel_deadline(c->ch));
	}
	assert_int_equal(n, m->n_channels);
}

/* ---- a manager without channels ---- */

static void test_rails_are_judged_without_channels(void **state)
{
	uint64_t tx[2];
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	tx[0] = p.m[0]->hb->sent;
	run_for(&p, 100 * BEAT_NS);
	tx[1] = p.m[0]->hb->sent;
	assert_in_range(tx[1] - tx[0], 100, 2 * 101); /* one of each rail in an interval, no more */
	assert_true(p.m[0]->hb->received > 100);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	run_for(&p, 10 * BEAT_NS);
	for (unsigned end = 0; end < 2; end++) {
		assert_int_equal(p.downs[end][0], 1);
		assert_int_equal(p.downs[end][1], 0);
		assert_int_equal(p.losses[end], 0);
	}
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	run_for(&p, 20 * BEAT_NS);
	assert_int_equal(p.m[0]->rail[0].state, DR_RAIL_ALIVE);
	dr_manager_close(p.m[0], dr_sim_world_clock(p.w, 0));
	assert_true(dr_manager_closed(p.m[0]));
	pair_close(&p);
}

/* A rail without paths has no kernel that acknowledges: before it falls, the datagrams that wait unread are read. */
static void test_unread_datagrams_clear_a_rail_without_channels(void **state)
{
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	p.m[0]->prm.poller = (struct dr_poller *)&p; /* end 0 reads what it is called for, */
	for (int i = 0; i < 200; i++) {
		struct mgr_rail *mr = &p.m[0]->rail[1]; /* which is rail 1 */
		int64_t now;

		dr_sim_world_step(p.w, dr_sim_world_now(p.w) + BEAT_NS / 2);
		dr_manager_tick(p.m[1], dr_sim_world_clock(p.w, 1));
		now = dr_sim_world_clock(p.w, 0);
		p.m[0]->now = now;
		mr->rail->ops->rail_progress(mr->rail, now, &mr->sink);
		dr_manager_tick(p.m[0], now);
	}
	assert_int_equal(p.downs[0][0] + p.downs[0][1], 0);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	p.m[0]->prm.poller = NULL;
	run_for(&p, 10 * BEAT_NS);
	assert_int_equal(p.downs[0][0], 1);
	pair_close(&p);
}

/* Heartbeats use the paths: what cannot be heard without one is no silence. */
static void test_nothing_is_expected_without_a_path(void **state)
{
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_PLUGIN);
	run_for(&p, 70 * DR_NS_PER_S);
	open_channel(&p, 0);
	run_for(&p, DR_NS_PER_S);
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(p.stalls[end] + p.losses[end], 0);
	assert_int_equal(dr_channel_ready(of(&p, 0, 0)), 1);
	pair_close(&p);
}

/* The peer was lost while no channel was there; heard again, it may be lost again. */
static void test_a_peer_that_was_lost_is_found_again(void **state)
{
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	cut_all(&p, true);
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(p.losses[0], 1);
	cut_all(&p, false);
	run_for(&p, 10 * BEAT_NS);
	open_channel(&p, 0);
	run_for(&p, 3 * DR_NS_PER_S);
	assert_int_equal(dr_channel_ready(of(&p, 0, 0)), 1);
	assert_int_equal(p.losses[0], 1);
	cut_all(&p, true);
	run_for(&p, 4 * DR_NS_PER_S);
	assert_int_equal(p.losses[0], 2);
	assert_int_equal(p.failed[0][0], -ENETDOWN);
	pair_close(&p);
}

/* That nothing is heard is a fact about the peer, however young the channel is. */
static void test_a_channel_that_is_opened_in_a_silence_ends_with_the_others(void **state)
{
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	cut_all(&p, true);
	run_for(&p, 1200 * DR_NS_PER_MS);
	open_channel(&p, 0);
	assert_int_equal(p.failed[0][0], 0);
	run_for(&p, 600 * DR_NS_PER_MS);
	assert_int_equal(p.losses[0], 1);
	assert_int_equal(p.failed[0][0], -ENETDOWN);
	pair_close(&p);
}

/* ---- open and remove ---- */

static void test_numbers(void **state)
{
	struct dr_manager_channel spec = { 0, 1, true }, bad = { 0, RAILS, true };
	struct dr_channel *ch, *other;
	struct dr_err e = { 0 };
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	assert_int_equal(dr_manager_open_channel(p.m[0], 7, &bad, &ch, &e), -EINVAL);
	assert_int_equal(dr_manager_open_channel(p.m[0], UINT32_MAX, &spec, &ch, &e), 0);
	assert_int_equal(dr_channel_id(ch), UINT32_MAX);
	assert_int_equal(dr_manager_open_channel(p.m[0], UINT32_MAX, &spec, &other, &e), -EEXIST);
	assert_int_equal(dr_manager_open_channel(p.m[0], 0, &spec, &other, &e), 0);
	assert_ptr_equal(of(&p, UINT32_MAX, 0), ch);
	assert_ptr_equal(of(&p, 0, 0), other);
	assert_null(of(&p, 1, 0));
	assert_int_equal(dr_manager_remove_channel(p.m[0], ch, &e), -EBUSY);
	assert_ptr_equal(of(&p, UINT32_MAX, 0), ch);
	dr_channel_close(ch, dr_sim_world_clock(p.w, 0)); /* it was never started */
	assert_int_equal(dr_manager_remove_channel(p.m[0], ch, &e), 0);
	assert_null(of(&p, UINT32_MAX, 0));
	dr_manager_close(p.m[0], dr_sim_world_clock(p.w, 0));
	assert_int_equal(dr_manager_open_channel(p.m[0], 9, &spec, &ch, &e), -ESHUTDOWN);
	pair_close(&p);
}

/* Also while others are not ready yet. */
static void test_a_channel_that_ended_is_told_at_once(void **state)
{
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	for (uint32_t id = 0; id < 2; id++)
		open_end(&p, id, 0);
	assert_int_equal(dr_manager_ready(p.m[0]), 0);
	dr_channel_fail(of(&p, 1, 0), -EIO, "test", dr_sim_world_clock(p.w, 0));
	assert_int_equal(dr_manager_ready(p.m[0]), -EIO);
	pair_close(&p);
}

static void others_go_on(enum dr_sim_personality kind)
{
	struct dr_channel_stats st;
	struct stream s;
	uint64_t done;
	struct pair p;

	pair_up(&p, kind);
	stream_open(&p, &s, 0);
	for (uint32_t round = 0; round < 20; round++) {
		uint32_t id = 100 + 7 * round;

		open_channel(&p, id);
		done = s.done[1];
		stream_for(&p, &s, 60 * DR_NS_PER_MS);
		assert_int_equal(dr_channel_ready(of(&p, id, 0)), 1);
		assert_int_equal(dr_channel_ready(of(&p, id, 1)), 1);
		assert_true(s.done[1] > done + 10);
		remove_channel(&p, id);
		for (unsigned end = 0; end < 2; end++) {
			assert_null(of(&p, id, end));
			assert_int_equal(p.m[end]->n_channels, CHANNELS);
		}
	}
	for (unsigned end = 0; end < 2; end++) {
		check_list(p.m[end]);
		dr_channel_stats(of(&p, 0, end), &st);
		assert_int_equal(st.switches, 0);
		assert_int_equal(st.path_connections[0] + st.path_connections[1], 2);
		assert_int_equal(p.failed[end][0], 0);
		assert_int_equal(p.downs[end][0] + p.downs[end][1], 0);
	}
	stream_close(&p, &s);
	pair_close(&p);
}

static void test_others_go_on(void **state)
{
	(void)state;
	others_go_on(DR_SIM_STREAM);
	others_go_on(DR_SIM_REMOTE_WRITE);
	others_go_on(DR_SIM_PLUGIN);
}

/* It is the primary's rail of channel 0 and the shadow's of channel 1. Both are up on the other path at once, and have both
 * paths as soon as the rail is back, since they know that it was down. */
static void test_opened_while_a_rail_is_down(void **state)
{
	struct dr_channel_stats st;
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, true);
	run_for(&p, 10 * BEAT_NS);
	assert_int_equal(p.m[0]->rail[0].state, DR_RAIL_DOWN);
	for (unsigned k = 0; k < 4; k++)
		open_end(&p, k / 2, k % 2);
	run_for(&p, 2 * BEAT_NS);
	for (unsigned k = 0; k < 4; k++)
		start_end(&p, k / 2, k % 2);
	run_for(&p, 2500 * DR_NS_PER_MS); /* then a dial is repeated after a long time */
	for (unsigned k = 0; k < 4; k++) {
		dr_channel_stats(of(&p, k / 2, k % 2), &st);
		assert_int_equal(dr_channel_ready(of(&p, k / 2, k % 2)), 1);
		assert_int_equal(st.active, k / 2 == 0);
	}
	dr_sim_cut(p.w, 0, DR_SIM_BOTH, false);
	while (p.m[0]->rail[0].state == DR_RAIL_DOWN)
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	run_for(&p, 3 * BEAT_NS);
	for (unsigned k = 0; k < 4; k++) {
		dr_channel_stats(of(&p, k / 2, k % 2), &st);
		assert_true(st.path_up[0] && st.path_up[1]);
	}
	run_for(&p, 3 * DR_NS_PER_S);
	for (unsigned k = 0; k < 4; k++) {
		dr_channel_stats(of(&p, k / 2, k % 2), &st);
		assert_int_equal(st.active, 0);
		assert_int_equal(p.failed[k % 2][k / 2], 0);
	}
	pair_close(&p);
}

/* ---- what the peer does not know, or no more ---- */

/* The peer dials before the channel is there. It comes up at once if that is soon, else with the next dial. */
static void dialled_early(enum dr_sim_personality kind, int64_t early_ns)
{
	int64_t from, took;
	struct dr_handle h;
	struct pair p;

	rails_only(&p, kind);
	open_end(&p, 5, 1); /* for its handle alone */
	assert_int_equal(dr_channel_handle(of(&p, 5, 1), &h), 0);
	dr_channel_close(of(&p, 5, 1), dr_sim_world_clock(p.w, 1));
	assert_int_equal(dr_manager_remove_channel(p.m[1], of(&p, 5, 1), NULL), 0);
	open_end(&p, 5, 0);
	assert_int_equal(dr_channel_start(of(&p, 5, 0), &h, dr_sim_world_clock(p.w, 0), NULL), 0);
	run_for(&p, early_ns);
	assert_int_equal(dr_channel_ready(of(&p, 5, 0)), 0);
	open_end(&p, 5, 1);
	start_end(&p, 5, 1);
	from = dr_sim_world_now(p.w);
	while (dr_channel_ready(of(&p, 5, 0)) != 1 || dr_channel_ready(of(&p, 5, 1)) != 1) {
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
		assert_true(dr_sim_world_now(p.w) - from < 2 * DR_NS_PER_S);
	}
	took = dr_sim_world_now(p.w) - from;
	assert_true(took < (early_ns < DR_NS_PER_S ? 300 : 1700) * DR_NS_PER_MS);
	pair_close(&p);
}

static void test_a_dial_before_the_channel_exists(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 3; kind++)
		for (int64_t early_ms = 20; early_ms < 10000; early_ms *= 5)
			dialled_early((enum dr_sim_personality)kind, early_ms * DR_NS_PER_MS);
}

/* Datagrams and dials for a number that is not open change nothing. */
static void test_unknown_numbers_are_ignored(void **state)
{
	struct dr_frame fr = { .type = DR_FRAME_ABORT, .err = -EIO, .epoch = 1 };
	struct dr_event ev = { .kind = DR_EV_INCOMING, .channel = 99, .gen = 3 };
	uint8_t buf[DR_DGRAM_CTRL_LEN];
	struct dr_dgram_end self;
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	open_channel(&p, 99);
	run_for(&p, 100 * DR_NS_PER_MS);
	remove_channel(&p, 99);
	self = p.m[0]->dgram;
	dr_dgram_encode(&self, 99, &fr, buf);
	p.m[0]->prm.transport->rail_dgram(p.m[0]->rail[0].rail, buf, sizeof(buf));
	run_for(&p, 20 * DR_NS_PER_MS);
	p.m[1]->rail[0].sink.event(&p.m[1]->rail[0].sink, &ev);
	run_for(&p, 20 * DR_NS_PER_MS);
	assert_int_equal(dr_manager_ready(p.m[0]), 1);
	assert_int_equal(dr_manager_ready(p.m[1]), 1);
	assert_int_equal(p.m[1]->n_channels, CHANNELS);
	pair_close(&p);
}

/* The peer of a channel that was removed at once ends too. */
static void test_the_peer_of_a_removed_channel_ends(void **state)
{
	struct dr_channel *rx;
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	rx = of(&p, 1, 1);
	cut_all(&p, true);
	dr_channel_close(rx, dr_sim_world_clock(p.w, 1));
	while (!dr_channel_closed(rx))
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	assert_int_equal(dr_manager_remove_channel(p.m[1], rx, NULL), 0);
	cut_all(&p, false);
	run_for(&p, 4 * DR_NS_PER_S);
	assert_true(dr_channel_ready(of(&p, 1, 0)) < 0); /* it could not be told */
	assert_int_equal(dr_channel_ready(of(&p, 0, 0)), 1);
	pair_close(&p);
}

/* ---- many ---- */

enum { MANY = 1000, STARTED = 50 };

static uint32_t nth(uint32_t i)
{
	return i * 2654435761u;
}

static unsigned ticked(const struct pair *p, int64_t now)
{
	unsigned n = 0;

	for (const struct mgr_channel *c = p->m[0]->channels; c; c = c->next)
		n += c->ch->fo.tick_ns == now;
	return n;
}

/* Those that were not started cost nothing; of the others only those that are due are ticked. */
static void test_a_thousand_channels(void **state)
{
	unsigned all = 0;
	struct pair p;

	(void)state;
	rails_only(&p, DR_SIM_STREAM);
	for (uint32_t i = 0; i < MANY; i++)
		for (unsigned end = 0; end < 2; end++)
			open_end(&p, nth(i), end);
	for (unsigned end = 0; end < 2; end++) {
		check_list(p.m[end]);
		assert_true(p.m[end]->due_ns == DR_NEVER);
	}
	for (uint32_t i = 0; i < STARTED; i++) {
		for (unsigned end = 0; end < 2; end++)
			start_end(&p, nth(i), end);
		run_for(&p, DR_NS_PER_MS);
	}
	run_for(&p, 50 * DR_NS_PER_MS);
	for (uint32_t i = 0; i < STARTED; i++)
		for (unsigned end = 0; end < 2; end++)
			assert_int_equal(dr_channel_ready(of(&p, nth(i), end)), 1);
	p.m[0]->prm.poller = (struct dr_poller *)&p; /* paths drive themselves */
	for (unsigned i = 0; i < 100; i++) {
		int64_t now = p.m[0]->due_ns;

		assert_true(now > dr_sim_world_clock(p.w, 0));
		dr_sim_world_step(p.w, now);
		dr_manager_tick(p.m[0], now);
		assert_in_range(ticked(&p, now), 0, STARTED);
		all += ticked(&p, now);
		check_list(p.m[0]);
	}
	assert_true(all > 0);
	p.m[0]->prm.poller = NULL;
	for (uint32_t i = 0; i < MANY; i++)
		for (unsigned end = 0; end < 2; end++)
			dr_channel_close(of(&p, nth(i), end), dr_sim_world_clock(p.w, end));
	while (!dr_manager_closed(p.m[0]) || !dr_manager_closed(p.m[1]))
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_MS);
	for (uint32_t i = 0; i < MANY; i++) /* in another order */
		for (unsigned end = 0; end < 2; end++) {
			struct dr_channel *ch = of(&p, nth(i * 7919 % MANY), end);

			assert_int_equal(dr_manager_remove_channel(p.m[end], ch, NULL), 0);
			if (i % 100 == 0)
				check_list(p.m[end]);
		}
	assert_int_equal(p.m[0]->n_channels + p.m[1]->n_channels, 0);
	pair_close(&p);
}

/* Six receivers, of which four dial in an order in which the last one's deadline is before another one's: whichever is
 * removed, no deadline of the rest is forgotten. */
static void test_the_deadlines_of_the_rest_are_kept(void **state)
{
	static const struct dr_handle dials[] = { { 7, { [4] = 1 } }, { 7, { [3] = 2, 1 } },
		{ 7, { [3] = 5, 1 } }, { 7, { [3] = 1, 1 } } };
	static const struct dr_manager_channel spec = { 0, 1, false };
	struct dr_channel *ch[6];
	struct pair p;

	(void)state;
	for (unsigned gone = 0; gone < DR_ARRAY_LEN(ch); gone++) {
		rails_only(&p, DR_SIM_STREAM);
		for (unsigned k = 0; k < DR_ARRAY_LEN(ch); k++)
			assert_int_equal(
				dr_manager_open_channel(p.m[0], k, &spec, &ch[k], NULL), 0);
		for (unsigned i = 0; i < DR_ARRAY_LEN(dials); i++) {
			assert_int_equal(dr_channel_start(ch[dials[i].bytes[3]], &dials[i],
						 dr_sim_world_clock(p.w, 0), NULL),
				0);
			run_for(&p, 101 * DR_NS_PER_MS); /* no heartbeat is due with it */
		}
		dr_channel_close(ch[gone], dr_sim_world_clock(p.w, 0));
		run_for(&p, BEAT_NS); /* then nothing of it is due any more */
		assert_int_equal(dr_manager_remove_channel(p.m[0], ch[gone], NULL), 0);
		for (unsigned i = 0; i < 6000; i++) {
			if (i % 6 == 0)
				run_for(&p, DR_NS_PER_MS);
			assert_true(i % 6 == gone ||
				    dr_manager_deadline(p.m[0]) <= dr_channel_deadline(ch[i % 6]));
		}
		pair_close(&p);
	}
}

/* What receivers held back is acknowledged when their owner is idle, whatever other channels there are. */
static void test_an_idle_owner_acknowledges(void **state)
{
	struct stream s[2];
	struct pair p;

	(void)state;
	pair_up(&p, DR_SIM_STREAM);
	for (uint32_t id = 2; id < 40; id++)
		open_channel(&p, id);
	run_for(&p, 200 * DR_NS_PER_MS);
	for (unsigned i = 0; i < 2; i++)
		stream_open(&p, &s[i], 16 + 2 * i);
	for (unsigned i = 0; i < 2; i++)
		pump(&p, &s[i]);
	while (dr_channel_test(of(&p, 16, 1), 0) == 0 || dr_channel_test(of(&p, 18, 1), 0) == 0)
		turn(&p, dr_sim_world_now(p.w) + DR_NS_PER_US);
	for (unsigned i = 0; i < 2; i++)
		assert_true(of(&p, 16 + 2 * i, 1)->ack_since_ns != 0);
	assert_true(dr_manager_idle(p.m[1], dr_sim_world_clock(p.w, 1)));
	for (unsigned i = 0; i < 2; i++)
		assert_true(of(&p, 16 + 2 * i, 1)->ack_since_ns == 0);
	check_list(p.m[1]);
	assert_false(dr_manager_idle(p.m[1], dr_sim_world_clock(p.w, 1)));
	for (unsigned i = 0; i < 2; i++)
		stream_close(&p, &s[i]);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rails_are_judged_without_channels),
		cmocka_unit_test(test_unread_datagrams_clear_a_rail_without_channels),
		cmocka_unit_test(test_nothing_is_expected_without_a_path),
		cmocka_unit_test(test_a_peer_that_was_lost_is_found_again),
		cmocka_unit_test(test_a_channel_that_is_opened_in_a_silence_ends_with_the_others),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_a_channel_that_ended_is_told_at_once),
		cmocka_unit_test(test_others_go_on),
		cmocka_unit_test(test_opened_while_a_rail_is_down),
		cmocka_unit_test(test_a_dial_before_the_channel_exists),
		cmocka_unit_test(test_unknown_numbers_are_ignored),
		cmocka_unit_test(test_the_peer_of_a_removed_channel_ends),
		cmocka_unit_test(test_a_thousand_channels),
		cmocka_unit_test(test_the_deadlines_of_the_rest_are_kept),
		cmocka_unit_test(test_an_idle_owner_acknowledges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
