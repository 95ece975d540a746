/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comms on their way in. A pending comm has one receive posted, for its HELLO. One whose HELLO is right waits for its path.
 * The plugin accepts from anybody: what has no HELLO makes room for others, and is closed after a while.
 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

static const int64_t HELLO_NS = 5 * DR_NS_PER_S, PARKED_NS = 5 * DR_NS_PER_S;

static struct nn_mem bytes_of(struct nn_pending *g)
{
	return (struct nn_mem){ .base = g->bytes, .len = sizeof(g->bytes) };
}

/* Off the list, and closed unless a path has taken the comm. */
static void leave(struct nn_rail *r, struct nn_pending **at)
{
	struct nn_pending *g = *at;
	int rc = dr_nn_queue_close(&g->queue);

	*at = g->next;
	r->n_pending--;
	if (rc == 0)
		dr_free(g);
	else /* the plugin may write its bytes until the process ends */
		dr_warn("nccl", "rail %u: the plugin could not close a comm", r->base.index);
}

/* Again later where the plugin gives no request. */
static int await_hello(struct nn_pending *g, int64_t now_ns)
{
	struct nn_mem mem = bytes_of(g);
	int rc = g->posted ? 0
			   : dr_nn_queue_post(&g->queue, &mem, g->bytes, sizeof(g->bytes), now_ns);

	g->posted = g->posted || rc == 0;
	return rc == -EAGAIN ? 0 : rc;
}

/* Room for one more. */
static bool has_room(struct nn_rail *r)
{
	struct nn_pending **at = &r->pending;

	if (r->n_pending < NN_PENDING_MAX)
		return true;
	while (*at && (*at)->greeted)
		at = &(*at)->next;
	if (!*at)
		return false;
	leave(r, at);
	return true;
}

int dr_nn_pending_add(struct nn_rail *r, void *comm, struct nccl_net_device_handle *device,
	const struct nccl_net_device_handle *used, int64_t now_ns)
{
	struct nn_pending *g = has_room(r) ? dr_calloc(1, sizeof(*g)) : NULL, **at = &r->pending;
	int rc;

	if (!g) {
		(void)NN_CALL(r->n->name, "closeRecv", r->n->close_recv(comm));
		dr_free(device);
		return -ENOMEM;
	}
	dr_nn_queue_open(&g->queue, r->n, comm, false, r->dev.requests);
	g->queue.device = device;
	rc = dr_nn_queue_take_pieces(&g->queue, used, &r->gpu);
	if (rc == 0 && g->queue.pieces != r->dev.unpack)
		rc = -EPROTO;
	g->until_ns = now_ns + HELLO_NS;
	while (*at) /* the oldest stands in front */
		at = &(*at)->next;
	*at = g;
	r->n_pending++;
	rc = rc ? rc : await_hello(g, now_ns);
	if (rc)
		leave(r, at);
	return rc;
}

static void give(struct nn_rail *r, struct nn_pending *g, struct nn_path *p)
{
	struct nn_mem mem = bytes_of(g);
	struct nn_queue queue;
	int rc = dr_nn_queue_forget(&g->queue, &mem);

	queue = g->queue;
	g->queue.comm = NULL;
	g->queue.regs = NULL;
	g->queue.device = NULL;
	if (g->hello.role == NN_DATA)
		queue.mode = r->unpack;
	dr_nn_adopt(p, g->hello.role, &queue);
	if (rc)
		dr_nn_fail(p, DR_SCOPE_PATH, rc, "the plugin's deregMr failed");
}

static struct nn_path *path_for(const struct nn_rail *r, const struct nn_hello *h)
{
	struct nn_path *p = r->paths;

	while (p && !dr_nn_wants(p, h))
		p = p->next;
	return p;
}

/* The HELLO of a pending comm came. False: the comm goes. */
static bool greet(struct nn_rail *r, struct nn_pending *g, int64_t now_ns)
{
	struct nn_hello_key key = nn_rail_key(r, false);
	struct dr_event ev = { .kind = DR_EV_INCOMING };
	const char *why = "?";
	struct nn_path *p;

	if (dr_nn_hello_parse(g->bytes, sizeof(g->bytes), &key, &g->hello, &why)) {
		if (!r->warned)
			dr_warn("nccl", "rail %u: a comm was refused: %s", r->base.index, why);
		r->warned = true;
		return false;
	}
	g->greeted = true;
	g->until_ns = now_ns + PARKED_NS;
	p = path_for(r, &g->hello);
	if (p) {
		give(r, g, p);
		return false;
	}
	ev.channel = g->hello.id.channel;
	ev.index = g->hello.id.index;
	ev.gen = g->hello.id.gen;
	if (g->hello.id.connector && g->hello.role == NN_CTRL)
		dr_nn_rail_event(r, &ev);
	return true;
}

/* False: the comm goes. */
static bool look(struct nn_rail *r, struct nn_pending *g, int64_t now_ns)
{
	size_t size = 0;
	int rc = await_hello(g, now_ns);

	if (rc == 0 && !g->greeted)
		rc = dr_nn_queue_test(&g->queue, &size);
	if (rc > 0 && size != sizeof(g->bytes))
		return false;
	if (rc > 0)
		return greet(r, g, now_ns);
	return rc == 0 && now_ns < g->until_ns;
}

void dr_nn_pending_progress(struct nn_rail *r, int64_t now_ns)
{
	for (struct nn_pending **at = &r->pending; *at && !r->closed;) {
		struct nn_pending *g = *at;

		/* The owner, told of one, may claim another: look for it again. */
		bool stays = look(r, g, now_ns);
		for (at = &r->pending; *at && *at != g;)
			at = &(*at)->next;
		if (!*at)
			continue;
		if (stays)
			at = &(*at)->next;
		else
			leave(r, at);
	}
}

void dr_nn_pending_claim(struct nn_rail *r, struct nn_path *p)
{
	for (struct nn_pending **at = &r->pending; *at;) {
		if ((*at)->greeted && dr_nn_wants(p, &(*at)->hello)) {
			give(r, *at, p);
			leave(r, at);
		} else {
			at = &(*at)->next;
		}
	}
}

void dr_nn_pending_close(struct nn_rail *r)
{
	while (r->pending)
		leave(r, &r->pending);
}
