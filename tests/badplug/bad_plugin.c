/* SPDX-License-Identifier: Apache-2.0 */
#include "base/defs.h"
#include "base/nccl_net_abi.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A network plugin of NCCL that moves messages between comms of one process, in memory. It is correct unless BADPLUG names
 * a violation: one of the words that are compared with is() below, or crash:CALL, exit:CALL, hang:CALL, blocks:CALL,
 * error:CALL for a function of its table.
 */
enum { LISTENERS = 64, REQUESTS = 64, GROUP = 8, TURNS = 3, MAGIC = 0x6261646e };

struct conn;
struct request {
	struct conn *conn;
	bool used, is_send, matched, done;
	unsigned turns; /* tests until it is done */
	int n, tag[GROUP], got[GROUP];
	char *data[GROUP];
	size_t size[GROUP];
	struct request *next; /* in the order of posting */
	struct request *match[GROUP];
};
struct conn {
	struct request request[2][REQUESTS], *head[2], *tail[2];
	unsigned posted[2];
	int ends; /* not closed */
	int idle_descriptor;
};
struct listener {
	bool used;
	struct conn *dialled; /* by connect, not accepted */
	unsigned asked;
};
static struct listener listeners[LISTENERS];

static const char *bug(void)
{
	const char *b = getenv("BADPLUG");

	return b ? b : "";
}

static bool is(const char *name)
{
	return strcmp(bug(), name) == 0;
}

/* "crash:isend" */
static bool does(const char *what, const char *call)
{
	size_t len = strlen(what);

	return strncmp(bug(), what, len) == 0 && bug()[len] == ':' &&
	       strcmp(bug() + len + 1, call) == 0;
}

static enum nccl_result entered(const char *call)
{
	if (does("crash", call))
		abort(); /* lint-ok: the violation */
	if (does("exit", call))
		exit(3); /* lint-ok: the violation */
	while (does("hang", call))
		(void)poll(NULL, 0, -1);
	if (does("blocks", call))
		(void)poll(NULL, 0, 800);
	return does("error", call) ? NCCL_INTERNAL_ERROR : NCCL_SUCCESS;
}
#define ENTER(call)                                                                                \
	do {                                                                                       \
		enum nccl_result rc_ = entered(call);                                              \
		if (rc_ != NCCL_SUCCESS)                                                           \
			return rc_;                                                                \
	} while (0)

static enum nccl_result bad_init(void **ctx, uint64_t id, struct nccl_net_comm_config *config,
	nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)id, (void)config, (void)profiler;
	ENTER("init");
	if (!is("no-context"))
		*ctx = listeners;
	logger(NCCL_LOG_INFO, NCCL_SUBSYS_INIT, __FILE__, __LINE__, "plugin with bug %s", bug());
	return is("init-fails") ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}

static enum nccl_result bad_devices(int *ndev)
{
	ENTER("devices");
	if (!is("devices-unset"))
		*ndev = is("no-devices") ? 0 : is("same-name") || is("same-port") ? 2 : 1;
	return NCCL_SUCCESS;
}

static enum nccl_result bad_properties(int dev, struct nccl_net_properties_v11 *p)
{
	static char names[2][5] = { "bad0", "bad1" };

	ENTER("getProperties");
	p->name = is("name-null") ? NULL : names[is("same-name") ? 0 : dev];
	p->pciPath = NULL;
	p->guid = 1;
	p->ptrSupport = is("no-host-memory") ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
	p->regIsGlobal = p->forceFlush = 0;
	p->speed = 1000;
	p->port = is("same-port") ? 1 : 1 + dev;
	p->latency = 1;
	p->maxComms = 64;
	p->maxRecvs = is("no-receives") ? 0 : GROUP;
	p->netDeviceType = NCCL_NET_DEVICE_HOST;
	p->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;
	if (!is("properties-unset"))
		p->vProps.ndevs = is("virtual-devices") ? 9 : 1;
	p->vProps.devs[0] = 0;
	p->maxP2pBytes = p->maxCollBytes = is("no-bytes") ? 0 : NCCL_NET_BYTES_MAX;
	p->maxMultiRequestSize = 1;
	if (is("properties-overrun"))
		memset(p + 1, 0, 8);
	return NCCL_SUCCESS;
}

static enum nccl_result bad_listen(void *ctx, int dev, void *handle, void **comm)
{
	uint32_t id[2] = { MAGIC, 0 };

	(void)ctx, (void)dev;
	ENTER("listen");
	while (id[1] < LISTENERS && listeners[id[1]].used)
		id[1]++;
	if (id[1] == LISTENERS)
		return NCCL_SYSTEM_ERROR;
	listeners[id[1]] = (struct listener){ .used = true };
	memcpy(handle, id, sizeof(id));
	if (is("handle-long"))
		memset(handle, 1, NCCL_NET_HANDLE_BYTES + 4);
	if (!is("listen-unset"))
		*comm = is("listen-null") ? NULL : &listeners[id[1]];
	return NCCL_SUCCESS;
}

static struct conn *conn_new(void)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (c) {
		c->ends = 2;
		c->idle_descriptor = is("descriptors") ? dup(0) : -1;
	}
	return c;
}

/* The first calls give no comm. */
static enum nccl_result bad_connect(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	struct listener *l;
	uint32_t id[2];

	(void)ctx, (void)dev, (void)device;
	ENTER("connect");
	if (is("connect-unset"))
		return NCCL_SUCCESS;
	memcpy(id, handle, sizeof(id));
	if (id[0] != MAGIC || id[1] >= LISTENERS)
		return NCCL_INVALID_ARGUMENT;
	l = &listeners[id[1]];
	*comm = NULL;
	if (l->asked++ < TURNS || is("connect-never"))
		return NCCL_SUCCESS;
	*comm = l->dialled = conn_new();
	return *comm ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

static enum nccl_result bad_accept(
	void *listen_comm, void **comm, struct nccl_net_device_handle **device)
{
	struct listener *l = listen_comm;

	(void)device;
	ENTER("accept");
	if (is("accept-early") && !l->dialled)
		l->dialled = conn_new();
	if (!is("accept-unset"))
		*comm = l->dialled;
	if (l->dialled && !is("accept-early"))
		l->dialled = NULL;
	return NCCL_SUCCESS;
}

static enum nccl_result bad_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	(void)comm, (void)data, (void)size;
	ENTER("regMr");
	*mhandle = NULL;
	return type == NCCL_PTR_HOST ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

static enum nccl_result bad_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	(void)comm, (void)data, (void)size, (void)type, (void)offset, (void)fd, (void)mhandle;
	return NCCL_INVALID_USAGE;
}

static enum nccl_result bad_dereg(void *comm, void *mhandle)
{
	(void)comm, (void)mhandle;
	ENTER("deregMr");
	return NCCL_SUCCESS;
}

/* ---- requests ---- */

static struct request *request_new(struct conn *c, bool is_send)
{
	unsigned most = is("few-requests") && !is_send ? 4 : 32, used = 0;
	struct request *r = NULL;

	for (unsigned i = 0; i < REQUESTS; i++) {
		used += c->request[is_send][i].used;
		if (!c->request[is_send][i].used)
			r = &c->request[is_send][i];
	}
	if (!r || used >= most)
		return NULL;
	*r = (struct request){ .conn = c, .used = true, .is_send = is_send, .turns = 1 };
	if (c->tail[is_send])
		c->tail[is_send]->next = r;
	else
		c->head[is_send] = r;
	c->tail[is_send] = r;
	c->posted[is_send]++;
	return r;
}

static void copy_one(struct request *recv, int k, const struct request *send)
{
	size_t len = DR_MIN(send->size[0], recv->size[k]);

	if (len)
		memcpy(recv->data[k], send->data[0], len);
	if (is("corrupt") && len > 100)
		recv->data[k][len / 2] ^= 1;
	if (is("bounds"))
		recv->data[k][recv->size[k] + 3] = 0;
	recv->got[k] = is("oversize")	? (int)recv->size[k] + 8
		       : is("capacity") ? (int)recv->size[k]
					: (int)len;
}

/* The oldest send with that tag that no receive has; two of them are exchanged by the bug. */
static struct request *find_send(struct conn *c, int tag)
{
	struct request *first = NULL;

	for (struct request *s = c->head[1]; s; s = s->next) {
		if (s->matched || (s->tag[0] != tag && !is("tags")))
			continue;
		if (!is("order"))
			return s;
		if (first)
			return s;
		first = s;
	}
	return first;
}

/* The oldest receive gets its messages when all of them were sent. */
static void match(struct conn *c)
{
	struct request *r = c->head[0];

	while (r && r->matched)
		r = r->next;
	if (!r)
		return;
	for (int k = 0; k < r->n; k++) {
		r->match[k] = find_send(c, r->tag[k]);
		if (!r->match[k]) { /* the sends are not done before all are there */
			while (k-- > 0)
				r->match[k]->matched = false;
			return;
		}
		r->match[k]->matched = true;
	}
	for (int k = 0; k < r->n; k++)
		if (!is("early"))
			copy_one(r, k, r->match[k]);
		else
			r->got[k] = (int)r->match[k]->size[0];
	r->matched = true;
}

/* Leaves the list; its place can be used again. */
static void request_end(struct request *r)
{
	struct conn *c = r->conn;
	struct request **at = &c->head[r->is_send], *last = NULL;

	while (*at && *at != r) {
		last = *at;
		at = &last->next;
	}
	*at = r->next;
	if (c->tail[r->is_send] == r)
		c->tail[r->is_send] = last;
	r->used = is("leak");
}

static enum nccl_result bad_isend(
	void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	struct request *r;

	(void)mhandle, (void)phandle;
	ENTER("isend");
	if (is("isend-unset"))
		return NCCL_SUCCESS;
	r = request_new(comm, true);
	*request = r;
	if (r) {
		r->n = 1;
		r->data[0] = data;
		r->size[0] = size;
		r->tag[0] = tag;
	}
	return NCCL_SUCCESS;
}

static enum nccl_result bad_irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request)
{
	struct request *r;

	(void)mhandles, (void)phandles;
	ENTER("irecv");
	if (n > GROUP)
		return NCCL_INVALID_USAGE;
	r = request_new(comm, false);
	*request = r;
	for (int i = 0; r && i < n; i++) {
		r->n = n;
		r->data[i] = data[i];
		r->size[i] = sizes[i];
		r->tag[i] = tags[i];
	}
	return NCCL_SUCCESS;
}

static enum nccl_result bad_iflush(
	void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	(void)comm, (void)n, (void)data, (void)sizes, (void)mhandles, (void)request;
	return NCCL_INTERNAL_ERROR;
}

static bool is_lost(const struct request *r)
{
	unsigned n = r->conn->posted[r->is_send];

	return (is("lost-send") && r->is_send && n > 5) ||
	       (is("lost-receive") && !r->is_send && n > 5) ||
	       (is("lost-empty") && !r->is_send && r->got[0] == 0);
}

static enum nccl_result bad_test(void *request, int *done, int *sizes)
{
	struct request *r = request;

	ENTER("test");
	match(r->conn);
	if (is("test-unset"))
		return NCCL_SUCCESS;
	*done = r->matched && r->turns-- == 0 && !is_lost(r);
	if (r->matched && !*done)
		r->turns = is_lost(r) ? 1 : 0;
	if (!*done)
		return NCCL_SUCCESS;
	/* The violation: the data follow when the send is tested. */
	if (is("early") && r->is_send)
		for (struct request *x = r->conn->request[0]; x < r->conn->request[0] + REQUESTS;
			x++)
			for (int k = 0; k < x->n; k++)
				if (x->match[k] == r)
					copy_one(x, k, r);
	for (int k = 0; sizes && k < r->n; k++)
		sizes[k] = r->is_send ? (int)r->size[k] : r->got[k];
	request_end(r);
	return NCCL_SUCCESS;
}

static void end_close(struct conn *c)
{
	if (--c->ends == 0)
		free(c);
}

static enum nccl_result bad_close_send(void *comm)
{
	ENTER("closeSend");
	end_close(comm);
	return NCCL_SUCCESS;
}

static enum nccl_result bad_close_recv(void *comm)
{
	struct conn *c = comm;

	ENTER("closeRecv");
	for (struct request *r = c->head[0]; is("late") && r; r = r->next)
		memset(r->data[0], 0, r->size[0]);
	end_close(c);
	return NCCL_SUCCESS;
}

static enum nccl_result bad_close_listen(void *listen_comm)
{
	struct listener *l = listen_comm;

	ENTER("closeListen");
	l->used = false;
	return NCCL_SUCCESS;
}

static enum nccl_result bad_finalize(void *ctx)
{
	(void)ctx;
	ENTER("finalize");
	return NCCL_SUCCESS;
}

DR_EXPORT struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = "bad",
	.init = bad_init,
	.devices = bad_devices,
	.getProperties = bad_properties,
	.listen = bad_listen,
	.connect = bad_connect,
	.accept = bad_accept,
	.regMr = bad_reg,
	.regMrDmaBuf = bad_reg_dmabuf,
	.deregMr = bad_dereg,
	.isend = bad_isend,
	.irecv = bad_irecv,
	.iflush = bad_iflush,
	.test = bad_test,
	.closeSend = bad_close_send,
	.closeRecv = bad_close_recv,
	.closeListen = bad_close_listen,
	.finalize = bad_finalize,
};

__attribute__((constructor)) static void loaded(void)
{
	(void)entered("dlopen");
	if (is("finalize-null"))
		ncclNetPlugin_v11.finalize = NULL;
}
