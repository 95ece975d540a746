/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of a plugin, for a plugin that is in another process: they put commands into a ring, and find answers. See
 * iso_port.c for the invariants. Each function has the type and the rules of its member of struct dr_nccl.
 */
#include "transport/ncclnet/iso_port.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/shared.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* How long the rail's thread may wait: for a listener's handle when the rail is opened, before which the process opens the GPU; for
 * the end of a process that was killed, which took 55 to 72 ms with one CUDA context on an H100. */
static const int64_t OPEN_NS = 30 * DR_NS_PER_S, END_NS = 900 * DR_NS_PER_MS;

/* A dial's handle after its first call. */
struct dialled {
	uint64_t magic, start;
	uint32_t id;
};

static enum nccl_result port_devices(int *ndev)
{
	*ndev = 0;
	return NCCL_INVALID_USAGE;
}

/* One listener is made before it is asked for. */
static void stock_up(struct nn_port *p)
{
	struct iso_message m = { .op = ISO_LISTEN };

	if (p->stock || p->dead || !iso_has_room(p))
		return;
	p->stock = dr_iso_new_comm(p);
	if (!p->stock)
		return;
	m.comm = p->stock->id;
	dr_iso_push(p, &m);
}

/* The first time it waits; later it says that there is none yet. */
static enum nccl_result port_listen(void *ctx, int dev, void *handle, void **comm)
{
	struct nn_port *p = ctx;
	struct iso_comm *c;

	(void)dev;
	*comm = NULL;
	stock_up(p);
	c = p->stock;
	if (!c)
		return NCCL_IN_PROGRESS;
	if (p->listened)
		dr_iso_take_events(p);
	else
		dr_iso_await(c, OPEN_NS);
	if (!c->ready && c->rc == NCCL_SUCCESS)
		return p->listened ? NCCL_IN_PROGRESS : NCCL_SYSTEM_ERROR;
	p->stock = NULL;
	if (c->rc != NCCL_SUCCESS) {
		enum nccl_result rc = c->rc;

		(void)p->n.close_listen(c);
		return rc;
	}
	p->listened = true;
	memcpy(handle, c->handle, sizeof(c->handle));
	*comm = c;
	stock_up(p);
	return NCCL_SUCCESS;
}

static enum nccl_result close_as(struct iso_comm *c, enum iso_op op);

static enum nccl_result port_connect(
	void *ctx, int dev, void *handle, void **comm, struct nccl_net_device_handle **device)
{
	struct nn_port *p = ctx;
	struct iso_message m = { .op = ISO_CONNECT };
	struct dialled d;
	struct iso_comm *c;

	(void)dev;
	(void)device;
	*comm = NULL;
	dr_iso_take_events(p);
	memcpy(&d, handle, sizeof(d));
	if (d.magic != p->magic) {
		c = p->dead || !iso_has_room(p) ? NULL : dr_iso_new_comm(p);
		if (!c)
			return NCCL_SUCCESS; /* again later */
		m.comm = c->id;
		memcpy(m.handle, handle, sizeof(m.handle));
		dr_iso_push(p, &m);
		d = (struct dialled){ .magic = p->magic, .start = p->start, .id = c->id };
		memcpy(handle, &d, sizeof(d));
		return NCCL_SUCCESS;
	}
	c = d.id < ISO_COMMS ? p->comm[d.id] : NULL;
	if (!c || c->start != d.start)
		return NCCL_REMOTE_ERROR;
	if (iso_is_dead(c)) {
		dr_iso_free_comm(c);
		return NCCL_REMOTE_ERROR;
	}
	if (c->rc != NCCL_SUCCESS) {
		enum nccl_result rc = c->rc;

		(void)close_as(c, ISO_CLOSE);
		return rc;
	}
	if (c->ready)
		*comm = c;
	return NCCL_SUCCESS;
}

static enum nccl_result port_accept(
	void *listen_comm, void **comm, struct nccl_net_device_handle **device)
{
	struct iso_comm *l = listen_comm;
	struct nn_port *p = l->port;
	struct iso_message m = { .op = ISO_ACCEPT, .comm = l->id };

	*comm = NULL;
	*device = NULL;
	dr_iso_take_events(p);
	if (iso_is_dead(l))
		return NCCL_REMOTE_ERROR;
	if (!l->wanted) {
		l->comm = iso_has_room(p) ? dr_iso_new_comm(p) : NULL;
		if (!l->comm)
			return NCCL_SUCCESS; /* again later */
		l->wanted = true;
		m.other = l->comm->id;
		dr_iso_push(p, &m);
	}
	if (!l->comm || !l->comm->ready)
		return NCCL_SUCCESS;
	if (l->comm->rc != NCCL_SUCCESS)
		return l->comm->rc;
	*comm = l->comm;
	l->comm = NULL; /* the caller's from here on */
	return NCCL_SUCCESS;
}

/* ---- memory ---- */

static bool send_region(struct nn_port *p, uint32_t i, const struct dr_shared *s)
{
	struct iso_message m = { .op = ISO_MAP, .mem = i, .len = s->len };

	return dr_iso_push_with(p, &m, s->fd);
}

/* The region that the process has of s, or a new one. -1: none. */
static int region_of(struct nn_port *p, const struct dr_shared *s, bool copy)
{
	int at = -1;

	for (int i = 0; i < ISO_REGIONS; i++) {
		if (p->region[i].used && p->region[i].shared == s->id)
			return i;
		if (at < 0 && !p->region[i].used && !p->reg[i])
			at = i;
	}
	if (at < 0 || !send_region(p, (uint32_t)at, s))
		return -1;
	p->region[at] =
		(struct iso_region){ .used = true, .shared = s->id, .base = s->base, .copy = copy };
	return at;
}

static void drop_copy(struct nn_port *p, uint32_t i)
{
	struct iso_message m = { .op = ISO_UNMAP, .mem = i };
	struct iso_region g = p->region[i];

	if (!g.copy)
		return;
	p->region[i].used = false;
	if (!p->dead)
		(void)dr_iso_push_surely(p, &m);
	dr_shared_free(g.base);
}

/* Into r: what the process registers in place of the user's memory. */
static bool place(struct nn_port *p, struct iso_reg *r, bool cuda, struct iso_message *m)
{
	struct dr_shared s;
	void *copy = NULL;
	int i = cuda ? dr_iso_gpu_region(p, r->data, r->len) : -1;

	if (cuda && i >= 0) {
		m->off = (uint64_t)(r->data - p->region[i].base);
		m->user = 1;
		r->region = m->mem = (uint32_t)i;
	}
	if (cuda)
		return i >= 0;
	if (!dr_shared_find(r->data, r->len, &s)) {
		copy = dr_shared_alloc(r->len);
		if (!copy || !dr_shared_find(copy, r->len, &s))
			return false;
	} else {
		m->off = (uint64_t)(r->data - (uint8_t *)s.base);
		m->user = 1;
	}
	i = region_of(p, &s, copy != NULL);
	if (i < 0) {
		dr_shared_free(copy);
		return false;
	}
	r->region = (uint32_t)i;
	m->mem = (uint32_t)i;
	return true;
}

static struct iso_reg *new_reg(struct nn_port *p)
{
	for (uint32_t i = 0; i < ISO_REGIONS; i++) {
		if (p->reg[i] || p->region[i].used)
			continue;
		p->reg[i] = dr_calloc(1, sizeof(struct iso_reg));
		if (p->reg[i])
			p->reg[i]->id = i;
		return p->reg[i];
	}
	return NULL;
}

static void free_reg(struct nn_port *p, struct iso_reg *r)
{
	p->reg[r->id] = NULL;
	dr_free(r);
}

static enum nccl_result port_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct iso_comm *c = comm;
	struct nn_port *p = c->port;
	struct iso_message m = { .op = ISO_REGISTER, .comm = c->id, .len = size };
	struct iso_reg *r;

	*mhandle = NULL;
	if (iso_is_dead(c))
		return NCCL_REMOTE_ERROR;
	r = new_reg(p);
	if (!r)
		return NCCL_SYSTEM_ERROR;
	r->data = data;
	r->len = size;
	m.other = r->id;
	if (!place(p, r, type == NCCL_PTR_CUDA, &m)) {
		free_reg(p, r);
		return NCCL_SYSTEM_ERROR;
	}
	if (!dr_iso_push_surely(p, &m)) {
		drop_copy(p, r->region);
		free_reg(p, r);
		return NCCL_REMOTE_ERROR;
	}
	*mhandle = r;
	return NCCL_SUCCESS;
}

/* Requests that are outstanding forget it: their data go nowhere. */
static enum nccl_result port_dereg(void *comm, void *mhandle)
{
	struct iso_comm *c = comm;
	struct iso_reg *r = mhandle;
	struct nn_port *p = c->port;
	struct iso_message m = { .op = ISO_DEREGISTER, .comm = c->id, .other = r->id };

	for (uint64_t i = c->done; i < c->posted; i++)
		if (c->request[i % ISO_REQUESTS].reg == r)
			c->request[i % ISO_REQUESTS].reg = NULL;
	if (!iso_is_dead(c))
		(void)dr_iso_push_surely(p, &m);
	if (c->start == p->start)
		drop_copy(p, r->region);
	free_reg(p, r);
	return NCCL_SUCCESS;
}

/* ---- requests ---- */

static enum nccl_result post(struct iso_comm *c, enum iso_op op, void *data, size_t size,
	struct iso_reg *r, void **request)
{
	struct nn_port *p = c->port;
	struct iso_message m = { .op = (uint32_t)op, .comm = c->id, .other = r->id, .len = size };
	struct iso_request_state *q = &c->request[c->posted % ISO_REQUESTS];
	uint8_t *copy = iso_copy_of(p, r);

	*request = NULL;
	if (iso_is_dead(c))
		return NCCL_REMOTE_ERROR;
	if (c->rc != NCCL_SUCCESS)
		return c->rc;
	if (c->posted - c->taken == ISO_REQUESTS || !iso_has_room(p))
		return NCCL_SUCCESS; /* again later */
	m.off = (uint64_t)((uint8_t *)data - r->data);
	*q = (struct iso_request_state){
		.comm = c, .number = c->posted, .data = data, .len = size, .reg = r, .off = m.off
	};
	if (copy && op == ISO_SEND)
		memcpy(copy + m.off, data, size);
	if (!copy)
		c->users++;
	c->posted++;
	dr_iso_push(p, &m);
	*request = q;
	return NCCL_SUCCESS;
}

static enum nccl_result port_isend(void *comm, void *data, size_t size, int tag, void *mhandle,
	void *phandle, void **request) /* lint-ok: the type is NCCL's */
{
	(void)tag;
	(void)phandle;
	return post(comm, ISO_SEND, data, size, mhandle, request);
}

static enum nccl_result port_irecv(void *comm, int n, void **data, size_t *sizes, int *tags,
	void **mhandles, void **phandles, void **request) /* lint-ok: the type is NCCL's */
{
	(void)tags;
	(void)phandles;
	if (n != 1)
		return NCCL_INVALID_USAGE;
	return post(comm, ISO_RECEIVE, data[0], sizes[0], mhandles[0], request);
}

static enum nccl_result port_test(void *request, int *done, int *sizes)
{
	struct iso_request_state *q = request;
	struct iso_comm *c = q->comm;

	*done = 0;
	dr_iso_take_events(c->port);
	if (q->number < c->done) {
		*done = 1;
		sizes[0] = (int)q->size;
		c->taken = DR_MAX(c->taken, q->number + 1);
		return NCCL_SUCCESS;
	}
	return iso_is_dead(c) ? NCCL_REMOTE_ERROR : c->rc;
}

/* ---- close ---- */

int dr_iso_end_process(struct nn_port *p)
{
	/* A process that does not end is waited for once. */
	int64_t until = dr_now_ns() + (p->unended == p->start ? 0 : END_NS);

	dr_nn_port_kill(p);
	while (!dr_nn_port_is_gone(p)) {
		if (dr_now_ns() > until) {
			p->unended = p->start;
			return -EIO;
		}
		(void)poll(NULL, 0, 1);
	}
	return 0;
}

uint64_t dr_nn_port_closes(const struct nn_port *p)
{
	return p->n_held;
}

/* It closes them in their order. */
bool dr_nn_port_is_closing(struct nn_port *p, uint64_t closes)
{
	dr_iso_take_events(p);
	if (p->n_held - p->n_holding >= closes)
		return false;
	if (!dr_nn_port_is_gone(p))
		return true;
	for (uint32_t i = 0; i < ISO_COMMS; i++)
		if (p->comm[i] && p->comm[i]->holds)
			dr_iso_free_comm(p->comm[i]);
	return false;
}

int dr_nn_port_finish_closing(struct nn_port *p, uint64_t closes)
{
	struct nn_patience x = dr_nn_port_patience(p, dr_now_ns());

	while (dr_nn_port_is_closing(p, closes) && !p->killed &&
		dr_nn_port_may_wait(p, &x, dr_now_ns()))
		(void)poll(NULL, 0, 1);
	if (!dr_nn_port_is_closing(p, closes))
		return 0;
	return dr_iso_end_process(p);
}

static enum nccl_result close_as(struct iso_comm *c, enum iso_op op)
{
	struct nn_port *p = c->port;
	struct iso_message m = { .op = (uint32_t)op, .comm = c->id };

	/* A start before this one is reaped. */
	if (c->start != p->start || (p->dead && dr_nn_port_is_gone(p))) {
		dr_iso_free_comm(c);
		return NCCL_SUCCESS;
	}
	c->closing = true;
	c->holds = c->users > 0;
	p->n_held += c->holds;
	p->n_holding += c->holds;
	if (p->dead || p->killed || !dr_iso_push_surely(p, &m)) {
		dr_nn_port_kill(p);
		if (!c->holds)
			dr_iso_free_comm(c);
	}
	return NCCL_SUCCESS;
}

static enum nccl_result port_close(void *comm)
{
	return close_as(comm, ISO_CLOSE);
}

static enum nccl_result port_close_listen(void *comm)
{
	struct iso_comm *l = comm, *accepting = l->comm;
	enum nccl_result rc = close_as(l, ISO_CLOSE_LISTEN);

	if (accepting)
		(void)close_as(accepting, ISO_CLOSE);
	return rc;
}

/* ---- the table ---- */

void dr_iso_fill_plugin(struct nn_port *p)
{
	const struct iso_hello *h = dr_nn_proc_hello(p->proc);

	p->n = (struct dr_nccl){ .version = DR_NCCL_NEWEST,
		.name = h->name,
		.ctx = p,
		.initialised = true,
		.devices = port_devices,
		.dereg_mr = port_dereg,
		.test = port_test,
		.close_send = port_close,
		.close_recv = port_close,
		.close_listen = port_close_listen,
		.listen.context = port_listen,
		.connect.context = port_connect,
		.accept.device = port_accept,
		.reg_mr.wide = port_reg,
		.isend.profiled = port_isend,
		.irecv.profiled = port_irecv };
}
