/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_CHANNEL_HEARTBEAT_PRIV_H
#define DR_CHANNEL_HEARTBEAT_PRIV_H

#include "channel/heartbeat.h"

/* The number of the next datagram. */
uint64_t dr_hb_next_number(struct dr_hb *h);
/* Whether the number of an authentic datagram is newer than what came on the rail, and possible. reported: the newest of
 * our datagrams that the peer had received when it sent this one. */
bool dr_hb_take_number(
	struct dr_hb *h, unsigned rail, uint64_t number, uint64_t reported, int64_t now);

#endif
