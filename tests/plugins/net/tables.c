/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <stdlib.h>
#include <string.h>

#include "tests/plugins/net/bugs.h"

/* The tables of each version, and what differs between them: not all that NCCL passes is of interest. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Of versions 6 to 10, which have no contexts. */
static struct fn_ctx shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static enum fn_result init_once(void)
{
	enum fn_result result;

	fn_devices_scan(getenv(fn_kind->ifname));
	result = fn_settings_read();
	fn_log(FN_LEVEL_INFO, "personality %s, misbehaviours: %s", fn_kind->word,
		getenv("FAKENET_BUGS") ? getenv("FAKENET_BUGS") : "none");
	return result;
}

static enum fn_result init_v6(fn_logger log)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool called, done;
	enum fn_result result = FN_OK;

	FN_ENTER("init");
	(void)pthread_mutex_lock(&lock);
	fn_log_set(log);
	fn_bugs_read();
	if (called && fn_kind->pieces) {
		fn_log(FN_LEVEL_WARN, "init was called before");
		result = FN_INTERNAL_ERROR;
	} else if (!done) {
		result = init_once();
	}
	called = true;
	done |= result == FN_OK;
	(void)pthread_mutex_unlock(&lock);
	return fn_bug(FN_BUG_INIT_FAILS) ? FN_SYSTEM_ERROR : result;
}

static enum fn_result init_v10(fn_logger log, fn_profiler profiler)
{
	return init_v6(log);
}

static enum fn_result init_v11(void **ctx, uint64_t comm_id, struct fn_comm_config *config,
	fn_logger log, fn_profiler profiler)
{
	enum fn_result result = init_v6(log);
	struct fn_ctx *c = NULL;

	if (result == FN_OK)
		result = fn_ctx_new(&c);
	if (!fn_bug(FN_BUG_NO_CONTEXT))
		*ctx = c;
	return result;
}

static enum fn_result finalize_v11(void *ctx)
{
	FN_ENTER("finalize");
	fn_ctx_free(ctx);
	return FN_OK;
}

static char fn_twin[] = "twin";

/* A device is told twice. */
static bool twin(void)
{
	return fn_bug(FN_BUG_SAME_NAME) || fn_bug(FN_BUG_SAME_PORT);
}

static enum fn_result devices(int *ndev)
{
	FN_ENTER("devices");
	if (!fn_bug(FN_BUG_DEVICES_UNSET))
		*ndev = fn_bug(FN_BUG_NO_DEVICES) ? 0 : fn_devices() + twin();
	return FN_OK;
}

/* Clears a version's properties and fills what all have. */
#define FILL(p, dev)                                                                               \
	do {                                                                                       \
		const struct fn_device *d_ = fn_device(twin() ? 0 : (dev));                        \
                                                                                                   \
		FN_ENTER("getProperties");                                                         \
		if (!d_)                                                                           \
			return FN_INTERNAL_ERROR;                                                  \
		memset((p), 0, sizeof(*(p)));                                                      \
		(p)->name = fn_bug(FN_BUG_NAME_NULL)		? NULL                             \
			    : fn_bug(FN_BUG_SAME_PORT) && (dev) ? fn_twin                          \
								: (char *)d_->name;                \
		(p)->guid = d_->index;                                                             \
		(p)->ptr_support = ptr_support();                                                  \
		(p)->speed = 10000;                                                                \
		(p)->max_comms = 65536;                                                            \
		(p)->max_recvs = fn_bug(FN_BUG_NO_RECEIVES) ? 0 : (int)fn_kind->group;             \
		if (fn_bug(FN_BUG_PROPERTIES_OVERRUN))                                             \
			memset((p) + 1, 0, 8);                                                     \
	} while (0)

#define FILL_V7(p, dev)                                                                            \
	do {                                                                                       \
		FILL(p, dev);                                                                      \
		(p)->device_type = fn_kind->pieces ? FN_DEVICE_UNPACK : FN_DEVICE_HOST;            \
		(p)->device_version = fn_kind->pieces ? FN_UNPACK_VERSION : 0;                     \
	} while (0)

#define FILL_V9(p, dev)                                                                            \
	do {                                                                                       \
		int ndevs_ = (p)->vprops.ndevs;                                                    \
                                                                                                   \
		FILL_V7(p, dev);                                                                   \
		(p)->force_flush = fn_kind->cuda && !fn_settings.ordered;                          \
		(p)->vprops.ndevs = fn_bug(FN_BUG_VIRTUAL_DEVICES)    ? 9                          \
				    : fn_bug(FN_BUG_PROPERTIES_UNSET) ? ndevs_                     \
								      : 1;                         \
		(p)->vprops.devs[0] = (dev);                                                       \
		(p)->max_p2p_bytes = fn_bug(FN_BUG_NO_BYTES) ? 0 : fn_kind->message_max;           \
		(p)->max_coll_bytes = (p)->max_p2p_bytes;                                          \
	} while (0)

static int ptr_support(void)
{
	if (fn_bug(FN_BUG_NO_HOST_MEMORY))
		return FN_PTR_CUDA;
	return FN_PTR_HOST | (fn_kind->cuda ? FN_PTR_CUDA : 0) |
	       (fn_settings.dmabuf ? FN_PTR_DMABUF : 0);
}

#define PROPERTIES(v, fill, more)                                                                  \
	static enum fn_result properties_v##v(int dev, struct fn_props_v##v *p)                    \
	{                                                                                          \
		fill(p, dev);                                                                      \
		more;                                                                              \
		return FN_OK;                                                                      \
	}
PROPERTIES(6, FILL, )
PROPERTIES(7, FILL_V7, )
PROPERTIES(8, FILL_V7, )
PROPERTIES(9, FILL_V9, )
PROPERTIES(11, FILL_V9, p->max_multi_request_size = 1)
PROPERTIES(12, FILL_V9, p->max_multi_request_size = 1; p->rail_id = p->plane_id = -1)

static enum fn_result listen_v11(void *ctx, int dev, void *handle, void **lcomm)
{
	void *unset = NULL;
	enum fn_result result =
		fn_listen(ctx, dev, handle, fn_bug(FN_BUG_LISTEN_UNSET) ? &unset : lcomm);

	if (fn_bug(FN_BUG_HANDLE_LONG))
		memset(handle, 1, FN_HANDLE_BYTES + 4);
	if (fn_bug(FN_BUG_LISTEN_NULL))
		*lcomm = NULL;
	return result;
}

static enum fn_result listen_v6(int dev, void *handle, void **lcomm)
{
	return listen_v11(&shared, dev, handle, lcomm);
}

static enum fn_result connect_v6(int dev, void *handle, void **scomm)
{
	return fn_connect(&shared, dev, handle, scomm);
}

static enum fn_result connect_v7(
	int dev, void *handle, void **scomm, struct fn_device_handle **device)
{
	return fn_connect(&shared, dev, handle, scomm);
}

static enum fn_result connect_v10(int dev, struct fn_comm_config *config, void *handle,
	void **scomm, struct fn_device_handle **device)
{
	return fn_connect(&shared, dev, handle, scomm);
}

static enum fn_result connect_v11(
	void *ctx, int dev, void *handle, void **scomm, struct fn_device_handle **device)
{
	return fn_connect(ctx, dev, handle, scomm);
}

static enum fn_result accept_v6(void *lcomm, void **rcomm)
{
	return fn_accept(lcomm, rcomm, NULL);
}

/* A negative size is too long for everything. */
static size_t size_of(int size)
{
	return size < 0 ? SIZE_MAX : (size_t)size;
}

static enum fn_result reg_v6(void *comm, void *data, int size, int type, void **mh)
{
	return fn_reg(comm, data, size_of(size), type, mh);
}

static enum fn_result isend_v6(void *scomm, void *data, int size, int tag, void *mh, void **request)
{
	return fn_isend(scomm, data, size_of(size), tag, mh, request);
}

static enum fn_result isend_v10(
	void *scomm, void *data, size_t size, int tag, void *mh, void *phandle, void **request)
{
	return fn_isend(scomm, data, size, tag, mh, request);
}

static enum fn_result irecv_v6(
	void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request)
{
	size_t size[FN_GROUP_MAX];

	for (int i = 0; i < n && i < FN_GROUP_MAX; i++)
		size[i] = size_of(sizes[i]);
	return fn_irecv(rcomm, n, data, size, tags, mhs, request);
}

static enum fn_result irecv_v9(
	void *rcomm, int n, void **data, size_t *sizes, int *tags, void **mhs, void **request)
{
	return fn_irecv(rcomm, n, data, sizes, tags, mhs, request);
}

static enum fn_result irecv_v10(void *rcomm, int n, void **data, size_t *sizes, int *tags,
	void **mhs, void **phandles, void **request)
{
	return fn_irecv(rcomm, n, data, sizes, tags, mhs, request);
}

static enum fn_result close_send(void *comm)
{
	FN_ENTER("closeSend");
	return fn_close(comm, FN_COMM);
}

static enum fn_result close_recv(void *comm)
{
	FN_ENTER("closeRecv");
	return fn_close(comm, FN_COMM);
}

static enum fn_result close_listen(void *lcomm)
{
	FN_ENTER("closeListen");
	return fn_close(lcomm, FN_LISTENER);
}

/* Members with the same functions in all versions. What a personality does without is taken away by choose(). */
#define TABLE(init_, properties_, listen_, connect_, accept_, reg_, isend_, irecv_)                \
	.devices = devices, .dereg_mr = fn_dereg, .reg_mr_dmabuf = fn_reg_dmabuf,                  \
	.iflush = fn_iflush, .test = fn_test, .close_send = close_send, .close_recv = close_recv,  \
	.close_listen = close_listen, .init = init_, .get_properties = properties_,                \
	.listen = listen_, .connect = connect_, .accept = accept_, .reg_mr = reg_,                 \
	.isend = isend_, .irecv = irecv_

static struct fn_net_v6 v6 = { TABLE(
	init_v6, properties_v6, listen_v6, connect_v6, accept_v6, reg_v6, isend_v6, irecv_v6) };
static struct fn_net_v7 v7 = {
	TABLE(init_v6, properties_v7, listen_v6, connect_v7, fn_accept, reg_v6, isend_v6, irecv_v6),
	.irecv_consumed = fn_consumed,
};
static struct fn_net_v8 v8 = { TABLE(
	init_v6, properties_v8, listen_v6, connect_v7, fn_accept, fn_reg, isend_v6, irecv_v6) };
static struct fn_net_v9 v9 = { TABLE(
	init_v6, properties_v9, listen_v6, connect_v7, fn_accept, fn_reg, fn_isend, irecv_v9) };
static struct fn_net_v10 v10 = { TABLE(
	init_v10, properties_v9, listen_v6, connect_v10, fn_accept, fn_reg, isend_v10, irecv_v10) };
static struct fn_net_v11 v11 = {
	TABLE(init_v11, properties_v11, listen_v11, connect_v11, fn_accept, fn_reg, isend_v10,
		irecv_v10),
	.finalize = finalize_v11,
};
static struct fn_net_v12 v12 = {
	TABLE(init_v11, properties_v12, listen_v11, connect_v11, fn_accept, fn_reg, isend_v10,
		irecv_v10),
	.finalize = finalize_v11,
};

static void *const tables[] = { &v6, &v7, &v8, &v9, &v10, &v11, &v12 };

/* Takes a member away, from all tables that have it at this place. */
static void take_away(size_t at, int version)
{
	for (int v = version; v <= FN_VERSION_LAST; v++)
		memset((char *)tables[v - FN_VERSION_FIRST] + at, 0, sizeof(void *));
}

__attribute__((constructor)) static void choose(void)
{
	fn_choose();
	(void)fn_entered("dlopen");
	for (int i = 0; i <= FN_VERSION_LAST - FN_VERSION_FIRST; i++)
		memcpy(tables[i], &fn_kind->name, sizeof(fn_kind->name));
	if (fn_kind->pieces || !fn_kind->cuda)
		take_away(offsetof(struct fn_net_v6, reg_mr_dmabuf), 6);
	if (!fn_kind->pieces)
		take_away(offsetof(struct fn_net_v7, irecv_consumed), 7);
	if (fn_bug_null("isend"))
		take_away(offsetof(struct fn_net_v6, isend), 6);
	if (fn_bug_null("finalize"))
		take_away(offsetof(struct fn_net_v11, finalize), 11);
}

/* dlsym() calls it. NULL: the personality has no such version, and dlsym() gives NULL, too. */
static void (*version(int v))(void)
{
	const void *table = v < fn_kind->version_first || v > fn_kind->version_last
				    ? NULL
				    : tables[v - FN_VERSION_FIRST];
	void (*symbol)(void);

	memcpy(&symbol, &table, sizeof(symbol));
	return symbol;
}

#define VERSION(v)                                                                                 \
	static void (*choose_v##v(void))(void)                                                     \
	{                                                                                          \
		return version(v);                                                                 \
	}                                                                                          \
	void ncclNetPlugin_v##v(void) __attribute__((ifunc("choose_v" #v)))

VERSION(6);
VERSION(7);
VERSION(8);
VERSION(9);
VERSION(10);
VERSION(11);
VERSION(12);
