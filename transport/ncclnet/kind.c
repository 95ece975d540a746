/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/kind.h"

#include "transport/kind.h"
#include "transport/ncclnet/host.h"

#include <errno.h>
#include <stdio.h>

static void take_file(void *params, const char *file, unsigned version)
{
	*(struct dr_nccl_params *)params =
		(struct dr_nccl_params){ .file = file, .version = version };
}

static int check(const void *params, bool conservative, struct dr_err *e)
{
	const struct dr_nccl_params *p = params;

	(void)conservative;
	if (p->file && *p->file)
		return 0;
	return dr_err_set(e, -EINVAL,
		"transport nccl needs the file of a plugin at each end; use --transport nccl:FILE");
}

static const char *warning(const void *params, bool conservative)
{
	(void)params;
	(void)conservative;
	return "--transport nccl runs the plugin in this process: the fence of a failover is only as good as the plugin's "
	       "close, and a plugin that crashes or blocks takes the run with it";
}

static int find(const struct dr_nccl_host *h, const struct dr_rail_params *rail,
	struct dr_kind_probe *out, struct dr_err *e)
{
	const struct dr_nccl *n = dr_nccl_host_plugin(h);
	struct dr_nccl_device dev;
	int rc = dr_nccl_host_device(h, rail->ifname, &dev, e);

	if (rc || !out)
		return rc;
	struct dr_kind_finding *x = &out->v[out->n++];
	*x = (struct dr_kind_finding){ .level = DR_KIND_OK, .check = "nccl" };
	snprintf(x->text, sizeof(x->text), "%s is device %d of plugin %.60s, interface v%u",
		rail->ifname, dev.dev, n->name, n->version);
	return 0;
}

static int probe(const struct dr_rail_params *rail, const void *params, struct dr_kind_probe *out,
	struct dr_err *e)
{
	const struct dr_nccl_params *p = params;
	struct dr_nccl_host *h;
	int rc = dr_nccl_host_get(p->file, p->version, &h, e);

	if (rc)
		return rc;
	rc = find(h, rail, out, e);
	dr_nccl_host_put(h);
	return rc;
}

const struct dr_transport_kind dr_nccl_kind = {
	.name = "nccl",
	.ops = &dr_nccl_ops,
	.about = "a network plugin of NCCL, loaded from FILE by each end",
	.argument = "FILE",
	.params_size = sizeof(struct dr_nccl_params),
	.file = take_file,
	.check = check,
	.warning = warning,
	.nics_help = "the NICs on which the plugin has a device are used",
	.probe = probe,
	.check_name = "nccl",
};
