/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/topo/dra.h"

#include "base/text.h"

#include <limits.h>
#include <string.h>

struct row {
	const char *claim, *request, *driver, *device, *bus_id, *pcie_root, *interface, *nic;
	int numa, gpu;
};
#define T struct row
#define F(kind_, member, text_, ...)                                                               \
	DR_FIELD(#member, DR_F_##kind_, T, member, .text = (text_), __VA_ARGS__)
static const struct dr_field rows[] = {
	F(TEXT, claim, "ResourceClaim, or the pod's name of a claim from a template"),
	F(TEXT, request, "request of the claim"),
	F(TEXT, driver, "DRA driver"),
	F(TEXT, device, "the driver's name of the device"),
	F(TEXT, bus_id, "PCI address"),
	F(TEXT, pcie_root, "PCIe root, as in resource.kubernetes.io/pcieRoot"),
	F(SINT, numa, "NUMA node", .min = 0, .max = INT_MAX),
	F(TEXT, interface, "network interface in the pod"),
	F(SINT, gpu, "number of the GPU that it is", .min = 0, .max = INT_MAX),
	F(TEXT, nic, "name of the NIC that it is"),
};
DR_FIELDS(dr_dra_fields, "dra", rows, T, .text = "a device that DRA allocated to this pod");
#undef T

json_t *dr_dra_json(const struct dr_dra *d, const struct dr_topo *t)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < d->n; i++) {
		const struct dr_dra_device *x = &d->v[i];
		const struct dr_topo_nic *nic = dr_dra_nic(x, t);
		struct row r = { .claim = x->claim,
			.request = x->request,
			.driver = x->driver,
			.device = x->name,
			.bus_id = x->bus_id,
			.pcie_root = x->pcie_root,
			.numa = x->numa,
			.interface = x->ifname,
			.gpu = dr_dra_gpu(x, t),
			.nic = nic ? nic->name : NULL };

		if (json_array_append_new(list, dr_fields_to_json(&dr_dra_fields, &r))) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

/* ---- table ---- */

static const char *str(const json_t *row, const char *key)
{
	const char *s = json_string_value(json_object_get(row, key));

	return s ? s : "-";
}

static bool is_gpu(const json_t *row)
{
	return json_is_integer(json_object_get(row, "gpu"));
}

static void print_device(const json_t *x, FILE *f)
{
	const json_t *numa = json_object_get(x, "numa"), *gpu = json_object_get(x, "gpu");
	char what[80], name[24] = "-", place[140];

	snprintf(place, sizeof(place), "%.64s/%.64s", str(x, "claim"), str(x, "request"));
	if (json_is_integer(numa))
		snprintf(name, sizeof(name), "%lld", (long long)json_integer_value(numa));
	if (json_is_integer(gpu))
		snprintf(what, sizeof(what), "GPU %lld", (long long)json_integer_value(gpu));
	else
		snprintf(what, sizeof(what), "%.70s", str(x, "nic"));
	fprintf(f, "%-24s %-20s %-13s %-13s %4s %-10s %s\n", place, str(x, "driver"),
		str(x, "bus_id"), str(x, "pcie_root"), name, str(x, "interface"), what);
}

/* The NICs among the devices that are below the same PCIe root as this GPU. */
static void print_alignment(const json_t *list, const json_t *gpu, FILE *f)
{
	const char *root = json_string_value(json_object_get(gpu, "pcie_root"));
	const json_t *x;
	size_t i, n = 0, nics = 0;

	fprintf(f, "GPU %lld ", (long long)json_integer_value(json_object_get(gpu, "gpu")));
	json_array_foreach(list, i, x)
	{
		const char *other = json_string_value(json_object_get(x, "pcie_root"));

		if (is_gpu(x) || !json_is_string(json_object_get(x, "nic")))
			continue;
		nics++;
		if (root && other && strcmp(root, other) == 0)
			fprintf(f, "%s%s", n++ ? ", " : "is aligned with ", str(x, "nic"));
	}
	if (!root)
		fputs("has no attribute pcieRoot: whether a NIC is aligned with it is not known",
			f);
	else if (n)
		fprintf(f, ": PCIe root %s", root);
	else
		fprintf(f,
			"is aligned with no NIC of %zu that were allocated: none is below PCIe root %s",
			nics, root);
	fputc('\n', f);
}

void dr_dra_print(const json_t *list, FILE *f)
{
	const json_t *x;
	size_t i;

	if (!json_array_size(list))
		return;
	fprintf(f, "\n%-24s %-20s %-13s %-13s %4s %-10s %s\n", "DRA claim/request", "driver",
		"bus id", "PCIe root", "NUMA", "interface", "here");
	json_array_foreach(list, i, x) print_device(x, f);
	json_array_foreach(list, i, x) if (is_gpu(x)) print_alignment(list, x, f);
}
