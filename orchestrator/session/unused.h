/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_ORCHESTRATOR_UNUSED_H
#define DR_ORCHESTRATOR_UNUSED_H

#include "orchestrator/session/offer.h"
#include "orchestrator/session/session_priv.h"

/*
 * NICs that have an address and are no rail of this session, with the reason: a link that is down would be
 * missed by nobody otherwise. Rows of the record (topology.unused_nics); the server's are in its reply:
 *   "unused": [{"side": "server", "nic", "address", "reason"}]
 */
/* Those of this end, after the rails are agreed on. None where NICs were named, or both ends are on
 * one host. silent: NICs that the peer did not answer on; NULL: none. */
void dr_unused_find(const struct dr_session *s, const struct dr_silent_nics *silent);
/* Its first global address, also one that another device has, too; NULL: none. */
const struct dr_netdev_addr *dr_unused_address(const struct dr_netdev *d);
/* At the server, whose rails have no partners: names its NICs that are down in front of the error. */
void dr_unused_explain(struct dr_err *e);
/* 0 or -1: no memory. */
int dr_unused_put(const struct dr_record *rec, json_t *reply);
/* Bytes of a peer: what is no such row is left out. silent: NICs here whose peers have that
 * reason. */
void dr_unused_take(
	struct dr_record *rec, const json_t *reply, const struct dr_silent_nics *silent);
/* "not used: eth2 (10.50.2.2), eth3 (10.50.3.2): no carrier; eth9 (192.0.2.1): down", four names for each reason; those for
 * management only if all. False: there is none. */
bool dr_unused_describe(const struct dr_record *rec, int side, bool all, char *buf, size_t len);

#endif
