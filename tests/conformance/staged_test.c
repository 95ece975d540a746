/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * What staging adds to the contract, over the simulated stream, real TCP and the fake NICs: nothing is
 * told before its copy is done, a fence waits for copies, each call of the copier may fail. Copies are
 * stopped and let go by the test, so no case depends on time.
 */
enum { LEN = 100000, MESSAGES = 6 };

#define STAGED(of, number, ...)                                                                    \
	{                                                                                          \
		.name = of, .staged = true, .copier = { .seed = number, .looks_max = 2 },          \
		__VA_ARGS__                                                                        \
	}
static const struct cf_kind sim = STAGED("staged(sim-stream)", 7, .personality = DR_SIM_STREAM);
static const struct cf_kind rdma =
	STAGED("staged(sim-remote-write)", 8, .personality = DR_SIM_REMOTE_WRITE);
static const struct cf_kind tcp =
	STAGED("staged(tcp)+poller", 9, .transport = "tcp", .poller = true);
/* Two messages fill the ring. */
static const struct cf_kind narrow = STAGED("staged(sim-stream), small ring", 10,
	.personality = DR_SIM_STREAM, .ring_bytes = 2 * LEN + 128);
static const struct cf_kind faulty = STAGED(
	"staged(faulty(sim-remote-write))", 11, .personality = DR_SIM_REMOTE_WRITE, .faulty = true);

static uint64_t random_seed(void)
{
	const char *s = getenv("SEED");

	return s ? strtoull(s, NULL, 10) : 11;
}

static struct cf *open_kind(const struct cf_kind *k)
{
	struct cf *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	cf_open(f, k);
	cf_memory(f, (size_t)(2 * MESSAGES) * LEN);
	cf_up(f, 1);
	return f;
}

static void shut(struct cf *f)
{
	cf_shut(f);
	free(f);
}

/* A test on each of these kinds, with a path that is up and is shut afterwards; bare: it opens what it needs. */
struct staged_test {
	void (*run)(struct cf *f);
	void (*bare)(const struct cf_kind *k);
	const struct cf_kind *on[4];
};

static void staged_test(void **state)
{
	const struct staged_test *t = *state;

	for (const struct cf_kind *const *k = t->on; *k; k++) {
		struct cf *f = t->run ? open_kind(*k) : NULL;

		print_message("%s\n", (*k)->name);
		if (!f) {
			t->bare(*k);
			continue;
		}
		t->run(f);
		shut(f);
	}
}

static void post_recv(struct cf *f, uint32_t epoch, uint64_t seq)
{
	struct dr_part part = cf_part(f, R, seq % MESSAGES * LEN, LEN);
	struct dr_credit c;

	cf_recv(f, epoch, seq, &part, 1, 0);
	cf_until(f, f->ops->credit(f->end[S].path, epoch, seq, &c) == 0);
}

static void post_send(struct cf *f, uint32_t epoch, uint64_t seq)
{
	cf_fill(f->end[S].mem + seq % MESSAGES * LEN, seq, 0, LEN);
	cf_send(f, epoch, seq, 0, seq % MESSAGES * LEN, LEN);
}

/* Message 0, whose copy out stands still. */
static void stopped_going_out(struct cf *f)
{
	post_recv(f, 1, 0);
	copier_stop(f->copier, DR_STAGE_OUT, true);
	post_send(f, 1, 0);
}

/* Turns enough for anything that is going to happen. */
static void settle(struct cf *f)
{
	for (int i = 0; i < 200; i++)
		(void)cf_turn(f);
}

/* Message 0 has arrived, and its copy in stands still. */
static void stopped_coming_in(struct cf *f)
{
	post_recv(f, 1, 0);
	copier_stop(f->copier, DR_STAGE_IN, true);
	post_send(f, 1, 0);
	cf_until(f, f->end[R].count[DR_EV_ARRIVING] == 1 && f->end[S].count[DR_EV_SENT] == 1);
	settle(f);
}

static void all_over(struct cf *f, uint32_t epoch, uint64_t first)
{
	unsigned had = f->end[R].count[DR_EV_DELIVERED];

	for (uint64_t seq = first; seq < first + MESSAGES; seq++)
		post_recv(f, epoch, seq);
	for (uint64_t seq = first; seq < first + MESSAGES; seq++)
		post_send(f, epoch, seq);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == had + MESSAGES);
	for (uint64_t seq = first; seq < first + MESSAGES; seq++)
		cf_check(f->end[R].mem + seq % MESSAGES * LEN, seq, 0, LEN);
}

/* ---- order of copies and events ---- */

static void nothing_leaves_before_its_copy(struct cf *f)
{
	stopped_going_out(f);
	settle(f);
	assert_int_equal(f->end[S].count[DR_EV_SENT], 0);
	assert_int_equal(f->end[R].count[DR_EV_ARRIVING], 0);
	cf_fill(f->end[S].mem, 99, 0, LEN); /* the copy takes what is there when it runs */
	copier_stop(f->copier, DR_STAGE_OUT, false);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	cf_check(f->end[R].mem, 99, 0, LEN);
}

static void delivered_after_the_copy(struct cf *f)
{
	stopped_coming_in(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	assert_int_equal(f->end[R].mem[0], 0xee);
	copier_stop(f->copier, DR_STAGE_IN, false);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	cf_check(f->end[R].mem, 0, 0, LEN);
}

/* Host memory needs no copy, but its DELIVERED does not overtake that of the message before. */
static void host_parts_keep_their_place(struct cf *f)
{
	struct dr_memory m = { .base = f->end[R].mem + MESSAGES * LEN, .len = LEN };
	struct dr_part part = cf_part(f, R, 0, LEN);
	struct dr_credit c;
	struct dr_mr *host;

	assert_int_equal(f->ops->mr_reg(f->end[R].rail, &m, &host, NULL), 0);
	post_recv(f, 1, 0);
	part.mr = host;
	cf_recv(f, 1, 1, &part, 1, 0);
	cf_until(f, f->ops->credit(f->end[S].path, 1, 1, &c) == 0);
	copier_stop(f->copier, DR_STAGE_IN, true);
	post_send(f, 1, 0);
	post_send(f, 1, 1);
	cf_until(f, f->end[S].count[DR_EV_SENT] == 2);
	settle(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	cf_check(m.base, 1, 0, LEN); /* it is there all the same: no copy of ours brought it */
	copier_stop(f->copier, DR_STAGE_IN, false);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 2);
	assert_int_equal(cf_nth(&f->end[R], DR_EV_DELIVERED, 0)->ev.seq, 0);
	assert_int_equal(copier_copies(f->copier, DR_STAGE_IN), 1);
	cf_destroy(f, R);
	assert_int_equal(f->ops->mr_dereg(f->end[R].rail, host), 0);
}

/* ---- two channels of one GPU ---- */

/* A second channel beside the harness's, on the same rails; driven by the poller alone. */
struct second {
	struct cf *f;
	struct second_end {
		struct dr_path *path;
		struct dr_sink sink;
		unsigned count[DR_EV_INCOMING + 1];
	} end[2];
};

static void second_event(struct dr_sink *sink, const struct dr_event *ev)
{
	dr_container_of(sink, struct second_end, sink)->count[ev->kind]++;
}

static void second_ready(void *arg, int64_t now_ns)
{
	struct second_end *e = arg;

	dr_path_progress(e->path, now_ns, &e->sink);
}

static void second_up(struct second *s, struct cf *f)
{
	uint8_t handle[DR_HANDLE_MAX];

	memset(s, 0, sizeof(*s));
	s->f = f;
	for (unsigned i = 0; i < 2; i++) {
		struct dr_path_params p = { .channel = CF_CHANNEL + 1,
			.gen = 1,
			.sender = i == S,
			.connector = i == S,
			.ready = second_ready,
			.arg = &s->end[i] };

		s->end[i].sink.event = second_event;
		assert_int_equal(f->ops->create(f->end[i].rail, &p, &s->end[i].path, NULL), 0);
	}
	for (unsigned i = 2; i-- > 0;) {
		int n = f->ops->handle(s->end[!i].path, handle, sizeof(handle));

		assert_int_equal(
			f->ops->connect(s->end[i].path, handle, (size_t)n, cf_now(f), NULL), 0);
	}
	cf_until(f, s->end[S].count[DR_EV_READY] && s->end[R].count[DR_EV_READY]);
}

static void second_down(struct second *s)
{
	for (unsigned i = 0; i < 2; i++) {
		s->f->ops->close(s->end[i].path);
		assert_int_equal(s->f->ops->stop(s->end[i].path), 0);
		s->f->ops->fini(s->end[i].path);
	}
}

static void second_credit(struct second *s, uint64_t seq)
{
	struct dr_part part = cf_part(s->f, R, MESSAGES * LEN, LEN);
	struct dr_credit c;

	assert_int_equal(dr_path_post_recv(s->end[R].path, 1, seq, &part, 1, 0), 0);
	dr_path_flush(s->end[R].path, cf_now(s->f));
	cf_until(s->f, s->f->ops->credit(s->end[S].path, 1, seq, &c) == 0);
}

static void second_send(struct second *s, uint64_t seq)
{
	struct dr_part part = cf_part(s->f, S, MESSAGES * LEN, LEN);

	assert_int_equal(dr_path_post_send(s->end[S].path, 1, seq, 0, &part), 0);
	dr_path_flush(s->end[S].path, cf_now(s->f));
}

/* The first channel's progress finds both channels' copies done; the second one's part must be told all
 * the same, though its own user flushes in between and nothing else ever happens on it. */
static void who_looks_first(struct cf *f, bool receiver)
{
	enum dr_stage_way way = receiver ? DR_STAGE_IN : DR_STAGE_OUT;
	unsigned end = receiver ? R : S;
	struct second s;

	second_up(&s, f);
	post_recv(f, 1, 0);
	second_credit(&s, 0);
	copier_stop(f->copier, way, true);
	post_send(f, 1, 0);
	second_send(&s, 0);
	settle(f);
	if (receiver)
		cf_until(f, f->end[S].count[DR_EV_SENT] == 1 && s.end[S].count[DR_EV_SENT] == 1);
	settle(f);
	copier_stop(f->copier, way, false);
	for (int i = 0; i < 10; i++)
		(void)cf_progress(f, end);
	dr_path_flush(s.end[end].path, cf_now(f));
	cf_until(f, s.end[R].count[DR_EV_DELIVERED] == 1);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
	second_down(&s);
}

static void another_channel_looks_first_at_copies_in(struct cf *f)
{
	who_looks_first(f, true);
}

static void another_channel_looks_first_at_copies_out(struct cf *f)
{
	who_looks_first(f, false);
}

/* The same when the copies belong to a path that is being fenced. */
static void another_channel_looks_first_at_a_fence(struct cf *f)
{
	struct second s;

	second_up(&s, f);
	post_recv(f, 1, 0);
	second_credit(&s, 0);
	copier_stop(f->copier, DR_STAGE_OUT, true);
	post_send(f, 1, 0);
	second_send(&s, 0);
	f->ops->fence(s.end[S].path, DR_NEVER);
	settle(f);
	assert_int_equal(s.end[S].count[DR_EV_FENCED], 0);
	copier_stop(f->copier, DR_STAGE_OUT, false);
	for (int i = 0; i < 10; i++)
		(void)cf_progress(f, S);
	dr_path_flush(s.end[S].path, cf_now(f));
	cf_until(f, s.end[S].count[DR_EV_FENCED] == 1);
	second_down(&s);
}

/* ---- fence ---- */

static void fence(struct cf *f, unsigned end)
{
	f->ops->fence(f->end[end].path, DR_NEVER); /* simulated time runs while copies stand */
}

/* Not before it is let go. */
static void fenced_with_the_copy(struct cf *f, unsigned end, enum dr_stage_way way)
{
	settle(f);
	assert_int_equal(f->end[end].count[DR_EV_FENCED], 0);
	copier_stop(f->copier, way, false);
	cf_until(f, f->end[end].count[DR_EV_FENCED] == 1);
}

static void fence_waits_for_copies_out(struct cf *f)
{
	stopped_going_out(f);
	fence(f, S);
	fenced_with_the_copy(f, S, DR_STAGE_OUT);
	assert_int_equal(copier_busy(f->copier), 0);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0); /* it was not sent after all */
}

static void fence_waits_for_copies_in(struct cf *f)
{
	stopped_coming_in(f);
	fence(f, R);
	settle(f);
	assert_int_equal(f->end[R].count[DR_EV_FENCED], 0);
	assert_int_equal(f->end[R].mem[0], 0xee);
	copier_stop(f->copier, DR_STAGE_IN, false);
	cf_until(f, f->end[R].count[DR_EV_FENCED] == 1);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 1); /* work that was done comes first */
	cf_check(f->end[R].mem, 0, 0, LEN);
}

/* After FAILED nothing is delivered, but FENCED still waits: the copy writes the user's memory. */
static void fence_of_a_failed_path_waits(struct cf *f)
{
	stopped_coming_in(f);
	cf_break(f, R);
	fence(f, R);
	fenced_with_the_copy(f, R, DR_STAGE_IN);
	assert_int_equal(copier_busy(f->copier), 0);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
}

static void a_copy_that_never_ends(struct cf *f)
{
	stopped_going_out(f);
	f->ops->fence(f->end[S].path, cf_now(f) + DR_NS_PER_MS);
	cf_until(f, f->end[S].count[DR_EV_FAILED] == 1);
	assert_int_equal(cf_nth(&f->end[S], DR_EV_FAILED, 0)->ev.scope, DR_SCOPE_RAIL);
	assert_int_equal(f->end[S].count[DR_EV_FENCED], 0);
	copier_stop(f->copier, DR_STAGE_OUT, false);
	settle(f);
	assert_int_equal(f->end[S].count[DR_EV_FENCED], 0); /* given up is given up */
	copier_lose(f->copier, 1);
}

/* ---- rings ---- */

static void a_full_ring_is_back_pressure(struct cf *f)
{
	struct dr_part part = cf_part(f, R, 2 * LEN, LEN), what;

	post_recv(f, 1, 0);
	post_recv(f, 1, 1);
	assert_int_equal(dr_path_post_recv(f->end[R].path, 1, 2, &part, 1, 0), -EAGAIN);
	part.len = 3 * LEN;
	assert_int_equal(dr_path_post_recv(f->end[R].path, 1, 2, &part, 1, 0), -EMSGSIZE);
	copier_stop(f->copier, DR_STAGE_OUT, true);
	post_send(f, 1, 0);
	post_send(f, 1, 1);
	copier_stop(f->copier, DR_STAGE_OUT, false);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 2);
	/* what was refused took nothing */
	post_recv(f, 1, 2);
	what = cf_part(f, S, 0, LEN);
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 3, 0, &what), -EAGAIN);
	post_send(f, 1, 2);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 3);
	cf_check(f->end[R].mem + 2 * LEN, 2, 0, LEN);
}

/* Both paths of a channel, one after the other, on one ring an end. */
static void a_ring_goes_from_path_to_path(const struct cf_kind *kind)
{
	struct cf *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	cf_open(f, kind);
	assert_int_equal(dr_staged_reserve(f->staged, 2, NULL), 0);
	copier_fail(f->copier, COPIER_ALLOC, 1); /* there is no other */
	cf_memory(f, (size_t)(2 * MESSAGES) * LEN);
	for (uint32_t gen = 1; gen <= 3; gen++) {
		cf_up(f, gen);
		all_over(f, gen, (uint64_t)gen * 100);
		fence(f, S);
		fence(f, R);
		cf_until(f,
			f->end[S].count[DR_EV_FENCED] == 1 && f->end[R].count[DR_EV_FENCED] == 1);
		cf_destroy(f, S);
		cf_destroy(f, R);
	}
	shut(f);
}

static void idle_paths_have_no_ring(struct cf *f)
{
	copier_fail(f->copier, COPIER_ALLOC, 1);
	cf_ctrl(f, S, "x", 1);
	cf_until(f, f->end[R].count[DR_EV_CTRL] == 1);
	settle(f);
}

/* ---- failures ---- */

static void copier_failed(struct cf *f, unsigned end)
{
	const struct dr_event *ev;

	cf_until(f, f->end[end].count[DR_EV_FAILED] == 1);
	ev = &cf_nth(&f->end[end], DR_EV_FAILED, 0)->ev;
	assert_int_equal(ev->scope, DR_SCOPE_LOCAL);
	assert_true(ev->err == -EIO || ev->err == -ENOMEM);
	fence(f, end);
	cf_until(f, f->end[end].count[DR_EV_FENCED] == 1);
}

static void no_ring_for_the_receiver(struct cf *f)
{
	struct dr_part part = cf_part(f, R, 0, LEN);

	copier_fail(f->copier, COPIER_ALLOC, 1);
	assert_int_equal(dr_path_post_recv(f->end[R].path, 1, 0, &part, 1, 0), -EAGAIN);
	copier_failed(f, R);
}

static void no_ring_for_the_sender(struct cf *f)
{
	struct dr_part what = cf_part(f, S, 0, LEN);

	post_recv(f, 1, 0);
	copier_fail(f->copier, COPIER_ALLOC, 1);
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 0, 0, &what), -EAGAIN);
	copier_failed(f, S);
}

/* The k-th call fails, for every k that a transfer makes; whichever end it hits, it is FAILED{LOCAL}
 * there, then FENCED, and nothing is left behind. Beyond the last k all goes well. */
static unsigned fail_kth(const struct cf_kind *k, enum copier_call call, unsigned nth)
{
	struct cf *f = open_kind(k);
	unsigned seq = 0, hit;

	for (; seq < MESSAGES; seq++)
		post_recv(f, 1, seq);
	copier_fail(f->copier, call, nth);
	for (seq = 0; seq < MESSAGES; seq++) {
		struct dr_part what = cf_part(f, S, seq * LEN, LEN);

		cf_fill(f->end[S].mem + seq * LEN, seq, 0, LEN);
		(void)dr_path_post_send(f->end[S].path, 1, seq, 0, &what);
		dr_path_flush(f->end[S].path, cf_now(f));
	}
	cf_until(f, f->end[S].failed || f->end[R].failed ||
			    f->end[R].count[DR_EV_DELIVERED] == MESSAGES);
	for (seq = 0; seq < f->end[R].count[DR_EV_DELIVERED]; seq++)
		cf_check(f->end[R].mem + seq * LEN, seq, 0, LEN);
	hit = f->end[S].failed || f->end[R].failed;
	for (unsigned end = 0; end < 2; end++) {
		fence(f, end);
		cf_until(f, f->end[end].count[DR_EV_FENCED] == 1);
	}
	shut(f);
	return hit;
}

static void every_call_fails_once(const struct cf_kind *kind)
{
	static const enum copier_call calls[] = { COPIER_START, COPIER_DONE };
	unsigned hits = 0, n;

	for (unsigned i = 0; i < DR_ARRAY_LEN(calls); i++)
		for (n = 1; fail_kth(kind, calls[i], n); n++)
			hits++;
	assert_true(hits >= 2 * MESSAGES);
}

/* ---- copiers that are slow or take few ---- */

static void slow_and_narrow(const struct cf_kind *kind)
{
	struct cf_kind k = *kind;
	uint64_t seed = random_seed();

	for (uint64_t i = 0; i < 8; i++) {
		struct cf *f;

		k.copier = (struct copier_opts){
			.seed = seed + i, .looks_max = (unsigned)(i * i), .outstanding = 1 + i % 3
		};
		print_message("SEED=%llu\n", (unsigned long long)(seed + i));
		f = open_kind(&k);
		for (uint64_t first = 0; first < 5 * MESSAGES; first += MESSAGES)
			all_over(f, 1, first);
		shut(f);
	}
}

static void stop_waits_for_copies(struct cf *f)
{
	stopped_going_out(f);
	cf_destroy(f, S);
	assert_int_equal(copier_copies(f->copier, DR_STAGE_OUT), 1);
}

/* The NIC may go on with the ring then, so it is not given back. */
static void a_ring_that_may_be_in_use_is_kept(const struct cf_kind *kind)
{
	for (unsigned k = 0; k < 2; k++) {
		struct cf *f = open_kind(kind);
		struct cf_end *e = &f->end[R];

		post_recv(f, 1, 0);
		post_send(f, 1, 0);
		cf_until(f, e->count[DR_EV_DELIVERED] == 1);
		if (k == 0) {
			f->faulty->o.stop_err = -EIO;
			f->ops->close(e->path);
			e->closed = true;
			assert_int_equal(f->ops->stop(e->path), -EIO);
			f->ops->fini(e->path);
			e->path = NULL;
			f->faulty->o.stop_err = 0;
		} else { /* of rings alone: the inner kind has no region of the users' memory */
			f->faulty->o.dereg_err = -EBUSY;
		}
		copier_lose(f->copier, k == 0 ? 1 : 2);
		shut(f);
	}
}

static void the_choice_is_told(struct cf *f)
{
	struct dr_staged_choice c;

	dr_staged_choice(f->staged, &c);
	assert_int_equal(c.direct, 0);
	assert_int_equal(c.staged, 2);
	assert_non_null(strstr(c.why, "supports host memory only"));
}

#define TEST(name, ...)                                                                            \
	((struct CMUnitTest){ name, staged_test, NULL, NULL, &(struct staged_test){ __VA_ARGS__ } })
#define ON(test, ...) TEST(#test, .run = test, .on = { __VA_ARGS__ })
#define BARE(test, ...) TEST(#test, .bare = test, .on = { __VA_ARGS__ })

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { ON(nothing_leaves_before_its_copy, &sim, &tcp, &rdma),
		ON(delivered_after_the_copy, &sim, &tcp, &rdma),
		BARE(a_ring_that_may_be_in_use_is_kept, &faulty),
		ON(host_parts_keep_their_place, &sim, &tcp),
		ON(another_channel_looks_first_at_copies_in, &tcp),
		ON(another_channel_looks_first_at_copies_out, &tcp),
		ON(another_channel_looks_first_at_a_fence, &tcp),
		ON(fence_waits_for_copies_out, &sim, &tcp, &rdma),
		ON(fence_waits_for_copies_in, &sim, &tcp, &rdma),
		ON(fence_of_a_failed_path_waits, &sim, &tcp),
		ON(a_copy_that_never_ends, &sim, &tcp), ON(a_full_ring_is_back_pressure, &narrow),
		BARE(a_ring_goes_from_path_to_path, &sim, &tcp), ON(idle_paths_have_no_ring, &tcp),
		ON(no_ring_for_the_receiver, &sim, &tcp), ON(no_ring_for_the_sender, &sim, &tcp),
		BARE(every_call_fails_once, &sim, &rdma), BARE(slow_and_narrow, &sim, &tcp),
		ON(stop_waits_for_copies, &sim, &tcp), ON(the_choice_is_told, &tcp) };

	dr_log_set_level(DR_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
