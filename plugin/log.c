/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/log.h"

#include <stdatomic.h>
#include <string.h>

/*
 * 1. dr_log calls its sink under a lock, and dr_log_set_sink takes that lock. So once ha_log_stop has returned, no
 *    call of NCCL's logger is in progress.
 * 2. The sink belongs to the plugin's own copy of base/log.c, because the plugin is linked with hidden symbols. Both
 *    disappear together when the plugin is unloaded, so nothing is done then. A destructor would take the lock also in
 *    a forked child that exits, where a thread that no longer exists may hold it.
 */
static _Atomic nccl_logger_fn nccl_logger;
static _Atomic bool debug_is_info;

/* NCCL prints a line when one bit is in NCCL_DEBUG_SUBSYS; its own warnings have all of them. */
static const unsigned long ALL_SUBSYSTEMS = ~0ul;

/* Components of the plugin; others are the libraries below. */
static bool is_own(const char *component)
{
	static const char *const own[] = { "config", "devices", "plugin", "session", "comm",
		"failover", "rendezvous", "metrics" };

	for (size_t i = 0; i < DR_ARRAY_LEN(own); i++)
		if (strcmp(own[i], component) == 0)
			return true;
	return false;
}

/* NCCL's lines of level INFO have no place in the source, so the text names the plugin, as "NET/IB" does. */
static void to_nccl(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	nccl_logger_fn logger = atomic_load(&nccl_logger);
	unsigned long flags = NCCL_SUBSYS_NET;
	enum nccl_log_level to = NCCL_LOG_INFO;

	(void)arg;
	if (is_own(component))
		flags |= NCCL_SUBSYS_INIT;
	if (level <= DR_LOG_WARN) {
		to = NCCL_LOG_WARN;
		flags = ALL_SUBSYSTEMS;
	} else if (level == DR_LOG_DEBUG && !atomic_load(&debug_is_info)) {
		to = NCCL_LOG_TRACE;
	}
	logger(to, flags, "HA", 0, "NET/HA %s: %s", component, text);
}

void ha_log_start(nccl_logger_fn fn)
{
	if (!fn) {
		ha_log_stop();
		return;
	}
	if (!atomic_exchange(&nccl_logger, fn)) {
		ha_log_set_level(DR_LOG_INFO, false);
		dr_log_set_sink(to_nccl, NULL);
	}
}

void ha_log_set_level(enum dr_log_level level, bool debug)
{
	atomic_store(&debug_is_info, debug);
	dr_log_set_level(level);
}

/* Also when the plugin is loaded, for lines before NCCL calls it. */
__attribute__((constructor)) void ha_log_stop(void)
{
	dr_log_set_sink(NULL, NULL);
	atomic_store(&nccl_logger, NULL);
	ha_log_set_level(DR_LOG_WARN, false);
}
