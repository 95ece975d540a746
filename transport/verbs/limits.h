/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_LIMITS_H
#define DR_TRANSPORT_VERBS_LIMITS_H

#include "base/clock.h"

/* What the verbs kind allows itself: counts, bytes, times. */
enum {
	VB_CTRL_DEPTH = 32,  /* control messages in flight, each way */
	VB_CTRL_MSG = 1024,  /* bytes of a control message at most */
	VB_SLAB_SPARE = 64,  /* where flushes read to */
	VB_CTRL_BUF = 65536, /* bytes of queued control frames */
	VB_INLINE = 256,     /* bytes asked for; a device that has less: registered copies */
	VB_INLINE_DATA = 64, /* of data: more makes every work request larger */
	VB_RING = 128,	     /* messages posted, credits held */
	VB_SENDS = 64,	     /* parts queued on one data queue pair */
	VB_FLUSH = 32,	     /* flushes under way on a path */
	VB_SQ = 128,	     /* work requests on one data queue pair */
	VB_RQ = 1024,	     /* receives of a path, over all its data queue pairs */
	VB_CHAIN = 16,	     /* work requests of one ibv_post_send */
	VB_POLL = 32,	     /* completions of one ibv_poll_cq, and taken by one progress */
	VB_CQ_CONNS = 8,     /* connections that share a completion queue */
	VB_PARKED = 64,	     /* greetings that no path waits for */
	VB_GRH = 40,	     /* bytes in front of each datagram */
	VB_UD_BUF = 384,
	VB_UD_RECVS = 64,
	VB_UD_SENDS = 32,
	VB_SLOTS_MAX = 1 << 16,
};
#define VB_HELLO_NS (12 * DR_NS_PER_MS) /* between two HELLOs of a path */
#define VB_TICK_NS (4 * DR_NS_PER_MS)	/* of the rail's timer while a path waits for time */
#define VB_SLOW_TICK_NS                                                                            \
	(50 * DR_NS_PER_MS)	       /* of the same timer while the device or the port is gone */
#define VB_NEWS_NS (20 * DR_NS_PER_MS) /* between two tellings of a new address */
#define VB_REST_NS (20 * DR_NS_PER_MS) /* from a fence to the destruction of its queue pairs */
#define VB_MEND_NS (20 * DR_NS_PER_MS)
#define VB_AH_AGAIN_NS (50 * DR_NS_PER_MS)
#define VB_PARK_NS (5 * DR_NS_PER_S) /* a greeting is kept so long after its last repetition */

#endif
