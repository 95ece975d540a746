/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_LOG_H
#define DR_PLUGIN_LOG_H

#include "base/log.h"
#include "base/nccl_net_abi.h"

#include <stdbool.h>

/*
 * The lines of dr_log go to NCCL's logger while it is known, else to standard error from level WARN on: before the
 * first communicator and after the last one. ERROR and WARN become WARN, of which NCCL also keeps the last one for
 * ncclGetLastError; INFO becomes INFO of the subsystem NET, and of INIT too when the plugin itself writes it, because
 * NCCL prints only INIT by default; DEBUG becomes TRACE.
 *
 * Any thread may log at any time, also during the calls below. These belong to one thread at a time.
 */

/* From now on lines go to fn, which NCCL passes to init. It is the same for every communicator. NULL is as
 * ha_log_stop. */
void ha_log_start(nccl_logger_fn fn);
/* What is written at all, from the configuration. debug: debug lines have level INFO, so that they are seen without
 * NCCL_DEBUG=TRACE. Before the first call: INFO. */
void ha_log_set_level(enum dr_log_level level, bool debug);
/* After this call no thread calls NCCL's logger. May be repeated. For the last finalize. */
void ha_log_stop(void);

#endif
