/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKETCPX_FAKETCPX_H
#define DR_TESTS_FAKETCPX_FAKETCPX_H

#include <stdint.h>

/*
 * libnccl-net-faketcpx.so: a plugin with the interface of Google's GPUDirect-TCPX (3.1.9), over plain TCP. Memory
 * of type CUDA is ordinary memory, or with FAKETCPX_MEMORY=cuda GPU memory, of a real GPU or an emulated one.
 *
 * Table: ncclNetPlugin_v7 alone, named "GPUDirectTCPX_v7". regMrDmaBuf is NULL. Properties: host and CUDA memory,
 * maxRecvs 1, device type UNPACK (1), version 7. A second init fails.
 *
 * Connections. The first connect or accept returns no comm, and the calls are repeated, connect with the same
 * handle buffer, which holds its state. After a failure neither may be called again; a listener gives one comm.
 * accept writes the device handle into the memory that its last argument points to (**device); without it nothing
 * can be received. connect ignores its own. A comm has a control connection and NCCL_NSOCKS_PERTHREAD times
 * NCCL_SOCKET_NTHREADS data connections (1, at most 8 in all). The sender cuts a message into pieces of
 * NCCL_DYNAMIC_CHUNK_SIZE, which has to be set, and deals them out to connections that have fewer than 6.
 *
 * Requests. 16 of a comm at a time. isend and irecv only queue. Each test starts at most one queued request and hands
 * out pieces of one; so it has to be called at least once per request before all of them move. Only the oldest
 * request that is not complete may be tested, again and again. test does not write the size, and tags mean nothing: the k-th
 * send belongs to the k-th receive. iflush has no use. A send ends when test says so. A receive has its slot until
 * irecvConsumed(comm, 1, request), in the order of posting: it counts among the 16 until then.
 *
 * Received data lies in the pages of a bounce buffer. The device handle's `handle` points to a struct
 * tcpx_device_handle. The n-th receive of a comm (from 0; receives of no bytes count) has slot n % 16: once test has
 * said that it is complete, meta->cnt[slot] fragments are described in meta->mem[slot], in any order. A fragment
 * is `len` bytes at bounce_buf + src_off, and belongs at the receive's buffer + dst_off. After irecvConsumed
 * pages and descriptions belong to the plugin again.
 *
 * GPU memory (FAKETCPX_MEMORY=cuda). The bounce buffer is GPU memory of the context that is current on the thread that calls
 * accept, and bounce_buf its address, at a multiple of 4,096. meta is pinned host memory, mapped for the GPU at the
 * same address; the handle itself is ordinary memory. A sending comm takes the context that is current when connect
 * gives it; if there is none, the one at its first registration of CUDA memory. Memory registered as CUDA is GPU
 * memory and is never followed by the CPU. A send from it is copied out through pinned memory; every receive,
 * into memory of either type, is copied into the bounce buffer, before test says that it is complete.
 * irecvConsumed fills the receive's pages with 0xdd. The copies are on a stream of the comm. They are waited for
 * in regMr, test, irecvConsumed and close, which may be called with any current context and with none, and leave it
 * as it was. The context has to stay until close.
 *
 * A bounce buffer of fewer pages (FAKETCPX_PAGES) can run out of them: receives then wait for irecvConsumed of those
 * that are complete. Receives behind the oldest incomplete one leave 2,048 pages, so that it can go on.
 *
 * Receives are at most 4 MiB, in at most 2,048 fragments. CUDA memory is registered from a multiple of 4,096.
 *
 * Errors. The end of the control connection makes test return ncclSystemError. A data connection that breaks is told
 * to nobody: its requests never complete. Nothing cancels a request but the closing of its comm. A call of the driver
 * that fails, or no context, makes accept, regMr, test, irecvConsumed or close return ncclUnhandledCudaError (1); the log
 * says which. After that in test or irecvConsumed the comm is at its end. A failed accept gives no comm. A failed close
 * has closed.
 *
 * Misuse ends the process by abort() with a line "faketcpx: ..." on standard error:
 *   a request tested out of order, or after it was complete; irecvConsumed out of order, twice or too early; a
 *   17th request, with a hint when receives are complete and not consumed; memory that is not registered; a
 *   message of more than 4 MiB; a receive shorter than its message; CUDA memory whose registration or receive does not start at
 *   a multiple of 4,096; more than one buffer; a receive without device handle; connect or accept after their end;
 *   connect with another copy of the handle; NCCL_DYNAMIC_CHUNK_SIZE unset; the two ends' RECV_SYNC different; iflush;
 *   CUDA memory that is no GPU memory, where the driver can tell (FAKETCPX_MEMORY=cuda).
 *
 * Differences from Google's: misuse aborts where that returns an error, goes on or crashes. It tolerates tests
 * out of order while nothing is complete or moving, receives that start anywhere in registered memory, and
 * messages that are longer than their receive. Its data connections move by threads of its own, here they move in
 * test. Neither it nor this one says anything on the place of host receives; here they go through the bounce buffer.
 * Messages never travel inside the control connection (NCCL_INLINE_THRESHOLD is 0 there, too). The bounce buffer belongs to
 * the comm, there to the NIC and the GPU; the daemon and flow steering are missing. GPU memory is reached by copies, there by
 * the NIC.
 *
 * Environment:
 *   NCCL_GPUDIRECTTCPX_SOCKET_IFNAME  prefixes of interfaces with commas, as devices; loopback only if named
 *   NCCL_GPUDIRECTTCPX_CTRL_DEV       interface of the control connections (the device's own)
 *   NCCL_GPUDIRECTTCPX_RECV_SYNC=1    a send starts when its receive was started
 *   NCCL_DYNAMIC_CHUNK_SIZE           bytes of a piece
 *   NCCL_NSOCKS_PERTHREAD, NCCL_SOCKET_NTHREADS
 *   FAKETCPX_SEED                     of the fragments' places, lengths and order (1)
 *   FAKETCPX_MEMORY                   where memory of type CUDA is: host or cuda (host)
 *   FAKETCPX_PAGES                    of a bounce buffer, 2,048 to 32,768 (32,768; with cuda 4,096)
 *   DR_LIBCUDA                        library of the CUDA driver (libcuda.so.1)
 */
enum {
	TCPX_REQUESTS_MAX = 16,
	TCPX_SLOTS = 16,
	TCPX_SOCKETS_MAX = 8,
	TCPX_TASKS_MAX = 6,
	TCPX_PAGE = 4096,
	TCPX_FRAGMENTS_MAX = 2048,
	TCPX_RECEIVE_MAX = 4 << 20,
	TCPX_DEVICE_UNPACK = 1,
	TCPX_UNPACK_VERSION = 7,
	TCPX_PTR_CUDA = 2,
	TCPX_POISON = 0xdd, /* in pages that belong to the plugin */
};

struct tcpx_fragment {
	uint32_t src_off; /* in the bounce buffer */
	uint32_t len;
	uint64_t dst_off; /* in the receive */
};

struct tcpx_meta {
	struct tcpx_fragment mem[TCPX_SLOTS][TCPX_FRAGMENTS_MAX];
	uint64_t cnt[TCPX_SLOTS];
};

struct tcpx_device_handle {
	struct tcpx_meta *meta;
	void *bounce_buf;
	uint64_t head; /* of the device's code; -1 at first */
};

_Static_assert(sizeof(struct tcpx_fragment) == 16, "fragment");
_Static_assert(sizeof(struct tcpx_meta) == 16 * 2048 * 16 + 16 * 8, "meta");
_Static_assert(sizeof(struct tcpx_device_handle) == 24, "device handle");

#endif
