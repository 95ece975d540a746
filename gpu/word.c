/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/*
 * Learning what is done by a word in pinned memory instead of by events: a look is a load then, and a copy has one
 * call besides its own. cuStreamWriteValue32 puts a barrier of the whole system before its write, so who sees
 * the ticket sees the copy. (CUDA driver API, "Stream Memory Operations": the second version of these calls, since
 * CUDA 11.7, works on every platform; the first had to be allowed by an option of the kernel module.)
 *
 * Each stream tries it out when it is made, and has events where nothing is to be seen.
 *
 * A stream that failed writes no more: after ERROR_LOOKS looks in vain the driver is asked.
 */
enum { WORD_BYTES = 64, ERROR_LOOKS = 2048, PROBE = 0x6472 };

static bool wanted(const struct dr_cuda *c)
{
	const char *how = getenv("DR_GPU_COMPLETION");

	return c->stream_write_value32 && !(how && strcmp(how, "events") == 0);
}

/* Has the stream write PROBE. What it fails with, if it is more than a call that this driver does not have, every
 * later call gives too. */
static const char *try_out(struct dr_gpu_stream *s, void *host, unsigned *result)
{
	const struct dr_cuda *c = s->gpu->cuda;
	unsigned long long dev = 0;

	*result = c->mem_host_get_device_pointer(&dev, host, 0);
	if (*result)
		return "no address of pinned memory on the GPU";
	s->word.dev = dev;
	*result = c->stream_write_value32(s->stream, dev, PROBE, 0);
	return *result ? "streams write no words" : NULL;
}

int dr_gpu_word_init(struct dr_gpu_stream *s, struct dr_err *e)
{
	const char *why;
	void *host = NULL;
	unsigned result;
	int rc;

	if (!wanted(s->gpu->cuda))
		return 0;
	rc = dr_gpu_host_alloc(s->gpu, WORD_BYTES, &host, e);
	if (rc)
		return rc;
	s->word.host = host;
	why = try_out(s, host, &result);
	rc = dr_gpu_stream_drain(s, "trying out a word in pinned memory", e);
	if (rc) /* the stream, which may write yet, is destroyed before the word is freed */
		return rc;
	if (!why && atomic_load_explicit(s->word.host, memory_order_acquire) != PROBE)
		why = "a word that the stream wrote is not to be seen";
	if (!why) {
		atomic_store_explicit(s->word.host, 0, memory_order_relaxed);
		return 0;
	}
	dr_gpu_word_fini(s);
	dr_info("gpu", "GPU %u: %s (%u): events tell what is copied", s->gpu->info.ordinal, why,
		result);
	return 0;
}

/* The stream is idle. */
void dr_gpu_word_fini(struct dr_gpu_stream *s)
{
	dr_gpu_host_free(s->gpu, s->word.host);
	s->word.host = NULL;
}

unsigned dr_gpu_word_mark(struct dr_gpu_stream *s, uint64_t ticket)
{
	return s->gpu->cuda->stream_write_value32(s->stream, s->word.dev, (uint32_t)ticket, 0);
}

static unsigned ask_driver(struct dr_gpu_stream *s)
{
	unsigned result;

	s->word.idle = 0;
	s->stats.calls++;
	(void)dr_gpu_enter(s->gpu, NULL); /* what it fails with, the query does too */
	result = s->gpu->cuda->stream_query(s->stream);
	return result == DR_CUDA_NOT_READY ? 0 : result;
}

uint64_t dr_gpu_word_look(struct dr_gpu_stream *s, unsigned *result)
{
	uint32_t seen = atomic_load_explicit(s->word.host, memory_order_acquire);
	uint32_t more = seen - (uint32_t)s->done; /* modulo 2^32: at most DR_GPU_COPIES_MAX */

	dr_dassert(more <= s->issued - s->done);
	s->word.idle = more > 0 ? 0 : s->word.idle + 1;
	*result = s->word.idle == ERROR_LOOKS ? ask_driver(s) : 0;
	return s->done + more;
}
