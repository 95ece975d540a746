/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/doctor/peer.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { PORT = 33434, SMALL = 64 };
/*
 * Kernels answer an address that asks too often once a second only (net.ipv4.icmp_ratelimit), and a
 * neighbour's address may take a second to find: what was not answered for longer than that is not.
 */
enum { TRIES = 6, ANSWER_MS = 250 };
/* IP and UDP headers; the most that fits into one datagram of IPv4. */
enum { HEADERS4 = 28, HEADERS6 = 48, DATAGRAM_MAX = 65507 };

static int open_probe(const struct dr_netdev_rail *rail, const struct sockaddr *peer)
{
	struct sockaddr_storage from = rail->addr, to;
	bool v6 = peer->sa_family == AF_INET6;
	socklen_t len = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc = 0;
	/* Never fragmented, and errors that name a smaller MTU are believed. */
	int df = v6 ? IPV6_PMTUDISC_DO : IP_PMTUDISC_DO, room = 4 * DATAGRAM_MAX;

	if (fd < 0)
		return -errno;
	memset(&to, 0, sizeof(to));
	memcpy(&to, peer, len);
	if (v6)
		((struct sockaddr_in6 *)&to)->sin6_port = htons(PORT);
	else
		((struct sockaddr_in *)&to)->sin_port = htons(PORT);
	if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
		    &df, sizeof(df)) ||
		bind(fd, (struct sockaddr *)&from, len))
		rc = -errno;
	/* As the run does it; an old kernel that wants NET_RAW for it goes by the route. */
	(void)setsockopt(
		fd, SOL_SOCKET, SO_BINDTODEVICE, rail->ifname, (socklen_t)strlen(rail->ifname));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (rc == 0 && connect(fd, (struct sockaddr *)&to, len))
		rc = -errno;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* What came back: -ECONNREFUSED (it arrived), -EMSGSIZE, another error, or 0: nothing in time. */
static int answer(int fd)
{
	int64_t until = dr_now_ns() + ANSWER_MS * DR_NS_PER_MS, left;
	char byte;

	while ((left = until - dr_now_ns()) > 0) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (poll(&p, 1, (int)(left / DR_NS_PER_MS) + 1) <= 0)
			continue;
		/* A datagram in answer says as much: somebody listens there after all. */
		if (recv(fd, &byte, 1, 0) >= 0)
			return -ECONNREFUSED;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return 0;
}

/* 0: never answered. */
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

void dr_pmtu_probe(
	const struct dr_netdev_rail *rail, const struct dr_doctor_end *peer, struct dr_pmtu *out)
{
	bool v6 = peer->addr.ss_family == AF_INET6;
	unsigned headers = v6 ? HEADERS6 : HEADERS4;
	unsigned mtu = peer->mtu ? DR_MIN(rail->mtu, peer->mtu) : rail->mtu;
	size_t whole = DR_MIN(mtu - DR_MIN(headers, mtu), (unsigned)DATAGRAM_MAX);
	int fd = open_probe(rail, (const struct sockaddr *)&peer->addr), small, large = 0;

	memset(out, 0, sizeof(*out));
	if (fd < 0) {
		out->what = DR_PMTU_ERROR;
		out->err = fd;
		return;
	}
	out->bytes = (unsigned)whole + headers;
	small = try_size(fd, DR_MIN((size_t)SMALL, whole));
	if (small == -ECONNREFUSED)
		large = try_size(fd, whole);
	/* Small ones must pass afterwards too: else it is the way that comes and goes, not the size. */
	if (small == -ECONNREFUSED && large == 0)
		small = try_size(fd, DR_MIN((size_t)SMALL, whole));
	settle(out, small, large);
	if (out->what == DR_PMTU_SMALLER)
		out->bytes = known_mtu(fd, v6);
	close(fd);
}

void dr_check_pmtu(const struct dr_doctor_nic *nic, const struct dr_doctor_end *peer,
	const struct dr_pmtu *got, struct dr_findings *f)
{
	const char *name = nic->rail.ifname;
	struct dr_finding *x;
	char to[64];

	dr_netdev_addr_format((const struct sockaddr *)&peer->addr, to, sizeof(to));
	switch (got->what) {
	case DR_PMTU_ARRIVES:
		dr_findings_add(f, DR_SEVERITY_OK, "path-mtu", name, "packets of %u bytes reach %s",
			got->bytes, to);
		return;
	case DR_PMTU_SMALLER:
		x = dr_findings_add(f, DR_SEVERITY_WARN, "path-mtu", name,
			"something on the way to %s has a smaller MTU", to);
		dr_finding_found(x, "%u", got->bytes);
		dr_finding_needed(x, "%u", nic->rail.mtu);
		dr_finding_remedy(x, "raise it there, or: ip link set %s mtu %u at both ends", name,
			got->bytes);
		return;
	case DR_PMTU_VANISHES:
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "path-mtu", name,
			"small packets reach %s, those of %u bytes vanish without a word: data stalls "
			"while heartbeats pass",
			to, got->bytes);
		dr_finding_found(x, "less than %u", got->bytes);
		dr_finding_needed(x, "%u at every switch between the ends", got->bytes);
		dr_finding_remedy(x,
			"raise the MTU of the switch's ports; or at both ends: ip link set %s mtu 1500",
			name);
		return;
	case DR_PMTU_SILENT:
		x = dr_findings_add(f, DR_SEVERITY_NOTE, "path-mtu", name,
			"no answer from %s to a datagram on port %d: path MTU not known", to, PORT);
		dr_finding_remedy(x, "a firewall there? ping -M do -s %u -I %s %s",
			nic->rail.mtu - HEADERS4, name, to);
		return;
	case DR_PMTU_ERROR:
		x = dr_findings_add(f, DR_SEVERITY_FAIL, "path-mtu", name,
			"%s is not reached through this rail: %s", to, strerror(-got->err));
		dr_finding_remedy(x, "ip route get %s oif %s; ping -I %s %s", to, name, name, to);
		return;
	}
}
