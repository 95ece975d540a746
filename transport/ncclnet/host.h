/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_HOST_H
#define DR_TRANSPORT_NCCLNET_HOST_H

#include "transport/ncclnet.h"

/*
 * The plugins that this process has loaded for its paths. A file is loaded once for each version of the interface that
 * is asked for, initialised by the first user and finalised after the last one; it stays mapped, since a plugin may have
 * threads of its own. Any thread may call this.
 */
struct dr_nccl_host;

/* file: as dlopen takes it; version 0: the newest. -ENOENT and -ENOSYS: see dr_nccl_open; -EIO: init failed; -EINVAL: no
 * file. */
int dr_nccl_host_get(const char *file, unsigned version, struct dr_nccl_host **out,
	struct dr_err *e) DR_MUST_CHECK;
/* One user more. */
void dr_nccl_host_keep(struct dr_nccl_host *h);
void dr_nccl_host_put(struct dr_nccl_host *h);
/* Valid until put. */
const struct dr_nccl *dr_nccl_host_plugin(const struct dr_nccl_host *h);

struct dr_nccl_device {
	int dev;	   /* number of the plugin */
	unsigned requests; /* that a comm may have outstanding */
	size_t bytes_max;  /* of one message */
	bool unpack;	   /* received data are in pieces: unpack.h */
	bool cuda;	   /* it takes GPU memory */
	bool dmabuf;	   /* ... by a dma-buf too, which NCCL prefers */
	bool can_flush;	   /* ... has iflush */
	bool force_flush; /* ... and wants it after each receive, also where the GPU does not need it */
};
/* The device of this net device: the one of its name, of an RDMA device on it, or of its PCI function. -ENODEV:
 * none; the text lists the plugin's devices. -ENOSYS: the device needs what this program does not support. -EINVAL: a variable
 * of the environment is missing or wrong (dr_nn_unpack_check_env). -EIO: devices or getProperties failed. */
int dr_nccl_host_device(const struct dr_nccl_host *h, const char *ifname,
	struct dr_nccl_device *out, struct dr_err *e) DR_MUST_CHECK;

#endif
