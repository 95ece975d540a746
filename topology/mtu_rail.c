/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/mtu_rail.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

/* Datagrams read in one turn. */
enum { READS = 64 };
/* For a round of the largest packets. */
enum { BUFFER_BYTES = 1 << 20 };

static socklen_t addr_len(bool v6)
{
	return v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void set_port(struct sockaddr_storage *sa, uint16_t port, unsigned scope)
{
	if (sa->ss_family == AF_INET6) {
		((struct sockaddr_in6 *)sa)->sin6_port = htons(port);
		((struct sockaddr_in6 *)sa)->sin6_scope_id = scope;
	} else {
		((struct sockaddr_in *)sa)->sin_port = htons(port);
	}
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

static int bind_in_range(
	int fd, const struct dr_mtu_rail *r, struct sockaddr_storage sa, unsigned min, unsigned max)
{
	for (unsigned port = min;; port++) {
		set_port(&sa, (uint16_t)port, r->scope);
		if (bind(fd, (struct sockaddr *)&sa, addr_len(r->v6)) == 0)
			break;
		if (errno != EADDRINUSE || port >= max)
			return -errno;
	}
	socklen_t len = sizeof(sa);
	if (getsockname(fd, (struct sockaddr *)&sa, &len))
		return -errno;
	return ntohs(r->v6 ? ((struct sockaddr_in6 *)&sa)->sin6_port
			   : ((struct sockaddr_in *)&sa)->sin_port);
}

int dr_mtu_rail_open(struct dr_mtu_rail *r, const char *ifname,
	const struct sockaddr_storage *local, uint16_t port_min, uint16_t port_max)
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)local;
	int room = BUFFER_BYTES, rc;

	memset(r, 0, sizeof(*r));
	r->v6 = local->ss_family == AF_INET6;
	if (r->v6 && IN6_IS_ADDR_LINKLOCAL(&s6->sin6_addr))
		r->scope = s6->sin6_scope_id ? s6->sin6_scope_id : if_nametoindex(ifname);
	r->po.fd = socket(local->ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (r->po.fd < 0)
		return -errno;
	(void)setsockopt(r->po.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	(void)setsockopt(r->po.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	rc = never_fragment(r->po.fd, r->v6);
	if (rc == 0 && setsockopt(r->po.fd, SOL_SOCKET, SO_BINDTODEVICE, ifname,
			       (socklen_t)strlen(ifname)))
		rc = -errno;
	if (rc == 0)
		rc = bind_in_range(r->po.fd, r, *local, port_min, port_max);
	if (rc < 0)
		dr_mtu_rail_close(r);
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

static bool waits(const struct dr_mtu_rail *r)
{
	return r->search.prm.waits && !r->search.heard;
}

static void receive(struct dr_pollable *po, uint32_t revents, int64_t now)
{
	struct dr_mtu_rail *r = dr_container_of(po, struct dr_mtu_rail, po);
	uint8_t buf[DR_MTU_DGRAM], answer[DR_MTU_DGRAM];

	(void)revents;
	if (waits(r)) {
		struct dr_mtu_params prm = r->search.prm;
		dr_mtu_search_init(&r->search, &prm, now);
	}
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

int dr_mtu_rail_start(struct dr_mtu_rail *r, struct dr_poller *poller,
	const struct sockaddr_storage *peer, uint16_t port, const struct dr_mtu_params *p,
	int64_t now)
{
	struct dr_mtu_params prm = *p;
	struct sockaddr_storage to = *peer;

	prm.header_bytes = r->v6 ? DR_MTU_HEADERS6 : DR_MTU_HEADERS4;
	prm.full_bytes = DR_MIN(prm.full_bytes, (uint32_t)DR_MTU_PACKET_MAX);
	prm.full_bytes = DR_MAX(prm.full_bytes, prm.header_bytes + DR_MTU_DGRAM);
	if ((peer->ss_family == AF_INET6) != r->v6)
		return -EAFNOSUPPORT;
	set_port(&to, port, r->scope);
	if (connect(r->po.fd, (struct sockaddr *)&to, addr_len(r->v6)))
		return -errno;
	r->po.ready = receive;
	int rc = dr_poller_add(poller, &r->po, EPOLLIN);
	if (rc)
		return rc;
	r->poller = poller;
	dr_mtu_search_init(&r->search, &prm, now);
	dr_mtu_rail_tick(r, now);
	return 0;
}

int64_t dr_mtu_rail_deadline(const struct dr_mtu_rail *r)
{
	return r->poller && !waits(r) ? dr_mtu_search_deadline(&r->search) : DR_NEVER;
}

void dr_mtu_rail_tick(struct dr_mtu_rail *r, int64_t now)
{
	uint8_t buf[DR_MTU_DGRAM];
	uint32_t size;

	if (now < dr_mtu_rail_deadline(r))
		return;
	receive(&r->po, 0, now);
	while ((size = dr_mtu_search_next(&r->search, now, buf)) > 0)
		send_one(r, buf, size);
}

void dr_mtu_rail_close(struct dr_mtu_rail *r)
{
	if (r->poller)
		dr_poller_del(r->poller, &r->po);
	r->poller = NULL;
	if (r->po.fd > 0)
		close(r->po.fd);
	r->po.fd = -1;
}
