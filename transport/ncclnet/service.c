/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1. A call in progress cannot be ended. One that was given up belongs to its thread, which closes
 *    what comes of it, and the service, with its reference to the plugin, stays until the last
 *    thread has ended.
 * 2. accept may wait until somebody connects. If it does when it is given up, this end connects to
 *    its own listener, and closes that comm after accept has returned.
 * 3. The lock guards over, dropped, stuck, waits, own and threads. What a call has given is read
 *    after `over` was seen under it.
 */
#include "transport/ncclnet/service.h"

#include "transport/ncclnet/watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum { STUCK_MAX = 16, PAUSE_MAX_MS = 4 };
static const int64_t CLOSE_NS = 200 * DR_NS_PER_MS;

struct nn_service {
	pthread_mutex_t lock;
	pthread_cond_t ended;	 /* a call or a thread has */
	unsigned threads, stuck; /* stuck: given up while they waited in the plugin */
	bool closed;
	struct dr_nccl_host *host;
	const struct dr_nccl *n;
	int dev;
	struct dr_rail_gpu gpu;
};

struct nn_call {
	struct nn_service *s;
	void *listener; /* accept; NULL: connect */
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	bool over, dropped, stuck;
	bool waits;	     /* in the plugin now */
	struct nn_call *own; /* the connect that ends an accept */
	enum nccl_result rc;
	struct nn_comm got;
};

int dr_nn_service_open(
	struct dr_nccl_host *host, int dev, const struct dr_rail_gpu *gpu, struct nn_service **out)
{
	struct nn_service *s = dr_calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	dr_cond_init(&s->ended);
	s->host = host;
	dr_nccl_host_keep(host);
	s->n = dr_nccl_host_plugin(host);
	s->dev = dev;
	s->gpu = *gpu;
	*out = s;
	return 0;
}

static void destroy(struct nn_service *s)
{
	dr_nccl_host_put(s->host);
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->lock);
	dr_free(s);
}

void dr_nn_service_close(struct nn_service *s)
{
	int64_t until = dr_now_ns() + CLOSE_NS;
	bool last;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	while (s->threads > 0 && dr_cond_wait(&s->ended, &s->lock, until))
		;
	s->closed = true;
	last = s->threads == 0;
	if (!last)
		dr_debug("nccl", "%u calls of connect or accept of plugin %s have not returned",
			s->threads, s->n->name);
	pthread_mutex_unlock(&s->lock);
	if (last)
		destroy(s);
}

/* ---- the thread of a call ---- */

/* False: it was given up. */
static bool begin(struct nn_call *c)
{
	pthread_mutex_lock(&c->s->lock);
	bool go = c->waits = !c->dropped;
	pthread_mutex_unlock(&c->s->lock);
	return go;
}

static void call_once(struct nn_call *c)
{
	const struct dr_nccl *n = c->s->n;

	c->got.device = c->got.room;
	if (c->listener)
		c->rc = (enum nccl_result)NN_CALL_WAITS(n->name, "accept",
			dr_nccl_accept(n, c->listener, &c->got.comm, &c->got.device));
	else
		c->rc = (enum nccl_result)NN_CALL_WAITS(
			n->name, "connect", dr_nccl_connect(n, c->s->dev, c->handle, &c->got.comm));
	if (c->rc == NCCL_SUCCESS && c->got.comm == DR_NCCL_UNSET)
		c->rc = NCCL_INTERNAL_ERROR;
	pthread_mutex_lock(&c->s->lock);
	c->waits = false;
	pthread_mutex_unlock(&c->s->lock);
}

/* The context of the rail's thread becomes that of this one. Not after the rail has gone. */
static void enter(struct nn_call *c)
{
	struct nn_service *s = c->s;

	pthread_mutex_lock(&s->lock);
	if (!c->dropped && s->gpu.ops)
		(void)s->gpu.ops->enter(s->gpu.arg, NULL); /* shows up in the plugin's calls */
	pthread_mutex_unlock(&s->lock);
}

static void close_listener(const struct nn_call *c)
{
	const struct dr_nccl *n = c->s->n;

	if (c->listener && NN_CALL(n->name, "closeListen", n->close_listen(c->listener)))
		dr_warn("nccl", "plugin %.40s could not close a listener", n->name);
}

/* What nobody wants. */
static void discard(struct nn_call *c)
{
	const struct dr_nccl *n = c->s->n;

	if (c->rc == NCCL_SUCCESS && c->got.comm && c->listener)
		(void)NN_CALL(n->name, "closeRecv", n->close_recv(c->got.comm));
	else if (c->rc == NCCL_SUCCESS && c->got.comm)
		(void)NN_CALL(n->name, "closeSend", n->close_send(c->got.comm));
	dr_free(c->got.room);
	dr_free(c);
}

static void *serve(void *arg)
{
	struct nn_call *c = arg;
	struct nn_service *s = c->s;
	bool dropped, last;
	struct nn_call *own;

	enter(c);
	for (int ms = 1; begin(c); ms = DR_MIN(2 * ms, PAUSE_MAX_MS)) {
		call_once(c);
		if (c->rc != NCCL_SUCCESS || c->got.comm)
			break;
		(void)poll(NULL, 0, ms);
	}
	close_listener(c);
	pthread_mutex_lock(&s->lock);
	while (c->own && !c->own->over)
		pthread_cond_wait(&s->ended, &s->lock);
	own = c->own;
	s->stuck -= c->stuck;
	c->over = true;
	dropped = c->dropped;
	pthread_cond_broadcast(&s->ended);
	pthread_mutex_unlock(&s->lock);
	if (own)
		discard(own);
	if (dropped)
		discard(c);
	pthread_mutex_lock(&s->lock);
	last = --s->threads == 0 && s->closed;
	pthread_cond_broadcast(&s->ended);
	pthread_mutex_unlock(&s->lock);
	if (last)
		destroy(s);
	return NULL;
}

/* ---- the rail's side ---- */

/* Under the lock. */
static int start(struct nn_service *s, void *listener, const uint8_t *handle, struct nn_call **out)
{
	struct nn_call *c = dr_calloc(1, sizeof(*c));
	pthread_t thread;
	int rc = -ENOMEM;

	if (c && listener)
		c->got.room = dr_calloc(1, sizeof(*c->got.room));
	if (!c || (listener && !c->got.room))
		goto failed;
	c->s = s;
	c->listener = listener;
	memcpy(c->handle, handle, sizeof(c->handle));
	rc = dr_thread_start(&thread, "dr-nccl", serve, c);
	if (rc)
		goto failed;
	pthread_detach(thread);
	s->threads++;
	*out = c;
	return 0;
failed:
	if (c)
		dr_free(c->got.room);
	dr_free(c);
	return rc;
}

int dr_nn_call_accept(struct nn_service *s, void *listener,
	const uint8_t handle[NCCL_NET_HANDLE_BYTES], struct nn_call **out)
{
	pthread_mutex_lock(&s->lock);
	int rc = s->stuck < STUCK_MAX ? start(s, listener, handle, out) : -EAGAIN;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int dr_nn_call_connect(
	struct nn_service *s, const uint8_t handle[NCCL_NET_HANDLE_BYTES], struct nn_call **out)
{
	return dr_nn_call_accept(s, NULL, handle, out);
}

int dr_nn_call_take(struct nn_call **at, struct nn_comm *out)
{
	struct nn_call *c = *at;
	int rc = 1;

	pthread_mutex_lock(&c->s->lock);
	bool over = c->over;
	pthread_mutex_unlock(&c->s->lock);
	if (!over)
		return 0;
	*at = NULL;
	*out = c->got;
	if (c->rc != NCCL_SUCCESS) {
		rc = c->rc == NCCL_REMOTE_ERROR ? -ECONNREFUSED : -EIO;
		dr_free(c->got.room);
		*out = (struct nn_comm){ .comm = NULL };
	}
	dr_free(c);
	return rc;
}

void dr_nn_call_drop(struct nn_call **at)
{
	struct nn_call *c = *at;

	if (!c)
		return;
	*at = NULL;
	struct nn_service *s = c->s;
	pthread_mutex_lock(&s->lock);
	bool over = c->over, first = c->waits && !c->listener && s->stuck == 0;
	c->dropped = true;
	c->stuck = c->waits;
	s->stuck += c->stuck;
	if (c->waits && c->listener && start(s, NULL, c->handle, &c->own))
		dr_debug("nccl", "no thread to end accept of plugin %s", s->n->name);
	pthread_mutex_unlock(&s->lock);
	if (over)
		discard(c);
	if (first)
		dr_warn("nccl", "plugin %.40s has not returned from connect, which was given up",
			s->n->name);
}
