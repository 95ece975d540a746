/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/rdv_route.h"

#include <netinet/in.h>
#include <string.h>

/*
 * Pairs of a local and a remote address on one subnet come first. The i-th local address and the m-th remote one that
 * it shares a subnet with have rank i + m, lower i first: after a failure the next try is over another NIC of this host
 * or to another one of the peer, and the first try is over the preferred NIC of this host.
 */

static const uint8_t *bytes_of(const struct dr_addr *a)
{
	if (a->ss.ss_family == AF_INET)
		return (const uint8_t *)&((const struct sockaddr_in *)&a->ss)->sin_addr;
	return (const uint8_t *)&((const struct sockaddr_in6 *)&a->ss)->sin6_addr;
}

static bool link_local(const struct dr_addr *a)
{
	return a->ss.ss_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)&a->ss)->sin6_addr);
}

static bool same_subnet(const struct dr_rdv_addr *a, const struct dr_rdv_addr *b)
{
	if (a->addr.ss.ss_family != b->addr.ss.ss_family || a->prefix != b->prefix)
		return false;
	const uint8_t *x = bytes_of(&a->addr), *y = bytes_of(&b->addr);
	unsigned whole = a->prefix / 8, rest = a->prefix % 8;
	if (memcmp(x, y, whole) != 0)
		return false;
	return rest == 0 || ((x[whole] ^ y[whole]) >> (8 - rest)) == 0;
}

static bool same_address(const struct dr_rdv_addr *a, const struct dr_rdv_addr *b)
{
	size_t len = a->addr.ss.ss_family == AF_INET ? 4 : 16;

	return a->addr.ss.ss_family == b->addr.ss.ss_family &&
	       memcmp(bytes_of(&a->addr), bytes_of(&b->addr), len) == 0;
}

/* Remote address of the local one's m-th shared subnet; NULL: there are fewer. An address that
 * both hosts have, and that of this host itself, is reached without a NIC. */
static const struct dr_rdv_addr *shared(
	const struct dr_rdv_handle *h, const struct dr_rdv_addr *local, unsigned m)
{
	for (unsigned j = 0; j < h->n; j++)
		if (same_subnet(local, &h->addrs[j]) && !same_address(local, &h->addrs[j]) &&
			m-- == 0)
			return &h->addrs[j];
	return NULL;
}

static struct dr_rdv_route route(const struct dr_rdv_addr *to, const struct dr_rdv_addr *from)
{
	struct dr_rdv_route r = { .to = to->addr, .from = from };
	/* A link-local address means another interface at each end. */
	if (link_local(&r.to))
		((struct sockaddr_in6 *)&r.to.ss)->sin6_scope_id = if_nametoindex(from->device);
	return r;
}

unsigned dr_rdv_routes(const struct dr_rdv_handle *h, const struct dr_rdv_addr *local,
	unsigned n_local, struct dr_rdv_route *out)
{
	unsigned n = 0, bound_max = DR_RDV_ROUTES_MAX - DR_RDV_HANDLE_ADDRS_MAX;
	for (unsigned rank = 0; rank < n_local + h->n; rank++)
		for (unsigned i = 0; i <= rank && i < n_local && n < bound_max; i++) {
			const struct dr_rdv_addr *to = shared(h, &local[i], rank - i);
			if (to)
				out[n++] = route(to, &local[i]);
		}
	for (unsigned j = 0; j < h->n; j++)
		if (!link_local(&h->addrs[j].addr))
			out[n++] = route(&h->addrs[j], NULL);
	return n;
}
