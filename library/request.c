/* SPDX-License-Identifier: Apache-2.0 */
#include "library/request.h"

#include "base/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static void put_head(uint8_t *out, enum dr_request_type type, size_t n)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, DR_REQUEST_HEAD);
	dr_wbuf_u8(&w, (uint8_t)type);
	dr_wbuf_u8(&w, 0);
	dr_wbuf_u16(&w, (uint16_t)n);
}

size_t dr_request_put(uint8_t out[DR_REQUEST_BYTES])
{
	put_head(out, DR_REQUEST_PUT, 0);
	return DR_REQUEST_HEAD;
}

size_t dr_request_add(uint8_t out[DR_REQUEST_BYTES], size_t len, const struct dr_request_entry *en)
{
	struct dr_wbuf w;

	dr_assert(len + DR_REQUEST_ENTRY <= DR_REQUEST_BYTES);
	dr_wbuf_init(&w, out + len, DR_REQUEST_ENTRY);
	dr_wbuf_u64(&w, en->key);
	dr_wbuf_u64(&w, en->off);
	dr_wbuf_u32(&w, en->len);
	dr_wbuf_u32(&w, en->lane);
	len += DR_REQUEST_ENTRY;
	put_head(out, DR_REQUEST_PUT, (len - DR_REQUEST_HEAD) / DR_REQUEST_ENTRY);
	return len;
}

size_t dr_request_note(uint8_t out[DR_REQUEST_BYTES], const void *data, size_t len)
{
	dr_assert(len <= DR_REQUEST_NOTE_MAX);
	put_head(out, DR_REQUEST_NOTE, len);
	memcpy(out + DR_REQUEST_HEAD, data, len);
	return DR_REQUEST_HEAD + len;
}

struct dr_request_entry dr_request_entry_at(const void *data, unsigned i)
{
	struct dr_request_entry en = { .len = 0 };
	struct dr_rbuf r;

	dr_rbuf_init(&r, (const uint8_t *)data + DR_REQUEST_HEAD + (size_t)i * DR_REQUEST_ENTRY,
		DR_REQUEST_ENTRY);
	dr_rbuf_u64(&r, &en.key);
	dr_rbuf_u64(&r, &en.off);
	dr_rbuf_u32(&r, &en.len);
	dr_rbuf_u32(&r, &en.lane);
	return en;
}

static bool entries_ok(const void *data, unsigned n, unsigned lanes)
{
	for (unsigned i = 0; i < n; i++) {
		struct dr_request_entry en = dr_request_entry_at(data, i);

		if (en.lane >= lanes || en.len == 0 || en.len > DR_REQUEST_CHUNK_MAX ||
			en.off > UINT64_MAX - en.len)
			return false;
	}
	return true;
}

int dr_request_read(const void *data, size_t len, unsigned lanes, struct dr_request *out)
{
	uint8_t type = 0, zero = 0;
	struct dr_rbuf r;
	uint16_t n = 0;

	dr_rbuf_init(&r, data, len);
	dr_rbuf_u8(&r, &type);
	dr_rbuf_u8(&r, &zero);
	dr_rbuf_u16(&r, &n);
	if (r.failed || zero != 0 || n == 0)
		return -EPROTO;
	*out = (struct dr_request){ .type = (enum dr_request_type)type,
		.n = n,
		.note = (const uint8_t *)data + DR_REQUEST_HEAD };
	if (type == DR_REQUEST_NOTE)
		return n <= DR_REQUEST_NOTE_MAX && dr_rbuf_left(&r) == n ? 0 : -EPROTO;
	if (type != DR_REQUEST_PUT || dr_rbuf_left(&r) != (size_t)n * DR_REQUEST_ENTRY)
		return -EPROTO;
	return entries_ok(data, n, lanes) ? 0 : -EPROTO;
}
