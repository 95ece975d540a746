/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device metadata of DRA: a file with anything in it is refused with a reason and appends nothing, or its devices have
 * clean texts that end. The metadata after an object of an unknown version is read as if it stood alone.
 */
#include "orchestrator/topo/dra.h"

#include "base/text.h"
#include "tests/fuzz/lib/fuzz.h"

#include <stdlib.h>

static void check_text(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	dr_assert(n < size && dr_text_is_clean(s, n));
}

static void check(const struct dr_dra *d)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct dr_dra_device *x = &d->v[i];

		check_text(x->claim, sizeof(x->claim));
		check_text(x->request, sizeof(x->request));
		check_text(x->driver, sizeof(x->driver));
		check_text(x->name, sizeof(x->name));
		check_text(x->bus_id, sizeof(x->bus_id));
		check_text(x->pcie_root, sizeof(x->pcie_root));
		check_text(x->ifname, sizeof(x->ifname));
		dr_assert(x->numa >= -1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char before[] =
		"{\"apiVersion\":\"metadata.resource.k8s.io/v9\",\"kind\":\"DeviceMetadata\"}\n";
	static const struct dr_topo nothing = { 0 };
	struct dr_dra alone = { 0 }, behind = { 0 };
	struct dr_err e = { 0 };
	char *text = malloc(sizeof(before) + size);
	int rc = dr_dra_parse(&alone, "claim", (const char *)data, size, &e);

	dr_assert(text);
	if (rc)
		fz_explained(rc, &e);
	dr_assert(rc == 0 || alone.n == 0);
	check(&alone);
	memcpy(text, before, sizeof(before) - 1);
	if (size)
		memcpy(text + sizeof(before) - 1, data, size);
	dr_assert((dr_dra_parse(&behind, "claim", text, sizeof(before) - 1 + size, &e) == 0) ==
		  (rc == 0));
	dr_assert(behind.n == alone.n);
	for (size_t i = 0; i < alone.n; i++)
		dr_assert(memcmp(&behind.v[i], &alone.v[i], sizeof(alone.v[i])) == 0);
	json_t *list = dr_dra_json(&alone, &nothing);
	dr_assert(json_array_size(list) == alone.n);
	json_decref(list);
	dr_dra_free(&alone);
	dr_dra_free(&behind);
	free(text);
	return 0;
}
