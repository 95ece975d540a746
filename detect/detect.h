/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_DETECT_DETECT_H
#define DR_DETECT_DETECT_H

#include "detect/rules.h"

#include <stdint.h>

/*
 * What is known of the rails between two processes, and the verdicts on them. Sans-IO: the owner
 * tells what it received and when (monotonic ns), and asks for verdicts in its ticks. One thread.
 *
 * Each heartbeat says how many of them its sender has sent on each rail. So a rail on which
 * heartbeats are missing is known from those of the other rails, whatever either process did
 * meanwhile: one that stands sends none, and what waits to be read is read before a verdict.
 */
enum {
	DR_DETECT_RAILS_MAX = 16,
	DR_DETECT_DOWN = UINT8_MAX, /* of dr_detect_missed: the rail is down here, and silent */
};

struct dr_detect_rail {
	bool down;	   /* the verdict */
	bool ever;	   /* it was heard */
	bool padded_only;  /* down until a padded heartbeat arrives */
	bool suspected;	   /* by the owner */
	bool no_path;	   /* nothing can be heard on it, since heartbeats use the paths */
	uint8_t peer_miss; /* heartbeats that the peer misses, as it reported last; DR_DETECT_DOWN */
	uint8_t good;	   /* DOWN: intervals in a row in which it was heard */
	uint16_t sent;	   /* that the peer has sent on it, as it reported last, */
	uint16_t sent_before; /* and before that; */
	uint16_t heard_at;    /* the same when the rail was heard last */
	int64_t told_ns;      /* when it reported that */
	int64_t heard_ns, bytes_ns, acked_ns, suspect_ns, good_ns, beat_ns, beat_gap_ns;
	/* The longest time between two signs of life in the present and the last tenth of a
	 * second or so; 0: unknown. */
	int64_t gap_ns[2];
};

struct dr_detector {
	unsigned n_rails;
	int64_t interval_ns;
	struct dr_detect_rail rail[DR_DETECT_RAILS_MAX];
	bool heard; /* on any rail, since the last tick */
	int64_t gaps_ns, tick_ns;
	int64_t silent_ns; /* no rail was heard, in executed ticks */
};

/* Results of a tick; bit i stands for rail i. */
struct dr_detect_out {
	uint32_t fell, rose;
	const struct dr_rail_rule *rule[DR_DETECT_RAILS_MAX]; /* of these */
};

void dr_detect_init(struct dr_detector *d, unsigned n_rails, int64_t interval_ns);
void dr_detect_start(struct dr_detector *d, int64_t now);
/* Bytes came on the rail at at_ns. */
void dr_detect_life(struct dr_detector *d, unsigned rail, int64_t at_ns);
/* A heartbeat came on the rail; after dr_detect_report if it is the newest one. */
void dr_detect_beat(struct dr_detector *d, unsigned rail, int64_t now);
/* The newest heartbeat of the peer, on whichever rail, says this of the rail. */
void dr_detect_report(
	struct dr_detector *d, unsigned rail, uint16_t sent, uint8_t miss, int64_t now);
/* The peer's kernel or NIC acknowledged bytes: the rail works, whether or not the process runs. */
void dr_detect_acked(struct dr_detector *d, unsigned rail, int64_t now);
/* Whether heartbeats use the paths and none of the rail's is up here. */
void dr_detect_no_path(struct dr_detector *d, unsigned rail, bool none);
/* Data on the rail waits for an answer longer than usual. */
void dr_detect_suspect(struct dr_detector *d, unsigned rail, int64_t now);
/* It is known to be down (link state, endpoint), or carries no padded heartbeats (padded). */
void dr_detect_force_down(struct dr_detector *d, unsigned rail, bool padded);
/* The rail is up, and n heartbeats or more are missing, here or at the peer. 1: it may be on its
 * way; 2: the rail is suspect. */
bool dr_detect_misses(const struct dr_detector *d, unsigned rail, unsigned n);
/* Bits of the rails that the next heartbeat of another rail may bring down: read what has
 * arrived on them before. */
uint32_t dr_detect_suspects(const struct dr_detector *d);
/* Heartbeats that are missing here, for the report to the peer; at least 2 of a suspected rail. */
uint8_t dr_detect_missed(const struct dr_detector *d, unsigned rail);
/* Verdicts: which rails fell and rose since the last call, and by which rule. */
void dr_detect_tick(struct dr_detector *d, int64_t now, struct dr_detect_out *out);
/* The longest time between two reads of bytes on the rail since the last call; 0: unknown.
 * Heartbeats that come more often replace it. */
void dr_detect_gap(struct dr_detector *d, unsigned rail, int64_t bytes_gap_ns);
/* The usual longest time between two signs of life; an interval, until it was observed. */
int64_t dr_detect_usual_gap(const struct dr_detector *d, unsigned rail);

#endif
