/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap's HANDLES: what is accepted is what would have been sent. */
#include "base/mem.h"
#include "bootstrap/handles.h"
#include "tests/fuzz/lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	unsigned n = fz_u8(&z), k = UINT32_MAX, stated = UINT32_MAX;
	struct dr_boot_handle *h = NULL;
	struct dr_err e = { 0 };
	size_t len;
	uint8_t *b = fz_bytes(&z, 1 << 16, &len), *again;
	int rc = dr_handles_pair(b, len, &k);

	dr_assert((rc == 0) == (len >= 2) && (rc == 0) == (k != UINT32_MAX));
	rc = dr_handles_count(b, len, &stated);
	dr_assert((rc == 0) == (stated <= DR_BOOT_HANDLES_MAX));
	rc = dr_handles_decode(b, len, k, n, &h, &e);
	dr_assert(rc || stated == n);
	if (rc) {
		fz_explained(rc, &e);
		dr_assert(!h);
	} else {
		dr_assert(dr_handles_encoded_len(h, n) == len);
		again = malloc(len);
		dr_assert(again && dr_handles_encode(again, len, k, h, n) == 0);
		dr_assert(memcmp(b, again, len) == 0);
		dr_assert(dr_handles_encode(again, len - 1, k, h, n) < 0);
		free(again);
	}
	dr_free(h);
	free(b);
	return 0;
}
