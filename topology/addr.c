/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

int dr_netdev_addr_parse(const char *s, struct sockaddr_storage *out)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	const char *percent = strchr(s, '%');
	char host[INET6_ADDRSTRLEN];
	size_t len = percent ? (size_t)(percent - s) : strlen(s);

	if (len >= sizeof(host))
		return -EINVAL;
	memcpy(host, s, len);
	host[len] = '\0';
	if (!percent && inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
	} else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		if (percent && (in6->sin6_scope_id = if_nametoindex(percent + 1)) == 0)
			return -EINVAL;
	} else {
		return -EINVAL;
	}
	*out = ss;
	return 0;
}

void dr_netdev_addr_format(const struct sockaddr *sa, char *buf, size_t len)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
	char host[INET6_ADDRSTRLEN] = "?", ifname[IFNAMSIZ];

	if (sa->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)sa)->sin_addr, host, sizeof(host));
	else if (sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
	if (sa->sa_family == AF_INET6 && in6->sin6_scope_id &&
		if_indextoname(in6->sin6_scope_id, ifname))
		snprintf(buf, len, "%s%%%s", host, ifname);
	else
		snprintf(buf, len, "%s", host);
}

/* An IPv4 address that a dual-stack socket shows as ::ffff:a.b.c.d is that IPv4 address. */
static const void *bytes_of(const struct sockaddr *sa, size_t *len)
{
	if (sa->sa_family == AF_INET) {
		*len = 4;
		return &((const struct sockaddr_in *)sa)->sin_addr;
	}
	if (sa->sa_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;

		*len = IN6_IS_ADDR_V4MAPPED(a) ? 4 : 16;
		return a->s6_addr + (16 - *len);
	}
	*len = 0;
	return NULL;
}

bool dr_netdev_addr_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	size_t na, nb;
	const void *pa = bytes_of(a, &na), *pb = bytes_of(b, &nb);

	return na && na == nb && memcmp(pa, pb, na) == 0;
}
