/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/faketcpx/net/tcpx.h"

#include <stdlib.h>

#define NAME "GPUDirectTCPX_v7"

/* What is posted is not yet of interest. */
static void posted(struct tcpx_comm *c, struct tcpx_request *r)
{
	(void)c;
	(void)r;
}

const struct tcpx_kind tcpx_kind = {
	.name = "faketcpx",
	.memory = "FAKETCPX_MEMORY",
	.unpack = true,
	.message_max = TCPX_RECEIVE_MAX,
	.init = tcpx_bounce_init,
	.fini = tcpx_bounce_fini,
	.posted = posted,
	.place = tcpx_bounce_place,
	.filled = tcpx_bounce_filled,
	.complete = tcpx_bounce_publish,
};

static bool read_pages(bool cuda, unsigned *pages)
{
	unsigned long n = tcpx_number("FAKETCPX_PAGES", cuda ? TCPX_PAGES_GPU : TCPX_PAGES_MAX);

	if (n < TCPX_PAGES_MIN || n > TCPX_PAGES_MAX) {
		min_log(MIN_LEVEL_WARN, "FAKETCPX_PAGES=%lu, %d to %d are possible", n,
			TCPX_PAGES_MIN, TCPX_PAGES_MAX);
		return false;
	}
	*pages = (unsigned)n;
	return true;
}

static enum min_result init(min_logger log)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool done;
	struct tcpx_settings *s = &tcpx_settings;
	bool again;

	(void)pthread_mutex_lock(&lock);
	again = done;
	done = true;
	(void)pthread_mutex_unlock(&lock);
	if (again) {
		min_log(MIN_LEVEL_WARN, "init was called before");
		return MIN_INTERNAL_ERROR;
	}
	min_log_set(log, NAME);
	min_devices_scan(getenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"));
	if (!tcpx_settings_read(s, 0) || !read_pages(s->cuda, &s->pages))
		return MIN_INTERNAL_ERROR;
	s->recv_sync = tcpx_number("NCCL_GPUDIRECTTCPX_RECV_SYNC", 0) != 0;
	s->seed = tcpx_number("FAKETCPX_SEED", 1);
	s->ctrl_dev = getenv("NCCL_GPUDIRECTTCPX_CTRL_DEV");
	return MIN_OK;
}

static enum min_result devices(int *ndev)
{
	*ndev = min_devices();
	return MIN_OK;
}

static enum min_result properties(int dev, struct min_props_v7 *p)
{
	const struct min_device *d = min_device(dev);

	if (!d)
		return MIN_INTERNAL_ERROR;
	*p = (struct min_props_v7){
		.name = (char *)d->name,
		.pci_path = d->pci_path[0] ? (char *)d->pci_path : NULL,
		.guid = (uint64_t)dev,
		.ptr_support = MIN_PTR_HOST | TCPX_PTR_CUDA,
		.speed = d->speed,
		.max_comms = 65536,
		.max_recvs = 1,
		.device_type = TCPX_DEVICE_UNPACK,
		.device_version = TCPX_UNPACK_VERSION,
	};
	return MIN_OK;
}

static enum min_result iflush(
	void *rcomm, int n, void **data, int *sizes, void **mhs, void **request)
{
	(void)rcomm;
	(void)data;
	(void)sizes;
	(void)mhs;
	(void)request;
	tcpx_misuse("iflush of %d buffers; it has no use and follows *request", n);
}

/* Writes nothing, as Google's. */
static enum min_result get_device_mr(void *comm, void *mh, void **device_mh)
{
	(void)comm;
	(void)mh;
	(void)device_mh;
	return MIN_OK;
}

extern struct min_net_v7 ncclNetPlugin_v7;

struct min_net_v7 ncclNetPlugin_v7 = {
	.name = NAME,
	.init = init,
	.devices = devices,
	.get_properties = properties,
	.listen = tcpx_listen,
	.connect = tcpx_connect,
	.accept = tcpx_accept,
	.reg_mr = tcpx_reg,
	.dereg_mr = tcpx_dereg,
	.isend = tcpx_isend,
	.irecv = tcpx_irecv,
	.iflush = iflush,
	.test = tcpx_test,
	.close_send = tcpx_close,
	.close_recv = tcpx_close,
	.close_listen = tcpx_close_listen,
	.get_device_mr = get_device_mr,
	.irecv_consumed = tcpx_consumed,
};
