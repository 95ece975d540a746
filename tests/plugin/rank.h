/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGIN_RANK_H
#define DR_TESTS_PLUGIN_RANK_H

#include "base/nccl_net_abi.h"
#include "base/rng.h"

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * A test of N processes, called ranks. The parent makes them by fork, each in a network namespace if one is named, and
 * waits for them; it never loads the plugin itself. Ranks exchange bytes and wait for each other over socket pairs.
 *
 * A rank passes by returning from its function. What it does is recorded in memory that the parent sees: where it is,
 * and what the plugin logged. When the time of a test is over, the parent prints both for each rank and kills them.
 */
enum { RANKS_MAX = 8, RANK_VALUES = 8, RANK_LINES = 4096 };

/* One line that the plugin logged. */
struct rank_line {
	enum nccl_log_level level;
	char text[240];
	_Atomic bool whole; /* not being written */
};

/* What the parent sees of a rank. */
struct rank_view {
	_Atomic(const char *) file; /* where the rank is */
	_Atomic int line;
	_Atomic(const char *) what;
	_Atomic unsigned long step; /* how often it did what the test repeats */
	/* Between the ranks and the job's watch, as they like. */
	_Atomic long long value[RANK_VALUES];
	char text[600]; /* why it failed or is skipped */
	/* The last lines, line number n in [n % RANK_LINES]. */
	_Atomic unsigned n_lines;
	struct rank_line line_of[RANK_LINES];
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

/*
 * Two ranks on two hosts: the same program runs on both with the same arguments but --remote, and makes one rank. For
 * each job rank 0 listens at an address, and rank 1 connects to it; they exchange bytes over that connection.
 */
struct rank_remote {
	unsigned id; /* of the rank made here */
	struct sockaddr_in at;
};

struct rank_job {
	const char *name;
	void (*run)(struct rank *r);
	unsigned n, version, limit_s;
	const char *plugin;
	char *netns[RANKS_MAX]; /* of each rank; the first is NULL: all are in this one */
	bool far;		/* of two ranks one is on another host */
	struct rank_remote remote;
	uint64_t seed;
	const void *arg;
	/* In the parent, every few milliseconds and once when all have ended; views[n]. */
	void (*watch)(void *arg, struct rank_view *views);
	void *watch_arg;
	bool show_log; /* print what the plugin logged, also when the test passes */
};

/* Whether all ranks passed. Prints what failed as comments of TAP. */
bool rank_run(const struct rank_job *job);

/* A connection of both hosts for this job; the caller closes it. -ETIMEDOUT: after end_ns; -EPROTO: the other host is at
 * another job. */
int rank_remote_open(const struct rank_job *job, int64_t end_ns);

/* ---- the programs' options ---- */

struct rank_option {
	const char *name; /* without the dashes; NULL: the end of a list */
	enum { RANK_FLAG, RANK_NUMBER, RANK_SIZE, RANK_TEXT, RANK_CALL } kind;
	void *to; /* bool, unsigned, uint64_t, char *, the argument of call */
	unsigned least, most;
	bool (*call)(void *to, char *value);
};

#define RANK_IS(name_, kind_, to_)                                                                 \
	{                                                                                          \
		.name = name_, .kind = kind_, .to = to_                                            \
	}
#define RANK_IN(name_, to_, least_, most_)                                                         \
	{                                                                                          \
		.name = name_, .kind = RANK_NUMBER, .to = to_, .least = least_, .most = most_      \
	}
#define RANK_BY(name_, call_, to_)                                                                 \
	{                                                                                          \
		.name = name_, .kind = RANK_CALL, .to = to_, .call = call_                         \
	}

/*
 * Reads the options in front of the operands: those of the program and of every job, --netns A,B.. (which sets n), --remote
 * RANK,ADDRESS:PORT (IPv4), --version V, --limit SECONDS, --log. Returns the index of the first operand; 0 after a message:
 * they are wrong, or there are not that many operands.
 */
int rank_options(
	struct rank_job *job, const struct rank_option *own, int argc, char **argv, int operands);

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
#define RANK_CHECK(r, cond, fmt, ...)                                                              \
	((cond) ? (void)0 : rank_fail(r, __FILE__, __LINE__, "%s: " fmt, #cond, ##__VA_ARGS__))

/* What the plugin gets for its lines, which go to the view of this process's rank. */
void rank_logger(enum nccl_log_level level, unsigned long flags, const char *file, int line,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The number of lines of that level that contain the text. Level NONE: of all levels. */
unsigned rank_logged(const struct rank *r, enum nccl_log_level level, const char *text);

/* One message, at most 64 KiB. Receiving waits; the lengths have to agree. */
void rank_send(struct rank *r, unsigned to, const void *data, size_t len);
void rank_recv(struct rank *r, unsigned from, void *data, size_t len);
/* All ranks wait for each other. */
void rank_barrier(struct rank *r);
/* In a loop that waits for something: yields the processor, later sleeps up to a millisecond. *n counts the turns. */
void rank_relax(unsigned *n);

#endif
