/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_PLUGIN_PRIV_H
#define DR_TRANSPORT_NCCLNET_PLUGIN_PRIV_H

#include "transport/ncclnet.h"

/* Take the functions of a table of version n->version. */
void dr_nccl_take(struct dr_nccl *n, const void *table);

#endif
