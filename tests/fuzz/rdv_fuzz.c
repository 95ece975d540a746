/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rendezvous of comms against any handle and any peer.
 *
 *	u8 0: a handle | 128 bytes         what is accepted is what would have been written; its routes are bounded
 *	u8 1, 2: acceptor, dialler | u8 .. | frames of a peer that has the key, connections that come and go, and the
 *	owner's calls, in any order; see step()
 */
#include "bootstrap/handles.h"
#include "bootstrap/rdv_route.h"
#include "bootstrap/rdv_xchg.h"
#include "tests/fuzz/lib/conv.h"

#include <sodium.h>

enum { STEPS_MAX = 200 };
static const uint8_t nonce[DR_XCHG_NONCE_BYTES] = { 1, 2, 3 };
static const struct dr_boot_key key = { .bytes = { 4 } };

/* ---- handles ------------------------------------------------------------------------------ */

static void handle(struct fz *z)
{
	uint8_t in[DR_RDV_HANDLE_BYTES] = { 0 }, again[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_addr local[2] = { 0 };
	struct dr_rdv_route routes[DR_RDV_ROUTES_MAX];
	struct dr_rdv_handle h;
	struct dr_err e;
	size_t len;
	uint8_t *b = fz_bytes(z, sizeof(in), &len);

	memcpy(in, b, len);
	if (fz_failed(dr_rdv_handle_decode(in, &h, &e), &e))
		return;
	dr_assert(dr_rdv_handle_encode(&h, again) == (int)h.n);
	fz_same(in, sizeof(in), again, sizeof(again));
	for (unsigned i = 0; i < 2; i++) {
		local[i] = h.addrs[i % h.n];
		memcpy(local[i].device, "lo", 3);
	}
	unsigned n = dr_rdv_routes(&h, local, 2, routes);
	dr_assert(n <= DR_RDV_ROUTES_MAX);
	for (unsigned i = 0; i < n; i++)
		dr_assert(dr_sa_port(&routes[i].to.ss) == h.port);
}

/* ---- exchange ----------------------------------------------------------------------------- */

struct world {
	struct dr_xchg x;
	struct fz_link link;
	bool dialler, done;
	bool heard_handles; /* on this conversation */
	unsigned asked;
	struct fz *z;
};

static void detach(struct world *w)
{
	if (w->link.open)
		dr_xchg_detach(&w->x);
	fz_link_close(&w->link);
	w->heard_handles = false;
}

static void attach(struct world *w)
{
	struct fz_link *l = &w->link;

	detach(w);
	l->server = !w->dialler;
	fz_link_open(l, 0);
	/* The frames allowed are those of COMM. */
	(l->server ? &l->peer : &l->own)->o.hello.purpose = DR_CONV_COMM;
	(l->server ? &l->own : &l->peer)->peer.purpose = DR_CONV_COMM;
	dr_xchg_attach(&w->x, &l->own);
}

static void take(void *arg, const struct dr_conv_event *ev)
{
	struct world *w = arg;
	const json_t *reply = NULL;
	enum dr_xchg_state before = w->x.state;

	if (ev->kind != DR_CONV_FRAME)
		return;
	bool handles = ev->type == DR_CONV_FRAME_HANDLES;
	switch (dr_xchg_frame(&w->x, ev, &reply)) {
	case DR_XCHG_ACCEPT:
		dr_assert(w->dialler && w->asked++ == 0 && json_is_object(reply));
		dr_assert(before == DR_XCHG_OFFERED && w->x.state == DR_XCHG_ACCEPTED);
		break;
	case DR_XCHG_ALL:
		dr_assert(!w->done && before == DR_XCHG_ACCEPTED);
		dr_assert(w->x.own.set && w->x.theirs.set && (w->dialler || w->heard_handles));
		w->done = true;
		break;
	case DR_XCHG_BROKEN:
		dr_assert(w->link.own.state == DR_CONV_ENDED && w->link.own.err.text[0]);
		handles = false;
		break;
	case DR_XCHG_GOODBYE:
		dr_assert(!w->dialler);
		break;
	default:
		dr_assert(w->link.own.state == DR_CONV_OPEN);
	}
	w->heard_handles |= handles;
	dr_assert(w->done == (w->x.state == DR_XCHG_DONE));
}

static size_t peer_json(struct world *w, uint8_t how, char *body, size_t cap)
{
	char hex[2 * DR_XCHG_NONCE_BYTES + 1];

	if (how & 0x20) {
		size_t n = DR_MIN(w->z->n, (size_t)(how & 0x1f)), len;
		uint8_t *b = fz_bytes(w->z, n, &len);

		memcpy(body, b, len);
		return len;
	}
	sodium_bin2hex(hex, sizeof(hex), nonce, sizeof(nonce));
	if (how & 0x10)
		hex[0] = 'f';
	return (size_t)snprintf(body, cap, "{\"nonce\":\"%s\",\"reply\":{\"a\":1}}", hex);
}

/* A frame of the peer's: right in most respects, so that it gets somewhere. */
static void peer_frame(struct world *w, uint8_t how)
{
	static const enum dr_conv_frame types[] = { DR_CONV_FRAME_OFFER, DR_CONV_FRAME_ACCEPT,
		DR_CONV_FRAME_HANDLES, DR_CONV_FRAME_READY, DR_CONV_FRAME_ACK,
		DR_CONV_FRAME_GOODBYE };
	enum dr_conv_frame type = types[how % DR_ARRAY_LEN(types)];
	bool numbered = type == DR_CONV_FRAME_READY || type == DR_CONV_FRAME_GOODBYE;
	struct dr_handle h[3] = { { .len = 1 }, { .len = 0 }, { .len = DR_HANDLE_MAX } };
	char body[256] = "";
	size_t len = 0;

	if (type == DR_CONV_FRAME_OFFER || type == DR_CONV_FRAME_ACCEPT) {
		len = peer_json(w, how, body, sizeof(body));
	} else if (type == DR_CONV_FRAME_HANDLES) {
		unsigned n = how >> 6;

		len = dr_handles_encoded_len(h, n);
		dr_assert(dr_handles_encode(body, sizeof(body), how & 0x20 ? 1 : 0, h, n) == 0);
	} else if (type == DR_CONV_FRAME_ACK) {
		len = 8;
		body[7] = (char)(how & 0x20 ? fz_u8(w->z) : 1);
	}
	fz_link_frame(&w->link, type, numbered ? 1 + (how & 0x40 ? fz_u8(w->z) : 0) : 0, body, len,
		0, take, w);
}

static void owner(struct world *w, uint8_t how)
{
	struct dr_handle h[3] = { { .len = 3 },
		{ .len = (uint8_t)(how & 0x80 ? DR_HANDLE_MAX + 1 : 9) } };
	json_t *j;
	int rc;

	switch (how % 3) {
	case 0:
		j = json_pack("{s:i}", "r", 1);
		rc = dr_xchg_accept(&w->x, j);
		dr_assert((rc == 0) <= !w->dialler);
		json_decref(j);
		break;
	case 1:
		rc = dr_xchg_give(&w->x, h, how >> 6);
		dr_assert(rc == 0 || rc == -EINVAL);
		break;
	default:
		if (!w->dialler && w->x.state < DR_XCHG_DONE && how & 0x80)
			dr_xchg_refuse(&w->x, 3, "no");
	}
}

static void step(struct world *w, uint8_t op)
{
	if (op % 8 == 0)
		detach(w);
	else if (op % 8 == 1)
		attach(w);
	else if (op % 8 == 2)
		owner(w, fz_u8(w->z));
	else if (w->link.open && w->link.own.state == DR_CONV_OPEN)
		peer_frame(w, fz_u8(w->z));
}

static void offer(struct fz *z, struct dr_xchg_offer *out)
{
	static const char fallback[] =
		"{\"nonce\":\"01020300000000000000000000000000\",\"timeout_ms\":5,\"offer\":{}}";
	size_t len;
	uint8_t n = fz_u8(z), *b = fz_bytes(z, n, &len);
	json_t *j = n ? dr_conv_json_parse(b, len, NULL) : NULL;

	if (j && dr_xchg_offer_read(j, out) == 0)
		dr_assert(json_is_object(out->offer) && out->timeout_ns >= 0 &&
			  out->timeout_ns <= 3600 * DR_NS_PER_S);
	fz_shows_json(j);
	json_decref(j);
	j = json_loads(fallback, 0, NULL);
	dr_assert(dr_xchg_offer_read(j, out) == 0);
	json_decref(j);
	out->offer = NULL;
}

static void exchange(struct fz *z, bool dialler)
{
	struct dr_xchg_opts o = { .key = &key, .number = 9, .nonce = nonce };
	struct world w = { .dialler = dialler, .z = z };
	struct dr_xchg_offer got;
	json_t *j;

	offer(z, &got);
	if (dialler) {
		j = json_object();
		dr_assert(dr_xchg_init_dialler(&w.x, &o, j, DR_NS_PER_S) == 0);
		json_decref(j);
	} else {
		dr_xchg_init_acceptor(&w.x, &o, &got);
	}
	attach(&w);
	for (unsigned i = 0; i < STEPS_MAX && z->n; i++) {
		step(&w, fz_u8(z));
		dr_xchg_validate(&w.x);
		if (w.link.open) {
			dr_conv_validate(&w.link.own);
			fz_shows(w.link.own.err.text);
		}
	}
	detach(&w);
	dr_xchg_fini(&w.x);
}

FUZZ(z)
{
	uint8_t kind = fz_u8(z) % 3;

	dr_assert(sodium_init() >= 0);
	if (kind == 0)
		handle(z);
	else
		exchange(z, kind == 2);
}
