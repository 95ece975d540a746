/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory that a NIC reads and writes by itself. Two ways, in this order: a dma-buf that the GPU's
 * driver exported (Linux 5.12, rdma-core 34), or the device pointer itself, which the kernel takes for
 * ordinary memory unless a peer memory module (nvidia_peermem, or nv_peer_mem before it) knows better.
 * Where neither works the caller copies through host memory, and wants to know why: hence the words.
 */
#include "transport/verbs/path_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Reading is for the flush alone: only its queue pair, which leads to itself, lets anybody read. */
enum {
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

/* 0, or the reason why not in words. */
static int by_dmabuf(struct dr_mr *mr, char *why, size_t len)
{
	struct vb_rail *r = mr->rail;

	if (mr->dmabuf_fd < 0) {
		snprintf(why, len, "the GPU's driver exported no dma-buf");
		return -ENOTSUP;
	}
	if (!r->ibv->reg_dmabuf_mr) {
		snprintf(why, len, "libibverbs knows no dma-buf (rdma-core 34 or newer is needed)");
		return -ENOTSUP;
	}
	errno = 0;
	mr->mr = r->ibv->reg_dmabuf_mr(
		r->pd, mr->dmabuf_off, mr->len, (uintptr_t)mr->base, mr->dmabuf_fd, ACCESS);
	if (mr->mr)
		return 0;
	snprintf(why, len, "%s takes no dma-buf (%s)", r->dev.name,
		dr_errno_name(errno ? -errno : -EIO));
	return -ENOTSUP;
}

/* NULL: none is loaded. */
static const char *peer_module(const struct vb_rail *r)
{
	static const char *const modules[] = { "nvidia_peermem", "nv_peer_mem" };
	char path[PATH_MAX];

	for (size_t i = 0; i < DR_ARRAY_LEN(modules); i++) {
		snprintf(path, sizeof(path), "%s/sys/module/%s", r->vp.root ? r->vp.root : "",
			modules[i]);
		if (access(path, F_OK) == 0)
			return modules[i];
	}
	return NULL;
}

static int by_peer_memory(struct dr_mr *mr, const char *module, char *why, size_t len)
{
	struct vb_rail *r = mr->rail;

	if (!module) {
		snprintf(why, len, "no peer memory module is loaded (modprobe nvidia-peermem)");
		return -ENOTSUP;
	}
	errno = 0;
	mr->mr = r->ibv->reg_mr(r->pd, mr->base, mr->len, ACCESS);
	if (mr->mr)
		return 0;
	snprintf(why, len, "%s is loaded, but registering failed (%s)", module,
		dr_errno_name(errno ? -errno : -EIO));
	return -ENOTSUP;
}

int dr_verbs_gpu_enter(struct dr_mr *mr, struct dr_err *e)
{
	const struct vb_rail *r = mr->rail;
	const char *module = peer_module(r);
	char no_dmabuf[96], no_peer[96];

	if (by_dmabuf(mr, no_dmabuf, sizeof(no_dmabuf)) == 0) {
		snprintf(mr->how, sizeof(mr->how), "dma-buf");
		return 0;
	}
	if (by_peer_memory(mr, module, no_peer, sizeof(no_peer)) == 0) {
		snprintf(mr->how, sizeof(mr->how), "peer memory (%s), since %s", module, no_dmabuf);
		return 0;
	}
	return dr_err_set(e, -ENOTSUP, "rail %u: %s cannot reach GPU memory: %s; %s", r->base.index,
		r->dev.name, no_dmabuf, no_peer);
}
