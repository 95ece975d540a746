/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/frame.h"

#include "base/wire.h"
#include "transport/path.h"

#include <errno.h>

static const char *const names[DR_FRAME_TYPES] = {
	[DR_FRAME_ACK] = "ACK",
	[DR_FRAME_SWITCH] = "SWITCH",
	[DR_FRAME_ANSWER] = "ANSWER",
	[DR_FRAME_NOTIFY] = "NOTIFY",
	[DR_FRAME_GONE] = "GONE",
	[DR_FRAME_ABORT] = "ABORT",
	[DR_FRAME_CLOSE] = "CLOSE",
	[DR_FRAME_PROBE] = "PROBE",
};

const char *dr_frame_type_name(enum dr_frame_type t)
{
	return t > 0 && t < DR_FRAME_TYPES ? names[t] : "?";
}

void dr_frame_encode(const struct dr_frame *f, void *out)
{
	struct dr_wbuf w;

	dr_assert(f->type > 0 && f->type < DR_FRAME_TYPES && f->path < DR_PATHS && f->mask <= 0xff);
	dr_wbuf_init(&w, out, DR_FRAME_LEN);
	dr_wbuf_u8(&w, (uint8_t)f->type);
	dr_wbuf_u8(&w, (uint8_t)f->path);
	dr_wbuf_u8(&w, (uint8_t)f->flags);
	dr_wbuf_u8(&w, (uint8_t)f->mask);
	dr_wbuf_u32(&w, f->epoch);
	dr_wbuf_u32(&w, f->gen);
	dr_wbuf_u32(&w, (uint32_t)f->err);
	dr_wbuf_u64(&w, f->seq);
	dr_assert(!w.failed && w.len == DR_FRAME_LEN);
}

int dr_frame_decode(const void *data, size_t len, struct dr_frame *f)
{
	struct dr_rbuf r;
	uint8_t type, path, flags, mask;
	uint32_t epoch, gen, err;
	uint64_t seq;

	dr_rbuf_init(&r, data, len);
	dr_rbuf_u8(&r, &type);
	dr_rbuf_u8(&r, &path);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u8(&r, &mask);
	dr_rbuf_u32(&r, &epoch);
	dr_rbuf_u32(&r, &gen);
	dr_rbuf_u32(&r, &err);
	dr_rbuf_u64(&r, &seq);
	if (dr_rbuf_done(&r) != 0)
		return -EPROTO;
	if (type == 0 || type >= DR_FRAME_TYPES || path >= DR_PATHS || (flags & ~DR_FRAME_FLAGS))
		return -EPROTO;
	*f = (struct dr_frame){
		.type = type,
		.path = path,
		.flags = flags,
		.mask = mask,
		.epoch = epoch,
		.gen = gen,
		.err = (int)err,
		.seq = seq,
	};
	return f->err > 0 || f->err < -4095 ? -EPROTO : 0;
}
