/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_LOGGER_H
#define DR_TRANSPORT_NCCLNET_LOGGER_H

#include "base/nccl_net_abi.h"

/* The logger for plugins, after NCCL_DEBUG and NCCL_DEBUG_SUBSYS were read; see dr_nccl_init. Any thread may call it. */
nccl_logger_fn dr_nccl_logger(void);

/* What passes, as NCCL decides. debug, subsys: values of the variables, NULL: not set. */
struct dr_nccl_log_filter {
	enum nccl_log_level level;
	unsigned long mask; /* of subsystems, for INFO and TRACE */
};
struct dr_nccl_log_filter dr_nccl_log_parse(const char *debug, const char *subsys);

#endif
