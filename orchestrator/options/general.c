/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

#include "base/units.h"
#include "bootstrap/bootstrap.h"

#include <errno.h>
#include <string.h>

/* Options: outputs, the control connection, and settings of the process. */

static int parse_verbose(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t n = 0;

	(void)row;
	if (!text)
		*(int *)dst = 0;
	else if (strcmp(text, "+") == 0)
		++*(int *)dst;
	else if (*text && !text[strspn(text, "v")]) /* of -vv, what follows its first letter */
		*(int *)dst += 1 + (int)strlen(text);
	else if (dr_parse_u64(text, 0, 3, &n, e))
		return -EINVAL;
	else
		*(int *)dst = (int)n;
	return 0;
}

static int parse_config(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct dr_config_files *l = dst;

	(void)row;
	if (!text)
		l->n = 0;
	else if (l->n == DR_CONFIG_FILES_MAX)
		return dr_err_set(e, -ERANGE, "more than %d files", DR_CONFIG_FILES_MAX);
	else
		l->path[l->n++] = text;
	return 0;
}

/* clang-format off */
static const struct dr_opt results[] = {
	{ .name = "json", .file = DR_OPT_WRITE, .kind = DR_OPT_STRING, .arg = "FILE", .implied = "-",
	  .commands = ANY & ~(PLUGIN | REPORT), .offset = AT(json_path),
	  .brief = "write the result document",
	  .help = "Write the result document to FILE (with \"=\"). Without FILE it is written to "
		  "standard output and the tables to standard error." },
	{ .name = "json-stream", .kind = DR_OPT_FLAG,
	  .commands = ALL & ~OUTER, .offset = AT(json_stream),
	  .help = "Write events to standard output, one JSON object per line." },
	{ .name = "metrics-listen", .kind = DR_OPT_STRING, .arg = "ADDR:PORT",
	  .commands = ALL & ~OUTER, .offset = AT(metrics_listen),
	  .help = "Serve live metrics over HTTP for Prometheus on this address." },
	{ .name = "min-bw", .kind = DR_OPT_STRING, .arg = "PCT%|GBPS",
	  .commands = RUN & ~SWEEP, .offset = AT(min_bw),
	  .brief = "fail below this bandwidth",
	  .help = "Exit with status 7 if the total bandwidth is lower: percent of the line rate "
		  "(with --baseline: of the baseline; status 2 if a NIC reports no speed), or Gb/s." },
	{ .name = "min-nic", .kind = DR_OPT_STRING, .arg = "PCT%",
	  .commands = RUN & ~SWEEP, .offset = AT(min_nic),
	  .help = "With --matrix: exit with status 7 if a NIC's bandwidth is lower than this share of "
		  "the median of the other NICs. Without this option slow NICs, below 80%, are only named." },
	{ .name = "max-lat", .kind = DR_OPT_STRING, .arg = "[PNN=]TIME,...",
	  .commands = RUN & ~SWEEP, .offset = AT(max_lat),
	  .help = "Exit with status 7 if the round trip of a GPU is longer, as in the latency table (full round "
		  "trip). PNN: p50, p90, p99 (default), p999 or max, e.g. p50=50us,p99=200us. Needs --test lat." },
	{ .name = "max-gap", .kind = DR_OPT_DURATION, .arg = "TIME", .min = 1, .max = 1e15,
	  .commands = DR_CMDBIT_FAULTY, .offset = AT(max_gap_ns),
	  .brief = "fail on a longer delivery gap",
	  .help = "Exit with status 8 if the delivery gap of any fault is longer." },
	{ .name = "baseline", .file = DR_OPT_READ, .kind = DR_OPT_STRING, .arg = "FILE",
	  .commands = RUN & ~SWEEP, .offset = AT(baseline),
	  .brief = "reference: fail if a GPU or NIC is below it",
	  .help = "Compare the bandwidth, and nothing else, with the mean of earlier runs, written by "
		  "--save-baseline; exit with status 7 below 90 % (--min-bw PCT%: another share), and with 2 if "
		  "their options differ." },
	{ .name = "output", .file = DR_OPT_WRITE, .short_name = 'o', .kind = DR_OPT_STRING, .arg = "PAGE.html",
	  .commands = REPORT, .offset = AT(page), .no_config = true,
	  .brief = "the page",
	  .help = "The page to write." },
	{ .name = "tolerance", .kind = DR_OPT_DOUBLE, .arg = "PERCENT", .def = "1", .min = 0, .max = 100,
	  .commands = COMPARE, .offset = AT(tolerance),
	  .brief = "report larger changes only",
	  .help = "Report a figure as worse or better only if it changed by more than this. Smaller changes are not "
		  "reported, however certain they are." },
	{ .name = "allow-differences", .kind = DR_OPT_FLAG,
	  .commands = COMPARE, .offset = AT(allow_differences),
	  .brief = "compare although options differ",
	  .help = "Compare runs whose options or environments differ, e.g. before and after an update of the "
		  "kernel. Without this option the differences are listed and the status is 2." },
};
/* clang-format on */

const struct dr_opt_group dr_options_results = { "Results", results, DR_ARRAY_LEN(results) };

/* clang-format off */
static const struct dr_opt connection[] = {
	{ .name = "control", .kind = DR_OPT_STRING, .arg = "ADDR|IF",
	  .commands = NODE | DOCTOR, .offset = AT(control),
	  .help = "Local address or interface of the control connection. Default: chosen by the "
		  "routing table; a server listens on all addresses." },
	{ .name = "port", .short_name = 'p', .kind = DR_OPT_UINT, .arg = "PORT", .def = "20000", .min = 1,
	  .max = 65535,
	  .commands = NODE | DOCTOR, .offset = AT(port),
	  .env = { "UCCL_TCPX_BOOTSTRAP_PORT_BASE" },
	  .brief = "TCP port of the server",
	  .help = "First TCP port of the server. GPU k uses PORT + k." },
	{ .name = "data-ports", .kind = DR_OPT_STRING, .arg = "A-B",
	  .commands = NODE, .offset = AT(data_ports),
	  .brief = "ports of data, for firewalls (any)",
	  .help = "Range of ports for the data listeners of this end. Default: chosen by the "
		  "kernel." },
	{ .name = "key-file", .file = DR_OPT_READ, .kind = DR_OPT_STRING, .arg = "FILE",
	  .commands = NODE | DOCTOR, .offset = AT(key_file),
	  .brief = "authenticate both ends with this secret",
	  .help = "File with the secret of both ends, readable by its owner only: head -c 32 /dev/urandom | "
		  "base64 >K; chmod 600 K. Each end proves it, and the control conversation is encrypted "
		  "with it; data is not. Default: none; then any host that reaches the server is served, "
		  "and who can alter packets controls the run." },
	{ .name = "allow-from", .kind = DR_OPT_STRING, .arg = "CIDR,...",
	  .commands = DR_CMDBIT_SERVER | SWEEP, .offset = AT(allow_from),
	  .help = "Accept connections of clients, of a sweep's nodes, and of readers of --metrics-listen, from these networks "
		  "only, IPv4 and IPv6, e.g. 10.0.0.0/8,2001:db8::/32. Others are closed at once, counted and logged. Default: all." },
	{ .name = "max-memory", .kind = DR_OPT_SIZE, .arg = "SIZE", .min = 1, .max = 1e18,
	  .commands = DR_CMDBIT_SERVER, .offset = AT(max_memory),
	  .help = "Refuse clients whose run needs more memory for channels at the server: GPUs x channels x "
		  "(window x chunk + 256 KiB). Default: half of the free memory of host and cgroup, at most 8 GiB." },
	{ .name = "max-session", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "24h", .unit = "seconds",
	  .max = 1e18,
	  .commands = DR_CMDBIT_SERVER, .offset = AT(max_session_ns),
	  .help = "End a client's session after this time, so that others are served; 0: no limit." },
	{ .name = "user", .kind = DR_OPT_STRING, .arg = "NAME",
	  .commands = ALL, .offset = AT(user),
	  .help = "Become this user, a name or a number, before the first byte of the peer is read; needs root. Files of "
		  "results are written as that user. Faults work all the same: a process of their own keeps the right to "
		  "them. The runs of a sweep become that user, too. Default: the user who starts it." },
	{ .name = "connect-timeout", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "30s",
	  .unit = "seconds", .min = 1e6, .max = 1e14,
	  .commands = RUN | DOCTOR, .offset = AT(connect_timeout_ns),
	  .help = "Maximum time to wait for the server, also while it serves another client or its name does not "
		  "resolve for the moment." },
	{ .name = "timeout", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "60s",
	  .unit = "seconds", .min = 1e8, .max = 1e14,
	  .commands = ALL, .offset = AT(timeout_ns),
	  .help = "Maximum time to wait for each step of the peer." },
	{ .name = "one-off", .short_name = '1', .kind = DR_OPT_FLAG,
	  .commands = DR_CMDBIT_SERVER, .offset = AT(one_off),
	  .brief = "serve one client, then exit",
	  .help = "Serve one client, then exit with the status of that run. Refused clients do not "
		  "count." },
};
/* clang-format on */

const struct dr_opt_group dr_options_connection = { "Connection", connection,
	DR_ARRAY_LEN(connection) };

/* clang-format off */
static const struct dr_opt plugin[] = {
	{ .name = "net-api", .kind = DR_OPT_CHOICE, .arg = "VERSION", .def = "newest",
	  .choices = "newest|v6|v7|v8|v9|v10|v11|v12",
	  .commands = ALL | DOCTOR | PLUGIN, .offset = AT(net_api),
	  .help = "Version of NCCL's network interface to use, of those that the plugin exports (--transport nccl:FILE)." },
	{ .name = "call-limit", .kind = DR_OPT_DURATION, .arg = "TIME", .def = "10s",
	  .unit = "seconds", .min = 1e8, .max = 3.6e12,
	  .commands = PLUGIN, .offset = AT(call_limit_ns),
	  .help = "Time after which a call that has not returned is reported as a hang, and a request that is not done as "
		  "lost." },
};
/* clang-format on */

const struct dr_opt_group dr_options_plugin = { "NCCL plugin", plugin, DR_ARRAY_LEN(plugin) };

/* clang-format off */
static const struct dr_opt general[] = {
	{ .name = "workers", .kind = DR_OPT_UINT, .arg = "N", .max = DR_BOOT_GPUS_MAX,
	  .commands = ALL, .offset = AT(workers),
	  .help = "Number of worker threads. Default: one per GPU, at most the number of CPUs." },
	{ .name = "poll", .kind = DR_OPT_CHOICE, .arg = "POLICY", .def = "adaptive",
	  .choices = "adaptive|busy",
	  .commands = ALL, .offset = AT(poll),
	  .help = "Polling of the worker threads of this end. busy: never sleep; adaptive: spin "
		  "briefly, then sleep." },
	{ .name = "pin", .kind = DR_OPT_LIST, .arg = "CPUS", .max = 999999,
	  .commands = ALL, .offset = AT(pin),
	  .help = "CPUs to pin the worker threads to, in order. Default: with several NUMA "
		  "nodes, each worker runs on the node of the NICs of its GPUs. A CPU that the process "
		  "may not use is an error." },
	{ .name = "links", .kind = DR_OPT_UINT, .arg = "N", .def = "2", .min = 1, .max = 16,
	  .commands = DR_CMDBIT_DEMO, .offset = AT(links),
	  .brief = "links between the two ends",
	  .help = "Number of links between the two nodes of the demo." },
	{ .name = "dry-run", .kind = DR_OPT_FLAG,
	  .commands = (RUN & ~OUTER) | DOCTOR, .offset = AT(dry_run), .no_config = true,
	  .brief = "print the plan, connect to nothing",
	  .help = "Print the plan and the effect of each fault, then exit; connects to nothing. "
		  "doctor: report faults of a killed run without undoing them." },
	{ .name = "repair", .kind = DR_OPT_FLAG,
	  .commands = DOCTOR, .offset = AT(repair), .no_config = true,
	  .brief = "undo faults that killed runs left",
	  .help = "Undo the faults that killed runs left in this network namespace, report those that living "
		  "runs hold, and check nothing else. Status 2: one could not be undone." },
	{ .name = "config", .file = DR_OPT_READ, .kind = DR_OPT_CUSTOM, .arg = "FILE.json",
	  .parse = parse_config, .repeat = true,
	  .commands = ANY, .offset = AT(config), .no_config = true,
	  .brief = "read options from this file",
	  .help = "Read options from a JSON file: {\"long-name\": value}. Of several files the last one "
		  "that has an option gives its value. The command line and "
		  "the environment take precedence." },
	{ .name = "verbose", .short_name = 'v', .kind = DR_OPT_CUSTOM, .arg = "LEVEL",
	  .implied = "+",
	  .parse = parse_verbose, .repeat = true, .commands = ANY,
	  .offset = AT(verbose), .no_config = true,
	  .brief = "print all tables, and log more; -vv: debug",
	  .help = "Print all tables, each interval and the effective options, and log more. LEVEL 1 (-v): info; "
		  "2 (-vv): debug; 3 (-vvv): when each request is posted, tested and completed." },
	{ .name = "quiet", .short_name = 'q', .kind = DR_OPT_FLAG,
	  .commands = ANY & ~PREFLIGHT, .offset = AT(quiet),
	  .brief = "print the verdict alone",
	  .help = "Print the verdict alone; warnings and errors remain." },
	{ .name = "log-json", .kind = DR_OPT_FLAG,
	  .commands = ANY, .offset = AT(log_json),
	  .help = "Write every line of standard error as a JSON object, the result of each run too. Tables stay "
		  "text on standard output, unless --json or --json-stream moves them to standard error." },
	{ .name = "version", .short_name = 'V', .kind = DR_OPT_FLAG,
	  .commands = ANY, .offset = AT(version), .no_config = true,
	  .help = "Print the version and exit; with -v also the commit, the build and the libraries." },
	{ .name = "help", .short_name = 'h', .kind = DR_OPT_FLAG,
	  .commands = ANY, .offset = AT(help), .no_config = true,
	  .brief = "print this help",
	  .help = "Print the common options and exit." },
	{ .name = "help-all", .kind = DR_OPT_FLAG,
	  .commands = ANY, .offset = AT(help_all), .no_config = true,
	  .brief = "print all options, and examples",
	  .help = "Print this help and exit." },
};
/* clang-format on */

const struct dr_opt_group dr_options_general = { "General", general, DR_ARRAY_LEN(general) };
