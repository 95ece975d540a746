/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/config_priv.h"

#define AT(member) offsetof(struct ha_config, member)

/*
 * Defaults: detection, failback and hold-down are those of `dualrail`; the IB timeout is nccl-ha's. At least one I/O
 * thread is needed, because it drives the bulk lanes; it sleeps while they are idle.
 */
/* clang-format off */
const struct ha_variable ha_variables[] = {
	{ .name = "HA_NCCL_TRANSPORT", .kind = HA_VAR_CHOICE, .offset = AT(transport), .def = "auto",
	  .choices = "auto|tcp|verbs", .fixed = true,
	  .help = "Transport of the data. auto: verbs if an RDMA device can be used, else tcp." },
	{ .name = "NCCL_SOCKET_IFNAME", .kind = HA_VAR_NAMES, .offset = AT(devices), .fixed = true,
	  .default_text = "automatic",
	  .help = "Network devices to use: prefixes of their names; `=` before the list: whole names; `^`: all but "
		  "these. Automatic: devices that are up with a global address, without tunnels, container "
		  "bridges, loopback and the management device. With verbs: only of the rendezvous; automatic: those of "
		  "the RDMA devices." },
	{ .name = "HA_NCCL_DEVICES", .kind = HA_VAR_NAMES, .offset = AT(devices), .fixed = true,
	  .default_text = "`NCCL_SOCKET_IFNAME`",
	  .help = "The same for this plugin alone. It has precedence." },
	{ .name = "NCCL_SOCKET_FAMILY", .kind = HA_VAR_CHOICE, .offset = AT(family),
	  .choices = "AF_INET|AF_INET6", .first = HA_FAMILY_INET, .default_text = "both",
	  .help = "Use IPv4 or IPv6 addresses only." },
	{ .name = "HA_NCCL_SPEED", .kind = HA_VAR_UINT, .offset = AT(speed_mbps), .min = 10, .max = 3200000,
	  .unit = "Mb/s", .default_text = "the link's, 10000 where it is unknown",
	  .help = "Speed that NCCL is told for every device. NCCL chooses algorithms and channels by it." },

	{ .name = "HA_NCCL_ENABLE_BACKUP", .kind = HA_VAR_BOOL, .offset = AT(backup), .def = "1",
	  .help = "Give every connection a second path over another device. 0: no failover." },
	{ .name = "HA_NCCL_DETECT", .kind = HA_VAR_CHOICE, .offset = AT(detect), .def = "fast",
	  .choices = "fast|conservative", .fixed = true,
	  .help = "Failure detection. fast: errors and missed heartbeats; conservative: only when the kernel or the "
		  "NIC reports a failure, or after `HA_NCCL_RTO_MS`." },
	{ .name = "HA_NCCL_HEARTBEAT_MS", .kind = HA_VAR_MS, .offset = AT(heartbeat_ns), .def = "10",
	  .min = 1, .max = 10000, .unit = "ms", .fixed = true,
	  .help = "Interval between the heartbeats of a rail." },
	{ .name = "HA_NCCL_RTO_MS", .kind = HA_VAR_MS, .offset = AT(rto_ns), .min = 1, .max = 600000, .unit = "ms",
	  .default_text = "twice the time until the transport gives up", .use = HA_USE_CONSERVATIVE,
	  .help = "Time without any acknowledgement until conservative detection declares a path down. Smaller values "
		  "than the default are raised to it with a warning." },
	{ .name = "HA_NCCL_ENABLE_FAILBACK", .kind = HA_VAR_BOOL, .offset = AT(failback), .def = "1",
	  .use = HA_USE_BACKUP, .fixed = true,
	  .help = "Return to the first path after it has recovered." },
	{ .name = "HA_NCCL_HOLD_DOWN_MS", .kind = HA_VAR_MS, .offset = AT(hold_down_ns), .def = "1000",
	  .min = 1, .max = 1000000, .unit = "ms", .use = HA_USE_FAILBACK,
	  .help = "Time that the first path must be healthy before failback." },
	{ .name = "HA_NCCL_MAX_RETRIES", .kind = HA_VAR_UINT, .offset = AT(max_retries), .max = 1000000,
	  .use = HA_USE_NEVER, .default_text = "-",
	  .help = "A variable of nccl-ha, without effect: see the warning that it causes.",
	  .unused = "a broken path is repaired without a limit of attempts, and a connection ends after 64 switches "
		    "without progress" },

	{ .name = "NCCL_MESH_TIMEOUT_MS", .kind = HA_VAR_MS, .offset = AT(connect_timeout_ns),
	  .min = 100, .max = 3600000, .unit = "ms", .default_text = "`HA_NCCL_CONNECT_TIMEOUT_MS`",
	  .help = "The name that nccl-mesh-plugin has for `HA_NCCL_CONNECT_TIMEOUT_MS`." },
	{ .name = "HA_NCCL_CONNECT_TIMEOUT_MS", .kind = HA_VAR_MS, .offset = AT(connect_timeout_ns), .def = "30000",
	  .min = 100, .max = 3600000, .unit = "ms",
	  .help = "Time for a connection to be set up; afterwards NCCL gets an error." },

	{ .name = "HA_NCCL_NTHREADS", .kind = HA_VAR_UINT, .offset = AT(threads), .min = 1, .max = HA_THREADS_MAX,
	  .default_text = "three eighths of the CPUs, 1 to 12", .fixed = true,
	  .help = "Threads that move large messages, for the whole process." },
	{ .name = "HA_NCCL_LANES", .kind = HA_VAR_UINT, .offset = AT(lanes), .def = "1",
	  .min = 1, .max = HA_LANES_MAX, .fixed = true,
	  .help = "Connections for large messages to each peer process, for each thread." },
	{ .name = "HA_NCCL_SPIN_US", .kind = HA_VAR_UINT, .offset = AT(spin_us), .max = 10000, .unit = "us",
	  .default_text = "200 with 8 CPUs or more, else 20",
	  .help = "Time for which one of these threads polls without an event, while data that it moves is under way, "
		  "before it sleeps." },
	{ .name = "HA_NCCL_CHUNK", .kind = HA_VAR_SIZE, .offset = AT(chunk), .def = "256K",
	  .min = 16 << 10, .max = 64 << 20, .unit = "bytes", .fixed = true,
	  .help = "Large messages are cut into pieces of this size." },
	{ .name = "HA_NCCL_EAGER", .kind = HA_VAR_SIZE, .offset = AT(eager),
	  .max = HA_EAGER_MAX, .unit = "bytes", .fixed = true, .default_text = "8K with 8 CPUs or more, else 144K",
	  .help = "Messages up to this size are copied and sent at once, without waiting for the receiver." },
	{ .name = "HA_NCCL_SOCKBUF", .kind = HA_VAR_SIZE, .offset = AT(sockbuf), .def = "0", .max = 1 << 30,
	  .unit = "bytes", .default_text = "0",
	  .help = "Size of the socket buffers. 0: set by the kernel." },
	{ .name = "HA_NCCL_USE_PROGRESS_THREAD", .kind = HA_VAR_BOOL, .offset = AT(progress_thread), .def = "1",
	  .help = "Let a thread drive the connections for small messages that NCCL has not called for half a "
		  "heartbeat. 0: only NCCL's calls drive them." },
	{ .name = "HA_NCCL_TEST_MAX_POLL", .kind = HA_VAR_UINT, .offset = AT(test_max_poll), .def = "32",
	  .min = 1, .max = 4096,
	  .help = "Events that one call of test handles at most." },

	{ .name = "NCCL_DEBUG", .kind = HA_VAR_LEVEL, .offset = AT(log_level), .fixed = true,
	  .choices = "VERSION|WARN|INFO|ABORT|TRACE", .default_text = "WARN",
	  .help = "NCCL's log level. This plugin writes its lines through NCCL's logger." },
	{ .name = "NCCL_MESH_DEBUG", .kind = HA_VAR_BOOL, .offset = AT(debug), .default_text = "`HA_NCCL_DEBUG`",
	  .help = "The name that nccl-mesh-plugin has for `HA_NCCL_DEBUG`." },
	{ .name = "HA_NCCL_DEBUG", .kind = HA_VAR_BOOL, .offset = AT(debug), .def = "0",
	  .help = "Write this plugin's debug lines at level INFO. Otherwise they need `NCCL_DEBUG=TRACE`." },
	{ .name = "HA_NCCL_METRICS_FILE", .kind = HA_VAR_PATH, .offset = AT(metrics_file), .default_text = "none",
	  .help = "Prometheus text file with counters of devices and failovers. %h and %p stand for host name and "
		  "process id; several processes of a host need %p. It appears by rename; a symbolic "
		  "link or a file of another user is not replaced." },

	{ .name = "NCCL_IB_HCA", .kind = HA_VAR_NAMES, .offset = AT(rdma_devices), .use = HA_USE_VERBS,
	  .default_text = "automatic",
	  .help = "RDMA devices to use, as `NCCL_SOCKET_IFNAME`, each with an optional `:PORT`. Automatic: all with an "
		  "active port." },
	{ .name = "NCCL_IB_TIMEOUT", .kind = HA_VAR_UINT, .offset = AT(ib_timeout), .max = 31, .use = HA_USE_VERBS,
	  .default_text = "`HA_NCCL_FORCE_IB_TIMEOUT`",
	  .help = "Acknowledgement timeout of queue pairs, 4.096 us x 2^N." },
	{ .name = "HA_NCCL_FORCE_IB_TIMEOUT", .kind = HA_VAR_UINT, .offset = AT(ib_timeout), .def = "14",
	  .min = 1, .max = 31, .use = HA_USE_VERBS,
	  .help = "The same for this plugin alone. It has precedence." },
	{ .name = "NCCL_IB_RETRY_CNT", .kind = HA_VAR_UINT, .offset = AT(ib_retry), .def = "7", .max = 7,
	  .use = HA_USE_VERBS,
	  .help = "Retries of a queue pair before it reports an error." },
	{ .name = "NCCL_MESH_GID_INDEX", .kind = HA_VAR_INT, .offset = AT(gid_index), .first = -1, .max = 255,
	  .use = HA_USE_VERBS, .default_text = "`NCCL_IB_GID_INDEX`",
	  .help = "The name that nccl-mesh-plugin has for `NCCL_IB_GID_INDEX`." },
	{ .name = "NCCL_IB_GID_INDEX", .kind = HA_VAR_INT, .offset = AT(gid_index), .first = -1, .max = 255,
	  .def = "-1", .use = HA_USE_VERBS,
	  .help = "Index of the GID of RDMA connections on every device. -1: found by the address of each." },
	{ .name = "NCCL_IB_TC", .kind = HA_VAR_UINT, .offset = AT(ib_tc), .def = "0", .max = 255,
	  .use = HA_USE_VERBS, .help = "Traffic class of RDMA packets." },
	{ .name = "NCCL_IB_SL", .kind = HA_VAR_UINT, .offset = AT(ib_sl), .def = "0", .max = 15,
	  .use = HA_USE_VERBS, .help = "Service level of RDMA packets." },
};
/* clang-format on */

const unsigned ha_n_variables = DR_ARRAY_LEN(ha_variables);
_Static_assert(DR_ARRAY_LEN(ha_variables) <= 64, "ha_config.given has a bit for each");

const struct ha_former ha_former_variables[] = {
	{ "HA_NCCL_POLL_BATCH", "HA_NCCL_TEST_MAX_POLL limits the work of one call" },
	{ "HA_NCCL_IDLE_SPIN_THRESHOLD", "threads without work sleep" },
	{ "HA_NCCL_POLL_STANDBY_INTERVAL",
		"HA_NCCL_HEARTBEAT_MS sets how often an idle path is tested" },
	{ "HA_NCCL_QP_TIMEOUT", "use NCCL_IB_TIMEOUT" },
	{ "HA_NCCL_QP_RETRY_CNT", "use NCCL_IB_RETRY_CNT" },
	{ "HA_NCCL_EXPECTED_CHANNELS", "nothing depends on it" },
	{ "HA_NCCL_WR_PER_CONN", "nothing depends on it" },
	{ "HA_NCCL_MAX_RECVS", "it is always 8" },
	{ "HA_NCCL_PRIMARY_DEV", "NCCL chooses the device; use HA_NCCL_DEVICES" },
	{ "HA_NCCL_BACKUP_DEV",
		"the nearest device on another port is chosen; use HA_NCCL_DEVICES" },
	{ NULL, NULL },
};
