/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

/* The commands with their own defaults and examples, and the texts of the man page beside the options. */

/* Chosen so that the demo takes less than a minute on two cores. */
static const struct dr_opt_pair demo_defaults[] = {
	{ "test", "bw,lat,failover" },
	{ "channels", "2" },
	{ "size", "4M" },
	{ "duration", "3s" },
	{ "hold-down", "300ms" },
	{ NULL, NULL },
};

/* A client may wait for a server that is started later, doctor reports that there is none. */
static const struct dr_opt_pair doctor_defaults[] = {
	{ "connect-timeout", "5s" },
	{ NULL, NULL },
};

/* A job waits for it: short cells, and an end in seconds whatever the peer does. A node may be bad in one direction. */
static const struct dr_opt_pair preflight_defaults[] = {
	{ "matrix", "on" },
	{ "bidir", "on" },
	{ "channels", "2" },
	{ "size", "4M" },
	{ "duration", "200ms" },
	{ "warmup", "50ms" },
	{ "interval", "50ms" },
	{ "connect-timeout", "5s" },
	{ "timeout", "10s" },
	{ NULL, NULL },
};

/* Each pair takes seconds, in both directions. */
static const struct dr_opt_pair sweep_defaults[] = {
	{ "matrix", "on" },
	{ "bidir", "on" },
	{ "channels", "2" },
	{ "size", "4M" },
	{ "duration", "500ms" },
	{ "warmup", "50ms" },
	{ "interval", "100ms" },
	{ "connect-timeout", "20s" },
	{ "timeout", "20s" },
	{ NULL, NULL },
};

static const struct dr_opt_pair server_examples[] = {
	{ "Serve clients until Ctrl-C", "server" },
	{ "Use two NICs and listen on another port", "server --rails eth1,eth2 --port 21000" },
	{ "Serve one client, which may inject faults here",
		"server --one-off --allow-faults --key-file secret" },
	{ NULL, NULL },
};

static const struct dr_opt_pair client_examples[] = {
	{ "Bandwidth and latency for messages of 64 KiB to 64 MiB",
		"client node1 --test bw,lat -b 64K -e 64M" },
	{ "Bandwidth of every GPU over every NIC", "client node1 --matrix" },
	{ "Cut the primary link while data flows",
		"client node1 --test failover --allow-faults --fault link-down" },
	{ "Fail below 90 % of an earlier run", "client node1 --baseline good.json --min-bw 90%" },
	{ "A job that cron starts", "client node1 -q --log-json --json=today.json" },
	{ "Print the plan without running it", "client node1 --dry-run" },
	{ NULL, NULL },
};

static const struct dr_opt_pair demo_examples[] = {
	{ "All tests on this machine", "demo" },
	{ "Bandwidth only, over four links", "demo --test bw --links 4" },
	{ NULL, NULL },
};

static const struct dr_opt_pair topo_examples[] = {
	{ "GPUs, NICs and the rails of each GPU", "topo" },
	{ "The same for another machine", "topo --topology node1.xml" },
	{ NULL, NULL },
};

static const struct dr_opt_pair doctor_examples[] = {
	{ "Check this machine", "doctor" },
	{ "Undo what killed runs left, check nothing", "doctor --repair" },
	{ "Also check the paths to a server", "doctor node1 --rails eth1,eth2" },
	{ NULL, NULL },
};

static const struct dr_opt_pair preflight_examples[] = {
	{ "Add a run on a healthy fabric to the baseline",
		"preflight node1 --save-baseline /var/lib/dualrail/node1.json" },
	{ "In a job's prolog", "preflight node1 --baseline /var/lib/dualrail/node1.json" },
	{ "Also compare every byte", "preflight node1 --verify" },
	{ NULL, NULL },
};

static const struct dr_opt_pair sweep_examples[] = {
	{ "All pairs of the nodes of a job of Slurm", "sweep --key-file key --json=sweep.json" },
	{ "Started on each node of a list", "sweep --hostfile scripts/node_ips/example.txt" },
	{ "Under mpirun, with the bytes compared",
		"sweep --coordinator node0 --verify --transport verbs" },
	{ "Measure only what is missing in an earlier document",
		"sweep --resume sweep.json --json=complete.json" },
	{ NULL, NULL },
};

static const struct dr_opt_pair compare_examples[] = {
	{ "Figures that an update made worse", "compare before/*.json -- after/*.json" },
	{ "Only changes of more than 3 %", "compare --tolerance 3 before/*.json -- after/*.json" },
	{ NULL, NULL },
};

static const struct dr_opt_pair plugin_examples[] = {
	{ "Check our own plugin over loopback", "plugin build/release/libnccl-net-ha.so" },
	{ "Check its tables of version 6", "plugin ./libnccl-net.so --net-api v6" },
	{ NULL, NULL },
};

static const struct dr_opt_pair report_examples[] = {
	{ "A page of one run", "report result.json -o page.html" },
	{ NULL, NULL },
};

static const struct dr_opt_pair completion_examples[] = {
	{ "Complete commands and options in new bash shells", "completion bash >>~/.bashrc" },
	{ NULL, NULL },
};

const struct dr_opt_command dr_options_command_list[] = {
	{ "server", DR_CMDBIT_SERVER, "[options]",
		"Wait for clients and run the tests that each client asks for.", NULL, NULL,
		server_examples },
	{ "client", DR_CMDBIT_CLIENT, "HOST [options]",
		"Run tests against the server on HOST (HOST:PORT for another port).", NULL, NULL,
		client_examples },
	{ "demo", DR_CMDBIT_DEMO, "[options]",
		"Run both ends on this machine: in two network namespaces with root, else over loopback.",
		"Run both ends on this machine.", demo_defaults, demo_examples },
	{ "topo", DR_CMDBIT_TOPO, "[options]",
		"Print the GPUs and NICs, their distances, and the rails each GPU would use.",
		"Print GPUs, NICs and the rails of each GPU.", NULL, topo_examples },
	{ "doctor", DR_CMDBIT_DOCTOR, "[HOST] [options]",
		"Check this machine for problems that stop a run or distort its results, and print the "
		"fix for each. With HOST, also check the paths to the server.",
		"Find what stops or distorts a run, and the fix.", doctor_defaults,
		doctor_examples },
	{ "preflight", DR_CMDBIT_PREFLIGHT, "HOST [options]",
		"Before a job: the checks of doctor, a short --matrix against the server on HOST, the comparison with "
		"--baseline. Prints one line, which names the GPU or NIC that is bad.",
		"Before a job: is a GPU or NIC of this node bad?", preflight_defaults,
		preflight_examples },
	{ "sweep", DR_CMDBIT_SWEEP, "[options]",
		"On every node of a job: measure the nodes in pairs, and name the bad node, NIC, cable or fabric link, or "
		"show that the network is not the cause. The scheduler starts it and tells the ranks.",
		"Measure the nodes of a job; name what is bad.", sweep_defaults, sweep_examples },
	{ "compare", DR_CMDBIT_COMPARE, "[options] OLD... -- NEW...",
		"Compare result documents of repeated runs: which figures became worse or better beyond the noise. "
		"Status 7: at least one became worse.",
		"Find figures that became worse beyond the noise.", NULL, compare_examples },
	{ "plugin", DR_CMDBIT_PLUGIN, "FILE [options]",
		"Print the devices of a network plugin of NCCL, and check that it obeys the rules of its interface.",
		"Check a network plugin of NCCL.", NULL, plugin_examples },
	{ "report", DR_CMDBIT_REPORT, "RESULT... -o PAGE.html",
		"Write documents of runs and sweeps (--json=FILE) as one HTML page that needs no network: verdict, "
		"charts, tables, and the documents themselves.",
		"Write result documents as an HTML page.", NULL, report_examples },
	{ "help", 0, "[COMMAND]", "Print the options of a command.", NULL, NULL, NULL },
	{ "completion", 0, "bash", "Print a completion script for bash.", NULL, NULL,
		completion_examples },
	{ "schema", 0, "[result|stream|log|doctor|topo|compare|preflight|sweep]",
		"Print the JSON Schema of a document; without a name, print the names.", NULL, NULL,
		NULL },
	{ .name = NULL },
};

static const struct dr_opt_pair sections[] = {
	{ "DESCRIPTION",
		"dualrail measures the bandwidth and latency of each GPU over each NIC between two nodes. It "
		"also measures how long the delivery of data stops when a path fails, and whether every "
		"byte is still right afterwards.\n"
		"A channel sends messages over two paths on two rails (pairs of NICs). When the primary path "
		"fails, the channel switches to the shadow path, sends again what was lost, and returns after "
		"the primary path has recovered.\n"
		"One node runs the server, the other one the client. The client chooses the tests. Measuring "
		"over TCP needs no privileges; most faults need root." },
	{ NULL, NULL },
};

static const struct dr_opt_pair statuses[] = {
	{ "0", "Pass." },
	{ "1", "Wrong options." },
	{ "2", "Environment; the message says what to do." },
	{ "3", "Peer, connection, version or key; errors[].reason of the document has one of unreachable, "
	       "refused, timeout, busy, key, version, protocol, declined, paths, died, ended, lost, local." },
	{ "4", "Transport error during the run, e.g. both rails lost; a trial CLEAN_ERROR; plugin: violations." },
	{ "5", "Timeout, a trial HANG." },
	{ "6", "Data wrong, a trial WRONG." },
	{ "7", "Bandwidth below --min-bw or --baseline (2 if the line rate is unknown: give Gb/s), a round trip "
	       "above --max-lat; compare: a figure became worse." },
	{ "8", "Failover criterion missed: a delivery gap above --max-gap, a false failover, or less than "
	       "90 % of the trials hit data." },
	{ "128+n", "Signal n." },
	{ NULL, NULL },
};

static const struct dr_opt_pair files[] = {
	{ "/run/dualrail",
		"Record of the faults that are injected at the moment, with which the next start undoes those of "
		"a killed run. Valid until the next boot." },
	{ "FILE.json of --config",
		"Options: {\"long-name\": value}. Options of other commands are ignored; null is an error. "
		"A regular file of this user or of root, or /dev/stdin or /dev/fd/N." },
	{ "FILE of --key-file",
		"Shared secret of both ends: head -c 32 /dev/urandom | base64 >K; chmod 600 K. 32 random bytes "
		"or more as hex digits or base64 are taken as they are. Other content of 16 bytes or more is a "
		"passphrase, which Argon2id stretches. A regular file of this user or of root that nobody else "
		"can read, or /dev/stdin or /dev/fd/N." },
	{ "result files",
		"A new file replaces an own one and keeps its permissions, without setuid, setgid and sticky. "
		"A symbolic link or a file of another user is refused with status 2. Devices, FIFOs, "
		"/dev/stdout and /dev/fd/N are written as they are." },
	{ NULL, NULL },
};

static const struct dr_opt_pair notes[] = {
	{ "METRICS",
		"--prom writes the results of a run in the text format of Prometheus, also when it fails or does "
		"not begin: dualrail_last_run_success, dualrail_last_run_exit_code, "
		"dualrail_last_run_timestamp_seconds (the begin), dualrail_last_run_duration_seconds, and the "
		"figures as gauges. The labels are host, test and those of --prom-label. --metrics-listen serves "
		"them over HTTP with counters of the process." },
	{ NULL, NULL },
};

const struct dr_opt_manual dr_options_manual = {
	.version = DR_VERSION,
	.purpose = "measure GPU-to-GPU bandwidth, latency and failover over pairs of NICs",
	.sections = sections,
	.statuses = statuses,
	.files = files,
	.notes = notes,
	.see_also = "ip(8), tc(8), lstopo(1), perftest, iperf3(1)",
};
