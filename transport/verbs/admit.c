/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams that concern connecting. HELLO and WELCOME are judged by verbs_hs.c. Invariants:
 *  1. What carries no MAC of this session's token changes nothing and costs one log line a second.
 *  2. An outdated greeting changes nothing, also not what is known of the peer's address.
 */
#include "transport/verbs/path_priv.h"

#include "base/log.h"

#include <string.h>

void dr_verbs_greet(struct vb_path *p)
{
	struct vb_rail *r = vb_path_rail(p);
	const struct vb_conn *c = p->conn;
	struct dr_verbs_hello mine = { .mtu = (uint16_t)r->dev.mtu,
		.lid = r->dev.lid,
		.ud_qpn = r->ud.qp->qp_num,
		.ud_qkey = r->ud.qkey,
		.psn = c->psn,
		.msg_max = dr_verbs_msg_max(r),
		.ctrl_recvs = VB_CTRL_DEPTH };
	uint8_t buf[DR_VERBS_HELLO_MAX];

	memcpy(mine.gid, &r->dev.gid, sizeof(mine.gid));
	memcpy(mine.qpn, c->qpn, p->hs.n * sizeof(mine.qpn[0]));
	size_t len = dr_verbs_hs_greeting(&p->hs, &mine, buf);
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
	struct dr_verbs_news n = dr_verbs_where_tell(&r->where, answer);
	uint8_t buf[DR_VERBS_NEWS_MAX];

	dr_verbs_rail_addr(r, &n.addr);
	dr_verbs_ud_send(r, buf, dr_verbs_news_encode(&n, r->par.token, buf), NULL, 0);
}

static void obey_where(struct vb_rail *r, int what)
{
	if (what & VB_WHERE_MOVED)
		dr_verbs_ah_renew(r);
	if (what & VB_WHERE_ANSWER)
		dr_verbs_tell_news(r, true);
}

static bool is_own(struct vb_rail *r, const struct dr_verbs_addr *a)
{
	struct dr_verbs_addr own;

	dr_verbs_rail_addr(r, &own);
	return a->ud_qpn == own.ud_qpn && a->lid == own.lid &&
	       memcmp(a->gid, own.gid, sizeof(own.gid)) == 0;
}

static bool allowed(struct vb_rail *r, const uint8_t gid[16])
{
	if (dr_verbs_where_allows(&r->where, gid))
		return true;
	if (r->where.known)
		refuse(r,
			"it names another address than the peer's handle; a peer without --key-file keeps "
			"its address");
	return false;
}

static void on_news(struct vb_rail *r, const void *data, size_t len)
{
	struct dr_verbs_news n;
	const char *why = "?";

	if (dr_verbs_news_parse(data, len, r->par.token, &n, &why))
		refuse(r, why);
	else if (is_own(r, &n.addr))
		refuse(r, "it tells this end's own address: somebody sent it back");
	else if (!allowed(r, n.addr.gid))
		return;
	else
		obey_where(r, dr_verbs_where_news(&r->where, &n));
}

void dr_verbs_admit(struct vb_rail *r, const void *data, size_t len)
{
	if (len > 0 && *(const uint8_t *)data == DR_VERBS_NEWS) {
		on_news(r, data, len);
		return;
	}
	struct vb_verdict v = dr_verbs_admission_bytes(&r->admission, data, len, r->now_ns);
	struct dr_event ev = { .kind = DR_EV_INCOMING,
		.channel = v.who.channel,
		.index = v.who.index,
		.gen = v.who.gen };

	if (v.what == VB_HS_REJECT)
		refuse(r, v.why);
	if (v.what == VB_HS_REJECT || v.what == VB_HS_DROP)
		return;
	if (!allowed(r, v.who.gid))
		return;
	obey_where(r, dr_verbs_where_greeted(&r->where, &v.who));
	if (v.what == VB_HS_INCOMING)
		dr_verbs_rail_emit(r, &ev);
	if (!v.to)
		return;
	struct vb_path *p = dr_container_of(v.to, struct vb_path, hs);
	p->base.now_ns = r->now_ns;
	dr_verbs_obey(p, v.what, &v.who);
}
