/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include "base/clock.h"

/*
 * A stream is a thread with a list. Its first piece of work is done when it has been the first for the
 * delay; events take no time. Nobody but the thread takes work from the list.
 */
enum { JUNK = 0xdb };

struct dr_fgpu_node *dr_fgpu_streams, *dr_fgpu_events;
static bool held;
static int64_t delay_ns;
static unsigned next_failure, n_pageable;

/* ---- the thread ---- */

static void run(const struct dr_fgpu_work *w)
{
	if (w->kind == DR_FGPU_COPY)
		memcpy(w->to, w->from, w->len);
	else if (w->kind == DR_FGPU_SET)
		memset(w->to, w->byte, w->len);
	else if (w->kind == DR_FGPU_FLAG && dr_fgpu_config.flags)
		__atomic_store_n((uint32_t *)(void *)w->to, w->value, __ATOMIC_RELEASE);
	else if (w->kind == DR_FGPU_KERNEL)
		w->fn->run(w);
}

/* Of the kinds that take time, and may fail. */
static bool is_labour(const struct dr_fgpu_work *w)
{
	return w->kind != DR_FGPU_EVENT && w->kind != DR_FGPU_FLAG;
}

static bool due(const struct CUstream_st *s, int64_t since_ns, int64_t *at_ns)
{
	*at_ns = DR_NEVER;
	if (!s->head || held)
		return false;
	*at_ns = DR_MAX(since_ns, s->head->issued_ns);
	if (is_labour(s->head))
		*at_ns += delay_ns;
	return dr_now_ns() >= *at_ns;
}

static void finish(struct CUstream_st *s, struct dr_fgpu_work *w)
{
	bool waited_for = !w->next || w->event;

	if (w->memory && --w->memory->users == 0)
		waited_for = true;
	if (w->source && --w->source->users == 0)
		waited_for = true;
	if (w->pinned && --w->pinned->users == 0)
		waited_for = true;
	if (w->event) {
		w->event->reached++;
		w->event->at_ns = dr_now_ns();
	}
	s->head = w->next;
	if (!s->head)
		s->tail = NULL;
	free(w);
	if (waited_for)
		dr_fgpu_changed();
}

static void do_head(struct CUstream_st *s)
{
	struct CUctx_st *ctx = s->node.ctx;
	struct dr_fgpu_work *w = s->head;

	if (is_labour(w) && next_failure) {
		ctx->failed = next_failure;
		next_failure = 0;
	}
	if (!ctx->failed) {
		dr_fgpu_unlock();
		run(w);
		dr_fgpu_lock();
	}
	finish(s, w);
}

static void *stream_thread(void *arg)
{
	struct CUstream_st *s = arg;
	int64_t since_ns = 0, at_ns;

	dr_fgpu_lock();
	while (!s->stop || s->head) {
		if (!due(s, since_ns, &at_ns)) {
			dr_fgpu_wait_on(&s->work, at_ns);
			continue;
		}
		do_head(s);
		since_ns = dr_now_ns();
	}
	dr_fgpu_unlock();
	return NULL;
}

/* ---- work ---- */

unsigned dr_fgpu_submit(struct CUstream_st *s, const struct dr_fgpu_work *w)
{
	struct dr_fgpu_work *copy = malloc(sizeof(*copy));

	if (!copy)
		return DR_CUDA_OUT_OF_MEMORY;
	*copy = *w;
	copy->next = NULL;
	copy->issued_ns = dr_now_ns();
	if (w->memory)
		w->memory->users++;
	if (w->source)
		w->source->users++;
	if (w->pinned)
		w->pinned->users++;
	/* Until it is done, the destination is nobody's; work before it may still need it. */
	if (w->kind == DR_FGPU_COPY && !s->head)
		memset(w->to, JUNK, w->len);
	if (s->tail) {
		s->tail->next = copy;
	} else {
		s->head = copy;
		pthread_cond_signal(&s->work);
	}
	s->tail = copy;
	return 0;
}

void dr_fgpu_drain(const struct CUstream_st *s)
{
	while (s->head)
		dr_fgpu_wait(DR_NEVER);
}

/* Of a call about a stream: it is there, and its context is current. */
static unsigned usable(const char *call, const struct dr_fgpu_node *list, const void *n,
	const struct CUctx_st *ctx)
{
	if (dr_fgpu_has(list, n) && ((const struct dr_fgpu_node *)n)->ctx == ctx)
		return 0;
	dr_fgpu_violation("%s of what is not there, or another context's", call);
	return DR_CUDA_INVALID_HANDLE;
}

static unsigned enter_stream(enum dr_fgpu_call c, const char *name, const struct CUstream_st *s)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(c, &ctx);

	return result ? result : usable(name, dr_fgpu_streams, s, ctx);
}

/* A copy between [dev, dev + len) and host memory, which the caller put into w as to or from. */
static unsigned copy(struct CUstream_st *s, struct dr_fgpu_work *w, unsigned long long dev,
	const void *host, size_t len)
{
	unsigned result;

	w->memory = dr_fgpu_memory_at(dev, len);
	w->pinned = dr_fgpu_pinned_at(host, len);
	w->kind = DR_FGPU_COPY;
	w->len = len;
	if (!w->memory) {
		dr_fgpu_violation("a copy of %#llx, %zu bytes, which is no memory", dev, len);
		return DR_CUDA_INVALID_VALUE;
	}
	if (w->from)
		w->to = w->memory->bytes + (dev - w->memory->dev);
	else
		w->from = w->memory->bytes + (dev - w->memory->dev);
	result = dr_fgpu_submit(s, w);
	if (result == 0 && !w->pinned) {
		n_pageable++;
		dr_fgpu_drain(s);
	}
	return result;
}

unsigned cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t len, struct CUstream_st *s)
{
	struct dr_fgpu_work w = { .to = to };
	unsigned result =
		enter_stream(DR_FGPU_CALL_cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2", s);

	return dr_fgpu_leave(result ? result : copy(s, &w, from, to, len));
}

unsigned cuMemcpyHtoDAsync_v2(
	unsigned long long to, const void *from, size_t len, struct CUstream_st *s)
{
	struct dr_fgpu_work w = { .from = from };
	unsigned result =
		enter_stream(DR_FGPU_CALL_cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync_v2", s);

	return dr_fgpu_leave(result ? result : copy(s, &w, to, from, len));
}

unsigned cuMemcpyDtoDAsync_v2(
	unsigned long long to, unsigned long long from, size_t len, struct CUstream_st *s)
{
	struct dr_fgpu_work w = { .kind = DR_FGPU_COPY, .len = len };
	unsigned result =
		enter_stream(DR_FGPU_CALL_cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync_v2", s);

	if (result)
		return dr_fgpu_leave(result);
	w.memory = dr_fgpu_memory_at(to, len);
	w.source = dr_fgpu_memory_at(from, len);
	if (!w.memory || !w.source) {
		dr_fgpu_violation(
			"a copy from %#llx to %#llx, %zu bytes, which is no memory", from, to, len);
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	}
	w.to = w.memory->bytes + (to - w.memory->dev);
	w.from = w.source->bytes + (from - w.source->dev);
	return dr_fgpu_leave(dr_fgpu_submit(s, &w));
}

unsigned cuMemsetD8Async(
	unsigned long long dev, unsigned char byte, size_t len, struct CUstream_st *s)
{
	struct dr_fgpu_work w = { .kind = DR_FGPU_SET, .byte = byte, .len = len };
	unsigned result = enter_stream(DR_FGPU_CALL_cuMemsetD8Async, "cuMemsetD8Async", s);

	if (result)
		return dr_fgpu_leave(result);
	w.memory = dr_fgpu_memory_at(dev, len);
	if (!w.memory)
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	w.to = w.memory->bytes + (dev - w.memory->dev);
	return dr_fgpu_leave(dr_fgpu_submit(s, &w));
}

/* ---- streams ---- */

unsigned cuStreamCreate(struct CUstream_st **out, unsigned flags)
{
	struct CUstream_st *s;
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuStreamCreate, &ctx);

	if (result == 0 && flags != DR_CUDA_STREAM_NON_BLOCKING) {
		dr_fgpu_violation("a stream that orders itself with the default one");
		result = DR_CUDA_INVALID_VALUE;
	}
	if (result)
		return dr_fgpu_leave(result);
	s = calloc(1, sizeof(*s));
	dr_assert(s != NULL);
	pthread_cond_init(&s->work, NULL);
	if (pthread_create(&s->thread, NULL, stream_thread, s)) {
		pthread_cond_destroy(&s->work);
		free(s);
		return dr_fgpu_leave(DR_CUDA_OUT_OF_MEMORY);
	}
	dr_fgpu_add(&dr_fgpu_streams, &s->node, ctx);
	*out = s;
	return dr_fgpu_leave(0);
}

void dr_fgpu_stream_free(struct CUstream_st *s)
{
	dr_fgpu_del(&dr_fgpu_streams, &s->node);
	s->stop = true;
	pthread_cond_signal(&s->work);
	dr_fgpu_unlock();
	pthread_join(s->thread, NULL);
	dr_fgpu_lock();
	pthread_cond_destroy(&s->work);
	free(s);
}

/* As the other calls that free: does it, whatever it returns. */
unsigned cuStreamDestroy_v2(struct CUstream_st *s)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuStreamDestroy_v2, &ctx);

	if (usable("cuStreamDestroy_v2", dr_fgpu_streams, s, ctx))
		return dr_fgpu_leave(DR_CUDA_INVALID_HANDLE);
	dr_fgpu_stream_free(s);
	return dr_fgpu_leave(result);
}

unsigned cuStreamSynchronize(struct CUstream_st *s)
{
	unsigned result = enter_stream(DR_FGPU_CALL_cuStreamSynchronize, "cuStreamSynchronize", s);

	if (result)
		return dr_fgpu_leave(result);
	dr_fgpu_drain(s);
	return dr_fgpu_leave(s->node.ctx->failed);
}

unsigned cuStreamQuery(struct CUstream_st *s)
{
	unsigned result = enter_stream(DR_FGPU_CALL_cuStreamQuery, "cuStreamQuery", s);

	if (result == 0 && s->head)
		result = DR_CUDA_NOT_READY;
	return dr_fgpu_leave(result);
}

/* To pinned memory alone; whose address is the same for the GPU. */
unsigned cuStreamWriteValue32_v2(
	struct CUstream_st *s, unsigned long long dev, uint32_t value, unsigned flags)
{
	struct dr_fgpu_work w = { .kind = DR_FGPU_FLAG, .value = value };
	unsigned result =
		enter_stream(DR_FGPU_CALL_cuStreamWriteValue32_v2, "cuStreamWriteValue32_v2", s);

	if (result == 0 && dr_fgpu_config.version < 11070)
		result = DR_CUDA_NOT_SUPPORTED;
	if (result)
		return dr_fgpu_leave(result);
	w.to = (unsigned char *)(uintptr_t)dev;
	w.pinned = dr_fgpu_pinned_at(w.to, sizeof(value));
	if (flags || !w.pinned || dev % sizeof(value)) {
		dr_fgpu_violation("cuStreamWriteValue32_v2 to %#llx", dev);
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	}
	return dr_fgpu_leave(dr_fgpu_submit(s, &w));
}

/* ---- events ---- */

static unsigned enter_event(enum dr_fgpu_call c, const char *name, const struct CUevent_st *ev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(c, &ctx);

	return result ? result : usable(name, dr_fgpu_events, ev, ctx);
}

unsigned cuEventCreate(struct CUevent_st **out, unsigned flags)
{
	struct CUevent_st *ev;
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuEventCreate, &ctx);

	if (result == 0 && flags & ~(unsigned)DR_CUDA_EVENT_DISABLE_TIMING)
		result = DR_CUDA_INVALID_VALUE;
	if (result)
		return dr_fgpu_leave(result);
	ev = calloc(1, sizeof(*ev));
	dr_assert(ev != NULL);
	ev->timed = !flags;
	dr_fgpu_add(&dr_fgpu_events, &ev->node, ctx);
	*out = ev;
	return dr_fgpu_leave(0);
}

unsigned cuEventDestroy_v2(struct CUevent_st *ev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuEventDestroy_v2, &ctx);

	if (usable("cuEventDestroy_v2", dr_fgpu_events, ev, ctx))
		return dr_fgpu_leave(DR_CUDA_INVALID_HANDLE);
	while (ev->reached != ev->recorded)
		dr_fgpu_wait(DR_NEVER);
	dr_fgpu_del(&dr_fgpu_events, &ev->node);
	free(ev);
	return dr_fgpu_leave(result);
}

unsigned cuEventRecord(struct CUevent_st *ev, struct CUstream_st *s)
{
	struct dr_fgpu_work w = { .kind = DR_FGPU_EVENT, .event = ev };
	unsigned result = enter_event(DR_FGPU_CALL_cuEventRecord, "cuEventRecord", ev);

	if (result == 0)
		result = usable("cuEventRecord", dr_fgpu_streams, s, ev->node.ctx);
	if (result == 0)
		result = dr_fgpu_submit(s, &w);
	if (result == 0)
		ev->recorded++;
	return dr_fgpu_leave(result);
}

unsigned cuEventQuery(struct CUevent_st *ev)
{
	unsigned result = enter_event(DR_FGPU_CALL_cuEventQuery, "cuEventQuery", ev);

	if (result == 0 && ev->reached != ev->recorded)
		result = DR_CUDA_NOT_READY;
	return dr_fgpu_leave(result);
}

unsigned cuEventSynchronize(struct CUevent_st *ev)
{
	unsigned result = enter_event(DR_FGPU_CALL_cuEventSynchronize, "cuEventSynchronize", ev);

	if (result)
		return dr_fgpu_leave(result);
	while (ev->reached != ev->recorded)
		dr_fgpu_wait(DR_NEVER);
	return dr_fgpu_leave(ev->node.ctx->failed);
}

unsigned cuEventElapsedTime(float *ms, struct CUevent_st *from, struct CUevent_st *to)
{
	unsigned result = enter_event(DR_FGPU_CALL_cuEventElapsedTime, "cuEventElapsedTime", from);

	if (result == 0)
		result = usable("cuEventElapsedTime", dr_fgpu_events, to, from->node.ctx);
	if (result == 0 && (from->recorded == 0 || to->recorded == 0 || !from->timed || !to->timed))
		result = DR_CUDA_INVALID_HANDLE;
	if (result == 0 && (from->reached != from->recorded || to->reached != to->recorded))
		result = DR_CUDA_NOT_READY;
	if (result == 0)
		*ms = (float)(to->at_ns - from->at_ns) / 1e6F;
	return dr_fgpu_leave(result);
}

/* ---- what tests order ---- */

/* The first piece of work of each stream may be due now. */
static void wake_streams(void)
{
	for (struct dr_fgpu_node *n = dr_fgpu_streams; n; n = n->next)
		pthread_cond_signal(&((struct CUstream_st *)n)->work);
}

void dr_fgpu_hold(bool on)
{
	dr_fgpu_lock();
	held = on;
	wake_streams();
	dr_fgpu_unlock();
}

/* Locked. */
void dr_fgpu_delay(int64_t ns)
{
	delay_ns = ns;
	wake_streams();
}

void dr_fgpu_fail_work(unsigned result)
{
	dr_fgpu_lock();
	next_failure = result;
	dr_fgpu_unlock();
}

void dr_fgpu_streams_reset(void)
{
	next_failure = 0;
	n_pageable = 0;
}

unsigned dr_fgpu_pageable(void)
{
	return n_pageable;
}
