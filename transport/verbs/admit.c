/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greetings: how two paths find each other. HELLO is repeated by the connector until WELCOME comes, which
 * answers each HELLO once the acceptor's queue pairs are ready; so every one of them may be lost, come
 * twice or late.
 *
 *  1. What carries no MAC of this session's token changes nothing and costs one log line a second.
 *  2. A greeting acts only on a path of its channel, index and generation, and on its state.
 *  3. For one (channel, index) one HELLO is kept at most, that of the highest generation; INCOMING is
 *     told once for it.
 *
 * A rail whose device was opened again has another address, and the peer, which may be the one that dials,
 * does not know it: NEWS says so, again and again until they are answered.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"

#include <string.h>

void dr_verbs_greet(struct vb_path *p, uint8_t type)
{
	struct vb_rail *r = vb_path_rail(p);
	const struct vb_conn *c = p->conn;
	struct dr_verbs_hello h = { .type = type,
		.sender = p->base.par.sender,
		.index = (uint8_t)p->base.par.index,
		.n = (uint8_t)vb_shared_qps(p),
		.channel = p->base.par.channel,
		.gen = p->base.par.gen,
		.mtu = (uint16_t)r->dev.mtu,
		.lid = r->dev.lid,
		.ud_qpn = r->ud.qp->qp_num,
		.ud_qkey = r->ud.qkey,
		.psn = c->psn,
		.msg_max = dr_verbs_msg_max(r),
		.ctrl_recvs = VB_CTRL_DEPTH };
	uint8_t buf[DR_VERBS_HELLO_MAX];

	memcpy(h.gid, &r->dev.gid, sizeof(h.gid));
	memcpy(h.qpn, c->qpn, h.n * sizeof(h.qpn[0]));
	size_t len = dr_verbs_hello_encode(&h, r->par.token, buf);
	r->now_ns = DR_MAX(r->now_ns, p->base.now_ns);
	dr_verbs_ud_send(r, buf, len, NULL, 0);
	p->base.st.tx_wire += len; /* but not tx_last_ns: see path.h */
}

static void refuse(struct vb_rail *r, const char *why)
{
	if (r->now_ns - r->warn_ns < DR_NS_PER_S)
		return;
	r->warn_ns = r->now_ns;
	dr_warn("verbs", "rail %u: dropped a HELLO: %s", r->base.index, why);
}

/* ---- where the peer is ---- */

void dr_verbs_tell_news(struct vb_rail *r, bool answer)
{
	struct dr_verbs_news n = { .answer = answer, .life = r->nic.life };
	uint8_t buf[DR_VERBS_NEWS_MAX];

	dr_verbs_rail_addr(r, &n.addr);
	dr_verbs_ud_send(r, buf, dr_verbs_news_encode(&n, r->par.token, buf), NULL, 0);
}

/* Of an address that is not the peer's any more nothing can be heard: what is older is out of date. */
static void on_news(struct vb_rail *r, const void *data, size_t len)
{
	struct dr_verbs_news n;
	const char *why = "?";

	if (dr_verbs_news_parse(data, len, r->par.token, &n, &why)) {
		refuse(r, why);
		return;
	}
	if (n.answer)
		r->nic.news = false;
	if (!r->has_peer || n.addr.roce != r->dev.roce || n.life < r->peer_life)
		return;
	bool moved = n.addr.lid != r->peer.lid || memcmp(n.addr.gid, r->peer.gid, 16) != 0;
	r->peer_life = n.life;
	r->peer = n.addr;
	if (moved)
		dr_verbs_ah_renew(r);
	if (!n.answer)
		dr_verbs_tell_news(r, true);
}

/* The peer may have opened its rail anew. */
static void learn(struct vb_rail *r, const struct dr_verbs_hello *h)
{
	if (r->has_peer && (h->lid != r->peer.lid || memcmp(h->gid, r->peer.gid, 16) != 0)) {
		r->peer.lid = h->lid;
		memcpy(r->peer.gid, h->gid, 16);
		dr_verbs_ah_renew(r);
	}
	r->peer.ud_qpn = h->ud_qpn;
	r->peer.ud_qkey = h->ud_qkey;
}

static struct vb_parked *find_parked(struct vb_rail *r, uint32_t channel, uint8_t index)
{
	for (struct vb_parked *k = r->parked; k < r->parked + VB_PARKED; k++)
		if (k->used && k->hello.channel == channel && k->hello.index == index)
			return k;
	return NULL;
}

/* A free place, or that of the greeting which was repeated least lately. */
static struct vb_parked *park_slot(struct vb_rail *r)
{
	struct vb_parked *oldest = r->parked;

	for (struct vb_parked *k = r->parked; k < r->parked + VB_PARKED; k++) {
		if (!k->used || r->now_ns - k->seen_ns > VB_PARK_NS)
			return k;
		if (k->seen_ns < oldest->seen_ns)
			oldest = k;
	}
	return oldest;
}

static void park(struct vb_rail *r, const struct dr_verbs_hello *h, bool tell)
{
	struct vb_parked *k = find_parked(r, h->channel, h->index);
	struct dr_event ev = {
		.kind = DR_EV_INCOMING, .channel = h->channel, .index = h->index, .gen = h->gen
	};

	if (k && k->hello.gen > h->gen && r->now_ns - k->seen_ns < VB_PARK_NS)
		return; /* overtaken by its own successor */
	if (k && k->hello.gen == h->gen && r->now_ns - k->seen_ns < VB_PARK_NS)
		tell = false;
	if (!k)
		k = park_slot(r);
	*k = (struct vb_parked){ .used = true, .seen_ns = r->now_ns, .hello = *h };
	if (tell)
		dr_verbs_rail_emit(r, &ev);
}

static struct vb_path *find_path(struct vb_rail *r, const struct dr_verbs_hello *h, bool connector)
{
	struct vb_path *newest = NULL;

	for (struct vb_path *p = r->paths; p; p = p->next)
		if (p->base.par.connector == connector && p->base.par.channel == h->channel &&
			p->base.par.index == h->index && p->base.par.sender != h->sender &&
			(!newest || p->base.par.gen > newest->base.par.gen))
			newest = p;
	return newest;
}

static void on_hello(struct vb_rail *r, const struct dr_verbs_hello *h)
{
	struct vb_path *p = find_path(r, h, false);

	if (!p || p->base.par.gen < h->gen) {
		park(r, h, true);
		return;
	}
	if (p->base.par.gen > h->gen)
		return; /* outdated */
	switch (p->state) {
	case VB_NEW:
		park(r, h, true);
		break;
	case VB_BUILDING:
		park(r, h, false);
		break;
	case VB_WAITING:
		dr_verbs_greeted(p, h);
		break;
	case VB_ADMITTED:
	case VB_UP: /* our WELCOME was lost */
		p->base.now_ns = r->now_ns;
		dr_verbs_greet(p, DR_VERBS_WELCOME);
		break;
	default:
		break;
	}
}

void dr_verbs_admit(struct vb_rail *r, const void *data, size_t len)
{
	struct dr_verbs_hello h;
	const char *why = "?";

	if (len > 0 && *(const uint8_t *)data == DR_VERBS_NEWS) {
		on_news(r, data, len);
		return;
	}
	if (dr_verbs_hello_parse(data, len, r->par.token, &h, &why)) {
		refuse(r, why);
		return;
	}
	learn(r, &h);
	if (h.type == DR_VERBS_HELLO) {
		on_hello(r, &h);
		return;
	}
	struct vb_path *p = find_path(r, &h, true);
	if (p && p->base.par.gen == h.gen && p->state == VB_GREETING)
		dr_verbs_greeted(p, &h);
}

/* Only what was repeated lately: else its sender may have gone. */
void dr_verbs_admit_claim(struct vb_path *p)
{
	struct vb_rail *r = vb_path_rail(p);
	struct vb_parked *k = find_parked(r, p->base.par.channel, (uint8_t)p->base.par.index);

	if (!k || k->hello.gen != p->base.par.gen || k->hello.sender == p->base.par.sender ||
		r->now_ns - k->seen_ns > 2 * VB_HELLO_NS)
		return;
	k->used = false;
	dr_verbs_greeted(p, &k->hello);
}
