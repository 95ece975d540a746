/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_MINPLUG_NET_ABI_H
#define DR_TESTS_MINPLUG_NET_ABI_H

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
	MIN_HANDLE_BYTES = 128,
	MIN_MAX_REQUESTS = 32,
	MIN_PTR_HOST = 1,
	MIN_NET_BYTES_MAX = 1 << 30,
};

enum min_result {
	MIN_OK = 0,
	MIN_CUDA_ERROR = 1,
	MIN_SYSTEM_ERROR = 2,
	MIN_INTERNAL_ERROR = 3,
	MIN_INVALID_ARGUMENT = 4,
	MIN_INVALID_USAGE = 5,
	MIN_REMOTE_ERROR = 6,
};

enum min_level { MIN_LEVEL_WARN = 2, MIN_LEVEL_INFO = 3 };

enum { MIN_SUBSYS_NET = 0x10 };

typedef void (*min_logger)(enum min_level level, unsigned long flags, const char *file, int line,
	const char *fmt, ...);
typedef enum min_result (*min_profiler)(
	void **event, int type, void *phandle, int64_t plugin, void *extra);

struct min_comm_config {
	int traffic_class;
};

/* Of a plugin whose receives are completed on the GPU; this one is none. */
struct min_device_handle {
	int type;
	int version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};

struct min_vprops_v9 {
	int ndevs;
	int devs[4];
};

struct min_vprops_v12 {
	int ndevs;
	int devs[8];
};

struct min_net_attr;

/* Every version's properties begin so. */
#define MIN_PROPS_HEAD                                                                             \
	char *name;                                                                                \
	char *pci_path;                                                                            \
	uint64_t guid;                                                                             \
	int ptr_support

struct min_props_v6 {
	MIN_PROPS_HEAD;
	int speed; /* Mb/s */
	int port;
	float latency;
	int max_comms;
	int max_recvs;
};

struct min_props_v7 {
	MIN_PROPS_HEAD;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};

struct min_props_v8 {
	MIN_PROPS_HEAD;
	int reg_is_global;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
};

/* Version 10 has it too. */
struct min_props_v9 {
	MIN_PROPS_HEAD;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct min_vprops_v9 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};

struct min_props_v11 {
	MIN_PROPS_HEAD;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct min_vprops_v9 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
};

struct min_props_v12 {
	MIN_PROPS_HEAD;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_comms;
	int max_recvs;
	int device_type;
	int device_version;
	struct min_vprops_v12 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request_size;
	int16_t rail_id;
	int16_t plane_id;
};

struct min_net_v6 {
	const char *name;
	enum min_result (*init)(min_logger log);
	enum min_result (*devices)(int *ndev);
	enum min_result (*get_properties)(int dev, struct min_props_v6 *props);
	enum min_result (*listen)(int dev, void *handle, void **lcomm);
	enum min_result (*connect)(int dev, void *handle, void **scomm);
	enum min_result (*accept)(void *lcomm, void **rcomm);
	enum min_result (*reg_mr)(void *comm, void *data, int size, int type, void **mh);
	enum min_result (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
	enum min_result (*dereg_mr)(void *comm, void *mh);
	enum min_result (*isend)(
		void *scomm, void *data, int size, int tag, void *mh, void **request);
	enum min_result (*irecv)(
		void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request);
	enum min_result (*iflush)(
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
	enum min_result (*test)(void *request, int *done, int *sizes);
	enum min_result (*close_send)(void *scomm);
	enum min_result (*close_recv)(void *rcomm);
	enum min_result (*close_listen)(void *lcomm);
};

struct min_net_v7 {
	const char *name;
	enum min_result (*init)(min_logger log);
	enum min_result (*devices)(int *ndev);
	enum min_result (*get_properties)(int dev, struct min_props_v7 *props);
	enum min_result (*listen)(int dev, void *handle, void **lcomm);
	enum min_result (*connect)(
		int dev, void *handle, void **scomm, struct min_device_handle **device);
	enum min_result (*accept)(void *lcomm, void **rcomm, struct min_device_handle **device);
	enum min_result (*reg_mr)(void *comm, void *data, int size, int type, void **mh);
	enum min_result (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
	enum min_result (*dereg_mr)(void *comm, void *mh);
	enum min_result (*isend)(
		void *scomm, void *data, int size, int tag, void *mh, void **request);
	enum min_result (*irecv)(
		void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request);
	enum min_result (*iflush)(
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
	enum min_result (*test)(void *request, int *done, int *sizes);
	enum min_result (*close_send)(void *scomm);
	enum min_result (*close_recv)(void *rcomm);
	enum min_result (*close_listen)(void *lcomm);
	enum min_result (*get_device_mr)(void *comm, void *mh, void **device_mh);
	enum min_result (*irecv_consumed)(void *rcomm, int n, void *request);
};

struct min_net_v8 {
	const char *name;
	enum min_result (*init)(min_logger log);
	enum min_result (*devices)(int *ndev);
	enum min_result (*get_properties)(int dev, struct min_props_v8 *props);
	enum min_result (*listen)(int dev, void *handle, void **lcomm);
	enum min_result (*connect)(
		int dev, void *handle, void **scomm, struct min_device_handle **device);
	enum min_result (*accept)(void *lcomm, void **rcomm, struct min_device_handle **device);
	enum min_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mh);
	enum min_result (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
	enum min_result (*dereg_mr)(void *comm, void *mh);
	enum min_result (*isend)(
		void *scomm, void *data, int size, int tag, void *mh, void **request);
	enum min_result (*irecv)(
		void *rcomm, int n, void **data, int *sizes, int *tags, void **mhs, void **request);
	enum min_result (*iflush)(
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
	enum min_result (*test)(void *request, int *done, int *sizes);
	enum min_result (*close_send)(void *scomm);
	enum min_result (*close_recv)(void *rcomm);
	enum min_result (*close_listen)(void *lcomm);
	enum min_result (*get_device_mr)(void *comm, void *mh, void **device_mh);
	enum min_result (*irecv_consumed)(void *rcomm, int n, void *request);
};

struct min_net_v9 {
	const char *name;
	enum min_result (*init)(min_logger log);
	enum min_result (*devices)(int *ndev);
	enum min_result (*get_properties)(int dev, struct min_props_v9 *props);
	enum min_result (*listen)(int dev, void *handle, void **lcomm);
	enum min_result (*connect)(
		int dev, void *handle, void **scomm, struct min_device_handle **device);
	enum min_result (*accept)(void *lcomm, void **rcomm, struct min_device_handle **device);
	enum min_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mh);
	enum min_result (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
	enum min_result (*dereg_mr)(void *comm, void *mh);
	enum min_result (*isend)(
		void *scomm, void *data, size_t size, int tag, void *mh, void **request);
	enum min_result (*irecv)(void *rcomm, int n, void **data, size_t *sizes, int *tags,
		void **mhs, void **request);
	enum min_result (*iflush)(
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
	enum min_result (*test)(void *request, int *done, int *sizes);
	enum min_result (*close_send)(void *scomm);
	enum min_result (*close_recv)(void *rcomm);
	enum min_result (*close_listen)(void *lcomm);
	enum min_result (*get_device_mr)(void *comm, void *mh, void **device_mh);
	enum min_result (*irecv_consumed)(void *rcomm, int n, void *request);
	enum min_result (*make_vdevice)(int *dev, struct min_vprops_v9 *props);
};

struct min_net_v10 {
	const char *name;
	enum min_result (*init)(min_logger log, min_profiler profiler);
	enum min_result (*devices)(int *ndev);
	enum min_result (*get_properties)(int dev, struct min_props_v9 *props);
	enum min_result (*listen)(int dev, void *handle, void **lcomm);
	enum min_result (*connect)(int dev, struct min_comm_config *config, void *handle,
		void **scomm, struct min_device_handle **device);
	enum min_result (*accept)(void *lcomm, void **rcomm, struct min_device_handle **device);
	enum min_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mh);
	enum min_result (*reg_mr_dmabuf)(
		void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh);
	enum min_result (*dereg_mr)(void *comm, void *mh);
	enum min_result (*isend)(void *scomm, void *data, size_t size, int tag, void *mh,
		void *phandle, void **request);
	enum min_result (*irecv)(void *rcomm, int n, void **data, size_t *sizes, int *tags,
		void **mhs, void **phandles, void **request);
	enum min_result (*iflush)(
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);
	enum min_result (*test)(void *request, int *done, int *sizes);
	enum min_result (*close_send)(void *scomm);
	enum min_result (*close_recv)(void *rcomm);
	enum min_result (*close_listen)(void *lcomm);
	enum min_result (*get_device_mr)(void *comm, void *mh, void **device_mh);
	enum min_result (*irecv_consumed)(void *rcomm, int n, void *request);
	enum min_result (*make_vdevice)(int *dev, struct min_vprops_v9 *props);
};

/* 12 differs from 11 in the properties alone. */
#define MIN_NET_V11(props_type, vprops_type)                                                       \
	const char *name;                                                                          \
	enum min_result (*init)(void **ctx, uint64_t comm_id, struct min_comm_config *config,      \
		min_logger log, min_profiler profiler);                                            \
	enum min_result (*devices)(int *ndev);                                                     \
	enum min_result (*get_properties)(int dev, struct props_type *props);                      \
	enum min_result (*listen)(void *ctx, int dev, void *handle, void **lcomm);                 \
	enum min_result (*connect)(void *ctx, int dev, void *handle, void **scomm,                 \
		struct min_device_handle **device);                                                \
	enum min_result (*accept)(void *lcomm, void **rcomm, struct min_device_handle **device);   \
	enum min_result (*reg_mr)(void *comm, void *data, size_t size, int type, void **mh);       \
	enum min_result (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type,            \
		uint64_t offset, int fd, void **mh);                                               \
	enum min_result (*dereg_mr)(void *comm, void *mh);                                         \
	enum min_result (*isend)(void *scomm, void *data, size_t size, int tag, void *mh,          \
		void *phandle, void **request);                                                    \
	enum min_result (*irecv)(void *rcomm, int n, void **data, size_t *sizes, int *tags,        \
		void **mhs, void **phandles, void **request);                                      \
	enum min_result (*iflush)(                                                                 \
		void *rcomm, int n, void **data, int *sizes, void **mhs, void **request);          \
	enum min_result (*test)(void *request, int *done, int *sizes);                             \
	enum min_result (*close_send)(void *scomm);                                                \
	enum min_result (*close_recv)(void *rcomm);                                                \
	enum min_result (*close_listen)(void *lcomm);                                              \
	enum min_result (*get_device_mr)(void *comm, void *mh, void **device_mh);                  \
	enum min_result (*irecv_consumed)(void *rcomm, int n, void *request);                      \
	enum min_result (*make_vdevice)(int *dev, struct vprops_type *props);                      \
	enum min_result (*finalize)(void *ctx);                                                    \
	enum min_result (*set_net_attr)(void *ctx, struct min_net_attr *attr)

struct min_net_v11 {
	MIN_NET_V11(min_props_v11, min_vprops_v9);
};

struct min_net_v12 {
	MIN_NET_V11(min_props_v12, min_vprops_v12);
};

#define MIN_AT(type, member, offset)                                                               \
	_Static_assert(offsetof(struct type, member) == (offset), #type "." #member)
#define MIN_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

MIN_SIZE(min_comm_config, 4);
MIN_SIZE(min_device_handle, 32);
MIN_SIZE(min_vprops_v9, 20);
MIN_SIZE(min_vprops_v12, 36);

MIN_SIZE(min_props_v6, 48);
MIN_AT(min_props_v6, pci_path, 8);
MIN_AT(min_props_v6, guid, 16);
MIN_AT(min_props_v6, ptr_support, 24);
MIN_AT(min_props_v6, speed, 28);
MIN_AT(min_props_v6, port, 32);
MIN_AT(min_props_v6, latency, 36);
MIN_AT(min_props_v6, max_comms, 40);
MIN_AT(min_props_v6, max_recvs, 44);
MIN_SIZE(min_props_v7, 56);
MIN_AT(min_props_v7, max_recvs, 44);
MIN_AT(min_props_v7, device_type, 48);
MIN_AT(min_props_v7, device_version, 52);
MIN_SIZE(min_props_v8, 64);
MIN_AT(min_props_v8, reg_is_global, 28);
MIN_AT(min_props_v8, speed, 32);
MIN_AT(min_props_v8, max_recvs, 48);
MIN_AT(min_props_v8, device_version, 56);
MIN_SIZE(min_props_v9, 104);
MIN_AT(min_props_v9, force_flush, 32);
MIN_AT(min_props_v9, speed, 36);
MIN_AT(min_props_v9, max_recvs, 52);
MIN_AT(min_props_v9, device_version, 60);
MIN_AT(min_props_v9, vprops, 64);
MIN_AT(min_props_v9, max_p2p_bytes, 88);
MIN_AT(min_props_v9, max_coll_bytes, 96);
MIN_SIZE(min_props_v11, 112);
MIN_AT(min_props_v11, max_coll_bytes, 96);
MIN_AT(min_props_v11, max_multi_request_size, 104);
MIN_SIZE(min_props_v12, 128);
MIN_AT(min_props_v12, vprops, 64);
MIN_AT(min_props_v12, max_p2p_bytes, 104);
MIN_AT(min_props_v12, max_coll_bytes, 112);
MIN_AT(min_props_v12, max_multi_request_size, 120);
MIN_AT(min_props_v12, rail_id, 124);
MIN_AT(min_props_v12, plane_id, 126);

MIN_SIZE(min_net_v6, 136);
MIN_AT(min_net_v6, reg_mr, 56);
MIN_AT(min_net_v6, reg_mr_dmabuf, 64);
MIN_AT(min_net_v6, dereg_mr, 72);
MIN_AT(min_net_v6, close_listen, 128);
MIN_SIZE(min_net_v7, 152);
MIN_AT(min_net_v7, close_listen, 128);
MIN_AT(min_net_v7, get_device_mr, 136);
MIN_AT(min_net_v7, irecv_consumed, 144);
MIN_SIZE(min_net_v8, 152);
MIN_AT(min_net_v8, irecv_consumed, 144);
MIN_SIZE(min_net_v9, 160);
MIN_AT(min_net_v9, make_vdevice, 152);
MIN_SIZE(min_net_v10, 160);
MIN_AT(min_net_v10, make_vdevice, 152);
MIN_SIZE(min_net_v11, 176);
MIN_AT(min_net_v11, init, 8);
MIN_AT(min_net_v11, devices, 16);
MIN_AT(min_net_v11, get_properties, 24);
MIN_AT(min_net_v11, listen, 32);
MIN_AT(min_net_v11, connect, 40);
MIN_AT(min_net_v11, accept, 48);
MIN_AT(min_net_v11, reg_mr, 56);
MIN_AT(min_net_v11, reg_mr_dmabuf, 64);
MIN_AT(min_net_v11, dereg_mr, 72);
MIN_AT(min_net_v11, isend, 80);
MIN_AT(min_net_v11, irecv, 88);
MIN_AT(min_net_v11, iflush, 96);
MIN_AT(min_net_v11, test, 104);
MIN_AT(min_net_v11, close_send, 112);
MIN_AT(min_net_v11, close_recv, 120);
MIN_AT(min_net_v11, close_listen, 128);
MIN_AT(min_net_v11, get_device_mr, 136);
MIN_AT(min_net_v11, irecv_consumed, 144);
MIN_AT(min_net_v11, make_vdevice, 152);
MIN_AT(min_net_v11, finalize, 160);
MIN_AT(min_net_v11, set_net_attr, 168);
MIN_SIZE(min_net_v12, 176);
MIN_AT(min_net_v12, set_net_attr, 168);

#endif
