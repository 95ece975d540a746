/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/plugin_priv.h"

#include "base/privileges.h"
#include "transport/ncclnet/logger.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * One function per version copies its table into typed pointers; a call picks the pointer by the version. No pointer to
 * a function is cast.
 */

/* clang-format off */
#define NEED(member)                                                                               \
	if (!n->missing && !t->member)                                                             \
		n->missing = #member;
#define TAKE(v, INIT, PROPERTIES, LISTEN, CONNECT, ACCEPT, REG, MOVE, ...)                         \
	static void take_##v(struct dr_nccl *n, const void *table)                                 \
	{                                                                                          \
		const struct nccl_net_##v *t = table;                                              \
                                                                                                   \
		n->name = t->name;                                                                 \
		n->devices = t->devices;                                                           \
		n->init.INIT = t->init;                                                            \
		n->properties.PROPERTIES = t->getProperties;                                       \
		n->listen.LISTEN = t->listen;                                                      \
		n->connect.CONNECT = t->connect;                                                   \
		n->accept.ACCEPT = t->accept;                                                      \
		n->reg_mr.REG = t->regMr;                                                          \
		n->dereg_mr = t->deregMr;                                                          \
		n->reg_dmabuf = t->regMrDmaBuf;                                                    \
		n->isend.MOVE = t->isend;                                                          \
		n->irecv.MOVE = t->irecv;                                                          \
		n->flush = t->iflush;                                                              \
		n->test = t->test;                                                                 \
		n->close_send = t->closeSend;                                                      \
		n->close_recv = t->closeRecv;                                                      \
		n->close_listen = t->closeListen;                                                  \
		n->missing = NULL;                                                                 \
		NEED(name) NEED(init) NEED(devices) NEED(getProperties) NEED(listen) NEED(connect) \
		NEED(accept) NEED(regMr) NEED(deregMr) NEED(isend) NEED(irecv) NEED(test)          \
		NEED(closeSend) NEED(closeRecv) NEED(closeListen)                                  \
		__VA_ARGS__                                                                        \
	}
#define CONSUMED n->consumed = t->irecvConsumed;
/* NCCL calls finalize of these versions without looking. */
#define FINALIZE n->finalize = t->finalize; NEED(finalize)

/* Of each version: members of struct dr_nccl with the types of its functions, what else it has. */
TAKE(v6, plain, v6, plain, plain, plain, narrow, narrow)
TAKE(v7, plain, v7, plain, device, device, narrow, narrow, CONSUMED)
TAKE(v8, plain, v8, plain, device, device, wide, narrow, CONSUMED)
TAKE(v9, plain, v9, plain, device, device, wide, wide, CONSUMED)
TAKE(v10, profiled, v9, plain, config, device, wide, profiled, CONSUMED)
TAKE(v11, context, v11, context, context, device, wide, profiled, CONSUMED FINALIZE)
TAKE(v12, context, v12, context, context, device, wide, profiled, CONSUMED FINALIZE)
/* clang-format on */
static void (*const take[])(struct dr_nccl *, const void *) = { take_v6, take_v7, take_v8, take_v9,
	take_v10, take_v11, take_v12 };

void dr_nccl_take(struct dr_nccl *n, const void *table)
{
	take[n->version - DR_NCCL_OLDEST](n, table);
}

static const void *table_of(void *so, unsigned version)
{
	char symbol[32];

	snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%u", version);
	return dlsym(so, symbol);
}

/* "v6, v8" */
static void list_versions(unsigned exported, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = '\0';
	for (unsigned v = DR_NCCL_OLDEST; v <= DR_NCCL_NEWEST && at < len; v++)
		if (exported & 1u << v)
			at += (size_t)snprintf(buf + at, len - at, "%sv%u", at ? ", " : "", v);
}

int dr_nccl_open(struct dr_nccl *n, const char *file, unsigned version, struct dr_err *e)
{
	char has[64], here[PATH_MAX];

	memset(n, 0, sizeof(*n));
	if (dr_privileges_lent())
		return dr_err_set(e, -EPERM,
			"%.60s is not loaded: this program has file capabilities, which its code would get; remove them (setcap -r), or run as root",
			file);
	/* dlopen looks for a plain name in the system's folders alone. */
	snprintf(here, sizeof(here), "./%s", file);
	n->so = dlopen(
		strchr(file, '/') || access(here, F_OK) ? file : here, RTLD_NOW | RTLD_LOCAL);
	if (!n->so)
		return dr_err_set(e, -ENOENT, "%.60s cannot be loaded: %.160s", file, dlerror());
	for (unsigned v = DR_NCCL_OLDEST; v <= DR_NCCL_NEWEST; v++)
		if (table_of(n->so, v)) {
			n->exported |= 1u << v;
			n->version = v;
		}
	list_versions(n->exported, has, sizeof(has));
	if (!n->exported)
		dr_err_set(e, -ENOSYS,
			"%.100s is no network plugin of NCCL: it has no symbol ncclNetPlugin_v%d to v%d",
			file, DR_NCCL_OLDEST, DR_NCCL_NEWEST);
	else if (version && !(n->exported & 1u << version))
		dr_err_set(e, -ENOSYS, "%.100s has no ncclNetPlugin_v%u; it has %s: use --net-api",
			file, version, has);
	else
		version = version ? version : n->version;
	if (!version || !(n->exported & 1u << version)) {
		dr_nccl_close(n);
		return -ENOSYS;
	}
	n->version = version;
	dr_nccl_take(n, table_of(n->so, version));
	return 0;
}

void dr_nccl_close(struct dr_nccl *n)
{
	dlclose(n->so);
	n->so = NULL;
}

enum nccl_result dr_nccl_init(struct dr_nccl *n)
{
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	nccl_logger_fn logger = dr_nccl_logger();
	enum nccl_result rc;

	n->ctx = DR_NCCL_UNSET;
	if (n->version >= 11)
		rc = n->init.context(&n->ctx, 1, &config, logger, NULL);
	else if (n->version == 10)
		rc = n->init.profiled(logger, NULL);
	else
		rc = n->init.plain(logger);
	n->initialised = rc == NCCL_SUCCESS;
	return rc;
}

enum nccl_result dr_nccl_finalize(struct dr_nccl *n)
{
	if (!n->initialised || !n->finalize)
		return NCCL_SUCCESS;
	n->initialised = false;
	return n->finalize(n->ctx);
}

enum nccl_result dr_nccl_listen(const struct dr_nccl *n, int dev, void *handle, void **comm)
{
	*comm = DR_NCCL_UNSET;
	return n->version >= 11 ? n->listen.context(n->ctx, dev, handle, comm)
				: n->listen.plain(dev, handle, comm);
}

enum nccl_result dr_nccl_connect(const struct dr_nccl *n, int dev, void *handle, void **comm)
{
	struct nccl_net_comm_config config = { NCCL_NET_UNDEFINED };
	struct nccl_net_device_handle *device = NULL;

	*comm = DR_NCCL_UNSET;
	if (n->version >= 11)
		return n->connect.context(n->ctx, dev, handle, comm, &device);
	if (n->version == 10)
		return n->connect.config(dev, &config, handle, comm, &device);
	return n->version == 6 ? n->connect.plain(dev, handle, comm)
			       : n->connect.device(dev, handle, comm, &device);
}

enum nccl_result dr_nccl_accept(const struct dr_nccl *n, void *listen_comm, void **comm,
	struct nccl_net_device_handle **device)
{
	*comm = DR_NCCL_UNSET;
	return n->version == 6 ? n->accept.plain(listen_comm, comm)
			       : n->accept.device(listen_comm, comm, device);
}

int dr_nccl_reg(const struct dr_nccl *n, void *comm, struct dr_nccl_buffer *b, int type)
{
	b->mhandle = NULL;
	if (n->version >= 8)
		return (int)n->reg_mr.wide(comm, b->data, b->size, type, &b->mhandle);
	return b->size > INT32_MAX
		       ? -1
		       : (int)n->reg_mr.narrow(comm, b->data, (int)b->size, type, &b->mhandle);
}

enum nccl_result dr_nccl_isend(
	const struct dr_nccl *n, void *comm, const struct dr_nccl_buffer *b, void **request)
{
	*request = DR_NCCL_UNSET;
	if (n->version >= 10)
		return n->isend.profiled(comm, b->data, b->size, b->tag, b->mhandle, NULL, request);
	if (n->version == 9)
		return n->isend.wide(comm, b->data, b->size, b->tag, b->mhandle, request);
	return n->isend.narrow(comm, b->data, (int)b->size, b->tag, b->mhandle, request);
}

enum nccl_result dr_nccl_irecv(const struct dr_nccl *n, void *comm, int count,
	const struct dr_nccl_buffer *b, void **request)
{
	void *data[DR_NCCL_GROUP_MAX], *mhandle[DR_NCCL_GROUP_MAX];
	void *profile[DR_NCCL_GROUP_MAX] = { NULL };
	size_t wide[DR_NCCL_GROUP_MAX];
	int sizes[DR_NCCL_GROUP_MAX], tags[DR_NCCL_GROUP_MAX];

	dr_assert(count >= 1 && count <= DR_NCCL_GROUP_MAX);
	for (int i = 0; i < count; i++) {
		data[i] = b[i].data;
		mhandle[i] = b[i].mhandle;
		wide[i] = b[i].size;
		sizes[i] = (int)b[i].size;
		tags[i] = b[i].tag;
	}
	*request = DR_NCCL_UNSET;
	if (n->version >= 10)
		return n->irecv.profiled(comm, count, data, wide, tags, mhandle, profile, request);
	if (n->version == 9)
		return n->irecv.wide(comm, count, data, wide, tags, mhandle, request);
	return n->irecv.narrow(comm, count, data, sizes, tags, mhandle, request);
}

enum nccl_result dr_nccl_reg_dmabuf(
	const struct dr_nccl *n, void *comm, struct dr_nccl_buffer *b, int fd, uint64_t off)
{
	b->mhandle = NULL;
	return n->reg_dmabuf(comm, b->data, b->size, NCCL_PTR_CUDA, off, fd, &b->mhandle);
}

enum nccl_result dr_nccl_flush(
	const struct dr_nccl *n, void *comm, const struct dr_nccl_buffer *b, void **request)
{
	void *data = b->data, *mhandle = b->mhandle;
	int size = (int)b->size;

	*request = DR_NCCL_UNSET;
	return n->flush(comm, 1, &data, &size, &mhandle, request);
}

const char *dr_nccl_result_name(enum nccl_result rc)
{
	static const char *const names[] = { "success", "unhandled CUDA error", "system error",
		"internal error", "invalid argument", "invalid usage", "remote error",
		"in progress" };

	return (unsigned)rc < DR_ARRAY_LEN(names) ? names[rc] : "an unknown result";
}
