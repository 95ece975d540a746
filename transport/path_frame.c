/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/path_frame.h"

#include "base/wire.h"

#include <errno.h>
#include <string.h>

void dr_path_frame_encode(const struct dr_path_frame *f, uint8_t out[DR_PATH_FRAME_HDR])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, DR_PATH_FRAME_HDR);
	dr_wbuf_u8(&w, f->type);
	dr_wbuf_u8(&w, f->part);
	dr_wbuf_u8(&w, f->n);
	dr_wbuf_u8(&w, f->skip);
	dr_wbuf_u32(&w, f->len);
	dr_wbuf_u32(&w, f->epoch);
	dr_wbuf_u64(&w, f->seq);
	dr_assert(!w.failed && w.len == DR_PATH_FRAME_HDR);
}

static int bad(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EPROTO;
}

static size_t bytes_max(unsigned type)
{
	return type == DR_PATH_CTRL ? DR_CTRL_MAX : DR_DGRAM_MAX;
}

static int check_frame(const struct dr_path_frame *f, const char **why)
{
	switch (f->type) {
	case DR_PATH_DATA:
		if (f->part >= DR_PARTS_MAX || f->n || f->skip)
			return bad(why, "data frame with a part that cannot be");
		if (f->len > DR_PATH_DATA_MAX)
			return bad(why, "data frame too long");
		return 0;
	case DR_PATH_CREDIT:
		if (f->n < 1 || f->n > DR_PARTS_MAX || f->skip >> f->n || f->part)
			return bad(why, "credit with parts that cannot be");
		if (f->len != f->n * (uint32_t)DR_PATH_CREDIT_PART)
			return bad(why, "credit of the wrong length");
		return 0;
	case DR_PATH_CTRL:
	case DR_PATH_DGRAM:
		if (f->len < 1 || f->len > bytes_max(f->type))
			return bad(why, "control frame of the wrong length");
		if (f->part || f->n || f->skip || f->epoch || f->seq)
			return bad(why, "control frame with fields that are not its own");
		return 0;
	default:
		return bad(why, "frame of an unknown type");
	}
}

int dr_path_frame_parse(const void *buf, size_t len, struct dr_path_frame *out, const char **why)
{
	struct dr_path_frame f = { 0 };
	struct dr_rbuf r;

	dr_rbuf_init(&r, buf, len);
	dr_rbuf_u8(&r, &f.type);
	dr_rbuf_u8(&r, &f.part);
	dr_rbuf_u8(&r, &f.n);
	dr_rbuf_u8(&r, &f.skip);
	dr_rbuf_u32(&r, &f.len);
	dr_rbuf_u32(&r, &f.epoch);
	dr_rbuf_u64(&r, &f.seq);
	if (dr_rbuf_done(&r))
		return bad(why, "frame header of the wrong length");
	int err = check_frame(&f, why);
	if (!err)
		*out = f;
	return err;
}

struct dr_credit dr_path_credit_read(const struct dr_path_frame *f, const uint8_t *payload)
{
	struct dr_credit c = { .n = f->n, .todo = ((1u << f->n) - 1) & ~(uint32_t)f->skip };
	struct dr_rbuf r;

	dr_rbuf_init(&r, payload, f->len);
	for (unsigned i = 0; i < f->n; i++) {
		dr_rbuf_u32(&r, &c.cap[i]);
		dr_rbuf_u32(&r, &c.tag[i]);
	}
	dr_assert(dr_rbuf_done(&r) == 0);
	return c;
}

/* ---- queue ---- */

uint8_t *dr_path_queue_room(struct dr_path_queue *q, size_t len)
{
	if (q->end + len > DR_PATH_QUEUE && q->at > 0) {
		memmove(q->buf, q->buf + q->at, q->end - q->at);
		q->end -= q->at;
		q->flushed -= q->at;
		q->at = 0;
	}
	return q->end + len > DR_PATH_QUEUE ? NULL : q->buf + q->end;
}

/* A frame: where its payload is to be written. */
static uint8_t *add(struct dr_path_queue *q, const struct dr_path_frame *f)
{
	uint8_t *at = dr_path_queue_room(q, DR_PATH_FRAME_HDR + f->len);

	if (!at)
		return NULL;
	dr_path_frame_encode(f, at);
	q->end += DR_PATH_FRAME_HDR + f->len;
	return at + DR_PATH_FRAME_HDR;
}

int dr_path_queue_bytes(
	struct dr_path_queue *q, enum dr_path_frame_type type, const void *bytes, size_t len)
{
	const struct dr_path_frame f = { .type = (uint8_t)type, .len = (uint32_t)len };

	if (len < 1 || len > bytes_max(type))
		return -EINVAL;
	uint8_t *at = add(q, &f);
	if (!at)
		return -EAGAIN;
	memcpy(at, bytes, len);
	return 0;
}

int dr_path_queue_credit(struct dr_path_queue *q, uint32_t epoch, uint64_t seq,
	const struct dr_part *parts, unsigned n, uint32_t skip)
{
	const struct dr_path_frame f = { .type = DR_PATH_CREDIT,
		.n = (uint8_t)n,
		.skip = (uint8_t)skip,
		.len = n * DR_PATH_CREDIT_PART,
		.epoch = epoch,
		.seq = seq };
	uint8_t *at = add(q, &f);
	struct dr_wbuf w;

	if (!at)
		return -EAGAIN;
	dr_wbuf_init(&w, at, f.len);
	for (unsigned i = 0; i < n; i++) {
		dr_wbuf_u32(&w, parts[i].len);
		dr_wbuf_u32(&w, parts[i].tag);
	}
	dr_assert(!w.failed);
	return 0;
}
