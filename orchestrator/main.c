/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/mem.h"
#include "orchestrator/demo.h"
#include "orchestrator/doctor/doctor.h"
#include "orchestrator/fault/fault.h"
#include "orchestrator/topo.h"

#include <errno.h>
#include <string.h>

/* dualrail COMMAND [options]: parse, open the outputs, run the command. Only main exits. */

static const struct {
	const char *name;
	unsigned bit;
} commands[] = {
	{ "server", DR_CMDBIT_SERVER },
	{ "client", DR_CMDBIT_CLIENT },
	{ "demo", DR_CMDBIT_DEMO },
	{ "topo", DR_CMDBIT_TOPO },
	{ "doctor", DR_CMDBIT_DOCTOR },
};

static int refuse(int status, const char *text)
{
	fprintf(stderr, "dualrail: %s\n", text);
	return status;
}

static int print_version(void)
{
	struct dr_record *rec;

	if (dr_record_create(&rec))
		return DR_EXIT_ENV;
	printf("dualrail %s (transports: %s)\n", rec->version, dr_transport_names());
	dr_record_destroy(rec);
	return 0;
}

static unsigned find_command(const char *name)
{
	for (size_t i = 0; i < DR_ARRAY_LEN(commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return commands[i].bit;
	return 0;
}

static void output_options(const struct dr_options *o, FILE *none, struct dr_output_options *out)
{
	memset(out, 0, sizeof(*out));
	out->json_stdout = o->json_path && strcmp(o->json_path, "-") == 0;
	out->json_path = out->json_stdout ? NULL : o->json_path;
	out->json_stream = o->json_stream;
	out->csv_path = o->csv_path;
	out->prom_path = o->prom_path;
	out->metrics_listen = o->metrics_listen;
	out->baseline_path = o->baseline;
	out->save_baseline_path = o->save_baseline;
	out->quiet = o->quiet;
	/* A server says one line a client; its tables are for -v. */
	if (o->command == DR_CMDBIT_SERVER && o->verbose == 0) {
		out->quiet = true;
		if (out->json_stdout || out->json_stream)
			out->err = none;
		else
			out->out = none;
	}
}

/* What a killed guard left in this network namespace is put right before anything else. */
static void repair(void)
{
	struct dr_err e = { 0 };
	int n = dr_fault_repair(NULL, &e);

	if (n > 0)
		dr_warn("fault", "undid %d fault%s that an earlier run left", n, n == 1 ? "" : "s");
	if (e.code)
		dr_warn("fault", "%s", e.text);
}

static int run(struct dr_options *o, struct dr_record *rec, struct dr_output *out)
{
	struct dr_err e = { 0 };
	int rc;

	repair();
	if (o->command == DR_CMDBIT_DEMO)
		return dr_demo_main(o, rec, out); /* resolves after its fork */
	rc = dr_options_resolve(o, &e);
	if (rc) {
		fprintf(stderr, "dualrail: %s\n", e.text);
		dr_record_error(rec, dr_options_exit(rc), &e);
		return dr_output_finish(out, rec, NULL);
	}
	return o->command == DR_CMDBIT_SERVER ? dr_server_main(o, rec, out)
					      : dr_client_main(o, rec, out);
}

/* The command line is wrong; when it says where a document goes, there is one all the same. */
static int bad_options(struct dr_options *o, int rc, const struct dr_err *e, struct dr_record *rec)
{
	struct dr_output_options oo;
	struct dr_output *out;
	int status = dr_options_exit(rc);

	fprintf(stderr, "dualrail: %s\n", e->text);
	output_options(o, NULL, &oo);
	if ((!oo.json_stdout && !oo.json_path && !oo.json_stream) ||
		dr_output_open(&oo, &out, NULL))
		return status;
	dr_record_error(rec, status, e);
	status = dr_output_finish(out, rec, NULL);
	dr_output_close(out);
	return status;
}

static int with_options(struct dr_options *o, int argc, char **argv, struct dr_record *rec)
{
	unsigned bit = find_command(argv[0]);
	struct dr_output_options oo;
	struct dr_output *out;
	struct dr_err e = { 0 };
	FILE *none = NULL;
	int rc = dr_options_parse(o, bit, argc, argv, &e);

	if (rc)
		return bad_options(o, rc, &e, rec);
	if (o->help) {
		dr_options_help(bit, stdout);
		return 0;
	}
	if (o->version)
		return print_version();
	dr_options_apply_log(o);
	dr_record_set_options(rec, dr_opts_to_json(o->table, bit));
	if (o->verbose)
		dr_opts_print_kv(o->table, bit, stderr);
	if (bit == DR_CMDBIT_TOPO)
		return dr_topo_main(o);
	if (bit == DR_CMDBIT_DOCTOR)
		return dr_doctor_main(o);
	if (bit == DR_CMDBIT_SERVER)
		none = fopen("/dev/null", "w");
	output_options(o, none, &oo);
	rc = dr_output_open(&oo, &out, &e);
	if (rc) {
		fprintf(stderr, "dualrail: %s\n", e.text);
		rc = dr_output_refuse(&oo, rec, rc, &e);
	} else {
		rc = run(o, rec, out);
		dr_output_close(out);
	}
	if (none)
		fclose(none);
	return rc;
}

int main(int argc, char **argv)
{
	struct dr_options *o;
	struct dr_record *rec;
	int rc;

	if (argc >= 2 && strcmp(argv[1], "--man") == 0) {
		dr_options_man(stdout);
		return 0;
	}
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
				 strcmp(argv[1], "help") == 0)) {
		dr_options_help(0, stdout);
		return 0;
	}
	if (argc >= 2 && strcmp(argv[1], "--version") == 0)
		return print_version();
	if (argc < 2)
		return refuse(DR_EXIT_USAGE,
			"a command is missing: server, client HOST, demo, topo or doctor; see --help");
	if (!find_command(argv[1])) {
		char text[160];

		snprintf(text, sizeof(text),
			"\"%.60s\" is no command; use server, client HOST, demo, topo or doctor; see --help",
			argv[1]);
		return refuse(DR_EXIT_USAGE, text);
	}
	o = dr_calloc(1, sizeof(*o));
	if (!o || dr_record_create(&rec)) {
		dr_free(o);
		return refuse(DR_EXIT_ENV, "out of memory");
	}
	snprintf(rec->command, sizeof(rec->command), "%s", argv[1]);
	dr_record_set_argv(rec, argc, argv);
	rc = with_options(o, argc - 1, argv + 1, rec);
	dr_options_fini(o);
	dr_record_destroy(rec);
	dr_free(o);
	return rc;
}
