/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_xchg.h"

#include "base/mem.h"
#include "base/text.h"
#include "base/wire.h"
#include "bootstrap/handles.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/*
 * The exchange of a comm, over one connection after another until it is done:
 *
 *   connecting end (dialler)                      listening end (acceptor)
 *   HELLO {listen, comm number}            ---->  HELLO, PROOF
 *   PROOF                                  ---->
 *   OFFER {nonce, JSON object}             ---->  on_offer -> dr_rdv_accept or dr_rdv_refuse
 *     on_accept  <----  ACCEPT {nonce, JSON object}
 *   HANDLES                                <--->  HANDLES, both by dr_rdv_give
 *   READY                                  ---->  on_done
 *     on_done    <----  ACK
 *   GOODBYE                                ---->  the acceptor forgets the exchange
 *
 * READY says that the dialler has everything, so the acceptor is done when it arrives; ACK says
 * that the acceptor is done, then the dialler is. If the ACK is lost, the dialler dials again, and
 * the acceptor, which knows the exchange by the comm number (random, one per connect), repeats what
 * it said until GOODBYE arrives or the dialler's time is over, also after its listen was closed. If
 * all of that fails, the acceptor is done and the dialler has failed: the acceptor's comm gets no
 * data path and ends as one whose peer is silent. The reverse cannot happen. Handles are handed out
 * in on_done only, so an acceptor whose data path is dialled or hears data knows that the dialler
 * was done as well.
 *
 * Invariants
 * 1. ALL is reported once. At the acceptor it needs HANDLES and then READY of the dialler on one conversation, at the
 *    dialler the acceptor's handles and ACK.
 * 2. READY leaves only when this dialler has the acceptor's handles and has sent its own on the same conversation.
 * 3. What was received first counts; repetitions are checked for order and size, and dropped.
 * 4. A refusal is final and is repeated as it was.
 */
enum { READY_SEQ = 1, GIVE_UP_SEQ = 1, GOODBYE_SEQ = 2 };

static const int64_t TIMEOUT_MAX_NS = 3600 * DR_NS_PER_S;

/* ---- envelopes ---------------------------------------------------------------------------- */

static bool nonce_read(const json_t *frame, uint8_t out[DR_XCHG_NONCE_BYTES])
{
	const char *hex = json_string_value(json_object_get(frame, "nonce"));
	size_t n = 0;
	return hex && strlen(hex) == 2 * DR_XCHG_NONCE_BYTES &&
	       sodium_hex2bin(out, DR_XCHG_NONCE_BYTES, hex, 2 * DR_XCHG_NONCE_BYTES, NULL, &n,
		       NULL) == 0 &&
	       n == DR_XCHG_NONCE_BYTES;
}

int dr_xchg_offer_read(const json_t *frame, struct dr_xchg_offer *out)
{
	const json_t *ms = json_object_get(frame, "timeout_ms");
	int64_t v = json_integer_value(ms);
	out->offer = json_object_get(frame, "offer");
	if (!json_is_object(out->offer) || !json_is_integer(ms) || v < 0 ||
		v > TIMEOUT_MAX_NS / DR_NS_PER_MS || !nonce_read(frame, out->nonce))
		return -EPROTO;
	out->timeout_ns = v * DR_NS_PER_MS;
	return 0;
}

/* frame is taken over. */
static int set_text(struct dr_xchg *x, json_t *frame)
{
	char *text = frame ? json_dumps(frame, JSON_COMPACT) : NULL;
	json_decref(frame);
	if (!text)
		return -ENOMEM;
	if (strlen(text) > DR_CONV_COMM_BYTES_MAX) {
		free(text); /* lint-ok: of jansson */
		return -EMSGSIZE;
	}
	x->text = text;
	return 0;
}

static const char *nonce_hex(const struct dr_xchg *x, char buf[2 * DR_XCHG_NONCE_BYTES + 1])
{
	return sodium_bin2hex(buf, 2 * DR_XCHG_NONCE_BYTES + 1, x->nonce, DR_XCHG_NONCE_BYTES);
}

static void derive_secret(struct dr_xchg *x)
{
	static const char label[] = "dualrail comm secret";
	uint8_t buf[sizeof(label) + 8 + 2 * DR_XCHG_NONCE_BYTES];
	struct dr_wbuf w;
	dr_wbuf_init(&w, buf, sizeof(buf));
	dr_wbuf_bytes(&w, label, sizeof(label));
	dr_wbuf_u64(&w, x->number);
	dr_wbuf_bytes(&w, x->dialler ? x->nonce : x->peer_nonce, DR_XCHG_NONCE_BYTES);
	dr_wbuf_bytes(&w, x->dialler ? x->peer_nonce : x->nonce, DR_XCHG_NONCE_BYTES);
	dr_assert(!w.failed && w.len == sizeof(buf));
	crypto_generichash(
		x->secret, sizeof(x->secret), buf, w.len, x->key.bytes, sizeof(x->key.bytes));
}

/* ---- life --------------------------------------------------------------------------------- */

static void init(struct dr_xchg *x, const struct dr_xchg_opts *o, bool dialler)
{
	memset(x, 0, sizeof(*x));
	x->dialler = dialler;
	x->key = *o->key;
	x->number = o->number;
	memcpy(x->nonce, o->nonce, sizeof(x->nonce));
}

int dr_xchg_init_dialler(
	struct dr_xchg *x, const struct dr_xchg_opts *o, const json_t *offer, int64_t timeout_ns)
{
	char hex[2 * DR_XCHG_NONCE_BYTES + 1];
	init(x, o, true);
	if (!json_is_object(offer) || timeout_ns < 0 || timeout_ns > TIMEOUT_MAX_NS)
		return -EINVAL;
	return set_text(
		x, json_pack("{s:s,s:I,s:O}", "nonce", nonce_hex(x, hex), "timeout_ms",
			   (json_int_t)(timeout_ns / DR_NS_PER_MS), "offer", (json_t *)offer));
}

void dr_xchg_init_acceptor(
	struct dr_xchg *x, const struct dr_xchg_opts *o, const struct dr_xchg_offer *offer)
{
	init(x, o, false);
	memcpy(x->peer_nonce, offer->nonce, sizeof(x->peer_nonce));
	derive_secret(x);
}

void dr_xchg_fini(struct dr_xchg *x)
{
	free(x->text); /* lint-ok: of jansson */
	dr_free(x->own.h);
	dr_free(x->theirs.h);
	sodium_memzero(x, sizeof(*x));
}

void dr_xchg_validate(const struct dr_xchg *x)
{
	dr_assert(x->own.set == (x->own.h != NULL) && x->theirs.set == (x->theirs.h != NULL));
	dr_assert(x->conv || !(x->accepted || x->sent || x->received || x->ready));
	dr_assert(!x->accepted || x->state != DR_XCHG_OFFERED);
	dr_assert(!x->sent || (x->accepted && x->own.set));
	dr_assert(!x->received || (x->accepted && x->theirs.set));
	dr_assert(!x->ready || (x->sent && x->theirs.set));
	dr_assert(x->state != DR_XCHG_DONE || (x->own.set && x->theirs.set));
	dr_assert(!x->dialler || x->state != DR_XCHG_REFUSED);
}

/* ---- output ------------------------------------------------------------------------------- */

static void post(
	struct dr_xchg *x, enum dr_conv_frame type, uint64_t seq, const void *data, size_t len)
{
	if (x->conv->state != DR_CONV_OPEN)
		return;
	int rc = dr_conv_send(x->conv, type, seq, data, len);
	if (rc)
		dr_conv_fail(x->conv, DR_BOOT_LOCAL, "cannot send %s: %s", dr_frame_name(type),
			strerror(-rc));
}

/* Send what is due on the conversation by now. */
static void advance(struct dr_xchg *x)
{
	if (!x->conv || x->conv->state != DR_CONV_OPEN)
		return;
	if (!x->dialler && !x->accepted && x->text) {
		post(x, DR_CONV_FRAME_ACCEPT, 0, x->text, strlen(x->text));
		x->accepted = true;
	}
	if (x->accepted && x->own.set && !x->sent) {
		int rc = dr_handles_send(x->conv, 0, x->own.h, x->own.n);
		if (rc)
			dr_conv_fail(x->conv, DR_BOOT_LOCAL, "cannot send the handles: %s",
				strerror(-rc));
		x->sent = true;
	}
	if (x->dialler && x->sent && x->theirs.set && !x->ready) {
		post(x, DR_CONV_FRAME_READY, READY_SEQ, NULL, 0);
		x->ready = true;
	}
}

void dr_xchg_detach(struct dr_xchg *x)
{
	x->conv = NULL;
	x->accepted = x->sent = x->received = x->ready = false;
}

void dr_xchg_attach(struct dr_xchg *x, struct dr_conv *c)
{
	dr_xchg_detach(x);
	x->conv = c;
	if (x->dialler)
		post(x, DR_CONV_FRAME_OFFER, 0, x->text, strlen(x->text));
	else if (x->state == DR_XCHG_REFUSED)
		dr_conv_refuse(c, DR_BOOT_DECLINED, x->refuse_code, x->refuse_text);
	else
		advance(x);
}

/* ---- input -------------------------------------------------------------------------------- */

static enum dr_xchg_news broken(struct dr_xchg *x, const char *text)
{
	dr_conv_fail(x->conv, DR_BOOT_PROTOCOL, "%s", text);
	return DR_XCHG_BROKEN;
}

static enum dr_xchg_news unexpected(struct dr_xchg *x, const struct dr_conv_event *ev)
{
	char text[64];
	snprintf(text, sizeof(text), "unexpected %s message", dr_frame_name(ev->type));
	return broken(x, text);
}

static enum dr_xchg_news accept_came(
	struct dr_xchg *x, const struct dr_conv_event *ev, const json_t **reply)
{
	uint8_t nonce[DR_XCHG_NONCE_BYTES];
	bool first = x->state == DR_XCHG_OFFERED;
	*reply = json_object_get(ev->json, "reply");
	if (x->accepted)
		return unexpected(x, ev);
	if (!json_is_object(*reply) || !nonce_read(ev->json, nonce))
		return broken(x, "malformed ACCEPT message");
	if (!first && memcmp(nonce, x->peer_nonce, sizeof(nonce)) != 0)
		return broken(x, "the peer's ACCEPT message differs from its earlier one");
	x->accepted = true;
	if (!first) {
		advance(x);
		return DR_XCHG_NOTHING;
	}
	memcpy(x->peer_nonce, nonce, sizeof(nonce));
	derive_secret(x);
	x->state = DR_XCHG_ACCEPTED;
	return DR_XCHG_ACCEPT;
}

static enum dr_xchg_news handles_came(struct dr_xchg *x, const struct dr_conv_event *ev)
{
	struct dr_err e = { .text = "malformed HANDLES message" };
	unsigned n;
	if (!x->accepted || x->received)
		return unexpected(x, ev);
	if (dr_handles_count(ev->data, ev->len, &n))
		return broken(x, e.text);
	struct dr_handle *h;
	if (dr_handles_decode(ev->data, ev->len, 0, n, &h, &e))
		return broken(x, e.text);
	if (x->theirs.set)
		dr_free(h);
	else
		x->theirs = (struct dr_xchg_handles){ .set = true, .n = n, .h = h };
	x->received = true;
	advance(x);
	return DR_XCHG_NOTHING;
}

static enum dr_xchg_news all_here(struct dr_xchg *x)
{
	bool first = x->state == DR_XCHG_ACCEPTED;
	x->state = DR_XCHG_DONE;
	return first ? DR_XCHG_ALL : DR_XCHG_NOTHING;
}

static enum dr_xchg_news ready_came(struct dr_xchg *x, const struct dr_conv_event *ev)
{
	uint8_t ack[8];
	struct dr_wbuf w;
	if (!x->received || !x->sent || x->ready || ev->seq != READY_SEQ)
		return unexpected(x, ev);
	x->ready = true;
	dr_wbuf_init(&w, ack, sizeof(ack));
	dr_wbuf_u64(&w, READY_SEQ);
	post(x, DR_CONV_FRAME_ACK, 0, ack, sizeof(ack));
	return all_here(x);
}

static enum dr_xchg_news ack_came(struct dr_xchg *x, const struct dr_conv_event *ev)
{
	struct dr_rbuf r;
	uint64_t seq = 0;
	dr_rbuf_init(&r, ev->data, ev->len);
	dr_rbuf_u64(&r, &seq);
	if (!x->ready || dr_rbuf_done(&r) || seq != READY_SEQ || x->state == DR_XCHG_DONE)
		return unexpected(x, ev);
	post(x, DR_CONV_FRAME_GOODBYE, GOODBYE_SEQ, NULL, 0);
	return all_here(x);
}

enum dr_xchg_news dr_xchg_frame(
	struct dr_xchg *x, const struct dr_conv_event *ev, const json_t **reply)
{
	enum dr_xchg_news news = DR_XCHG_BROKEN;
	if (ev->type == DR_CONV_FRAME_HANDLES)
		news = handles_came(x, ev);
	else if (x->dialler && ev->type == DR_CONV_FRAME_ACCEPT)
		news = accept_came(x, ev, reply);
	else if (x->dialler && ev->type == DR_CONV_FRAME_ACK)
		news = ack_came(x, ev);
	else if (!x->dialler && ev->type == DR_CONV_FRAME_READY)
		news = ready_came(x, ev);
	else if (!x->dialler && ev->type == DR_CONV_FRAME_GOODBYE)
		return DR_XCHG_GOODBYE;
	else
		return unexpected(x, ev);
	/* Done is done, whatever becomes of the conversation. */
	if (news == DR_XCHG_NOTHING && x->conv->state == DR_CONV_ENDED)
		return DR_XCHG_BROKEN;
	return news;
}

/* ---- owner's calls ------------------------------------------------------------------------ */

int dr_xchg_accept(struct dr_xchg *x, const json_t *reply)
{
	char hex[2 * DR_XCHG_NONCE_BYTES + 1];
	if (x->dialler || x->state != DR_XCHG_OFFERED || !json_is_object(reply))
		return -EINVAL;
	int rc = set_text(
		x, json_pack("{s:s,s:O}", "nonce", nonce_hex(x, hex), "reply", (json_t *)reply));
	if (rc)
		return rc;
	x->state = DR_XCHG_ACCEPTED;
	advance(x);
	return 0;
}

int dr_xchg_give(struct dr_xchg *x, const struct dr_handle *h, unsigned n)
{
	if (x->state != DR_XCHG_ACCEPTED || x->own.set || n > DR_BOOT_HANDLES_MAX)
		return -EINVAL;
	int rc = dr_handles_copy(h, n, &x->own.h);
	if (rc)
		return rc;
	x->own.n = n;
	x->own.set = true;
	advance(x);
	return 0;
}

void dr_xchg_refuse(struct dr_xchg *x, int code, const char *text)
{
	dr_assert(!x->dialler && x->state != DR_XCHG_DONE && x->state != DR_XCHG_REFUSED);
	x->state = DR_XCHG_REFUSED;
	x->refuse_code = code;
	dr_text_copy(x->refuse_text, sizeof(x->refuse_text), text);
	if (x->conv)
		dr_conv_refuse(x->conv, DR_BOOT_DECLINED, code, x->refuse_text);
}

void dr_xchg_goodbye(struct dr_xchg *x)
{
	dr_assert(x->dialler);
	if (x->conv)
		post(x, DR_CONV_FRAME_GOODBYE, GIVE_UP_SEQ, NULL, 0);
}
