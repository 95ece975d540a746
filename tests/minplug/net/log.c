/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/net/net.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic(min_logger) logger;
static _Atomic(const char *) plugin;

void min_log_set(min_logger log, const char *name)
{
	atomic_store(&plugin, name);
	if (log)
		atomic_store(&logger, log);
}

static void say(enum min_level level, const char *text)
{
	min_logger log = atomic_load(&logger);

	if (log)
		log(level, MIN_SUBSYS_NET, "net", 0, "NET/%s : %s", atomic_load(&plugin), text);
}

void min_log(enum min_level level, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	say(level, text);
}

static bool is_remote(int err)
{
	return err == EPIPE || err == ECONNRESET || err == ECONNREFUSED || err == ECONNABORTED ||
	       err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EHOSTDOWN;
}

enum min_result min_failed(int err, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	min_log(MIN_LEVEL_WARN, "%s: %s", text, strerror(err));
	return is_remote(err) ? MIN_REMOTE_ERROR : MIN_SYSTEM_ERROR;
}
