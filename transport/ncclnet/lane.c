/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/net_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* The plugin's results become -errno here. */

enum { SIZES = DR_NCCL_GROUP_MAX };

static int failed(struct nn_lane *l, const char *call, int rc)
{
	if (rc == NCCL_SUCCESS)
		return 0;
	l->failed = call;
	return rc == NCCL_REMOTE_ERROR ? -ECONNRESET : -EIO;
}

void dr_nn_lane_open(
	struct nn_lane *l, const struct dr_nccl *n, void *comm, bool sends, unsigned limit)
{
	*l = (struct nn_lane){ .n = n,
		.comm = comm,
		.sends = sends,
		.limit = DR_MIN(limit, (unsigned)NN_REQUESTS_MAX) };
}

/* ---- memory ---- */

static bool same(const struct nn_mem *a, const struct nn_mem *b)
{
	return a->base == b->base && a->len == b->len && a->mr == b->mr;
}

/* The last one that was used stands in front. */
static struct nn_reg *find(struct nn_lane *l, const struct nn_mem *mem)
{
	for (struct nn_reg **at = &l->regs; *at; at = &(*at)->next) {
		struct nn_reg *r = *at;

		if (!same(&r->mem, mem))
			continue;
		*at = r->next;
		r->next = l->regs;
		l->regs = r;
		return r;
	}
	return NULL;
}

static int add(struct nn_lane *l, const struct nn_mem *mem, struct nn_reg **out)
{
	struct dr_nccl_buffer b = { .data = mem->base, .size = mem->len };
	struct nn_reg *r = dr_calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	l->calls++;
	rc = failed(l, "regMr", dr_nccl_reg(l->n, l->comm, &b, NCCL_PTR_HOST));
	if (rc) {
		dr_free(r);
		return rc;
	}
	*r = (struct nn_reg){ .next = l->regs, .mem = *mem, .mhandle = b.mhandle };
	l->regs = r;
	*out = r;
	return 0;
}

static int dereg_first(struct nn_lane *l)
{
	struct nn_reg *r = l->regs;
	int rc = failed(l, "deregMr", l->n->dereg_mr(l->comm, r->mhandle));

	l->calls++;
	l->regs = r->next;
	dr_free(r);
	return rc;
}

int dr_nn_lane_forget(struct nn_lane *l, const struct nn_mem *mem)
{
	return l->comm && find(l, mem) ? dereg_first(l) : 0;
}

/* ---- requests ---- */

int dr_nn_lane_post(
	struct nn_lane *l, const struct nn_mem *mem, void *data, size_t size, int64_t now_ns)
{
	struct dr_nccl_buffer b = { .data = data, .size = size };
	struct nn_reg *reg;
	void *request;
	int rc = 0;

	if (nn_lane_used(l) == l->limit)
		return -EAGAIN;
	reg = find(l, mem);
	if (!reg)
		rc = add(l, mem, &reg);
	if (rc)
		return rc;
	b.mhandle = reg->mhandle;
	l->calls++;
	rc = l->sends ? failed(l, "isend", dr_nccl_isend(l->n, l->comm, &b, &request))
		      : failed(l, "irecv", dr_nccl_irecv(l->n, l->comm, 1, &b, &request));
	if (rc)
		return rc;
	if (request == DR_NCCL_UNSET) {
		l->failed = l->sends ? "isend without a request" : "irecv without a request";
		return -EIO;
	}
	if (!request)
		return -EAGAIN;
	l->queue[l->tail % NN_REQUESTS_MAX].request = request;
	l->queue[l->tail % NN_REQUESTS_MAX].since_ns = now_ns;
	l->tail++;
	return 0;
}

int dr_nn_lane_test(struct nn_lane *l, size_t *size)
{
	int sizes[SIZES], done = 0, rc;
	void *request;

	if (!l->comm || nn_lane_used(l) == 0)
		return 0;
	memset(sizes, -1, sizeof(sizes));
	request = l->queue[l->head % NN_REQUESTS_MAX].request;
	l->calls++;
	rc = failed(l, "test", l->n->test(request, &done, sizes));
	if (rc || !done)
		return rc;
	l->head++;
	if (l->sends)
		return 1;
	if (l->n->consumed) {
		l->calls++;
		rc = failed(l, "irecvConsumed", l->n->consumed(l->comm, 1, request));
	}
	if (rc == 0 && sizes[0] < 0) {
		l->failed = "test without the size of a receive";
		rc = -EIO;
	}
	*size = (size_t)sizes[0];
	return rc ? rc : 1;
}

int64_t dr_nn_lane_since(const struct nn_lane *l)
{
	return nn_lane_used(l) ? l->queue[l->head % NN_REQUESTS_MAX].since_ns : DR_NEVER;
}

int dr_nn_lane_close(struct nn_lane *l)
{
	int rc = 0, err;

	if (!l->comm)
		return 0;
	while (l->regs) {
		err = dereg_first(l);
		rc = rc ? rc : err;
	}
	err = l->sends ? failed(l, "closeSend", l->n->close_send(l->comm))
		       : failed(l, "closeRecv", l->n->close_recv(l->comm));
	l->calls++;
	l->comm = NULL;
	l->head = l->tail;
	return err ? err : rc;
}
