/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/addr.h"

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

bool dr_netdev_addr_equal(const struct sockaddr *a, const struct sockaddr *b)
{
	struct dr_prefix x, y;

	return dr_prefix_of(a, 0, &x) == 0 && dr_prefix_of(b, 0, &y) == 0 &&
	       memcmp(&x, &y, sizeof(x)) == 0;
}

int dr_prefix_of(const struct sockaddr *sa, unsigned bits, struct dr_prefix *out)
{
	const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;

	memset(out, 0, sizeof(*out));
	out->family = (uint8_t)sa->sa_family;
	out->bits = (uint8_t)bits;
	if (sa->sa_family == AF_INET)
		memcpy(out->addr, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	else if (sa->sa_family == AF_INET6)
		memcpy(out->addr, a, 16);
	else
		return -EINVAL;
	/* An IPv4 address that a dual-stack socket shows as ::ffff:a.b.c.d is that IPv4 address. */
	if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(a)) {
		out->family = AF_INET;
		memset(out->addr, 0, sizeof(out->addr));
		memcpy(out->addr, a->s6_addr + 12, 4);
	}
	return bits > 8 * dr_prefix_len(out) ? -EINVAL : 0;
}

size_t dr_prefix_len(const struct dr_prefix *p)
{
	return p->family == AF_INET ? 4 : 16;
}

void dr_prefix_sockaddr(const struct dr_prefix *p, struct sockaddr_storage *out)
{
	memset(out, 0, sizeof(*out));
	out->ss_family = p->family;
	if (p->family == AF_INET)
		memcpy(&((struct sockaddr_in *)out)->sin_addr, p->addr, 4);
	else
		memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, p->addr, 16);
}

void dr_prefix_mask(struct dr_prefix *p)
{
	for (unsigned i = p->bits; i < 8 * sizeof(p->addr); i++)
		p->addr[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
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
