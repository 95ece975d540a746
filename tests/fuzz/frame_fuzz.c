/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control frames of a channel, and the datagrams that carry them: what is accepted is what the peer would have sent. The
 * input is taken as a frame; and as a datagram after u8: even, as it came; odd, it gets the right code first.
 */
#include "channel/frame.h"
#include "tests/fuzz/lib/fuzz.h"
#include "transport/path.h"

#include <sodium.h>

enum { MAC = 16, INPUT_MAX = 64 };

static void frame(struct fz *z)
{
	uint8_t again[DR_FRAME_LEN];
	struct dr_frame f;
	size_t len;
	uint8_t *b = fz_bytes(z, INPUT_MAX, &len);

	if (!fz_taken(dr_frame_decode(b, len, &f)))
		return;
	dr_assert(f.path < DR_PATHS && f.mask <= 0xff);
	dr_assert((f.flags & ~(unsigned)DR_FRAME_FLAGS) == 0);
	dr_assert(f.err <= 0 && f.err >= -4095 && *dr_frame_type_name(f.type) != '?');
	dr_frame_encode(&f, again);
	fz_same(b, len, again, DR_FRAME_LEN);
}

static void datagram(struct fz *z)
{
	static const uint8_t key[DR_TOKEN_LEN] = { 9 };
	uint8_t how = fz_u8(z), again[DR_DGRAM_CTRL_LEN];
	struct dr_dgram_end self, peer;
	struct dr_frame f;
	uint32_t channel;
	size_t len;
	uint8_t *b = fz_bytes(z, INPUT_MAX, &len);

	dr_dgram_end_init(&self, 3, false, key);
	dr_dgram_end_init(&peer, 3, true, key);
	if (how & 1 && len >= MAC)
		crypto_shorthash_siphashx24(b + len - MAC, b, len - MAC, self.rx_key);
	if (!fz_taken(dr_dgram_decode(&self, b, len, &channel, &f)))
		return;
	dr_dgram_encode(&peer, channel, &f, again);
	fz_same(b, len, again, DR_DGRAM_CTRL_LEN);
}

FUZZ(z)
{
	struct fz whole = *z;

	frame(z);
	z->p = whole.p;
	z->n = whole.n;
	datagram(z);
}
