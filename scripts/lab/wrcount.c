/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what a program asks of libibverbs: linked with it and opened in its place (DR_IBVERBS), it puts
 * counting functions into the table of operations of every device that is opened. At the program's end
 * one line is written to the file named by WRCOUNT: calls of post_send, send work requests, calls of
 * post_recv, receive work requests, completions.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_ulong sends, send_wrs, recvs, recv_wrs, completions;

/* All devices of a machine here have one driver: the operations of the last are those of each. */
static struct ibv_context_ops real;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	atomic_fetch_add(&sends, 1);
	for (const struct ibv_send_wr *w = wr; w; w = w->next)
		atomic_fetch_add(&send_wrs, 1);
	return real.post_send(qp, wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	atomic_fetch_add(&recvs, 1);
	for (const struct ibv_recv_wr *w = wr; w; w = w->next)
		atomic_fetch_add(&recv_wrs, 1);
	return real.post_recv(qp, wr, bad);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = real.poll_cq(cq, n, wc);

	if (got > 0)
		atomic_fetch_add(&completions, (unsigned long)got);
	return got;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	static struct ibv_context *(*open_device)(struct ibv_device *);
	struct ibv_context *ctx;

	if (!open_device) {
		void *symbol = dlsym(RTLD_NEXT, "ibv_open_device");

		if (!symbol)
			return NULL;
		memcpy(&open_device, &symbol, sizeof(symbol));
	}
	ctx = open_device(device);
	if (ctx) {
		real = ctx->ops;
		ctx->ops.post_send = post_send;
		ctx->ops.post_recv = post_recv;
		ctx->ops.poll_cq = poll_cq;
	}
	return ctx;
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("WRCOUNT");
	FILE *f = path ? fopen(path, "w") : NULL;

	if (!f)
		return;
	fprintf(f, "%lu %lu %lu %lu %lu\n", atomic_load(&sends), atomic_load(&send_wrs),
		atomic_load(&recvs), atomic_load(&recv_wrs), atomic_load(&completions));
	fclose(f);
}
