/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_testkit.h"

#include <dirent.h>
#include <sys/resource.h>

static unsigned log_count(const char *what)
{
	unsigned n = 0;
	for (const char *p = w.log; (p = strstr(p, what)) != NULL; p++)
		n++;
	return n;
}

static bool raw_closed(int fd)
{
	char buf[512];
	ssize_t n;
	while ((n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || errno != EAGAIN;
}

static unsigned dones(void)
{
	unsigned n = 0;
	for (unsigned k = 0; k < w.comms; k++)
		n += w.comm[k].d.dones == 1 && w.comm[k].a.dones == 1;
	return n;
}

/* ---- exchange ----------------------------------------------------------------------------- */

static void one_comm(void **state)
{
	static const struct {
		const char *addr;
		uint8_t prefix;
	} row[] = { { "127.0.0.1", 8 }, { "::1", 128 } };
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++) {
		setup(state);
		start_nodes(2);
		w.listen = listen_at(0, row[i].addr, row[i].prefix, w.handle);
		struct dr_rdv_addr local = address(row[i].addr, row[i].prefix);
		/* No interface is used for addresses of this host. */
		snprintf(local.device, sizeof(local.device), "nosuch0");
		w.hold = true;
		struct end *d = connect_from(1, w.handle, &local, 1, 0);
		until(w.comm[0].a.asked == 1);
		assert_int_equal(d->c->dial->attempts, 1);
		answer(&w.comm[0].a);
		until(d->dones == 1);
		check_done();
		until(idle());
		assert_string_equal(w.log, "");
		teardown(state);
	}
}

/* What passes holds neither key nor secret. */
static void secrets_stay_secret(void **state)
{
	(void)state;
	struct dr_rdv_handle h;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	relay_start(w.handle, 0);
	connect_to(w.handle, 0);
	until(idle() && dones() == 1);
	check_done();
	assert_true(w.tape_len > 200 && w.tape_len < TAPE_MAX);
	assert_null(memmem(w.tape, w.tape_len, h.key, sizeof(h.key)));
	assert_null(memmem(w.tape, w.tape_len, w.listen->key.bytes, sizeof(w.listen->key.bytes)));
	assert_null(memmem(w.tape, w.tape_len, w.comm[0].d.secret, DR_RDV_SECRET_BYTES));
	char hex[2 * DR_RDV_SECRET_BYTES + 1];
	sodium_bin2hex(hex, sizeof(hex), w.comm[0].d.secret, DR_RDV_SECRET_BYTES);
	assert_null(memmem(w.tape, w.tape_len, hex, sizeof(hex) - 1));
	static const uint8_t zero[DR_RDV_SECRET_BYTES];
	assert_memory_not_equal(w.comm[0].d.secret, zero, sizeof(zero));
}

static unsigned count_fds(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Several processes listen and connect to each other and to themselves at the same time; each handle is used several
 * times. */
static void many_at_once(void **state)
{
	(void)state;
	enum { LISTENS = 20, EACH = 5 };
	static uint8_t handle[NODES][LISTENS][DR_RDV_HANDLE_BYTES];
	start_nodes(NODES);
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned j = 0; j < LISTENS; j++)
			listen_at(i, "127.0.0.1", 8, handle[i][j]);
	for (unsigned i = 0; i < NODES; i++)
		for (unsigned j = 0; j < LISTENS; j++)
			for (unsigned n = 0; n < EACH; n++)
				connect_from((i + n) % NODES, handle[i][j], NULL, 0, 0);
	until(dones() == NODES * LISTENS * EACH);
	check_done();
	until(idle());
	assert_string_equal(w.log, "");
}

static void listens_share_sockets(void **state)
{
	(void)state;
	enum { LISTENS = 10000 };
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_handle first, last;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &first, NULL), 0);
	unsigned before = count_fds();
	for (unsigned i = 0; i < LISTENS; i++)
		listen_at(0, "127.0.0.1", 8, handle);
	assert_int_equal(count_fds(), before);
	assert_int_equal(dr_rdv_handle_decode(handle, &last, NULL), 0);
	assert_int_equal(last.port, first.port);
	assert_memory_not_equal(last.key, first.key, sizeof(last.key));
	listen_at(0, "127.77.0.9", 8, handle); /* nobody else uses it */
	assert_int_equal(count_fds(), before + 1);
	connect_to(handle, 0);
	connect_to(w.handle, 0);
	until(dones() == 2);
	check_done();
}

static void owners_answer_late(void **state)
{
	(void)state;
	w.hold = true;
	w.cancel_d = AFTER_ACCEPT; /* here: on_accept gives no handles */
	one_listen();
	struct end *d = connect_to(w.handle, 0);
	until(w.comm[0].a.asked == 1);
	int64_t end = dr_now_ns() + 3 * quick.silent_ns;
	until(dr_now_ns() > end);
	answer(&w.comm[0].a);
	until(d->asked == 1);
	end = dr_now_ns() + 3 * quick.silent_ns;
	until(dr_now_ns() > end);
	give(d->c, HANDLES_D, 0, 'D');
	until(d->dones == 1);
	check_done();
	assert_string_equal(w.log, "");
}

/* ---- an acceptor that has forgotten ------------------------------------------------------- */

/* The dialler's owner has the reply. Then the acceptor loses the exchange, as a process does that is replaced by one with
 * the same key, and its connection breaks: the repeated one is a new exchange there. */
static struct end *forget(uint8_t before[DR_RDV_SECRET_BYTES])
{
	struct end *a = &w.comm[w.comms].a, *d;
	w.cancel_d = AFTER_ACCEPT;
	one_listen();
	d = connect_to(w.handle, 0);
	until(d->asked == 1);
	memcpy(before, a->secret, sizeof(a->secret));
	assert_memory_equal(d->secret, before, sizeof(d->secret));
	dr_rdv_comm_over(a->c);
	a->c = NULL;
	return d;
}

/* With another nonce in the second ACCEPT the ends' secrets differ: no data connection of the comm would be taken. Neither
 * end may be done. */
static void another_accept_is_refused(void **state)
{
	(void)state;
	uint8_t before[DR_RDV_SECRET_BYTES];
	struct end *d = forget(before);
	give(d->c, HANDLES_D, 0, 'D');
	until(d->dones || strstr(d->c->dial->text, "ACCEPT message differs from its earlier one"));
	assert_int_equal(w.comm[0].a.asked, 2);
	assert_memory_not_equal(w.comm[0].a.secret, d->secret, sizeof(d->secret));
	assert_int_equal(d->dones + w.comm[0].a.dones, 0);
	cancel(d);
	until(w.node[1]->dials == NULL);
}

/* The repeated OFFER is the same, byte by byte, and so would be one that somebody recorded: the acceptor's part makes the
 * secret new, so that no data connection of the first exchange fits the second. */
static void secret_is_the_acceptors_too(void **state)
{
	(void)state;
	uint8_t before[DR_RDV_SECRET_BYTES];
	struct end *d = forget(before);
	until(w.comm[0].a.asked == 2);
	assert_memory_not_equal(w.comm[0].a.secret, before, sizeof(before));
	cancel(d);
	until(w.node[1]->dials == NULL);
}

/* ---- peers that do not belong here -------------------------------------------------------- */

static void wrong_keys(void **state)
{
	(void)state;
	enum { KEY_BYTE = 8, PROCESS_BYTE = 24, LISTEN_BYTE = 39 };
	static const unsigned byte[] = { KEY_BYTE, PROCESS_BYTE, LISTEN_BYTE };
	one_listen();
	for (size_t i = 0; i < DR_ARRAY_LEN(byte); i++) {
		uint8_t handle[DR_RDV_HANDLE_BYTES];
		memcpy(handle, w.handle, sizeof(handle));
		handle[byte[i]] ^= 1;
		struct end *d = connect_to(handle, 0);
		until(d->fails == 1);
		assert_int_equal(d->code, -EKEYREJECTED);
		assert_non_null(strstr(d->text, "of another process"));
		assert_non_null(strstr(d->text, "127.0.0.1:"));
		assert_int_equal(w.comm[i].a.asked, 0);
	}
	until(log_count("rejected connection from 127.0.0.1:") == 3);
	/* A wrong key is the dialler's to notice, it verifies first; a listen that does not exist has none. */
	assert_int_equal(log_count("the peer rejected the key"), 1);
	assert_int_equal(log_count("key verification failed"), 2);
	dr_rdv_listen_close(w.listen);
	struct end *d = connect_to(w.handle, 0);
	until(d->fails == 1);
	assert_int_equal(d->code, -EKEYREJECTED);
	until(idle());
}

/* Another process may have one of the addresses, for example a private one that many hosts have. */
static void wrong_process_at_one_address(void **state)
{
	(void)state;
	struct dr_rdv_handle h, other;
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	one_listen();
	start_node_opts(2, (struct dr_rdv_opts){ 0 });
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	/* The other process, reached by the same port at another address. */
	struct dr_rdv_addr a = address("127.0.0.7", 8);
	w.node[2]->port = h.port;
	struct dr_rdv_listen_opts o = { .addrs = &a, .n = 1, .arg = &w };
	struct dr_rdv_listen *l;
	assert_int_equal(dr_rdv_listen(w.node[2], &o, &l, handle, NULL), 0);
	assert_int_equal(dr_rdv_handle_decode(handle, &other, NULL), 0);
	assert_int_equal(other.port, h.port);
	h.addrs[1] = h.addrs[0];
	h.addrs[0] = other.addrs[0];
	h.n = 2;
	assert_int_equal(dr_rdv_handle_encode(&h, w.handle), 2);
	connect_to(w.handle, 0);
	until(dones() == 1);
	check_done();
	assert_int_equal(log_count("key verification failed"), 1);
}

static void strangers(void **state)
{
	(void)state;
	enum { SILENT = 100, LOUD = 20 };
	int fd[SILENT + LOUD];
	struct dr_rdv_handle h;
	w.timing.stage_ns = 2000 * MS; /* longer than a busy host takes for all connections */
	w.timing.place_ns = 20 * MS;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	for (int i = 0; i < SILENT; i++)
		fd[i] = raw_connect(h.port);
	until(w.node[0]->in != NULL);
	struct end *d = connect_to(w.handle, 0);
	for (int i = SILENT; i < SILENT + LOUD; i++) {
		fd[i] = raw_connect(h.port);
		assert_int_equal(send(fd[i], "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
		turn();
	}
	until(d->dones == 1);
	check_done();
	assert_true(
		log_count("too many pending connections of this address; the oldest is closed") >=
		1);
	/* The others are closed by time; of all of them a few lines are left. */
	for (int i = 0; i < SILENT + LOUD; i++) {
		until(raw_closed(fd[i]));
		close(fd[i]);
	}
	assert_in_range(log_count("\n"), 2, 40);
	/* Of the last lines or of the next. */
	struct end *again = connect_to(w.handle, 0);
	until(again->dones == 1);
	check_done();
	until(idle());
}

/* Honest diallers are not closed for each other. */
static void more_honest_peers_than_places(void **state)
{
	(void)state;
	enum { N = 400 };
	one_listen();
	start_node_opts(2, (struct dr_rdv_opts){ 0 });
	for (unsigned i = 0; i < N; i++)
		connect_from(1 + i % 2, w.handle, NULL, 0, 0);
	until(dones() == N);
	check_done();
	assert_string_equal(w.log, "");
}

static void raw_flush(int fd, struct dr_conv *c)
{
	const uint8_t *out;
	size_t n = dr_conv_output(c, &out);
	if (n)
		assert_int_equal(send(fd, out, n, MSG_NOSIGNAL), n);
	dr_conv_sent(c, n, dr_now_ns());
}

/* A peer that has the key sends this frame when its conversation is OPEN. Returns the cause of the refusal. */
static enum dr_boot_cause raw_refused(
	uint16_t port, enum dr_conv_frame type, uint64_t seq, const char *payload, size_t len)
{
	struct dr_conv_opts o = {
		.role = DR_CONV_CLIENT,
		.stage_ns = DR_NS_PER_S,
		.key = &w.listen->key,
		.ephemeral = { 1 },
	};
	struct dr_conv_event ev = { 0 };
	struct dr_conv c;
	uint8_t byte;
	int fd = raw_connect(port);
	o.hello.purpose = DR_CONV_COMM;
	memcpy(o.hello.session, w.handle + 24, sizeof(o.hello.session));
	assert_int_equal(dr_conv_init(&c, &o, dr_now_ns()), 0);
	int64_t end = dr_now_ns() + 20 * DR_NS_PER_S;
	while (ev.kind != DR_CONV_REFUSED) {
		raw_flush(fd, &c);
		turn();
		assert_true(dr_now_ns() < end && c.state != DR_CONV_ENDED);
		while (ev.kind != DR_CONV_REFUSED && recv(fd, &byte, 1, MSG_DONTWAIT) == 1) {
			dr_conv_feed(&c, &byte, 1, dr_now_ns(), &ev);
			if (ev.kind == DR_CONV_OPENED)
				assert_int_equal(dr_conv_send(&c, type, seq, payload, len), 0);
		}
	}
	dr_conv_fini(&c);
	close(fd);
	return ev.cause;
}

/* A peer that has the key, with its conversation OPEN. Returns the socket. */
static int raw_opened(uint16_t port, uint64_t number, struct dr_conv *c)
{
	struct dr_conv_opts o = { .role = DR_CONV_CLIENT,
		.stage_ns = 60 * DR_NS_PER_S,
		.key = &w.listen->key,
		.ephemeral = { 1 },
		.hello = { .purpose = DR_CONV_COMM, .last_seq = number } };
	struct dr_conv_event ev = { 0 };
	uint8_t byte;
	int fd = raw_connect(port);
	memcpy(o.hello.session, w.handle + 24, sizeof(o.hello.session));
	assert_int_equal(dr_conv_init(c, &o, dr_now_ns()), 0);
	int64_t end = dr_now_ns() + 20 * DR_NS_PER_S;
	while (ev.kind != DR_CONV_OPENED) {
		raw_flush(fd, c);
		turn();
		assert_true(dr_now_ns() < end && c->state != DR_CONV_ENDED);
		while (ev.kind != DR_CONV_OPENED && recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
			dr_conv_feed(c, &byte, 1, dr_now_ns(), &ev);
	}
	return fd;
}

static unsigned count_of(const struct dr_rdv *r, bool comms)
{
	unsigned n = 0;
	for (const struct dr_rdv_comm *c = comms ? r->accepts : NULL; c; c = c->next)
		n += !c->over;
	for (const struct dr_link *l = comms ? NULL : r->in; l; l = l->next)
		n += l->state == DR_LINK_UP;
	return n;
}

#define TEXT(s) s, sizeof(s) - 1
#define OFFER(nonce, ms) TEXT("{\"nonce\":\"" nonce "\",\"timeout_ms\":" ms ",\"offer\":{}}")
#define NONCE "01020300000000000000000000000000"

/* Peers that have the key say nothing more, or offer a comm and stop there. */
static void known_peers_that_stop(void **state)
{
	(void)state;
	enum { MANY = 700 };
	static int fd[MANY];
	char offer[] = "{\"nonce\":\"" NONCE "\",\"timeout_ms\":3600000,\"offer\":{\"id\":1}}";
	struct dr_rdv_handle h;
	struct dr_conv c;
	unsigned most = 0;
	w.timing.stage_ns = 60 * DR_NS_PER_S;
	w.timing.place_ns = MS;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	for (unsigned i = 0; i < 100; i++) {
		fd[i] = raw_opened(h.port, i, &c);
		dr_conv_fini(&c);
		most = DR_MAX(most, count_of(w.node[0], false));
	}
	assert_in_range(most, DR_RDV_UNPROVEN_MAX, DR_RDV_UNPROVEN_MAX + 1);
	for (unsigned i = 0; i < 100; i++)
		close(fd[i]);
	until(w.node[0]->in == NULL);
	most = 0;
	w.comms = 2; /* 0 is not answered, 1 is refused */
	for (unsigned i = 0; i < MANY; i++) {
		w.hold = i == 0;
		w.refuse = !w.hold;
		fd[i] = raw_opened(h.port, i, &c);
		offer[sizeof(offer) - 4] = i == 0 ? '0' : '1';
		assert_int_equal(dr_conv_send(&c, DR_CONV_FRAME_OFFER, 0, TEXT(offer)), 0);
		raw_flush(fd[i], &c);
		until(w.node[0]->accepts && w.node[0]->accepts->x.number == i);
		dr_conv_fini(&c);
		most = DR_MAX(most, count_of(w.node[0], true));
	}
	assert_int_equal(most, DR_RDV_COMMS_MAX);
	assert_int_equal(w.comm[0].a.fails, 1);
	assert_int_equal(w.comm[0].a.code, -ENOBUFS);
	w.refuse = false;
	struct end *d = connect_to(w.handle, 0);
	until(d->dones == 1);
	for (unsigned i = 0; i < MANY; i++)
		close(fd[i]);
}

static void known_peer_breaks_the_rules(void **state)
{
	(void)state;
	static const struct {
		enum dr_conv_frame type;
		uint64_t seq;
		const char *payload;
		size_t len;
	} row[] = {
		{ DR_CONV_FRAME_HANDLES, 0, "\0\0\0\0", 4 },
		{ DR_CONV_FRAME_OFFER, 0, "{}", 2 },
		{ DR_CONV_FRAME_OFFER, 0, OFFER("00", "1") },
		{ DR_CONV_FRAME_OFFER, 0, OFFER(NONCE, "-1") },
		{ DR_CONV_FRAME_OFFER, 0, OFFER(NONCE, "3600001") },
		{ DR_CONV_FRAME_OFFER, 0, OFFER(NONCE, "\"1\"") },
		{ DR_CONV_FRAME_READY, 1, "", 0 },
	};
	struct dr_rdv_handle h;
	one_listen();
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	for (size_t i = 0; i < DR_ARRAY_LEN(row); i++)
		assert_int_equal(
			raw_refused(h.port, row[i].type, row[i].seq, row[i].payload, row[i].len),
			DR_BOOT_PROTOCOL);
	assert_int_equal(log_count("not a valid OFFER"), DR_ARRAY_LEN(row));
	until(idle());
}

/* ---- addresses ---------------------------------------------------------------------------- */

/* A socket whose queue is full does not answer further requests. */
static int unanswering(const char *addr, uint16_t port, int *clients, int n)
{
	struct dr_addr a;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(dr_addr_parse(addr, &a), 0);
	dr_sa_set_port(&a.ss, port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&a.ss, a.len), 0);
	assert_int_equal(listen(fd, 0), 0);
	for (int i = 0; i < n; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(clients[i], (struct sockaddr *)&a.ss, a.len);
	}
	return fd;
}

static void first_address_dead(void **state)
{
	enum { CLIENTS = 4 };
	for (int silent = 0; silent < 2; silent++) {
		int clients[CLIENTS], fd = -1;
		struct dr_rdv_handle h;
		setup(state);
		w.timing.dial_ns = 200 * MS;
		one_listen();
		assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
		h.addrs[1] = h.addrs[0];
		h.addrs[0] = address("127.0.0.77", 8);
		h.n = 2;
		assert_int_equal(dr_rdv_handle_encode(&h, w.handle), 2);
		if (silent)
			fd = unanswering("127.0.0.77", h.port, clients, CLIENTS);
		int64_t began = dr_now_ns();
		connect_to(w.handle, 0);
		until(dones() == 1);
		check_done();
		assert_true(!silent || dr_now_ns() - began >= w.timing.dial_ns);
		for (int i = 0; silent && i < CLIENTS; i++)
			close(clients[i]);
		if (silent)
			close(fd);
		teardown(state);
	}
}

/* Connections start at the local address of the subnet, and also without one when it is not usable. */
static void source_addresses(void **state)
{
	(void)state;
	struct dr_rdv_addr local[2] = { address("192.0.2.1", 24), address("127.0.0.42", 8) };
	one_listen();
	connect_from(1, w.handle, local, 2, 0);
	until(w.comm[0].a.c && w.comm[0].a.c->link);
	assert_non_null(strstr(w.comm[0].a.c->link->peer, "127.0.0.42:"));
	until(dones() == 1);
	/* 192.0.2.1 is no address of this host. */
	struct dr_rdv_handle h;
	assert_int_equal(dr_rdv_handle_decode(w.handle, &h, NULL), 0);
	local[0].prefix = 0;
	h.addrs[0].prefix = 0;
	assert_int_equal(dr_rdv_handle_encode(&h, w.handle), 1);
	connect_from(1, w.handle, local, 1, 0);
	until(dones() == 2);
	check_done();
}

/* Another host is dialled over the interface that was named; here over the loopback interface, where nobody has
 * this address. */
static void source_interface(void **state)
{
	(void)state;
	struct dr_rdv_handle h = { .port = 9, .n = 1 };
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_addr local = address("127.0.0.1", 0);
	char device[IFNAMSIZ] = "";
	socklen_t len = sizeof(device);
	h.addrs[0] = address("198.51.100.1", 0);
	snprintf(local.device, sizeof(local.device), "lo");
	assert_int_equal(dr_rdv_handle_encode(&h, handle), 1);
	start_nodes(1);
	struct end *d = connect_from(0, handle, &local, 1, 0);
	dr_rdv_tick(w.node[0], dr_now_ns());
	assert_int_equal(d->c->dial->attempts, 1);
	assert_non_null(d->c->link);
	int fd = d->c->link->po.fd;
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &len), 0);
	assert_string_equal(device, "lo");
	cancel(d);
}

static void acceptor_appears_late(void **state)
{
	(void)state;
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct dr_addr a = { .len = sizeof(struct sockaddr_in) };
	int fd;
	one_listen();
	/* A port where nobody listens yet, but the relay will. */
	a.ss.ss_family = AF_INET;
	((struct sockaddr_in *)&a.ss)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(dr_net_listen(&a, &fd, NULL), 0);
	close(fd);
	memcpy(handle, w.handle, sizeof(handle));
	move_handle(handle, dr_sa_port(&a.ss));
	struct end *d = connect_to(handle, 0);
	until(d->c->dial->attempts >= 5);
	assert_int_equal(d->asked, 0);
	relay_start(w.handle, dr_sa_port(&a.ss));
	until(d->dones == 1);
	check_done();
}

static void ports_of_a_range(void **state)
{
	(void)state;
	uint8_t handle[2][DR_RDV_HANDLE_BYTES];
	struct dr_rdv_handle h[2];
	struct dr_rdv_listen_opts o = { .n = 1, .arg = &w };
	struct dr_rdv_addr a = address("127.0.0.1", 8);
	struct dr_rdv_listen *l;
	struct dr_err e;
	o.addrs = &a;
	/* Two neighbouring ports that were free a moment ago; others may take them meanwhile. */
	for (;;) {
		uint32_t r;
		assert_int_equal(dr_random_bytes(&r, sizeof(r)), 0);
		uint16_t port = (uint16_t)(11000 + r % 20000);
		for (unsigned i = 0; i < 3; i++)
			start_node_opts(i, (struct dr_rdv_opts){ .port_min = port,
						   .port_max = (uint16_t)(port + 1) });
		if (dr_rdv_listen(w.node[0], &o, &l, handle[0], NULL) == 0 &&
			dr_rdv_listen(w.node[1], &o, &l, handle[1], NULL) == 0)
			break;
		for (unsigned i = 0; i < 3; i++) {
			dr_rdv_destroy(w.node[i]);
			w.node[i] = NULL;
		}
	}
	assert_int_equal(dr_rdv_listen(w.node[2], &o, &l, handle[0], &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, "choose a larger range"));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(dr_rdv_handle_decode(handle[i], &h[i], NULL), 0);
		assert_in_range(h[i].port, w.node[2]->port_min, w.node[2]->port_max);
	}
	assert_int_not_equal(h[0].port, h[1].port);
	connect_from(2, handle[0], NULL, 0, 0);
	connect_from(2, handle[1], NULL, 0, 0);
	until(dones() == 2);
}

static void addresses_left_out(void **state)
{
	(void)state;
	uint8_t handle[DR_RDV_HANDLE_BYTES];
	struct dr_rdv_addr a[3] = { address("192.0.2.1", 24), address("127.0.0.1", 8),
		address("127.0.0.2", 8) };
	struct dr_rdv_listen_opts o = { .addrs = a, .n = 1, .arg = &w };
	struct dr_rdv_listen *l;
	struct dr_rdv_handle h;
	struct dr_err e;
	start_nodes(2);
	assert_int_equal(dr_rdv_listen(w.node[0], &o, &l, handle, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "192.0.2.1"));
	o.n = 3;
	assert_int_equal(dr_rdv_listen(w.node[0], &o, &l, handle, &e), 0);
	assert_int_equal(dr_rdv_handle_decode(handle, &h, NULL), 0);
	assert_int_equal(h.n, 2);
	/* Again and again, with one line for all. */
	for (int i = 0; i < 10; i++)
		assert_int_equal(dr_rdv_listen(w.node[0], &o, &l, handle, &e), 0);
	assert_int_equal(log_count("address left out"), 1);
	connect_to(handle, 0);
	until(dones() == 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
/* Sets the world up and tears it down itself, once per case. */
#define CASES(f) cmocka_unit_test(f)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASES(one_comm),
		TEST(secrets_stay_secret),
		TEST(another_accept_is_refused),
		TEST(secret_is_the_acceptors_too),
		TEST(many_at_once),
		TEST(listens_share_sockets),
		TEST(owners_answer_late),
		TEST(wrong_keys),
		TEST(wrong_process_at_one_address),
		TEST(strangers),
		TEST(more_honest_peers_than_places),
		TEST(known_peers_that_stop),
		TEST(known_peer_breaks_the_rules),
		CASES(first_address_dead),
		TEST(source_addresses),
		TEST(source_interface),
		TEST(acceptor_appears_late),
		TEST(ports_of_a_range),
		TEST(addresses_left_out),
	};
	struct rlimit files = { 4096, 4096 };
	setrlimit(RLIMIT_NOFILE, &files);
	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
