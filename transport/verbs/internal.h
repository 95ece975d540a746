/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_INTERNAL_H
#define DR_TRANSPORT_VERBS_INTERNAL_H

#include "transport/verbs/path_priv.h"

/*
 * How the verbs kind is put together.
 *
 *	rail	rail.c: life, peer; nic.c: the device, also when it goes and comes back; ud.c: datagrams;
 *		admit.c: greetings, news; event.c: asynchronous events; mr.c, gpumem.c: memory; helper.c: what
 *		may block						rail_priv.h, mem.h, helper.h
 *	conn	conn.c: the connection of one path; qp.c: its queue pairs, made and destroyed by the helper;
 *		cq.c: completion queues, what the poller looks at	conn.h
 *	path	path.c: life, ops; up.c: coming up; ctrl.c: control messages; tx.c: data out; rx.c: data in;
 *		flush.c: GPU memory; fence.c				path_priv.h
 *	bytes	hello.c, frame.c; status.c: what a completion status means
 *
 * Threads. A rail and its paths belong to their owner's thread. The helper thread of a rail sees
 * only jobs, and what a job holds is the helper's from submit until its done() runs, which is in
 * rail_progress, on the owner's thread. A path never waits for the helper: it lets go of its conn,
 * whose own DESTROY job comes after every other job of it.
 */

#endif
