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

/* First global address of the control address's family, else of any; a loopback's any address. */
static const struct dr_netdev_addr *pick_addr(
	const struct dr_netdev *d, const struct sockaddr *control)
{
	const struct dr_netdev_addr *any = NULL;

	for (unsigned i = 0; i < d->n_addrs; i++) {
		const struct dr_netdev_addr *a = &d->addrs[i];

		if (!a->global && !d->loopback)
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
	char names[120] = "";
	size_t at = 0;

	for (size_t i = 0; i < c->n_devs && at < sizeof(names); i++)
		at += (size_t)snprintf(names + at, sizeof(names) - at, " %s", c->devs[i].name);
	return dr_err_set(c->e, -ENODEV,
		"--rails: '%s' is neither a device nor an address of this host; devices:%s", name,
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

static bool is_control(const struct dr_netdev *d, const struct sockaddr *control)
{
	for (unsigned i = 0; control && i < d->n_addrs; i++) {
		if (dr_netdev_addr_equal(sa_of(&d->addrs[i]), control))
			return true;
	}
	return false;
}

bool dr_netdev_too_slow(int64_t mbps, int64_t fastest_mbps)
{
	return mbps > 0 && mbps < fastest_mbps / 2;
}

static bool is_candidate(const struct dr_netdev_choice *f, const struct dr_netdev *d)
{
	return !d->loopback && d->running && pick_addr(d, f->control);
}

/* Of the candidates without this one. */
static int64_t fastest(const struct dr_netdev_choice *f, const struct dr_netdev *but)
{
	int64_t mbps = -1;

	for (size_t i = 0; i < f->n_devs; i++)
		if (&f->devs[i] != but && is_candidate(f, &f->devs[i]))
			mbps = DR_MAX(mbps, f->devs[i].speed_mbps);
	return mbps;
}

static bool one_is_slower(const struct dr_netdev_choice *f, int64_t mbps)
{
	for (size_t i = 0; i < f->n_devs; i++)
		if (is_candidate(f, &f->devs[i]) && dr_netdev_too_slow(f->devs[i].speed_mbps, mbps))
			return true;
	return false;
}

static const struct dr_netdev *find_control(const struct dr_netdev_choice *f)
{
	for (size_t i = 0; i < f->n_devs; i++)
		if (is_candidate(f, &f->devs[i]) && is_control(&f->devs[i], f->control))
			return &f->devs[i];
	return NULL;
}

const struct dr_netdev *dr_netdev_management(const struct dr_netdev_choice *f)
{
	const struct dr_netdev *c = find_control(f);

	if (!c || f->reserve_control)
		return c;
	int64_t others = fastest(f, c);
	bool known = c->speed_mbps > 0 && others > 0;
	if (dr_netdev_too_slow(c->speed_mbps, others))
		return c;
	if (known && one_is_slower(f, DR_MAX(c->speed_mbps, others)))
		return NULL;
	for (size_t i = 0; i < f->n_devs; i++)
		if (is_candidate(f, &f->devs[i]) && f->devs[i].ifindex == f->default_ifindex)
			return &f->devs[i];
	return known ? NULL : c;
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
	int64_t fastest_mbps = fastest(c->from, spare);

	for (size_t i = 0; i < c->n_devs; i++) {
		const struct dr_netdev *d = &c->devs[i];
		const struct dr_netdev_addr *a = pick_addr(d, c->control);

		if (!is_candidate(c->from, d) || d == spare)
			continue;
		if (dr_netdev_too_slow(d->speed_mbps, fastest_mbps)) {
			dr_info("rails",
				"%s is not used: %lld Mb/s, the fastest has %lld Mb/s; list it in --rails to use it",
				d->name, (long long)d->speed_mbps, (long long)fastest_mbps);
			continue;
		}
		int rc = add(c, d, &a->addr, a->prefix);
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

/* Free *devs with dr_netdev_list_free. */
static int read_host(struct dr_netdev_choice *from, struct dr_netdev **devs, struct dr_err *e)
{
	int rc = dr_netdev_list(devs, &from->n_devs, e);

	from->devs = *devs;
	if (rc == 0 && from->control)
		from->default_ifindex = dr_netdev_default(from->control->sa_family);
	return rc;
}

int dr_netdev_find_rails(const struct dr_netdev_choice *want, struct dr_netdev_rail *out,
	size_t cap, struct dr_err *e)
{
	struct dr_netdev_choice from = *want;
	struct dr_netdev *devs = NULL;
	int rc = read_host(&from, &devs, e);

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

	if (read_host(&from, &devs, NULL) < 0)
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
