/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

#include "base/units.h"

#include <errno.h>
#include <string.h>

/* Rails and paths. The options of the transport kinds stand in their descriptors. */

/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "transport", .kind = DR_OPT_STRING, .arg = "KIND", .def = "tcp",
	  .commands = ALL | DOCTOR, .offset = AT(transport),
	  .help_more = dr_options_help_transports, .words = dr_options_words_transports,
	  .brief = "tcp, verbs, nccl:PLUGIN.so",
	  .help = "Transport of the data paths. A server without this option uses the transport "
		  "of its client." },
	{ .name = "rails", .kind = DR_OPT_STRING, .arg = "NICS",
	  .commands = NODE | TOPO | DOCTOR, .offset = AT(rails),
	  .env = { "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME" }, .help_more = dr_options_help_nics,
	  .brief = "NICs to use, e.g. eth1,eth2 (automatic)",
	  .help = "NICs to use, separated by commas: interfaces (all their "
		  "addresses), addresses or INTERFACE@ADDRESS. Default: all NICs that are up and "
		  "have a partner at the other end, or that the other end names. The management "
		  "NIC, and NICs below a tenth of the fastest, are used only if no other pair "
		  "exists. The management NIC is the NIC of the control connection, unless it is as fast as "
		  "the others and another NIC is slow or has the default route." },
	{ .name = "map", .kind = DR_OPT_STRING, .arg = "\"GPU=RAIL,RAIL;..\"",
	  .commands = RUN | TOPO, .offset = AT(map),
	  .help = "Primary and shadow rail of each GPU, by interface, address or number, e.g. "
		  "\"0=eth1,eth2;1=eth2,eth1\". "
		  "Default: the nearest rails of each GPU in even shares, with the shadow on "
		  "another port. If the topology is unknown, GPUs are assigned round-robin and "
		  "the next rail is the shadow." },
	{ .name = "spread", .kind = DR_OPT_STRING, .arg = "nearest|all|LIST", .def = "nearest",
	  .commands = RUN | TOPO, .offset = AT(spread),
	  .help = "Rails that the channels of one GPU are distributed over: the nearest ones, "
		  "all, or a list." },
	{ .name = "topology", .file = DR_OPT_READ, .kind = DR_OPT_STRING, .arg = "FILE.xml",
	  .commands = ALL | TOPO, .offset = AT(topology),
	  .help = "Read the locations of GPUs and NICs from an hwloc XML file (lstopo --of xml "
		  "--whole-io FILE.xml). Default: detect them on this machine." },
	{ .name = "heartbeat", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "10ms",
	  .min = 1e6, .max = 1e10,
	  .commands = RUN, .offset = AT(heartbeat_ns),
	  .help = "Interval between the heartbeats of a rail." },
	{ .name = "detect", .kind = DR_OPT_CHOICE, .arg = "MODE", .def = "fast",
	  .choices = "fast|conservative|transport",
	  .commands = RUN, .offset = AT(detect),
	  .help = "Failure detection. fast: errors, 5 missed heartbeats, or 2 s without progress; "
		  "conservative: only when the kernel or the NIC reports a failure (TCP: within "
		  "about 2.4 s); transport: only errors of the transport, for a plugin that moves "
		  "to another NIC by itself (--transport nccl:FILE)." },
	{ .name = "failback", .kind = DR_OPT_CHOICE, .arg = "on|off", .def = "on",
	  .choices = "off|on",
	  .commands = RUN, .offset = AT(failback),
	  .help = "Return to the primary path after it has recovered." },
	{ .name = "hold-down", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "1s",
	  .min = 1e6, .max = 1e12,
	  .commands = RUN, .offset = AT(hold_down_ns),
	  .help = "Time the primary path must be healthy before failback." },
	{ .name = "sockbuf", .kind = DR_OPT_SIZE, .arg = "SIZE", .max = 1 << 30,
	  .commands = RUN | DOCTOR, .offset = AT(sockbuf),
	  .help = "Size of the socket buffers. Default: set by the kernel." },
	{ .name = "dscp", .kind = DR_OPT_UINT, .arg = "N", .max = 63,
	  .commands = RUN, .offset = AT(dscp),
	  .help = "DSCP mark of the data." },
};
/* clang-format on */

const struct dr_opt_group dr_options_paths = { "Paths", rows, DR_ARRAY_LEN(rows) };
