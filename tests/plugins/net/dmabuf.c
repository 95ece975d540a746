/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Registration by a dma-buf. An exported memfd stands for one and can be looked into; a real one is only told by its name. */

static bool is_a(const char *link, const char *kind)
{
	return strncmp(link, kind, strlen(kind)) == 0;
}

enum { LOOK = 64, TRIES = 100 };

static enum fn_result read_bytes(struct fn_comm *c, const uint8_t *at, uint8_t *out, size_t n)
{
	if (fn_settings.cuda)
		return fn_gpu_read(&c->gpu, out, at, n);
	memcpy(out, at, n);
	return FN_OK;
}

/* Whether the file has the memory's bytes. Other comms may receive there meanwhile, so it is looked at again; and send from
 * there, so nothing is changed. */
static enum fn_result is_same(
	struct fn_comm *c, const uint8_t *file, const uint8_t *memory, size_t n, bool *same)
{
	enum fn_result result = FN_OK;
	uint8_t got[LOOK];

	*same = false;
	for (int i = 0; i < TRIES && result == FN_OK && !*same; i++) {
		result = read_bytes(c, memory, got, n);
		*same = result == FN_OK && memcmp(file, got, n) == 0;
	}
	return result;
}

static enum fn_result compare(
	struct fn_comm *c, const uint8_t *data, size_t size, uint64_t offset, int fd)
{
	size_t skip = offset % FN_PAGE, n = size < LOOK ? size : LOOK, last = size - n;
	enum fn_result result;
	struct stat st;
	uint8_t *map;
	bool same;

	if (fstat(fd, &st) != 0 || offset > (uint64_t)st.st_size ||
		size > (uint64_t)st.st_size - offset)
		fn_misuse("regMrDmaBuf of %zu bytes at offset %llu of a dma-buf of %lld bytes",
			size, (unsigned long long)offset, (long long)st.st_size);
	map = mmap(NULL, skip + size, PROT_READ, MAP_SHARED, fd, (off_t)(offset - skip));
	if (map == MAP_FAILED)
		fn_misuse("regMrDmaBuf of descriptor %d, which cannot be mapped", fd);
	result = is_same(c, map + skip, data, n, &same);
	if (result == FN_OK && same)
		result = is_same(c, map + skip + last, data + last, n, &same);
	(void)munmap(map, skip + size);
	if (result == FN_OK && !same)
		fn_misuse("regMrDmaBuf: offset %llu of the dma-buf is other memory than %p",
			(unsigned long long)offset, (const void *)data);
	return result;
}

enum fn_result fn_reg_dmabuf(
	void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mh)
{
	char path[32], link[64] = "";
	enum fn_result result;
	ssize_t n;

	if (!fn_settings.dmabuf)
		fn_misuse("regMrDmaBuf, and ptrSupport lacks dma-bufs");
	if (!comm || type != FN_PTR_CUDA || size == 0 || size > FN_MESSAGE_MAX)
		fn_misuse("regMrDmaBuf of %zu bytes of type %d", size, type);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		fn_misuse("regMrDmaBuf of descriptor %d, which is not open", fd);
	if (!is_a(link, "/memfd:") && !is_a(link, "/dmabuf:"))
		fn_misuse("regMrDmaBuf of descriptor %d, which is no dma-buf: %s", fd, link);
	result = fn_use_gpu(comm, data);
	if (result == FN_OK && is_a(link, "/memfd:")) {
		struct fn_comm *c = comm;

		(void)pthread_mutex_lock(&c->lock);
		result = compare(c, data, size, offset, fd);
		(void)pthread_mutex_unlock(&c->lock);
	}
	return result == FN_OK ? fn_reg_memory(comm, data, size, type, mh) : result;
}
