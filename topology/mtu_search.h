/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TOPOLOGY_MTU_SEARCH_H
#define DR_TOPOLOGY_MTU_SEARCH_H

#include "base/defs.h"

#include <stdbool.h>

/*
 * Do packets of full size pass a rail? One end's part of the test, which both ends execute at the same time:
 * each sends datagrams that are never fragmented, and the other end answers each with a small one, so that each
 * end learns about its own direction. Every datagram carries the sender's result. docs/PROTOCOL.md, 1.6, has the
 * bytes. Sans-IO; times are monotonic ns; one thread. Sizes are those of IP packets, headers included.
 *
 * A round sends the sizes in question, then a companion that is known to pass. A size is lost if the companion
 * behind it is answered and the size is not. How many losses it takes follows from the share of companions that
 * are lost, so that a rail with losses is not taken for one with a hole.
 *  1. The full size. If it is answered, that is all.
 *  2. Up to DR_MTU_TRIES sizes at once between the largest that passes and the smallest that does not.
 *  3. The full size again, beside the largest that passes: a full queue drops large packets more often than small
 *     ones.
 */
enum {
	DR_MTU_TRIES = 8,
	DR_MTU_DGRAM = 36, /* bytes of a datagram without padding */
	DR_MTU_KEY = 16,
	DR_MTU_ROUNDS = 8, /* whose companions may be answered late */
	DR_MTU_PACKET_MAX = 65535,
};

/* Values are on the wire. */
enum dr_mtu_state {
	DR_MTU_OPEN,   /* nothing was answered so far */
	DR_MTU_DOUBT,  /* small packets were answered, full ones not yet */
	DR_MTU_PASSES, /* packets of full size arrive */
	DR_MTU_HOLE,   /* smaller ones arrive, larger ones are dropped without an error */
	DR_MTU_REFUSED, /* a router, or this kernel, reports a smaller MTU, and packets of that size arrive */
	DR_MTU_UNKNOWN, /* no answer, or too many losses to tell */
	DR_MTU_STATES
};
static inline bool dr_mtu_final(enum dr_mtu_state s)
{
	return s > DR_MTU_DOUBT;
}

struct dr_mtu_result {
	enum dr_mtu_state state;
	uint32_t bytes; /* largest packet that arrived; 0: unknown */
};

struct dr_mtu_params {
	uint32_t full_bytes,
		header_bytes; /* headers: IP and UDP. headers + DR_MTU_DGRAM <= full <= DR_MTU_PACKET_MAX */
	uint8_t rail;
	bool connector; /* part of the datagrams, so that a reflected one is refused */
	uint8_t key[DR_MTU_KEY];
};

struct dr_mtu_search {
	struct dr_mtu_params prm;
	enum dr_mtu_step { DR_MTU_FULL, DR_MTU_SEARCH, DR_MTU_CONFIRM, DR_MTU_END } step;
	struct dr_mtu_result own, peer;
	bool heard;	 /* the peer */
	bool peer_knows; /* our result */
	bool refused;
	uint32_t lo; /* largest size that passes; 0: none yet */
	uint32_t hi; /* smallest that does not; the full size + 1 at first */
	unsigned n_tries;
	uint32_t size[DR_MTU_TRIES];
	unsigned lost[DR_MTU_TRIES];
	uint32_t companion;	 /* its size */
	unsigned sent, answered; /* companions, from the first one that was answered */
	uint32_t number;	 /* of the last datagram */
	unsigned at; /* datagrams of this round that were sent; 0: it waits for answers */
	bool round;
	struct { /* companions of the last rounds, a ring; [round_n % DR_MTU_ROUNDS]: of this one */
		uint32_t number;
		bool answered, counted; /* counted: in `sent` */
		int64_t sent_ns;
	} last[DR_MTU_ROUNDS];
	unsigned round_n;
	unsigned unanswered; /* rounds in a row */
	int64_t rtt_ns;	     /* 0: unknown */
	int64_t begin_ns, next_ns;
};

void dr_mtu_search_init(struct dr_mtu_search *s, const struct dr_mtu_params *p, int64_t now);
/* A datagram for the connection that comes first (mtu_rail.h). It takes no part in the search, nor
 * does its answer. */
void dr_mtu_search_proof(const struct dr_mtu_search *s, uint8_t buf[DR_MTU_DGRAM]);
/* Both ends know both results, or the time is over. */
bool dr_mtu_search_over(const struct dr_mtu_search *s);
/* When dr_mtu_search_next is due; DR_NEVER when the test is over. */
int64_t dr_mtu_search_deadline(const struct dr_mtu_search *s);
/*
 * The next datagram to send now: returns its size, of which the first DR_MTU_DGRAM bytes are in buf and the others
 * are zeros; 0: none. To be called until it returns 0, after everything that arrived was passed to receive.
 */
uint32_t dr_mtu_search_next(struct dr_mtu_search *s, int64_t now, uint8_t buf[DR_MTU_DGRAM]);
/*
 * A datagram arrived: its first len bytes, `size` bytes in all. 1: `answer`, of DR_MTU_DGRAM bytes, is to be sent; 0: no
 * answer is due; -EPROTO: not ours or forged, and ignored.
 */
int dr_mtu_search_receive(struct dr_mtu_search *s, const void *data, size_t len, size_t size,
	int64_t now, uint8_t answer[DR_MTU_DGRAM]);
/* The kernel refuses larger packets than this on the path. */
void dr_mtu_search_refused(struct dr_mtu_search *s, uint32_t bytes);

#endif
