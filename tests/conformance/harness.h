/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_CONFORMANCE_HARNESS_H
#define DR_TESTS_CONFORMANCE_HARNESS_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/conformance/copier.h"
#include "tests/faulty/faulty.h"
#include "transport/path.h"
#include "tests/sim/sim.h"
#include "transport/verbs/verbs.h"

/*
 * Two ends of one path, of any kind, and a way to let time pass until something holds. End 0 is the
 * sender S, end 1 the receiver R. What every sink call must respect (events only inside progress,
 * FAILED once and then only FENCED, parts once, ...) is asserted by the harness in every case.
 */
enum { S = 0, R = 1 };
enum { CF_EVENTS_MAX = 8192, CF_PROGRESS_EVENTS_MAX = 4096, CF_CHANNEL = 7, CF_INDEX = 1 };
#define CF_WAIT_NS (20 * DR_NS_PER_S) /* virtual for sim */

struct cf_kind {
	const char *name;
	const char *transport; /* by dr_transport_find; NULL: sim */
	enum dr_sim_personality personality;
	bool faulty, poller;
	/* Around all that: the memory is "of a GPU", copied by tests/conformance/copier. */
	bool staged;
	struct copier_opts copier;
	size_t ring_bytes; /* 0: enough for every case */
	unsigned qps;	   /* verbs */
	const char *file;  /* nccl: the plugin, as seen from this program's folder */
	const char *fake;  /* ... its personality, if it is emulated; NULL: socket */
	unsigned version;  /* ... and its interface; 0: the newest */
	bool busy; /* ... gives no request for every other isend and irecv (libnccl-net-fake.so) */
};

/*
 * The verbs kind runs on the fake NICs (tests/fakeverbs), or, with DR_VERBS_RAIL=IFNAME,ADDR of a device
 * that reaches itself or IFNAME,ADDR,IFNAME,ADDR of two, on real ones.
 */

struct cf_event {
	struct dr_event ev;
	uint8_t bytes[DR_DGRAM_MAX]; /* of CTRL, DGRAM */
};

struct cf;
struct cf_end {
	struct dr_sink sink, rail_sink;
	struct cf *f;
	unsigned node;
	struct dr_rail *rail;
	struct dr_path *path;
	uint32_t gen;
	/* of this path */
	struct cf_event *log;
	unsigned n, count[DR_EV_INCOMING + 1];
	bool inside, failed, closed;
	void (*hook)(struct cf_end *e, const struct dr_event *ev);
	/* of the rail */
	struct cf_event *rail_log;
	unsigned rail_n, rail_count[DR_EV_INCOMING + 1];
	uint8_t *mem;
	size_t mem_len;
	struct dr_mr *mr;
};

struct cf {
	const struct cf_kind *kind;
	const struct dr_transport_ops *ops;
	struct dr_sim_world *world;
	struct dr_faulty *faulty;
	struct copier *copier;
	struct dr_staged *staged;
	struct dr_poller *poller;
	struct cf_end end[2];
	uint8_t token[DR_TOKEN_LEN]; /* random: ports are used again, by other tests too */
	int64_t until_ns;	     /* during cf_run */
	bool violations_wanted;
};

/* NULL and *why when this build lacks the kind, or this machine a device for it. */
const struct dr_transport_ops *cf_kind_ops(const struct cf_kind *k, const char **why);

/* Rails up and told of each other; no path yet. */
void cf_open(struct cf *f, const struct cf_kind *k);
/* Everything down; checks the simulator's violations. */
void cf_shut(struct cf *f);

void cf_create(struct cf *f, unsigned end, uint32_t gen, unsigned connector_end);
/* connect with the peer's handle; the return code. */
int cf_connect(struct cf *f, unsigned end);
void cf_destroy(struct cf *f, unsigned end); /* close, stop, fini; NULL path allowed */
/* Both ends created with this gen and READY; S dials. */
void cf_up(struct cf *f, uint32_t gen);
/* Memory of both ends, registered and filled with 0xee. */
void cf_memory(struct cf *f, size_t len);

int64_t cf_now(const struct cf *f);
/* One turn of everything: all progress calls, or the passing of (virtual) time. Returns events. */
int cf_turn(struct cf *f);
int cf_progress(struct cf *f, unsigned end); /* one call, checked */
/* Let this much time pass. */
void cf_run(struct cf *f, int64_t for_ns);
/* Until nothing happens any more. */
void cf_quiet(struct cf *f);

#define cf_until(f, cond)                                                                          \
	do {                                                                                       \
		int64_t cf_deadline = cf_now(f) + CF_WAIT_NS;                                      \
		while (!(cond)) {                                                                  \
			if (cf_now(f) > cf_deadline)                                               \
				fail_msg("%s:%d: waited in vain for: %s", __FILE__, __LINE__,      \
					#cond);                                                    \
			cf_turn(f);                                                                \
		}                                                                                  \
	} while (0)

/* Content of a message part: byte at off. */
uint8_t cf_byte(uint64_t seq, unsigned part, size_t off);
void cf_fill(uint8_t *to, uint64_t seq, unsigned part, size_t len);
void cf_check(const uint8_t *at, uint64_t seq, unsigned part, size_t len);

/* Posts that must be taken; back-pressure is waited out. Flushed. */
void cf_recv(struct cf *f, uint32_t epoch, uint64_t seq, const struct dr_part *parts, unsigned n,
	uint32_t skip);
void cf_send(struct cf *f, uint32_t epoch, uint64_t seq, unsigned part, uint64_t off, uint32_t len);
void cf_ctrl(struct cf *f, unsigned end, const void *frame, size_t len);
/* A part of R's memory. */
struct dr_part cf_part(struct cf *f, unsigned end, uint64_t off, uint32_t len);

/* What is sent from now on arrives so much later, where that can be had (the fake NICs, which else move
 * everything at once). */
void cf_pace(const struct cf *f, int64_t ns);
/* The path is broken so that this end learns of it: FAILED there. */
void cf_break(struct cf *f, unsigned end);
/* The n-th (from 0) event of a kind; NULL: not so many. */
const struct cf_event *cf_nth(const struct cf_end *e, enum dr_event_kind kind, unsigned n);
/* Position in the log of DELIVERED of this part; -1: not there. */
int cf_delivered_at(const struct cf_end *e, uint64_t seq, unsigned part);

struct cf_case {
	const char *name;
	uint32_t needs;	 /* DR_CAP_* */
	const char *why; /* skipped without them, because */
	void (*run)(struct cf *f);
};
#define CF_CASE(f)                                                                                 \
	{                                                                                          \
#f, 0, NULL, f                                                                     \
	}
extern const struct cf_case cf_cases_data[], cf_cases_life[];
extern const size_t cf_n_cases_data, cf_n_cases_life;

#endif
