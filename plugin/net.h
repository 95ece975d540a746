/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_PLUGIN_NET_H
#define DR_PLUGIN_NET_H

#include "base/nccl_net_abi.h"

/*
 * The operations of the plugin, for every version of the ABI: see nccl_net_abi.h for the rules that NCCL sets. abi.c
 * adapts them to the tables of each version.
 *
 * Threads: any, as NCCL calls them: many communicators at once; for one comm, one thread at a time posts and tests,
 * while another one may register memory.
 *
 * Results: NCCL_INVALID_ARGUMENT and NCCL_INVALID_USAGE are the caller's faults, NCCL_SYSTEM_ERROR is a failure of this
 * host or of both rails, NCCL_REMOTE_ERROR one of the peer. Each is logged once, where it is found.
 */

/* Starts the plugin with the first communicator. *ctx is set in any case. */
enum nccl_result ha_net_init(
	void **ctx, uint64_t comm_id, int traffic_class, nccl_logger_fn logger);
/* ctx NULL: nothing to do. The last one ends all threads. */
enum nccl_result ha_net_finalize(void *ctx);
enum nccl_result ha_net_devices(int *n);
enum nccl_result ha_net_properties(int dev, struct nccl_net_properties_v12 *out);

enum nccl_result ha_net_listen(void *ctx, int dev, void *handle, void **listen_comm);
enum nccl_result ha_net_connect(void *ctx, int dev, void *handle, void **send_comm);
enum nccl_result ha_net_accept(void *listen_comm, void **recv_comm);
enum nccl_result ha_net_close_listen(void *listen_comm);
enum nccl_result ha_net_close(void *comm);

enum nccl_result ha_net_reg(void *comm, void *data, size_t size, int type, void **mhandle);
enum nccl_result ha_net_dereg(void *comm, void *mhandle);

enum nccl_result ha_net_send(
	void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
enum nccl_result ha_net_recv(void *comm, int n, void **data, const size_t *sizes, const int *tags,
	void **mhandles, void **request);
enum nccl_result ha_net_test(void *request, int *done, int *sizes);

#endif
