/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

#include <sys/mman.h>

/*
 * GPU memory: device addresses that no processor may follow, with a file behind them that the NICs map, and
 * writes that stay under way until the NIC that sent them off reads from the same region.
 */
static struct {
	uint64_t base;
	size_t len;
	int fd;
} ranges[8];

static int peer_memory(uint64_t base, size_t len, int fd)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(ranges); i++)
		if (ranges[i].len == 0) {
			ranges[i].base = base;
			ranges[i].len = len;
			ranges[i].fd = fd;
			return 0;
		}
	return -1;
}

int dr_fake_peer_memory(uint64_t base, size_t len, int fd)
{
	int rc;

	dr_fake_lock();
	rc = peer_memory(base, len, fd);
	dr_fake_unlock();
	return rc;
}

void dr_fake_gpu_forget(void)
{
	memset(ranges, 0, sizeof(ranges));
}

int dr_fake_gpu_find(uint64_t addr, size_t len, uint64_t *off)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(ranges); i++)
		if (ranges[i].len > 0 && addr >= ranges[i].base && len <= ranges[i].len &&
			addr - ranges[i].base <= ranges[i].len - len) {
			*off = addr - ranges[i].base;
			return ranges[i].fd;
		}
	return -1;
}

int dr_fake_gpu_map(struct dr_fake_mr *mr, int fd, uint64_t off, size_t len)
{
	uint64_t in_page = off % 4096;

	mr->map_len = len + in_page;
	mr->map = mmap(
		NULL, mr->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(off - in_page));
	if (mr->map == MAP_FAILED) {
		mr->map = NULL;
		return errno;
	}
	mr->view = (uint8_t *)mr->map + in_page;
	mr->unseen_end = &mr->unseen;
	return 0;
}

static struct dr_fake_write *pop(struct dr_fake_mr *mr)
{
	struct dr_fake_write *w = mr->unseen;

	if (w)
		mr->unseen = w->next;
	if (!mr->unseen)
		mr->unseen_end = &mr->unseen;
	return w;
}

void dr_fake_gpu_unmap(struct dr_fake_mr *mr)
{
	struct dr_fake_write *w;

	while ((w = pop(mr)))
		free(w);
	if (mr->map)
		(void)munmap(mr->map, mr->map_len);
}

uint8_t *dr_fake_host(const struct dr_fake_mr *mr, uint64_t addr)
{
	if (!mr || !mr->view)
		return (uint8_t *)(uintptr_t)addr;
	return mr->view + (addr - (uintptr_t)mr->ibv.addr);
}

void dr_fake_land(struct dr_fake_mr *mr, uint64_t addr, const uint8_t *bytes, uint32_t len)
{
	struct dr_fake_write *w;

	if (!mr->view) {
		memcpy((void *)(uintptr_t)addr, bytes, len);
		return;
	}
	w = malloc(sizeof(*w) + len);
	dr_assert(w != NULL);
	w->next = NULL;
	w->to = dr_fake_host(mr, addr);
	w->len = len;
	memcpy(w->bytes, bytes, len);
	*mr->unseen_end = w;
	mr->unseen_end = &w->next;
}

void dr_fake_gpu_show(struct dr_fake_mr *mr)
{
	struct dr_fake_write *w;

	while ((w = pop(mr))) {
		memcpy(w->to, w->bytes, w->len);
		free(w);
	}
}
