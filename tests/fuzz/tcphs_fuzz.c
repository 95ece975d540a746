/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of the TCP kind: connections that say anything in any fragments, and paths that come and go at
 * any time. Nobody without the token is admitted; who is admitted is of the path's channel, index, generation
 * and direction, and is the only one; slots are neither lost nor doubled.
 *
 *	n x { u8 what, u8 which, ... }
 */
#include "tests/fuzz/lib/fuzz.h"
#include "transport/tcp/tcp_hs.h"

enum { ENDS = 6, STEPS_MAX = 400 };

struct world {
	struct tcp_admission a;
	struct tcp_hs end[ENDS];
	bool there[ENDS];
	bool used[TCP_PENDING_MAX]; /* the owner's view of the slots */
	unsigned open;
	int64_t now;
};

static const uint8_t token[DR_TOKEN_LEN] = { 9, 8, 7 };

static void closed(struct world *w, int slot)
{
	dr_assert(w->used[slot]);
	w->used[slot] = false;
	w->open--;
}

static void obey(struct world *w, const struct tcp_verdict *v)
{
	if (v->replaced >= 0)
		closed(w, v->replaced);
	if (v->what == TCP_KEEP || v->what == TCP_PARKED)
		return;
	closed(w, v->slot);
	if (v->what == TCP_REJECT)
		dr_assert(v->why && v->why[0]);
	if (v->what != TCP_ADMIT)
		return;
	const struct dr_path_ident *id = &v->to->id;
	dr_assert(memcmp(v->who.token, token, sizeof(token)) == 0);
	dr_assert(v->to->state == TCP_HS_ADMITTED && !id->connector);
	dr_assert(id->channel == v->who.channel && id->index == v->who.index &&
		  id->gen == v->who.gen && id->sender != v->who.sender);
	if (v->who.gen & 1) /* half of them stay ADMITTED for a while */
		dr_tcp_hs_admitted(v->to);
}

static void path(struct world *w, unsigned i, struct fz *z)
{
	struct tcp_hs *h = &w->end[i];
	uint8_t how = fz_u8(z);
	struct tcp_verdict v;

	if (!w->there[i]) {
		struct dr_path_ident id = { .channel = how & 1,
			.gen = how >> 4,
			.index = how >> 1 & 1,
			.sender = how >> 2 & 1 };

		dr_tcp_hs_init(h, &w->a, &id);
		w->there[i] = true;
	} else if (how & 1 && h->state == TCP_HS_NEW) {
		dr_tcp_hs_start(h);
		v = dr_tcp_admission_claim(&w->a, h);
		obey(w, &v);
	} else if (how & 2) {
		dr_tcp_hs_end(h);
	} else if (how & 4) {
		dr_tcp_hs_fini(h);
		w->there[i] = false;
	}
}

static void say(struct world *w, unsigned slot, struct fz *z)
{
	uint8_t how = fz_u8(z), id = fz_u8(z), bytes[TCP_HELLO_LEN];
	struct tcp_hello h = {
		.channel = id & 1, .gen = id >> 4, .index = id >> 1 & 1, .sender = !(id >> 2 & 1)
	};
	unsigned want, len;

	if (!w->used[slot])
		return;
	memcpy(h.token, token, sizeof(token));
	h.token[0] ^= how & 1;
	dr_tcp_hello_encode(&h, bytes);
	if (how & 2)
		bytes[fz_u8(z) % TCP_HELLO_LEN] ^= fz_u8(z);
	want = dr_tcp_admission_want(&w->a, slot);
	len = how & 4 ? want : DR_MIN(want, how >> 3);
	dr_assert(want >= 1 && want <= TCP_HELLO_LEN);
	struct tcp_verdict v = dr_tcp_admission_bytes(
		&w->a, slot, bytes + w->a.slot[slot].have % TCP_HELLO_LEN, len, w->now);
	dr_assert(v.slot == (int)slot);
	obey(w, &v);
}

static void come(struct world *w, uint8_t how)
{
	bool evicted;
	unsigned slot = dr_tcp_admission_open(&w->a, how & 1, w->now, &evicted);

	dr_assert(slot < TCP_PENDING_MAX && evicted == w->used[slot]);
	if (evicted)
		closed(w, (int)slot);
	w->used[slot] = true;
	w->open++;
}

static void pass(struct world *w, uint8_t time)
{
	w->now += time * (DR_NS_PER_S / 20);
	for (unsigned i = 0; i < TCP_PENDING_MAX; i++) {
		if (!w->used[i])
			continue;
		struct tcp_verdict v = dr_tcp_admission_expire(&w->a, i, w->now);
		obey(w, &v);
	}
	dr_assert(dr_tcp_admission_deadline(&w->a) > w->now); /* nobody stays for long */
}

/* The connector's side: an answer in any fragments. */
static void answer(struct world *w, struct fz *z)
{
	struct dr_path_ident id = { .gen = 5, .connector = true };
	uint8_t ok[TCP_HELLO_OK_LEN], flip = fz_u8(z);
	struct tcp_hs h;
	size_t at = 0, used;
	int rc = 0;

	dr_tcp_hs_init(&h, &w->a, &id);
	dr_tcp_hs_start(&h);
	dr_tcp_hs_greeted(&h);
	dr_tcp_hs_welcome(&h, ok);
	if (flip)
		ok[flip % TCP_HELLO_OK_LEN] ^= flip;
	while (rc == 0 && at < sizeof(ok)) {
		size_t some = 1u + fz_u8(z) % 16, len = DR_MIN(some, sizeof(ok) - at);
		struct dr_err e;

		rc = dr_tcp_hs_bytes(&h, ok + at, len, &used, &e);
		dr_assert(used == len);
		at += used;
		if (rc < 0)
			fz_explained(rc, &e);
	}
	dr_assert(at == sizeof(ok) && (rc == 1) == (flip == 0) &&
		  (h.state == TCP_HS_UP) == (rc == 1));
	dr_tcp_hs_fini(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fz z = fz_init(data, size);
	struct world w = { .now = 1 };

	dr_tcp_admission_init(&w.a, token);
	for (unsigned i = 0; i < STEPS_MAX && z.n > 0; i++) {
		uint8_t what = fz_u8(&z), which = fz_u8(&z);

		switch (what % 6) {
		case 0:
			come(&w, which);
			break;
		case 1:
		case 2:
			say(&w, which % TCP_PENDING_MAX, &z);
			break;
		case 3:
			path(&w, which % ENDS, &z);
			break;
		case 4:
			pass(&w, which);
			break;
		default:
			answer(&w, &z);
			break;
		}
		dr_assert(w.a.n == w.open && dr_tcp_admission_validate(&w.a));
	}
	return 0;
}
