/* SPDX-License-Identifier: Apache-2.0 */
/* Control frames of a channel: what is accepted is what would have been sent. */
#include "channel/frame.h"
#include "tests/fuzz/lib/fuzz.h"
#include "transport/path.h"

#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	uint8_t again[DR_FRAME_LEN];
	struct dr_frame f;
	size_t len;
	uint8_t *b = fz_bytes(&z, 64, &len);
	int rc = dr_frame_decode(b, len, &f);

	dr_assert(rc == 0 || rc == -EPROTO);
	if (rc == 0) {
		dr_assert(len == DR_FRAME_LEN && f.path < DR_PATHS && f.mask <= 0xff);
		dr_assert((f.flags & ~(unsigned)DR_FRAME_FLAGS) == 0);
		dr_assert(f.err <= 0 && f.err >= -4095 && *dr_frame_type_name(f.type) != '?');
		dr_frame_encode(&f, again);
		dr_assert(memcmp(b, again, DR_FRAME_LEN) == 0);
	}
	free(b);
	return 0;
}
