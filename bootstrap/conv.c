/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/conv_priv.h"

#include "base/fields.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Integers are big endian.
 *
 *   hello   magic "DUALRAIL", u16 version, u16 rest; rest: u8 n + n bytes build version, nonce 32,
 *           session 16, u8 purpose (0: server), u16 k, u64 last seq, u8 has_key.
 *           Everything up to the build version is the same in every protocol version.
 *   frame   header: u32 payload bytes, u8 type, 3 × 0, u64 seq (0 where the type is not numbered);
 *           payload. From WELCOME on: header and tag, then, unless it is empty, payload and tag;
 *           both encrypted
 *
 * The PROOFs are the two messages of a Noise handshake (noise.h). The server is its initiator, so
 * it proves the key first. Both hellos are its prologue. Without a key the pre-shared key is zero:
 * the handshake then keeps out who only listens, and nobody else. GPU and RESUME mix a secret of
 * the session into the pre-shared key, so that only its two ends can add connections to it. DENY is
 * the only frame after the hellos that is not authenticated; it can do nothing but end the
 * connection.
 *
 * Invariants
 * 1. Input is read in steps of `in_need` bytes: hello prefix, hello rest, frame header, payload. in_need is > 0 and
 *    limited by the state and the frame's type, so a peer cannot make this end buffer more. The buffer grows with
 *    the bytes received.
 * 2. Only hello, PROOF and DENY are sent before the peer's proof was verified. Every later byte is sealed, in the order in
 *    which it was queued, and none is parsed before its tag was verified.
 * 3. After ENDED input is ignored and no further event is reported.
 */

enum { C = 1, S = 2 };					 /* who may send it */
enum { P_NEW = 1, P_GPU = 2, P_RESUME = 4, P_COMM = 8 }; /* on which connections, once OPEN */
enum { P_CONTROL = P_NEW | P_RESUME, P_ANY = 15 };
static const struct {
	const char *name;
	uint8_t from, purposes;
	bool numbered, json;
	size_t min, max;
} frames[DR_CONV_FRAME_TYPES] = {
	[DR_CONV_FRAME_PROOF] = { "PROOF", C | S, 0, false, false, DR_CONV_PROOF_BYTES,
		DR_CONV_PROOF_BYTES },
	[DR_CONV_FRAME_DENY] = { "DENY", C | S, 0, false, false, DR_CONV_DENY_BYTES,
		DR_CONV_DENY_BYTES },
	[DR_CONV_FRAME_WELCOME] = { "WELCOME", S, 0, false, false, 8, 8 },
	[DR_CONV_FRAME_REFUSE] = { "REFUSE", S, P_ANY, false, true, 2, 4096 },
	[DR_CONV_FRAME_OFFER] = { "OFFER", C, P_NEW | P_COMM, false, true, 2,
		DR_BOOT_MESSAGE_BYTES_MAX },
	[DR_CONV_FRAME_ACCEPT] = { "ACCEPT", S, P_NEW | P_COMM, false, true, 2,
		DR_BOOT_MESSAGE_BYTES_MAX },
	[DR_CONV_FRAME_HANDLES] = { "HANDLES", C | S, P_NEW | P_GPU | P_COMM, false, false, 4,
		DR_BOOT_MESSAGE_BYTES_MAX },
	[DR_CONV_FRAME_MESSAGE] = { "MESSAGE", C | S, P_CONTROL, true, true, 2,
		DR_BOOT_MESSAGE_BYTES_MAX },
	[DR_CONV_FRAME_READY] = { "READY", C, P_CONTROL | P_COMM, true, false, 0, 0 },
	[DR_CONV_FRAME_GOODBYE] = { "GOODBYE", C | S, P_CONTROL | P_COMM, true, false, 0, 0 },
	[DR_CONV_FRAME_ACK] = { "ACK", C | S, P_CONTROL | P_COMM, false, false, 8, 8 },
	[DR_CONV_FRAME_PING] = { "PING", C | S, P_CONTROL, false, false, 8, 8 },
	[DR_CONV_FRAME_PONG] = { "PONG", C | S, P_CONTROL, false, false, 24, 24 },
};

const char *dr_frame_name(unsigned type)
{
	return type < DR_CONV_FRAME_TYPES && frames[type].name ? frames[type].name : "?";
}

static uint8_t own_side(const struct dr_conv *c)
{
	return c->o.role == DR_CONV_CLIENT ? C : S;
}

/* Purpose of the connection, chosen by the client. */
static uint8_t purpose_bit(const struct dr_conv *c)
{
	uint8_t p = c->o.role == DR_CONV_CLIENT ? c->o.hello.purpose : c->peer.purpose;
	return (uint8_t)(1u << (p - 1));
}

/* Of a payload. A process has a comm for many peers, and each may stop half-way. */
static size_t max_bytes(const struct dr_conv *c, unsigned type)
{
	size_t max = frames[type].max;
	return purpose_bit(c) == P_COMM ? DR_MIN(max, (size_t)DR_CONV_COMM_BYTES_MAX) : max;
}

void dr_conv_fail(struct dr_conv *c, enum dr_boot_cause cause, const char *fmt, ...)
{
	if (c->state == DR_CONV_ENDED)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(c->err.text, sizeof(c->err.text), fmt, ap);
	va_end(ap);
	dr_text_copy(c->err.text, sizeof(c->err.text), c->err.text); /* cut within a character */
	c->err.code = -EPROTO;
	c->cause = cause;
	c->state = DR_CONV_ENDED;
}

/* ---- output ------------------------------------------------------------------------------- */

int dr_conv_out_reserve(struct dr_conv *c, size_t n)
{
	if (c->out_head > 0 && c->out_head == c->out_len)
		c->out_head = c->out_len = 0;
	if (c->out_len - c->out_head + n > DR_CONV_OUTPUT_MAX)
		return -ENOBUFS;
	if (c->out_len + n <= c->out_cap)
		return 0;
	if (c->out_head > 0) {
		memmove(c->out, c->out + c->out_head, c->out_len - c->out_head);
		c->out_len -= c->out_head;
		c->out_head = 0;
	}
	size_t cap = c->out_cap ? c->out_cap : 512;
	while (cap < c->out_len + n)
		cap *= 2;
	if (cap > c->out_cap) {
		uint8_t *p = dr_realloc(c->out, cap);
		if (!p)
			return -ENOMEM;
		c->out = p;
		c->out_cap = cap;
	}
	return 0;
}

int dr_conv_out_raw(
	struct dr_conv *c, const uint8_t header[DR_CONV_HEADER_BYTES], const void *data, size_t len)
{
	size_t tag = c->sealed ? DR_CONV_TAG_BYTES : 0, head = DR_CONV_HEADER_BYTES + tag;
	size_t all = head + (len ? len + tag : 0);
	int rc = dr_conv_out_reserve(c, all);
	if (rc)
		return rc;
	uint8_t *p = c->out + c->out_len;
	memcpy(p, header, DR_CONV_HEADER_BYTES);
	if (c->sealed)
		dr_noise_seal(
			&c->keys.send, NULL, 0, p, DR_CONV_HEADER_BYTES, p + DR_CONV_HEADER_BYTES);
	if (len) {
		memcpy(p + head, data, len);
		if (c->sealed)
			dr_noise_seal(&c->keys.send, NULL, 0, p + head, len, p + head + len);
	}
	c->out_len += all;
	return 0;
}

int dr_conv_out_frame(
	struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const void *data, size_t len)
{
	dr_assert(frames[type].from & own_side(c));
	dr_assert(frames[type].numbered == (seq != 0));
	if (len > max_bytes(c, type))
		return -EMSGSIZE;
	uint8_t header[DR_CONV_HEADER_BYTES];
	struct dr_wbuf w;
	dr_wbuf_init(&w, header, sizeof(header));
	dr_wbuf_u32(&w, (uint32_t)len);
	dr_wbuf_u32(&w, (uint32_t)type << 24);
	dr_wbuf_u64(&w, seq);
	dr_assert(!w.failed);
	return dr_conv_out_raw(c, header, data, len);
}

size_t dr_conv_output(const struct dr_conv *c, const uint8_t **data)
{
	*data = c->out ? c->out + c->out_head : NULL;
	return c->out_len - c->out_head;
}

void dr_conv_sent(struct dr_conv *c, size_t n, int64_t now_ns)
{
	dr_assert(n <= c->out_len - c->out_head);
	c->out_head += n;
	if (c->out_head == c->out_len)
		c->out_since_ns = DR_NEVER;
	else if (n > 0 || c->out_since_ns == DR_NEVER)
		c->out_since_ns = now_ns;
}

/* ---- frames ------------------------------------------------------------------------------- */

static int clean_string(json_t *v)
{
	size_t len = json_string_length(v), size = DR_MIN(len, (size_t)DR_CONV_TEXT_MAX) + 1;

	if (len < size && dr_text_is_clean(json_string_value(v), len))
		return 0;
	char *copy = dr_calloc(1, size);
	if (!copy)
		return -ENOMEM;
	size_t n = dr_text_clean(copy, size, json_string_value(v), len);
	int rc = json_string_setn(v, copy, n) ? -ENOMEM : 0;
	dr_free(copy);
	return rc;
}

/* Every text of a peer is clean from here on. Depth: DR_JSON_DEPTH_MAX. */
static int clean_json(json_t *j)
{
	const char *key;
	json_t *v;
	size_t i;
	int rc = 0;

	if (json_is_string(j))
		return clean_string(j);
	json_object_foreach(j, key, v)
	{
		if (strlen(key) > DR_CONV_NAME_MAX || !dr_text_is_clean(key, strlen(key)))
			return -EPROTO;
		rc = rc ? rc : clean_json(v);
	}
	json_array_foreach(j, i, v) rc = rc ? rc : clean_json(v);
	return rc;
}

json_t *dr_conv_json_parse(const void *data, size_t len, struct dr_err *e)
{
	json_t *j = dr_json_parse(data, len, e);
	int rc = !j ? 0 : json_is_object(j) ? clean_json(j) : -EINVAL;
	if (!rc)
		return j;
	dr_err_set(e, rc, "%s",
		rc == -ENOMEM	? "out of memory"
		: rc == -EINVAL ? "JSON is not an object"
				: "JSON has a name that is too long or not printable");
	json_decref(j);
	return NULL;
}

static size_t header_bytes(const struct dr_conv *c)
{
	return c->sealed ? DR_CONV_SEALED_HEADER_BYTES : DR_CONV_HEADER_BYTES;
}

/* Bytes of the frame that is complete. */
static size_t payload_bytes(const struct dr_conv *c)
{
	size_t n = c->in_len - header_bytes(c);
	return n && c->sealed ? n - DR_CONV_TAG_BYTES : n;
}

/* Verify and decrypt n bytes of the input; their tag follows. */
static bool unseal(struct dr_conv *c, size_t at, size_t n)
{
	if (!c->sealed ||
		dr_noise_open(&c->keys.receive, NULL, 0, c->in + at, n, c->in + at + n) == 0)
		return true;
	dr_conv_fail(c, DR_BOOT_PROTOCOL,
		"a message failed authentication: bytes were altered, lost, repeated or reordered "
		"between the ends");
	return false;
}

/* The header is complete: is this frame allowed here, with this length? */
static void frame_header(struct dr_conv *c)
{
	struct dr_rbuf r;
	uint32_t len = 0, word = 0;
	uint64_t seq = 0;
	dr_rbuf_init(&r, c->in, DR_CONV_HEADER_BYTES);
	dr_rbuf_u32(&r, &len);
	dr_rbuf_u32(&r, &word);
	dr_rbuf_u64(&r, &seq);
	unsigned type = word >> 24;
	if (type == 0 || type >= DR_CONV_FRAME_TYPES || (word & 0xffffff)) {
		dr_conv_fail(c, DR_BOOT_PROTOCOL, "unknown frame type %u", type);
		return;
	}
	bool allowed = (frames[type].from & ~own_side(c)) != 0;
	if (c->state == DR_CONV_PROOF)
		allowed = allowed && (type == DR_CONV_FRAME_PROOF || type == DR_CONV_FRAME_DENY);
	else if (c->state == DR_CONV_WELCOME)
		allowed =
			allowed && (type == DR_CONV_FRAME_WELCOME || type == DR_CONV_FRAME_REFUSE);
	else
		allowed = allowed && (frames[type].purposes & purpose_bit(c));
	if (!allowed)
		dr_conv_fail(c, DR_BOOT_PROTOCOL, "unexpected %s message", dr_frame_name(type));
	else if (len < frames[type].min || len > max_bytes(c, type))
		dr_conv_fail(c, DR_BOOT_PROTOCOL, "%s message has %u bytes, allowed are %zu to %zu",
			dr_frame_name(type), len, frames[type].min, max_bytes(c, type));
	else if ((seq != 0) != frames[type].numbered)
		dr_conv_fail(c, DR_BOOT_PROTOCOL, "%s message with sequence number %llu",
			dr_frame_name(type), (unsigned long long)seq);
	else
		c->in_need =
			header_bytes(c) + (len ? len + (c->sealed ? DR_CONV_TAG_BYTES : 0) : 0);
}

static void refused(struct dr_conv *c, struct dr_conv_event *ev)
{
	json_int_t cause = json_integer_value(json_object_get(c->json, "cause"));
	json_int_t code = json_integer_value(json_object_get(c->json, "code"));
	const json_t *text = json_object_get(c->json, "text");
	bool known = cause == DR_BOOT_BUSY || cause == DR_BOOT_DECLINED || cause == DR_BOOT_GONE ||
		     cause == DR_BOOT_PROTOCOL || cause == DR_BOOT_TIMEOUT ||
		     cause == DR_BOOT_LOCAL;
	c->cause = known ? (enum dr_boot_cause)cause : DR_BOOT_DECLINED;
	c->err.code = -ECONNREFUSED;
	dr_text_clean(c->err.text, sizeof(c->err.text), text ? json_string_value(text) : NULL,
		text ? json_string_length(text) : 0);
	c->state = DR_CONV_ENDED;
	ev->kind = DR_CONV_REFUSED;
	ev->cause = c->cause;
	ev->code = code > 0 && code < 128 ? (int)code : 3;
}

static void frame_done(struct dr_conv *c, int64_t now_ns, struct dr_conv_event *ev)
{
	enum dr_conv_frame type = c->in[4];
	const uint8_t *data = c->in + header_bytes(c);
	size_t len = payload_bytes(c);
	struct dr_rbuf r;
	dr_rbuf_init(&r, c->in + 8, 8);
	dr_rbuf_u64(&r, &ev->seq);
	c->in_len = 0;
	c->in_need = header_bytes(c);
	if (frames[type].json) {
		c->json = dr_conv_json_parse(data, len, &c->err);
		if (!c->json) {
			char why[sizeof(c->err.text)];
			memcpy(why, c->err.text, sizeof(why));
			dr_conv_fail(c, DR_BOOT_PROTOCOL, "%s message: %.200s", dr_frame_name(type),
				why);
			return;
		}
	}
	switch (type) {
	case DR_CONV_FRAME_PROOF:
		dr_conv_proof_frame(c, now_ns, data, ev);
		break;
	case DR_CONV_FRAME_DENY:
		dr_conv_deny_frame(c, data);
		break;
	case DR_CONV_FRAME_WELCOME:
		c->state = DR_CONV_OPEN;
		dr_rbuf_init(&r, data, len);
		dr_rbuf_u64(&r, &ev->seq);
		ev->kind = DR_CONV_OPENED;
		break;
	case DR_CONV_FRAME_REFUSE:
		refused(c, ev);
		break;
	default:
		ev->kind = DR_CONV_FRAME;
		ev->type = type;
		ev->json = c->json;
		ev->data = data;
		ev->len = len;
	}
}

/* in_need bytes were received. */
static void step(struct dr_conv *c, int64_t now_ns, struct dr_conv_event *ev)
{
	if (c->state == DR_CONV_HELLO) {
		if (c->in_need == DR_CONV_PREFIX_BYTES)
			dr_conv_hello_prefix(c);
		else
			dr_conv_hello_done(c, now_ns);
		return;
	}
	size_t head = header_bytes(c);
	if (c->in_len == head) {
		if (!unseal(c, 0, DR_CONV_HEADER_BYTES))
			return;
		frame_header(c);
		if (c->state == DR_CONV_ENDED || c->in_need > head)
			return;
	} else if (!unseal(c, head, payload_bytes(c))) {
		return;
	}
	frame_done(c, now_ns, ev);
}

static int take(struct dr_conv *c, const uint8_t *data, size_t n)
{
	if (c->in_len + n > c->in_cap) {
		size_t cap = DR_MIN(c->in_need, DR_MAX(2 * c->in_cap, c->in_len + n));
		cap = DR_MAX(cap, c->in_len + n);
		uint8_t *p = dr_realloc(c->in, DR_MAX(cap, (size_t)256));
		if (!p)
			return -ENOMEM;
		c->in = p;
		c->in_cap = DR_MAX(cap, (size_t)256);
	}
	memcpy(c->in + c->in_len, data, n);
	c->in_len += n;
	return 0;
}

static void finish_event(struct dr_conv *c, enum dr_conv_state before, struct dr_conv_event *ev)
{
	if (c->state == DR_CONV_ENDED && before != DR_CONV_ENDED && ev->kind != DR_CONV_REFUSED) {
		ev->kind = DR_CONV_FAILED;
		ev->cause = c->cause;
	}
}

size_t dr_conv_feed(
	struct dr_conv *c, const void *data, size_t len, int64_t now_ns, struct dr_conv_event *ev)
{
	const uint8_t *b = data;
	size_t taken = 0;
	enum dr_conv_state before = c->state;
	memset(ev, 0, sizeof(*ev));
	json_decref(c->json);
	c->json = NULL;
	while (taken < len && c->state != DR_CONV_ENDED && ev->kind == DR_CONV_NOTHING) {
		/* The server's owner has not decided yet: no data is allowed. */
		if (c->o.role == DR_CONV_SERVER && c->state == DR_CONV_WELCOME) {
			dr_conv_fail(c, DR_BOOT_PROTOCOL, "the peer sent data before WELCOME");
			break;
		}
		size_t n = DR_MIN(len - taken, c->in_need - c->in_len);
		if (take(c, b + taken, n)) {
			dr_conv_fail(c, DR_BOOT_LOCAL, "out of memory");
			break;
		}
		taken += n;
		if (c->state == DR_CONV_OPEN)
			c->stage_at_ns = now_ns;
		if (c->state == DR_CONV_HELLO &&
			memcmp(c->in, dr_conv_magic, DR_MIN(c->in_len, sizeof(dr_conv_magic))) !=
				0) {
			char what[96];
			dr_conv_describe_bytes(c->in, c->in_len, what, sizeof(what));
			dr_conv_fail(c, DR_BOOT_PROTOCOL, "%s", what);
			break;
		}
		if (c->in_len == c->in_need)
			step(c, now_ns, ev);
	}
	finish_event(c, before, ev);
	return before == DR_CONV_ENDED || c->state == DR_CONV_ENDED ? len : taken;
}

/* ---- time --------------------------------------------------------------------------------- */

static int64_t input_ns(const struct dr_conv *c)
{
	return c->state == DR_CONV_OPEN && c->o.message_ns ? c->o.message_ns : c->o.stage_ns;
}

int64_t dr_conv_deadline(const struct dr_conv *c)
{
	int64_t at = DR_NEVER;
	if (c->state == DR_CONV_ENDED)
		return at;
	bool owner_decides = c->o.role == DR_CONV_SERVER && c->state == DR_CONV_WELCOME;
	if ((c->state != DR_CONV_OPEN && !owner_decides) || c->in_len > 0)
		at = c->stage_at_ns + input_ns(c);
	if (c->out_since_ns != DR_NEVER)
		at = DR_MIN(at, c->out_since_ns + c->o.stage_ns);
	return at;
}

void dr_conv_tick(struct dr_conv *c, int64_t now_ns, struct dr_conv_event *ev)
{
	enum dr_conv_state before = c->state;
	memset(ev, 0, sizeof(*ev));
	if (now_ns < dr_conv_deadline(c))
		return;
	double s = (double)c->o.stage_ns / 1e9, input_s = (double)input_ns(c) / 1e9;
	if (c->out_since_ns != DR_NEVER && now_ns >= c->out_since_ns + c->o.stage_ns)
		dr_conv_fail(c, DR_BOOT_TIMEOUT,
			"the peer read nothing for %.3g s, %zu bytes are unsent", s,
			c->out_len - c->out_head);
	else if (c->state == DR_CONV_OPEN || c->in_len > 0)
		dr_conv_fail(c, DR_BOOT_TIMEOUT,
			"message incomplete after %.3g s: %zu of %zu bytes received", input_s,
			c->in_len, c->in_need);
	else
		dr_conv_fail(c, DR_BOOT_TIMEOUT, "no %s received within %.3g s",
			c->state == DR_CONV_HELLO   ? "hello"
			: c->state == DR_CONV_PROOF ? "key proof"
						    : "WELCOME",
			input_s);
	finish_event(c, before, ev);
}

/* ---- owner's calls ------------------------------------------------------------------------ */

int dr_conv_init(struct dr_conv *c, const struct dr_conv_opts *opts, int64_t now_ns)
{
	memset(c, 0, sizeof(*c));
	c->o = *opts;
	if (c->o.hello.version == 0)
		c->o.hello.version = DR_BOOT_PROTOCOL_VERSION;
	c->o.hello.has_key = opts->key || opts->key_of;
	c->in_need = DR_CONV_PREFIX_BYTES;
	c->stage_at_ns = now_ns;
	c->out_since_ns = DR_NEVER;
	dr_assert(!sodium_is_zero(c->o.ephemeral, sizeof(c->o.ephemeral)));
	if (c->o.role == DR_CONV_SERVER) {
		dr_assert(c->o.hello.purpose == 0);
		return 0;
	}
	dr_assert(c->o.hello.purpose >= DR_CONV_NEW && c->o.hello.purpose <= DR_CONV_COMM);
	return dr_conv_out_hello(c);
}

void dr_conv_drop_input(struct dr_conv *c)
{
	dr_free(c->in);
	json_decref(c->json);
	c->in = NULL;
	c->json = NULL;
	c->in_len = c->in_cap = 0;
}

void dr_conv_fini(struct dr_conv *c)
{
	dr_conv_drop_input(c);
	dr_free(c->out);
	sodium_memzero(&c->o.ephemeral, sizeof(c->o.ephemeral));
	sodium_memzero(&c->o.secret, sizeof(c->o.secret));
	sodium_memzero(&c->noise, sizeof(c->noise));
	sodium_memzero(&c->keys, sizeof(c->keys));
	c->out = NULL;
}

void dr_conv_validate(const struct dr_conv *c)
{
	dr_assert(c->in_len <= c->in_cap && c->out_head <= c->out_len && c->out_len <= c->out_cap);
	dr_assert(c->state == DR_CONV_ENDED || c->in_len < c->in_need);
	dr_assert(c->in_need <=
		  DR_CONV_SEALED_HEADER_BYTES + DR_BOOT_MESSAGE_BYTES_MAX + DR_CONV_TAG_BYTES);
	dr_assert(c->state == DR_CONV_ENDED || c->sealed == (c->state >= DR_CONV_WELCOME));
	dr_assert(c->state >= DR_CONV_WELCOME ||
		  c->in_need <= DR_CONV_PREFIX_BYTES + DR_CONV_OTHER_REST_MAX);
	dr_assert((c->state == DR_CONV_ENDED) == (c->cause != DR_BOOT_OK));
}

int dr_conv_welcome(struct dr_conv *c, uint64_t last_seq, int64_t now_ns)
{
	dr_assert(c->o.role == DR_CONV_SERVER && c->state == DR_CONV_WELCOME);
	uint8_t buf[8];
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, sizeof(buf));
	dr_wbuf_u64(&w, last_seq);
	int rc = dr_conv_out_frame(c, DR_CONV_FRAME_WELCOME, 0, buf, sizeof(buf));
	if (rc)
		return rc;
	c->state = DR_CONV_OPEN;
	c->stage_at_ns = now_ns;
	return 0;
}

static int out_json(struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const json_t *json)
{
	char *dump = json ? json_dumps(json, JSON_COMPACT) : NULL;
	int rc = dump ? dr_conv_out_frame(c, type, seq, dump, strlen(dump)) : -ENOMEM;
	free(dump); /* lint-ok: of jansson */
	return rc;
}

int dr_conv_refuse(struct dr_conv *c, enum dr_boot_cause cause, int code, const char *text)
{
	dr_assert(c->o.role == DR_CONV_SERVER);
	if (c->state == DR_CONV_ENDED)
		return 0;
	dr_assert(c->state == DR_CONV_WELCOME || c->state == DR_CONV_OPEN);
	char clean[sizeof(c->err.text)];
	dr_text_clean(clean, sizeof(clean), text, strlen(text));
	json_t *j = json_pack("{s:i,s:i,s:s}", "cause", (int)cause, "code", code, "text", clean);
	int rc = out_json(c, DR_CONV_FRAME_REFUSE, 0, j);
	json_decref(j);
	dr_conv_fail(c, cause, "%s", clean);
	return rc;
}

int dr_conv_send(
	struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const void *data, size_t len)
{
	dr_assert(c->state == DR_CONV_OPEN);
	dr_assert(frames[type].purposes & purpose_bit(c));
	return dr_conv_out_frame(c, type, seq, data, len);
}

int dr_conv_send_json(struct dr_conv *c, enum dr_conv_frame type, uint64_t seq, const json_t *json)
{
	dr_assert(c->state == DR_CONV_OPEN && frames[type].json);
	dr_assert(frames[type].purposes & purpose_bit(c));
	return json_is_object(json) ? out_json(c, type, seq, json) : -EINVAL;
}
