/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_EVIDENCE_H
#define DR_DETECT_EVIDENCE_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * What detection is told. Whoever uses it measures this; it draws no conclusion. Times are
 * durations in ns, and such in which this process stood count for nothing: it could not have
 * noticed a sign of life.
 */

/* Of the peer, while no rail is heard. Its kernel (or NIC) answers while its process stands. */
struct dr_peer_evidence {
	int64_t silent_ns;     /* nothing of its process was heard on any rail */
	int64_t unanswered_ns; /* of this, since its kernel answered last, or was asked first */
	int64_t lost_after_ns; /* its host counts as gone after this time; set by the user */
	bool answered;	       /* its kernel has answered since the last look */
	bool refused;	       /* its kernel refuses connections, on each rail where it answers */
	bool pending;	       /* there are questions whose answer is not overdue */
	bool blind;	       /* nothing tells of its kernel */
	bool path_up;	       /* a path is up here */
	bool stands;	       /* its process says so of the worker at the other end */
};

#endif
