/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_RDV_TESTKIT_H
#define DR_BOOTSTRAP_RDV_TESTKIT_H

/* Harness of rdv_test.c and rdv_break_test.c, its only users: processes, comms with recording owners, and a relay that breaks connections at
 * a byte, on one poller and one thread; it waits for conditions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bootstrap/rdv_priv.h"
#include "bootstrap/clock_testkit.h"

#include <errno.h>
#include <netinet/in.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS DR_NS_PER_MS
enum {
	NODES = 3,
	COMMS = 1024,
	RELAYS = 128,
	LOG_MAX = 64 << 10,
	TAPE_MAX = 64 << 10,
	HANDLES_D = 5, /* of the dialler */
	HANDLES_A = 9,
};

/* Tests that wait for one of the long times shorten it. */
static const struct dr_rdv_timing quick = {
	.dial_ns = 20 * DR_NS_PER_S,
	.stage_ns = 20 * DR_NS_PER_S,
	.place_ns = 20 * DR_NS_PER_S,
	.silent_ns = 400 * MS,
	.retry_min_ns = MS,
	.retry_max_ns = 2 * MS,
};

/* When a test's owner cancels its comm, at the dialler or the acceptor. */
enum stage { NOWHERE, IN_OFFER, AFTER_OFFER, AFTER_REPLY, AFTER_GIVE, IN_ACCEPT, AFTER_ACCEPT };

/* One comm, seen by its two owners; its number travels in the offer. */
struct end {
	struct dr_rdv_comm *c;	      /* while the owner may use it */
	unsigned asked, dones, fails; /* asked: on_offer or on_accept */
	bool cancelled;
	int code;
	char text[256];
	uint8_t secret[DR_RDV_SECRET_BYTES];
};
struct comm {
	struct end d, a;
};
struct relay {
	struct dr_pollable side[2]; /* 0: the dialler's */
	bool used, frozen;
	bool marked; /* one of the connections that break */
};
static struct world {
	struct dr_poller *poller;
	struct dr_rdv *node[NODES];
	struct dr_rdv_listen *listen; /* of one_listen */
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct comm comm[COMMS];
	unsigned comms;
	struct dr_rdv_timing timing;
	/* owners */
	bool refuse, hold, close_on_done;
	enum stage cancel_d, cancel_a;
	/* relay */
	struct dr_pollable relay_listener;
	uint16_t relay_port, target_port;
	struct relay relay[RELAYS];
	unsigned relayed, marks; /* connections so far; how many of the first are marked */
	unsigned mark_side;	 /* whose bytes are counted */
	size_t mark_at, marked_bytes;
	bool mark_reset, mark_freeze, mark_hit;
	uint8_t tape[TAPE_MAX]; /* what passed */
	size_t tape_len;
	char log[LOG_MAX];
	size_t log_len;
} w;

/* ---- owners ------------------------------------------------------------------------------- */

static void make_handles(struct dr_handle *h, unsigned n, unsigned k, char who)
{
	for (unsigned i = 0; i < n; i++) {
		h[i].len = (uint8_t)(i * 17 % (DR_HANDLE_MAX + 1));
		memset(h[i].bytes, 0, sizeof(h[i].bytes));
		memset(h[i].bytes, who + (int)k + (int)i, h[i].len);
	}
}

static void give(struct dr_rdv_comm *c, unsigned n, unsigned k, char who)
{
	struct dr_handle h[HANDLES_A];
	make_handles(h, n, k, who);
	assert_int_equal(dr_rdv_give(c, h, n), 0);
	assert_int_equal(dr_rdv_give(c, h, n), -EINVAL);
}

static void cancel(struct end *e)
{
	dr_rdv_cancel(e->c);
	e->cancelled = true;
	e->c = NULL;
}

static unsigned number_of(const struct end *e)
{
	return (unsigned)(((const char *)e - (const char *)w.comm) / (ptrdiff_t)sizeof(w.comm[0]));
}

static bool of_dialler(const struct end *e)
{
	return e == &w.comm[number_of(e)].d;
}

static void answer(struct end *a)
{
	unsigned k = number_of(a);
	json_t *reply = json_pack("{s:i}", "re", (int)k);
	assert_int_equal(dr_rdv_accept(a->c, reply), 0);
	json_decref(reply);
	if (w.cancel_a == AFTER_REPLY)
		cancel(a);
	else
		give(a->c, HANDLES_A, k, 'A');
	if (w.cancel_a == AFTER_GIVE)
		cancel(a);
}

static void on_offer(void *listen_arg, struct dr_rdv_comm *c, const json_t *offer)
{
	unsigned k = (unsigned)json_integer_value(json_object_get(offer, "id"));
	assert_ptr_equal(listen_arg, &w);
	assert_true(k < w.comms);
	struct end *a = &w.comm[k].a;
	dr_rdv_set_arg(c, a);
	a->c = c;
	a->asked++;
	memcpy(a->secret, dr_rdv_secret(c), sizeof(a->secret));
	if (w.refuse) {
		dr_rdv_refuse(c, EPERM, "this device has no rails\n");
		a->c = NULL;
	} else if (w.cancel_a == IN_OFFER) {
		cancel(a);
	} else if (!w.hold) {
		answer(a);
	}
}

static void on_accept(void *arg, struct dr_rdv_comm *c, const json_t *reply)
{
	struct end *d = arg;
	assert_ptr_equal(d->c, c);
	assert_false(d->cancelled);
	assert_int_equal(json_integer_value(json_object_get(reply, "re")), number_of(d));
	d->asked++;
	memcpy(d->secret, dr_rdv_secret(c), sizeof(d->secret));
	if (w.cancel_d == IN_ACCEPT)
		cancel(d);
	else if (w.cancel_d != AFTER_ACCEPT)
		give(c, HANDLES_D, number_of(d), 'D');
	if (w.cancel_d == AFTER_GIVE)
		cancel(d);
}

static void on_done(void *arg, struct dr_rdv_comm *c, const struct dr_rdv_done *done)
{
	struct end *e = arg;
	struct dr_handle want[HANDLES_A];
	unsigned k = number_of(e), n = of_dialler(e) ? HANDLES_A : HANDLES_D;
	assert_ptr_equal(e->c, c);
	assert_false(e->cancelled);
	assert_int_equal(done->n, n);
	make_handles(want, n, k, of_dialler(e) ? 'A' : 'D');
	assert_memory_equal(done->handles, want, n * sizeof(want[0]));
	assert_memory_equal(dr_rdv_secret(c), e->secret, sizeof(e->secret));
	assert_true(strchr(done->peer, ':') != NULL);
	e->dones++;
	e->c = NULL;
	/* The dialler never is the first. */
	assert_true(!of_dialler(e) || w.comm[k].a.dones == 1);
	if (!of_dialler(e) && w.close_on_done) {
		dr_rdv_listen_close(w.listen);
		w.listen = NULL;
	}
	dr_rdv_cancel(c); /* does nothing */
}

static void on_failed(void *arg, struct dr_rdv_comm *c, const struct dr_err *err)
{
	struct end *e = arg;
	assert_ptr_equal(e->c, c);
	assert_false(e->cancelled);
	e->fails++;
	e->c = NULL;
	e->code = err->code;
	snprintf(e->text, sizeof(e->text), "%s", err->text);
}

static const struct dr_rdv_ops ops = {
	.on_offer = on_offer, .on_accept = on_accept, .on_done = on_done, .on_failed = on_failed
};

/* ---- world -------------------------------------------------------------------------------- */

static void log_sink(enum dr_log_level level, const char *component, const char *text, void *arg)
{
	(void)level, (void)component, (void)arg;
	size_t n = strlen(text);
	if (w.log_len + n + 2 >= sizeof(w.log))
		return;
	memcpy(w.log + w.log_len, text, n);
	w.log[w.log_len + n] = '\n';
	w.log_len += n + 1;
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.relay_listener.fd = -1;
	w.timing = quick;
	dr_log_set_sink(log_sink, NULL);
	return dr_poller_create(&w.poller, NULL);
}

static void relay_drop(struct relay *r)
{
	if (!r->used)
		return;
	for (int i = 0; i < 2; i++) {
		dr_poller_del(w.poller, &r->side[i]);
		close(r->side[i].fd);
	}
	r->used = false;
}

static void relay_stop(void)
{
	for (int i = 0; i < RELAYS; i++)
		relay_drop(&w.relay[i]);
	if (w.relay_listener.fd < 0)
		return;
	dr_poller_del(w.poller, &w.relay_listener);
	close(w.relay_listener.fd);
	w.relay_listener.fd = -1;
}

static int teardown(void **state)
{
	(void)state;
	dr_mem_fail_after(-1);
	relay_stop();
	for (int i = 0; i < NODES; i++)
		dr_rdv_destroy(w.node[i]);
	dr_poller_destroy(w.poller);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

/* One turn of the loop: tick what is due, sleep at most 20 ms. */
static void turn(void)
{
	int64_t now = dr_now_ns(), at = now + 20 * MS;
	for (int i = 0; i < NODES; i++)
		if (w.node[i])
			at = DR_MIN(at, dr_rdv_deadline(w.node[i]));
	int events = dr_poller_wait(w.poller, DR_MAX(at - now, 0));
	assert_true(events >= 0);
	advance_clock(events ? 0 : at - now);
	now = dr_now_ns();
	for (int i = 0; i < NODES; i++)
		if (w.node[i] && now >= dr_rdv_deadline(w.node[i]))
			dr_rdv_tick(w.node[i], now);
	for (unsigned k = 0; k < w.comms; k++) {
		if (w.comm[k].d.c)
			dr_xchg_validate(&w.comm[k].d.c->x);
		if (w.comm[k].a.c)
			dr_xchg_validate(&w.comm[k].a.c->x);
	}
}

#define until(cond)                                                                                \
	do {                                                                                       \
		int64_t until_end = __real_dr_now_ns() + 60 * DR_NS_PER_S;                         \
		while (!(cond)) {                                                                  \
			turn();                                                                    \
			if (__real_dr_now_ns() > until_end)                                        \
				fail_msg("never: %s; log:\n%s", #cond, w.log);                     \
		}                                                                                  \
	} while (0)

/* All that is left of exchanges is gone, at both ends. */
static bool idle(void)
{
	for (int i = 0; i < NODES; i++)
		if (w.node[i] &&
			(w.node[i]->accepts || w.node[i]->dials || w.node[i]->in || w.node[i]->out))
			return false;
	return true;
}

static struct dr_rdv_addr address(const char *text, uint8_t prefix)
{
	struct dr_rdv_addr a = { .prefix = prefix };
	assert_int_equal(dr_addr_parse(text, &a.addr), 0);
	return a;
}

static void start_node_opts(unsigned i, struct dr_rdv_opts o)
{
	struct dr_err e = { 0 };
	o.process = 0x1000 + i;
	o.version = "1.0-test";
	o.timing = w.timing;
	if (dr_rdv_create(&w.node[i], &o, &ops, w.poller, &e))
		fail_msg("node: %s", e.text);
}

static void start_nodes(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		start_node_opts(i, (struct dr_rdv_opts){ 0 });
}

static struct dr_rdv_listen *listen_at(
	unsigned node, const char *text, uint8_t prefix, uint8_t handle[DR_RDV_HANDLE_BYTES])
{
	struct dr_rdv_addr a = address(text, prefix);
	struct dr_rdv_listen_opts o = { .addrs = &a, .n = 1, .arg = &w };
	struct dr_rdv_listen *l;
	struct dr_err e = { 0 };
	if (dr_rdv_listen(w.node[node], &o, &l, handle, &e))
		fail_msg("listen: %s", e.text);
	return l;
}

/* w.listen and w.handle, at node 0 */
static void one_listen(void)
{
	start_nodes(2);
	w.listen = listen_at(0, "127.0.0.1", 8, w.handle);
}

static struct end *connect_from(unsigned node, const uint8_t *handle,
	const struct dr_rdv_addr *local, unsigned n, int64_t timeout_ns)
{
	assert_true(w.comms < COMMS);
	struct end *d = &w.comm[w.comms].d;
	json_t *offer = json_pack("{s:i}", "id", (int)w.comms);
	struct dr_rdv_connect_opts o = { .handle = handle,
		.local = local,
		.n_local = n,
		.offer = offer,
		.timeout_ns = timeout_ns,
		.arg = d };
	struct dr_err e = { 0 };
	if (dr_rdv_connect(w.node[node], &o, dr_now_ns(), &d->c, &e))
		fail_msg("connect: %s", e.text);
	json_decref(offer);
	w.comms++;
	return d;
}

static struct end *connect_to(const uint8_t *handle, int64_t timeout_ns)
{
	return connect_from(1, handle, NULL, 0, timeout_ns);
}

/* Both ends are done, once, and agree. */
static void check_done(void)
{
	for (unsigned k = 0; k < w.comms; k++) {
		const struct comm *c = &w.comm[k];
		assert_int_equal(c->d.asked, 1);
		assert_int_equal(c->a.asked, 1);
		assert_int_equal(c->d.dones, 1);
		assert_int_equal(c->a.dones, 1);
		assert_int_equal(c->d.fails + c->a.fails, 0);
		assert_memory_equal(c->d.secret, c->a.secret, sizeof(c->d.secret));
		for (unsigned j = 0; j < k; j++)
			assert_memory_not_equal(
				c->d.secret, w.comm[j].d.secret, sizeof(c->d.secret));
	}
}

/* The handle with another port. */
static void move_handle(uint8_t handle[DR_RDV_HANDLE_BYTES], uint16_t port)
{
	struct dr_rdv_handle h;
	assert_int_equal(dr_rdv_handle_decode(handle, &h, NULL), 0);
	h.port = port;
	assert_true(dr_rdv_handle_encode(&h, handle) > 0);
}

/* ---- raw peers ---------------------------------------------------------------------------- */

static int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

/* ---- relay -------------------------------------------------------------------------------- */

static void relay_hit(struct relay *r)
{
	struct linger hard = { .l_onoff = 1 };
	w.mark_hit = true;
	if (w.mark_freeze) {
		r->frozen = true;
		dr_poller_mod(w.poller, &r->side[0], 0);
		dr_poller_mod(w.poller, &r->side[1], 0);
		return;
	}
	for (int i = 0; i < 2 && w.mark_reset; i++)
		setsockopt(r->side[i].fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	relay_drop(r);
}

static void relay_bytes(struct relay *r, unsigned from)
{
	uint8_t buf[4096];
	size_t max = sizeof(buf);
	bool counted = r->marked && from == w.mark_side;
	if (counted)
		max = DR_MIN(max, w.mark_at - w.marked_bytes);
	ssize_t n = max ? recv(r->side[from].fd, buf, max, MSG_DONTWAIT) : 0;
	if (n < 0 && errno == EAGAIN)
		return;
	/* The tests send little: the other socket's buffer always has room. */
	if (n < 0 || (n > 0 && send(r->side[!from].fd, buf, (size_t)n, MSG_NOSIGNAL) != n) ||
		(n == 0 && max)) {
		relay_drop(r);
		return;
	}
	if (w.tape_len + (size_t)n <= TAPE_MAX) {
		memcpy(w.tape + w.tape_len, buf, (size_t)n);
		w.tape_len += (size_t)n;
	}
	if (!counted)
		return;
	w.marked_bytes += (size_t)n;
	if (w.marked_bytes == w.mark_at) {
		w.marked_bytes = 0;
		relay_hit(r);
	}
}

static void relay_near(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	(void)revents, (void)now;
	relay_bytes(dr_container_of(po, struct relay, side[0]), 0);
}

static void relay_far(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	(void)revents, (void)now;
	relay_bytes(dr_container_of(po, struct relay, side[1]), 1);
}

static void relay_accept(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	(void)revents, (void)now;
	struct relay *r = w.relay;
	while (r < w.relay + RELAYS && r->used)
		r++;
	assert_true(r < w.relay + RELAYS);
	memset(r, 0, sizeof(*r));
	r->side[0].fd = accept4(po->fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(r->side[0].fd >= 0);
	r->side[1].fd = raw_connect(w.target_port);
	r->side[0].ready = relay_near;
	r->side[1].ready = relay_far;
	r->used = true;
	r->marked = w.relayed++ < w.marks;
	assert_int_equal(dr_poller_add(w.poller, &r->side[0], EPOLLIN), 0);
	assert_int_equal(dr_poller_add(w.poller, &r->side[1], EPOLLIN), 0);
}

/* In front of the listening process whose handle this is; the handle leads to the relay then. port 0: the kernel's
 * choice. */
static void relay_start(uint8_t handle[DR_RDV_HANDLE_BYTES], uint16_t port)
{
	struct dr_rdv_handle h;
	struct dr_addr a = { .len = sizeof(struct sockaddr_in) };
	assert_int_equal(dr_rdv_handle_decode(handle, &h, NULL), 0);
	a.ss.ss_family = AF_INET;
	((struct sockaddr_in *)&a.ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	dr_sa_set_port(&a.ss, port);
	assert_int_equal(dr_net_listen(&a, &w.relay_listener.fd, NULL), 0);
	w.relay_listener.ready = relay_accept;
	w.relay_port = dr_sa_port(&a.ss);
	if (!w.target_port)
		w.target_port = h.port;
	assert_int_equal(dr_poller_add(w.poller, &w.relay_listener, EPOLLIN), 0);
	move_handle(handle, w.relay_port);
}

#endif
