/* SPDX-License-Identifier: Apache-2.0 */
#include "base/source.h"

#include "base/defs.h"
#include "base/limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVE_MAX = 256, RESERVE_PART = 4 };

socklen_t dr_sa_len(const struct sockaddr_storage *sa)
{
	return sa->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* The port is at the same place in both families. */
uint16_t dr_sa_port(const struct sockaddr_storage *sa)
{
	return ntohs(((const struct sockaddr_in *)sa)->sin_port);
}

void dr_sa_set_port(struct sockaddr_storage *sa, uint16_t port)
{
	((struct sockaddr_in *)sa)->sin_port = htons(port);
}

bool dr_sa_lacks_scope(const struct sockaddr_storage *sa)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	return sa->ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr) &&
	       in6->sin6_scope_id == 0;
}

unsigned dr_host_bytes(const struct sockaddr_storage *a, uint8_t out[16])
{
	const struct sockaddr_in6 *s6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *s4 = (const struct sockaddr_in *)a;

	if (a->ss_family == AF_INET) {
		memcpy(out, &s4->sin_addr, 4);
		return 4;
	}
	if (a->ss_family != AF_INET6)
		return 0;
	memcpy(out, &s6->sin6_addr, 16);
	if (!IN6_IS_ADDR_V4MAPPED(&s6->sin6_addr))
		return 16;
	memmove(out, out + 12, 4);
	return 4;
}

static bool covers(const struct dr_network *w, const uint8_t *addr)
{
	unsigned whole = w->bits / 8, rest = w->bits % 8;

	if (memcmp(w->addr, addr, whole) != 0)
		return false;
	return rest == 0 || (w->addr[whole] ^ addr[whole]) >> (8 - rest) == 0;
}

/* Bits behind the prefix are likely a mistake in its length. */
static bool has_host_bits(const struct dr_network *w)
{
	for (unsigned bit = w->bits; bit < w->bytes * 8u; bit++)
		if (w->addr[bit / 8] & (0x80u >> bit % 8))
			return true;
	return false;
}

static bool parse_bits(const char *text, unsigned max, uint8_t *out)
{
	char *end;
	unsigned long v;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, 10);
	if (*end || errno || v > max)
		return false;
	*out = (uint8_t)v;
	return true;
}

static int parse_one(char *text, struct dr_network *out, struct dr_err *e)
{
	char *slash = strchr(text, '/');

	if (slash)
		*slash = '\0';
	*out = (struct dr_network){ 0 };
	if (inet_pton(AF_INET, text, out->addr) == 1)
		out->bytes = 4;
	else if (inet_pton(AF_INET6, text, out->addr) == 1 &&
		 !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)out->addr))
		out->bytes = 16;
	else
		return dr_err_set(e, -EINVAL,
			"\"%.60s\" is not an IPv4 or IPv6 address (mapped: give the IPv4 one); give networks as 10.0.0.0/8",
			text);
	out->bits = (uint8_t)(out->bytes * 8);
	if (slash && !parse_bits(slash + 1, out->bits, &out->bits))
		return dr_err_set(e, -EINVAL, "\"%.60s/%.20s\": the prefix length is 0 to %u", text,
			slash + 1, out->bytes * 8u);
	if (has_host_bits(out))
		return dr_err_set(e, -EINVAL,
			"\"%.60s/%u\": bits behind the prefix are set; give the network's address",
			text, out->bits);
	return 0;
}

int dr_networks_parse(const char *text, struct dr_networks *out, struct dr_err *e)
{
	char item[80];

	out->n = 0;
	do {
		size_t len = strcspn(text, ",");
		if (out->n == DR_NETWORKS_MAX)
			return dr_err_set(e, -ERANGE, "more than %d networks", DR_NETWORKS_MAX);
		snprintf(item, sizeof(item), "%.*s", (int)DR_MIN(len, sizeof(item) - 1), text);
		int rc = parse_one(item, &out->v[out->n], e);
		if (rc)
			return rc;
		out->n++;
		text += len;
	} while (*text++ == ',');
	return 0;
}

bool dr_networks_have(const struct dr_networks *l, const struct sockaddr_storage *a)
{
	uint8_t addr[16];
	unsigned bytes = dr_host_bytes(a, addr);

	for (unsigned i = 0; i < l->n; i++)
		if (l->v[i].bytes == bytes && covers(&l->v[i], addr))
			return true;
	return false;
}

bool dr_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	uint8_t x[16], y[16];
	unsigned bytes = dr_host_bytes(a, x);

	return bytes && bytes == dr_host_bytes(b, y) && memcmp(x, y, bytes) == 0;
}

bool dr_files_scarce(int fd)
{
	uint64_t limit = dr_limit_files(0);

	return (uint64_t)fd >= limit - DR_MIN(limit / RESERVE_PART, (uint64_t)RESERVE_MAX);
}
