/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/net/net.h"

#include <stdlib.h>
#include <string.h>

/* The tables of each version, and what differs between them. */

#define NAME "Min"

/* Of versions 6 to 10, which have no contexts. */
static struct min_ctx shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static enum min_result init_v6(min_logger log)
{
	min_log_set(log, NAME);
	min_devices_scan(getenv("MINNET_IFNAME"));
	return MIN_OK;
}

static enum min_result init_v10(min_logger log, min_profiler profiler)
{
	(void)profiler;
	return init_v6(log);
}

static enum min_result init_v11(void **ctx, uint64_t comm_id, struct min_comm_config *config,
	min_logger log, min_profiler profiler)
{
	enum min_result result;
	struct min_ctx *c;

	(void)comm_id;
	(void)config;
	(void)profiler;
	*ctx = NULL;
	min_log_set(log, NAME);
	min_devices_scan(getenv("MINNET_IFNAME"));
	result = min_ctx_new(&c);
	*ctx = c;
	return result;
}

static enum min_result finalize_v11(void *ctx)
{
	min_ctx_free(ctx);
	return MIN_OK;
}

static enum min_result devices(int *ndev)
{
	*ndev = min_devices();
	return MIN_OK;
}

/* A function for each version's properties: clears them and fills what all have. */
#define FILL(props, dev)                                                                           \
	do {                                                                                       \
		const struct min_device *fill_d = min_device(dev);                                 \
                                                                                                   \
		if (!fill_d)                                                                       \
			return MIN_INTERNAL_ERROR;                                                 \
		memset((props), 0, sizeof(*(props)));                                              \
		(props)->name = (char *)fill_d->name;                                              \
		(props)->pci_path = fill_d->pci_path[0] ? (char *)fill_d->pci_path : NULL;         \
		(props)->guid = fill_d->index;                                                     \
		(props)->ptr_support = MIN_PTR_HOST;                                               \
		(props)->speed = fill_d->speed;                                                    \
		(props)->max_comms = 65536;                                                        \
		(props)->max_recvs = 1;                                                            \
	} while (0)

#define FILL_V9(props, dev)                                                                        \
	do {                                                                                       \
		FILL(props, dev);                                                                  \
		(props)->vprops.ndevs = 1;                                                         \
		(props)->vprops.devs[0] = (dev);                                                   \
		(props)->max_p2p_bytes = MIN_NET_BYTES_MAX;                                        \
		(props)->max_coll_bytes = MIN_NET_BYTES_MAX;                                       \
	} while (0)

static enum min_result properties_v6(int dev, struct min_props_v6 *p)
{
	FILL(p, dev);
	return MIN_OK;
}

static enum min_result properties_v7(int dev, struct min_props_v7 *p)
{
	FILL(p, dev);
	return MIN_OK;
}

static enum min_result properties_v8(int dev, struct min_props_v8 *p)
{
	FILL(p, dev);
	return MIN_OK;
}

static enum min_result properties_v9(int dev, struct min_props_v9 *p)
{
	FILL_V9(p, dev);
	return MIN_OK;
}

static enum min_result properties_v11(int dev, struct min_props_v11 *p)
{
	FILL_V9(p, dev);
	p->max_multi_request_size = 1;
	return MIN_OK;
}

static enum min_result properties_v12(int dev, struct min_props_v12 *p)
{
	FILL_V9(p, dev);
	p->max_multi_request_size = 1;
	p->rail_id = -1;
	p->plane_id = -1;
	return MIN_OK;
}

static enum min_result listen_v6(int dev, void *handle, void **lcomm)
{
	return min_listen(&shared, dev, handle, lcomm);
}

static enum min_result listen_v11(void *ctx, int dev, void *handle, void **lcomm)
{
	return min_listen(ctx, dev, handle, lcomm);
}

static enum min_result connect_v6(int dev, void *handle, void **scomm)
{
	return min_connect(&shared, dev, handle, scomm);
}

static enum min_result connect_v7(
	int dev, void *handle, void **scomm, struct min_device_handle **device)
{
	(void)device;
	return min_connect(&shared, dev, handle, scomm);
}

static enum min_result connect_v10(int dev, struct min_comm_config *config, void *handle,
	void **scomm, struct min_device_handle **device)
{
	(void)config;
	(void)device;
	return min_connect(&shared, dev, handle, scomm);
}

static enum min_result connect_v11(
	void *ctx, int dev, void *handle, void **scomm, struct min_device_handle **device)
{
	(void)device;
	return min_connect(ctx, dev, handle, scomm);
}

static enum min_result accept_v7(void *lcomm, void **rcomm, struct min_device_handle **device)
{
	(void)device;
	return min_accept(lcomm, rcomm);
}

/* A negative size is too long for everything. */
static size_t size_of(int size)
{
	return size < 0 ? SIZE_MAX : (size_t)size;
}

static enum min_result reg_v6(void *comm, void *data, int size, int type, void **mh)
{
	if (size < 0)
		return MIN_INVALID_ARGUMENT;
	return min_reg(comm, data, (size_t)size, type, mh);
}

static enum min_result isend_v6(
	void *scomm, void *data, int size, int tag, void *mh, void **request)
{
	return min_isend(scomm, data, size_of(size), tag, mh, request);
}

static enum min_result isend_v10(
	void *scomm, void *data, size_t size, int tag, void *mh, void *phandle, void **request)
{
	(void)phandle;
	return min_isend(scomm, data, size, tag, mh, request);
}

static enum min_result one_only(int n, void **request)
{
	if (n == 1)
		return MIN_OK;
	*request = NULL;
	min_log(MIN_LEVEL_WARN, "irecv of %d buffers; maxRecvs is 1", n);
	return MIN_INTERNAL_ERROR;
}

static enum min_result irecv_v6(
	void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request)
{
	enum min_result result = one_only(n, request);

	if (result != MIN_OK)
		return result;
	return min_irecv(rcomm, data[0], size_of(sizes[0]), tags[0], mhs ? mhs[0] : NULL, request);
}

static enum min_result irecv_v9(
	void *rcomm, int n, void **data, size_t *sizes, int *tags, void **mhs, void **request)
{
	enum min_result result = one_only(n, request);

	if (result != MIN_OK)
		return result;
	return min_irecv(rcomm, data[0], sizes[0], tags[0], mhs ? mhs[0] : NULL, request);
}

static enum min_result irecv_v10(void *rcomm, int n, void **data, size_t *sizes, int *tags,
	void **mhs, void **phandles, void **request)
{
	(void)phandles;
	return irecv_v9(rcomm, n, data, sizes, tags, mhs, request);
}

/* Host memory needs none: done at once. */
static enum min_result iflush(
	void *rcomm, int n, void **data, int *sizes, void **mhs, void **request)
{
	(void)rcomm;
	(void)n;
	(void)data;
	(void)sizes;
	(void)mhs;
	*request = NULL;
	return MIN_OK;
}

/* Members with the same functions in all versions. */
#define COMMON                                                                                     \
	.name = NAME, .devices = devices, .dereg_mr = min_dereg, .iflush = iflush,                 \
	.test = min_test, .close_send = min_close, .close_recv = min_close,                        \
	.close_listen = min_close

extern const struct min_net_v6 ncclNetPlugin_v6;
extern const struct min_net_v7 ncclNetPlugin_v7;
extern const struct min_net_v8 ncclNetPlugin_v8;
extern const struct min_net_v9 ncclNetPlugin_v9;
extern const struct min_net_v10 ncclNetPlugin_v10;
extern const struct min_net_v11 ncclNetPlugin_v11;
extern const struct min_net_v12 ncclNetPlugin_v12;

const struct min_net_v6 ncclNetPlugin_v6 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v6,
	.listen = listen_v6,
	.connect = connect_v6,
	.accept = min_accept,
	.reg_mr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

const struct min_net_v7 ncclNetPlugin_v7 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v7,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.reg_mr = reg_v6,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

const struct min_net_v8 ncclNetPlugin_v8 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v8,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.reg_mr = min_reg,
	.isend = isend_v6,
	.irecv = irecv_v6,
};

const struct min_net_v9 ncclNetPlugin_v9 = {
	COMMON,
	.init = init_v6,
	.get_properties = properties_v9,
	.listen = listen_v6,
	.connect = connect_v7,
	.accept = accept_v7,
	.reg_mr = min_reg,
	.isend = min_isend,
	.irecv = irecv_v9,
};

const struct min_net_v10 ncclNetPlugin_v10 = {
	COMMON,
	.init = init_v10,
	.get_properties = properties_v9,
	.listen = listen_v6,
	.connect = connect_v10,
	.accept = accept_v7,
	.reg_mr = min_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
};

const struct min_net_v11 ncclNetPlugin_v11 = {
	COMMON,
	.init = init_v11,
	.get_properties = properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.reg_mr = min_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.finalize = finalize_v11,
};

const struct min_net_v12 ncclNetPlugin_v12 = {
	COMMON,
	.init = init_v11,
	.get_properties = properties_v12,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.reg_mr = min_reg,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.finalize = finalize_v11,
};
