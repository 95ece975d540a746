/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/plugins/net/net.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Network interfaces as devices. The list is written once and read without a lock afterwards. */

enum { DEVICES_MAX = 64 };

static struct fn_device device[DEVICES_MAX];
static int n_devices;
static bool scanned;
static pthread_mutex_t scan_lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether one of the prefixes in list, separated by commas, starts name. */
static bool is_named(const char *list, const char *name)
{
	while (*list) {
		size_t len = strcspn(list, ",");

		if (len > 0 && strncmp(list, name, len) == 0)
			return true;
		list += len;
		list += *list == ',';
	}
	return false;
}

static bool is_wanted(const struct ifaddrs *i, const char *list)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
		return false;
	if (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6)
		return false;
	if (list && *list)
		return is_named(list, i->ifa_name);
	return !(i->ifa_flags & IFF_LOOPBACK);
}

static struct fn_device *find(const char *name)
{
	for (int i = 0; i < n_devices; i++)
		if (strcmp(device[i].name, name) == 0)
			return &device[i];
	return NULL;
}

static struct fn_device *add(const struct ifaddrs *i)
{
	struct fn_device *d = find(i->ifa_name);

	if (d || n_devices == DEVICES_MAX)
		return d;
	d = &device[n_devices++];
	(void)snprintf(d->name, sizeof(d->name), "%s", i->ifa_name);
	d->index = if_nametoindex(i->ifa_name);
	return d;
}

/* The first address of each family; a link-local one only until another is found. */
static void add_address(struct fn_device *d, const struct sockaddr *a)
{
	union fn_address v6;

	if (a->sa_family == AF_INET) {
		if (!d->v4.any.sa_family)
			memcpy(&d->v4, a, sizeof(d->v4.v4));
		return;
	}
	memcpy(&v6, a, sizeof(v6.v6));
	if (!d->v6.any.sa_family || (IN6_IS_ADDR_LINKLOCAL(&d->v6.v6.sin6_addr) &&
					    !IN6_IS_ADDR_LINKLOCAL(&v6.v6.sin6_addr)))
		d->v6 = v6;
}

static int by_index(const void *a, const void *b)
{
	const struct fn_device *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

static void scan(const char *names)
{
	struct ifaddrs *list;

	if (getifaddrs(&list) != 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		struct fn_device *d = is_wanted(i, names) ? add(i) : NULL;

		if (d)
			add_address(d, i->ifa_addr);
	}
	freeifaddrs(list);
	qsort(device, n_devices, sizeof(device[0]), by_index);
	for (int i = 0; i < n_devices; i++)
		fn_log(FN_LEVEL_INFO, "device %d is %s", i, device[i].name);
}

void fn_devices_scan(const char *names)
{
	(void)pthread_mutex_lock(&scan_lock);
	if (!scanned)
		scan(names);
	scanned = true;
	(void)pthread_mutex_unlock(&scan_lock);
}

int fn_devices(void)
{
	return n_devices;
}

const struct fn_device *fn_device(int dev)
{
	return dev >= 0 && dev < n_devices ? &device[dev] : NULL;
}
