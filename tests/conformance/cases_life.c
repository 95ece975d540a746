/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

/* Cases about coming up, breaking, fencing and going down. */

enum { BULK_MESSAGES = 16, BULK_LEN = 250001 /* so that work stops in the middle of a part */ };

static void handles(struct cf *f)
{
	uint8_t bad[DR_HANDLE_MAX + 1] = { 0 };
	uint8_t good[DR_HANDLE_MAX];
	struct dr_err e;
	int n;

	/* rail handles */
	n = f->ops->rail_handle(f->end[R].rail, good, sizeof(good));
	assert_true(n > 0 && n <= DR_HANDLE_MAX);
	assert_true(f->ops->rail_handle(f->end[R].rail, bad, 1) < 0);
	memset(bad, 0xa5, sizeof(bad));
	assert_int_equal(f->ops->rail_peer(f->end[S].rail, bad, (size_t)n, &e), -EPROTO);
	assert_true(e.text[0] != '\0');
	assert_int_equal(f->ops->rail_peer(f->end[S].rail, good, (size_t)n - 1, NULL), -EPROTO);
	assert_int_equal(f->ops->rail_peer(f->end[S].rail, bad, sizeof(bad), NULL), -EPROTO);
	assert_int_equal(f->ops->rail_peer(f->end[S].rail, good, 0, NULL), -EPROTO);
	assert_int_equal(f->ops->rail_peer(f->end[S].rail, good, (size_t)n, NULL), 0);
	/* path handles */
	cf_create(f, S, 1, S);
	cf_create(f, R, 1, S);
	n = f->ops->handle(f->end[R].path, good, sizeof(good));
	assert_true(n >= 0 && n <= DR_HANDLE_MAX);
	assert_int_equal(f->ops->connect(f->end[S].path, bad, sizeof(bad), cf_now(f), &e), -EPROTO);
	if (n > 0) {
		assert_int_equal(
			f->ops->connect(f->end[S].path, bad, (size_t)n, cf_now(f), &e), -EPROTO);
		assert_true(e.text[0] != '\0');
	}
	if (n > 1)
		assert_int_equal(
			f->ops->connect(f->end[S].path, good, (size_t)n - 1, cf_now(f), NULL),
			-EPROTO);
	/* which did not spoil the path */
	assert_int_equal(cf_connect(f, R), 0);
	assert_int_equal(cf_connect(f, S), 0);
	cf_until(f, f->end[S].count[DR_EV_READY] == 1 && f->end[R].count[DR_EV_READY] == 1);
}

static void ready_either_way(struct cf *f)
{
	unsigned connector, first, gen = 0;

	cf_memory(f, 4096);
	for (connector = 0; connector < 2; connector++)
		for (first = 0; first < 2; first++) {
			struct dr_part part;
			int i;

			gen++;
			for (i = 0; i < 2; i++)
				cf_create(f, (unsigned)i, gen, connector);
			assert_int_equal(cf_connect(f, first), 0);
			cf_run(f, DR_NS_PER_MS);
			assert_int_equal(f->end[first].count[DR_EV_READY], 0);
			assert_int_equal(cf_connect(f, !first), 0);
			cf_until(f, f->end[S].count[DR_EV_READY] && f->end[R].count[DR_EV_READY]);
			part = cf_part(f, R, 0, 100);
			cf_recv(f, gen, 0, &part, 1, 0);
			cf_until(f, f->end[S].count[DR_EV_CREDIT] == 1);
			cf_send(f, gen, 0, 0, 0, 100);
			cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
			assert_int_equal(f->end[S].count[DR_EV_READY], 1);
			assert_int_equal(f->end[R].count[DR_EV_READY], 1);
			cf_destroy(f, first);
			cf_destroy(f, !first);
		}
}

static void early_posts(struct cf *f)
{
	struct dr_part part;

	cf_memory(f, 4096);
	for (unsigned i = 0; i < 2; i++)
		cf_create(f, i, 1, S);
	part = cf_part(f, R, 0, 100);
	assert_true(dr_path_post_recv(f->end[R].path, 1, 0, &part, 1, 0) < 0);
	assert_true(dr_path_post_ctrl(f->end[R].path, "x", 1) < 0);
	assert_true(dr_path_post_ctrl(f->end[S].path, "x", 1) < 0);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_progress(f, S);
	assert_int_equal(f->end[S].n, 0);
}

static void incoming(struct cf *f)
{
	const struct dr_event *ev;

	/* a path of an older generation waits: not for this one */
	cf_create(f, R, 7, S);
	assert_int_equal(f->ops->connect(f->end[R].path, NULL, 0, cf_now(f), NULL), 0);
	cf_create(f, S, 9, S);
	assert_int_equal(f->ops->connect(f->end[S].path, NULL, 0, cf_now(f), NULL), 0);
	cf_until(f, f->end[R].rail_count[DR_EV_INCOMING] == 1);
	assert_int_equal(f->end[R].n, 0);
	assert_true(f->end[S].path->tx_last_ns == 0); /* no sign of life: no path has heard it */
	cf_destroy(f, R);
	ev = &f->end[R].rail_log[0].ev;
	assert_int_equal(ev->channel, CF_CHANNEL);
	assert_int_equal(ev->index, CF_INDEX);
	assert_int_equal(ev->gen, 9);
	/* nor does one that comes later and is of another generation get it */
	cf_create(f, R, 8, S);
	assert_int_equal(f->ops->connect(f->end[R].path, NULL, 0, cf_now(f), NULL), 0);
	cf_progress(f, R);
	cf_progress(f, R);
	assert_int_equal(f->end[R].count[DR_EV_READY], 0);
	cf_destroy(f, R);
	cf_create(f, R, 9, S);
	assert_int_equal(cf_connect(f, R), 0);
	cf_until(f, f->end[S].count[DR_EV_READY] == 1 && f->end[R].count[DR_EV_READY] == 1);
	assert_int_equal(f->end[R].rail_count[DR_EV_INCOMING], 1);
	cf_ctrl(f, S, "hello", 5);
	cf_until(f, f->end[R].count[DR_EV_CTRL] == 1);
}

/* All receives of a bulk, and their credits at the sender. */
static void bulk_posted(struct cf *f, uint32_t epoch, uint64_t first)
{
	for (uint64_t seq = 0; seq < BULK_MESSAGES; seq++) {
		struct dr_part part = cf_part(f, R, seq * BULK_LEN, BULK_LEN);

		cf_fill(f->end[S].mem + seq * BULK_LEN, first + seq, 0, BULK_LEN);
		cf_recv(f, epoch, first + seq, &part, 1, 0);
	}
	for (uint64_t seq = 0; seq < BULK_MESSAGES; seq++) {
		struct dr_credit c;

		cf_until(f, f->ops->credit(f->end[S].path, epoch, first + seq, &c) == 0);
	}
}

static void bulk_send(struct cf *f, uint32_t epoch, uint64_t first, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		cf_send(f, epoch, first + i, 0, (uint64_t)i * BULK_LEN, BULK_LEN);
}

static void bulk_in_flight(struct cf *f, uint32_t epoch, uint64_t first)
{
	bulk_posted(f, epoch, first);
	bulk_send(f, epoch, first, 0, BULK_MESSAGES);
}

/* Two messages or more of the first half are delivered. The second half is flushed, and the receiver has not been
 * called since: how much a socket or a thread of the library takes at once does not matter. */
static void bulk_ready(struct cf *f)
{
	cf_memory(f, (size_t)BULK_MESSAGES * BULK_LEN);
	cf_up(f, 1);
	bulk_posted(f, 1, 0);
	bulk_send(f, 1, 0, 0, BULK_MESSAGES / 2);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] >= 2);
	cf_pace(f, 300 * DR_NS_PER_MS);
	bulk_send(f, 1, 0, BULK_MESSAGES / 2, BULK_MESSAGES);
	cf_pace(f, 0);
	assert_true(f->end[R].count[DR_EV_DELIVERED] < BULK_MESSAGES);
}

static void wait_fenced(struct cf *f, unsigned end)
{
	cf_until(f, f->end[end].count[DR_EV_FENCED] == 1);
}

static void fence(struct cf *f, unsigned end)
{
	f->ops->fence(f->end[end].path, cf_now(f) + DR_NS_PER_S);
	wait_fenced(f, end);
}

/* Delivered bytes are right, whatever happened to the rest. */
static void check_delivered(struct cf *f, uint64_t first)
{
	for (unsigned i = 0; i < f->end[R].count[DR_EV_DELIVERED]; i++) {
		uint64_t seq = cf_nth(&f->end[R], DR_EV_DELIVERED, i)->ev.seq;

		if (seq >= first)
			cf_check(f->end[R].mem + (seq - first) * BULK_LEN, seq, 0, BULK_LEN);
	}
}

/* Each byte of R is as it was before, or what S sent: never what S's buffer held later. */
static void check_untouched_or_sent(struct cf *f)
{
	const uint8_t *mem = f->end[R].mem;

	for (size_t k = 0; k < f->end[R].mem_len; k++)
		if (mem[k] != 0xee && mem[k] != cf_byte(k / BULK_LEN, 0, k % BULK_LEN))
			fail_msg("byte %zu is %02x: S's buffer was read after FENCED", k, mem[k]);
}

/* R has its memory back, and made it 0xdd. */
static void not_written(struct cf *f, const char *since)
{
	for (size_t k = 0; k < f->end[R].mem_len; k++)
		if (f->end[R].mem[k] != 0xdd)
			fail_msg("byte %zu was written after %s", k, since);
}

static void fence_receiver(struct cf *f)
{
	struct cf_end *r = &f->end[R];
	uint64_t delivered;

	bulk_ready(f);
	fence(f, R);
	check_delivered(f, 0);
	delivered = r->count[DR_EV_DELIVERED];
	memset(r->mem, 0xdd, r->mem_len); /* ours again: nothing may come any more */
	assert_true(dr_path_post_ctrl(r->path, "x", 1) < 0);
	if (f->ops->caps & DR_CAP_RESET) /* a connection: the peer hears of it */
		cf_until(f, f->end[S].count[DR_EV_FAILED] == 1);
	cf_quiet(f);
	assert_int_equal(r->count[DR_EV_DELIVERED], delivered);
	assert_int_equal(r->count[DR_EV_FENCED], 1);
	not_written(f, "FENCED");
}

/* Receives that are posted while nothing was sent are withdrawn as well: what the sender sends later goes nowhere. */
static void fence_before_data(struct cf *f)
{
	struct dr_part part, what;
	struct dr_credit c;

	cf_memory(f, BULK_LEN);
	cf_up(f, 1);
	part = cf_part(f, R, 0, BULK_LEN);
	cf_recv(f, 1, 0, &part, 1, 0);
	cf_until(f, f->ops->credit(f->end[S].path, 1, 0, &c) == 0);
	f->ops->fence(f->end[R].path, cf_now(f) + 100 * DR_NS_PER_MS);
	wait_fenced(f, R);
	memset(f->end[R].mem, 0xdd, f->end[R].mem_len);
	what = cf_part(f, S, 0, BULK_LEN);
	/* Refused where S has heard of the fence. */
	(void)dr_path_post_send(f->end[S].path, 1, 0, 0, &what);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	not_written(f, "FENCED");
}

static void fence_sender(struct cf *f)
{
	struct cf_end *s = &f->end[S];
	unsigned sent;

	bulk_ready(f);
	fence(f, S);
	sent = s->count[DR_EV_SENT];
	memset(s->mem, 0xdd, s->mem_len); /* ours again: what arrives still is what was sent */
	if (f->ops->caps & DR_CAP_RESET)
		cf_until(f, f->end[R].count[DR_EV_FAILED] == 1);
	cf_quiet(f);
	check_delivered(f, 0);
	assert_int_equal(s->count[DR_EV_SENT], sent);
	assert_int_equal(s->count[DR_EV_FENCED], 1);
	fence(f, R);
	check_delivered(f, 0);
	check_untouched_or_sent(f);
}

static void fence_twice(struct cf *f)
{
	cf_up(f, 1);
	for (unsigned end = 0; end < 2; end++) {
		f->ops->fence(f->end[end].path, cf_now(f) + DR_NS_PER_S);
		fence(f, end);
		f->ops->fence(f->end[end].path, cf_now(f) + DR_NS_PER_S);
	}
	cf_quiet(f);
	for (unsigned end = 0; end < 2; end++)
		assert_int_equal(f->end[end].count[DR_EV_FENCED], 1);
}

static void fence_any_state(struct cf *f)
{
	unsigned end;

	/* new, waiting for its peer, dialling: there is nothing else to tell */
	for (unsigned how = 0; how < 3; how++) {
		end = how == 2 ? S : R;
		cf_create(f, end, how + 1, S);
		if (how > 0)
			assert_int_equal(cf_connect(f, end), 0);
		fence(f, end);
		assert_int_equal(f->end[end].n, 1);
		cf_destroy(f, end);
	}
	/* failed */
	cf_up(f, 4);
	for (end = 0; end < 2; end++) {
		if (!f->end[end].path)
			continue; /* breaking the other took it away */
		cf_break(f, end);
		fence(f, end);
	}
}

static void failed_once(struct cf *f)
{
	struct dr_part part;

	bulk_ready(f);
	cf_break(f, S);
	part = cf_part(f, S, 0, 100);
	assert_true(dr_path_post_send(f->end[S].path, 1, 0, 0, &part) < 0);
	assert_true(dr_path_post_ctrl(f->end[S].path, "x", 1) < 0);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_quiet(f);
	assert_int_equal(f->end[S].count[DR_EV_FAILED], 1);
	assert_int_equal(f->end[S].log[f->end[S].n - 1].ev.kind, DR_EV_FAILED);
	assert_int_equal(f->end[S].log[f->end[S].n - 1].ev.scope, DR_SCOPE_PATH);
	fence(f, S);
	cf_quiet(f);
	assert_int_equal(f->end[S].log[f->end[S].n - 1].ev.kind, DR_EV_FENCED);
}

/* close, twice, stop and fini in each state; cf_destroy does that. */
static void close_any_state(struct cf *f)
{
	unsigned end, gen = 1;

	cf_memory(f, (size_t)BULK_MESSAGES * BULK_LEN);
	for (end = 0; end < 2; end++) {
		cf_create(f, end, gen++, S); /* new */
		cf_destroy(f, end);
		cf_create(f, end, gen++, end); /* dialling */
		assert_int_equal(f->ops->connect(f->end[end].path, NULL, 0, cf_now(f), NULL), 0);
		cf_destroy(f, end);
		cf_create(f, end, gen++, end); /* parked at the peer */
		assert_int_equal(f->ops->connect(f->end[end].path, NULL, 0, cf_now(f), NULL), 0);
		cf_until(f, f->end[!end].rail_count[DR_EV_INCOMING] > 0);
		cf_destroy(f, end);
		cf_create(f, end, gen++, !end); /* waiting */
		assert_int_equal(f->ops->connect(f->end[end].path, NULL, 0, cf_now(f), NULL), 0);
		cf_destroy(f, end);
		cf_up(f, gen++); /* in use */
		bulk_in_flight(f, 1, 0);
		cf_destroy(f, end);
		cf_turn(f);
		cf_destroy(f, !end);
		cf_up(f, gen++); /* failed */
		cf_break(f, end);
		cf_destroy(f, end);
		cf_destroy(f, !end);
		cf_up(f, gen++); /* fencing */
		f->ops->fence(f->end[end].path, DR_NEVER);
		cf_destroy(f, end);
		cf_destroy(f, !end);
		cf_up(f, gen++); /* fenced */
		f->ops->fence(f->end[end].path, DR_NEVER);
		wait_fenced(f, end);
		cf_destroy(f, end);
		cf_destroy(f, !end);
	}
}

static void stop_in_flight(struct cf *f)
{
	bulk_ready(f);
	for (unsigned end = 0; end < 2; end++) {
		cf_destroy(f, end);
		memset(f->end[end].mem, 0xdd, f->end[end].mem_len);
	}
	cf_quiet(f);
	not_written(f, "stop");
}

static void rebuild(struct cf *f)
{
	bulk_ready(f);
	for (uint32_t gen = 2; gen < 5; gen++) {
		cf_break(f, gen % 2);
		cf_destroy(f, S);
		cf_destroy(f, R);
		cf_up(f, gen);
		bulk_in_flight(f, gen, 100 * gen);
		cf_until(f, f->end[R].count[DR_EV_DELIVERED] == BULK_MESSAGES);
		check_delivered(f, 100 * gen);
	}
}

static void hook_echo(struct cf_end *e, const struct dr_event *ev)
{
	if (ev->kind != DR_EV_CTRL)
		return;
	assert_int_equal(dr_path_post_ctrl(e->path, ev->data, ev->len), 0);
	dr_path_flush(e->path, cf_now(e->f));
}

static void hook_fence(struct cf_end *e, const struct dr_event *ev)
{
	if (ev->kind == DR_EV_CTRL)
		e->f->ops->fence(e->path, cf_now(e->f) + DR_NS_PER_S);
}

static void hook_close(struct cf_end *e, const struct dr_event *ev)
{
	if (ev->kind != DR_EV_CTRL)
		return;
	e->f->ops->close(e->path);
	e->closed = true;
}

/* The sink posts, fences and closes the path that is reporting. */
static void sink_calls_ops(struct cf *f)
{
	cf_up(f, 1);
	f->end[R].hook = hook_echo;
	for (unsigned i = 0; i < 5; i++)
		cf_ctrl(f, S, "ping", 4);
	cf_until(f, f->end[S].count[DR_EV_CTRL] == 5);
	f->end[R].hook = hook_fence;
	for (unsigned i = 0; i < 5; i++)
		cf_ctrl(f, S, "fence", 5);
	wait_fenced(f, R);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_FENCED], 1);
	cf_destroy(f, S);
	cf_destroy(f, R);
	cf_up(f, 2);
	f->end[R].hook = hook_close;
	for (unsigned i = 0; i < 5; i++)
		cf_ctrl(f, S, "close", 5);
	cf_until(f, f->end[R].closed);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_CTRL], 1);
}

static void table_complete(struct cf *f)
{
	const struct dr_transport_ops *o = f->ops;

	assert_int_equal(o->size, sizeof(*o));
	assert_true(o->name && o->name[0]);
	assert_true(o->listen && o->rail_handle && o->rail_peer && o->rail_dgram &&
		    o->rail_progress && o->rail_close && o->rail_fini && o->mr_reg && o->mr_dereg &&
		    o->create && o->handle && o->connect && o->post_recv && o->post_send &&
		    o->post_ctrl && o->flush && o->credit && o->progress && o->fence && o->stats &&
		    o->close && o->stop && o->fini);
}

const struct cf_case cf_cases_life[] = { CF_CASE(table_complete), CF_CASE(handles),
	CF_CASE(ready_either_way), CF_CASE(early_posts), CF_CASE(incoming), CF_CASE(fence_receiver),
	CF_CASE(fence_before_data), CF_CASE(fence_sender), CF_CASE(fence_twice),
	CF_CASE(fence_any_state), CF_CASE(failed_once), CF_CASE(close_any_state),
	CF_CASE(stop_in_flight), CF_CASE(rebuild), CF_CASE(sink_calls_ops) };
const size_t cf_n_cases_life = DR_ARRAY_LEN(cf_cases_life);
