/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's end of a rail. Both sockets are bound to the device, so that routing cannot move them
 * to another NIC. The UDP socket is connected to the peer's, so that the kernel drops datagrams of
 * strangers; the reader of a datagram checks its authenticity.
 */
#include "transport/tcp/tcp.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	LISTEN_BACKLOG =
		4096, /* at most net.core.somaxconn: of many channels that are started at once */
	DGRAM_BATCH = 32, /* datagrams read by one progress */
};
/* Between two attempts of rail_progress to connect the UDP socket. Shorter than the period in which owners
 * call it (path.h), so that each of those calls tries. */
static const int64_t UDP_AGAIN_NS = 100 * DR_NS_PER_MS;

static void listener_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct tcp_rail *r = dr_container_of(po, struct tcp_rail, listener);

	(void)revents;
	r->polled = r->listener_fired = true;
	if (r->par.ready)
		r->par.ready(r->par.arg, now_ns);
}

static void udp_ready(struct dr_pollable *po, uint32_t revents, int64_t now_ns)
{
	struct tcp_rail *r = dr_container_of(po, struct tcp_rail, udp);

	(void)revents;
	r->polled = r->udp_fired = true;
	if (r->par.ready)
		r->par.ready(r->par.arg, now_ns);
}

/* listen() is part of the attempt: SO_REUSEADDR lets two sockets bind one port, not listen on it. */
static int open_at(
	struct tcp_rail *r, int type, uint16_t port, struct dr_pollable *po, struct dr_err *e)
{
	int fd;
	int err = dr_tcp_sock_open(r, type, port, type == SOCK_STREAM, &fd, e);

	if (err)
		return err;
	if (type == SOCK_STREAM && listen(fd, LISTEN_BACKLOG) < 0) {
		err = -errno;
		close(fd);
		return dr_err_set(e, err, "rail %u: cannot listen on port %u: %s; %s",
			r->base.index, port, dr_errno_name(err), dr_tcp_port_advice(port));
	}
	po->fd = fd;
	return 0;
}

static int open_in_range(struct tcp_rail *r, int type, struct dr_pollable *po, struct dr_err *e)
{
	if (!r->par.port_min)
		return open_at(r, type, 0, po, e);
	for (unsigned port = r->par.port_min; port <= r->par.port_max; port++) {
		int err = open_at(r, type, (uint16_t)port, po, e);
		if (err != -EADDRINUSE)
			return err;
	}
	return dr_err_set(e, -EADDRINUSE,
		"rail %u: every %s port of %u..%u is taken; name more data ports, or others",
		r->base.index, type == SOCK_STREAM ? "TCP" : "UDP", r->par.port_min,
		r->par.port_max);
}

static int check_params(const struct dr_rail_params *p, struct dr_err *e)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)&p->local;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)&p->local;

	if (p->ifname && strlen(p->ifname) >= IFNAMSIZ)
		return dr_err_set(
			e, -ENODEV, "rail %u: device name %s is too long", p->index, p->ifname);
	dr_assert(p->port_min <= p->port_max);
	if (p->local.ss_family == AF_INET && s4->sin_addr.s_addr != htonl(INADDR_ANY))
		return 0;
	if (p->local.ss_family == AF_INET6 && !IN6_IS_ADDR_UNSPECIFIED(&s6->sin6_addr))
		return 0;
	return dr_err_set(e, -EADDRNOTAVAIL,
		"rail %u: no IPv4 or IPv6 address of its device; add one with `ip addr add`",
		p->index);
}

static uint32_t find_scope(const struct tcp_rail *r)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)&r->par.local;

	if (r->par.local.ss_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&s6->sin6_addr))
		return 0;
	return s6->sin6_scope_id ? s6->sin6_scope_id : if_nametoindex(r->ifname);
}

static uint16_t local_port(int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return 0;
	return dr_sa_port(&sa);
}

static struct tcp_rail_handle own_handle(const struct tcp_rail *r)
{
	struct tcp_rail_handle h = { .family = r->par.local.ss_family };

	h.tcp_port = local_port(r->listener.fd);
	h.udp_port = local_port(r->udp.fd);
	(void)dr_host_bytes(&r->par.local, h.addr);
	return h;
}

static int init_admission(struct tcp_rail *r, struct dr_err *e)
{
	uint8_t secret[DR_KEY_LEN];
	int err = dr_random_bytes(secret, sizeof(secret));

	if (err)
		return dr_err_set(e, err, "rail %u: no random bytes from the kernel: %s",
			r->base.index, dr_errno_name(err));
	dr_tcp_admission_init(&r->admission, r->par.token, secret);
	return 0;
}

int dr_tcp_listen(const struct dr_rail_params *p, struct dr_rail **out, struct dr_err *e)
{
	int err = check_params(p, e);
	if (err)
		return err;
	struct tcp_rail *r = dr_calloc(1, sizeof(*r));
	if (!r)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", p->index);
	r->base = (struct dr_rail){ .ops = &dr_tcp_ops, .index = p->index };
	r->par = *p;
	snprintf(r->ifname, sizeof(r->ifname), "%s", p->ifname ? p->ifname : "");
	r->par.ifname = r->ifname;
	if (p->kind_params)
		r->tcp = *(const struct dr_tcp_params *)p->kind_params;
	r->par.kind_params = NULL;
	r->limit.on = r->tcp.distrusts;
	memcpy(r->limit.peer.token, p->token, DR_TOKEN_LEN);
	r->scope_id = find_scope(r);
	r->listener = (struct dr_pollable){ .fd = -1, .ready = listener_ready };
	r->udp = (struct dr_pollable){ .fd = -1, .ready = udp_ready };
	r->ask.fd = -1;
	dr_tcp_admit_init(r);
	err = init_admission(r, e);
	if (!err)
		err = open_in_range(r, SOCK_STREAM, &r->listener, e);
	if (!err)
		err = open_in_range(r, SOCK_DGRAM, &r->udp, e);
	if (!err && p->poller) {
		err = dr_poller_add(p->poller, &r->listener, EPOLLIN);
		if (err)
			dr_err_set(e, err, "rail %u: cannot poll its listener: %s", p->index,
				dr_errno_name(err));
	}
	if (err) {
		dr_tcp_rail_close(&r->base);
		dr_free(r);
		return err;
	}
	const struct tcp_rail_handle self = own_handle(r);
	dr_tcp_place_set(&r->admission.self, &self);
	*out = &r->base;
	return 0;
}

int dr_tcp_rail_handle(struct dr_rail *br, void *buf, size_t cap)
{
	struct tcp_rail *r = tcp_rail(br);
	const struct tcp_rail_handle h = own_handle(r);

	return r->closed ? -EBADF : dr_tcp_rail_handle_encode(&h, buf, cap);
}

static struct sockaddr_storage to_sockaddr(
	const struct tcp_rail *r, const struct tcp_rail_handle *h, uint16_t port)
{
	struct sockaddr_storage sa;
	struct sockaddr_in6 *s6 = (struct sockaddr_in6 *)&sa;

	dr_path_host(h->family, h->addr, &sa);
	if (h->family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&s6->sin6_addr))
		s6->sin6_scope_id = r->scope_id;
	dr_sa_set_port(&sa, port);
	return sa;
}

static bool no_route(int err)
{
	return err == -ENETUNREACH || err == -EHOSTUNREACH || err == -ENETDOWN;
}

/* Datagrams come from the peer alone. A link that is down has no route; where it comes back, so does
 * the rail: until then each datagram tries again, and is lost as on any dead rail. rail_progress tries,
 * too: a rail whose owner sends nothing must hear its peer. */
static int udp_connect(struct tcp_rail *r)
{
	char junk[DR_DGRAM_MAX];

	if (connect(r->udp.fd, (struct sockaddr *)&r->udp_peer, dr_sa_len(&r->udp_peer)) < 0)
		return -errno;
	/* Datagrams received before the socket was connected may be from any sender. */
	while (recv(r->udp.fd, junk, sizeof(junk), 0) >= 0 || errno == EINTR)
		;
	int err = r->par.poller && !r->udp_connected
			  ? dr_poller_add(r->par.poller, &r->udp, EPOLLIN)
			  : 0;
	r->udp_connected = err == 0;
	return err;
}

int dr_tcp_rail_peer(struct dr_rail *br, const void *handle, size_t len, struct dr_err *e)
{
	struct tcp_rail *r = tcp_rail(br);
	struct tcp_rail_handle h;
	const char *why = "?";

	if (r->closed)
		return dr_err_set(e, -EBADF, "rail %u: closed", br->index);
	int err = dr_tcp_rail_handle_parse(handle, len, &h, &why);
	if (!err && h.family != r->par.local.ss_family) {
		why = "its address family (IPv4, IPv6) differs from this end's";
		err = -EPROTO;
	}
	if (err)
		return dr_err_set(e, err, "rail %u: the peer's handle (%zu bytes) is invalid: %s",
			br->index, len, why);
	r->peer = to_sockaddr(r, &h, h.tcp_port);
	r->udp_peer = to_sockaddr(r, &h, h.udp_port);
	r->limit.peer.len = (uint8_t)dr_host_bytes(&r->peer, r->limit.peer.at);
	r->has_peer = true;
	dr_tcp_place_set(&r->admission.peer, &h);
	err = udp_connect(r);
	if (no_route(err)) {
		dr_warn("tcp",
			"rail %u: no route to its peer (%s): the rail is down until there is one",
			br->index, dr_errno_name(err));
		return 0;
	}
	return err ? dr_err_set(e, err, "rail %u: cannot use its heartbeat port: %s", br->index,
			     dr_errno_name(err))
		   : 0;
}

void dr_tcp_known_add(const struct tcp_rail *r, int fd)
{
	struct sockaddr_storage from = { 0 };
	socklen_t len = sizeof(from);

	if (r->tcp.distrusts && r->has_peer &&
		getpeername(fd, (struct sockaddr *)&from, &len) == 0 &&
		dr_same_host(&from, &r->peer))
		dr_known_add(&r->limit.peer);
}

/* An ICMP error of an earlier datagram is reported in place of sending this one. */
static void send_dgram(struct tcp_rail *r, struct iovec *iov, size_t n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };

	if (sendmsg(r->udp.fd, &msg, MSG_NOSIGNAL) < 0 && errno == ECONNREFUSED)
		(void)!sendmsg(r->udp.fd, &msg, MSG_NOSIGNAL);
}

void dr_tcp_rail_dgram(struct dr_rail *br, const void *data, size_t len)
{
	struct tcp_rail *r = tcp_rail(br);

	dr_dassert(len <= DR_DGRAM_MAX);
	if (r->closed || !r->has_peer || (!r->udp_connected && udp_connect(r)) ||
		!dr_known_may_send(&r->limit, len, false))
		return;
	r->limit.answered += len;
	send_dgram(r, &(struct iovec){ (void *)data, len }, 1);
}

void dr_tcp_rail_padded(struct dr_rail *br, const void *data, size_t len, uint32_t size)
{
	static uint8_t zeros[UINT16_MAX];
	struct tcp_rail *r = tcp_rail(br);
	struct iovec iov[2] = { { (void *)data, len }, { zeros, size - len } };

	dr_assert(size > len && size <= UINT16_MAX);
	if (!r->closed && r->udp_connected && dr_known_may_send(&r->limit, size, true))
		send_dgram(r, iov, 2);
}

static void read_dgrams(struct tcp_rail *r)
{
	uint8_t buf[DR_DGRAM_MAX];

	for (int i = 0; i < DGRAM_BATCH && !r->closed; i++) {
		ssize_t n = recv(r->udp.fd, buf, sizeof(buf), MSG_TRUNC);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) { /* an ICMP error, or nothing of ours */
			r->n_events++;
			continue;
		}
		r->limit.heard += (size_t)n;
		struct dr_event ev = { .kind = DR_EV_DGRAM,
			.rail = &r->base,
			.data = buf,
			.len = (uint32_t)DR_MIN((size_t)n, sizeof(buf)),
			.size = (uint32_t)n };
		r->n_events++;
		r->sink->event(r->sink, &ev);
	}
}

static void udp_retry(struct tcp_rail *r, int64_t now_ns)
{
	if (!r->has_peer || r->udp_connected || now_ns < r->udp_next_ns)
		return;
	r->udp_next_ns = now_ns + UDP_AGAIN_NS;
	(void)udp_connect(r);
}

int dr_tcp_rail_progress(struct dr_rail *br, int64_t now_ns, struct dr_sink *sink)
{
	struct tcp_rail *r = tcp_rail(br);
	bool all = !r->polled;

	if (r->closed)
		return 0;
	r->sink = sink;
	r->n_events = 0;
	udp_retry(r, now_ns);
	if (r->udp_connected && (all || r->udp_fired)) {
		read_dgrams(r);
	}
	if (!r->closed)
		dr_tcp_admit_progress(r, all, now_ns);
	r->polled = r->listener_fired = r->udp_fired = false;
	r->sink = NULL;
	return r->n_events;
}

static void close_pollable(struct tcp_rail *r, struct dr_pollable *po)
{
	if (po->fd < 0)
		return;
	if (r->par.poller)
		dr_poller_del(r->par.poller, po);
	close(po->fd);
	po->fd = -1;
}

void dr_tcp_rail_close(struct dr_rail *br)
{
	struct tcp_rail *r = tcp_rail(br);

	r->closed = true;
	dr_tcp_rail_ask(br, 0, NULL);
	dr_tcp_admit_close(r);
	close_pollable(r, &r->listener);
	close_pollable(r, &r->udp);
}

void dr_tcp_rail_fini(struct dr_rail *br)
{
	struct tcp_rail *r = tcp_rail(br);

	dr_assert(r->n_paths == 0);
	dr_tcp_rail_close(br);
	dr_free(r);
}

int dr_tcp_mr_reg(
	struct dr_rail *r, const struct dr_memory *m, struct dr_mr **out, struct dr_err *e)
{
	int rc = dr_memory_host_only(r, m, e);

	if (rc)
		return rc;
	struct dr_mr *mr = dr_calloc(1, sizeof(*mr));
	if (!mr)
		return dr_err_set(e, -ENOMEM, "rail %u: out of memory", r->index);
	*mr = (struct dr_mr){ .base = m->base, .len = m->len };
	*out = mr;
	return 0;
}

int dr_tcp_mr_dereg(struct dr_rail *r, struct dr_mr *mr)
{
	(void)r;
	dr_free(mr);
	return 0;
}
