/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_impl.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * RDMA devices as sysfs shows them: each port's state, speed and GID table, whose entries name their
 * network device. No library and no open device is needed for that.
 */

struct port {
	const char *dir; /* .../infiniband/DEVICE/ports/N */
	const char *device;
	char bus_id[16];
	int up;
	int64_t speed_mbps;
	bool taken; /* a network device stands for it */
};

static bool read_line(const char *dir, const char *name, char *buf, size_t len)
{
	char path[PATH_MAX];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(buf, (int)len, f) != NULL;
	fclose(f);
	if (ok)
		buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

static struct dr_topo_nic *nic_named(struct dr_topo *t, const char *name)
{
	for (unsigned i = 0; i < t->n_nics; i++)
		if (t->nic[i].netdev && !strcmp(t->nic[i].name, name))
			return &t->nic[i];
	return NULL;
}

/* IPoIB: no GID names it, but it is on the same PCI device. */
static struct dr_topo_nic *nic_at(struct dr_topo *t, const char *bus_id)
{
	for (unsigned i = 0; i < t->n_nics; i++)
		if (bus_id[0] && !strcmp(t->nic[i].bus_id, bus_id) && !t->nic[i].rdma[0])
			return &t->nic[i];
	return NULL;
}

/* One entry of the table. The GID of the NIC's address is the one that counts, version 2 before 1. */
static void take_gid(struct dr_topo *t, struct port *p, unsigned index, const char *gid)
{
	char name[64], ifname[64] = "", type[32] = "";
	struct dr_topo_nic *n;
	bool fits;

	snprintf(name, sizeof(name), "gid_attrs/ndevs/%u", index);
	if (!read_line(p->dir, name, ifname, sizeof(ifname)))
		return;
	n = nic_named(t, ifname);
	if (!n || (n->rdma[0] && strcmp(n->rdma, p->device) != 0))
		return;
	snprintf(name, sizeof(name), "gid_attrs/types/%u", index);
	read_line(p->dir, name, type, sizeof(type));
	fits = n->n_addrs && dr_topo_gid_of(gid, &n->addr[0].addr);
	if (!n->gid[0] ||
		(fits && (strstr(type, "v2") || !dr_topo_gid_of(n->gid, &n->addr[0].addr)))) {
		snprintf(n->gid, sizeof(n->gid), "%.47s", gid);
		n->gid_index = (int)index;
	}
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	p->taken = true;
}

static void read_gids(struct dr_topo *t, struct port *p)
{
	static const char none[] = "0000:0000:0000:0000:0000:0000:0000:0000";
	char name[32], gid[64];

	for (unsigned i = 0; i < 65536; i++) {
		snprintf(name, sizeof(name), "gids/%u", i);
		if (!read_line(p->dir, name, gid, sizeof(gid)))
			return;
		if (strcmp(gid, none) != 0)
			take_gid(t, p, i, gid);
	}
}

static void first_gid(const struct port *p, struct dr_topo_nic *n)
{
	char gid[64];

	if (read_line(p->dir, "gids/0", gid, sizeof(gid))) {
		snprintf(n->gid, sizeof(n->gid), "%.47s", gid);
		n->gid_index = 0;
	}
}

/* A port that no network device stands for: shown, but it cannot be a rail without an address. */
static int add_port(struct dr_topo *t, hwloc_topology_t hw, const struct port *p)
{
	hwloc_obj_t pci = p->bus_id[0] ? dr_topo_hw_find(hw, p->bus_id) : NULL;
	struct dr_topo_nic *n = dr_topo_add_nic(t);

	if (!n)
		return -ENOMEM;
	snprintf(n->name, sizeof(n->name), "%s", p->device);
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	n->up = p->up;
	n->speed_mbps = p->speed_mbps;
	first_gid(p, n);
	if (pci)
		dr_topo_nic_at(n, hw, pci, "", strrchr(p->dir, '/') + 1);
	else
		snprintf(n->port, sizeof(n->port), "%.60s/%.8s", p->device,
			strrchr(p->dir, '/') + 1);
	return 0;
}

static int take_port(struct dr_topo *t, hwloc_topology_t hw, struct port *p)
{
	struct dr_topo_nic *n;
	char text[64];

	p->up = -1;
	p->speed_mbps = -1;
	if (read_line(p->dir, "state", text, sizeof(text)))
		p->up = strncmp(text, "4:", 2) == 0;
	if (read_line(p->dir, "rate", text, sizeof(text)))
		p->speed_mbps = (int64_t)(strtod(text, NULL) * 1000);
	read_gids(t, p);
	if (p->taken)
		return 0;
	n = nic_at(t, p->bus_id);
	if (!n)
		return add_port(t, hw, p);
	snprintf(n->rdma, sizeof(n->rdma), "%s", p->device);
	if (n->speed_mbps < 0)
		n->speed_mbps = p->speed_mbps;
	first_gid(p, n);
	return 0;
}

static void bus_id_of(const char *device_dir, char out[16])
{
	char path[PATH_MAX], to[PATH_MAX], *last;
	ssize_t len;

	out[0] = '\0';
	snprintf(path, sizeof(path), "%s/device", device_dir);
	len = readlink(path, to, sizeof(to) - 1);
	if (len <= 0)
		return;
	to[len] = '\0';
	last = strrchr(to, '/');
	last = last ? last + 1 : to;
	if (strlen(last) < 16 && strchr(last, ':'))
		snprintf(out, 16, "%s", last);
}

static int take_device(
	struct dr_topo *t, hwloc_topology_t hw, const char *class, const char *device)
{
	char dir[PATH_MAX / 2], ports[PATH_MAX / 2 + 16], port_dir[PATH_MAX];
	struct port p = { .dir = port_dir, .device = device };
	struct dirent *d;
	int rc = 0;
	DIR *list;

	snprintf(dir, sizeof(dir), "%s/%s", class, device);
	snprintf(ports, sizeof(ports), "%s/ports", dir);
	bus_id_of(dir, p.bus_id);
	list = opendir(ports);
	while (list && rc == 0 && (d = readdir(list))) {
		if (d->d_name[0] == '.')
			continue;
		snprintf(port_dir, sizeof(port_dir), "%s/%.16s", ports, d->d_name);
		p.taken = false;
		rc = take_port(t, hw, &p);
	}
	if (list)
		closedir(list);
	return rc;
}

int dr_topo_rdma(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs, struct dr_err *e)
{
	char class[PATH_MAX / 4];
	struct dirent **names;
	int n, rc = 0;

	snprintf(class, sizeof(class), "%s/class/infiniband", sysfs);
	n = scandir(class, &names, NULL, versionsort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.' && rc == 0)
			rc = take_device(t, hw, class, names[i]->d_name);
		free(names[i]); /* lint-ok: scandir's */
	}
	if (n >= 0)
		free(names); /* lint-ok: scandir's */
	return rc ? dr_err_set(e, rc, "topology: out of memory") : 0;
}
