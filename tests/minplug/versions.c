/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/versions.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Functions for each version, made by macros; what differs between versions is an argument. */

#define TABLE(v) const struct min_net_v##v *t = n->table

/* Members with the same shape in all versions. */
#define SAME(v)                                                                                    \
	static enum min_result devices_##v(const struct net *n, int *out)                          \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->devices(out);                                                            \
	}                                                                                          \
	static enum min_result dereg_##v(const struct net *n, void *comm, void *mh)                \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->dereg_mr(comm, mh);                                                      \
	}                                                                                          \
	static enum min_result iflush_##v(                                                         \
		const struct net *n, void *rcomm, void *data, int size, void *mh, void **request)  \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->iflush(rcomm, 1, &data, &size, &mh, request);                            \
	}                                                                                          \
	static enum min_result test_##v(const struct net *n, void *request, int *done, int *sizes) \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->test(request, done, sizes);                                              \
	}                                                                                          \
	static enum min_result close_send_##v(const struct net *n, void *comm)                     \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->close_send(comm);                                                        \
	}                                                                                          \
	static enum min_result close_recv_##v(const struct net *n, void *comm)                     \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->close_recv(comm);                                                        \
	}                                                                                          \
	static enum min_result close_listen_##v(const struct net *n, void *comm)                   \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->close_listen(comm);                                                      \
	}

#define INIT(v, ...)                                                                               \
	static enum min_result init_##v(const struct net *n, min_logger log, void **ctx)           \
	{                                                                                          \
		TABLE(v);                                                                          \
		*ctx = NULL;                                                                       \
		return t->init(__VA_ARGS__);                                                       \
	}

#define FINALIZE(v, ...)                                                                           \
	static enum min_result finalize_##v(const struct net *n, void *ctx)                        \
	{                                                                                          \
		const struct min_net_v##v *t = n->table;                                           \
		(void)t;                                                                           \
		(void)ctx;                                                                         \
		return __VA_ARGS__;                                                                \
	}

/* 'type' is int or size_t; the last arguments are what a version passes beyond the others. */
#define REG(v, type)                                                                               \
	static enum min_result reg_##v(                                                            \
		const struct net *n, void *comm, void *data, size_t size, int kind, void **mh)     \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->reg_mr(comm, data, (type)size, kind, mh);                                \
	}

#define LISTEN(v, ...)                                                                             \
	static enum min_result listen_##v(                                                         \
		const struct net *n, void *ctx, int dev, void *handle, void **lcomm)               \
	{                                                                                          \
		TABLE(v);                                                                          \
		(void)ctx;                                                                         \
		return t->listen(__VA_ARGS__, handle, lcomm);                                      \
	}

#define CONNECT(v, ...)                                                                            \
	static enum min_result connect_##v(                                                        \
		const struct net *n, void *ctx, int dev, void *handle, void **scomm)               \
	{                                                                                          \
		struct min_device_handle *device = NULL;                                           \
		struct min_comm_config config = { .traffic_class = -1 };                           \
		TABLE(v);                                                                          \
		(void)ctx;                                                                         \
		(void)device;                                                                      \
		(void)config;                                                                      \
		return t->connect(__VA_ARGS__);                                                    \
	}

#define ACCEPT(v, ...)                                                                             \
	static enum min_result accept_##v(const struct net *n, void *lcomm, void **rcomm)          \
	{                                                                                          \
		struct min_device_handle *device = NULL;                                           \
		TABLE(v);                                                                          \
		(void)device;                                                                      \
		return t->accept(__VA_ARGS__);                                                     \
	}

/* 'phandle' is nothing, or an argument more, with its comma. */
#define MOVE(v, type, send_extra, recv_extra)                                                      \
	static enum min_result isend_##v(const struct net *n, void *scomm, void *data,             \
		size_t size, int tag, void *mh, void **request)                                    \
	{                                                                                          \
		TABLE(v);                                                                          \
		return t->isend(scomm, data, (type)size, tag, mh send_extra, request);             \
	}                                                                                          \
	static enum min_result irecv_##v(const struct net *n, void *rcomm, int count, void *data,  \
		size_t size, int tag, void *mh, void **request)                                    \
	{                                                                                          \
		void *datas[8] = { data, data, data, data, data, data, data, data };               \
		type s = (type)size, sizes[8] = { s, s, s, s, s, s, s, s };                        \
		int tags[8] = { tag, tag, tag, tag, tag, tag, tag, tag };                          \
		void *mhs[8] = { mh, mh, mh, mh, mh, mh, mh, mh };                                 \
		void *phandles[8] = { NULL };                                                      \
		TABLE(v);                                                                          \
		(void)phandles;                                                                    \
		return t->irecv(rcomm, count, datas, sizes, tags, mhs recv_extra, request);        \
	}

#define COMMA_NULL , NULL
#define COMMA_PHANDLES , phandles

/* 'rest' copies the members that not all versions have. */
#define PROPERTIES(v, props, rest)                                                                 \
	static enum min_result properties_##v(                                                     \
		const struct net *n, int dev, struct min_props_v12 *out)                           \
	{                                                                                          \
		struct props p;                                                                    \
		enum min_result result;                                                            \
		TABLE(v);                                                                          \
		memset(out, 0, sizeof(*out));                                                      \
		memset(&p, 0xa5, sizeof(p));                                                       \
		result = t->get_properties(dev, &p);                                               \
		if (result != MIN_OK)                                                              \
			return result;                                                             \
		out->name = p.name;                                                                \
		out->pci_path = p.pci_path;                                                        \
		out->guid = p.guid;                                                                \
		out->ptr_support = p.ptr_support;                                                  \
		out->speed = p.speed;                                                              \
		out->port = p.port;                                                                \
		out->latency = p.latency;                                                          \
		out->max_comms = p.max_comms;                                                      \
		out->max_recvs = p.max_recvs;                                                      \
		rest;                                                                              \
		return MIN_OK;                                                                     \
	}

static void copy_v9(struct min_props_v12 *out, const struct min_props_v9 *p)
{
	out->reg_is_global = p->reg_is_global;
	out->force_flush = p->force_flush;
	out->device_type = p->device_type;
	out->device_version = p->device_version;
	out->vprops.ndevs = p->vprops.ndevs;
	out->vprops.devs[0] = p->vprops.devs[0];
	out->max_p2p_bytes = p->max_p2p_bytes;
	out->max_coll_bytes = p->max_coll_bytes;
}

/* Its head has the layout of version 9. */
static void copy_v11(struct min_props_v12 *out, const struct min_props_v11 *p)
{
	struct min_props_v9 head;

	memcpy(&head, p, sizeof(head));
	copy_v9(out, &head);
	out->max_multi_request_size = p->max_multi_request_size;
}

#define DEVICE_V7                                                                                  \
	out->device_type = p.device_type;                                                          \
	out->device_version = p.device_version

PROPERTIES(6, min_props_v6, (void)0)
PROPERTIES(7, min_props_v7, DEVICE_V7)
PROPERTIES(8, min_props_v8, DEVICE_V7; out->reg_is_global = p.reg_is_global)
PROPERTIES(9, min_props_v9, copy_v9(out, &p))
PROPERTIES(10, min_props_v9, copy_v9(out, &p))
PROPERTIES(11, min_props_v11, copy_v11(out, &p))
PROPERTIES(12, min_props_v12, *out = p)

SAME(6)
SAME(7)
SAME(8)
SAME(9)
SAME(10)
SAME(11)
SAME(12)

INIT(6, log)
INIT(7, log)
INIT(8, log)
INIT(9, log)
INIT(10, log, NULL)
INIT(11, ctx, 1, NULL, log, NULL)
INIT(12, ctx, 1, NULL, log, NULL)

FINALIZE(6, MIN_OK)
FINALIZE(7, MIN_OK)
FINALIZE(8, MIN_OK)
FINALIZE(9, MIN_OK)
FINALIZE(10, MIN_OK)
FINALIZE(11, t->finalize(ctx))
FINALIZE(12, t->finalize(ctx))

REG(6, int)
REG(7, int)
REG(8, size_t)
REG(9, size_t)
REG(10, size_t)
REG(11, size_t)
REG(12, size_t)

LISTEN(6, dev)
LISTEN(7, dev)
LISTEN(8, dev)
LISTEN(9, dev)
LISTEN(10, dev)
LISTEN(11, ctx, dev)
LISTEN(12, ctx, dev)

CONNECT(6, dev, handle, scomm)
CONNECT(7, dev, handle, scomm, &device)
CONNECT(8, dev, handle, scomm, &device)
CONNECT(9, dev, handle, scomm, NULL)
CONNECT(10, dev, &config, handle, scomm, &device)
CONNECT(11, ctx, dev, handle, scomm, &device)
CONNECT(12, ctx, dev, handle, scomm, NULL)

ACCEPT(6, lcomm, rcomm)
ACCEPT(7, lcomm, rcomm, &device)
ACCEPT(8, lcomm, rcomm, &device)
ACCEPT(9, lcomm, rcomm, NULL)
ACCEPT(10, lcomm, rcomm, &device)
ACCEPT(11, lcomm, rcomm, &device)
ACCEPT(12, lcomm, rcomm, NULL)

MOVE(6, int, , )
MOVE(7, int, , )
MOVE(8, int, , )
MOVE(9, size_t, , )
MOVE(10, size_t, COMMA_NULL, COMMA_PHANDLES)
MOVE(11, size_t, COMMA_NULL, COMMA_PHANDLES)
MOVE(12, size_t, COMMA_NULL, COMMA_PHANDLES)

/* How many of the members are set that a plugin for host memory does without. */
#define OPTIONAL(v, ...)                                                                           \
	static int optional_##v(const struct net *n)                                               \
	{                                                                                          \
		TABLE(v);                                                                          \
		return (t->reg_mr_dmabuf != NULL) __VA_ARGS__;                                     \
	}
#define OPTIONAL_V7 +(t->get_device_mr != NULL) + (t->irecv_consumed != NULL)
#define OPTIONAL_V9 OPTIONAL_V7 + (t->make_vdevice != NULL)
#define OPTIONAL_V11 OPTIONAL_V9 + (t->set_net_attr != NULL)

OPTIONAL(6)
OPTIONAL(7, OPTIONAL_V7)
OPTIONAL(8, OPTIONAL_V7)
OPTIONAL(9, OPTIONAL_V9)
OPTIONAL(10, OPTIONAL_V9)
OPTIONAL(11, OPTIONAL_V11)
OPTIONAL(12, OPTIONAL_V11)

#define ENTRY(v)                                                                                   \
	{                                                                                          \
		.version = v, .init = init_##v, .devices = devices_##v,                            \
		.properties = properties_##v, .listen = listen_##v, .connect = connect_##v,        \
		.accept = accept_##v, .reg = reg_##v, .dereg = dereg_##v, .isend = isend_##v,      \
		.irecv = irecv_##v, .iflush = iflush_##v, .test = test_##v,                        \
		.close_send = close_send_##v, .close_recv = close_recv_##v,                        \
		.close_listen = close_listen_##v, .finalize = finalize_##v,                        \
		.optional = optional_##v,                                                          \
	}

static const struct net nets[] = {
	ENTRY(6),
	ENTRY(7),
	ENTRY(8),
	ENTRY(9),
	ENTRY(10),
	ENTRY(11),
	ENTRY(12),
};

struct net net_load(void *lib, int version)
{
	struct net n = nets[version - VERSION_FIRST];
	char symbol[32];

	(void)snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
	n.table = dlsym(lib, symbol);
	if (n.table)
		memcpy(&n.name, n.table, sizeof(n.name));
	return n;
}
