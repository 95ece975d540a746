/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nccl_net_abi.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A network plugin of version 11 that hands each call to another one and records it: as NCCL_NET_PLUGIN of a real job it
 * shows which calls NCCL makes, in which order and depth. replay_main repeats a recording without NCCL.
 *
 *   NET_RECORD_PLUGIN   the other plugin
 *   NET_RECORD          a path; the process PID writes PATH.PID
 *
 * One call is one line, written when the call has returned; before it, if it ends an object. Objects are named by numbers:
 * their addresses, which may be used again after their end; 0: none. Calls that say "not yet" have no line.
 *
 *   process                                    begins the lines of a process
 *   init CTX
 *   listen LISTEN CTX DEV HANDLE               HANDLE: a hash of the bytes
 *   dial DIAL CTX DEV HANDLE                   the first connect of a handle
 *   connect COMM DIAL                          its comm is there
 *   accept COMM LISTEN                         a comm is there
 *   register MR COMM ADDRESS BYTES TYPE        unregister MR
 *   send REQUEST COMM MR ADDRESS BYTES TAG
 *   recv REQUEST COMM OPTIONAL, then for each buffer MR ADDRESS BYTES TAG
 *                                              OPTIONAL: 1 if NCCL does not need the completion (LL, LL128)
 *   flush REQUEST COMM, then for each buffer MR ADDRESS BYTES
 *   done REQUEST, then the sizes that test wrote
 *   attributes, then 11 numbers                the members of struct nccl_net_attr; only if they differ from the line before:
 *                                              NCCL sets them before each call
 *   close-send COMM    close-recv COMM    close-listen LISTEN    finalize CTX
 */
enum { DIALS = 64, BUFFERS = 8 };

static const struct nccl_net_v11 *to;
static FILE *out;

/* FNV-1a */
static uint64_t hash(const void *p)
{
	const unsigned char *b = p;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (int i = 0; i < NCCL_NET_HANDLE_BYTES; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h >> 16;
}

static uintptr_t id(const void *p)
{
	return (uintptr_t)p;
}
#define ID "%#" PRIxPTR

static enum nccl_result init(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
	nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	enum nccl_result rc;

	if (!to || !out)
		return NCCL_SYSTEM_ERROR;
	rc = to->init(ctx, comm_id, config, logger, profiler);
	if (rc == NCCL_SUCCESS)
		fprintf(out, "init " ID "\n", id(*ctx));
	return rc;
}

static enum nccl_result listen_(void *ctx, int dev, void *handle, void **comm)
{
	enum nccl_result rc = to->listen(ctx, dev, handle, comm);

	if (rc == NCCL_SUCCESS)
		fprintf(out, "listen " ID " " ID " %d %#" PRIx64 "\n", id(*comm), id(ctx), dev,
			hash(handle));
	return rc;
}

/* Finds a handle among those that are being connected, or a free place. The plugin may have written into it since. */
static const void **dial_of(const void *handle)
{
	static _Thread_local const void *dials[DIALS];

	for (int i = 0; i < DIALS; i++)
		if (dials[i] == handle)
			return &dials[i];
	return handle ? dial_of(NULL) : &dials[0];
}

static enum nccl_result connect_(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **dev_comm)
{
	const void **dial = dial_of(handle);
	enum nccl_result rc;

	if (!*dial)
		fprintf(out, "dial " ID " " ID " %d %#" PRIx64 "\n", id(handle), id(ctx), dev,
			hash(handle));
	*dial = handle;
	rc = to->connect(ctx, dev, handle, comm, dev_comm);
	if (rc == NCCL_SUCCESS && *comm) {
		*dial = NULL;
		fprintf(out, "connect " ID " " ID "\n", id(*comm), id(handle));
	}
	return rc;
}

static enum nccl_result accept_(
	void *listen_comm, void **comm, struct nccl_net_device_handle **dev_comm)
{
	enum nccl_result rc = to->accept(listen_comm, comm, dev_comm);

	if (rc == NCCL_SUCCESS && *comm)
		fprintf(out, "accept " ID " " ID "\n", id(*comm), id(listen_comm));
	return rc;
}

static enum nccl_result registered(
	enum nccl_result rc, void *comm, void *data, size_t size, int type, void **mhandle)
{
	if (rc == NCCL_SUCCESS)
		fprintf(out, "register " ID " " ID " " ID " %zu %d\n", id(*mhandle), id(comm),
			id(data), size, type);
	return rc;
}

static enum nccl_result reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	return registered(
		to->regMr(comm, data, size, type, mhandle), comm, data, size, type, mhandle);
}

static enum nccl_result reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	return registered(to->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle), comm, data,
		size, type, mhandle);
}

static enum nccl_result isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	enum nccl_result rc = to->isend(comm, data, size, tag, mhandle, phandle, request);

	if (rc == NCCL_SUCCESS && *request)
		fprintf(out, "send " ID " " ID " " ID " " ID " %zu %d\n", id(*request), id(comm),
			id(mhandle), id(data), size, tag);
	return rc;
}

static enum nccl_result irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request)
{
	bool optional = *request == NCCL_NET_OPTIONAL_RECV_COMPLETION;
	enum nccl_result rc = to->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);

	if (rc != NCCL_SUCCESS || !*request)
		return rc;
	flockfile(out);
	fprintf(out, "recv " ID " " ID " %d", id(*request), id(comm), optional);
	for (int i = 0; i < n; i++)
		fprintf(out, " " ID " " ID " %zu %d", id(mhandles[i]), id(data[i]), sizes[i],
			tags[i]);
	fputc('\n', out);
	funlockfile(out);
	return rc;
}

static enum nccl_result iflush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	enum nccl_result rc = to->iflush(comm, n, data, sizes, mhandles, request);

	if (rc != NCCL_SUCCESS)
		return rc;
	flockfile(out);
	fprintf(out, "flush " ID " " ID, id(*request), id(comm));
	for (int i = 0; i < n; i++)
		fprintf(out, " " ID " " ID " %d", id(mhandles[i]), id(data[i]), sizes[i]);
	fputc('\n', out);
	funlockfile(out);
	return rc;
}

static enum nccl_result test(void *request, int *done, int *sizes)
{
	int got[BUFFERS];
	enum nccl_result rc;

	memset(got, -1, sizeof(got));
	rc = to->test(request, done, got);
	if (rc != NCCL_SUCCESS || !*done)
		return rc;
	flockfile(out);
	fprintf(out, "done " ID, id(request));
	for (int i = 0; i < BUFFERS && got[i] >= 0; i++) {
		fprintf(out, " %d", got[i]);
		if (sizes)
			sizes[i] = got[i];
	}
	fputc('\n', out);
	funlockfile(out);
	return rc;
}

/* What ends gives its address back, perhaps to another thread: its line comes before the call. */
static void ends(const char *what, const void *p)
{
	fprintf(out, "%s " ID "\n", what, id(p));
	fflush(out);
}

static enum nccl_result dereg(void *comm, void *mhandle)
{
	ends("unregister", mhandle);
	return to->deregMr(comm, mhandle);
}

static enum nccl_result close_send(void *comm)
{
	ends("close-send", comm);
	return to->closeSend(comm);
}

static enum nccl_result close_recv(void *comm)
{
	ends("close-recv", comm);
	return to->closeRecv(comm);
}

static enum nccl_result close_listen(void *comm)
{
	ends("close-listen", comm);
	return to->closeListen(comm);
}

static enum nccl_result finalize(void *ctx)
{
	if (!to || !out)
		return NCCL_SUCCESS;
	ends("finalize", ctx);
	return to->finalize(ctx);
}

static enum nccl_result set_attr(void *ctx, struct nccl_net_attr *a)
{
	const struct nccl_net_comm_attr *s = &a->sendCommAttr, *r = &a->recvCommAttr;
	static struct nccl_net_attr last;

	flockfile(out);
	if (memcmp(&last, a, sizeof(last)) != 0)
		fprintf(out, "attributes %d %d %d %d %d %d %d %d %u %u %u\n", s->maxConcurrentPeers,
			s->minConcurrentPeers, s->maxFlowsPerPeer, s->minFlowsPerPeer,
			r->maxConcurrentPeers, r->minConcurrentPeers, r->maxFlowsPerPeer,
			r->minFlowsPerPeer, a->op, a->algo, a->proto);
	last = *a;
	funlockfile(out);
	return to->setNetAttr ? to->setNetAttr(ctx, a) : NCCL_SUCCESS;
}

/* The rest comes from the other plugin. */
extern struct nccl_net_v11 ncclNetPlugin_v11;
struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = "record",
	.init = init,
	.listen = listen_,
	.connect = connect_,
	.accept = accept_,
	.regMr = reg,
	.regMrDmaBuf = reg_dmabuf,
	.deregMr = dereg,
	.isend = isend,
	.irecv = irecv,
	.iflush = iflush,
	.test = test,
	.closeSend = close_send,
	.closeRecv = close_recv,
	.closeListen = close_listen,
	.finalize = finalize,
	.setNetAttr = set_attr,
};

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("NET_RECORD"), *other = getenv("NET_RECORD_PLUGIN");
	void *so = other ? dlopen(other, RTLD_NOW | RTLD_LOCAL) : NULL;
	char file[4096];

	to = so ? dlsym(so, "ncclNetPlugin_v11") : NULL;
	snprintf(file, sizeof(file), "%s.%d", path ? path : "", (int)getpid());
	if (!to)
		fprintf(stderr, "record: NET_RECORD_PLUGIN: %s\n", other ? dlerror() : "not set");
	else if (path)
		out = fopen(file, "we");
	if (!out) {
		fprintf(stderr, "record: %s cannot be written\n", file);
		return;
	}
	fprintf(out, "process\n");
	ncclNetPlugin_v11.name = to->name;
	ncclNetPlugin_v11.devices = to->devices;
	ncclNetPlugin_v11.getProperties = to->getProperties;
	ncclNetPlugin_v11.getDeviceMr = to->getDeviceMr;
	ncclNetPlugin_v11.irecvConsumed = to->irecvConsumed;
	ncclNetPlugin_v11.makeVDevice = to->makeVDevice;
}

__attribute__((destructor)) static void stop(void)
{
	if (out)
		fclose(out);
	out = NULL;
}
