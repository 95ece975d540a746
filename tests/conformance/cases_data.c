/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/harness.h"

#include "base/rng.h"

/* Cases about what travels: credits, parts, control frames, datagrams. */

static void wait_credit(struct cf *f, uint32_t epoch, uint64_t seq, unsigned n)
{
	struct dr_credit got = { 0 };

	cf_until(f, f->ops->credit(f->end[S].path, epoch, seq, &got) == 0);
	assert_int_equal(got.n, n);
}

static void wait_delivered(struct cf *f, uint64_t seq, unsigned part)
{
	cf_until(f, cf_delivered_at(&f->end[R], seq, part) >= 0);
}

/* So many messages of one part, and their credits. */
static void post_recvs(struct cf *f, unsigned messages, uint32_t len)
{
	for (uint64_t seq = 0; seq < messages; seq++) {
		struct dr_part part = cf_part(f, R, seq * len, len);

		cf_recv(f, 1, seq, &part, 1, 0);
	}
	wait_credit(f, 1, messages - 1, 1);
}

static void credit_first(struct cf *f)
{
	struct dr_part what, parts[2];
	struct dr_credit c = { .n = 99 };

	cf_memory(f, 64 << 10);
	cf_up(f, 1);
	what = cf_part(f, S, 0, 100);
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 5, 0, &what), -EAGAIN);
	assert_int_equal(f->ops->credit(f->end[S].path, 1, 5, &c), -EAGAIN);
	assert_int_equal(c.n, 99);
	parts[0] = cf_part(f, R, 0, 100);
	parts[1] = cf_part(f, R, 1000, 50);
	cf_recv(f, 1, 5, parts, 2, 0);
	wait_credit(f, 1, 5, 2);
	assert_int_equal(f->end[S].count[DR_EV_CREDIT], 1);
	assert_int_equal(cf_nth(&f->end[S], DR_EV_CREDIT, 0)->ev.seq, 5);
	assert_int_equal(f->ops->credit(f->end[S].path, 1, 5, &c), 0);
	assert_int_equal(c.todo, 3);
	assert_int_equal(c.cap[1], 50);
	assert_int_equal(c.tag[1], 1000);
	assert_int_equal(cf_nth(&f->end[S], DR_EV_CREDIT, 0)->ev.epoch, 1);
	/* only what was announced: another message, another epoch, a part more */
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 6, 0, &what), -EAGAIN);
	assert_int_equal(dr_path_post_send(f->end[S].path, 2, 5, 0, &what), -EAGAIN);
	assert_true(dr_path_post_send(f->end[S].path, 1, 5, 2, &what) < 0);
	cf_fill(f->end[S].mem, 5, 0, 100);
	cf_send(f, 1, 5, 0, 0, 100);
	assert_int_equal(f->ops->credit(f->end[S].path, 1, 5, &c), 0);
	assert_int_equal(c.todo, 2);
	wait_delivered(f, 5, 0);
	cf_check(f->end[R].mem, 5, 0, 100);
	assert_int_equal(f->end[R].mem[100], 0xee);
}

static void shuffle(struct dr_rng *rng, unsigned *order, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		order[i] = i;
	for (unsigned i = n; i > 1; i--) {
		unsigned k = (unsigned)dr_rng_below(rng, i), t = order[i - 1];

		order[i - 1] = order[k];
		order[k] = t;
	}
}

/* 24 messages of up to 8 parts, several posted ahead, parts sent in any order: each once, all whole,
 * and messages in order. */
static void parts_any_order(struct cf *f)
{
	enum { MESSAGES = 24, LEN = 3000 };
	struct dr_part parts[DR_PARTS_MAX];
	unsigned order[DR_PARTS_MAX], n, i, total = 0;
	struct dr_rng rng;
	uint64_t seq, last = 0;

	dr_rng_seed(&rng, 3);
	cf_memory(f, (size_t)MESSAGES * DR_PARTS_MAX * LEN);
	cf_up(f, 1);
	for (seq = 0; seq < MESSAGES; seq++) {
		n = 1 + (unsigned)(seq % DR_PARTS_MAX);
		for (i = 0; i < n; i++) {
			parts[i] = cf_part(f, R, (seq * DR_PARTS_MAX + i) * LEN, LEN);
			cf_fill(f->end[S].mem + parts[i].off, seq, i, LEN);
		}
		cf_recv(f, 1, seq, parts, n, 0);
		total += n;
	}
	for (seq = 0; seq < MESSAGES; seq++) {
		n = 1 + (unsigned)(seq % DR_PARTS_MAX);
		wait_credit(f, 1, seq, n);
		shuffle(&rng, order, n);
		for (i = 0; i < n; i++)
			cf_send(f, 1, seq, order[i], (seq * DR_PARTS_MAX + order[i]) * LEN,
				LEN - order[i]);
	}
	cf_until(f,
		f->end[R].count[DR_EV_DELIVERED] == total && f->end[S].count[DR_EV_SENT] == total);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], total);
	for (i = 0; i < total; i++) {
		const struct dr_event *ev = &cf_nth(&f->end[R], DR_EV_DELIVERED, i)->ev;

		assert_true(ev->seq >= last);
		last = ev->seq;
		assert_int_equal(ev->epoch, 1);
		assert_int_equal(ev->len, LEN - ev->part);
		cf_check(f->end[R].mem + (ev->seq * DR_PARTS_MAX + ev->part) * LEN, ev->seq,
			ev->part, ev->len);
	}
}

static void sizes(struct cf *f)
{
	enum { ROOM = 5 }; /* of a receive beyond its message; GPUDirect-TCPX takes 4 MiB in all */
	static const uint32_t len[] = { 1, 2, 3, 63, 64, 65, 4095, 4096, 65535, 65536, 65537,
		1 << 20, (4 << 20) - ROOM };
	struct dr_path_stats tx, rx;
	uint64_t seq, bytes = 0;

	cf_memory(f, 8 << 20);
	cf_up(f, 1);
	for (seq = 0; seq < DR_ARRAY_LEN(len); seq++) {
		uint32_t n = len[seq];
		struct dr_part part = cf_part(f, R, 3, n + ROOM);

		memset(f->end[R].mem, 0xee, n + 16);
		cf_fill(f->end[S].mem + 1, seq, 0, n);
		cf_recv(f, 1, seq, &part, 1, 0);
		wait_credit(f, 1, seq, 1);
		cf_send(f, 1, seq, 0, 1, n);
		cf_until(f, f->end[S].count[DR_EV_SENT] == seq + 1);
		memset(f->end[S].mem, 0x55, n + 1); /* ours again: changing it harms nobody */
		wait_delivered(f, seq, 0);
		assert_int_equal(cf_nth(&f->end[R], DR_EV_DELIVERED, (unsigned)seq)->ev.len, n);
		cf_check(f->end[R].mem + 3, seq, 0, n);
		assert_int_equal(f->end[R].mem[2], 0xee);
		assert_int_equal(f->end[R].mem[3 + n], 0xee);
		bytes += n;
	}
	f->ops->stats(f->end[S].path, &tx);
	f->ops->stats(f->end[R].path, &rx);
	assert_int_equal(tx.tx_bytes, bytes);
	assert_int_equal(rx.rx_bytes, bytes);
	assert_true(tx.tx_wire >= bytes);
	assert_true(f->end[R].path->rx_last_ns > 0 && f->end[R].path->rx_last_ns <= cf_now(f));
	assert_true(f->end[S].path->tx_last_ns > 0 && f->end[S].path->tx_last_ns <= cf_now(f));
}

static void empty_part(struct cf *f)
{
	struct dr_part parts[2];

	cf_memory(f, 4096);
	cf_up(f, 1);
	parts[0] = cf_part(f, R, 0, 0);
	parts[1] = cf_part(f, R, 100, 100);
	cf_recv(f, 1, 0, parts, 2, 0);
	wait_credit(f, 1, 0, 2);
	cf_send(f, 1, 0, 0, 0, 0);
	cf_send(f, 1, 0, 1, 0, 0); /* shorter than what was posted: nothing at all */
	wait_delivered(f, 0, 0);
	wait_delivered(f, 0, 1);
	assert_int_equal(cf_nth(&f->end[R], DR_EV_DELIVERED, 0)->ev.len, 0);
	assert_int_equal(cf_nth(&f->end[R], DR_EV_DELIVERED, 1)->ev.len, 0);
	cf_until(f, f->end[S].count[DR_EV_SENT] == 2);
	assert_int_equal(f->end[R].mem[100], 0xee);
}

static void too_large(struct cf *f)
{
	struct dr_part parts[2], what;

	cf_memory(f, 64 << 10);
	cf_up(f, 1);
	parts[0] = cf_part(f, R, 0, 1000);
	parts[1] = cf_part(f, R, 1000, 2000);
	cf_recv(f, 1, 0, parts, 2, 0);
	wait_credit(f, 1, 0, 2);
	what = cf_part(f, S, 0, 1001);
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 0, 0, &what), -EMSGSIZE);
	what.len = 2001;
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 0, 1, &what), -EMSGSIZE);
	/* nothing was taken: what fits goes through */
	cf_fill(f->end[S].mem, 0, 1, 2000);
	cf_send(f, 1, 0, 1, 0, 2000);
	cf_send(f, 1, 0, 0, 0, 1000);
	wait_delivered(f, 0, 0);
	wait_delivered(f, 0, 1);
	cf_check(f->end[R].mem + 1000, 0, 1, 2000);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 2);
}

static void ctrl_frame(uint8_t *frame, unsigned end, unsigned k, size_t *len)
{
	*len = 3 + k % (DR_CTRL_MAX - 2);
	frame[0] = (uint8_t)(k >> 8);
	frame[1] = (uint8_t)k;
	for (size_t i = 2; i < *len; i++)
		frame[i] = (uint8_t)(k * 3 + i + end);
}

static void check_ctrl(struct cf *f, unsigned from, unsigned n)
{
	const struct cf_end *to = &f->end[!from];
	uint8_t want[DR_CTRL_MAX];
	size_t len;

	for (unsigned k = 0; k < n; k++) {
		const struct cf_event *x = cf_nth(to, DR_EV_CTRL, k);

		ctrl_frame(want, from, k, &len);
		assert_int_equal(x->ev.len, len);
		assert_memory_equal(x->bytes, want, len);
	}
}

static void ctrl_in_order(struct cf *f)
{
	enum { FRAMES = 300 };
	uint8_t frame[DR_CTRL_MAX];
	unsigned end, k;
	size_t len;

	cf_up(f, 1);
	for (k = 0; k < FRAMES; k++)
		for (end = 0; end < 2; end++) {
			ctrl_frame(frame, end, k, &len);
			cf_ctrl(f, end, frame, len);
			memset(frame, 0, sizeof(frame)); /* it was copied */
		}
	for (end = 0; end < 2; end++)
		cf_until(f, f->end[end].count[DR_EV_CTRL] == FRAMES);
	for (end = 0; end < 2; end++)
		check_ctrl(f, end, FRAMES);
}

/* Until it says -EAGAIN; then exactly what it took arrives, and it takes again. */
static void ctrl_full(struct cf *f)
{
	uint8_t frame[DR_CTRL_MAX];
	unsigned k = 0;
	size_t len;

	cf_up(f, 1);
	for (; k < CF_EVENTS_MAX / 2; k++) {
		int rc;

		ctrl_frame(frame, S, k, &len);
		rc = dr_path_post_ctrl(f->end[S].path, frame, len);
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			break;
		}
	}
	assert_true(k > 0 && k < CF_EVENTS_MAX / 2);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_until(f, f->end[R].count[DR_EV_CTRL] == k);
	ctrl_frame(frame, S, k, &len);
	cf_ctrl(f, S, frame, len);
	cf_until(f, f->end[R].count[DR_EV_CTRL] == k + 1);
	check_ctrl(f, S, k + 1);
}

/* A frame posted while megabytes queue overtakes those that are not on the wire. */
static void ctrl_passes_bulk(struct cf *f)
{
	enum { MESSAGES = 24, LEN = 1 << 20 };
	const struct cf_event *ctrl, *last;

	cf_memory(f, (size_t)MESSAGES * LEN);
	cf_up(f, 1);
	post_recvs(f, MESSAGES, LEN);
	for (uint64_t seq = 0; seq < MESSAGES; seq++)
		cf_send(f, 1, seq, 0, seq * LEN, LEN);
	cf_ctrl(f, S, "urgent", 6);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == MESSAGES);
	ctrl = cf_nth(&f->end[R], DR_EV_CTRL, 0);
	last = cf_nth(&f->end[R], DR_EV_DELIVERED, MESSAGES - 1);
	assert_non_null(ctrl);
	assert_true(ctrl < last);
}

/* Posts until both queues are full; what was refused took nothing. */
static void queue_full(struct cf *f)
{
	enum { LEN = 2048, MAX = 2000 };
	struct dr_part parts[DR_PARTS_MAX], what;
	unsigned messages, sent = 0, n;

	cf_memory(f, (size_t)MAX * DR_PARTS_MAX * LEN);
	cf_up(f, 1);
	for (messages = 0; messages < MAX; messages++) {
		int rc;

		for (n = 0; n < DR_PARTS_MAX; n++)
			parts[n] =
				cf_part(f, R, ((uint64_t)messages * DR_PARTS_MAX + n) * LEN, LEN);
		rc = dr_path_post_recv(f->end[R].path, 1, messages, parts, DR_PARTS_MAX, 0);
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			break;
		}
	}
	assert_true(messages >= 8 && messages < MAX);
	dr_path_flush(f->end[R].path, cf_now(f));
	cf_until(f, f->end[S].count[DR_EV_CREDIT] == messages);
	cf_quiet(f);
	assert_int_equal(f->end[S].count[DR_EV_CREDIT], messages);
	for (; sent < messages * DR_PARTS_MAX; sent++) {
		int rc;

		what = cf_part(f, S, (uint64_t)sent * LEN, LEN);
		cf_fill(f->end[S].mem + what.off, sent / DR_PARTS_MAX, sent % DR_PARTS_MAX, LEN);
		rc = dr_path_post_send(
			f->end[S].path, 1, sent / DR_PARTS_MAX, sent % DR_PARTS_MAX, &what);
		if (rc) {
			assert_int_equal(rc, -EAGAIN);
			break;
		}
	}
	assert_true(sent > 0 && sent < messages * DR_PARTS_MAX);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == sent);
	cf_quiet(f);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], sent);
	assert_int_equal(f->end[S].count[DR_EV_SENT], sent);
	for (; sent < messages * DR_PARTS_MAX; sent++) {
		cf_fill(f->end[S].mem + (size_t)sent * LEN, sent / DR_PARTS_MAX,
			sent % DR_PARTS_MAX, LEN);
		cf_send(f, 1, sent / DR_PARTS_MAX, sent % DR_PARTS_MAX, (uint64_t)sent * LEN, LEN);
	}
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == messages * DR_PARTS_MAX);
	for (uint64_t seq = 0; seq < messages; seq++)
		for (n = 0; n < DR_PARTS_MAX; n++)
			cf_check(f->end[R].mem + (seq * DR_PARTS_MAX + n) * LEN, seq, n, LEN);
}

static void skip_mask(struct cf *f)
{
	struct dr_part parts[4];

	cf_memory(f, 64 << 10);
	cf_up(f, 1);
	for (unsigned i = 0; i < 4; i++) {
		parts[i] = cf_part(f, R, i * 1000, 1000);
		cf_fill(f->end[S].mem + i * 1000, 7, i, 1000);
	}
	cf_recv(f, 1, 7, parts, 4, 0x5);
	wait_credit(f, 1, 7, 4);
	cf_send(f, 1, 7, 3, 3000, 1000);
	cf_send(f, 1, 7, 1, 1000, 1000);
	for (unsigned i = 2; i < 4; i++) /* skipped; posted before */
		assert_int_equal(dr_path_post_send(f->end[S].path, 1, 7, i,
					 &(struct dr_part){ f->end[S].mr, 0, 9, 0 }),
			-EINVAL);
	parts[0] = cf_part(f, R, 8000, 1000);
	cf_recv(f, 1, 8, parts, 1, 0);
	wait_credit(f, 1, 8, 1);
	cf_fill(f->end[S].mem + 8000, 8, 0, 1000);
	cf_send(f, 1, 8, 0, 8000, 1000);
	wait_delivered(f, 8, 0);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 3);
	assert_true(cf_delivered_at(&f->end[R], 7, 1) >= 0);
	assert_true(cf_delivered_at(&f->end[R], 7, 3) >= 0);
	if (f->ops->caps & DR_CAP_RESET) /* a stream: as sent; plugins: as posted to receive */
		assert_true(cf_delivered_at(&f->end[R], 7, 3) < cf_delivered_at(&f->end[R], 7, 1));
	cf_check(f->end[R].mem + 1000, 7, 1, 1000);
	cf_check(f->end[R].mem + 3000, 7, 3, 1000);
	cf_check(f->end[R].mem + 8000, 8, 0, 1000);
	assert_int_equal(f->end[R].mem[0], 0xee);
	assert_int_equal(f->end[R].mem[2000], 0xee);
}

/* Nothing leaves before flush: posts cost no wake-up of their own. And flush is enough. */
static void flush_sends(struct cf *f)
{
	struct dr_part part;

	cf_memory(f, 4096);
	cf_up(f, 1);
	part = cf_part(f, R, 0, 1000);
	assert_int_equal(dr_path_post_recv(f->end[R].path, 1, 0, &part, 1, 0), 0);
	assert_int_equal(dr_path_post_ctrl(f->end[R].path, "x", 1), 0);
	cf_run(f, 5 * DR_NS_PER_MS);
	assert_int_equal(f->end[S].count[DR_EV_CREDIT], 0);
	assert_int_equal(f->end[S].count[DR_EV_CTRL], 0);
	dr_path_flush(f->end[R].path, cf_now(f));
	cf_until(f, f->end[S].count[DR_EV_CREDIT] == 1 && f->end[S].count[DR_EV_CTRL] == 1);
	part = cf_part(f, S, 0, 1000);
	assert_int_equal(dr_path_post_send(f->end[S].path, 1, 0, 0, &part), 0);
	cf_run(f, 5 * DR_NS_PER_MS);
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	dr_path_flush(f->end[S].path, cf_now(f));
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == 1);
}

/* One progress call does a bounded amount of work, however much waits: never all of 16 MiB. */
static void progress_bounded(struct cf *f)
{
	enum { MESSAGES = 64, LEN = 256 << 10 };

	cf_memory(f, (size_t)MESSAGES * LEN);
	cf_up(f, 1);
	post_recvs(f, MESSAGES, LEN);
	for (uint64_t seq = 0; seq < MESSAGES; seq++) {
		struct dr_part what = cf_part(f, S, seq * LEN, LEN);

		assert_int_equal(dr_path_post_send(f->end[S].path, 1, seq, 0, &what), 0);
	}
	dr_path_flush(f->end[S].path, cf_now(f));
	for (int i = 0; i < 1000; i++) { /* the receiver sleeps */
		cf_progress(f, S);
		if (f->world && dr_sim_world_next(f->world) != DR_NEVER)
			dr_sim_world_step(f->world, dr_sim_world_next(f->world));
	}
	assert_int_equal(f->end[R].count[DR_EV_DELIVERED], 0);
	cf_progress(f, R);
	assert_true(f->end[R].count[DR_EV_DELIVERED] < MESSAGES);
	cf_until(f, f->end[R].count[DR_EV_DELIVERED] == MESSAGES);
}

static void send_dgrams(struct cf *f, unsigned end, const size_t *len, size_t n)
{
	uint8_t data[DR_DGRAM_MAX];
	size_t i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < len[i]; k++)
			data[k] = (uint8_t)(k * 5 + len[i] + end);
		f->ops->rail_dgram(f->end[end].rail, data, len[i]);
	}
}

static bool has_dgram(const struct cf_end *e, size_t len)
{
	for (unsigned i = 0; i < e->rail_n; i++)
		if (e->rail_log[i].ev.len == len)
			return true;
	return false;
}

/* They are unreliable, most of all before the way to the peer is known: sent again until they come. */
static void dgrams(struct cf *f)
{
	static const size_t len[] = { 1, 64, DR_DGRAM_MAX };
	int64_t deadline = cf_now(f) + CF_WAIT_NS;
	uint8_t data[DR_DGRAM_MAX];
	unsigned end, i, have = 0;

	if (!(f->ops->caps & DR_CAP_DGRAM))
		cf_up(f, 1);
	while (have < 2 * DR_ARRAY_LEN(len)) {
		assert_true(cf_now(f) < deadline);
		for (end = 0; end < 2; end++)
			send_dgrams(f, end, len, DR_ARRAY_LEN(len));
		cf_run(f, DR_NS_PER_MS);
		for (have = 0, end = 0; end < 2; end++)
			for (i = 0; i < DR_ARRAY_LEN(len); i++)
				have += has_dgram(&f->end[end], len[i]);
	}
	for (end = 0; end < 2; end++)
		for (i = 0; i < f->end[!end].rail_n; i++) {
			const struct cf_event *x = &f->end[!end].rail_log[i];

			for (size_t k = 0; x->ev.kind == DR_EV_DGRAM && k < x->ev.len; k++)
				assert_int_equal(x->bytes[k], (uint8_t)(k * 5 + x->ev.len + end));
		}
	memset(data, 1, sizeof(data)); /* one too long is no error of consequence */
	f->ops->rail_dgram(f->end[0].rail, data, sizeof(data));
}

const struct cf_case cf_cases_data[] = { CF_CASE(credit_first), CF_CASE(parts_any_order),
	CF_CASE(sizes), CF_CASE(empty_part), CF_CASE(too_large), CF_CASE(ctrl_in_order),
	CF_CASE(ctrl_full), CF_CASE(ctrl_passes_bulk), CF_CASE(queue_full), CF_CASE(skip_mask),
	CF_CASE(flush_sends), CF_CASE(progress_bounded), CF_CASE(dgrams) };
const size_t cf_n_cases_data = DR_ARRAY_LEN(cf_cases_data);
