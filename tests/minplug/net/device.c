/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/minplug/net/net.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Network interfaces as devices. The list is written once and read without a lock afterwards. */

enum { DEVICES_MAX = 64, SPEED_DEFAULT = 10000 };

static struct min_device device[DEVICES_MAX];
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

static int read_speed(const char *name)
{
	char path[128];
	int speed = 0;
	FILE *f;

	(void)snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
	f = fopen(path, "r");
	if (!f)
		return SPEED_DEFAULT;
	if (fscanf(f, "%d", &speed) != 1 || speed <= 0)
		speed = SPEED_DEFAULT;
	(void)fclose(f);
	return speed;
}

/* The directory of the PCI function, which virtio's devices are below; "" if there is none. */
static void find_pci(const char *name, char out[PATH_MAX])
{
	char path[128], *slash;
	unsigned part[4];

	(void)snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
	if (!realpath(path, out))
		out[0] = '\0';
	while ((slash = strrchr(out, '/')) != NULL) {
		if (sscanf(slash, "/%x:%x:%x.%x", &part[0], &part[1], &part[2], &part[3]) == 4)
			return;
		*slash = '\0';
	}
	out[0] = '\0';
}

static struct min_device *find(const char *name)
{
	for (int i = 0; i < n_devices; i++)
		if (strcmp(device[i].name, name) == 0)
			return &device[i];
	return NULL;
}

static struct min_device *add(const struct ifaddrs *i)
{
	struct min_device *d = find(i->ifa_name);

	if (d || n_devices == DEVICES_MAX)
		return d;
	d = &device[n_devices++];
	(void)snprintf(d->name, sizeof(d->name), "%s", i->ifa_name);
	d->index = if_nametoindex(i->ifa_name);
	d->speed = read_speed(i->ifa_name);
	find_pci(i->ifa_name, d->pci_path);
	return d;
}

/* The first address of each family; a link-local one only until another is found. */
static void add_address(struct min_device *d, const struct sockaddr *a)
{
	struct sockaddr_in6 v6;

	if (a->sa_family == AF_INET) {
		if (!d->has_v4)
			memcpy(&d->v4, a, sizeof(d->v4));
		d->has_v4 = true;
		return;
	}
	memcpy(&v6, a, sizeof(v6));
	if (!d->has_v6 ||
		(IN6_IS_ADDR_LINKLOCAL(&d->v6.sin6_addr) && !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)))
		d->v6 = v6;
	d->has_v6 = true;
}

static int by_index(const void *a, const void *b)
{
	const struct min_device *x = a, *y = b;

	return x->index < y->index ? -1 : x->index > y->index;
}

static void scan(const char *names)
{
	struct ifaddrs *list;

	if (getifaddrs(&list) != 0)
		return;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next) {
		struct min_device *d = is_wanted(i, names) ? add(i) : NULL;

		if (d)
			add_address(d, i->ifa_addr);
	}
	freeifaddrs(list);
	qsort(device, n_devices, sizeof(device[0]), by_index);
	for (int i = 0; i < n_devices; i++)
		min_log(MIN_LEVEL_INFO, "device %d is %s, %d Mb/s", i, device[i].name,
			device[i].speed);
}

void min_devices_scan(const char *names)
{
	(void)pthread_mutex_lock(&scan_lock);
	if (!scanned)
		scan(names);
	scanned = true;
	(void)pthread_mutex_unlock(&scan_lock);
}

bool min_interface(const char *name, struct min_device *out)
{
	struct ifaddrs *list;

	memset(out, 0, sizeof(*out));
	if (getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *i = list; i; i = i->ifa_next)
		if (strcmp(i->ifa_name, name) == 0 && is_wanted(i, name))
			add_address(out, i->ifa_addr);
	freeifaddrs(list);
	(void)snprintf(out->name, sizeof(out->name), "%s", name);
	out->index = if_nametoindex(name);
	return out->has_v4 || out->has_v6;
}

int min_devices(void)
{
	return n_devices;
}

const struct min_device *min_device(int dev)
{
	return dev >= 0 && dev < n_devices ? &device[dev] : NULL;
}
