/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shared.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

struct buffer {
	struct buffer *next;
	struct dr_shared s;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers;
static uint64_t last_id;

int dr_shared_memfd(const char *name, size_t len)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), err;

	if (fd >= 0 && ftruncate(fd, (off_t)len) == 0 &&
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
		return fd;
	err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

static int map(struct dr_shared *s)
{
	s->fd = dr_shared_memfd("dualrail", s->len);
	if (s->fd < 0)
		return -1;
	s->base = mmap(NULL, s->len, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (s->base != MAP_FAILED)
		return 0;
	close(s->fd);
	return -1;
}

void *dr_shared_alloc(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct buffer *b = size && size <= SIZE_MAX - page ? dr_calloc(1, sizeof(*b)) : NULL;

	if (!b)
		return NULL;
	b->s.len = (size + page - 1) / page * page;
	if (map(&b->s)) {
		dr_free(b);
		return NULL;
	}
	(void)pthread_mutex_lock(&lock);
	b->s.id = ++last_id;
	b->next = buffers;
	buffers = b;
	(void)pthread_mutex_unlock(&lock);
	return b->s.base;
}

void dr_shared_free(void *p)
{
	struct buffer **at = &buffers, *b;

	if (!p)
		return;
	(void)pthread_mutex_lock(&lock);
	for (b = *at; b->s.base != p; b = *at)
		at = &b->next;
	*at = b->next;
	(void)pthread_mutex_unlock(&lock);
	munmap(b->s.base, b->s.len);
	close(b->s.fd);
	dr_free(b);
}

bool dr_shared_find(const void *p, size_t len, struct dr_shared *out)
{
	uintptr_t at = (uintptr_t)p;
	const struct buffer *b;

	(void)pthread_mutex_lock(&lock);
	for (b = buffers; b; b = b->next) {
		uintptr_t base = (uintptr_t)b->s.base;

		if (at >= base && at - base <= b->s.len && len <= b->s.len - (at - base))
			break;
	}
	if (b)
		*out = b->s;
	(void)pthread_mutex_unlock(&lock);
	return b != NULL;
}
