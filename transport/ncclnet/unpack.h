/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_UNPACK_H
#define DR_TRANSPORT_NCCLNET_UNPACK_H

#include "base/err.h"
#include "transport/ncclnet.h"

#include <sys/types.h>

/*
 * Devices of type UNPACK (GPUDirect-TCPX): a receive that is complete lies in pieces in the pages of a bounce buffer, and
 * belongs into the posted buffer. The n-th receive of a comm, from 0, has slot n % 16 of the device handle's metadata, until
 * irecvConsumed. Layout: NCCL, src/device/network/unpack/unpack_defs.h of NCCL_NET_DEVICE_UNPACK_VERSION 7.
 */
enum {
	NN_UNPACK_VERSION = NCCL_NET_DEVICE_UNPACK_VERSION,
	NN_UNPACK_SLOTS = 16,
	NN_UNPACK_PIECES = 2048,       /* of one receive, at most */
	NN_UNPACK_BYTES_MAX = 4 << 20, /* of one receive */
};

struct nn_unpack_piece {
	uint32_t src_off; /* in the bounce buffer */
	uint32_t len;
	uint64_t dst_off; /* in the receive */
};
struct nn_unpack_meta {
	struct nn_unpack_piece mem[NN_UNPACK_SLOTS][NN_UNPACK_PIECES];
	uint64_t cnt[NN_UNPACK_SLOTS];
};
/* What struct nccl_net_device_handle.handle points to. */
struct nn_unpack_handle {
	const struct nn_unpack_meta *meta;
	const uint8_t *bounce_buf;
	uint64_t head; /* of device code */
};
_Static_assert(sizeof(struct nn_unpack_piece) == 16, "piece");
_Static_assert(sizeof(struct nn_unpack_handle) == 24, "handle");

/* --unpack. With --memory cuda the bounce buffer and the device handle are in GPU memory, and the metadata in pinned host memory. */
enum nn_unpack_mode {
	NN_UNPACK_AUTO,	  /* KERNEL with GPU memory, else HOST */
	NN_UNPACK_KERNEL, /* GPU memory: one kernel copies all pieces of a receive */
	NN_UNPACK_D2D,	  /* GPU memory: a copy for each piece */
	NN_UNPACK_HOST,	  /* the CPU copies each piece; with GPU memory through host memory */
	NN_UNPACK_NONE, /* nothing is copied: the transport without the cost of unpacking; the buffers do not get the data */
};
extern const char *const dr_nn_unpack_names[];

/* Bytes of the pieces of a slot. -EPROTO: more than NN_UNPACK_PIECES pieces, a piece that ends beyond cap, or more than cap bytes
 * in all. Offsets in the bounce buffer are not checked: its size is not known. */
ssize_t dr_nn_unpack_bytes(const struct nn_unpack_handle *h, unsigned slot, size_t cap);
/* Copy the pieces of a slot in host memory to data, which has room for cap bytes, unless mode is NONE. As above. */
ssize_t dr_nn_unpack(const struct nn_unpack_handle *h, unsigned slot, enum nn_unpack_mode mode,
	uint8_t *data, size_t cap);

/* What of the plugin's environment both ends must share, into setting; 0 where a variable is not set. */
void dr_nn_unpack_settings(uint32_t *setting, unsigned n);
/* The variable of setting i; NULL past the last. */
const char *dr_nn_unpack_setting(unsigned i);
/* -EINVAL: the environment lacks what the plugin needs. */
int dr_nn_unpack_check_env(const char *plugin, struct dr_err *e) DR_MUST_CHECK;

#endif
