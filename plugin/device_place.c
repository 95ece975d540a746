/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/device_priv.h"

#include "base/sysfile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the devices are: card, physical port, PCI path, and which one stands in for which. */

void ha_place_of(const struct ha_nics *have, const struct dr_netdev *d, struct ha_place *out)
{
	const struct dr_topo_nic *nic = dr_topo_find_nic(have->topo, d->name);

	snprintf(out->card, sizeof(out->card), "%s", nic ? nic->card : "");
	if (nic && nic->port[0])
		snprintf(out->port, sizeof(out->port), "%s", nic->port);
	else
		snprintf(out->port, sizeof(out->port), "if:%s", d->name);
}

/* ---- guid and port ---- */

/* What has one guid: a card, or a device that is on no card. */
static const char *group_of(const struct ha_place *p)
{
	return p->card[0] ? p->card : p->port;
}

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	for (const uint8_t *b = data; len--; b++)
		h = (h ^ *b) * UINT64_C(0x100000001b3);
	return h;
}

/*
 * Every device of the host in the group counts, not only those that are offered, so that the numbers do not depend on
 * the selection. The lowest MAC tells hosts apart whose cards are in the same slots.
 */
static void identify(
	const struct ha_nics *have, const struct ha_place *own, uint64_t *guid, int *port)
{
	char seen[HA_DEVICES_MAX][sizeof(own->port)]; /* ports before our own one */
	uint8_t mac[6] = { 0 };
	unsigned n_seen = 0, k;
	bool any = false;

	for (size_t i = 0; i < have->n; i++) {
		struct ha_place p;

		ha_place_of(have, &have->dev[i], &p);
		if (strcmp(group_of(&p), group_of(own)) != 0)
			continue;
		if (!any || memcmp(have->dev[i].mac, mac, sizeof(mac)) < 0)
			memcpy(mac, have->dev[i].mac, sizeof(mac));
		any = true;
		for (k = 0; k < n_seen && strcmp(seen[k], p.port) != 0; k++)
			;
		if (k == n_seen && n_seen < DR_ARRAY_LEN(seen) && strverscmp(p.port, own->port) < 0)
			memcpy(seen[n_seen++], p.port, sizeof(seen[0]));
	}
	*guid = hash(UINT64_C(0xcbf29ce484222325), group_of(own), strlen(group_of(own)));
	*guid = hash(*guid, mac, sizeof(mac));
	*port = (int)n_seen + 1;
}

const char *ha_bus_id(const struct ha_nics *have, const struct dr_netdev *d)
{
	const struct dr_topo_nic *nic = dr_topo_find_nic(have->topo, d->name);

	return nic && nic->bus_id[0] ? nic->bus_id : d->pci;
}

static void find_pci(const struct ha_nics *have, const char *bus_id, struct ha_device *out)
{
	char link[DR_SYSFILE_PATH_MAX], real[PATH_MAX];

	snprintf(out->bus_id, sizeof(out->bus_id), "%s", bus_id);
	out->pci_path[0] = '\0';
	if (bus_id[0] &&
		dr_sysfile_path(link, sizeof(link), have->sysfs, "/bus/pci/devices/%s", bus_id) &&
		realpath(link, real) && strlen(real) < sizeof(out->pci_path))
		snprintf(out->pci_path, sizeof(out->pci_path), "%.511s", real);
}

void ha_device_place(const struct ha_nics *have, const struct dr_netdev *d, struct ha_device *out)
{
	struct ha_place own;

	ha_place_of(have, d, &own);
	identify(have, &own, &out->guid, &out->port);
	find_pci(have, ha_bus_id(have, d), out);
}

/* ---- shadows ---- */

static uint8_t distance(const struct dr_topo_nic *a, const struct dr_topo_nic *b)
{
	if (!a || !b || !a->n_places || !b->n_places)
		return DR_DISTANCE_UNKNOWN;
	/* The other port of a card comes after every other card. */
	if (a->card[0] && strcmp(a->card, b->card) == 0)
		return DR_DISTANCE_UNKNOWN;
	return DR_MAX(dr_topo_place_distance(&a->place[0], &b->place[0]), (uint8_t)1);
}

/*
 * The rules by which GPUs get their shadows (dr_locality_choose), with a GPU in the place of each device: it has that
 * device as its primary.
 */
void ha_devices_pair(const struct ha_nics *have, struct ha_devices *d)
{
	static const struct dr_topo none;
	const struct dr_topo_nic *nic[HA_DEVICES_MAX];
	struct dr_locality_choice choice[HA_DEVICES_MAX];
	struct dr_locality l;

	for (unsigned i = 0; i < d->n; i++)
		nic[i] = dr_topo_find_nic(have->topo, d->dev[i].ifname);
	dr_topo_locality(have->topo ? have->topo : &none, NULL, 0, nic, d->n, &l);
	l.n_gpus = d->n;
	for (unsigned i = 0; i < d->n; i++) {
		l.gpu[i].order = (uint16_t)i;
		for (unsigned k = 0; k < d->n; k++)
			l.gpu[i].distance[k] = i == k ? 0 : distance(nic[i], nic[k]);
	}
	bool chosen = dr_locality_choose(&l, NULL, d->n, d->n, choice);
	for (unsigned i = 0; i < d->n; i++) {
		dr_assert(chosen && choice[i].pair[0].primary == i);
		d->dev[i].shadow =
			choice[i].pair[0].shadow == i ? -1 : (int)choice[i].pair[0].shadow;
	}
}
