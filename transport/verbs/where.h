/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_WHERE_H
#define DR_TRANSPORT_VERBS_WHERE_H

#include "transport/verbs/hello.h"

/*
 * Where the ends of a rail are, sans-IO. A rail whose device was opened again has another address, and the peer,
 * which may be the one that dials, does not know it. NEWS tells it, again and again until the peer says that it
 * knows this one. where.c states the rules.
 */
#define VB_NEWS_NS (20 * DR_NS_PER_MS) /* between two announcements of a new address */

struct vb_where {
	bool known;  /* the peer's address is */
	bool pinned; /* its GID stays that of its handle, where it is an IP address (RoCE) */
	struct dr_verbs_addr peer;
	uint64_t peer_life; /* of the address that the peer told last */
	uint64_t life;	    /* of this end's: grows with each */
	bool untold;	    /* the peer may not know it */
	int64_t tell_ns;    /* untold: when it is told next */
};

/* What follows from a datagram: a sum of these. */
enum {
	VB_WHERE_MOVED = 1,  /* datagrams go elsewhere now: to w->peer */
	VB_WHERE_ANSWER = 2, /* send dr_verbs_where_tell(w, true) */
};

/* May this be the peer's GID? Else what names it is dropped. */
bool dr_verbs_where_allows(const struct vb_where *w, const uint8_t gid[16]);
/* The peer's handle came. */
void dr_verbs_where_peer(struct vb_where *w, const struct dr_verbs_addr *peer);
/* This end has another address. */
void dr_verbs_where_moved(struct vb_where *w);
/* True: the peer is to be told now. */
bool dr_verbs_where_tick(struct vb_where *w, int64_t now_ns);
/* What is said then, or as an answer, but for this end's address. */
struct dr_verbs_news dr_verbs_where_tell(const struct vb_where *w, bool answer);
/* NEWS came. */
int dr_verbs_where_news(struct vb_where *w, const struct dr_verbs_news *n);
/* HELLO or WELCOME came, and is not outdated. MOVED, or 0. */
int dr_verbs_where_greeted(struct vb_where *w, const struct dr_verbs_hello *h);

#endif
