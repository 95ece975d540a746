/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/tcp_wire.h"

#include "base/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

enum {
	MAGIC_CHALLENGE = 0x44525443,	/* "DRTC" */
	MAGIC_HELLO = 0x44525448,	/* "DRTH" */
	MAGIC_HELLO_OK = 0x4452544f,	/* "DRTO" */
	MAGIC_RAIL_HANDLE = 0x44525452, /* "DRTR" */
	FLAG_SENDER = 1,
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
/* Version 2 had no challenge, and HELLO contained the token. */
#define VERSION_NOW 3
#define ANOTHER_VERSION                                                                            \
	"another version of the connection format (this end: " TEXT(                               \
		VERSION_NOW) "); use the same release at both ends"
_Static_assert(VERSION_NOW == (int)TCP_WIRE_VERSION, "the text names the version");

static int bad(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EPROTO;
}

/* Reads magic and version, which begin every message but frames. */
static int parse_start(struct dr_rbuf *r, uint32_t magic, const char **why)
{
	uint32_t got_magic = 0;
	uint16_t version = 0;

	dr_rbuf_u32(r, &got_magic);
	dr_rbuf_u16(r, &version);
	if (r->failed)
		return bad(why, "too short");
	if (got_magic != magic)
		return bad(why, "not dualrail's magic number");
	if (version != TCP_WIRE_VERSION)
		return bad(why, ANOTHER_VERSION);
	return 0;
}

static int finish(const struct dr_wbuf *w)
{
	return w->failed ? -EMSGSIZE : (int)w->len;
}

void dr_tcp_challenge_encode(const uint8_t nonce[TCP_NONCE_LEN], uint8_t out[TCP_CHALLENGE_LEN])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, TCP_CHALLENGE_LEN);
	dr_wbuf_u32(&w, MAGIC_CHALLENGE);
	dr_wbuf_u16(&w, TCP_WIRE_VERSION);
	dr_wbuf_u16(&w, 0);
	dr_wbuf_bytes(&w, nonce, TCP_NONCE_LEN);
	dr_assert(!w.failed && w.len == TCP_CHALLENGE_LEN);
}

int dr_tcp_challenge_parse(
	const void *buf, size_t len, uint8_t nonce[TCP_NONCE_LEN], const char **why)
{
	struct dr_rbuf r;
	uint16_t zero = 0;

	dr_rbuf_init(&r, buf, len);
	int err = parse_start(&r, MAGIC_CHALLENGE, why);
	if (err)
		return err;
	dr_rbuf_u16(&r, &zero);
	dr_rbuf_bytes(&r, nonce, TCP_NONCE_LEN);
	if (dr_rbuf_done(&r) || zero)
		return bad(why, "malformed challenge");
	return 0;
}

void dr_tcp_hello_encode(const struct tcp_hello *h, uint8_t out[TCP_HELLO_LEN])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, TCP_HELLO_LEN);
	dr_wbuf_u32(&w, MAGIC_HELLO);
	dr_wbuf_u16(&w, TCP_WIRE_VERSION);
	dr_wbuf_u8(&w, h->index);
	dr_wbuf_u8(&w, h->sender ? FLAG_SENDER : 0);
	dr_wbuf_u32(&w, h->channel);
	dr_wbuf_u32(&w, h->gen);
	dr_wbuf_bytes(&w, h->nonce, TCP_NONCE_LEN);
	dr_wbuf_bytes(&w, h->mac, DR_MAC_LEN);
	dr_assert(!w.failed && w.len == TCP_HELLO_LEN);
}

int dr_tcp_hello_begins(const void *buf, size_t len, const char **why)
{
	static const uint8_t start[] = { 'D', 'R', 'T', 'H', 0, TCP_WIRE_VERSION };
	size_t magic = DR_MIN(len, sizeof(start) - 2), all = DR_MIN(len, sizeof(start));

	if (memcmp(buf, start, magic) != 0)
		return bad(why, "not dualrail's magic number");
	return memcmp(buf, start, all) != 0 ? bad(why, ANOTHER_VERSION) : 0;
}

int dr_tcp_hello_parse(const void *buf, size_t len, struct tcp_hello *out, const char **why)
{
	struct tcp_hello h = { 0 };
	struct dr_rbuf r;
	uint8_t flags = 0;

	dr_rbuf_init(&r, buf, len);
	int err = parse_start(&r, MAGIC_HELLO, why);
	if (err)
		return err;
	dr_rbuf_u8(&r, &h.index);
	dr_rbuf_u8(&r, &flags);
	dr_rbuf_u32(&r, &h.channel);
	dr_rbuf_u32(&r, &h.gen);
	dr_rbuf_bytes(&r, h.nonce, TCP_NONCE_LEN);
	dr_rbuf_bytes(&r, h.mac, DR_MAC_LEN);
	if (dr_rbuf_done(&r))
		return bad(why, "wrong length");
	if (h.index >= DR_PATHS)
		return bad(why, "no such path");
	if (flags & ~FLAG_SENDER)
		return bad(why, "unknown flags");
	h.sender = flags & FLAG_SENDER;
	*out = h;
	return 0;
}

void dr_tcp_hello_ok_encode(const struct tcp_hello_ok *h, uint8_t out[TCP_HELLO_OK_LEN])
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, out, TCP_HELLO_OK_LEN);
	dr_wbuf_u32(&w, MAGIC_HELLO_OK);
	dr_wbuf_u16(&w, TCP_WIRE_VERSION);
	dr_wbuf_u16(&w, 0);
	dr_wbuf_u32(&w, h->gen);
	dr_wbuf_bytes(&w, h->mac, DR_MAC_LEN);
	dr_assert(!w.failed && w.len == TCP_HELLO_OK_LEN);
}

int dr_tcp_hello_ok_parse(const void *buf, size_t len, struct tcp_hello_ok *out, const char **why)
{
	struct tcp_hello_ok h = { 0 };
	struct dr_rbuf r;
	uint16_t zero = 0;

	dr_rbuf_init(&r, buf, len);
	int err = parse_start(&r, MAGIC_HELLO_OK, why);
	if (err)
		return err;
	dr_rbuf_u16(&r, &zero);
	dr_rbuf_u32(&r, &h.gen);
	dr_rbuf_bytes(&r, h.mac, DR_MAC_LEN);
	if (dr_rbuf_done(&r) || zero)
		return bad(why, "malformed admission");
	*out = h;
	return 0;
}

int dr_tcp_rail_handle_encode(const struct tcp_rail_handle *h, void *buf, size_t cap)
{
	struct dr_wbuf w;

	dr_wbuf_init(&w, buf, cap);
	dr_wbuf_u32(&w, MAGIC_RAIL_HANDLE);
	dr_wbuf_u16(&w, TCP_WIRE_VERSION);
	dr_wbuf_u8(&w, h->family == AF_INET6 ? 6 : 4);
	dr_wbuf_u16(&w, h->tcp_port);
	dr_wbuf_u16(&w, h->udp_port);
	dr_wbuf_bytes(&w, h->addr, h->family == AF_INET6 ? 16 : 4);
	return finish(&w);
}

static int check_addr(const struct tcp_rail_handle *h, const char **why)
{
	static const uint8_t zero[16];
	size_t len = h->family == AF_INET6 ? 16 : 4;

	if (memcmp(h->addr, zero, len) == 0)
		return bad(why, "rail handle without an address");
	if (h->addr[0] >= (h->family == AF_INET6 ? 0xff : 0xe0))
		return bad(why, "rail handle with a multicast address");
	if (!h->tcp_port || !h->udp_port)
		return bad(why, "rail handle without ports");
	return 0;
}

int dr_tcp_rail_handle_parse(
	const void *buf, size_t len, struct tcp_rail_handle *out, const char **why)
{
	struct tcp_rail_handle h = { 0 };
	struct dr_rbuf r;
	uint8_t family = 0;

	dr_rbuf_init(&r, buf, len);
	int err = parse_start(&r, MAGIC_RAIL_HANDLE, why);
	if (err)
		return err;
	dr_rbuf_u8(&r, &family);
	dr_rbuf_u16(&r, &h.tcp_port);
	dr_rbuf_u16(&r, &h.udp_port);
	if (family != 4 && family != 6)
		return bad(why, "rail handle with an unknown address family");
	h.family = family == 6 ? AF_INET6 : AF_INET;
	dr_rbuf_bytes(&r, h.addr, family == 6 ? 16 : 4);
	if (dr_rbuf_done(&r))
		return bad(why, "rail handle of the wrong length");
	err = check_addr(&h, why);
	if (!err)
		*out = h;
	return err;
}
