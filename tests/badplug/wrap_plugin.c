/* SPDX-License-Identifier: Apache-2.0 */
#include "base/defs.h"
#include "base/nccl_net_abi.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A network plugin of NCCL that passes each call on to the plugin in the file WRAP, and ends or stops the process in one of
 * them. WRAP_BUG is ACTION:CALL, ACTION one of abort, exit, hang and error; without it nothing is wrong. The call has the bug
 * from the WRAP_AFTER-th one on (default 1), in processes that listen on device WRAP_DEV (default: all). WRAP_ONCE names
 * a file: the process that removes it has the bug, no other.
 */
static const struct nccl_net_v11 *net;
static int device = -1;

static long number(const char *variable, long other)
{
	const char *text = getenv(variable);

	return text ? strtol(text, NULL, 10) : other;
}

static bool is_due(const char *call)
{
	static atomic_ulong calls;
	static atomic_bool mine;
	const char *bug = getenv("WRAP_BUG"), *once = getenv("WRAP_ONCE"),
		   *of = bug ? strchr(bug, ':') : NULL;
	long dev = number("WRAP_DEV", -1);

	if (!of || strcmp(of + 1, call) != 0 || (dev >= 0 && dev != device))
		return false;
	if (atomic_fetch_add(&calls, 1) + 1 < (unsigned long)number("WRAP_AFTER", 1))
		return false;
	if (!once || unlink(once) == 0)
		mine = true;
	return mine;
}

static enum nccl_result entered(const char *call)
{
	const char *bug = getenv("WRAP_BUG");

	if (!is_due(call))
		return NCCL_SUCCESS;
	if (strncmp(bug, "abort:", 6) == 0)
		abort(); /* lint-ok: the bug */
	if (strncmp(bug, "exit:", 5) == 0)
		exit(0); /* lint-ok: the bug */
	while (strncmp(bug, "hang:", 5) == 0)
		(void)poll(NULL, 0, -1);
	return NCCL_INTERNAL_ERROR;
}
#define ENTER(call)                                                                                \
	do {                                                                                       \
		enum nccl_result rc_ = entered(call);                                              \
		if (rc_ != NCCL_SUCCESS)                                                           \
			return rc_;                                                                \
	} while (0)

static enum nccl_result wrap_init(void **ctx, uint64_t id, struct nccl_net_comm_config *config,
	nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	ENTER("init");
	return net->init(ctx, id, config, logger, profiler);
}

static enum nccl_result wrap_devices(int *ndev)
{
	ENTER("devices");
	return net->devices(ndev);
}

static enum nccl_result wrap_properties(int dev, struct nccl_net_properties_v11 *p)
{
	ENTER("getProperties");
	return net->getProperties(dev, p);
}

static enum nccl_result wrap_listen(void *ctx, int dev, void *handle, void **comm)
{
	device = dev;
	ENTER("listen");
	return net->listen(ctx, dev, handle, comm);
}

static enum nccl_result wrap_connect(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **d)
{
	ENTER("connect");
	return net->connect(ctx, dev, handle, comm, d);
}

static enum nccl_result wrap_accept(
	void *listen_comm, void **comm, struct nccl_net_device_handle **d)
{
	ENTER("accept");
	return net->accept(listen_comm, comm, d);
}

static enum nccl_result wrap_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	ENTER("regMr");
	return net->regMr(comm, data, size, type, mhandle);
}

static enum nccl_result wrap_dereg(void *comm, void *mhandle)
{
	ENTER("deregMr");
	return net->deregMr(comm, mhandle);
}

static enum nccl_result wrap_isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *profile, void **request)
{
	ENTER("isend");
	return net->isend(comm, data, size, tag, mhandle, profile, request);
}

static enum nccl_result wrap_irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **profiles, void **request)
{
	ENTER("irecv");
	return net->irecv(comm, n, data, sizes, tags, mhandles, profiles, request);
}

static enum nccl_result wrap_test(void *request, int *done, int *sizes)
{
	ENTER("test");
	return net->test(request, done, sizes);
}

static enum nccl_result wrap_close_send(void *comm)
{
	ENTER("closeSend");
	return net->closeSend(comm);
}

static enum nccl_result wrap_close_recv(void *comm)
{
	ENTER("closeRecv");
	return net->closeRecv(comm);
}

static enum nccl_result wrap_close_listen(void *comm)
{
	ENTER("closeListen");
	return net->closeListen(comm);
}

static enum nccl_result wrap_finalize(void *ctx)
{
	ENTER("finalize");
	return net->finalize(ctx);
}

DR_EXPORT struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = "wrap",
	.init = wrap_init,
	.devices = wrap_devices,
	.getProperties = wrap_properties,
	.listen = wrap_listen,
	.connect = wrap_connect,
	.accept = wrap_accept,
	.regMr = wrap_reg,
	.deregMr = wrap_dereg,
	.isend = wrap_isend,
	.irecv = wrap_irecv,
	.test = wrap_test,
	.closeSend = wrap_close_send,
	.closeRecv = wrap_close_recv,
	.closeListen = wrap_close_listen,
	.finalize = wrap_finalize,
};

__attribute__((constructor)) static void loaded(void)
{
	const char *file = getenv("WRAP");
	void *so = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;

	net = so ? dlsym(so, "ncclNetPlugin_v11") : NULL;
	if (!net)
		ncclNetPlugin_v11.isend = NULL; /* lacks a function then */
}
