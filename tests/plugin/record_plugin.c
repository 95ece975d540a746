/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nccl_net_abi.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
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
 * One call is one line, written when the call has returned. Objects are numbered in the order of their creation:
 * contexts, listen comms, comms (send and receive together), registrations and requests each from 0. Calls that say "not
 * yet" have no line; the line of the call that ends the waiting counts them (TURNS).
 *
 *   process                                    begins the lines of a process
 *   init CTX                                   devices N              properties DEV
 *   listen LISTEN CTX DEV HANDLE               HANDLE: a hash of the bytes
 *   connect COMM CTX DEV HANDLE                the first call; `up` follows when the comm is there
 *   accept COMM LISTEN
 *   up COMM TURNS
 *   register MR COMM BYTES TYPE                unregister MR
 *   send REQUEST COMM MR OFFSET BYTES TAG TURNS
 *   recv REQUEST COMM OPTIONAL TURNS N, then N times MR OFFSET BYTES TAG
 *                                              OPTIONAL: 1 if NCCL does not need the completion (LL, LL128)
 *   flush REQUEST COMM N, then N times MR OFFSET BYTES     REQUEST -1: nothing to wait for
 *   done REQUEST TURNS, then N times BYTES     of a receive, else nothing
 *   attributes, then 11 numbers                the members of struct nccl_net_attr; only if they differ from the line before:
 *                                              NCCL sets them before each call
 *   close-send COMM    close-recv COMM    close-listen LISTEN    finalize CTX
 *
 * MR -1: no registration. A request is tested by one thread at a time, as NCCL does.
 */
enum { OBJECTS = 4096, BUFFERS = 8 };

/* Objects of a kind that exist, by their pointers. */
struct object {
	const void *p;
	int number, n;	/* n: buffers of a request */
	bool recv, up;	/* of a request; of a comm */
	unsigned turns; /* calls so far */
	const char *base;
};
struct kind {
	struct object of[OBJECTS];
	int used, next;
};

static struct kind contexts, listens, comms, dialled, accepted, mrs, requests;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct nccl_net_v11 *to;
static FILE *out;

/* ---- objects and lines: under the lock ---- */

static struct object *find(struct kind *k, const void *p)
{
	for (int i = 0; i < k->used; i++)
		if (k->of[i].p == p)
			return &k->of[i];
	return NULL;
}

static struct object *add_as(struct kind *k, const void *p, int number)
{
	struct object *o = find(k, p);

	if (!o && k->used == OBJECTS) {
		fprintf(out, "overflow\n"); /* which no reader of a recording takes */
		k->used--;
	}
	if (!o)
		o = &k->of[k->used++];
	*o = (struct object){ .p = p, .number = number };
	return o;
}

static struct object *add(struct kind *k, const void *p)
{
	return add_as(k, p, k->next++);
}

static int number_of(struct kind *k, const void *p)
{
	struct object *o = find(k, p);

	return o ? o->number : -1;
}

/* The number of what ends now. */
static int take(struct kind *k, const void *p)
{
	struct object *o = find(k, p);
	int number = o ? o->number : -1;

	if (o)
		*o = k->of[--k->used];
	return number;
}

__attribute__((format(printf, 1, 2))) static void put(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(out, fmt, ap);
	va_end(ap);
}

static void put_buffer(const void *data, size_t size, const void *mhandle)
{
	struct object *m = mhandle ? find(&mrs, mhandle) : NULL;

	put(" %d %td %zu", m ? m->number : -1, m ? (const char *)data - m->base : 0, size);
}

/* FNV-1a */
static uint64_t hash(const void *p)
{
	const unsigned char *b = p;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (int i = 0; i < NCCL_NET_HANDLE_BYTES; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h >> 16;
}

/* ---- calls ---- */

static enum nccl_result init(void **ctx, uint64_t comm_id, struct nccl_net_comm_config *config,
	nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	enum nccl_result rc;

	if (!to || !out)
		return NCCL_SYSTEM_ERROR;
	rc = to->init(ctx, comm_id, config, logger, profiler);
	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS)
		put("init %d\n", add(&contexts, *ctx)->number);
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result devices(int *ndev)
{
	enum nccl_result rc = to->devices(ndev);

	pthread_mutex_lock(&lock);
	put("devices %d\n", *ndev);
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result properties(int dev, struct nccl_net_properties_v11 *props)
{
	enum nccl_result rc = to->getProperties(dev, props);

	pthread_mutex_lock(&lock);
	put("properties %d\n", dev);
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result listen_(void *ctx, int dev, void *handle, void **comm)
{
	enum nccl_result rc = to->listen(ctx, dev, handle, comm);

	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS)
		put("listen %d %d %d %" PRIx64 "\n", add(&listens, *comm)->number,
			number_of(&contexts, ctx), dev, hash(handle));
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Counts a call. The comm gets its number with the first one; key: what all calls for it have in common. */
static bool first_call(struct kind *pending, const void *key)
{
	struct object *o = find(pending, key);
	bool first = !o;

	if (first)
		o = add_as(pending, key, comms.next++);
	o->turns++;
	return first;
}

static void came_up(struct kind *pending, const void *key, const void *comm)
{
	struct object *o = find(pending, key);

	put("up %d %u\n", o->number, o->turns);
	(void)add_as(&comms, comm, take(pending, key));
}

static enum nccl_result connect_(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **dev_comm)
{
	enum nccl_result rc;

	pthread_mutex_lock(&lock);
	if (first_call(&dialled, handle))
		put("connect %d %d %d %" PRIx64 "\n", number_of(&dialled, handle),
			number_of(&contexts, ctx), dev, hash(handle));
	pthread_mutex_unlock(&lock);
	rc = to->connect(ctx, dev, handle, comm, dev_comm);
	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS && *comm)
		came_up(&dialled, handle, *comm);
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result accept_(
	void *listen_comm, void **comm, struct nccl_net_device_handle **dev_comm)
{
	enum nccl_result rc;

	pthread_mutex_lock(&lock);
	if (first_call(&accepted, listen_comm))
		put("accept %d %d\n", number_of(&accepted, listen_comm),
			number_of(&listens, listen_comm));
	pthread_mutex_unlock(&lock);
	rc = to->accept(listen_comm, comm, dev_comm);
	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS && *comm)
		came_up(&accepted, listen_comm, *comm);
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result registered(
	enum nccl_result rc, void *comm, void *data, size_t size, int type, void **mhandle)
{
	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS) {
		struct object *m = add(&mrs, *mhandle);

		m->base = data;
		put("register %d %d %zu %d\n", m->number, number_of(&comms, comm), size, type);
	}
	pthread_mutex_unlock(&lock);
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

/* What ends gives its address back, perhaps to another thread: its line comes before the call. */
static void ends(const char *what, struct kind *k, const void *p)
{
	pthread_mutex_lock(&lock);
	put("%s %d\n", what, take(k, p));
	fflush(out);
	pthread_mutex_unlock(&lock);
}

static enum nccl_result dereg(void *comm, void *mhandle)
{
	ends("unregister", &mrs, mhandle);
	return to->deregMr(comm, mhandle);
}

/* Calls that were told to try again later are counted at the comm. */
static unsigned turns_of(void *comm, bool end)
{
	struct object *c = find(&comms, comm);
	unsigned turns = c ? ++c->turns : 0;

	if (c && end)
		c->turns = 0;
	return turns;
}

static enum nccl_result isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	enum nccl_result rc = to->isend(comm, data, size, tag, mhandle, phandle, request);
	unsigned turns;

	pthread_mutex_lock(&lock);
	turns = turns_of(comm, *request);
	if (rc == NCCL_SUCCESS && *request) {
		put("send %d %d", add(&requests, *request)->number, number_of(&comms, comm));
		put_buffer(data, size, mhandle);
		put(" %d %u\n", tag, turns);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request)
{
	bool optional = *request == NCCL_NET_OPTIONAL_RECV_COMPLETION;
	enum nccl_result rc = to->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
	unsigned turns;

	pthread_mutex_lock(&lock);
	turns = turns_of(comm, *request);
	if (rc == NCCL_SUCCESS && *request) {
		struct object *q = add(&requests, *request);

		q->recv = true;
		q->n = n;
		put("recv %d %d %d %u %d", q->number, number_of(&comms, comm), optional, turns, n);
		for (int i = 0; i < n; i++) {
			put_buffer(data[i], sizes[i], mhandles[i]);
			put(" %d", tags[i]);
		}
		put("\n");
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result iflush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	enum nccl_result rc = to->iflush(comm, n, data, sizes, mhandles, request);

	pthread_mutex_lock(&lock);
	if (rc == NCCL_SUCCESS) {
		put("flush %d %d %d", *request ? add(&requests, *request)->number : -1,
			number_of(&comms, comm), n);
		for (int i = 0; i < n; i++)
			put_buffer(data[i], (size_t)sizes[i], mhandles[i]);
		put("\n");
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result test(void *request, int *done, int *sizes)
{
	int own[BUFFERS] = { 0 }, *got = sizes ? sizes : own;
	enum nccl_result rc = to->test(request, done, got);
	struct object *q;

	pthread_mutex_lock(&lock);
	q = find(&requests, request);
	if (q)
		q->turns++;
	if (q && rc == NCCL_SUCCESS && *done) {
		put("done %d %u", q->number, q->turns);
		for (int i = 0; q->recv && i < q->n && i < BUFFERS; i++)
			put(" %d", got[i]);
		put("\n");
		take(&requests, request);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static enum nccl_result close_send(void *comm)
{
	ends("close-send", &comms, comm);
	return to->closeSend(comm);
}

static enum nccl_result close_recv(void *comm)
{
	ends("close-recv", &comms, comm);
	return to->closeRecv(comm);
}

static enum nccl_result close_listen(void *comm)
{
	pthread_mutex_lock(&lock);
	take(&accepted, comm);
	pthread_mutex_unlock(&lock);
	ends("close-listen", &listens, comm);
	return to->closeListen(comm);
}

static enum nccl_result finalize(void *ctx)
{
	if (!to)
		return NCCL_SUCCESS;
	ends("finalize", &contexts, ctx);
	return to->finalize(ctx);
}

static enum nccl_result set_attr(void *ctx, struct nccl_net_attr *a)
{
	const struct nccl_net_comm_attr *side[] = { &a->sendCommAttr, &a->recvCommAttr };
	static struct nccl_net_attr last;

	pthread_mutex_lock(&lock);
	if (memcmp(&last, a, sizeof(last)) == 0)
		goto written;
	last = *a;
	put("attributes");
	for (int i = 0; i < 2; i++)
		put(" %d %d %d %d", side[i]->maxConcurrentPeers, side[i]->minConcurrentPeers,
			side[i]->maxFlowsPerPeer, side[i]->minFlowsPerPeer);
	put(" %u %u %u\n", a->op, a->algo, a->proto);
written:
	pthread_mutex_unlock(&lock);
	return to->setNetAttr ? to->setNetAttr(ctx, a) : NCCL_SUCCESS;
}

/* ---- the table ---- */

extern struct nccl_net_v11 ncclNetPlugin_v11;
struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = "record",
	.init = init,
	.devices = devices,
	.getProperties = properties,
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

static void *load(const char *file)
{
	void *so = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;

	if (!so)
		fprintf(stderr, "record: NET_RECORD_PLUGIN: %s\n",
			file ? dlerror() : "it is not set");
	return so ? dlsym(so, "ncclNetPlugin_v11") : NULL;
}

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("NET_RECORD");
	char file[4096];

	to = load(getenv("NET_RECORD_PLUGIN"));
	if (!to || !path)
		return;
	snprintf(file, sizeof(file), "%s.%d", path, (int)getpid());
	out = fopen(file, "we");
	if (!out) {
		fprintf(stderr, "record: %s cannot be written\n", file);
		return;
	}
	put("process\n");
	ncclNetPlugin_v11.name = to->name;
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
