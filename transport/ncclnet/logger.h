/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_LOGGER_H
#define DR_TRANSPORT_NCCLNET_LOGGER_H

#include "base/nccl_net_abi.h"

/* The logger for plugins, after NCCL_DEBUG was read; see dr_nccl_init. Any thread may call it. */
nccl_logger_fn dr_nccl_logger(void);
/* The level of a value of NCCL_DEBUG, NULL: not set. NONE: no line is wanted. */
enum nccl_log_level dr_nccl_log_level(const char *debug);

#endif
