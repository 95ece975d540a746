/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/mtu_rail.h"

#include "base/source.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Datagrams read in one turn. */
enum { READS = 64 };
/* For a round of the largest packets. */
enum { BUFFER_BYTES = 1 << 20 };
/* For the connection; connections that wait in the kernel; ports tried without a range. Strangers
 * who say nothing wait there, too. Where they do not fit, the client's comes before its bytes. */
enum { WAIT_S = 5, BACKLOG = 1024, ANY_TRIES = 8 };
/* The client dials again, since the kernel repeats a lost SYN only after a second. More than two
 * round trips. */
#define DIAL_NS (250 * DR_NS_PER_MS)

static void set_port(struct sockaddr_storage *sa, uint16_t port, unsigned scope)
{
	dr_sa_set_port(sa, port);
	if (sa->ss_family == AF_INET6)
		((struct sockaddr_in6 *)sa)->sin6_scope_id = scope;
}

/* As a data connection sees the path: never fragmented, and reports of a smaller MTU count. */
static int never_fragment(int fd, bool v6)
{
	int df = v6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO;

	return setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP,
		       v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &df, sizeof(df))
		       ? -errno
		       : 0;
}

/* Returns the port, or -errno. The socket is r's either way. */
static int open_socket(struct dr_mtu_rail *r, int *fd, int type, const char *ifname,
	struct sockaddr_storage sa, uint16_t port)
{
	socklen_t len = sizeof(sa);
	int reuse = type == SOCK_STREAM; /* after connections of an earlier test */

	*fd = socket(sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0)
		return -errno;
	set_port(&sa, port, r->scope);
	if (setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) ||
		setsockopt(*fd, SOL_SOCKET, SO_BINDTODEVICE, ifname, (socklen_t)strlen(ifname)) ||
		bind(*fd, (struct sockaddr *)&sa, dr_sa_len(&sa)) ||
		getsockname(*fd, (struct sockaddr *)&sa, &len))
		return -errno;
	return dr_sa_port(&sa);
}

/* Both sockets, with one port at the end that listens. */
static int open_both(struct dr_mtu_rail *r, const char *ifname,
	const struct sockaddr_storage *local, uint16_t port, bool listens)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)local;
	int room = BUFFER_BYTES, wait_s = WAIT_S;

	memset(r, 0, sizeof(*r));
	r->po.fd = -1;
	snprintf(r->ifname, sizeof(r->ifname), "%s", ifname);
	r->local = *local;
	r->v6 = local->ss_family == AF_INET6;
	if (r->v6 && IN6_IS_ADDR_LINKLOCAL(&s6->sin6_addr))
		r->scope = s6->sin6_scope_id ? s6->sin6_scope_id : if_nametoindex(ifname);
	int rc = open_socket(r, &r->link.fd, SOCK_STREAM, ifname, *local, listens ? port : 0);
	if (rc > 0 && listens &&
		(setsockopt(r->link.fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &wait_s, sizeof(wait_s)) ||
			listen(r->link.fd, BACKLOG)))
		rc = -errno;
	if (rc > 0)
		rc = open_socket(
			r, &r->po.fd, SOCK_DGRAM, ifname, *local, listens ? (uint16_t)rc : port);
	if (rc < 0)
		return rc;
	(void)setsockopt(r->po.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	(void)setsockopt(r->po.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	int df = never_fragment(r->po.fd, r->v6);
	return df ? df : rc;
}

int dr_mtu_rail_open(struct dr_mtu_rail *r, const char *ifname,
	const struct sockaddr_storage *local, uint16_t port_min, uint16_t port_max, bool listens)
{
	unsigned tries = port_min ? port_max - port_min + 1u : ANY_TRIES;
	int rc = -EADDRINUSE;

	for (unsigned i = 0; i < tries && rc == -EADDRINUSE; i++) {
		rc = open_both(r, ifname, local, port_min ? (uint16_t)(port_min + i) : 0, listens);
		if (rc < 0)
			dr_mtu_rail_close(r);
	}
	return rc;
}

/* -EMSGSIZE, from a send or reported by a router: what the kernel knows of the path. */
static void refused(struct dr_mtu_rail *r)
{
	socklen_t len = sizeof(int);
	int mtu = 0;

	if (getsockopt(r->po.fd, r->v6 ? IPPROTO_IPV6 : IPPROTO_IP, r->v6 ? IPV6_MTU : IP_MTU, &mtu,
		    &len) == 0 &&
		mtu > 0)
		dr_mtu_search_refused(&r->search, (uint32_t)mtu);
}

static void send_one(struct dr_mtu_rail *r, const uint8_t head[DR_MTU_DGRAM], uint32_t size)
{
	static const uint8_t zeros[DR_MTU_PACKET_MAX];
	struct iovec iov[] = { { (void *)head, DR_MTU_DGRAM },
		{ (void *)zeros, size - DR_MTU_DGRAM } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	/* An error that is pending from an earlier datagram is returned instead; the next round repeats it. */
	if (sendmsg(r->po.fd, &msg, MSG_NOSIGNAL) < 0 && errno == EMSGSIZE)
		refused(r);
}

static void receive(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct dr_mtu_rail *r = dr_container_of(po, struct dr_mtu_rail, po);
	uint8_t buf[DR_MTU_DGRAM], answer[DR_MTU_DGRAM];

	(void)revents;
	for (unsigned i = 0; i < READS; i++) {
		ssize_t n = recv(po->fd, buf, sizeof(buf), MSG_TRUNC);

		if (n < 0 && errno == EMSGSIZE)
			refused(r);
		if (n < 0 && (errno == EAGAIN || errno == EBADF))
			break;
		if (n >= 0 && dr_mtu_search_receive(&r->search, buf, DR_MIN((size_t)n, sizeof(buf)),
				      (size_t)n, now, answer) > 0)
			send_one(r, answer, sizeof(answer));
	}
}

/* ---- the connection ---- */

static void close_link(struct dr_mtu_rail *r)
{
	if (r->link.fd < 0)
		return;
	dr_poller_del(r->poller, &r->link);
	close(r->link.fd);
	r->link.fd = -1;
}

static void give_up(struct dr_mtu_rail *r, int err)
{
	r->err = err;
	close_link(r);
	r->search.next_ns = DR_NEVER;
}

/* The peer has its address, and the token. */
static void proven(struct dr_mtu_rail *r, int64_t now)
{
	struct dr_mtu_params prm = r->search.prm;
	int rc = dr_poller_add(r->poller, &r->po, EPOLLIN);

	if (rc) {
		give_up(r, rc);
		return;
	}
	close_link(r);
	r->proven = true;
	dr_mtu_search_init(&r->search, &prm, now);
	dr_mtu_rail_tick(r, now);
}

/* Its bytes are here: TCP_DEFER_ACCEPT. What has sent less is closed. */
static void accept_one(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct dr_mtu_rail *r = dr_container_of(po, struct dr_mtu_rail, link);
	struct sockaddr_storage from = { 0 };
	socklen_t len = sizeof(from);
	uint8_t buf[DR_MTU_DGRAM], answer[DR_MTU_DGRAM];
	int fd = accept4(po->fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)revents;
	if (fd < 0)
		return;
	bool peer =
		dr_same_host(&from, &r->peer) && recv(fd, buf, sizeof(buf), 0) == DR_MTU_DGRAM &&
		dr_mtu_search_receive(&r->search, buf, sizeof(buf), sizeof(buf), now, answer) > 0 &&
		send(fd, answer, sizeof(answer), MSG_NOSIGNAL) == DR_MTU_DGRAM;
	close(fd);
	if (peer)
		proven(r, now);
}

static void connected(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct dr_mtu_rail *r = dr_container_of(po, struct dr_mtu_rail, link);
	uint8_t buf[DR_MTU_DGRAM], unused[DR_MTU_DGRAM];
	int err = 0;
	socklen_t len = sizeof(err);
	ssize_t n;

	/* A report of ICMP while it connects is told here alone. */
	if ((revents & EPOLLERR) && getsockopt(po->fd, SOL_SOCKET, SO_ERROR, &err, &len) == 0 &&
		err) {
		give_up(r, -err);
		return;
	}
	if (revents & EPOLLOUT) {
		r->dialled = true;
		dr_mtu_search_proof(&r->search, buf);
		n = send(po->fd, buf, sizeof(buf), MSG_NOSIGNAL);
		(void)dr_poller_mod(r->poller, po, EPOLLIN);
	} else {
		n = recv(po->fd, buf, sizeof(buf), 0);
	}
	if (n != DR_MTU_DGRAM)
		give_up(r, n < 0 ? -errno : -EPROTO);
	else if (revents & EPOLLOUT)
		return;
	else if (dr_mtu_search_receive(&r->search, buf, sizeof(buf), sizeof(buf), now, unused))
		give_up(r, -EPROTO);
	else
		proven(r, now);
}

static int dial(struct dr_mtu_rail *r, struct dr_poller *poller, int64_t now)
{
	const struct sockaddr *to = (const struct sockaddr *)&r->peer;
	int rc = dr_poller_add(poller, &r->link, EPOLLOUT);

	if (rc)
		return rc;
	r->search.next_ns = DR_MIN(now + DIAL_NS, r->until_ns);
	if (connect(r->link.fd, to, dr_sa_len(&r->peer)) && errno != EINPROGRESS) {
		r->poller = poller;
		give_up(r, -errno);
	}
	return 0;
}

/* It is not proven yet. */
static void wait_on(struct dr_mtu_rail *r, int64_t now)
{
	int rc;

	if (now >= r->until_ns) {
		give_up(r, -ETIMEDOUT);
		return;
	}
	r->search.next_ns = r->until_ns;
	if (r->dialled || !r->search.prm.connector)
		return;
	close_link(r);
	rc = open_socket(r, &r->link.fd, SOCK_STREAM, r->ifname, r->local, 0);
	if (rc >= 0)
		rc = dial(r, r->poller, now);
	if (rc < 0)
		give_up(r, rc);
}

int dr_mtu_rail_start(struct dr_mtu_rail *r, struct dr_poller *poller,
	const struct sockaddr_storage *peer, uint16_t port, const struct dr_mtu_params *p,
	int64_t now)
{
	struct dr_mtu_params prm = *p;

	prm.header_bytes = r->v6 ? DR_MTU_HEADERS6 : DR_MTU_HEADERS4;
	prm.full_bytes = DR_MIN(prm.full_bytes, (uint32_t)DR_MTU_PACKET_MAX);
	prm.full_bytes = DR_MAX(prm.full_bytes, prm.header_bytes + DR_MTU_DGRAM);
	if ((peer->ss_family == AF_INET6) != r->v6)
		return -EAFNOSUPPORT;
	r->peer = *peer;
	set_port(&r->peer, port, r->scope);
	dr_mtu_search_init(&r->search, &prm, now);
	if (connect(r->po.fd, (const struct sockaddr *)&r->peer, dr_sa_len(&r->peer))) {
		r->err = -errno; /* no route there */
		r->search.next_ns = DR_NEVER;
		return 0;
	}
	r->po.ready = receive;
	r->link.ready = prm.connector ? connected : accept_one;
	r->until_ns = r->search.next_ns = now + WAIT_S * DR_NS_PER_S;
	int rc = prm.connector ? dial(r, poller, now) : dr_poller_add(poller, &r->link, EPOLLIN);
	if (rc == 0)
		r->poller = poller;
	return rc;
}

int64_t dr_mtu_rail_deadline(const struct dr_mtu_rail *r)
{
	return r->poller ? dr_mtu_search_deadline(&r->search) : DR_NEVER;
}

void dr_mtu_rail_tick(struct dr_mtu_rail *r, int64_t now)
{
	uint8_t buf[DR_MTU_DGRAM];
	uint32_t size;

	if (now < dr_mtu_rail_deadline(r))
		return;
	if (!r->proven) {
		wait_on(r, now);
		return;
	}
	receive(&r->po, 0, now);
	while ((size = dr_mtu_search_next(&r->search, now, buf)) > 0)
		send_one(r, buf, size);
}

void dr_mtu_rail_close(struct dr_mtu_rail *r)
{
	struct dr_pollable *const po[] = { &r->po, &r->link };

	for (size_t i = 0; i < DR_ARRAY_LEN(po); i++) {
		if (r->poller)
			dr_poller_del(r->poller, po[i]);
		if (po[i]->fd > 0)
			close(po[i]->fd);
		po[i]->fd = -1;
	}
	r->poller = NULL;
}
