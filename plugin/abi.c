/* SPDX-License-Identifier: Apache-2.0 */
#include "base/defs.h"
#include "plugin/net.h"

#include <stddef.h>
#include <string.h>

/*
 * The tables that NCCL looks up: `ncclNetPlugin_v6` to `ncclNetPlugin_v12`. Functions whose form did not change are
 * shared; a suffix _v6 marks the form that began with that version.
 *
 * irecvConsumed and getDeviceMr belong to devices of type UNPACK; these are of type HOST. Virtual devices (makeVDevice) are not
 * offered: a comm uses two NICs by itself.
 */
static const char NAME[] = "HA";

/* ---- init, devices ---- */

static enum nccl_result init_v6(nccl_logger_fn logger)
{
	void *ctx; /* there is one for the process, since finalize does not exist */

	return ha_net_init(&ctx, 0, NCCL_NET_UNDEFINED, logger);
}

static enum nccl_result init_v10(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)profiler;
	return init_v6(logger);
}

static enum nccl_result init_v11(void **ctx, uint64_t id, struct nccl_net_comm_config *config,
	nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)profiler;
	return ha_net_init(ctx, id, config ? config->trafficClass : NCCL_NET_UNDEFINED, logger);
}

/*
 * Earlier properties are the latest without some members: `head` bytes are alike, then those from
 * member `next` on (nccl_net_abi.h).
 */
static enum nccl_result properties(
	int dev, void *out, size_t size, size_t head, size_t to, size_t from)
{
	struct nccl_net_properties_v12 p;
	enum nccl_result rc = ha_net_properties(dev, &p);

	memset(out, 0, size);
	if (rc != NCCL_SUCCESS)
		return rc;
	memcpy(out, &p, head);
	memcpy((char *)out + to, (const char *)&p + from, size - to);
	return rc;
}

#define PROPERTIES(version, head, next)                                                            \
	static enum nccl_result properties_##version(                                              \
		int dev, struct nccl_net_properties_##version *out)                                \
	{                                                                                          \
		return properties(dev, out, sizeof(*out), head,                                    \
			offsetof(struct nccl_net_properties_##version, next),                      \
			offsetof(struct nccl_net_properties_v12, next));                           \
	}
PROPERTIES(v6, offsetof(struct nccl_net_properties_v6, speed), speed)
PROPERTIES(v7, offsetof(struct nccl_net_properties_v7, speed), speed)
PROPERTIES(v8, offsetof(struct nccl_net_properties_v8, speed), speed)
PROPERTIES(v9, offsetof(struct nccl_net_properties_v9, vProps.devs[1]), maxP2pBytes)
PROPERTIES(v11, offsetof(struct nccl_net_properties_v11, vProps.devs[1]), maxP2pBytes)

/* ---- connections ---- */

static enum nccl_result listen_v6(int dev, void *handle, void **listen_comm)
{
	return ha_net_listen(NULL, dev, handle, listen_comm);
}

static enum nccl_result connect_v6(int dev, void *handle, void **send_comm)
{
	return ha_net_connect(NULL, dev, handle, send_comm);
}

static enum nccl_result connect_v7(
	int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device)
{
	(void)device; /* may point nowhere; of UNPACK devices only */
	return ha_net_connect(NULL, dev, handle, send_comm);
}

static enum nccl_result connect_v10(int dev, struct nccl_net_comm_config *config, void *handle,
	void **send_comm, struct nccl_net_device_handle **device)
{
	(void)config, (void)device;
	return ha_net_connect(NULL, dev, handle, send_comm);
}

static enum nccl_result connect_v11(
	void *ctx, int dev, void *handle, void **send_comm, struct nccl_net_device_handle **device)
{
	(void)device;
	return ha_net_connect(ctx, dev, handle, send_comm);
}

static enum nccl_result accept_v7(
	void *listen_comm, void **recv_comm, struct nccl_net_device_handle **device)
{
	(void)device;
	return ha_net_accept(listen_comm, recv_comm);
}

/* ---- memory ---- */

static enum nccl_result reg_v6(void *comm, void *data, int size, int type, void **mhandle)
{
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: ha_net_reg(comm, data, (size_t)size, type, mhandle);
}

/* Not called: no device claims DMA-BUF. */
static enum nccl_result reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	(void)comm, (void)data, (void)size, (void)type, (void)offset, (void)fd;
	*mhandle = NULL;
	return NCCL_INVALID_USAGE;
}

/* ---- messages ---- */

static enum nccl_result send_v6(
	void *comm, void *data, int size, int tag, void *mhandle, void **request)
{
	*request = NULL;
	return size < 0 ? NCCL_INVALID_ARGUMENT
			: ha_net_send(comm, data, (size_t)size, tag, mhandle, request);
}

static enum nccl_result send_v10(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	(void)phandle;
	return ha_net_send(comm, data, size, tag, mhandle, request);
}

enum { RECVS_MAX = 8 };

static enum nccl_result recv_v6(
	void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t wide[RECVS_MAX];

	*request = NULL;
	if (n < 1 || n > RECVS_MAX)
		return NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0)
			return NCCL_INVALID_ARGUMENT;
		wide[i] = (size_t)sizes[i];
	}
	return ha_net_recv(comm, n, data, wide, tags, mhandles, request);
}

static enum nccl_result recv_v9(
	void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request)
{
	return ha_net_recv(comm, n, data, sizes, tags, mhandles, request);
}

static enum nccl_result recv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request)
{
	(void)phandles;
	return ha_net_recv(comm, n, data, sizes, tags, mhandles, request);
}

/* Only host memory is received into: nothing to flush. */
static enum nccl_result flush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	(void)comm, (void)n, (void)data, (void)sizes, (void)mhandles;
	*request = NULL;
	return NCCL_SUCCESS;
}

static enum nccl_result set_attr(void *ctx, struct nccl_net_attr *attr)
{
	(void)ctx, (void)attr; /* a hint about the traffic to come */
	return NCCL_SUCCESS;
}

/* ---- tables ---- */

#define COMMON                                                                                     \
	.name = NAME, .devices = ha_net_devices, .regMrDmaBuf = reg_dmabuf,                        \
	.deregMr = ha_net_dereg, .iflush = flush, .test = ha_net_test, .closeSend = ha_net_close,  \
	.closeRecv = ha_net_close, .closeListen = ha_net_close_listen

DR_EXPORT const struct nccl_net_v6 ncclNetPlugin_v6 = {
	COMMON,
	.init = init_v6,
	.getProperties = properties_v6,
	.listen = listen_v6,
	.connect = connect_v6,
	.accept = ha_net_accept,
	.regMr = reg_v6,
	.isend = send_v6,
	.irecv = recv_v6,
};

DR_EXPORT const struct nccl_net_v7 ncclNetPlugin_v7 = {
	COMMON,
	.init = init_v6,
	.getProperties = properties_v7,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = reg_v6,
	.isend = send_v6,
	.irecv = recv_v6,
};

DR_EXPORT const struct nccl_net_v8 ncclNetPlugin_v8 = {
	COMMON,
	.init = init_v6,
	.getProperties = properties_v8,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = ha_net_reg,
	.isend = send_v6,
	.irecv = recv_v6,
};

DR_EXPORT const struct nccl_net_v9 ncclNetPlugin_v9 = {
	COMMON,
	.init = init_v6,
	.getProperties = properties_v9,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = ha_net_reg,
	.isend = ha_net_send,
	.irecv = recv_v9,
};

DR_EXPORT const struct nccl_net_v10 ncclNetPlugin_v10 = {
	COMMON,
	.init = init_v10,
	.getProperties = properties_v9,
	.listen = listen_v6,
	.connect = connect_v10,
	.accept = accept_v7,
	.regMr = ha_net_reg,
	.isend = send_v10,
	.irecv = recv_v10,
};

DR_EXPORT const struct nccl_net_v11 ncclNetPlugin_v11 = {
	COMMON,
	.init = init_v11,
	.getProperties = properties_v11,
	.listen = ha_net_listen,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = ha_net_reg,
	.isend = send_v10,
	.irecv = recv_v10,
	.finalize = ha_net_finalize,
	.setNetAttr = set_attr,
};

DR_EXPORT const struct nccl_net_v12 ncclNetPlugin_v12 = {
	COMMON,
	.init = init_v11,
	.getProperties = ha_net_properties,
	.listen = ha_net_listen,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = ha_net_reg,
	.isend = send_v10,
	.irecv = recv_v10,
	.finalize = ha_net_finalize,
	.setNetAttr = set_attr,
};
