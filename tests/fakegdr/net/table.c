/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakegdr/net/gdr.h"

#include <stdlib.h>

#define NAME "FakeGDR"

enum { CHUNK = 512 << 10, DEVICE_HOST = 0 };

struct gdr_settings gdr_settings;

const struct tcpx_kind tcpx_kind = {
	.name = "fakegdr",
	.memory = "FAKEGDR_MEMORY",
	.message_max = GDR_MESSAGE_MAX,
	.init = gdr_direct_init,
	.fini = gdr_direct_fini,
	.posted = gdr_direct_posted,
	.place = gdr_direct_place,
	.filled = gdr_direct_filled,
	.complete = gdr_direct_complete,
};

static enum min_result init_once(min_logger log)
{
	min_log_set(log, NAME);
	min_devices_scan(getenv("FAKEGDR_IFNAME"));
	if (!tcpx_settings_read(&tcpx_settings, CHUNK))
		return MIN_INTERNAL_ERROR;
	gdr_settings = (struct gdr_settings){
		.ordered = tcpx_number("FAKEGDR_ORDERED", 0) != 0,
		.dmabuf = tcpx_number("FAKEGDR_DMABUF", 0) != 0,
		.dmabuf_only = tcpx_number("FAKEGDR_DMABUF_ONLY", 0) != 0,
	};
	return MIN_OK;
}

static enum min_result init(min_logger log)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool done;
	enum min_result result = MIN_OK;

	(void)pthread_mutex_lock(&lock);
	if (!done)
		result = init_once(log);
	done |= result == MIN_OK;
	(void)pthread_mutex_unlock(&lock);
	return result;
}

static enum min_result devices(int *ndev)
{
	*ndev = min_devices();
	return MIN_OK;
}

static enum min_result properties_v9(int dev, struct min_props_v9 *p)
{
	const struct min_device *d = min_device(dev);

	if (!d)
		return MIN_INTERNAL_ERROR;
	*p = (struct min_props_v9){
		.name = (char *)d->name,
		.pci_path = d->pci_path[0] ? (char *)d->pci_path : NULL,
		.guid = (uint64_t)dev,
		.ptr_support =
			MIN_PTR_HOST | GDR_PTR_CUDA | (gdr_settings.dmabuf ? GDR_PTR_DMABUF : 0),
		.force_flush = !gdr_settings.ordered,
		.speed = d->speed,
		.max_comms = 65536,
		.max_recvs = 1,
		.device_type = DEVICE_HOST,
		.vprops = { .ndevs = 1, .devs = { dev } },
		.max_p2p_bytes = GDR_MESSAGE_MAX,
		.max_coll_bytes = GDR_MESSAGE_MAX,
	};
	return MIN_OK;
}

static enum min_result properties_v7(int dev, struct min_props_v7 *p)
{
	struct min_props_v9 all;
	enum min_result result = properties_v9(dev, &all);

	if (result != MIN_OK)
		return result;
	*p = (struct min_props_v7){
		.name = all.name,
		.pci_path = all.pci_path,
		.guid = all.guid,
		.ptr_support = all.ptr_support,
		.speed = all.speed,
		.max_comms = all.max_comms,
		.max_recvs = all.max_recvs,
		.device_type = all.device_type,
	};
	return MIN_OK;
}

static enum min_result reg_v7(void *comm, void *data, int size, int type, void **mh)
{
	if (type == GDR_PTR_CUDA && gdr_settings.dmabuf && gdr_settings.dmabuf_only) {
		min_log(MIN_LEVEL_WARN, "regMr of CUDA memory, which needs a dma-buf");
		return MIN_INTERNAL_ERROR;
	}
	return tcpx_reg(comm, data, size, type, mh);
}

/* Sizes of version 9 as ints, which hold all that is possible. */
static int to_int(size_t size, const char *call)
{
	if (size > INT_MAX)
		tcpx_misuse("%s of %zu bytes, %d is the limit", call, size, GDR_MESSAGE_MAX);
	return (int)size;
}

static enum min_result reg_v9(void *comm, void *data, size_t size, int type, void **mh)
{
	return reg_v7(comm, data, to_int(size, "regMr"), type, mh);
}

static enum min_result isend_v9(
	void *scomm, void *data, size_t size, int tag, void *mh, void **request)
{
	return tcpx_isend(scomm, data, to_int(size, "isend"), tag, mh, request);
}

static enum min_result irecv_v9(
	void *rcomm, int n, void **data, size_t *sizes, int *tags, void **mhs, void **request)
{
	int size = n == 1 ? to_int(sizes[0], "irecv") : 0;

	return tcpx_irecv(rcomm, n, data, &size, tags, mhs, request);
}

/* What both versions have. */
#define COMMON                                                                                     \
	.name = NAME, .init = init, .devices = devices, .listen = tcpx_listen,                     \
	.connect = tcpx_connect, .accept = tcpx_accept, .reg_mr_dmabuf = gdr_reg_dmabuf,           \
	.dereg_mr = gdr_dereg, .iflush = gdr_iflush, .test = gdr_test, .close_send = tcpx_close,   \
	.close_recv = tcpx_close, .close_listen = tcpx_close_listen

extern struct min_net_v7 ncclNetPlugin_v7;
extern struct min_net_v9 ncclNetPlugin_v9;

struct min_net_v7 ncclNetPlugin_v7 = {
	COMMON,
	.get_properties = properties_v7,
	.reg_mr = reg_v7,
	.isend = tcpx_isend,
	.irecv = tcpx_irecv,
};

struct min_net_v9 ncclNetPlugin_v9 = {
	COMMON,
	.get_properties = properties_v9,
	.reg_mr = reg_v9,
	.isend = isend_v9,
	.irecv = irecv_v9,
};
