/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_LOG_H
#define DR_BASE_LOG_H

#include "base/defs.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * Log lines go to standard error, one write(2) per line, so that lines of threads and processes do not mix. Thread
 * safe; keeps errno. A line is "2026-11-30T01:39:04.472Z LEVEL component: text", or after dr_log_set_json(true) a JSON
 * object {"time","level","component","run_id","node","rank","gpu","text"}, without those of the four that are not known. What is not clean (base/text.h) in the text is replaced. A text above 1000 bytes is
 * truncated and ends in "...". Log where an event is detected, once; callers pass the error on.
 */
enum dr_log_level { DR_LOG_ERROR, DR_LOG_WARN, DR_LOG_INFO, DR_LOG_DEBUG };

void dr_log_set_level(enum dr_log_level level);
enum dr_log_level dr_log_level(void);
void dr_log_set_json(int on);
int dr_log_is_json(void);
/* Word put before every component ("server/tcp"), for processes that share a terminal. It is
 * copied, up to 31 bytes. NULL: none. */
void dr_log_set_prefix(const char *prefix);
/*
 * Members of every JSON line from now on. Set them while no other thread logs, or at most once in a while: a line that is being
 * written keeps what it has. run_id: letters, digits and dashes, up to 39 bytes; node: up to 64 bytes; they are copied. NULL and a
 * rank below 0: none. A child process has those of its parent.
 */
void dr_log_set_run(const char *run_id);
void dr_log_set_node(const char *node, int rank);
/* Of the calling thread's lines: the GPU (below 0: none), and another run than that of the process (NULL: that one; "": none),
 * which is not copied. */
void dr_log_set_gpu(int gpu);
void dr_log_set_thread_run(const char *run_id);
/* For tests and the plugin: pass every line of the level to fn instead of writing it, one at a time under a lock. fn
 * must not log. NULL: write again; the old fn is not called any more when this returns. */
typedef void (*dr_log_sink_fn)(
	enum dr_log_level level, const char *component, const char *text, void *arg);
void dr_log_set_sink(dr_log_sink_fn fn, void *arg);

void dr_log(enum dr_log_level level, const char *component, const char *fmt, ...) DR_PRINTF(3, 4);

/*
 * Lines for people on standard error, whatever the level: the text as it is (complain: after "dualrail: "), or after
 * dr_log_set_json(true) an object as above, of level info (error) and this component ("dualrail").
 */
void dr_say(const char *component, const char *fmt, ...) DR_PRINTF(2, 3);
void dr_complain(const char *fmt, ...) DR_PRINTF(1, 2);
/* A line without an end is on the terminal of standard error, or not: the next line erases it. */
void dr_log_set_live(bool shown);
/* Standard error for tables; after dr_log_set_json(true) a stream that makes such an object of each line that is not
 * blank. Not to be closed. One thread. */
FILE *dr_log_tables(void);

/*
 * Only after dr_log_set_json(true): an object with further members, as JSON text without braces ("\"exit_code\":7"),
 * whatever the level. Without memory the members are left out.
 */
void dr_log_members(
	enum dr_log_level level, const char *component, const char *members, const char *text);

struct dr_log_line {
	int64_t wall_ns;
	enum dr_log_level level;
	const char *component, *text;
	const char *members; /* JSON: before the text; NULL: none */
};
/* The line that dr_log writes, newline included. Returns its length, at most len - 1. */
size_t dr_log_format(char *buf, size_t len, int json, const struct dr_log_line *line);

#define dr_error(component, ...) dr_log(DR_LOG_ERROR, component, __VA_ARGS__)
#define dr_warn(component, ...) dr_log(DR_LOG_WARN, component, __VA_ARGS__)
#define dr_info(component, ...) dr_log(DR_LOG_INFO, component, __VA_ARGS__)
#define dr_debug(component, ...)                                                                   \
	do {                                                                                       \
		if (dr_log_level() >= DR_LOG_DEBUG)                                                \
			dr_log(DR_LOG_DEBUG, component, __VA_ARGS__);                              \
	} while (0)

#endif
