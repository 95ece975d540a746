/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/verbs/frame.h"

#include <errno.h>

size_t dr_verbs_ctrl_encode(const void *data, size_t len, uint8_t *buf)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, DR_VERBS_FRAME_MAX);
	dr_wbuf_u8(&w, DR_VERBS_FRAME_CTRL);
	dr_wbuf_u8(&w, (uint8_t)len);
	dr_wbuf_bytes(&w, data, len);
	dr_assert(!w.failed);
	return w.len;
}

size_t dr_verbs_credit_encode(const struct dr_verbs_credit *c, uint8_t *buf)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, DR_VERBS_FRAME_MAX);
	dr_wbuf_u8(&w, DR_VERBS_FRAME_CREDIT);
	dr_wbuf_u8(&w, c->n);
	dr_wbuf_u8(&w, c->skip);
	dr_wbuf_u8(&w, 0);
	dr_wbuf_u32(&w, c->epoch);
	dr_wbuf_u64(&w, c->seq);
	for (unsigned i = 0; i < c->n; i++) {
		dr_wbuf_u64(&w, c->part[i].addr);
		dr_wbuf_u32(&w, c->part[i].rkey);
		dr_wbuf_u32(&w, c->part[i].cap);
		dr_wbuf_u32(&w, c->part[i].tag);
	}
	dr_assert(!w.failed);
	return w.len;
}

size_t dr_verbs_frame_len(const uint8_t *frame)
{
	return frame[0] == DR_VERBS_FRAME_CTRL ? 2u + frame[1] : 16u + 20u * frame[1];
}

static int next_ctrl(struct dr_rbuf *r, struct dr_verbs_frame *f)
{
	dr_rbuf_u8(r, &f->len);
	if (f->len < 1 || f->len > DR_CTRL_MAX || dr_rbuf_view(r, &f->data, f->len))
		return -EPROTO;
	return 1;
}

static int next_credit(struct dr_rbuf *r, struct dr_verbs_credit *c)
{
	uint8_t zero = 0;

	dr_rbuf_u8(r, &c->n);
	dr_rbuf_u8(r, &c->skip);
	dr_rbuf_u8(r, &zero);
	dr_rbuf_u32(r, &c->epoch);
	dr_rbuf_u64(r, &c->seq);
	if (r->failed || zero != 0 || c->n < 1 || c->n > DR_PARTS_MAX || c->skip >> c->n)
		return -EPROTO;
	for (unsigned i = 0; i < c->n; i++) {
		dr_rbuf_u64(r, &c->part[i].addr);
		dr_rbuf_u32(r, &c->part[i].rkey);
		dr_rbuf_u32(r, &c->part[i].cap);
		dr_rbuf_u32(r, &c->part[i].tag);
	}
	return r->failed ? -EPROTO : 1;
}

int dr_verbs_frame_next(struct dr_rbuf *r, struct dr_verbs_frame *out)
{
	if (r->failed)
		return -EPROTO;
	if (dr_rbuf_left(r) == 0)
		return 0;
	dr_rbuf_u8(r, &out->type);
	switch (out->type) {
	case DR_VERBS_FRAME_CTRL:
		return next_ctrl(r, out);
	case DR_VERBS_FRAME_CREDIT:
		return next_credit(r, &out->credit);
	default:
		return -EPROTO;
	}
}

uint32_t dr_verbs_imm_encode(uint32_t epoch, uint64_t seq, unsigned part, bool more)
{
	return (epoch & 0xff) << 24 | (uint32_t)(seq & 0xffff) << 8 | (part & 7) << 5 |
	       (uint32_t)more << 4;
}

int dr_verbs_imm_parse(uint32_t imm, struct dr_verbs_imm *out)
{
	if (imm & 0xf)
		return -EPROTO;
	*out = (struct dr_verbs_imm){ .epoch = (uint8_t)(imm >> 24),
		.seq = (uint16_t)(imm >> 8),
		.part = (uint8_t)(imm >> 5 & 7),
		.more = imm >> 4 & 1 };
	return 0;
}
