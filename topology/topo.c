/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/topo_priv.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NICs ---- */

struct dr_topo_nic *dr_topo_add_nic(struct dr_topo *t)
{
	struct dr_topo_nic *p = dr_realloc(t->nic, (t->n_nics + 1) * sizeof(*p));

	if (!p)
		return NULL;
	t->nic = p;
	p = &t->nic[t->n_nics++];
	memset(p, 0, sizeof(*p));
	p->up = -1;
	p->speed_mbps = -1;
	p->gid_index = -1;
	return p;
}

void dr_topo_nic_at(struct dr_topo_nic *n, hwloc_topology_t hw, hwloc_obj_t pci, const char *pf,
	const char *port)
{
	dr_topo_hw_bus_id(pci, n->bus_id);
	dr_topo_hw_place(hw, pci, &n->place[0]);
	n->n_places = 1;
	n->vf = pf[0] != '\0';
	snprintf(n->card, sizeof(n->card), "%s", n->vf ? pf : n->bus_id);
	if (!n->port[0])
		snprintf(n->port, sizeof(n->port), "%.15s/%.40s", n->card, port);
	char *dot = strrchr(n->card, '.');
	if (dot)
		*dot = '\0';
}

struct dr_topo_nic *dr_topo_nic_without_rdma(struct dr_topo *t, const char *bus_id)
{
	for (unsigned i = 0; i < t->n_nics; i++)
		if (bus_id[0] && !strcmp(t->nic[i].bus_id, bus_id) && !t->nic[i].rdma[0])
			return &t->nic[i];
	return NULL;
}

bool dr_topo_gid_of(const char *gid, const struct sockaddr_storage *addr)
{
	uint8_t want[16] = { [10] = 0xff, [11] = 0xff }, got[16];

	if (inet_pton(AF_INET6, gid, got) != 1)
		return false;
	if (addr->ss_family == AF_INET)
		memcpy(want + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
	else
		memcpy(want, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
	return memcmp(want, got, sizeof(want)) == 0;
}

/* ---- create ---- */

/* "eth2" before "eth10"; without a bus id at the end. */
static int by_bus_id_and_name(const void *a, const void *b)
{
	const struct dr_topo_nic *x = a, *y = b;

	if (!x->bus_id[0] != !y->bus_id[0])
		return x->bus_id[0] ? -1 : 1;
	int c = strcmp(x->bus_id, y->bus_id);
	return c ? c : strverscmp(x->name, y->name);
}

static int live_nics(struct dr_topo *t, hwloc_topology_t hw, const char *sysfs, struct dr_err *e)
{
	struct dr_netdev *devs;
	size_t n;
	int rc = dr_netdev_list(&devs, &n, e);

	if (rc)
		return rc;
	rc = dr_topo_live_nics(t, hw, sysfs, devs, n, e);
	dr_netdev_list_free(devs);
	return rc ? rc : dr_topo_rdma(t, hw, sysfs, e);
}

static int fill(struct dr_topo *t, const struct dr_topo_params *p, struct dr_err *e)
{
	const char *sysfs = p->sysfs ? p->sysfs : "/sys";
	hwloc_topology_t hw;
	int rc = dr_topo_hw_open(p->xml, &hw, e);

	if (rc)
		return rc;
	rc = dr_topo_hw_gpus(t, hw, p, e);
	if (rc == 0 && t->live)
		rc = live_nics(t, hw, sysfs, e);
	if (rc == 0 && !t->live)
		rc = dr_topo_xml_nics(t, hw, e);
	hwloc_topology_destroy(hw);
	if (t->n_nics)
		qsort(t->nic, t->n_nics, sizeof(*t->nic), by_bus_id_and_name);
	return rc;
}

int dr_topo_create(const struct dr_topo_params *p, struct dr_topo **out, struct dr_err *e)
{
	struct dr_topo *t = dr_calloc(1, sizeof(*t));

	if (!t)
		return dr_err_set(e, -ENOMEM, "topology: out of memory");
	t->live = !p->xml;
	snprintf(t->source, sizeof(t->source), "%s", p->xml ? p->xml : "this machine");
	int rc = fill(t, p, e);
	if (rc) {
		dr_topo_destroy(t);
		return rc;
	}
	*out = t;
	return 0;
}

void dr_topo_destroy(struct dr_topo *t)
{
	if (!t)
		return;
	dr_free(t->gpu);
	dr_free(t->nic);
	dr_free(t);
}

/* ---- distances ---- */

const struct dr_topo_nic *dr_topo_find_nic(const struct dr_topo *t, const char *name)
{
	for (unsigned i = 0; t && i < t->n_nics; i++)
		if (!strcmp(t->nic[i].name, name))
			return &t->nic[i];
	for (unsigned i = 0; t && i < t->n_nics; i++)
		if (t->nic[i].rdma[0] && !strcmp(t->nic[i].rdma, name))
			return &t->nic[i];
	return NULL;
}

uint8_t dr_topo_place_distance(const struct dr_topo_place *a, const struct dr_topo_place *b)
{
	unsigned same = 0;

	while (same < a->n_up && same < b->n_up && a->up[same] == b->up[same])
		same++;
	/* up[0] is the host bridge, up[1] the root port; all below belong to switches. */
	if (same > 2)
		return DR_DISTANCE(DR_LOCALITY_SWITCH, a->n_up - same + b->n_up - same);
	if (same > 0)
		return DR_DISTANCE(DR_LOCALITY_ROOT, 0u);
	if (a->numa < 0 || b->numa < 0)
		return DR_DISTANCE_UNKNOWN;
	return DR_DISTANCE(a->numa == b->numa ? DR_LOCALITY_NODE : DR_LOCALITY_SYSTEM, 0u);
}

uint8_t dr_topo_distance(const struct dr_topo_gpu *gpu, const struct dr_topo_nic *nic)
{
	uint8_t far = 0;

	for (unsigned i = 0; i < nic->n_places; i++)
		far = DR_MAX(far, dr_topo_place_distance(&gpu->place, &nic->place[i]));
	return nic->n_places ? far : DR_DISTANCE_UNKNOWN;
}

int dr_topo_nic_numa(const struct dr_topo_nic *nic)
{
	for (unsigned i = 1; i < nic->n_places; i++)
		if (nic->place[i].numa != nic->place[0].numa)
			return -1;
	return nic->n_places ? nic->place[0].numa : -1;
}

int64_t dr_topo_link_mbps(const struct dr_topo *t, const struct dr_netdev *d)
{
	const struct dr_topo_nic *nic = dr_topo_find_nic(t, d->name);

	int64_t own = dr_netdev_mbps(d->speed_mbps);

	return own > 0 || !nic ? own : dr_netdev_mbps(nic->speed_mbps);
}

void dr_topo_netdevs(const struct dr_topo *t, struct dr_netdev *out)
{
	for (unsigned i = 0; i < t->n_nics; i++) {
		const struct dr_topo_nic *nic = &t->nic[i];

		out[i] = (struct dr_netdev){ .ifindex = (int)i + 1,
			.up = true,
			.running = nic->up != 0,
			.mtu = nic->mtu,
			.speed_mbps = nic->speed_mbps,
			.master = nic->slave ? -1 : 0,
			.n_addrs = DR_MAX(nic->n_addrs, 1u) };
		out[i].addrs[0].global = true;
		for (unsigned k = 0; k < nic->n_addrs; k++)
			out[i].addrs[k] = nic->addr[k];
		snprintf(out[i].name, sizeof(out[i].name), "%.15s", nic->name);
	}
}

/* ---- input of dr_locality_choose ---- */

static const struct dr_topo_gpu *gpu_at(const struct dr_topo *t, unsigned i)
{
	return i < t->n_gpus ? &t->gpu[i] : NULL;
}

/* GPUs without a place come last, by number. */
static bool gpu_before(const struct dr_topo *t, unsigned a, unsigned b)
{
	const struct dr_topo_gpu *x = gpu_at(t, a), *y = gpu_at(t, b);

	if (x && y)
		return strcmp(x->bus_id, y->bus_id) < 0;
	return !x != !y ? !!x : a < b;
}

static void number_gpus(const struct dr_topo *t, const unsigned *gpu, unsigned n,
	const struct dr_topo_nic *const *nic, struct dr_locality *out)
{
	out->n_gpus = n;
	for (unsigned k = 0; k < n; k++) {
		const struct dr_topo_gpu *g = gpu_at(t, gpu[k]);

		for (unsigned j = 0; j < n; j++)
			out->gpu[k].order += gpu_before(t, gpu[j], gpu[k]);
		for (unsigned r = 0; r < out->n_nics; r++)
			out->gpu[k].distance[r] =
				g && nic[r] ? dr_topo_distance(g, nic[r]) : DR_DISTANCE_UNKNOWN;
	}
}

/* 1 + index of the first NIC with the same text as the r-th; 0 when the text is empty. */
static uint16_t first_like(const struct dr_topo_nic *const *nic, unsigned r, size_t field)
{
	const char *text = (const char *)nic[r] + field;
	unsigned i = 0;

	if (!text[0])
		return 0;
	while (!nic[i] || strcmp((const char *)nic[i] + field, text))
		i++;
	return (uint16_t)(i + 1);
}

static uint16_t branch_of(const struct dr_topo_nic *nic)
{
	const struct dr_topo_place *p = &nic->place[0];

	for (unsigned i = 0; i < nic->n_places; i++)
		if (nic->place[i].n_up < 3 || nic->place[i].up[2] != p->up[2])
			return 0;
	return nic->n_places ? (uint16_t)p->up[2] : 0;
}

void dr_topo_locality(const struct dr_topo *t, const unsigned *gpu, unsigned n_gpus,
	const struct dr_topo_nic *const *nic, unsigned n_nics, struct dr_locality *out)
{
	dr_assert(n_gpus <= DR_LOCALITY_GPUS_MAX && n_nics <= DR_LOCALITY_NICS_MAX);
	memset(out, 0, sizeof(*out));
	out->n_nics = n_nics;
	for (unsigned r = 0; r < n_nics; r++) {
		struct dr_locality_nic *l = &out->nic[r];

		/* t->nic is sorted; NICs that are not in it come last, by number. */
		l->order = (uint16_t)(nic[r] ? (unsigned)(nic[r] - t->nic) : t->n_nics + r);
		if (!nic[r])
			continue;
		l->port = first_like(nic, r, offsetof(struct dr_topo_nic, port));
		l->card = first_like(nic, r, offsetof(struct dr_topo_nic, card));
		l->branch = branch_of(nic[r]);
	}
	number_gpus(t, gpu, n_gpus, nic, out);
}
