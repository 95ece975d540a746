/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(fn_logger) logger;

void fn_log_set(fn_logger log)
{
	if (log)
		atomic_store(&logger, log);
}

void fn_log(enum fn_level level, const char *fmt, ...)
{
	/* What is no warning is said at the start. */
	unsigned long subsys = level == FN_LEVEL_INFO ? FN_SUBSYS_INIT : FN_SUBSYS_NET;
	fn_logger log = atomic_load(&logger);
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (log)
		log(level, subsys, "net", 0, "NET/%s : %s", fn_kind->name, text);
}

static bool is_remote(int err)
{
	return err == EPIPE || err == ECONNRESET || err == ECONNREFUSED || err == ECONNABORTED ||
	       err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EHOSTDOWN;
}

enum fn_result fn_failed(int err, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fn_log(FN_LEVEL_WARN, "%s: %s", text, strerror(err));
	return is_remote(err) ? FN_REMOTE_ERROR : FN_SYSTEM_ERROR;
}

void fn_misuse(const char *fmt, ...)
{
	va_list ap;

	(void)fprintf(stderr, "fakenet: ");
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	abort(); /* lint-ok: the plugin's purpose: a caller that errs is found */
}
