/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include "base/mem.h"

#include <errno.h>

/*
 * Copies on a stream.
 *
 * 1. done <= issued <= done + DR_GPU_COPIES_MAX. The copies in between are in the ring's slots, in
 *    the order in which the GPU does them, so only the oldest is ever asked for.
 * 2. What is done is told by a word that the stream writes behind each copy, else by an event there. The first and
 *    every DR_GPU_TIME_EVERY-th copy has an event on either side: the time between the two is the copy's
 *    own, since the first is reached when what stands before it in the stream is done. The time of all
 *    is taken to be theirs, by bytes.
 * 3. A failure sticks, as it does in the driver: from then on every call gives it.
 * 4. A slot's events are made at its first use and go with the stream.
 */

static int broken(const struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	return dr_cuda_fail(s->gpu->cuda, s->failed, e, "%s on GPU %u", what, s->gpu->info.ordinal);
}

static int sticks(struct dr_gpu_stream *s, unsigned result, const char *what, struct dr_err *e)
{
	s->failed = result;
	return broken(s, what, e);
}

/* ---- create and destroy ---- */

int dr_gpu_stream_create(struct dr_gpu *g, struct dr_gpu_stream **out, struct dr_err *e)
{
	struct dr_gpu_stream *s;
	unsigned result;
	int rc = dr_gpu_enter(g, e);

	if (rc)
		return rc;
	s = dr_calloc(1, sizeof(*s));
	if (!s)
		return dr_err_set(e, -ENOMEM, "no memory for a stream of GPU %u", g->info.ordinal);
	s->gpu = g;
	result = g->cuda->stream_create(&s->stream, DR_CUDA_STREAM_NON_BLOCKING);
	if (result) {
		dr_free(s);
		return dr_cuda_fail(g->cuda, result, e, "a stream of GPU %u", g->info.ordinal);
	}
	rc = dr_gpu_pattern_init(s, e);
	if (rc == 0)
		rc = dr_gpu_word_init(s, e);
	if (rc) {
		dr_gpu_stream_destroy(s);
		return rc;
	}
	*out = s;
	return 0;
}

static void destroy_events(struct dr_gpu_stream *s)
{
	const struct dr_cuda *c = s->gpu->cuda;

	for (unsigned i = 0; i < DR_GPU_COPIES_MAX; i++) {
		if (s->copy[i].begin)
			(void)c->event_destroy(s->copy[i].begin);
		if (s->copy[i].end)
			(void)c->event_destroy(s->copy[i].end);
	}
}

void dr_gpu_stream_destroy(struct dr_gpu_stream *s)
{
	const struct dr_cuda *c;

	if (!s)
		return;
	c = s->gpu->cuda;
	(void)dr_gpu_enter(s->gpu, NULL);
	(void)c->stream_synchronize(s->stream);
	destroy_events(s);
	dr_gpu_note(s->gpu, "destroying a stream", c->stream_destroy(s->stream));
	dr_gpu_pattern_fini(s);
	dr_gpu_word_fini(s);
	dr_free(s);
}

/* ---- copies ---- */

static bool is_timed(uint64_t ticket)
{
	return ticket % DR_GPU_TIME_EVERY == 1;
}

/* The slot of the next copy, with the events that it needs. */
static int next_slot(struct dr_gpu_stream *s, struct dr_gpu_copy **out, struct dr_err *e)
{
	const struct dr_cuda *c = s->gpu->cuda;
	struct dr_gpu_copy *slot = &s->copy[(s->issued + 1) % DR_GPU_COPIES_MAX];
	bool timed = is_timed(s->issued + 1);
	unsigned result = 0;

	if (timed && !slot->begin)
		result = c->event_create(&slot->begin, 0);
	if (result == 0 && (timed || !s->word.host) && !slot->end)
		result = c->event_create(&slot->end, timed ? 0 : DR_CUDA_EVENT_DISABLE_TIMING);
	if (result)
		return dr_cuda_fail(c, result, e, "an event of GPU %u", s->gpu->info.ordinal);
	*out = slot;
	return 0;
}

static int may_copy(struct dr_gpu_stream *s, struct dr_gpu_copy **slot, struct dr_err *e)
{
	int rc;

	if (s->failed)
		return broken(s, "copying", e);
	if (s->issued - s->done == DR_GPU_COPIES_MAX)
		return -EAGAIN;
	rc = dr_gpu_enter(s->gpu, e);
	return rc ? rc : next_slot(s, slot, e);
}

/* Of a copy that is to be timed. */
static unsigned begin_copy(struct dr_gpu_stream *s, const struct dr_gpu_copy *slot)
{
	if (!slot->begin)
		return 0;
	s->stats.calls++;
	return s->gpu->cuda->event_record(slot->begin, s->stream);
}

/* What remains after the copy itself was asked for, with that result. A copy that may be running
 * and that nothing could wait for breaks the stream. */
static int finish_copy(struct dr_gpu_stream *s, struct dr_gpu_copy *slot, size_t len,
	unsigned result, uint64_t *ticket, struct dr_err *e)
{
	s->stats.calls += (len > 0) + (slot->end != NULL) + (s->word.host != NULL);
	if (result == 0 && slot->end)
		result = s->gpu->cuda->event_record(slot->end, s->stream);
	if (result == 0 && s->word.host)
		result = dr_gpu_word_mark(s, s->issued + 1);
	if (result)
		return sticks(s, result, "copying", e);
	slot->len = len;
	*ticket = ++s->issued;
	return 0;
}

int dr_gpu_copy_out(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, uint64_t *ticket,
	struct dr_err *e)
{
	struct dr_gpu_copy *slot;
	unsigned result;
	int rc = may_copy(s, &slot, e);

	if (rc)
		return rc;
	result = begin_copy(s, slot);
	if (result == 0 && len > 0)
		result = s->gpu->cuda->memcpy_dtoh_async(host, dev, len, s->stream);
	return finish_copy(s, slot, len, result, ticket, e);
}

int dr_gpu_copy_in(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len,
	uint64_t *ticket, struct dr_err *e)
{
	struct dr_gpu_copy *slot;
	unsigned result;
	int rc = may_copy(s, &slot, e);

	if (rc)
		return rc;
	result = begin_copy(s, slot);
	if (result == 0 && len > 0)
		result = s->gpu->cuda->memcpy_htod_async(dev, host, len, s->stream);
	return finish_copy(s, slot, len, result, ticket, e);
}

/* ---- completion ---- */

static void take_time(struct dr_gpu_stream *s, const struct dr_gpu_copy *slot)
{
	float ms = 0;

	s->stats.calls++;
	if (dr_gpu_enter(s->gpu, NULL) ||
		s->gpu->cuda->event_elapsed_time(&ms, slot->begin, slot->end) || ms < 0)
		return;
	s->timed_ns += (int64_t)((double)ms * 1e6);
	s->timed_bytes += slot->len;
	s->stats.timed++;
}

/* The oldest copy is done: count it, and the time it took. */
static void retire(struct dr_gpu_stream *s)
{
	const struct dr_gpu_copy *slot = &s->copy[++s->done % DR_GPU_COPIES_MAX];

	if (slot->begin)
		take_time(s, slot);
	s->stats.copies++;
	s->stats.bytes += slot->len;
}

static int reap_by_word(struct dr_gpu_stream *s, struct dr_err *e)
{
	unsigned result;
	uint64_t to = dr_gpu_word_look(s, &result);

	if (result)
		return sticks(s, result, "copying", e);
	while (s->done != to)
		retire(s);
	return 0;
}

static int reap(struct dr_gpu_stream *s, struct dr_err *e)
{
	const struct dr_cuda *c = s->gpu->cuda;
	unsigned result;
	int rc = 0;

	if (s->word.host)
		return reap_by_word(s, e);
	rc = dr_gpu_enter(s->gpu, e);
	if (rc)
		return rc;
	while (s->done != s->issued) {
		s->stats.calls++;
		result = c->event_query(s->copy[(s->done + 1) % DR_GPU_COPIES_MAX].end);
		if (result == DR_CUDA_NOT_READY)
			return 0;
		if (result)
			return sticks(s, result, "copying", e);
		retire(s);
	}
	return 0;
}

int dr_gpu_stream_done(struct dr_gpu_stream *s, uint64_t *done, struct dr_err *e)
{
	int rc = 0;

	if (s->failed)
		return broken(s, "copying", e);
	if (s->done != s->issued)
		rc = reap(s, e);
	if (rc)
		return rc;
	*done = s->done;
	return 0;
}

int dr_gpu_stream_wait(struct dr_gpu_stream *s, uint64_t ticket, struct dr_err *e)
{
	unsigned result;
	int rc;

	dr_assert(ticket <= s->issued);
	if (s->failed)
		return broken(s, "copying", e);
	if (ticket <= s->done)
		return 0;
	rc = dr_gpu_enter(s->gpu, e);
	if (rc)
		return rc;
	/* By words: for all that it was told, which is little more. */
	result = s->word.host
			 ? s->gpu->cuda->stream_synchronize(s->stream)
			 : s->gpu->cuda->event_synchronize(s->copy[ticket % DR_GPU_COPIES_MAX].end);
	if (result)
		return sticks(s, result, "copying", e);
	return reap(s, e);
}

void dr_gpu_stream_stats(const struct dr_gpu_stream *s, struct dr_gpu_stream_stats *out)
{
	*out = s->stats;
	if (s->timed_bytes > 0)
		out->busy_ns = (int64_t)((double)s->timed_ns / (double)s->timed_bytes *
					 (double)s->stats.bytes);
}

/* ---- what waits ---- */

int dr_gpu_stream_drain(struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	unsigned result = s->gpu->cuda->stream_synchronize(s->stream);

	return result ? sticks(s, result, what, e) : 0;
}

static int may_wait(struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	return s->failed ? broken(s, what, e) : dr_gpu_enter(s->gpu, e);
}

static int finish_wait(struct dr_gpu_stream *s, unsigned result, const char *what, struct dr_err *e)
{
	return result ? sticks(s, result, what, e) : dr_gpu_stream_drain(s, what, e);
}

int dr_gpu_read(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, struct dr_err *e)
{
	int rc = may_wait(s, "reading", e);

	if (rc || len == 0)
		return rc;
	return finish_wait(
		s, s->gpu->cuda->memcpy_dtoh_async(host, dev, len, s->stream), "reading", e);
}

int dr_gpu_write(
	struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len, struct dr_err *e)
{
	int rc = may_wait(s, "writing", e);

	if (rc || len == 0)
		return rc;
	return finish_wait(
		s, s->gpu->cuda->memcpy_htod_async(dev, host, len, s->stream), "writing", e);
}

int dr_gpu_set(struct dr_gpu_stream *s, uint64_t dev, uint8_t byte, size_t len, struct dr_err *e)
{
	int rc = may_wait(s, "setting", e);

	if (rc || len == 0)
		return rc;
	return finish_wait(
		s, s->gpu->cuda->memset_d8_async(dev, byte, len, s->stream), "setting", e);
}
