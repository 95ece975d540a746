/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/select.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The largest number that is parsed: which GPUs exist is known only when the names are resolved. */
enum { INDEX_MAX = 999999999, HOST_DEFAULT = 8 };

/* ---- names ---- */

static int add(struct dr_gpu_names *l, const char *name, struct dr_err *e)
{
	for (unsigned i = 0; i < l->n; i++)
		if (strcasecmp(l->v[i], name) == 0)
			return dr_err_set(e, -EINVAL, "\"%s\" is named twice", name);
	if (l->n == DR_GPUS_MAX)
		return dr_err_set(e, -ERANGE, "more than %d GPUs", DR_GPUS_MAX);
	snprintf(l->v[l->n++], sizeof(l->v[0]), "%s", name);
	return 0;
}

static int add_item(struct dr_gpu_names *l, const char *item, struct dr_err *e)
{
	size_t len = strlen(item);
	struct dr_opt_list list;
	char number[16];

	if (strchr(item, ':') && strspn(item, "0123456789abcdefABCDEF:.") == len &&
		len < sizeof(l->v[0]))
		return add(l, item, e);
	int rc = dr_parse_list(item, INDEX_MAX, list.v, DR_OPT_LIST_MAX, &list.n, NULL);
	if (rc == -ERANGE && strspn(item, "0123456789") == len)
		return dr_err_set(e, -ENODEV,
			"no such GPU: %.40s; `dualrail topo` and `nvidia-smi -L` list the GPUs",
			item);
	if (rc == -ERANGE)
		return dr_err_set(
			e, rc, "\"%.40s\" is more than %d GPUs; use e.g. 0-3", item, DR_GPUS_MAX);
	if (rc)
		return dr_err_set(e, rc,
			"\"%.40s\" is not a number, a range or a PCI bus id; use e.g. 0-3 or 0000:3b:00.0",
			item);
	for (size_t i = 0; i < list.n && rc == 0; i++) {
		snprintf(number, sizeof(number), "%u", list.v[i]);
		rc = add(l, number, e);
	}
	return rc;
}

int dr_gpu_names_parse(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	char *copy = text ? dr_strdup(text) : NULL, *rest = copy;
	struct dr_gpu_names *l = dst;
	int rc = text && !copy ? dr_err_set(e, -ENOMEM, "out of memory") : 0;

	(void)row;
	if (!text)
		l->n = 0;
	while (rest && rc == 0)
		rc = add_item(l, strsep(&rest, ","), e);
	dr_free(copy);
	return rc;
}

bool dr_gpu_name_number(const char *name, unsigned *out)
{
	char *end;

	*out = (unsigned)strtoul(name, &end, 10);
	return !*end;
}

bool dr_gpu_names_numbers(const struct dr_gpu_names *names, struct dr_opt_list *out)
{
	out->n = 0;
	for (unsigned i = 0; i < HOST_DEFAULT && names->n == 0; i++)
		out->v[out->n++] = i;
	for (unsigned i = 0; i < names->n; i++)
		if (!dr_gpu_name_number(names->v[i], &out->v[out->n++]))
			return false;
	return true;
}

/* ---- names to CUDA ordinals ---- */

int dr_gpu_emulated(unsigned number, const char *why, struct dr_err *e)
{
	if (number < DR_GPUS_MAX)
		return 0;
	return dr_err_set(e, -ENODEV,
		"--gpus: no such GPU: %u; %s there are %d GPUs, emulated in host memory: use 0 to %d",
		number, why, DR_GPUS_MAX, DR_GPUS_MAX - 1);
}

static int emulated(const struct dr_opt_list *numbers, const char *why, struct dr_err *e)
{
	int rc = 0;

	for (size_t i = 0; i < numbers->n && rc == 0; i++)
		rc = dr_gpu_emulated(numbers->v[i], why, e);
	return rc;
}

static int on_host(const struct dr_gpu_names *names, struct dr_opt_list *out, struct dr_err *e)
{
	if (dr_gpu_names_numbers(names, out))
		return emulated(out, "with --memory host", e);
	return dr_err_set(
		e, -EINVAL, "--gpus: PCI bus ids need GPU memory; use numbers, or --memory cuda");
}

static int find(const struct dr_gpu_info *list, unsigned n, const char *name,
	struct dr_opt_list *out, struct dr_err *e)
{
	int at = dr_gpu_find(list, n, name, e);

	if (at < 0) {
		dr_err_prefix(e, "--gpus");
		return at;
	}
	for (size_t i = 0; i < out->n; i++)
		if (out->v[i] == (unsigned)at)
			return dr_err_set(e, -EINVAL,
				"--gpus: \"%s\" is GPU %d, which is named twice", name, at);
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
		rc = find(list, n, names->v[i], out, e);
	return rc;
}

int dr_gpu_select(const struct dr_gpu_names *names, enum dr_memory_choice memory,
	struct dr_opt_list *out, bool *cuda, struct dr_err *e)
{
	struct dr_gpu_info list[DR_GPUS_MAX];
	struct dr_err why = { 0 };

	*cuda = false;
	if (memory == DR_MEMORY_ON_HOST)
		return on_host(names, out, e);
	int n = dr_gpu_list(list, DR_GPUS_MAX, &why);
	*cuda = n > 0;
	if (n > 0)
		return on_gpus(names, list, DR_MIN((unsigned)n, (unsigned)DR_GPUS_MAX), out, e);
	if (memory == DR_MEMORY_ON_GPU || !dr_gpu_names_numbers(names, out))
		return dr_err_set(e, n, "%s", why.text);
	if (n == -ENOENT || n == -ENODEV)
		dr_info("gpu", "using host memory: %s", why.text);
	else
		dr_warn("gpu", "using host memory: %s", why.text);
	return emulated(out, "without a CUDA GPU", e);
}
