/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
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

	dr_dassert(r->pos <= r->len);
	if (r->failed || len > r->len - r->pos) {
		r->failed = 1;
		return NULL;
	}
	const uint8_t *p = r->data ? r->data + r->pos : &none;
	r->pos += len;
	return p;
}

#define READ(bits, from_wire)                                                                      \
	int dr_rbuf_u##bits(struct dr_rbuf *r, uint##bits##_t *out)                                \
	{                                                                                          \
		uint##bits##_t v;                                                                  \
		int rc = dr_rbuf_bytes(r, &v, sizeof(v));                                          \
                                                                                                   \
		if (rc == 0)                                                                       \
			*out = from_wire(v);                                                       \
		return rc;                                                                         \
	}
READ(8, (uint8_t))
READ(16, be16toh)
READ(32, be32toh)
READ(64, be64toh)

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

#define WRITE(bits, to_wire)                                                                       \
	int dr_wbuf_u##bits(struct dr_wbuf *w, uint##bits##_t v)                                   \
	{                                                                                          \
		v = to_wire(v);                                                                    \
		return dr_wbuf_bytes(w, &v, sizeof(v));                                            \
	}
WRITE(8, (uint8_t))
WRITE(16, htobe16)
WRITE(32, htobe32)
WRITE(64, htobe64)

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
