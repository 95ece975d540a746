/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may become a path. Anybody can connect to the listener; a connection becomes a path when its
 * first TCP_HELLO_LEN bytes are a HELLO with this session's token for an acceptor that waits.
 *
 *  1. An unidentified connection costs a slot for at most TCP_ADMIT_NS.
 *  2. When all slots are taken the oldest connection without a right HELLO goes first.
 *  3. For one (channel, index) one HELLO is parked at most: that of the highest gen.
 *  4. An acceptor gets a connection of its own channel, index, generation and direction only, and one only.
 *  5. A connector is up only when HELLO_OK names its own generation.
 *  6. HELLO and HELLO_OK come in any fragments; no byte behind them is touched.
 */
#include "transport/tcp/tcp_hs.h"

#include "base/clock.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

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
	struct tcp_hs **at = &h->rail->acceptors;

	h->state = TCP_HS_ENDED;
	while (*at && *at != h)
		at = &(*at)->next;
	if (*at)
		*at = h->next;
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

void dr_tcp_hs_hello(const struct tcp_hs *h, uint8_t out[TCP_HELLO_LEN])
{
	struct tcp_hello hello = { .channel = h->id.channel,
		.gen = h->id.gen,
		.index = h->id.index,
		.sender = h->id.sender };

	memcpy(hello.token, h->rail->token, DR_TOKEN_LEN);
	dr_tcp_hello_encode(&hello, out);
}

void dr_tcp_hs_greeted(struct tcp_hs *h)
{
	dr_assert(h->state == TCP_HS_DIALLING);
	h->state = TCP_HS_GREETING;
}

int dr_tcp_hs_bytes(
	struct tcp_hs *h, const uint8_t *data, size_t len, size_t *used, struct dr_err *e)
{
	const char *why = "?";
	uint32_t gen;

	dr_assert(h->state == TCP_HS_GREETING);
	*used = DR_MIN(len, sizeof(h->in) - h->have);
	memcpy(h->in + h->have, data, *used);
	h->have += (unsigned)*used;
	if (h->have < sizeof(h->in))
		return 0;
	if (dr_tcp_hello_ok_parse(h->in, sizeof(h->in), &gen, &why))
		return dr_err_set(e, -EPROTO, "the answer is not from a dualrail peer: %s", why);
	if (gen != h->id.gen)
		return dr_err_set(
			e, -EPROTO, "the peer accepted generation %u, not %u", gen, h->id.gen);
	h->state = TCP_HS_UP;
	return 1;
}

void dr_tcp_hs_welcome(const struct tcp_hs *h, uint8_t out[TCP_HELLO_OK_LEN])
{
	dr_tcp_hello_ok_encode(h->id.gen, out);
}

void dr_tcp_hs_admitted(struct tcp_hs *h)
{
	dr_assert(h->state == TCP_HS_ADMITTED);
	h->state = TCP_HS_UP;
}

/* ---- a rail ---------------------------------------------------------------------------------- */

void dr_tcp_admission_init(struct tcp_admission *a, const uint8_t token[DR_TOKEN_LEN])
{
	memset(a, 0, sizeof(*a));
	memcpy(a->token, token, DR_TOKEN_LEN);
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
		.order = a->arrivals++ };
	return at;
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

	dr_assert(to->state == TCP_HS_WAITING);
	to->state = TCP_HS_ADMITTED;
	v.to = to;
	return v;
}

static struct tcp_verdict judge(struct tcp_admission *a, unsigned slot, int64_t now_ns)
{
	struct tcp_slot *s = &a->slot[slot];
	const char *why = "?";
	bool stale;

	if (dr_tcp_hello_parse(s->buf, sizeof(s->buf), &s->hello, &why))
		return decide(a, slot, TCP_REJECT, why);
	if (sodium_memcmp(s->hello.token, a->token, DR_TOKEN_LEN) != 0)
		return decide(a, slot, TCP_REJECT, "wrong token (it belongs to another session)");
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

	dr_assert(s->used && len <= dr_tcp_admission_want(a, slot));
	if (s->parked)
		return decide(a, slot, TCP_DROP, NULL);
	/* The peer gives up dialling while a link is down, and says nothing then. */
	if (len == 0 && s->of_peer && s->have == 0)
		return decide(a, slot, TCP_DROP, NULL);
	if (len == 0)
		return decide(a, slot, TCP_REJECT, "it closed before it said who it is");
	memcpy(s->buf + s->have, data, len);
	s->have += (unsigned)len;
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

int64_t dr_tcp_admission_deadline(const struct tcp_admission *a)
{
	int64_t first = DR_NEVER;

	for (unsigned i = 0; i < TCP_PENDING_MAX && a->n > 0; i++)
		if (a->slot[i].used)
			first = DR_MIN(first, a->slot[i].deadline_ns);
	return first;
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

/* A slot that is parked has a HELLO of its own; no other is parked for the same path. */
static bool slot_ok(const struct tcp_admission *a, int slot)
{
	const struct tcp_slot *s = &a->slot[slot];

	if (!s->used)
		return true;
	if (!s->parked)
		return s->have < TCP_HELLO_LEN;
	return s->have == TCP_HELLO_LEN && find_parked(a, &s->hello) == slot;
}

bool dr_tcp_admission_validate(const struct tcp_admission *a)
{
	unsigned n = 0;

	for (int i = 0; i < TCP_PENDING_MAX; i++) {
		n += a->slot[i].used;
		if (!slot_ok(a, i))
			return false;
	}
	return n == a->n;
}
