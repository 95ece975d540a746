/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/fault/kind_priv.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* addr-del: the state holds the address as "ADDRESS/PREFIX", and what goes with it. */

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

static int subnet_of(const struct dr_netdev_addr *a, struct dr_prefix *out)
{
	int rc = dr_prefix_of((const struct sockaddr *)&a->addr, a->prefix, out);

	if (rc == 0)
		dr_prefix_mask(out);
	return rc;
}

/* With the first IPv4 address of a subnet the kernel takes the others of it away. */
static bool takes_others(const struct dr_netdev *d, const struct dr_netdev_addr *a)
{
	struct dr_prefix mine, other;

	if (a->addr.ss_family != AF_INET || subnet_of(a, &mine))
		return false;
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (&d->addrs[i] != a && subnet_of(&d->addrs[i], &other) == 0 &&
			memcmp(&mine, &other, sizeof(mine)) == 0)
			return true;
	return false;
}

static void describe(const struct dr_fault_action *a, const char *duration, char *buf, size_t len)
{
	snprintf(buf, len, "remove the IP address of %s%s; then add it again with its routes",
		a->state.nic, duration);
}

static int prepare(struct dr_fault_action *a, const struct dr_fault_nic *nic, struct dr_err *e)
{
	const struct dr_netdev *d = &nic->dev;
	const struct dr_netdev_addr *addr = choose(d, nic->address);
	struct dr_prefix p;
	char text[64];

	if (!addr || dr_prefix_of((const struct sockaddr *)&addr->addr, addr->prefix, &p))
		return dr_err_set(e, -EADDRNOTAVAIL, "%s has no %s%s to remove", d->name,
			nic->address[0] ? "address " : "global address", nic->address);
	dr_prefix_format(&p, text, sizeof(text));
	if (takes_others(d, addr))
		return dr_err_set(e, -EBUSY,
			"%s has other addresses in the subnet of %s, which the kernel would remove too; "
			"remove them first",
			d->name, text);
	a->state.undo = dr_strdup(text);
	if (!a->state.undo)
		return dr_err_set(e, -ENOMEM, "out of memory");
	return dr_netdev_save(d->ifindex, &a->state.snap, e);
}

static int recorded(const struct dr_state *s, struct dr_prefix *p, struct sockaddr_storage *sa,
	struct dr_err *e)
{
	const char *undo = s->undo ? s->undo : "";

	if (dr_prefix_parse(undo, p))
		return dr_err_set(e, -EPROTO, "'%.60s' is not an address with its prefix", undo);
	dr_prefix_sockaddr(p, sa);
	return 0;
}

/* Add or delete the address. */
static int change(const struct dr_state *s,
	int (*fn)(int ifindex, const struct sockaddr *sa, unsigned prefix, struct dr_err *e),
	struct dr_err *e)
{
	struct sockaddr_storage sa;
	struct dr_prefix p;
	int rc = recorded(s, &p, &sa, e);

	return rc ? rc : fn(s->ifindex, (struct sockaddr *)&sa, p.bits, e);
}

static int inject(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	snprintf(r->text, sizeof(r->text), "removed %.80s from %s", a->state.undo, a->state.nic);
	return change(&a->state, dr_netdev_del_addr, e);
}

static int prove(const struct dr_fault_action *a, struct dr_err *e)
{
	struct sockaddr_storage sa;
	struct dr_netdev d;
	struct dr_prefix p;
	int rc = recorded(&a->state, &p, &sa, e);

	if (rc == 0 && dr_netdev_by_addr((struct sockaddr *)&sa, &d, NULL) == 0)
		return dr_err_set(e, -EIO, "%s was added again by another program", a->state.undo);
	return rc;
}

static int undo(struct dr_fault_action *a, struct dr_fault_report *r, struct dr_err *e)
{
	int rc = change(&a->state, dr_netdev_add_addr, e);

	snprintf(r->text, sizeof(r->text), "added %.80s to %s again",
		a->state.undo ? a->state.undo : "?", a->state.nic);
	if (rc == -EEXIST)
		rc = 0;
	return rc ? rc : dr_netdev_restore(a->state.ifindex, &a->state.snap, e);
}

const struct dr_fault_kind dr_fault_kind_addr_del = {
	.name = "addr-del",
	.help = "the IP address of the rail is removed",
	.by = DR_FAULT_BY_GUARD,
	.nic = true,
	.describe = describe,
	.prepare = prepare,
	.inject = inject,
	.prove = prove,
	.undo = undo,
};
