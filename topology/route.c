/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/route.h"

#include "base/source.h"
#include "base/units.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A datagram socket that is connected has the source address that the kernel would take. */
static int source_address(const struct sockaddr_storage *peer, struct sockaddr_storage *out)
{
	struct sockaddr_storage to = *peer;
	socklen_t len = sizeof(*out);
	int fd = socket(peer->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = 0;

	if (fd < 0)
		return -errno;
	dr_sa_set_port(&to, 9);
	memset(out, 0, sizeof(*out));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
		getsockname(fd, (struct sockaddr *)out, &len))
		rc = -errno;
	close(fd);
	dr_sa_set_port(out, 0);
	return rc;
}

bool dr_route_bind(struct dr_route *route, const struct sockaddr_storage *from, unsigned n_from)
{
	struct dr_netdev dev;
	unsigned i = 0;

	while (i < n_from && route->peer.ss_family != AF_UNSPEC &&
		from[i].ss_family != route->peer.ss_family)
		i++;
	if (i == n_from)
		return false;
	route->local = from[i];
	dr_sa_set_port(&route->local, 0);
	if (dr_netdev_by_addr((const struct sockaddr *)&from[i], &dev, NULL) == 0)
		snprintf(route->ifname, sizeof(route->ifname), "%s", dev.name);
	return true;
}

static int route_to_addr(
	const struct sockaddr_storage *peer, struct dr_route *out, struct dr_err *e)
{
	struct dr_netdev dev;
	char a[64];

	memset(out, 0, sizeof(*out));
	out->peer = *peer;
	dr_sa_set_port(&out->peer, 0);
	int rc = source_address(peer, &out->local);
	if (rc) {
		dr_netdev_addr_format((const struct sockaddr *)peer, a, sizeof(a));
		return dr_err_set(e, rc, "no route to %s: %s%s", a, strerror(-rc),
			dr_sa_lacks_scope(peer)
				? "; a link-local address needs its interface: ADDRESS%INTERFACE"
				: "");
	}
	if (dr_netdev_by_addr((const struct sockaddr *)&out->peer, &dev, NULL) == 0)
		out->same_host = true;
	if (dr_netdev_by_addr((const struct sockaddr *)&out->local, &dev, NULL) == 0)
		snprintf(out->ifname, sizeof(out->ifname), "%s", dev.name);
	return 0;
}

int dr_route_to(const char *peer, struct dr_route *out, struct dr_err *e)
{
	struct sockaddr_storage sa;
	char host[128];
	uint16_t port = 0;
	int rc = dr_split_host(peer, host, sizeof(host), &port, NULL);

	if (rc || dr_netdev_addr_parse(host, &sa))
		return dr_err_set(e, -EINVAL, "\"%s\" is no address", peer);
	return route_to_addr(&sa, out, e);
}

int dr_route_to_host(const char *host, const struct sockaddr_storage *from, unsigned n_from,
	struct dr_route *out, struct dr_err *e)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
	struct sockaddr_storage sa;
	int rc = getaddrinfo(host, NULL, &hints, &list);

	if (rc)
		return dr_err_set(e, rc == EAI_AGAIN ? -EHOSTDOWN : -ENXIO, "host \"%.100s\": %s%s",
			host, gai_strerror(rc),
			rc == EAI_AGAIN
				? "; check the name server (/etc/resolv.conf), or give an address"
				: "");
	rc = -ENXIO;
	for (struct addrinfo *a = list; a && rc; a = a->ai_next) {
		memset(&sa, 0, sizeof(sa));
		memcpy(&sa, a->ai_addr, DR_MIN((size_t)a->ai_addrlen, sizeof(sa)));
		rc = route_to_addr(&sa, out, e);
		if (rc == 0 && n_from > 0 && !dr_route_bind(out, from, n_from))
			rc = dr_err_set(e, -EADDRNOTAVAIL,
				"no %s address to reach the server %.50s from; name another interface or "
				"another address of the server",
				sa.ss_family == AF_INET ? "IPv4" : "IPv6", host);
	}
	freeaddrinfo(list);
	return rc;
}

struct dr_netdev_choice dr_route_choice(const struct dr_route *route)
{
	bool known = route->local.ss_family != AF_UNSPEC;

	return (struct dr_netdev_choice){ .control = known ? (const struct sockaddr *)&route->local
							   : NULL,
		.reserve_control = route->reserved };
}

int dr_route_rails(const char *list, const struct dr_route *route, struct dr_netdev_rail *out,
	unsigned cap, struct dr_err *e)
{
	if (!list && route->same_host)
		list = "lo@127.0.0.1,lo@127.0.0.2";
	struct dr_netdev_choice want = dr_route_choice(route);

	want.list = list;
	int n = dr_netdev_find_rails(&want, out, cap, e);
	if (n > 0)
		dr_netdev_rail_routes(out, (unsigned)n);
	return n;
}
