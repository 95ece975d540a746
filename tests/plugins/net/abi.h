/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_NET_ABI_H
#define DR_TESTS_PLUGINS_NET_ABI_H

#include <stddef.h>
#include <stdint.h>

/*
 * NCCL's interface for network plugins, versions 6 to 12 (NCCL 2.13 to 2.30): a second declaration, written
 * from the offsets that NCCL's headers have on x86-64 and arm64, and independent of plugin/. A mistake in one of
 * the two makes the tests fail that bring them together.
 *
 * The table of a version is a data symbol, ncclNetPlugin_v6 and so on. `name` stands first in each of them;
 * every other member is a function or NULL.
 */
enum {
	FN_HANDLE_BYTES = 128,
	FN_PTR_HOST = 1,
	FN_PTR_CUDA = 2,
	FN_PTR_DMABUF = 4,
	FN_DEVICE_HOST = 0,
	FN_DEVICE_UNPACK = 1,
	FN_GROUP_MAX = 8, /* buffers of a receive */
	FN_VERSION_FIRST = 6,
	FN_VERSION_LAST = 12,
};

enum fn_result {
	FN_OK = 0,
	FN_CUDA_ERROR = 1,
	FN_SYSTEM_ERROR = 2,
	FN_INTERNAL_ERROR = 3,
	FN_REMOTE_ERROR = 6,
};

enum fn_level { FN_LEVEL_WARN = 2, FN_LEVEL_INFO = 3 };

enum { FN_SUBSYS_INIT = 0x1, FN_SUBSYS_NET = 0x10 };

typedef void (*fn_logger)(
	enum fn_level level, unsigned long flags, const char *file, int line, const char *fmt, ...);
typedef enum fn_result (*fn_profiler)(
	void **event, int type, void *phandle, int64_t plugin, void *extra);

struct fn_comm_config {
	int traffic_class;
};

/* Of a plugin whose receives are completed on the GPU. */
struct fn_device_handle {
	int type;
	int version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};

struct fn_vprops_v9 {
	int ndevs;
	int devs[4];
};

struct fn_vprops_v12 {
	int ndevs;
	int devs[8];
};

struct fn_net_attr;

/* Every version's properties begin so; speed is in Mb/s. */
#define FN_PROPS_HEAD                                                                              \
	char *name;                                                                                \
	char *pci_path;                                                                            \
	uint64_t guid;                                                                             \
	int ptr_support
#define FN_PROPS_REST                                                                              \
	int speed;                                                                                 \
	int port;                                                                                  \
	float latency;                                                                             \
	int max_comms;                                                                             \
	int max_recvs
#define FN_PROPS_DEVICE                                                                            \
	int device_type;                                                                           \
	int device_version
#define FN_PROPS_V9(vprops_type)                                                                   \
	FN_PROPS_HEAD;                                                                             \
	int reg_is_global;                                                                         \
	int force_flush;                                                                           \
	FN_PROPS_REST;                                                                             \
	FN_PROPS_DEVICE;                                                                           \
	struct vprops_type vprops;                                                                 \
	size_t max_p2p_bytes;                                                                      \
	size_t max_coll_bytes

struct fn_props_v6 {
	FN_PROPS_HEAD;
	FN_PROPS_REST;
};

struct fn_props_v7 {
	FN_PROPS_HEAD;
	FN_PROPS_REST;
	FN_PROPS_DEVICE;
};

struct fn_props_v8 {
	FN_PROPS_HEAD;
	int reg_is_global;
	FN_PROPS_REST;
	FN_PROPS_DEVICE;
};

/* Version 10 has it too. */
struct fn_props_v9 {
	FN_PROPS_V9(fn_vprops_v9);
};

struct fn_props_v11 {
	FN_PROPS_V9(fn_vprops_v9);
	int max_multi_request_size;
};

struct fn_props_v12 {
	FN_PROPS_V9(fn_vprops_v12);
	int max_multi_request_size;
	int16_t rail_id;
	int16_t plane_id;
};

/* The arguments that not all versions have. */
#define FN_CTX void *ctx,
#define FN_CONFIG struct fn_comm_config *config,
#define FN_DEVICE , struct fn_device_handle **device
#define FN_PHANDLE void *phandle,
#define FN_PHANDLES void **phandles,
#define FN_INIT_V6 fn_logger log
#define FN_INIT_V10 fn_logger log, fn_profiler profiler
#define FN_INIT_V11                                                                                \
	void **ctx, uint64_t comm_id, struct fn_comm_config *config, fn_logger log,                \
		fn_profiler profiler

/* The members of a table. reg_size: of regMr; move_size: of isend and irecv. */
#define FN_TABLE(props, init_args, ctx, config, device, reg_size, move_size, phandle, phandles)    \
	const char *name;                                                                          \
	enum fn_result (*init)(init_args);                                                         \
	enum fn_result (*devices)(int *ndev);                                                      \
	enum fn_result (*get_properties)(int dev, struct props *p);                                \
	enum fn_result (*listen)(ctx int dev, void *handle, void **lcomm);                         \
	enum fn_result (*connect)(ctx int dev, config void *handle, void **scomm device);          \
	enum fn_result (*accept)(void *lcomm, void **rcomm device);                                \
	enum fn_result (*reg_mr)(void *comm, void *data, reg_size size, int type, void **mh);      \
	enum fn_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,             \
		uint64_t offset, int fd, void **mh);                                               \
	enum fn_result (*dereg_mr)(void *comm, void *mh);                                          \
	enum fn_result (*isend)(void *scomm, void *data, move_size size, int tag, void *mh,        \
		phandle void **request);                                                           \
	enum fn_result (*irecv)(void *rcomm, int n, void **data, move_size *sizes, int *tags,      \
		void **mhs, phandles void **request);                                              \
	enum fn_result (*iflush)(                                                                  \
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);          \
	enum fn_result (*test)(void *request, int *done, int *sizes);                              \
	enum fn_result (*close_send)(void *scomm);                                                 \
	enum fn_result (*close_recv)(void *rcomm);                                                 \
	enum fn_result (*close_listen)(void *lcomm)
#define FN_TABLE_V7                                                                                \
	enum fn_result (*get_device_mr)(void *comm, void *mh, void **device_mh);                   \
	enum fn_result (*irecv_consumed)(void *rcomm, int n, void *request)
#define FN_TABLE_V9(vprops)                                                                        \
	FN_TABLE_V7;                                                                               \
	enum fn_result (*make_vdevice)(int *dev, struct vprops *p)
#define FN_TABLE_V11(vprops)                                                                       \
	FN_TABLE_V9(vprops);                                                                       \
	enum fn_result (*finalize)(void *ctx);                                                     \
	enum fn_result (*set_net_attr)(void *ctx, struct fn_net_attr *attr)

/* clang-format off */
struct fn_net_v6 {
	FN_TABLE(fn_props_v6, FN_INIT_V6, , , , int, int, , );
};
struct fn_net_v7 {
	FN_TABLE(fn_props_v7, FN_INIT_V6, , , FN_DEVICE, int, int, , );
	FN_TABLE_V7;
};
struct fn_net_v8 {
	FN_TABLE(fn_props_v8, FN_INIT_V6, , , FN_DEVICE, size_t, int, , );
	FN_TABLE_V7;
};
struct fn_net_v9 {
	FN_TABLE(fn_props_v9, FN_INIT_V6, , , FN_DEVICE, size_t, size_t, , );
	FN_TABLE_V9(fn_vprops_v9);
};
struct fn_net_v10 {
	FN_TABLE(fn_props_v9, FN_INIT_V10, , FN_CONFIG, FN_DEVICE, size_t, size_t, FN_PHANDLE, FN_PHANDLES);
	FN_TABLE_V9(fn_vprops_v9);
};
struct fn_net_v11 {
	FN_TABLE(fn_props_v11, FN_INIT_V11, FN_CTX, , FN_DEVICE, size_t, size_t, FN_PHANDLE, FN_PHANDLES);
	FN_TABLE_V11(fn_vprops_v9);
};
struct fn_net_v12 {
	FN_TABLE(fn_props_v12, FN_INIT_V11, FN_CTX, , FN_DEVICE, size_t, size_t, FN_PHANDLE, FN_PHANDLES);
	FN_TABLE_V11(fn_vprops_v12);
};
/* clang-format on */

#define FN_AT(type, member, offset)                                                                \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define FN_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

FN_SIZE(fn_comm_config, 4);
FN_SIZE(fn_device_handle, 32);
FN_SIZE(fn_vprops_v9, 20);
FN_SIZE(fn_vprops_v12, 36);

FN_SIZE(fn_props_v6, 48);
FN_AT(fn_props_v6, pci_path, 8);
FN_AT(fn_props_v6, ptr_support, 24);
FN_AT(fn_props_v6, speed, 28);
FN_SIZE(fn_props_v7, 56);
FN_AT(fn_props_v7, device_type, 48);
FN_SIZE(fn_props_v8, 64);
FN_AT(fn_props_v8, reg_is_global, 28);
FN_AT(fn_props_v8, device_version, 56);
FN_SIZE(fn_props_v9, 104);
FN_AT(fn_props_v9, force_flush, 32);
FN_AT(fn_props_v9, speed, 36);
FN_AT(fn_props_v9, vprops, 64);
FN_AT(fn_props_v9, max_p2p_bytes, 88);
FN_SIZE(fn_props_v11, 112);
FN_AT(fn_props_v11, max_multi_request_size, 104);
FN_SIZE(fn_props_v12, 128);
FN_AT(fn_props_v12, max_p2p_bytes, 104);
FN_AT(fn_props_v12, max_multi_request_size, 120);
FN_AT(fn_props_v12, plane_id, 126);

/* The members up to close_listen have the same offsets in all versions. */
#define FN_TABLE_AT(type)                                                                          \
	FN_AT(type, init, 8);                                                                      \
	FN_AT(type, get_properties, 24);                                                           \
	FN_AT(type, connect, 40);                                                                  \
	FN_AT(type, reg_mr, 56);                                                                   \
	FN_AT(type, reg_mr_dmabuf, 64);                                                            \
	FN_AT(type, isend, 80);                                                                    \
	FN_AT(type, iflush, 96);                                                                   \
	FN_AT(type, test, 104);                                                                    \
	FN_AT(type, close_listen, 128)
FN_TABLE_AT(fn_net_v6);
FN_TABLE_AT(fn_net_v7);
FN_TABLE_AT(fn_net_v8);
FN_TABLE_AT(fn_net_v9);
FN_TABLE_AT(fn_net_v10);
FN_TABLE_AT(fn_net_v11);
FN_TABLE_AT(fn_net_v12);
FN_SIZE(fn_net_v6, 136);
FN_SIZE(fn_net_v7, 152);
FN_AT(fn_net_v7, irecv_consumed, 144);
FN_SIZE(fn_net_v8, 152);
FN_SIZE(fn_net_v9, 160);
FN_AT(fn_net_v9, make_vdevice, 152);
FN_SIZE(fn_net_v10, 160);
FN_SIZE(fn_net_v11, 176);
FN_AT(fn_net_v11, irecv_consumed, 144);
FN_AT(fn_net_v11, finalize, 160);
FN_AT(fn_net_v11, set_net_attr, 168);
FN_SIZE(fn_net_v12, 176);

#endif
