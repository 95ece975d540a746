/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of libdualrail's peers: what is accepted is what would have been sent, and names nothing out of range. */
#include "library/request.h"
#include "tests/fuzz/lib/fuzz.h"

static void check_put(const uint8_t *b, size_t len, unsigned n, unsigned lanes)
{
	uint8_t again[DR_REQUEST_BYTES];
	size_t at = dr_request_put(again);

	dr_assert(n >= 1 && n <= DR_REQUEST_ENTRIES_MAX);
	for (unsigned i = 0; i < n; i++) {
		struct dr_request_entry en = dr_request_entry_at(b, i);

		dr_assert(en.lane < lanes && en.len >= 1 && en.len <= DR_REQUEST_CHUNK_MAX);
		dr_assert(en.off + en.len > en.off);
		at = dr_request_add(again, at, &en);
	}
	fz_same(b, len, again, at);
}

FUZZ(z)
{
	uint8_t again[DR_REQUEST_BYTES];
	struct dr_request r;
	size_t len;
	uint8_t *b = fz_bytes(z, DR_REQUEST_BYTES, &len);
	unsigned lanes = 1 + (len ? b[len - 1] % 8 : 0);

	if (!fz_taken(dr_request_read(b, len, lanes, &r)))
		return;
	if (r.type == DR_REQUEST_PUT) {
		check_put(b, len, r.n, lanes);
		return;
	}
	dr_assert(r.type == DR_REQUEST_NOTE && r.n >= 1 && r.n <= DR_REQUEST_NOTE_MAX);
	fz_same(b, len, again, dr_request_note(again, r.note, r.n));
}
