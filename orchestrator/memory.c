/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/kinds.h"
#include "orchestrator/memory.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "orchestrator/worker.h"
#include "transport/staged/staged.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Three streams, so that nothing waits for what it does not need: copies out, copies in, and the
 * pattern. A buffer is filled before its chunk is posted and checked after it was delivered, when no
 * copy touches it; so the streams need no order among themselves.
 */
struct dr_bank {
	struct dr_bank_params prm;
	struct dr_gpu *gpu;
	/* A stream that had an error is destroyed, which waits for what it was told, and is NULL then. */
	struct dr_gpu_stream *copy[2]; /* by enum dr_stage_way */
	struct dr_gpu_stream *work;
	struct dr_gpu_stream_stats past[2]; /* of copy[], when it is NULL */
	struct dr_staged *staged;
	struct dr_staged_rail_params rail; /* what the manager's kind_params point to */
	bool remote_write;		   /* the transport is worth a dma-buf */
	uint8_t *readback; /* host memory for a chunk that is wrong, made when needed */
	size_t readback_len;
	unsigned rings; /* reserved: one a channel whose memory is staged */
};

static uint64_t address(const void *dev)
{
	return (uintptr_t)dev;
}

static int no_stream(const struct dr_bank *b, struct dr_err *e)
{
	return dr_err_set(e, -EIO, "GPU %u failed before", b->prm.ordinal);
}

/* Whatever failed may be under way still. */
static void end_stream(struct dr_gpu_stream **s)
{
	dr_gpu_stream_destroy(*s);
	*s = NULL;
}

/* ---- copies for staged paths ---- */

static int stage_alloc(void *arg, size_t len, void **out, struct dr_err *e)
{
	struct dr_bank *b = arg;

	return dr_gpu_host_alloc(b->gpu, len, out, e);
}

static void stage_release(void *arg, void *mem, size_t len)
{
	struct dr_bank *b = arg;

	(void)len;
	dr_gpu_host_free(b->gpu, mem);
}

static int stage_start(void *arg, enum dr_stage_way way, void *dev, void *host, size_t len,
	uint64_t *ticket, struct dr_err *e)
{
	struct dr_bank *b = arg;

	if (!b->copy[way])
		return no_stream(b, e);
	if (way == DR_STAGE_OUT)
		return dr_gpu_copy_out(b->copy[way], host, address(dev), len, ticket, e);
	return dr_gpu_copy_in(b->copy[way], address(dev), host, len, ticket, e);
}

static int stage_done(void *arg, enum dr_stage_way way, uint64_t *ticket, struct dr_err *e)
{
	struct dr_bank *b = arg;

	return b->copy[way] ? dr_gpu_stream_done(b->copy[way], ticket, e) : no_stream(b, e);
}

static void stage_wait(void *arg, enum dr_stage_way way, uint64_t ticket)
{
	struct dr_bank *b = arg;

	if (b->copy[way] == NULL || dr_gpu_stream_wait(b->copy[way], ticket, NULL) == 0)
		return;
	dr_gpu_stream_stats(b->copy[way], &b->past[way]);
	end_stream(&b->copy[way]);
}

static const struct dr_stage_ops stage_ops = { stage_alloc, stage_release, stage_start, stage_done,
	stage_wait };

/* ---- life ---- */

int dr_bank_open(const struct dr_bank_params *p, struct dr_bank **out, struct dr_err *e)
{
	struct dr_bank *b = dr_calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return dr_err_set(e, -ENOMEM, "GPU %u: out of memory", p->ordinal);
	b->prm = *p;
	rc = dr_gpu_open(p->ordinal, &b->gpu, e);
	for (int way = 0; way < 2 && rc == 0; way++)
		rc = dr_gpu_stream_create(b->gpu, &b->copy[way], e);
	if (rc == 0)
		rc = dr_gpu_stream_create(b->gpu, &b->work, e);
	if (rc) {
		dr_bank_close(b);
		return rc;
	}
	*out = b;
	return 0;
}

void dr_bank_close(struct dr_bank *b)
{
	if (!b)
		return;
	dr_staged_destroy(b->staged);
	dr_gpu_stream_destroy(b->work);
	for (int way = 0; way < 2; way++)
		dr_gpu_stream_destroy(b->copy[way]);
	dr_gpu_close(b->gpu);
	dr_free(b->readback);
	dr_free(b);
}

int dr_bank_wrap(struct dr_bank *b, struct dr_manager_params *m, struct dr_err *e)
{
	struct dr_staged_params sp = { .inner = m->transport,
		.copy = &stage_ops,
		.arg = b,
		.how = dr_kind_memory_words(m->transport),
		.ring_bytes = b->prm.ring_bytes };
	int rc = dr_staged_create(&sp, &b->staged, e);

	if (rc)
		return rc;
	b->remote_write = m->transport->caps & DR_CAP_REMOTE_WRITE;
	b->rail = (struct dr_staged_rail_params){ b->staged, m->kind_params };
	m->transport = dr_staged_ops(b->staged);
	m->kind_params = &b->rail;
	return 0;
}

/* ---- buffers ---- */

int dr_bank_alloc(struct dr_bank *b, size_t len, struct dr_bank_buffer *out, struct dr_err *e)
{
	struct dr_gpu_memory m;
	int rc = dr_gpu_alloc(b->gpu, len, &m, e);

	if (rc)
		return rc;
	*out = (struct dr_bank_buffer){
		.base = (uint8_t *)(uintptr_t)m.dev, .len = m.len, .raw = m.raw
	};
	return 0;
}

static struct dr_gpu_memory gpu_memory(const struct dr_bank_buffer *buf)
{
	return (struct dr_gpu_memory){
		.dev = address(buf->base), .len = buf->len, .raw = buf->raw
	};
}

void dr_bank_free(struct dr_bank *b, struct dr_bank_buffer *buf)
{
	struct dr_gpu_memory m = gpu_memory(buf);

	dr_gpu_free(b->gpu, &m);
	memset(buf, 0, sizeof(*buf));
}

/* Only for NICs that write into memory by themselves. */
static void export_dmabuf(struct dr_bank *b, const struct dr_bank_buffer *buf, struct dr_memory *m)
{
	struct dr_gpu_memory g = gpu_memory(buf);
	struct dr_err why;

	if (!b->remote_write || !dr_gpu_info(b->gpu)->dmabuf)
		return;
	if (dr_gpu_dmabuf(b->gpu, &g, &m->dmabuf_fd, &why) == 0)
		m->dmabuf = true;
	else
		dr_info("gpu", "no dma-buf: %s", why.text);
}

int dr_bank_register(struct dr_bank *b, const struct dr_bank_buffer *buf, struct dr_channel *ch,
	struct dr_mem *out, struct dr_err *e)
{
	struct dr_memory m = { .base = buf->base,
		.len = buf->len,
		.kind = DR_MEMORY_CUDA,
		.ordered = dr_gpu_info(b->gpu)->ordered };
	struct dr_staged_choice before, after;
	int rc;

	dr_staged_choice(b->staged, &before);
	export_dmabuf(b, buf, &m);
	rc = dr_channel_mem_reg(ch, &m, out, e);
	if (m.dmabuf)
		close(m.dmabuf_fd);
	dr_staged_choice(b->staged, &after);
	/* Now, not in the middle of a transfer, and where a lack of memory can still be told well. */
	if (rc == 0 && after.staged > before.staged) {
		rc = dr_staged_reserve(b->staged, b->rings + 1, e);
		if (rc == 0)
			b->rings++;
		else
			dr_channel_mem_dereg(ch, out, dr_now_ns());
	}
	return rc;
}

/* ---- the pattern ---- */

int dr_bank_fill(struct dr_bank *b, uint8_t *at, size_t len, uint64_t base, struct dr_err *e)
{
	int rc =
		b->work ? dr_gpu_pattern_fill(b->work, address(at), len, base, e) : no_stream(b, e);

	if (rc)
		end_stream(&b->work);
	return rc;
}

static int read_back(struct dr_bank *b, const uint8_t *at, size_t len, struct dr_err *e)
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

int dr_bank_check(struct dr_bank *b, struct dr_integrity *v, const uint8_t *at, size_t len,
	size_t len_expected, char *text, size_t text_len, struct dr_err *e)
{
	uint64_t seq = v->next, off = 0;
	int rc;

	if (!b->work)
		return no_stream(b, e);
	rc = dr_gpu_pattern_check(b->work, address(at), len,
		dr_pattern_base(v->seed, v->gpu, v->channel, seq), &off, e);
	if (rc == 0 && len == len_expected) {
		dr_integrity_good(v);
		return 0;
	}
	if (rc >= 0)
		rc = read_back(b, at, len, e);
	if (rc < 0) {
		end_stream(&b->work);
		return rc;
	}
	rc = dr_integrity_check(v, b->readback, len, len_expected, text, text_len);
	if (rc)
		return rc;
	v->corrupted++;
	snprintf(text, text_len,
		"gpu %u channel %u seq %llu: the GPU sees a wrong byte at offset %llu, but a copy of the "
		"chunk in host memory is right",
		v->gpu, v->channel, (unsigned long long)seq, (unsigned long long)off);
	return 1;
}

const struct dr_err *dr_bank_error(const struct dr_bank *b)
{
	return dr_staged_error(b->staged);
}

/* ---- for the result ---- */

void dr_bank_copies(const struct dr_bank *b, struct dr_bank_copies *out)
{
	for (int way = 0; way < 2; way++) {
		struct dr_gpu_stream_stats st = b->past[way];

		if (b->copy[way])
			dr_gpu_stream_stats(b->copy[way], &st);
		out->bytes[way] = st.bytes;
		out->busy_ns[way] = st.busy_ns;
		out->copies[way] = st.copies;
		out->timed[way] = st.timed;
		out->calls[way] = st.calls;
	}
}

void dr_bank_copies_since(struct dr_bank_copies *c, const struct dr_bank_copies *before)
{
	for (int way = 0; way < 2; way++) {
		c->bytes[way] -= before->bytes[way];
		c->busy_ns[way] -= before->busy_ns[way];
		c->copies[way] -= before->copies[way];
		c->timed[way] -= before->timed[way];
		c->calls[way] -= before->calls[way];
	}
}

void dr_bank_copies_add(struct dr_bank_copies *c, const struct dr_bank_copies *more)
{
	for (int way = 0; way < 2; way++) {
		c->bytes[way] += more->bytes[way];
		c->busy_ns[way] += more->busy_ns[way];
		c->copies[way] += more->copies[way];
		c->timed[way] += more->timed[way];
		c->calls[way] += more->calls[way];
	}
}

void dr_bank_info(const struct dr_bank *b, struct dr_bank_info *out)
{
	const struct dr_gpu_info *g = dr_gpu_info(b->gpu);

	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", g->name);
	snprintf(out->bus_id, sizeof(out->bus_id), "%s", g->bus_id);
}

void dr_bank_way(const struct dr_bank *b, struct dr_bank_way *out)
{
	struct dr_staged_choice c;

	dr_staged_choice(b->staged, &c);
	out->staged = c.staged > 0;
	snprintf(out->why, sizeof(out->why), "%s", c.why);
}
