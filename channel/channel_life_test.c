/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/channel_testkit.h"

/* Connections that come and go under a channel: what is counted, freed, probed, and handed on. */

static void give(struct kit *k, unsigned path, enum dr_event_kind kind_of)
{
	push(made[path], (struct dr_event){ .kind = kind_of, .err = -ECONNRESET, .text = "test" });
	dr_channel_progress(k->ch, k->now);
}

static void receive(struct kit *k, unsigned path, const struct dr_frame *fr)
{
	dr_frame_encode(fr, made[path]->frame);
	push(made[path],
		(struct dr_event){
			.kind = DR_EV_CTRL, .data = made[path]->frame, .len = DR_FRAME_LEN });
	dr_channel_progress(k->ch, k->now);
}

/* Path 0 fails; the receiver has `cut` messages and answers on path 1. */
static void switch_over(struct kit *k, uint64_t cut)
{
	struct dr_frame fr = {
		.type = DR_FRAME_ANSWER, .epoch = 2, .path = 1, .gen = 1, .seq = cut
	};

	give(k, 0, DR_EV_FAILED);
	give(k, 0, DR_EV_FENCED);
	receive(k, 1, &fr);
	assert_int_equal(dr_channel_ready(k->ch), 1);
}

static void send_messages(struct kit *k, unsigned n)
{
	struct dr_span span = { .mem = &k->mem, .len = 8 };
	uint64_t seq;

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(dr_channel_send(k->ch, &span, 1, &seq, k->now), 0);
	dr_channel_flush(k->ch, k->now);
}

static uint64_t replayed_bytes(struct kit *k)
{
	struct dr_channel_stats s;

	dr_channel_stats(k->ch, &s);
	return s.replayed_bytes;
}

/* What was sent before counts as replayed, once per time, also if the path takes it one by one. */
static void test_replays_are_counted(void **state)
{
	struct kit k;

	(void)state;
	setup_end(&k, 4, true);
	send_messages(&k, 3);
	assert_int_equal(replayed_bytes(&k), 0);
	made[1]->sends = 1;
	switch_over(&k, 1);
	assert_int_equal(replayed_bytes(&k), 8);
	send_messages(&k, 1);
	made[1]->sends = 10;
	dr_channel_flush(k.ch, k.now);
	assert_int_equal(replayed_bytes(&k), 16); /* message 3 was not sent before */
	teardown(&k);
}

/* Totals of a path are those of all its connections. */
static void test_totals_outlive_connections(void **state)
{
	struct dr_channel_stats s;
	struct kit k;

	(void)state;
	setup_end(&k, 4, true);
	for (unsigned i = 1; i <= 3; i++) {
		made[1]->stats = (struct dr_path_stats){
			.tx_bytes = 100, .rx_bytes = 7, .syscalls = 3, .retransmits = 2
		};
		dr_channel_stats(k.ch, &s);
		assert_int_equal(s.path_bytes[1], 100 * i);
		assert_int_equal(s.syscalls, 3 * i);
		assert_int_equal(s.retransmits, 2 * i);
		assert_int_equal(s.path_connections[1], i);
		give(&k, 1, DR_EV_FAILED);
		give(&k, 1, DR_EV_FENCED);
		dr_channel_incoming(k.ch, 1, i + 1, k.now);
		dr_channel_progress(k.ch, k.now);
	}
	teardown(&k);
}

/* The peer's handle of a path is that of its first connection. */
static void test_handle_is_of_the_first_connection(void **state)
{
	struct kit k;

	(void)state;
	setup_end(&k, 4, true);
	assert_int_equal(made[1]->handle_len, 2);
	give(&k, 1, DR_EV_FAILED);
	give(&k, 1, DR_EV_FENCED);
	dr_channel_incoming(k.ch, 1, 2, k.now);
	assert_int_equal(made[1]->handle_len, 0);
	teardown(&k);
}

static void test_handle_of_another_end_is_refused(void **state)
{
	static const struct {
		struct dr_handle h;
		int rc;
	} handle[] = { { { 7, { 0, 0, 0, 3, 1, 0, 0 } }, 0 },
		{ { 7, { 0, 0, 0, 3, 0, 0, 0 } }, -EPROTO }, /* two receivers */
		{ { 7, { 0, 0, 0, 4, 1, 0, 0 } }, -EPROTO }, /* of another channel */
		{ { 8, { 0, 0, 0, 3, 1, 0, 0, 0 } }, -EPROTO },
		{ { 6, { 0, 0, 0, 3, 1, 0 } }, -EPROTO },
		{ { 7, { 0, 0, 0, 3, 1, 5, 0 } }, -EPROTO } };

	(void)state;
	for (size_t i = 0; i < DR_ARRAY_LEN(handle); i++) {
		struct dr_rail rail = { .ops = &fake_ops };
		struct dr_channel_params p = { .id = 3, .window = 4, .rail[0] = &rail };
		struct dr_channel *ch;
		struct dr_err e;

		assert_int_equal(dr_channel_create(&p, &ch, &e), 0);
		assert_int_equal(dr_channel_start(ch, &handle[i].h, 1, &e), handle[i].rc);
		assert_int_equal(dr_channel_stop(ch, NULL), 0);
		dr_channel_fini(ch);
	}
}

/* ---- memory ---- */

static int refuses(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	if (r->index == 1 && m->len == 8)
		return dr_err_set(e, -ENOMEM, "test");
	*out = m->base;
	return 0;
}

static void test_refused_registration_leaves_nothing(void **state)
{
	struct dr_transport_ops ops = fake_ops;
	struct dr_memory m = { .base = memory, .len = 8 };
	struct dr_mem mem;
	unsigned left;
	struct dr_err e;
	struct kit k;
	int rc;

	(void)state;
	ops.mr_reg = refuses;
	kind = &ops;
	setup_end(&k, 4, true);
	rc = dr_channel_mem_reg(k.ch, &m, &mem, &e);
	left = 1 - deregs;
	teardown(&k);
	kind = &fake_ops;
	assert_int_equal(rc, -ENOMEM);
	assert_int_equal(left, 0);
}

/* The message waits for the path to take it. */
static void test_memory_of_a_waiting_message_is_in_use(void **state)
{
	struct dr_mem other = { .base = memory, .len = sizeof(memory) };
	struct dr_span span = { .mem = &other, .len = 8 };
	struct dr_mem unused = other;
	uint64_t seq;
	struct kit k;

	(void)state;
	setup(&k, 4);
	arrive(&k, 0, 1);
	k.path->refuses = -EAGAIN;
	assert_int_equal(dr_channel_recv(k.ch, &span, 1, &seq, k.now), 0);
	dr_channel_flush(k.ch, k.now);
	assert_int_equal(dr_channel_mem_dereg(k.ch, &unused, k.now, NULL), 0);
	assert_int_equal(dr_channel_ready(k.ch), 1);
	assert_int_equal(dr_channel_mem_dereg(k.ch, &other, k.now, NULL), 0);
	assert_int_equal(dr_channel_ready(k.ch), -ECANCELED);
	teardown(&k);
}

static int refuse_the_second(
	struct dr_rail *r, const struct dr_path_params *p, struct dr_path **out, struct dr_err *e)
{
	return p->gen == 2 ? dr_err_set(e, -ENOMEM, "test") : fake_create(r, p, out, e);
}

/* There is nothing to fence: the next connection may come. */
static void test_connection_that_was_not_made_is_fenced(void **state)
{
	static struct dr_transport_ops ops;
	struct kit k;

	(void)state;
	ops = fake_ops;
	ops.create = refuse_the_second;
	kind = &ops;
	setup(&k, 4);
	kind = &fake_ops;
	give(&k, 1, DR_EV_FAILED);
	give(&k, 1, DR_EV_FENCED);
	for (uint32_t gen = 2; gen <= 3; gen++) {
		dr_channel_incoming(k.ch, 1, gen, k.now);
		dr_channel_progress(k.ch, k.now);
		assert_int_equal(dr_channel_path_up(k.ch, 1), gen == 3);
	}
	teardown(&k);
}

/* A dial that was begun on a dead rail is left when the rail is up, not in the next tick. */
static void test_dial_is_left_when_the_rail_is_up(void **state)
{
	struct kit k;

	(void)state;
	connector = true;
	setup(&k, 4);
	connector = false;
	dr_channel_rail_down(k.ch, 1, -ENETDOWN, "test", k.now);
	give(&k, 1, DR_EV_FENCED);
	k.now += 20 * DR_NS_PER_MS;
	dr_channel_tick(k.ch, k.now);
	assert_int_equal(made[1]->handle_len, 0); /* of a later connection */
	made[1]->n_events = 0;			  /* which is not READY */
	made[1]->fences = true;
	dr_channel_rail_up(k.ch, 1, k.now);
	assert_int_equal(made[1]->n_events, 1);
	teardown(&k);
}

/* ---- frames ---- */

/* A datagram has no number: only what may be replayed at any time counts. */
static void test_datagrams_carry_farewells_only(void **state)
{
	struct dr_channel_stats s;
	struct kit k;

	(void)state;
	setup(&k, 4);
	for (enum dr_frame_type t = DR_FRAME_ACK; t < DR_FRAME_TYPES; t++) {
		struct dr_frame fr = { .type = t, .path = 1, .gen = 1, .epoch = 2 };

		if (t == DR_FRAME_GONE || t == DR_FRAME_ABORT || t == DR_FRAME_CLOSE)
			continue;
		dr_channel_datagram(k.ch, &fr, k.now);
		dr_channel_stats(k.ch, &s);
		assert_int_equal(s.epoch, 1);
		assert_int_equal(dr_channel_ready(k.ch), 1);
	}
	teardown(&k);
}

/* A kind whose peer does not see a fence: an idle path is probed, by whoever calls only when it is due. */
static void test_idle_paths_are_probed(void **state)
{
	static struct dr_transport_ops ops;
	struct kit k;

	(void)state;
	ops = fake_ops;
	ops.caps = 0;
	kind = &ops;
	setup(&k, 4);
	for (unsigned i = 0; i < DR_PATHS; i++)
		made[i]->probes = 0;
	for (int64_t end = k.now + DR_NS_PER_S + DR_NS_PER_MS; k.now < end;) {
		assert_true(dr_channel_deadline(k.ch) <= k.now + 250 * DR_NS_PER_MS);
		k.now = dr_channel_deadline(k.ch);
		dr_channel_tick(k.ch, k.now);
	}
	for (unsigned i = 0; i < DR_PATHS; i++)
		assert_in_range(made[i]->probes, 4, 5);
	teardown(&k);
	kind = &fake_ops;
}

/* A reset may be lost: a path on which nothing was sent for 2 s is probed, and no other. */
static void test_idle_connections_are_probed_rarely(void **state)
{
	struct kit k;

	(void)state;
	kind = &fake_ops; /* also if the test before this one failed */
	setup(&k, 4);
	for (unsigned i = 0; i < DR_PATHS; i++) {
		made[i]->probes = 0;
		dr_path_sent(&made[i]->base, k.now);
	}
	for (int64_t end = k.now + 9 * DR_NS_PER_S; k.now < end;) {
		assert_true(dr_channel_deadline(k.ch) <= k.now + 2 * DR_NS_PER_S);
		k.now = DR_MIN(dr_channel_deadline(k.ch), k.now + DR_NS_PER_S);
		if (k.now < 6 * DR_NS_PER_S)
			dr_path_sent(&made[0]->base, k.now);
		dr_channel_tick(k.ch, k.now);
		for (unsigned i = 0; i < DR_PATHS; i++)
			assert_true(k.now - made[i]->base.tx_last_ns < 2 * DR_NS_PER_S);
	}
	assert_in_range(made[0]->probes, 1, 2);
	assert_in_range(made[1]->probes, 4, 5);
	teardown(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replays_are_counted),
		cmocka_unit_test(test_totals_outlive_connections),
		cmocka_unit_test(test_handle_is_of_the_first_connection),
		cmocka_unit_test(test_handle_of_another_end_is_refused),
		cmocka_unit_test(test_connection_that_was_not_made_is_fenced),
		cmocka_unit_test(test_dial_is_left_when_the_rail_is_up),
		cmocka_unit_test(test_refused_registration_leaves_nothing),
		cmocka_unit_test(test_memory_of_a_waiting_message_is_in_use),
		cmocka_unit_test(test_datagrams_carry_farewells_only),
		cmocka_unit_test(test_idle_paths_are_probed),
		cmocka_unit_test(test_idle_connections_are_probed_rarely),
	};

	return cmocka_run_group_tests_name("channel_life", tests, NULL, NULL);
}
