/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_FLOW_TESTKIT_H
#define DR_CHANNEL_FLOW_TESTKIT_H

#include "channel/manager_testkit.h"

/* A pair of ChannelManagers with data: channel 0 sends from end 0 to end 1; its primary is rail 0. */
enum { CHUNK = 8 << 10, WINDOW = 4 };
static const int64_t WARM_NS = 500 * DR_NS_PER_MS;

struct flow {
	struct pair p;
	uint8_t buf[2][WINDOW * CHUNK];
	struct dr_mem mem[2];
	uint64_t next[2]; /* oldest message that is not done */
	uint64_t posted[2];
	uint64_t most;	  /* messages that the sender may post; 0: any number */
	int64_t done_ns;  /* the receiver's last delivery */
	int64_t stall_ns; /* its longest time without one */
};

static inline void pump(struct flow *f)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_channel *ch = dr_manager_channel_at(f->p.m[end], 0);
		struct dr_span span = { &f->mem[end], 0, CHUNK, 0 };
		int64_t now = dr_sim_world_clock(f->p.w, end);
		uint64_t seq;

		while (f->next[end] < f->posted[end] && dr_channel_test(ch, f->next[end]) == 1) {
			f->next[end]++;
			if (end == 0)
				continue;
			f->stall_ns = DR_MAX(f->stall_ns, now - f->done_ns);
			f->done_ns = now;
		}
		do {
			if (end == 0 && f->most != 0 && f->posted[0] >= f->most)
				break;
			span.off = (f->posted[end] % WINDOW) * CHUNK;
		} while ((end == 0 ? dr_channel_send : dr_channel_recv)(ch, &span, 1, &seq, now) ==
				 0 &&
			 ++f->posted[end]);
		dr_channel_flush(ch, now);
	}
}

static inline void flow_for(struct flow *f, int64_t ns)
{
	int64_t until = dr_sim_world_now(f->p.w) + ns;

	while (dr_sim_world_now(f->p.w) < until) {
		turn(&f->p, until);
		pump(f);
	}
}

static inline struct dr_sim_opts small_packets(void)
{
	struct dr_sim_opts o = world_of(DR_SIM_STREAM);

	o.link.bits_per_s = 1e8;
	o.segment_bytes = 1000;
	return o;
}

/* Data flows on rail 0 for warm_ns. */
static inline void flow_open_with(
	struct flow *f, const struct dr_sim_opts *o, enum dr_detect detect, int64_t warm_ns)
{
	struct dr_err e = { 0 };

	memset(f, 0, sizeof(*f));
	pair_open_with(&f->p, o, detect);
	run_for(&f->p, 2 * DR_NS_PER_S);
	for (unsigned end = 0; end < 2; end++) {
		struct dr_memory m = { .base = f->buf[end], .len = WINDOW * CHUNK };

		if (dr_channel_mem_reg(dr_manager_channel_at(f->p.m[end], 0), &m, &f->mem[end], &e))
			fail_msg("%s", e.text);
	}
	f->done_ns = dr_sim_world_clock(f->p.w, 1);
	flow_for(f, warm_ns);
	f->stall_ns = 0;
}

static inline void flow_open(struct flow *f, const struct dr_sim_opts *o, int64_t warm_ns)
{
	flow_open_with(f, o, DR_DETECT_FAST, warm_ns);
}

static inline struct dr_channel_stats sender_stats(struct flow *f)
{
	struct dr_channel_stats st;

	dr_channel_stats(dr_manager_channel_at(f->p.m[0], 0), &st);
	return st;
}

static inline void flow_close(struct flow *f)
{
	for (unsigned end = 0; end < 2; end++) {
		struct dr_channel *ch = dr_manager_channel_at(f->p.m[end], 0);

		assert_int_equal(dr_channel_mem_dereg(
					 ch, &f->mem[end], dr_sim_world_clock(f->p.w, end), NULL),
			0);
	}
	pair_close(&f->p);
}

static inline void set_rate(struct flow *f, unsigned rail, double bits_per_s)
{
	struct dr_sim_link l;

	dr_sim_link_get(f->p.w, rail, 0, &l);
	l.bits_per_s = bits_per_s;
	dr_sim_link_set(f->p.w, rail, DR_SIM_BOTH, &l);
}

#endif
