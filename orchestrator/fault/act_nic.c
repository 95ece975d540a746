/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/act_nic.h"

#include "base/mem.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

const char *dr_act_nic_split(const char *nic, char *name, size_t cap)
{
	size_t n = strcspn(nic, "@");

	snprintf(name, cap, "%.*s", (int)n, nic);
	return nic[n] ? nic + n + 1 : "";
}

static const struct dr_netdev_addr *choose(const struct dr_netdev *d, const char *address)
{
	struct sockaddr_storage sa;
	bool any = !*address;

	if (!any && dr_netdev_addr_parse(address, &sa))
		return NULL;
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (any ? d->addrs[i].global
			: dr_netdev_addr_equal((const struct sockaddr *)&d->addrs[i].addr,
				  (const struct sockaddr *)&sa))
			return &d->addrs[i];
	return NULL;
}

/* With the first IPv4 address of a subnet the kernel takes the others of it away. */
static bool takes_others(const struct dr_netdev *d, const struct dr_netdev_addr *a)
{
	const struct sockaddr_in *mine = (const struct sockaddr_in *)&a->addr;
	uint32_t mask;

	if (a->addr.ss_family != AF_INET || a->prefix > 32)
		return false;
	mask = a->prefix ? htonl(UINT32_MAX << (32 - a->prefix)) : 0;
	for (unsigned i = 0; i < d->n_addrs; i++) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)&d->addrs[i].addr;

		if (&d->addrs[i] != a && in->sin_family == AF_INET &&
			d->addrs[i].prefix == a->prefix &&
			!((in->sin_addr.s_addr ^ mine->sin_addr.s_addr) & mask))
			return true;
	}
	return false;
}

int dr_act_addr_look(
	struct dr_state *s, const struct dr_netdev *d, const char *address, struct dr_err *e)
{
	const struct dr_netdev_addr *a = choose(d, address);
	char text[64], undo[80];

	if (!a)
		return dr_err_set(e, -EADDRNOTAVAIL, "%s has no %s%s: no address to take away",
			d->name, *address ? "address " : "global address", address);
	dr_netdev_addr_format((const struct sockaddr *)&a->addr, text, sizeof(text));
	if (takes_others(d, a))
		return dr_err_set(e, -EBUSY,
			"%s has other addresses in the subnet of %s, which would go too; remove them "
			"first",
			d->name, text);
	snprintf(undo, sizeof(undo), "%s/%u", text, a->prefix);
	s->undo = dr_strdup(undo);
	if (!s->undo)
		return dr_err_set(e, -ENOMEM, "addr-del: out of memory");
	return dr_netdev_save(d->ifindex, &s->snap, e);
}

static int parse_undo(
	const struct dr_state *s, struct sockaddr_storage *sa, uint64_t *prefix, struct dr_err *e)
{
	char text[80];
	char *slash;

	snprintf(text, sizeof(text), "%s", s->undo ? s->undo : "");
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	if (!slash || dr_netdev_addr_parse(text, sa) ||
		dr_parse_u64(slash + 1, 0, 128, prefix, NULL))
		return dr_err_set(e, -EPROTO, "addr-del: '%.60s' is no address", text);
	return 0;
}

int dr_act_addr_del(const struct dr_state *s, struct dr_err *e)
{
	struct sockaddr_storage sa;
	uint64_t prefix;
	int rc = parse_undo(s, &sa, &prefix, e);

	return rc ? rc
		  : dr_netdev_del_addr(
			    s->ifindex, (const struct sockaddr *)&sa, (unsigned)prefix, e);
}

int dr_act_addr_back(const struct dr_state *s, struct dr_err *e)
{
	struct sockaddr_storage sa;
	uint64_t prefix;
	int rc = parse_undo(s, &sa, &prefix, e);

	if (rc == 0)
		rc = dr_netdev_add_addr(
			s->ifindex, (const struct sockaddr *)&sa, (unsigned)prefix, e);
	if (rc == -EEXIST)
		rc = 0;
	return rc ? rc : dr_netdev_restore(s->ifindex, &s->snap, e);
}
