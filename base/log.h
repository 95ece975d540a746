/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_LOG_H
#define DR_BASE_LOG_H

#include "base/defs.h"

/*
 * Log lines go to standard error, one write(2) a line, so that lines of threads and processes do
 * not mix. Thread safe. errno is kept. A line is "HH:MM:SS.uuuuuu LEVEL component: text" (UTC), or
 * a JSON object {"time","level","component","text"} a line after dr_log_set_json(true). Control
 * bytes in the text do not reach the terminal; a text above 1000 bytes is cut and ends in "...".
 * Logged once, where the event is detected; callers propagate.
 */
enum dr_log_level { DR_LOG_ERROR, DR_LOG_WARN, DR_LOG_INFO, DR_LOG_DEBUG };

void dr_log_set_level(enum dr_log_level level);
enum dr_log_level dr_log_level(void);
void dr_log_set_json(int on);
/* Word put before every component ("server/tcp"), for processes that share a terminal. It is
 * copied, up to 31 bytes. NULL: none. */
void dr_log_set_prefix(const char *prefix);
/* Tests see every line that passes the level here instead of on standard error, one at a time; the
 * sink must not log. NULL: back. */
typedef void (*dr_log_sink_fn)(
	enum dr_log_level level, const char *component, const char *text, void *arg);
void dr_log_set_sink(dr_log_sink_fn fn, void *arg);

void dr_log(enum dr_log_level level, const char *component, const char *fmt, ...) DR_PRINTF(3, 4);

/* What dr_log writes, newline included, for a given time; returns its length, at most len - 1. */
size_t dr_log_format(char *buf, size_t len, int json, int64_t wall_ns, enum dr_log_level level,
	const char *component, const char *text);

#define dr_error(component, ...) dr_log(DR_LOG_ERROR, component, __VA_ARGS__)
#define dr_warn(component, ...) dr_log(DR_LOG_WARN, component, __VA_ARGS__)
#define dr_info(component, ...) dr_log(DR_LOG_INFO, component, __VA_ARGS__)
#define dr_debug(component, ...)                                                                   \
	do {                                                                                       \
		if (dr_log_level() >= DR_LOG_DEBUG)                                                \
			dr_log(DR_LOG_DEBUG, component, __VA_ARGS__);                              \
	} while (0)

#endif
