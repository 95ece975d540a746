/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/units.h"

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

int dr_prefix_of(const struct sockaddr *sa, unsigned bits, struct dr_prefix *out)
{
	size_t len;
	const void *bytes = bytes_of(sa, &len);

	if (!bytes || bits > 8 * len)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->family = len == 4 ? AF_INET : AF_INET6;
	out->bits = (uint8_t)bits;
	memcpy(out->addr, bytes, len);
	return 0;
}

int dr_prefix_parse(const char *s, struct dr_prefix *out)
{
	const char *slash = strchr(s, '/');
	struct sockaddr_storage sa;
	char host[INET6_ADDRSTRLEN];
	uint64_t bits;

	if (!slash || (size_t)(slash - s) >= sizeof(host))
		return -EINVAL;
	memcpy(host, s, (size_t)(slash - s));
	host[slash - s] = '\0';
	if (dr_parse_u64(slash + 1, 0, 128, &bits, NULL) || dr_netdev_addr_parse(host, &sa))
		return -EINVAL;
	return dr_prefix_of((const struct sockaddr *)&sa, (unsigned)bits, out);
}

void dr_prefix_format(const struct dr_prefix *p, char *buf, size_t len)
{
	char host[INET6_ADDRSTRLEN] = "?";

	inet_ntop(p->family, p->addr, host, sizeof(host));
	snprintf(buf, len, "%s/%u", host, p->bits);
}

bool dr_prefix_holds(const struct dr_prefix *block, const struct dr_prefix *addr)
{
	unsigned whole = block->bits / 8, rest = block->bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	if (block->family != addr->family || memcmp(block->addr, addr->addr, whole) != 0)
		return false;
	return rest == 0 || (block->addr[whole] & mask) == (addr->addr[whole] & mask);
}
