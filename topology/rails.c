/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/netdev.h"

#include "base/log.h"

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
	struct dr_err *e;
};

static const struct sockaddr *sa_of(const struct dr_netdev_addr *a)
{
	return (const struct sockaddr *)&a->addr;
}

/* First usable address of the control address's family, else of any. */
static const struct dr_netdev_addr *pick_addr(
	const struct dr_netdev *d, const struct sockaddr *control)
{
	const struct dr_netdev_addr *any = NULL;

	for (unsigned i = 0; i < d->n_addrs; i++) {
		const struct dr_netdev_addr *a = &d->addrs[i];

		if (!dr_netdev_addr_usable(d, a, AF_UNSPEC))
			continue;
		if (!control || a->addr.ss_family == control->sa_family)
			return a;
		if (!any)
			any = a;
	}
	return any;
}

static int add(struct choice *c, const struct dr_netdev *d, const struct sockaddr_storage *addr,
	unsigned prefix)
{
	if (c->n == c->cap)
		return dr_err_set(c->e, -E2BIG, "--rails: more than %zu NICs; list fewer", c->cap);
	for (size_t i = 0; i < c->n; i++) {
		if (dr_netdev_addr_equal((const struct sockaddr *)&c->out[i].addr,
			    (const struct sockaddr *)addr)) {
			char text[64];

			dr_netdev_addr_format((const struct sockaddr *)addr, text, sizeof(text));
			return dr_err_set(
				c->e, -EINVAL, "--rails: %s (%s) is listed twice", text, d->name);
		}
		if (!d->loopback && c->out[i].ifindex == d->ifindex)
			dr_warn("rails", "two rails use the device %s: its failure takes both down",
				d->name);
	}
	struct dr_netdev_rail *r = &c->out[c->n++];
	memset(r, 0, sizeof(*r));
	snprintf(r->ifname, sizeof(r->ifname), "%s", d->name);
	r->ifindex = d->ifindex;
	r->addr = *addr;
	r->prefix = prefix;
	r->mtu = d->mtu;
	r->speed_mbps = d->speed_mbps;
	r->running = d->running;
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
	const struct dr_netdev_addr *a = pick_addr(d, c->control);
	if (!a)
		return dr_err_set(c->e, -EADDRNOTAVAIL,
			"--rails: device %s has no global address%s; assign one, or write %s@ADDRESS",
			name, d->up ? "" : " (it is down)", name);
	return add(c, d, &a->addr, a->prefix);
}

/* ADDRESS, or NAME@ADDRESS when d is given. */
static int add_addr(struct choice *c, const struct dr_netdev *d, const char *text)
{
	struct sockaddr_storage ss;
	struct dr_netdev found;
	unsigned prefix = 0;
	int rc = dr_netdev_addr_parse(text, &ss);

	if (rc < 0)
		return dr_err_set(c->e, rc, "--rails: '%s' is not an IPv4 or IPv6 address", text);
	rc = dr_netdev_by_addr((const struct sockaddr *)&ss, &found, c->e);
	if (rc < 0)
		return dr_err_prefix(c->e, "--rails");
	if (d && found.ifindex != d->ifindex)
		return dr_err_set(c->e, -EADDRNOTAVAIL,
			"--rails: %s is an address of %s, not of %s", text, found.name, d->name);
	for (unsigned i = 0; i < found.n_addrs; i++) {
		if (dr_netdev_addr_equal(sa_of(&found.addrs[i]), (const struct sockaddr *)&ss))
			prefix = found.addrs[i].prefix;
	}
	if (found.loopback && prefix == 0)
		prefix = 8;
	return add(c, &found, &ss, prefix);
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
		int rc = add_item(c, item);
		if (rc < 0)
			return rc;
		if (s[len] == '\0')
			return 0;
		s += len + 1;
	}
}

/* The control NIC is all there is, but not because the host has no other. */
static void warn_of_management(const struct choice *c, const struct dr_netdev *only)
{
	for (size_t i = 0; i < c->n_devs; i++) {
		const struct dr_netdev *d = &c->devs[i];

		if (d == only || d->loopback || d->running || !d->n_addrs ||
			strcmp(d->kind, "bridge") == 0)
			continue;
		dr_warn("rails",
			"%s carries control and data: no other NIC is up with an address (%s %s)",
			only->name, d->name, d->up ? "has no carrier" : "is down");
		return;
	}
}

static int choose_automatic(struct choice *c)
{
	const struct dr_netdev *spare = dr_netdev_management(c->from);

	for (size_t i = 0; i < c->n_devs; i++) {
		const struct dr_netdev *d = &c->devs[i];
		enum dr_netdev_why why = dr_netdev_refused(c->from, d);
		const struct dr_netdev_addr *a = pick_addr(d, c->control);

		if (why == DR_NETDEV_SLOW)
			dr_info("rails", "%s is not used: %s; list it in --rails to use it",
				d->name, dr_netdev_why_text(why));
		int rc = why ? 0 : add(c, d, &a->addr, a->prefix);
		if (rc < 0)
			return rc;
	}
	if (c->n == 0 && spare) {
		warn_of_management(c, spare);
		return add_name(c, spare->name);
	}
	if (c->n == 0)
		return dr_err_set(c->e, -ENODEV,
			"--rails auto: no device is up with a carrier and a global address; list the "
			"NICs, or use --rails lo@127.0.0.2,lo@127.0.0.3 for a run on one machine");
	return 0;
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

bool dr_netdev_find_management(const struct dr_netdev_choice *want, struct dr_netdev *out)
{
	struct dr_netdev_choice from = *want;
	const struct dr_netdev *found;
	struct dr_netdev *devs = NULL;

	if (dr_netdev_choice_read(&from, &devs, NULL) < 0)
		return false;
	found = dr_netdev_management(&from);
	if (found)
		*out = *found;
	dr_netdev_list_free(devs);
	return found;
}

int dr_netdev_rails(const char *list, const struct sockaddr *control, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e)
{
	const struct dr_netdev_choice want = { .list = list, .control = control };

	return dr_netdev_find_rails(&want, out, cap, e);
}
