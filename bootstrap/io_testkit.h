/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DR_BOOTSTRAP_IO_TESTKIT_H
#define DR_BOOTSTRAP_IO_TESTKIT_H

#pragma GCC diagnostic ignored "-Wunused-function" /* a user needs some of them */

/* Harness of io_test.c and io_end_test.c: a server and clients with recording callbacks, raw peers,
 * and a relay that can be cut or frozen, on one poller and one thread; it waits for conditions. */
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
#include "base/rng.h"
#include "bootstrap/control.h"
#include "bootstrap/net.h"
#include "bootstrap/clock_testkit.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS DR_NS_PER_MS
enum { HANDLES_C = 16, HANDLES_S = 8, CLIENTS = 2, RELAYS = 64, LOG_MAX = 64 << 10 };

struct srv {
	struct dr_boot_server *s;
	bool decline, mute, late_handles;
	bool no_handles;    /* the test gives them */
	unsigned refuse_at; /* with the client's handles of pair refuse_at - 1; 0: not */
	unsigned offers, handles, readies, messages, losts, resumes, closes;
	unsigned n_gpus, pairs;
	unsigned said; /* messages sent so far */
	enum dr_boot_cause lost_cause, closed_cause;
	char text[256];
};
struct cli {
	struct dr_boot_client *c;
	bool no_handles; /* the test gives them */
	unsigned accepts, handles, readies, messages, losts, resumes, closes, fails;
	unsigned said;
	enum dr_boot_cause lost_cause, closed_cause, failed_cause;
	int code;
	char text[256];
	unsigned server_gpus[DR_BOOT_GPUS_MAX];
};
struct relay {
	struct dr_pollable a, b;
	bool used, frozen;
};
static struct world {
	struct dr_poller *poller;
	struct srv srv;
	bool declines_ready;
	struct cli cli[CLIENTS];
	struct dr_pollable listener; /* the relay's listener */
	uint16_t relay_port, target_port;
	struct relay relay[RELAYS];
	char log[LOG_MAX];
	size_t log_len;
} w;

static const struct dr_boot_timing quick = {
	.stage_ns = 300 * MS,
	.ping_ns = 20 * MS,
	.silent_ns = 400 * MS,
	.resume_ns = 10000 * MS,
	.retry_min_ns = 5 * MS,
	.retry_max_ns = 20 * MS,
	.fallback_ns = 50 * MS,
};

/* ---- application callbacks ---------------------------------------------------------------- */

static void make_handles(struct dr_handle *h, unsigned n, unsigned k, char who)
{
	for (unsigned i = 0; i < n; i++) {
		h[i].len = (uint8_t)(i * 17 % (DR_HANDLE_MAX + 1));
		memset(h[i].bytes, 0, sizeof(h[i].bytes));
		memset(h[i].bytes, who + (int)k + (int)i, h[i].len);
	}
}

static void check_handles(const struct dr_handle *h, unsigned n, unsigned k, char who)
{
	struct dr_handle want[HANDLES_C + HANDLES_S];
	make_handles(want, n, k, who);
	assert_memory_equal(h, want, n * sizeof(want[0]));
}

static void give_server_handles(unsigned k)
{
	struct dr_handle h[HANDLES_S];
	make_handles(h, HANDLES_S, k, 'S');
	assert_int_equal(dr_boot_server_handles(w.srv.s, k, h, HANDLES_S), 0);
}

static void s_offer(void *arg, const json_t *params, const unsigned *gpus, unsigned n)
{
	struct srv *v = arg;
	assert_true(n > 0 && gpus[0] < DR_BOOT_GPUS_MAX);
	v->offers++;
	v->pairs = DR_MIN(n, v->n_gpus);
	if (v->mute)
		return;
	if (v->decline) {
		dr_boot_server_refuse(v->s, 2, "transport verbs is not in this build");
		return;
	}
	assert_string_equal(json_string_value(json_object_get(params, "test")), "bw");
	json_t *reply = json_pack("{s:s}", "agreed", "yes");
	assert_int_equal(dr_boot_server_accept(v->s, reply, HANDLES_C, HANDLES_S), 0);
	json_decref(reply);
	if (!v->late_handles && !v->no_handles)
		for (unsigned k = 0; k < v->pairs; k++)
			give_server_handles(k);
}

static void s_handles(void *arg, unsigned k, const struct dr_handle *h, unsigned n)
{
	struct srv *v = arg;
	assert_int_equal(n, HANDLES_C);
	check_handles(h, n, k, 'C');
	v->handles++;
	if (v->refuse_at == k + 1)
		dr_boot_server_refuse(v->s, 2, "out of memory for this GPU");
	else if (v->late_handles)
		give_server_handles(k);
}

static void s_ready(void *arg)
{
	((struct srv *)arg)->readies++;
}

static void s_message(void *arg, const json_t *msg)
{
	struct srv *v = arg;
	assert_int_equal(json_integer_value(json_object_get(msg, "i")), ++v->messages);
}

static void s_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct srv *v = arg;
	assert_true(text[0]);
	v->losts++;
	v->lost_cause = cause;
}

static void s_resumed(void *arg)
{
	((struct srv *)arg)->resumes++;
}

static void s_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct srv *v = arg;
	v->closes++;
	v->closed_cause = cause;
	snprintf(v->text, sizeof(v->text), "%s", text);
	v->messages = v->said = 0;
}

static const struct dr_boot_ops server_ops = { .on_offer = s_offer,
	.on_handles = s_handles,
	.on_ready = s_ready,
	.on_message = s_message,
	.on_lost = s_lost,
	.on_resumed = s_resumed,
	.on_closed = s_closed };

static void give_client_handles(struct cli *v, unsigned k)
{
	struct dr_handle h[HANDLES_C];
	make_handles(h, HANDLES_C, k, 'C');
	assert_int_equal(dr_boot_client_handles(v->c, k, h, HANDLES_C), 0);
}

static void c_accept(void *arg, const json_t *reply, const unsigned *gpus, unsigned pairs,
	unsigned out, unsigned in)
{
	struct cli *v = arg;
	assert_string_equal(json_string_value(json_object_get(reply, "agreed")), "yes");
	assert_int_equal(out, HANDLES_C);
	assert_int_equal(in, HANDLES_S);
	v->accepts++;
	memcpy(v->server_gpus, gpus, pairs * sizeof(*gpus));
	for (unsigned k = 0; k < pairs && !v->no_handles; k++)
		give_client_handles(v, k);
}

static void c_handles(void *arg, unsigned k, const struct dr_handle *h, unsigned n)
{
	struct cli *v = arg;
	assert_int_equal(n, HANDLES_S);
	check_handles(h, n, k, 'S');
	v->handles++;
}

static void c_ready(void *arg)
{
	((struct cli *)arg)->readies++;
	if (w.declines_ready)
		dr_boot_server_refuse(w.srv.s, 5, "the time is over");
}

static void c_message(void *arg, const json_t *msg)
{
	struct cli *v = arg;
	assert_int_equal(json_integer_value(json_object_get(msg, "i")), ++v->messages);
}

static void c_lost(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct cli *v = arg;
	assert_true(text[0]);
	v->losts++;
	v->lost_cause = cause;
}

static void c_resumed(void *arg)
{
	((struct cli *)arg)->resumes++;
}

static void c_failed(void *arg, enum dr_boot_cause cause, int code, const struct dr_err *e)
{
	struct cli *v = arg;
	v->fails++;
	v->failed_cause = cause;
	v->code = code;
	memcpy(v->text, e->text, sizeof(v->text));
}

static void c_closed(void *arg, enum dr_boot_cause cause, const char *text)
{
	struct cli *v = arg;
	v->closes++;
	v->closed_cause = cause;
	snprintf(v->text, sizeof(v->text), "%s", text);
}

static const struct dr_boot_ops client_ops = { .on_accept = c_accept,
	.on_handles = c_handles,
	.on_ready = c_ready,
	.on_message = c_message,
	.on_lost = c_lost,
	.on_resumed = c_resumed,
	.on_failed = c_failed,
	.on_closed = c_closed };

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

static unsigned log_count(const char *what)
{
	unsigned n = 0;
	for (const char *p = w.log; (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.listener.fd = -1;
	dr_log_set_sink(log_sink, NULL);
	return dr_poller_create(&w.poller, NULL);
}

static void relay_drop(struct relay *r)
{
	if (!r->used)
		return;
	dr_poller_del(w.poller, &r->a);
	dr_poller_del(w.poller, &r->b);
	close(r->a.fd);
	close(r->b.fd);
	r->used = false;
}

static void relay_close_listener(void)
{
	if (w.listener.fd < 0)
		return;
	dr_poller_del(w.poller, &w.listener);
	close(w.listener.fd);
	w.listener.fd = -1;
}

static int teardown(void **state)
{
	(void)state;
	for (int i = 0; i < CLIENTS; i++)
		dr_boot_client_destroy(w.cli[i].c);
	dr_boot_server_destroy(w.srv.s);
	for (int i = 0; i < RELAYS; i++)
		relay_drop(&w.relay[i]);
	relay_close_listener();
	dr_poller_destroy(w.poller);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

/* One turn of the loop: tick what is due, sleep at most 20 ms. */
static void turn(void)
{
	int64_t now = dr_now_ns(), at = now + 20 * MS;
	if (w.srv.s)
		at = DR_MIN(at, dr_boot_server_deadline(w.srv.s));
	for (int i = 0; i < CLIENTS; i++)
		if (w.cli[i].c)
			at = DR_MIN(at, dr_boot_client_deadline(w.cli[i].c));
	int events = dr_poller_wait(w.poller, DR_MAX(at - now, 0));
	assert_true(events >= 0);
	advance_clock(events ? 0 : at - now);
	now = dr_now_ns();
	if (w.srv.s && now >= dr_boot_server_deadline(w.srv.s))
		dr_boot_server_tick(w.srv.s, now);
	for (int i = 0; i < CLIENTS; i++)
		if (w.cli[i].c && now >= dr_boot_client_deadline(w.cli[i].c))
			dr_boot_client_tick(w.cli[i].c, now);
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

static void start_server_opts(struct dr_boot_opts o, unsigned n, unsigned first_id)
{
	unsigned gpus[DR_BOOT_GPUS_MAX];
	struct dr_err e = { 0 };
	for (unsigned i = 0; i < n; i++)
		gpus[i] = first_id + i;
	o.gpus = gpus;
	o.n_gpus = w.srv.n_gpus = n;
	o.version = "1.0-server";
	if (!o.timing.stage_ns)
		o.timing = quick;
	int rc = dr_boot_server_create(&w.srv.s, &o, &server_ops, &w.srv, w.poller, &e);
	if (rc)
		fail_msg("server: %s", e.text);
}

static void start_server(unsigned n, unsigned first_id, const struct dr_boot_key *key)
{
	start_server_opts((struct dr_boot_opts){ .key = key }, n, first_id);
}

static void start_client_opts(unsigned i, struct dr_boot_opts o, unsigned n)
{
	unsigned gpus[DR_BOOT_GPUS_MAX];
	struct dr_err e = { 0 };
	for (unsigned g = 0; g < n; g++)
		gpus[g] = g;
	o.gpus = gpus;
	o.n_gpus = n;
	o.version = "1.0-client";
	if (!o.timing.stage_ns)
		o.timing = quick;
	json_t *params = json_pack("{s:s}", "test", "bw");
	o.params = params;
	int rc = dr_boot_client_create(&w.cli[i].c, &o, &client_ops, &w.cli[i], w.poller, &e);
	json_decref(params);
	if (rc)
		fail_msg("client: %s", e.text);
}

static void start_client(
	unsigned i, const char *host, uint16_t port, unsigned n, const struct dr_boot_key *key)
{
	start_client_opts(i, (struct dr_boot_opts){ .host = host, .port = port, .key = key }, n);
}

static struct dr_control *server_control(void)
{
	return dr_boot_server_control(w.srv.s);
}

static struct dr_control *client_control(unsigned i)
{
	return dr_boot_client_control(w.cli[i].c);
}

static void say(struct dr_control *c, unsigned *said)
{
	json_t *j = json_pack("{s:i}", "i", (int)++*said);
	assert_int_equal(dr_control_send(c, j), 0);
	json_decref(j);
}

/* A message each way arrives, and nothing out of order. */
static void check_alive(void)
{
	say(server_control(), &w.srv.said);
	say(client_control(0), &w.cli[0].said);
	until(w.srv.messages == w.cli[0].said && w.cli[0].messages == w.srv.said);
}

static void ready_session(unsigned n, const struct dr_boot_key *key)
{
	start_server(n, 0, key);
	start_client(0, "127.0.0.1", dr_boot_server_port(w.srv.s, 0), n, key);
	until(w.srv.readies == 1 && w.cli[0].readies == 1);
}

/* ---- relay -------------------------------------------------------------------------------- */

static void relay_bytes(struct relay *r, struct dr_pollable *from, struct dr_pollable *to)
{
	char buf[4096];
	ssize_t n = recv(from->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	/* The tests send little: the other socket's buffer always has room. */
	if (n <= 0 || send(to->fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
		relay_drop(r);
}

static void relay_a(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct relay *r = dr_container_of(po, struct relay, a);
	(void)revents, (void)now;
	relay_bytes(r, &r->a, &r->b);
}

static void relay_b(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct relay *r = dr_container_of(po, struct relay, b);
	(void)revents, (void)now;
	relay_bytes(r, &r->b, &r->a);
}

static int raw_connect(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void relay_accept(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	(void)revents, (void)now;
	for (int i = 0; i < RELAYS; i++) {
		struct relay *r = &w.relay[i];
		if (r->used)
			continue;
		memset(r, 0, sizeof(*r));
		r->a.fd = accept4(po->fd, NULL, NULL, SOCK_CLOEXEC);
		assert_true(r->a.fd >= 0);
		r->b.fd = raw_connect(w.target_port);
		r->a.ready = relay_a;
		r->b.ready = relay_b;
		r->used = true;
		assert_int_equal(dr_poller_add(w.poller, &r->a, EPOLLIN), 0);
		assert_int_equal(dr_poller_add(w.poller, &r->b, EPOLLIN), 0);
		return;
	}
	fail_msg("all %d relays are in use", RELAYS);
}

static void relay_start(uint16_t target_port)
{
	struct dr_addr a = { .len = sizeof(struct sockaddr_in) };
	a.ss.ss_family = AF_INET;
	((struct sockaddr_in *)&a.ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(dr_net_listen(&a, &w.listener.fd, NULL), 0);
	w.listener.ready = relay_accept;
	w.relay_port = dr_sa_port(&a.ss);
	w.target_port = target_port;
	assert_int_equal(dr_poller_add(w.poller, &w.listener, EPOLLIN), 0);
}

/* What is in the relay's sockets is lost, and both ends see a reset. */
static void relay_reset_all(void)
{
	struct linger hard = { .l_onoff = 1 };
	for (int i = 0; i < RELAYS; i++) {
		if (!w.relay[i].used)
			continue;
		setsockopt(w.relay[i].a.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		setsockopt(w.relay[i].b.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
		relay_drop(&w.relay[i]);
	}
}

/* From now on nothing passes through the connections there are. */
static void relay_freeze_all(void)
{
	for (int i = 0; i < RELAYS; i++) {
		if (!w.relay[i].used)
			continue;
		w.relay[i].frozen = true;
		dr_poller_mod(w.poller, &w.relay[i].a, 0);
		dr_poller_mod(w.poller, &w.relay[i].b, 0);
	}
}

/* From now on the hosts at both ends of the connections there are have vanished: nothing is acknowledged. */
static void relay_vanish_all(void)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog prog = { .len = 1, .filter = &drop };
	relay_freeze_all();
	for (int i = 0; i < RELAYS; i++) {
		if (!w.relay[i].used)
			continue;
		int a = w.relay[i].a.fd, b = w.relay[i].b.fd;
		assert_int_equal(
			setsockopt(a, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
		assert_int_equal(
			setsockopt(b, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)), 0);
	}
}

static void relay_thaw_all(void)
{
	for (int i = 0; i < RELAYS; i++) {
		if (!w.relay[i].frozen)
			continue;
		w.relay[i].frozen = false;
		dr_poller_mod(w.poller, &w.relay[i].a, EPOLLIN);
		dr_poller_mod(w.poller, &w.relay[i].b, EPOLLIN);
	}
}

/* ---- raw peers ---------------------------------------------------------------------------- */

static void raw_send(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static bool raw_closed(int fd)
{
	char buf[512];
	ssize_t n;
	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || errno != EAGAIN;
}

/* A client's hello by hand, until its conversation is OPEN or has ended. */
static void raw_hello(int fd, struct dr_conv *c, unsigned purpose, unsigned k,
	const struct dr_conv_ids *ids, uint64_t last_seq, struct dr_conv_event *last)
{
	struct dr_conv_opts o = { .role = DR_CONV_CLIENT, .stage_ns = 20 * DR_NS_PER_S };
	o.hello.purpose = (uint8_t)purpose;
	o.hello.k = (uint16_t)k;
	o.hello.last_seq = last_seq;
	snprintf(o.hello.build, sizeof(o.hello.build), "raw");
	o.ephemeral[0] = 1;
	if (ids) {
		memcpy(o.hello.session, ids->session, sizeof(o.hello.session));
		memcpy(o.secret, ids->secret, sizeof(o.secret));
		o.bound = true;
	}
	assert_int_equal(dr_conv_init(c, &o, dr_now_ns()), 0);
	int64_t end = __real_dr_now_ns() + 20 * DR_NS_PER_S;
	while (c->state < DR_CONV_OPEN) {
		const uint8_t *out;
		size_t n = dr_conv_output(c, &out);
		uint8_t byte;
		if (n)
			raw_send(fd, out, n);
		dr_conv_sent(c, n, dr_now_ns());
		turn();
		assert_true(__real_dr_now_ns() < end);
		while (c->state < DR_CONV_OPEN && recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
			dr_conv_feed(c, &byte, 1, dr_now_ns(), last);
	}
}

/* ---- scenes ------------------------------------------------------------------------------- */

static const struct dr_boot_key key_a = { { 1 } }, key_b = { { 2 } };

/* Through the relay, so that the test can silence it. */
static void first_client(void)
{
	if (w.listener.fd < 0)
		relay_start(dr_boot_server_port(w.srv.s, 0));
	dr_boot_client_destroy(w.cli[0].c);
	memset(&w.cli[0], 0, sizeof(w.cli[0]));
	w.cli[0].no_handles = true;
	start_client(0, "127.0.0.1", w.relay_port, 1, NULL);
}

/* ... after the offer (0), ACCEPT (1), HANDLES (2), READY (3). */
static void first_client_stops(unsigned moment)
{
	unsigned offers = w.srv.offers, readies = w.srv.readies;
	w.srv.handles = 0;
	w.srv.mute = moment == 0;
	w.srv.no_handles = moment == 2;
	first_client();
	until(moment == 0 ? w.srv.offers > offers : w.cli[0].accepts == 1);
	if (moment > 1)
		give_client_handles(&w.cli[0], 0);
	until(moment < 2 || w.srv.handles == 1);
	until(moment < 3 || w.srv.readies > readies);
	relay_freeze_all();
	w.srv.mute = w.srv.no_handles = false;
}

static void second_client(void)
{
	dr_boot_client_destroy(w.cli[1].c);
	memset(&w.cli[1], 0, sizeof(w.cli[1]));
	start_client_opts(1,
		(struct dr_boot_opts){ .host = "127.0.0.1",
			.port = dr_boot_server_port(w.srv.s, 0),
			.wait_busy = true },
		1);
}

/* A port p with p .. p+5 free, below the kernel's range so that nobody gets one by chance. */
static uint16_t free_port(void)
{
	for (;;) {
		uint16_t port;
		unsigned ok = 0;
		assert_int_equal(dr_random_bytes(&port, sizeof(port)), 0);
		port = (uint16_t)(11000 + port % 20000);
		for (unsigned i = 0; i < 6; i++) {
			struct dr_addr a = { .len = 0 };
			int fd;
			dr_sa_set_port(&a.ss, (uint16_t)(port + i));
			if (dr_net_listen(&a, &fd, NULL))
				break;
			close(fd);
			ok++;
		}
		if (ok == 6)
			return port;
	}
}

static void send_first_bytes(int fd, const char *bytes, size_t len)
{
	if (len)
		raw_send(fd, bytes, len);
	else if (bytes)
		shutdown(fd, SHUT_WR);
	/* else half-open: connected and silent */
}

static void ready_through_relay(void)
{
	start_server(2, 0, &key_a);
	relay_start(dr_boot_server_port(w.srv.s, 0));
	start_client(0, "127.0.0.1", w.relay_port, 2, &key_a);
	until(w.srv.readies == 1 && w.cli[0].readies == 1);
}

#endif
