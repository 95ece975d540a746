/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_PEER_H
#define DR_CHANNEL_PEER_H

#include "channel/manager.h"

/*
 * A peer process, as the ChannelManagers of this process see it: one stream of heartbeats per rail
 * and the verdicts on the rails. It is made before the managers and freed after them. Kinds without
 * datagrams have none: each manager sends heartbeats of its own on its paths. Threads: any, but
 * dr_peer_create and dr_peer_destroy must not run beside others.
 */

/* m: parameters of one of the managers.
 * apart: a poller that nobody waits on, where the endpoints of the heartbeats are registered; the
 * managers' pollers watch it. It must outlive the peer. NULL: each dr_manager_tick reads them.
 * -ENOTSUP: the kind has no datagrams; -ENOMEM, and the errors of the kind's listen. */
int dr_peer_create(const struct dr_manager_params *m, struct dr_poller *apart, struct dr_peer **out,
	struct dr_err *e) DR_MUST_CHECK;
/* Handles for the bootstrap: one per rail, for the whole process. */
int dr_peer_handle(struct dr_peer *p, unsigned i, struct dr_handle *out);
/* Takes all of the other end's handles and starts the heartbeats, which the managers that have started send.
 * -EPROTO: a handle is malformed, or their number differs. */
int dr_peer_start(struct dr_peer *p, const struct dr_handle *h, unsigned n, int64_t now_ns,
	struct dr_err *e) DR_MUST_CHECK;
/* After its last manager. NULL is allowed. */
void dr_peer_destroy(struct dr_peer *p);

#endif
