/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include <sys/mman.h>

/*
 * Device addresses come from a range in which nothing is mapped, one after the other, none twice; the
 * bytes are elsewhere. An allocation begins SKEW bytes behind a multiple of GRANULE, and from the next
 * multiple on its bytes are a memfd's from 0, which is what an export gives.
 */
enum { SKEW = 512, GRANULE = 65536, JUNK = 0xa5, JUNK_MAX = 1 << 20 };
#define SPACE_MAX ((size_t)64 << 30)
#define SPACE_MIN ((size_t)1 << 30) /* valgrind has less to give */

struct dr_fgpu_node *dr_fgpu_memories, *dr_fgpu_pinneds;
static unsigned char *space;
static size_t space_bytes, space_used;

/* ---- lists ---- */

void dr_fgpu_add(struct dr_fgpu_node **list, struct dr_fgpu_node *n, struct CUctx_st *ctx)
{
	n->ctx = ctx;
	n->next = *list;
	*list = n;
}

void dr_fgpu_del(struct dr_fgpu_node **list, struct dr_fgpu_node *n)
{
	for (; *list; list = &(*list)->next)
		if (*list == n) {
			*list = n->next;
			return;
		}
}

bool dr_fgpu_has(const struct dr_fgpu_node *list, const void *n)
{
	while (list && list != n)
		list = list->next;
	return list != NULL;
}

unsigned dr_fgpu_len(const struct dr_fgpu_node *list)
{
	unsigned n = 0;

	for (; list; list = list->next)
		n++;
	return n;
}

/* ---- device memory ---- */

struct dr_fgpu_memory *dr_fgpu_memory_at(unsigned long long dev, size_t len)
{
	struct dr_fgpu_node *n;

	for (n = dr_fgpu_memories; n; n = n->next) {
		struct dr_fgpu_memory *m = (struct dr_fgpu_memory *)n;

		if (dev >= m->dev && dev - m->dev <= m->len && len <= m->len - (dev - m->dev))
			return m;
	}
	return NULL;
}

void *dr_fgpu_bytes(unsigned long long dev)
{
	struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, 1);

	return m ? m->bytes + (dev - m->dev) : NULL;
}

static size_t whole(size_t len, size_t unit)
{
	return (len + unit - 1) / unit * unit;
}

static bool have_space(void)
{
	for (size_t len = SPACE_MAX; !space && len >= SPACE_MIN; len /= 2) {
		void *p = mmap(
			NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			continue;
		space = p;
		space_bytes = len;
		space_used = GRANULE - (uintptr_t)p % GRANULE;
	}
	return space != NULL;
}

static bool take_space(size_t len, unsigned long long *dev)
{
	if (!have_space() || len > space_bytes - space_used - 2 * (size_t)GRANULE)
		return false;
	*dev = (uintptr_t)space + space_used + SKEW;
	space_used += whole(SKEW + len, GRANULE) + GRANULE;
	return true;
}

/* GRANULE bytes of nothing special, then the memfd's. */
static bool map_bytes(struct dr_fgpu_memory *m)
{
	size_t file = whole(m->len, GRANULE);
	void *p = mmap(
		NULL, GRANULE + file, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return false;
	m->fd = memfd_create("fake GPU memory", MFD_CLOEXEC);
	if (m->fd >= 0 && ftruncate(m->fd, (off_t)file))
		(void)close(m->fd), m->fd = -1;
	if (m->fd < 0 || mmap((char *)p + GRANULE, file, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_FIXED, m->fd, 0) == MAP_FAILED) {
		if (m->fd >= 0)
			(void)close(m->fd);
		(void)munmap(p, GRANULE + file);
		return false;
	}
	m->map = p;
	m->mapped = GRANULE + file;
	m->bytes = m->map + SKEW;
	memset(m->bytes, JUNK, DR_MIN(m->len, (size_t)JUNK_MAX));
	return true;
}

unsigned cuMemAlloc_v2(unsigned long long *dev, size_t len)
{
	struct dr_fgpu_memory *m;
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemAlloc_v2, &ctx);

	if (result == 0 && len == 0)
		result = DR_CUDA_INVALID_VALUE;
	if (result == 0 && len > dr_fgpu_config.memory_bytes - ctx->used)
		result = DR_CUDA_OUT_OF_MEMORY;
	if (result)
		return dr_fgpu_leave(result);
	m = calloc(1, sizeof(*m));
	dr_assert(m != NULL);
	m->len = len;
	if (!take_space(len, &m->dev) || !map_bytes(m)) {
		free(m);
		return dr_fgpu_leave(DR_CUDA_OUT_OF_MEMORY);
	}
	ctx->used += len;
	dr_fgpu_add(&dr_fgpu_memories, &m->node, ctx);
	*dev = m->dev;
	return dr_fgpu_leave(0);
}

void dr_fgpu_memory_free(struct dr_fgpu_memory *m)
{
	dr_fgpu_del(&dr_fgpu_memories, &m->node);
	m->node.ctx->used -= m->len;
	(void)munmap(m->map, m->mapped);
	(void)close(m->fd);
	free(m);
}

unsigned cuMemFree_v2(unsigned long long dev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemFree_v2, &ctx);
	struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, 1);

	if (!m || m->dev != dev) {
		dr_fgpu_violation("cuMemFree of what is no memory: %#llx", dev);
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	}
	if (m->users)
		dr_fgpu_violation("cuMemFree with %u pieces of work that use it", m->users);
	while (m->users)
		dr_fgpu_wait(DR_NEVER);
	dr_fgpu_memory_free(m);
	return dr_fgpu_leave(result);
}

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemGetInfo_v2, &ctx);

	if (result == 0) {
		*free_bytes = dr_fgpu_config.memory_bytes - ctx->used;
		*total_bytes = dr_fgpu_config.memory_bytes;
	}
	return dr_fgpu_leave(result);
}

unsigned cuMemGetHandleForAddressRange(
	void *handle, unsigned long long dev, size_t len, unsigned type, unsigned long long flags)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemGetHandleForAddressRange, &ctx);
	const struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, len);
	int fd = -1;

	if (result == 0 && !dr_fgpu_config.dmabuf)
		result = DR_CUDA_NOT_SUPPORTED;
	if (result == 0 && (!m || type != DR_CUDA_RANGE_DMA_BUF_FD || flags || len % 4096 ||
				   m->bytes + (dev - m->dev) != m->map + GRANULE)) {
		dr_fgpu_violation("the export of %#llx, %zu bytes", dev, len);
		result = DR_CUDA_INVALID_VALUE;
	}
	if (result == 0) {
		fd = dup(m->fd);
		result = fd < 0 ? DR_CUDA_OPERATING_SYSTEM : 0;
	}
	if (result == 0)
		memcpy(handle, &fd, sizeof(fd));
	return dr_fgpu_leave(result);
}

/* ---- pinned host memory ---- */

struct dr_fgpu_pinned *dr_fgpu_pinned_at(const void *p, size_t len)
{
	const unsigned char *at = p;
	struct dr_fgpu_node *n;

	for (n = dr_fgpu_pinneds; n; n = n->next) {
		struct dr_fgpu_pinned *h = (struct dr_fgpu_pinned *)n;

		if (at >= h->p && at <= h->p + h->len && len <= (size_t)(h->p + h->len - at))
			return h;
	}
	return NULL;
}

unsigned cuMemHostAlloc(void **p, size_t len, unsigned flags)
{
	struct dr_fgpu_pinned *h;
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemHostAlloc, &ctx);
	void *map;

	if (result == 0 && (len == 0 || flags != DR_CUDA_HOST_PORTABLE))
		result = DR_CUDA_INVALID_VALUE;
	if (result)
		return dr_fgpu_leave(result);
	map = mmap(
		NULL, whole(len, 4096), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return dr_fgpu_leave(DR_CUDA_OUT_OF_MEMORY);
	h = calloc(1, sizeof(*h));
	dr_assert(h != NULL);
	h->p = map;
	h->len = len;
	h->mapped = whole(len, 4096);
	memset(map, JUNK, DR_MIN(len, (size_t)JUNK_MAX));
	dr_fgpu_add(&dr_fgpu_pinneds, &h->node, ctx);
	*p = map;
	return dr_fgpu_leave(0);
}

unsigned cuMemHostGetDevicePointer_v2(unsigned long long *dev, void *host, unsigned flags)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemHostGetDevicePointer_v2, &ctx);

	if (result == 0 && (flags || !dr_fgpu_pinned_at(host, 1)))
		result = DR_CUDA_INVALID_VALUE;
	if (result == 0)
		*dev = (uintptr_t)host;
	return dr_fgpu_leave(result);
}

void dr_fgpu_pinned_free(struct dr_fgpu_pinned *h)
{
	dr_fgpu_del(&dr_fgpu_pinneds, &h->node);
	(void)munmap(h->p, h->mapped);
	free(h);
}

unsigned cuMemFreeHost(void *p)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemFreeHost, &ctx);
	struct dr_fgpu_pinned *h = dr_fgpu_pinned_at(p, 1);

	if (!h || h->p != p) {
		dr_fgpu_violation("cuMemFreeHost of what is not pinned");
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	}
	if (h->users)
		dr_fgpu_violation("cuMemFreeHost with %u pieces of work that use it", h->users);
	while (h->users)
		dr_fgpu_wait(DR_NEVER);
	dr_fgpu_pinned_free(h);
	return dr_fgpu_leave(result);
}
