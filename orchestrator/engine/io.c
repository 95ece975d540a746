/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "orchestrator/engine/engine.h"

/*
 * Invariants:
 *  1. The window holds exactly the seqs [next_take, next_post): what was posted and not yet consumed
 *     (receiver) or released after its acknowledgement (sender). slot = seq % cap is therefore free
 *     whenever the window is not full.
 *  2. A chunk is consumed in one place, the window's consume, after test said done: counted, verified,
 *     its slot then free to be posted again.
 *  3. A receiver takes nothing at or above `end`, and nothing unless it has a part in the running phase: data of a
 *     phase that this end has not started yet stays in the window.
 *  4. Every turn is bounded (TURN_BYTES, TURN_CHUNKS), so that timers and heartbeats run on time even if many
 *     channels are busy.
 *
 * The paths move the data, inside the worker's dr_poller_wait. After every post the stream's own window is drained;
 * the windows of the other streams follow in the same pass. If a window is full, the turn returns to the poll loop.
 */
enum { TURN_BYTES = 512 * 1024, TURN_CHUNKS = 64, AHEAD_BYTES = 1 << 20 };
static const int64_t AHEAD_NS = 10 * DR_NS_PER_MS;

static void add(_Atomic uint64_t *cell, uint64_t n)
{
	atomic_store_explicit(
		cell, atomic_load_explicit(cell, memory_order_relaxed) + n, memory_order_relaxed);
}

static void trace(const struct dr_stream *s, const char *what, uint64_t seq, uint32_t bytes)
{
	if (s->eng->trace)
		dr_info("trace", "gpu %u channel %u %s seq %llu %s %u bytes", s->eng->prm.gpu,
			s->number, s->sender ? "send" : "recv", (unsigned long long)seq, what,
			bytes);
}

static uint8_t *chunk_data(const struct dr_stream *s, uint64_t seq)
{
	return s->buf + s->stride * s->slot[seq % s->win.cap].buffer;
}

/* For the next chunk, which need not be posted. */
static unsigned next_buffer(struct dr_stream *s)
{
	return s->slot[dr_stream_next_post(s) % s->win.cap].buffer = s->unused[s->n_unused - 1];
}

static void put_buffer(struct dr_stream *s, uint64_t seq)
{
	s->unused[s->n_unused++] = s->slot[seq % s->win.cap].buffer;
}

/* The most that the next chunk may have when the message has come to `at`. */
static uint32_t chunk_len(const struct dr_engine *g, uint64_t at)
{
	return (uint32_t)DR_MIN((uint64_t)g->phase.chunk_bytes, g->phase.message_bytes - at);
}

/* One chunk more at `ns`. The counted iterations begin and end at message boundaries. */
static void tally(struct dr_stream *s, uint32_t len, int64_t ns)
{
	const struct dr_phase *p = &s->eng->phase;

	/* Data that arrived before this end started the phase counts from the time it was taken. */
	if (ns <= s->eng->phase_ns)
		ns = s->eng->now;
	s->now.chunks++;
	s->now.bytes += len;
	s->now.ns = ns;
	s->take_at += len;
	if (s->take_at < p->message_bytes)
		return;
	s->take_at = 0;
	s->now.messages++;
	if (!p->iters)
		return;
	if (s->now.messages == p->warmup) {
		s->from = s->now;
		s->have_from = true;
	}
	if (s->now.messages == p->warmup + p->iters) {
		s->to = s->now;
		s->have_to = true;
	}
}

/* 0: the chunk has the expected content; else 1. An error of the GPU ends the streams. */
static int verify_chunk(struct dr_stream *s, const struct dr_chunk *c)
{
	struct dr_engine *g = s->eng;
	struct dr_err e = { 0 };

	if (!g->prm.gpu_buffers)
		return dr_integrity_check(&s->integrity, c);
	int rc = dr_gpu_buffers_check(g->prm.gpu_buffers, &s->integrity, c, &e);
	if (rc < 0)
		dr_engine_gpu_failed(g, &e);
	return rc > 0;
}

/* What s->integrity.text describes. */
static void report_wrong(struct dr_stream *s)
{
	struct dr_engine *g = s->eng;
	struct dr_report r = { .kind = DR_REP_FIRST_ERROR, .channel = s->number };

	if (!g->first_wrong[0])
		snprintf(g->first_wrong, sizeof(g->first_wrong), "%s", s->integrity.text);
	snprintf(r.text, sizeof(r.text), "%s", s->integrity.text);
	dr_engine_report(g, &r);
}

static void check_chunk(struct dr_stream *s, uint64_t seq, uint32_t len)
{
	struct dr_engine *g = s->eng;
	uint32_t most = chunk_len(g, s->take_at);
	const struct dr_chunk c = { .at = chunk_data(s, seq),
		.len = len,
		/* The sender may use smaller ones; their sum is checked at the end of the phase. */
		.expected = s->flight.on && len > 0 ? DR_MIN(len, most) : most,
		.seq = seq };

	if (g->phase.verify) {
		if (!verify_chunk(s, &c))
			return;
	} else {
		if (c.len == c.expected)
			return;
		dr_integrity_wrong_length(&s->integrity, &c);
	}
	if (g->first_error_reported)
		return;
	g->first_error_reported = true;
	report_wrong(s);
}

static int window_test(void *ctx, uint64_t seq)
{
	struct dr_stream *s = ctx;
	int rc = dr_channel_test(s->ch, seq);

	if (rc != 0)
		trace(s, rc > 0 ? "tested done" : "tested failed", seq, 0);
	return rc;
}

static int consume_recv(void *ctx, uint64_t seq)
{
	struct dr_stream *s = ctx;
	uint32_t len = dr_channel_received_len(s->ch, seq, 0);

	dr_assert(seq == dr_stream_next_take(s) && seq < s->end);
	check_chunk(s, seq, len);
	tally(s, len, s->slot[seq % s->win.cap].ns);
	add(&s->live.chunks_rx, 1);
	add(&s->live.bytes_rx, len);
	put_buffer(s, seq);
	trace(s, "consumed", seq, len);
	return 0;
}

static int consume_send(void *ctx, uint64_t seq)
{
	struct dr_stream *s = ctx;
	uint32_t len = s->slot[seq % s->win.cap].len;

	dr_assert(seq == dr_stream_next_take(s));
	tally(s, len, s->slot[seq % s->win.cap].ns);
	dr_flight_done(
		&s->flight, len, s->slot[seq % s->win.cap].flight, s->slot[seq % s->win.cap].ns);
	add(&s->live.chunks_tx, 1);
	add(&s->live.bytes_tx, len);
	put_buffer(s, seq);
	trace(s, "released", seq, len);
	return 0;
}

static const struct dr_window_ops recv_ops = { .test = window_test, .consume = consume_recv };
static const struct dr_window_ops send_ops = { .test = window_test, .consume = consume_send };

int dr_stream_init(struct dr_stream *s, unsigned cap)
{
	s->ahead = cap;
	while (s->n_unused < cap) {
		s->unused[s->n_unused] = cap - 1 - s->n_unused;
		s->n_unused++;
	}
	return dr_window_init(&s->win, cap, s->sender ? &send_ops : &recv_ops, s);
}

void dr_stream_begin(struct dr_stream *s, uint64_t total, bool part)
{
	struct dr_engine *g = s->eng;

	/* Of the phase before nothing is outstanding. */
	dr_assert(!s->busy && (!s->sender || dr_stream_next_take(s) == dr_stream_next_post(s)));
	s->busy = part;
	s->end = total == UINT64_MAX ? UINT64_MAX : dr_stream_next_take(s) + total;
	s->post_at = s->take_at = 0;
	s->has_expected = false;
	/* With iterations the number of chunks says when the phase is over. */
	dr_flight_begin(&s->flight, !g->phase.iters && g->phase.kind != DR_PHASE_LAT,
		g->phase.chunk_bytes, s->win.cap, g->now);
	s->now = s->from = s->to = (struct dr_tally){ .ns = g->phase_ns };
	s->ahead = s->win.cap;
	s->ahead_ns = g->now;
	s->ahead_bytes = 0;
	s->have_from = part && !(g->phase.iters && g->phase.warmup);
	s->have_to = false;
	s->tokens = g->phase.chunk_bytes;
	s->tokens_ns = g->phase_ns;
	s->wake_ns = DR_NEVER;
	s->last_done_ns = 0;
	s->gap_start_ns = s->gap_end_ns = 0;
	s->cadence_start_ns = s->cadence_end_ns = 0;
	s->gaps.on = false;
	dr_integrity_begin(&s->integrity, dr_stream_next_take(s));
}

/* The channel accepted seq, which must be the next one of the window. */
static void posted(struct dr_stream *s, uint64_t seq, uint32_t len)
{
	dr_assert(seq == dr_stream_next_post(s));
	int rc = dr_window_push(&s->win, seq);
	dr_assert(rc == 0);
	s->n_unused--;
	add(&s->live.posted, 1);
	trace(s, "posted", seq, len);
}

/* -EAGAIN is back-pressure. Any other error is final. */
static int post_failed(struct dr_stream *s, int rc, const char *what)
{
	if (rc != -EAGAIN)
		dr_stream_fail(s, rc, what);
	return rc;
}

/*
 * Where the processor copies what arrives, fewer receives are posted than the window allows: twice
 * what came in a round trip, at least AHEAD_BYTES. More push each other's buffers out of the cache.
 */
static void measure_ahead(struct dr_stream *s)
{
	const struct dr_engine *g = s->eng;
	int64_t ns = g->now - s->ahead_ns;
	int active = dr_channel_active(s->ch);
	struct dr_path *p = active < 0 ? NULL : dr_channel_path(s->ch, (unsigned)active);
	struct dr_path_stats st = { 0 };

	if (ns < AHEAD_NS || g->prm.gpu_buffers || g->phase.kind == DR_PHASE_LAT || !s->busy || !p)
		return;
	p->ops->stats(p, &st);
	/* Only tcp knows it, where the kernel copies. */
	if (st.rtt_min_ns == 0 || st.rtt_min_ns > ns / 2)
		return;
	double came = (double)(s->now.bytes - s->ahead_bytes) * (double)st.rtt_min_ns / (double)ns;
	double chunks = DR_MAX(2 * came, (double)AHEAD_BYTES) / g->phase.chunk_bytes;

	s->ahead = (unsigned)DR_MIN(DR_MAX(chunks, 2.0), (double)s->win.cap);
	s->ahead_ns = g->now;
	s->ahead_bytes = s->now.bytes;
}

unsigned dr_stream_post_recv(struct dr_stream *s)
{
	unsigned n = 0;

	dr_dassert(!s->sender);
	if (s->eng->paused)
		return 0;
	measure_ahead(s);
	while (!s->failed && dr_window_in_flight(&s->win) < s->ahead) {
		struct dr_span span = {
			.mem = &s->mem, .off = s->stride * next_buffer(s), .len = s->eng->chunk_max
		};
		uint64_t seq;
		int rc = dr_channel_recv(s->ch, &span, 1, &seq, s->eng->now);

		if (rc < 0) {
			post_failed(s, rc, "posting a receive");
			break;
		}
		posted(s, seq, span.len);
		n++;
	}
	return n;
}

static int fill_chunk(struct dr_stream *s, uint64_t seq, uint32_t len)
{
	struct dr_engine *g = s->eng;
	uint64_t base = dr_integrity_base(&s->integrity, seq);
	struct dr_err e = { 0 };

	if (!g->prm.gpu_buffers) {
		dr_pattern_fill(chunk_data(s, seq), len, base);
		return 0;
	}
	int rc = dr_gpu_buffers_fill(g->prm.gpu_buffers, chunk_data(s, seq), len, base, &e);
	if (rc < 0)
		dr_engine_gpu_failed(g, &e);
	return rc;
}

int dr_stream_post_send(struct dr_stream *s)
{
	struct dr_engine *g = s->eng;
	unsigned i = (unsigned)(dr_stream_next_post(s) % s->win.cap), b;
	uint32_t len = dr_flight_next(&s->flight, g->phase.message_bytes - s->post_at);
	struct dr_span span = { .mem = &s->mem, .len = len };
	uint64_t seq;
	int rc;

	dr_dassert(s->sender && dr_stream_next_post(s) < s->end);
	if (s->failed)
		return -ECANCELED;
	if (dr_window_full(&s->win) || !len)
		return -EAGAIN;
	b = next_buffer(s);
	span.off = s->stride * b;
	if (g->phase.verify || s->filled[b] < len) {
		rc = fill_chunk(s, dr_stream_next_post(s), len);
		if (rc < 0)
			return rc;
		s->filled[b] = DR_MAX(s->filled[b], len);
	}
	rc = dr_channel_send(s->ch, &span, 1, &seq, g->now);
	if (rc < 0)
		return post_failed(s, rc, "posting a send");
	s->slot[i].len = len;
	s->slot[i].flight = dr_flight_posted(&s->flight, len, g->now);
	s->post_at += len;
	if (s->post_at == g->phase.message_bytes)
		s->post_at = 0;
	posted(s, seq, len);
	return 0;
}

static bool release(struct dr_stream *s)
{
	int rc = dr_window_try_release_oldest(&s->win);

	if (rc < 0)
		dr_stream_fail(s, dr_window_error(&s->win), "testing the oldest request");
	return rc == 0;
}

bool dr_stream_take(struct dr_stream *s)
{
	return s->busy && !s->failed && dr_stream_next_take(s) < s->end && release(s);
}

unsigned dr_stream_drain(struct dr_stream *s)
{
	unsigned n = 0;

	while (!s->failed && dr_stream_next_take(s) < dr_stream_next_post(s) && release(s))
		n++;
	return n;
}

/* All chunks are here: are they as long together as the sender says? */
static void check_bytes(struct dr_stream *s)
{
	uint64_t got = atomic_load_explicit(&s->live.bytes_rx, memory_order_relaxed) + s->bytes_off;

	if (!s->has_expected || got == s->expected_bytes)
		return;
	dr_integrity_wrong_sum(&s->integrity, got, s->expected_bytes);
	s->bytes_off += s->expected_bytes - got;
	report_wrong(s);
}

static bool recv_turn(struct dr_stream *s)
{
	unsigned taken = 0;
	uint64_t bytes = s->now.bytes;

	/* Without --verify taking a chunk only counts it, so the whole window may be taken at once. */
	while (taken < TURN_CHUNKS && dr_stream_take(s)) {
		taken++;
		if (s->eng->phase.verify && s->now.bytes - bytes >= TURN_BYTES)
			break;
	}
	unsigned again = dr_stream_post_recv(s);
	if (again)
		dr_channel_flush(s->ch, s->eng->now);
	if (s->busy && dr_stream_next_take(s) == s->end) {
		check_bytes(s);
		dr_stream_done(s);
	}
	return taken || again;
}

/* Token bucket: are there tokens for len bytes? It holds the bytes of 4 ms at the limit, so that a late wake-up
 * costs no bandwidth, and at least two chunks. */
static bool rate_allows(struct dr_stream *s, uint32_t len)
{
	const struct dr_phase *p = &s->eng->phase;
	double per_ns = p->rate_bits / 8e9;
	double depth = DR_MAX(per_ns * 4 * DR_NS_PER_MS, 2.0 * len);

	if (p->rate_bits <= 0)
		return true;
	if (s->eng->now > s->tokens_ns) {
		s->tokens += (double)(s->eng->now - s->tokens_ns) * per_ns;
		s->tokens = DR_MIN(s->tokens, depth);
		s->tokens_ns = s->eng->now;
	}
	if (s->tokens >= len) {
		s->tokens -= len;
		return true;
	}
	s->wake_ns = s->eng->now + 1 + (int64_t)DR_MIN((len - s->tokens) / per_ns, 1e18);
	return false;
}

static bool send_turn(struct dr_stream *s)
{
	unsigned drained = dr_stream_drain(s), sent = 0;
	uint64_t bytes = 0;

	s->wake_ns = DR_NEVER;
	while (s->busy && !s->failed && dr_stream_next_post(s) < s->end &&
		!dr_window_full(&s->win) && sent < TURN_CHUNKS && bytes < TURN_BYTES) {
		uint32_t len = dr_flight_next(&s->flight, s->eng->phase.message_bytes - s->post_at);

		if (!len || !rate_allows(s, len) || dr_stream_post_send(s) < 0)
			break;
		bytes += len;
		sent++;
		drained += dr_stream_drain(s);
	}
	if (sent)
		dr_channel_flush(s->ch, s->eng->now);
	if (s->busy && dr_stream_next_post(s) == s->end && dr_stream_next_take(s) == s->end)
		dr_stream_done(s);
	return drained || sent;
}

bool dr_stream_turn(struct dr_stream *s)
{
	if (s->failed)
		return false;
	return s->sender ? send_turn(s) : recv_turn(s);
}
