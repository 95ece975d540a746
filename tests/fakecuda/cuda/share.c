/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakecuda/cuda/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

/*
 * CUDA IPC: a handle names the process and its descriptor of the memory's file, which another process opens again. At the
 * end of the file, in a page of its own, are those that have it mapped. The first bytes of an allocation, before its first multiple
 * of the granule, are not shared.
 */
struct ticket {
	uint32_t magic, pid, fd, dev;
	uint64_t len, inode;
};
_Static_assert(sizeof(struct ticket) <= sizeof(struct CUipcMemHandle_st), "handle");
enum { MAGIC = 0x1bc0de, PAGE = 4096, IMPORTERS_MAX = 64 };

/* ---- who has it mapped ---- */

static _Atomic int *importers(int fd)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) || st.st_size < PAGE)
		return NULL;
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, st.st_size - PAGE);
	return p == MAP_FAILED ? NULL : p;
}

static bool swap_in(int fd, int from, int to)
{
	_Atomic int *pid = importers(fd);
	bool done = false;

	for (int i = 0; pid && i < IMPORTERS_MAX && !done; i++) {
		int want = from;

		done = atomic_compare_exchange_strong(&pid[i], &want, to);
	}
	if (pid)
		(void)munmap((void *)pid, PAGE);
	return done;
}

/* Those that have ended count no more. */
pid_t dr_fgpu_importer(const struct dr_fgpu_memory *m)
{
	_Atomic int *pid = importers(m->fd);
	pid_t alive = 0;

	for (int i = 0; pid && i < IMPORTERS_MAX; i++)
		if (pid[i] && (kill(pid[i], 0) == 0 || errno != ESRCH))
			alive = pid[i];
	if (pid)
		(void)munmap((void *)pid, PAGE);
	return alive;
}

/* ---- calls ---- */

unsigned cuMemGetAddressRange_v2(unsigned long long *base, size_t *len, unsigned long long dev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuMemGetAddressRange_v2, &ctx);
	const struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, 1);

	if (result == 0 && !m)
		result = DR_CUDA_INVALID_VALUE;
	if (result == 0) {
		*base = m->dev;
		*len = m->len;
	}
	return dr_fgpu_leave(result);
}

unsigned cuIpcGetMemHandle(struct CUipcMemHandle_st *handle, unsigned long long dev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuIpcGetMemHandle, &ctx);
	const struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, 1);
	struct ticket t = { .magic = MAGIC, .pid = (uint32_t)getpid() };
	struct stat st;

	if (result == 0 && !dr_fgpu_config.ipc)
		result = DR_CUDA_NOT_SUPPORTED;
	if (result == 0 && (!m || m->dev != dev || m->imported || fstat(m->fd, &st))) {
		dr_fgpu_violation(
			"the handle of %#llx, which is no allocation of this process", dev);
		result = DR_CUDA_INVALID_VALUE;
	}
	if (result == 0) {
		t.fd = (uint32_t)m->fd;
		t.dev = dr_fgpu_config.slot[ctx->dev];
		t.len = m->len;
		t.inode = st.st_ino;
		memset(handle, 0, sizeof(*handle));
		memcpy(handle, &t, sizeof(t));
	}
	return dr_fgpu_leave(result);
}

/* The file of the ticket; -1: it is no more. */
static int open_file(const struct ticket *t)
{
	char path[64];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u/fd/%u", t->pid, t->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (fstat(fd, &st) || st.st_ino != t->inode)) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

static struct dr_fgpu_memory *import(const struct ticket *t)
{
	struct dr_fgpu_memory *m = calloc(1, sizeof(*m));

	dr_assert(m != NULL);
	m->imported = true;
	m->len = t->len;
	m->fd = open_file(t);
	if (m->fd >= 0 && swap_in(m->fd, 0, getpid())) {
		if (dr_fgpu_take_space(m->len, &m->dev) && dr_fgpu_map_bytes(m))
			return m;
	} else if (m->fd >= 0) {
		(void)close(m->fd);
	}
	free(m);
	return NULL;
}

static struct dr_fgpu_memory *mapped(const struct ticket *t)
{
	struct stat st;

	for (struct dr_fgpu_node *n = dr_fgpu_memories; n; n = n->next) {
		struct dr_fgpu_memory *m = (struct dr_fgpu_memory *)n;

		if (m->imports && fstat(m->fd, &st) == 0 && st.st_ino == t->inode)
			return m;
	}
	return NULL;
}

/* Once for each open. */
unsigned cuIpcOpenMemHandle_v2(
	unsigned long long *dev, struct CUipcMemHandle_st handle, unsigned flags)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuIpcOpenMemHandle_v2, &ctx);
	struct dr_fgpu_memory *m;
	struct ticket t;

	memcpy(&t, &handle, sizeof(t));
	if (result == 0 && (t.magic != MAGIC || flags != DR_CUDA_IPC_LAZY_PEER_ACCESS))
		result = DR_CUDA_INVALID_VALUE;
	if (result == 0 &&
		(t.pid == (uint32_t)getpid() || t.dev != dr_fgpu_config.slot[ctx->dev])) {
		dr_fgpu_violation("a handle of this process or of another GPU");
		result = DR_CUDA_INVALID_CONTEXT;
	}
	if (result)
		return dr_fgpu_leave(result);
	m = mapped(&t);
	if (!m) {
		m = import(&t);
		if (!m)
			return dr_fgpu_leave(DR_CUDA_INVALID_HANDLE);
		dr_fgpu_add(&dr_fgpu_memories, &m->node, ctx);
	}
	m->imports++;
	*dev = m->dev;
	return dr_fgpu_leave(0);
}

unsigned cuIpcCloseMemHandle(unsigned long long dev)
{
	struct CUctx_st *ctx;
	unsigned result = dr_fgpu_enter_ctx(DR_FGPU_CALL_cuIpcCloseMemHandle, &ctx);
	struct dr_fgpu_memory *m = dr_fgpu_memory_at(dev, 1);

	if (!m || m->dev != dev || !m->imports) {
		dr_fgpu_violation("cuIpcCloseMemHandle of what was not opened: %#llx", dev);
		return dr_fgpu_leave(DR_CUDA_INVALID_VALUE);
	}
	if (--m->imports > 0)
		return dr_fgpu_leave(result);
	if (m->users)
		dr_fgpu_violation(
			"cuIpcCloseMemHandle with %u pieces of work that use it", m->users);
	while (m->users)
		dr_fgpu_wait(DR_NEVER);
	(void)swap_in(m->fd, getpid(), 0);
	dr_fgpu_memory_free(m);
	return dr_fgpu_leave(result);
}
