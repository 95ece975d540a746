/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines and configuration files: u8 % 3 is the command. Without its highest bit an argument a line follows, else
 * the rest is a file for --config.
 */
#include "channel/manager.h"
#include "orchestrator/fault/options.h"
#include "orchestrator/options/options_priv.h"
#include "orchestrator/output/record.h"
#include "orchestrator/session/message.h"
#include "tests/fuzz/lib/fuzz.h"

#include <math.h>

enum { ARGS_MAX = 40 };

/* What must hold of every struct dr_options that was accepted. */

static void check_ranges(const struct dr_options *o)
{
	unsigned top = 0;

	dr_assert(o->gpu_names.n <= DR_OPTIONS_GPUS_MAX && o->gpus.n <= DR_OPTIONS_GPUS_MAX);
	dr_assert(o->gpus.n == (o->gpu_names.n ? o->gpu_names.n : 8) || o->gpus.n < o->gpu_names.n);
	for (size_t i = 0; i < o->gpus.n; i++)
		top = DR_MAX(top, o->gpus.v[i]);
	/* GPU numbers that cannot exist are refused when the GPUs are opened. */
	dr_assert(o->command == DR_CMDBIT_DEMO || top >= DR_OPTIONS_GPUS_MAX ||
		  o->port + top <= 65535);
	dr_assert(o->channels >= 1 && o->channels <= DR_GPU_CHANNELS_MAX);
	dr_assert(o->window >= 1 && o->window <= DR_CHANNEL_WINDOW_MAX);
	dr_assert(o->factor >= 2 && o->begin <= o->end && o->size >= 1);
	dr_assert(o->data_port_min <= o->data_port_max);
	dr_assert(isfinite(o->rate_bits) && o->rate_bits >= 0);
	dr_assert(o->faults->list.n <= DR_FAULTS_MAX);
	dr_assert(o->pin.n <= DR_OPT_LIST_MAX);
}

/* The phases are sane, and come over to the other end as they are. */
static void check_phases(const struct dr_options *o)
{
	struct dr_phase v[DR_OPTIONS_PHASES_MAX], got;
	struct dr_message m;
	unsigned n = dr_options_phases(o, v, DR_OPTIONS_PHASES_MAX);

	dr_assert(n <= DR_OPTIONS_PHASES_MAX && n >= (o->test.bw || o->test.lat));
	for (unsigned i = 0; i < n; i++) {
		json_t *j = dr_message_to_json(
			&(struct dr_message){ .kind = DR_MSG_PHASE, .phase = v[i] });

		dr_assert(v[i].message_bytes >= 1 && v[i].message_bytes <= 1ull << 40);
		dr_assert(v[i].chunk_bytes >= 1 && v[i].chunk_bytes <= dr_options_chunk_max(o));
		dr_assert(dr_message_read(j, &m, NULL) == 0);
		got = m.phase;
		dr_assert(got.message_bytes == v[i].message_bytes && got.kind == v[i].kind &&
			  got.chunk_bytes == v[i].chunk_bytes && got.iters == v[i].iters &&
			  got.warmup == v[i].warmup && got.rate_bits == v[i].rate_bits &&
			  got.index == i);
		json_decref(j);
	}
}

/* What was given and the defaults; null is what was not set. */
static json_t *set_options(const struct dr_opts *table, unsigned command)
{
	json_t *echo = dr_opts_to_json(table, command), *v;
	const char *name;
	void *tmp;

	dr_assert(echo);
	json_object_foreach_safe(echo, tmp, name, v)
	{
		if (json_is_null(v))
			json_object_del(echo, name);
	}
	return echo;
}

/* The echo in the result document reads back to the same values. */
static void check_echo(const struct dr_options *o)
{
	json_t *echo = set_options(o->table, o->command), *again;
	struct dr_fault_options f2 = { .allow = false };
	struct dr_options o2 = { .command = o->command };
	struct dr_err e = { 0 };

	dr_fault_options_attach(&f2, &o2);
	dr_assert(dr_options_table(&o2, &o2.table) == 0);
	dr_assert(dr_opts_from_json(o2.table, o->command, echo, &e) == 0);
	again = set_options(o2.table, o->command);
	dr_assert(json_equal(echo, again));
	json_decref(echo);
	json_decref(again);
	dr_options_fini(&o2);
	dr_fault_options_fini(&f2);
}

static void check(const struct dr_options *o)
{
	struct dr_err e = { 0 };
	struct dr_thresholds t;

	check_ranges(o);
	if (o->command != DR_CMDBIT_SERVER)
		check_phases(o);
	check_echo(o);
	dr_thresholds_init(&t);
	if (o->min_bw && dr_thresholds_parse_min_bw(&t, o->min_bw, &e) == 0)
		dr_assert(isnan(t.min_bw_gbps) != isnan(t.min_bw_percent));
}

FUZZ(z)
{
	static char names[][8] = { "server", "client", "demo" }, host[] = "127.0.0.1";
	static char option[] = "--config";
	uint8_t what = fz_u8(z);
	unsigned command = (what & 0x7f) % 3;
	char *argv[ARGS_MAX + 3], *arg, *rest;
	struct dr_fault_options f = { .allow = false };
	struct dr_options o = { 0 };
	struct dr_err e = { 0 };
	int argc = 0, rc;

	clearenv();
	argv[argc++] = names[command];
	if (command == 1)
		argv[argc++] = host;
	if (what & 0x80) {
		argv[argc++] = option;
		argv[argc++] = fz_file(z, z->p, z->n);
	} else {
		rest = fz_text(z, 4096);
		while (argc < ARGS_MAX && (arg = strsep(&rest, "\n")) != NULL)
			if (!strstr(arg, "conf")) /* no other files */
				argv[argc++] = arg;
	}
	argv[argc] = NULL;
	dr_fault_options_attach(&f, &o);
	rc = dr_options_parse(&o, 1u << command, argc, argv, &e);
	if (rc) {
		dr_assert(rc < 0 && e.text[0]);
		dr_assert(dr_options_exit(rc) == 1 || dr_options_exit(rc) == 2);
	} else if (!o.help && !o.version) {
		check(&o);
	}
	dr_options_fini(&o);
	dr_fault_options_fini(&f);
}
