/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_TESTKIT_H
#define DR_CHANNEL_TESTKIT_H

/* One end's failover core, played by hand: the test is its paths and its peer. */
#include "channel/failover.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const int64_t MS = DR_NS_PER_MS;
static struct dr_fo f;

static inline void start(bool sender)
{
	struct dr_fo_params p = { .sender = sender,
		.connector = true,
		.shadow = true,
		.failback = true,
		.window = 4,
		.hold_down_ns = 100 * MS,
		.lost_after_ns = 1500 * MS,
		.stuck_after_ns = 2000 * MS };

	dr_fo_init(&f, &p);
	dr_fo_start(&f, 1);
}

static inline const struct dr_fo_act *find(enum dr_fo_act_kind kind, unsigned path)
{
	for (unsigned i = 0; i < f.n_act; i++)
		if (f.act[i].kind == kind && f.act[i].path == path)
			return &f.act[i];
	return NULL;
}

/* The same, and it has to be there. */
static inline const struct dr_fo_act *find_one(enum dr_fo_act_kind kind, unsigned path)
{
	const struct dr_fo_act *a = find(kind, path);

	assert_non_null(a);
	return a;
}

static inline const struct dr_frame *sent(enum dr_frame_type type, unsigned path)
{
	for (unsigned i = 0; i < f.n_act; i++)
		if (f.act[i].kind == DR_FOA_CTRL && f.act[i].path == path &&
			f.act[i].frame.type == type)
			return &f.act[i].frame;
	return NULL;
}

static inline void done(void)
{
	dr_fo_validate(&f);
	f.n_act = 0;
}

static inline void frame(enum dr_frame_type type, uint32_t epoch, unsigned path, uint32_t gen,
	uint64_t seq, unsigned mask, int64_t now)
{
	struct dr_frame fr = {
		.type = type, .epoch = epoch, .path = path, .gen = gen, .seq = seq, .mask = mask
	};

	dr_fo_frame(&f, path, &fr, now);
}

/* The connection fails and is fenced at once. */
static inline void drop_path(unsigned p, uint32_t gen, int64_t now)
{
	dr_fo_path_failed(&f, dr_fo_conn(p, gen), DR_SCOPE_PATH, -ECONNRESET, "test", now);
	dr_fo_fenced(&f, p, gen, now);
}

/* The owner is told of the end only if it did not ask for it. */
static inline void ended(int err, bool told)
{
	assert_int_equal(f.err, err);
	assert_int_equal(find(DR_FOA_DEAD, DR_FO_NONE) != NULL, told);
}

static inline void post_all(int64_t now)
{
	unsigned part, skip;
	uint64_t seq;

	while (dr_fo_next(&f, &seq, &part, &skip))
		dr_fo_posted(&f, now);
}

/* The path has no part of the message any more. */
static inline void retired(uint64_t seq)
{
	dr_fo_sent(&f, 0, 1, 1, seq, 0);
	dr_fo_sent(&f, 0, 1, 1, seq, 1);
}

/* A sender in RUN, epoch 1, path 0, with n messages of two parts posted. */
static inline void sender_running(unsigned n)
{
	uint64_t seq;

	start(true);
	assert_non_null(find(DR_FOA_CONNECT, 0));
	assert_non_null(find(DR_FOA_CONNECT, 1));
	done();
	dr_fo_path_ready(&f, 0, 1, 2);
	dr_fo_path_ready(&f, 1, 1, 2);
	assert_int_equal(sent(DR_FRAME_SWITCH, 0)->epoch, 1);
	done();
	frame(DR_FRAME_ANSWER, 1, 0, 1, 0, 0, 3);
	assert_int_equal(f.state, DR_FO_RUN);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
	post_all(4);
	done();
}

static inline void receiver_running(unsigned n)
{
	uint64_t seq;

	start(false);
	done();
	dr_fo_path_ready(&f, 0, 1, 2);
	dr_fo_path_ready(&f, 1, 1, 2);
	done();
	frame(DR_FRAME_SWITCH, 1, 0, 1, 0, 0, 3);
	assert_non_null(sent(DR_FRAME_ANSWER, 0));
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_fo_push(&f, 2, &seq), 0);
	post_all(4);
	done();
}

/* From path 0 to path 1, of a sender with nothing delivered; then path 0 is back. */
static inline void fail_over(void)
{
	drop_path(0, 1, 10 * MS);
	frame(DR_FRAME_ANSWER, 2, 1, 1, 0, 0, 11 * MS);
}

static inline void heal(void)
{
	dr_fo_tick(&f, 31 * MS);
	dr_fo_path_ready(&f, 0, 2, 32 * MS);
	f.n_act = 0;
}

#endif
