/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/net.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "plugin/gin.h"
#include "plugin/log.h"
#include "plugin/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * NCCL's calls. There is one struct ha_process, from the first context to the last; `life` protects it and the count of
 * contexts. A call on a comm never takes `life`.
 *
 * A process that was forked has none of the threads: calls from it fail.
 */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static struct ha_process *process;
/* What a context points to. NCCL's own RMA passes it to its InfiniBand transport, which reads and
 * writes a traffic class there (src/transport/net_ib of 2.29.7 to 2.32.3). */
static struct nccl_net_comm_config context = { NCCL_NET_UNDEFINED };

static const uint32_t LISTEN_MAGIC = 0x48414c53;

/* Grows in a process that was forked: what its parent opened is not its own. */
static unsigned generation = 1;
static bool fork_watched;

static void forked(void)
{
	generation++;
	process = NULL; /* its threads are the parent's */
}

/* What the handle holds while NCCL repeats connect. */
static const char DIALLING[8] = "HADIALLS";

static enum nccl_result result(int err)
{
	switch (-err) {
	case 0:
		return NCCL_SUCCESS;
	case EMSGSIZE:
		return NCCL_INVALID_USAGE;
	case EINVAL:
		return NCCL_INVALID_ARGUMENT;
	case ENODEV:
	case ENOMEM:
	case EMFILE:
	case EADDRNOTAVAIL:
	case EADDRINUSE:
		return NCCL_SYSTEM_ERROR;
	default:
		return NCCL_REMOTE_ERROR;
	}
}

static struct ha_process *running(void)
{
	struct ha_process *p = __atomic_load_n(&process, __ATOMIC_ACQUIRE);

	if (!p)
		dr_warn("plugin", "called before init, after the last finalize, or after a fork");
	return p;
}

static enum nccl_result misuse(const char *what)
{
	dr_warn("comm", "%s", what);
	return NCCL_INVALID_ARGUMENT;
}

/* An endpoint of this process. */
static struct ha_endpoint *endpoint(void *comm)
{
	struct ha_endpoint *n = comm;

	return n && n->magic == ha_endpoint_magic && n->generation == generation ? n : NULL;
}

/* ---- life ---- */

enum nccl_result ha_net_init(void **ctx, uint64_t comm_id, int traffic_class, nccl_logger_fn logger)
{
	struct dr_err e = { 0 };
	struct ha_process *p = NULL;
	int rc = 0;

	(void)comm_id, (void)traffic_class;
	*ctx = NULL;
	pthread_mutex_lock(&life);
	ha_log_start(logger);
	if (!fork_watched)
		fork_watched = pthread_atfork(NULL, NULL, forked) == 0;
	if (!process) {
		rc = ha_process_start(&p, &e);
		if (rc == 0) {
			p->generation = generation;
			__atomic_store_n(&process, p, __ATOMIC_RELEASE);
			ha_gin_report(logger);
		} else {
			dr_warn("plugin", "%s", e.text);
		}
	}
	if (rc == 0) {
		process->contexts++;
		*ctx = &context;
	}
	pthread_mutex_unlock(&life);
	return result(rc);
}

enum nccl_result ha_net_finalize(void *ctx)
{
	struct ha_process *p = NULL;

	if (!ctx)
		return NCCL_SUCCESS;
	pthread_mutex_lock(&life);
	if (process && --process->contexts == 0) {
		p = process;
		__atomic_store_n(&process, NULL, __ATOMIC_RELEASE);
		ha_process_stop(p);
		ha_log_stop();
	}
	pthread_mutex_unlock(&life);
	return NCCL_SUCCESS;
}

/* Versions 6 to 10 have no finalize: at exit, messages of requests that are done are still delivered, and peers are
 * told. */
__attribute__((destructor)) static void at_exit(void)
{
	struct ha_process *p = process;

	if (!p || pthread_mutex_trylock(&life) != 0)
		return;
	__atomic_store_n(&process, NULL, __ATOMIC_RELEASE);
	ha_log_stop();
	ha_process_stop(p);
	pthread_mutex_unlock(&life);
}

enum nccl_result ha_net_devices(int *n)
{
	struct ha_process *p = running();

	*n = p ? (int)p->devices->n : 0;
	return p ? NCCL_SUCCESS : NCCL_INTERNAL_ERROR;
}

enum nccl_result ha_net_properties(int dev, struct nccl_net_properties_v12 *out)
{
	struct ha_process *p = running();

	memset(out, 0, sizeof(*out));
	if (!p)
		return NCCL_INTERNAL_ERROR;
	if (dev < 0 || (unsigned)dev >= p->devices->n)
		return NCCL_INVALID_ARGUMENT;
	ha_device_properties(p->devices, (unsigned)dev, out);
	return NCCL_SUCCESS;
}

/* ---- connections ---- */

/* *closed: of an object of p, which the control thread closes. */
static void mark_closed(struct ha_process *p, bool *closed)
{
	pthread_mutex_lock(&p->lock);
	*closed = true;
	pthread_mutex_unlock(&p->lock);
	ha_process_wake(p);
}

struct do_listen {
	struct ha_listen *l;
	uint8_t *handle;
	struct dr_err e;
	int rc;
};

static void do_listen(void *arg, int64_t now)
{
	struct do_listen *d = arg;
	struct dr_rdv_addr own[DR_RDV_ADDRS_MAX];
	struct dr_rdv_listen_opts o = { .addrs = own, .arg = d->l, .flags = (uint8_t)d->l->dev };

	_Static_assert((int)HA_DEVICES_MAX <= UINT8_MAX, "the handle's flags are the device");
	(void)now;
	o.n = ha_process_rendezvous(d->l->p, d->l->dev, own, DR_RDV_ADDRS_MAX);
	d->rc = dr_rdv_listen(d->l->p->rdv, &o, &d->l->rdv, d->handle, &d->e);
	d->rc = ha_config_taken(&d->l->p->cfg, d->rc, &d->e);
}

enum nccl_result ha_net_listen(void *ctx, int dev, void *handle, void **listen_comm)
{
	struct ha_process *p = running();
	struct do_listen d = { .handle = handle };

	(void)ctx;
	*listen_comm = NULL;
	if (!p)
		return NCCL_INTERNAL_ERROR;
	if (dev < 0 || (unsigned)dev >= p->devices->n)
		return NCCL_INVALID_ARGUMENT;
	d.l = dr_calloc(1, sizeof(*d.l));
	if (!d.l)
		return NCCL_SYSTEM_ERROR;
	d.l->magic = LISTEN_MAGIC;
	d.l->p = p;
	d.l->dev = (unsigned)dev;
	ha_thread_call(p->control, do_listen, &d);
	if (d.rc != 0) {
		dr_warn("comm", "listen: %s", d.e.text);
		dr_free(d.l);
		return result(d.rc);
	}
	pthread_mutex_lock(&p->lock);
	d.l->next = p->listens;
	p->listens = d.l;
	pthread_mutex_unlock(&p->lock);
	*listen_comm = d.l;
	return NCCL_SUCCESS;
}

enum nccl_result ha_net_close_listen(void *listen_comm)
{
	struct ha_listen *l = listen_comm;

	if (!l)
		return NCCL_SUCCESS;
	if (l->magic != LISTEN_MAGIC)
		return NCCL_INVALID_ARGUMENT;
	if (l->p != running())
		return NCCL_INTERNAL_ERROR;
	mark_closed(l->p, &l->closed);
	return NCCL_SUCCESS;
}

static struct ha_endpoint *dialling(struct ha_process *p, const uint8_t *handle)
{
	struct ha_endpoint *n = NULL;
	uint64_t id;

	if (memcmp(handle, DIALLING, sizeof(DIALLING)) != 0)
		return NULL;
	memcpy(&id, handle + sizeof(DIALLING), sizeof(id));
	pthread_mutex_lock(&p->lock);
	for (n = p->endpoints; n && (!n->sender || n->id != id || n->taken); n = n->next)
		;
	pthread_mutex_unlock(&p->lock);
	return n;
}

static struct ha_endpoint *start_dial(struct ha_process *p, unsigned dev, uint8_t *handle)
{
	struct ha_endpoint like = { .sender = true, .dev = dev, .state = HA_ENDPOINT_NEW }, *n;

	memcpy(like.handle, handle, sizeof(like.handle));
	if (dr_random_bytes(&like.id, sizeof(like.id)) != 0)
		return NULL;
	n = ha_endpoint_add(p, &like);
	if (!n)
		return NULL;
	memcpy(handle, DIALLING, sizeof(DIALLING));
	memcpy(handle + sizeof(DIALLING), &like.id, sizeof(like.id));
	ha_process_wake(p);
	return n;
}

/* *out is set when the comm carries data. */
static enum nccl_result look(struct ha_endpoint *n, void **out)
{
	enum ha_endpoint_state state;
	int rc;

	pthread_mutex_lock(&n->p->lock);
	state = n->state;
	rc = n->err;
	pthread_mutex_unlock(&n->p->lock);
	if (state == HA_ENDPOINT_FAILED)
		return result(rc);
	if (state != HA_ENDPOINT_STARTING)
		return NCCL_SUCCESS;
	rc = ha_comm_ready(n->comm);
	if (rc == 0)
		return NCCL_SUCCESS;
	if (rc < 0 && rc != -ESHUTDOWN &&
		rc != -ECANCELED) { /* ended by the peer: the first message fails */
		dr_warn("comm", "%s: the connection failed (%s)", n->sender ? "connect" : "accept",
			dr_errno_name(rc));
		return result(rc);
	}
	pthread_mutex_lock(&n->p->lock);
	n->state = HA_ENDPOINT_UP;
	n->taken = true;
	n->listen = NULL;
	pthread_mutex_unlock(&n->p->lock);
	*out = n;
	return NCCL_SUCCESS;
}

enum nccl_result ha_net_connect(void *ctx, int dev, void *handle, void **send_comm)
{
	struct ha_process *p = running();
	struct ha_endpoint *n;
	enum nccl_result rc;

	(void)ctx;
	*send_comm = NULL;
	if (!p)
		return NCCL_INTERNAL_ERROR;
	if (dev < 0 || (unsigned)dev >= p->devices->n)
		return NCCL_INVALID_ARGUMENT;
	n = dialling(p, handle);
	if (!n)
		n = start_dial(p, (unsigned)dev, handle);
	if (!n)
		return NCCL_SYSTEM_ERROR;
	rc = look(n, send_comm);
	if (rc != NCCL_SUCCESS) /* NCCL gives up */
		mark_closed(p, &n->closed);
	return rc;
}

enum nccl_result ha_net_accept(void *listen_comm, void **recv_comm)
{
	struct ha_listen *l = listen_comm;
	struct ha_endpoint *n, *oldest = NULL;

	*recv_comm = NULL;
	if (!l || l->magic != LISTEN_MAGIC)
		return NCCL_INVALID_ARGUMENT;
	if (l->p != running())
		return NCCL_INTERNAL_ERROR;
	pthread_mutex_lock(&l->p->lock);
	for (n = l->p->endpoints; n; n = n->next) /* the newest first */
		if (n->listen == l && n->state == HA_ENDPOINT_STARTING && !n->closed)
			oldest = n;
	pthread_mutex_unlock(&l->p->lock);
	return oldest ? look(oldest, recv_comm) : NCCL_SUCCESS;
}

enum nccl_result ha_net_close(void *comm)
{
	struct ha_endpoint *n = endpoint(comm);

	if (!comm)
		return NCCL_SUCCESS;
	if (!n)
		return misuse("close: not a comm of this process");
	mark_closed(n->p, &n->closed);
	return NCCL_SUCCESS;
}

/* ---- memory ---- */

enum nccl_result ha_net_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct ha_endpoint *n = endpoint(comm);
	struct dr_memory m = { .base = data, .len = size, .kind = DR_MEMORY_HOST };
	struct dr_err e = { 0 };
	struct ha_mr *mr = NULL;
	int rc;

	*mhandle = NULL;
	if (!n || !data || size == 0)
		return misuse("regMr: no comm of this process, or no memory");
	if (type != NCCL_PTR_HOST) {
		dr_warn("comm", "memory of type %d cannot be registered: only host memory (%d)",
			type, NCCL_PTR_HOST);
		return NCCL_INVALID_USAGE;
	}
	rc = ha_mr_reg(n->comm, &m, &mr, &e);
	if (rc != 0)
		dr_warn("comm", "%s", e.text);
	*mhandle = mr;
	return rc ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS;
}

enum nccl_result ha_net_dereg(void *comm, void *mhandle)
{
	struct ha_endpoint *n = endpoint(comm);
	struct dr_err e = { 0 };

	if (!mhandle)
		return NCCL_SUCCESS;
	if (!n)
		return misuse("deregMr: not a comm of this process");
	ha_comm_forget(n->comm, mhandle);
	if (ha_mr_dereg(n->comm, mhandle, &e) == 0)
		return NCCL_SUCCESS;
	dr_warn("comm", "%s", e.text);
	return NCCL_SYSTEM_ERROR;
}

/* ---- messages ---- */

static bool inside(const struct ha_mr *mr, const void *data, size_t size)
{
	uintptr_t at = (uintptr_t)data, base = (uintptr_t)mr->base;

	return at >= base && at - base <= mr->len && size <= mr->len - (at - base);
}

enum nccl_result ha_net_send(
	void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct ha_endpoint *n = endpoint(comm);
	const struct ha_buffer b = { mhandle, data, size, (uint32_t)tag };
	struct ha_request *r = NULL;
	int rc;

	*request = NULL;
	if (!n || !n->sender)
		return misuse("isend: not a send comm");
	if (size > 0 && (!b.mr || !inside(b.mr, data, size)))
		return misuse("isend: the buffer is not registered");
	rc = ha_comm_send(n->comm, &b, &r);
	*request = r;
	return result(rc);
}

enum nccl_result ha_net_recv(void *comm, int count, void **data, const size_t *sizes,
	const int *tags, void **mhandles, void **request)
{
	struct ha_endpoint *n = endpoint(comm);
	struct ha_buffer b[HA_BUFFERS_MAX];
	struct ha_request *r = NULL;
	int rc;

	*request = NULL;
	if (!n || n->sender)
		return misuse("irecv: not a receive comm");
	if (count < 1 || count > HA_BUFFERS_MAX)
		return misuse("irecv: the number of buffers is not in 1..8");
	for (int i = 0; i < count; i++) {
		b[i] = (struct ha_buffer){ mhandles[i], data[i], sizes[i], (uint32_t)tags[i] };
		if (sizes[i] > 0 && (!b[i].mr || !inside(b[i].mr, data[i], sizes[i])))
			return misuse("irecv: a buffer is not registered");
	}
	rc = ha_comm_recv(n->comm, b, (unsigned)count, &r);
	*request = r;
	return result(rc);
}

enum nccl_result ha_net_test(void *request, int *done, int *sizes)
{
	bool d = false;
	int rc;

	*done = 0;
	if (!request || ((struct ha_request *)request)->comm->generation != generation)
		return misuse("test: not a request of this process");
	rc = ha_comm_test(request, &d, sizes);
	*done = d;
	return result(rc);
}
