/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/conv_priv.h"

#include "base/text.h"
#include "base/wire.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

/*
 * A hello in each direction, then the two messages of the handshake, the server's first. Other common protocols are
 * recognised and named in the error.
 */

const uint8_t dr_conv_magic[DR_CONV_MAGIC_BYTES] = { 'D', 'U', 'A', 'L', 'R', 'A', 'I', 'L' };

bool dr_conv_begins(const void *data, size_t n, char *text, size_t cap)
{
	if (memcmp(data, dr_conv_magic, DR_MIN(n, sizeof(dr_conv_magic))) == 0)
		return true;
	dr_conv_describe_bytes(data, n, text, cap);
	return false;
}

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

/* ---- handshake ---------------------------------------------------------------------------- */

/* What a wrong pre-shared key means, and what to do. */
static const char *advice(const struct dr_conv *c)
{
	if (c->o.key_of || c->o.hello.purpose == DR_CONV_COMM)
		return "the listen comm is closed, or the handle is of another process";
	if (!c->o.hello.has_key)
		return "bytes were altered between the ends, or it is another session";
	return "the key files differ; use the same --key-file on both ends";
}

static const char GONE[] = "the server does not know this session; it may have been restarted";

static void deny(struct dr_conv *c, enum dr_boot_cause cause)
{
	const uint8_t data[DR_CONV_DENY_BYTES] = { (uint8_t)cause };
	int rc = dr_conv_out_frame(c, DR_CONV_FRAME_DENY, 0, data, sizeof(data));
	if (rc)
		dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
	else if (cause == DR_BOOT_GONE)
		dr_conv_fail(c, cause, "%s", GONE);
	else
		dr_conv_fail(c, cause, "%s verification failed: %s",
			c->o.hello.has_key ? "key" : "handshake", advice(c));
}

void dr_conv_deny_frame(struct dr_conv *c, const uint8_t *data)
{
	if (data[0] == DR_BOOT_GONE && c->o.bound)
		dr_conv_fail(c, DR_BOOT_GONE, "%s", GONE);
	else
		dr_conv_fail(c, DR_BOOT_KEY, "the peer rejected the %s: %s",
			c->o.hello.has_key ? "key" : "handshake", advice(c));
}

/* The pre-shared key: the shared key or zeros; on a connection of a session, BLAKE2b of it keyed with the session's secret. */
static void psk_make(const struct dr_boot_key *key, const uint8_t *secret, uint8_t *psk)
{
	static const char label[] = "dualrail session psk";
	uint8_t buf[sizeof(label) + DR_BOOT_KEY_BYTES] = { 0 };
	memcpy(buf, label, sizeof(label));
	if (key)
		memcpy(buf + sizeof(label), key->bytes, sizeof(key->bytes));
	if (secret)
		crypto_generichash(
			psk, DR_NOISE_KEY_BYTES, buf, sizeof(buf), secret, DR_CONV_SECRET_BYTES);
	else
		memcpy(psk, buf + sizeof(label), DR_NOISE_KEY_BYTES);
	sodium_memzero(buf, sizeof(buf));
}

/* OK, or why there is none for this peer. */
static enum dr_boot_cause psk_find(const struct dr_conv *c, uint8_t psk[DR_NOISE_KEY_BYTES])
{
	struct dr_boot_key found;
	uint8_t secret[DR_CONV_SECRET_BYTES];
	const struct dr_boot_key *key = c->o.key;
	const uint8_t *bound = c->o.bound ? c->o.secret : NULL;
	enum dr_boot_cause cause = DR_BOOT_OK;
	if (c->o.key_of) {
		cause = c->o.key_of(c->o.of_arg, &c->peer, &found) ? DR_BOOT_OK : DR_BOOT_KEY;
		key = &found;
	} else if (c->o.secret_of && c->peer.purpose != DR_CONV_NEW) {
		cause = c->o.secret_of(c->o.of_arg, &c->peer, secret) ? DR_BOOT_OK : DR_BOOT_GONE;
		bound = secret;
	}
	if (cause == DR_BOOT_OK)
		psk_make(key, bound, psk);
	sodium_memzero(&found, sizeof(found));
	sodium_memzero(secret, sizeof(secret));
	return cause;
}

/* Both hellos, the client's first, are the prologue. */
static void noise_init(struct dr_conv *c, const uint8_t psk[DR_NOISE_KEY_BYTES])
{
	bool server = c->o.role == DR_CONV_SERVER;
	uint8_t prologue[2 * DR_CONV_HELLO_MAX];
	struct dr_wbuf w;
	dr_wbuf_init(&w, prologue, sizeof(prologue));
	if (!server)
		dr_wbuf_bytes(&w, c->own_hello, c->own_hello_len);
	dr_wbuf_bytes(&w, c->peer_hello, c->peer_hello_len);
	if (server)
		dr_wbuf_bytes(&w, c->own_hello, c->own_hello_len);
	dr_assert(!w.failed);
	dr_noise_init(&c->noise, server, psk, c->o.ephemeral, prologue, w.len);
	sodium_memzero(c->o.ephemeral, sizeof(c->o.ephemeral));
}

static void send_proof(struct dr_conv *c)
{
	uint8_t message[DR_CONV_PROOF_BYTES];
	if (dr_noise_write(&c->noise, NULL, 0, message))
		deny(c, DR_BOOT_KEY);
	else if (dr_conv_out_frame(c, DR_CONV_FRAME_PROOF, 0, message, sizeof(message)))
		dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
}

/* The hellos are exchanged. */
static void handshake_start(struct dr_conv *c)
{
	uint8_t psk[DR_NOISE_KEY_BYTES];
	enum dr_boot_cause cause = psk_find(c, psk);
	c->state = DR_CONV_PROOF;
	if (cause != DR_BOOT_OK) {
		deny(c, cause);
		return;
	}
	noise_init(c, psk);
	sodium_memzero(psk, sizeof(psk));
	if (c->o.role == DR_CONV_SERVER)
		send_proof(c);
}

void dr_conv_proof_frame(
	struct dr_conv *c, int64_t now_ns, const uint8_t *data, struct dr_conv_event *ev)
{
	if (dr_noise_read(&c->noise, data, DR_CONV_PROOF_BYTES, NULL)) {
		deny(c, DR_BOOT_KEY);
		return;
	}
	if (c->o.role == DR_CONV_CLIENT)
		send_proof(c);
	if (c->state == DR_CONV_ENDED)
		return;
	dr_noise_split(&c->noise, &c->keys);
	c->sealed = true;
	c->in_need = DR_CONV_SEALED_HEADER_BYTES;
	c->state = DR_CONV_WELCOME;
	c->stage_at_ns = now_ns;
	if (c->o.role == DR_CONV_SERVER)
		ev->kind = DR_CONV_IDENTIFIED;
}

void dr_conv_ids(const struct dr_conv *c, struct dr_conv_ids *out)
{
	const uint8_t *exporter = c->keys.exporter;
	dr_assert(c->sealed);
	dr_noise_export(exporter, "dualrail session id", out->session, sizeof(out->session));
	dr_noise_export(exporter, "dualrail session token", out->token, sizeof(out->token));
	dr_noise_export(exporter, "dualrail session secret", out->secret, sizeof(out->secret));
}

/* ---- hello -------------------------------------------------------------------------------- */

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

void dr_conv_hello_done(struct dr_conv *c, int64_t now_ns)
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
	if (rc)
		dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
	else
		handshake_start(c);
	if (c->o.role == DR_CONV_CLIENT)
		c->stage_at_ns = now_ns;
}
