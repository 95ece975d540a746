/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_PACKET_H
#define DR_BASE_PACKET_H

#include "base/defs.h"

#include <sys/types.h>

/*
 * Packets with descriptors between processes: sock is one end of a SOCK_SEQPACKET socket pair. Both functions repeat a call
 * that a signal interrupted. Any thread may call them.
 */

enum { DR_PACKET_FDS = 4 };

/*
 * A packet of len > 0 bytes with n <= DR_PACKET_FDS descriptors, which stay the caller's; fds is not read if n is 0. Waits
 * while the socket is full if it is blocking, else -EAGAIN. Raises no SIGPIPE. 0 or -errno; -EPIPE: the peer has closed.
 */
int dr_packet_send(int sock, const void *bytes, size_t len, const int *fds, unsigned n)
	DR_MUST_CHECK;

/*
 * The next packet; flags: of recvmsg, e.g. MSG_DONTWAIT. Returns its length, at most cap; the rest of a longer packet is lost.
 * 0: the peer has closed; -errno.
 *
 * fds gets its descriptors, close-on-exec and owned by the caller, in their order; -1 in the places that are left, and in all n
 * on an error. If it had more than n, or if some were lost because this process has too many open, none is kept: all n are -1.
 * With n = 0 fds is not written.
 */
ssize_t dr_packet_receive(int sock, void *bytes, size_t cap, int *fds, unsigned n, int flags)
	DR_MUST_CHECK;

#endif
