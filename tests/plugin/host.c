/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugin/host.h"

#include "base/defs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define T(v) ((const struct nccl_net_v##v *)h->table)
/* Evaluates `call` with the table of this version. */
#define COMMON(v)                                                                                  \
	do {                                                                                       \
		h->name = T(v)->name;                                                              \
		h->devices = T(v)->devices;                                                        \
		h->dereg = T(v)->deregMr;                                                          \
		h->flush = T(v)->iflush;                                                           \
		h->test = T(v)->test;                                                              \
		h->close_send = T(v)->closeSend;                                                   \
		h->close_recv = T(v)->closeRecv;                                                   \
		h->close_listen = T(v)->closeListen;                                               \
	} while (0)

enum { POISON = 0xa5, ENTRIES = 64 };

static struct host_log *log_to;
static _Thread_local bool no_device_handles;

/* ---- log ---- */

__attribute__((format(printf, 5, 6))) static void logger(enum nccl_log_level level,
	unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	struct host_line *l;
	va_list ap;

	(void)flags, (void)file, (void)line;
	if (!log_to)
		return;
	l = &log_to->line[atomic_fetch_add(&log_to->n, 1) % HOST_LINES];
	atomic_store(&l->whole, false);
	l->level = level;
	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
	atomic_store(&l->whole, true);
}

void host_log_to(struct host_log *log)
{
	log_to = log;
}

unsigned host_logged(const struct host_log *log, enum nccl_log_level level, const char *text)
{
	unsigned n = atomic_load(&log->n), found = 0;

	for (unsigned i = n > HOST_LINES ? n - HOST_LINES : 0; i < n; i++) {
		const struct host_line *l = &log->line[i % HOST_LINES];

		found += atomic_load(&l->whole) && (level == NCCL_LOG_NONE || l->level == level) &&
			 strstr(l->text, text);
	}
	return found;
}

/* ---- loading ---- */

static void find_common(struct host *h)
{
	switch (h->version) {
	case 6:
		COMMON(6);
		break;
	case 7:
		COMMON(7);
		break;
	case 8:
		COMMON(8);
		break;
	case 9:
		COMMON(9);
		break;
	case 10:
		COMMON(10);
		break;
	case 11:
		COMMON(11);
		break;
	default:
		COMMON(12);
	}
}

int host_load(struct host *h, const char *file, unsigned version, char *why, size_t len)
{
	char symbol[32];

	memset(h, 0, sizeof(*h));
	h->version = version;
	h->so = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!h->so) {
		snprintf(why, len, "dlopen: %s", dlerror());
		return -ENOENT;
	}
	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%u", version);
	h->table = dlsym(h->so, symbol);
	if (!h->table) {
		snprintf(why, len, "%s has no %s", file, symbol);
		host_unload(h);
		return -ENOSYS;
	}
	find_common(h);
	return 0;
}

void host_unload(struct host *h)
{
	if (h->so)
		dlclose(h->so);
	memset(h, 0, sizeof(*h));
}

bool host_has_contexts(const struct host *h)
{
	return h->version >= 11;
}

/* ---- init, devices ---- */

static enum nccl_result init_once(struct host *h)
{
	switch (h->version) {
	case 6:
		return T(6)->init(logger);
	case 7:
		return T(7)->init(logger);
	case 8:
		return T(8)->init(logger);
	case 9:
		return T(9)->init(logger);
	default:
		return T(10)->init(logger, NULL);
	}
}

enum nccl_result host_init(struct host *h, void **ctx)
{
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	enum nccl_result rc = NCCL_SUCCESS;
	uint64_t id = h->contexts + 1;

	*ctx = NULL;
	if (host_has_contexts(h)) {
		*ctx = (void *)(uintptr_t)0xbad;
		rc = h->version == 11 ? T(11)->init(ctx, id, &config, logger, NULL)
				      : T(12)->init(ctx, id, &config, logger, NULL);
	} else if (h->contexts == 0) {
		rc = init_once(h);
	}
	h->contexts += rc == NCCL_SUCCESS;
	return rc;
}

enum nccl_result host_finalize(struct host *h, void *ctx)
{
	if (ctx || !host_has_contexts(h))
		h->contexts -= h->contexts > 0;
	if (!host_has_contexts(h))
		return NCCL_SUCCESS;
	return h->version == 11 ? T(11)->finalize(ctx) : T(12)->finalize(ctx);
}

#define HEAD(p)                                                                                    \
	(out->name = (p)->name, out->pci_path = (p)->pciPath, out->guid = (p)->guid,               \
		out->ptr_support = (p)->ptrSupport, out->speed = (p)->speed,                       \
		out->port = (p)->port, out->latency = (p)->latency,                                \
		out->max_comms = (p)->maxComms, out->max_recvs = (p)->maxRecvs)
#define DEVICE(p)                                                                                  \
	(out->has.device = true, out->device_type = (p)->netDeviceType,                            \
		out->device_version = (p)->netDeviceVersion)
#define GLOBAL(p) (out->has.global = true, out->reg_is_global = (p)->regIsGlobal)
#define VPROPS(p)                                                                                  \
	do {                                                                                       \
		out->has.vprops = true;                                                            \
		out->force_flush = (p)->forceFlush;                                                \
		out->ndevs = (p)->vProps.ndevs;                                                    \
		out->first_dev = (p)->vProps.devs[0];                                              \
		out->p2p_bytes = (p)->maxP2pBytes;                                                 \
		out->coll_bytes = (p)->maxCollBytes;                                               \
		for (size_t i_ = 1; i_ < DR_ARRAY_LEN((p)->vProps.devs); i_++)                     \
			if ((int)i_ >= out->ndevs && (p)->vProps.devs[i_] != 0)                    \
				out->rest_zero = false;                                            \
	} while (0)
#define MULTI(p) (out->has.multi = true, out->multi_request = (p)->maxMultiRequestSize)
#define RAIL(p) (out->has.rail = true, out->rail_id = (p)->railId, out->plane_id = (p)->planeId)

static enum nccl_result ask(const struct host *h, int dev, void *props)
{
	switch (h->version) {
	case 6:
		return T(6)->getProperties(dev, props);
	case 7:
		return T(7)->getProperties(dev, props);
	case 8:
		return T(8)->getProperties(dev, props);
	case 9:
		return T(9)->getProperties(dev, props);
	case 10:
		return T(10)->getProperties(dev, props);
	case 11:
		return T(11)->getProperties(dev, props);
	default:
		return T(12)->getProperties(dev, props);
	}
}

static size_t properties_bytes(unsigned version)
{
	static const size_t bytes[] = { sizeof(struct nccl_net_properties_v6),
		sizeof(struct nccl_net_properties_v7), sizeof(struct nccl_net_properties_v8),
		sizeof(struct nccl_net_properties_v9), sizeof(struct nccl_net_properties_v9),
		sizeof(struct nccl_net_properties_v11), sizeof(struct nccl_net_properties_v12) };

	return bytes[version - HOST_OLDEST];
}

union any_properties {
	struct nccl_net_properties_v6 v6;
	struct nccl_net_properties_v7 v7;
	struct nccl_net_properties_v8 v8;
	struct nccl_net_properties_v9 v9;
	struct nccl_net_properties_v11 v11;
	struct nccl_net_properties_v12 v12;
	unsigned char bytes[sizeof(struct nccl_net_properties_v12) + 64];
};

static void read_properties(
	unsigned version, const union any_properties *p, struct host_properties *out)
{
	if (version == 6) {
		HEAD(&p->v6);
	} else if (version == 7) {
		HEAD(&p->v7);
		DEVICE(&p->v7);
	} else if (version == 8) {
		HEAD(&p->v8);
		DEVICE(&p->v8);
		GLOBAL(&p->v8);
	} else if (version < 11) {
		HEAD(&p->v9);
		DEVICE(&p->v9);
		GLOBAL(&p->v9);
		VPROPS(&p->v9);
	} else if (version == 11) {
		HEAD(&p->v11);
		DEVICE(&p->v11);
		GLOBAL(&p->v11);
		VPROPS(&p->v11);
		MULTI(&p->v11);
	} else {
		HEAD(&p->v12);
		DEVICE(&p->v12);
		GLOBAL(&p->v12);
		VPROPS(&p->v12);
		MULTI(&p->v12);
		RAIL(&p->v12);
	}
}

enum nccl_result host_properties(const struct host *h, int dev, struct host_properties *out)
{
	union any_properties p;
	enum nccl_result rc;

	memset(&p, POISON, sizeof(p));
	memset(out, 0, sizeof(*out));
	out->rest_zero = true;
	rc = ask(h, dev, &p);
	for (size_t i = properties_bytes(h->version); i < sizeof(p); i++)
		out->past_end = out->past_end || p.bytes[i] != POISON;
	if (rc == NCCL_SUCCESS)
		read_properties(h->version, &p, out);
	return rc;
}

/* ---- connections ---- */

enum nccl_result host_listen(
	const struct host *h, void *ctx, int dev, void *handle, void **listen_comm)
{
	switch (h->version) {
	case 6:
		return T(6)->listen(dev, handle, listen_comm);
	case 7:
		return T(7)->listen(dev, handle, listen_comm);
	case 8:
		return T(8)->listen(dev, handle, listen_comm);
	case 9:
		return T(9)->listen(dev, handle, listen_comm);
	case 10:
		return T(10)->listen(dev, handle, listen_comm);
	case 11:
		return T(11)->listen(ctx, dev, handle, listen_comm);
	default:
		return T(12)->listen(ctx, dev, handle, listen_comm);
	}
}

void host_no_device_handles(bool on)
{
	no_device_handles = on;
}

enum nccl_result host_connect(
	const struct host *h, void *ctx, int dev, void *handle, void **send_comm)
{
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	struct nccl_net_device_handle *nowhere = NULL;
	struct nccl_net_device_handle **device = no_device_handles ? NULL : &nowhere;

	*send_comm = (void *)(uintptr_t)0xbad; /* the plugin has to set it */
	switch (h->version) {
	case 6:
		return T(6)->connect(dev, handle, send_comm);
	case 7:
		return T(7)->connect(dev, handle, send_comm, device);
	case 8:
		return T(8)->connect(dev, handle, send_comm, device);
	case 9:
		return T(9)->connect(dev, handle, send_comm, device);
	case 10:
		return T(10)->connect(dev, &config, handle, send_comm, device);
	case 11:
		return T(11)->connect(ctx, dev, handle, send_comm, device);
	default:
		return T(12)->connect(ctx, dev, handle, send_comm, device);
	}
}

enum nccl_result host_accept(const struct host *h, void *listen_comm, void **recv_comm)
{
	struct nccl_net_device_handle *nowhere = NULL;
	struct nccl_net_device_handle **device = no_device_handles ? NULL : &nowhere;

	*recv_comm = (void *)(uintptr_t)0xbad;
	switch (h->version) {
	case 6:
		return T(6)->accept(listen_comm, recv_comm);
	case 7:
		return T(7)->accept(listen_comm, recv_comm, device);
	case 8:
		return T(8)->accept(listen_comm, recv_comm, device);
	case 9:
		return T(9)->accept(listen_comm, recv_comm, device);
	case 10:
		return T(10)->accept(listen_comm, recv_comm, device);
	case 11:
		return T(11)->accept(listen_comm, recv_comm, device);
	default:
		return T(12)->accept(listen_comm, recv_comm, device);
	}
}

enum nccl_result host_reg(
	const struct host *h, void *comm, void *data, size_t size, int type, void **mhandle)
{
	*mhandle = (void *)(uintptr_t)0xbad;
	switch (h->version) {
	case 6:
		return T(6)->regMr(comm, data, (int)size, type, mhandle);
	case 7:
		return T(7)->regMr(comm, data, (int)size, type, mhandle);
	case 8:
		return T(8)->regMr(comm, data, size, type, mhandle);
	case 9:
		return T(9)->regMr(comm, data, size, type, mhandle);
	case 10:
		return T(10)->regMr(comm, data, size, type, mhandle);
	case 11:
		return T(11)->regMr(comm, data, size, type, mhandle);
	default:
		return T(12)->regMr(comm, data, size, type, mhandle);
	}
}

/* ---- messages ---- */

enum nccl_result host_send(
	const struct host *h, void *comm, const struct host_buffer *b, void **request)
{
	void *m = b->mhandle;

	switch (h->version) {
	case 6:
		return T(6)->isend(comm, b->data, (int)b->size, b->tag, m, request);
	case 7:
		return T(7)->isend(comm, b->data, (int)b->size, b->tag, m, request);
	case 8:
		return T(8)->isend(comm, b->data, (int)b->size, b->tag, m, request);
	case 9:
		return T(9)->isend(comm, b->data, b->size, b->tag, m, request);
	case 10:
		return T(10)->isend(comm, b->data, b->size, b->tag, m, NULL, request);
	case 11:
		return T(11)->isend(comm, b->data, b->size, b->tag, m, NULL, request);
	default:
		return T(12)->isend(comm, b->data, b->size, b->tag, m, NULL, request);
	}
}

enum nccl_result host_recv(
	const struct host *h, void *comm, int n, const struct host_buffer *b, void **request)
{
	void *data[ENTRIES], *m[ENTRIES], *profile[ENTRIES] = { NULL };
	size_t wide[ENTRIES];
	int sizes[ENTRIES], tags[ENTRIES];

	for (int i = 0; i < n && i < ENTRIES; i++) {
		data[i] = b[i].data;
		m[i] = b[i].mhandle;
		wide[i] = b[i].size;
		sizes[i] = (int)b[i].size;
		tags[i] = b[i].tag;
	}
	switch (h->version) {
	case 6:
		return T(6)->irecv(comm, n, data, sizes, tags, m, request);
	case 7:
		return T(7)->irecv(comm, n, data, sizes, tags, m, request);
	case 8:
		return T(8)->irecv(comm, n, data, sizes, tags, m, request);
	case 9:
		return T(9)->irecv(comm, n, data, wide, tags, m, request);
	case 10:
		return T(10)->irecv(comm, n, data, wide, tags, m, profile, request);
	case 11:
		return T(11)->irecv(comm, n, data, wide, tags, m, profile, request);
	default:
		return T(12)->irecv(comm, n, data, wide, tags, m, profile, request);
	}
}

int host_set_attr(const struct host *h, void *ctx, struct nccl_net_attr *attr)
{
	enum nccl_result (*set)(void *, struct nccl_net_attr *) = NULL;

	if (h->version == 11)
		set = T(11)->setNetAttr;
	else if (h->version == 12)
		set = T(12)->setNetAttr;
	return set ? (int)set(ctx, attr) : -1;
}

bool host_has_consumed(const struct host *h)
{
	/* Same offset in all versions that have it. */
	return h->version >= 7 && T(7)->irecvConsumed != NULL;
}

bool host_has_device_mr(const struct host *h)
{
	return h->version >= 7 && T(7)->getDeviceMr != NULL;
}

const char *host_result_name(enum nccl_result rc)
{
	static const char *const names[] = { "success", "unhandled CUDA error", "system error",
		"internal error", "invalid argument", "invalid usage", "remote error",
		"in progress" };

	return (unsigned)rc < DR_ARRAY_LEN(names) ? names[rc] : "unknown result";
}
