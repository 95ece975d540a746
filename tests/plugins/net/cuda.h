/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TESTS_PLUGINS_NET_CUDA_H
#define DR_TESTS_PLUGINS_NET_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/plugins/fake.h"
#include "tests/plugins/net/abi.h"

/*
 * GPU memory of a comm, for FAKENET_MEMORY=cuda. Addresses of GPU memory are pointers here and are never followed.
 *
 * Each call makes the comm's context current and the caller's again at its end. It needs the comm's lock, except while
 * nobody else knows the comm. Results are FN_OK and FN_CUDA_ERROR; what failed is logged here.
 */
struct CUctx_st;
struct CUstream_st;

/* Pinned host memory of each data connection, through which its bytes go. */
enum { FN_STAGE_PAGES = 32, FN_STAGE = FN_STAGE_PAGES * FN_PAGE };

struct fn_gpu {
	struct CUctx_st *ctx;	    /* NULL: none was taken */
	struct CUstream_st *stream; /* NULL: not opened */
	uint8_t *stage;
	unsigned long long memory; /* the bounce buffer is in it; 0: none */
	struct fn_meta *meta;
	uint8_t *handle; /* room for the device handle, behind the bounce buffer */
	bool writing;	 /* since the last wait */
};

/* Takes the context that is current on this thread if the comm has none. Without one: 1. */
enum fn_result fn_gpu_take(struct fn_gpu *g, bool say);
/* Takes a context. Makes the stream and the staging memory, once. */
enum fn_result fn_gpu_open(struct fn_gpu *g, unsigned n_socks);
/* Opens, and gives a bounce buffer that starts at a page. g->meta is its pinned memory, of zeros. */
enum fn_result fn_gpu_bounce(struct fn_gpu *g, unsigned n_socks, unsigned pages, uint8_t **bounce);
/* Frees everything, also after failures and of a comm that has nothing. When the context is gone so is what it had. */
enum fn_result fn_gpu_close(struct fn_gpu *g);

/* GPU to host; the bytes are there on return. */
enum fn_result fn_gpu_read(struct fn_gpu *g, void *to, const uint8_t *from, size_t len);
/* Host to GPU, starts only: the source stays as it is until fn_gpu_wait. */
enum fn_result fn_gpu_write(struct fn_gpu *g, uint8_t *to, const void *from, size_t len);
/* Until all writes are done. */
enum fn_result fn_gpu_wait(struct fn_gpu *g);
/* Fills these pages with a byte; it is there on return. */
enum fn_result fn_gpu_fill(
	struct fn_gpu *g, uint8_t *bounce, const uint32_t *page, unsigned n, uint8_t byte);

/* False if the driver says that this is no GPU memory. */
bool fn_gpu_knows(const void *data);

#endif
