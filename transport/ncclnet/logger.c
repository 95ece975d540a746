/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/logger.h"

#include "base/defs.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* Lines of the plugin go to our log. Their level there is that of NCCL, so -v is not needed: NCCL_DEBUG asked for them. */

static _Atomic int filter_level;

/* By their level. */
static const char *const names[] = { "NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE" };

enum nccl_log_level dr_nccl_log_level(const char *debug)
{
	for (size_t i = 0; debug && i < DR_ARRAY_LEN(names); i++)
		if (strcasecmp(debug, names[i]) == 0)
			return (enum nccl_log_level)i;
	return NCCL_LOG_NONE;
}

__attribute__((format(printf, 5, 6))) static void log_line(enum nccl_log_level level,
	unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[900];
	va_list ap;

	(void)flags, (void)line;
	if ((int)level > atomic_load(&filter_level) || level == NCCL_LOG_NONE ||
		level > NCCL_LOG_TRACE)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dr_say("nccl-plugin", "%s %.40s: %s", names[level], file ? file : "?", text);
}

nccl_logger_fn dr_nccl_logger(void)
{
	atomic_store(&filter_level, (int)dr_nccl_log_level(getenv("NCCL_DEBUG")));
	return log_line;
}
