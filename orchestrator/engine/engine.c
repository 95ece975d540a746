/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/engine/engine.h"

/*
 * The engine of a GPU: its manager, the buffers of its streams, the manager's callbacks, and the step that gives
 * every stream its turn.
 */
enum { SLOT_ALIGN = 4096, SPIN_TURNS = 2 };
static_assert(DR_GPU_CHANNELS_MAX == 64, "dr_engine.due has a bit for each stream");
/* Ping-pong spins through waits of the usual length. The limits are wide because a turn that includes a sleep is
 * longer: if it ended the spinning, both ends would sleep in every later turn. */
static const int64_t SPIN_MAX_NS = 200 * DR_NS_PER_US;
static const int64_t TURN_LONG_NS = DR_NS_PER_MS;

void dr_engine_report(struct dr_engine *g, struct dr_report *r)
{
	if (g->closing) /* events of channels that are being closed are ignored */
		return;
	r->position = g->prm.position;
	r->now_ns = dr_now_ns();
	g->report(g->arg, r);
}

/* --- failures --------------------------------------------------------------------------------- */

void dr_engine_fail(struct dr_engine *g, unsigned channel, int err, const char *text)
{
	struct dr_report r = { .kind = DR_REP_FAILED, .channel = channel, .err = err };
	struct dr_channel_stats st;

	if (channel < g->n_streams && g->stream[channel].ch) {
		dr_channel_stats(g->stream[channel].ch, &st);
		r.value = st.last_progress_ns;
	}
	snprintf(r.text, sizeof(r.text), "%s", text);
	if (g->state != DR_ENGINE_FAILED) {
		g->state = DR_ENGINE_FAILED;
		g->err = err;
		g->failed_channel = channel;
	}
	g->tx_left = g->rx_left = 0;
	if (g->running)
		dr_engine_end_phase(g);
	dr_engine_report(g, &r);
}

void dr_stream_fail(struct dr_stream *s, int err, const char *text)
{
	if (s->failed)
		return;
	s->failed = true;
	if (s->eng->closing)
		return;
	dr_debug("channel", "gpu %u channel %u: %s: %s", s->eng->prm.gpu, s->number, text,
		dr_errno_name(err));
	dr_engine_fail(s->eng, s->number, err, text);
}

/* --- callbacks of the manager ------------------------------------------------------------------- */

/* Channels are opened with the numbers of their streams. */
static struct dr_stream *stream_of(struct dr_engine *g, const struct dr_channel *ch)
{
	dr_dassert(dr_channel_id(ch) < g->n_streams);
	return &g->stream[dr_channel_id(ch)];
}

static void on_completed(
	void *arg, struct dr_channel *ch, uint64_t seq, uint32_t bytes, int64_t now_ns)
{
	struct dr_stream *s = stream_of(arg, ch);

	(void)bytes;
	s->eng->due |= UINT64_C(1) << s->number;
	s->slot[seq % s->win.cap].ns = now_ns;
	if (s->sender || !s->busy || s->eng->phase.kind == DR_PHASE_LAT)
		return;
	/* Recorded one delivery later: the switch that explains the interval may be reported after it. */
	dr_stream_record_cadence(s);
	if (s->gaps.on) {
		dr_stream_gap(s, now_ns);
	} else if (s->last_done_ns) {
		s->cadence_start_ns = s->last_done_ns;
		s->cadence_end_ns = now_ns;
	}
	s->last_done_ns = now_ns;
}

static void on_switched(void *arg, struct dr_channel *ch, const struct dr_switch_record *rec)
{
	struct dr_engine *g = arg;
	struct dr_stream *s = stream_of(g, ch);
	struct dr_report r = {
		.kind = DR_REP_SWITCH, .channel = s->number, .path = rec->to, .rec = *rec
	};

	dr_flight_moved(&s->flight, g->now);
	dr_rates_switched(&g->rates, s->number);
	if (!s->sender && rec->last_delivery_ns && rec->first_delivery_ns) {
		s->gap_start_ns = rec->last_delivery_ns;
		s->gap_end_ns = rec->first_delivery_ns;
	}
	atomic_store_explicit(&s->live.epoch, rec->epoch, memory_order_relaxed);
	atomic_store_explicit(&s->live.active, rec->to, memory_order_relaxed);
	dr_engine_report(g, &r);
}

static void on_protection(
	void *arg, struct dr_channel *ch, bool prot, unsigned path, int64_t now_ns)
{
	struct dr_stream *s = stream_of(arg, ch);
	struct dr_report r = {
		.kind = DR_REP_PROTECTION, .channel = s->number, .path = path, .flag = prot
	};

	(void)now_ns;
	dr_engine_report(s->eng, &r);
}

static void on_failed(void *arg, struct dr_channel *ch, int err, const char *text, int64_t now_ns)
{
	(void)now_ns;
	dr_stream_fail(stream_of(arg, ch), err, text);
}

static void on_rail(
	void *arg, unsigned rail, enum dr_rail_state st, const char *why, int64_t now_ns)
{
	struct dr_report r = { .kind = DR_REP_RAIL, .rail = rail, .rail_state = st };

	(void)now_ns;
	snprintf(r.text, sizeof(r.text), "%s", why ? why : "");
	dr_engine_report(arg, &r);
}

static void on_silence(void *arg, bool stalled, int64_t silent_ns, int64_t now_ns)
{
	struct dr_report r = { .kind = DR_REP_SILENCE, .flag = stalled, .value = silent_ns };

	(void)now_ns;
	dr_engine_report(arg, &r);
}

static const struct dr_manager_ops manager_ops = {
	.channel = { .switched = on_switched,
		.protection = on_protection,
		.failed = on_failed,
		.completed = on_completed },
	.rail = on_rail,
	.silence = on_silence,
};

/* --- set-up ----------------------------------------------------------------------------------- */

/* A plan has them in order. */
static void check_params(const struct dr_worker_params *wp, const struct dr_worker_gpu_params *gp)
{
	unsigned window = gp->manager.window, n = gp->n_channels;

	dr_assert(window >= 1 && window <= DR_WINDOW_MAX && wp->chunk_max >= 1);
	dr_assert(n >= 1 && n <= DR_GPU_CHANNELS_MAX && gp->n_bulk <= n);
	dr_assert((gp->lat_tx < 0) == (gp->lat_rx < 0));
	dr_assert(gp->lat_tx < 0 || gp->channel[gp->lat_tx].sender);
	dr_assert(gp->lat_rx < 0 || !gp->channel[gp->lat_rx].sender);
}

/* The handles of the channels travel with those of the rails, so they are opened before the start. */
static int make_streams(struct dr_engine *g, struct dr_err *e)
{
	unsigned cap = g->prm.manager.window, n = g->prm.n_channels;
	int rc = 0;

	g->stream = dr_calloc(n, sizeof(*g->stream));
	if (!g->stream)
		return dr_err_set(e, -ENOMEM, "gpu %u: out of memory", g->prm.gpu);
	for (; g->n_streams < n && rc == 0; g->n_streams++) {
		unsigned i = g->n_streams;
		struct dr_stream *s = &g->stream[i];

		rc = dr_manager_open_channel(g->mgr, i, &g->prm.channel[i], &s->ch, e);
		if (rc < 0)
			return dr_err_prefix(e, "gpu %u", g->prm.gpu);
		s->eng = g;
		s->number = i;
		s->sender = g->prm.channel[i].sender;
		s->wake_ns = DR_NEVER;
		dr_integrity_init(&s->integrity, g->seed, g->prm.position, i, cap);
		rc = dr_stream_init(s, cap);
	}
	return rc == 0 ? 0 : dr_err_set(e, rc, "gpu %u: out of memory", g->prm.gpu);
}

static int make_hists(struct dr_engine *g, struct dr_err *e)
{
	int rc = dr_hist_create(&g->rtt);

	if (rc == 0)
		rc = dr_hist_create(&g->cadence);
	return rc == 0 ? 0 : dr_err_set(e, rc, "gpu %u: out of memory", g->prm.gpu);
}

int dr_engine_create(const struct dr_engine_params *p, struct dr_engine **out, struct dr_err *e)
{
	const struct dr_worker_params *wp = p->worker;
	const struct dr_worker_gpu_params *gp = p->gpu;
	struct dr_engine *g = dr_calloc(1, sizeof(*g));

	check_params(wp, gp);
	if (!g)
		return dr_err_set(e, -ENOMEM, "gpu %u: out of memory", gp->gpu);
	g->prm = *gp;
	g->prm.manager.gpu = gp->gpu;
	g->prm.manager.poller = p->poller;
	g->prm.manager.ops = &manager_ops;
	g->prm.manager.arg = g;
	g->chunk_max = wp->chunk_max;
	g->seed = wp->seed;
	dr_rates_init(&g->rates, wp->rates);
	g->client = wp->client;
	g->trace = wp->trace_requests;
	g->report = p->report;
	g->arg = p->arg;
	int rc = dr_manager_create(&g->prm.manager, &g->mgr, e);
	if (rc < 0) {
		dr_free(g);
		return rc;
	}
	rc = make_streams(g, e);
	if (rc == 0)
		rc = make_hists(g, e);
	if (rc < 0) {
		dr_engine_destroy(g);
		return rc;
	}
	*out = g;
	return 0;
}

static int alloc_buffer(struct dr_stream *s, struct dr_err *e)
{
	if (s->eng->prm.gpu_buffers) {
		int rc = dr_gpu_alloc(
			dr_gpu_buffers_gpu(s->eng->prm.gpu_buffers), s->buf_bytes, &s->on_gpu, e);
		s->buf = (uint8_t *)(uintptr_t)s->on_gpu.dev;
		return rc;
	}
	s->buf = dr_pages_alloc(s->buf_bytes);
	if (s->buf)
		return 0;
	return dr_err_set(e, -ENOMEM,
		"no memory for a buffer of %zu bytes; use a smaller --window or --chunk",
		s->buf_bytes);
}

static int register_buffer(struct dr_stream *s, struct dr_err *e)
{
	struct dr_memory m = { .kind = DR_MEMORY_HOST, .base = s->buf, .len = s->buf_bytes };

	if (s->eng->prm.gpu_buffers)
		return dr_gpu_buffers_register(
			s->eng->prm.gpu_buffers, &s->on_gpu, s->ch, &s->mem, e);
	return dr_channel_mem_reg(s->ch, &m, &s->mem, e);
}

/* What a NIC may still access is kept: given back, it would be somebody else's memory soon. */
static void deregister_buffers(struct dr_engine *g, int64_t now)
{
	struct dr_err first = { 0 }, e;
	unsigned kept = 0;
	size_t bytes = 0;

	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		if (!s->registered || dr_channel_mem_dereg(s->ch, &s->mem, now, &e) == 0)
			continue;
		if (kept++ == 0)
			first = e;
		s->kept = true;
		bytes += s->buf_bytes;
	}
	if (kept == 0)
		return;
	if (g->prm.gpu_buffers)
		dr_gpu_buffers_keep(g->prm.gpu_buffers);
	dr_error("worker",
		"gpu %u: %s; the NIC may still access the buffers of %u of its channels, so their %zu "
		"bytes stay allocated until the process ends",
		g->prm.gpu, first.text, kept, bytes);
}

static void free_buffer(struct dr_stream *s)
{
	if (s->kept)
		return;
	if (s->eng->prm.gpu_buffers)
		dr_gpu_free(dr_gpu_buffers_gpu(s->eng->prm.gpu_buffers), &s->on_gpu);
	else
		dr_pages_free(s->buf, s->buf_bytes);
}

size_t dr_engine_stride(uint32_t chunk_max)
{
	return ((size_t)chunk_max + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* All buffers are allocated first: lack of GPU memory is reported at once, while registering can take long. */
int dr_engine_alloc(struct dr_engine *g, struct dr_err *e)
{
	int rc;

	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_stream *s = &g->stream[i];

		s->stride = dr_engine_stride(g->chunk_max);
		if (s->stride < g->chunk_max ||
			__builtin_mul_overflow(s->stride, (size_t)s->win.cap, &s->buf_bytes))
			return dr_err_set(e, -EOVERFLOW,
				"gpu %u: a buffer of %u chunks of %u bytes exceeds the address space; "
				"use a smaller --window or --chunk",
				g->prm.gpu, s->win.cap, g->chunk_max);
		rc = alloc_buffer(s, e);
		if (rc < 0)
			return dr_err_prefix(e, "gpu %u channel %u", g->prm.gpu, i);
	}
	for (unsigned i = 0; i < g->n_streams; i++) {
		rc = register_buffer(&g->stream[i], e);
		if (rc < 0)
			return dr_err_prefix(e, "gpu %u channel %u", g->prm.gpu, i);
		g->stream[i].registered = true;
	}
	return 0;
}

void dr_engine_close(struct dr_engine *g)
{
	g->closing = true;
	if (g->mgr)
		dr_manager_close(g->mgr, dr_now_ns());
}

void dr_engine_destroy(struct dr_engine *g)
{
	int64_t now = dr_now_ns();

	if (!g)
		return;
	dr_engine_close(g);
	if (g->stream)
		deregister_buffers(g, now);
	/* No buffer is in use: each was deregistered, or is kept. */
	(void)dr_manager_destroy(g->mgr);
	for (unsigned i = 0; g->stream && i < g->n_streams; i++)
		free_buffer(&g->stream[i]);
	dr_hist_destroy(g->rtt);
	dr_hist_destroy(g->cadence);
	dr_free(g->stream);
	dr_free(g->peer);
	dr_free(g);
}

/* The peer's handles: of its rails, then of its channels. */
static int start_all(struct dr_engine *g, int64_t now, struct dr_err *e)
{
	unsigned rails = dr_manager_handle_count(g->mgr);
	int rc = dr_manager_start(g->mgr, g->peer, rails, now, e);

	for (unsigned i = 0; i < g->n_streams && rc == 0; i++)
		rc = dr_channel_start(g->stream[i].ch, &g->peer[rails + i], now, e);
	return rc;
}

void dr_engine_connect(struct dr_engine *g, int64_t now)
{
	struct dr_err e = { .code = 0, .text = "" };

	if (g->state != DR_ENGINE_NEW)
		return;
	if (!g->peer) {
		dr_engine_fail(g, DR_ALL, -EINVAL, "connect: the peer's handles are not set");
		return;
	}
	int rc = start_all(g, now, &e);
	if (rc < 0) {
		dr_engine_fail(g, DR_ALL, rc, e.text);
		return;
	}
	if (g->state == DR_ENGINE_NEW)
		g->state = DR_ENGINE_CONNECTING;
}

static void connecting(struct dr_engine *g)
{
	struct dr_report r = { .kind = DR_REP_READY };
	int rc = dr_manager_ready(g->mgr);

	if (rc == 0 || g->state != DR_ENGINE_CONNECTING)
		return;
	if (rc < 0) {
		dr_engine_fail(g, DR_ALL, rc, "the channels could not be connected");
		return;
	}
	g->state = DR_ENGINE_UP;
	dr_engine_all_due(g);
	for (unsigned i = 0; i < g->n_streams; i++) {
		struct dr_live_cell *l = &g->stream[i].live;
		struct dr_channel_stats st;

		dr_channel_stats(g->stream[i].ch, &st);
		atomic_store_explicit(&l->epoch, st.epoch, memory_order_relaxed);
		atomic_store_explicit(&l->active, st.active, memory_order_relaxed);
	}
	dr_engine_report(g, &r);
}

/* --- the step --------------------------------------------------------------------------------- */

static bool is_ping_stream(const struct dr_engine *g, unsigned i)
{
	return g->ping.on && ((int)i == g->prm.lat_tx || (int)i == g->prm.lat_rx);
}

void dr_engine_all_due(struct dr_engine *g)
{
	g->due = UINT64_MAX >> (DR_GPU_CHANNELS_MAX - g->n_streams);
}

/* Streams whose rate limit allows them to send again. */
static void wake_rated(struct dr_engine *g)
{
	for (unsigned i = 0; g->phase.rate_bits > 0 && i < g->n_streams; i++)
		if (g->stream[i].wake_ns <= g->now)
			g->due |= UINT64_C(1) << i;
}

void dr_engine_gpu_failed(struct dr_engine *g, const struct dr_err *why)
{
	dr_engine_fail(g, DR_ALL, why->code, why->text);
	for (unsigned i = 0; i < g->n_streams; i++)
		if (!g->stream[i].failed)
			dr_channel_fail(g->stream[i].ch, why->code, why->text, g->now);
}

bool dr_engine_step(struct dr_engine *g, int64_t now_ns, int64_t budget_ns)
{
	bool did = false;

	if (g->state == DR_ENGINE_NEW || g->state == DR_ENGINE_FAILED)
		return false;
	g->now = now_ns;
	if (g->prm.gpu_buffers && dr_gpu_buffers_error(g->prm.gpu_buffers)) {
		dr_engine_gpu_failed(g, dr_gpu_buffers_error(g->prm.gpu_buffers));
		return true;
	}
	if (g->state == DR_ENGINE_CONNECTING)
		connecting(g);
	if (g->ping.on)
		did |= dr_ping_step(g);
	wake_rated(g);
	for (unsigned k = 0; k < g->n_streams && g->due; k++) {
		unsigned i = g->turn;
		uint64_t bit = UINT64_C(1) << i;

		g->turn = i + 1 < g->n_streams ? i + 1 : 0;
		if (!(g->due & bit))
			continue;
		g->due &= ~bit;
		if (is_ping_stream(g, i) || !dr_stream_turn(&g->stream[i]))
			continue;
		g->due |= bit; /* a turn is bounded: there may be more */
		did = true;
		g->now = dr_now_ns();
		if (g->now - now_ns >= budget_ns)
			break;
	}
	return did;
}

/* A channel reports the peer's close to nobody, and a receiver has no reason to post again. */
void dr_engine_idle(struct dr_engine *g)
{
	for (unsigned i = 0; g->running && i < g->n_streams; i++)
		if (g->stream[i].busy && dr_channel_ready(g->stream[i].ch) == -ESHUTDOWN)
			dr_stream_fail(&g->stream[i], -ESHUTDOWN, "the peer closed the channel");
}

int64_t dr_engine_deadline(const struct dr_engine *g)
{
	int64_t d = DR_NEVER;

	for (unsigned i = 0; g->running && g->phase.rate_bits > 0 && i < g->n_streams; i++)
		d = DR_MIN(d, g->stream[i].wake_ns);
	return d;
}

int64_t dr_engine_spin_ns(const struct dr_engine *g)
{
	if (!g->ping.on || g->ping.turn_ns > TURN_LONG_NS)
		return 0;
	/* With staging, a round trip has four additional copies. */
	return DR_MIN(
		SPIN_TURNS * g->ping.turn_ns, g->prm.gpu_buffers ? TURN_LONG_NS : SPIN_MAX_NS);
}

/* --- rates ------------------------------------------------------------------------------------ */

static void report_rate(struct dr_engine *g, unsigned rail)
{
	struct dr_report r = { .kind = DR_REP_DEGRADED, .rail = rail };
	struct dr_rate_state st;

	dr_rail_rates_get(g->rates.judge, rail, &st);
	r.flag = st.degraded;
	if (st.degraded)
		snprintf(r.text, sizeof(r.text),
			"degraded: %.3g Gb/s measured, rail %u carries %.3g Gb/s", st.bps / 1e9,
			st.versus, st.versus_bps / 1e9);
	else
		snprintf(r.text, sizeof(r.text), "no longer degraded: it carries %.3g Gb/s or more",
			st.carries_bps / 1e9);
	dr_engine_report(g, &r);
}

void dr_engine_watch(struct dr_engine *g, int64_t now)
{
	struct dr_channel *ch[DR_GPU_CHANNELS_MAX];
	uint32_t changed;

	atomic_store_explicit(&g->late_ns, dr_manager_late_ns(g->mgr), memory_order_relaxed);
	if (g->state != DR_ENGINE_UP || !dr_rates_due(&g->rates, now))
		return;
	for (unsigned i = 0; i < g->n_streams; i++)
		ch[i] = g->stream[i].ch;
	changed = dr_rates_sample(&g->rates, ch, g->n_streams, now);
	for (unsigned r = 0; changed >> r != 0; r++)
		if (changed >> r & 1)
			report_rate(g, r);
}
