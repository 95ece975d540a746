/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/conv_priv.h"

#include "base/text.h"
#include "base/wire.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * A hello in each direction and, with a key, a proof over both hellos. Each end's proof has its own label, so a proof
 * cannot be reflected. Other common protocols are recognised and named in the error.
 */

const uint8_t dr_conv_magic[8] = { 'D', 'U', 'A', 'L', 'R', 'A', 'I', 'L' };

void dr_conv_describe_bytes(const uint8_t *b, size_t n, char *text, size_t cap)
{
	static const struct {
		const char *start, *name;
	} known[] = {
		{ "GET ", "HTTP" },
		{ "POST", "HTTP" },
		{ "HEAD", "HTTP" },
		{ "OPTI", "HTTP" },
		{ "PRI ", "HTTP/2" },
		{ "HTTP", "HTTP" },
		{ "SSH-", "SSH" },
		{ "\x16\x03", "TLS" },
		{ "\x03", "RDP or TPKT" },
	};
	for (size_t i = 0; i < DR_ARRAY_LEN(known); i++) {
		size_t len = strlen(known[i].start);
		if (n >= len && memcmp(b, known[i].start, len) == 0) {
			snprintf(text, cap, "the peer speaks %s, not the dualrail protocol",
				known[i].name);
			return;
		}
	}
	size_t at = (size_t)snprintf(text, cap, "the peer speaks another protocol (first bytes:");
	for (size_t i = 0; i < n && i < 8 && at < cap; i++)
		at += (size_t)snprintf(text + at, cap - at, " %02x", b[i]);
	if (at < cap)
		snprintf(text + at, cap - at, ")");
}

static int proof_make(const struct dr_conv *c, enum dr_conv_role who, uint8_t *mac)
{
	const uint8_t *client = c->own_hello, *server = c->peer_hello;
	size_t client_len = c->own_hello_len, server_len = c->peer_hello_len;
	if (c->o.role == DR_CONV_SERVER) {
		client = c->peer_hello, client_len = c->peer_hello_len;
		server = c->own_hello, server_len = c->own_hello_len;
	}
	uint8_t buf[32 + 2 * DR_CONV_HELLO_MAX];
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, sizeof(buf));
	const char *label =
		who == DR_CONV_CLIENT ? "dualrail proof client" : "dualrail proof server";
	dr_wbuf_bytes(&w, label, strlen(label));
	dr_wbuf_bytes(&w, client, client_len);
	dr_wbuf_bytes(&w, server, server_len);
	dr_assert(!w.failed);
	return crypto_auth(mac, buf, w.len, c->o.key->bytes);
}

const char *dr_conv_key_advice(const struct dr_conv *c)
{
	if (c->o.key_of || c->o.hello.purpose == DR_CONV_COMM)
		return "the listen comm is closed, or the handle is of another process";
	return "the key files differ; use the same --key-file on both ends";
}

static int send_proof(struct dr_conv *c)
{
	uint8_t mac[DR_CONV_PROOF_BYTES];
	proof_make(c, c->o.role, mac);
	return dr_conv_out_frame(c, DR_FRAME_PROOF, 0, mac, sizeof(mac));
}

int dr_conv_out_hello(struct dr_conv *c)
{
	const struct dr_conv_hello *h = &c->o.hello;
	size_t build = strnlen(h->build, DR_CONV_BUILD_MAX - 1);
	struct dr_wbuf w;
	dr_wbuf_init(&w, c->own_hello, sizeof(c->own_hello));
	dr_wbuf_bytes(&w, dr_conv_magic, sizeof(dr_conv_magic));
	dr_wbuf_u16(&w, h->version);
	dr_wbuf_u16(&w, (uint16_t)(DR_CONV_HELLO_REST_MIN + build));
	dr_wbuf_u8(&w, (uint8_t)build);
	dr_wbuf_bytes(&w, h->build, build);
	dr_wbuf_bytes(&w, h->nonce, sizeof(h->nonce));
	dr_wbuf_bytes(&w, h->session, sizeof(h->session));
	dr_wbuf_u8(&w, h->purpose);
	dr_wbuf_u16(&w, h->k);
	dr_wbuf_u64(&w, h->last_seq);
	dr_wbuf_u8(&w, h->has_key);
	dr_assert(!w.failed);
	c->own_hello_len = w.len;
	int rc = dr_conv_out_reserve(c, w.len);
	if (rc)
		return rc;
	memcpy(c->out + c->out_len, c->own_hello, w.len);
	c->out_len += w.len;
	return 0;
}

void dr_conv_hello_prefix(struct dr_conv *c)
{
	struct dr_rbuf r;
	uint16_t rest = 0;
	dr_rbuf_init(
		&r, c->in + sizeof(dr_conv_magic), DR_CONV_PREFIX_BYTES - sizeof(dr_conv_magic));
	dr_rbuf_u16(&r, &c->peer.version);
	dr_rbuf_u16(&r, &rest);
	size_t max = c->peer.version == c->o.hello.version
			     ? DR_CONV_HELLO_MAX - DR_CONV_PREFIX_BYTES
			     : DR_CONV_OTHER_REST_MAX;
	size_t min = c->peer.version == c->o.hello.version ? DR_CONV_HELLO_REST_MIN : 1;
	if (rest < min || rest > max) {
		dr_conv_fail(c, DR_BOOT_PROTOCOL,
			"hello of protocol version %u has %u bytes, allowed are %zu to %zu",
			c->peer.version, rest, min, max);
		return;
	}
	c->in_need = DR_CONV_PREFIX_BYTES + rest;
}

static void hello_parse(struct dr_conv *c, struct dr_rbuf *r)
{
	struct dr_conv_hello *h = &c->peer;
	uint8_t build = 0, key = 0;
	const void *text = "";
	dr_rbuf_u8(r, &build);
	if (dr_rbuf_view(r, &text, build) == 0)
		dr_text_clean(h->build, sizeof(h->build), text, build);
	if (h->version != c->o.hello.version) {
		dr_conv_fail(c, DR_BOOT_VERSION,
			"protocol versions differ: this end %u (dualrail %s), peer %u (dualrail %s); "
			"install the same release on both ends",
			c->o.hello.version, c->o.hello.build, h->version, h->build);
		return;
	}
	dr_rbuf_bytes(r, h->nonce, sizeof(h->nonce));
	dr_rbuf_bytes(r, h->session, sizeof(h->session));
	dr_rbuf_u8(r, &h->purpose);
	dr_rbuf_u16(r, &h->k);
	dr_rbuf_u64(r, &h->last_seq);
	dr_rbuf_u8(r, &key);
	h->has_key = key == 1;
	uint8_t lo = 0, hi = 0;
	if (c->o.role == DR_CONV_SERVER) {
		lo = c->o.key_of ? DR_CONV_COMM : DR_CONV_NEW;
		hi = c->o.key_of ? DR_CONV_COMM : DR_CONV_RESUME;
	}
	if (dr_rbuf_done(r) || key > 1 || h->purpose < lo || h->purpose > hi ||
		build >= DR_CONV_BUILD_MAX)
		dr_conv_fail(c, DR_BOOT_PROTOCOL, "%s",
			c->o.role == DR_CONV_CLIENT && h->purpose
				? "the peer is a client, not a server"
				: "malformed hello");
	else if (h->has_key != c->o.hello.has_key)
		dr_conv_fail(c, DR_BOOT_KEY,
			h->has_key
				? "the peer requires a key and this end has none; start this end "
				  "with the same --key-file"
				: "this end requires a key and the peer has none; start the peer "
				  "with the same --key-file");
}

void dr_conv_hello_done(struct dr_conv *c, int64_t now_ns, struct dr_conv_event *ev)
{
	struct dr_rbuf r;
	dr_rbuf_init(&r, c->in + DR_CONV_PREFIX_BYTES, c->in_len - DR_CONV_PREFIX_BYTES);
	hello_parse(c, &r);
	/* A rejected dualrail peer still gets our hello, so that it can print the reason. */
	int rc = 0;
	if (c->o.role == DR_CONV_SERVER &&
		(c->state != DR_CONV_ENDED || c->cause != DR_BOOT_PROTOCOL))
		rc = dr_conv_out_hello(c);
	if (c->state == DR_CONV_ENDED)
		return;
	memcpy(c->peer_hello, c->in, c->in_len);
	c->peer_hello_len = c->in_len;
	c->in_len = 0;
	c->in_need = DR_CONV_HEADER_BYTES;
	if (c->o.key_of) {
		c->unknown = !c->o.key_of(c->o.key_arg, &c->peer, &c->found);
		c->o.key = &c->found;
	}
	c->state = c->o.key ? DR_CONV_PROOF : DR_CONV_WELCOME;
	if (c->o.role == DR_CONV_CLIENT) {
		c->stage_at_ns = now_ns;
		if (c->o.key && rc == 0)
			rc = send_proof(c);
	} else if (!c->o.key) {
		ev->kind = DR_CONV_IDENTIFIED;
	}
	if (rc)
		dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
}

void dr_conv_proof_frame(
	struct dr_conv *c, int64_t now_ns, const uint8_t *data, struct dr_conv_event *ev)
{
	bool server = c->o.role == DR_CONV_SERVER;
	uint8_t want[DR_CONV_PROOF_BYTES];
	proof_make(c, server ? DR_CONV_CLIENT : DR_CONV_SERVER, want);
	if (sodium_memcmp(want, data, sizeof(want)) != 0 || c->unknown) {
		int rc = server ? dr_conv_out_frame(c, DR_FRAME_DENY, 0, NULL, 0) : 0;
		dr_conv_fail(c, rc ? DR_BOOT_LOCAL : DR_BOOT_KEY, "key verification failed: %s",
			dr_conv_key_advice(c));
		return;
	}
	c->state = DR_CONV_WELCOME;
	c->stage_at_ns = now_ns;
	if (!server)
		return;
	if (send_proof(c))
		dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
	else
		ev->kind = DR_CONV_IDENTIFIED;
}
