/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BASE_NCCL_NET_ABI_H
#define DR_BASE_NCCL_NET_ABI_H

#include <stddef.h>
#include <stdint.h>

/*
 * The interface between NCCL and a network plugin, versions 6 to 12, declared here so that no header of NCCL is
 * needed. A plugin exports one data symbol for each version, `ncclNetPlugin_v6` to `ncclNetPlugin_v12`; NCCL looks
 * for the newest version that it knows and takes the first one that it finds:
 *
 *   version   newest in NCCL      changed against the version before
 *   6         2.13 to 2.18        regMrDmaBuf
 *   7         2.19                device handles; getDeviceMr, irecvConsumed; device type in the properties
 *   8         2.20 to 2.23        regMr takes a size_t; regIsGlobal
 *   9         2.24, 2.25          isend and irecv take size_t; makeVDevice; forceFlush and sizes in the properties
 *   10        2.26, 2.27          profiler callback; configuration of a comm; profiler handles
 *   11        2.28, 2.29          context of a communicator; finalize, setNetAttr; maxMultiRequestSize
 *   12        2.30                eight devices of a virtual one; railId, planeId
 *
 * Source: NVIDIA/nccl, src/include/plugin/net/net_v6.h to net_v12.h of tag v2.30.7-1. Names of members are NCCL's. Sizes
 * and offsets, measured with those headers on x86-64, are asserted at the end of this file.
 */

enum {
	NCCL_NET_HANDLE_BYTES = 128, /* of the handle that listen writes */
	NCCL_NET_REQUESTS_MAX = 32,  /* a comm has that many requests in flight, times maxRecvs */
	NCCL_NET_REQUESTS_MAX_V6 = 8,
	NCCL_NET_UNDEFINED = -1,
};
/* The largest value that maxP2pBytes and maxCollBytes may have. */
#define NCCL_NET_BYTES_MAX ((size_t)1 << 40)

/* ncclResult_t */
enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
	NCCL_IN_PROGRESS = 7,
};

/* Kinds of memory, and bits of ptrSupport. */
enum { NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2, NCCL_PTR_DMABUF = 4 };

/* What irecv's *request holds on entry from version 9 on when NCCL does not need the completion (LL, LL128). */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION ((void *)1)

/* Types of a network device (netDeviceType). */
enum { NCCL_NET_DEVICE_HOST = 0, NCCL_NET_DEVICE_UNPACK = 1 };
enum { NCCL_NET_DEVICE_INVALID_VERSION = 0, NCCL_NET_DEVICE_UNPACK_VERSION = 7 };

/* NCCL's logger. It has no level for errors: they are warnings. flags: subsystems, for level INFO and TRACE. */
enum nccl_log_level {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};
enum {
	NCCL_SUBSYS_INIT = 1,
	NCCL_SUBSYS_NET = 0x10,
	NCCL_SUBSYS_TUNING = 0x40,
	NCCL_SUBSYS_ENV = 0x80,
};
typedef void (*nccl_logger_fn)(enum nccl_log_level level, unsigned long flags, const char *file,
	int line, const char *fmt, ...);
typedef enum nccl_result (*nccl_profiler_fn)(
	void **event, int type, void *parent, int64_t plugin, void *data);

/* ---- properties of a device ---------------------------------------------------------------- */

struct nccl_net_properties_v6 {
	char *name;	/* unique; must outlive the plugin's use */
	char *pciPath;	/* real path of the PCI device in /sys; NULL: none */
	uint64_t guid;	/* of the NIC's chip: with `port` the key of a physical port */
	int ptrSupport; /* NCCL_PTR_* */
	int speed;	/* Mb/s */
	int port;
	float latency; /* us */
	int maxComms;
	int maxRecvs; /* largest n of irecv */
};

struct nccl_net_properties_v7 {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
};

struct nccl_net_properties_v8 {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal; /* a registration serves every comm of the device */
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
};

/* A device that consists of others; ndevs 1: none. */
struct nccl_net_vprops_v9 {
	int ndevs;
	int devs[4];
};
struct nccl_net_vprops_v12 {
	int ndevs;
	int devs[8];
};

struct nccl_net_properties_v9 {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal;
	int forceFlush; /* a flush is needed after every receive into GPU memory */
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	struct nccl_net_vprops_v9 vProps;
	size_t maxP2pBytes, maxCollBytes;
};

struct nccl_net_properties_v11 {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	struct nccl_net_vprops_v9 vProps;
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize; /* 1 */
};

struct nccl_net_properties_v12 {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	struct nccl_net_vprops_v12 vProps;
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId, planeId; /* NCCL_NET_UNDEFINED */
};

/* For devices of type UNPACK; others leave *sendDevComm and *recvDevComm as they are. */
struct nccl_net_device_handle {
	int netDeviceType, netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
};

struct nccl_net_comm_config {
	int trafficClass; /* NCCL_NET_UNDEFINED */
};

struct nccl_net_comm_attr {
	int32_t maxConcurrentPeers, minConcurrentPeers, maxFlowsPerPeer, minFlowsPerPeer;
};
struct nccl_net_attr {
	struct nccl_net_comm_attr sendCommAttr, recvCommAttr;
	uint32_t op, algo, proto; /* bits */
};

/* ---- the tables of functions ----------------------------------------------------------------
 *
 * Rules, for all versions:
 *  - listen, connect and accept do not block. connect and accept return NCCL_SUCCESS with *comm NULL while they
 *    are not done, and are called again with the same arguments; the handle may be written by connect.
 *  - isend, irecv and iflush always set *request; NULL: try again later (iflush: nothing to wait for).
 *  - test always sets *done. sizes may be NULL; for a receive it has one entry for each buffer.
 *  - After deregMr nothing accesses the memory.
 *  - Any result but NCCL_SUCCESS ends the communicator.
 */

/* Members that later versions have as they are. */
#define NCCL_NET_DATA_V6                                                                           \
	enum nccl_result (*isend)(                                                                 \
		void *sendComm, void *data, int size, int tag, void *mhandle, void **request);     \
	enum nccl_result (*irecv)(void *recvComm, int n, void **data, int *sizes, int *tags,       \
		void **mhandles, void **request)

struct nccl_net_v6 {
	const char *name;
	enum nccl_result (*init)(nccl_logger_fn logger);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v6 *props);
	enum nccl_result (*listen)(int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(int dev, void *handle, void **sendComm);
	enum nccl_result (*accept)(void *listenComm, void **recvComm);
	enum nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
	enum nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type,
		uint64_t offset, int fd, void **mhandle);
	enum nccl_result (*deregMr)(void *comm, void *mhandle);
	NCCL_NET_DATA_V6;
	enum nccl_result (*iflush)(
		void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
	enum nccl_result (*test)(void *request, int *done, int *sizes);
	enum nccl_result (*closeSend)(void *sendComm);
	enum nccl_result (*closeRecv)(void *recvComm);
	enum nccl_result (*closeListen)(void *listenComm);
};

#define NCCL_NET_MEMORY_V8                                                                         \
	enum nccl_result (*regMr)(void *comm, void *data, size_t size, int type, void **mhandle);  \
	enum nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type,             \
		uint64_t offset, int fd, void **mhandle);                                          \
	enum nccl_result (*deregMr)(void *comm, void *mhandle)
#define NCCL_NET_REST_V7                                                                           \
	enum nccl_result (*iflush)(                                                                \
		void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);  \
	enum nccl_result (*test)(void *request, int *done, int *sizes);                            \
	enum nccl_result (*closeSend)(void *sendComm);                                             \
	enum nccl_result (*closeRecv)(void *recvComm);                                             \
	enum nccl_result (*closeListen)(void *listenComm);                                         \
	enum nccl_result (*getDeviceMr)(void *comm, void *mhandle, void **dptr_mhandle);           \
	enum nccl_result (*irecvConsumed)(void *recvComm, int n, void *request)

struct nccl_net_v7 {
	const char *name;
	enum nccl_result (*init)(nccl_logger_fn logger);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v7 *props);
	enum nccl_result (*listen)(int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(int dev, void *handle, void **sendComm,
		struct nccl_net_device_handle **sendDevComm);
	enum nccl_result (*accept)(
		void *listenComm, void **recvComm, struct nccl_net_device_handle **recvDevComm);
	enum nccl_result (*regMr)(void *comm, void *data, int size, int type, void **mhandle);
	enum nccl_result (*regMrDmaBuf)(void *comm, void *data, size_t size, int type,
		uint64_t offset, int fd, void **mhandle);
	enum nccl_result (*deregMr)(void *comm, void *mhandle);
	NCCL_NET_DATA_V6;
	NCCL_NET_REST_V7;
};

struct nccl_net_v8 {
	const char *name;
	enum nccl_result (*init)(nccl_logger_fn logger);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v8 *props);
	enum nccl_result (*listen)(int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(int dev, void *handle, void **sendComm,
		struct nccl_net_device_handle **sendDevComm);
	enum nccl_result (*accept)(
		void *listenComm, void **recvComm, struct nccl_net_device_handle **recvDevComm);
	NCCL_NET_MEMORY_V8;
	NCCL_NET_DATA_V6;
	NCCL_NET_REST_V7;
};

struct nccl_net_v9 {
	const char *name;
	enum nccl_result (*init)(nccl_logger_fn logger);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v9 *props);
	enum nccl_result (*listen)(int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(int dev, void *handle, void **sendComm,
		struct nccl_net_device_handle **sendDevComm);
	enum nccl_result (*accept)(
		void *listenComm, void **recvComm, struct nccl_net_device_handle **recvDevComm);
	NCCL_NET_MEMORY_V8;
	enum nccl_result (*isend)(
		void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request);
	enum nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
		void **mhandles, void **request);
	NCCL_NET_REST_V7;
	enum nccl_result (*makeVDevice)(int *d, struct nccl_net_vprops_v9 *props);
};

#define NCCL_NET_TRANSFER_V10                                                                      \
	enum nccl_result (*accept)(                                                                \
		void *listenComm, void **recvComm, struct nccl_net_device_handle **recvDevComm);   \
	NCCL_NET_MEMORY_V8;                                                                        \
	enum nccl_result (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle, \
		void *phandle, void **request);                                                    \
	enum nccl_result (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,    \
		void **mhandles, void **phandles, void **request);                                 \
	NCCL_NET_REST_V7

struct nccl_net_v10 {
	const char *name;
	enum nccl_result (*init)(nccl_logger_fn logger, nccl_profiler_fn profiler);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v9 *props);
	enum nccl_result (*listen)(int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(int dev, struct nccl_net_comm_config *config, void *handle,
		void **sendComm, struct nccl_net_device_handle **sendDevComm);
	NCCL_NET_TRANSFER_V10;
	enum nccl_result (*makeVDevice)(int *d, struct nccl_net_vprops_v9 *props);
};

struct nccl_net_v11 {
	const char *name;
	/* Called for every communicator. finalize is called even when init failed, with *ctx as init left it. */
	enum nccl_result (*init)(void **ctx, uint64_t commId, struct nccl_net_comm_config *config,
		nccl_logger_fn logger, nccl_profiler_fn profiler);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v11 *props);
	enum nccl_result (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(void *ctx, int dev, void *handle, void **sendComm,
		struct nccl_net_device_handle **sendDevComm);
	NCCL_NET_TRANSFER_V10;
	enum nccl_result (*makeVDevice)(int *d, struct nccl_net_vprops_v9 *props);
	enum nccl_result (*finalize)(void *ctx);
	enum nccl_result (*setNetAttr)(void *ctx, struct nccl_net_attr *attr);
};

struct nccl_net_v12 {
	const char *name;
	enum nccl_result (*init)(void **ctx, uint64_t commId, struct nccl_net_comm_config *config,
		nccl_logger_fn logger, nccl_profiler_fn profiler);
	enum nccl_result (*devices)(int *ndev);
	enum nccl_result (*getProperties)(int dev, struct nccl_net_properties_v12 *props);
	enum nccl_result (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	enum nccl_result (*connect)(void *ctx, int dev, void *handle, void **sendComm,
		struct nccl_net_device_handle **sendDevComm);
	NCCL_NET_TRANSFER_V10;
	enum nccl_result (*makeVDevice)(int *d, struct nccl_net_vprops_v12 *props);
	enum nccl_result (*finalize)(void *ctx);
	enum nccl_result (*setNetAttr)(void *ctx, struct nccl_net_attr *attr);
};

/* ---- sizes and offsets of 64-bit systems ----------------------------------------------------- */

#define NCCL_NET_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define NCCL_NET_AT(type, member, bytes)                                                           \
	_Static_assert(offsetof(struct type, member) == (bytes), #type "." #member)

NCCL_NET_SIZE(nccl_net_properties_v6, 48);
NCCL_NET_SIZE(nccl_net_properties_v7, 56);
NCCL_NET_SIZE(nccl_net_properties_v8, 64);
NCCL_NET_SIZE(nccl_net_properties_v9, 104);
NCCL_NET_SIZE(nccl_net_properties_v11, 112);
NCCL_NET_SIZE(nccl_net_properties_v12, 128);
NCCL_NET_SIZE(nccl_net_device_handle, 32);
NCCL_NET_SIZE(nccl_net_attr, 44);
NCCL_NET_SIZE(nccl_net_comm_config, 4);
NCCL_NET_SIZE(nccl_net_v6, 136);
NCCL_NET_SIZE(nccl_net_v7, 152);
NCCL_NET_SIZE(nccl_net_v8, 152);
NCCL_NET_SIZE(nccl_net_v9, 160);
NCCL_NET_SIZE(nccl_net_v10, 160);
NCCL_NET_SIZE(nccl_net_v11, 176);
NCCL_NET_SIZE(nccl_net_v12, 176);

/* Five members of 4 bytes each that follow one another in every version. */
#define NCCL_NET_SPEED(type, at)                                                                   \
	NCCL_NET_AT(type, speed, at);                                                              \
	NCCL_NET_AT(type, port, (at) + 4);                                                         \
	NCCL_NET_AT(type, latency, (at) + 8);                                                      \
	NCCL_NET_AT(type, maxComms, (at) + 12);                                                    \
	NCCL_NET_AT(type, maxRecvs, (at) + 16)

NCCL_NET_AT(nccl_net_properties_v6, pciPath, 8);
NCCL_NET_AT(nccl_net_properties_v6, guid, 16);
NCCL_NET_AT(nccl_net_properties_v6, ptrSupport, 24);
NCCL_NET_SPEED(nccl_net_properties_v6, 28);

NCCL_NET_SPEED(nccl_net_properties_v7, 28);
NCCL_NET_AT(nccl_net_properties_v7, netDeviceType, 48);
NCCL_NET_AT(nccl_net_properties_v7, netDeviceVersion, 52);

NCCL_NET_AT(nccl_net_properties_v8, regIsGlobal, 28);
NCCL_NET_SPEED(nccl_net_properties_v8, 32);
NCCL_NET_AT(nccl_net_properties_v8, netDeviceType, 52);
NCCL_NET_AT(nccl_net_properties_v8, netDeviceVersion, 56);

/* From version 9 on the properties begin the same. */
#define NCCL_NET_PROPERTIES(type)                                                                  \
	NCCL_NET_AT(type, regIsGlobal, 28);                                                        \
	NCCL_NET_AT(type, forceFlush, 32);                                                         \
	NCCL_NET_SPEED(type, 36);                                                                  \
	NCCL_NET_AT(type, netDeviceType, 56);                                                      \
	NCCL_NET_AT(type, netDeviceVersion, 60);                                                   \
	NCCL_NET_AT(type, vProps, 64)

NCCL_NET_PROPERTIES(nccl_net_properties_v9);
NCCL_NET_AT(nccl_net_properties_v9, maxP2pBytes, 88);
NCCL_NET_AT(nccl_net_properties_v9, maxCollBytes, 96);

NCCL_NET_PROPERTIES(nccl_net_properties_v11);
NCCL_NET_AT(nccl_net_properties_v11, maxP2pBytes, 88);
NCCL_NET_AT(nccl_net_properties_v11, maxCollBytes, 96);
NCCL_NET_AT(nccl_net_properties_v11, maxMultiRequestSize, 104);

NCCL_NET_PROPERTIES(nccl_net_properties_v12);
NCCL_NET_AT(nccl_net_properties_v12, maxP2pBytes, 104);
NCCL_NET_AT(nccl_net_properties_v12, maxCollBytes, 112);
NCCL_NET_AT(nccl_net_properties_v12, maxMultiRequestSize, 120);
NCCL_NET_AT(nccl_net_properties_v12, railId, 124);
NCCL_NET_AT(nccl_net_properties_v12, planeId, 126);

/* A later table of functions begins with all those of an earlier one. */
#define NCCL_NET_SINCE_V6(type)                                                                    \
	NCCL_NET_AT(type, init, 8);                                                                \
	NCCL_NET_AT(type, devices, 16);                                                            \
	NCCL_NET_AT(type, getProperties, 24);                                                      \
	NCCL_NET_AT(type, listen, 32);                                                             \
	NCCL_NET_AT(type, connect, 40);                                                            \
	NCCL_NET_AT(type, accept, 48);                                                             \
	NCCL_NET_AT(type, regMr, 56);                                                              \
	NCCL_NET_AT(type, regMrDmaBuf, 64);                                                        \
	NCCL_NET_AT(type, deregMr, 72);                                                            \
	NCCL_NET_AT(type, isend, 80);                                                              \
	NCCL_NET_AT(type, irecv, 88);                                                              \
	NCCL_NET_AT(type, iflush, 96);                                                             \
	NCCL_NET_AT(type, test, 104);                                                              \
	NCCL_NET_AT(type, closeSend, 112);                                                         \
	NCCL_NET_AT(type, closeRecv, 120);                                                         \
	NCCL_NET_AT(type, closeListen, 128)
#define NCCL_NET_SINCE_V7(type)                                                                    \
	NCCL_NET_SINCE_V6(type);                                                                   \
	NCCL_NET_AT(type, getDeviceMr, 136);                                                       \
	NCCL_NET_AT(type, irecvConsumed, 144)
#define NCCL_NET_SINCE_V9(type)                                                                    \
	NCCL_NET_SINCE_V7(type);                                                                   \
	NCCL_NET_AT(type, makeVDevice, 152)
#define NCCL_NET_SINCE_V11(type)                                                                   \
	NCCL_NET_SINCE_V9(type);                                                                   \
	NCCL_NET_AT(type, finalize, 160);                                                          \
	NCCL_NET_AT(type, setNetAttr, 168)

NCCL_NET_SINCE_V6(nccl_net_v6);
NCCL_NET_SINCE_V7(nccl_net_v7);
NCCL_NET_SINCE_V7(nccl_net_v8);
NCCL_NET_SINCE_V9(nccl_net_v9);
NCCL_NET_SINCE_V9(nccl_net_v10);
NCCL_NET_SINCE_V11(nccl_net_v11);
NCCL_NET_SINCE_V11(nccl_net_v12);

#undef NCCL_NET_MEMORY_V8
#undef NCCL_NET_REST_V7
#undef NCCL_NET_PROPERTIES
#undef NCCL_NET_SINCE_V6
#undef NCCL_NET_SINCE_V7
#undef NCCL_NET_SINCE_V9
#undef NCCL_NET_SINCE_V11
#undef NCCL_NET_SIZE
#undef NCCL_NET_AT

#endif
