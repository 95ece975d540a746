/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_GIN_H
#define DR_PLUGIN_GIN_H

#include "base/nccl_net_abi.h"

#include <stdbool.h>

/*
 * GIN (networking that the GPU starts) and RMA (put and signal) of NCCL. Up to NCCL 2.29.3 the
 * network plugin in use offers them or nobody does (src/plugin/net.cc). Since 2.29.7 NCCL falls
 * back to its own InfiniBand transport under any network plugin (src/plugin/gin.cc; since 2.30.7
 * also rma.cc), since 2.32.3 then to its own sockets, which need GDRCopy. That traffic does not
 * pass this plugin.
 */
/* The transport of NCCL that would carry it; NULL: none is visible, or the environment turns it
 * off. version: of ncclGetVersion, 0: unknown. env: as getenv. Pure. */
const char *ha_gin_transport(
	int version, char *(*env)(const char *name), bool rdma_device, bool gdrcopy);
/* Says so in the log, once in a process. logger: from NCCL, whose version is read. One thread at a
 * time. */
void ha_gin_report(nccl_logger_fn logger);

#endif
