/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_NCCLNET_H
#define DR_TRANSPORT_NCCLNET_H

#include "base/err.h"
#include "base/nccl_net_abi.h"

#include <stdbool.h>

/*
 * Network plugins of NCCL, seen from the host's side: one interface for versions 6 to 12 of the ABI. The caller obeys
 * the plugin's rules (base/nccl_net_abi.h); nothing here waits, tests or repeats a call by itself.
 *
 * Results of the plugin are passed on as they are. Every output is set to DR_NCCL_UNSET before the call, so that the caller
 * sees whether the plugin has written it.
 *
 * The plugin is foreign code: each call, dr_nccl_open included, may crash, end or block the process.
 */
enum { DR_NCCL_OLDEST = 6, DR_NCCL_NEWEST = 12 };
/* No plugin returns this pointer: it is not aligned. */
#define DR_NCCL_UNSET ((void *)(uintptr_t)0x5a5a5a5b)

struct dr_nccl {
	unsigned version;
	unsigned exported; /* bit v: the file has the table of version v */
	void *so;
	const char *name;
	void *ctx; /* version 11 and newer */
	bool initialised;
	/* The first member that is required and NULL; NULL: none. */
	const char *missing;

	/* The same in all versions. */
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*dereg_mr)(void *comm, void *mhandle);
	enum nccl_result (*test)(void *request, int *done, int *sizes);
	enum nccl_result (*close_send)(void *comm);
	enum nccl_result (*close_recv)(void *comm);
	enum nccl_result (*close_listen)(void *comm);
	/* Of some: NULL where the version or the plugin has none. */
	enum nccl_result (*reg_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t off,
		int fd, void **mhandle);
	enum nccl_result (*flush)(
		void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
	enum nccl_result (*consumed)(void *comm, int n, void *request);
	enum nccl_result (*finalize)(void *ctx);
	/* By shape; which one is used follows from the version. */
	union {
		enum nccl_result (*plain)(nccl_logger_fn logger);
		enum nccl_result (*profiled)(nccl_logger_fn logger, nccl_profiler_fn profiler);
		enum nccl_result (*context)(void **ctx, uint64_t id,
			struct nccl_net_comm_config *config, nccl_logger_fn logger,
			nccl_profiler_fn profiler);
	} init;
	union {
		enum nccl_result (*v6)(int dev, struct nccl_net_properties_v6 *out);
		enum nccl_result (*v7)(int dev, struct nccl_net_properties_v7 *out);
		enum nccl_result (*v8)(int dev, struct nccl_net_properties_v8 *out);
		enum nccl_result (*v9)(int dev, struct nccl_net_properties_v9 *out);
		enum nccl_result (*v11)(int dev, struct nccl_net_properties_v11 *out);
		enum nccl_result (*v12)(int dev, struct nccl_net_properties_v12 *out);
	} properties;
	union {
		enum nccl_result (*plain)(int dev, void *handle, void **comm);
		enum nccl_result (*context)(void *ctx, int dev, void *handle, void **comm);
	} listen;
	union {
		enum nccl_result (*plain)(int dev, void *handle, void **comm);
		enum nccl_result (*device)(
			int dev, void *handle, void **comm, struct nccl_net_device_handle **device);
		enum nccl_result (*config)(int dev, struct nccl_net_comm_config *config,
			void *handle, void **comm, struct nccl_net_device_handle **device);
		enum nccl_result (*context)(void *ctx, int dev, void *handle, void **comm,
			struct nccl_net_device_handle **device);
	} connect;
	union {
		enum nccl_result (*plain)(void *listen_comm, void **comm);
		enum nccl_result (*device)(
			void *listen_comm, void **comm, struct nccl_net_device_handle **device);
	} accept;
	union {
		enum nccl_result (*narrow)(
			void *comm, void *data, int size, int type, void **mhandle);
		enum nccl_result (*wide)(
			void *comm, void *data, size_t size, int type, void **mhandle);
	} reg_mr;
	union {
		enum nccl_result (*narrow)(
			void *comm, void *data, int size, int tag, void *mhandle, void **request);
		enum nccl_result (*wide)(void *comm, void *data, size_t size, int tag,
			void *mhandle, void **request);
		enum nccl_result (*profiled)(void *comm, void *data, size_t size, int tag,
			void *mhandle, void *phandle, void **request);
	} isend;
	union {
		enum nccl_result (*narrow)(void *comm, int n, void **data, int *sizes, int *tags,
			void **mhandles, void **request);
		enum nccl_result (*wide)(void *comm, int n, void **data, size_t *sizes, int *tags,
			void **mhandles, void **request);
		enum nccl_result (*profiled)(void *comm, int n, void **data, size_t *sizes,
			int *tags, void **mhandles, void **phandles, void **request);
	} irecv;
};

/*
 * Load the file and select a table: that version, or 0 for the newest one. RTLD_NOW | RTLD_LOCAL, as NCCL. -ENOENT: it
 * cannot be loaded; -ENOSYS: it is no plugin, or lacks this version. A table with a missing member is no error here.
 */
int dr_nccl_open(struct dr_nccl *n, const char *file, unsigned version, struct dr_err *e)
	DR_MUST_CHECK;
/* finalize, where the version has it, after a successful dr_nccl_init. */
enum nccl_result dr_nccl_finalize(struct dr_nccl *n);
/* dlclose. The plugin's memory must not be touched afterwards. */
void dr_nccl_close(struct dr_nccl *n);

/*
 * init with a logger obeying NCCL_DEBUG (VERSION, WARN, INFO, ABORT, TRACE; not set: nothing), and
 * writes to our log. From version 11 on the result is a context, which later calls get.
 */
enum nccl_result dr_nccl_init(struct dr_nccl *n);

struct dr_nccl_properties {
	const char *name, *pci_path; /* the plugin's; valid until it is closed */
	uint64_t guid;
	int ptr_support, speed_mbps, port, max_comms, max_recvs;
	int device_type, device_version; /* v7 */
	int reg_is_global;		 /* v8 */
	int force_flush, ndevs;		 /* v9 */
	size_t p2p_bytes;
	int multi_request; /* v11 */
	/* The struct was filled with a pattern before the call, as NCCL passes it uninitialised. */
	const char *unset; /* a member that still has the pattern; NULL: none */
	bool past_end;	   /* bytes behind the struct were written */
};
/* Members that the version does not have get the value that NCCL takes for it. */
enum nccl_result dr_nccl_properties(
	const struct dr_nccl *n, int dev, struct dr_nccl_properties *out);

enum nccl_result dr_nccl_listen(const struct dr_nccl *n, int dev, void *handle, void **comm);
/* May leave *comm NULL: to be called again with the same handle, which the plugin may have written. */
enum nccl_result dr_nccl_connect(const struct dr_nccl *n, int dev, void *handle, void **comm);
/* *device points to room for a device handle, which a device of type UNPACK writes, or replaces by its own. */
enum nccl_result dr_nccl_accept(const struct dr_nccl *n, void *listen_comm, void **comm,
	struct nccl_net_device_handle **device);

struct dr_nccl_buffer {
	void *data, *mhandle;
	size_t size;
	int tag;
};
/* Register the memory of b for that comm, and set its mhandle. type: NCCL_PTR_HOST or NCCL_PTR_CUDA, one that the
 * device supports. -1 in place of a result: larger than this version can express. */
int dr_nccl_reg(const struct dr_nccl *n, void *comm, struct dr_nccl_buffer *b, int type);

/* GPU memory through the dma-buf fd, which stays the caller's, from offset off in it. The plugin has regMrDmaBuf. */
enum nccl_result dr_nccl_reg_dmabuf(
	const struct dr_nccl *n, void *comm, struct dr_nccl_buffer *b, int fd, uint64_t off);

enum { DR_NCCL_GROUP_MAX = 8 };
enum nccl_result dr_nccl_isend(
	const struct dr_nccl *n, void *comm, const struct dr_nccl_buffer *b, void **request);
/* One request for `count` receives, at most DR_NCCL_GROUP_MAX and maxRecvs of the device. */
enum nccl_result dr_nccl_irecv(const struct dr_nccl *n, void *comm, int count,
	const struct dr_nccl_buffer *b, void **request);

/* Make the `size` bytes that were received into b visible to the GPU. *request: to be tested; NULL: they are. */
enum nccl_result dr_nccl_flush(
	const struct dr_nccl *n, void *comm, const struct dr_nccl_buffer *b, void **request);

/* "internal error"; never NULL. */
const char *dr_nccl_result_name(enum nccl_result rc);

#endif
