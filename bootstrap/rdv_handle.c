/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv.h"

#include "base/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum {
	VERSION = 1,
	HEAD_BYTES = 4 + 1 + 1 + 2 + DR_RDV_HANDLE_KEY_BYTES + 8 + 8 + 1,
	V4_BYTES = 3 + 4,
	V6_BYTES = 3 + 16,
};
_Static_assert(HEAD_BYTES + DR_RDV_HANDLE_ADDRS_MAX * V4_BYTES <= DR_RDV_HANDLE_BYTES,
	"six IPv4 addresses fit");
_Static_assert(HEAD_BYTES + 4 * V6_BYTES <= DR_RDV_HANDLE_BYTES, "four IPv6 addresses fit");
static const uint8_t magic[4] = { 'H', 'A', 'R', 'V' };

/* The address itself, without port; 0: not IP. */
static size_t bytes_of(const struct dr_addr *a, const void **bytes)
{
	if (a->ss.ss_family == AF_INET) {
		*bytes = &((const struct sockaddr_in *)&a->ss)->sin_addr;
		return 4;
	}
	*bytes = &((const struct sockaddr_in6 *)&a->ss)->sin6_addr;
	return a->ss.ss_family == AF_INET6 ? 16 : 0;
}

/* Nobody can be dialled at an unspecified or multicast address. */
static bool usable(const struct dr_rdv_addr *a)
{
	static const uint8_t zero[16];
	const void *bytes;
	size_t len = bytes_of(&a->addr, &bytes);
	const uint8_t *b = bytes;
	if (len == 0 || a->prefix > 8 * len || memcmp(b, zero, len) == 0)
		return false;
	return len == 4 ? b[0] < 224 : b[0] != 0xff;
}

int dr_rdv_handle_encode(const struct dr_rdv_handle *h, uint8_t out[DR_RDV_HANDLE_BYTES])
{
	uint8_t list[DR_RDV_HANDLE_BYTES - HEAD_BYTES], n = 0;
	struct dr_wbuf a, w;
	dr_wbuf_init(&a, list, sizeof(list));
	for (unsigned i = 0; i < h->n && n < DR_RDV_HANDLE_ADDRS_MAX; i++) {
		const void *bytes;
		size_t len = bytes_of(&h->addrs[i].addr, &bytes);
		if (!usable(&h->addrs[i]) || a.len + 3 + len > a.cap)
			continue;
		dr_wbuf_u8(&a, len == 4 ? 4 : 6);
		dr_wbuf_u8(&a, h->addrs[i].prefix);
		dr_wbuf_u8(&a, h->addrs[i].nic);
		dr_wbuf_bytes(&a, bytes, len);
		n++;
	}
	if (n == 0 || h->port == 0)
		return -EINVAL;
	memset(out, 0, DR_RDV_HANDLE_BYTES);
	dr_wbuf_init(&w, out, DR_RDV_HANDLE_BYTES);
	dr_wbuf_bytes(&w, magic, sizeof(magic));
	dr_wbuf_u8(&w, VERSION);
	dr_wbuf_u8(&w, h->flags);
	dr_wbuf_u16(&w, h->port);
	dr_wbuf_bytes(&w, h->key, sizeof(h->key));
	dr_wbuf_u64(&w, h->process);
	dr_wbuf_u64(&w, h->listen);
	dr_wbuf_u8(&w, n);
	dr_wbuf_bytes(&w, list, a.len);
	dr_assert(!w.failed && !a.failed);
	return n;
}

static bool addr_decode(struct dr_rbuf *r, uint16_t port, struct dr_rdv_addr *out)
{
	uint8_t kind = 0;
	dr_rbuf_u8(r, &kind);
	dr_rbuf_u8(r, &out->prefix);
	dr_rbuf_u8(r, &out->nic);
	if (kind == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)&out->addr.ss;
		in->sin_family = AF_INET;
		out->addr.len = sizeof(*in);
		dr_rbuf_bytes(r, &in->sin_addr, 4);
	} else if (kind == 6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&out->addr.ss;
		in6->sin6_family = AF_INET6;
		out->addr.len = sizeof(*in6);
		dr_rbuf_bytes(r, &in6->sin6_addr, 16);
	} else {
		return false;
	}
	if (r->failed || !usable(out))
		return false;
	dr_sa_set_port(&out->addr.ss, port);
	return true;
}

int dr_rdv_handle_decode(
	const uint8_t in[DR_RDV_HANDLE_BYTES], struct dr_rdv_handle *out, struct dr_err *e)
{
	uint8_t got[sizeof(magic)], version = 0, n = 0, zero[DR_RDV_HANDLE_BYTES] = { 0 };
	struct dr_rdv_handle h = { .n = 0 };
	struct dr_rbuf r;
	const void *rest;
	dr_rbuf_init(&r, in, DR_RDV_HANDLE_BYTES);
	dr_rbuf_bytes(&r, got, sizeof(got));
	dr_rbuf_u8(&r, &version);
	if (memcmp(got, magic, sizeof(magic)) != 0)
		return dr_err_set(e, -EPROTO,
			"the handle is not one of this plugin (first bytes %02x %02x %02x %02x); both ends must "
			"load the same network plugin",
			got[0], got[1], got[2], got[3]);
	if (version != VERSION)
		return dr_err_set(e, -EPROTO,
			"the handle has version %u, this end knows %d; install the same release on both ends",
			version, VERSION);
	dr_rbuf_u8(&r, &h.flags);
	dr_rbuf_u16(&r, &h.port);
	dr_rbuf_bytes(&r, h.key, sizeof(h.key));
	dr_rbuf_u64(&r, &h.process);
	dr_rbuf_u64(&r, &h.listen);
	dr_rbuf_u8(&r, &n);
	if (h.port == 0 || n == 0 || n > DR_RDV_HANDLE_ADDRS_MAX)
		return dr_err_set(e, -EPROTO, "malformed handle: port %u, %u addresses", h.port, n);
	for (; h.n < n; h.n++)
		if (!addr_decode(&r, h.port, &h.addrs[h.n]))
			return dr_err_set(
				e, -EPROTO, "malformed handle: address %u of %u", h.n + 1, n);
	size_t left = dr_rbuf_left(&r);
	dr_rbuf_view(&r, &rest, left);
	if (memcmp(rest, zero, left) != 0)
		return dr_err_set(e, -EPROTO, "malformed handle: bytes after its %u addresses", n);
	*out = h;
	return 0;
}
