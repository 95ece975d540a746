/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKEGDR_FAKEGDR_H
#define DR_TESTS_FAKEGDR_FAKEGDR_H

/*
 * libnccl-net-fakegdr.so: a plugin with the interface of those that take GPU memory directly (GPUDirect RDMA), over plain
 * TCP. Memory of type CUDA is ordinary memory, or with FAKEGDR_MEMORY=cuda GPU memory, of a real GPU or an
 * emulated one. It is built from the files of tests/faketcpx/net and its own.
 *
 * Tables: ncclNetPlugin_v7 and ncclNetPlugin_v9, named "FakeGDR". Properties: host and CUDA memory, with FAKEGDR_DMABUF=1
 * dma-bufs, too; maxRecvs 1, device type HOST (0). In version 9 forceFlush is 1 if a flush is needed. getDeviceMr,
 * irecvConsumed and makeVDevice are NULL. init may be called again, and then does nothing.
 *
 * Connections are those of tests/faketcpx/faketcpx.h: connect is repeated with the same handle buffer, a listener
 * gives one comm, and neither may be called after its end. No device handle is written.
 *
 * Requests. 16 of a comm at a time; isend and irecv give no request (NULL) when there are more. isend and irecv only queue,
 * test moves. Each call of test starts at most one queued request. Requests are tested in any order, each until it is
 * complete. test writes the size of the message, of sends and receives, unless the pointer is NULL. The k-th send belongs
 * to the k-th receive, tags mean nothing.
 *
 * Received data lies in the receive's buffer, in host or GPU memory, at any address.
 *
 * Visibility. With FAKEGDR_ORDERED=0 the last bytes of a receive into CUDA memory, up to 4,096 of them, are not there when
 * test says that it is complete: 0xdd is in their place. iflush of the receive returns a request, which is complete in
 * the third test; the bytes are written before that and not earlier. iflush gets the receive's address and
 * registration, and the size that test gave, as from NCCL. The latest receive at that address is meant. A receive of no bytes needs none, and into host memory
 * neither; iflush then gives no request. With FAKEGDR_ORDERED=1 all bytes are there at completion, and iflush never gives a
 * request.
 *
 * deregMr of memory whose receives or flushes are not complete: nothing moves on the comm any more, and it can be closed.
 *
 * dma-bufs. regMrDmaBuf takes an open descriptor of a dma-buf, or of a memfd, as the emulated CUDA library exports it.
 * The first and last 64 bytes of a memfd's range have to be those of the memory, which other comms may use meanwhile. The
 * descriptor is not needed after the call.
 *
 * GPU memory (FAKEGDR_MEMORY=cuda). A comm takes the context that is current when connect or accept gives it; if there is none,
 * the one at its first registration of CUDA memory. Memory registered as CUDA is GPU memory and is never followed by the CPU;
 * its bytes are copied through pinned memory on a stream of the comm. The copies are waited for in regMr, regMrDmaBuf,
 * test and close, which may be called with any current context and with none, and leave it as it was. The context
 * has to stay until close.
 *
 * Errors. The end of a control or data connection makes test return ncclSystemError or ncclRemoteError, for all requests that
 * are not complete. A call of the driver that fails, or no context, makes regMr, regMrDmaBuf, test or close return
 * ncclUnhandledCudaError (1); the log says which. After that in test the comm is at its end.
 *
 * Misuse ends the process by abort() with a line "fakegdr: ..." on standard error:
 *   iflush of a receive that is not complete, with another address, size or registration than the receive's, or
 *   twice; a flush tested after it was complete, or after deregMr of its memory; a request tested after it was
 *   complete; memory that is not registered; a receive shorter than its message; more than one buffer; regMrDmaBuf without
 *   FAKEGDR_DMABUF=1, of a descriptor that is not open or is no dma-buf, or whose bytes at the offset are not those of the
 *   memory; connect or accept after their end; connect with another copy of the handle; CUDA memory that is no GPU
 *   memory, where the driver can tell (FAKEGDR_MEMORY=cuda).
 *
 * Environment:
 *   FAKEGDR_IFNAME           prefixes of interfaces with commas, as devices; loopback only if named
 *   FAKEGDR_MEMORY           where memory of type CUDA is: host or cuda (host)
 *   FAKEGDR_ORDERED          1: data is visible at completion, without a flush (0)
 *   FAKEGDR_DMABUF           1: takes dma-bufs (0)
 *   FAKEGDR_DMABUF_ONLY      1, with FAKEGDR_DMABUF=1: regMr of CUDA memory fails with ncclInternalError (0)
 *   NCCL_DYNAMIC_CHUNK_SIZE  bytes of a piece (524,288)
 *   NCCL_NSOCKS_PERTHREAD, NCCL_SOCKET_NTHREADS  their product: data connections of a comm (1, at most 8)
 *   DR_LIBCUDA               library of the CUDA driver (libcuda.so.1)
 */
enum {
	GDR_HELD_MAX = 4096, /* bytes of a receive that need a flush */
	GDR_FLUSH_TESTS = 3, /* until a flush is complete */
	GDR_MESSAGE_MAX = 1 << 30,
	GDR_PTR_CUDA = 2,
	GDR_PTR_DMABUF = 4,
	GDR_POISON = 0xdd, /* in place of those bytes */
};

#endif
