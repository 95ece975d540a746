/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control datagrams: what is accepted is what the peer's end would have sent. First u8: even, the rest is
 * taken as it came; odd, it gets the right code first.
 */
#include "channel/dgram.h"
#include "channel/frame.h"
#include "tests/fuzz/lib/fuzz.h"

#include <errno.h>
#include <sodium.h>

enum { MAC = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t key[DR_TOKEN_LEN] = { 9 };
	struct dr_dgram_end self, peer;
	struct fz z = fz_init(data, size);
	uint8_t how = fz_u8(&z), again[DR_DGRAM_CTRL_LEN];
	struct dr_frame f;
	uint32_t channel;
	size_t len;
	uint8_t *b = fz_bytes(&z, 64, &len);
	int rc;

	dr_dgram_end_init(&self, 3, false, key);
	dr_dgram_end_init(&peer, 3, true, key);
	if (how & 1 && len >= MAC)
		crypto_shorthash_siphashx24(b + len - MAC, b, len - MAC, self.rx_key);
	rc = dr_dgram_decode(&self, b, len, &channel, &f);
	dr_assert(rc == 0 || rc == -EPROTO);
	if (rc == 0) {
		dr_assert(len == DR_DGRAM_CTRL_LEN);
		dr_dgram_encode(&peer, channel, &f, again);
		dr_assert(memcmp(b, again, DR_DGRAM_CTRL_LEN) == 0);
	}
	free(b);
	return 0;
}
