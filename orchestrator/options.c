/* SPDX-License-Identifier: Apache-2.0 */
#include "orchestrator/options_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/units.h"
#include "bootstrap/bootstrap.h"
#include "channel/manager.h"
#include "orchestrator/kinds.h"
#include "transport/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the table cannot check ---- */

static int check_sizes(struct dr_options *o, struct dr_err *e)
{
	bool sweep = dr_opts_given(o->table, "begin") || dr_opts_given(o->table, "end");
	uint64_t smallest;

	if (sweep && dr_opts_given(o->table, "size"))
		return dr_err_set(
			e, -EINVAL, "--size and a sweep (--begin, --end) exclude each other");
	if (sweep && (!o->begin || !o->end || o->begin > o->end))
		return dr_err_set(e, -EINVAL,
			"a sweep needs --begin and --end, the first not above the second");
	if (!sweep)
		o->begin = o->end = 0;
	smallest = sweep ? o->begin : o->size;
	if (dr_opts_given(o->table, "chunk") && o->chunk > smallest) {
		char c[32], s[32];

		dr_format_size(o->chunk, c, sizeof(c));
		dr_format_size(smallest, s, sizeof(s));
		return dr_err_set(e, -EINVAL,
			"--chunk %s is above the smallest message, %s; make it smaller or leave it "
			"out",
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
		return dr_err_set(e, -EINVAL, "--iters and --duration exclude each other");
	return 0;
}

static int check_ports(struct dr_options *o, struct dr_err *e)
{
	uint64_t a, b;
	char buf[32], *dash;

	if (!o->data_ports)
		return 0;
	if (strlen(o->data_ports) < sizeof(buf)) {
		memcpy(buf, o->data_ports, strlen(o->data_ports) + 1);
		dash = strchr(buf, '-');
		if (dash)
			*dash = 0;
		if (dash && dr_parse_u64(buf, 1, 65535, &a, NULL) == 0 &&
			dr_parse_u64(dash + 1, a, 65535, &b, NULL) == 0) {
			o->data_port_min = (uint16_t)a;
			o->data_port_max = (uint16_t)b;
			return 0;
		}
	}
	return dr_err_set(e, -EINVAL, "--data-ports \"%.40s\": use FIRST-LAST, e.g. 30000-30100",
		o->data_ports);
}

static int check_channels(const struct dr_options *o, struct dr_err *e)
{
	uint64_t n = o->channels * (o->bidir ? 2 : 1) + (o->test.lat ? 2 : 0);

	if (o->bidir && o->reverse)
		return dr_err_set(e, -EINVAL, "--bidir and --reverse exclude each other");
	if (n > DR_CHANNELS_MAX)
		return dr_err_set(e, -ERANGE,
			"--channels %llu: with both directions and the latency test that makes %llu per "
			"GPU, of %d",
			(unsigned long long)o->channels, (unsigned long long)n, DR_CHANNELS_MAX);
	return 0;
}

static int check_matrix(const struct dr_options *o, struct dr_err *e)
{
	static const char *const no[] = { "map", "spread" };

	if (!o->matrix)
		return 0;
	if (!o->test.bw)
		return dr_err_set(
			e, -EINVAL, "--matrix measures bandwidth; --test has to name bw too");
	if (o->begin)
		return dr_err_set(e, -EINVAL,
			"--matrix takes one message size; use --size instead of --begin and --end");
	for (size_t i = 0; i < DR_ARRAY_LEN(no); i++)
		if (dr_opts_given(o->table, no[i]))
			return dr_err_set(e, -EINVAL,
				"--matrix uses every NIC from every GPU; --%s is not for it",
				no[i]);
	return 0;
}

unsigned dr_options_gpu_top(const struct dr_options *o)
{
	unsigned top = 0;

	for (size_t i = 0; i < o->gpus.n; i++)
		top = DR_MAX(top, o->gpus.v[i]);
	return top;
}

static int check_gpus(const struct dr_options *o, struct dr_err *e)
{
	unsigned top = dr_options_gpu_top(o);

	if (o->command != DR_CMDBIT_DEMO && o->port + top > 65535)
		return dr_err_set(e, -ERANGE, "--port %llu + GPU %u is above 65535",
			(unsigned long long)o->port, top);
	return 0;
}

int dr_options_resolve(struct dr_options *o, struct dr_err *e)
{
	int rc = dr_gpus_resolve(
		&o->gpu_names, (enum dr_memory_choice)o->memory, &o->gpus, &o->cuda, e);

	return rc ? rc : check_gpus(o, e);
}

static int check(struct dr_options *o, struct dr_err *e)
{
	int rc = check_ports(o, e);

	if (rc == 0 && o->command != DR_CMDBIT_SERVER)
		rc = check_sizes(o, e);
	if (rc == 0 && o->command != DR_CMDBIT_SERVER)
		rc = check_warmup(o, e);
	if (rc == 0 && o->command != DR_CMDBIT_SERVER)
		rc = check_channels(o, e);
	if (rc == 0 && o->command != DR_CMDBIT_SERVER)
		rc = check_matrix(o, e);
	if (rc)
		return rc;
	(void)dr_gpus_numbers(
		&o->gpu_names, &o->gpus); /* bus ids: checked when they are resolved */
	rc = check_gpus(o, e);
	if (rc)
		return rc;
	if (o->faults.n && !o->test.failover)
		return dr_err_set(e, -EINVAL, "--fault needs --test failover");
	if (o->interval_ns && o->interval_ns < 10 * DR_NS_PER_MS)
		return dr_err_set(e, -ERANGE, "--interval: at least 10ms, or 0 for none");
	if (o->json_path && o->json_stream && strcmp(o->json_path, "-") == 0)
		return dr_err_set(e, -EINVAL,
			"--json and --json-stream both write to standard output; use --json=FILE");
	if (!dr_transport_find(o->transport))
		return dr_err_set(e, -ENOTSUP, "transport %s is not in this build (built: %s)",
			o->transport, dr_transport_names());
	return dr_kind_check(o, e);
}

/* ---- entry points ---- */

static int read_config(struct dr_options *o, struct dr_err *e)
{
	json_error_t why;
	json_t *j;
	int rc;

	if (!o->config)
		return 0;
	j = json_load_file(o->config, JSON_REJECT_DUPLICATES, &why);
	if (!j && why.line < 0)
		return dr_err_set(e, -ENOENT, "--config: %s", why.text);
	if (!j)
		return dr_err_set(
			e, -EINVAL, "--config %s: line %d: %s", o->config, why.line, why.text);
	rc = dr_opts_from_json(o->table, o->command, j, e);
	json_decref(j);
	return rc ? dr_err_prefix(e, "%s", o->config) : 0;
}

/* The demo shows everything in less than a minute on two cores. */
static int demo_defaults(struct dr_options *o, struct dr_err *e)
{
	json_t *j = json_pack("{s:s, s:i, s:s, s:s, s:s}", "test", "bw,lat,failover", "channels", 2,
		"size", "4M", "duration", "3s", "hold-down", "300ms");
	int rc = j ? dr_opts_from_json(o->table, o->command, j, e) : -ENOMEM;

	json_decref(j);
	return rc;
}

static int positionals(struct dr_options *o, char **arg, int n, struct dr_err *e)
{
	int least = o->command == DR_CMDBIT_CLIENT ? 1 : 0;
	int most = o->command == DR_CMDBIT_DOCTOR ? 1 : least;

	if (n > most)
		return dr_err_set(
			e, -EINVAL, "\"%.60s\" is not expected here; see --help", arg[most]);
	if (n < least)
		return dr_err_set(e, -EINVAL, "HOST is missing: dualrail client HOST [options]");
	if (n > 0)
		o->host = arg[0];
	return 0;
}

int dr_options_parse(
	struct dr_options *o, unsigned command, int argc, char *const argv[], struct dr_err *e)
{
	char **arg;
	int n, rc;

	o->command = command;
	rc = dr_opts_create(&o->table, &dr_options_spec, o);
	if (rc)
		return dr_err_set(e, rc, "out of memory");
	rc = dr_opts_defaults(o->table, e);
	if (rc == 0 && command == DR_CMDBIT_DEMO)
		rc = demo_defaults(o, e);
	if (rc == 0)
		rc = dr_opts_parse(o->table, command, argc, argv, &arg, &n, e);
	if (rc == 0 && (o->help || o->version))
		return 0;
	if (rc == 0)
		rc = dr_opts_from_env(o->table, command, e);
	if (rc == 0)
		rc = read_config(o, e);
	if (rc == 0)
		rc = positionals(o, arg, n, e);
	return rc ? rc : check(o, e);
}

void dr_options_fini(struct dr_options *o)
{
	dr_fault_execs_fini(&o->execs);
	dr_opts_destroy(o->table);
	memset(o, 0, sizeof(*o));
}

int dr_options_exit(int rc)
{
	return rc == 0 ? 0 : rc == -EINVAL || rc == -ERANGE || rc == -EEXIST ? 1 : 2;
}

static void with_table(unsigned command, FILE *f, bool man)
{
	struct dr_options o = { 0 };
	struct dr_opts *t;

	if (dr_opts_create(&t, &dr_options_spec, &o))
		return;
	if (man)
		dr_opts_man(t, f);
	else
		dr_opts_help(t, command, f);
	dr_opts_destroy(t);
}

void dr_options_help(unsigned command, FILE *f)
{
	with_table(command, f, false);
}

void dr_options_man(FILE *f)
{
	with_table(0, f, true);
}

void dr_options_apply_log(const struct dr_options *o)
{
	dr_log_set_json(o->log_json);
	if (o->verbose >= 2 || o->trace_requests)
		dr_log_set_level(DR_LOG_DEBUG);
	else if (o->verbose == 1)
		dr_log_set_level(DR_LOG_INFO);
	else
		dr_log_set_level(o->quiet ? DR_LOG_ERROR : DR_LOG_WARN);
}

/* ---- phases ---- */

static struct dr_phase *add(struct dr_phase *out, unsigned *n, unsigned cap,
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
		if (!add(out, &n, cap, o, DR_PHASE_BW, b))
			return n;
	if (o->test.lat && (!own_size || o->command == DR_CMDBIT_DEMO))
		add(out, &n, cap, o, DR_PHASE_LAT, 8);
	else
		for (uint64_t b = first; o->test.lat && b <= last; b *= o->factor)
			if (!add(out, &n, cap, o, DR_PHASE_LAT, b))
				return n;
	if (o->test.failover)
		add(out, &n, cap, o, DR_PHASE_FAILOVER, first);
	return n;
}

uint32_t dr_options_chunk_max(const struct dr_options *o)
{
	uint64_t largest = o->begin ? o->end : o->size;

	return (uint32_t)DR_MAX(DR_MIN(o->chunk, largest), 8);
}
