/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap's HANDLES: what is accepted is what would have been sent. */
#include "base/mem.h"
#include "bootstrap/handles.h"
#include "tests/fuzz/lib/fuzz.h"

FUZZ(z)
{
	unsigned n = fz_u8(z), k = UINT32_MAX, stated = UINT32_MAX;
	struct dr_handle *h = NULL;
	struct dr_err e = { 0 };
	size_t len;
	uint8_t *b = fz_bytes(z, 1 << 16, &len), *again;
	int rc = dr_handles_pair(b, len, &k);

	dr_assert((rc == 0) == (len >= 2) && (rc == 0) == (k != UINT32_MAX));
	rc = dr_handles_count(b, len, &stated);
	dr_assert((rc == 0) == (stated <= DR_BOOT_HANDLES_MAX));
	if (fz_failed(dr_handles_decode(b, len, k, n, &h, &e), &e)) {
		dr_assert(!h);
		return;
	}
	dr_assert(stated == n && dr_handles_encoded_len(h, n) == len);
	again = fz_alloc(z, len);
	dr_assert(dr_handles_encode(again, len, k, h, n) == 0);
	fz_same(b, len, again, len);
	dr_assert(dr_handles_encode(again, len - 1, k, h, n) < 0);
	dr_free(h);
}
