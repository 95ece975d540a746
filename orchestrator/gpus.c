/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/gpus.h"

#include "base/log.h"
#include "base/units.h"
#include "gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { INDEX_MAX = 4095, HOST_DEFAULT = 8 };

/* ---- names ---- */

static bool is_bus_id(const char *s)
{
	return strspn(s, "0123456789abcdefABCDEF:.") == strlen(s) && strchr(s, ':');
}

static bool is_named(const struct dr_gpu_names *l, const char *text)
{
	for (unsigned i = 0; i < l->n; i++)
		if (strcasecmp(l->v[i].text, text) == 0)
			return true;
	return false;
}

static int add(
	struct dr_gpu_names *l, const char *text, bool bus_id, unsigned index, struct dr_err *e)
{
	if (is_named(l, text))
		return dr_err_set(e, -EINVAL, "\"%s\" is named twice", text);
	if (l->n == DR_GPUS_MAX)
		return dr_err_set(e, -ERANGE, "more than %d GPUs", DR_GPUS_MAX);
	snprintf(l->v[l->n].text, sizeof(l->v[0].text), "%s", text);
	l->v[l->n].bus_id = bus_id;
	l->v[l->n++].index = index;
	return 0;
}

static int add_item(struct dr_gpu_names *l, const char *item, struct dr_err *e)
{
	struct dr_opt_list list;
	char text[24];
	int rc;

	if (is_bus_id(item) && strlen(item) < sizeof(text))
		return add(l, item, true, 0, e);
	rc = dr_parse_list(item, INDEX_MAX, list.v, DR_OPT_LIST_MAX, &list.n, NULL);
	if (rc)
		return dr_err_set(e, rc,
			"\"%.40s\" is neither a number nor a PCI bus id; use e.g. 0-3 or 0000:3b:00.0",
			item);
	for (size_t i = 0; i < list.n && rc == 0; i++) {
		snprintf(text, sizeof(text), "%u", list.v[i]);
		rc = add(l, text, false, list.v[i], e);
	}
	return rc;
}

int dr_gpus_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_gpu_names *l = dst;
	char item[64];
	int rc = 0;

	(void)row;
	if (!text) {
		l->n = 0;
		return 0;
	}
	for (const char *p = text; rc == 0; p++) {
		size_t n = strcspn(p, ",");

		snprintf(item, sizeof(item), "%.*s", (int)DR_MIN(n, sizeof(item) - 1), p);
		rc = add_item(l, item, e);
		p += n;
		if (!*p)
			break;
	}
	return rc;
}

bool dr_gpus_numbers(const struct dr_gpu_names *names, struct dr_opt_list *out)
{
	out->n = 0;
	for (unsigned i = 0; i < HOST_DEFAULT && names->n == 0; i++)
		out->v[out->n++] = i;
	for (unsigned i = 0; i < names->n; i++) {
		if (names->v[i].bus_id)
			return false;
		out->v[out->n++] = names->v[i].index;
	}
	return true;
}

/* ---- what they mean ---- */

static int on_host(const struct dr_gpu_names *names, struct dr_opt_list *out, struct dr_err *e)
{
	if (dr_gpus_numbers(names, out))
		return 0;
	return dr_err_set(e, -EINVAL,
		"--gpus: host memory has no PCI bus ids; use numbers, or --memory cuda");
}

static int find(const struct dr_gpu_info *list, unsigned n, const char *text,
	struct dr_opt_list *out, struct dr_err *e)
{
	int at = dr_gpu_find(list, n, text, e);

	if (at < 0) {
		dr_err_prefix(e, "--gpus");
		return at;
	}
	for (size_t i = 0; i < out->n; i++)
		if (out->v[i] == (unsigned)at)
			return dr_err_set(e, -EINVAL,
				"--gpus: \"%s\" is GPU %d, which is named twice", text, at);
	out->v[out->n++] = (unsigned)at;
	return 0;
}

static int on_gpus(const struct dr_gpu_names *names, const struct dr_gpu_info *list, unsigned n,
	struct dr_opt_list *out, struct dr_err *e)
{
	int rc = 0;

	out->n = 0;
	for (unsigned i = 0; i < n && names->n == 0; i++)
		out->v[out->n++] = i;
	for (unsigned i = 0; i < names->n && rc == 0; i++)
		rc = find(list, n, names->v[i].text, out, e);
	return rc;
}

int dr_gpus_resolve(const struct dr_gpu_names *names, enum dr_memory_choice memory,
	struct dr_opt_list *out, bool *cuda, struct dr_err *e)
{
	struct dr_gpu_info list[DR_GPUS_MAX];
	struct dr_err why = { 0 };
	int n;

	*cuda = false;
	if (memory == DR_MEMORY_ON_HOST)
		return on_host(names, out, e);
	n = dr_gpu_list(list, DR_GPUS_MAX, &why);
	*cuda = n > 0;
	if (n > 0)
		return on_gpus(names, list, DR_MIN((unsigned)n, (unsigned)DR_GPUS_MAX), out, e);
	if (memory == DR_MEMORY_ON_GPU || !dr_gpus_numbers(names, out))
		return dr_err_set(e, n, "%s", why.text);
	if (n == -ENOENT || n == -ENODEV)
		dr_info("gpu", "host memory: %s", why.text);
	else
		dr_warn("gpu", "host memory is used: %s", why.text);
	return on_host(names, out, e);
}
