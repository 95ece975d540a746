/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options_rows.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>

/* Rails and paths, and what a transport kind wants to know of them. */

/* An index, or what NCCL means by -1. */
static int parse_gid(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t n = 0;

	(void)row;
	*(int *)dst = -1;
	if (!text || strcmp(text, "auto") == 0 || strcmp(text, "-1") == 0)
		return 0;
	if (dr_parse_u64(text, 0, 65535, &n, NULL))
		return dr_err_set(e, -EINVAL,
			"\"%.40s\" is no index of a GID table; use 0 to 65535 or auto", text);
	*(int *)dst = (int)n;
	return 0;
}

static const struct dr_opt rows[] = {
	{ .name = "transport",
		.kind = DR_OPT_STRING,
		.arg = "KIND",
		.def = "tcp",
		.commands = ALL | DOCTOR,
		.offset = AT(transport),
		.help = "Transport of the data paths: tcp, or verbs (RoCE and InfiniBand; needs "
			"libibverbs1 at run time). A server that is not told follows its client." },
	{ .name = "rails",
		.kind = DR_OPT_STRING,
		.arg = "LIST",
		.commands = NODE | TOPO | DOCTOR,
		.offset = AT(rails),
		.env = { "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME" },
		.help = "NICs to use: devices, RDMA devices (mlx5_0, rxe0), addresses or "
			"DEVICE@ADDRESS, with commas. Default: all that are up, the one of the control "
			"connection only where no other makes a pair; with verbs those that have an "
			"RDMA device." },
	{ .name = "map",
		.kind = DR_OPT_STRING,
		.arg = "\"GPU=RAIL,RAIL;..\"",
		.commands = RUN | TOPO,
		.offset = AT(map),
		.help = "Primary and shadow rail of each GPU, by device, address or number. Default: "
			"the nearest rails of each GPU, shared evenly; the shadow is on another port. "
			"Where no place is known: evenly by number, the shadow is the neighbour." },
	{ .name = "spread",
		.kind = DR_OPT_STRING,
		.arg = "nearest|all|LIST",
		.def = "nearest",
		.commands = RUN | TOPO,
		.offset = AT(spread),
		.help = "Rails that the channels of one GPU share." },
	{ .name = "topology",
		.kind = DR_OPT_STRING,
		.arg = "FILE.xml",
		.commands = ALL | TOPO,
		.offset = AT(topology),
		.help = "Where GPUs and NICs sit, as hwloc XML (lstopo --of xml --whole-io "
			"FILE.xml). Default: this machine as it is." },
	{ .name = "heartbeat",
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.def = "10ms",
		.unit = "seconds",
		.commands = RUN,
		.offset = AT(heartbeat_ns),
		.min = 1e6,
		.max = 1e10,
		.help = "Between heartbeats of a rail." },
	{ .name = "detect",
		.kind = DR_OPT_CHOICE,
		.arg = "MODE",
		.def = "fast",
		.choices = "fast|conservative",
		.commands = RUN,
		.offset = AT(detect),
		.help = "fast: errors, heartbeats and progress; conservative: only when the kernel or "
			"the hardware gave up." },
	{ .name = "failback",
		.kind = DR_OPT_CHOICE,
		.arg = "on|off",
		.def = "on",
		.choices = "off|on",
		.commands = RUN,
		.offset = AT(failback),
		.help = "Return to the primary path when it works again." },
	{ .name = "hold-down",
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.def = "1s",
		.unit = "seconds",
		.commands = RUN,
		.offset = AT(hold_down_ns),
		.min = 1e6,
		.max = 1e12,
		.help = "The primary path must work for so long before." },
	{ .name = "sockbuf",
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.commands = RUN | DOCTOR,
		.offset = AT(sockbuf),
		.max = 1 << 30,
		.help = "Socket buffers; default: the kernel's choice." },
	{ .name = "dscp",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.commands = RUN,
		.offset = AT(dscp),
		.max = 63,
		.help = "DSCP mark of the data." },
	{ .name = "qps",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "1",
		.commands = RUN,
		.offset = AT(qps),
		.min = 1,
		.max = 4,
		.env = { "NCCL_IB_QPS_PER_CONNECTION" },
		.help = "verbs: data queue pairs of a path." },
	{ .name = "gid",
		.kind = DR_OPT_CUSTOM,
		.arg = "INDEX|auto",
		.def = "auto",
		.parse = parse_gid,
		.commands = ALL | DOCTOR,
		.offset = AT(gid),
		.env = { "NCCL_IB_GID_INDEX" },
		.help = "verbs: entry of this end's GID tables; auto: the rail's address, RoCE v2 before "
			"v1." },
	{ .name = "mtu",
		.kind = DR_OPT_CHOICE,
		.arg = "BYTES",
		.def = "auto",
		.choices = "auto|256|512|1024|2048|4096",
		.commands = RUN,
		.offset = AT(mtu),
		.help = "verbs: path MTU; auto: the smaller active MTU of both ports." },
	{ .name = "sl",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.commands = RUN,
		.offset = AT(sl),
		.max = 15,
		.env = { "NCCL_IB_SL" },
		.help = "verbs: service level." },
	{ .name = "tc",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.commands = RUN,
		.offset = AT(tc),
		.max = 255,
		.env = { "NCCL_IB_TC" },
		.help = "verbs: traffic class, on RoCE four times the DSCP." },
	{ .name = "ib-timeout",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "14",
		.commands = RUN,
		.offset = AT(ib_timeout),
		.max = 31,
		.env = { "NCCL_IB_TIMEOUT" },
		.help = "verbs: the NIC waits 4.096 us * 2^N for an acknowledgement; 0: for ever." },
	{ .name = "ib-retry",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "7",
		.commands = RUN,
		.offset = AT(ib_retry),
		.max = 7,
		.env = { "NCCL_IB_RETRY_CNT" },
		.help = "verbs: and tries so often again. Software RoCE (rxe) takes 7 for: for ever." },
	{ .name = "register",
		.kind = DR_OPT_CHOICE,
		.arg = "WHEN",
		.def = "eager",
		.choices = "eager|lazy",
		.commands = ALL,
		.offset = AT(lazy),
		.help = "verbs: memory is registered with every NIC at the start, or with each at its "
			"first use." },
};

const struct dr_opt_group dr_options_paths = { "Paths", rows, DR_ARRAY_LEN(rows) };
