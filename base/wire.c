/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/wire.h"

void dr_rbuf_init(struct dr_rbuf *r, const void *data, size_t len)
{
	dr_assert(data || len == 0);
	*r = (struct dr_rbuf){ .data = data, .len = len };
}

/* The next len bytes, or NULL when they do not fit (then the reader has failed). */
static const uint8_t *take(struct dr_rbuf *r, size_t len)
{
	static const uint8_t none;
	const uint8_t *p;

	dr_dassert(r->pos <= r->len);
	if (r->failed || len > r->len - r->pos) {
		r->failed = 1;
		return NULL;
	}
	p = r->data ? r->data + r->pos : &none;
	r->pos += len;
	return p;
}

static int read_be(struct dr_rbuf *r, size_t len, uint64_t *out)
{
	const uint8_t *p = take(r, len);
	uint64_t v = 0;

	if (!p)
		return -EMSGSIZE;
	for (size_t i = 0; i < len; i++)
		v = v << 8 | p[i];
	*out = v;
	return 0;
}

int dr_rbuf_u8(struct dr_rbuf *r, uint8_t *out)
{
	uint64_t v;
	int rc = read_be(r, 1, &v);

	if (rc == 0)
		*out = (uint8_t)v;
	return rc;
}

int dr_rbuf_u16(struct dr_rbuf *r, uint16_t *out)
{
	uint64_t v;
	int rc = read_be(r, 2, &v);

	if (rc == 0)
		*out = (uint16_t)v;
	return rc;
}

int dr_rbuf_u32(struct dr_rbuf *r, uint32_t *out)
{
	uint64_t v;
	int rc = read_be(r, 4, &v);

	if (rc == 0)
		*out = (uint32_t)v;
	return rc;
}

int dr_rbuf_u64(struct dr_rbuf *r, uint64_t *out)
{
	return read_be(r, 8, out);
}

int dr_rbuf_bytes(struct dr_rbuf *r, void *out, size_t len)
{
	const uint8_t *p = take(r, len);

	if (!p)
		return -EMSGSIZE;
	if (len)
		memcpy(out, p, len);
	return 0;
}

int dr_rbuf_view(struct dr_rbuf *r, const void **out, size_t len)
{
	const uint8_t *p = take(r, len);

	if (!p)
		return -EMSGSIZE;
	*out = p;
	return 0;
}

size_t dr_rbuf_left(const struct dr_rbuf *r)
{
	return r->failed ? 0 : r->len - r->pos;
}

int dr_rbuf_done(const struct dr_rbuf *r)
{
	return r->failed || r->pos != r->len ? -EPROTO : 0;
}

void dr_wbuf_init(struct dr_wbuf *w, void *data, size_t cap)
{
	dr_assert(data || cap == 0);
	*w = (struct dr_wbuf){ .data = data, .cap = cap };
}

static int write_be(struct dr_wbuf *w, size_t len, uint64_t v)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(v >> (8 * (len - 1 - i)));
	return dr_wbuf_bytes(w, bytes, len);
}

int dr_wbuf_u8(struct dr_wbuf *w, uint8_t v)
{
	return write_be(w, 1, v);
}

int dr_wbuf_u16(struct dr_wbuf *w, uint16_t v)
{
	return write_be(w, 2, v);
}

int dr_wbuf_u32(struct dr_wbuf *w, uint32_t v)
{
	return write_be(w, 4, v);
}

int dr_wbuf_u64(struct dr_wbuf *w, uint64_t v)
{
	return write_be(w, 8, v);
}

int dr_wbuf_bytes(struct dr_wbuf *w, const void *data, size_t len)
{
	dr_dassert(w->len <= w->cap);
	if (w->failed || len > w->cap - w->len) {
		w->failed = 1;
		return -EMSGSIZE;
	}
	if (len)
		memcpy(w->data + w->len, data, len);
	w->len += len;
	return 0;
}
