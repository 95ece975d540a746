/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_priv.h"

#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- list ---- */

static int bus_id(const struct dr_cuda *c, int dev, char *buf, int len, struct dr_err *e)
{
	unsigned result = c->device_get_bus_id(buf, len, dev);

	if (result)
		return dr_cuda_fail(c, result, e, "read the PCI address of GPU %d", dev);
	for (; *buf; buf++)
		*buf = (char)tolower((unsigned char)*buf);
	return 0;
}

static int attribute(
	const struct dr_cuda *c, int dev, unsigned attr, unsigned *out, struct dr_err *e)
{
	int value = 0;
	unsigned result = c->device_get_attribute(&value, attr, dev);

	if (result)
		return dr_cuda_fail(c, result, e, "read attribute %u of GPU %d", attr, dev);
	*out = (unsigned)value;
	return 0;
}

/* A driver that does not know the attribute returns an error: not supported. */
static bool can_dmabuf(const struct dr_cuda *c, int dev)
{
	unsigned yes = 0;

	return c->mem_get_handle_for_address_range &&
	       attribute(c, dev, DR_CUDA_ATTR_DMA_BUF, &yes, NULL) == 0 && yes;
}

static bool keeps_order(const struct dr_cuda *c, int dev)
{
	unsigned scope = 0;

	return attribute(c, dev, DR_CUDA_ATTR_WRITES_ORDERING, &scope, NULL) == 0 &&
	       scope >= DR_CUDA_ORDERED;
}

int dr_gpu_describe(
	const struct dr_cuda *c, unsigned ordinal, struct dr_gpu_info *out, struct dr_err *e)
{
	struct dr_gpu_info g = { .ordinal = ordinal };
	size_t bytes = 0;
	int dev;
	unsigned result = c->device_get(&dev, (int)ordinal);

	if (result == 0)
		result = c->device_get_name(g.name, sizeof(g.name), dev);
	if (result == 0)
		result = c->device_total_mem(&bytes, dev);
	if (result)
		return dr_cuda_fail(c, result, e, "describe GPU %u", ordinal);
	int rc = bus_id(c, dev, g.bus_id, sizeof(g.bus_id), e);
	if (rc == 0)
		rc = attribute(c, dev, DR_CUDA_ATTR_CC_MAJOR, &g.cc_major, e);
	if (rc == 0)
		rc = attribute(c, dev, DR_CUDA_ATTR_CC_MINOR, &g.cc_minor, e);
	if (rc)
		return rc;
	g.memory_bytes = bytes;
	g.dmabuf = can_dmabuf(c, dev);
	g.ordered = keeps_order(c, dev);
	*out = g;
	return 0;
}

int dr_gpu_list(struct dr_gpu_info *out, unsigned cap, struct dr_err *e)
{
	const struct dr_cuda *c;
	int n = 0, rc = dr_cuda_load(&c, e);

	if (rc)
		return rc;
	unsigned result = c->device_get_count(&n);
	if (result == 0 && n == 0)
		result = DR_CUDA_NO_DEVICE;
	if (result)
		return dr_cuda_fail(c, result, e, "list the GPUs");
	for (unsigned i = 0; i < DR_MIN((unsigned)n, cap); i++) {
		rc = dr_gpu_describe(c, i, &out[i], e);
		if (rc)
			return rc;
	}
	return n;
}

/* ---- find ---- */

struct address {
	unsigned domain, bus, slot, function;
};

/* "0000:3b:00.0" or "3b:00.0". */
static bool parse_address(const char *s, struct address *a)
{
	int end = 0;

	if (s[strspn(s, "0123456789abcdefABCDEF:.")])
		return false;
	if (sscanf(s, "%x:%x:%x.%x%n", &a->domain, &a->bus, &a->slot, &a->function, &end) == 4)
		return !s[end];
	a->domain = 0;
	return sscanf(s, "%x:%x.%x%n", &a->bus, &a->slot, &a->function, &end) == 3 && !s[end];
}

static bool same_address(const struct address *a, const struct address *b)
{
	return a->domain == b->domain && a->bus == b->bus && a->slot == b->slot &&
	       a->function == b->function;
}

static int no_such(const struct dr_gpu_info *list, unsigned n, const char *what, struct dr_err *e)
{
	char there[192] = "";

	for (unsigned i = 0; i < n; i++)
		dr_append(there, sizeof(there), "%s%u (%s)", i ? ", " : "", i, list[i].bus_id);
	return dr_err_set(e, -ENODEV, "no such GPU: %s; available: %u GPU%s%s%s", what, n,
		n == 1 ? "" : "s", n ? ": " : "", there);
}

static int find_index(
	const struct dr_gpu_info *list, unsigned n, const char *what, struct dr_err *e)
{
	unsigned i = 0;

	for (const char *p = what; *p; p++) {
		i = i * 10 + (unsigned)(*p - '0');
		if (i >= n)
			return no_such(list, n, what, e);
	}
	return (int)i;
}

int dr_gpu_find(const struct dr_gpu_info *list, unsigned n, const char *what, struct dr_err *e)
{
	struct address wanted, there;

	if (*what && !what[strspn(what, "0123456789")])
		return find_index(list, n, what, e);
	if (!parse_address(what, &wanted))
		return dr_err_set(e, -EINVAL,
			"'%s' is not a GPU: give an index (0) or a PCI address (0000:3b:00.0)",
			what);
	for (unsigned i = 0; i < n; i++)
		if (parse_address(list[i].bus_id, &there) && same_address(&wanted, &there))
			return (int)i;
	return no_such(list, n, what, e);
}
