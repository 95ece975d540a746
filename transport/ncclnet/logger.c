/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/logger.h"

#include "base/defs.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Lines of the plugin go to our log. Their level there is that of NCCL, so -v is not needed: NCCL_DEBUG asked for them. */

enum { DEFAULT_MASK = 0x1081 }; /* INIT, BOOTSTRAP, ENV */

static _Atomic int filter_level;
static _Atomic unsigned long filter_mask;

static const struct {
	const char *name;
	unsigned long mask;
} subsystems[] = { { "INIT", 1 }, { "COLL", 2 }, { "P2P", 4 }, { "SHM", 8 }, { "NET", 0x10 },
	{ "GRAPH", 0x20 }, { "TUNING", 0x40 }, { "ENV", 0x80 }, { "ALLOC", 0x100 },
	{ "CALL", 0x200 }, { "PROXY", 0x400 }, { "NVLS", 0x800 }, { "BOOTSTRAP", 0x1000 },
	{ "REG", 0x2000 }, { "PROFILE", 0x4000 }, { "RAS", 0x8000 }, { "ALL", ~0ul } };

static enum nccl_log_level parse_level(const char *s)
{
	static const struct {
		const char *name;
		enum nccl_log_level level;
	} levels[] = { { "VERSION", NCCL_LOG_VERSION }, { "WARN", NCCL_LOG_WARN },
		{ "INFO", NCCL_LOG_INFO }, { "ABORT", NCCL_LOG_ABORT },
		{ "TRACE", NCCL_LOG_TRACE } };

	for (size_t i = 0; s && i < DR_ARRAY_LEN(levels); i++)
		if (strcasecmp(s, levels[i].name) == 0)
			return levels[i].level;
	return NCCL_LOG_NONE;
}

static unsigned long parse_subsystem(const char *s, size_t len)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(subsystems); i++)
		if (strlen(subsystems[i].name) == len &&
			strncasecmp(s, subsystems[i].name, len) == 0)
			return subsystems[i].mask;
	return 0;
}

struct dr_nccl_log_filter dr_nccl_log_parse(const char *debug, const char *subsys)
{
	struct dr_nccl_log_filter f = { parse_level(debug), DEFAULT_MASK };
	bool all_but;

	if (!subsys)
		return f;
	all_but = *subsys == '^';
	f.mask = all_but ? ~0ul : 0;
	for (subsys += all_but; *subsys;) {
		size_t len = strcspn(subsys, ",");
		unsigned long mask = parse_subsystem(subsys, len);

		f.mask = all_but ? f.mask & ~mask : f.mask | mask;
		subsys += len + (subsys[len] == ',');
	}
	return f;
}

__attribute__((format(printf, 5, 6))) static void log_line(enum nccl_log_level level,
	unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	static const char *const names[] = { "NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE" };
	char text[900];
	va_list ap;

	(void)line;
	if ((int)level > atomic_load(&filter_level) || level == NCCL_LOG_NONE ||
		level > NCCL_LOG_TRACE)
		return;
	if (level >= NCCL_LOG_INFO && !(flags & atomic_load(&filter_mask)))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	dr_say("nccl-plugin", "%s %.40s: %s", names[level], file ? file : "?", text);
}

nccl_logger_fn dr_nccl_logger(void)
{
	struct dr_nccl_log_filter f =
		dr_nccl_log_parse(getenv("NCCL_DEBUG"), getenv("NCCL_DEBUG_SUBSYS"));

	atomic_store(&filter_level, (int)f.level);
	atomic_store(&filter_mask, f.mask);
	return log_line;
}
