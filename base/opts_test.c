/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "base/opts.h"

enum { SERVER = 1, CLIENT = 2, ALL = 3 };

struct faults {
	int n;
	const char *text[4];
};

struct options {
	bool verify, quiet;
	const char *json, *config, *map;
	uint64_t size, window;
	int64_t heartbeat, at;
	double rate, ratio;
	int memory;
	struct dr_opt_list gpus;
	struct faults faults;
};

static int parse_fault(const struct dr_opt *row, const char *text, void *dst, struct dr_err *e)
{
	struct faults *f = dst;

	assert_string_equal(row->name, "fault");
	if (!text) {
		f->n = 0;
		return 0;
	}
	if (strncmp(text, "close", 5) != 0)
		return dr_err_set(e, -EINVAL, "\"%s\" is not a fault; use e.g. close:path=0", text);
	assert_true(f->n < 4);
	f->text[f->n++] = text;
	return 0;
}

#define AT(field) .offset = offsetof(struct options, field)
static const struct dr_opt traffic_rows[] = {
	{ .name = "size",
		.short_name = 's',
		.kind = DR_OPT_SIZE,
		.arg = "SIZE",
		.def = "64M",
		.help = "Bytes of a message.",
		.brief = "message size",
		.commands = CLIENT,
		AT(size),
		.min = 1,
		.max = 1 << 30 },
	{ .name = "window",
		.kind = DR_OPT_UINT,
		.arg = "N",
		.def = "16",
		.min = 1,
		.max = 65536,
		.help = "Requests in flight per channel.",
		.commands = ALL,
		.env = { "OTHER_WINDOW", "ANCIENT_WINDOW" },
		AT(window) },
	{ .name = "verify",
		.kind = DR_OPT_FLAG,
		.help = "Check every byte.",
		.commands = CLIENT,
		AT(verify) },
	{ .name = "rate",
		.kind = DR_OPT_RATE,
		.arg = "RATE",
		.help = "Limit per channel.",
		.commands = CLIENT,
		AT(rate) },
	{ .name = "ratio",
		.kind = DR_OPT_DOUBLE,
		.arg = "X",
		.def = "0.1",
		.max = 1,
		.help = "A ratio.",
		.commands = CLIENT,
		AT(ratio) },
};
static const struct dr_opt devices_rows[] = {
	{ .name = "memory",
		.kind = DR_OPT_CHOICE,
		.arg = "cuda|host",
		.def = "host",
		.choices = "cuda|host",
		.help = "Where buffers are.",
		.commands = ALL,
		AT(memory) },
	{ .name = "gpus",
		.short_name = 'g',
		.kind = DR_OPT_LIST,
		.arg = "LIST",
		.max = 63,
		.help = "Logical GPUs.",
		.commands = ALL,
		AT(gpus) },
	{ .name = "map",
		.kind = DR_OPT_STRING,
		.arg = "MAP",
		.help = "Primary and shadow.",
		.commands = ALL,
		AT(map) },
};
static const struct dr_opt failover_rows[] = {
	{ .name = "heartbeat",
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.def = "10ms",
		.min = 1e5,
		.max = 1e10,
		.help = "Between two heartbeats of a rail.",
		.commands = ALL,
		AT(heartbeat) },
	{ .name = "fault",
		.kind = DR_OPT_CUSTOM,
		.arg = "FAULT",
		.repeat = true,
		.parse = parse_fault,
		.help = "What to break.",
		.commands = CLIENT,
		AT(faults) },
	{ .name = "at",
		.kind = DR_OPT_DURATION,
		.arg = "TIME",
		.help = "When.",
		.commands = SERVER,
		AT(at) },
};
static const struct dr_opt output_rows[] = {
	{ .name = "json",
		.file = DR_OPT_WRITE,
		.kind = DR_OPT_STRING,
		.arg = "FILE",
		.implied = "-",
		.help = ".json\\ is a start that roff would misread.",
		.commands = CLIENT,
		AT(json) },
	{ .name = "quiet",
		.short_name = 'q',
		.kind = DR_OPT_FLAG,
		.help = "Say less.",
		.commands = ALL,
		AT(quiet) },
	{ .name = "config",
		.file = DR_OPT_READ,
		.kind = DR_OPT_STRING,
		.arg = "FILE",
		.no_config = true,
		.help = "Options from a file.",
		.commands = ALL,
		AT(config) },
};
static const struct dr_opt_group traffic = { "Traffic", traffic_rows, DR_ARRAY_LEN(traffic_rows) };
static const struct dr_opt_group devices = { "Devices", devices_rows, DR_ARRAY_LEN(devices_rows) };
static const struct dr_opt_group failover = { "Failover", failover_rows,
	DR_ARRAY_LEN(failover_rows) };
static const struct dr_opt_group output = { "Output", output_rows, DR_ARRAY_LEN(output_rows) };
static const struct dr_opt_group *const groups[] = { &traffic, &devices, &failover, &output, NULL };

static const struct dr_opt_pair server_defaults[] = { { "window", "4" }, { NULL, NULL } };
static const struct dr_opt_pair client_examples[] = { { "Check every byte", "client n1 --verify" },
	{ NULL, NULL } };
static const struct dr_opt_pair sections[] = { { "DESCRIPTION", "First.\n.second 2^3" },
	{ NULL, NULL } };
static const struct dr_opt_pair statuses[] = { { "0", "Pass." }, { NULL, NULL } };

static const struct dr_opt_command commands[] = {
	{ "server", SERVER, "[options]", "Serve clients.", NULL, server_defaults, NULL },
	{ "client", CLIENT, "HOST [options]", "Run tests against HOST.", NULL, NULL,
		client_examples },
	{ "shell", 0, "bash|zsh", "Print a script.", NULL, NULL, NULL },
	{ .name = NULL },
};
static const struct dr_opt_manual manual = {
	.version = "1.2",
	.purpose = "test the table",
	.sections = sections,
	.statuses = statuses,
	.see_also = "none",
};

static const struct dr_opts_spec spec = {
	.program = "drtest", .groups = groups, .commands = commands, .manual = &manual
};

struct fixture {
	struct options v;
	struct dr_opts *o;
	struct dr_err e;
	char **pos;
	int n;
};

static int setup(void **state)
{
	struct fixture *f = dr_calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(dr_opts_create(&f->o, &spec, &f->v), 0);
	assert_int_equal(dr_opts_defaults(f->o, CLIENT, &f->e), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	dr_opts_destroy(f->o);
	dr_free(f);
	unsetenv("DRTEST_WINDOW");
	unsetenv("DRTEST_SIZE");
	unsetenv("DRTEST_VERIFY");
	unsetenv("DRTEST_FAULT");
	unsetenv("OTHER_WINDOW");
	unsetenv("ANCIENT_WINDOW");
	return 0;
}

/* Parses the words of one line. */
static int parse(struct fixture *f, unsigned command, const char *line)
{
	static char words[512];
	static char program[] = "drtest";
	char *argv[32] = { program };
	int argc = 1;

	assert_true(strlen(line) < sizeof(words));
	strncpy(words, line, sizeof(words) - 1);
	for (char *p = words, *w; (w = strsep(&p, " "));)
		if (*w)
			argv[argc++] = w;
	int rc = dr_opts_parse(f->o, command, argc, argv, &f->e);

	f->pos = dr_opts_positional(f->o, &f->n);
	return rc;
}

static void defaults_pass_the_parser(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(f->v.size, 64 << 20);
	assert_int_equal(f->v.window, 16);
	assert_int_equal(f->v.memory, 1);
	assert_int_equal(f->v.heartbeat, 10 * DR_NS_PER_MS);
	assert_true(f->v.ratio == 0.1);
	assert_null(f->v.json);
	assert_false(dr_opts_given(f->o, "size"));
	assert_string_equal(dr_opts_source(f->o, "size"), "default");
	assert_string_equal(dr_opts_source(f->o, "rate"), "unset");
}

static void every_kind_is_read(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(
		parse(f, CLIENT,
			"-s 1M node7 --window=8 --verify --rate 10G --ratio 0.5 --memory cuda "
			"-g0-3,8 --map 0=a,b --heartbeat 2ms --json -q extra"),
		0);
	assert_int_equal(f->v.size, 1 << 20);
	assert_int_equal(f->v.window, 8);
	assert_true(f->v.verify && f->v.quiet);
	assert_true(f->v.rate == 1e10 && f->v.ratio == 0.5);
	assert_int_equal(f->v.memory, 0);
	assert_int_equal(f->v.gpus.n, 5);
	assert_int_equal(f->v.gpus.v[4], 8);
	assert_string_equal(f->v.map, "0=a,b");
	assert_int_equal(f->v.heartbeat, 2000000);
	assert_string_equal(f->v.json, "-");
	assert_int_equal(f->n, 2);
	assert_string_equal(f->pos[0], "node7");
	assert_string_equal(f->pos[1], "extra");
	assert_true(dr_opts_given(f->o, "size"));
	assert_int_equal(parse(f, CLIENT, "--json=out.json --verify=off -- --size"), 0);
	assert_string_equal(f->v.json, "out.json");
	assert_false(f->v.verify);
	assert_int_equal(f->n, 1);
	assert_string_equal(f->pos[0], "--size");
}

static void wrong(struct fixture *f, unsigned command, const char *line, int rc, const char *text)
{
	assert_int_equal(parse(f, command, line), rc);
	assert_int_equal(f->e.code, rc);
	assert_string_equal(f->e.text, text);
}

static void errors_name_the_option_the_value_and_the_way_out(void **state)
{
	struct fixture *f = *state;

	wrong(f, CLIENT, "--size 8x", -EINVAL,
		"--size: \"8x\" is not a size; use e.g. 64M, 1GiB, 4kB");
	wrong(f, CLIENT, "-s 8x", -EINVAL, "-s: \"8x\" is not a size; use e.g. 64M, 1GiB, 4kB");
	wrong(f, CLIENT, "--size 2G", -ERANGE, "--size: 2G is out of range; use 1 B to 1 GiB");
	wrong(f, CLIENT, "--window 0", -ERANGE, "--window: 0 is out of range; use 1 to 65536");
	wrong(f, CLIENT, "--heartbeat 1us", -ERANGE,
		"--heartbeat: 1us is out of range; use 100 us to 10.0 s");
	wrong(f, CLIENT, "--heartbeat 10", -EINVAL,
		"--heartbeat: \"10\" has no unit; use 10ms or 10s");
	wrong(f, CLIENT, "--heartbeat 0", -ERANGE,
		"--heartbeat: 0 is out of range; use 100 us to 10.0 s");
	wrong(f, CLIENT, "--memory disk", -EINVAL, "--memory: \"disk\" is not one of cuda|host");
	wrong(f, CLIENT, "--memory c", -EINVAL, "--memory: \"c\" is not one of cuda|host");
	wrong(f, CLIENT, "--verify=maybe", -EINVAL, "--verify: \"maybe\" is neither on nor off");
	wrong(f, CLIENT, "--fault fire", -EINVAL,
		"--fault: \"fire\" is not a fault; use e.g. close:path=0");
	wrong(f, CLIENT, "node --gpu-s 3 tail", -EINVAL,
		"unknown option \"--gpu-s\"; did you mean \"--gpus\"? see drtest client --help-all");
	wrong(f, CLIENT, "--completely-different=3", -EINVAL,
		"unknown option \"--completely-different\"; see drtest client --help-all");
	wrong(f, CLIENT, "-qz", -EINVAL, "unknown option \"-z\"; see drtest client --help-all");
	wrong(f, CLIENT, "--size", -EINVAL, "--size needs a SIZE; see drtest client --help-all");
	wrong(f, CLIENT, "-s", -EINVAL, "-s needs an argument; see drtest client --help-all");
	wrong(f, CLIENT, "--at 1s", -EINVAL,
		"option \"--at\" is not for \"client\"; see drtest client --help-all");
}

static void abbreviations_must_be_unambiguous(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(parse(f, CLIENT, "--win 4"), 0);
	assert_int_equal(f->v.window, 4);
	wrong(f, CLIENT, "--rat 1", -EINVAL, "option \"--rat\" is ambiguous: --rate, --ratio");
	wrong(f, CLIENT, "--m=x", -EINVAL, "option \"--m\" is ambiguous: --memory, --map");
}

/* The name of an option of another command is not an abbreviation. */
static void names_of_other_commands_are_no_abbreviations(void **state)
{
	static const struct dr_opt rows[] = {
		{ .name = "trace",
			.kind = DR_OPT_STRING,
			.arg = "FILE",
			.help = "A.",
			.commands = SERVER,
			AT(map) },
		{ .name = "trace-file",
			.kind = DR_OPT_STRING,
			.arg = "FILE",
			.help = "B.",
			.commands = ALL,
			AT(json) },
	};
	static const struct dr_opt_command two[] = {
		{ "server", SERVER, "", "Serve.", NULL, NULL, NULL },
		{ "client", CLIENT, "", "Run.", NULL, NULL, NULL },
		{ .name = NULL },
	};
	static const struct dr_opt_group group = { "Traces", rows, DR_ARRAY_LEN(rows) };
	static const struct dr_opt_group *const both[] = { &group, NULL };
	static const struct dr_opts_spec own = {
		.program = "drtest", .groups = both, .commands = two
	};
	static const char other[] =
		"option \"--trace\" is not for \"client\"; see drtest client --help-all";
	struct fixture f = { .n = 0 };

	(void)state;
	assert_int_equal(dr_opts_create(&f.o, &own, &f.v), 0);
	wrong(&f, CLIENT, "--trace=x", -EINVAL, other);
	wrong(&f, CLIENT, "--trace x", -EINVAL, other);
	wrong(&f, CLIENT, "node --trace x tail", -EINVAL, other);
	assert_int_equal(parse(&f, CLIENT, "node --trac x --trace-file --trace"), 0);
	assert_string_equal(f.v.json, "--trace");
	assert_int_equal(parse(&f, SERVER, "--trace y"), 0);
	assert_string_equal(f.v.map, "y");
	dr_opts_destroy(f.o);
}

static void the_stronger_source_wins_in_any_order(void **state)
{
	struct fixture *f = *state;
	json_t *config = json_loads("{\"window\": 2, \"size\": \"2K\", \"verify\": true}", 0, NULL);

	setenv("ANCIENT_WINDOW", "5", 1);
	setenv("DRTEST_SIZE", "3K", 1);
	setenv("DRTEST_VERIFY", "", 1);
	assert_int_equal(parse(f, CLIENT, "--size 4K"), 0);
	assert_int_equal(dr_opts_from_env(f->o, CLIENT, &f->e), 0);
	assert_int_equal(dr_opts_from_json(f->o, CLIENT, config, &f->e), 0);
	assert_int_equal(dr_opts_defaults(f->o, CLIENT, &f->e), 0);
	assert_int_equal(f->v.size, 4096);
	assert_int_equal(f->v.window, 5);
	assert_true(f->v.verify);
	assert_string_equal(dr_opts_source(f->o, "size"), "command line");
	assert_string_equal(dr_opts_source(f->o, "window"), "environment");
	assert_string_equal(dr_opts_source(f->o, "verify"), "config");
	setenv("OTHER_WINDOW", "6", 1);
	assert_int_equal(dr_opts_from_env(f->o, CLIENT, &f->e), 0);
	assert_int_equal(f->v.window, 6);
	setenv("DRTEST_WINDOW", "x7", 1);
	assert_int_equal(dr_opts_from_env(f->o, CLIENT, &f->e), -EINVAL);
	assert_string_equal(
		f->e.text, "DRTEST_WINDOW (--window): \"x7\" is not a whole number; use e.g. 8");
	json_decref(config);
}

static void repeated_options_collect_within_one_source(void **state)
{
	struct fixture *f = *state;
	json_t *config = json_loads("{\"fault\": [\"close:1\", \"close:2\"]}", 0, NULL);

	assert_int_equal(dr_opts_from_json(f->o, CLIENT, config, &f->e), 0);
	assert_int_equal(f->v.faults.n, 2);
	setenv("DRTEST_FAULT", "close:3", 1);
	assert_int_equal(dr_opts_from_env(f->o, CLIENT, &f->e), 0);
	assert_int_equal(f->v.faults.n, 1);
	assert_int_equal(parse(f, CLIENT, "--fault close:4 --fault close:5"), 0);
	assert_int_equal(f->v.faults.n, 2);
	assert_string_equal(f->v.faults.text[0], "close:4");
	assert_string_equal(f->v.faults.text[1], "close:5");
	assert_int_equal(dr_opts_from_json(f->o, CLIENT, config, &f->e), 0);
	assert_int_equal(f->v.faults.n, 2);
	json_decref(config);
}

static void wrong_json(struct fixture *f, const char *text, const char *error)
{
	json_t *config = json_loads(text, 0, NULL);

	assert_non_null(config);
	assert_int_equal(dr_opts_from_json(f->o, CLIENT, config, &f->e), -EINVAL);
	assert_string_equal(f->e.text, error);
	json_decref(config);
}

static void configuration_errors(void **state)
{
	struct fixture *f = *state;
	json_t *other = json_loads("{\"at\": \"7s\"}", 0, NULL);

	wrong_json(f, "[]", "an object {\"option\": value} is expected");
	wrong_json(f, "{\"sise\": 1}", "unknown option \"sise\"; did you mean \"size\"");
	wrong_json(f, "{\"size\": {}}", "\"size\": a value is expected, not an object");
	wrong_json(f, "{\"size\": [1]}", "\"size\": one value is expected, not a list");
	wrong_json(f, "{\"gpus\": [\"a\"]}", "\"gpus\": not a list of numbers");
	wrong_json(f, "{\"fault\": [[\"close\"]]}", "\"fault\": a list in a list");
	wrong_json(f, "{\"window\": null}",
		"\"window\": null is no value; give one, or remove the line for the default");
	wrong_json(f, "{\"fault\": [null]}",
		"\"fault\": null is no value; give one, or remove the line for the default");
	wrong_json(f, "{\"gpus\": [null]}", "\"gpus\": not a list of numbers");
	wrong_json(f, "{\"config\": \"x\"}", "\"config\" belongs on the command line");
	wrong_json(f, "{\"size\": 1.5}", "\"size\": \"1.5\" is not a whole number of bytes");
	assert_int_equal(dr_opts_from_json(f->o, CLIENT, other, &f->e), 0);
	assert_int_equal(f->v.at, 0);
	assert_int_equal(f->v.window, 16);
	json_decref(other);
}

static char *echo(struct fixture *f)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	dr_opts_print_kv(f->o, CLIENT, out);
	fclose(out);
	return text;
}

static void the_echo_reads_back_the_same(void **state)
{
	struct fixture *f = *state, *g;
	json_t *a, *b;
	void *other;
	char *kv;

	assert_int_equal(
		parse(f, CLIENT,
			"-s 1536 --rate 2.5G --ratio 0.3 --heartbeat 1500us -g 0-2,9 --json "
			"--fault close:1 --fault close:2 --verify"),
		0);
	setup(&other);
	g = other;
	a = dr_opts_to_json(f->o, CLIENT);
	assert_null(json_object_get(a, "at"));
	assert_null(json_object_get(a, "config"));
	assert_true(json_is_null(json_object_get(a, "map")));
	json_object_del(a, "map");
	assert_string_equal(json_string_value(json_object_get(a, "heartbeat")), "1500us");
	assert_int_equal(dr_opts_from_json(g->o, CLIENT, a, &g->e), 0);
	b = dr_opts_to_json(g->o, CLIENT);
	json_object_del(b, "map");
	assert_true(json_equal(a, b));
	json_decref(a);
	json_decref(b);
	teardown(&other);

	kv = echo(f);
	assert_string_equal(kv, "size=1536B\nwindow=16\nverify=on\nrate=2500000000\nratio=0.3\n"
				"memory=host\ngpus=0-2,9\nheartbeat=1500us\nfault=close:1\n"
				"fault=close:2\njson=-\nquiet=off\n");
	free(kv);
}

static void files_that_are_read_are_not_written(void **state)
{
	struct fixture *f = *state;
	char in[] = "in", *inputs[] = { in };
	struct dr_err e;

	assert_int_equal(parse(f, CLIENT, "--json=out"), 0);
	assert_int_equal(dr_opts_check_files(f->o, inputs, 1, &e), 0);
	assert_int_equal(parse(f, CLIENT, "--json=in"), 0);
	assert_int_equal(dr_opts_check_files(f->o, NULL, 0, &e), 0);
	assert_int_equal(dr_opts_check_files(f->o, inputs, 1, &e), -EINVAL);
	assert_string_equal(
		e.text, "in and --json=in are the same file; choose another one to write");
	assert_int_equal(parse(f, CLIENT, "--json=/dev/null --config /dev/null"), 0);
	assert_int_equal(dr_opts_check_files(f->o, NULL, 0, &e), 0);
	assert_int_equal(parse(f, CLIENT, "--json=c --config c"), 0);
	assert_int_equal(dr_opts_check_files(f->o, NULL, 0, &e), -EINVAL);
}

static char *help(struct fixture *f, const char *command, bool every)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_true(dr_opts_help(f->o, command, every, out));
	fclose(out);
	return text;
}

static char *man_page(struct fixture *f)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	dr_opts_man(f->o, out);
	fclose(out);
	return text;
}

static char *script(struct fixture *f, const char *shell)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_int_equal(dr_opts_complete(f->o, shell, out), 0);
	fclose(out);
	return text;
}

static void has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in:\n%s", part, text);
}

static void help_shows_the_options_of_the_command(void **state)
{
	struct fixture *f = *state;
	char *client = help(f, "client", true), *server = help(f, "server", true);
	char *all = help(f, NULL, true), *brief = help(f, "client", false);

	has(client, "Usage: drtest client HOST [options]\n");
	has(client, "\nTraffic:\n  -s, --size SIZE             Bytes of a message.");
	has(client, "(default: 64M)");
	has(client, "--json[=FILE]");
	has(client, "\n  SIZE: bytes;");
	has(client, "channel. (default: 16)");
	assert_null(strstr(client, "--at "));
	has(server, "--at TIME");
	has(server, "channel. (default: 4)");
	assert_null(strstr(server, "--size"));
	assert_null(strstr(server, "SIZE: bytes"));
	has(client, "\nExamples:\n  Check every byte:\n    drtest client n1 --verify\n");
	assert_string_equal(strstr(client, "--verify\n"), "--verify\n");
	has(all, "  client HOST [options]");
	has(all, "drtest client n1 --verify");
	assert_null(strstr(all, "--size"));
	assert_string_equal(brief,
		"Usage: drtest client HOST [options]\n\nRun tests against HOST.\n\n"
		"Traffic:\n  -s, --size SIZE             message size (64M)\n");
	for (char *p = client, *line; (line = strsep(&p, "\n"));)
		assert_true(strlen(line) <= 80);
	free(client);
	free(server);
	free(all);
	free(brief);
}

static void the_man_page_shows_every_option(void **state)
{
	struct fixture *f = *state;
	char *man = man_page(f);
	char name[64];

	for (const struct dr_opt_group *const *g = groups; *g; g++)
		for (size_t i = 0; i < (*g)->n; i++) {
			snprintf(name, sizeof(name), "\\fB\\-\\-%s\\fR", (*g)->rows[i].name);
			has(man, name);
		}
	assert_int_equal(strncmp(man, ".TH DRTEST 1 ", 13), 0);
	has(man, ".SH NAME\ndrtest \\- test the table\n");
	has(man, "Default: 16 (server: 4).");
	has(man, ".SH DESCRIPTION\nFirst.\n.PP\n\\&.second 2\\(ha3\n");
	has(man, ".SH EXIT STATUS\n.TP\n\\fB0\\fR\nPass.\n");
	has(man, "\n.EX\ndrtest client n1 \\-\\-verify\n.EE\n");
	has(man, "\n\\&.json\\e is");
	has(man, "ANCIENT_WINDOW");
	free(man);
}

static void completion_knows_words_and_files(void **state)
{
	struct fixture *f = *state;
	char *bash = script(f, "bash");

	has(bash, "\tserver)\n\t\topts=\"--window --memory");
	has(bash, "\tshell)\n\t\topts=\"bash zsh\"");
	has(bash, "\t--memory | --memory=) words=\"cuda host\" ;;");
	has(bash, "\t--config | --config=) files=1 ;;");
	has(bash, "\t--json=) files=1 ;;");
	has(bash, "\t-s | --size | --size=) return ;;");
	has(bash, "\t--quiet=) words=\"on off\" ;;");
	assert_int_equal(dr_opts_complete(f->o, "csh", stdout), -EINVAL);
	free(bash);
}

/* It is a default like any other: not given, and weaker than every other source. */
static void a_command_has_defaults_of_its_own(void **state)
{
	struct fixture f = { 0 };
	json_t *j = json_pack("{s:i}", "window", 5);

	(void)state;
	assert_int_equal(dr_opts_create(&f.o, &spec, &f.v), 0);
	assert_int_equal(dr_opts_defaults(f.o, SERVER, &f.e), 0);
	assert_int_equal(f.v.window, 4);
	assert_int_equal(f.v.size, 64 << 20);
	assert_false(dr_opts_given(f.o, "window"));
	assert_string_equal(dr_opts_source(f.o, "window"), "default");
	assert_int_equal(dr_opts_from_json(f.o, SERVER, j, &f.e), 0);
	assert_int_equal(f.v.window, 5);
	json_decref(j);
	dr_opts_destroy(f.o);
}

/* Each allocation fails once: an error, no leak (the sanitizer build looks), no crash. */
static void memory_that_is_not_there(void **state)
{
	struct fixture f = { 0 };
	long n;
	int rc;

	(void)state;

	for (n = 1;; n++) {
		f.o = NULL;
		dr_mem_fail_after(n);
		rc = dr_opts_create(&f.o, &spec, &f.v);
		if (rc == 0)
			rc = dr_opts_defaults(f.o, CLIENT, &f.e);
		if (rc == 0)
			rc = parse(&f, CLIENT, "--fault close:1 -s 1M");
		dr_opts_destroy(f.o);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_true(n < 100);
	}
	dr_mem_fail_after(-1);
	assert_true(n > 5);
}

/* Two groups, of which the second has a struct of its own. */
static void a_group_has_its_own_target(void **state)
{
	static const struct dr_opt_group *const two[] = { &traffic, &failover, NULL };
	struct options common = { 0 }, own = { 0 };
	void *const targets[] = { NULL, &own };
	const struct dr_opts_spec s = {
		.program = "drtest", .groups = two, .commands = commands, .targets = targets
	};
	struct fixture f = { 0 };

	(void)state;
	assert_int_equal(dr_opts_create(&f.o, &s, &common), 0);
	assert_int_equal(dr_opts_defaults(f.o, CLIENT, &f.e), 0);
	assert_int_equal(parse(&f, CLIENT, "--fault close:1 -s 1M"), 0);
	assert_int_equal(common.size, 1 << 20);
	assert_int_equal(common.faults.n, 0);
	assert_int_equal(own.size, 0);
	assert_int_equal(own.faults.n, 1);
	dr_opts_destroy(f.o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_has_its_own_target),
		cmocka_unit_test_setup_teardown(defaults_pass_the_parser, setup, teardown),
		cmocka_unit_test_setup_teardown(every_kind_is_read, setup, teardown),
		cmocka_unit_test_setup_teardown(
			errors_name_the_option_the_value_and_the_way_out, setup, teardown),
		cmocka_unit_test_setup_teardown(abbreviations_must_be_unambiguous, setup, teardown),
		cmocka_unit_test(names_of_other_commands_are_no_abbreviations),
		cmocka_unit_test_setup_teardown(
			the_stronger_source_wins_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(
			repeated_options_collect_within_one_source, setup, teardown),
		cmocka_unit_test_setup_teardown(configuration_errors, setup, teardown),
		cmocka_unit_test_setup_teardown(the_echo_reads_back_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(
			files_that_are_read_are_not_written, setup, teardown),
		cmocka_unit_test_setup_teardown(
			help_shows_the_options_of_the_command, setup, teardown),
		cmocka_unit_test_setup_teardown(the_man_page_shows_every_option, setup, teardown),
		cmocka_unit_test_setup_teardown(completion_knows_words_and_files, setup, teardown),
		cmocka_unit_test(a_command_has_defaults_of_its_own),
		cmocka_unit_test(memory_that_is_not_there),
	};

	return cmocka_run_group_tests_name("opts", tests, NULL, NULL);
}
