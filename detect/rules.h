/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_RULES_H
#define DR_DETECT_RULES_H

#include "detect/evidence.h"

/*
 * The rules of detection: one table in rules.c. Each row is a pure function of evidence with the
 * verdict that it leads to and the sentence for the log. The first row that holds decides.
 */
enum dr_peer_verdict {
	DR_PEER_RUNS,	 /* or nothing speaks against it */
	DR_PEER_STANDS,	 /* wait for it */
	DR_PEER_UNKNOWN, /* too early to tell: what was so stays so */
	DR_PEER_LOST,	 /* its host is gone, or all rails are cut */
	DR_PEER_GONE,	 /* its process has ended */
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
/* The same while it is known to stand: what it is asked waits in its receive buffer. Two
 * questions, and two repetitions of the first one, are sent before a host counts as gone (1.5
 * s). */
#define DR_ASK_STANDS_NS (500 * DR_NS_PER_MS)

/* The rule that decides; there is always one. */
const struct dr_peer_rule *dr_peer_rule(const struct dr_peer_evidence *e);

#endif
