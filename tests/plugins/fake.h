/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_FAKE_H
#define DR_TESTS_PLUGINS_FAKE_H

#include <stdint.h>

/*
 * libnccl-net-fake.so: an NCCL network plugin over TCP with four personalities, chosen by FAKENET.
 * It shares no code and no declaration with plugin/ and transport/, so that a misunderstanding of
 * the interface shows.
 *
 *                       socket (default)   pieces            direct            fast
 *   stands for          a plain plugin     GPUDirect-TCPX    GPUDirect RDMA    Fast Socket
 *   name                FakeSocket         GPUDirectTCPX_v7  FakeDirect        FakeFast
 *   versions            6 to 12            7                 7 to 12           6
 *   memory              host               host, CUDA        host, CUDA (1)    host
 *   received data       in the buffer      in pages          (2)               in the buffer
 *   requests of a comm  32                 16                16                16
 *   one too many        no request (NULL)  misuse            no request        no request
 *   buffers a receive   8, chosen by tag   1, in order       1, in order       1, in order
 *   longest message     1 GiB              4 MiB             1 GiB             1 GiB
 *   tests               any order          the oldest one    any order         the oldest one
 *   size by test        yes                no                yes               no
 *   comms a listener    any number         1                 1                 1
 *   connections a comm  1                  (3)               (3)               (3)
 *   connect, accept     do not wait        do not wait       do not wait       wait (4)
 *   a second init       does nothing       fails             does nothing      does nothing
 *
 * (1) With FAKENET_DMABUF also dma-bufs. (2) In the buffer, the last bytes after iflush. (3) One of
 * control and NCCL_NSOCKS_PERTHREAD x NCCL_SOCKET_NTHREADS (1, at most 8). (4) connect for 200 ms
 * and until it is connected, accept until the peer has connected.
 *
 * Common. A device is a network interface that is up and has an IPv4 or IPv6 address, by the
 * interfaces' numbers. The list is made by the first init. isend and irecv only queue; bytes move
 * in test, and each test starts at most one queued request. Messages go in the order of isend. Any
 * function may be called on different comms at a time, and regMr and deregMr beside isend, irecv
 * and test of the same comm. Versions 11 and 12 have a context for each init; finalize closes what
 * is left in it. connect keeps its state in the caller's handle. With one comm a listener, the
 * first connect and accept that do not wait give no comm, and after success or failure neither may
 * be called again. After deregMr of memory whose requests are not complete nothing moves on the
 * comm any more; over socket its requests fail.
 *
 * Pieces. accept writes the device handle into the memory that its last argument points to. `handle` points to a struct
 * fn_unpack_handle. The n-th receive of a comm has slot n % 16: once test has said that it is complete, meta->cnt[slot] fragments are
 * in meta->mem[slot], in any order: `len` bytes at bounce_buf + src_off, which belong at the receive's buffer + dst_off.
 * irecvConsumed(comm, 1, request), in the order of posting, gives pages and slot back; the receive counts among the 16 until then.
 * A message goes in pieces of NCCL_DYNAMIC_CHUNK_SIZE, which has to be set. Receives behind the oldest incomplete one leave
 * 2,048 pages, so that it can go on. The end of a data connection is told to nobody, that of the control connection is an error.
 *
 * Direct. The last bytes of a receive into CUDA memory, up to 4,096 of them, are FN_POISON when test says that it is complete. iflush
 * with the receive's address and registration and the size that test gave returns a request, which is complete in the third test;
 * the bytes are written before that and not earlier. A receive of no bytes or into host memory needs none; iflush then
 * gives no request, and never with FAKENET_ORDERED=1. regMrDmaBuf takes a descriptor of a dma-buf, or of a memfd whose first and
 * last 64 bytes have to be those of the memory.
 *
 * GPU memory (FAKENET_MEMORY=cuda). CUDA memory is that of a real or an emulated GPU and is never followed by the CPU; else it is
 * ordinary memory. A comm takes the context that is current when connect or accept gives it, or at its first registration of
 * CUDA memory (of pieces, accept needs one), keeps it until close and leaves the callers' as they were. A failed call of the driver
 * makes the plugin's call return ncclUnhandledCudaError (1), and the log says which; in test and irecvConsumed it ends the comm.
 *
 * Errors. A peer that closed, reset or refused is REMOTE_ERROR; the end of a separate control connection, and what the
 * kernel refuses, SYSTEM_ERROR. What was complete before can still be tested.
 *
 * Misuse of the caller's ends the process by abort() with a line "fakenet: ..." on standard error: misuse_test.c has
 * all of it. Google's plugin returns an error, goes on or crashes in these cases.
 *
 * Environment
 *   FAKENET               personality
 *   FAKENET_IFNAME        prefixes of interfaces with commas, as devices; loopback only if named. Of pieces:
 *                         NCCL_GPUDIRECTTCPX_SOCKET_IFNAME
 *   FAKENET_MEMORY        where CUDA memory is: host or cuda (host)
 *   FAKENET_ORDERED=1     of direct: data is visible at completion, and force_flush is 0
 *   FAKENET_DMABUF        of direct: 1 takes dma-bufs, "only" and regMr of CUDA memory fails
 *   FAKENET_PAGES         of pieces: pages of a bounce buffer, 2,048 to 32,768 (32,768; with cuda 4,096)
 *   FAKENET_SEED          of pieces: the fragments' places, lengths and order (1)
 *   FAKENET_BUGS          misbehaviours with commas, see net/bugs.h
 *   FAKENET_FILE          a file with lines NAME=VALUE, which dlopen puts into the environment
 *   NCCL_DYNAMIC_CHUNK_SIZE, NCCL_NSOCKS_PERTHREAD, NCCL_SOCKET_NTHREADS
 *   NCCL_GPUDIRECTTCPX_RECV_SYNC=1  of pieces: a send starts when its receive was started; the same at both ends
 *   DR_LIBCUDA            library of the CUDA driver (libcuda.so.1)
 */
enum {
	FN_PAGE = 4096,
	FN_SLOTS = 16,
	FN_FRAGMENTS_MAX = 2048,
	FN_UNPACK_VERSION = 7,
	FN_PIECES_MAX = 4 << 20, /* bytes of a message */
	FN_MESSAGE_MAX = 1 << 30,
	FN_HELD_MAX = 4096, /* bytes of a receive that need a flush */
	FN_FLUSH_TESTS = 3, /* until a flush is complete */
	FN_POISON =
		0xdd, /* in pages that belong to the plugin, and in place of bytes that need a flush */
};

struct fn_fragment {
	uint32_t src_off; /* in the bounce buffer */
	uint32_t len;
	uint64_t dst_off; /* in the receive */
};

struct fn_meta {
	struct fn_fragment mem[FN_SLOTS][FN_FRAGMENTS_MAX];
	uint64_t cnt[FN_SLOTS];
};

struct fn_unpack_handle {
	struct fn_meta *meta;
	void *bounce_buf;
	uint64_t head; /* of the device's code; -1 at first */
};

_Static_assert(sizeof(struct fn_fragment) == 16, "fragment");
_Static_assert(sizeof(struct fn_meta) == 16 * 2048 * 16 + 16 * 8, "meta");
_Static_assert(sizeof(struct fn_unpack_handle) == 24, "device handle");

#endif
