/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process of a plugin: a thread for each port, and one that takes ports from the program. The first thread loads the
 * plugin, says so, and waits. Invariants:
 *  1. A port's comms are touched by its thread only.
 *  2. The process ends when the program closes ctl, whatever the plugin does. Where all threads have come back, the plugin
 *     is finalised before.
 *  3. Commands are the program's: they are right.
 */
#include "transport/ncclnet/net_priv.h"

#include "transport/ncclnet/guard.h"
#include "transport/ncclnet/iso.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/privileges.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATUS_START = 2, LAST_S = 2, TEST_MAX = 16, CONDEMNED_MAX = 64 };
static const int64_t SPIN_NS = 100 * DR_NS_PER_US, SLEEP_MIN_NS = 20 * DR_NS_PER_US,
		     SLEEP_MAX_NS = DR_NS_PER_MS;

/* A request that the plugin has not taken yet. */
struct post {
	uint32_t reg;
	uint64_t off, len;
};

enum comm_state { FREE, LISTENER, ACCEPTING, DIALLING, UP, BROKEN };
struct comm {
	enum comm_state state;
	bool sends, wanted; /* of a listener: somebody waits for its comm */
	uint32_t other;	    /* of a listener: the comm */
	void *listen;
	struct nccl_net_device_handle *device;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
	struct nn_lane lane;
	struct post post[ISO_REQUESTS];
	unsigned head, tail; /* of post */
	int rc;		     /* the first error of a deregistration */
};

struct region {
	uint8_t *base; /* of what is mapped here, or NULL; gpu: an address of the GPU */
	size_t len;
	bool gpu;
	void *gpu_base;	 /* of the allocation; NULL: it is not mapped */
	struct dr_mr mr; /* of gpu, and of registrations in it */
	bool kept;	 /* the plugin could not deregister it, and may use it still */
	/* Of a registration. */
	struct region *in;
	struct nn_mem mem;
	uint64_t off; /* of mem in what it lies in */
	bool user;
};

struct port {
	pthread_t thread;
	struct port *next;
	int fd[ISO_FDS];
	struct iso_rings *rings;
	struct comm *comm;     /* ISO_COMMS */
	struct region *region; /* ISO_REGIONS */
	/* Copies that the program has no use of any more. The plugin may have receives there until the next comm is closed. */
	struct region condemned[CONDEMNED_MAX];
	unsigned n_condemned;
	unsigned top; /* comms from here on are free */
	bool waiting; /* something needs to be looked at again */
	/* GPU memory: of this ordinal, -1: none. Without ops: it could not be opened, gpu_error. */
	int gpu_ordinal;
	struct dr_rail_gpu gpu;
	struct dr_err gpu_error;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool up;
	struct dr_nccl_host *host;
	const struct dr_nccl *n;
	struct dr_nccl_device dev;
	enum nn_unpack_mode unpack;
	const struct dr_gpu_process_ops *gpu;
	struct port *ports;
} self = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- events ---- */

static void tell(struct port *p, const struct iso_message *m)
{
	const uint64_t one = 1;

	while (iso_ring_full(&p->rings->events))
		(void)poll(NULL, 0, 1);
	if (iso_ring_push(&p->rings->events, m))
		(void)!write(p->fd[ISO_WAKE_PROGRAM], &one, sizeof(one));
}

static void answer(struct port *p, enum iso_op op, uint32_t comm, int rc)
{
	struct iso_message m = { .op = (uint32_t)op, .comm = comm, .rc = rc };

	tell(p, &m);
}

/* The results of lanes are -errno; the program's side is a plugin again. */
static int result_of(int err)
{
	return err == -ECONNRESET ? NCCL_REMOTE_ERROR : NCCL_SYSTEM_ERROR;
}

static void break_comm(struct port *p, uint32_t i, int err)
{
	dr_debug("nccl", "comm %u: %s: %s", i,
		p->comm[i].lane.failed ? p->comm[i].lane.failed : "call", strerror(-err));
	p->comm[i].state = BROKEN;
	answer(p, ISO_FAILED, i, result_of(err));
}

/* ---- comms ---- */

static struct comm *take(struct port *p, uint32_t i, enum comm_state state)
{
	dr_assert(i < ISO_COMMS);
	p->comm[i] = (struct comm){ .state = state };
	p->top = DR_MAX(p->top, i + 1);
	return &p->comm[i];
}

static void release(struct port *p, uint32_t i)
{
	p->comm[i] = (struct comm){ .state = FREE };
	while (p->top > 0 && p->comm[p->top - 1].state == FREE)
		p->top--;
}

static void do_listen(struct port *p, const struct iso_message *m)
{
	struct iso_message a = { .op = ISO_LISTENING, .comm = m->comm };
	struct comm *c = take(p, m->comm, LISTENER);

	c->device = dr_calloc(1, sizeof(*c->device));
	a.rc = !c->device ? NCCL_SYSTEM_ERROR
			  : NN_CALL(self.n->name, "listen",
				    dr_nccl_listen(self.n, self.dev.dev, a.handle, &c->listen));
	if (a.rc == NCCL_SUCCESS && (!c->listen || c->listen == DR_NCCL_UNSET))
		a.rc = NCCL_INTERNAL_ERROR;
	if (a.rc)
		c->listen = NULL;
	tell(p, &a);
}

static void do_close_listen(struct port *p, const struct iso_message *m)
{
	struct comm *c = &p->comm[m->comm];
	int rc = c->listen ? NN_CALL(self.n->name, "closeListen", self.n->close_listen(c->listen))
			   : NCCL_SUCCESS;

	dr_free(c->device);
	release(p, m->comm);
	answer(p, ISO_CLOSED, m->comm, rc);
}

static void do_connect(struct port *p, const struct iso_message *m)
{
	struct comm *c = take(p, m->comm, DIALLING);

	c->sends = true;
	memcpy(c->handle, m->handle, sizeof(c->handle));
}

static void do_accept(struct port *p, const struct iso_message *m)
{
	p->comm[m->comm].wanted = true;
	p->comm[m->comm].other = m->other;
	(void)take(p, m->other, ACCEPTING);
}

static void unmap(const struct region *r)
{
	if (r->base)
		(void)munmap(r->base, r->len);
}

static void unmap_condemned(struct port *p)
{
	while (p->n_condemned > 0)
		unmap(&p->condemned[--p->n_condemned]);
}

static void do_close(struct port *p, const struct iso_message *m)
{
	struct comm *c = &p->comm[m->comm];
	int rc = dr_nn_lane_close(&c->lane);

	rc = rc ? rc : c->rc;
	unmap_condemned(p);
	release(p, m->comm);
	answer(p, ISO_CLOSED, m->comm, rc ? NCCL_SYSTEM_ERROR : NCCL_SUCCESS);
}

/* A dial goes on until the plugin ends it. True: it is over. */
static bool dial(struct port *p, uint32_t i)
{
	struct comm *c = &p->comm[i];
	void *comm;
	int rc = NN_CALL(
		self.n->name, "connect", dr_nccl_connect(self.n, self.dev.dev, c->handle, &comm));

	if (rc == NCCL_SUCCESS && comm == DR_NCCL_UNSET)
		rc = NCCL_INTERNAL_ERROR;
	if (rc == NCCL_SUCCESS && !comm)
		return false;
	if (rc == NCCL_SUCCESS)
		dr_nn_lane_open(&c->lane, self.n, comm, true, self.dev.requests);
	c->state = rc ? BROKEN : UP;
	answer(p, ISO_CONNECTED, i, rc);
	return true;
}

/* True: the one comm of the listener has come, or will not. */
static bool accept_one(struct port *p, struct comm *l)
{
	struct comm *c = &p->comm[l->other];
	struct nccl_net_device_handle *device = l->device;
	void *comm = NULL;
	/* The device handle cannot be read then. */
	bool no_gpu = self.dev.unpack && p->gpu_ordinal >= 0 && !p->gpu.ops;
	int rc = l->listen && !no_gpu ? NN_CALL(self.n->name, "accept",
						dr_nccl_accept(self.n, l->listen, &comm, &device))
				      : NCCL_INTERNAL_ERROR;

	if (rc == NCCL_SUCCESS && comm == DR_NCCL_UNSET)
		rc = NCCL_INTERNAL_ERROR;
	if (rc == NCCL_SUCCESS && !comm)
		return false;
	l->wanted = false;
	if (rc == NCCL_SUCCESS) {
		dr_nn_lane_open(&c->lane, self.n, comm, false, self.dev.requests);
		c->lane.device = l->device;
		l->device = NULL;
		c->lane.mode = NN_UNPACK_HOST;
		if (dr_nn_lane_take_pieces(&c->lane, device, &p->gpu))
			rc = NCCL_INTERNAL_ERROR;
	}
	c->state = rc ? BROKEN : UP;
	answer(p, ISO_ACCEPTED, l->other, rc);
	return true;
}

/* ---- memory ---- */

static void do_map(struct port *p, const struct iso_message *m)
{
	struct region *r = &p->region[m->mem];
	char byte;
	int fd;

	*r = (struct region){ .len = m->len };
	if (dr_packet_receive(p->fd[ISO_SOCKET], &byte, sizeof(byte), &fd, 1, 0) != 1 || fd < 0)
		return;
	r->base = mmap(NULL, r->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->base == MAP_FAILED)
		r->base = NULL;
	close(fd);
}

/* ---- GPU memory ---- */

static void open_gpu(struct port *p)
{
	struct dr_err *e = &p->gpu_error;
	int rc;

	if (p->gpu_ordinal < 0)
		return;
	rc = self.gpu ? self.gpu->open((unsigned)p->gpu_ordinal, &p->gpu, e)
		      : dr_err_set(e, -ENOTSUP, "the plugin's process was started without GPUs");
	if (rc == 0 && self.dev.unpack && p->gpu.ops->prepare(p->gpu.arg, e) != 0)
		self.gpu->close(&p->gpu);
	if (!p->gpu.ops)
		dr_warn("nccl", "%s", e->text);
}

static int map_gpu(struct port *p, struct region *r, const struct iso_message *m, struct dr_err *e)
{
	struct iso_gpu_map how;
	void *dev;
	int rc;

	memcpy(&how, m->handle, sizeof(how));
	rc = self.gpu->map(p->gpu.arg, &how.shared, &r->gpu_base, &dev, e);
	if (rc)
		return rc;
	r->mr.dmabuf_off = how.dmabuf_off;
	r->base = dev;
	r->mr.base = dev;
	return 0;
}

static void unmap_gpu(struct port *p, struct region *r)
{
	if (r->gpu_base)
		self.gpu->unmap(p->gpu.arg, r->gpu_base);
	if (r->mr.dmabuf_fd >= 0)
		close(r->mr.dmabuf_fd);
	*r = (struct region){ .gpu = true, .mr.dmabuf_fd = -1 };
}

static void tell_text(struct port *p, uint32_t mem, const char *text)
{
	struct iso_message m = { .op = ISO_TEXT, .mem = mem };

	for (size_t at = 0, len = strlen(text), n; at < len; at += n) {
		n = DR_MIN(len - at, sizeof(m.handle));
		memset(m.handle, 0, sizeof(m.handle));
		memcpy(m.handle, text + at, n);
		tell(p, &m);
	}
}

static void do_map_gpu(struct port *p, const struct iso_message *m)
{
	struct iso_message a = { .op = ISO_MAPPED, .mem = m->mem };
	struct region *r = &p->region[m->mem];
	struct dr_err e = p->gpu_error;
	char byte;

	*r = (struct region){ .gpu = true,
		.len = m->len,
		.mr = { .len = m->len,
			.cuda = true,
			.flush = m->user,
			.dmabuf = m->other,
			.dmabuf_fd = -1 } };
	if (m->other && dr_packet_receive(p->fd[ISO_SOCKET], &byte, sizeof(byte), &r->mr.dmabuf_fd,
				1, 0) != 1)
		r->mr.dmabuf_fd = -1;
	if (!p->gpu.ops)
		a.rc = -ENODEV;
	else if (m->other && r->mr.dmabuf_fd < 0)
		a.rc = dr_err_set(&e, -EBADF, "the descriptor of the dma-buf has not come");
	else
		a.rc = map_gpu(p, r, m, &e);
	if (a.rc) {
		unmap_gpu(p, r);
		tell_text(p, m->mem, e.text);
	}
	tell(p, &a);
}

/* What unpacking has cost, for the program. */
static void tell_stats(struct port *p)
{
	struct dr_unpack_stats s;

	if (!p->gpu.ops || !self.dev.unpack)
		return;
	p->gpu.ops->stats(p->gpu.arg, &s);
	atomic_store_explicit(&p->rings->unpacked.copies, s.copies, memory_order_relaxed);
	atomic_store_explicit(&p->rings->unpacked.bytes, s.bytes, memory_order_relaxed);
	atomic_store_explicit(&p->rings->unpacked.busy_ns, s.busy_ns, memory_order_relaxed);
}

/* ---- memory ---- */

static void do_unmap(struct port *p, const struct iso_message *m)
{
	struct iso_message a = { .op = ISO_UNMAPPED, .mem = m->mem };

	if (p->region[m->mem].gpu) {
		if (p->region[m->mem].kept)
			a.rc = -EIO;
		else
			unmap_gpu(p, &p->region[m->mem]);
		tell(p, &a);
		return;
	}
	if (p->n_condemned == CONDEMNED_MAX) /* rather more at once than a comm can have */
		unmap(&p->condemned[--p->n_condemned]);
	p->condemned[p->n_condemned++] = p->region[m->mem];
	p->region[m->mem] = (struct region){ .len = 0 };
}

static void do_register(struct port *p, const struct iso_message *m)
{
	struct region *in = &p->region[m->mem];
	struct region *r = &p->region[m->other];

	*r = (struct region){ .off = m->off, .user = m->user, .in = in };
	if (!in->base)
		return;
	r->mem = (struct nn_mem){ .base = in->base + m->off, .len = m->len };
	if (in->gpu) {
		r->mr = in->mr;
		r->mr.dmabuf_off += m->off;
		r->mem.mr = &r->mr;
	}
}

static void do_deregister(struct port *p, const struct iso_message *m)
{
	struct comm *c = &p->comm[m->comm];
	struct region *r = &p->region[m->other];
	/* Requests that are outstanding there are tested and flushed no more. */
	int used = dr_nn_lane_uses(&c->lane, &r->mem) ? -ECANCELED : 0;
	/* Of a broken comm, too: memory of the GPU may be unmapped next. */
	int err = dr_nn_lane_forget(&c->lane, &r->mem);

	c->rc = c->rc ? c->rc : err;
	if (r->in)
		r->in->kept |= err != 0;
	*r = (struct region){ .len = 0 };
	if ((err || used) && c->state == UP)
		break_comm(p, m->comm, err ? err : used);
}

/* ---- requests ---- */

static void do_post(struct port *p, const struct iso_message *m)
{
	struct comm *c = &p->comm[m->comm];

	if (c->state != UP)
		return; /* the program was told */
	dr_assert(c->tail - c->head < ISO_REQUESTS);
	c->post[c->tail++ % ISO_REQUESTS] =
		(struct post){ .reg = m->other, .off = m->off, .len = m->len };
}

static enum nn_unpack_mode mode_of(const struct port *p)
{
	if (self.unpack != NN_UNPACK_AUTO)
		return self.unpack;
	return p->gpu.ops ? NN_UNPACK_KERNEL : NN_UNPACK_HOST;
}

/* Give the plugin what it may have, in order. */
static int post_waiting(struct port *p, struct comm *c, int64_t now_ns)
{
	int rc = 0;

	while (rc == 0 && c->head != c->tail) {
		const struct post *x = &c->post[c->head % ISO_REQUESTS];
		const struct region *r = &p->region[x->reg];

		if (!r->mem.base) /* it could not be mapped */
			return -ENOMEM;
		if (c->lane.pieces && r->user)
			c->lane.mode = mode_of(p);
		rc = dr_nn_lane_post(
			&c->lane, &r->mem, (uint8_t *)r->mem.base + x->off, x->len, now_ns);
		if (rc == 0)
			c->head++;
	}
	return rc == -EAGAIN ? 0 : rc;
}

/* True: something has moved. */
static bool drive(struct port *p, uint32_t i, int64_t now_ns)
{
	struct comm *c = &p->comm[i];
	struct iso_message m = { .op = ISO_DONE, .comm = i };
	unsigned n = 0, before = c->head;
	int rc = post_waiting(p, c, now_ns);

	while (rc == 0 && n < TEST_MAX && !iso_ring_full(&p->rings->events)) {
		size_t size = 0;

		rc = dr_nn_lane_test(&c->lane, &size);
		if (rc <= 0)
			break;
		m.len = size;
		tell(p, &m);
		n++;
		rc = post_waiting(p, c, now_ns);
	}
	if (rc < 0)
		break_comm(p, i, rc);
	if (c->state == UP && (nn_lane_used(&c->lane) > 0 || c->head != c->tail))
		p->waiting = true;
	return n > 0 || c->head != before || rc < 0;
}

/* ---- the thread of a port ---- */

static void obey(struct port *p, const struct iso_message *m)
{
	switch ((enum iso_op)m->op) {
	case ISO_LISTEN:
		do_listen(p, m);
		break;
	case ISO_ACCEPT:
		do_accept(p, m);
		break;
	case ISO_CONNECT:
		do_connect(p, m);
		break;
	case ISO_MAP:
		do_map(p, m);
		break;
	case ISO_MAP_GPU:
		do_map_gpu(p, m);
		break;
	case ISO_UNMAP:
		do_unmap(p, m);
		break;
	case ISO_SEND:
	case ISO_RECEIVE:
		do_post(p, m);
		break;
	case ISO_REGISTER:
		do_register(p, m);
		break;
	case ISO_DEREGISTER:
		do_deregister(p, m);
		break;
	case ISO_CLOSE:
		do_close(p, m);
		break;
	case ISO_CLOSE_LISTEN:
		do_close_listen(p, m);
		break;
	default:
		dr_assert(!"a command");
	}
}

static bool turn(struct port *p, int64_t now_ns)
{
	const struct iso_message *m;
	bool moved = false;

	p->waiting = false;
	if (p->gpu.ops)
		(void)p->gpu.ops->enter(p->gpu.arg, NULL);
	for (unsigned n = 0; n < ISO_RING && (m = iso_ring_next(&p->rings->commands)); n++) {
		obey(p, m);
		iso_ring_pop(&p->rings->commands);
		moved = true;
	}
	for (uint32_t i = 0; i < p->top; i++) {
		struct comm *c = &p->comm[i];

		if (c->state == UP)
			moved |= drive(p, i, now_ns);
		else if (c->state == DIALLING)
			p->waiting |= !dial(p, i);
		else if (c->state == LISTENER && c->wanted)
			p->waiting |= !accept_one(p, c);
	}
	if (moved)
		tell_stats(p);
	return moved;
}

/* Until there is a command, or it is time to look at the plugin again. False: the program has closed the port. */
static bool sleep_a_while(struct port *p, int64_t idle_ns)
{
	struct pollfd pfd[2] = { { p->fd[ISO_WAKE_PROCESS], POLLIN, 0 },
		{ p->fd[ISO_SOCKET], POLLRDHUP, 0 } };
	int64_t ns = DR_MAX(DR_MIN(idle_ns / 8, SLEEP_MAX_NS), SLEEP_MIN_NS);
	struct timespec ts = { .tv_nsec = ns };
	uint64_t n;

	if (!iso_ring_sleep(&p->rings->commands))
		return true;
	(void)ppoll(pfd, 2, p->waiting ? &ts : NULL, NULL);
	iso_ring_awake(&p->rings->commands);
	if (pfd[0].revents)
		(void)!read(p->fd[ISO_WAKE_PROCESS], &n, sizeof(n));
	return !(pfd[1].revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void close_all(struct port *p)
{
	for (uint32_t i = 0; i < p->top; i++) {
		struct comm *c = &p->comm[i];

		(void)dr_nn_lane_close(&c->lane);
		if (c->listen)
			(void)NN_CALL(self.n->name, "closeListen", self.n->close_listen(c->listen));
		dr_free(c->device);
	}
	unmap_condemned(p);
	for (unsigned i = 0; i < ISO_REGIONS; i++)
		if (p->region[i].gpu)
			unmap_gpu(p, &p->region[i]);
		else
			unmap(&p->region[i]);
	if (p->gpu.ops)
		self.gpu->close(&p->gpu);
	for (unsigned i = 0; i < ISO_FDS; i++)
		close(p->fd[i]);
	(void)munmap(p->rings, sizeof(*p->rings));
	dr_free(p->comm);
	dr_free(p->region);
}

static void *serve(void *arg)
{
	struct port *p = arg;
	int64_t moved_ns = 0;

	(void)prctl(PR_SET_TIMERSLACK, 1UL);
	(void)pthread_mutex_lock(&self.lock);
	while (!self.up)
		(void)pthread_cond_wait(&self.changed, &self.lock);
	(void)pthread_mutex_unlock(&self.lock);
	open_gpu(p);
	for (bool open = true; open;) {
		int64_t now = dr_now_ns();

		if (turn(p, now))
			moved_ns = now;
		else if (now - moved_ns >= SPIN_NS)
			open = sleep_a_while(p, now - moved_ns);
	}
	close_all(p);
	return NULL;
}

static bool open_port(struct port *p)
{
	p->rings = mmap(
		NULL, sizeof(*p->rings), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd[ISO_RINGS], 0);
	p->comm = dr_calloc(ISO_COMMS, sizeof(*p->comm));
	p->region = dr_calloc(ISO_REGIONS, sizeof(*p->region));
	return p->rings != MAP_FAILED && p->comm && p->region &&
	       pthread_create(&p->thread, NULL, serve, p) == 0;
}

/* ---- ctl ---- */

/* The program has ended, or wants this process to end. */
static _Noreturn void end(void)
{
	(void)alarm(LAST_S);
	for (struct port *p = self.ports; p; p = p->next)
		(void)pthread_join(p->thread, NULL);
	if (self.up)
		dr_nccl_host_put(self.host);
	_exit(0); /* lint-ok: a process of its own; the program's handlers are not its */
}

static void *take_ports(void *arg)
{
	int ctl = *(const int *)arg, fds[ISO_FDS];
	struct iso_attach what;

	while (dr_packet_receive(ctl, &what, sizeof(what), fds, ISO_FDS, 0) == sizeof(what)) {
		struct port *p = dr_calloc(1, sizeof(*p));

		if (!p)
			break;
		memcpy(p->fd, fds, sizeof(p->fd));
		p->gpu_ordinal = what.gpu;
		if (!open_port(p))
			break;
		p->next = self.ports;
		self.ports = p;
	}
	end();
}

static int become(const struct iso_config *config, struct dr_err *e)
{
	struct dr_user u;
	char number[16];
	int rc;

	if (config->uid == getuid())
		return 0;
	snprintf(number, sizeof(number), "%u", config->uid);
	rc = dr_user_find(number, &u, e);
	rc = rc ? rc : dr_privileges_become(&u, config->caps, e);
	/* Lost with the other user. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return rc;
}

static int load(const struct iso_config *config, struct iso_hello *h, struct dr_err *e)
{
	int rc = become(config, e);

	rc = rc ? rc : dr_nccl_host_get(config->file, config->version, &self.host, e);
	if (rc)
		return rc;
	self.n = dr_nccl_host_plugin(self.host);
	rc = dr_nccl_host_device(self.host, config->ifname, &self.dev, e);
	self.unpack = (enum nn_unpack_mode)config->unpack;
	h->dev = self.dev;
	h->version = self.n->version;
	h->pid = getpid();
	snprintf(h->name, sizeof(h->name), "%s", self.n->name);
	return rc;
}

_Noreturn void dr_iso_child(
	int ctl, const struct iso_config *config, const struct dr_gpu_process_ops *gpu)
{
	struct iso_hello h = { .rc = 0 };
	struct dr_err e = { .text = "" };
	pthread_t thread;

	self.gpu = gpu;
	(void)setpgid(0, 0);
	(void)prctl(PR_SET_NAME, "dualrail-plugin");
	(void)signal(SIGALRM, SIG_DFL);
	dr_nn_guard_alone(ctl);
	if (pthread_create(&thread, NULL, take_ports, &ctl))
		_exit(STATUS_START); /* lint-ok: see end() */
	h.rc = load(config, &h, &e);
	snprintf(h.text, sizeof(h.text), "%s", e.text);
	if (dr_packet_send(ctl, &h, sizeof(h), NULL, 0) || h.rc)
		_exit(STATUS_START); /* lint-ok: see end() */
	(void)pthread_mutex_lock(&self.lock);
	self.up = true;
	(void)pthread_cond_broadcast(&self.changed);
	(void)pthread_mutex_unlock(&self.lock);
	(void)pthread_join(thread, NULL);
	_exit(0); /* lint-ok: see end() */
}
