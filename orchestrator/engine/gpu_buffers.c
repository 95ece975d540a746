/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/engine/gpu_buffers.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/engine/rail_cuda.h"
#include "transport/kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Independent streams: copies out, copies in, the pattern, and unpacking where rails do that (rail_cuda.c). A buffer is filled
 * before its chunk is posted and checked after it was delivered, when no copy accesses it, so the streams need no mutual order.
 */
struct dr_gpu_buffers {
	struct dr_gpu_buffers_params prm;
	struct dr_gpu *gpu;
	/* A stream that had an error is destroyed, which waits for what it was told, and is NULL then. */
	struct dr_gpu_stream *copy[DR_GPU_UNPACKED]; /* by enum dr_stage_way */
	struct dr_gpu_stream *work;
	struct dr_gpu_stream_stats past[DR_GPU_UNPACKED]; /* of copy[], when it is NULL */
	union dr_kind_params params;			  /* of a kind that takes the GPU */
	struct dr_rail_cuda rails;			  /* ... and what its rails use */
	struct dr_staged *staged;
	struct dr_staged_rail_params rail; /* what the manager's kind_params point to */
	bool wants_dmabuf;		   /* the transport may register memory by it */
	uint8_t *readback; /* host memory for a chunk that is wrong, made when needed */
	size_t readback_len;
	unsigned rings; /* reserved: one a channel whose memory is staged */
	bool keep;	/* see dr_gpu_buffers_keep */
};

static uint64_t address(const void *dev)
{
	return (uintptr_t)dev;
}

static int no_stream(const struct dr_gpu_buffers *b, struct dr_err *e)
{
	return dr_err_set(e, -EIO, "GPU %u has failed earlier", b->prm.ordinal);
}

/* Operations of the failed stream may still be running. */
static void end_stream(struct dr_gpu_stream **s)
{
	dr_gpu_stream_destroy(*s);
	*s = NULL;
}

/* ---- copies for staged paths ---- */

static int stage_alloc(void *arg, size_t len, void **out, struct dr_err *e)
{
	struct dr_gpu_buffers *b = arg;

	return dr_gpu_host_alloc(b->gpu, len, out, e);
}

static void stage_release(void *arg, void *mem, size_t len)
{
	struct dr_gpu_buffers *b = arg;

	(void)len;
	dr_gpu_host_free(b->gpu, mem);
}

static int stage_start(
	void *arg, const struct dr_stage_span *what, uint64_t *ticket, struct dr_err *e)
{
	struct dr_gpu_buffers *b = arg;
	struct dr_gpu_stream *s = b->copy[what->way];
	uint64_t dev = address(what->dev);

	if (!s)
		return no_stream(b, e);
	if (what->way == DR_STAGE_OUT)
		return dr_gpu_copy_out(s, what->host, dev, what->len, ticket, e);
	return dr_gpu_copy_in(s, dev, what->host, what->len, ticket, e);
}

static int stage_done(void *arg, enum dr_stage_way way, uint64_t *ticket, struct dr_err *e)
{
	struct dr_gpu_buffers *b = arg;

	return b->copy[way] ? dr_gpu_stream_done(b->copy[way], ticket, e) : no_stream(b, e);
}

static void stage_wait(void *arg, enum dr_stage_way way, uint64_t ticket)
{
	struct dr_gpu_buffers *b = arg;

	if (b->copy[way] == NULL || dr_gpu_stream_wait(b->copy[way], ticket, NULL) == 0)
		return;
	dr_gpu_stream_stats(b->copy[way], &b->past[way]);
	end_stream(&b->copy[way]);
}

static const struct dr_stage_ops stage_ops = { stage_alloc, stage_release, stage_start, stage_done,
	stage_wait };

/* The kind's params with the GPU in them. */
static void give_gpu(
	struct dr_gpu_buffers *b, const struct dr_transport_kind *kind, const void **params)
{
	struct dr_rail_gpu gpu = dr_rail_cuda_init(&b->rails, b->gpu);

	dr_assert(kind->params_size <= sizeof(b->params) && *params);
	memcpy(&b->params, *params, kind->params_size);
	kind->gpu(&b->params, &gpu);
	*params = &b->params;
}

/* ---- life ---- */

int dr_gpu_buffers_open(
	const struct dr_gpu_buffers_params *p, struct dr_gpu_buffers **out, struct dr_err *e)
{
	struct dr_gpu_buffers *b = dr_calloc(1, sizeof(*b));

	if (!b)
		return dr_err_set(e, -ENOMEM, "GPU %u: out of memory", p->ordinal);
	b->prm = *p;
	int rc = dr_gpu_open(p->ordinal, &b->gpu, e);
	for (int way = 0; way < 2 && rc == 0; way++)
		rc = dr_gpu_stream_create(b->gpu, &b->copy[way], e);
	if (rc == 0)
		rc = dr_gpu_stream_create(b->gpu, &b->work, e);
	if (rc) {
		dr_gpu_buffers_close(b);
		return rc;
	}
	*out = b;
	return 0;
}

void dr_gpu_buffers_close(struct dr_gpu_buffers *b)
{
	bool keep;

	if (!b)
		return;
	keep = b->keep || (b->staged && dr_staged_kept(b->staged) > 0);
	dr_staged_destroy(b->staged);
	dr_gpu_stream_destroy(b->work);
	for (int way = 0; way < DR_GPU_UNPACKED; way++)
		dr_gpu_stream_destroy(b->copy[way]);
	dr_rail_cuda_fini(&b->rails);
	if (keep)
		dr_gpu_abandon(b->gpu);
	else
		dr_gpu_close(b->gpu);
	dr_free(b->readback);
	dr_free(b);
}

void dr_gpu_buffers_keep(struct dr_gpu_buffers *b)
{
	b->keep = true;
}

int dr_gpu_buffers_wrap(struct dr_gpu_buffers *b, struct dr_manager_params *m, struct dr_err *e)
{
	const struct dr_transport_kind *kind = dr_transport_kind(m->transport->name);
	struct dr_staged_params sp = { .inner = m->transport,
		.copy = &stage_ops,
		.arg = b,
		.how = kind ? kind->memory : NULL,
		.ring_bytes = b->prm.ring_bytes };
	int rc = dr_staged_create(&sp, &b->staged, e);

	if (rc)
		return rc;
	if (kind && kind->gpu)
		give_gpu(b, kind, &m->kind_params);
	b->wants_dmabuf = (m->transport->caps & DR_CAP_REMOTE_WRITE) || (kind && kind->gpu);
	b->rail = (struct dr_staged_rail_params){ b->staged, m->kind_params };
	m->transport = dr_staged_ops(b->staged);
	m->kind_params = &b->rail;
	return 0;
}

/* ---- buffers ---- */

struct dr_gpu *dr_gpu_buffers_gpu(const struct dr_gpu_buffers *b)
{
	return b->gpu;
}

static void export_dmabuf(
	struct dr_gpu_buffers *b, const struct dr_gpu_memory *buf, struct dr_memory *m)
{
	struct dr_err why;

	if (!b->wants_dmabuf || !dr_gpu_info(b->gpu)->dmabuf)
		return;
	if (dr_gpu_dmabuf(b->gpu, buf, &m->dmabuf_fd, &why) == 0)
		m->dmabuf = true;
	else
		dr_info("gpu", "no dma-buf: %s", why.text);
}

int dr_gpu_buffers_register(struct dr_gpu_buffers *b, const struct dr_gpu_memory *buf,
	struct dr_channel *ch, struct dr_mem *out, struct dr_err *e)
{
	struct dr_memory m = { .base = (void *)(uintptr_t)buf->dev,
		.len = buf->len,
		.kind = DR_MEMORY_CUDA,
		.ordered = dr_gpu_info(b->gpu)->ordered };
	struct dr_staged_choice before, after;
	struct dr_err why;

	dr_staged_choice(b->staged, &before);
	export_dmabuf(b, buf, &m);
	int rc = dr_channel_mem_reg(ch, &m, out, e);
	if (m.dmabuf)
		close(m.dmabuf_fd);
	dr_staged_choice(b->staged, &after);
	/* Reserved here, not during a transfer, so that lack of memory is reported before the run starts. */
	if (rc == 0 && after.staged > before.staged) {
		rc = dr_staged_reserve(b->staged, b->rings + 1, e);
		if (rc == 0)
			b->rings++;
		else if (dr_channel_mem_dereg(ch, out, dr_now_ns(), &why) != 0)
			dr_warn("gpu", "%s", why.text); /* nothing was posted in it */
	}
	return rc;
}

/* ---- the pattern ---- */

int dr_gpu_buffers_fill(
	struct dr_gpu_buffers *b, uint8_t *at, size_t len, uint64_t base, struct dr_err *e)
{
	int rc =
		b->work ? dr_gpu_pattern_fill(b->work, address(at), len, base, e) : no_stream(b, e);

	if (rc)
		end_stream(&b->work);
	return rc;
}

static int read_back(struct dr_gpu_buffers *b, const uint8_t *at, size_t len, struct dr_err *e)
{
	if (len > b->readback_len) {
		dr_free(b->readback);
		b->readback = dr_calloc(1, len);
		b->readback_len = b->readback ? len : 0;
	}
	if (len > 0 && !b->readback)
		return dr_err_set(e, -ENOMEM, "no memory to read back a chunk of %zu bytes", len);
	return dr_gpu_read(b->work, b->readback, address(at), len, e);
}

int dr_gpu_buffers_check(struct dr_gpu_buffers *b, struct dr_integrity *v, const struct dr_chunk *c,
	struct dr_err *e)
{
	struct dr_chunk copy = *c;
	uint64_t seq = v->next, off = 0;

	if (!b->work)
		return no_stream(b, e);
	int rc = dr_gpu_pattern_check(
		b->work, address(c->at), c->len, dr_integrity_base(v, seq), &off, e);
	if (rc == 0 && c->len == c->expected) {
		dr_integrity_good(v);
		return 0;
	}
	if (rc >= 0)
		rc = read_back(b, c->at, c->len, e);
	if (rc < 0) {
		end_stream(&b->work);
		return rc;
	}
	copy.at = b->readback;
	rc = dr_integrity_check(v, &copy);
	if (rc)
		return rc;
	v->corrupted++;
	v->wrong_bytes++; /* at least */
	snprintf(v->text, sizeof(v->text),
		"gpu %u channel %u seq %llu: the GPU finds a wrong byte at offset %llu, but a copy of the "
		"chunk in host memory is correct",
		v->gpu, v->channel, (unsigned long long)seq, (unsigned long long)off);
	return 1;
}

const struct dr_err *dr_gpu_buffers_error(const struct dr_gpu_buffers *b)
{
	return dr_staged_error(b->staged);
}

/* ---- for the result ---- */

void dr_gpu_buffers_copies(const struct dr_gpu_buffers *b, struct dr_gpu_buffers_copies *out)
{
	for (int way = 0; way < DR_GPU_UNPACKED; way++) {
		out->way[way] = b->past[way];
		if (b->copy[way])
			dr_gpu_stream_stats(b->copy[way], &out->way[way]);
	}
	dr_rail_cuda_stats(&b->rails, &out->way[DR_GPU_UNPACKED]);
}

void dr_gpu_buffers_copies_add(
	struct dr_gpu_buffers_copies *c, const struct dr_gpu_buffers_copies *more, int sign)
{
	for (int way = 0; way < DR_GPU_WAYS; way++) {
		struct dr_gpu_stream_stats *to = &c->way[way];
		const struct dr_gpu_stream_stats *from = &more->way[way];

		/* Unsigned members wrap around. */
		to->bytes += (uint64_t)sign * from->bytes;
		to->busy_ns += sign * from->busy_ns;
		to->copies += (uint64_t)sign * from->copies;
		to->timed += (uint64_t)sign * from->timed;
		to->calls += (uint64_t)sign * from->calls;
	}
}

void dr_gpu_buffers_method(const struct dr_gpu_buffers *b, struct dr_staged_choice *out)
{
	dr_staged_choice(b->staged, out);
}
