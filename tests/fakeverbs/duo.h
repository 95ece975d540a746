/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_DUO_H
#define DR_TESTS_FAKEVERBS_DUO_H

#include "channel/peer.h"
#include "tests/fakeverbs/kit.h"
#include "transport/verbs/verbs.h"

/*
 * Two ChannelManagers with one channel over one or two rails of fake NICs, driven in turns by one thread. While
 * both ends move, numbered messages go over, and each is checked.
 *
 * The ends and the NICs share a clock, duo_now(). It follows the monotonic clock, but at most 1 ms passes between two
 * turns: a test process that waits for a processor is not a rail that is slow or silent.
 */
enum { SENDER, RECEIVER, DUO_WINDOW = 4, DUO_LEN = 4096 };

struct duo_opts {
	unsigned rails; /* 1 or 2 */
	unsigned
		address; /* the addresses are 127.0.0.1 + this and the next ones: rail by rail, sender first */
	bool peer; /* the heartbeats have endpoints of their own, as if several managers shared them */
	bool lazy;	 /* memory is registered at first use */
	bool cuda;	 /* the receiver's memory is of a GPU whose writes want a flush */
	bool ends;	 /* the channel is to end with an error */
	bool waits_long; /* but not because no path is up for a while */
	bool paused;	 /* nothing is posted until this is cleared */
};

struct duo {
	struct duo_opts o;
	const struct dr_fake_ctl *fake;
	struct dr_peer *peer[2];
	struct dr_manager *m[2];
	struct dr_channel *ch[2];
	struct dr_mem mem[2];
	uint64_t *buf[2];		     /* DUO_WINDOW messages of DUO_LEN bytes */
	int fd;				     /* cuda: what stands for the receiver's GPU; else -1 */
	uint64_t sent, acked, posted, taken; /* messages; taken: looked at, in order */
	int err[2];			     /* of ops->failed; 0: not called */
	char why[2][256];
	char cause[256];    /* of the last switch, where it was detected */
	unsigned downs;	    /* rails that either end declared down */
	int64_t stalled_ns; /* when the sender was told last that its peer is stalled; 0: never */
	int64_t began_ns;
};

int64_t duo_now(void);

/* The NICs of DR_FAKE_IBV, "NAME:lo:ADDRESS,...", are there anew. */
const struct dr_fake_ctl *duo_nics(const char *list);
void duo_open(struct duo *d, const struct dr_fake_ctl *fake, const struct duo_opts *o);
/* Memory, channels, managers. */
void duo_shut(struct duo *d);
/* Nothing of the NICs is left, and nothing was misused. */
void duo_clean(const struct dr_fake_ctl *fake);
/* Over two rails, a0 and a1 of the sender, b0 and b1 of the receiver. */
extern const char duo_two_rails[];
/* Both up and some messages over; without heartbeats by others. */
void duo_up(struct duo *d);
/* duo_shut and duo_clean. */
void duo_end(struct duo *d);

/* One turn of one end, or of both; fails after 60 s of duo_now() in a duo_until. */
void duo_turn_one(struct duo *d, unsigned end);
void duo_turn(struct duo *d, const char *what);
/* At both ends this path carries the data, and is up. */
bool duo_on_path(struct duo *d, unsigned path);
/* At both ends every path is up. */
bool duo_whole(struct duo *d);

#define duo_until(d, cond)                                                                         \
	do {                                                                                       \
		(d)->began_ns = duo_now();                                                         \
		while (!(cond))                                                                    \
			duo_turn(d, #cond);                                                        \
	} while (0)

#endif
