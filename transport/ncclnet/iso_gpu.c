/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory that this process and the plugin's reach: the program's end. Registered memory of the rail is mapped by the plugin's
 * process (CUDA IPC) and stays mapped until mr_dereg, since it may be freed then. A process that is started again maps
 * everything before it does anything else, as commands are done in their order.
 */
#include "transport/ncclnet/iso_port.h"
#include "transport/ncclnet/net_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Of processes that end while they map memory, or that cannot: so many are started in a row. */
enum { STARTS_MAX = 3 };
/* Those that cannot are in a row if no more time than that is between them. */
static const int64_t ROW_NS = 10 * DR_NS_PER_S;
/* More in a step is not believed: what unpacking has cost is written by the plugin's process. */
static const int64_t BUSY_MAX_NS = 3600 * DR_NS_PER_S;

int dr_iso_gpu_region(const struct nn_port *p, const void *data, size_t len)
{
	uintptr_t at = (uintptr_t)data;

	for (int i = 0; i < ISO_REGIONS; i++) {
		const struct iso_gpu_memory *g = p->region[i].gpu;
		uintptr_t base = (uintptr_t)p->region[i].base;

		if (g && g->mr && at >= base && at - base <= g->mr->len &&
			len <= g->mr->len - (at - base))
			return i;
	}
	return -1;
}

/* ---- map ---- */

static bool send_map(struct nn_port *p, uint32_t i)
{
	struct iso_gpu_memory *g = p->region[i].gpu;
	struct iso_message m = { .op = ISO_MAP_GPU,
		.mem = i,
		.other = g->mr->dmabuf,
		.user = g->mr->flush,
		.len = g->mr->len };
	const struct iso_gpu_map how = { .shared = g->shared, .dmabuf_off = g->mr->dmabuf_off };

	memcpy(m.handle, &how, sizeof(how));
	g->mapped = false;
	g->why[0] = '\0';
	return g->mr->dmabuf ? dr_iso_push_with(p, &m, g->mr->dmabuf_fd)
			     : dr_iso_push_surely(p, &m);
}

/* The next process may be able to map it. Not without limit: the GPUs of other ports lose this process, too. */
static void could_not_map(struct nn_port *p, const struct iso_gpu_memory *g)
{
	char why[ISO_TEXT_MAX + 64];
	int64_t now = dr_now_ns();

	if (p->killed)
		return;
	if (now - p->map_failed_ns > ROW_NS)
		p->map_failures = 0;
	p->map_failed_ns = now;
	if (++p->map_failures <= STARTS_MAX) {
		(void)snprintf(why, sizeof(why), "it could not map the GPU memory: %s", g->why);
		dr_iso_end(p, why);
	} else if (p->map_failures == STARTS_MAX + 1) {
		dr_warn("nccl",
			"the process of plugin %.40s cannot map the memory of GPU %u, so that its NIC carries no data of that GPU: %s",
			p->n.name, p->gpu.ordinal, g->why);
	}
}

void dr_iso_gpu_answered(struct nn_port *p, const struct iso_message *m)
{
	struct iso_gpu_memory *g = m->mem < ISO_REGIONS ? p->region[m->mem].gpu : NULL;

	if (!g)
		return;
	if (m->op == ISO_TEXT) {
		dr_append(g->why, sizeof(g->why), "%.*s", (int)sizeof(m->handle),
			(const char *)m->handle);
		return;
	}
	*(m->op == ISO_UNMAPPED ? &g->unmapped : &g->mapped) = true;
	g->rc = m->rc;
	if (m->op == ISO_MAPPED && g->rc && !g->awaited)
		could_not_map(p, g);
}

/* A process that ends meanwhile is started again, and is told to map it. */
static void await_mapped(struct nn_port *p, const struct iso_gpu_memory *g)
{
	int64_t until = dr_now_ns() + p->map_ns;
	uint64_t start = p->start;
	unsigned starts = 0;

	dr_iso_take_events(p);
	while (!g->mapped && !(p->dead && (p->gave_up || starts >= STARTS_MAX)) &&
		dr_now_ns() < until) {
		(void)poll(NULL, 0, 1);
		dr_iso_keep_up(p, dr_now_ns());
		dr_iso_take_events(p);
		if (p->start == start)
			continue;
		start = p->start;
		starts++;
		until = dr_now_ns() + p->map_ns; /* it opens the GPU first */
	}
	p->gave_up = !g->mapped;
}

/* False: the plugin keeps it, the process has ended, or the time is over. */
static bool await_unmapped(struct nn_port *p, const struct iso_gpu_memory *g)
{
	struct nn_patience x = dr_nn_port_patience(p, dr_now_ns());

	dr_iso_take_events(p);
	while (!g->unmapped && !p->dead && dr_nn_port_may_wait(p, &x, dr_now_ns())) {
		(void)poll(NULL, 0, 1);
		dr_iso_look_for_end(p, dr_now_ns());
		dr_iso_take_events(p);
	}
	return g->unmapped && g->rc == 0;
}

static int free_region(const struct nn_port *p)
{
	for (int i = 0; i < ISO_REGIONS; i++)
		if (!p->region[i].used && !p->reg[i])
			return i;
	return -1;
}

static void drop(struct nn_port *p, int i)
{
	dr_free(p->region[i].gpu);
	p->region[i] = (struct iso_region){ .used = false };
}

/* The process does not have it mapped, or is ended. -EIO: it has not ended within a bound. */
static int let_go(struct nn_port *p, int i, bool mapped)
{
	if (mapped && dr_iso_end_process(p)) {
		/* Its number is not used again: the process may have it mapped. */
		p->region[i].gpu->mr = NULL;
		return -EIO;
	}
	drop(p, i);
	return 0;
}

int dr_nn_port_map(struct nn_port *p, const struct dr_mr *mr, struct dr_err *e)
{
	struct iso_gpu_memory *g = dr_calloc(1, sizeof(*g));
	int i = g ? free_region(p) : -1, rc;

	if (i < 0) {
		dr_free(g);
		return dr_err_set(e, -ENOMEM, "--isolate: out of memory or registrations");
	}
	g->mr = mr;
	g->awaited = true;
	rc = p->gpu.ops->share(p->gpu.arg, mr->base, &g->shared, e);
	if (rc) { /* whatever the driver says: it can be staged */
		dr_free(g);
		return -ENOTSUP;
	}
	p->region[i] = (struct iso_region){ .used = true, .base = mr->base, .gpu = g };
	if (!p->dead)
		(void)send_map(p, (uint32_t)i);
	await_mapped(p, g);
	if (g->mapped && g->rc == 0) {
		g->awaited = false;
		return 0;
	}
	rc = dr_err_set(e, -ENOTSUP, "--isolate: the plugin's process does not map GPU memory: %s",
		g->why[0] ? g->why
		: p->dead ? p->why
			  : "no answer from it");
	/* Without an answer, it may map it later. */
	return let_go(p, i, !g->mapped) ? -EIO : rc;
}

void dr_iso_gpu_map_again(struct nn_port *p)
{
	for (uint32_t i = 0; i < ISO_REGIONS; i++) {
		struct iso_gpu_memory *g = p->region[i].gpu;

		if (g && !g->mr) {
			drop(p, (int)i);
		} else if (g && !send_map(p, i)) {
			dr_nn_port_kill(p); /* it lacks the memory */
			return;
		}
	}
}

/* ---- unmap ---- */

int dr_nn_port_unmap(struct nn_port *p, const struct dr_mr *mr)
{
	struct iso_message m = { .op = ISO_UNMAP };
	bool unmapped = false;
	int i = 0;

	while (i < ISO_REGIONS && !(p->region[i].gpu && p->region[i].gpu->mr == mr))
		i++;
	if (i == ISO_REGIONS)
		return 0;
	m.mem = (uint32_t)i;
	if (!p->dead && !p->killed && dr_iso_push_surely(p, &m))
		unmapped = await_unmapped(p, p->region[i].gpu);
	if (!unmapped && p->region[i].gpu->unmapped)
		dr_iso_end(p, "its plugin could not deregister GPU memory");
	return let_go(p, i, !unmapped);
}

/* ---- what it cost ---- */

void dr_iso_gpu_count(struct nn_port *p)
{
	struct dr_unpack_stats now, more;

	if (!p->gpu.ops || !p->rings)
		return;
	now.copies = atomic_load_explicit(&p->rings->unpacked.copies, memory_order_relaxed);
	now.bytes = atomic_load_explicit(&p->rings->unpacked.bytes, memory_order_relaxed);
	now.busy_ns = atomic_load_explicit(&p->rings->unpacked.busy_ns, memory_order_relaxed);
	more = (struct dr_unpack_stats){ .copies = now.copies - p->counted.copies,
		.bytes = now.bytes - p->counted.bytes,
		.busy_ns = (int64_t)((uint64_t)now.busy_ns - (uint64_t)p->counted.busy_ns) };
	if (more.busy_ns < 0 || more.busy_ns > BUSY_MAX_NS)
		more.busy_ns = 0;
	if (more.copies || more.bytes || more.busy_ns)
		p->gpu.ops->add_stats(p->gpu.arg, &more);
	p->counted = now;
}
