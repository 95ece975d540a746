/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/checks/plugin_priv.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "orchestrator/engine/integrity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/*
 * One thread drives both ends, so a call that waits for the other end never returns; accept has a
 * thread of its own, as NCCL's service thread.
 *
 * 1. Requests are posted and tested in order, and only the oldest one of each end is tested.
 * 2. Each message has a content of its own (key_of). What a receive got is checked at the moment when test
 *    says done, before another call could bring the data.
 * 3. A request that is missing is told from one that is lost: with none outstanding the plugin has run out of
 *    requests, else the oldest one never ends.
 */
enum { SPIN = 64, SETTLE_TURNS = 64, POISON = 0x77, EARLY_MS = 20, NO_SIZE = INT32_MIN };

/* ---- waiting ---- */

void pause_start(const struct probe *p, struct pause *w)
{
	w->end_ns = dr_now_ns() + p->opt->call_limit_ns;
	w->turns = 0;
}

bool pause_turn(struct pause *w)
{
	if (++w->turns > SPIN)
		(void)poll(NULL, 0, 1); /* the plugin's threads need the CPU */
	return w->turns % 16 || dr_now_ns() < w->end_ns;
}

/* ---- memory ---- */

bool region_open(struct probe *p, void *comm, size_t len, struct region *r)
{
	*r = (struct region){ .b = { .data = dr_pages_alloc(len), .size = len }, .comm = comm };
	if (!r->b.data) {
		dr_err_set(&p->sh->err, -ENOMEM, "no memory for messages");
		p->dead = true;
		return false;
	}
	return CALL(p, CALL_REG, dr_nccl_reg(&p->n, comm, &r->b, NCCL_PTR_HOST));
}

bool region_dereg(struct probe *p, struct region *r)
{
	return CALL(p, CALL_DEREG, p->n.dereg_mr(r->comm, r->b.mhandle));
}

void region_free(struct region *r)
{
	dr_pages_free(r->b.data, r->b.size);
}

/* ---- comms ---- */

/* What a call left in *comm. NULL is for the caller to judge. */
static bool was_written(struct probe *p, enum plugin_call c, const void *pointer, const char *what)
{
	if (pointer != DR_NCCL_UNSET)
		return true;
	return plugin_broken(p, RULE_UNSET, "%s did not write %s", plugin_call_name(c), what);
}

static bool dial(struct probe *p, unsigned char *handle, void **comm)
{
	return CALL(p, CALL_CONNECT, dr_nccl_connect(&p->n, p->dev, handle, comm)) &&
	       was_written(p, CALL_CONNECT, *comm, "*sendComm");
}

static bool admit(struct probe *p, void *listener, void **comm)
{
	/* Devices that write one are not checked. */
	struct nccl_net_device_handle room = { 0 }, *device = &room;

	return CALL(p, CALL_ACCEPT, dr_nccl_accept(&p->n, listener, comm, &device)) &&
	       was_written(p, CALL_ACCEPT, *comm, "*recvComm");
}

static bool handle_kept(struct probe *p, const unsigned char *handle, enum plugin_call c)
{
	for (int i = 0; i < HANDLE_GUARD; i++)
		if (handle[NCCL_NET_HANDLE_BYTES + i] != POISON)
			return plugin_broken(p, RULE_HANDLE,
				"%s wrote byte %d of the handle, which has %d", plugin_call_name(c),
				NCCL_NET_HANDLE_BYTES + i, NCCL_NET_HANDLE_BYTES);
	return true;
}

/* accept, in its thread. */
struct admission {
	struct probe p; /* of this thread */
	void *listener, *comm;
	atomic_bool returned, over, enough; /* returned: without a comm */
};

static void *admit_all(void *arg)
{
	struct admission *a = arg;

	a->p.delay_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	while (!atomic_load(&a->enough) && admit(&a->p, a->listener, &a->comm) && !a->comm) {
		atomic_store(&a->returned, true);
		(void)poll(NULL, 0, 1);
	}
	if (a->p.delay_fd >= 0)
		close(a->p.delay_fd);
	atomic_store(&a->over, true);
	return NULL;
}

static bool no_comm(struct probe *p, const char *who)
{
	return plugin_broken(p, RULE_CONNECT, "%s gave no comm within %lld ms", who,
		(long long)(p->opt->call_limit_ns / DR_NS_PER_MS));
}

/* Nobody has called connect: accept gives no comm, or waits. */
static bool gives_no_comm_yet(struct probe *p, struct admission *a)
{
	for (int ms = 0; ms < EARLY_MS && !atomic_load(&a->returned) && !atomic_load(&a->over);
		ms++)
		(void)poll(NULL, 0, 1);
	if (atomic_load(&a->over) && a->comm)
		plugin_found(p->sh, RULE_CONNECT, "accept gave a comm before connect was called");
	if (atomic_load(&a->over))
		p->dead = true;
	else if (!atomic_load(&a->returned))
		plugin_found(p->sh, RULE_WAITS,
			"accept waits until the peer connects; NCCL calls it from its service thread");
	return !p->dead;
}

/* Until both comms are there. When it fails, the thread of accept may go on: the case is over. */
static bool meet(struct probe *p, struct admission *a, unsigned char *handle, struct pair *c)
{
	struct pause w;

	if (!gives_no_comm_yet(p, a))
		return false;
	pause_start(p, &w);
	while (!c->send) {
		if (!dial(p, handle, &c->send))
			return false;
		if (!c->send && !pause_turn(&w))
			return no_comm(p, "connect");
	}
	while (!atomic_load(&a->over))
		if (!pause_turn(&w))
			return no_comm(p, "accept");
	c->recv = a->comm;
	p->dead = a->p.dead;
	return !p->dead && handle_kept(p, handle, CALL_CONNECT);
}

static bool meet_in_threads(struct probe *p, void *listener, unsigned char *handle, struct pair *c)
{
	/* A thread that accept does not return to keeps it until the process ends. */
	struct admission *a = dr_calloc(1, sizeof(*a));
	pthread_t thread;

	if (a) {
		*a = (struct admission){ .p = *p, .listener = listener };
		a->p.thread = 1;
	}
	if (!a || dr_thread_start(&thread, "accept", admit_all, a)) {
		dr_free(a);
		dr_err_set(&p->sh->err, -EAGAIN, "no thread for accept");
		p->dead = true;
		return false;
	}
	bool met = meet(p, a, handle, c);
	atomic_store(&a->enough, true);
	if (!atomic_load(&a->over)) {
		pthread_detach(thread);
		return false;
	}
	pthread_join(thread, NULL);
	dr_free(a);
	return met;
}

bool pair_open(struct probe *p, struct pair *c)
{
	unsigned char handle[NCCL_NET_HANDLE_BYTES + HANDLE_GUARD] = { 0 };
	void *listener;

	*c = (struct pair){ .send = NULL };
	memset(handle + NCCL_NET_HANDLE_BYTES, POISON, HANDLE_GUARD);
	if (!CALL(p, CALL_LISTEN, dr_nccl_listen(&p->n, p->dev, handle, &listener)) ||
		!was_written(p, CALL_LISTEN, listener, "*listenComm") ||
		!handle_kept(p, handle, CALL_LISTEN))
		return false;
	if (!listener)
		return plugin_broken(p, RULE_NULL, "listen succeeded with *listenComm NULL");
	return meet_in_threads(p, listener, handle, c) &&
	       CALL(p, CALL_CLOSE_LISTEN, p->n.close_listen(listener));
}

void pair_close(struct probe *p, struct pair *c)
{
	if (!p->dead && c->send)
		CALL(p, CALL_CLOSE_SEND, p->n.close_send(c->send));
	if (!p->dead && c->recv)
		CALL(p, CALL_CLOSE_RECV, p->n.close_recv(c->recv));
	*c = (struct pair){ .send = NULL };
}

/* ---- messages ---- */

static uint64_t key_of(const struct run *r, unsigned i)
{
	return dr_pattern_base(0, 0, 0, r->x->key + (uint64_t)r->round * WINDOW + i);
}

static unsigned char *place(const struct run *r, const struct region *g, unsigned i)
{
	return (unsigned char *)g->b.data + r->at[i];
}

static int tag_of(const struct run *r, unsigned i)
{
	unsigned k = i % r->x->group;

	return (int)(r->x->tags ? k % r->x->tags : k) + 7;
}

static struct dr_nccl_buffer buffer_of(
	const struct run *r, const struct region *g, unsigned i, size_t size)
{
	return (struct dr_nccl_buffer){
		.data = place(r, g, i), .mhandle = g->b.mhandle, .size = size, .tag = tag_of(r, i)
	};
}

/* The tags of a group are sent in the opposite order, since tags select the buffers; equal ones in that of the buffers. */
static unsigned nth_sent(const struct run *r, unsigned n)
{
	unsigned g = r->x->group, t = r->x->tags ? r->x->tags : g, k = n % g;

	for (unsigned tag = t; tag-- > 0;)
		for (unsigned i = tag; i < g; i += t)
			if (k-- == 0)
				return n / g * g + i;
	return n; /* not reached */
}

static void round_start(struct run *r)
{
	r->sends = r->sent = r->receives = r->received = 0;
	memset(r->to.b.data, POISON, r->to.b.size);
	for (unsigned i = 0; i < r->x->n; i++)
		dr_pattern_fill(place(r, &r->from, i), r->x->m[i].sent, key_of(r, i));
	pause_start(r->p, &r->pause);
}

bool run_open(struct run *r, struct probe *p, const struct pair *c, const struct exchange *x)
{
	size_t len = GUARD;

	*r = (struct run){ .p = p, .c = c, .x = x };
	dr_assert(x->n <= WINDOW && x->group >= 1 && x->n % x->group == 0);
	for (unsigned i = 0; i < x->n; i++) {
		r->at[i] = len;
		len += (x->m[i].cap / 8 + 1) * 8 + GUARD;
	}
	if (!region_open(p, c->send, len, &r->from) || !region_open(p, c->recv, len, &r->to))
		return false;
	round_start(r);
	return true;
}

bool run_close(struct run *r)
{
	bool ok = !r->p->dead && region_dereg(r->p, &r->from) && region_dereg(r->p, &r->to);

	/* What a failed plugin may still access stays. */
	if (ok) {
		region_free(&r->from);
		region_free(&r->to);
	}
	return ok;
}

/* A request that was wanted: whether there is one. */
static bool took(struct run *r, enum plugin_call c, const void *request)
{
	return was_written(r->p, c, request, "*request") && request;
}

/* As many as NCCL has outstanding. */
static unsigned requests_max(const struct probe *p)
{
	return p->n.version == 6 ? NCCL_NET_REQUESTS_MAX_V6 : NCCL_NET_REQUESTS_MAX;
}

static bool post_receive(struct run *r)
{
	unsigned g = r->x->group, first = r->receives * g;
	struct dr_nccl_buffer b[DR_NCCL_GROUP_MAX];
	void **request = &r->recv_request[r->receives];

	if (r->receives * g == r->x->n || r->receives - r->received == requests_max(r->p))
		return false;
	for (unsigned i = 0; i < g; i++)
		b[i] = buffer_of(r, &r->to, first + i, r->x->m[first + i].cap);
	if (!CALL(r->p, CALL_IRECV, dr_nccl_irecv(&r->p->n, r->c->recv, (int)g, b, request)) ||
		!took(r, CALL_IRECV, *request))
		return false;
	r->receives++;
	return true;
}

static bool post_send(struct run *r)
{
	void **request = &r->send_request[r->sends];
	unsigned i = nth_sent(r, r->sends);
	struct dr_nccl_buffer b;

	if (r->sends == r->x->n || r->sends - r->sent == requests_max(r->p))
		return false;
	b = buffer_of(r, &r->from, i, r->x->m[i].sent);
	if (!CALL(r->p, CALL_ISEND, dr_nccl_isend(&r->p->n, r->c->send, &b, request)) ||
		!took(r, CALL_ISEND, *request))
		return false;
	r->sends++;
	return true;
}

/* Returns whether the request is done. */
static bool test(struct run *r, void *request, int *sizes)
{
	enum { WILD = 0x5a5a };
	int done = WILD;

	if (!CALL(r->p, CALL_TEST, r->p->n.test(request, &done, sizes)))
		return false;
	if (done == WILD)
		return plugin_broken(r->p, RULE_UNSET, "test did not write *done");
	return done != 0;
}

static bool test_send(struct run *r)
{
	int size = -1;

	if (r->sent == r->sends || !test(r, r->send_request[r->sent], &size))
		return false;
	r->sent++;
	return true;
}

/* The message whose data is in the place of another one; n: none. */
static unsigned whose(const struct run *r, unsigned i)
{
	const unsigned char *mem = place(r, &r->to, i);
	size_t len = r->x->m[i].sent;

	for (unsigned k = 0; k < r->x->n; k++) {
		size_t both = DR_MIN(len, r->x->m[k].sent);

		if (k != i && both >= 4 && !dr_pattern_check(mem, both, key_of(r, k), NULL))
			return k;
	}
	return r->x->n;
}

/* The data were not there when test said done; whether they come later. */
static bool comes_later(struct run *r, unsigned i)
{
	struct pause w;

	pause_start(r->p, &w);
	w.end_ns = DR_MIN(w.end_ns, dr_now_ns() + 500 * DR_NS_PER_MS);
	do {
		size_t len = r->x->m[i].sent;

		if (!dr_pattern_check(place(r, &r->to, i), len, key_of(r, i), NULL))
			return true;
		(void)test_send(r);
	} while (!r->p->dead && pause_turn(&w));
	return false;
}

static void check_data(struct run *r, unsigned i)
{
	size_t len = r->x->m[i].sent;
	size_t right = len;
	unsigned other;

	if (!dr_pattern_check(place(r, &r->to, i), len, key_of(r, i), &right))
		return;
	other = whose(r, i);
	if (other < r->x->n)
		plugin_found(r->p->sh, RULE_ORDER,
			"receive %u has the data of send %u, which was tag %d's message %u", i,
			other, tag_of(r, other), other / r->x->group);
	else if (comes_later(r, i))
		plugin_found(r->p->sh, RULE_EARLY, "test said done %s of %zu bytes of a receive",
			"before the data were there:", len - right);
	else
		plugin_found(
			r->p->sh, RULE_DATA, "byte %zu of %zu of a receive is wrong", right, len);
	r->p->dead = true;
}

static void check_bounds(struct run *r, unsigned i)
{
	const unsigned char *mem = place(r, &r->to, i);
	size_t cap = r->x->m[i].cap;

	for (size_t k = 0; k < GUARD; k++)
		if (mem[-1 - (ptrdiff_t)k] != POISON || mem[cap + k] != POISON) {
			plugin_found(r->p->sh, RULE_BOUNDS,
				"bytes %s a receive of %zu were written",
				mem[cap + k] != POISON ? "behind" : "before", cap);
			return;
		}
}

static void check_size(struct run *r, unsigned i, int size)
{
	const struct message *m = &r->x->m[i];

	if (size == NO_SIZE)
		plugin_found(r->p->sh, RULE_SIZELESS,
			"test says no sizes of receives; NCCL wants them for GPU memory alone");
	else if (size < 0 || (size_t)size > m->cap)
		plugin_found(r->p->sh, RULE_SIZE,
			"test reports %d bytes for a receive of %zu, into which %zu were sent",
			size, m->cap, m->sent);
	else if ((size_t)size != m->sent)
		plugin_found(r->p->sh, RULE_SIZE, "test reports %d bytes, and %zu were sent", size,
			m->sent);
}

static bool test_receive(struct run *r)
{
	unsigned g = r->x->group, first = r->received * g;
	int sizes[DR_NCCL_GROUP_MAX];
	void *request;

	if (r->received == r->receives)
		return false;
	request = r->recv_request[r->received];
	for (size_t i = 0; i < DR_ARRAY_LEN(sizes); i++)
		sizes[i] = NO_SIZE;
	if (!test(r, request, r->x->no_sizes ? NULL : sizes))
		return false;
	r->received++;
	for (unsigned i = 0; i < g && !r->p->dead; i++) {
		check_data(r, first + i);
		check_bounds(r, first + i);
		if (!r->x->no_sizes)
			check_size(r, first + i, sizes[i]);
	}
	if (r->p->dead || !r->p->n.consumed)
		return true;
	CALL(r->p, CALL_CONSUMED, r->p->n.consumed(r->c->recv, (int)g, request));
	return true;
}

/* ---- rounds ---- */

/* Nothing has moved within the limit. */
static void name_stall(struct run *r)
{
	struct plugin_shared *sh = r->p->sh;
	long long ms = (long long)(r->p->opt->call_limit_ns / DR_NS_PER_MS);
	unsigned all = r->x->n / r->x->group;
	unsigned long long before = (unsigned long long)r->round * r->x->n;

	if (r->sends < r->x->n && r->sends == r->sent)
		plugin_found(sh, RULE_LEAK,
			"isend gave no request for %lld ms after %llu messages, and none is outstanding",
			ms, before + r->sent);
	else if (r->receives < all && r->receives == r->received)
		plugin_found(sh, RULE_LEAK,
			"irecv gave no request for %lld ms after %llu messages, and none is outstanding",
			ms, before + (unsigned long long)r->received * r->x->group);
	else if (r->received < r->receives)
		plugin_found(sh, RULE_LOST, "a receive is not done after %lld ms%s", ms,
			r->sent < r->sends ? "" : ", and its send is");
	else
		plugin_found(
			sh, RULE_LOST, "a send is not done after %lld ms, and its receive is", ms);
	r->p->dead = true;
}

/* Receives, or sends, as many as the plugin takes at once. */
static void post_first(struct run *r)
{
	bool receives = r->x->first == FIRST_RECEIVES;

	for (unsigned idle = 0; idle < SETTLE_TURNS && !r->p->dead; idle++) {
		if (receives ? post_receive(r) : post_send(r))
			idle = 0;
		else if (r->p->dead || (receives ? r->receives : r->sends) == r->x->n)
			break;
		else
			(void)poll(NULL, 0, 1);
	}
	if (!receives || r->p->dead)
		return;
	if (r->x->n == WINDOW)
		r->p->sh->in_flight = r->receives;
	if (r->receives < DR_MIN((unsigned)NEEDED, r->x->n))
		plugin_found(r->p->sh, RULE_REQUESTS,
			"irecv takes %u requests at once; NCCL needs %d", r->receives, NEEDED);
}

bool run_step(struct run *r)
{
	unsigned moved = 0;

	if (r->x->first != FIRST_BOTH && r->sends + r->receives == 0)
		post_first(r);
	static bool (*const steps[])(
		struct run *) = { post_receive, post_send, test_receive, test_send };
	for (size_t i = 0; i < DR_ARRAY_LEN(steps) && !r->p->dead; i++)
		moved += steps[i](r);
	if (r->p->dead)
		return false;
	if (r->received * r->x->group == r->x->n && r->sent == r->x->n) {
		if (++r->round == r->x->rounds)
			return false;
		round_start(r);
	} else if (moved) {
		pause_start(r->p, &r->pause);
	} else if (!pause_turn(&r->pause)) {
		name_stall(r);
	}
	return !r->p->dead;
}

bool pair_exchange(struct probe *p, const struct pair *c, const struct exchange *x)
{
	struct run r;

	if (!run_open(&r, p, c, x))
		return false;
	while (run_step(&r))
		;
	return run_close(&r);
}
