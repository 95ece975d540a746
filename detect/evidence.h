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

/* Of a rail, in the direction to this end. */
struct dr_rail_evidence {
	bool down;	     /* the verdict so far */
	bool never;	     /* nothing was ever heard on it */
	bool padded_only;    /* it is down until a padded heartbeat arrives */
	bool peer_down;	     /* the peer hears nothing on it, and has declared it down */
	bool peer_hears;     /* the peer misses nothing */
	unsigned missed;     /* heartbeats that the peer says it sent, and that did not arrive */
	unsigned good;	     /* while it is down: intervals in a row in which it was heard */
	int64_t silent_ns;   /* nothing was heard, nor acknowledged by the peer's kernel */
	int64_t usual_ns;    /* the usual longest time between two signs of life */
	int64_t interval_ns; /* of heartbeats */
};

/* Of a path whose rail works, and on which data waits for an acknowledgement. */
struct dr_path_evidence {
	int64_t stalled_ns;	  /* no progress */
	int64_t answer_ns;	  /* the peer's kernel acknowledged nothing */
	int64_t rtt_ns;		  /* smoothed */
	unsigned silent_segments; /* that were sent since then */
	bool rail_down;		  /* its rail is down: it was the only path for a time */
	bool other_rail_up;	  /* the rail of the channel's other path works */
	int64_t rail_idle_ns;	  /* no data of its direction was acknowledged on the whole rail */
	bool lossy;		  /* the connection lost segments lately */
	bool rail_lossy;	  /* another one of the rail did, and lossy is false */
	unsigned repeated;  /* transmissions in a row that the kernel or NIC repeated in vain */
	bool padded;	    /* padded heartbeats are sent on the rail: */
	bool padded_lost;   /* DR_PADDED_LOST in a row did not arrive, and small ones did */
	bool padded_passed; /* one arrived */
};

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
};

#endif
