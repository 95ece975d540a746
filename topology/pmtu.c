/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/pmtu.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { SMALL = 64 };
/*
 * Kernels limit ICMP answers to one per second and address (net.ipv4.icmp_ratelimit), and resolving a
 * neighbour may take a second. TRIES * ANSWER_MS is longer than both.
 */
enum { TRIES = 6, ANSWER_MS = 250 };
/* IP and UDP headers; the largest payload of an IPv4 datagram. */
enum { HEADERS6 = 48, DATAGRAM_MAX = 65507 };

static int open_probe(const struct dr_netdev_rail *rail, const struct sockaddr *peer)
{
	struct sockaddr_storage from = rail->addr, to;
	bool v6 = peer->sa_family == AF_INET6;
	socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;
	/* Never fragment, and accept ICMP errors that report a smaller MTU. */
	int df = v6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO, room = 4 * DATAGRAM_MAX;

	if (fd < 0)
		return -errno;
	memset(&to, 0, sizeof(to));
	memcpy(&to, peer, len);
	if (v6)
		((struct sockaddr_in6 *)&to)->sin6_port = htons(DR_PMTU_PORT);
	else
		((struct sockaddr_in *)&to)->sin_port = htons(DR_PMTU_PORT);
	if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
		    &df, sizeof(df)) ||
		bind(fd, (struct sockaddr *)&from, len))
		rc = -errno;
	/* As a run does. An old kernel that requires NET_RAW for it uses the route. */
	(void)setsockopt(
		fd, SOL_SOCKET, SO_BINDTODEVICE, rail->ifname, (socklen_t)strlen(rail->ifname));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (rc == 0 && connect(fd, (struct sockaddr *)&to, len))
		rc = -errno;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* The answer: -ECONNREFUSED (the datagram arrived), -EMSGSIZE, another error, or 0: none in time. */
static int answer(int fd)
{
	int64_t until = dr_now_ns() + ANSWER_MS * DR_NS_PER_MS, left;
	char byte;

	while ((left = until - dr_now_ns()) > 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, (int)(left / DR_NS_PER_MS) + 1) <= 0)
			continue;
		/* A datagram as answer proves the same: some process listens there. */
		if (recv(fd, &byte, 1, 0) >= 0)
			return -ECONNREFUSED;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return 0;
}

/* As answer, after up to TRIES datagrams. */
static int try_size(int fd, size_t bytes)
{
	static const char zeros[DATAGRAM_MAX];
	int rc = 0;

	for (unsigned i = 0; i < TRIES && rc == 0; i++) {
		if (send(fd, zeros, bytes, 0) < 0)
			return -errno;
		rc = answer(fd);
	}
	return rc;
}

static unsigned known_mtu(int fd, bool v6)
{
	socklen_t len = sizeof(int);
	int mtu = 0;

	if (getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &len))
		return 0;
	return mtu > 0 ? (unsigned)mtu : 0;
}

static void settle(struct dr_pmtu *out, int small, int large)
{
	if (small != -ECONNREFUSED) {
		out->what = small ? DR_PMTU_ERROR : DR_PMTU_SILENT;
		out->err = small;
	} else if (large == -EMSGSIZE) {
		out->what = DR_PMTU_SMALLER;
	} else {
		out->what = large == -ECONNREFUSED ? DR_PMTU_ARRIVES
			    : large == 0	   ? DR_PMTU_VANISHES
						   : DR_PMTU_ERROR;
		out->err = large;
	}
}

void dr_pmtu_probe(const struct dr_netdev_rail *rail, const struct sockaddr *peer,
	unsigned peer_mtu, struct dr_pmtu *out)
{
	bool v6 = peer->sa_family == AF_INET6;
	unsigned headers = v6 ? HEADERS6 : DR_PMTU_HEADERS4;
	unsigned mtu = peer_mtu ? DR_MIN(rail->mtu, peer_mtu) : rail->mtu;
	size_t whole = DR_MIN(mtu - DR_MIN(headers, mtu), (unsigned)DATAGRAM_MAX);
	int fd = open_probe(rail, peer), large = 0;

	memset(out, 0, sizeof(*out));
	if (fd < 0) {
		out->what = DR_PMTU_ERROR;
		out->err = fd;
		return;
	}
	out->bytes = (unsigned)whole + headers;
	int small = try_size(fd, DR_MIN((size_t)SMALL, whole));
	if (small == -ECONNREFUSED)
		large = try_size(fd, whole);
	/* Small ones must pass afterwards too: otherwise the path is unstable, whatever the size. */
	if (small == -ECONNREFUSED && large == 0)
		small = try_size(fd, DR_MIN((size_t)SMALL, whole));
	settle(out, small, large);
	if (out->what == DR_PMTU_SMALLER)
		out->bytes = known_mtu(fd, v6);
	close(fd);
}
