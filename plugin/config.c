/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/config.h"

#include "base/units.h"
#include "transport/kind.h"

#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/*
 * From the environment to a struct ha_config. The table (base/opts.h) is parser and document.
 * 1. Members of struct reading that a row describes are written by its parser alone.
 * 2. A variable without effect is never silent, see the header.
 */
#define PROGRAM "HA_NCCL"

struct reading {
	struct ha_config c;
	uint64_t ib_timeout, ib_retry, ib_tc, ib_sl;
	int gid_index;		  /* -1: by the address */
	const char *metrics_file; /* before %h and %p are replaced */
};

/* ---- values ---- */

static int parse_ms(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t ms = 0;
	int rc = text ? dr_parse_u64(text, (uint64_t)row->min, (uint64_t)row->max, &ms, e) : 0;

	if (rc == 0)
		*(int64_t *)dst = (int64_t)ms * DR_NS_PER_MS;
	return rc;
}

static int parse_gid(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint64_t index = 0;
	bool automatic = !text || strcmp(text, "-1") == 0;
	int rc = automatic ? 0 : dr_parse_u64(text, 0, (uint64_t)row->max, &index, e);

	if (rc == 0)
		*(int *)dst = automatic ? -1 : (int)index;
	return rc;
}

static int parse_names(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	(void)row;
	return ha_names_parse(text ? text : "", dst, e);
}

static int parse_ports(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	uint16_t *ports = dst;

	(void)row;
	return text ? dr_parse_ports(text, &ports[0], &ports[1], e) : 0;
}

/* Other words are NCCL's to judge. */
static int parse_level(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	enum dr_log_level *level = dst;

	(void)row;
	(void)e;
	*level = DR_LOG_WARN;
	if (text && strcasecmp(text, "TRACE") == 0)
		*level = DR_LOG_DEBUG;
	else if (text && (strcasecmp(text, "INFO") == 0 || strcasecmp(text, "ABORT") == 0))
		*level = DR_LOG_INFO;
	return 0;
}

/* ---- the table ---- */

/* Commands of the table: the transports with which a row is read, and whether the line of
 * ha_config_describe has it by another name. HA_FIRST: what the others depend on. Above the bits of
 * a kind's own options. */
enum {
	HA_TCP = 1 << 16,
	HA_VERBS = 1 << 17,
	HA_FIRST = 1 << 18,
	HA_STATED = 1 << 19,
	HA_ALWAYS = HA_TCP | HA_VERBS,
};

#define AT(member) .offset = offsetof(struct reading, member)
#define BOOL .kind = DR_OPT_CHOICE, .choices = "0|1"
#define MS .kind = DR_OPT_CUSTOM, .parse = parse_ms, .unit = "ms"
#define NAMES .kind = DR_OPT_CUSTOM, .parse = parse_names, .arg = "names separated by commas"

/*
 * Defaults: detection, failback and hold-down are those of `dualrail`; the IB timeout is nccl-ha's.
 * At least one I/O thread is needed: it drives the bulk lanes, and sleeps while they are idle.
 */
/* clang-format off */
static const struct dr_opt rows[] = {
	{ .name = "HA_NCCL_TRANSPORT", .kind = DR_OPT_CHOICE, .def = "auto",
	  .choices = "auto|tcp|verbs", AT(c.transport),
	  .commands = HA_ALWAYS | HA_FIRST | HA_STATED,
	  .help = "Transport of the data. auto: verbs if an RDMA device can be used, else tcp." },
	{ .name = "NCCL_SOCKET_IFNAME", NAMES, AT(c.devices), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Network devices to use: prefixes of their names; `=` before the list: whole "
		  "names; `^`: all but these. Automatic: devices that are up with a global "
		  "address, without tunnels, container bridges, loopback and the management "
		  "device. With verbs: only of the rendezvous; automatic: those of the RDMA "
		  "devices." },
	{ .name = "HA_NCCL_DEVICES", NAMES, AT(c.devices), .commands = HA_ALWAYS | HA_STATED,
	  .help = "The same for this plugin alone. It has precedence." },
	{ .name = "NCCL_SOCKET_FAMILY", .kind = DR_OPT_CHOICE, .def = "AF_UNSPEC",
	  .choices = "AF_UNSPEC|AF_INET|AF_INET6", AT(c.family), .commands = HA_ALWAYS,
	  .help = "Use IPv4 (AF_INET) or IPv6 addresses (AF_INET6) only; AF_UNSPEC: both." },
	{ .name = "HA_NCCL_SPEED", .kind = DR_OPT_UINT, .min = 10, .max = 3200000, .unit = "Mb/s",
	  AT(c.speed_mbps), .commands = HA_ALWAYS,
	  .help = "Speed that NCCL is told for every device. NCCL chooses algorithms and channels "
		  "by it. Default: the link's, 10000 where it is unknown." },
	{ .name = "HA_NCCL_ENABLE_BACKUP", BOOL, .def = "1", AT(c.backup),
	  .commands = HA_ALWAYS,
	  .help = "Give every connection a second path over another device. 0: no failover." },
	{ .name = "HA_NCCL_DETECT", .kind = DR_OPT_CHOICE, .def = "fast",
	  .choices = "fast|conservative", AT(c.detect), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Failure detection. fast: errors and missed heartbeats; conservative: only when "
		  "the kernel or the NIC reports a failure, or after `HA_NCCL_RTO_MS`." },
	{ .name = "HA_NCCL_HEARTBEAT_MS", MS, .def = "10", .min = 1, .max = 10000,
	  AT(c.heartbeat_ns), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Interval between the heartbeats of a rail." },
	{ .name = "HA_NCCL_RTO_MS", MS, .min = 1, .max = 600000, AT(c.rto_ns),
	  .commands = HA_ALWAYS,
	  .help = "Time without any acknowledgement until conservative detection declares a path "
		  "down. Default: twice the time until the transport gives up; smaller values are "
		  "raised to it with a warning." },
	{ .name = "HA_NCCL_ENABLE_FAILBACK", BOOL, .def = "1", AT(c.failback),
	  .commands = HA_ALWAYS | HA_STATED,
	  .help = "Return to the first path after it has recovered." },
	{ .name = "HA_NCCL_HOLD_DOWN_MS", MS, .def = "1000", .min = 1, .max = 1000000,
	  AT(c.hold_down_ns), .commands = HA_ALWAYS,
	  .help = "Time that the first path must be healthy before failback." },
	{ .name = "NCCL_MESH_TIMEOUT_MS", MS, .min = 100, .max = 3600000, AT(c.connect_timeout_ns),
	  .commands = HA_ALWAYS,
	  .help = "The name that nccl-mesh-plugin has for `HA_NCCL_CONNECT_TIMEOUT_MS`." },
	{ .name = "HA_NCCL_CONNECT_TIMEOUT_MS", MS, .def = "30000", .min = 100, .max = 3600000,
	  AT(c.connect_timeout_ns), .commands = HA_ALWAYS,
	  .help = "Time for a connection to be set up; afterwards NCCL gets an error." },
	{ .name = "HA_NCCL_NTHREADS", .kind = DR_OPT_UINT, .min = 1, .max = HA_THREADS_MAX,
	  AT(c.threads), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Threads that move large messages, for the whole process. Default: three "
		  "eighths of the CPUs, 1 to 12." },
	{ .name = "HA_NCCL_LANES", .kind = DR_OPT_UINT, .def = "1", .min = 1, .max = HA_LANES_MAX,
	  AT(c.lanes), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Connections for large messages to each peer process, for each thread." },
	{ .name = "HA_NCCL_SPIN_US", .kind = DR_OPT_UINT, .max = 10000, .unit = "us", AT(c.spin_us),
	  .commands = HA_ALWAYS,
	  .help = "Time for which one of these threads polls without an event, while data that it "
		  "moves is under way, before it sleeps. Default: 200 with 8 CPUs or more, else "
		  "20." },
	{ .name = "HA_NCCL_CHUNK", .kind = DR_OPT_SIZE, .def = "256K", .min = 16 << 10,
	  .max = 64 << 20, AT(c.chunk), .commands = HA_ALWAYS | HA_STATED,
	  .help = "Large messages are cut into pieces of this size." },
	{ .name = "HA_NCCL_EAGER", .kind = DR_OPT_SIZE, .max = HA_EAGER_MAX, AT(c.eager),
	  .commands = HA_ALWAYS | HA_STATED,
	  .help = "Messages up to this size are copied and sent at once, without waiting for the "
		  "receiver. Default: 8K with 8 CPUs or more, else 144K." },
	{ .name = "HA_NCCL_SOCKBUF", .kind = DR_OPT_SIZE, .def = "0", .max = 1 << 30, AT(c.sockbuf),
	  .commands = HA_ALWAYS, .help = "Size of the socket buffers. 0: set by the kernel." },
	{ .name = "HA_NCCL_PORTS", .kind = DR_OPT_CUSTOM, .parse = parse_ports,
	  .arg = "A-B, e.g. 30000-30999", AT(c.ports), .commands = HA_ALWAYS,
	  .help = "Ports of this range only for everything that listens, TCP and UDP. Default: "
		  "chosen by the kernel." },
	{ .name = "HA_NCCL_USE_PROGRESS_THREAD", BOOL, .def = "1",
	  AT(c.progress_thread), .commands = HA_ALWAYS,
	  .help = "Let a thread drive the connections for small messages that NCCL has not called "
		  "for half a heartbeat. 0: only NCCL's calls drive them." },
	{ .name = "HA_NCCL_TEST_MAX_POLL", .kind = DR_OPT_UINT, .def = "32", .min = 1, .max = 4096,
	  AT(c.test_max_poll), .commands = HA_ALWAYS,
	  .help = "Events that one call of test handles at most." },
	{ .name = "NCCL_DEBUG", .kind = DR_OPT_CUSTOM, .parse = parse_level,
	  .arg = "VERSION, WARN, INFO, ABORT or TRACE", .def = "WARN", AT(c.log_level),
	  .commands = HA_ALWAYS | HA_STATED,
	  .help = "NCCL's log level. This plugin writes its lines through NCCL's logger." },
	{ .name = "NCCL_MESH_DEBUG", BOOL, AT(c.debug), .commands = HA_ALWAYS,
	  .help = "The name that nccl-mesh-plugin has for `HA_NCCL_DEBUG`." },
	{ .name = "HA_NCCL_DEBUG", BOOL, .def = "0", AT(c.debug),
	  .commands = HA_ALWAYS,
	  .help = "Write this plugin's debug lines at level INFO. Otherwise they need "
		  "`NCCL_DEBUG=TRACE`." },
	{ .name = "HA_NCCL_METRICS_FILE", .kind = DR_OPT_STRING,
	  .arg = "a path of less than 512 bytes", AT(metrics_file), .commands = HA_ALWAYS,
	  .help = "Prometheus text file with counters of devices and failovers. %h and %p stand "
		  "for host name and process id; several processes of a host need %p. It appears "
		  "by rename; a symbolic link or a file of another user is not replaced." },
	{ .name = "NCCL_IB_HCA", NAMES, AT(c.rdma_devices), .commands = HA_VERBS,
	  .help = "RDMA devices to use, as `NCCL_SOCKET_IFNAME`, each with an optional `:PORT`. "
		  "Automatic: all with an active port." },
	{ .name = "NCCL_IB_TIMEOUT", .kind = DR_OPT_UINT, .max = 31, AT(ib_timeout),
	  .commands = HA_VERBS, .help = "Acknowledgement timeout of queue pairs, 4.096 us x 2^N." },
	{ .name = "HA_NCCL_FORCE_IB_TIMEOUT", .kind = DR_OPT_UINT, .def = "14", .min = 1, .max = 31,
	  AT(ib_timeout), .commands = HA_VERBS,
	  .help = "The same for this plugin alone. It has precedence." },
	{ .name = "NCCL_IB_RETRY_CNT", .kind = DR_OPT_UINT, .def = "7", .max = 7, AT(ib_retry),
	  .commands = HA_VERBS, .help = "Retries of a queue pair before it reports an error." },
	{ .name = "NCCL_MESH_GID_INDEX", .kind = DR_OPT_CUSTOM, .parse = parse_gid, .min = -1,
	  .max = 255, AT(gid_index), .commands = HA_VERBS,
	  .help = "The name that nccl-mesh-plugin has for `NCCL_IB_GID_INDEX`." },
	{ .name = "NCCL_IB_GID_INDEX", .kind = DR_OPT_CUSTOM, .parse = parse_gid, .def = "-1",
	  .min = -1, .max = 255, AT(gid_index), .commands = HA_VERBS,
	  .help = "Index of the GID of RDMA connections on every device. -1: found by the address "
		  "of each." },
	{ .name = "NCCL_IB_TC", .kind = DR_OPT_UINT, .def = "0", .max = 255, AT(ib_tc),
	  .commands = HA_VERBS, .help = "Traffic class of RDMA packets." },
	{ .name = "NCCL_IB_SL", .kind = DR_OPT_UINT, .def = "0", .max = 15, AT(ib_sl),
	  .commands = HA_VERBS, .help = "Service level of RDMA packets." },
};
/* clang-format on */
const struct dr_opt_group ha_variables = { "Variables", rows, DR_ARRAY_LEN(rows) };

/* ---- what is set without effect ---- */

/* A variable of another plugin for the same value stands before the own one, which wins. */
static bool is_replaced(const struct dr_opts *o, const struct dr_opt *v)
{
	const struct dr_opt *own = v + 1;

	return own < rows + DR_ARRAY_LEN(rows) && own->offset == v->offset &&
	       dr_opts_variable(o, own->name);
}

/* NULL: it has an effect. */
static const char *why_unused(
	const struct dr_opts *o, const struct ha_config *c, const struct dr_opt *v)
{
	bool holds = v->offset == offsetof(struct reading, c.hold_down_ns);
	bool failback = holds || v->offset == offsetof(struct reading, c.failback);

	if (!(v->commands & HA_TCP) && !ha_config_is_verbs(c))
		return "it is not used with the tcp transport";
	if (failback && !c->backup)
		return "HA_NCCL_ENABLE_BACKUP is 0";
	if (holds && !c->failback)
		return "HA_NCCL_ENABLE_FAILBACK is 0";
	if (v->offset == offsetof(struct reading, c.rto_ns) && c->detect != DR_DETECT_CONSERVATIVE)
		return "it is used only with HA_NCCL_DETECT=conservative";
	return is_replaced(o, v) ? "the plugin's own variable is set" : NULL;
}

/* Reports what has no effect. Of the rest, appends to c->changed what the line of
 * ha_config_describe does not state and is not the default. */
static void report(const struct dr_opts *o, struct ha_config *c)
{
	char text[200];

	for (size_t at = 0; dr_opts_next_stray_env(o, &at, text, sizeof(text));)
		dr_warn("config", "%s", text);
	for (const struct dr_opt *v = rows; v < rows + DR_ARRAY_LEN(rows); v++) {
		bool own = strncmp(v->name, PROGRAM "_", sizeof(PROGRAM)) == 0;
		const char *value = dr_opts_variable(o, v->name);
		const char *why = value ? why_unused(o, c, v) : NULL;
		const char *def = dr_opt_default(o, v, HA_ALWAYS);

		if (why)
			dr_log(own ? DR_LOG_WARN : DR_LOG_INFO, "config", "%s has no effect: %s",
				v->name, why);
		else if (value && !(v->commands & HA_STATED) && !(def && strcmp(value, def) == 0))
			dr_append(c->changed, sizeof(c->changed), "%s%s=%.150s",
				*c->changed ? " " : "; ", v->name, value);
	}
}

/* ---- from values to what is in force ---- */

static int choose_transport(struct ha_config *c, const struct ha_host *host, struct dr_err *e)
{
	bool verbs = c->transport == HA_TRANSPORT_VERBS ||
		     (c->transport == HA_TRANSPORT_AUTO && host->rdma);
	const char *name = verbs ? "verbs" : "tcp";
	char names[64];

	c->kind = dr_transport_kind(name);
	if (!c->kind)
		return dr_err_set(e, -ENOTSUP,
			"HA_NCCL_TRANSPORT: this build has no %s transport (built: %s)", name,
			dr_transport_names(names, sizeof(names)));
	return 0;
}

bool ha_config_is_verbs(const struct ha_config *c)
{
	return c->kind && strcmp(c->kind->name, "verbs") == 0;
}

/* As the program's options of the same meaning set them. */
static int set_params(struct dr_opts *o, struct reading *r, struct dr_err *e)
{
	if (r->ib_timeout == 0 && r->c.detect == DR_DETECT_CONSERVATIVE)
		return dr_err_set(e, -EINVAL,
			"NCCL_IB_TIMEOUT=0 never gives up, so HA_NCCL_DETECT=conservative would never "
			"switch; use 1 to 31");
	json_t *j = json_pack("{s:i, s:i, s:i, s:i, s:i}", "gid", r->gid_index, "sl", (int)r->ib_sl,
		"tc", (int)r->ib_tc, "ib-timeout", (int)r->ib_timeout, "ib-retry",
		(int)r->ib_retry);
	int rc = j ? dr_opts_from_json(o, DR_CMDBIT_RUN, j, e)
		   : dr_err_set(e, -ENOMEM, "configuration: out of memory");

	json_decref(j);
	return rc;
}

/* %h, %p and %%; other letters stay as they are, as in NCCL_DEBUG_FILE. */
static int expand_path(const char *text, const struct ha_host *host, char *out, struct dr_err *e)
{
	char path[HA_PATH_BYTES + 64] = "";

	for (const char *s = text; s && *s && strlen(path) < HA_PATH_BYTES; s++) {
		if (s[0] == '%' && s[1] == 'h')
			dr_append(path, sizeof(path), "%.60s", host->name);
		else if (s[0] == '%' && s[1] == 'p')
			dr_append(path, sizeof(path), "%d", host->pid);
		else
			dr_append(path, sizeof(path), "%c", *s);
		if (s[0] == '%' && s[1] && strchr("hp%", s[1]))
			s++;
	}
	if (strlen(path) >= HA_PATH_BYTES)
		return dr_err_set(e, -EINVAL,
			"HA_NCCL_METRICS_FILE: \"%.60s...\" is too long; use a path of less than %d bytes",
			text, HA_PATH_BYTES);
	memcpy(out, path, strlen(path) + 1);
	return 0;
}

/* The soft bound never comes before the transport's own: it would be a false failover. */
static void check_rto(struct ha_config *c)
{
	int64_t asked = c->rto_ns, least;
	char was[32], now[32];

	if (c->detect != DR_DETECT_CONSERVATIVE || asked == 0)
		return;
	c->rto_ns = 0;
	least = ha_config_detect_bound(c);
	c->rto_ns = DR_MAX(asked, least);
	if (c->rto_ns == asked)
		return;
	dr_format_duration_exact(asked, was, sizeof(was));
	dr_format_duration_exact(least, now, sizeof(now));
	dr_warn("config",
		"HA_NCCL_RTO_MS: %s is less than twice the time in which the kernel or the NIC gives up "
		"a connection; %s is used",
		was, now);
}

/* The transport first: others depend on it. */
static int read_all(
	struct dr_opts *o, struct reading *r, const struct ha_host *host, struct dr_err *e)
{
	struct ha_config *c = &r->c;
	int rc = dr_opts_defaults(o, HA_ALWAYS, e);

	if (rc == 0)
		rc = dr_opts_from_env(o, HA_FIRST, e);
	if (rc == 0)
		rc = choose_transport(c, host, e);
	if (rc == 0)
		rc = dr_opts_from_env(o, ha_config_is_verbs(c) ? HA_VERBS : HA_TCP, e);
	if (rc == 0 && ha_config_is_verbs(c))
		rc = set_params(o, r, e);
	if (rc == 0)
		rc = expand_path(r->metrics_file, host, c->metrics_file, e);
	if (rc < 0)
		return rc;
	if (dr_opts_given(o, "HA_NCCL_DEVICES"))
		c->devices_variable = "HA_NCCL_DEVICES";
	else if (dr_opts_given(o, "NCCL_SOCKET_IFNAME"))
		c->devices_variable = "NCCL_SOCKET_IFNAME";
	if (c->debug)
		c->log_level = DR_LOG_DEBUG;
	report(o, c);
	check_rto(c);
	return 0;
}

/* Threads: of two processes on 16 CPUs, each with a thread of NCCL and one of the application that
 * spin (docs/BENCHMARKS.md). With CPUs for the I/O threads, they move all but the smallest
 * messages, and poll while data is under way. Else the caller copies; polling took its CPU. */
int ha_config_parse(
	struct ha_config *out, char *const *env, const struct ha_host *host, struct dr_err *e)
{
	const struct dr_transport_kind *verbs = dr_transport_kind("verbs");
	bool enough = host->cpus >= 8;
	char threads[16];
	const struct dr_opt_pair defaults[] = { { "HA_NCCL_NTHREADS", threads },
		{ "HA_NCCL_SPIN_US", enough ? "200" : "20" },
		{ "HA_NCCL_EAGER", enough ? "8K" : "144K" }, { NULL, NULL } };
	const struct dr_opt_command commands[] = {
		{ .name = "plugin", .bit = HA_ALWAYS, .defaults = defaults }, { .name = NULL }
	};
	const struct dr_opt_group *const groups[] = { &ha_variables, verbs ? &verbs->options : NULL,
		NULL };
	struct reading r;
	void *const targets[] = { NULL, &r.c.params };
	const struct dr_opts_spec spec = { .program = PROGRAM,
		.groups = groups,
		.commands = commands,
		.targets = targets,
		.variables = true,
		.env = env };
	struct dr_opts *o;

	memset(&r, 0, sizeof(r));
	snprintf(threads, sizeof(threads), "%u", DR_MAX(DR_MIN(host->cpus * 3 / 8, 12u), 1u));
	int rc = dr_opts_create(&o, &spec, &r);
	if (rc < 0)
		return dr_err_set(e, rc, "configuration: out of memory");
	rc = read_all(o, &r, host, e);
	if (rc == 0)
		*out = r.c;
	dr_opts_destroy(o);
	return rc;
}

static unsigned usable_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	/* More CPUs than a cpu_set_t has bits. */
	return (unsigned)DR_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L);
}

enum { PORTS_MAX = 64 };
/* Of the transport's own devices, if it has some. */
static bool has_active_port(const struct dr_transport_kind *k)
{
	struct dr_kind_port port[PORTS_MAX];
	int n = k && k->ports ? k->ports(port, DR_ARRAY_LEN(port), NULL) : 0;

	for (int i = 0; i < DR_MIN(n, (int)DR_ARRAY_LEN(port)); i++)
		if (port[i].active)
			return true;
	return false;
}

int ha_config_read(struct ha_config *out, bool rdma, struct dr_err *e)
{
	char name[65] = "";
	struct ha_host host = { .cpus = usable_cpus(), .pid = (int)getpid(), .name = name };

	host.rdma = rdma && has_active_port(dr_transport_kind("verbs"));
	if (gethostname(name, sizeof(name) - 1) < 0)
		snprintf(name, sizeof(name), "localhost");
	return ha_config_parse(out, environ, &host, e);
}

void ha_config_manager(const struct ha_config *c, struct dr_manager_params *p)
{
	int64_t window_ns = 0, retry_ns = 0;

	p->transport = c->kind->ops;
	if (ha_config_is_verbs(c)) {
		p->kind_params = &c->params;
		c->kind->windows(&c->params, &window_ns, &retry_ns);
	}
	p->hw_retry_ns = retry_ns;
	p->detect = (enum dr_detect)c->detect;
	p->heartbeat_ns = c->heartbeat_ns;
	p->failback = c->failback;
	p->hold_down_ns = c->hold_down_ns;
	p->lost_after_ns = DR_LOST_AFTER_JOB_NS;
	p->sockbuf = (int)c->sockbuf;
	p->port_min = c->ports[0];
	p->port_max = c->ports[1];
	/* The manager waits for twice the window of the hardware. */
	p->hw_window_ns =
		c->detect == DR_DETECT_CONSERVATIVE && c->rto_ns ? c->rto_ns / 2 : window_ns;
}

int ha_config_taken(const struct ha_config *c, int rc, struct dr_err *e)
{
	if (rc != -EADDRINUSE || !c->ports[0])
		return rc;
	/* Of a session: its heartbeats, its comms, its I/O threads. */
	return dr_err_set(e, rc,
		"HA_NCCL_PORTS=%u-%u: no port of these %u is free; a process needs 1, and with tcp %u on a "
		"NIC for each device of a peer process; use a larger range",
		c->ports[0], c->ports[1], c->ports[1] - c->ports[0] + 1u, 2 + (unsigned)c->threads);
}

int64_t ha_config_detect_bound(const struct ha_config *c)
{
	struct dr_manager_params p = { .n_rails = 0 };

	ha_config_manager(c, &p);
	return dr_manager_detect_bound(&p);
}

/* ---- the line that states what is in force ---- */

static void describe_detection(const struct ha_config *c, char *buf, size_t len)
{
	char beat[32], bound[32];

	dr_format_duration(c->heartbeat_ns, beat, sizeof(beat));
	dr_format_duration(ha_config_detect_bound(c), bound, sizeof(bound));
	dr_append(buf, len, "heartbeat %s, detection %s within %s, ", beat,
		c->detect == DR_DETECT_FAST ? "fast" : "conservative", bound);
	if (c->backup)
		dr_append(buf, len, "failback %s, ", c->failback ? "on" : "off");
	else
		dr_append(buf, len, "no backup paths, ");
}

void ha_config_describe(
	const struct ha_config *c, const struct ha_about *about, char *buf, size_t len)
{
	char chunk[32], eager[32];

	dr_format_size(c->chunk, chunk, sizeof(chunk));
	dr_format_size(c->eager, eager, sizeof(eager));
	snprintf(buf, len, "version %s (build %s), transport %s, devices %s, ", about->version,
		about->build, c->kind->name, about->devices);
	describe_detection(c, buf, len);
	dr_append(buf, len, "%u thread%s with %u lane%s each, chunk %s, eager %s%s",
		(unsigned)c->threads, c->threads == 1 ? "" : "s", (unsigned)c->lanes,
		c->lanes == 1 ? "" : "s", chunk, eager, c->changed);
}
