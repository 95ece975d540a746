/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/frame.h"

#include "base/wire.h"

#include <errno.h>

const char *dr_frame_type_name(enum dr_frame_type t)
{
	static const char *const names[DR_FRAME_TYPES] = { "?", "ACK", "SWITCH", "ANSWER", "NOTIFY",
		"GONE", "ABORT", "CLOSE", "PROBE" };

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
	if (dr_rbuf_done(&r) != 0 || type == 0 || type >= DR_FRAME_TYPES || path >= DR_PATHS ||
		(flags & ~DR_FRAME_FLAGS))
		return -EPROTO;
	*f = (struct dr_frame){ type, path, flags, mask, epoch, gen, (int)err, seq };
	return f->err > 0 || f->err < -4095 ? -EPROTO : 0;
}

/* ---- as a datagram ---- */

/* The layout: docs/PROTOCOL.md, section 1.5. role: 1 connector. */
enum { MAGIC = 0x64724354, VERSION = 2, HEAD = 12, BODY = 36, MAC = DR_MAC_LEN };

_Static_assert((int)BODY + (int)MAC == (int)DR_DGRAM_CTRL_LEN &&
		       (int)BODY == (int)HEAD + (int)DR_FRAME_LEN,
	"the layout above");
void dr_dgram_end_init(
	struct dr_dgram_end *e, uint16_t gpu, bool connector, const uint8_t token[DR_TOKEN_LEN])
{
	*e = (struct dr_dgram_end){ .gpu = gpu, .connector = connector };
	dr_key_derive(token, connector ? DR_KEY_DGRAM_CONNECTOR : DR_KEY_DGRAM_ACCEPTOR, e->tx_key);
	dr_key_derive(token, connector ? DR_KEY_DGRAM_ACCEPTOR : DR_KEY_DGRAM_CONNECTOR, e->rx_key);
}

void dr_dgram_encode(const struct dr_dgram_end *self, uint32_t channel, const struct dr_frame *f,
	uint8_t out[DR_DGRAM_CTRL_LEN])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, HEAD);
	dr_wbuf_u32(&w, MAGIC);
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, self->connector);
	dr_wbuf_u16(&w, self->gpu);
	dr_wbuf_u32(&w, channel);
	dr_assert(!w.failed && w.len == HEAD);
	dr_frame_encode(f, out + HEAD);
	dr_key_tag(self->tx_key, out, BODY, out + BODY);
}

int dr_dgram_decode(const struct dr_dgram_end *self, const void *data, size_t len,
	uint32_t *channel, struct dr_frame *f)
{
	const uint8_t *b = data;
	uint8_t version, role;
	struct dr_rbuf r;
	uint32_t magic;
	uint16_t gpu;

	if (len != DR_DGRAM_CTRL_LEN)
		return -EPROTO;
	dr_rbuf_init(&r, data, HEAD);
	dr_rbuf_u32(&r, &magic);
	dr_rbuf_u8(&r, &version);
	dr_rbuf_u8(&r, &role);
	dr_rbuf_u16(&r, &gpu);
	if (dr_rbuf_u32(&r, channel) != 0 || magic != MAGIC || version != VERSION ||
		role != !self->connector || gpu != self->gpu ||
		!dr_key_tag_ok(self->rx_key, b, BODY, b + BODY))
		return -EPROTO;
	return dr_frame_decode(b + HEAD, DR_FRAME_LEN, f);
}
