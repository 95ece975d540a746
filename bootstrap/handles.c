/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/handles.h"

#include "base/mem.h"
#include "base/wire.h"

#include <errno.h>
#include <string.h>

size_t dr_handles_encoded_len(const struct dr_handle *h, unsigned n)
{
	size_t len = 4;
	for (unsigned i = 0; i < n; i++)
		len += 1u + h[i].len;
	return len;
}

int dr_handles_encode(void *buf, size_t cap, unsigned k, const struct dr_handle *h, unsigned n)
{
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, cap);
	dr_wbuf_u16(&w, (uint16_t)k);
	dr_wbuf_u16(&w, (uint16_t)n);
	for (unsigned i = 0; i < n; i++) {
		if (h[i].len > DR_HANDLE_MAX)
			return -EINVAL;
		dr_wbuf_u8(&w, h[i].len);
		if (h[i].len)
			dr_wbuf_bytes(&w, h[i].bytes, h[i].len);
	}
	return w.failed ? -EMSGSIZE : 0;
}

int dr_handles_copy(const struct dr_handle *h, unsigned n, struct dr_handle **out)
{
	for (unsigned i = 0; i < n; i++)
		if (h[i].len > DR_HANDLE_MAX)
			return -EINVAL;
	struct dr_handle *copy = dr_calloc(n, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, h, n * sizeof(*copy));
	*out = copy;
	return 0;
}

int dr_handles_send(struct dr_conv *c, unsigned k, const struct dr_handle *h, unsigned n)
{
	size_t len = dr_handles_encoded_len(h, n);
	uint8_t *buf = dr_calloc(1, len);
	if (!buf)
		return -ENOMEM;
	int rc = dr_handles_encode(buf, len, k, h, n);
	if (rc == 0)
		rc = dr_conv_send(c, DR_CONV_FRAME_HANDLES, 0, buf, len);
	dr_free(buf);
	return rc;
}

int dr_handles_pair(const void *data, size_t len, unsigned *k)
{
	struct dr_rbuf r;
	uint16_t v;
	dr_rbuf_init(&r, data, len);
	if (dr_rbuf_u16(&r, &v))
		return -EPROTO;
	*k = v;
	return 0;
}

int dr_handles_count(const void *data, size_t len, unsigned *n)
{
	struct dr_rbuf r;
	uint16_t k, v = 0;
	dr_rbuf_init(&r, data, len);
	dr_rbuf_u16(&r, &k);
	if (dr_rbuf_u16(&r, &v) || v > DR_BOOT_HANDLES_MAX)
		return -EPROTO;
	*n = v;
	return 0;
}

int dr_handles_decode(const void *data, size_t len, unsigned k, unsigned n, struct dr_handle **out,
	struct dr_err *e)
{
	struct dr_rbuf r;
	uint16_t got_k = 0, got_n = 0;
	dr_rbuf_init(&r, data, len);
	dr_rbuf_u16(&r, &got_k);
	dr_rbuf_u16(&r, &got_n);
	if (r.failed || got_k != k || got_n != n)
		return dr_err_set(e, -EPROTO,
			"received %u handles of pair %u, expected %u of pair %u", got_n, got_k, n,
			k);
	struct dr_handle *h = dr_calloc(n, sizeof(*h));
	if (!h)
		return dr_err_set(e, -ENOMEM, "handles of pair %u: out of memory", k);
	for (unsigned i = 0; i < n; i++) {
		uint8_t hl = 0;
		dr_rbuf_u8(&r, &hl);
		if (hl > DR_HANDLE_MAX) {
			dr_free(h);
			return dr_err_set(e, -EPROTO,
				"handle %u of pair %u has %u bytes, at most %d are allowed", i, k,
				hl, DR_HANDLE_MAX);
		}
		h[i].len = hl;
		if (hl)
			dr_rbuf_bytes(&r, h[i].bytes, hl);
	}
	if (dr_rbuf_done(&r)) {
		dr_free(h);
		return dr_err_set(e, -EPROTO,
			"handles of pair %u: %zu bytes do not hold %u handles", k, len, n);
	}
	*out = h;
	return 0;
}
