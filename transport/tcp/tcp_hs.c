/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may become a path. Anybody can connect to the listener; a connection becomes a path when its first
 * TCP_HELLO_LEN bytes are a HELLO that proves this session's token, for an acceptor that waits.
 *
 * Proofs are MACs (BLAKE2b of 128 bits) with keys that are derived from the token, one for each direction:
 *	HELLO		over its other bytes, the nonce of CHALLENGE and the acceptor's rail handle
 *	HELLO_OK	over its other bytes, the whole HELLO and the same
 * Each connection has a nonce of each end. So a recorded message is of no use, nor is one that was made for another
 * listener, for another path, or by the end that receives it.
 *
 * A nonce is SipHash-2-4 of 128 bits over a counter, keyed with a random secret of the rail end: nobody else can
 * predict it, none occurs twice, and a flood of connections costs no system call for randomness.
 *
 *  1. An unidentified connection costs a slot for at most TCP_ADMIT_NS.
 *  2. When all slots are taken the oldest connection without a right HELLO goes first.
 *  3. For one (channel, index) one HELLO is parked at most: that of the highest gen.
 *  4. An acceptor gets a connection of its own channel, index, generation and direction only, and one only.
 *  5. A connector is up only when HELLO_OK names its own generation.
 *  6. CHALLENGE, HELLO and HELLO_OK come in any fragments; no byte behind them is touched.
 *  7. What cannot become a HELLO, as its magic or version shows, is rejected at once.
 */
#include "transport/tcp/tcp_hs.h"

#include "base/list.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

/* ---- proofs ---------------------------------------------------------------------------------- */

_Static_assert((int)DR_KEY_LEN == (int)DR_TOKEN_LEN, "the token is a key");
_Static_assert((int)TCP_NONCE_LEN == (int)crypto_shorthash_siphashx24_BYTES &&
		       (int)DR_KEY_LEN == (int)crypto_shorthash_siphashx24_KEYBYTES,
	"a nonce is a hash");

static void make_nonce(struct tcp_admission *a, uint8_t out[TCP_NONCE_LEN])
{
	uint64_t n = a->nonces++;
	int rc = crypto_shorthash_siphashx24(out, (const uint8_t *)&n, sizeof(n), a->nonce_key);

	dr_assert(rc == 0);
}

static void begin_mac(crypto_generichash_state *s, const uint8_t key[DR_KEY_LEN])
{
	int rc = crypto_generichash_init(s, key, DR_KEY_LEN, DR_MAC_LEN);

	dr_assert(rc == 0);
}

/* What both MACs cover at the end, whose length varies. */
static void end_mac(crypto_generichash_state *s, const uint8_t challenge[TCP_NONCE_LEN],
	const struct tcp_place *acceptor, uint8_t out[DR_MAC_LEN])
{
	crypto_generichash_update(s, challenge, TCP_NONCE_LEN);
	crypto_generichash_update(s, acceptor->bytes, acceptor->len);
	int rc = crypto_generichash_final(s, out, DR_MAC_LEN);
	dr_assert(rc == 0);
}

static void hello_mac(const struct tcp_admission *a, const uint8_t hello[TCP_HELLO_LEN],
	const uint8_t challenge[TCP_NONCE_LEN], const struct tcp_place *acceptor,
	uint8_t out[DR_MAC_LEN])
{
	crypto_generichash_state s;

	begin_mac(&s, a->hello_key);
	crypto_generichash_update(&s, hello, TCP_HELLO_PLAIN);
	end_mac(&s, challenge, acceptor, out);
}

static void ok_mac(const struct tcp_admission *a, const uint8_t ok[TCP_HELLO_OK_LEN],
	const uint8_t hello[TCP_HELLO_LEN], const uint8_t challenge[TCP_NONCE_LEN],
	const struct tcp_place *acceptor, uint8_t out[DR_MAC_LEN])
{
	crypto_generichash_state s;

	begin_mac(&s, a->ok_key);
	crypto_generichash_update(&s, ok, TCP_HELLO_OK_PLAIN);
	crypto_generichash_update(&s, hello, TCP_HELLO_LEN);
	end_mac(&s, challenge, acceptor, out);
}

/* ---- a path ---------------------------------------------------------------------------------- */

void dr_tcp_hs_init(struct tcp_hs *h, struct tcp_admission *rail, const struct dr_path_ident *id)
{
	*h = (struct tcp_hs){ .rail = rail, .id = *id };
	if (id->connector)
		return;
	h->next = rail->acceptors;
	rail->acceptors = h;
}

void dr_tcp_hs_fini(struct tcp_hs *h)
{
	h->state = TCP_HS_ENDED;
	DR_UNLINK(&h->rail->acceptors, h, next);
}

void dr_tcp_hs_end(struct tcp_hs *h)
{
	h->state = TCP_HS_ENDED;
}

void dr_tcp_hs_start(struct tcp_hs *h)
{
	dr_assert(h->state == TCP_HS_NEW);
	h->state = h->id.connector ? TCP_HS_DIALLING : TCP_HS_WAITING;
}

/* The challenge came: HELLO is due. */
static int challenged(struct tcp_hs *h, struct dr_err *e)
{
	struct tcp_hello hello = { .channel = h->id.channel,
		.gen = h->id.gen,
		.index = h->id.index,
		.sender = h->id.sender };
	const char *why = "?";

	if (dr_tcp_challenge_parse(h->in, TCP_CHALLENGE_LEN, h->challenge, &why))
		return dr_err_set(
			e, -EPROTO, "the listener is not that of a dualrail peer: %s", why);
	make_nonce(h->rail, hello.nonce);
	dr_tcp_hello_encode(&hello, h->hello);
	hello_mac(h->rail, h->hello, h->challenge, &h->rail->peer, hello.mac);
	dr_tcp_hello_encode(&hello, h->hello);
	h->have = 0;
	h->state = TCP_HS_CHALLENGED;
	return 1;
}

static int accepted(struct tcp_hs *h, struct dr_err *e)
{
	uint8_t want[DR_MAC_LEN];
	struct tcp_hello_ok ok;
	const char *why = "?";

	if (dr_tcp_hello_ok_parse(h->in, TCP_HELLO_OK_LEN, &ok, &why))
		return dr_err_set(e, -EPROTO, "the answer is not from a dualrail peer: %s", why);
	ok_mac(h->rail, h->in, h->hello, h->challenge, &h->rail->peer, want);
	if (sodium_memcmp(want, ok.mac, DR_MAC_LEN) != 0)
		return dr_err_set(e, -EPROTO,
			"the answer does not prove the token: it is not from the peer of this session");
	if (ok.gen != h->id.gen)
		return dr_err_set(
			e, -EPROTO, "the peer accepted generation %u, not %u", ok.gen, h->id.gen);
	h->state = TCP_HS_UP;
	return 1;
}

int dr_tcp_hs_bytes(
	struct tcp_hs *h, const uint8_t *data, size_t len, size_t *used, struct dr_err *e)
{
	bool dialling = h->state == TCP_HS_DIALLING;
	size_t all = dialling ? TCP_CHALLENGE_LEN : TCP_HELLO_OK_LEN;

	dr_assert(dialling || h->state == TCP_HS_GREETING);
	*used = DR_MIN(len, all - h->have);
	memcpy(h->in + h->have, data, *used);
	h->have += (unsigned)*used;
	if (h->have < all)
		return 0;
	return dialling ? challenged(h, e) : accepted(h, e);
}

void dr_tcp_hs_hello(const struct tcp_hs *h, uint8_t out[TCP_HELLO_LEN])
{
	dr_assert(h->state == TCP_HS_CHALLENGED);
	memcpy(out, h->hello, TCP_HELLO_LEN);
}

void dr_tcp_hs_greeted(struct tcp_hs *h)
{
	dr_assert(h->state == TCP_HS_CHALLENGED);
	h->state = TCP_HS_GREETING;
}

void dr_tcp_hs_welcome(const struct tcp_hs *h, uint8_t out[TCP_HELLO_OK_LEN])
{
	dr_assert(h->state == TCP_HS_ADMITTED);
	memcpy(out, h->ok, TCP_HELLO_OK_LEN);
}

void dr_tcp_hs_admitted(struct tcp_hs *h)
{
	dr_assert(h->state == TCP_HS_ADMITTED);
	h->state = TCP_HS_UP;
}

/* ---- a rail ---------------------------------------------------------------------------------- */

void dr_tcp_admission_init(struct tcp_admission *a, const uint8_t token[DR_TOKEN_LEN],
	const uint8_t secret[DR_KEY_LEN])
{
	memset(a, 0, sizeof(*a));
	dr_key_derive(token, DR_KEY_TCP_HELLO, a->hello_key);
	dr_key_derive(token, DR_KEY_TCP_HELLO_OK, a->ok_key);
	memcpy(a->nonce_key, secret, DR_KEY_LEN);
}

void dr_tcp_place_set(struct tcp_place *p, const struct tcp_rail_handle *h)
{
	int len = dr_tcp_rail_handle_encode(h, p->bytes, sizeof(p->bytes));

	dr_assert(len > 0);
	p->len = (unsigned)len;
}

void dr_tcp_admission_free(struct tcp_admission *a, unsigned slot)
{
	dr_assert(a->slot[slot].used);
	a->slot[slot].used = false;
	a->n--;
}

/* The decision on the connection in this slot, which is free now unless it is kept. */
static struct tcp_verdict decide(
	struct tcp_admission *a, unsigned slot, enum tcp_verdict_do what, const char *why)
{
	if (what != TCP_KEEP && what != TCP_PARKED)
		dr_tcp_admission_free(a, slot);
	return (struct tcp_verdict){ .what = what,
		.why = why,
		.slot = (int)slot,
		.replaced = -1,
		.who = a->slot[slot].hello };
}

unsigned dr_tcp_admission_open(struct tcp_admission *a, bool of_peer, int64_t now_ns, bool *evicted)
{
	unsigned at = 0;

	for (unsigned i = 0; i < TCP_PENDING_MAX; i++) {
		const struct tcp_slot *s = &a->slot[i], *oldest = &a->slot[at];

		if (!s->used) {
			at = i;
			break;
		}
		if ((oldest->parked && !s->parked) ||
			(oldest->parked == s->parked && s->order < oldest->order))
			at = i;
	}
	*evicted = a->slot[at].used;
	if (!*evicted)
		a->n++;
	a->slot[at] = (struct tcp_slot){ .used = true,
		.of_peer = of_peer,
		.deadline_ns = now_ns + TCP_ADMIT_NS,
		.order = a->nonces };
	make_nonce(a, a->slot[at].nonce);
	return at;
}

void dr_tcp_admission_challenge(
	const struct tcp_admission *a, unsigned slot, uint8_t out[TCP_CHALLENGE_LEN])
{
	dr_tcp_challenge_encode(a->slot[slot].nonce, out);
}

static bool fits(const struct tcp_hs *p, const struct tcp_hello *h)
{
	return p->id.channel == h->channel && p->id.index == h->index && p->id.sender != h->sender;
}

/* The acceptor that waits for exactly this HELLO. *stale: one of its gen or newer has been here. */
static struct tcp_hs *find_acceptor(
	const struct tcp_admission *a, const struct tcp_hello *h, bool *stale)
{
	*stale = false;
	for (struct tcp_hs *p = a->acceptors; p; p = p->next) {
		if (!fits(p, h))
			continue;
		if (p->state == TCP_HS_WAITING && p->id.gen == h->gen)
			return p;
		if (p->state == TCP_HS_NEW ? p->id.gen > h->gen : p->id.gen >= h->gen)
			*stale = true;
	}
	return NULL;
}

static int find_parked(const struct tcp_admission *a, const struct tcp_hello *h)
{
	for (int i = 0; i < TCP_PENDING_MAX; i++)
		if (a->slot[i].used && a->slot[i].parked &&
			a->slot[i].hello.channel == h->channel &&
			a->slot[i].hello.index == h->index)
			return i;
	return -1;
}

static struct tcp_verdict park(struct tcp_admission *a, unsigned slot, int64_t now_ns)
{
	struct tcp_slot *s = &a->slot[slot];
	int other = find_parked(a, &s->hello);

	if (other >= 0 && a->slot[other].hello.gen > s->hello.gen)
		return decide(a, slot, TCP_DROP, NULL); /* replaced by its own successor */
	if (other >= 0)
		dr_tcp_admission_free(a, (unsigned)other);
	s->parked = true;
	s->deadline_ns = now_ns + TCP_ADMIT_NS;
	struct tcp_verdict v = decide(a, slot, TCP_PARKED, NULL);
	v.replaced = other;
	return v;
}

static struct tcp_verdict admit(struct tcp_admission *a, unsigned slot, struct tcp_hs *to)
{
	struct tcp_verdict v = decide(a, slot, TCP_ADMIT, NULL);
	const struct tcp_slot *s = &a->slot[slot];
	struct tcp_hello_ok ok = { .gen = to->id.gen };

	dr_assert(to->state == TCP_HS_WAITING);
	dr_tcp_hello_ok_encode(&ok, to->ok);
	ok_mac(a, to->ok, s->buf, s->nonce, &a->self, ok.mac);
	dr_tcp_hello_ok_encode(&ok, to->ok);
	to->state = TCP_HS_ADMITTED;
	v.to = to;
	return v;
}

static struct tcp_verdict judge(struct tcp_admission *a, unsigned slot, int64_t now_ns)
{
	struct tcp_slot *s = &a->slot[slot];
	uint8_t want[DR_MAC_LEN];
	const char *why = "?";
	bool stale;

	if (dr_tcp_hello_parse(s->buf, sizeof(s->buf), &s->hello, &why))
		return decide(a, slot, TCP_REJECT, why);
	hello_mac(a, s->buf, s->nonce, &a->self, want);
	if (sodium_memcmp(want, s->hello.mac, DR_MAC_LEN) != 0)
		return decide(a, slot, TCP_REJECT,
			"wrong proof of the token (of another session, or recorded)");
	struct tcp_hs *to = find_acceptor(a, &s->hello, &stale);
	if (to)
		return admit(a, slot, to);
	if (stale)
		return decide(a, slot, TCP_DROP, "outdated");
	return park(a, slot, now_ns);
}

unsigned dr_tcp_admission_want(const struct tcp_admission *a, unsigned slot)
{
	/* A parked connection waits for our answer: the only thing it may do is go away. */
	return a->slot[slot].parked ? 1 : TCP_HELLO_LEN - a->slot[slot].have;
}

struct tcp_verdict dr_tcp_admission_bytes(
	struct tcp_admission *a, unsigned slot, const uint8_t *data, size_t len, int64_t now_ns)
{
	struct tcp_slot *s = &a->slot[slot];
	const char *why = "?";

	dr_assert(s->used && len <= dr_tcp_admission_want(a, slot));
	if (s->parked)
		return decide(a, slot, TCP_DROP, NULL);
	/* The peer gives up dialling while a link is down, and says nothing then. */
	if (len == 0 && s->of_peer && s->have == 0)
		return decide(a, slot, TCP_DROP, NULL);
	if (len == 0)
		return decide(a, slot, TCP_REJECT, "it closed before it said who it is");
	/* It has asked this kernel while this process stood (tcp_ask.c). */
	if (s->of_peer && s->have == 0 && data[0] == TCP_ASK)
		return decide(a, slot, TCP_DROP, NULL);
	memcpy(s->buf + s->have, data, len);
	s->have += (unsigned)len;
	if (dr_tcp_hello_begins(s->buf, s->have, &why))
		return decide(a, slot, TCP_REJECT, why);
	return s->have == sizeof(s->buf) ? judge(a, slot, now_ns) : decide(a, slot, TCP_KEEP, NULL);
}

struct tcp_verdict dr_tcp_admission_expire(struct tcp_admission *a, unsigned slot, int64_t now_ns)
{
	const struct tcp_slot *s = &a->slot[slot];

	if (now_ns < s->deadline_ns)
		return decide(a, slot, TCP_KEEP, NULL);
	if (s->parked)
		return decide(a, slot, TCP_DROP, NULL);
	return decide(a, slot, TCP_REJECT, "it did not say who it is in time");
}

struct tcp_verdict dr_tcp_admission_claim(struct tcp_admission *a, struct tcp_hs *h)
{
	for (unsigned i = 0; i < TCP_PENDING_MAX && h->state == TCP_HS_WAITING; i++) {
		const struct tcp_slot *s = &a->slot[i];

		if (!s->used || !s->parked || !fits(h, &s->hello))
			continue;
		if (s->hello.gen == h->id.gen)
			return admit(a, i, h);
		return decide(a, i, s->hello.gen < h->id.gen ? TCP_DROP : TCP_KEEP, NULL);
	}
	return (struct tcp_verdict){ .what = TCP_KEEP, .slot = -1, .replaced = -1 };
}
