/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/log.h"
#include "base/privileges.h"
#include "base/units.h"
#include "orchestrator/checks/compare.h"
#include "orchestrator/checks/doctor.h"
#include "orchestrator/checks/finding.h"
#include "orchestrator/checks/plugin.h"
#include "orchestrator/checks/preflight.h"
#include "orchestrator/checks/report.h"
#include "orchestrator/checks/topo.h"
#include "orchestrator/demo/demo.h"
#include "orchestrator/fault/options.h"
#include "orchestrator/fleet/sweep.h"
#include "orchestrator/options/version.h"
#include "orchestrator/output/parts.h"
#include "orchestrator/output/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* dualrail COMMAND [options]: parse, open the outputs, run the command. Only main exits. */

/* Set by the Makefile for this file only. */
#ifndef DR_COMMIT
#define DR_COMMIT "unknown"
#define DR_BUILD_FLAGS "unknown"
#define DR_BUILD_LIBRARIES "unknown"
#endif

static int print_version(bool verbose)
{
	static const struct dr_build build = {
		.commit = DR_COMMIT, .flags = DR_BUILD_FLAGS, .libraries = DR_BUILD_LIBRARIES
	};

	dr_version_print(&build, verbose);
	return DR_EXIT_PASS;
}

static int bad_command(const char *name)
{
	const char *hint = name ? dr_opts_nearest_command(dr_options_command_list, name) : NULL;
	char commands[128];

	dr_options_commands(commands, sizeof(commands));
	if (hint)
		dr_complain(
			"\"%.60s\" is not a command; did you mean \"%s\"? see --help", name, hint);
	else
		dr_complain("%s%.60s%s; use one of: %s; see --help", name ? "\"" : "",
			name ? name : "no command", name ? "\" is not a command" : "", commands);
	return DR_EXIT_USAGE;
}

static void output_options(const struct dr_options *o, FILE *none, struct dr_output_options *out)
{
	memset(out, 0, sizeof(*out));
	out->json_stdout = o->json_path && strcmp(o->json_path, "-") == 0;
	out->json_path = out->json_stdout ? NULL : o->json_path;
	out->json_stream = o->json_stream;
	out->files = *(const struct dr_output_files *)o->files;
	out->metrics_listen = o->metrics_listen;
	out->metrics_allow = o->allow.n ? &o->allow : NULL;
	out->baseline_path = o->baseline;
	out->quiet = o->quiet && !o->dry_run;
	out->tables = o->verbose > 0 && !o->quiet;
	out->intervals = out->tables || (o->table && dr_opts_given(o->table, "interval"));
	/* The document of the run becomes a part of that of preflight, which prints one line. */
	if (o->command == DR_CMDBIT_PREFLIGHT) {
		out->json_stdout = false;
		out->json_path = NULL;
		out->quiet = o->verbose == 0;
		out->live = true;
		out->out = o->verbose || !none ? stderr : none;
	}
	/* A server prints one line per client; -v adds the tables. */
	if (o->command == DR_CMDBIT_SERVER && o->verbose == 0) {
		out->quiet = true;
		if (out->json_stdout || out->json_stream)
			out->err = none;
		else
			out->out = none;
	}
}

/* Faults that a killed run left in this network namespace are undone before anything else. */
static void repair(const struct dr_options *o)
{
	struct dr_guard_options opt = dr_fault_options_guard(o->faults);
	struct dr_err e = { 0 };

	(void)dr_fault_repair(&opt, 0, &e);
	if (e.code)
		dr_warn("fault", "%s", e.text);
}

/* Bad options: no file that they name is touched, for the word may be meant for something else. */
static int bad_options(struct dr_options *o, int rc, const struct dr_err *e, struct dr_record *rec)
{
	struct dr_output_options oo;

	if (o->json_path && strcmp(o->json_path, "-") != 0)
		o->json_path = NULL;
	*(struct dr_output_files *)o->files = (struct dr_output_files){ .path = { NULL } };
	if (o->log_json)
		dr_log_set_json(1);
	dr_complain("%s", e->text);
	rc = dr_options_exit(rc);
	if (o->command == DR_CMDBIT_SWEEP)
		return rc;
	output_options(o, NULL, &oo);
	rc = dr_output_refuse(&oo, rec, rc, e);
	return o->command == DR_CMDBIT_PREFLIGHT ? dr_preflight_refuse(o, rc, e) : rc;
}

/* Whom and what the run measures, for results of every kind of end. */
static void name_run(const struct dr_options *o, struct dr_record *rec)
{
	bool demo = o->command == DR_CMDBIT_DEMO;

	snprintf(rec->target, sizeof(rec->target), "%s",
		demo	       ? "localhost"
		: o->host_text ? o->host_text
			       : "");
	if (o->command & DR_CMDBIT_RUN)
		dr_options_tests(o, rec->tests, sizeof(rec->tests));
	rec->labels = &((const struct dr_output_files *)o->files)->labels;
}

static void print_options(const struct dr_options *o, unsigned bit)
{
	json_t *options = dr_log_is_json() ? dr_opts_to_json(o->table, bit) : NULL;
	json_t *line = options ? json_pack("{s:o}", "options", options) : NULL;
	char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

	json_decref(line);
	if (!dr_log_is_json())
		dr_opts_print_kv(o->table, bit, stderr);
	if (text) {
		text[strlen(text) - 1] = '\0';
		dr_log_members(DR_LOG_INFO, "dualrail", text + 1, "effective options");
	}
	free(text); /* lint-ok: of jansson */
}

/* A misspelled variable would otherwise look like one that has been obeyed. */
static void warn_of_variables(const struct dr_options *o)
{
	char text[256];
	size_t at = 0;

	while (dr_opts_next_stray_env(o->table, &at, text, sizeof(text)))
		dr_warn("environment", "%s", text);
}

/* Doctor for preflight: its table with -v, on standard error. */
static void check_machine(
	struct dr_options *o, struct dr_output *out, struct dr_preflight_checks *found)
{
	struct dr_findings f = { 0 };

	bool stops;
	int status = dr_doctor_check(o, out, &f, &stops);

	found->status = stops ? status : 0;
	found->document = dr_findings_json(&f, o->host, status);
	dr_findings_failure(&f, found->failure, sizeof(found->failure));
	if (o->verbose)
		dr_findings_print(&f, status, false, dr_log_tables());
	dr_findings_fini(&f);
}

/* A server, a client or the demo. */
static int run(struct dr_options *o, struct dr_record *rec, const struct dr_output_options *oo)
{
	struct dr_output *out;
	struct dr_err e = { 0 };
	int rc = dr_output_open(oo, &out, &e);

	if (rc) {
		dr_complain("%s", e.text);
		return dr_output_refuse(oo, rec, dr_options_exit(rc), &e);
	}
	repair(o);
	/* The demo resolves after its fork. */
	rc = o->command == DR_CMDBIT_DEMO ? dr_demo_main(o, rec, out)
					  : dr_session_main(o, rec, out);
	dr_output_close(out);
	return rc;
}

static int with_options(struct dr_options *o, int argc, char **argv, struct dr_record *rec)
{
	unsigned bit = dr_options_command(argv[0]);
	struct dr_output_options oo;
	char *brief;
	struct dr_err e = { 0 };
	FILE *none = NULL;
	int rc = dr_options_parse(o, bit, argc, argv, &e);

	name_run(o, rec);
	if (rc)
		return bad_options(o, rc, &e, rec);
	if (o->help || o->help_all) {
		(void)dr_opts_help(o->table, argv[0], o->help_all, stdout);
		return 0;
	}
	if (o->version)
		return print_version(o->verbose > 0);
	dr_options_apply_log(o);
	warn_of_variables(o);
	dr_record_set_options(rec, dr_opts_to_json(o->table, bit));
	if (o->verbose)
		print_options(o, bit);
	if (bit == DR_CMDBIT_TOPO)
		return dr_topo_main(o);
	if (bit == DR_CMDBIT_DOCTOR)
		return dr_doctor_main(o);
	if (bit == DR_CMDBIT_COMPARE)
		return dr_compare_main(o);
	if (bit == DR_CMDBIT_PLUGIN)
		return dr_plugin_main(o);
	if (bit == DR_CMDBIT_REPORT)
		return dr_report_main(o);
	if (bit == DR_CMDBIT_SWEEP)
		return dr_sweep_main(o, rec->run_id);
	if (bit == DR_CMDBIT_SERVER || bit == DR_CMDBIT_PREFLIGHT)
		none = fopen("/dev/null", "w");
	output_options(o, none, &oo);
	oo.options = brief = dr_options_brief(o);
	rc = bit == DR_CMDBIT_PREFLIGHT ? dr_preflight_main(o, rec, &oo, check_machine)
					: run(o, rec, &oo);
	free(brief); /* lint-ok: of open_memstream */
	if (none)
		fclose(none);
	return rc;
}

/* Of the documents that commands write which no other folder may include. */
static const struct dr_schema schemas[] = {
	{ "doctor", "urn:dualrail:schema:doctor:1", &dr_doctor_fields },
	{ "topo", "urn:dualrail:schema:topo:1", &dr_topo_fields },
	{ "compare", "urn:dualrail:schema:compare:1", &dr_compare_fields },
	{ "preflight", "urn:dualrail:schema:preflight:1", &dr_preflight_fields },
	{ "sweep", "urn:dualrail:schema:sweep:1", &dr_sweep_fields },
	{ NULL, NULL, NULL },
};

static bool asks_for_help(const char *arg, bool *all)
{
	*all = arg && strcmp(arg, "--help-all") == 0;
	return *all || (arg && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0));
}

static int print_completion(const struct dr_opts *t, const char *shell)
{
	int rc = shell ? dr_opts_complete(t, shell, stdout) : -EINVAL;

	if (rc == -EINVAL)
		dr_complain("%s%.40s%s; use completion bash",
			shell ? "no completion for \"" : "completion needs a shell",
			shell ? shell : "", shell ? "\"" : "");
	return dr_options_exit(rc);
}

/* Commands that only print; -1: it is none of them. */
static int without_run(const struct dr_opts *t, int argc, char **argv)
{
	const char *name = argv[0], *arg = argc > 1 ? argv[1] : NULL;
	bool help = strcmp(name, "help") == 0, all;

	if (strcmp(name, "--man") == 0) {
		dr_opts_man(t, stdout);
		return DR_EXIT_PASS;
	}
	if (asks_for_help(name, &all) || help)
		return dr_opts_help(t, help ? arg : NULL, all, stdout) ? DR_EXIT_PASS
								       : bad_command(arg);
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		return print_version(
			arg && (strncmp(arg, "-v", 2) == 0 || strcmp(arg, "--verbose") == 0));
	if (asks_for_help(arg, &all) && !dr_options_command(name) &&
		dr_opts_help(t, name, all, stdout))
		return DR_EXIT_PASS;
	if (strcmp(name, "completion") == 0)
		return print_completion(t, arg);
	if (strcmp(name, "schema") == 0)
		return dr_schema_main(schemas, argc, argv);
	return -1;
}

/* What is wrong with the options is told in the form that they ask for. */
static void early_log(int argc, char **argv)
{
	const char *env = getenv("DUALRAIL_LOG_JSON");

	if (env && (strcasecmp(env, "on") == 0 || strspn(env, "1tTyY") > 0))
		dr_log_set_json(1);
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (strcmp(argv[i], "--log-json") == 0)
			dr_log_set_json(1);
}

/* Of every line of the log: where it was written, and the process among those that a launcher started. */
static void name_process(const struct dr_record *rec)
{
	static const char *const ranks[] = { "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
		"SLURM_PROCID", "JOB_COMPLETION_INDEX" };
	uint64_t rank = 0;
	bool known = false;

	for (size_t i = 0; i < DR_ARRAY_LEN(ranks) && !known; i++) {
		const char *text = getenv(ranks[i]);

		known = text && dr_parse_u64(text, 0, INT_MAX, &rank, NULL) == 0;
	}
	dr_log_set_node(rec->host.name[0] ? rec->host.name : NULL, known ? (int)rank : -1);
	/* A server's lines have those of its clients. */
	if (dr_options_command(rec->command) & DR_CMDBIT_RUN)
		dr_log_set_run(rec->run_id);
}

/*
 * Whoever starts a program with file capabilities (setcap) has rights that are not his. hwloc,
 * libibverbs and CUDA load libraries that variables name. What stays names none.
 */
static bool may_stay(const char *variable)
{
	static const char *const stay[] = { "DUALRAIL_",
		"HOSTNAME=", "JOB_COMPLETION_INDEX=", "MASTER_", "NO_COLOR=", "OMPI_COMM_WORLD_",
		"PMI_", "PMIX_RANK=", "RANK=", "SLURM_",
		"SSH_CONNECTION=", "WORLD_SIZE=", "XDG_RUNTIME_DIR=" };
	size_t i = 0;

	while (i < DR_ARRAY_LEN(stay) && strncmp(variable, stay[i], strlen(stay[i])) != 0)
		i++;
	return i < DR_ARRAY_LEN(stay);
}

static int begin_secure(void)
{
	char **to = environ;

	if (getuid() != geteuid() || getgid() != getegid()) {
		dr_complain(
			"this program has a set-user-ID or set-group-ID bit: whoever starts it could run commands as its owner; remove it (chmod ug-s)");
		return -EPERM;
	}
	if (!dr_privileges_lent())
		return 0;
	for (char **from = environ; *from; from++)
		if (may_stay(*from))
			*to++ = *from;
	*to = NULL;
	return 0;
}

/* What a command printed has to arrive. */
static int flushed(int status)
{
	struct dr_err e;

	if (status || dr_stream_put(stdout, "", 0, "standard output", &e) == 0)
		return status;
	dr_complain("%s", e.text);
	return DR_EXIT_ENV;
}

int main(int argc, char **argv)
{
	static struct dr_fault_options faults;
	static struct dr_output_files files;
	static struct dr_options o;
	struct dr_record *rec;

	/* A closed one would become a socket, which gets log lines and stays open in children. */
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", O_RDWR);
	if (begin_secure())
		return DR_EXIT_ENV;
	early_log(argc, argv);
	dr_fault_options_attach(&faults, &o);
	o.file_group =
		dr_output_group(DR_CMDBIT_ALL & ~DR_CMDBIT_SWEEP, DR_CMDBIT_RUN & ~DR_CMDBIT_SWEEP);
	o.files = &files;
	if (argc >= 2) {
		struct dr_opts *table;
		int status = DR_EXIT_ENV;

		if (dr_options_table(&o, &table)) {
			dr_complain("out of memory");
		} else {
			status = without_run(table, argc - 1, argv + 1);
			dr_opts_destroy(table);
		}
		if (status >= 0)
			return flushed(status);
	}
	if (argc < 2 || !dr_options_command(argv[1]))
		return bad_command(argc < 2 ? NULL : argv[1]);
	if (dr_record_create(&rec)) {
		dr_complain("out of memory");
		return DR_EXIT_ENV;
	}
	snprintf(rec->command, sizeof(rec->command), "%s", argv[1]);
	dr_record_set_argv(rec, argc, argv);
	name_process(rec);
	int rc = with_options(&o, argc - 1, argv + 1, rec);
	dr_options_fini(&o);
	dr_fault_options_fini(&faults);
	dr_record_destroy(rec);
	return flushed(rc);
}
