/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_SERVICE_H
#define DR_TRANSPORT_NCCLNET_SERVICE_H

#include "transport/gpu.h"
#include "transport/ncclnet/host.h"

/*
 * connect and accept of a plugin. NCCL calls them from its service thread, so a plugin may wait in
 * them: in accept for the peer's connect, in connect for the network. Here each has a thread of its
 * own, which repeats the call until it gives a comm or fails. A service belongs to a rail and is
 * used by the rail's thread alone.
 */
struct nn_service;
struct nn_call;

/* What a call has given. */
struct nn_comm {
	void *comm;
	/* Of accept: the memory for a device handle, from dr_calloc, and where the plugin has put
	 * the handle. */
	struct nccl_net_device_handle *room, *device;
};

/* -ENOMEM */
int dr_nn_service_open(struct dr_nccl_host *host, int dev, const struct dr_rail_gpu *gpu,
	struct nn_service **out) DR_MUST_CHECK;
/* Waits up to 200 ms for calls that were given up; one that returns later ends by itself. Every
 * call was taken or given up before. NULL: nothing. */
void dr_nn_service_close(struct nn_service *s);

/* Start a call. -ENOMEM; -EAGAIN: no thread, or too many calls that were given up have not
 * returned. accept has the listener from here on, and closes it; handle: the listener's. */
int dr_nn_call_connect(struct nn_service *s, const uint8_t handle[NCCL_NET_HANDLE_BYTES],
	struct nn_call **out) DR_MUST_CHECK;
int dr_nn_call_accept(struct nn_service *s, void *listener,
	const uint8_t handle[NCCL_NET_HANDLE_BYTES], struct nn_call **out) DR_MUST_CHECK;
/* 1: the comm, 0: not yet, -errno. Not 0: *c is freed and NULL. */
int dr_nn_call_take(struct nn_call **c, struct nn_comm *out) DR_MUST_CHECK;
/* The call is given up, and a comm that it gives is closed. *c becomes NULL; NULL: nothing. */
void dr_nn_call_drop(struct nn_call **c);

#endif
