/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_KIND_H
#define DR_TRANSPORT_NCCLNET_KIND_H

#include "transport/path.h"
#include "transport/gpu.h"

/* dr_rail_params.kind_params of every rail; copied by listen. */
struct dr_nccl_params {
	const char *file; /* of the plugin; outlives the rails */
	unsigned version; /* of the interface; 0: the newest */
	int unpack;	  /* enum nn_unpack_mode */
	struct dr_rail_gpu gpu;
};

struct dr_transport_kind;
extern const struct dr_transport_kind dr_nccl_kind;
extern const struct dr_transport_ops dr_nccl_ops;
/* dr_transport_kind.memory */
const char *dr_nn_memory(const struct dr_mr *mr);

#endif
