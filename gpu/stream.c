/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Copies on a stream.
 *
 * 1. done <= issued <= done + DR_GPU_COPIES_MAX. The outstanding copies are in the ring's slots, in the order in
 *    which the GPU executes them, so only the oldest is ever tested.
 * 2. Completion is detected by the completion flag (below), else by an event behind each copy. The first and
 *    every DR_GPU_TIME_EVERY-th copy has an event before and behind it: the GPU reaches the first when all
 *    earlier work is done, so the difference is the time of this copy alone. The total time is extrapolated
 *    from the timed copies by bytes.
 * 3. An error is permanent, as in the driver: every later call returns it.
 * 4. A slot's events are created at its first use and destroyed with the stream.
 */

static int broken(const struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	return dr_cuda_fail(s->gpu->cuda, s->failed, e, "%s on GPU %u", what, s->gpu->info.ordinal);
}

static int fail(struct dr_gpu_stream *s, unsigned result, const char *what, struct dr_err *e)
{
	s->failed = result;
	return broken(s, what, e);
}

/* May the stream be used? Makes its context current. */
static int enter(struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	return s->failed ? broken(s, what, e) : dr_gpu_use(s->gpu, e);
}

/* ---- completion flag ---- */

/*
 * Completion flag: the stream writes the ticket of each copy to pinned memory. Polling is then a load, and a copy
 * needs one driver call besides its own. cuStreamWriteValue32 puts a system-wide barrier before its write, so
 * whoever sees the ticket sees the copied bytes. (CUDA driver API, "Stream Memory Operations": version 2 of these
 * calls, since CUDA 11.7, works on every platform; version 1 needed an option of the kernel module.)
 *
 * Each new stream tests the flag once and uses events where the write does not become visible.
 *
 * A failed stream writes no more, so the driver is asked after POLLS_MAX polls without progress.
 */
enum { FLAG_BYTES = 64, POLLS_MAX = 2048, TEST_VALUE = 0x6472 };

static bool wanted(const struct dr_cuda *c)
{
	const char *how = getenv("DR_GPU_COMPLETION");

	return c->stream_write_value32 && !(how && strcmp(how, "events") == 0);
}

/* Has the stream write TEST_VALUE. Returns the reason when that cannot be started. An error of the stream itself
 * shows up again in every later call. */
static const char *start_test(struct dr_gpu_stream *s, void *host, unsigned *result)
{
	const struct dr_cuda *c = s->gpu->cuda;
	unsigned long long dev = 0;

	*result = c->mem_host_get_device_pointer(&dev, host, 0);
	if (*result)
		return "pinned memory has no address on the GPU";
	s->flag.dev = dev;
	*result = c->stream_write_value32(s->stream, dev, TEST_VALUE, 0);
	return *result ? "the driver does not write completion flags" : NULL;
}

/* The stream is idle or destroyed. */
static void flag_fini(struct dr_gpu_stream *s)
{
	dr_gpu_host_free(s->gpu, s->flag.host);
	s->flag.host = NULL;
}

/* Leaves s->flag.host NULL where the driver cannot write flags or the environment has DR_GPU_COMPLETION=events. */
static int flag_init(struct dr_gpu_stream *s, struct dr_err *e)
{
	void *host = NULL;
	unsigned result;

	if (!wanted(s->gpu->cuda))
		return 0;
	int rc = dr_gpu_host_alloc(s->gpu, FLAG_BYTES, &host, e);
	if (rc)
		return rc;
	s->flag.host = host;
	const char *why = start_test(s, host, &result);
	rc = dr_gpu_stream_drain(s, "testing the completion flag", e);
	if (rc) /* the caller destroys the stream, which may still write, before the flag */
		return rc;
	if (!why && atomic_load_explicit(s->flag.host, memory_order_acquire) != TEST_VALUE)
		why = "a completion flag that the stream wrote is not visible";
	if (!why) {
		atomic_store_explicit(s->flag.host, 0, memory_order_relaxed);
		return 0;
	}
	flag_fini(s);
	dr_info("gpu", "GPU %u: %s (CUDA result %u); using events to detect finished copies",
		s->gpu->info.ordinal, why, result);
	return 0;
}

/* Queue the write of ticket behind everything queued so far. */
static unsigned flag_mark(struct dr_gpu_stream *s, uint64_t ticket)
{
	return s->gpu->cuda->stream_write_value32(s->stream, s->flag.dev, (uint32_t)ticket, 0);
}

static unsigned query_stream(struct dr_gpu_stream *s)
{
	s->flag.idle = 0;
	s->stats.calls++;
	(void)dr_gpu_use(s->gpu, NULL); /* the query reports the same error */
	unsigned result = s->gpu->cuda->stream_query(s->stream);
	return result == DR_CUDA_NOT_READY ? 0 : result;
}

/* The last finished ticket. *result: the driver's error, asked for only after many polls without progress. */
static uint64_t flag_poll(struct dr_gpu_stream *s, unsigned *result)
{
	uint32_t seen = atomic_load_explicit(s->flag.host, memory_order_acquire);
	uint32_t more = seen - (uint32_t)s->done; /* modulo 2^32: at most DR_GPU_COPIES_MAX */

	dr_dassert(more <= s->issued - s->done);
	s->flag.idle = more > 0 ? 0 : s->flag.idle + 1;
	*result = s->flag.idle == POLLS_MAX ? query_stream(s) : 0;
	return s->done + more;
}

/* ---- create and destroy ---- */

int dr_gpu_stream_create(struct dr_gpu *g, struct dr_gpu_stream **out, struct dr_err *e)
{
	int rc = dr_gpu_use(g, e);

	if (rc)
		return rc;
	struct dr_gpu_stream *s = dr_calloc(1, sizeof(*s));
	if (!s)
		return dr_err_set(
			e, -ENOMEM, "create a stream on GPU %u: out of memory", g->info.ordinal);
	s->gpu = g;
	unsigned result = g->cuda->stream_create(&s->stream, DR_CUDA_STREAM_NON_BLOCKING);
	if (result) {
		dr_free(s);
		return dr_cuda_fail(
			g->cuda, result, e, "create a stream on GPU %u", g->info.ordinal);
	}
	rc = dr_gpu_pattern_init(s, e);
	if (rc == 0)
		rc = flag_init(s, e);
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
	if (!s)
		return;
	const struct dr_cuda *c = s->gpu->cuda;
	(void)dr_gpu_use(s->gpu, NULL);
	(void)c->stream_synchronize(s->stream);
	destroy_events(s);
	dr_gpu_note(s->gpu, "destroy a stream", c->stream_destroy(s->stream));
	dr_gpu_pattern_fini(s);
	dr_gpu_unpack_fini(s);
	flag_fini(s);
	dr_free(s);
}

/* ---- copies ---- */

static bool is_timed(uint64_t ticket)
{
	return ticket % DR_GPU_TIME_EVERY == 1;
}

/* Create the events that the slot of the next copy needs. */
static unsigned create_events(struct dr_gpu_stream *s, struct dr_gpu_copy *slot)
{
	const struct dr_cuda *c = s->gpu->cuda;
	bool timed = is_timed(s->issued + 1);
	unsigned result = 0;

	if (timed && !slot->begin)
		result = c->event_create(&slot->begin, 0);
	if (result == 0 && (timed || !s->flag.host) && !slot->end)
		result = c->event_create(&slot->end, timed ? 0 : DR_CUDA_EVENT_DISABLE_TIMING);
	return result;
}

/* Either host_to or host_from is NULL. */
struct transfer {
	uint64_t dev;
	void *host_to;
	const void *host_from;
	size_t len;
};

static unsigned start_transfer(struct dr_gpu_stream *s, const void *arg)
{
	const struct dr_cuda *c = s->gpu->cuda;
	const struct transfer *t = arg;

	if (t->len == 0)
		return 0;
	s->stats.calls++;
	return t->host_to ? c->memcpy_dtoh_async(t->host_to, t->dev, t->len, s->stream)
			  : c->memcpy_htod_async(t->dev, t->host_from, t->len, s->stream);
}

/* The task between its events and before its flag. One that may be running and whose end cannot be detected breaks the
 * stream. */
static unsigned start_task(
	struct dr_gpu_stream *s, const struct dr_gpu_copy *slot, const struct dr_gpu_task *t)
{
	const struct dr_cuda *c = s->gpu->cuda;
	unsigned result = 0;

	s->stats.calls += (slot->begin != NULL) + (slot->end != NULL) + (s->flag.host != NULL);
	if (slot->begin)
		result = c->event_record(slot->begin, s->stream);
	if (result == 0)
		result = t->start(s, t->arg);
	if (result == 0 && slot->end)
		result = c->event_record(slot->end, s->stream);
	if (result == 0 && s->flag.host)
		result = flag_mark(s, s->issued + 1);
	return result;
}

int dr_gpu_stream_submit(
	struct dr_gpu_stream *s, const struct dr_gpu_task *t, uint64_t *ticket, struct dr_err *e)
{
	struct dr_gpu_copy *slot = &s->copy[(s->issued + 1) % DR_GPU_COPIES_MAX];

	if (dr_gpu_stream_full(s))
		return -EAGAIN;
	int rc = enter(s, t->what, e);
	if (rc)
		return rc;
	unsigned result = create_events(s, slot);
	if (result)
		return dr_cuda_fail(
			s->gpu->cuda, result, e, "create an event on GPU %u", s->gpu->info.ordinal);
	result = start_task(s, slot, t);
	if (result)
		return fail(s, result, t->what, e);
	slot->len = t->len;
	*ticket = ++s->issued;
	return 0;
}

static int copy(
	struct dr_gpu_stream *s, const struct transfer *t, uint64_t *ticket, struct dr_err *e)
{
	struct dr_gpu_task task = { start_transfer, t, t->len, "copying" };

	return dr_gpu_stream_submit(s, &task, ticket, e);
}

int dr_gpu_copy_out(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, uint64_t *ticket,
	struct dr_err *e)
{
	return copy(s, &(struct transfer){ .dev = dev, .host_to = host, .len = len }, ticket, e);
}

int dr_gpu_copy_in(struct dr_gpu_stream *s, uint64_t dev, const void *host, size_t len,
	uint64_t *ticket, struct dr_err *e)
{
	return copy(s, &(struct transfer){ .dev = dev, .host_from = host, .len = len }, ticket, e);
}

/* ---- completion ---- */

static void take_time(struct dr_gpu_stream *s, const struct dr_gpu_copy *slot)
{
	float ms = 0;

	s->stats.calls++;
	if (dr_gpu_use(s->gpu, NULL) ||
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

static int reap_by_flag(struct dr_gpu_stream *s, struct dr_err *e)
{
	unsigned result;
	uint64_t to = flag_poll(s, &result);

	if (result)
		return fail(s, result, "copying", e);
	while (s->done != to)
		retire(s);
	return 0;
}

static int reap(struct dr_gpu_stream *s, struct dr_err *e)
{
	const struct dr_cuda *c = s->gpu->cuda;
	int rc = 0;

	if (s->flag.host)
		return reap_by_flag(s, e);
	rc = dr_gpu_use(s->gpu, e);
	if (rc)
		return rc;
	while (s->done != s->issued) {
		s->stats.calls++;
		unsigned result = c->event_query(s->copy[(s->done + 1) % DR_GPU_COPIES_MAX].end);
		if (result == DR_CUDA_NOT_READY)
			return 0;
		if (result)
			return fail(s, result, "copying", e);
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

uint64_t dr_gpu_stream_issued(const struct dr_gpu_stream *s)
{
	return s->issued;
}

int dr_gpu_stream_wait(struct dr_gpu_stream *s, uint64_t ticket, struct dr_err *e)
{
	dr_assert(ticket <= s->issued);
	if (!s->failed && ticket <= s->done)
		return 0;
	int rc = enter(s, "copying", e);
	if (rc)
		return rc;
	/* With a flag there is no event to wait for: wait for everything queued, which is little more. */
	unsigned result = s->flag.host ? s->gpu->cuda->stream_synchronize(s->stream)
				       : s->gpu->cuda->event_synchronize(
						 s->copy[ticket % DR_GPU_COPIES_MAX].end);
	if (result)
		return fail(s, result, "copying", e);
	return reap(s, e);
}

void dr_gpu_stream_stats(const struct dr_gpu_stream *s, struct dr_gpu_stream_stats *out)
{
	*out = s->stats;
	if (s->timed_bytes > 0)
		out->busy_ns = (int64_t)((double)s->timed_ns / (double)s->timed_bytes *
					 (double)s->stats.bytes);
}

/* ---- synchronous ---- */

int dr_gpu_stream_drain(struct dr_gpu_stream *s, const char *what, struct dr_err *e)
{
	unsigned result = s->gpu->cuda->stream_synchronize(s->stream);

	return result ? fail(s, result, what, e) : 0;
}

int dr_gpu_read(struct dr_gpu_stream *s, void *host, uint64_t dev, size_t len, struct dr_err *e)
{
	struct transfer t = { .dev = dev, .host_to = host, .len = len };
	int rc = enter(s, "reading", e);

	if (rc || len == 0)
		return rc;
	unsigned result = start_transfer(s, &t);
	return result ? fail(s, result, "reading", e) : dr_gpu_stream_drain(s, "reading", e);
}

int dr_gpu_set(struct dr_gpu_stream *s, uint64_t dev, uint8_t byte, size_t len, struct dr_err *e)
{
	int rc = enter(s, "setting", e);

	if (rc || len == 0)
		return rc;
	unsigned result = s->gpu->cuda->memset_d8_async(dev, byte, len, s->stream);
	return result ? fail(s, result, "setting", e) : dr_gpu_stream_drain(s, "setting", e);
}
