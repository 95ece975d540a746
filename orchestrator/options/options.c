/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options/options_priv.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "bootstrap/bootstrap.h"
#include "channel/manager.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the table: parser, help, man page, completion, environment names, JSON echo ---- */

unsigned dr_options_command(const char *name)
{
	for (const struct dr_opt_command *c = dr_options_command_list; c->name; c++)
		if (strcmp(c->name, name) == 0)
			return c->bit;
	return 0;
}

void dr_options_commands(char *buf, size_t len)
{
	buf[0] = '\0';
	for (const struct dr_opt_command *c = dr_options_command_list; c->name; c++)
		dr_append(buf, len, "%s%s", *buf ? ", " : "", c->name);
}

struct groups {
	const struct dr_opt_group *group[16];
	void *target[15]; /* as many, without the NULL that ends the groups */
	size_t n;
};

static void add_group(struct groups *g, const struct dr_opt_group *group, void *target)
{
	if (!group || !group->n)
		return;
	dr_assert(g->n < DR_ARRAY_LEN(g->target));
	g->target[g->n] = target;
	g->group[g->n++] = group;
}

int dr_options_table(struct dr_options *o, struct dr_opts **out)
{
	const struct dr_options_part *fault = o->fault_part;
	struct groups g = { .n = 0 };
	const struct dr_opts_spec spec = { .program = "dualrail",
		.groups = g.group,
		.commands = dr_options_command_list,
		.manual = &dr_options_manual,
		.targets = g.target };
	const struct dr_transport_kind *k;

	add_group(&g, &dr_options_measure, o);
	add_group(&g, &dr_options_paths, o);
	for (size_t i = 0; (k = dr_transport_kind_at(i)) != NULL; i++) {
		dr_assert(k->params_size <= DR_KIND_PARAMS_MAX);
		add_group(&g, &k->options, &o->kinds[i]);
	}
	add_group(&g, fault ? fault->group : NULL, o->faults);
	add_group(&g, &dr_options_results, o);
	add_group(&g, o->file_group, o->files);
	add_group(&g, &dr_options_connection, o);
	add_group(&g, &dr_options_sweep, o);
	add_group(&g, &dr_options_plugin, o);
	add_group(&g, &dr_options_general, o);
	return dr_opts_create(out, &spec, o);
}

/* ---- checks across options ---- */

/* Each chunk in flight has a buffer of its own at each end: many of them displace one another from the cache. The best
 * settings of a sweep had 1 to 16 MiB in flight (docs/BENCHMARKS.md). */
static void set_window(struct dr_options *o)
{
	const uint64_t in_flight = 16 << 20, most = 16;
	uint64_t channels = DR_MAX(o->channels, (uint64_t)1);

	if (!dr_opts_given(o->table, "window"))
		o->window =
			DR_MIN(DR_MAX(in_flight / (dr_options_chunk_max(o) * channels), 1), most);
}

static int check_sizes(struct dr_options *o, struct dr_err *e)
{
	bool sweep = dr_opts_given(o->table, "begin") || dr_opts_given(o->table, "end");

	if (sweep && dr_opts_given(o->table, "size"))
		return dr_err_set(
			e, -EINVAL, "--size and a sweep (--begin, --end) cannot be combined");
	if (sweep && (!o->begin || !o->end || o->begin > o->end))
		return dr_err_set(e, -EINVAL,
			"a sweep needs both --begin and --end, and --begin must not exceed --end");
	if (!sweep)
		o->begin = o->end = 0;
	uint64_t smallest = sweep ? o->begin : o->size;
	if (dr_opts_given(o->table, "chunk") && o->chunk > smallest) {
		char c[32], s[32];

		dr_format_size(o->chunk, c, sizeof(c));
		dr_format_size(smallest, s, sizeof(s));
		return dr_err_set(e, -EINVAL,
			"--chunk %s is larger than the smallest message (%s); use a smaller chunk or omit --chunk",
			c, s);
	}
	return 0;
}

static int check_warmup(struct dr_options *o, struct dr_err *e)
{
	int rc = 0;

	o->warmup_ns = 300 * DR_NS_PER_MS;
	o->warmup_iters = 5;
	if (o->warmup && o->iters)
		rc = dr_parse_u64(o->warmup, 0, 1000000000, &o->warmup_iters, e);
	else if (o->warmup)
		rc = dr_parse_duration(o->warmup, &o->warmup_ns, e);
	if (rc)
		return dr_err_prefix(e, "--warmup");
	if (o->iters && dr_opts_given(o->table, "duration"))
		return dr_err_set(e, -EINVAL, "--iters and --duration cannot be combined");
	return 0;
}

/* What a client can make a server do. */
static int check_limits(struct dr_options *o, struct dr_err *e)
{
	if (o->command != DR_CMDBIT_SERVER) /* the demo's client is our own */
		o->max_memory = UINT64_MAX;
	if (!o->allow_from)
		return 0;
	int rc = dr_networks_parse(o->allow_from, &o->allow, e);
	return rc ? dr_err_prefix(e, "--allow-from") : 0;
}

static int check_channels(struct dr_options *o, struct dr_err *e)
{
	/* --reverse is asked for, --bidir may be the command's default. */
	if (o->reverse && !dr_opts_given(o->table, "bidir"))
		o->bidir = false;
	uint64_t n = o->channels * (o->bidir ? 2 : 1) + (o->test.lat ? 2 : 0);

	if (o->bidir && o->reverse)
		return dr_err_set(e, -EINVAL, "--bidir and --reverse cannot be combined");
	if (n > DR_GPU_CHANNELS_MAX)
		return dr_err_set(e, -ERANGE,
			"--channels %llu: both directions and the latency test need %llu channels per "
			"GPU; the limit is %d",
			(unsigned long long)o->channels, (unsigned long long)n,
			DR_GPU_CHANNELS_MAX);
	return 0;
}

static int check_matrix(struct dr_options *o, struct dr_err *e)
{
	static const char *const no[] = { "map", "spread" };

	if (o->min_nic && !o->matrix)
		return dr_err_set(
			e, -EINVAL, "--min-nic compares the NICs of --matrix; add --matrix");
	if (!o->matrix)
		return 0;
	if (!o->test.bw)
		return dr_err_set(e, -EINVAL, "--matrix measures bandwidth; add bw to --test");
	if (o->begin)
		return dr_err_set(e, -EINVAL,
			"--matrix needs a single message size; use --size instead of --begin and --end");
	for (size_t i = 0; i < DR_ARRAY_LEN(no); i++)
		if (dr_opts_given(o->table, no[i]))
			return dr_err_set(e, -EINVAL,
				"--matrix uses every NIC from every GPU and cannot be combined with --%s",
				no[i]);
	return 0;
}

/* What no figure can be judged without. */
static bool tells_figures(const char *name, size_t len)
{
	static const char *const names[] = { "test", "gpus", "transport", "memory", "channels",
		"size", "begin", "end", "chunk", "duration", "iters" };

	for (size_t i = 0; i < DR_ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && strncmp(names[i], name, len) == 0)
			return true;
	return false;
}

char *dr_options_brief(const struct dr_options *o)
{
	char *text = NULL, *to, name[64];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	dr_opts_print_kv(o->table, o->command, f);
	if (fclose(f)) {
		free(text); /* lint-ok: of open_memstream */
		return NULL;
	}
	to = text;
	for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		size_t n = strcspn(line, "=");

		snprintf(name, sizeof(name), "%.*s", (int)n, line);
		if (line + n + 1 == end ||
			!(tells_figures(line, n) || dr_opts_given(o->table, name)))
			continue;
		*end = ' ';
		memmove(to, line, (size_t)(end + 1 - line));
		to += end + 1 - line;
	}
	*to = '\0';
	return text;
}

void dr_options_tests(const struct dr_options *o, char *buf, size_t len)
{
	buf[0] = '\0';
	dr_append(buf, len, "%s", o->test.bw ? ",bw" : "");
	dr_append(buf, len, "%s", o->test.lat ? ",lat" : "");
	dr_append(buf, len, "%s", o->test.failover ? ",failover" : "");
	memmove(buf, buf + (*buf == ','), strlen(buf + (*buf == ',')) + 1);
}

/* Criteria of tests that do not run would be missed at the end. */
static int check_criteria(struct dr_options *o, struct dr_err *e)
{
	const struct {
		const char *option, *test;
		bool runs;
	} need[] = { { "min-bw", "bw", o->test.bw }, { "baseline", "bw", o->test.bw },
		{ "save-baseline", "bw", o->test.bw }, { "max-lat", "lat", o->test.lat } };
	char tests[32];

	dr_options_tests(o, tests, sizeof(tests));
	for (size_t i = 0; i < DR_ARRAY_LEN(need); i++) {
		if (!strcmp(need[i].option, "save-baseline") && !o->file_group)
			continue;
		if (!need[i].runs && dr_opts_given(o->table, need[i].option))
			return dr_err_set(e, -EINVAL, "--%s needs --test %s (it is \"%s\")",
				need[i].option, need[i].test, tests);
	}
	return 0;
}

unsigned dr_options_gpu_top(const struct dr_options *o)
{
	unsigned top = 0;

	for (size_t i = 0; i < o->gpus.n; i++)
		top = DR_MAX(top, o->gpus.v[i]);
	return top;
}

/* A job's prolog, or a sweep, breaks nothing. */
static int check_preflight(struct dr_options *o, struct dr_err *e)
{
	bool sweep = o->command == DR_CMDBIT_SWEEP;

	if (!sweep && o->command != DR_CMDBIT_PREFLIGHT)
		return 0;
	if (sweep && !o->test.bw)
		return dr_err_set(e, -EINVAL, "a sweep compares bandwidth; add bw to --test");
	if (sweep && o->key_file && dr_file_descriptor(o->key_file) >= 0)
		return dr_err_set(e, -EINVAL,
			"--key-file %.80s: each run of a sweep reads it anew; name a regular file",
			o->key_file);
	if (!o->test.failover)
		return 0;
	return dr_err_set(e, -EINVAL,
		"--test failover injects faults, which %s does not; use dualrail client",
		sweep ? "sweep" : "preflight");
}

static int check_gpus(const struct dr_options *o, struct dr_err *e)
{
	unsigned top = dr_options_gpu_top(o);

	/* A number above those of all GPUs is an error of dr_options_resolve, which says what there is. */
	if (o->command != DR_CMDBIT_DEMO && top < DR_OPTIONS_GPUS_MAX && o->port + top > 65535)
		return dr_err_set(e, -ERANGE,
			"--port %llu plus GPU number %u exceeds 65535; use a lower port",
			(unsigned long long)o->port, top);
	return 0;
}

/* "2 CPUs: 0-1" */
static void list_cpus(const cpu_set_t *set, size_t bytes, int max, char *buf, size_t len)
{
	int n = CPU_COUNT_S(bytes, set);

	buf[0] = '\0';
	dr_append(buf, len, "%d CPU%s: ", n, n == 1 ? "" : "s");
	for (int i = 0, k; i < max; i = k + 1) {
		for (k = i; k < max && CPU_ISSET_S(k, bytes, set); k++)
			;
		if (k == i)
			continue;
		dr_append(buf, len, "%s%d", buf[strlen(buf) - 1] == ' ' ? "" : ",", i);
		if (k - i > 1)
			dr_append(buf, len, "-%d", k - 1);
	}
}

/* A mask that was inherited (taskset, srun) is no limit; only the kernel knows. */
static bool may_run_on(unsigned cpu, const cpu_set_t *own, size_t bytes)
{
	cpu_set_t *one = dr_calloc(1, bytes);
	bool may = false;

	if (one) {
		CPU_SET_S(cpu, bytes, one);
		may = sched_setaffinity(0, bytes, one) == 0;
		if (may && sched_setaffinity(0, bytes, own) != 0)
			may = false;
	}
	dr_free(one);
	return may;
}

/* A worker that cannot be pinned would run anywhere, and the figures would be of something else. */
static int check_pin(const struct dr_options *o, struct dr_err *e)
{
	enum { CPUS_MAX = 4096 };
	cpu_set_t set[CPUS_MAX / CPU_SETSIZE];
	char there[96];

	if (!o->pin.n || sched_getaffinity(0, sizeof(set), set))
		return 0;
	for (size_t i = 0; i < o->pin.n; i++) {
		if (o->pin.v[i] < CPUS_MAX && (CPU_ISSET_S(o->pin.v[i], sizeof(set), set) ||
						      may_run_on(o->pin.v[i], set, sizeof(set))))
			continue;
		list_cpus(set, sizeof(set), CPUS_MAX, there, sizeof(there));
		return dr_err_set(e, -ENODEV,
			"--pin: no CPU %u; this process may use %s; name one of these", o->pin.v[i],
			there);
	}
	return 0;
}

int dr_options_resolve(struct dr_options *o, struct dr_err *e)
{
	int rc = dr_gpu_select(
		&o->gpu_names, (enum dr_memory_choice)o->memory, &o->gpus, &o->cuda, e);

	if (rc == 0)
		rc = check_gpus(o, e);
	return rc ? rc : check_pin(o, e);
}

static int check_user(struct dr_options *o, struct dr_err *e)
{
	int rc = o->user ? dr_user_find(o->user, &o->run_as, e) : 0;

	if (rc)
		return dr_err_prefix(e, "--user");
	if (!o->user || o->run_as.uid == geteuid() || geteuid() == 0)
		return 0;
	return dr_err_set(e, -EACCES,
		"--user %s: only root can become another user; start as root, or without --user",
		o->run_as.name);
}

static int check(struct dr_options *o, struct dr_err *e)
{
	if (o->key_file && !*o->key_file)
		return dr_err_set(e, -EINVAL,
			"--key-file is empty; give the path of a key, or omit the option for none");
	static int (*const of_run[])(struct dr_options * o, struct dr_err * e) = { check_sizes,
		check_warmup, check_channels, check_matrix, check_criteria, check_preflight };
	int rc = o->data_ports
			 ? dr_parse_ports(o->data_ports, &o->data_port_min, &o->data_port_max, e)
			 : 0;

	rc = rc ? dr_err_prefix(e, "--data-ports") : check_limits(o, e);
	for (size_t i = 0; i < DR_ARRAY_LEN(of_run) && rc == 0; i++)
		if (o->command != DR_CMDBIT_SERVER)
			rc = of_run[i](o, e);
	if (rc)
		return rc;
	set_window(o);
	(void)dr_gpu_names_numbers(
		&o->gpu_names, &o->gpus); /* bus ids: checked when they are resolved */
	rc = check_gpus(o, e);
	if (rc)
		return rc;
	if (o->interval_ns && o->interval_ns < 10 * DR_NS_PER_MS)
		return dr_err_set(e, -ERANGE, "--interval: the minimum is 10ms; 0 disables it");
	if (o->json_path && o->json_stream && strcmp(o->json_path, "-") == 0)
		return dr_err_set(e, -EINVAL,
			"--json and --json-stream both write to standard output; use --json=FILE");
	rc = check_user(o, e);
	if (rc == 0)
		rc = dr_options_check_transport(o, e);
	return rc == 0 && o->fault_part ? o->fault_part->check(o, e) : rc;
}

/* ---- entry points ---- */

enum { CONFIG_BYTES_MAX = 8 << 20 };

static int read_file(struct dr_options *o, const char *path, struct dr_err *e)
{
	json_error_t why;
	size_t len;
	char *text;
	int rc = dr_file_text(path, CONFIG_BYTES_MAX, &text, &len, e);

	if (rc)
		return dr_err_prefix(e, "--config %s", path);
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	dr_free(text);
	if (!j)
		return dr_err_set(e, -EINVAL, "--config %s: line %d: %s", path, why.line, why.text);
	rc = dr_opts_from_json(o->table, o->command, j, e);
	json_decref(j);
	return rc ? dr_err_prefix(e, "--config %s", path) : 0;
}

static int read_config(struct dr_options *o, struct dr_err *e)
{
	int rc = 0;

	for (unsigned i = 0; i < o->config.n && rc == 0; i++)
		rc = read_file(o, o->config.path[i], e);
	return rc;
}

/* host_text as HOST[:PORT]. */
static int take_host(struct dr_options *o, struct dr_err *e)
{
	size_t size = strlen(o->host_text) + 1;
	uint16_t port = 0;
	int rc;

	o->host = o->host_copy = dr_calloc(1, size);
	if (!o->host_copy)
		return dr_err_set(e, -ENOMEM, "out of memory");
	rc = dr_split_host(o->host_text, o->host_copy, size, &port, e);
	if (rc || !port)
		return rc;
	if (dr_opts_given(o->table, "port") && port != o->port)
		return dr_err_set(e, -EINVAL,
			"\"%.60s\" and --port %u name different ports; give one of them",
			o->host_text, (unsigned)o->port);
	o->port = port;
	return 0;
}

/* "--json FILE" is --json, and FILE. */
static int refuse_extra(
	const struct dr_options *o, char *const *arg, int n, int extra, struct dr_err *e)
{
	for (int i = n - 1; i >= 0; i--) {
		const char *name = dr_opts_detached(o->table, arg[i]);

		if (name)
			return dr_err_set(e, -EINVAL,
				"\"%.60s\" is not expected here; did you mean --%s=%.60s?", arg[i],
				name, arg[i]);
	}
	return dr_err_set(e, -EINVAL, "\"%.60s\" is not expected here; see --help", arg[extra]);
}

/* RESULT..., or OLD... -- NEW...; the parser takes the "--" away. */
static int inputs(struct dr_options *o, int argc, char *const argv[], struct dr_err *e)
{
	int dashes = 1;

	o->inputs = dr_opts_positional(o->table, &o->n_inputs);
	if (o->command == DR_CMDBIT_REPORT)
		return o->n_inputs > 0 && o->page && *o->page
			       ? 0
			       : dr_err_set(e, -EINVAL,
					 "result documents and a page are expected: dualrail report "
					 "RESULT... -o PAGE.html");
	while (dashes < argc && strcmp(argv[dashes], "--") != 0)
		dashes++;
	o->n_new = argc - DR_MIN(dashes + 1, argc);
	if (o->n_new == 0 || o->n_new >= o->n_inputs)
		return dr_err_set(e, -EINVAL,
			"two groups of result documents are expected: dualrail compare OLD... -- NEW...");
	return 0;
}

static int positionals(struct dr_options *o, struct dr_err *e)
{
	bool plugin = o->command == DR_CMDBIT_PLUGIN;
	int least = o->command & (DR_CMDBIT_CLIENT | DR_CMDBIT_PREFLIGHT) || plugin ? 1 : 0;
	int most = o->command == DR_CMDBIT_DOCTOR ? 1 : least;
	int n;
	char **arg = dr_opts_positional(o->table, &n);

	if (n > 0 && most > 0 && !plugin)
		o->host_text = arg[0];
	if (n > most)
		return refuse_extra(o, arg, n, most, e);
	if (n < least)
		return dr_err_set(e, -EINVAL,
			plugin ? "FILE is missing: dualrail plugin FILE [options]"
			: o->command == DR_CMDBIT_CLIENT
				? "HOST is missing: dualrail client HOST [options]"
				: "HOST is missing: dualrail preflight HOST [options]");
	if (plugin)
		o->file = arg[0];
	return n > 0 && !plugin ? take_host(o, e) : 0;
}

/* The first error stays. */
static int also(int rc, struct dr_err *e, int (*read)(struct dr_options *o, struct dr_err *e),
	struct dr_options *o)
{
	int now = read(o, rc ? NULL : e);

	return rc ? rc : now;
}

static int read_environment(struct dr_options *o, struct dr_err *e)
{
	return dr_opts_from_env(o->table, o->command, e);
}

int dr_options_parse(
	struct dr_options *o, unsigned command, int argc, char *const argv[], struct dr_err *e)
{
	o->command = command;
	int rc = dr_options_table(o, &o->table);
	if (rc)
		return dr_err_set(e, rc, "out of memory");
	rc = dr_opts_defaults(o->table, command, e);
	if (rc)
		return rc;
	rc = dr_opts_parse(o->table, command, argc, argv, e);
	if (rc == 0 && (o->help || o->help_all || o->version))
		return 0;
	rc = also(rc, e, read_environment, o);
	rc = also(rc, e, read_config, o);
	if (command == DR_CMDBIT_COMPARE || command == DR_CMDBIT_REPORT) {
		rc = rc ? rc : inputs(o, argc, argv, e);
		return rc ? rc : dr_opts_check_files(o->table, o->inputs, o->n_inputs, e);
	}
	rc = also(rc, e, positionals, o);
	rc = rc ? rc : dr_opts_check_files(o->table, NULL, 0, e);
	return rc || command == DR_CMDBIT_PLUGIN ? rc : check(o, e);
}

void dr_options_fini(struct dr_options *o)
{
	dr_opts_destroy(o->table);
	dr_free(o->host_copy);
	memset(o, 0, sizeof(*o));
}

int dr_options_exit(int rc)
{
	return rc == 0 ? 0 : rc == -EINVAL || rc == -ERANGE || rc == -EEXIST ? 1 : 2;
}

void dr_options_apply_log(const struct dr_options *o)
{
	dr_log_set_json(o->log_json);
	if (o->verbose >= 2)
		dr_log_set_level(DR_LOG_DEBUG);
	else if (o->verbose == 1)
		dr_log_set_level(DR_LOG_INFO);
	else
		dr_log_set_level(DR_LOG_WARN);
}

/* ---- phases ---- */

static struct dr_phase *add_phase(struct dr_phase *out, unsigned *n, unsigned cap,
	const struct dr_options *o, enum dr_phase_kind kind, uint64_t bytes)
{
	struct dr_phase *p = &out[*n];

	if (*n == cap)
		return NULL;
	memset(p, 0, sizeof(*p));
	p->index = (*n)++;
	p->kind = kind;
	p->message_bytes = bytes;
	p->chunk_bytes = (uint32_t)DR_MIN(o->chunk, bytes);
	p->iters = kind == DR_PHASE_FAILOVER ? 0 : o->iters;
	p->warmup = o->iters ? o->warmup_iters : kind == DR_PHASE_LAT ? 20 : 0;
	p->verify = o->verify || kind == DR_PHASE_FAILOVER;
	p->rate_bits = kind == DR_PHASE_LAT ? 0 : o->rate_bits / (double)o->channels;
	return p;
}

unsigned dr_options_phases(const struct dr_options *o, struct dr_phase *out, unsigned cap)
{
	uint64_t first = o->begin ? o->begin : o->size, last = o->begin ? o->end : o->size;
	bool own_size = o->begin || dr_opts_given(o->table, "size");
	unsigned n = 0;

	for (uint64_t b = first; o->test.bw && b <= last; b *= o->factor)
		if (!add_phase(out, &n, cap, o, DR_PHASE_BW, b))
			return n;
	if (o->test.lat && (!own_size || o->command == DR_CMDBIT_DEMO))
		add_phase(out, &n, cap, o, DR_PHASE_LAT, 8);
	else
		for (uint64_t b = first; o->test.lat && b <= last; b *= o->factor)
			if (!add_phase(out, &n, cap, o, DR_PHASE_LAT, b))
				return n;
	if (o->test.failover)
		add_phase(out, &n, cap, o, DR_PHASE_FAILOVER, first);
	return n;
}

uint32_t dr_options_chunk_max(const struct dr_options *o)
{
	uint64_t largest = o->begin ? o->end : o->size;

	return (uint32_t)DR_MAX(DR_MIN(o->chunk, largest), 8);
}
