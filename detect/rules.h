/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_RULES_H
#define DR_DETECT_RULES_H

#include "detect/evidence.h"

/*
 * The rules of detection: one table in rules.c. Each row is a pure function of evidence with the
 * verdict that it leads to and the sentence for the log. The first row that holds decides; the last
 * one has no function, and always holds.
 */
enum dr_peer_verdict {
	DR_PEER_RUNS,	 /* or nothing speaks against it */
	DR_PEER_STANDS,	 /* wait for it */
	DR_PEER_UNKNOWN, /* too early to tell: what was so stays so */
	DR_PEER_LOST,	 /* its host is gone, or all rails are cut */
	DR_PEER_GONE,	 /* its process has ended */
};

/* Of rails and paths: what changes. */
enum dr_rail_verdict { DR_RAIL_AS_IT_WAS, DR_RAIL_FELL, DR_RAIL_ROSE };
enum dr_path_verdict {
	DR_PATH_AS_IT_WAS,
	DR_PATH_DEAD,
	DR_PATH_RAIL_SMALL, /* its rail carries no packets of full size: down until it does */
	DR_PATH_ASK,	    /* not known yet: probe it */
};

struct dr_rail_rule {
	const char *name;
	bool (*holds)(const struct dr_rail_evidence *e);
	enum dr_rail_verdict verdict;
	int err;
	const char *says;
};

struct dr_path_rule {
	const char *name;
	bool (*holds)(const struct dr_path_evidence *e);
	enum dr_path_verdict verdict;
	int err;
	const char *says;
};

struct dr_peer_rule {
	const char *name;
	bool (*holds)(const struct dr_peer_evidence *e);
	enum dr_peer_verdict verdict;
	int err;	  /* -errno of channels that end for it; 0: none does */
	const char *says; /* for people; NULL: nothing to say */
};

/* A peer that is silent for this time is asked, every DR_ASK_NS. */
#define DR_SILENT_NS (100 * DR_NS_PER_MS)
#define DR_ASK_NS (100 * DR_NS_PER_MS)
/* The same while it is known to stand: what it is sent waits in its receive buffer, which must
 * not fill. Two questions, and two repetitions of the first one, are sent before a host counts as
 * gone (1.5 s). */
#define DR_ASK_STANDS_NS (500 * DR_NS_PER_MS)

/*
 * Heartbeats that are missing before a rail is down. With 2 % loss 5 in a row are lost with a
 * probability of 3e-9; there are 1.2e5 in ten minutes, and a suspect rail has to be silent for
 * DR_FAST_MISSES fast ticks as well. Its bound, which is printed, in intervals: a tick in
 * progress, the first heartbeat that is missing, then four per interval.
 */
enum { DR_MISSES = 5, DR_FAST = 10 /* fast ticks in an interval */, DR_FAST_MISSES = 7 };
enum { DR_BOUND_BEATS = 5 };
/* Intervals in a row in which a rail is heard in both directions before it is up again. */
enum { DR_REVIVE = 3 };
/* Padded heartbeats lost in a row that show that a rail carries none: 0.04^8. */
enum { DR_PADDED_LOST = 8 };
/* Segments without any answer that show a dead path. */
enum { DR_SILENT_SEGMENTS = 8 };
/* Repetitions without an answer that show it although segments are lost together: one hand-over
 * of a kernel to its device is many segments, one answer counts for many. With 2 % loss in both
 * directions: 0.04^5 after each loss. BURST: where the rail carries data, since a queue that
 * overflows takes all segments of a connection; they are repeated 200 and 600 ms later. */
enum { DR_REPEATED = 5, DR_REPEATED_BURST = 2 };
/* Repeated segments of a thousand with which losses explain a silence: its own, since the last
 * packet and its repetition are lost with 1e-6 below that; those of another connection, which is
 * no sign that this one loses any. */
enum { DR_OWN_LOSS = 1, DR_OTHERS_LOSS = 10 };
/* A rail that carried data of other connections lately, or a round trip and a half ago, takes
 * packets of full size. Its queue is empty earlier when it fails. */
#define DR_CARRIED_NS (80 * DR_NS_PER_MS)
/* Data without progress for this time is looked after, and what no kernel answers for
 * DR_NO_ANSWER_NS is lost. */
#define DR_DOUBT_NS (40 * DR_NS_PER_MS)
#define DR_NO_ANSWER_NS (100 * DR_NS_PER_MS)
/* The shortest interval of fast ticks. */
#define DR_FAST_MIN_NS (DR_NS_PER_MS / 2)
int64_t dr_fast_ns(int64_t interval_ns);

/* The rule that decides; there is always one. */
const struct dr_rail_rule *dr_rail_rule(const struct dr_rail_evidence *e);
const struct dr_path_rule *dr_path_rule(const struct dr_path_evidence *e);
const struct dr_peer_rule *dr_peer_rule(const struct dr_peer_evidence *e);

#endif
