/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_TRANSPORT_VERBS_MEM_H
#define DR_TRANSPORT_VERBS_MEM_H

#include "transport/verbs/dev.h"
#include "transport/verbs/helper.h"

/* Memory of a rail (mr.c), and how a NIC reaches that of a GPU (gpumem.c). */
struct vb_rail;
struct dr_mr {
	struct dr_mr *next;
	struct vb_rail *rail;
	uint8_t *base;
	size_t len;
	enum dr_memory_kind kind;
	int dmabuf_fd; /* of our own; -1: none */
	uint64_t dmabuf_off;
	bool flush;	   /* what is written here is seen only after a flush (flush.c) */
	char how[200];	   /* CUDA: how it is reached, in words */
	struct ibv_mr *mr; /* NULL: not registered yet (lazy, or the device is gone) */
	unsigned refs;
	struct vb_job job; /* while the device goes or comes back */
	bool busy;	   /* job is under way: mr is the helper's */
	bool gone;	   /* deregistered meanwhile: freed when the job is done */
	int left; /* why it could not leave a device that is not closed yet; 0: it is off */
};

int dr_verbs_mr_reg(
	struct dr_rail *br, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e);
int dr_verbs_mr_dereg(struct dr_rail *br, struct dr_mr *mr);
/* How the NIC reaches this CUDA memory, and why so, for people: "dma-buf", or "peer memory
 * (nvidia_peermem), since ..."; "" for host memory. Lives as long as mr. */
const char *dr_verbs_mr_choice(const struct dr_mr *mr);
/* Register memory of any use with the rail's protection domain; *out is NULL on failure. */
int dr_verbs_reg(struct vb_rail *r, void *base, size_t len, int access, struct ibv_mr **out,
	struct dr_err *e);
/* Registered now, if it was not: 0 or -errno. */
int dr_verbs_mr_need(struct dr_mr *mr, struct dr_err *e);
void dr_verbs_mr_fini(struct vb_rail *r);
/* gpumem.c. CUDA memory through dma-buf or peer memory; mr->how says which. -ENOTSUP and the reasons. */
int dr_verbs_gpu_enter(struct dr_mr *mr, struct dr_err *e);
/* The device is to be closed: have all regions of it deregistered. And: it is back, register them. */
void dr_verbs_mr_release(struct vb_rail *r);
void dr_verbs_mr_renew(struct vb_rail *r);
/* It was closed: nothing of it reaches a region that could not be deregistered. */
void dr_verbs_mr_closed(struct vb_rail *r);

#endif
