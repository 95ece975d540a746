/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_FAILURE_H
#define DR_BASE_FAILURE_H

#include <sys/socket.h>

/*
 * The last error of a connection between two addresses that did not come up, for the message that
 * explains it. The kinds of transport keep them, topology/reach.h asks. Whoever dials tries again
 * within 2 s, so an error of more than 10 s ago is not the cause. The last 32 pairs are kept. Any
 * thread.
 */
/* What to do about an error of this process: its limits and rights. NULL: another cause. */
const char *dr_failure_own(int err);
/* An error of this process stays where others follow: they come from what it still could do. */
void dr_failure_keep(
	const struct sockaddr_storage *local, const struct sockaddr_storage *peer, int err);
/* -errno, and the peer's port if port is not NULL; 0: there was none. Ports of the arguments are
 * ignored. */
int dr_failure_last(
	const struct sockaddr_storage *local, const struct sockaddr_storage *peer, unsigned *port);

#endif
