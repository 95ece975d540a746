/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_FAKETCPX_NET_CUDA_H
#define DR_TESTS_FAKETCPX_NET_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/faketcpx/faketcpx.h"
#include "tests/minplug/net/abi.h"

/*
 * GPU memory of a comm, for FAKETCPX_MEMORY=cuda and FAKEGDR_MEMORY=cuda. Addresses of GPU memory are pointers here and are never followed.
 *
 * Each call makes the comm's context current and the caller's again at its end. It needs the comm's lock, except while
 * nobody else knows the comm. Results are MIN_OK and MIN_CUDA_ERROR; what failed is logged here.
 */
struct CUctx_st;
struct CUstream_st;

/* Pinned host memory of each data connection, through which its bytes go. */
enum { TCPX_STAGE_PAGES = 32, TCPX_STAGE = TCPX_STAGE_PAGES * TCPX_PAGE };

struct tcpx_gpu {
	struct CUctx_st *ctx;	    /* NULL: none was taken */
	struct CUstream_st *stream; /* NULL: not opened */
	uint8_t *stage;
	unsigned long long memory; /* the bounce buffer is in it; 0: none */
	struct tcpx_meta *meta;
	uint8_t *handle; /* room for the device handle, behind the bounce buffer */
	bool writing;	 /* since the last wait */
};

/* Takes the context that is current on this thread if the comm has none. Without one: 1, and nothing is said. */
enum min_result tcpx_gpu_take(struct tcpx_gpu *g);
/* Takes a context as above, but says when there is none. Makes the stream and the staging memory, once. */
enum min_result tcpx_gpu_open(struct tcpx_gpu *g, unsigned n_socks);
/* Opens, and gives a bounce buffer that starts at a page. g->meta is its pinned memory, of zeros. */
enum min_result tcpx_gpu_bounce(
	struct tcpx_gpu *g, unsigned n_socks, unsigned pages, uint8_t **bounce);
/* Frees everything, also after failures and of a comm that has nothing. When the context is gone so is what it had. */
enum min_result tcpx_gpu_close(struct tcpx_gpu *g);

/* GPU to host; the bytes are there on return. */
enum min_result tcpx_gpu_read(struct tcpx_gpu *g, void *to, const uint8_t *from, size_t len);
/* Host to GPU, starts only: the source stays as it is until tcpx_gpu_wait. */
enum min_result tcpx_gpu_write(struct tcpx_gpu *g, uint8_t *to, const void *from, size_t len);
/* Until all writes are done. */
enum min_result tcpx_gpu_wait(struct tcpx_gpu *g);
/* Fills these pages with a byte; it is there on return. */
enum min_result tcpx_gpu_fill(
	struct tcpx_gpu *g, uint8_t *bounce, const uint32_t *page, unsigned n, uint8_t byte);

/* False if the driver says that this is no GPU memory. */
bool tcpx_gpu_knows(const void *data);

#endif
