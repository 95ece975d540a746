/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device metadata of DRA: a file with anything in it is refused with a reason and appends nothing, or its devices have
 * clean texts that end. The metadata after an object of an unknown version is read as if it stood alone.
 */
#include "orchestrator/topo/dra.h"

#include "base/text.h"
#include "tests/fuzz/lib/fuzz.h"

static void check_text(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	dr_assert(n < size && dr_text_is_clean(s, n));
}

static void check(const struct dr_dra_device *x)
{
	check_text(x->claim, sizeof(x->claim));
	check_text(x->request, sizeof(x->request));
	check_text(x->driver, sizeof(x->driver));
	check_text(x->name, sizeof(x->name));
	check_text(x->bus_id, sizeof(x->bus_id));
	check_text(x->pcie_root, sizeof(x->pcie_root));
	check_text(x->ifname, sizeof(x->ifname));
	dr_assert(x->numa >= -1);
}

FUZZ(z)
{
	static const char before[] =
		"{\"apiVersion\":\"metadata.resource.k8s.io/v9\",\"kind\":\"DeviceMetadata\"}\n";
	static const struct dr_topo nothing = { 0 };
	struct dr_dra alone = { 0 }, behind = { 0 };
	const size_t skip = sizeof(before) - 1;
	struct dr_err e = { 0 };
	size_t len;
	char *one = (char *)fz_bytes(z, z->n, &len), *two = fz_alloc(z, skip + len);
	bool bad = fz_failed(dr_dra_parse(&alone, "claim", one, len, &e), &e);
	json_t *list = dr_dra_json(&alone, &nothing);

	dr_assert(!bad || alone.n == 0);
	dr_assert(json_array_size(list) == alone.n);
	json_decref(list);
	memcpy(two, before, skip);
	memcpy(two + skip, one, len);
	dr_assert((dr_dra_parse(&behind, "claim", two, skip + len, &e) != 0) == bad);
	dr_assert(behind.n == alone.n);
	for (size_t i = 0; i < alone.n; i++) {
		check(&alone.v[i]);
		dr_assert(memcmp(&behind.v[i], &alone.v[i], sizeof(alone.v[i])) == 0);
	}
	dr_dra_free(&alone);
	dr_dra_free(&behind);
}
