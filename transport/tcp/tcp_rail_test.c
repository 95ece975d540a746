/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/tcp/testkit.h"

#include "base/rng.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static int setup(void **state)
{
	static struct kit k;
	bool polled = *state != NULL;

	kit_count_warnings();
	kit_open(&k, AF_INET, polled);
	*state = &k;
	return 0;
}

static int teardown(void **state)
{
	kit_close(*state);
	dr_log_set_sink(NULL, NULL);
	return 0;
}

/* A network namespace whose loopback device may go down; -1: not allowed to have one. */
static int old_netns;

static void set_lo(bool up)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &ifr), 0);
	ifr.ifr_flags = (short)(up ? ifr.ifr_flags | IFF_UP : ifr.ifr_flags & ~IFF_UP);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &ifr), 0);
	close(fd);
}

static int netns_setup(void **state)
{
	old_netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	assert_true(old_netns >= 0);
	if (unshare(CLONE_NEWNET) < 0) {
		print_message(
			"SKIP: needs a network namespace of its own (root): %s\n", strerror(errno));
		close(old_netns);
		old_netns = -1;
	} else {
		set_lo(true);
	}
	return setup(state);
}

static int netns_teardown(void **state)
{
	int rc = teardown(state);

	if (old_netns < 0)
		return rc;
	assert_int_equal(setns(old_netns, CLONE_NEWNET), 0);
	close(old_netns);
	return rc;
}

/* A TCP connection to the listener of rail 1 that is no path of ours. */
static int stranger(struct kit *k)
{
	const struct sockaddr_storage *to = &tcp_rail(k->rail[0])->peer;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)to, dr_sa_len(to)), 0);
	return fd;
}

/* Reads the listener's challenge on fd, and answers as path 1 of channel 7; wrong: with another token. */
static void say(struct kit *k, int fd, uint32_t gen, bool wrong)
{
	struct dr_path_ident id = {
		.channel = 7, .index = 1, .gen = gen, .sender = true, .connector = true
	};
	uint8_t token[DR_TOKEN_LEN], secret[DR_KEY_LEN], in[TCP_CHALLENGE_LEN], out[TCP_HELLO_LEN];
	struct tcp_admission a;
	struct tcp_hs h;
	size_t used;

	memcpy(token, k->token, sizeof(token));
	token[15] ^= wrong;
	assert_int_equal(dr_random_bytes(secret, sizeof(secret)), 0);
	dr_tcp_admission_init(&a, token, secret);
	a.peer = tcp_rail(k->rail[1])->admission.self;
	dr_tcp_hs_init(&h, &a, &id);
	dr_tcp_hs_start(&h);
	kit_until(k, recv(fd, in, sizeof(in), MSG_PEEK | MSG_DONTWAIT) == sizeof(in));
	assert_int_equal(recv(fd, in, sizeof(in), 0), sizeof(in));
	assert_int_equal(dr_tcp_hs_bytes(&h, in, sizeof(in), &used, NULL), 1);
	dr_tcp_hs_hello(&h, out);
	assert_int_equal(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
}

/* The listener hung up on fd. */
static bool hung_up(int fd)
{
	char c[TCP_CHALLENGE_LEN];
	ssize_t n;

	while ((n = recv(fd, c, sizeof(c), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static void strangers_are_turned_away_and_the_path_lives(void **state)
{
	struct kit *k = *state;
	int wrong, garbage, closer, half, late;
	char junk[100];

	kit_up(k);
	wrong = stranger(k);
	say(k, wrong, 2, true);
	garbage = stranger(k);
	memset(junk, 'G', sizeof(junk));
	assert_int_equal(send(garbage, junk, sizeof(junk), MSG_NOSIGNAL), sizeof(junk));
	close(stranger(k)); /* from the peer's address, without a word: a dial given up, no news */
	closer = stranger(k);
	assert_int_equal(send(closer, "D", 1, MSG_NOSIGNAL), 1);
	close(closer);
	half = stranger(k);
	assert_int_equal(send(half, "DRT", 3, MSG_NOSIGNAL), 3);
	kit_until(k, hung_up(wrong));
	kit_until(k, hung_up(garbage));
	kit_until(k, kit_warnings == 3 && tcp_rail(k->rail[1])->admission.n == 1);
	assert_false(hung_up(half));

	assert_int_equal(dr_path_post_ctrl(k->path[0], "alive", 5), 0);
	dr_path_flush(k->path[0], dr_now_ns());
	kit_until(k, k->sink[1].count[DR_EV_CTRL] == 1);

	k->ahead_ns = TCP_ADMIT_NS;
	late = stranger(
		k); /* a poller wakes for it; the deadline of the other has passed by then */
	kit_until(k, hung_up(half));
	assert_int_equal(kit_warnings, 4);
	assert_int_equal(k->sink[1].count[DR_EV_FAILED], 0);
	assert_int_equal(k->rail_sink[1].count[DR_EV_INCOMING], 0);
	close(wrong);
	close(garbage);
	close(half);
	close(late);
}

static void a_crowd_of_strangers_keeps_nobody_out(void **state)
{
	int fd[TCP_PENDING_MAX + 20];
	struct kit *k = *state;
	size_t i;

	for (i = 0; i < DR_ARRAY_LEN(fd); i++)
		fd[i] = stranger(k);
	kit_until(k, tcp_rail(k->rail[1])->admission.n == TCP_PENDING_MAX && hung_up(fd[19]));
	assert_true(hung_up(fd[0]));
	assert_false(hung_up(fd[DR_ARRAY_LEN(fd) - 1]));
	assert_true(kit_warnings <= 11);
	kit_up(k);
	for (i = 0; i < DR_ARRAY_LEN(fd); i++)
		close(fd[i]);
}

static void other_addresses_get_no_slot(void **state)
{
	struct kit *k = *state;
	struct tcp_rail *r = tcp_rail(k->rail[1]);
	struct sockaddr_in elsewhere = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	kit_up(k);
	assert_true(fd >= 0);
	elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&elsewhere, sizeof(elsewhere)), 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&tcp_rail(k->rail[0])->peer,
				 sizeof(elsewhere)),
		0);
	kit_until(k, hung_up(fd));
	assert_int_equal(kit_warnings, 1);
	assert_int_equal(r->admission.nonces, 1); /* the path's */
	assert_int_equal(k->sink[1].count[DR_EV_FAILED], 0);
	close(fd);
}

/* The listener waits meanwhile: turns are counted, since spinning makes many thousands. */
static void no_descriptor_pauses_the_listener(void **state)
{
	struct kit *k = *state;
	struct tcp_rail *r = tcp_rail(k->rail[1]);
	struct rlimit before, tight;
	int64_t end;
	int turns = 0;

	kit_up(k);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	tight = before;
	tight.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&tcp_rail(k->rail[0])->peer,
				 sizeof(struct sockaddr_in)),
		0);
	kit_until(k, r->paused_until_ns != 0);
	end = dr_now_ns() + 50 * DR_NS_PER_MS;
	for (; dr_now_ns() < end; turns++)
		(void)dr_poller_wait(k->poller, 5 * DR_NS_PER_MS);
	assert_true(turns < 200);
	assert_int_equal(kit_warnings, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	/* As an owner does every 500 ms. */
	kit_until(k, (kit_rail_progress(k, 1, dr_now_ns()), r->admission.n == 1));
	assert_int_equal(r->paused_until_ns, 0);
	close(fd);
}

static void who_comes_early_is_announced_parked_and_adopted(void **state)
{
	struct kit *k = *state;
	struct dr_event *ev;

	kit_create(k, 0, 5);
	kit_connect(k, 0);
	kit_until(k, k->rail_sink[1].count[DR_EV_INCOMING]);
	ev = kit_last(&k->rail_sink[1], DR_EV_INCOMING);
	assert_int_equal(ev->channel, 7);
	assert_int_equal(ev->index, 1);
	assert_int_equal(ev->gen, 5);
	assert_ptr_equal(ev->rail, k->rail[1]);
	kit_create(k, 1, 5);
	kit_connect(k, 1);
	kit_until(k, k->sink[0].count[DR_EV_READY] && k->sink[1].count[DR_EV_READY]);
	assert_int_equal(k->rail_sink[1].count[DR_EV_INCOMING], 1);
	assert_int_equal(tcp_rail(k->rail[1])->admission.n, 0);
}

static void generations_must_agree(void **state)
{
	struct kit *k = *state;
	int four, six, five, six_again;

	kit_create(k, 1, 5);
	kit_connect(k, 1);
	four = stranger(k);
	say(k, four, 4, false); /* outdated: dropped */
	kit_until(k, hung_up(four));
	six = stranger(k);
	say(k, six, 6, false); /* newer than the path that waits: parked */
	kit_until(k, k->rail_sink[1].count[DR_EV_INCOMING] == 1);
	five = stranger(k);
	say(k, five, 5, false); /* the one that is waited for */
	kit_until(k, k->sink[1].count[DR_EV_READY]);
	assert_false(hung_up(six));
	six_again = stranger(k);
	say(k, six_again, 7, false); /* takes the place of 6 */
	kit_until(k, k->rail_sink[1].count[DR_EV_INCOMING] == 2);
	kit_until(k, hung_up(six));
	close(six);
	six = stranger(k);
	say(k, six, 6, false);
	kit_until(k, hung_up(six));
	assert_false(hung_up(six_again));
	assert_int_equal(kit_warnings, 0);

	kit_destroy(k, 1);
	kit_create(k, 1, 8);
	kit_connect(k, 1); /* nobody waits for 7 any more */
	kit_until(k, hung_up(six_again));
	close(four);
	close(five);
	close(six);
	close(six_again);
}

static void a_parked_connection_goes_when_it_closes_or_is_late(void **state)
{
	struct kit *k = *state;
	int fd = stranger(k), other;

	say(k, fd, 1, false);
	kit_until(k, k->rail_sink[1].count[DR_EV_INCOMING] == 1);
	close(fd);
	kit_until(k, tcp_rail(k->rail[1])->admission.n == 0);
	fd = stranger(k);
	say(k, fd, 1, false);
	kit_until(k, k->rail_sink[1].count[DR_EV_INCOMING] == 2);
	k->ahead_ns = TCP_ADMIT_NS;
	other = stranger(k);
	kit_until(k, hung_up(fd));
	assert_int_equal(kit_warnings, 0);
	close(fd);
	close(other);
}

/* Challenges the connection as the peer's rail end would, and admits what comes; wrong: with another token, which
 * is not compared. */
static void admit(struct kit *k, int fd, bool wrong)
{
	struct dr_path_ident id = { .channel = 7, .index = 1, .gen = 5 };
	uint8_t token[DR_TOKEN_LEN], secret[DR_KEY_LEN] = { 0 };
	uint8_t out[TCP_CHALLENGE_LEN], in[TCP_HELLO_LEN], ok[TCP_HELLO_OK_LEN];
	struct tcp_admission a;
	struct tcp_hs h;
	bool evicted;

	dr_tcp_admission_init(&a, k->token, secret);
	a.self = tcp_rail(k->rail[0])->admission.peer;
	if (wrong) {
		memcpy(token, k->token, sizeof(token));
		token[0] ^= 1;
		dr_key_derive(token, DR_KEY_TCP_HELLO_OK, a.ok_key);
	}
	dr_tcp_hs_init(&h, &a, &id);
	dr_tcp_hs_start(&h);
	unsigned slot = dr_tcp_admission_open(&a, true, 0, &evicted);
	dr_tcp_admission_challenge(&a, slot, out);
	assert_int_equal(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
	kit_until(k, recv(fd, in, sizeof(in), MSG_PEEK | MSG_DONTWAIT) == sizeof(in));
	struct tcp_verdict v = dr_tcp_admission_bytes(&a, slot, in, sizeof(in), 0);
	assert_int_equal(v.what, TCP_ADMIT);
	dr_tcp_hs_welcome(&h, ok);
	assert_int_equal(send(fd, ok, sizeof(ok), MSG_NOSIGNAL), sizeof(ok));
}

static void the_connector_refuses_what_is_no_listener_of_ours(void **state)
{
	struct kit *k = *state;
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM, 0), peer;

	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	((struct sockaddr_in *)&sa)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	tcp_rail(k->rail[0])->peer = sa;
	kit_create(k, 0, 1);
	kit_connect(k, 0);
	kit_step(k);
	peer = accept(fd, NULL, NULL);
	assert_int_equal(send(peer, "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL), 24);
	kit_until(k, k->sink[0].count[DR_EV_FAILED]);
	assert_int_equal(kit_last(&k->sink[0], DR_EV_FAILED)->err, -EPROTO);
	kit_destroy(k, 0);
	close(peer);

	for (unsigned wrong = 0; wrong < 2; wrong++) { /* one with the token, and one without */
		kit_forget(&k->sink[0]);
		kit_create(k, 0, 5);
		kit_connect(k, 0);
		kit_step(k);
		peer = accept(fd, NULL, NULL);
		admit(k, peer, wrong);
		kit_until(k, k->sink[0].count[DR_EV_FAILED] + k->sink[0].count[DR_EV_READY]);
		assert_int_equal(k->sink[0].count[DR_EV_READY], !wrong);
		kit_destroy(k, 0);
		close(peer);
	}
	close(fd);

	kit_create(k, 0, 6); /* now nobody listens there */
	kit_connect(k, 0);
	kit_until(k, k->sink[0].count[DR_EV_FAILED]);
	assert_int_equal(kit_last(&k->sink[0], DR_EV_FAILED)->err, -ECONNREFUSED);
	assert_int_equal(kit_last(&k->sink[0], DR_EV_FAILED)->scope, DR_SCOPE_PATH);
}

static void datagrams_go_both_ways(void **state)
{
	struct kit *k = *state;
	char big[DR_DGRAM_MAX];
	int i;

	memset(big, 7, sizeof(big));
	for (i = 0; i < 2; i++) {
		dr_tcp_ops.rail_dgram(k->rail[i], "beat", 4);
		kit_until(k, k->rail_sink[!i].count[DR_EV_DGRAM] == 1);
		assert_int_equal(kit_last(&k->rail_sink[!i], DR_EV_DGRAM)->len, 4);
		assert_memory_equal(k->rail_sink[!i].bytes, "beat", 4);
		dr_tcp_ops.rail_dgram(k->rail[i], big, sizeof(big));
		kit_until(k, k->rail_sink[!i].count[DR_EV_DGRAM] == 2);
		assert_int_equal(kit_last(&k->rail_sink[!i], DR_EV_DGRAM)->len, sizeof(big));
	}
}

static int sent_to(struct kit *k, int to, int dgrams)
{
	int before = k->rail_sink[to].count[DR_EV_DGRAM];

	for (int i = 0; i < dgrams; i++)
		dr_tcp_ops.rail_dgram(k->rail[!to], "beat", 4);
	/* Over the loopback device they are there when the call returns. */
	if (k->poller)
		(void)dr_poller_wait(k->poller, 0);
	kit_rail_progress(k, to, dr_now_ns());
	return k->rail_sink[to].count[DR_EV_DGRAM] - before;
}

/* End 1 sends no more bytes than came, until the peer has connected with the right token. */
static void without_key_datagrams_wait_for_a_connection(void **state)
{
	struct kit *k = *state;
	struct tcp_rail *r = tcp_rail(k->rail[1]);

	r->tcp.distrusts = r->limit.on = true;
	assert_int_equal(sent_to(k, 0, 10), 0);
	dr_tcp_ops.rail_padded(k->rail[1], "beat", 4, 1400);
	assert_int_equal(sent_to(k, 1, 3), 3);
	assert_int_equal(sent_to(k, 0, 10), 3);
	/* Forged ones of a byte. */
	for (unsigned i = 0; i < 7; i++)
		dr_tcp_ops.rail_dgram(k->rail[0], "x", 1);
	kit_rail_progress(k, 1, dr_now_ns());
	assert_int_equal(sent_to(k, 0, 10), 1);
	dr_tcp_ops.rail_padded(k->rail[1], "beat", 4, 1400);
	assert_int_equal(sent_to(k, 0, 10), 0);

	int fd = stranger(k);
	say(k, fd, 2, true);
	kit_until(k, hung_up(fd));
	close(fd);
	assert_int_equal(sent_to(k, 0, 10), 0);

	kit_up(k);
	assert_int_equal(sent_to(k, 0, 10), 10);
	assert_false(r->limit.on);
}

/* What one rail end has seen holds for the others of the session, and for no other session. */
static void a_connection_shows_the_address_to_all_rails(void **state)
{
	struct kit *k = *state;
	struct tcp_rail *r = tcp_rail(k->rail[1]), other;

	r->tcp.distrusts = r->limit.on = true;
	kit_up(k);
	other = *r;
	other.limit.on = true;
	assert_true(dr_known_may_send(&other.limit, 1, true));
	other.limit.on = true;
	other.limit.peer.token[0] ^= 1;
	assert_false(dr_known_may_send(&other.limit, 1, true));
	other.limit.peer.token[0] ^= 1;
	other.limit.peer.at[3] ^= 1;
	assert_false(dr_known_may_send(&other.limit, 1, true));
}

static void a_strangers_datagram_is_not_seen(void **state)
{
	struct kit *k = *state;
	struct sockaddr_storage to;
	socklen_t len = sizeof(to);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	assert_int_equal(
		getsockname(tcp_rail(k->rail[1])->udp.fd, (struct sockaddr *)&to, &len), 0);
	(void)sendto(fd, "evil", 4, 0, (struct sockaddr *)&to, len);
	dr_tcp_ops.rail_dgram(k->rail[0], "good", 4);
	kit_until(k, k->rail_sink[1].count[DR_EV_DGRAM] == 1);
	assert_memory_equal(k->rail_sink[1].bytes, "good", 4);
	close(fd);
}

/* ICMP's "nobody there" neither fails the rail nor swallows the next datagram. */
static void a_peer_that_comes_back_is_heard(void **state)
{
	struct kit *k = *state;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char got[4] = { 0 };
	int i, fd;

	assert_int_equal(
		getsockname(tcp_rail(k->rail[1])->udp.fd, (struct sockaddr *)&at, &len), 0);
	dr_tcp_ops.rail_close(k->rail[1]);
	dr_tcp_ops.rail_fini(k->rail[1]);
	k->rail[1] = NULL;
	for (i = 0; i < 3; i++) {
		dr_tcp_ops.rail_dgram(k->rail[0], "lost", 4);
		kit_rail_progress(k, 0, dr_now_ns());
	}
	dr_tcp_ops.rail_dgram(
		k->rail[0], "lost", 4); /* its ICMP error is pending at the next send */
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
	dr_tcp_ops.rail_dgram(k->rail[0], "back", 4);
	kit_until(k, recv(fd, got, sizeof(got), MSG_DONTWAIT) == sizeof(got));
	assert_memory_equal(got, "back", 4);
	assert_int_equal(k->rail_sink[0].count[DR_EV_FAILED], 0);
	close(fd);
}

/* The link is down when the rails are made. One end sends nothing, and hears its peer all the same. */
static void a_silent_end_hears_its_peer_when_the_link_is_up(void **state)
{
	int64_t now = dr_now_ns();
	struct kit *k = *state;
	bool polled = k->poller != NULL;

	if (old_netns < 0)
		skip();
	kit_close(k);
	kit_listen(k, AF_INET, polled);
	set_lo(false);
	kit_introduce(k);
	assert_int_equal(kit_warnings, 2);
	kit_rail_progress(k, 1, now);
	assert_false(tcp_rail(k->rail[1])->udp_connected);
	set_lo(true);
	kit_rail_progress(k, 1, now + DR_NS_PER_MS); /* too early for the next attempt */
	assert_false(tcp_rail(k->rail[1])->udp_connected);
	kit_rail_progress(k, 1, now + 500 * DR_NS_PER_MS);
	dr_tcp_ops.rail_dgram(k->rail[0], "gone", 4);
	kit_until(k, k->rail_sink[1].count[DR_EV_DGRAM] == 1);
	assert_memory_equal(k->rail_sink[1].bytes, "gone", 4);
}

static void listening_says_what_is_wrong(void **state)
{
	struct kit *k = *state;
	struct dr_rail_params rp = kit_rail_params(k, 0, AF_INET);
	struct sockaddr_in *sa = (struct sockaddr_in *)&rp.local;
	struct dr_rail *r = NULL, *r2;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	struct dr_err e;

	rp.poller = NULL;
	rp.ifname = "nonesuch0";
	assert_int_equal(dr_tcp_ops.listen(&rp, &r, &e), -ENODEV);
	assert_non_null(strstr(e.text, "nonesuch0"));
	rp.ifname = NULL;
	sa->sin_addr.s_addr = inet_addr("192.0.2.1");
	assert_int_equal(dr_tcp_ops.listen(&rp, &r, &e), -EADDRNOTAVAIL);
	assert_non_null(strstr(e.text, "192.0.2.1"));
	sa->sin_addr.s_addr = 0;
	assert_int_equal(dr_tcp_ops.listen(&rp, &r, &e), -EADDRNOTAVAIL);
	assert_null(r);

	rp = kit_rail_params(k, 0, AF_INET);
	rp.poller = NULL;
	assert_int_equal(
		getsockname(tcp_rail(k->rail[0])->listener.fd, (struct sockaddr *)&at, &len), 0);
	rp.port_min = rp.port_max = ntohs(at.sin_port);
	assert_int_equal(dr_tcp_ops.listen(&rp, &r, &e), -EADDRINUSE);
	if (ntohs(at.sin_port) < 65530) {
		rp.port_max = (uint16_t)(rp.port_min + 5);
		assert_int_equal(dr_tcp_ops.listen(&rp, &r2, &e), 0);
		dr_tcp_ops.rail_fini(r2);
	}
}

static void foreign_handles_are_refused(void **state)
{
	struct kit *k = *state;
	uint8_t buf[DR_HANDLE_MAX] = { 0 };
	struct dr_rail *r6;
	struct dr_rail_params rp = kit_rail_params(k, 0, AF_INET6);
	struct dr_err e;
	int n;

	assert_int_equal(dr_tcp_ops.rail_peer(k->rail[0], buf, 0, &e), -EPROTO);
	assert_int_equal(dr_tcp_ops.rail_peer(k->rail[0], buf, sizeof(buf), &e), -EPROTO);
	rp.poller = NULL;
	if (dr_tcp_ops.listen(&rp, &r6, &e) == 0) {
		n = dr_tcp_ops.rail_handle(r6, buf, sizeof(buf));
		assert_int_equal(dr_tcp_ops.rail_peer(k->rail[0], buf, (size_t)n, &e), -EPROTO);
		dr_tcp_ops.rail_fini(r6);
	}
	kit_create(k, 0, 1);
	kit_create(k, 1, 2);
	n = dr_tcp_ops.handle(k->path[1], buf, sizeof(buf));
	assert_true(n > 0);
	assert_int_equal(dr_tcp_ops.connect(k->path[0], buf, (size_t)n, 0, &e), -EPROTO);
	assert_int_equal(dr_tcp_ops.connect(k->path[0], buf, 3, 0, &e), -EPROTO);
	kit_destroy(k, 1);
	kit_create(k, 1, 1);
	n = dr_tcp_ops.handle(k->path[1], buf, sizeof(buf));
	assert_int_equal(dr_tcp_ops.connect(k->path[0], buf, (size_t)n, 0, &e), 0);
}

static void both_ends_are_bound_to_the_device(void **state)
{
	struct kit *k = *state;
	char name[IFNAMSIZ];
	socklen_t len;
	int i;

	kit_up(k);
	for (i = 0; i < 2; i++) {
		len = sizeof(name);
		memset(name, 0, sizeof(name));
		assert_int_equal(getsockopt(tcp_path(k->path[i])->base.po.fd, SOL_SOCKET,
					 SO_BINDTODEVICE, name, &len),
			0);
		assert_string_equal(name, "lo");
	}
}

#define BOTH_WITH(f, setup, teardown)                                                              \
	{ #f ", spinning", f, setup, teardown, NULL },                                             \
	{                                                                                          \
#f ", polled", f, setup, teardown, &polled                                         \
	}
#define BOTH(f) BOTH_WITH(f, setup, teardown)

int main(void)
{
	static int polled = 1;
	const struct CMUnitTest tests[] = {
		BOTH(strangers_are_turned_away_and_the_path_lives),
		BOTH(a_crowd_of_strangers_keeps_nobody_out),
		BOTH(other_addresses_get_no_slot),
		{ "no_descriptor_pauses_the_listener", no_descriptor_pauses_the_listener, setup,
			teardown, &polled },
		BOTH(who_comes_early_is_announced_parked_and_adopted),
		BOTH(generations_must_agree),
		BOTH(a_parked_connection_goes_when_it_closes_or_is_late),
		BOTH(the_connector_refuses_what_is_no_listener_of_ours),
		BOTH(datagrams_go_both_ways),
		BOTH(without_key_datagrams_wait_for_a_connection),
		BOTH(a_connection_shows_the_address_to_all_rails),
		BOTH(a_strangers_datagram_is_not_seen),
		BOTH(a_peer_that_comes_back_is_heard),
		BOTH_WITH(a_silent_end_hears_its_peer_when_the_link_is_up, netns_setup,
			netns_teardown),
		BOTH(listening_says_what_is_wrong),
		BOTH(foreign_handles_are_refused),
		BOTH(both_ends_are_bound_to_the_device),
	};

	return cmocka_run_group_tests_name("tcp_rail", tests, NULL, NULL);
}
