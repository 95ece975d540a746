/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct choice {
	const struct dr_netdev_choice *from;
	const struct dr_netdev *devs;
	size_t n_devs;
	const struct sockaddr *control;
	struct dr_netdev_rail *out;
	size_t n, cap;
	unsigned nics; /* that have addresses in out */
	struct dr_err *e;
};

static const struct sockaddr *sa_of(const struct dr_netdev_addr *a)
{
	return (const struct sockaddr *)&a->addr;
}

/* Of the NIC number c->nics. Beyond the capacity addresses are left out. */
static void add(struct choice *c, const struct dr_netdev *d, const struct sockaddr_storage *addr,
	unsigned prefix, enum dr_nic_rank rank)
{
	struct dr_netdev_rail *r = &c->out[c->n];

	if (c->n == c->cap)
		return;
	c->n++;
	*r = (struct dr_netdev_rail){ .ifindex = d->ifindex,
		.nic = c->nics,
		.rank = rank,
		.addr = *addr,
		.prefix = prefix,
		.mtu = d->mtu,
		.speed_mbps = d->speed_mbps,
		.running = d->running };
	snprintf(r->ifname, sizeof(r->ifname), "%s", d->name);
}

/* The device's addresses, those of the control address's family first. Returns their number. */
static size_t add_device(
	struct choice *c, const struct dr_netdev *d, enum dr_nic_rank rank, bool named)
{
	size_t before = c->n;

	for (unsigned k = 0; k < 2 * d->n_addrs; k++) {
		const struct dr_netdev_addr *a = &d->addrs[k % d->n_addrs];
		bool late = c->control && a->addr.ss_family != c->control->sa_family;

		if (late == (k >= d->n_addrs) && (a->global || rank != DR_NIC_NONE) &&
			dr_netdev_addr_usable(d, a, c->from->family, named))
			add(c, d, &a->addr, a->prefix, rank);
	}
	return c->n - before;
}

/* The addresses from `from` on are those of one more NIC that the user names. */
static int end_named(struct choice *c, size_t from)
{
	const struct dr_netdev_rail *r = &c->out[from];
	bool same_device = false;
	char text[64];

	if (c->nics++ == DR_NETDEV_NAMED_MAX || from == c->n)
		return dr_err_set(c->e, -E2BIG, "--rails: more than %d NICs; list fewer",
			DR_NETDEV_NAMED_MAX);
	for (size_t i = 0; i < from; i++) {
		same_device |= c->out[i].ifindex == r->ifindex;
		for (size_t k = from; k < c->n; k++) {
			if (!dr_netdev_addr_equal((const struct sockaddr *)&c->out[i].addr,
				    (const struct sockaddr *)&c->out[k].addr))
				continue;
			dr_netdev_addr_format(
				(const struct sockaddr *)&c->out[k].addr, text, sizeof(text));
			return dr_err_set(
				c->e, -EINVAL, "--rails: %s (%s) is listed twice", text, r->ifname);
		}
	}
	if (same_device && strcmp(r->ifname, "lo") != 0)
		dr_warn("rails", "two rails use the device %s: its failure takes both down",
			r->ifname);
	return 0;
}

static const struct dr_netdev *dev_named(const struct choice *c, const char *name)
{
	for (size_t i = 0; i < c->n_devs; i++) {
		if (!strcmp(c->devs[i].name, name))
			return &c->devs[i];
	}
	return NULL;
}

static int no_device(const struct choice *c, const char *name)
{
	char names[160];

	dr_netdev_names(c->devs, c->n_devs, names, sizeof(names));
	return dr_err_set(c->e, -ENODEV,
		"--rails: '%s' is neither a device nor an address of this host; devices: %s", name,
		names);
}

static int add_name(struct choice *c, const char *name)
{
	const struct dr_netdev *d = dev_named(c, name);

	if (!d)
		return no_device(c, name);
	if (!add_device(c, d, DR_NIC_RAIL, true))
		return dr_err_set(c->e, -EADDRNOTAVAIL,
			"--rails: device %s has no global address%s; assign one, or write %s@ADDRESS",
			name, d->up ? "" : " (it is down)", name);
	return 0;
}

static bool prefix_at(const struct dr_netdev *d, const struct sockaddr_storage *ss, unsigned *out)
{
	for (unsigned i = 0; i < d->n_addrs; i++)
		if (dr_netdev_addr_equal(sa_of(&d->addrs[i]), (const struct sockaddr *)ss)) {
			*out = d->addrs[i].prefix;
			return true;
		}
	return false;
}

/* ADDRESS, or NAME@ADDRESS when d is given: several devices may have the address. */
static int add_addr(struct choice *c, const struct dr_netdev *d, const char *text)
{
	struct sockaddr_storage ss;
	struct dr_netdev found;
	unsigned prefix = 0;
	int rc = dr_netdev_addr_parse(text, &ss);

	if (rc < 0)
		return dr_err_set(c->e, rc, "--rails: '%s' is not an IPv4 or IPv6 address", text);
	bool own = d && prefix_at(d, &ss, &prefix);
	rc = own ? 0 : dr_netdev_by_addr((const struct sockaddr *)&ss, &found, c->e);
	if (rc < 0)
		return dr_err_prefix(c->e, "--rails");
	if (!own && d && found.ifindex != d->ifindex)
		return dr_err_set(c->e, -EADDRNOTAVAIL,
			"--rails: %s is an address of %s, not of %s", text, found.name, d->name);
	if (!own && !prefix_at(&found, &ss, &prefix) && found.loopback)
		prefix = 8;
	add(c, own ? d : &found, &ss, prefix, DR_NIC_RAIL);
	return 0;
}

static int add_item(struct choice *c, char *item)
{
	char *at = strchr(item, '@');
	struct sockaddr_storage ss;

	if (!*item)
		return dr_err_set(c->e, -EINVAL,
			"--rails: empty item; write DEVICE, ADDRESS or DEVICE@ADDRESS, "
			"separated by commas");
	if (at) {
		*at = '\0';
		const struct dr_netdev *d = dev_named(c, item);
		return d ? add_addr(c, d, at + 1) : no_device(c, item);
	}
	if (dr_netdev_addr_parse(item, &ss) == 0)
		return add_addr(c, NULL, item);
	return add_name(c, item);
}

static int choose_listed(struct choice *c, const char *list)
{
	const char *s = list;

	for (;;) {
		size_t len = strcspn(s, ",");
		char item[128];

		if (len >= sizeof(item))
			return dr_err_set(c->e, -EINVAL, "--rails: item too long: %.40s...", s);
		memcpy(item, s, len);
		item[len] = '\0';
		size_t from = c->n;
		int rc = add_item(c, item);
		if (rc == 0)
			rc = end_named(c, from);
		if (rc < 0)
			return rc;
		if (s[len] == '\0')
			return 0;
		s += len + 1;
	}
}

/* By rank; hardware before virtual devices, of which most lead into this host. */
static unsigned turn_of(const struct dr_netdev *d, enum dr_netdev_why why)
{
	bool virtual = strcmp(d->kind, "veth") == 0 || strncmp(d->kind, "macv", 4) == 0;

	return 2 * dr_netdev_rank(why) + virtual;
}

static int choose_automatic(struct choice *c)
{
	unsigned *turn = dr_calloc(c->n_devs + 1, sizeof(*turn));

	if (!turn)
		return dr_err_set(c->e, -ENOMEM, "--rails auto: out of memory");
	for (size_t i = 0; i < c->n_devs; i++)
		turn[i] = turn_of(&c->devs[i], dr_netdev_refused(c->from, &c->devs[i]));
	for (unsigned t = 0; t < 2 * DR_NIC_RANKS; t++)
		for (size_t i = 0; i < c->n_devs; i++)
			if (turn[i] == t && add_device(c, &c->devs[i], t / 2, false))
				c->nics++;
	dr_free(turn);
	if (c->n == 0 || c->out[0].rank == DR_NIC_NONE)
		return dr_err_set(c->e, -ENODEV,
			"--rails auto: no device is up with a carrier and a global address; list the "
			"NICs, or use --rails lo@127.0.0.2,lo@127.0.0.3 for a run on one machine");
	return 0;
}

unsigned dr_netdev_firsts(struct dr_netdev_rail *rails, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n && rails[i].rank == rails[0].rank; i++)
		if (kept == 0 || rails[i].nic != rails[kept - 1].nic)
			rails[kept++] = rails[i];
	return kept;
}

int dr_netdev_choose(const struct dr_netdev_choice *from, struct dr_netdev_rail *out, size_t cap,
	struct dr_err *e)
{
	struct choice c = { .from = from,
		.devs = from->devs,
		.n_devs = from->n_devs,
		.control = from->control,
		.out = out,
		.cap = cap,
		.e = e };
	bool listed = from->list && strcmp(from->list, "auto") != 0;
	int rc = listed ? choose_listed(&c, from->list) : choose_automatic(&c);

	return rc < 0 ? rc : (int)c.n;
}

int dr_netdev_choice_read(struct dr_netdev_choice *from, struct dr_netdev **devs, struct dr_err *e)
{
	int rc = dr_netdev_list(devs, &from->n_devs, e);

	from->devs = *devs;
	if (rc == 0)
		from->default_ifindex =
			dr_netdev_default(from->control ? from->control->sa_family : AF_INET);
	if (rc == 0 && !from->control && !from->default_ifindex)
		from->default_ifindex = dr_netdev_default(AF_INET6);
	return rc;
}

int dr_netdev_find_rails(const struct dr_netdev_choice *want, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e)
{
	struct dr_netdev_choice from = *want;
	struct dr_netdev *devs = NULL;
	int rc = dr_netdev_choice_read(&from, &devs, e);

	if (rc < 0)
		return rc;
	rc = dr_netdev_choose(&from, out, cap, e);
	dr_netdev_list_free(devs);
	return rc;
}

int dr_netdev_rails(const char *list, const struct sockaddr *control, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e)
{
	const struct dr_netdev_choice want = { .list = list, .control = control };

	return dr_netdev_find_rails(&want, out, cap, e);
}
