/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakeverbs/ibverbs/nic.h"

/* The list of devices, and contexts. The other parts are in ibverbs/. */

const struct ibv_context_ops dr_fake_ops = {
	.poll_cq = dr_fake_poll_cq,
	.req_notify_cq = dr_fake_req_notify_cq,
	.post_send = dr_fake_post_send,
	.post_recv = dr_fake_post_recv,
};

struct ibv_device **ibv_get_device_list(int *n)
{
	int err = dr_fake_enter(DR_FAKE_CALL_get_device_list);
	struct ibv_device **list;
	int there = 0;

	if (err) {
		errno = err;
		return NULL;
	}
	dr_fake_lock();
	dr_fake_devs_read();
	list = calloc(dr_fake_n_devs + 1, sizeof(struct ibv_device *));
	dr_assert(list != NULL);
	for (unsigned i = 0; i < dr_fake_n_devs; i++)
		if (!dr_fake_dev[i].gone)
			list[there++] = &dr_fake_dev[i].ibv;
	if (n)
		*n = there;
	dr_fake_set_add(&dr_fake_lists, list);
	dr_fake_unlock();
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)dr_fake_enter(DR_FAKE_CALL_free_device_list);
	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_lists, list))
		dr_fake_violation("free_device_list of no list");
	else
		free(list);
	dr_fake_set_del(&dr_fake_lists, list);
	dr_fake_unlock();
}

const char *ibv_get_device_name(struct ibv_device *d)
{
	(void)dr_fake_enter(DR_FAKE_CALL_get_device_name);
	return d->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	int err = dr_fake_enter(DR_FAKE_CALL_open_device);
	struct dr_fake_ctx *c = calloc(1, sizeof(*c));

	if (!err && !c)
		err = ENOMEM;
	if (!err)
		err = dr_fake_queue_init(&c->events);
	if (!err) {
		err = dr_fake_timer_start();
		if (err)
			dr_fake_queue_fini(&c->events);
	}
	if (err) {
		free(c);
		errno = err;
		return NULL;
	}
	c->dev = dr_container_of(d, struct dr_fake_dev, ibv);
	c->ibv.device = d;
	c->ibv.ops = dr_fake_ops;
	c->ibv.cmd_fd = -1;
	c->ibv.async_fd = c->events.fd;
	c->ibv.num_comp_vectors = 1;
	dr_fake_lock();
	dr_fake_set_add(&dr_fake_ctxs, c);
	dr_fake_unlock();
	return &c->ibv;
}

/* As the kernel does it when a process closes the device: everything made with it goes. */
int ibv_close_device(struct ibv_context *ibv)
{
	int err = dr_fake_enter(DR_FAKE_CALL_close_device);
	struct dr_fake_ctx *c = dr_container_of(ibv, struct dr_fake_ctx, ibv);
	unsigned left;

	if (err) {
		errno = err;
		return -1;
	}
	dr_fake_lock();
	if (!dr_fake_set_has(&dr_fake_ctxs, c)) {
		dr_fake_violation("close_device of no context");
		dr_fake_unlock();
		return -1;
	}
	left = dr_fake_reap(ibv);
	if (left > 0)
		dr_fake_violation("close_device with %u objects alive", left);
	dr_fake_set_del(&dr_fake_ctxs, c);
	dr_fake_queue_fini(&c->events);
	free(c);
	dr_fake_move_all();
	dr_fake_unlock();
	dr_fake_timer_stop();
	return 0;
}

/* Of each kind the context is reached in another way; the first member is verbs.h's struct. */
static unsigned reap(struct dr_fake_set *s, const struct ibv_context *c,
	const struct ibv_context *(*context)(const void *), void (*gone)(void *))
{
	unsigned n = 0;

	for (unsigned i = s->n; i-- > 0;) {
		void *p = s->p[i];

		if (c && context(p) != c)
			continue;
		n++;
		dr_fake_set_del(s, p);
		gone(p);
	}
	return n;
}

static const struct ibv_context *of_qp(const void *p)
{
	return ((const struct ibv_qp *)p)->context;
}

static const struct ibv_context *of_cq(const void *p)
{
	return ((const struct ibv_cq *)p)->context;
}

static const struct ibv_context *of_other(const void *p)
{
	return *(struct ibv_context *const *)p;
}

static void free_qp(void *p)
{
	dr_fake_qp_free(p);
}

static void free_cq(void *p)
{
	free(((struct dr_fake_cq *)p)->ring);
	free(p);
}

static void free_channel(void *p)
{
	dr_fake_queue_fini(&((struct dr_fake_channel *)p)->events);
	free(p);
}

static void free_ctx(void *p)
{
	dr_fake_queue_fini(&((struct dr_fake_ctx *)p)->events);
	free(p);
	/* The timer's thread takes the lock that is held here. */
	dr_fake_unlock();
	dr_fake_timer_stop();
	dr_fake_lock();
}

unsigned dr_fake_reap(const struct ibv_context *c)
{
	unsigned n = 0;

	n += reap(&dr_fake_ahs, c, of_other, free);
	n += reap(&dr_fake_qps, c, of_qp, free_qp);
	n += reap(&dr_fake_cqs, c, of_cq, free_cq);
	n += reap(&dr_fake_channels, c, of_other, free_channel);
	n += reap(&dr_fake_mrs, c, of_other, dr_fake_mr_free);
	n += reap(&dr_fake_pds, c, of_other, free);
	if (!c) {
		n += reap(&dr_fake_ctxs, NULL, of_other, free_ctx);
		n += reap(&dr_fake_lists, NULL, of_other, free);
	}
	return n;
}
