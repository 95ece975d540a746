/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of the TCP kind: connections that say anything in any fragments, and paths that come and go at
 * any time. HELLOs are proven with the right token and the nonce of their connection, with another token, with
 * another nonce, or altered anywhere. Only the first are admitted; who is admitted is of the path's channel, index,
 * generation and direction, and is the only one; slots are neither lost nor doubled.
 *
 *	n x { u8 what, u8 which, ... }
 */
#include "tests/fuzz/lib/fuzz.h"
#include "transport/tcp/tcp_hs_testkit.h"

#include <sys/socket.h>

enum { ENDS = 6, STEPS_MAX = 400 };

struct world {
	struct tcp_admission a;
	struct tcp_hs end[ENDS];
	bool there[ENDS];
	bool used[TCP_PENDING_MAX];		       /* the owner's view of the slots */
	bool proves_nothing[TCP_PENDING_MAX];	       /* they said bytes that prove nothing */
	uint8_t hello[TCP_PENDING_MAX][TCP_HELLO_LEN]; /* what they began to say */
	unsigned open;
	int64_t now;
};

static const uint8_t token[DR_TOKEN_LEN] = { 9, 8, 7 }, other[DR_TOKEN_LEN] = { 9, 8, 6 };
static const uint8_t secret[DR_KEY_LEN] = { 1 };
static const struct tcp_rail_handle place = {
	.family = AF_INET, .addr = { 10, 0, 0, 1 }, .tcp_port = 1, .udp_port = 1
};

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
	dr_assert(!w->proves_nothing[v->slot]);
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

/* How a HELLO is made: as it should be, or with these. */
enum { OTHER_TOKEN = 1, OTHER_NONCE = 2, ALTERED = 4 };

static void make_hello(struct world *w, unsigned slot, struct fz *z, unsigned how)
{
	uint8_t id = fz_u8(z), bytes[TCP_CHALLENGE_LEN], flip = fz_u8(z);
	struct dr_path_ident path = { .channel = id & 1,
		.gen = id >> 4,
		.index = id >> 1 & 1,
		.sender = !(id >> 2 & 1),
		.connector = true };
	struct tcp_admission peer;
	struct tcp_hs h;
	size_t used;

	dr_tcp_admission_init(&peer, how & OTHER_TOKEN ? other : token, secret);
	dr_tcp_place_set(&peer.peer, &place);
	dr_tcp_hs_init(&h, &peer, &path);
	dr_tcp_hs_start(&h);
	dr_tcp_admission_challenge(&w->a, slot, bytes);
	if (how & OTHER_NONCE)
		bytes[8 + flip % TCP_NONCE_LEN] ^= 1;
	dr_assert(dr_tcp_hs_bytes(&h, bytes, sizeof(bytes), &used, NULL) == 1);
	dr_tcp_hs_hello(&h, w->hello[slot]);
	if (how & ALTERED)
		w->hello[slot][flip % TCP_HELLO_LEN] ^= (uint8_t)(1u << (flip >> 5));
	w->proves_nothing[slot] = how != 0;
}

static void say(struct world *w, unsigned slot, struct fz *z)
{
	uint8_t how = fz_u8(z);
	unsigned want, len, have;

	if (!w->used[slot])
		return;
	have = w->a.slot[slot].have;
	if (have == 0)
		make_hello(w, slot, z, how & 7);
	want = dr_tcp_admission_want(&w->a, slot);
	len = how & 8 ? want : DR_MIN(want, how >> 4);
	dr_assert(want >= 1 && want <= TCP_HELLO_LEN);
	struct tcp_verdict v = dr_tcp_admission_bytes(
		&w->a, slot, w->hello[slot] + have % TCP_HELLO_LEN, len, w->now);
	dr_assert(v.slot == (int)slot);
	dr_assert(v.what != TCP_PARKED || !w->proves_nothing[slot]);
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

/* The connector's side: a challenge or an answer in any fragments, altered if flip is not 0. True: it was taken. */
static bool hears(struct tcp_hs *h, uint8_t *bytes, size_t n, uint8_t flip, struct fz *z)
{
	size_t at = 0, used;
	struct dr_err e;
	int rc = 0;

	if (flip)
		bytes[flip % n] ^= flip;
	while (rc == 0 && at < n) {
		size_t some = 1u + fz_u8(z) % 16, len = DR_MIN(some, n - at);

		rc = dr_tcp_hs_bytes(h, bytes + at, len, &used, &e);
		dr_assert(used == len);
		at += used;
		if (rc < 0)
			fz_explained(rc, &e);
	}
	dr_assert(at == n && rc != 0);
	return rc == 1;
}

static void answer(struct fz *z)
{
	struct dr_path_ident id[2] = { { .gen = 5, .connector = true },
		{ .gen = 5, .sender = true } };
	uint8_t challenge[TCP_CHALLENGE_LEN], hello[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN];
	uint8_t flip[2] = { fz_u8(z), fz_u8(z) };
	struct tcp_admission a;
	struct tcp_hs con, acc;
	bool evicted, same = flip[0] == 0;

	dr_tcp_admission_init(&a, token, secret);
	dr_tcp_place_set(&a.self, &place);
	dr_tcp_place_set(&a.peer, &place);
	dr_tcp_hs_init(&con, &a, &id[0]);
	dr_tcp_hs_init(&acc, &a, &id[1]);
	dr_tcp_hs_start(&con);
	dr_tcp_hs_start(&acc);
	unsigned slot = dr_tcp_admission_open(&a, true, 0, &evicted);
	dr_tcp_admission_challenge(&a, slot, challenge);
	if (!hears(&con, challenge, sizeof(challenge), flip[0], z)) {
		dr_assert(!same);
		return;
	}
	dr_tcp_hs_hello(&con, hello);
	dr_tcp_hs_greeted(&con);
	struct tcp_verdict v = dr_tcp_admission_bytes(&a, slot, hello, sizeof(hello), 0);
	dr_assert((v.what == TCP_ADMIT) == same);
	if (!same)
		return;
	dr_tcp_hs_welcome(&acc, ok);
	dr_assert(hears(&con, ok, sizeof(ok), flip[1], z) == (flip[1] == 0));
	dr_assert((con.state == TCP_HS_UP) == (flip[1] == 0));
}

FUZZ(z)
{
	struct world w = { .now = 1 };

	dr_tcp_admission_init(&w.a, token, secret);
	dr_tcp_place_set(&w.a.self, &place);
	for (unsigned i = 0; i < STEPS_MAX && z->n > 0; i++) {
		uint8_t what = fz_u8(z), which = fz_u8(z);

		switch (what % 6) {
		case 0:
			come(&w, which);
			break;
		case 1:
		case 2:
			say(&w, which % TCP_PENDING_MAX, z);
			break;
		case 3:
			path(&w, which % ENDS, z);
			break;
		case 4:
			pass(&w, which);
			break;
		default:
			answer(z);
			break;
		}
		dr_assert(w.a.n == w.open && dr_tcp_admission_validate(&w.a));
	}
}
