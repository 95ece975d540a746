/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two paths find each other. HELLO is repeated by the connector until WELCOME comes, which answers each
 * HELLO once the acceptor's queue pairs are led to the connector's; so every datagram may be lost, come twice,
 * late or in another order.
 *
 *  1. What carries no MAC of this session's token changes nothing.
 *  2. A greeting acts only on a path of its channel, index, generation and direction, and on its state.
 *  3. A HELLO of a generation below the newest path's is outdated. A newer one is kept for a path to come.
 *  4. For one (channel, index) one HELLO is kept at most, that of the highest generation; INCOMING is told
 *     once for it. The one that was repeated least lately makes room.
 *  5. A path that starts later takes a kept HELLO only if it was repeated lately: its sender may have gone.
 *  6. Queue pairs are led once, to those of one greeting.
 *  7. Neither end is UP while the queue pairs carry one direction only: the connector has a message of the
 *     acceptor, and the acceptor knows that its own arrived.
 */
#include "transport/verbs/verbs_hs.h"

#include "base/clock.h"
#include "base/list.h"

#include <string.h>

/* ---- a path ---------------------------------------------------------------------------------- */

void dr_verbs_hs_init(struct vb_hs *h, struct vb_admission *rail, const struct dr_path_ident *id,
	unsigned n_queue_pairs)
{
	*h = (struct vb_hs){ .next = rail->paths, .rail = rail, .id = *id, .n = n_queue_pairs };
	rail->paths = h;
}

void dr_verbs_hs_fini(struct vb_hs *h)
{
	h->state = VB_HS_ENDED;
	DR_UNLINK(&h->rail->paths, h, next);
}

void dr_verbs_hs_end(struct vb_hs *h)
{
	h->state = VB_HS_ENDED;
}

void dr_verbs_hs_start(struct vb_hs *h)
{
	dr_assert(h->state == VB_HS_NEW);
	h->state = VB_HS_BUILDING;
}

static bool fits(const struct vb_hs *p, const struct dr_verbs_hello *h)
{
	return p->id.channel == h->channel && p->id.index == h->index && p->id.sender != h->sender;
}

static struct vb_verdict decide(
	enum vb_hs_do what, struct vb_hs *to, const struct dr_verbs_hello *who)
{
	return (struct vb_verdict){ .what = what, .to = to, .who = *who };
}

static struct vb_verdict join(struct vb_hs *p, const struct dr_verbs_hello *who)
{
	dr_dassert(p->state == VB_HS_GREETING || p->state == VB_HS_WAITING);
	dr_dassert(fits(p, who) && who->gen == p->id.gen);
	if (who->n != p->n) {
		p->state = VB_HS_ENDED;
		return decide(VB_HS_UNEQUAL, p, who);
	}
	p->state = VB_HS_JOINING;
	return decide(VB_HS_JOIN, p, who);
}

static struct vb_parked *find_parked(struct vb_admission *a, uint32_t channel, uint8_t index)
{
	for (struct vb_parked *k = a->parked; k < a->parked + VB_PARKED; k++)
		if (k->used && k->hello.channel == channel && k->hello.index == index)
			return k;
	return NULL;
}

struct vb_verdict dr_verbs_hs_built(struct vb_hs *h, int64_t now_ns)
{
	struct vb_parked *k = find_parked(h->rail, h->id.channel, h->id.index);

	dr_assert(h->state == VB_HS_BUILDING);
	h->hello_ns = now_ns;
	h->state = h->id.connector ? VB_HS_GREETING : VB_HS_WAITING;
	if (h->id.connector || !k || k->hello.gen != h->id.gen || !fits(h, &k->hello) ||
		now_ns - k->seen_ns > 2 * VB_HELLO_NS)
		return (struct vb_verdict){ .what = VB_HS_NOTHING };
	k->used = false;
	return join(h, &k->hello);
}

int64_t dr_verbs_hs_deadline(const struct vb_hs *h)
{
	return h->state == VB_HS_GREETING ? h->hello_ns : DR_NEVER;
}

enum vb_hs_do dr_verbs_hs_tick(struct vb_hs *h, int64_t now_ns)
{
	if (now_ns < dr_verbs_hs_deadline(h))
		return VB_HS_NOTHING;
	h->hello_ns = now_ns + VB_HELLO_NS;
	return VB_HS_GREET;
}

size_t dr_verbs_hs_greeting(
	const struct vb_hs *h, struct dr_verbs_hello *mine, uint8_t buf[DR_VERBS_HELLO_MAX])
{
	mine->type = h->id.connector ? DR_VERBS_HELLO : DR_VERBS_WELCOME;
	mine->sender = h->id.sender;
	mine->index = h->id.index;
	mine->channel = h->id.channel;
	mine->gen = h->id.gen;
	mine->n = (uint8_t)h->n;
	return dr_verbs_hello_encode(mine, h->rail->token, buf);
}

enum vb_hs_do dr_verbs_hs_joined(struct vb_hs *h)
{
	dr_assert(h->state == VB_HS_JOINING);
	h->state = h->id.connector ? VB_HS_CONFIRMING : VB_HS_ADMITTED;
	return h->id.connector ? VB_HS_SAY : VB_HS_GREET;
}

/* A first message proves that the peer's messages arrive. An answer to it, or what comes after it, proves that
 * ours do. */
enum vb_hs_do dr_verbs_hs_message(struct vb_hs *h)
{
	if (h->state == VB_HS_ADMITTED) {
		h->state = VB_HS_ANSWERING;
		return VB_HS_SAY;
	}
	if (h->state != VB_HS_CONFIRMING && h->state != VB_HS_ANSWERING)
		return VB_HS_NOTHING;
	h->state = VB_HS_UP;
	return VB_HS_READY;
}

enum vb_hs_do dr_verbs_hs_acked(struct vb_hs *h)
{
	if (h->state != VB_HS_ANSWERING)
		return VB_HS_NOTHING;
	h->state = VB_HS_UP;
	return VB_HS_READY;
}

/* ---- a rail ---------------------------------------------------------------------------------- */

void dr_verbs_admission_init(struct vb_admission *a, const uint8_t token[DR_TOKEN_LEN])
{
	memset(a, 0, sizeof(*a));
	memcpy(a->token, token, DR_TOKEN_LEN);
}

/* A free place, or that of the HELLO which was repeated least lately. */
static struct vb_parked *park_slot(struct vb_admission *a, int64_t now_ns)
{
	struct vb_parked *oldest = a->parked;

	for (struct vb_parked *k = a->parked; k < a->parked + VB_PARKED; k++) {
		if (!k->used || now_ns - k->seen_ns > VB_PARK_NS)
			return k;
		if (k->seen_ns < oldest->seen_ns)
			oldest = k;
	}
	return oldest;
}

static struct vb_verdict park(
	struct vb_admission *a, const struct dr_verbs_hello *h, bool tell, int64_t now_ns)
{
	struct vb_parked *k = find_parked(a, h->channel, h->index);
	bool lately = k && now_ns - k->seen_ns < VB_PARK_NS;

	if (lately && k->hello.gen > h->gen)
		return decide(VB_HS_DROP, NULL, h); /* overtaken by its own successor */
	if (lately && k->hello.gen == h->gen)
		tell = false;
	if (!k)
		k = park_slot(a, now_ns);
	*k = (struct vb_parked){ .used = true, .seen_ns = now_ns, .hello = *h };
	return decide(tell ? VB_HS_INCOMING : VB_HS_NOTHING, NULL, h);
}

/* The newest path that this may be for. */
static struct vb_hs *find_path(
	const struct vb_admission *a, const struct dr_verbs_hello *h, bool connector)
{
	struct vb_hs *newest = NULL;

	for (struct vb_hs *p = a->paths; p; p = p->next)
		if (p->id.connector == connector && fits(p, h) &&
			(!newest || p->id.gen > newest->id.gen))
			newest = p;
	return newest;
}

static struct vb_verdict on_hello(
	struct vb_admission *a, const struct dr_verbs_hello *h, int64_t now_ns)
{
	struct vb_hs *p = find_path(a, h, false);

	if (!p || p->id.gen < h->gen)
		return park(a, h, true, now_ns);
	if (p->id.gen > h->gen)
		return decide(VB_HS_DROP, NULL, h);
	switch (p->state) {
	case VB_HS_NEW:
		return park(a, h, true, now_ns);
	case VB_HS_BUILDING:
		return park(a, h, false, now_ns);
	case VB_HS_WAITING:
		return join(p, h);
	case VB_HS_ADMITTED: /* our WELCOME was lost */
		return decide(VB_HS_GREET, p, h);
	case VB_HS_JOINING:
		return decide(VB_HS_NOTHING, NULL, h);
	default:
		return decide(VB_HS_DROP, NULL, h);
	}
}

static struct vb_verdict on_welcome(struct vb_admission *a, const struct dr_verbs_hello *h)
{
	struct vb_hs *p = find_path(a, h, true);

	if (p && p->id.gen == h->gen && p->state == VB_HS_GREETING)
		return join(p, h);
	return decide(VB_HS_DROP, NULL, h);
}

struct vb_verdict dr_verbs_admission_bytes(
	struct vb_admission *a, const void *data, size_t len, int64_t now_ns)
{
	struct dr_verbs_hello h;
	const char *why = "?";

	if (dr_verbs_hello_parse(data, len, a->token, &h, &why))
		return (struct vb_verdict){ .what = VB_HS_REJECT, .why = why };
	return h.type == DR_VERBS_HELLO ? on_hello(a, &h, now_ns) : on_welcome(a, &h);
}
