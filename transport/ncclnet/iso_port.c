/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail's connection to the plugin's process, in the shape of a plugin: the functions of `n` put commands into a ring and
 * find answers in the other one. Invariants:
 *  1. A request is complete when its DONE or FAILED has come; those of a comm complete in the order of posting.
 *  2. Memory that the process cannot map is copied: to a shared copy when it is sent, from there when it has come.
 *  3. A comm with the user's memory outstanding is closed when the process says so, or has ended; a process whose plugin fails
 *     to close it is ended. Nothing waits for that: the path looks for it (dr_nn_port_is_closing).
 *  4. What came before the process ended is given out; then everything fails.
 *  5. Numbers that the process writes are checked.
 */
#include "transport/ncclnet/iso_port.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long the rail's thread may wait for room in the ring. */
static const int64_t ROOM_NS = 100 * DR_NS_PER_MS;
/* A process that has closed its socket is given so long until its end is known. */
static const int64_t REAP_NS = 500 * DR_NS_PER_MS;
/* If the process ends again within this time, that is logged as information, not as a warning. */
static const int64_t WARN_NS = 10 * DR_NS_PER_S;
/* Between two attempts to start it again. */
static const int64_t AGAIN_NS = 5 * DR_NS_PER_MS;
/* The process opens the GPU before the first map. */
static const int64_t MAP_NS = 10 * DR_NS_PER_S;

/* ---- rings ---- */

static void wake(const struct nn_port *p)
{
	const uint64_t one = 1;

	(void)!write(p->wake, &one, sizeof(one));
}

void dr_iso_push(struct nn_port *p, const struct iso_message *m)
{
	if (iso_ring_push(&p->rings->commands, m))
		wake(p);
}

bool dr_iso_push_surely(struct nn_port *p, const struct iso_message *m)
{
	int64_t until = dr_now_ns() + ROOM_NS;

	while (!p->dead && !iso_has_room(p) && dr_now_ns() < until)
		(void)poll(NULL, 0, 1);
	if (p->dead)
		return false;
	if (!iso_has_room(p)) {
		dr_nn_port_kill(p);
		return false;
	}
	dr_iso_push(p, m);
	return true;
}

/* A process that takes no commands takes no descriptors either, and the socket is full before the ring. */
bool dr_iso_push_with(struct nn_port *p, const struct iso_message *m, int fd)
{
	int64_t until = dr_now_ns() + ROOM_NS;
	const char byte = 0;
	int rc;

	while ((rc = dr_packet_send(p->sock, &byte, sizeof(byte), &fd, 1)) == -EAGAIN &&
		dr_now_ns() < until)
		(void)poll(NULL, 0, 1);
	if (rc == -EAGAIN)
		dr_nn_port_kill(p);
	return rc == 0 && dr_iso_push_surely(p, m);
}

/* ---- comms ---- */

struct iso_comm *dr_iso_new_comm(struct nn_port *p)
{
	for (uint32_t i = 0; i < ISO_COMMS; i++) {
		if (p->comm[i])
			continue;
		p->comm[i] = dr_calloc(1, sizeof(struct iso_comm));
		if (p->comm[i]) {
			p->comm[i]->port = p;
			p->comm[i]->id = i;
			p->comm[i]->start = p->start;
		}
		return p->comm[i];
	}
	return NULL;
}

void dr_iso_free_comm(struct iso_comm *c)
{
	c->port->n_holding -= c->holds;
	c->port->comm[c->id] = NULL;
	dr_free(c);
}

/* The oldest request of c. */
static void complete(struct iso_comm *c, uint64_t size)
{
	struct iso_request_state *q = &c->request[c->done % ISO_REQUESTS];
	uint8_t *copy;

	if (c->done == c->posted || size > q->len) {
		c->rc = c->rc ? c->rc : NCCL_INTERNAL_ERROR;
		return;
	}
	c->done++;
	q->size = size;
	if (!q->reg)
		return;
	copy = iso_copy_of(c->port, q->reg);
	if (!copy)
		c->users--;
	else if (!c->closing)
		memcpy(q->data, copy + q->off, size);
}

static void apply(struct nn_port *p, const struct iso_message *m)
{
	struct iso_comm *c = m->comm < ISO_COMMS ? p->comm[m->comm] : NULL;

	if (m->op == ISO_TEXT || m->op == ISO_MAPPED || m->op == ISO_UNMAPPED) {
		dr_iso_gpu_answered(p, m);
		return;
	}
	if (!c || c->start != p->start)
		return;
	p->fresh = true;
	switch ((enum iso_op)m->op) {
	case ISO_LISTENING:
		memcpy(c->handle, m->handle, sizeof(c->handle));
		/* fall through */
	case ISO_ACCEPTED:
	case ISO_CONNECTED:
		c->ready = true;
		c->rc = c->rc ? c->rc : (enum nccl_result)m->rc;
		break;
	case ISO_DONE:
		complete(c, m->len);
		break;
	case ISO_FAILED:
		c->rc = c->rc ? c->rc : (enum nccl_result)m->rc;
		break;
	case ISO_CLOSED:
		if (c->closing && c->holds && (m->rc || p->keeps)) {
			p->keeps = true;
			dr_iso_end(p, "its plugin could not close a comm");
		} else if (c->closing) {
			dr_iso_free_comm(c);
		}
		break;
	default:
		break;
	}
}

void dr_iso_take_events(struct nn_port *p)
{
	const struct iso_message *next;

	if (!p->rings)
		return;
	for (unsigned n = 0; n < ISO_RING && (next = iso_ring_next(&p->rings->events)); n++) {
		struct iso_message m = *next; /* the process may write it again */

		iso_ring_pop(&p->rings->events);
		apply(p, &m);
	}
}

struct nn_patience dr_nn_port_patience(const struct nn_port *p, int64_t now_ns)
{
	return (struct nn_patience){ .next_ns = now_ns + DR_ISO_CLOSE_MS * DR_NS_PER_MS,
		.last_ns = now_ns + DR_ISO_CLOSE_ALL_MS * DR_NS_PER_MS,
		.done = p->rings ? iso_ring_done(&p->rings->commands) : 0 };
}

bool dr_nn_port_may_wait(const struct nn_port *p, struct nn_patience *x, int64_t now_ns)
{
	unsigned done = p->rings ? iso_ring_done(&p->rings->commands) : x->done;

	if (done != x->done) {
		x->done = done;
		x->next_ns = now_ns + DR_ISO_CLOSE_MS * DR_NS_PER_MS;
	}
	return now_ns < DR_MIN(x->next_ns, x->last_ns);
}

void dr_iso_await(struct iso_comm *c, int64_t ns)
{
	int64_t until = dr_now_ns() + ns;

	dr_iso_take_events(c->port);
	while (!c->ready && c->rc == NCCL_SUCCESS && !iso_is_dead(c) && dr_now_ns() < until) {
		(void)poll(NULL, 0, 0);
		dr_iso_look_for_end(c->port, dr_now_ns());
		dr_iso_take_events(c->port);
	}
}

/* ---- the process ---- */

/* GPU memory stays: it is the rail's. */
static void drop_memory(struct nn_port *p)
{
	for (uint32_t i = 0; i < ISO_REGIONS; i++) {
		struct iso_region g = p->region[i];

		if (g.gpu)
			continue;
		p->region[i] = (struct iso_region){ .used = false };
		if (g.used && g.copy)
			dr_shared_free(g.base);
	}
}

static void close_rings(struct nn_port *p)
{
	if (p->poller) {
		dr_poller_del(p->poller, &p->woken);
		dr_poller_del(p->poller, &p->ended);
	}
	if (p->rings)
		(void)munmap(p->rings, sizeof(*p->rings));
	p->rings = NULL;
	for (int *fd[] = { &p->sock, &p->wake, &p->rings_fd, &p->woken.fd, &p->ended.fd, NULL },
		 **at = fd;
		*at; at++) {
		if (**at >= 0 && *at != &p->ended.fd) /* a copy of sock */
			close(**at);
		**at = -1;
	}
}

static int open_rings(struct nn_port *p)
{
	p->rings_fd = dr_shared_memfd("dualrail-rings", sizeof(*p->rings));
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->woken.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->rings_fd < 0 || p->wake < 0 || p->woken.fd < 0)
		return p->rings_fd < 0 ? p->rings_fd : -errno;
	p->rings =
		mmap(NULL, sizeof(*p->rings), PROT_READ | PROT_WRITE, MAP_SHARED, p->rings_fd, 0);
	if (p->rings == MAP_FAILED) {
		p->rings = NULL;
		return -errno;
	}
	return 0;
}

static int watch_rings(struct nn_port *p)
{
	int rc;

	if (!p->poller)
		return 0;
	p->ended.fd = p->sock;
	rc = dr_poller_add(p->poller, &p->woken, EPOLLIN);
	return rc ? rc : dr_poller_add(p->poller, &p->ended, EPOLLRDHUP);
}

/* -EAGAIN: the process has ended a short time ago, or the link is down. */
static int attach(struct nn_port *p, int64_t now_ns)
{
	const struct iso_attach what = { .gpu = p->gpu.ops ? (int)p->gpu.ordinal : -1 };
	int pair[2], rc = open_rings(p);
	uint64_t start = 0;

	if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		rc = -errno;
	if (rc == 0) {
		const int fds[ISO_FDS] = { [ISO_SOCKET] = pair[1],
			[ISO_RINGS] = p->rings_fd,
			[ISO_WAKE_PROCESS] = p->wake,
			[ISO_WAKE_PROGRAM] = p->woken.fd };

		p->sock = pair[0];
		(void)fcntl(p->sock, F_SETFL, O_NONBLOCK); /* the process's end waits */
		rc = dr_nn_proc_attach(p->proc, &what, fds, now_ns, &start);
		close(pair[1]);
	}
	rc = rc ? rc : watch_rings(p);
	if (rc) {
		close_rings(p);
		return rc;
	}
	p->start = start;
	p->dead = p->killed = p->keeps = false;
	p->eof_ns = 0;
	p->counted = (struct dr_unpack_stats){ .copies = 0 };
	dr_iso_gpu_map_again(p);
	return 0;
}

/* The socket is closed by the end of the process alone. */
static bool has_closed(const struct nn_port *p)
{
	struct pollfd pfd = { .fd = p->sock, .events = POLLRDHUP };

	return p->sock < 0 || (poll(&pfd, 1, 0) > 0 && pfd.revents);
}

void dr_iso_look_for_end(struct nn_port *p, int64_t now_ns)
{
	char how[ISO_TEXT_MAX] = "";
	bool fenced;

	if (p->dead || !has_closed(p))
		return;
	p->eof_ns = p->eof_ns ? p->eof_ns : now_ns;
	if (dr_nn_proc_has_ended(p->proc, p->start, how, sizeof(how)))
		snprintf(p->why, sizeof(p->why), "the process of plugin %.40s has ended: %.180s",
			p->n.name, how);
	else if (now_ns - p->eof_ns < REAP_NS)
		return;
	else {
		dr_nn_proc_kill(p->proc, p->start, "it had closed its connection");
		snprintf(p->why, sizeof(p->why),
			"the process of plugin %.40s has closed its connection", p->n.name);
	}
	dr_iso_take_events(p);
	p->dead = true;
	fenced = strcmp(how, DR_ISO_FENCED) == 0;
	if (fenced || now_ns < p->warn_ns)
		dr_info("nccl", "%s", p->why);
	else
		dr_warn("nccl", "%s; it is started again; check the file with `dualrail plugin`",
			p->why);
	if (!fenced)
		p->warn_ns = now_ns + WARN_NS;
	if (p->poller)
		dr_poller_del(p->poller, &p->ended);
}

void dr_iso_keep_up(struct nn_port *p, int64_t now_ns)
{
	dr_iso_look_for_end(p, now_ns);
	if (!p->dead || now_ns < p->again_ns || !dr_nn_port_is_gone(p))
		return;
	p->again_ns = now_ns + AGAIN_NS;
	/* Comms of before keep their numbers until they are closed; nobody has those that were closing. */
	for (uint32_t i = 0; i < ISO_COMMS; i++)
		if (p->comm[i] && p->comm[i]->closing)
			dr_iso_free_comm(p->comm[i]);
	if (p->stock)
		dr_iso_free_comm(p->stock);
	p->stock = NULL;
	close_rings(p);
	drop_memory(p);
	p->restarted |= attach(p, now_ns) == 0;
}

bool dr_nn_port_progress(struct nn_port *p, int64_t now_ns)
{
	bool restarted;

	dr_iso_gpu_count(p);
	dr_iso_keep_up(p, now_ns);
	restarted = p->restarted;
	p->restarted = false;
	return restarted;
}

const char *dr_nn_port_death(const struct nn_port *p)
{
	return p->dead ? p->why : NULL;
}

const char *dr_nn_port_last_death(const struct nn_port *p)
{
	return p->why;
}

bool dr_nn_port_is_old(const void *comm)
{
	const struct iso_comm *c = comm;

	return c && c->start != c->port->start;
}

void dr_iso_end(struct nn_port *p, const char *why)
{
	if (p->dead || p->killed)
		return;
	p->killed = true;
	dr_nn_proc_kill(p->proc, p->start, why);
}

void dr_nn_port_kill(struct nn_port *p)
{
	dr_iso_end(p, DR_ISO_FENCED);
}

bool dr_nn_port_is_gone(struct nn_port *p)
{
	char how[ISO_TEXT_MAX];

	if (!dr_nn_proc_has_ended(p->proc, p->start, how, sizeof(how)))
		return false;
	dr_iso_look_for_end(p, dr_now_ns());
	return true;
}

/* ---- sleeping ---- */

bool dr_nn_port_sleep(struct nn_port *p)
{
	dr_iso_take_events(p);
	if (p->fresh) {
		p->fresh = false;
		return false;
	}
	return !p->rings || iso_ring_sleep(&p->rings->events);
}

static void woken_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct nn_port *p = dr_container_of(po, struct nn_port, woken);
	uint64_t n;

	(void)revents;
	(void)now_ns;
	(void)!read(po->fd, &n, sizeof(n));
	iso_ring_awake(&p->rings->events);
}

/* The rail looks at the port in every wait. */
static void ended_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	(void)revents;
	dr_iso_look_for_end(dr_container_of(po, struct nn_port, ended), now_ns);
}

/* ---- life ---- */

int dr_nn_port_open(const struct iso_config *config, struct dr_poller *poller,
	const struct dr_rail_gpu *gpu, struct nn_port **out, struct dr_err *e)
{
	struct nn_port *p = dr_calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return dr_err_set(e, -ENOMEM, "out of memory");
	p->sock = p->wake = p->rings_fd = p->woken.fd = p->ended.fd = -1;
	p->poller = poller;
	p->map_ns = MAP_NS;
	p->woken.ready = woken_ready;
	p->ended.ready = ended_ready;
	rc = dr_random_bytes(&p->magic, sizeof(p->magic));
	rc = rc ? dr_err_set(e, rc, "no random bytes from the kernel")
		: dr_nn_proc_get(config, &p->proc, e);
	if (rc) {
		dr_free(p);
		return rc;
	}
	dr_iso_fill_plugin(p);
	if (dr_nn_port_device(p)->cuda)
		p->gpu = *gpu;
	rc = attach(p, dr_now_ns());
	if (rc) {
		dr_nn_proc_put(p->proc);
		dr_free(p);
		return dr_err_set(e, rc, "--isolate: no connection to the plugin's process: %s",
			dr_errno_name(rc));
	}
	*out = p;
	return 0;
}

void dr_nn_port_close(struct nn_port *p)
{
	close_rings(p);
	for (uint32_t i = 0; i < ISO_COMMS; i++)
		dr_free(p->comm[i]);
	for (uint32_t i = 0; i < ISO_REGIONS; i++)
		dr_free(p->reg[i]);
	drop_memory(p);
	for (uint32_t i = 0; i < ISO_REGIONS; i++)
		dr_free(p->region[i].gpu);
	dr_nn_proc_put(p->proc);
	dr_free(p);
}

const struct dr_nccl *dr_nn_port_plugin(const struct nn_port *p)
{
	return &p->n;
}

const struct dr_nccl_device *dr_nn_port_device(const struct nn_port *p)
{
	return &dr_nn_proc_hello(p->proc)->dev;
}
