/* SPDX-License-Identifier: Apache-2.0 */
/*
 *  1. Each address of an end has a number, its life, that grows. An older one than the last that was told is
 *     outdated and changes nothing.
 *  2. An end tells its address until the peer says that it knows this life: a late answer to an earlier one
 *     does not count.
 *  3. An answer is not answered.
 *  4. A peer without key names addresses at will, and could have this end send to a third host. Its GID is checked once, in
 *     its handle, and pinned.
 */
#include "transport/verbs/where.h"

#include <string.h>

bool dr_verbs_where_allows(const struct vb_where *w, const uint8_t gid[16])
{
	if (!w->pinned)
		return true;
	return w->known && (!w->peer.roce || memcmp(w->peer.gid, gid, 16) == 0);
}

void dr_verbs_where_peer(struct vb_where *w, const struct dr_verbs_addr *peer)
{
	w->peer = *peer;
	w->known = true;
}

void dr_verbs_where_moved(struct vb_where *w)
{
	w->life++;
	w->untold = w->known;
	w->tell_ns = 0;
}

bool dr_verbs_where_tick(struct vb_where *w, int64_t now_ns)
{
	if (!w->untold || now_ns < w->tell_ns)
		return false;
	w->tell_ns = now_ns + VB_NEWS_NS;
	return true;
}

struct dr_verbs_news dr_verbs_where_tell(const struct vb_where *w, bool answer)
{
	return (struct dr_verbs_news){ .answer = answer, .life = w->life, .knows = w->peer_life };
}

static bool elsewhere(const struct dr_verbs_addr *a, uint16_t lid, const uint8_t gid[16])
{
	return a->lid != lid || memcmp(a->gid, gid, 16) != 0;
}

int dr_verbs_where_news(struct vb_where *w, const struct dr_verbs_news *n)
{
	if (n->knows == w->life)
		w->untold = false;
	if (!w->known || n->addr.roce != w->peer.roce || n->life < w->peer_life)
		return 0;
	bool moved = elsewhere(&w->peer, n->addr.lid, n->addr.gid);
	w->peer_life = n->life;
	w->peer = n->addr;
	return (moved ? VB_WHERE_MOVED : 0) | (n->answer ? 0 : VB_WHERE_ANSWER);
}

int dr_verbs_where_greeted(struct vb_where *w, const struct dr_verbs_hello *h)
{
	bool moved = w->known && elsewhere(&w->peer, h->lid, h->gid);

	w->peer.ud_qpn = h->ud_qpn;
	w->peer.ud_qkey = h->ud_qkey;
	if (!moved)
		return 0;
	w->peer.lid = h->lid;
	memcpy(w->peer.gid, h->gid, 16);
	return VB_WHERE_MOVED;
}
