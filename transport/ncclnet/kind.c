/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ncclnet/kind.h"

#include "transport/kind.h"
#include "transport/ncclnet/host.h"
#include "transport/ncclnet/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "unpack", .kind = DR_OPT_CHOICE, .arg = "MODE", .def = "auto",
	  .choices = "auto|kernel|d2d|host|none",
	  .commands = DR_CMDBIT_ALL, .offset = offsetof(struct dr_nccl_params, unpack),
	  .env = { "UCCL_TCPX_UNPACK_IMPL" },
	  .help = "How received data that the plugin leaves in pieces (GPUDirect-TCPX) is put together. kernel: one kernel "
		  "of the GPU copies the pieces; d2d: one copy within the GPU for each; host: the CPU copies them, with "
		  "--memory cuda through host memory; none: pieces are not copied, to measure the transport alone; "
		  "--verify fails then; auto: kernel with --memory cuda, else host." },
};
/* clang-format on */

static void take_gpu(void *params, const struct dr_rail_gpu *gpu)
{
	((struct dr_nccl_params *)params)->gpu = *gpu;
}

static void take_file(void *params, const char *file, unsigned version)
{
	struct dr_nccl_params *p = params;

	p->file = file;
	p->version = version;
}

static int check(const void *params, bool conservative, struct dr_err *e)
{
	const struct dr_nccl_params *p = params;

	(void)conservative;
	if (!p->file || !*p->file)
		return dr_err_set(e, -EINVAL,
			"transport nccl needs the file of a plugin at each end; use --transport nccl:FILE");
	return 0;
}

static const char *warning(const void *params, bool conservative)
{
	(void)params;
	(void)conservative;
	return "--transport nccl runs the plugin in this process: after a failover it may still access buffers if its close "
	       "does not stop that, and a plugin that crashes or blocks ends the run";
}

static void found(const struct dr_rail_params *rail, int dev, const struct dr_nccl *n,
	struct dr_kind_probe *out)
{
	struct dr_kind_finding *x = &out->v[out->n++];

	*x = (struct dr_kind_finding){ .level = DR_KIND_OK, .check = "nccl" };
	snprintf(x->text, sizeof(x->text), "%s is device %d of plugin %.60s, interface v%u",
		rail->ifname, dev, n->name, n->version);
}

static int probe(const struct dr_rail_params *rail, const void *params, struct dr_kind_probe *out,
	struct dr_err *e)
{
	const struct dr_nccl_params *p = params;
	struct dr_nccl_device dev;
	struct dr_nccl_host *h;
	int rc = dr_nccl_host_get(p->file, p->version, &h, e);

	if (rc)
		return rc;
	rc = dr_nccl_host_device(h, rail->ifname, &dev, e);
	if (rc == 0 && out)
		found(rail, dev.dev, dr_nccl_host_plugin(h), out);
	dr_nccl_host_put(h);
	return rc;
}

static int handle_host(
	const void *params, const void *handle, size_t len, struct sockaddr_storage *out)
{
	struct nn_rail_handle h;
	int rc = dr_nn_rail_handle_parse(handle, len, &h, NULL);

	(void)params;
	if (rc)
		return rc;
	*out = h.at;
	dr_sa_set_port(out, 0);
	return 0;
}

const struct dr_transport_kind dr_nccl_kind = {
	.name = "nccl",
	.ops = &dr_nccl_ops,
	.about = "a network plugin of NCCL, loaded from FILE by each end",
	.argument = "FILE",
	.fails_over = true,
	.options = { "Transport nccl", rows, DR_ARRAY_LEN(rows) },
	.params_size = sizeof(struct dr_nccl_params),
	.file = take_file,
	.check = check,
	.warning = warning,
	.nics_help = "the NICs on which the plugin has a device are used",
	.probe = probe,
	.check_name = "nccl",
	.handle_host = handle_host,
	.gpu = take_gpu,
	.memory = dr_nn_memory,
};
