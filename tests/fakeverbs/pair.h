/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEVERBS_PAIR_H
#define DR_TESTS_FAKEVERBS_PAIR_H

#include "tests/fakeverbs/kit.h"
#include "transport/verbs/verbs.h"

/*
 * Two ends of one path of the verbs kind on the fake NICs, driven in turns by one thread: end S (0)
 * sends and is on fake0, end R (1) receives and is on fake1. The sinks hold the path contract against
 * what is reported; the steps below take no success for granted, so that a fault may hit any of them.
 */
enum { S = 0, R = 1 };
enum { PAIR_MEM = 1 << 20, PAIR_PARTS = 2, PAIR_MSGS = 3, PAIR_LEN = 40000 };

struct pair;
struct pair_end {
	struct dr_sink sink, rail_sink;
	struct pair *p;
	unsigned node;
	struct dr_rail *rail;
	struct dr_path *path;
	struct dr_mr *mr;
	uint8_t *mem;
	unsigned count[DR_EV_INCOMING + 1]; /* of this path; of the rail: DGRAM, INCOMING */
	bool inside, failed, fenced;
	enum dr_scope scope;
	int err;
	char text[256];
	unsigned fence_failed; /* FAILED after FAILED: the fence's */
	unsigned rail_failed;
	enum dr_scope rail_scope;
	char rail_text[256];
	int stop_rc, dereg_rc; /* what the last of each returned */
};

struct pair {
	const struct dr_fake_ctl *fake;
	struct dr_poller *poller;
	struct dr_verbs_params vp;
	struct pair_end e[2];
	uint32_t gen;
	unsigned turns;
	unsigned nth; /* of the runs of a test */
	/* Called once when the NICs were asked to modify, send or receive so often; again to heal. */
	void (*fault)(struct pair *p, bool heal);
	void (*seen)(
		struct pair *p, const struct dr_event *ev); /* each event of R's path, if set */
	unsigned fault_after;
	int64_t heal_ns;   /* INT64_MAX: healed */
	const char *doing; /* for messages */
	int64_t began_ns;
	char error[256]; /* the clean error that a call returned */
};

/* Faults forgotten, nothing open yet. */
void pair_init(struct pair *p, bool poller);
/* Each: 0, or -errno with the words in p->error. */
int pair_listen(struct pair *p); /* both of the next */
int pair_listen_one(struct pair *p, unsigned end);
int pair_introduce(struct pair *p); /* each rail is told its peer */
int pair_register(struct pair *p);
int pair_create(struct pair *p); /* next generation, S dials */
int pair_connect(struct pair *p);
/* R posts message seq, S posts its parts as credits come; one attempt each, 0 or -errno. */
int pair_post_recv(struct pair *p, uint64_t seq);
int pair_post_send(struct pair *p, uint64_t seq);
/* Whether both ends become READY before anything fails. */
bool pair_ready(struct pair *p);
/* The next ones assert. All of the above but READY; the next generation, as far. */
void pair_dial(struct pair *p);
void pair_dial_again(struct pair *p);
void pair_expect_ready(struct pair *p);
void pair_up(struct pair *p); /* dial, and READY */
/* seq's parts are what S sent; asserts. */
void pair_check(struct pair *p, uint64_t seq);
/* Memory of R is b from end to end. */
bool pair_untouched(struct pair *p, uint8_t b);
void pair_fence(struct pair *p, unsigned end, int64_t deadline_ns);
void pair_end_path(struct pair *p); /* close, stop, fini */
void pair_shut(struct pair *p);	    /* what is open goes */
/* Shut, nothing alive, nothing misused. leaky: a destroying call was made to fail, so something stays. */
void pair_clean(struct pair *p, bool leaky);

/* life.c. Messages 0 to PAIR_MSGS - 1 go over and are checked, unless something fails. */
void pair_transfer(struct pair *p);
/* A datagram each way and a control frame. */
void pair_chatter(struct pair *p);
/* Both ends, with a deadline of 60 ms; until FENCED, or FAILED of the fence. */
void pair_fence_both(struct pair *p);
/* All that a path does, once; stops where something fails. */
void pair_life(struct pair *p);
/* The next generation comes up and carries data; asserts. */
void pair_again(struct pair *p);
/* R has posted message 0, and S its credit. */
void pair_credited(struct pair *p);
/* Both fenced, all shut, nothing left; asserts. */
void pair_end(struct pair *p);

/* A test that runs so many times, each with a pair that is up, and is ended unless the test has cleaned it. */
enum pair_how {
	PAIR_ALONE,
	PAIR_POLLED,
	PAIR_BOTH,     /* with a poller where p->nth is odd */
	PAIR_BARE = 4, /* and not up */
};
static inline bool pair_polls(enum pair_how how, unsigned nth)
{
	return how & PAIR_POLLED || (how & PAIR_BOTH && nth % 2);
}
struct pair_test {
	void (*run)(struct pair *p);
	enum pair_how how;
	unsigned times;
};
void pair_test(void **state);
#define PAIR(f, how, times)                                                                        \
	((struct CMUnitTest){ #f, pair_test, NULL, NULL, &(struct pair_test){ f, how, times } })

void pair_turn(struct pair *p);
/* Only one end moves; not with a poller. */
void pair_turn_one(struct pair *p, unsigned end);
static inline bool pair_any_failed(const struct pair *p)
{
	return p->e[0].failed || p->e[1].failed || p->e[0].rail_failed || p->e[1].rail_failed;
}
_Noreturn void pair_stuck(struct pair *p, const char *what);
#define pair_until(p, cond)                                                                        \
	do {                                                                                       \
		(p)->began_ns = dr_now_ns();                                                       \
		while (!(cond)) {                                                                  \
			if (dr_now_ns() - (p)->began_ns > 15 * DR_NS_PER_S)                        \
				pair_stuck(p, #cond);                                              \
			pair_turn(p);                                                              \
		}                                                                                  \
	} while (0)

#endif
