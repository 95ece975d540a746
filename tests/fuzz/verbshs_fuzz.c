/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of the verbs kind: two rails whose datagrams are lost, repeated, changed and come in any order,
 * with paths that come and go at any time. Nobody without the token changes anything. Whoever is joined is of the
 * path's channel, index, generation, direction and number of queue pairs, and is joined once; a path is up only
 * after its peer was joined.
 *
 *	n x { u8 what, u8 which, ... }
 */
#include "tests/fuzz/lib/fuzz.h"
#include "transport/verbs/verbs_hs_testkit.h"

#include "base/clock.h"

enum { ENDS = 6, MAIL = 16, STEPS_MAX = 400, QPS = 4 };

struct end {
	struct vb_hs hs;
	bool there, joined, answered;
};

struct mail {
	size_t len;
	bool spoiled;
	uint8_t bytes[DR_VERBS_HELLO_MAX];
};

struct node {
	struct vb_admission a;
	struct end end[ENDS];
	struct mail in[MAIL]; /* written round and round, read anywhere */
	unsigned n_in;
};

struct world {
	struct node node[2];
	int64_t now;
};

static const uint8_t token[DR_TOKEN_LEN] = { 9, 8, 7 };

/* A greeting of h for the other node. */
static void greet(struct node *to, const struct vb_hs *h)
{
	struct mail *m = &to->in[to->n_in++ % MAIL];
	struct dr_verbs_hello mine = { .mtu = 1024,
		.ud_qpn = 1,
		.msg_max = 4096,
		.ctrl_recvs = 4,
		.qpn = { 1, 1, 1, 1, 1, 1, 1 } };

	m->len = dr_verbs_hs_greeting(h, &mine, m->bytes);
	m->spoiled = false;
}

static void obey(
	struct world *w, struct node *n, struct vb_hs *h, enum vb_hs_do what, bool is_welcome)
{
	struct end *e = dr_container_of(h, struct end, hs);

	switch (what) {
	case VB_HS_GREET:
		dr_assert(h->state == (is_welcome ? VB_HS_ADMITTED : VB_HS_GREETING));
		greet(&w->node[n == &w->node[0]], h);
		break;
	case VB_HS_JOIN:
		dr_assert(!e->joined && h->state == VB_HS_JOINING);
		e->joined = true;
		break;
	case VB_HS_SAY:
		dr_assert(e->joined);
		break;
	case VB_HS_READY:
		dr_assert(e->joined && e->answered && h->state == VB_HS_UP);
		break;
	default:
		break;
	}
}

static void judge(struct world *w, struct node *n, const struct vb_verdict *v)
{
	if (v->what == VB_HS_REJECT)
		dr_assert(v->why && v->why[0]);
	dr_assert((v->to != NULL) ==
		  (v->what == VB_HS_GREET || v->what == VB_HS_JOIN || v->what == VB_HS_UNEQUAL));
	if (!v->to)
		return;
	const struct dr_path_ident *id = &v->to->id;
	dr_assert(id->channel == v->who.channel && id->index == v->who.index &&
		  id->gen == v->who.gen && id->sender != v->who.sender);
	dr_assert((v->who.n == v->to->n) == (v->what != VB_HS_UNEQUAL));
	dr_assert(v->what != VB_HS_UNEQUAL || v->to->state == VB_HS_ENDED);
	obey(w, n, v->to, v->what, true);
}

static void make(struct node *n, struct end *e, bool connector, uint8_t how)
{
	struct dr_path_ident id = { .channel = how & 1,
		.gen = how >> 4,
		.index = how >> 1 & 1,
		.sender = (how >> 2 & 1) ^ connector,
		.connector = connector };

	*e = (struct end){ .there = true };
	dr_verbs_hs_init(&e->hs, &n->a, &id, QPS + (how >> 3 & 1));
}

static void path(struct world *w, struct node *n, unsigned i, struct fz *z)
{
	struct end *e = &n->end[i];
	struct vb_hs *h = &e->hs;
	uint8_t how = fz_u8(z);
	struct vb_verdict v;

	if (!e->there) {
		make(n, e, (how & 8) && i % 2 == (n == &w->node[0]), how);
		return;
	}
	switch (h->state) {
	case VB_HS_NEW:
		dr_verbs_hs_start(h);
		break;
	case VB_HS_BUILDING:
		v = dr_verbs_hs_built(h, w->now);
		judge(w, n, &v);
		break;
	case VB_HS_JOINING:
		obey(w, n, h, dr_verbs_hs_joined(h), true);
		break;
	default:
		if (how & 1) {
			dr_verbs_hs_end(h);
		} else if (how & 2) {
			dr_verbs_hs_fini(h);
			e->there = false;
		}
		break;
	}
}

/* What the queue pairs carry, as the peer would send it. */
static void carry(struct world *w, struct node *n, unsigned i, bool ack)
{
	struct end *e = &n->end[i];

	if (!e->there || !e->joined)
		return;
	e->answered |= !ack;
	obey(w, n, &e->hs, ack ? dr_verbs_hs_acked(&e->hs) : dr_verbs_hs_message(&e->hs), true);
}

/* A datagram that was sent at some time arrives, as it was or changed. */
static void arrive(struct world *w, struct node *n, unsigned which, struct fz *z)
{
	struct mail *m = &n->in[which % MAIL];
	uint8_t flip = fz_u8(z);

	if (flip & 1 && m->len > 0) {
		m->bytes[flip % m->len] ^= flip;
		m->spoiled = true;
	}
	size_t len = flip & 2 ? flip % (m->len + 1) : m->len;
	struct vb_verdict v = dr_verbs_admission_bytes(&n->a, m->bytes, len, w->now);
	if (m->len == 0 || len != m->len)
		dr_assert(v.what == VB_HS_REJECT);
	else if (!m->spoiled)
		dr_assert(v.what != VB_HS_REJECT);
	judge(w, n, &v);
}

static void pass(struct world *w, uint8_t time)
{
	w->now += time * (DR_NS_PER_MS * 3);
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < ENDS; i++) {
			struct vb_hs *h = &w->node[k].end[i].hs;

			if (!w->node[k].end[i].there)
				continue;
			obey(w, &w->node[k], h, dr_verbs_hs_tick(h, w->now), false);
			dr_assert(dr_verbs_hs_deadline(h) > w->now);
			dr_assert((h->state == VB_HS_GREETING) ==
				  (dr_verbs_hs_deadline(h) != DR_NEVER));
		}
}

FUZZ(z)
{
	struct world *w = fz_alloc(z, sizeof(*w));

	w->now = 1;
	for (unsigned k = 0; k < 2; k++)
		dr_verbs_admission_init(&w->node[k].a, token);
	for (unsigned i = 0; i < STEPS_MAX && z->n > 0; i++) {
		uint8_t what = fz_u8(z), which = fz_u8(z);
		struct node *n = &w->node[what >> 7];

		switch ((what & 0x7f) % 5) {
		case 0:
			path(w, n, which % ENDS, z);
			break;
		case 1:
			arrive(w, n, which, z);
			break;
		case 2:
		case 3:
			carry(w, n, which % ENDS, (what & 0x7f) % 5 == 3);
			break;
		default:
			pass(w, which);
			break;
		}
		dr_assert(dr_verbs_admission_validate(&n->a));
	}
}
