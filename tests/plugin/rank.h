/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_RANK_H
#define DR_TESTS_PLUGIN_RANK_H

#include "base/rng.h"
#include "tests/plugin/host.h"

#include <stdatomic.h>

/*
 * A test of N processes, called ranks. The parent makes them by fork, each in a network namespace if one is named, and
 * waits for them; it never loads the plugin itself. Ranks exchange bytes and wait for each other over socket pairs.
 *
 * A rank passes by returning from its function. What it does is recorded in memory that the parent sees: where it is,
 * and what the plugin logged. When the time of a test is over, the parent prints both for each rank and kills them.
 */
enum { RANKS_MAX = 8, RANK_VALUES = 8 };

/* What the parent sees of a rank. */
struct rank_view {
	_Atomic(const char *) file; /* where the rank is */
	_Atomic int line;
	_Atomic(const char *) what;
	_Atomic unsigned long step; /* how often it did what the test repeats */
	/* Between the ranks and the job's watch, as they like. */
	_Atomic long long value[RANK_VALUES];
	char text[600]; /* why it failed or is skipped */
	struct host_log log;
};

struct rank {
	unsigned id, n;
	const char *plugin;
	unsigned version;
	int fd[RANKS_MAX]; /* to the other ranks */
	struct rank_view *view;
	uint64_t seed;
	struct dr_rng common; /* the same numbers in all ranks */
	struct dr_rng own;
	const void *arg; /* of the job */
};

struct rank_remote;
struct rank_job {
	const char *name;
	void (*run)(struct rank *r);
	unsigned n, version, limit_s;
	const char *plugin;
	const char *const *netns; /* of each rank; NULL: this one */
	const struct rank_remote
		*remote; /* of two ranks one is on another host, see remote.h; NULL: all are here */
	uint64_t seed;
	const void *arg;
	/* In the parent, every few milliseconds and once when all have ended; views[n]. */
	void (*watch)(void *arg, struct rank_view *views);
	void *watch_arg;
	bool show_log; /* print what the plugin logged, also when the test passes */
};

enum rank_outcome { RANK_PASSED, RANK_FAILED, RANK_SKIPPED };

/* Prints what failed as comments of TAP. reason: of a skipped job. */
enum rank_outcome rank_run(const struct rank_job *job, char *reason, size_t len);

/* ---- for the ranks ---- */

/* Records where the rank is; what: a literal. */
#define RANK_AT(r, what_)                                                                          \
	do {                                                                                       \
		atomic_store(&(r)->view->file, __FILE__);                                          \
		atomic_store(&(r)->view->line, __LINE__);                                          \
		atomic_store(&(r)->view->what, what_);                                             \
	} while (0)

_Noreturn void rank_fail(struct rank *r, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The whole test is skipped. */
_Noreturn void rank_skip(struct rank *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
#define RANK_CHECK(r, cond, fmt, ...)                                                              \
	((cond) ? (void)0 : rank_fail(r, __FILE__, __LINE__, "%s: " fmt, #cond, ##__VA_ARGS__))

/* One message, at most 64 KiB. Receiving waits; the lengths have to agree. */
void rank_send(struct rank *r, unsigned to, const void *data, size_t len);
void rank_recv(struct rank *r, unsigned from, void *data, size_t len);
/* True when a message of that rank waits. */
bool rank_pending(struct rank *r, unsigned from);
/* All ranks wait for each other. */
void rank_barrier(struct rank *r);
/* In a loop that waits for something: yields the processor, later sleeps up to a millisecond. *n counts the turns. */
void rank_relax(unsigned *n);

#endif
