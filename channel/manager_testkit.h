/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_MANAGER_TESTKIT_H
#define DR_CHANNEL_MANAGER_TESTKIT_H

#include "channel/manager_priv.h"
#include "tests/sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Tests of the ChannelManager: a simulated world with two managers, two rails and two channels over them, the
 * second the other way round. */
enum { RAILS = 2, CHANNELS = 2, FAILED = 8 };
static const int64_t BEAT_NS = 10 * DR_NS_PER_MS;

struct pair {
	struct dr_sim_world *w;
	struct dr_manager *m[2];
	unsigned downs[2][RAILS], ups[2][RAILS]; /* verdicts reported */
	unsigned stalls[2], losses[2]; /* silence reported: the peer is stopped, or gone */
	char cause[2][96];	       /* of the last switch reported */
	int failed[2][FAILED];	       /* errors reported, by number modulo FAILED */
	struct told {
		struct pair *p;
		unsigned end;
	} told[2];
};

static inline void on_rail(
	void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now_ns)
{
	struct told *t = arg;

	(void)why, (void)now_ns;
	if (st == DR_RAIL_DOWN)
		t->p->downs[t->end][rail]++;
	else if (st == DR_RAIL_ALIVE)
		t->p->ups[t->end][rail]++;
}

static inline void on_silence(void *arg, bool stalled, int64_t silent_ns, int64_t now_ns)
{
	struct told *t = arg;

	(void)now_ns;
	t->p->stalls[t->end] += stalled;
	t->p->losses[t->end] += !stalled && silent_ns > 0;
}

static inline void on_failed(
	void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns)
{
	struct told *t = arg;

	(void)text, (void)now_ns;
	assert_int_equal(t->p->failed[t->end][dr_channel_id(ch) % FAILED], 0);
	t->p->failed[t->end][dr_channel_id(ch) % FAILED] = err;
}

static inline void on_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	struct told *t = arg;

	(void)ch;
	memcpy(t->p->cause[t->end], rec->cause, sizeof(rec->cause));
}

static const struct dr_manager_ops ops = { .rail = on_rail,
	.silence = on_silence,
	.channel = { .failed = on_failed, .switched = on_switched } };

/* Channel c: its primary is rail c, end 0 sends. */
static inline struct dr_channel *open_end(struct pair *p, uint32_t id, unsigned end)
{
	struct dr_manager_channel spec = { id % RAILS, !(id % RAILS), end == 0 };
	struct dr_channel *ch;
	struct dr_err e = { 0 };

	if (dr_manager_open_channel(p->m[end], id, &spec, &ch, &e))
		fail_msg("open: %s", e.text);
	return ch;
}

/* With the handle of the other end. */
static inline void start_end(struct pair *p, uint32_t id, unsigned end)
{
	struct dr_handle h;
	struct dr_err e = { 0 };

	assert_int_equal(dr_channel_handle(dr_manager_channel_at(p->m[!end], id), &h), 0);
	if (dr_channel_start(
		    dr_manager_channel_at(p->m[end], id), &h, dr_sim_world_clock(p->w, end), &e))
		fail_msg("start: %s", e.text);
}

static inline void open_channel(struct pair *p, uint32_t id)
{
	for (unsigned end = 0; end < 2; end++)
		open_end(p, id, end);
	for (unsigned end = 0; end < 2; end++)
		start_end(p, id, end);
}

/* The managers alone. */
static inline void introduce_rails(struct pair *p)
{
	struct dr_handle h[RAILS];

	for (unsigned end = 0; end < 2; end++) {
		struct dr_err e = { 0 };

		assert_int_equal(dr_manager_handle_count(p->m[!end]), RAILS);
		for (unsigned i = 0; i < RAILS; i++)
			assert_int_equal(dr_manager_handle(p->m[!end], i, &h[i]), 0);
		assert_int_equal(
			dr_manager_start(p->m[end], h, RAILS, dr_sim_world_clock(p->w, end), &e),
			0);
	}
}

static inline void introduce(struct pair *p)
{
	introduce_rails(p);
	for (unsigned c = 0; c < CHANNELS; c++)
		open_channel(p, c);
}

/* Managers that were not started. */
static inline void pair_make(struct pair *p, const struct dr_sim_opts *o, enum dr_detect detect)
{
	enum dr_sim_personality kind = o->personality;

	memset(p, 0, sizeof(*p));
	assert_int_equal(dr_sim_world_create(1, o, &p->w), 0);
	for (unsigned end = 0; end < 2; end++) {
		struct dr_sim_rail_params rp = { .world = p->w, .node = end };
		struct dr_manager_params mp = { .transport = dr_sim_ops(kind),
			.n_rails = RAILS,
			.connector = end == 0,
			.window = 4,
			.heartbeat_ns = BEAT_NS,
			.detect = detect,
			.failback = true,
			.hold_down_ns = DR_NS_PER_S,
			.ops = &ops,
			.kind_params = &rp };
		struct dr_err e = { 0 };

		p->told[end] = (struct told){ p, end };
		mp.arg = &p->told[end];
		for (unsigned r = 0; r < RAILS; r++)
			mp.rail[r].ifindex = (int)r + 1;
		if (dr_manager_create(&mp, &p->m[end], &e))
			fail_msg("create: %s", e.text);
	}
}

static inline void pair_open_with(
	struct pair *p, const struct dr_sim_opts *o, enum dr_detect detect)
{
	pair_make(p, o, detect);
	introduce(p);
}

static inline struct dr_sim_opts world_of(enum dr_sim_personality kind)
{
	struct dr_sim_opts o;

	dr_sim_opts_init(&o);
	o.personality = kind;
	o.retry_count = 1000; /* a NIC that gives up is not what is looked at */
	return o;
}

static inline void pair_open(struct pair *p, enum dr_sim_personality kind, enum dr_detect detect)
{
	struct dr_sim_opts o = world_of(kind);

	pair_open_with(p, &o, detect);
}

static inline void pair_close(struct pair *p)
{
	for (unsigned end = 0; end < 2; end++)
		dr_manager_close(p->m[end], dr_sim_world_clock(p->w, end));
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(dr_manager_destroy(p->m[end]), 0);
	if (dr_sim_world_violations(p->w) != 0)
		fail_msg("%s", dr_sim_world_violation(p->w));
	dr_sim_world_destroy(p->w);
}

static inline void turn(struct pair *p, int64_t until)
{
	int64_t next = DR_MIN(dr_sim_world_next(p->w), until), now = dr_sim_world_now(p->w);

	for (unsigned end = 0; end < 2; end++) {
		int64_t d = dr_manager_deadline(p->m[end]) - dr_sim_world_clock(p->w, end);

		next = DR_MIN(next, now + DR_MIN(d, DR_NS_PER_S));
	}
	dr_sim_world_step(p->w, DR_MAX(next, now));
	do
		for (unsigned end = 0; end < 2; end++)
			dr_manager_tick(p->m[end], dr_sim_world_clock(p->w, end));
	while (dr_sim_world_busy(p->w, 0) || dr_sim_world_busy(p->w, 1));
}

static inline void run_for(struct pair *p, int64_t ns)
{
	int64_t until = dr_sim_world_now(p->w) + ns;

	while (dr_sim_world_now(p->w) < until)
		turn(p, until);
}

static inline void both_paths_up(struct pair *p)
{
	struct dr_channel_stats st;

	run_for(p, 100 * DR_NS_PER_MS);
	for (unsigned end = 0; end < 2; end++)
		for (unsigned c = 0; c < CHANNELS; c++) {
			dr_channel_stats(dr_manager_channel_at(p->m[end], c), &st);
			assert_true(st.path_up[0] && st.path_up[1]);
			assert_int_equal(st.path_connections[0], 1);
			assert_int_equal(st.path_connections[1], 1);
		}
}

static inline void pair_up(struct pair *p, enum dr_sim_personality kind)
{
	pair_open(p, kind, DR_DETECT_FAST);
	both_paths_up(p);
}

static inline void cut_all(struct pair *p, bool on)
{
	for (unsigned r = 0; r < RAILS; r++)
		dr_sim_cut(p->w, r, DR_SIM_BOTH, on);
}

#endif
